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

from byoc_core.errors import ArtifactError
from byoc_core.opset import LARGEST
from byoc_core.runtime.graph.document import GraphFunction, GraphTensor
from byoc_core.runtime.module import NDArray

from byoc_dnnl.calls import Call, calls_of, exceeds, sizes_of
from byoc_dnnl.capi import Argument, DataType
from byoc_dnnl.derived_constants import Derivation
from byoc_dnnl.handles import Engine, MemoryDesc, PrimitiveDesc
from byoc_dnnl.plan import AnyStep, Buffer, Check, Kernel, Kind, Packing, Place, Plan, Step
from byoc_dnnl.precision import PASSING, READING_NARROW, Precision, lacks
from byoc_dnnl.primitives import Workshop
from byoc_dnnl.ranges import Need, Ranges
from byoc_dnnl.ranges_constants import ConstantRanges
from byoc_dnnl.unstored_values import Flattened, Quantised

__all__ = ["Planner"]


class Planner:
    """A planner for a function.

    Args:
        engine: the engine of the primitives.
        function: the function to plan; the nodes have no bodies.
        constants: known facts about the constants.
        strict: whether a reference implementation of oneDNN is a refusal, as in compilation; a function loaded from an
            artifact runs in any way possible on this machine.
        precision: the dtype read by products and convolutions of float32, and written if the readers accept it; float32
            if oneDNN has no instructions for the dtype, possible with an artifact.

    Attributes:
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
    ) -> None:
        self.engine = engine
        self.workshop = Workshop(engine)
        self._strict = strict
        self._precision: Precision = "float32" if lacks(engine.isa, precision) else precision
        self._function = function
        self._calls = calls_of(function)
        self._constants = constants
        self.ranges = Ranges(function, self._calls, constants, precision)
        self._readers: dict[int, list[Call]] = {}
        for call in self._calls:
            for id_ in dict.fromkeys(call.inputs):
                self._readers.setdefault(id_, []).append(call)
        self._steps: list[AnyStep] = []
        self._packings: list[Packing] = []
        self._places: dict[int, Place] = {}
        self._values_in: dict[Buffer, list[int]] = {}
        self._copies: dict[int, list[tuple[Place, Place]]] = {}
        self._derived: dict[tuple[int, Derivation], Place] = {}
        self._fused: set[int] = set()
        self._next = 0
        self._known: dict[int, Quantised | Flattened] = {}
        self._deferred: dict[int, Callable[[], None]] = {}
        self._made: dict[str, NDArray] = {}
        self._arguments_of: dict[int, list[int]] = {}
        for number, (_, id_) in enumerate(function.outputs):
            self._arguments_of.setdefault(id_, []).append(len(function.inputs) + number)
        self._add_given()

    def _add_given(self) -> None:
        function = self._function
        digests = [constant.digest for constant in function.constants]
        given = len(function.inputs) + len(digests)
        for id_, (tensor, digest) in enumerate(
            zip(function.values[:given], [*[""] * len(function.inputs), *digests], strict=True)
        ):
            if tensor.dtype not in DataType.__members__ or exceeds(tensor) is not None:
                continue  # no op takes it
            desc = self._row_major_of(tensor)
            kind, index = (Kind.CONSTANT, -1) if digest else (Kind.ARGUMENT, id_)
            self._places[id_] = Place(Buffer(kind, f"%{id_}", desc.nbytes, index, digest), desc)

    def plan(self) -> Plan | str:
        """Return the plan, or the reason for a failure, with the name of the op."""
        from byoc_dnnl.lowerings import lower

        for call in self._calls:
            if call.output in self._fused:
                continue
            self._next = call.output
            reason = lower(call, self)
            if reason is not None:
                return f"`{call.op}`: {reason}"
        for id_, arguments in self._arguments_of.items():
            if not self.is_placed(id_):
                return f"oneDNN has no tensors like {self._function.values[id_]}"
            for argument in arguments:
                self._deliver(id_, argument)
        return Plan(self._steps, self._packings, self._made)

    # Queries of lowerings.

    def is_constant(self, id_: int) -> bool:
        """Return whether a value is a constant."""
        return self.stored(id_).buffer.kind is Kind.CONSTANT

    def is_placed(self, id_: int) -> bool:
        """Return whether a value is available already."""
        return id_ in self._places or id_ in self._deferred

    def is_read(self, id_: int) -> bool:
        """Return whether a value is read by a call, or is a result of the region."""
        return id_ in self._readers or self.is_result(id_)

    def is_read_once(self, id_: int) -> bool:
        """Return whether a value is read by a single call, and is no result of the region."""
        return len(self._readers.get(id_, ())) == 1 and not self.is_result(id_)

    def follower(self, call: Call) -> Call | None:
        """Return the only reader of a call's result, or ``None``."""
        readers = self._readers.get(call.output, [])
        if len(readers) != 1 or readers[0].inputs.count(call.output) != 1 or call.output in self._arguments_of:
            return None
        return readers[0]

    def is_result(self, id_: int) -> bool:
        """Return whether a value is a result of the region."""
        return id_ in self._arguments_of

    def ends_in(self, call: Call, id_: int) -> bool:
        """Return whether a call is the last reader of a value's memory, reads once, and the memory is in the arena."""
        buffer = self._places[id_].buffer
        values = self._values_in.get(buffer, [])
        readers = [reader for value in values for reader in self._readers.get(value, ())]
        pending = [reader for reader in readers if not self._is_done(reader)]
        given = any(map(self.is_result, values))
        return buffer.kind is Kind.ARENA and not given and pending == [call] and call.inputs.count(id_) == 1

    def _is_done(self, call: Call) -> bool:
        """Return whether a call reads nothing any more; readers of a flattened result read the memory themselves."""
        id_ = call.output
        return id_ in self._places or id_ in self._fused or self.flattened(id_) is not None

    def accepts(self, desc: PrimitiveDesc | None) -> bool:
        """Return whether a primitive exists, and is not refused by a strict plan."""
        return desc is not None and not (self._strict and desc.is_reference)

    def row_major(self, sizes: Sequence[int], dtype: str = "float32") -> MemoryDesc:
        """Return the description of a row-major tensor."""
        return MemoryDesc.strided(self.engine, sizes, dtype=dtype)

    def channels_last(self, sizes: Sequence[int], dtype: str = "float32") -> MemoryDesc:
        """Return the description of a tensor with axis 1 innermost."""
        axes = [0, *range(2, len(sizes)), 1]
        places = [axes.index(axis) for axis in range(len(sizes))]
        return self.row_major([sizes[axis] for axis in axes], dtype).permuted(places)

    def any(self, sizes: Sequence[int], dtype: str = "float32") -> MemoryDesc:
        """Return the description with the layout left to a primitive."""
        return MemoryDesc.any(self.engine, sizes, dtype)

    def own_dtype(self, id_: int) -> str:
        """Return the dtype of a value declared by the function; the stored dtype may be narrower."""
        return self._function.values[id_].dtype

    def factor_dtypes(self, call: Call) -> Sequence[str]:
        """Return the permitted dtypes of the factors of a product or convolution, best first."""
        own = call.operands[0].dtype
        return (own,) if own != "float32" or self._precision == own else (self._precision, own)

    def result_dtype(self, call: Call) -> str:
        """Return the best stored dtype of a result for a producer able to convert: narrow if read as narrow."""
        if call.result.dtype != "float32" or self._precision == "float32":
            return call.result.dtype
        value = call
        while (follower := self.follower(value)) is not None and follower.op in PASSING:
            value = follower
        reads_narrow = any(reader.op in READING_NARROW for reader in self._readers.get(value.output, ()))
        return self._precision if reads_narrow else "float32"

    def stored(self, id_: int) -> Place:
        """Return the place of a value, in any layout and dtype; :meth:`place` ensures the declared dtype."""
        if id_ in self._deferred:
            self._deferred.pop(id_)()
        return self._places[id_]

    def array(self, id_: int) -> NDArray | None:
        """Return the elements of a constant; ``None`` for other values, and for constants with unknown elements."""
        place = self._places.get(id_)
        if place is None:
            return None
        made = self._made.get(place.buffer.digest)
        return self._constants.exact(place.buffer.digest) if made is None else made

    def quantised(self, id_: int) -> Quantised | None:
        """Return the integers behind a dequantised value, or ``None``."""
        known = self._known.get(id_)
        return known if isinstance(known, Quantised) else None

    def flattened(self, id_: int) -> Flattened | None:
        """Return the layout of the rows of a matrix if it differs from the order of the columns, or ``None``."""
        known = self._known.get(id_)
        return known if isinstance(known, Flattened) else None

    def place(self, id_: int) -> Place:
        """Return the place of a value, in any layout."""
        return self.place_as(id_, self.own_dtype(id_))

    def place_as(self, id_: int, dtype: str) -> Place:
        """Return the place of a value in a dtype, in any layout."""
        desc = self.stored(id_).desc
        return self.place_in(id_, desc.cast(self.engine, dtype) or self.row_major(desc.sizes, dtype))

    def ways(self, id_: int) -> Iterator[Place]:
        """Yield places of a value: as stored, then reordered into layouts accepted by more primitives.

        For a blocked layout channels-last is tried first, the layout read by convolutions next.
        """
        yield self.stored(id_)
        desc = self.stored(id_).desc
        if desc.is_blocked() and len(desc.sizes) > 2:
            yield self.place_in(id_, self.channels_last(desc.sizes, self.own_dtype(id_)))
        if not desc.is_row_major() or desc.dtype != self.own_dtype(id_):
            yield self.place_row_major(id_)

    def place_derived(self, id_: int, derivation: Derivation) -> Place:
        """Return the result of a derivation of a row-major constant, on the axes of the derivation.

        Raises:
            ArtifactError: the constant has another number of elements; only possible in a document from a file.
        """
        if (id_, derivation) in self._derived:
            return self._derived[id_, derivation]
        given = self._places[id_]
        needed = self.row_major(derivation.sizes, given.desc.dtype).nbytes
        if needed != given.buffer.nbytes:
            where = f"constant {given.buffer.name}"
            raise ArtifactError(where, "has another size", got=given.buffer.nbytes, expected=f"{needed} bytes")
        desc = self.row_major(derivation.result_sizes, given.desc.dtype)
        name, digest = given.buffer.name, given.buffer.digest
        place = Place(Buffer(Kind.CONSTANT, name, desc.nbytes, digest=digest, derivation=derivation), desc)
        self._derived[id_, derivation] = place
        return place

    def place_in(self, id_: int, desc: MemoryDesc) -> Place:
        """Return the place of a value in a layout; the value is reordered, once, from any other layout."""
        return self.reordered(id_, self.stored(id_), desc)

    def place_row_major(self, id_: int, dtype: str | None = None) -> Place:
        """Return the place of a value in row-major order, by default in the declared dtype."""
        place, dtype = self.stored(id_), dtype or self.own_dtype(id_)
        if place.desc.is_row_major() and place.desc.dtype == dtype:
            return place
        return self.place_in(id_, self.row_major(place.desc.sizes, dtype))

    def reordered(self, id_: int, place: Place, desc: MemoryDesc) -> Place:
        """Return a copy of a view in a layout; the view itself if it has the layout.

        Args:
            id_: the value behind the view; each copy is made once.
            place: the view.
            desc: the layout, with the view's sizes.
        """
        if place.desc == desc:
            return place
        for view, copy in self._copies.setdefault(id_, []):
            if view.buffer is place.buffer and view.desc == place.desc and copy.desc == desc:
                return copy
        if place.buffer.kind is Kind.CONSTANT:
            copy = Place(Buffer(Kind.PACKED, place.buffer.name, desc.nbytes), desc)
            self._packings.append(Packing(place, copy, self.workshop.reorder(place.desc, desc)))
        else:
            copy = self._in_arena(place.buffer.name, desc)
            self._add_reorder(id_, place, copy)
        self._copies[id_].append((place, copy))
        self._values_in.setdefault(copy.buffer, []).append(id_)
        return copy

    def find_checks(self, needs: Sequence[Need], sources: Sequence[int]) -> Sequence[Need] | None:
        """Return as few checks of available values as needed to prove all needs; ``None`` if no checks suffice.

        Args:
            needs: the bounds to prove.
            sources: available values from which the needs follow.
        """
        if self.ranges.hold(needs):
            return ()
        live = [id_ for id_ in self._places if any(map(self._is_pending, self._readers.get(id_, ())))]
        return self.ranges.find_checks(needs, sources, live)

    def _is_pending(self, call: Call) -> bool:
        return call.output >= self._next and call.output not in self._fused

    # Actions of lowerings.

    def defer(self, id_: int, known: Quantised | Flattened, place: Callable[[], None]) -> None:
        """Record the data from which a value can be computed; the value itself is placed only on request."""
        self._known[id_] = known
        self._deferred[id_] = place
        if isinstance(known, Flattened):
            self._values_in.setdefault(known.place.buffer, []).append(id_)

    def set_constant(self, id_: int, digest: str, array: NDArray) -> None:
        """Record a value as an array computed from constants; ``digest`` must be unique."""
        desc = self._row_major_of(self._function.values[id_])
        self._places[id_] = self.made_constant(f"%{id_}", digest, array, desc)

    def made_constant(self, name: str, digest: str, array: NDArray, desc: MemoryDesc) -> Place:
        """Return the place of an array other than the function's constants; ``digest`` must be unique."""
        self._made[digest] = array
        return Place(Buffer(Kind.CONSTANT, name, desc.nbytes, digest=digest), desc)

    def result(self, id_: int, desc: MemoryDesc) -> Place:
        """Return memory for a value in a layout of equal sizes; the caller's memory if the value is a result."""
        arguments = self._arguments_of.get(id_, [])
        if arguments and desc.is_row_major() and desc.dtype == self.own_dtype(id_):
            place = Place(Buffer(Kind.ARGUMENT, f"%{id_}", desc.nbytes, index=arguments[0]), desc)
        else:
            place = self._in_arena(f"%{id_}", desc)
        self.set_view(id_, place)
        return place

    def temporary(self, name: str, desc: MemoryDesc) -> Place:
        """Return memory for an intermediate between primitives of a lowering."""
        return self._in_arena(name, desc)

    def set_view(self, id_: int, place: Place) -> None:
        """Place a value in existing memory.

        Raises:
            ArtifactError: the value has another dtype or other sizes; only possible in a document from a file.
        """
        stated = self._function.values[id_]
        if place.desc.sizes != sizes_of(stated) or place.desc.nbytes > place.buffer.nbytes:
            raise ArtifactError(f"value {id_}", "has other sizes", got=sizes_of(stated), expected=place.desc.sizes)
        if place.desc.dtype != stated.dtype and (stated.dtype, place.desc.dtype) != ("float32", self._precision):
            raise ArtifactError(f"value {id_}", "has another dtype", got=stated.dtype, expected=place.desc.dtype)
        self._places[id_] = place
        self._values_in.setdefault(place.buffer, []).append(id_)

    def add_step(
        self, title: str, desc: PrimitiveDesc, arguments: Mapping[int, Place] | Mapping[Argument, Place]
    ) -> None:
        """Add a primitive.

        Raises:
            ArtifactError: an operand is smaller than read by the primitive; only possible in a document from a file.
        """
        for argument, place in arguments.items():
            needed = desc.argument_nbytes(argument)
            if needed > place.buffer.nbytes:
                name = f"`{title}`, operand {place.buffer.name}"
                raise ArtifactError(name, "is too small", got=place.buffer.nbytes, expected=f"{needed} bytes")
        self._steps.append(Step(title, desc, {int(argument): place for argument, place in arguments.items()}))

    def add_kernel(self, kernel: Kernel) -> None:
        """Add a function of the core: of each element, or of rows of contiguous elements."""
        self._steps.append(kernel)

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
            self._steps.append(Check("finite numbers", flat.place if flat else self.stored(id_), limit))

    def check_result(self, call: Call, limit: float) -> None:
        """Add a check of the result just computed by a call."""
        self._steps.append(Check(call.op, self.stored(call.output), limit))

    def mark_fused(self, calls: Sequence[Call]) -> None:
        """Mark calls as computed by a single primitive; only the result of the last call has memory."""
        self._fused.update(call.output for call in calls)

    def _row_major_of(self, tensor: GraphTensor) -> MemoryDesc:
        return self.row_major(sizes_of(tensor), tensor.dtype)

    def _in_arena(self, name: str, desc: MemoryDesc) -> Place:
        return Place(Buffer(Kind.ARENA, name, desc.nbytes), desc)

    def _deliver(self, id_: int, argument: int) -> None:
        """Copy a value into a result's memory, unless computed there."""
        place = self.stored(id_)
        if place.buffer.kind is Kind.ARGUMENT and place.buffer.index == argument and place.desc.is_row_major():
            return
        desc = self._row_major_of(self._function.values[id_])
        target = Place(Buffer(Kind.ARGUMENT, f"%{id_}", desc.nbytes, index=argument), desc)
        self._add_reorder(id_, place, target)

    def _add_reorder(self, id_: int, source: Place, target: Place) -> None:
        """Add a copy of a value; copy declared bfloat16 as bytes, because oneDNN loses subnormal numbers."""
        if self.own_dtype(id_) == source.desc.dtype == target.desc.dtype == "bfloat16":
            seen = [place.desc.as_bytes(self.engine) for place in (source, target)]
            source, target = (
                place.seen_as(desc or place.desc) if all(seen) else place
                for place, desc in zip((source, target), seen, strict=True)
            )
        reorder = self.workshop.reorder(source.desc, target.desc)
        self._steps.append(Step("reorder", reorder, {Argument.SRC: source, Argument.DST: target}))
