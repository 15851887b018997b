"""The legality checker: shows that a partitioned module is the same program as before.

It shares no code with the merger. Both modules are unfolded to value numbers: a value's number stands for the op that
makes it, its attributes and the numbers of its operands, and calls of region functions are entered. Equal numbers mean
equal computations, so the laws can be compared directly:

- every function gives the same values, and runs the same impure ops in the same order;
- each op stands in one place: both modules hold the same ops the same number of times;
- the new module is in SSA order (checked by the verifier), which it can only be if its regions are convex and acyclic;
- a region's inputs are all read and differ, its outputs differ and are all read by some caller.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from byoc_core.errors import InternalError, VerifyError
from byoc_core.ir import CALL, COMPOSITE, Binding, Constant, Function, IRModule, Value, verify

__all__ = ["check_partition"]


def check_partition(before: IRModule, after: IRModule) -> None:
    """Checks that partitioning changed the places of ops and nothing else.

    Raises:
        InternalError: a law is broken; shows the law and the module.

    Cost: linear in the ops of both modules.
    """
    try:
        verify(after)
    except VerifyError as error:
        raise InternalError("partition", f"made an invalid module: {error}") from error
    numbers: dict[object, int] = {}
    for name, function in before.functions.items():
        if name not in after.functions:
            raise InternalError("partition", f"lost function `{name}`", detail=str(after))
        want = _Unfolding(before, numbers).run(function)
        have = _Unfolding(after, numbers).run(after.functions[name])
        for law, left, right in (
            ("the results", want.results, have.results),
            ("the impure ops or their order", want.impure, have.impure),
            ("the ops, or how often they run", want.ops, have.ops),
        ):
            if left != right:
                raise InternalError("partition", f"changed {law} of function `{name}`", detail=str(after))
    _check_interfaces(before, after)


def _check_interfaces(before: IRModule, after: IRModule) -> None:
    read: dict[str, set[int]] = {}
    calls: Counter[str] = Counter()
    for function in after.functions.values():
        _collect_reads(function, read, calls)
    for name, function in after.functions.items():
        if name in before.functions:
            continue
        used = {id(operand) for binding in function.bindings for operand in binding.operands}
        used.update(map(id, function.results))
        for param in function.params:
            if id(param) not in used:
                raise InternalError(
                    f"region `{name}`", f"has an input `{param.name}` that it does not read", detail=str(after)
                )
        if len({id(result) for result in function.results}) != len(function.results):
            raise InternalError(f"region `{name}`", "has an output twice", detail=str(after))
        if len(function.results) > 1 and read.get(name, set()) != set(range(len(function.results))):
            raise InternalError(f"region `{name}`", "has an output that nothing reads", detail=str(after))
        if calls[name] != 1:
            raise InternalError(f"region `{name}`", f"is called {calls[name]} times, not once", detail=str(after))


def _collect_reads(function: Function, read: dict[str, set[int]], calls: Counter[str]) -> None:
    used = {id(operand) for binding in function.bindings for operand in binding.operands}
    used.update(map(id, function.results))
    for binding in function.bindings:
        for region in binding.regions:
            _collect_reads(region, read, calls)
        if binding.op is CALL:
            callee = str(binding.attrs["callee"])
            calls[callee] += 1
            read.setdefault(callee, set()).update(i for i, r in enumerate(binding.results) if id(r) in used)


class _Unfolding:
    """One function unfolded: numbers of its results, of its impure ops in order, and how often each op runs."""

    def __init__(self, module: IRModule, numbers: dict[object, int]) -> None:
        self._module = module
        self._numbers = numbers
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
        if self._has_effect(binding):
            self.impure.append(number)
            number = self._number((number, "run", len(self.impure)))
        return [self._number((number, "result", index)) for index in range(len(binding.results))]

    def _has_effect(self, binding: Binding) -> bool:
        if binding.op is CALL:
            return any(map(self._has_effect, self._module[str(binding.attrs["callee"])].walk()))
        return not binding.op.traits and not binding.attrs.get("pure", False)

    def _region_key(self, region: Function) -> tuple[object, ...]:
        """Numbers a nested body by what it computes from its own parameters."""
        inner = _Unfolding(self._module, self._numbers)
        inner.run(region)
        types = tuple(str(param.type) for param in region.params)
        return (types, tuple(inner.results), tuple(inner.impure), tuple(sorted(inner.ops.items())))
