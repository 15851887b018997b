"""The pass choosing the layouts of values crossing borders between regions."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from byoc_core.backend.registry import Backends, find_registry
from byoc_core.ir import CALL, Binding, Function, IRModule, TensorType, Value, Var, infer_results
from byoc_core.opset.permutation import inverse
from byoc_core.partitioning.layouts.find_orders import find_orders, is_same_memory
from byoc_core.partitioning.layouts.statements import StatedOrders
from byoc_core.partitioning.op_sites import members_of, walk_bodies
from byoc_core.transform.pass_ import Pass
from byoc_core.transform.rewrite import map_regions, with_bindings

__all__ = ["LayoutPlan", "PlanLayouts", "PlannedValue"]


@dataclass(frozen=True, slots=True)
class PlannedValue:
    """A value crossing borders with permuted axes.

    Attributes:
        name: the value.
        order: the axes in memory, as for ``permute_dims``.
        producer: the symbol of the region making the value.
        readers: the symbols of the regions reading the value in this order.
    """

    name: str
    order: tuple[int, ...]
    producer: str
    readers: tuple[str, ...]


@dataclass(frozen=True)
class LayoutPlan:
    """The result of :meth:`PlanLayouts.plan`.

    Attributes:
        module: the module with permuted values between regions.
        values: the permuted values.
        conversions: the name of the converted value for each value made by an inserted ``permute_dims``, by region.
    """

    module: IRModule
    values: tuple[PlannedValue, ...] = ()
    conversions: Mapping[tuple[str, str], str] = field(default_factory=dict)


@dataclass(frozen=True)
class PlanLayouts(Pass):
    """A pass passing values between regions in a layout preferred on both sides, such as channels last.

    Backends state the orders of axes preferred by their ops (``byoc_layouts``). The ops of all regions called in a body
    are one graph: the orders follow ops working in any order, such as additions, across borders. A value made in one
    region and read in another, both of backends with statements, crosses the border in its order: the producing region
    ends with ``permute_dims``, and the reading region begins with the inverse. Backends leave both out, because their
    kernels write and read the order anyway. Other readers, and callers, get the value as before.

    Only regions made by partition and called from one place are changed.

    Attributes:
        backends: plugin objects, or handles, to use under their names instead of installed plugins.
        options: of the backends, by name.
        registry: the backends available by name; by default the backends installed for this process.
    """

    backends: Sequence[object] = ()
    options: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    registry: Backends | None = None

    def __call__(self, module: IRModule) -> IRModule:
        """Return the module with permuted values between regions; a second run changes nothing. Cost: linear.

        Raises:
            BackendNotFoundError: a region is annotated for a backend not installed.
            HookError: a backend's hook failed.
        """
        return self.plan(module).module

    def plan(self, module: IRModule) -> LayoutPlan:
        """Return the module and the permuted values.

        Raises:
            BackendNotFoundError: a region is annotated for a backend not installed.
            HookError: a backend's hook failed.
        """
        regions = _regions_called_once(module)
        stated_orders = StatedOrders(module, find_registry(self.registry).lookup(self.backends), self.options)
        able = {name for name, region in regions.items() if stated_orders.has_statements(str(region.attrs["Codegen"]))}
        if len(able) < 2 or "permute_dims" not in module.ops or not _has_preference(regions, stated_orders):
            return LayoutPlan(module)
        writer = _Writer(module, regions, able, stated_orders)
        functions = {
            name: function if "Codegen" in function.attrs else writer.function(function)
            for name, function in module.functions.items()
        }
        if not writer.values:
            return LayoutPlan(module)
        changed = {name: writer.regions.get(name, function) for name, function in functions.items()}
        return LayoutPlan(module.with_functions(changed), tuple(writer.values), writer.conversions)


def _has_preference(regions: Mapping[str, Function], stated_orders: StatedOrders) -> bool:
    """Return whether a backend prefers a permuted order for any op of its regions."""
    return any(
        stated_orders.prefers(str(region.attrs["Codegen"]), op)
        for region in regions.values()
        for binding in region.bindings
        for op in members_of(binding)
    )


def _regions_called_once(module: IRModule) -> dict[str, Function]:
    """Return the functions made by partition and called from one place."""
    calls = Counter(
        str(binding.attrs["callee"])
        for function in module.functions.values()
        for body in walk_bodies(function)
        for binding in body.bindings
        if binding.op is CALL
    )
    return {
        name: function
        for name, function in module.functions.items()
        if "Codegen" in function.attrs and "source" in function.attrs and calls[name] == 1
    }


class _Writer:
    """A writer of planned bodies and regions.

    Attributes:
        regions: the changed regions, by name.
        values: the permuted values.
        conversions: see :class:`LayoutPlan`.
    """

    def __init__(
        self, module: IRModule, regions: Mapping[str, Function], able: set[str], stated_orders: StatedOrders
    ) -> None:
        self.regions = dict(regions)
        self.values: list[PlannedValue] = []
        self.conversions: dict[tuple[str, str], str] = {}
        self._able = able
        self._originals = regions
        self._stated_orders = stated_orders
        self._op = module.ops["permute_dims"]
        self._names = _names_of(module)

    def function(self, function: Function) -> Function:
        """Return a function with permuted values between the called regions."""
        bindings = tuple(map_regions(function.bindings, self.function))
        calls = [binding for binding in bindings if self._callee(binding) is not None]
        return self._body(with_bindings(function, bindings)) if len(calls) > 1 else with_bindings(function, bindings)

    def _callee(self, binding: Binding) -> str | None:
        name = str(binding.attrs["callee"]) if binding.op is CALL else None
        return name if name in self._able else None

    def _body(self, body: Function) -> Function:
        orders = find_orders(body, self._originals, self._stated_orders)
        readers: dict[int, list[Binding | None]] = {}
        for binding in body.bindings:
            for operand in {id(operand): operand for operand in binding.operands}.values():
                readers.setdefault(id(operand), []).append(binding)
        for result in body.results:
            readers.setdefault(id(result), []).append(None)
        stored: dict[int, Var] = {}
        bindings = []
        for binding in body.bindings:
            callee = self._callee(binding)
            if callee is not None:
                binding = self._read_stored(binding, callee, stored, orders)
                binding = self._write_stored(binding, callee, stored, orders, readers)
            bindings.append(binding)
        return with_bindings(body, bindings)

    def _read_stored(
        self, call: Binding, callee: str, stored: Mapping[int, Var], orders: Mapping[int, tuple[int, ...] | None]
    ) -> Binding:
        """Pass permuted values to a region, and permute their axes back at its beginning."""
        operands = [stored.get(id(operand), operand) for operand in call.operands]
        if all(new is old for new, old in zip(operands, call.operands, strict=True)):
            return call
        region = self.regions[callee]
        params, front = list(region.params), []
        mapping: dict[int, Value] = {}
        for position, (new, old) in enumerate(zip(operands, call.operands, strict=True)):
            order = orders.get(id(old))
            if new is old or order is None or not isinstance(new, Var):
                continue
            param = params[position]
            params[position] = Var(new.name, new.type)
            back = self._permute(params[position], inverse(order), self._fresh(param.name))
            self.conversions[callee, back.result.name] = param.name
            mapping[id(param)] = back.result
            front.append(back)
        bindings = (
            replace(binding, operands=tuple(mapping.get(id(operand), operand) for operand in binding.operands))
            for binding in region.bindings
        )
        results = tuple(mapping.get(id(result), result) for result in region.results)
        self.regions[callee] = replace(region, params=tuple(params), bindings=(*front, *bindings), results=results)
        return replace(call, operands=tuple(operands))

    def _write_stored(
        self,
        call: Binding,
        callee: str,
        stored: dict[int, Var],
        orders: Mapping[int, tuple[int, ...] | None],
        readers: Mapping[int, Sequence[Binding | None]],
    ) -> Binding:
        """Permute results at the end of a region; results with other readers are returned in both forms."""
        region = self.regions[callee]
        outer, inner, behind = list(call.results), list(region.results), []
        for result, inner_result in zip(call.results, region.results, strict=True):
            order = orders.get(id(result))
            if order is not None and is_same_memory(result, order):
                continue
            found = readers.get(id(result), ())
            regions = [name for reader in found if reader is not None and (name := self._callee(reader)) is not None]
            if (
                order is None
                or not regions
                or not isinstance(inner_result, Var)
                or not _is_made_in(inner_result, region)
            ):
                continue
            conversion = self._permute(inner_result, order, self._fresh(result.name))
            behind.append(conversion)
            self.conversions[callee, conversion.result.name] = inner_result.name
            stored[id(result)] = Var(conversion.result.name, conversion.result.type)
            if len(regions) == len(found):
                position = next(index for index, value in enumerate(outer) if value is result)
                outer[position], inner[position] = stored[id(result)], conversion.result
            else:
                outer.append(stored[id(result)])
                inner.append(conversion.result)
            symbols = [str(self._originals[name].attrs["global_symbol"]) for name in (callee, *regions)]
            self.values.append(PlannedValue(result.name, order, symbols[0], tuple(symbols[1:])))
        if not behind:
            return call
        self.regions[callee] = replace(region, bindings=(*region.bindings, *behind), results=tuple(inner))
        return replace(call, results=tuple(outer))

    def _permute(self, value: Var, axes: tuple[int, ...], name: str) -> Binding:
        attrs = self._op.normalise_attrs({"axes": axes})
        result = Var(name, infer_results(self._op, (value,), attrs)[0])
        return Binding((result,), self._op, (value,), attrs)

    def _fresh(self, name: str) -> str:
        stem = re.sub(r"_stored(_\d+)?$", "", name)
        number = 0
        while (found := f"{stem}_stored" + (f"_{number}" if number else "")) in self._names:
            number += 1
        self._names.add(found)
        return found


def _is_made_in(value: Var, region: Function) -> bool:
    return isinstance(value.type, TensorType) and all(value is not param for param in region.params)


def _names_of(module: IRModule) -> set[str]:
    return {
        value.name
        for function in module.functions.values()
        for value in (*function.params, *(result for binding in function.walk() for result in binding.results))
    }
