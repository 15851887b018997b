"""The backend under test, with the kit's operations: partition, compile, run.

All tests of a worker process share a single :class:`Subject`, and the attempts, executables and machines cached for
the subject (by the examples and by the case functions). A test must not change these objects.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from types import MappingProxyType
from typing import Any

import byoc_core
import numpy.typing as npt
from byoc_core.backend import BackendHandle, backends, coarsest_roundoff, ops_with
from byoc_core.backend.hooks import BackendInfo
from byoc_core.errors import ByocError, OptionsError
from byoc_core.ir import Function, IRModule, OpDef, OpRegistry
from byoc_core.partitioning import PartitionLog, PartitionOptions, RunCodegen
from byoc_core.pattern import Rejection
from byoc_core.runtime import PackedFunction, runtimes

from byoc_conformance.judging import Verdict, judge
from byoc_conformance.lowered_calls import with_whole_regions
from byoc_conformance.outcome import FailedError, NotCoveredError

__all__ = ["Attempt", "Subject", "SubjectSpec", "call_function", "call_unchanging"]

NDArray = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class SubjectSpec:
    """A backend under test with all settings: plain values, for transfer to another process.

    Attributes:
        backend: the backend's name.
        options: the backend's options; for options of companions, see ``companion_options``.
        companions: backends asked after the subject in every build, for tests of several backends together.
        companion_options: by name.
        examples: random examples for each property; at least 1.
        seed: of all random numbers; not negative.

    Raises:
        OptionsError: a value cannot be transferred to another process, or is of no use to a run.
    """

    backend: str
    options: Mapping[str, Any] = field(default_factory=dict)
    companions: Sequence[str] = ()
    companion_options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    examples: int = 20
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (("examples", 1), ("seed", 0)):
            value = getattr(self, name)
            if type(value) is not int or value < least:
                raise OptionsError(name, "cannot be used", got=repr(value), expected=f"an integer, {least} or more")
        if isinstance(self.companions, str) or self.backend in self.companions:
            expected = "a list of names, without the backend's own"
            raise OptionsError("companions", "cannot be used", got=repr(self.companions), expected=expected)
        object.__setattr__(self, "companions", tuple(self.companions))
        try:
            self.to_json()
        except (TypeError, ValueError) as error:
            raise OptionsError(f"options of `{self.backend}`", f"are no plain JSON values: {error}") from error

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values for :meth:`from_json`."""
        values = {name: getattr(self, name) for name in self.__slots__}
        plain: dict[str, Any] = json.loads(json.dumps(values, default=dict))
        return plain

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> SubjectSpec:
        """Return the specification."""
        return cls(**{**values, "companions": tuple(values["companions"])})


class Subject:
    """The backend under test; compared by identity.

    Args:
        spec: the specification.

    Raises:
        BackendNotFoundError: the backend is not installed.
        PluginError: the backend is quarantined; with the reason.
    """

    def __init__(self, spec: SubjectSpec) -> None:
        self.spec = spec
        self.handle: BackendHandle = backends().get(spec.backend)
        self.companions: tuple[BackendHandle, ...] = tuple(backends().get(name) for name in spec.companions)

    @property
    def name(self) -> str:
        """The backend's name."""
        return self.handle.name

    @property
    def info(self) -> BackendInfo:
        """The info declared by the backend."""
        return self.handle.info()

    @cached_property
    def ops(self) -> OpRegistry:
        """The core's ops and the backend's own."""
        return ops_with([self.handle])

    @property
    def ops_with_cases(self) -> tuple[OpDef, ...]:
        """The ops with canonical cases: the core's, then the backend's own."""
        return tuple(op for op in self.ops.values() if op.canonical_cases)

    @property
    def unit_roundoff(self) -> Mapping[str, float]:
        """The declared unit roundoff of joint computations of the subject and the companions, by dtype."""
        return coarsest_roundoff(h.info(self.options.get(h.name)) for h in (self.handle, *self.companions))

    @property
    def finite_only(self) -> bool:
        """Whether the subject, or a companion, computes on finite numbers only."""
        return any(handle.info().finite_only for handle in (self.handle, *self.companions))

    @property
    def options(self) -> dict[str, Mapping[str, Any]]:
        """The options of all participating backends, by name."""
        return {self.name: self.spec.options, **self.spec.companion_options}

    def judge(self, module: IRModule, name: str, inputs: Sequence[NDArray], results: Sequence[NDArray]) -> Verdict:
        """Judge the results of a call by the declared arithmetic of the subject and the companions."""
        return judge(module, name, inputs, results, self.unit_roundoff, finite_only=self.finite_only)

    def require_tools(self) -> None:
        """Raise if the subject or a companion cannot compile on this machine.

        Backends unable to compile are not asked for claims either, as in every build.

        Raises:
            NotCoveredError: a backend cannot compile here.
        """
        if self._missing_tools:
            raise NotCoveredError(self._missing_tools)

    @cached_property
    def _missing_tools(self) -> str:
        """The name of a backend unable to compile here, with the reason; empty if all can."""
        for handle in (self.handle, *self.companions):
            status = handle.compile_status(handle.context(options=self.options.get(handle.name)))
            if not status.ok:
                return f"`{handle.name}` cannot compile here: {status.reason}"
        return ""

    def attempt(self, module: IRModule) -> Attempt:
        """Partition a module among the subject and the companions, and compile their claims.

        No pass runs before, so each op is asked about unchanged. Each function of the module is treated separately:
        functions with a compile error do not stop the others.

        Raises:
            ByocError: partition failed.
            NotCoveredError: the backends cannot compile on this machine.
        """
        self.require_tools()
        log = PartitionLog()
        # Functions of the kit are too small to be worth a call for some backends.
        partitioned = byoc_core.partition(
            module,
            [self.handle, *self.companions],
            options=self.options,
            log=log,
            partition_options=PartitionOptions(backend_limits=False),
        )
        return Attempt(self, module, partitioned, log)


class Attempt:
    """A partitioned module, with the outcome of each function. Compiled at first use.

    Args:
        subject: the subject of the attempt.
        module: the original module.
        partitioned: the module with regions.
        log: the reasons for ops outside of regions.

    Attributes:
        module: the original module.
        partitioned: the module with regions.
    """

    def __init__(self, subject: Subject, module: IRModule, partitioned: IRModule, log: PartitionLog) -> None:
        self._subject = subject
        self._log = log
        self.module = module
        self.partitioned = partitioned

    def only(self, names: Collection[str]) -> Attempt:
        """Return the attempt at some of the functions; their partition stays the same."""
        functions = {name: self.module[name] for name in names}
        partitioned = {
            name: function
            for name, function in self.partitioned.functions.items()
            if str(function.attrs.get("source", name)) in functions
        }
        return Attempt(
            self._subject,
            self.module.with_functions(functions),
            self.partitioned.with_functions(partitioned),
            self._log,
        )

    def with_partition(self, module: IRModule, partitioned: Mapping[str, Function]) -> Attempt:
        """Return an attempt at other functions, partitioned already.

        Args:
            module: the original functions.
            partitioned: the functions with regions, and the regions, by name.
        """
        return Attempt(self._subject, module, self.partitioned.with_functions(partitioned), self._log)

    @cached_property
    def regions(self) -> Mapping[str, tuple[Function, ...]]:
        """The subject's regions, by source function."""
        found: dict[str, list[Function]] = {name: [] for name in self.module.functions}
        for function in self.partitioned.functions.values():
            if function.attrs.get("Codegen") == self._subject.name:
                found.setdefault(str(function.attrs.get("source", function.name)), []).append(function)
        return MappingProxyType({name: tuple(functions) for name, functions in found.items()})

    def is_claimed(self, name: str) -> bool:
        """Return whether the subject claims every op of a function with at least one op."""
        mine = {region.name for region in self.regions[name]}
        ops = self.partitioned[name].bindings
        return bool(mine) and all(op.op.name == "call" and op.attrs["callee"] in mine for op in ops)

    def reasons(self, name: str) -> tuple[Rejection, ...]:
        """Return the distinct reasons of the subject for not claiming ops of a function."""
        refusals = (
            refusal
            for binding in self.module[name].walk()
            if binding.results
            for refusal in self._log.refusals(name, binding.results[0].name)
        )
        return tuple(dict.fromkeys(r.rejection for r in refusals if r.backend == self._subject.name))

    @cached_property
    def failures(self) -> Mapping[str, str]:
        """The codegen errors of functions without compiled code, by function.

        The error is from a companion's codegen if the subject has no region in the function.
        """
        return self._compiled[1]

    @property
    def compiled(self) -> IRModule:
        """The module with external calls; functions with a compile error are left out."""
        return self._compiled[0]

    @cached_property
    def executable(self) -> byoc_core.Executable:
        """The executable of the compiled functions."""
        return byoc_core.build(self.compiled, [])

    @cached_property
    def vm(self) -> byoc_core.VirtualMachine:
        """A machine for the compiled functions; for the errors raised, see :meth:`new_machine`."""
        return self.new_machine()

    def new_machine(self, externs: Mapping[str, PackedFunction] = MappingProxyType({})) -> byoc_core.VirtualMachine:
        """Return a machine for the compiled functions.

        Args:
            externs: replacements of compiled functions, by their names; the machine then calls the functions of whole
                regions, and no calls inside lowered regions.

        Raises:
            NotCoveredError: the modules of a runtime cannot run on this machine, according to the runtime.
        """
        for type_key in dict.fromkeys(module.type_key for module in self.executable.modules):
            if reason := _missing_to_run(type_key):
                raise NotCoveredError(reason)
        return byoc_core.VirtualMachine(self._whole_executable if externs else self.executable, externs=externs)

    @cached_property
    def _whole_executable(self) -> byoc_core.Executable:
        module = with_whole_regions(self.compiled)
        return self.executable if module is self.compiled else byoc_core.build(module, [])

    @cached_property
    def _compiled(self) -> tuple[IRModule, Mapping[str, str]]:
        failures: dict[str, str] = {}
        names = list(self.module.functions)
        module = self._run_codegen(names, failures)
        return module, MappingProxyType(failures)

    def _run_codegen(self, names: Sequence[str], failures: dict[str, str]) -> IRModule:
        """Compile all functions at once; after a failure, separately, to find the functions to blame."""
        try:
            return self._codegen_of(names, failures)
        except ByocError as error:
            if len(names) == 1:
                failures[names[0]] = str(error)
                return self.partitioned.with_functions({})
        good = []
        for name in names:
            alone: dict[str, str] = {}
            self._run_codegen([name], alone)
            failures.update(alone)
            if not alone:
                good.append(name)
        return self._codegen_of(good, failures)

    def _codegen_of(self, names: Sequence[str], failures: dict[str, str]) -> IRModule:
        """Compile some functions, and note refusals."""
        sources = {region.name: name for name, regions in self.regions.items() for region in regions}

        def note(function: Function, backend: str, rejection: Rejection) -> Function:
            if backend == self._subject.name:
                failures[sources[function.name]] = f"{rejection.code}: {rejection.text}"
            return replace(function, attrs={})

        handles = [self._subject.handle, *self._subject.companions]
        run = RunCodegen(options=self._subject.options, backends=handles, handover=note)
        return run(self.only(names).partitioned)


@cache
def _missing_to_run(type_key: str) -> str:
    """Return why modules of a runtime cannot run here; empty if possible or unknown, because level 0 opens runtimes."""
    try:
        status = runtimes().get(type_key).status()
    except ByocError:
        return ""
    return "" if status.ok else f"modules of `{type_key}` cannot run here: {status.reason}"


def call_function(machine: byoc_core.VirtualMachine, name: str, inputs: Sequence[NDArray]) -> tuple[NDArray, ...]:
    """Return the results of a function, always as a tuple.

    Raises:
        ByocError: the call failed.
    """
    results = machine[name](*inputs)
    return results if isinstance(results, tuple) else (results,)


def call_unchanging(machine: byoc_core.VirtualMachine, name: str, inputs: Sequence[NDArray]) -> tuple[NDArray, ...]:
    """Return the results of a function; check that every byte of the inputs is unchanged by the call.

    Raises:
        ByocError: the call failed.
        FailedError: an input was written.
    """
    before = [array.tobytes() for array in inputs]
    results = call_function(machine, name, inputs)
    for index, (array, original) in enumerate(zip(inputs, before, strict=True)):
        if array.tobytes() != original:
            raise FailedError(f"input {index} was changed by the call")
    return results
