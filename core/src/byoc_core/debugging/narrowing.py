"""Search for the op at fault in a diverging region, by compiling parts of the region."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy.typing as npt

from byoc_core.debugging.checking import RegionChecker
from byoc_core.debugging.findings import REFUSED, RegionCheck
from byoc_core.ir import COMPOSITE, Binding, Function, IRModule, binding_window

__all__ = ["Guilt", "find_guilt", "op_label"]

NDArray = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Guilt:
    """The first diverging op of a region.

    Attributes:
        ops: the op, or several candidate ops if the backend refuses the parts needed to decide.
        values: the names of the ops' results, in the same order.
        how: the way of finding the op.
        window: the printed region around the op, the op's line marked.
    """

    ops: tuple[str, ...]
    values: tuple[str, ...]
    how: str
    window: str

    def to_data(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)

    def __str__(self) -> str:
        named = ", ".join(f"`{op}` (`{value}`)" for op, value in zip(self.ops, self.values, strict=True))
        return f"guilty: {named}; {self.how}\n{self.window}"


def find_guilt(
    checker: RegionChecker, module: IRModule, name: str, inputs: Sequence[NDArray], verdict: RegionCheck
) -> Guilt | None:
    """Return the first diverging op of a region; ``None`` if the op cannot be determined.

    First the whole region is compiled with the values of all ops as results: the first wrong value names the op. If all
    values are right, or if this region fails as a whole, the shortest diverging part from the region's beginning ends
    with the op. A composite is a single op here.

    Args:
        checker: checks the parts.
        module: contains the region.
        name: the region's function.
        inputs: inputs with a divergence.
        verdict: the verdict on the region. A hanging region is not run again; a non-deterministic region gives no
            evidence.

    Cost: compiles the region once more, or about log2 of the number of ops times more.
    """
    region = module[name]
    if verdict.is_right or verdict.verdict in ("hang", "not-deterministic") or not region.bindings:
        return None
    if len(region.bindings) == 1:
        return _new_guilt(module, region, region.bindings, "the region has no other op")
    exposed_region = replace(region, results=tuple(result for binding in region.bindings for result in binding.results))
    seen = checker.check(module.with_function(exposed_region), name, inputs).verdict
    wrong = {finding.output for finding in seen.findings}
    position = 0
    for binding in region.bindings:
        if wrong.intersection(range(position, position + len(binding.results))):
            return _new_guilt(module, region, [binding], "the value of this op is the first diverging value")
        position += len(binding.results)
    return _bisect(checker, module, region, inputs)


def _bisect(checker: RegionChecker, module: IRModule, region: Function, inputs: Sequence[NDArray]) -> Guilt:
    """Search for the shortest diverging beginning of a region, between a right beginning and a diverging beginning."""
    right, wrong = 0, len(region.bindings)
    while wrong - right > 1:
        middle = (right + wrong) // 2
        part = _beginning(region, middle)
        verdict = checker.check(module.with_function(part), region.name, inputs).verdict
        if verdict.verdict == REFUSED:
            how = f"the search ended early, because the backend refuses the first {middle} ops alone"
            return _new_guilt(module, region, region.bindings[right:wrong], how)
        if verdict.is_right:
            right = middle
        else:
            wrong = middle
    how = f"the first {wrong} ops diverge together, but not without the last op"
    return _new_guilt(module, region, [region.bindings[right]], how)


def _beginning(region: Function, length: int) -> Function:
    """Return the first ops of a region; the results are the values read by the rest or by the caller."""
    head, rest = region.bindings[:length], region.bindings[length:]
    read = {id(operand) for binding in rest for operand in binding.operands} | {id(r) for r in region.results}
    results = tuple(result for binding in head for result in binding.results if id(result) in read)
    return replace(region, bindings=head, results=results or head[-1].results)  # nothing reads dead values


def _new_guilt(module: IRModule, region: Function, bindings: Sequence[Binding], how: str) -> Guilt:
    labels = tuple(map(op_label, bindings))
    values = tuple(binding.results[0].name for binding in bindings)
    return Guilt(labels, values, how, binding_window(region, bindings[0], module.constants))


def op_label(binding: Binding) -> str:
    """Return an op's name; for a composite, add the names of the inner ops."""
    if binding.op is not COMPOSITE:
        return binding.op.name
    inner = ", ".join(inner.op.name for inner in binding.regions[0].bindings)
    return f"{binding.attrs['name']} ({inner})"
