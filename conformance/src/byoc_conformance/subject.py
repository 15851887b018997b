"""The backend under test, and what the kit does with it: partition, compile, run."""

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
from byoc_conformance.outcome import FailedError, NotCoveredError

__all__ = ["Attempt", "Subject", "SubjectSpec", "call_function", "call_unchanging"]

NDArray = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class SubjectSpec:
    """Which backend is tested, and how: plain values, so that another process can have it.

    Attributes:
        backend: its name.
        options: its options; those of companions stand under their names in ``companion_options``.
        companions: backends that are asked after it in every build, for tests of several together.
        companion_options: by name.
        examples: random examples for each property; one or more.
        seed: of all random numbers; not negative.

    Raises:
        OptionsError: a value is none that another process can have, or that a run can use.
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
                raise OptionsError(name, "cannot be used", got=repr(value), expected=f"a whole number, {least} or more")
        if isinstance(self.companions, str) or self.backend in self.companions:
            expected = "a list of names, without the backend's own"
            raise OptionsError("companions", "cannot be used", got=repr(self.companions), expected=expected)
        object.__setattr__(self, "companions", tuple(self.companions))
        try:
            self.to_json()
        except (TypeError, ValueError) as error:
            raise OptionsError(f"options of `{self.backend}`", f"are no plain JSON values: {error}") from error

    def to_json(self) -> dict[str, Any]:
        """Gives plain JSON values that :meth:`from_json` reads."""
        values = {name: getattr(self, name) for name in self.__slots__}
        plain: dict[str, Any] = json.loads(json.dumps(values, default=dict))
        return plain

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> SubjectSpec:
        """Gives the specification back."""
        return cls(**{**values, "companions": tuple(values["companions"])})


class Subject:
    """The backend under test.

    Args:
        spec: which.

    Raises:
        BackendNotFoundError: it is not installed.
        PluginError: it is quarantined; says why.
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
        """What it says of itself."""
        return self.handle.info()

    @cached_property
    def ops(self) -> OpRegistry:
        """The core's ops and its own."""
        return ops_with([self.handle])

    @property
    def ops_with_cases(self) -> tuple[OpDef, ...]:
        """The ops that have canonical cases: the core's, then its own."""
        return tuple(op for op in self.ops.values() if op.canonical_cases)

    @property
    def unit_roundoff(self) -> Mapping[str, float]:
        """The unit roundoff of what the subject and its companions compute together, by dtype, as they state it."""
        return coarsest_roundoff(h.info(self.options.get(h.name)) for h in (self.handle, *self.companions))

    @property
    def finite_only(self) -> bool:
        """Whether the subject, or a companion, computes on finite numbers only."""
        return any(handle.info().finite_only for handle in (self.handle, *self.companions))

    @property
    def options(self) -> dict[str, Mapping[str, Any]]:
        """The options of all backends that take part, by name."""
        return {self.name: self.spec.options, **self.spec.companion_options}

    def judge(self, module: IRModule, name: str, inputs: Sequence[NDArray], results: Sequence[NDArray]) -> Verdict:
        """Judge the results of a call by what the subject and its companions state of their arithmetic."""
        return judge(module, name, inputs, results, self.unit_roundoff, finite_only=self.finite_only)

    def require_tools(self) -> None:
        """Goes on where the subject and its companions say that they can compile on this machine.

        Those that cannot are not asked for claims either, as in every build.

        Raises:
            NotCoveredError: one says no.
        """
        if self._missing_tools:
            raise NotCoveredError(self._missing_tools)

    @cached_property
    def _missing_tools(self) -> str:
        """Who cannot compile here, and why; empty where all can."""
        for handle in (self.handle, *self.companions):
            status = handle.compile_status(handle.context(options=self.options.get(handle.name)))
            if not status.ok:
                return f"`{handle.name}` cannot compile here: {status.reason}"
        return ""

    def attempt(self, module: IRModule) -> Attempt:
        """Partitions a module among the subject and its companions, and compiles what they claim.

        No pass runs before, so that each op is asked about as it stands. Each function of the module is looked at by
        itself: those that cannot be compiled do not stop the others.

        Raises:
            ByocError: partition failed.
            NotCoveredError: they cannot compile on this machine.
        """
        self.require_tools()
        log = PartitionLog()
        # Functions of the kit are smaller than what is worth a call to some.
        partitioned = byoc_core.partition(
            module,
            [self.handle, *self.companions],
            options=self.options,
            log=log,
            partition_options=PartitionOptions(backend_limits=False),
        )
        return Attempt(self, module, partitioned, log)


class Attempt:
    """A module, partitioned, with what became of each of its functions. Compiled when first asked for.

    Args:
        subject: whose attempt it is.
        module: as it was given.
        partitioned: with the regions.
        log: with the reasons for what no region holds.

    Attributes:
        module: as it was given.
        partitioned: with the regions.
    """

    def __init__(self, subject: Subject, module: IRModule, partitioned: IRModule, log: PartitionLog) -> None:
        self._subject = subject
        self._log = log
        self.module = module
        self.partitioned = partitioned

    def only(self, names: Collection[str]) -> Attempt:
        """Return the attempt at some of the functions; they are partitioned as they are here."""
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

    @cached_property
    def regions(self) -> Mapping[str, tuple[Function, ...]]:
        """The subject's regions, by the function that they were carved from."""
        found: dict[str, list[Function]] = {name: [] for name in self.module.functions}
        for function in self.partitioned.functions.values():
            if function.attrs.get("Codegen") == self._subject.name:
                found.setdefault(str(function.attrs.get("source", function.name)), []).append(function)
        return MappingProxyType({name: tuple(functions) for name, functions in found.items()})

    def is_claimed(self, name: str) -> bool:
        """Whether the subject takes every op of a function, and there is one."""
        mine = {region.name for region in self.regions[name]}
        ops = self.partitioned[name].bindings
        return bool(mine) and all(op.op.name == "call" and op.attrs["callee"] in mine for op in ops)

    def reasons(self, name: str) -> tuple[Rejection, ...]:
        """Gives the reasons why the subject did not take ops of a function, each once."""
        refusals = (
            refusal
            for binding in self.module[name].walk()
            if binding.results
            for refusal in self._log.refusals(name, binding.results[0].name)
        )
        return tuple(dict.fromkeys(r.rejection for r in refusals if r.backend == self._subject.name))

    @cached_property
    def failures(self) -> Mapping[str, str]:
        """What codegen said of functions that it did not compile, by function.

        Where the subject has no region in one, it was a companion's codegen.
        """
        return self._compiled[1]

    @property
    def compiled(self) -> IRModule:
        """The module with external calls; functions that could not be compiled are left out."""
        return self._compiled[0]

    @cached_property
    def executable(self) -> byoc_core.Executable:
        """What runs the functions that could be compiled."""
        return byoc_core.build(self.compiled)

    @cached_property
    def vm(self) -> byoc_core.VirtualMachine:
        """A machine for them; see :meth:`new_machine` for what it raises."""
        return self.new_machine()

    def new_machine(self, externs: Mapping[str, PackedFunction] = MappingProxyType({})) -> byoc_core.VirtualMachine:
        """Return a machine for the functions that could be compiled.

        Args:
            externs: what is called in place of compiled functions, by their names.

        Raises:
            NotCoveredError: a runtime says that its modules cannot run on this machine.
        """
        for type_key in dict.fromkeys(module.type_key for module in self.executable.modules):
            if reason := _missing_to_run(type_key):
                raise NotCoveredError(reason)
        return byoc_core.VirtualMachine(self.executable, externs=externs)

    @cached_property
    def _compiled(self) -> tuple[IRModule, Mapping[str, str]]:
        failures: dict[str, str] = {}
        names = list(self.module.functions)
        module = self._run_codegen(names, failures)
        return module, MappingProxyType(failures)

    def _run_codegen(self, names: Sequence[str], failures: dict[str, str]) -> IRModule:
        """Compiles all functions at once; one by one where that fails, to learn which are to blame."""
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
        """Compiles some functions, and notes refusals."""
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
    """Why modules of a runtime cannot run here; empty where they can, or nobody knows: level 0 opens runtimes."""
    try:
        status = runtimes().get(type_key).status()
    except ByocError:
        return ""
    return "" if status.ok else f"modules of `{type_key}` cannot run here: {status.reason}"


def call_function(machine: byoc_core.VirtualMachine, name: str, inputs: Sequence[NDArray]) -> tuple[NDArray, ...]:
    """Gives the results of a function; a tuple too where there is one.

    Raises:
        ByocError: the call failed.
    """
    results = machine[name](*inputs)
    return results if isinstance(results, tuple) else (results,)


def call_unchanging(machine: byoc_core.VirtualMachine, name: str, inputs: Sequence[NDArray]) -> tuple[NDArray, ...]:
    """Return the results of a function, and check that the call has left every byte of the inputs as it was.

    Raises:
        ByocError: the call failed.
        FailedError: an input was written.
    """
    before = [array.tobytes() for array in inputs]
    results = call_function(machine, name, inputs)
    for index, (array, wanted) in enumerate(zip(inputs, before, strict=True)):
        if array.tobytes() != wanted:
            raise FailedError(f"input {index} was changed by the call")
    return results
