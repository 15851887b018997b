"""Borders: the reasons keeping two regions of a backend apart although the second reads from the first.

The reasons are read from the partitioned module itself, whatever policy or backend made the regions. The host's regions
in the common body are opened again: a path from the first region to the other, making the union depend on itself, is
then shown op by op.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from byoc_core.ir import CALL, COMPOSITE, Binding, Function, IRModule, Value, is_pure
from byoc_core.ir.sizes import dependencies, is_data_dependent
from byoc_core.partitioning.merging.ordering import barrier_epochs
from byoc_core.partitioning.op_sites import walk_bodies
from byoc_core.transform.rewrite import clone_bindings, remap

__all__ = ["find_borders"]

_MAX_VISITS = 4096
"""The maximum number of bindings visited by one search."""
_VISITS_PER_BINDING = 64
"""The number of bindings open to all searches of a body together, for each binding of the body."""
_MAX_NAMED = 8


def find_borders(module: IRModule, *, host: str, handed_over: Collection[str] = ()) -> list[dict[str, Any]]:
    """Return the borders of a partitioned module.

    Args:
        module: with annotated region functions. Regions annotated by a person have no borders.
        host: the backend without borders: its regions are opened and count as single ops.
        handed_over: symbols of the regions refused by their first backend.

    Returns:
        For each pair ``before, after`` (global symbols) of regions of one backend in one body, the second reading from
        the first: ``code``, ``ops`` (names of explaining ops; of a longer path the ops nearest to the ends) and
        ``text``, a clause. In the order of the bodies, then of the reading regions.

    Cost: linear in bindings and operands; searches are bounded.
    """
    borders = []
    for function in module.functions.values():
        if "Codegen" not in function.attrs:
            for body in walk_bodies(function):
                borders += _Body(body, module.functions, host, handed_over).borders()
    return borders


class _Body:
    def __init__(
        self, body: Function, functions: Mapping[str, Function], host: str, handed_over: Collection[str]
    ) -> None:
        self._handed_over = handed_over
        self._bindings = _open_regions(body, functions, host)
        self._needed = dependencies(self._bindings)
        self._epochs = barrier_epochs(replace(body, bindings=tuple(self._bindings)), functions)
        self._impure = [i for i, binding in enumerate(self._bindings) if not is_pure(binding, functions)]
        self._regions = {i: f for i, b in enumerate(self._bindings) if (f := _callee(b, functions)) and _is_region(f)}
        self._visits_left = _VISITS_PER_BINDING * len(self._bindings)
        self._producer_names: dict[int, dict[int, str]] = {}

    def borders(self) -> list[dict[str, Any]]:
        borders = []
        for after, function in self._regions.items():
            for before in sorted(self._needed[after]):
                other = self._regions.get(before)
                if other is not None and other.attrs["Codegen"] == function.attrs["Codegen"]:
                    code, ops, text = self._reason(before, after)
                    first, second = (str(region.attrs["global_symbol"]) for region in (other, function))
                    borders.append({"before": first, "after": second, "code": code, "ops": ops, "text": text})
        return borders

    def _reason(self, before: int, after: int) -> tuple[str, list[str], str]:
        devices = [self._regions[position].attrs.get("device", 0) for position in (before, after)]
        if devices[0] != devices[1]:
            return "other-device", [], f"the user places the ops on devices {devices[0]} and {devices[1]}"
        if self._epochs[before] != self._epochs[after]:
            first = bisect_left(self._impure, before)
            last = bisect_left(self._impure, after)
            ops = [self._bindings[i].results[0].name for i in self._impure[first:last]][:_MAX_NAMED]
            return "barrier", ops, f"ops with effects lie between the regions: {_named(ops)}"
        for position in (before, after):
            first_op = self._regions[position].bindings[0]
            if is_data_dependent(first_op):
                name = first_op.results[0].name
                return "data-dependent-size", [name], f"the result sizes of `{name}` depend on data"
        path = self._find_path(before, after)
        if path:
            ops = self._names(before, path, after)
            if len(ops) > _MAX_NAMED:
                ops = [*ops[: _MAX_NAMED // 2], *ops[-_MAX_NAMED // 2 :]]
            return "would-close-cycle", ops, f"a merged region would depend on itself through {_named(ops)}"
        symbols = [str(self._regions[position].attrs["global_symbol"]) for position in (before, after)]
        moved = [f"`{symbol}`" for symbol in symbols if symbol in self._handed_over]
        if moved:
            verb = "was" if len(moved) == 1 else "were"
            return (
                "handed-over",
                [],
                f"{' and '.join(moved)} {verb} handed over after a refusal of the claiming backend",
            )
        return "search-limit", [], "the search for another path between the regions reached the limit"

    def _find_path(self, before: int, after: int) -> list[int]:
        """Return the bindings on a shortest path between two bindings through others; empty if not found in time."""
        following: dict[int, int] = {}
        pending = deque(source for source in self._needed[after] if source > before)
        following.update(dict.fromkeys(pending, after))
        visits = min(_MAX_VISITS, self._visits_left)
        while pending and visits:
            visits -= 1
            self._visits_left -= 1
            current = pending.popleft()
            for source in self._needed[current]:
                if source == before:
                    path = [current]
                    while following[path[-1]] != after:
                        path.append(following[path[-1]])
                    return path
                if source > before and source not in following:
                    following[source] = current
                    pending.append(source)
        return []

    def _names(self, before: int, path: Sequence[int], after: int) -> list[str]:
        """Return the names of the ops on a path; for a region, the name of the last op before leaving the region."""
        names = []
        for position, reader in zip(path, [*path[1:], after], strict=True):
            binding = self._bindings[position]
            region = self._regions.get(position)
            read = {id(operand) for operand in self._bindings[reader].operands}
            index = next((i for i, result in enumerate(binding.results) if id(result) in read), 0)
            if region is None:
                names.append(binding.results[0].name)
            else:
                if position not in self._producer_names:
                    self._producer_names[position] = _producer_names(region)
                names.append(self._producer_names[position][id(region.results[index])])
        return names


def _open_regions(body: Function, functions: Mapping[str, Function], host: str) -> list[Binding]:
    """Return the bindings of a body, with the calls of the host's regions replaced by the ops of these regions."""
    mapping: dict[int, Value] = {}
    bindings: list[Binding] = []
    for binding in body.bindings:
        operands = tuple(remap(operand, mapping) for operand in binding.operands)
        function = _callee(binding, functions)
        if function is None or function.attrs.get("Codegen") != host:
            bindings.append(replace(binding, operands=operands))
            continue
        inner: dict[int, Value] = {id(param): o for param, o in zip(function.params, operands, strict=True)}
        bindings.extend(clone_bindings(function.bindings, inner))
        mapping.update((id(r), remap(v, inner)) for r, v in zip(binding.results, function.results, strict=True))
    return bindings


def _callee(binding: Binding, functions: Mapping[str, Function]) -> Function | None:
    return functions.get(str(binding.attrs["callee"])) if binding.op is CALL else None


def _is_region(function: Function) -> bool:
    """Return whether a function is a region made by partition."""
    return "Codegen" in function.attrs and "source" in function.attrs


def _producer_names(region: Function) -> dict[int, str]:
    """Return the names of the ops making a region's values, by the value's ``id``; for a composite, the inner ops."""
    names: dict[int, str] = {}
    for binding in region.bindings:
        if binding.op is COMPOSITE:
            inner = _producer_names(binding.regions[0])
            results = zip(binding.results, binding.regions[0].results, strict=True)
            names.update((id(result), inner.get(id(value), result.name)) for result, value in results)
        else:
            names.update((id(result), binding.results[0].name) for result in binding.results)
    return names


def _named(ops: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in ops)
