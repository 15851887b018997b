"""Planning of a region: primitives choose layouts, and reorders connect different layouts.

A tensor stays in the layout of its producer. A primitive with a choice (convolution, pooling) is offered all layouts,
and the operands are reordered into the chosen layouts. A primitive without a choice takes the first operand in its
present layout. If no fast implementation exists for this layout, the operands are reordered to row-major. Constants are
reordered once, when the program is created. Reshapes and permutations are other descriptions of the same memory if the
layout permits.

A value has the dtype declared by the function, or is stored narrower if the requested precision permits. A lowering
that handles both dtypes asks for the stored value; all other lowerings get the declared dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from math import prod
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from byoc_core.dtypes import to_numpy
from byoc_core.errors import ArtifactError
from byoc_core.opset import LARGEST
from byoc_core.runtime.graph.document import GraphFunction, GraphTensor
from byoc_core.runtime.module import NDArray

from byoc_dnnl.call_graph import CallGraph
from byoc_dnnl.calls import Call, exceeded_limit, sizes_of
from byoc_dnnl.capi import Argument, DataType
from byoc_dnnl.derived_constants import Derivation
from byoc_dnnl.handles import Engine, MemoryDesc, PrimitiveDesc
from byoc_dnnl.origins import ops_of_steps
from byoc_dnnl.plan import AnyStep, Buffer, Check, CoreStep, Kind, Location, Packing, Plan, Step
from byoc_dnnl.precision import PASSING, READING_NARROW, Precision, lacks_instructions
from byoc_dnnl.primitives import PrimitiveFactory
from byoc_dnnl.ranges import Need, Ranges
from byoc_dnnl.ranges_constants import ConstantRanges
from byoc_dnnl.unstored_values import Flattened, Quantised

if TYPE_CHECKING:
    from byoc_dnnl.calls import Wiring
    from byoc_dnnl.creation import Creation

__all__ = ["Planner"]


class Planner:
    """A planner for a function, for a single plan.

    Calls are lowered in order, and the first refusal ends the plan. Results of later calls have larger numbers: pending
    readers and :class:`~byoc_dnnl.ranges.Ranges` rely on this order.

    Args:
        engine: the engine of the primitives.
        function: the function to plan; the nodes have no bodies.
        constants: known facts about the constants.
        strict: whether a reference implementation of oneDNN is a refusal, as in compilation; a function loaded from an
            artifact runs with any implementation available on this machine.
        precision: the dtype read by products and convolutions of float32, and written if the readers accept it; float32
            if oneDNN has no instructions for the dtype, possible with an artifact.
        schedules: the names of schedules chosen for calls, by the name of the result.
        collects: whether the names of schedules open to choice are collected.
        creation: receives the steps with primitives, for their creation meanwhile.
        wiring: the wiring of the function, if known.

    Attributes:
        offered: the collected names, by the name of the result.
        graph: the calls of the function.
        searches: outcomes of searches for followers, by key (:mod:`byoc_dnnl.lowerings.equal_chains`).
        ranges: magnitudes of values, as far as known to the plan.
    """

    def __init__(
        self,
        engine: Engine,
        function: GraphFunction,
        constants: ConstantRanges,
        *,
        strict: bool,
        precision: Precision = "float32",
        schedules: Mapping[str, str] = MappingProxyType({}),
        collects: bool = False,
        creation: Creation | None = None,
        wiring: Wiring | None = None,
    ) -> None:
        self.engine = engine
        self._creation = creation
        self.collects = collects
        self.offered: dict[str, tuple[str, ...]] = {}
        self._schedules = schedules
        self.factory = PrimitiveFactory(engine)
        self._strict = strict
        self._precision: Precision = "float32" if lacks_instructions(engine.isa, precision) else precision
        self._function = function
        self.graph = CallGraph(function, wiring)
        self._constants = constants
        self.ranges = Ranges(function, self.graph.calls, constants, precision)
        self._digests = {id_: constant.digest for id_, constant in enumerate(function.constants, len(function.inputs))}
        self._refusals: dict[int, str | None] = {}
        self.searches: dict[object, Any] = {}
        self._row_major_descs: dict[tuple[tuple[int, ...], str], MemoryDesc] = {}
        self._steps: list[AnyStep] = []
        self._computed: list[tuple[int, ...]] = []
        self._computing: tuple[int, ...] = ()
        self._packings: list[Packing] = []
        self._locations: dict[int, Location] = {}
        self._values_in: dict[Buffer, list[int]] = {}
        self._copies: dict[int, list[tuple[Location, Location]]] = {}
        self._derived: dict[tuple[int, Derivation], Location] = {}
        self._fused: set[int] = set()
        self._early: set[int] = set()
        self._next = 0
        self._unstored: dict[int, Quantised | Flattened] = {}
        self._deferred: dict[int, Callable[[], None]] = {}
        self._new_constants: dict[str, Callable[[], NDArray]] = {}
        self._transposes_to_results = {
            call.inputs[0]: call
            for call in self.graph.calls
            if call.op == "permute_dims" and self.graph.is_result(call.output)
        }
        self._locate_inputs()

    def _locate_inputs(self) -> None:
        function = self._function
        for id_, tensor in enumerate(function.values[: len(function.inputs)]):
            self._locate(id_, tensor, Kind.ARGUMENT, index=id_)
        locations = self.graph.constants
        for id_, digest in self._digests.items():
            tensor = function.values[id_]
            found = locations.get(id_)
            if found is not None and found[0] is tensor:  # the type has no symbols, so all forms share the object
                self._locations[id_] = found[1]
            elif self._locate(id_, tensor, Kind.CONSTANT, digest=digest):
                locations[id_] = tensor, self._locations[id_]

    def _locate(self, id_: int, tensor: GraphTensor, kind: Kind, *, index: int = -1, digest: str = "") -> bool:
        """Locate an input or constant; return whether some op may take the value."""
        is_known = tensor.dtype in DataType.__members__ and exceeded_limit(tensor) is None
        if is_known:
            desc = self._row_major_of(tensor)
            self._locations[id_] = Location(Buffer(kind, f"%{id_}", desc.nbytes, index, digest), desc)
        return is_known

    def plan(self) -> Plan | str:
        """Return the plan, or the reason for a failure, with the name of the op."""
        from byoc_dnnl.lowerings import lower

        for call in self.graph.calls:
            if call.output in self._fused or call.output in self._early:
                continue
            self._next = call.output
            self._computing = (call.output,)
            reason = lower(call, self)
            if reason is not None:
                return f"`{call.op}`: {reason}"
        for id_, arguments in self.graph.result_arguments.items():
            if not self.is_available(id_):
                return f"oneDNN does not support tensors like {self._function.values[id_]}"
            for argument in arguments:
                self._deliver(id_, argument)
        ops = partial(ops_of_steps, self.graph.calls, self._computed)
        return Plan(self._steps, self._packings, self._new_constants, ops)

    # Queries of lowerings.

    def refusal(self, call: Call, find: Callable[[Call, Planner], str | None]) -> str | None:
        """Return the reason found by a rule on op, types and attributes; the rule sees each kind of call once."""
        if call.kind not in self._refusals:
            self._refusals[call.kind] = find(call, self)
        return self._refusals[call.kind]

    @property
    def has_schedules(self) -> bool:
        """Whether schedules are chosen or collected, so that equal calls may have different primitives."""
        return bool(self._schedules) or self.collects

    def schedule_of(self, call: Call) -> str | None:
        """Return the name of the schedule chosen for a call, or ``None``."""
        return self._schedules.get(call.result_name) if self._schedules else None

    def is_constant(self, id_: int) -> bool:
        """Return whether a value is a constant."""
        return self.stored_location(id_).buffer.kind is Kind.CONSTANT

    def is_available(self, id_: int) -> bool:
        """Return whether a value is available already."""
        return id_ in self._locations or id_ in self._deferred

    def is_deferred(self, id_: int) -> bool:
        """Return whether a value is not yet computed, but will be on request."""
        return id_ in self._deferred

    def can_overwrite(self, call: Call, id_: int) -> bool:
        """Return whether a call is the last reader of a value's memory, reads once, and the memory is in the arena."""
        buffer = self._locations[id_].buffer
        values = self._values_in.get(buffer, [])
        readers = [reader for value in values for reader in self.graph.readers(value)]
        pending = [reader for reader in readers if not self._is_done(reader)]
        has_result = any(map(self.graph.is_result, values))
        return buffer.kind is Kind.ARENA and not has_result and pending == [call] and call.inputs.count(id_) == 1

    def _is_done(self, call: Call) -> bool:
        """Return whether a call reads nothing any more; readers of a flattened result read the memory themselves."""
        id_ = call.output
        return id_ in self._locations or id_ in self._fused or self.flattened(id_) is not None

    def accepts(self, desc: PrimitiveDesc | None) -> bool:
        """Return whether a primitive exists, and is not refused by a strict plan."""
        return desc is not None and not (self._strict and desc.is_reference)

    def row_major(self, sizes: Sequence[int], dtype: str = "float32") -> MemoryDesc:
        """Return the description of a row-major tensor."""
        key = tuple(sizes), dtype
        found = self._row_major_descs.get(key)
        if found is None:
            found = self._row_major_descs[key] = MemoryDesc.strided(self.engine, sizes, dtype=dtype)
        return found

    def channels_last(self, sizes: Sequence[int], dtype: str = "float32") -> MemoryDesc:
        """Return the description of a tensor with axis 1 innermost."""
        axes = [0, *range(2, len(sizes)), 1]
        order = [axes.index(axis) for axis in range(len(sizes))]
        return self.row_major([sizes[axis] for axis in axes], dtype).permuted(order)

    def any_layout(self, sizes: Sequence[int], dtype: str = "float32") -> MemoryDesc:
        """Return the description with the layout left to a primitive."""
        return MemoryDesc.any_layout(self.engine, sizes, dtype)

    def declared_dtype(self, id_: int) -> str:
        """Return the dtype of a value declared by the function; the stored dtype may be narrower."""
        return self._function.values[id_].dtype

    def factor_dtypes(self, call: Call) -> Sequence[str]:
        """Return the permitted dtypes of the factors of a product or convolution, best first."""
        declared = call.operands[0].dtype
        return (declared,) if declared != "float32" or self._precision == declared else (self._precision, declared)

    def result_dtype(self, call: Call) -> str:
        """Return the best stored dtype of a result for a producer able to convert: narrow if read as narrow."""
        if call.result.dtype != "float32" or self._precision == "float32":
            return call.result.dtype
        value = call
        while (follower := self.graph.follower(value)) is not None and follower.op in PASSING:
            value = follower
        reads_narrow = any(reader.op in READING_NARROW for reader in self.graph.readers(value.output))
        return self._precision if reads_narrow else "float32"

    def stored_location(self, id_: int) -> Location:
        """Return the location of a value, in any layout and dtype; :meth:`location` ensures the declared dtype."""
        if id_ in self._deferred:
            outer, self._computing = self._computing, (id_,)
            self._deferred.pop(id_)()
            self._computing = outer
        return self._locations[id_]

    def digest(self, id_: int) -> str:
        """Return the digest of a constant of the function, or of an array computed from constants."""
        return self._digests.get(id_) or self._locations[id_].buffer.digest

    def array(self, id_: int) -> NDArray | None:
        """Return the elements of a constant; ``None`` for other values, and for constants with unknown elements."""
        if id_ in self._digests:
            return self._constants.exact(self._digests[id_])
        location = self._locations.get(id_)
        if location is None:
            return None
        digest = location.buffer.digest
        return self._new_constants[digest]() if digest in self._new_constants else self._constants.exact(digest)

    def quantised(self, id_: int) -> Quantised | None:
        """Return the integers behind a dequantised value, or ``None``."""
        source = self._unstored.get(id_)
        return source if isinstance(source, Quantised) else None

    def quantised_early(self, id_: int) -> Quantised | None:
        """Return the integers behind a value of a ``dequantize``, also if the call comes later in the region.

        Tools write ``dequantize`` before each reader. Only the integers are computed, so the order does not matter.
        """
        call = self.graph.maker(id_)
        if call is not None and call.op == "dequantize" and id_ not in self._unstored:
            from byoc_dnnl.lowerings import lower

            if id_ in self._locations or not all(map(self.is_available, call.inputs)) or lower(call, self) is not None:
                return None
            self._early.add(id_)
        return self.quantised(id_)

    def flattened(self, id_: int) -> Flattened | None:
        """Return the layout of the rows of a matrix if it differs from the order of the columns, or ``None``."""
        source = self._unstored.get(id_)
        return source if isinstance(source, Flattened) else None

    def location(self, id_: int) -> Location:
        """Return the location of a value, in any layout."""
        return self.location_as(id_, self.declared_dtype(id_))

    def location_as(self, id_: int, dtype: str) -> Location:
        """Return the location of a value in a dtype, in any layout."""
        location = self.stored_location(id_)
        desc = location.desc
        if desc.dtype == dtype:
            return location
        return self.location_in(id_, desc.cast(self.engine, dtype) or self.row_major(desc.sizes, dtype))

    def candidate_locations(self, id_: int) -> Iterator[Location]:
        """Yield locations of a value: as stored, then reordered into layouts accepted by more primitives.

        For a blocked layout channels-last is tried first, the layout read by convolutions next.
        """
        yield self.stored_location(id_)
        desc = self.stored_location(id_).desc
        if desc.is_blocked() and len(desc.sizes) > 2:
            yield self.location_in(id_, self.channels_last(desc.sizes, self.declared_dtype(id_)))
        if desc.identity() != self.row_major(desc.sizes, self.declared_dtype(id_)).identity():
            yield self.row_major_location(id_)

    def derived_constant(self, id_: int, derivation: Derivation, dtype: str | None = None) -> Location:
        """Return the result of a derivation of a row-major constant, on the axes of the derivation.

        Args:
            id_: the constant.
            derivation: the derivation.
            dtype: the dtype of the result, by default of the constant.

        Raises:
            ArtifactError: the constant has another number of elements; only possible in a document from a file.
        """
        if (id_, derivation) in self._derived:
            return self._derived[id_, derivation]
        source, name = self._locations.get(id_), f"%{id_}"
        if source is not None:  # a constant of 4 bits has no description in oneDNN
            name, dtype = source.buffer.name, dtype or source.desc.dtype
            needed = prod(derivation.sizes) * to_numpy(source.desc.dtype).itemsize
            if needed != source.buffer.nbytes:
                where = f"constant {name}"
                raise ArtifactError(where, "has another size", got=source.buffer.nbytes, expected=f"{needed} bytes")
        desc, digest = self.row_major(derivation.result_sizes, dtype or self.declared_dtype(id_)), self.digest(id_)
        location = Location(Buffer(Kind.CONSTANT, name, desc.nbytes, digest=digest, derivation=derivation), desc)
        self._derived[id_, derivation] = location
        return location

    def location_in(self, id_: int, desc: MemoryDesc) -> Location:
        """Return the location of a value in a layout; the value is reordered, once, from any other layout."""
        return self.reordered(id_, self.stored_location(id_), desc)

    def row_major_location(self, id_: int, dtype: str | None = None) -> Location:
        """Return the location of a value in row-major order, by default in the declared dtype.

        Axes of size 1 have the strides of row-major order too: for other strides some primitives are missing.
        """
        location, dtype = self.stored_location(id_), dtype or self.declared_dtype(id_)
        desc = self.row_major(location.desc.sizes, dtype)
        if location.desc.is_row_major() and location.desc.dtype == dtype:
            return location if location.desc.identity() == desc.identity() else location.view_as(desc)
        return self.location_in(id_, desc)

    def reordered(self, id_: int, view: Location, desc: MemoryDesc) -> Location:
        """Return a copy of a view in a layout; the view itself if it has the layout.

        Args:
            id_: the value behind the view; each copy is made once.
            view: the view.
            desc: the layout, with the view's sizes.
        """
        if view.desc == desc:
            return view
        for source, copy in self._copies.setdefault(id_, []):
            if source.buffer is view.buffer and source.desc == view.desc and copy.desc == desc:
                return copy
        if view.buffer.kind is Kind.CONSTANT:
            copy = Location(Buffer(Kind.PACKED, view.buffer.name, desc.nbytes), desc)
            self._packings.append(Packing(view, copy, self.factory.reorder(view.desc, desc)))
        else:
            copy = self._in_arena(view.buffer.name, desc)
            self._add_reorder(id_, view, copy)
        self._copies[id_].append((view, copy))
        self._values_in.setdefault(copy.buffer, []).append(id_)
        return copy

    def find_checks(self, needs: Sequence[Need], sources: Sequence[int]) -> Sequence[Need] | None:
        """Return as few checks of available values as needed to prove all needs; ``None`` if no checks suffice.

        Args:
            needs: the bounds to prove.
            sources: available values from which the needs follow.
        """
        if not needs or self.ranges.proves(needs):
            return ()
        live = [id_ for id_ in self._locations if id_ not in self._digests and self._is_live(id_)]
        return self.ranges.find_checks(needs, sources, live)

    def _is_live(self, id_: int) -> bool:
        """Return whether a reader of a value is pending."""
        return self.graph.last_reader(id_) >= self._next and any(map(self._is_pending, self.graph.readers(id_)))

    def _is_pending(self, call: Call) -> bool:
        return call.output >= self._next and call.output not in self._fused

    # Actions of lowerings.

    def defer(self, id_: int, source: Quantised | Flattened | None, compute: Callable[[], None]) -> None:
        """Record the data from which a value can be computed, if any; the value is computed only on request."""
        self._deferred[id_] = compute
        if source is not None:
            self._unstored[id_] = source
        if isinstance(source, Flattened):
            self._values_in.setdefault(source.location.buffer, []).append(id_)

    def set_constant(self, id_: int, digest: str, compute: Callable[[], NDArray]) -> None:
        """Record a value as an array computed from constants; ``digest`` must be unique."""
        desc = self._row_major_of(self._function.values[id_])
        self._locations[id_] = self.add_constant(f"%{id_}", digest, compute, desc)

    def add_constant(self, name: str, digest: str, compute: Callable[[], NDArray], desc: MemoryDesc) -> Location:
        """Return the location of an array other than the function's constants; ``digest`` must be unique.

        The array is computed on the first use: a plan that only judges ops computes nothing.
        """
        self._new_constants[digest] = cache(compute)
        return Location(Buffer(Kind.CONSTANT, name, desc.nbytes, digest=digest), desc)

    def allocate_result(self, id_: int, desc: MemoryDesc) -> Location:
        """Return memory for a value in a layout of equal sizes; the caller's memory if the value is a result.

        A value with a result as its transpose, such as an image returned with channels last, is written there too.
        """
        argument = self._argument_in_layout(id_, desc)
        if argument is None:
            location = self._in_arena(f"%{id_}", desc)
        else:
            location = Location(Buffer(Kind.ARGUMENT, f"%{id_}", desc.nbytes, index=argument), desc)
        self.set_location(id_, location)
        return location

    def _argument_in_layout(self, id_: int, desc: MemoryDesc) -> int | None:
        """Return the argument whose memory may hold a value in a layout; ``None`` if there is none."""
        from byoc_dnnl.lowerings.views import permuted_axes

        if desc.dtype != self.declared_dtype(id_):
            return None
        if id_ in self.graph.result_arguments and desc.is_row_major():
            return self.graph.result_arguments[id_][0]
        transpose = self._transposes_to_results.get(id_)
        if transpose is None or not desc.permuted(permuted_axes(transpose)).is_row_major():
            return None
        return self.graph.result_arguments[transpose.output][0]

    def allocate_temporary(self, name: str, desc: MemoryDesc) -> Location:
        """Return memory for an intermediate between primitives of a lowering."""
        return self._in_arena(name, desc)

    def set_location(self, id_: int, location: Location) -> None:
        """Assign existing memory to a value.

        Raises:
            ArtifactError: the value has another dtype or other sizes; only possible in a document from a file.
        """
        tensor = self._function.values[id_]
        if location.desc.sizes != sizes_of(tensor) or location.desc.nbytes > location.buffer.nbytes:
            raise ArtifactError(f"value {id_}", "has other sizes", got=sizes_of(tensor), expected=location.desc.sizes)
        if location.desc.dtype != tensor.dtype and (tensor.dtype, location.desc.dtype) != ("float32", self._precision):
            raise ArtifactError(f"value {id_}", "has another dtype", got=tensor.dtype, expected=location.desc.dtype)
        self._locations[id_] = location
        self._values_in.setdefault(location.buffer, []).append(id_)

    def add_step(
        self, title: str, desc: PrimitiveDesc, arguments: Mapping[int, Location] | Mapping[Argument, Location]
    ) -> None:
        """Add a primitive.

        Raises:
            ArtifactError: an operand is smaller than read by the primitive; only possible in a document from a file.
        """
        for argument, location in arguments.items():
            needed = desc.argument_nbytes(argument)
            if needed > location.buffer.nbytes:
                name = f"`{title}`, operand {location.buffer.name}"
                raise ArtifactError(name, "is too small", got=location.buffer.nbytes, expected=f"{needed} bytes")
        step = Step(title, desc, {int(argument): location for argument, location in arguments.items()})
        self._append(step, self._computing)

    def add_kernel(self, kernel: CoreStep) -> None:
        """Add a function of the core, of each element or of rows of contiguous elements; or a function of bytes."""
        self._append(kernel, self._computing)

    def check_finite(self, ids: Sequence[int]) -> bool:
        """Add as many checks as needed for available values to be finite; return whether this is possible."""
        needs = [(id_, LARGEST) for id_ in ids]
        if self.find_checks(needs, ids) is None:
            return False
        self.check(needs, ids)
        return True

    def check(self, needs: Sequence[Need], sources: Sequence[int]) -> None:
        """Add the checks found by :meth:`find_checks`."""
        for id_, limit in self.find_checks(needs, sources) or ():
            self.ranges.set_checked(id_, limit)
            flat = self.flattened(id_)
            self._append(Check("finite numbers", flat.location if flat else self.stored_location(id_), limit))

    def check_result(self, call: Call, limit: float) -> None:
        """Add a check of the result just computed by a call."""
        self._append(Check(call.op, self.stored_location(call.output), limit))

    def mark_fused(self, calls: Sequence[Call]) -> None:
        """Mark calls as computed by a single primitive; only the result of the last call has memory."""
        self._computing = tuple(call.output for call in calls)
        self._fused.update(self._computing)

    def _row_major_of(self, tensor: GraphTensor) -> MemoryDesc:
        return self.row_major(sizes_of(tensor), tensor.dtype)

    def _in_arena(self, name: str, desc: MemoryDesc) -> Location:
        return Location(Buffer(Kind.ARENA, name, desc.nbytes), desc)

    def _deliver(self, id_: int, argument: int) -> None:
        """Copy a value into a result's memory, unless computed there."""
        location = self.stored_location(id_)
        if location.buffer.kind is Kind.ARGUMENT and location.buffer.index == argument and location.desc.is_row_major():
            return
        desc = self._row_major_of(self._function.values[id_])
        target = Location(Buffer(Kind.ARGUMENT, f"%{id_}", desc.nbytes, index=argument), desc)
        self._add_reorder(id_, location, target)

    def _add_reorder(self, id_: int, source: Location, target: Location) -> None:
        """Add a copy of a value; copy declared bfloat16 as bytes, because oneDNN loses subnormal numbers."""
        if self.declared_dtype(id_) == source.desc.dtype == target.desc.dtype == "bfloat16":
            byte_descs = [location.desc.as_bytes(self.engine) for location in (source, target)]
            source, target = (
                location.view_as(desc or location.desc) if all(byte_descs) else location
                for location, desc in zip((source, target), byte_descs, strict=True)
            )
        reorder = self.factory.reorder(source.desc, target.desc)
        self._append(Step("reorder", reorder, {Argument.SRC: source, Argument.DST: target}))

    def _append(self, step: AnyStep, computed: tuple[int, ...] = ()) -> None:
        """Add a step, with the calls computed by the step."""
        self._steps.append(step)
        self._computed.append(computed)
        if self._creation is not None and isinstance(step, Step):
            self._creation.add(step)
