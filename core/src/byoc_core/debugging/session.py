"""Runs of a partitioned module on the reference interpreter, with a check of every call of a region."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Unpack

import numpy.typing as npt

from byoc_core.backend.info import coarsest_roundoff
from byoc_core.backend.registry import HOST_NAME, BackendHandle, Backends
from byoc_core.debugging.checking import DEADLINE, RegionChecker, open_runner
from byoc_core.debugging.comparing import References, Tolerance, compare_outputs
from byoc_core.debugging.findings import OutputError, RegionCheck, RegionFinding
from byoc_core.debugging.narrowing import find_guilt, op_label
from byoc_core.debugging.report import DebugReport, FailingCase, RegionReport
from byoc_core.driver import Compiler, CompileRequest, Progress, RequestFields, gather_request
from byoc_core.driver.compilation import resolved_request
from byoc_core.driver.signature import shows_request_fields
from byoc_core.errors import CallError, PartitionError, near_names
from byoc_core.ir import Function, IRModule, TensorType
from byoc_core.ir.output_names import name_outputs
from byoc_core.runtime.arguments import argument_places, as_input, bind_symbols
from byoc_core.runtime.module import Signature, TensorSpec
from byoc_core.transform import evaluate_function

__all__ = ["debug_model", "signature_of"]

NDArray = npt.NDArray[Any]


@shows_request_fields
def debug_model(
    module: IRModule,
    backends: Sequence[str | object] | None,
    inputs: Sequence[npt.ArrayLike] | Mapping[str, npt.ArrayLike],
    *,
    function: str = "main",
    request: CompileRequest | None = None,
    compiler: Compiler | None = None,
    tolerance: Tolerance | None = None,
    isolate: bool = False,
    deadline: float = DEADLINE,
    accumulate: bool = False,
    narrow: bool = True,
    progress: Progress | None = None,
    **fields: Unpack[RequestFields],
) -> DebugReport:
    """Run each region of a model on its backend and on the reference kernels, with the same inputs, and compare.

    The model is partitioned as by :func:`byoc_core.build`. Backends with static shapes are asked about the sizes of the
    inputs, and compile for these sizes. The rest runs on the reference kernels; the values of these kernels go on to
    the next region too, to judge each region separately. Regions in ``if`` and ``loop`` bodies are checked at every
    run.

    Args:
        module: the model.
        backends: names or plugin objects, in the order of asking; ``None`` for those of ``request``.
        inputs: one array per input, in order or by name.
        function: the function to run.
        request: the request; ``backends`` and ``fields`` replace values of the request. An exception in a hook of a
            backend is an error or a finding in any case, and the sizes of the inputs replace ``specialize``.
        compiler: has the backends for names; by default the backends installed for this process.
        tolerance: the error accepted as rounding.
        isolate: compile and run regions in a separate process: a crash or an endless region is then a finding. Only
            installed backends can be isolated.
        deadline: seconds allowed for this process, for each region.
        accumulate: go on with the backends' values instead, and judge the results of the whole run too.
        narrow: look for the op at fault in each diverging region.
        progress: called with the name of each stage at the stage's beginning.
        fields: the fields of :class:`byoc_core.CompileRequest`, explained there.

    Raises:
        PartitionError: no backend claims anything, or the run reaches none of the regions: nothing is tested then.
        CallError: an input is missing or does not fit.
        OptionsError: an option is unknown or has a bad value, or a backend cannot be isolated.
        ExecutionError: the model calls something without a reference kernel.
        ByocError: an error raised by :func:`byoc_core.build` before compilation.
    """
    compiles = compiler or Compiler()
    registry = compiles.backends
    full_request = resolved_request(gather_request(request, backends, fields), registry)
    options = full_request.options
    arrays = _ordered_inputs(module[function], inputs)
    sizes = bind_symbols(signature_of(module[function]).inputs, arrays)
    handles = [handle for handle in registry.order(full_request.backends) if handle.name != HOST_NAME]
    used_tolerance = tolerance or Tolerance()
    with open_runner(handles, options, registry, isolate=isolate, deadline=deadline) as runner:
        sized = full_request.updated(specialize=[sizes] if sizes else True)
        carved = compiles.carve(module, sized, progress=progress)
        walk = _Walk(
            carved,
            RegionChecker(runner, used_tolerance, handles, options),
            accumulate=accumulate,
            narrow=narrow,
            progress=progress,
        )
        results = evaluate_function(carved, function, arrays, on_call=walk.on_call)
        reports = walk.reports()
    findings: list[RegionFinding] = []
    errors: list[OutputError] = []
    if accumulate:
        names = name_outputs(module, module)[function].output_names
        infos = [h.info(options.get(h.name)) for h in handles]
        finite_only = any(info.finite_only for info in infos)
        references = References(carved, function, arrays, coarsest_roundoff(infos), finite_only=finite_only)
        findings, errors = compare_outputs(results, names, references, used_tolerance)
    return DebugReport(
        reports,
        tuple(walk.checks),
        used_tolerance,
        options,
        tuple(findings),
        tuple(errors),
        isolate,
        deadline,
        _origins(handles, registry),
    )


def _origins(handles: Sequence[BackendHandle], registry: Backends) -> dict[str, str]:
    """Return the distribution and version of each backend that is registered from a distribution."""
    records = {handle.name: registry.get(handle.name).record for handle in handles if registry.holds(handle)}
    return {name: f"{record.distribution} {record.version}" for name, record in records.items() if record.distribution}


def signature_of(function: Function) -> Signature:
    """Return the inputs and outputs of a function, under the names known to the caller.

    Raises:
        CallError: an input or output is no tensor of known rank.
    """
    inputs = zip(function.input_names, (param.type for param in function.params), strict=True)
    outputs = zip(function.output_names, function.result_types, strict=True)
    return Signature(*(tuple(_spec(function, name, type_) for name, type_ in pairs) for pairs in (inputs, outputs)))


def _spec(function: Function, name: str, type_: object) -> TensorSpec:
    if not isinstance(type_, TensorType) or type_.shape is None:
        raise CallError(f"function `{function.name}`", f"`{name}` is not a tensor of known rank", got=type_)
    return TensorSpec(name, type_.dtype, type_.shape)


def _ordered_inputs(function: Function, inputs: Sequence[npt.ArrayLike] | Mapping[str, npt.ArrayLike]) -> list[NDArray]:
    """Return the inputs in order, checked against the function's parameters."""
    where = f"function `{function.name}`"
    specs = signature_of(function).inputs
    names = [spec.name for spec in specs]
    if isinstance(inputs, Mapping):
        for name in inputs:
            if name not in names:
                hint = near_names(name, names) or None
                raise CallError(where, f"has no input `{name}`", expected=", ".join(names) or "no input", hint=hint)
        missing = [name for name in names if name not in inputs]
        if missing:
            raise CallError(where, f"input {', '.join(f'`{name}`' for name in missing)} is missing")
        ordered_inputs: list[npt.ArrayLike] = [inputs[name] for name in names]
    else:
        ordered_inputs = list(inputs)
    if len(ordered_inputs) != len(specs):
        raise CallError(
            where, "wrong number of inputs", got=len(ordered_inputs), expected=f"{len(specs)}: {', '.join(names)}"
        )
    labels = argument_places(where, "input", specs)
    arrays = [as_input(a, spec, label) for a, spec, label in zip(ordered_inputs, specs, labels, strict=True)]
    bind_symbols(specs, arrays, labels)
    return arrays


class _Walk:
    """The checks at each call of a walk through a module."""

    def __init__(
        self, module: IRModule, checker: RegionChecker, *, accumulate: bool, narrow: bool, progress: Progress | None
    ) -> None:
        self._module = module
        self._checker = checker
        self._accumulate = accumulate
        self._narrow = narrow
        self._say: Callable[[str], None] = progress or (lambda _stage: None)
        self._regions = {
            function.name: function
            for function in module.functions.values()
            if function.attrs.get("Codegen", HOST_NAME) != HOST_NAME
        }
        self._calls: Counter[str] = Counter()
        self._cases: dict[str, FailingCase] = {}
        self.checks: list[RegionCheck] = []
        if not self._regions:
            raise PartitionError(
                "debug",
                "no backend claims a computing op, so nothing can be compared",
                hint="`byoc explain` lists the reasons.",
            )

    def on_call(self, function: Function, inputs: Sequence[NDArray]) -> Sequence[NDArray] | None:
        name = function.name
        if name not in self._regions:
            return None
        self._say(f"check {name}")
        call = self._calls[name]
        self._calls[name] += 1
        checked = self._checker.check(self._module, name, inputs, call)
        self.checks.append(checked.verdict)
        if not checked.verdict.is_right and name not in self._cases:
            guilt = None
            if self._narrow:
                self._say(f"narrow {name}")
                guilt = find_guilt(self._checker, self._module, name, inputs, checked.verdict)
            self._cases[name] = FailingCase(self._module, name, tuple(inputs), checked.verdict, guilt)
        return checked.found if self._accumulate and checked.found is not None else checked.host

    def reports(self) -> tuple[RegionReport, ...]:
        """Return the reports of all regions, in module order."""
        if not self.checks:
            raise PartitionError("debug", "the run reaches no region, so nothing can be compared")
        reports = []
        for name, function in self._regions.items():
            checks = tuple(check for check in self.checks if check.region == name)
            ops = tuple(op_label(binding) for binding in function.bindings)
            reports.append(RegionReport(name, str(function.attrs["Codegen"]), ops, checks, self._cases.get(name)))
        return tuple(reports)
