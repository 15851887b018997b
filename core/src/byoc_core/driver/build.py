"""From a module to something that runs: prepare, partition, compile, lower; or to what explains it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from byoc_core.artifact import Executable
from byoc_core.backend import BackendHandle
from byoc_core.backend.contained import ContainedBackend, HookFailure
from byoc_core.backend.own_ops import with_own_ops
from byoc_core.backend.registry import HOST_NAME, find_registry
from byoc_core.backend.size_compiler import held_sizes
from byoc_core.backend.specialised import SpecialisedBackend
from byoc_core.driver.explanation import Explanation
from byoc_core.driver.fallback import FALLBACKS, Fallback, judge_fallback, warn_of_failures
from byoc_core.driver.frozen import keep_frozen
from byoc_core.driver.specialising import Specialize, parameter_symbols, sizes_to_compile
from byoc_core.errors import OptionsError, PartitionError
from byoc_core.ir import Function, IRModule
from byoc_core.ir.output_names import name_outputs
from byoc_core.ir.printer import EXTERNAL_MODULES
from byoc_core.lower import lower
from byoc_core.partitioning import (
    PartitionLog,
    PartitionOptions,
    PartitionRequest,
    PeelViews,
    Policy,
    Refusal,
    RunCodegen,
    build_report,
)
from byoc_core.partitioning.claiming.admission import new_admission
from byoc_core.partitioning.constraints.constraints import Constraints
from byoc_core.partitioning.partition import check_module, check_option_owners, partition_pipeline
from byoc_core.pattern import Rejection, Support
from byoc_core.transform import PassRun, Sequential, UniqueNames, default_passes, pass_name, trace_sizes
from byoc_core.transform.rewrite import inline_composites

__all__ = ["BuildOptions", "build", "carve_regions", "explain", "pass_names"]

Progress = Callable[[str], None]
"""Called with the name of each stage as it begins."""
OnPass = Callable[[PassRun], None]
"""Called after each pass with its name, the seconds it took and the module it gave."""


@dataclass(frozen=True)
class BuildOptions:
    """How to build, apart from what and for whom.

    Attributes:
        fallback: what to do when ops stay on the host: ``"allow"`` (the log says so), ``"warn"`` or ``"error"``.
        policy: who takes what; greedy by order by default.
        dump: a folder that gets the printed module after every pass.
        progress: called with the name of each stage as it begins.
        on_pass: called after each pass with its name, the seconds it took and the module it gave.
        partition_options: constraints on who takes what.
        strict: whether an exception in a hook of a backend is an error in place of a refusal.
        max_fold_cost: bytes and FLOPs that computing constants may take; see :class:`FoldConstants`.
        specialize: sets of sizes for which backends of static shapes compile regions with symbolic sizes in advance;
            ``True`` for none, ``False`` where these backends get static shapes only.
    """

    fallback: Fallback = "allow"
    policy: Policy | None = None
    dump: Path | None = None
    progress: Progress | None = field(default=None, repr=False)
    on_pass: OnPass | None = field(default=None, repr=False)
    partition_options: PartitionOptions = field(default_factory=PartitionOptions)
    strict: bool = False
    max_fold_cost: int | None = None
    specialize: Specialize = True

    def __post_init__(self) -> None:
        if self.fallback not in FALLBACKS:
            raise OptionsError("fallback", "unknown value", got=repr(self.fallback), expected=" or ".join(FALLBACKS))
        if self.max_fold_cost is not None and self.max_fold_cost < 0:
            raise OptionsError("max_fold_cost", "is negative", got=self.max_fold_cost)


def build(
    module: IRModule,
    backends: Sequence[str | object] = (),
    *,
    options: Mapping[str, Mapping[str, object]] | None = None,
    fallback: Fallback = "allow",
    strict: bool = False,
    policy: Policy | None = None,
    dump: str | Path | None = None,
    progress: Progress | None = None,
    on_pass: OnPass | None = None,
    partition_options: PartitionOptions | None = None,
    max_fold_cost: int | None = None,
    specialize: Specialize = True,
) -> Executable:
    """Compiles a module.

    Args:
        module: what to compile; parts of it may be annotated or compiled already.
        backends: names or plugin objects, from the first to be asked to the last. What none of them takes runs on the
            host.
        options: each backend's options, by backend name.
        fallback: what to do when ops stay on the host: ``"allow"`` (the report and the log say why), ``"warn"``, or
            ``"error"``. Listing ``"host"`` among the backends permits it. A backend that cannot compile on this
            machine takes nothing, and a warning says so.
        strict: whether an exception in a hook of a backend is an error, as it is with ``fallback="error"``. Else it is
            the backend's refusal of what the hook was asked about: other backends and the host take it, a warning says
            so, and the report keeps the traceback.
        policy: who takes what; greedy by order by default.
        dump: a folder that gets the printed module after every pass.
        progress: called with the name of each stage as it begins.
        on_pass: called after each pass (see :func:`pass_names`) with its name, the seconds it took and the module it
            gave.
        partition_options: constraints on who takes what: ops forced to a backend or the host, ends of offloading,
            allowed ops, smallest regions.
        max_fold_cost: the most bytes and FLOPs that computing constants may take; by default 512 Mi and 16 for each
            byte of the module's constants. What would cost more stays in the program, and the log says so.
        specialize: sets of sizes (``[{"n": 1}, {"n": 8}]``) for which backends that take static shapes only
            (``BackendInfo.dynamic_shapes``) compile regions with symbolic sizes in advance. Other sizes are compiled
            when a call brings them first; of those, 16 sets are kept for each region. Sizes that the backend refuses
            run on the host, which the log says once for each set; with ``fallback="error"`` they are an error of the
            call. An artifact holds the sets given here, and the host form for others; see ``respecializable`` of
            :meth:`Executable.save`. ``True`` compiles none in advance; with ``False`` these backends take no symbolic
            sizes.

    Raises:
        BackendNotFoundError: a backend is not installed.
        OptionsError: an option is unknown or has a bad value, a constraint names what is not there or contradicts
            another, a size is not of the model, or ``module`` is no module.
        PartitionError: ``fallback="error"`` and ops stay on the host that no constraint keeps there; lists them with
            the reasons. Or the backend that an op is forced to does not take it. Or a policy did anything but claim.
        VerifyError: the module breaks an IR law.
        CodegenError: a function annotated by hand cannot be compiled.
        HookError: ``strict`` or ``fallback="error"``, and a hook of a backend raised.
    """
    folder = Path(dump) if dump is not None else None
    wishes = partition_options or PartitionOptions()
    chosen = BuildOptions(fallback, policy, folder, progress, on_pass, wishes, strict, max_fold_cost, specialize)
    job = _Build(module, backends, options or {}, chosen)
    made = job.compile()
    if job.asked and HOST_NAME not in backends:
        judge_fallback(fallback, made.report_data, job.keeps_on_host)
    return job.lower(made)


def explain(
    module: IRModule,
    backends: Sequence[str | object] = (),
    *,
    options: Mapping[str, Mapping[str, object]] | None = None,
    strict: bool = False,
    policy: Policy | None = None,
    progress: Progress | None = None,
    partition_options: PartitionOptions | None = None,
    max_fold_cost: int | None = None,
    specialize: Specialize = True,
) -> Explanation:
    """Tells what :func:`build` would do, and why: it does the same, codegen included, but for lowering.

    Args:
        module: what to explain.
        backends: names or plugin objects, from the first to be asked to the last.
        options: each backend's options, by backend name.
        strict: whether an exception in a hook of a backend is an error; else the explanation tells of it.
        policy: who takes what; greedy by order by default.
        progress: called with the name of each stage as it begins.
        partition_options: constraints on who takes what.
        max_fold_cost: the most bytes and FLOPs that computing constants may take; by default 512 Mi and 16 for each
            byte of the module's constants. What would cost more stays in the program, and the log says so.
        specialize: sets of sizes for backends of static shapes, or ``False``; see :func:`build`.

    Raises:
        BackendNotFoundError: a backend is not installed.
        OptionsError: an option is unknown or has a bad value, a constraint names what is not there or contradicts
            another, or ``module`` is no module.
        PartitionError: the backend that an op is forced to does not take it, or a policy did anything but claim.
        VerifyError: the module breaks an IR law.
        CodegenError: a function annotated by hand cannot be compiled.
        HookError: ``strict``, and a hook of a backend raised.
    """
    wishes = partition_options or PartitionOptions()
    chosen = BuildOptions("allow", policy, None, progress, None, wishes, strict, max_fold_cost, specialize)
    made = _Build(module, backends, options or {}, chosen).compile()
    return Explanation(made.partitioned, made.report_data)


def carve_regions(
    module: IRModule,
    backends: Sequence[str | object],
    *,
    options: Mapping[str, Mapping[str, object]] | None = None,
    policy: Policy | None = None,
    progress: Progress | None = None,
    partition_options: PartitionOptions | None = None,
    max_fold_cost: int | None = None,
    specialize: Specialize = True,
) -> IRModule:
    """Gives the module as :func:`build` has it just before it compiles for these backends.

    What they claim stands in functions annotated for them, but for views at the borders (see :class:`PeelViews`); what
    they leave, :func:`build` gives to the host. An exception in a hook of a backend is an error, as with ``strict``.

    Args:
        module: what to partition.
        backends: names or plugin objects, from the first to be asked to the last.
        options: each backend's options, by backend name.
        policy: who takes what; greedy by order by default.
        progress: called with the name of each stage as it begins.
        partition_options: constraints on who takes what.
        max_fold_cost: the most bytes and FLOPs that computing constants may take; by default 512 Mi and 16 for each
            byte of the module's constants. What would cost more stays in the program, and the log says so.
        specialize: sets of sizes for backends of static shapes, or ``False``; see :func:`build`.

    Raises:
        ByocError: what :func:`build` raises before it compiles.
    """
    wishes = partition_options or PartitionOptions()
    chosen = BuildOptions("allow", policy, None, progress, None, wishes, True, max_fold_cost, specialize)
    job = _Build(module, backends, options or {}, chosen)
    return job.peel(job.offload(job.prepare()))


def pass_names(backends: Sequence[str | object] = ()) -> tuple[str, ...]:
    """Gives the names of the passes that :func:`build` runs for these backends, in order.

    Raises:
        BackendNotFoundError: a backend is not installed.
    """
    names = [handle.name for handle in find_registry().order(backends)]
    asked = [name for name in names if name != HOST_NAME]
    preparations = [*map(pass_name, default_passes()), *map(_prepare_name, asked), UniqueNames.__name__]
    partitions = [*([_PARTITION] if asked else []), _PARTITION_HOST]
    return (*preparations, *partitions, PeelViews.__name__, RunCodegen.__name__)


_PARTITION, _PARTITION_HOST = "partition", "partition_host"


def _prepare_name(backend: str) -> str:
    return f"prepare_{backend}"


@dataclass(frozen=True, slots=True)
class _Compiled:
    """What compiling gives before lowering: the module with regions, the one with external calls, and the report."""

    partitioned: IRModule
    compiled: IRModule
    report_data: dict[str, Any]


class _Build:
    def __init__(
        self,
        module: IRModule,
        backends: Sequence[str | object],
        options: Mapping[str, Mapping[str, object]],
        chosen: BuildOptions,
    ) -> None:
        check_module(module)
        if isinstance(backends, str):
            raise OptionsError("backends", "is a single string", got=repr(backends), expected=f"[{backends!r}]")
        self._module = module
        self._failures: list[HookFailure] = []
        handles = find_registry().order(backends)
        is_strict = chosen.strict or chosen.fallback == "error"
        self._handles = [
            handle if is_strict or handle.name == HOST_NAME else ContainedBackend(handle, self._failures)
            for handle in handles
        ]
        sizes = sizes_to_compile(chosen.specialize, module)
        if sizes is not None:
            needs_backend = chosen.fallback == "error" and HOST_NAME not in backends
            specialised = partial(
                SpecialisedBackend,
                symbols=parameter_symbols(module),
                host=None if needs_backend else handles[-1],
                is_strict=is_strict,
            )
            self._handles = [
                handle if handle.info().dynamic_shapes else specialised(handle, sizes, options.get(handle.name, {}))
                for handle in self._handles
            ]
        self._options = options
        self._chosen = chosen
        self._log = PartitionLog()
        self._moved: dict[str, Function] = {}
        self._unavailable: frozenset[str] = frozenset()
        self._constraints = Constraints()
        self.asked = [handle.name for handle in self._handles if handle.name != HOST_NAME]
        self._module = with_own_ops(module, self._handles)
        check_option_owners(options, [handle.name for handle in self._handles])

    def prepare(self) -> IRModule:
        """Gives the module as it is partitioned."""
        missing = self._missing()
        self._unavailable = frozenset(missing)
        for name, rejection in missing.items() if self._chosen.fallback != "error" else ():
            warnings.warn(
                f"backend `{name}` {rejection.text}.\nOther backends and the host take its ops.", stacklevel=4
            )
        self._say("prepare")
        preparations: list[Callable[[IRModule], IRModule]] = [
            *default_passes(
                keep_quantised=any(handle.info().quantised for handle in self._offloading),
                max_fold_cost=self._chosen.max_fold_cost,
            ),
            *map(self._preparation, self._offloading),
            UniqueNames(),
        ]
        module = self._sequence(preparations, dump=self._dump("prepare"))(self._module)
        names = [handle.name for handle in self._handles]
        self._constraints = Constraints.resolve(self._chosen.partition_options, module, names)
        self._refuse_all(module, missing)
        return module

    def offload(self, module: IRModule) -> IRModule:
        """Gives the module with a function for each region that a backend claims, the host excepted."""
        self._say("partition")
        with keep_frozen(module, self._offloading):
            return self._partition(module, self._offloading, self._chosen.policy, _PARTITION)

    def peel(self, module: IRModule) -> IRModule:
        """Gives the module with views at the borders of regions in the callers, but for those that the user placed."""
        peel = PeelViews(self._handles, lambda function, name: (function, name) in self._constraints.forced)
        return self._sequence([peel], verify_input=False, dump=self._dump("peel"))(module)

    def compile(self) -> _Compiled:
        annotated = {name for name, function in self._module.functions.items() if "Codegen" in function.attrs}
        module = self.prepare()
        sizes = [origin.to_data() for origin in trace_sizes(module).origins]
        module = self.offload(module)
        carved = self._partition(module, [self._handles[-1]], None, _PARTITION_HOST)
        module = self.peel(carved)
        self._say("compile")
        codegen = RunCodegen(
            options=self._options,
            backends=self._handles,
            handover=lambda function, backend, refusal: self._hand_over(function, backend, refusal, annotated),
        )
        with keep_frozen(module, self._offloading):
            compiled = self._sequence([codegen], verify_input=False, dump=self._dump("compile"))(module)
        partitioned = module.with_functions({**module.functions, **self._moved})
        takers = {name: function.attrs["Codegen"] for name, function in self._moved.items()}
        moved = {name: carved[name].with_attrs(Codegen=taker) for name, taker in takers.items()}
        whole = carved.with_functions({**carved.functions, **moved})
        stated = {h.name: h.info(self._options.get(h.name)).unit_roundoff for h in self._handles}
        told = build_report(partitioned, self._log, host=HOST_NAME, asked=self.asked, whole=whole, roundoffs=stated)
        report = {**told, "sizes": sizes}
        if specialised := held_sizes(compiled.attrs.get(EXTERNAL_MODULES, ())):
            report["specialised"] = specialised
        if self._failures:
            report["hook_failures"] = [failure.to_data() for failure in self._failures]
            warn_of_failures(self._failures)
        return _Compiled(partitioned, compiled, report)

    def keeps_on_host(self, function: str, name: str) -> bool:
        """Tells whether the user wants an op, named by its first result, to stay on the host."""
        return self._constraints.keeps_on_host(function, name)

    def lower(self, made: _Compiled) -> Executable:
        self._say("lower")
        program = lower(name_outputs(made.compiled, self._module))
        modules = tuple(made.compiled.attrs.get(EXTERNAL_MODULES, ()))
        constants = {ref.digest: made.compiled.constants[ref.digest] for ref in program.constants}
        for external in modules:
            constants.update(external.constants)
        return Executable(program, modules, constants, made.report_data, is_own=True)

    @property
    def _offloading(self) -> list[BackendHandle]:
        return [h for h in self._handles if h.name in self.asked and h.name not in self._unavailable]

    def _missing(self) -> dict[str, Rejection]:
        """Gives the backends that cannot compile on this machine, and why: they take nothing."""
        missing = {}
        for handle in self._handles:
            if handle.name in self.asked:
                status = handle.compile_status(handle.context(self._module, self._options.get(handle.name, {})))
                if not status.ok:
                    text = ". ".join(filter(None, (f"cannot compile here: {status.reason}", status.remedy)))
                    missing[handle.name] = Rejection("unavailable", text.removesuffix("."))
        return missing

    def _refuse_all(self, module: IRModule, missing: Mapping[str, Rejection]) -> None:
        for backend, rejection in missing.items():
            admit = self._constraints.admission(backend)
            for function in module.functions.values():
                for binding in function.walk():
                    reason = admit(function.name, binding) or rejection
                    self._log.refuse(function.name, binding, Refusal(backend, reason))

    def _say(self, stage: str) -> None:
        if self._chosen.progress is not None:
            self._chosen.progress(stage)

    def _dump(self, stage: str) -> Path | None:
        return None if self._chosen.dump is None else self._chosen.dump / stage

    def _sequence(
        self,
        passes: Sequence[Callable[[IRModule], IRModule]],
        *,
        verify: bool = True,
        verify_input: bool = True,
        dump: Path | None = None,
    ) -> Sequential:
        return Sequential(passes, verify, verify_input, dump, self._chosen.on_pass)

    def _preparation(self, handle: BackendHandle) -> Callable[[IRModule], IRModule]:
        options = self._options.get(handle.name, {})

        def prepare(module: IRModule) -> IRModule:
            with keep_frozen(module, [handle], "byoc_prepare"):
                return handle.prepare(module, handle.context(module, options))

        prepare.__name__ = _prepare_name(handle.name)
        return prepare

    def _partition(
        self, module: IRModule, handles: Sequence[BackendHandle], policy: Policy | None, name: str
    ) -> IRModule:
        if not handles:
            self._constraints.check_forced(module, self._log)
            return module
        names = {handle.name for handle in handles}
        options = {name: given for name, given in self._options.items() if name in names}
        constraints = self._constraints if name == _PARTITION else Constraints()
        request = PartitionRequest(handles, options, self._log)
        pipeline = partition_pipeline(request, lambda _: constraints, policy, verify_input=False)

        def carve(given: IRModule) -> IRModule:
            return pipeline(given)

        carve.__name__ = name
        return self._sequence([carve], verify=False)(module)  # it checks its own steps

    def _hand_over(self, function: Function, backend: str, refusal: Rejection, annotated: set[str]) -> Function:
        """Gives a refused region to the next backend that takes all of its ops."""
        if function.name in annotated:
            run_codegen = RunCodegen(options=self._options, backends=self._handles)
            run_codegen.refuse(self._module, function, backend, refusal)
        inlined = inline_composites(function)
        source = str(function.attrs.get("source", function.name))
        self._log.refuse_region(str(function.attrs["global_symbol"]), backend)
        for binding in inlined.bindings:
            self._log.refuse(source, binding, Refusal(backend, refusal))
            self._constraints.check_left(source, binding, backend, refusal)
        position = [handle.name for handle in self._handles].index(backend)
        for handle in self._handles[position + 1 :]:
            if handle.name not in self._unavailable and self._takes(handle, inlined, source):
                self._moved[function.name] = inlined.with_attrs(Codegen=handle.name)
                return self._moved[function.name]
        problem = f"backend `{backend}` refused it ({refusal.text}) and no other backend takes it"
        raise PartitionError(f"region `{function.name}`", problem)

    def _takes(self, handle: BackendHandle, region: Function, source: str) -> bool:
        """Tells whether a backend takes every op of a region; records why not."""
        context = handle.context(self._module, self._options.get(handle.name, {}))
        admit = new_admission(handle, self._constraints.admission(handle.name))
        refusals = {}
        for position, binding in enumerate(region.bindings):
            answer = admit(source, binding) or handle.supports(binding, context)
            if not isinstance(answer, Support):
                refusals[position] = answer
        if not refusals:
            return True
        guilty = region.bindings[min(refusals)]
        name = guilty.results[0].name
        text = f"takes no `{guilty.op.name}` (`{name}`), which stands in the same region"
        for position, binding in enumerate(region.bindings):
            own = Refusal(handle.name, refusals[position]) if position in refusals else None
            mate = Refusal(handle.name, Rejection("same-region", text), ops=(name,))
            self._log.refuse(source, binding, own or mate)
        return False
