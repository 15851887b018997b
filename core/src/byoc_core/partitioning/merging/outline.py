"""Outlining: a group of claimed bindings becomes a function annotated for ``RunCodegen``, plus a call."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from byoc_core.ir import CALL, CALL_DPS_PACKED, CALL_PACKED, Binding, Constant, Function, IRModule, Value, Var
from byoc_core.ir.printer import EXTERNAL_MODULES
from byoc_core.ir.sizes import SizeSources, cited_symbols, given_symbols
from byoc_core.opset.attributes import AttrValue
from byoc_core.transform.capture_sizes import CaptureSizes
from byoc_core.transform.rewrite import clone_bindings, map_regions, remap, with_bindings

__all__ = ["Outliner", "outline_claims"]


class Outliner:
    """A maker of region functions with unique names for one module.

    Args:
        module: the function names, global symbols, external functions and called symbols of the module are taken
            already.
    """

    def __init__(self, module: IRModule) -> None:
        self._used_names = set(module.functions)
        self._used_names.update(
            str(f.attrs["global_symbol"]) for f in module.functions.values() if "global_symbol" in f.attrs
        )
        for external in module.attrs.get(EXTERNAL_MODULES, ()):
            self._used_names.update(external.function_names)
        called = (binding for function in module.functions.values() for binding in function.walk())
        self._used_names.update(str(b.attrs["symbol"]) for b in called if b.op in (CALL_DPS_PACKED, CALL_PACKED))
        self._next: dict[str, int] = {}
        self.functions: dict[str, Function] = {}

    def outline(
        self, source: str, bindings: Sequence[Binding], outputs: Sequence[Var], visible: SizeSources, device: int = 0
    ) -> Binding:
        """Make a function of bindings and return the replacing call.

        Args:
            source: name of the function containing the bindings.
            bindings: claimed by one backend, in SSA order.
            outputs: the values read outside, in order of definition; the call defines these values.
            visible: the values readable at the call. If the inputs do not give a symbolic size needed by the ops (from
                ``m*n`` alone follows neither ``m`` nor ``n``), the first value giving the size becomes an input.
            device: the number of the device running the function, among the devices of the backend's memory.
        """
        backend = str(bindings[0].codegen)
        inner_results = {id(result) for binding in bindings for result in binding.results}
        inputs: dict[int, Var] = {}
        for binding in bindings:
            for operand in binding.operands:
                # Constants become part of the region: only variables made outside are inputs.
                if not isinstance(operand, Constant) and id(operand) not in inner_results:
                    inputs.setdefault(id(operand), operand)
        missing = cited_symbols(bindings).difference(*(given_symbols(value.type) for value in inputs.values()))
        inputs.update((id(value), value) for value in visible.find(missing))
        params = tuple(Var(value.name, value.type) for value in inputs.values())
        mapping: dict[int, Value] = dict(zip(inputs, params, strict=True))
        # The attribute `Codegen` of the function replaces the claims of the bindings.
        unclaimed = [binding.claimed_by(None) for binding in bindings]
        body = clone_bindings(unclaimed, mapping)
        symbol = self._symbol(f"{backend}_{source}")
        attrs: dict[str, AttrValue] = {"Codegen": backend, "global_symbol": symbol, "source": source}
        if device:
            attrs["device"] = device
        self.functions[symbol] = Function(symbol, params, tuple(body), tuple(remap(o, mapping) for o in outputs), attrs)
        return Binding(
            tuple(outputs),
            CALL,
            tuple(inputs.values()),
            CALL.normalise_attrs({"callee": symbol}),
            location=bindings[0].location,
        )

    def _symbol(self, name: str) -> str:
        base = re.sub(r"\W|^(?=\d)", "_", name, flags=re.ASCII)
        # Lower numbers are known to be taken: the search for many regions of one base stays linear.
        number = self._next.get(base, 0)
        while f"{base}_{number}" in self._used_names:
            number += 1
        self._next[base] = number + 1
        self._used_names.add(f"{base}_{number}")
        return f"{base}_{number}"


def outline_claims(module: IRModule, is_wanted: Callable[[Binding], bool]) -> IRModule:
    """Return the module with each wanted claimed binding made a function of its own."""
    outliner = Outliner(module)

    def change(function: Function, source: str) -> Function:
        visible = SizeSources(function.params)
        read = {id(operand) for binding in function.bindings for operand in binding.operands}
        read.update(map(id, function.results))
        bindings = []
        for binding in map_regions(function.bindings, lambda region: change(region, source)):
            if binding.codegen is not None and is_wanted(binding):
                outputs = [result for result in binding.results if id(result) in read] or binding.results[:1]
                binding = outliner.outline(source, [binding], outputs, visible)
            bindings.append(binding)
            visible.add(binding.results)
        return with_bindings(function, bindings)

    changed = {name: change(function, name) for name, function in CaptureSizes()(module).functions.items()}
    return module.with_functions({**outliner.functions, **changed}) if outliner.functions else module
