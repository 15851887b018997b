"""The third step of a compilation: regions become runtime modules, and the report lists the backend of each op."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from byoc_core.artifact import Executable
from byoc_core.backend.options import path_options
from byoc_core.backend.registry import HOST_NAME
from byoc_core.backend.size_compiler import held_sizes
from byoc_core.driver.carve import Carved
from byoc_core.driver.compilation import Compilation
from byoc_core.driver.fallback import warn_of_failures
from byoc_core.driver.frozen import keep_frozen
from byoc_core.driver.handover import RegionHandover
from byoc_core.driver.pipeline import inserted_passes
from byoc_core.driver.stages import Stage
from byoc_core.driver.swappable import bind_weights, link_weights, separate_weight_forms
from byoc_core.ir import IRModule
from byoc_core.ir.output_names import name_outputs
from byoc_core.ir.printer import EXTERNAL_MODULES
from byoc_core.lower import copies_data, lower
from byoc_core.partitioning import build_report
from byoc_core.partitioning.weight_forms import WeightForms
from byoc_core.transform import trace_sizes
from byoc_core.transform.hoist_weights import HoistedWeights

__all__ = ["Compiled", "compile_regions", "explained_report", "link"]


@dataclass(frozen=True)
class Compiled:
    """A compilation before lowering.

    Attributes:
        compilation: the compilation.
        partitioned: the module with regions, each annotated with the backend that compiled the region.
        module: the module with external calls in place of the regions.
        report_data: the backend of each op, and the reasons against other backends.
        weights: the swappable weights, parameters of :attr:`module`.
        weight_params: by region, the numbers of the parameters that get a swappable weight in every call.
    """

    compilation: Compilation
    partitioned: IRModule
    module: IRModule
    report_data: dict[str, Any]
    weights: tuple[HoistedWeights, ...] = ()
    weight_params: Mapping[str, frozenset[int]] = field(default_factory=dict)


def compile_regions(carved: Carved) -> Compiled:
    """Return a compilation with its regions compiled.

    Raises:
        CodegenError: a function annotated by hand cannot be compiled.
        PartitionError: a region refused by its backend finds no other backend.
        PassError: a pass of the user raised, or made an invalid module.
        HookError: a hook of a backend raised, and the compilation is strict.
    """
    prepared, module = carved.prepared, carved.module
    compilation = prepared.compilation
    compilation.observers.begin(Stage.COMPILE)
    handover = RegionHandover(prepared)
    forms = WeightForms({item.function.name: item.inputs for item in prepared.weights})
    codegen = replace(compilation.codegen(), handover=handover, weights=forms)
    with keep_frozen(module, prepared.offloading):
        compiled = compilation.observers.sequence([codegen], Stage.COMPILE, verify_input=False)(module)
    compiled, weights = separate_weight_forms(compiled, prepared.weights, forms.by_symbol)
    partitioned = module.with_functions({**module.functions, **handover.moved})
    passes = inserted_passes(compilation, Stage.AFTER_CODEGEN, prepared.offloading)
    if passes:
        compiled = compilation.observers.sequence(passes, Stage.AFTER_CODEGEN, verify_input=False)(compiled)
    report = _report(carved, handover, partitioned, compiled)
    return Compiled(compilation, partitioned, compiled, report, weights, forms.params)


def link(compiled: Compiled) -> Executable:
    """Return the executable of a compilation."""
    compilation, module = compiled.compilation, compiled.module
    compilation.observers.begin(Stage.LOWER)
    program = lower(_with_named_outputs(compiled))
    modules = tuple(module.attrs.get(EXTERNAL_MODULES, ()))
    digests = [ref.digest for ref in program.constants if ref.digest in module.constants]
    constants = {digest: module.constants[digest] for digest in digests}
    for external in modules:
        constants.update(external.constants)
    request = compilation.request.to_record(
        {handle.name: path_options(handle.info().options) for handle in compilation.offload_backends}
    )
    report = {**compiled.report_data, **copies_data(program)}
    executable = Executable(program, modules, constants, report, is_own=True, request=request)
    if not compiled.weights:
        return executable
    return link_weights(executable, module, compiled.weights, compilation.host)


def _with_named_outputs(compiled: Compiled) -> IRModule:
    return bind_weights(name_outputs(compiled.module, compiled.compilation.module), compiled.weights)


def explained_report(compiled: Compiled) -> dict[str, Any]:
    """Return the report of a compilation as of its executable; lower the module only if a function is a device's."""
    compilation, module = compiled.compilation, compiled.module
    external_modules = tuple(module.attrs.get(EXTERNAL_MODULES, ()))
    if all(item.call_traits(name).domain is None for item in external_modules for name in item.function_names):
        return compiled.report_data
    compilation.observers.begin(Stage.LOWER)
    return {**compiled.report_data, **copies_data(lower(_with_named_outputs(compiled)))}


def _report(carved: Carved, handover: RegionHandover, partitioned: IRModule, compiled: IRModule) -> dict[str, Any]:
    compilation, unpeeled = carved.prepared.compilation, carved.unpeeled
    takers = {name: function.attrs["Codegen"] for name, function in handover.moved.items()}
    moved = {name: unpeeled[name].with_attrs(Codegen=taker) for name, taker in takers.items()}
    report: dict[str, Any] = build_report(
        partitioned,
        compilation.log,
        host=HOST_NAME,
        backends=[handle.name for handle in compilation.offload_backends],
        unpeeled=unpeeled.with_functions({**unpeeled.functions, **moved}),
        layouts=carved.layouts,
        roundoffs={
            handle.name: handle.info(compilation.options(handle)).unit_roundoff for handle in compilation.backends
        },
    )
    if forms := _value_forms(compilation.module):
        report["value_forms"] = forms
    report["sizes"] = [origin.to_data() for origin in trace_sizes(carved.prepared.module).origins]
    if specialised := held_sizes(compiled.attrs.get(EXTERNAL_MODULES, ())):
        report["specialised"] = specialised
    if compilation.failures:
        report["hook_failures"] = [failure.to_data() for failure in compilation.failures]
        warn_of_failures(compilation.failures)
    return report


def _value_forms(module: IRModule) -> dict[str, dict[str, Any]]:
    """Return the form of each input and output other than a tensor, by function; read by sessions."""
    forms = {}
    for name, function in module.functions.items():
        pairs = {key: function.attrs.get(key) for key in ("input_forms", "output_forms")}
        found = {
            key: [list(item) for item in items if isinstance(item, tuple)]
            for key, items in pairs.items()
            if isinstance(items, tuple)
        }
        if found:
            forms[name] = found
    return forms
