"""Reverse-mode differentiation: cotangents are carried from a function's result back to its parameters."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence

from byoc_core.dtypes import is_float
from byoc_core.errors import IRError
from byoc_core.ir import IF, Binding, ConstantStore, Function, FunctionBuilder, OpRegistry, TensorType, Value, Var
from byoc_core.ir.sizes import learnt_symbols
from byoc_core.transform.gradients.pullback import Pullback, Rule, constant_between_steps, label_of
from byoc_core.transform.gradients.rules import RULES
from byoc_core.transform.gradients.terms import Emitter, Term

__all__ = ["differentiate"]


def differentiate(
    function: Function, variables: Sequence[Var], *, ops: OpRegistry, constants: ConstantStore
) -> Function:
    """Return the function computing the gradients of the sum of all elements of a function's only result.

    Args:
        function: the function; its result is a tensor of floats.
        variables: some parameters of the function, tensors of floats.
        ops: the registry of the function's ops.
        constants: the store with the function's constants; gets the constants of the gradients.

    Returns:
        A function of the same parameters, with the gradient by each of the variables as results, of the variable's
        type. The result is computed too, as far as the gradients read its steps.

    Raises:
        IRError: ops between variables and result have no derivative, or not in this variant; or the rank of a tensor
            is unknown.

    Cost: linear in the ops and their operands.
    """
    builder = FunctionBuilder(function.name, ops=ops, constants=constants)
    params = [builder.param(param.name, param.type) for param in function.params]
    (result,) = builder.inline(function, params)
    emitter = Emitter(builder)
    output = Term(emitter, result)
    seed = emitter.full(1, output.shape, output.dtype)
    replacements = dict(zip(function.params, params, strict=True))
    gradients = _pull_back(emitter, [(result, seed)], [replacements[variable] for variable in variables])
    return builder.finish(*(gradient.value for gradient in gradients))


def _pull_back(emitter: Emitter, seeds: Sequence[tuple[Value, Term]], variables: Sequence[Var]) -> list[Term]:
    """Emit the cotangents of variables.

    Args:
        emitter: the emitter into the function with the variables and the seeds.
        seeds: values with a cotangent.
        variables: parameters of the function.

    Raises:
        IRError: see :func:`differentiate`.
    """
    bindings = emitter.builder.bindings
    rules = [_find_rule(binding, emitter.builder.ops, RULES) for binding in bindings]
    active = set(map(id, variables))
    for binding, rule in zip(bindings, rules, strict=True):
        if rule is not constant_between_steps and any(id(operand) in active for operand in binding.operands):
            active.update(id(result) for result in binding.results if _holds_floats(result))
    path = _find_path(zip(bindings, rules, strict=True), active, [value for value, _ in seeds])
    cotangents = _Cotangents(emitter, active)
    for value, cotangent in seeds:
        cotangents.add(value, cotangent)
    for binding, rule in reversed(path):
        cotangents.pull_back(binding, rule)
    return [cotangents.of(variable) for variable in variables]


def _find_rule(binding: Binding, ops: OpRegistry, rules: Mapping[str, Rule]) -> Rule | None:
    """Return the rule of an op; a rule concerns the op registered under its name alone."""
    if binding.op is IF:
        return _branches
    return rules.get(binding.op.name) if ops.get(binding.op.name) is binding.op else None


def _holds_floats(value: Value) -> bool:
    return isinstance(value.type, TensorType) and is_float(value.type.dtype)


def _find_path(
    bindings: Iterable[tuple[Binding, Rule | None]], active: Container[int], ends: Sequence[Value]
) -> list[tuple[Binding, Rule]]:
    """Return the bindings between the variables and some values with their rules, in order.

    Args:
        bindings: all bindings of the function, with their rules.
        active: the ids of the floats depending on the variables.
        ends: the values.

    Raises:
        IRError: some ops have no rule; all of these are listed, with the ops that have a rule.
    """
    reached = {id(value) for value in ends if id(value) in active}
    path: list[tuple[Binding, Rule]] = []
    missing: list[str] = []
    for binding, rule in reversed(list(bindings)):
        if any(id(result) in reached for result in binding.results):
            reached.update(id(operand) for operand in binding.operands if id(operand) in active)
            if rule is None:
                missing.append(label_of(binding))
            else:
                path.append((binding, rule))
    if missing:
        raise IRError(
            "differentiation",
            "meets ops without a derivative",
            got=", ".join(dict.fromkeys(reversed(missing))),
            detail=f"Ops with a derivative: {', '.join(sorted((*RULES, IF.name)))}.",
        )
    return path[::-1]


class _Cotangents:
    """The sum of the cotangents found so far, for each value.

    Args:
        emitter: the emitter of ops.
        active: the ids of the floats depending on the variables.
    """

    def __init__(self, emitter: Emitter, active: Container[int]) -> None:
        self._emitter = emitter
        self._active = active
        self._sums: dict[int, Term] = {}

    def add(self, value: Value, cotangent: Term) -> None:
        """Add a cotangent of a value; cotangents of values independent of the variables are dropped."""
        if id(value) in self._active:
            earlier = self._sums.get(id(value))
            self._sums[id(value)] = cotangent if earlier is None else earlier + cotangent

    def of(self, value: Value) -> Term:
        """Return the cotangent of a value: zeros for a value without influence."""
        term, cotangent = Term(self._emitter, value), self._sums.get(id(value))
        return self._emitter.full(0, term.shape, term.dtype) if cotangent is None else cotangent

    def pull_back(self, binding: Binding, rule: Rule) -> None:
        """Add the cotangents of the operands of an op to their values."""
        of_results = [self._sums.get(id(result)) for result in binding.results]
        if all(cotangent is None for cotangent in of_results):
            return
        self._emitter.location = binding.location
        pullback = Pullback(self._emitter, binding, of_results, self._active)
        for operand, cotangent in zip(binding.operands, rule(pullback), strict=True):
            if cotangent is not None and id(operand) in self._active:
                self.add(operand, cotangent.reshape(Term(self._emitter, operand).shape))


def _branches(pullback: Pullback) -> Sequence[Term | None]:
    """Return the cotangents of the inputs of an ``if``: another ``if``, with the derivatives of both branches.

    Each branch is computed again inside.

    Raises:
        IRError: results have sizes learnt inside of the branches.
    """
    binding = pullback.binding
    if learnt_symbols(binding, {}):
        raise pullback.refusal("for results of sizes known only inside of the branches")
    numbers = [index for index in range(len(binding.results)) if pullback.has_cotangent(index)]
    cotangents = [pullback.cotangent(index) for index in numbers]
    inputs = range(1, pullback.num_operands)
    needed = [index for index in inputs if pullback.needs(index)]
    regions = [_branch(pullback, region, numbers, [index - 1 for index in needed]) for region in binding.regions]
    operands = [pullback.operand(0), *map(pullback.operand, inputs), *cotangents]
    found = dict(zip(needed, pullback.emitter.emit("if", operands, regions=regions), strict=True))
    return [found.get(index) for index in range(pullback.num_operands)]


def _branch(pullback: Pullback, region: Function, results: Sequence[int], variables: Sequence[int]) -> Function:
    """Return the function of the cotangents of some parameters of a branch, by the cotangents of some results.

    Args:
        pullback: the ``if``.
        region: the branch.
        results: the positions of the results with a cotangent, the further parameters of the function.
        variables: the positions of the parameters.
    """
    outer = pullback.emitter.builder
    builder = FunctionBuilder(region.name, ops=outer.ops, constants=outer.constants)
    params = [builder.param(param.name, param.type) for param in region.params]
    emitter = Emitter(builder)
    seeds = [Term(emitter, builder.param(f"cotangent{index}", pullback.cotangent(index).type)) for index in results]
    values = builder.inline(region, params)
    pairs = [(values[index], seed) for index, seed in zip(results, seeds, strict=True)]
    cotangents = _pull_back(emitter, pairs, [params[index] for index in variables])
    return builder.finish(*(term.value for term in cotangents))
