"""Inlining: calls replaced by the bodies of their callees."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter

from byoc_core.errors import IRTypeError, OptionsError
from byoc_core.ir import CALL, COMPOSITE, Binding, Function, IRModule, Value
from byoc_core.ir.verifier import MAX_NESTING
from byoc_core.transform.call_bodies import CallBodies, callee_of
from byoc_core.transform.pass_ import Pass
from byoc_core.transform.rewrite import remap, with_bindings
from byoc_core.transform.rewriter import is_open

__all__ = ["InlineCalls"]

_BASE_OPS, _OPS_PER_OP = 50_000, 4


@dataclass(frozen=True)
class InlineCalls(Pass):
    """Replacement of each ``call`` by the body of the callee, to let a region span the body.

    Values of the body are fresh and have names unused in the caller. Symbols of the callee's parameters become the
    caller's sizes, and types are inferred again; other symbols of the callee are renamed if the caller has them.
    Locations stay. A value replacing a result of the call has the name of this result. Calls in the bodies of ``if``
    and ``loop`` are replaced too.

    A call is replaced together with all calls in the callee. The call stays

    - if the callee is not among ``functions``;
    - if the callee is annotated with ``Codegen``, if the call stands in a function so annotated or in a composite, or
      if a backend has claimed the call: such code is handed over unchanged;
    - if the callee is recursive, directly or indirectly, or calls a recursive function;
    - if bodies would be nested more deeply than the verifier permits;
    - if the callee does not fit the caller's sizes, or introduces a size with a name already used in the caller, or has
      results of other types than the call (parameters of unknown rank may become known);
    - if the pass would copy more than ``max_ops`` ops. A chain of ``n`` functions, each with two calls of the next,
      expands to ``2**n`` ops. Calls are considered in the order of the module.

    Functions without remaining callers stay unchanged: :class:`RemoveUnusedFunctions` removes such functions.

    Attributes:
        functions: names of the callees whose calls are replaced; all functions by default.
        max_ops: the most ops to copy; by default 50,000 plus four for each op of the module.
    """

    functions: Sequence[str] | None = None
    max_ops: int | None = None

    def __post_init__(self) -> None:
        if self.max_ops is not None and self.max_ops < 0:
            raise OptionsError("max_ops", "is negative", got=self.max_ops)

    def __call__(self, module: IRModule) -> IRModule:
        """Return the module with calls replaced; the same module if no call is replaced.

        Raises:
            IRError: a function of ``functions`` is not in the module.

        Cost: linear in the ops of the module and the copied ops.
        """
        candidates = module.functions if self.functions is None else {name: module[name] for name in self.functions}
        bodies = _measure(module, candidates)
        num_ops = sum(1 for function in module.functions.values() for _ in function.walk())
        left = _BASE_OPS + _OPS_PER_OP * num_ops if self.max_ops is None else self.max_ops
        return _Inlining(module, bodies, left).run()


@dataclass(frozen=True, slots=True)
class _Body:
    """A function with all calls replaced: the number of ops, and the nesting depth of bodies."""

    num_ops: int
    depth: int


def _calls(function: Function, depth: int = 0) -> Iterator[tuple[Binding, int]]:
    """Yield the calls outside of composites, with the number of bodies around each."""
    for binding in function.bindings:
        if binding.op is CALL:
            yield binding, depth
        for region in binding.regions if binding.op is not COMPOSITE else ():
            yield from _calls(region, depth + 1)


def _depth(function: Function) -> int:
    return max((1 + _depth(region) for binding in function.bindings for region in binding.regions), default=0)


def _measure(module: IRModule, candidates: Mapping[str, Function]) -> dict[str, _Body]:
    """Return the functions whose calls may be replaced, callees before callers."""
    calls = {name: list(_calls(function)) for name, function in module.functions.items()}
    callees = {name: [str(call.attrs["callee"]) for call, _ in found] for name, found in calls.items()}
    sorter = TopologicalSorter({name: dict.fromkeys(found) for name, found in callees.items()})
    with suppress(CycleError):  # the sorter yields only functions not leading to a cycle
        sorter.prepare()
    bodies: dict[str, _Body] = {}
    while ready := sorter.get_ready():
        for name in ready:
            function = candidates.get(name)
            if function is not None and is_open(function):
                bodies[name] = _expanded_body(function, calls[name], bodies)
        sorter.done(*ready)
    return bodies


def _expanded_body(function: Function, calls: Sequence[tuple[Binding, int]], bodies: Mapping[str, _Body]) -> _Body:
    replaced = [(bodies[str(call.attrs["callee"])], depth) for call, depth in calls if callee_of(call) in bodies]
    num_ops = sum(1 for _ in function.walk()) + sum(body.num_ops - 1 for body, _ in replaced)
    return _Body(num_ops, max([_depth(function), *(depth + body.depth for body, depth in replaced)]))


class _Inlining:
    """A single run over a module."""

    def __init__(self, module: IRModule, bodies: Mapping[str, _Body], left: int) -> None:
        self._module = module
        self._bodies = bodies
        self._left = left

    def run(self) -> IRModule:
        """Return the module with calls replaced in every function still called, or without callers from the start."""
        functions = dict(self._module.functions)
        called = {callee_of(call) for function in functions.values() for call, _ in _calls(function)}
        pending = [name for name in functions if name not in called or name not in self._bodies]
        queued = set(pending)
        for name in pending:  # the list grows during the loop
            if is_open(functions[name]):
                functions[name] = self._function(functions[name])
            callees = [callee for b in functions[name].walk() if (callee := callee_of(b)) in functions]
            pending += (callee for callee in dict.fromkeys(callees) if callee not in queued)
            queued.update(callees)
        if all(functions[name] is function for name, function in self._module.functions.items()):
            return self._module
        return self._module.with_functions(functions)

    def _function(self, function: Function) -> Function:
        if not any(callee_of(call) in self._bodies for call, _ in _calls(function)):
            return function
        return self._replaced(function, CallBodies(function, self._module.functions, self._bodies), 0)

    def _replaced(self, function: Function, copies: CallBodies, depth: int) -> Function:
        mapping: dict[int, Value] = {}
        bindings: list[Binding] = []
        for original in function.bindings:
            binding = self._rewired(original, mapping, copies, depth)
            copy = self._copy(binding, copies, depth)
            if copy is None:
                bindings.append(binding)
            else:
                bindings += copy[0]
                mapping.update((id(old), new) for old, new in zip(binding.results, copy[1], strict=True))
        if not mapping:
            return with_bindings(function, bindings)
        results = tuple(remap(result, mapping) for result in function.results)
        return replace(function, bindings=tuple(bindings), results=results)

    def _rewired(self, binding: Binding, mapping: dict[int, Value], copies: CallBodies, depth: int) -> Binding:
        operands = tuple(remap(operand, mapping) for operand in binding.operands)
        regions = binding.regions
        if binding.op is not COMPOSITE:
            regions = tuple(self._replaced(region, copies, depth + 1) for region in regions)
        old, new = (*binding.operands, *binding.regions), (*operands, *regions)
        is_same = all(a is b for a, b in zip(old, new, strict=True))
        return binding if is_same else replace(binding, operands=operands, regions=regions)

    def _copy(self, call: Binding, copies: CallBodies, depth: int) -> tuple[list[Binding], list[Value]] | None:
        """Return the replacement of a call; ``None`` if the call stays, or for another op."""
        if not copies.replaces(call):
            return None
        body = self._bodies[str(call.attrs["callee"])]
        if body.num_ops > self._left or depth + body.depth > MAX_NESTING:
            return None
        self._left -= body.num_ops
        try:
            return copies.copy(call)
        except IRTypeError:  # the body does not fit here
            return None
