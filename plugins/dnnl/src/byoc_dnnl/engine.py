"""Regions at run time: graph documents, planned for the number of threads of a call."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import count
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
from byoc_core.dims import shape_symbols
from byoc_core.dtypes import to_numpy
from byoc_core.errors import ArtifactError, ExecutionError, IRTypeError
from byoc_core.runtime.graph import BuiltFunction, GraphEngine, GraphModule, check_function_types
from byoc_core.runtime.graph.document import GraphDocument, GraphFunction, GraphNode, GraphTensor, print_document
from byoc_core.runtime.module import ConstantInput, NativeEntry, NDArray, PackedFunction, Signature
from byoc_core.runtime.threads import ForkLock, num_threads

from byoc_dnnl.constant_inputs import with_constant_inputs
from byoc_dnnl.handles import Engine
from byoc_dnnl.library import load_library
from byoc_dnnl.lowerings import declines
from byoc_dnnl.native import make_caller
from byoc_dnnl.plan import Step
from byoc_dnnl.planning import ThreadedPlan, best_plan
from byoc_dnnl.precision import Precision
from byoc_dnnl.program import Program
from byoc_dnnl.ranges_constants import ConstantRanges
from byoc_dnnl.reference import Reference
from byoc_dnnl.static_form import Shapes, StaticForms, print_call, solve_sizes, static_shapes
from byoc_dnnl.stored.plans import StoredPlans
from byoc_dnnl.stored_arrays import StoredArrays
from byoc_dnnl.weights import shared_constants

if TYPE_CHECKING:
    from byoc_dnnl._native import Program as NativeProgram

__all__ = ["MAX_IDLE_NBYTES", "MAX_PROGRAMS", "DnnlEngine", "DnnlModule", "Region", "open_engine"]

MAX_PROGRAMS = 32
"""Number of programs kept by a region, each for a number of threads and the shapes of a call."""

MAX_IDLE_NBYTES = 256 << 20
"""Limit of the memory held between calls by all kept programs of a region together, without the latest program."""

_Key = tuple[int, Shapes]
"""Number of threads, and the shapes of all arguments."""


@cache
def open_engine() -> Engine:
    """Return the engine of this process, the engine of all primitives.

    Raises:
        PluginError: no usable oneDNN exists.
    """
    return Engine(load_library())


class Region:
    """A function with programs for the latest numbers of threads and argument shapes.

    If a check of a program fails, the reference kernels compute the function from the inputs. No program changes
    inputs.

    Args:
        function: the function to compute; sizes may be symbols.
        constants: arrays by digest.
        precision: the precision of float32 computations.
        schedules: the names of schedules chosen for nodes, by the name of the result.

    Attributes:
        reference: the same function by numpy's kernels.

    Raises:
        ArtifactError: a node of a function without symbols cannot be planned; or the inputs do not determine the size
            of a result.
    """

    def __init__(
        self,
        function: GraphFunction,
        constants: Mapping[str, NDArray],
        precision: Precision = "float32",
        schedules: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._schedules = schedules
        self._where = f"graph function `{function.name}`"
        if function.signature.new_symbols:
            new = ", ".join(sorted(function.signature.new_symbols))
            raise ArtifactError(self._where, f"has results of size {new}, but no input determines the size")
        self._function = function
        self._precision = precision
        self._constants = constants
        self.reference = Reference(function, constants)
        check_function_types(function, self._where)
        self._forms = StaticForms(function)
        self._is_static = not self._forms.symbols
        self._early_plans: dict[int, ThreadedPlan | None] = {}
        self._ranges = ConstantRanges(constants)
        self._cached_programs: dict[_Key, _CachedProgram] = {}
        self._caller = make_caller(function.signature, MAX_PROGRAMS, _finder(self), self.reference)
        self._tick = count().__next__ if self._caller is None else self._caller.tick
        self._fork_lock = ForkLock()
        if self._is_static:
            with self._explaining():
                self._early_plans[num_threads()] = self._best_plan(num_threads(), function)

    def __call__(self, *arrays: NDArray) -> None:
        """Run the function on inputs and outputs, with the number of threads of this call."""
        number, sizes = num_threads(), tuple([array.shape for array in arrays])
        cached = self._cached_programs.get((number, sizes))
        if cached is None:
            program = self.program(number, sizes)
        else:
            cached.last_use = self._tick()
            program = cached.program
        if not program(*arrays):
            self.reference(*arrays)

    @property
    def signature(self) -> Signature:
        """The signature of the function."""
        return self._function.signature

    @property
    def programs(self) -> Mapping[_Key, Program | Reference]:
        """The kept programs, by number of threads and shapes, in the order of creation."""
        return {key: cached.program for key, cached in self._cached_programs.items()}

    def program(self, number: int, sizes: Shapes) -> Program | Reference:
        """Return the program for a number of threads and argument shapes; build the program if missing.

        Args:
            number: the number of threads.
            sizes: the shapes of all arguments, inputs, then outputs.

        Returns:
            A program; numpy's kernels if oneDNN has no primitives for these sizes, or a tensor is empty.

        Raises:
            CallError: the function does not accept the shapes.
        """
        with self._fork_lock.lock:
            cached = self._cached_programs.get((number, sizes))
            if cached is None:
                cached = _CachedProgram(self._make(number, sizes))
                self._cache_program((number, sizes), cached)
            cached.last_use = self._tick()
            return cached.program

    def prepare(self) -> None:
        """Build the program of calls with the current number of threads; with symbolic sizes no shapes are known yet.

        If oneDNN would generate code in the first call (tens of milliseconds), the program runs once, on zeros.
        """
        if not self._is_static:
            return
        shapes = static_shapes(self._function)
        program = self.program(num_threads(), shapes)
        steps = program.plan.steps if isinstance(program, Program) else []
        if any(isinstance(step, Step) and step.generates_when_run for step in steps):
            signature = self._function.signature
            specs = (*signature.inputs, *signature.outputs)
            program(*(np.zeros(shape, to_numpy(spec.dtype)) for spec, shape in zip(specs, shapes, strict=True)))

    def report_parts(self) -> None:
        """Report the steps of later calls; programs built later report by themselves."""
        with self._fork_lock.lock:  # no program is being built
            for program in self.programs.values():
                if isinstance(program, Program):
                    program.report_parts()

    @property
    def frame_nbytes(self) -> int:
        """The memory of one call for intermediates, in the latest program."""
        latest = next(reversed([*self.programs.values()]), None)
        return latest.frame_nbytes if isinstance(latest, Program) else 0

    @property
    def native(self) -> NativeEntry | None:
        """The entry for machine code; ``None`` if machine code cannot call the region."""
        return None if self._caller is None else self._caller.entry(self)

    @property
    def source(self) -> str:
        """The primitives for the current number of threads; with symbols the graph, regardless of earlier calls."""
        if self._is_static:
            return str(self.program(num_threads(), static_shapes(self._function)))
        return print_document(GraphDocument(MappingProxyType({self._function.name: self._function})))

    @property
    def cached_listing(self) -> str:
        """The kept programs, with the shapes and number of threads of each."""
        count = len(self._function.inputs)
        programs = self.programs.items()
        return "\n".join(f"{print_call(sizes[:count], number)}\n{program}" for (number, sizes), program in programs)

    def _cache_program(self, key: _Key, cached: _CachedProgram) -> None:
        """Keep a program and drop the least recently used; replace the dict each time, because threads read it."""
        older_keys = sorted(self._cached_programs, key=lambda other: self._last_use(self._cached_programs[other]))
        nbytes = sum(self._cached_programs[other].nbytes for other in older_keys)
        while older_keys and (len(older_keys) >= MAX_PROGRAMS or nbytes > MAX_IDLE_NBYTES):
            dropped = self._cached_programs[older_keys.pop(0)]
            nbytes -= dropped.nbytes
            if self._caller is not None and dropped.native is not None:
                self._caller.drop(dropped.native)
        self._cached_programs = {
            **{other: value for other, value in self._cached_programs.items() if other in older_keys},
            key: cached,
        }

    def _last_use(self, cached: _CachedProgram) -> int:
        if self._caller is None or cached.native is None:
            return cached.last_use
        return max(cached.last_use, self._caller.last_use(cached.native))

    def _make(self, number: int, sizes: Shapes) -> Program | Reference:
        try:
            function = self._forms.at(solve_sizes(self._function, sizes))
        except IRTypeError:
            return self.reference  # reports the error, if any
        if not self._is_static:
            self._check_types(function)
        try:
            with self._explaining():
                choice = self._early_plans[number] if number in self._early_plans else self._best_plan(number, function)
                self._early_plans.clear()
                return self.reference if choice is None else self._build(number, choice)
        except ArtifactError:
            if self._is_static:
                raise
            return self.reference

    def _check_types(self, function: GraphFunction) -> None:
        """Check a function at the sizes of a call against the rules of all ops, before anything reads attributes.

        Raises:
            ExecutionError: attributes and sizes do not fit one another.
        """
        try:
            check_function_types(function, self._where)
        except ArtifactError as error:
            raise ExecutionError(self._where, f"cannot be computed at these sizes: {error}") from error

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        """Convert failures to errors about planning: a document from a file may ask for nonsense."""
        try:
            yield
        except ExecutionError as error:
            raise ArtifactError(self._where, f"cannot be planned: {error}") from error

    def _best_plan(self, number: int, function: GraphFunction) -> ThreadedPlan | None:
        options = (self._precision, self._schedules)
        creates, wiring = not self._is_static, self._forms.wiring
        return best_plan(open_engine(), number, function, self._ranges, *options, creates=creates, wiring=wiring)

    def _build(self, number: int, choice: ThreadedPlan) -> Program:
        engine, plan = open_engine(), choice.plan
        try:
            with engine.threads(choice.num_threads):
                computed = {digest: compute() for digest, compute in plan.constants.items()}
                constants, is_serial = {**self._constants, **computed}, choice.num_threads < number
                return Program(engine, plan, constants, is_serial=is_serial, creation=choice.creation)
        finally:
            if choice.creation is not None:
                choice.creation.close()


class _CachedProgram:
    """A program kept by a region, with the time of the last use."""

    __slots__ = ("last_use", "nbytes", "program")

    def __init__(self, program: Program | Reference) -> None:
        self.program = program
        self.nbytes = program.idle_nbytes if isinstance(program, Program) else 0
        self.last_use = 0

    @property
    def native(self) -> NativeProgram | None:
        """The program in the extension."""
        return self.program.native if isinstance(self.program, Program) else None


def _finder(region: Region) -> Callable[[int, Shapes], NativeProgram | None]:
    """Return a callable for the extension to find the programs of a region.

    The callable holds a weak reference, because the region holds the extension's caller.
    """
    reference = weakref.ref(region)

    def find(number: int, sizes: Shapes) -> NativeProgram | None:
        region = reference()
        assert region is not None  # held by the caller
        program = region.program(number, sizes)
        return program.native if isinstance(program, Program) else None

    return find


class DnnlEngine(GraphEngine):
    """An engine that runs graph documents by oneDNN's primitives.

    Args:
        precision: the precision of float32 computations.
        schedules: the names of schedules chosen for nodes, by function and by the name of the result.
    """

    def __init__(
        self, precision: Precision = "float32", schedules: Mapping[str, Mapping[str, str]] = MappingProxyType({})
    ) -> None:
        self.precision = precision
        self.schedules = schedules
        self._regions: weakref.WeakSet[Region] = weakref.WeakSet()

    def report_parts(self) -> None:
        """Report the steps of later calls of all regions."""
        for region in [*self._regions]:
            region.report_parts()

    @property
    def type_key(self) -> str:
        """``"dnnl"``."""
        return "dnnl"

    def check_node(self, node: GraphNode, operands: Sequence[GraphTensor] = ()) -> str | None:
        """Return the reason why an op has no primitive; dependencies on types show when the function is planned."""
        if node.body is not None:
            return "is not a single op"
        return declines(node.op)

    def build(
        self, function: GraphFunction, constants: Mapping[str, NDArray], prepared: object = None
    ) -> BuiltFunction:
        """Build a region for a function, with primitives for the current number of threads."""
        region = self.build_region(function, constants)
        return BuiltFunction(region, native=region.native)

    def build_region(self, function: GraphFunction, constants: Mapping[str, NDArray]) -> Region:
        """Return a region for a function, with primitives for the current number of threads."""
        region = Region(function, constants, self.precision, self.schedules.get(function.name, {}))
        self._regions.add(region)
        return region


class DnnlModule(GraphModule):
    """A graph module whose source is the list of primitives.

    Args:
        document: the functions.
        constants: arrays by digest.
        precision: the precision of float32 computations.
        schedules: the names of schedules chosen for nodes, by function and by the name of the result.
        stored: plans for programs without Python, saved with the module; Python makes plans of its own.
    """

    def __init__(
        self,
        document: GraphDocument,
        constants: Mapping[str, NDArray],
        precision: Precision = "float32",
        schedules: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
        stored: StoredPlans | None = None,
    ) -> None:
        self.precision = precision
        self.schedules = schedules
        self.stored = stored
        super().__init__(document, constants, DnnlEngine(precision, schedules))
        self._offered: StoredArrays | None = None
        self._for_constants: weakref.WeakValueDictionary[tuple[object, ...], Region] = weakref.WeakValueDictionary()

    def offer(self, stored: StoredArrays) -> None:
        """Use arrays of the module's artifact in place of equal packed constants, as long as the module lives."""
        self._offered = stored
        shared_constants().offer(stored)

    def find_for_constants(self, name: str, constants: Mapping[int, ConstantInput]) -> PackedFunction:
        """Return a function with constants in place of some inputs, packed like all constants.

        Machines on the same arrays share the function, and machines on equal arrays the packed constants.
        """
        function, inputs = self.find_function(name), self.document.functions[name].inputs
        found = {number: item for number, item in constants.items() if not shape_symbols(inputs[number].shape)}
        if not found:
            return function
        key = (name, *((number, id(item.array)) for number, item in sorted(found.items())))
        region = self._for_constants.get(key)  # a region holds its arrays, so no other arrays have these identities
        if region is None:
            fixed = with_constant_inputs(self.document.functions[name], found)
            arrays = {**super().constants, **{item.digest: item.array for item in found.values()}}
            assert isinstance(self.engine, DnnlEngine)
            region = self._for_constants[key] = self.engine.build_region(fixed, arrays)
        return PackedFunction(name, region, function.signature, region.native)

    @property
    def constants(self) -> Mapping[str, NDArray]:
        """The arrays cited by the document and by stored plans, by digest."""
        cited = super().constants
        return cited if self.stored is None else MappingProxyType({**self.stored.constants, **cited})

    @property
    def frame_nbytes(self) -> int:
        """The memory of one call of each function for intermediates, in the latest programs."""
        return sum(region.frame_nbytes for _, region in self.regions())

    def prepare(self) -> None:
        """Build the programs of functions without symbolic sizes, for calls with the current number of threads."""
        for _, region in self.regions():
            region.prepare()

    def regions(self) -> Iterator[tuple[str, Region]]:
        """Yield the functions, by name; a function for known inputs in place of the function for any inputs."""
        latest = {str(key[0]): region for key, region in list(self._for_constants.items())}
        for name in self.function_names:
            impl = latest.get(name) or self.find_function(name).impl
            assert isinstance(impl, Region)
            yield name, impl

    def get_source(self, format: str = "") -> str:  # noqa: A002 - the field's usual keyword
        """Return the primitives with implementations and layouts; for regions with symbolic sizes the graph.

        Args:
            format: ``"programs"`` for the primitives of all calls so far, of the last few shapes and numbers of threads
                of each region; ``"graph"`` and ``"json"`` for the document.
        """
        if format in ("", "dnnl"):
            return "\n".join(f"{name}\n{region.source}" for name, region in self.regions())
        if format == "programs":
            return "\n".join(f"{name}\n{region.cached_listing}" for name, region in self.regions())
        return super().get_source("text" if format == "graph" else format)
