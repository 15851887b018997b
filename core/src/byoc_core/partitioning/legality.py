"""The legality checker: shows that a partitioned module is the same program as before.

It shares no code with the merger. Both modules are unfolded to value numbers: a value's number stands for the op that
makes it, its attributes and the numbers of its operands, and calls of region functions are entered. Equal numbers mean
equal computations, so the laws can be compared directly:

- every function gives the same values, and runs the same impure ops in the same order;
- each op stands in one place: both modules hold the same ops the same number of times;
- the new module is in SSA order (checked by the verifier), which it can only be if its regions are convex and acyclic;
- a region holds no impure op and is called once; its inputs are all read (or give a symbolic size that those read do
  not) and differ, its outputs differ and are all read (or have a size that no input gives); an op whose sizes only the
  data tells is a region of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from byoc_core.errors import InternalError, VerifyError
from byoc_core.ir import (
    CALL,
    CALL_PACKED,
    COMPOSITE,
    Binding,
    Constant,
    Function,
    IRModule,
    Trait,
    Value,
    binding_window,
    verify,
)
from byoc_core.ir.sizes import given_symbols, type_symbols

__all__ = ["check_partition"]


def check_partition(before: IRModule, after: IRModule) -> None:
    """Checks that partitioning changed the places of ops and nothing else.

    Raises:
        InternalError: a law is broken; shows the law and the head of the function.

    Cost: linear in the ops of both modules.
    """
    try:
        verify(after)
    except VerifyError as error:
        raise InternalError("partition", f"made an invalid module: {error}") from error
    numbers: dict[object, int] = {}
    effects_before, effects_after = _Effects(before), _Effects(after)
    for name, function in before.functions.items():
        if name not in after.functions:
            raise InternalError("partition", f"lost function `{name}`", detail=_head(function, before))
        want = _Unfolding(before, numbers, effects_before).run(function)
        have = _Unfolding(after, numbers, effects_after).run(after.functions[name])
        for law, left, right in (
            ("the results", want.results, have.results),
            ("the impure ops or their order", want.impure, have.impure),
            ("the ops, or how often they run", want.ops, have.ops),
        ):
            if left != right:
                detail = _head(after.functions[name], after)
                raise InternalError("partition", f"changed {law} of function `{name}`", detail=detail)
    _check_interfaces(before, after)


def _check_interfaces(before: IRModule, after: IRModule) -> None:
    uses: dict[str, list[_Use]] = {}
    for function in after.functions.values():
        _collect_uses(function, uses)
    effects = _Effects(after)
    for name, function in after.functions.items():
        if name in before.functions:
            continue
        problem = _interface_problem(function, uses.get(name, []))
        if problem is None and effects.of_function(function):
            problem = "holds an impure op"
        if problem is not None:
            raise InternalError(f"region `{name}`", problem, detail=_head(function, after))


def _head(function: Function, module: IRModule) -> str:
    return binding_window(function, None, module.constants)


def _interface_problem(function: Function, uses: Sequence[_Use]) -> str | None:
    if len(uses) != 1:
        return f"is called {len(uses)} times, not once"
    used = _read_ids(function)
    known = frozenset[str]().union(*(given_symbols(param.type) for param in function.params if id(param) in used))
    for param in function.params:
        if id(param) not in used and given_symbols(param.type) <= known:
            return f"has an input `{param.name}` that it does not read"
    if len(set(map(id, uses[0].operands))) != len(uses[0].operands):
        return "has an input twice"
    if len(set(map(id, function.results))) != len(function.results):
        return "has an output twice"
    given = type_symbols(function.params)
    for result, is_read in zip(function.results, uses[0].is_read, strict=True):
        gives_nothing = isinstance(result, Constant) or given_symbols(result.type) <= given
        if len(function.results) > 1 and not is_read and gives_nothing:
            return "has an output that nothing reads"
    if len(function.bindings) > 1 and any(Trait.DATA_DEPENDENT in b.op.traits for b in function.bindings):
        return "holds an op whose sizes the data tells, and others"
    return None


@dataclass(frozen=True, slots=True)
class _Use:
    """A call: its operands, and for each result whether something reads it."""

    operands: tuple[Value, ...]
    is_read: tuple[bool, ...]


def _read_ids(function: Function) -> set[int]:
    read = {id(operand) for binding in function.bindings for operand in binding.operands}
    return read.union(map(id, function.results))


def _collect_uses(function: Function, uses: dict[str, list[_Use]]) -> None:
    read = _read_ids(function)
    for binding in function.bindings:
        for region in binding.regions:
            _collect_uses(region, uses)
        if binding.op is CALL:
            use = _Use(binding.operands, tuple(id(result) in read for result in binding.results))
            uses.setdefault(str(binding.attrs["callee"]), []).append(use)


class _Effects:
    """Which functions and bindings of a module have effects; each function is looked at once."""

    def __init__(self, module: IRModule) -> None:
        self._module = module
        self._known: dict[str, bool] = {}

    def of_function(self, function: Function) -> bool:
        return any(map(self.of_binding, function.bindings))

    def of_binding(self, binding: Binding) -> bool:
        if binding.op is CALL_PACKED:
            return not binding.attrs["pure"]
        if binding.op is CALL:
            callee = str(binding.attrs["callee"])
            if callee not in self._known:
                self._known[callee] = self.of_function(self._module[callee])
            return self._known[callee]
        return Trait.PURE not in binding.op.traits or any(map(self.of_function, binding.regions))


class _Unfolding:
    """One function unfolded: numbers of its results, of its impure ops in order, and how often each op runs."""

    def __init__(self, module: IRModule, numbers: dict[object, int], effects: _Effects) -> None:
        self._module = module
        self._numbers = numbers
        self._effects = effects
        self.results: list[int] = []
        self.impure: list[int] = []
        self.ops: Counter[int] = Counter()

    def run(self, function: Function) -> _Unfolding:
        params = [self._number(("param", index)) for index in range(len(function.params))]
        self.results = self._enter(function, params)
        return self

    def _number(self, key: object) -> int:
        return self._numbers.setdefault(key, len(self._numbers))

    def _enter(self, function: Function, arguments: Sequence[int]) -> list[int]:
        values = {id(param): number for param, number in zip(function.params, arguments, strict=True)}

        def number_of(value: Value) -> int:
            if isinstance(value, Constant):
                return self._number(("constant", value.digest, str(value.type)))
            return values[id(value)]

        for binding in function.bindings:
            operands = [number_of(operand) for operand in binding.operands]
            for result, number in zip(binding.results, self._binding(binding, operands), strict=True):
                values[id(result)] = number
        return [number_of(result) for result in function.results]

    def _binding(self, binding: Binding, operands: list[int]) -> list[int]:
        if binding.op is COMPOSITE:
            return self._enter(binding.regions[0], operands)
        if binding.op is CALL:
            callee = self._module[str(binding.attrs["callee"])]
            if "Codegen" in callee.attrs:
                return self._enter(callee, operands)
        regions = tuple(self._region_key(region) for region in binding.regions)
        key = (binding.op.name, repr(sorted(binding.attrs.items(), key=lambda item: item[0])), tuple(operands), regions)
        number = self._number(key)
        self.ops[number] += 1
        if self._effects.of_binding(binding):
            self.impure.append(number)
            number = self._number((number, "run", len(self.impure)))
        return [self._number((number, "result", index)) for index in range(len(binding.results))]

    def _region_key(self, region: Function) -> tuple[object, ...]:
        """Numbers a nested body by what it computes from its own parameters."""
        inner = _Unfolding(self._module, self._numbers, self._effects)
        inner.run(region)
        types = tuple(str(param.type) for param in region.params)
        return (types, tuple(inner.results), tuple(inner.impure), tuple(sorted(inner.ops.items())))
