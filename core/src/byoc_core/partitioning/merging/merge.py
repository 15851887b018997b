"""Merging: claims of one backend become one region, never at the price of a cycle."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import ClassVar

from byoc_core.errors import InternalError, PartitionError
from byoc_core.ir import CALL, IF, LOOP, Binding, Function, IRModule, Trait, Var, binding_window, is_pure
from byoc_core.ir.sizes import SizeSources, is_data_dependent, type_symbols
from byoc_core.partitioning.checking.legality import check_partition
from byoc_core.partitioning.merging.grouping import group_claims
from byoc_core.partitioning.merging.ordering import barrier_epochs, sort_groups
from byoc_core.partitioning.merging.outline import Outliner
from byoc_core.partitioning.merging.typed_fusion import fuse_claims
from byoc_core.partitioning.op_sites import OpKey, members_of, op_key
from byoc_core.transform.capture_sizes import CaptureSizes
from byoc_core.transform.pass_ import Pass
from byoc_core.transform.rewrite import map_regions, with_bindings
from byoc_core.transform.specialise import symbols_in

__all__ = ["MergeCompositeFunctions", "merge_claims"]


@dataclass(frozen=True)
class MergeCompositeFunctions(Pass):
    """A pass making a function annotated for ``RunCodegen`` of every maximal group of claims of one backend.

    Attributes:
        sideways: whether claims without an edge between them may share a region, for fewer and larger regions; else a
            region contains neighbours only.
        separated: backends with separate regions for ops of known and of symbolic sizes: these backends compile
            symbolic ops anew for each set of sizes.
        devices: the number of the device of an op; 0 for ops left out. A composite runs on the device of its last op.
    """

    sideways: bool = False
    separated: frozenset[str] = frozenset()
    devices: Mapping[OpKey, int] = field(default_factory=dict)

    verifies_result: ClassVar[bool] = True

    def __call__(self, module: IRModule) -> IRModule:
        """Return the module with region functions.

        All functions are treated, including bodies of ``if`` and ``loop``; bodies receive the sizes needed by their
        regions. Impure bindings are barriers. A data-dependent op is a region of its own.

        Raises:
            PartitionError: an op forbidden in regions is claimed: a call, control flow or an impure op.
            InternalError: the result breaks a law of partition.

        Cost: ``O(n log n)``; see :mod:`byoc_core.partitioning.merging.grouping` and
        :mod:`byoc_core.partitioning.merging.typed_fusion`.
        """
        closed = CaptureSizes()(module)
        merged = merge_claims(closed, self.sideways, self.separated, self.devices)
        if merged is closed:
            return module
        check_partition(closed, merged)
        return merged


def merge_claims(
    module: IRModule,
    sideways: bool,
    separated: frozenset[str] = frozenset(),
    devices: Mapping[OpKey, int] = MappingProxyType({}),
) -> IRModule:
    """Return the result of :class:`MergeCompositeFunctions`, unchecked; the same module if nothing is claimed.

    Args:
        module: a module with all needed sizes in bodies of ``if`` and ``loop`` (:class:`CaptureSizes`).
        sideways: see :class:`MergeCompositeFunctions`.
        separated: see :class:`MergeCompositeFunctions`.
        devices: see :class:`MergeCompositeFunctions`.
    """
    outliner = Outliner(module)
    grouping = _Grouping(fuse_claims if sideways else group_claims, separated, devices)
    changed = {name: _merge(function, name, outliner, module, grouping) for name, function in module.functions.items()}
    return module.with_functions({**outliner.functions, **changed}) if outliner.functions else module


@dataclass(frozen=True, slots=True)
class _Grouping:
    """A grouping of claims.

    Claims of separated backends count as two claims, by known and symbolic sizes, and claims on different devices too.
    """

    group: Callable[[Sequence[Binding], Sequence[int]], list[int]]
    separated: frozenset[str]
    devices: Mapping[OpKey, int]

    def __call__(self, source: str, bindings: Sequence[Binding], epochs: Sequence[int]) -> list[int]:
        """Return the group of each binding of a function made from ``source``."""
        is_plain = not (self.separated or self.devices)
        return self.group(bindings if is_plain else [self._labelled(source, b) for b in bindings], epochs)

    def device_of(self, source: str, binding: Binding) -> int:
        """Return the number of the device of a claimed binding."""
        return self.devices.get(op_key(source, members_of(binding)[-1]), 0) if self.devices else 0

    def _labelled(self, source: str, binding: Binding) -> Binding:
        if binding.codegen is None:
            return binding
        label, device = binding.codegen, self.device_of(source, binding)
        if binding.codegen in self.separated and not symbols_in(Function("claim", (), (binding,), ())):
            label += " of known sizes"
        return binding.claimed_by(f"{label} on device {device}" if device else label)


def _merge(function: Function, source: str, outliner: Outliner, module: IRModule, grouping: _Grouping) -> Function:
    if "Codegen" in function.attrs:
        return function
    for binding in function.bindings:
        _check_claim(binding, function, source, module)
    # Before the bodies change: calls of new region functions, unknown to the module, would count as impure.
    epochs = barrier_epochs(function, module.functions)
    inner = list(map_regions(function.bindings, lambda region: _merge(region, source, outliner, module, grouping)))
    function = with_bindings(function, inner)
    if not any(binding.codegen for binding in function.bindings):
        return function
    group_of = grouping(source, function.bindings, epochs)
    ordered = sort_groups(function.bindings, group_of, epochs)
    if ordered is None:
        window = binding_window(function, None, module.constants)
        raise InternalError(f"function `{source}`", "the regions depend on each other in a cycle", detail=window)
    readers = _readers(function)
    bindings: list[Binding] = []
    visible = SizeSources(function.params)
    for positions in ordered:
        # Taken from the function: the labels of claims exist in the grouping only.
        members = [function.bindings[position] for position in positions]
        if members[0].codegen is not None:
            device = grouping.device_of(source, members[0])
            members = [outliner.outline(source, members, _outputs(members, readers), visible, device)]
        bindings.extend(members)
        # Regions made later may take sizes from these values; earlier regions may not.
        for member in members:
            visible.add(member.results)
    return replace(function, bindings=tuple(bindings))


def _check_claim(binding: Binding, function: Function, source: str, module: IRModule) -> None:
    if binding.codegen is None:
        return
    is_allowed = binding.op.has_trait(Trait.NONDETERMINISTIC) or is_pure(binding, module.functions)
    if binding.op in (CALL, IF, LOOP) or not is_allowed:
        raise PartitionError(
            f"function `{source}`, binding `{', '.join(result.name for result in binding.results)}`",
            f"`{binding.op.name}` is claimed for `{binding.codegen}`, but no region may contain this op",
            hint="Claim pure ops and composites only; claim the ops of a body inside the body.",
            detail=binding_window(function, binding, module.constants),
        )


def _readers(function: Function) -> dict[int, list[int]]:
    """Return the ``id`` of each binding reading a value, by the value's ``id``; 0 for the function's results."""
    readers: dict[int, list[int]] = {}
    for binding in function.bindings:
        for operand in binding.operands:
            readers.setdefault(id(operand), []).append(id(binding))
    for result in function.results:
        readers.setdefault(id(result), []).append(0)
    return readers


def _outputs(members: Sequence[Binding], readers: dict[int, list[int]]) -> list[Var]:
    inside = {id(binding) for binding in members}
    results = [result for binding in members for result in binding.results]
    outputs = [r for r in results if any(reader not in inside for reader in readers.get(id(r), ()))]
    if is_data_dependent(members[0]):
        # Others may need the new size without reading a value of this size.
        known_symbols = type_symbols((*members[0].operands, *outputs))
        outputs += [r for r in results if not type_symbols((r,)) <= known_symbols][:1]
        outputs.sort(key=results.index)
    # A call needs a result even if nothing reads the region's values.
    return outputs or [members[-1].results[0]]
