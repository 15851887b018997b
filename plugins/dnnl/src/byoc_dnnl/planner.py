"""Makes the plan of a region: layouts are chosen by primitives, and reorders stand where they differ.

A tensor stays in the layout in which its producer gives it. A primitive that chooses (convolutions and pooling) is
offered all layouts, and its operands are brought into the ones it chose; one that does not takes its first operand as
it lies. Where that has no fast implementation the operands are brought into row-major order. Constants are reordered
once, when the program is made. Reshapes and permutations are other descriptions of the same memory where the layout
permits.

A value has the dtype that the function says of it, or is stored narrower where the precision asked for permits that:
then a lowering that takes the one as well as the other asks where it is stored, and all others get it as it is said.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from byoc_core.errors import ArtifactError
from byoc_core.opset import LARGEST
from byoc_core.runtime.graph.document import GraphFunction, GraphTensor
from byoc_core.runtime.module import NDArray

from byoc_dnnl.calls import Call, calls_of, exceeds, sizes_of
from byoc_dnnl.capi import Argument, DataType
from byoc_dnnl.derived import Derivation
from byoc_dnnl.handles import Engine, MemoryDesc, PrimitiveDesc
from byoc_dnnl.known import Flattened, Quantised
from byoc_dnnl.plan import AnyStep, Buffer, Check, Kernel, Kind, Packing, Place, Plan, Step
from byoc_dnnl.precision import PASSING, READING_NARROW, Precision, lacks
from byoc_dnnl.primitives import Workshop
from byoc_dnnl.ranges import Need, Ranges
from byoc_dnnl.ranges_constants import ConstantRanges

__all__ = ["Planner"]


class Planner:
    """Plans one function.

    Args:
        engine: where primitives are made.
        function: what is planned; its nodes have no bodies.
        constants: what is known of its constants.
        strict: whether a reference implementation of oneDNN is a refusal, as when something is compiled; what is loaded
            from an artifact is run as this machine can.
        precision: what products and convolutions of float32 read, and may give where others read it as such; float32
            where oneDNN has no instructions for it, as an artifact may find.

    Attributes:
        ranges: how large values are, as far as the plan knows.
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
        """Gives the plan, or the reason why there is none, which names the op."""
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

    # What a lowering asks.

    def is_constant(self, id_: int) -> bool:
        """Whether a value is a constant."""
        return self.stored(id_).buffer.kind is Kind.CONSTANT

    def is_placed(self, id_: int) -> bool:
        """Whether a value is there already."""
        return id_ in self._places or id_ in self._deferred

    def is_read(self, id_: int) -> bool:
        """Whether a call reads a value, or the region gives it."""
        return id_ in self._readers or self.is_result(id_)

    def is_read_once(self, id_: int) -> bool:
        """Whether one call alone reads a value, and the region does not give it."""
        return len(self._readers.get(id_, ())) == 1 and not self.is_result(id_)

    def follower(self, call: Call) -> Call | None:
        """Gives the one call that reads a call's result, where nothing else does."""
        readers = self._readers.get(call.output, [])
        if len(readers) != 1 or readers[0].inputs.count(call.output) != 1 or call.output in self._arguments_of:
            return None
        return readers[0]

    def is_result(self, id_: int) -> bool:
        """Whether the region gives a value."""
        return id_ in self._arguments_of

    def ends_in(self, call: Call, id_: int) -> bool:
        """Whether a call is all that still reads the memory of a value, once, and the memory is the region's own."""
        buffer = self._places[id_].buffer
        values = self._values_in.get(buffer, [])
        readers = [reader for value in values for reader in self._readers.get(value, ())]
        pending = [reader for reader in readers if not self._is_done(reader)]
        given = any(map(self.is_result, values))
        return buffer.kind is Kind.ARENA and not given and pending == [call] and call.inputs.count(id_) == 1

    def _is_done(self, call: Call) -> bool:
        """Whether a call reads nothing any more; who reads what it flattens, reads that memory by itself."""
        id_ = call.output
        return id_ in self._places or id_ in self._fused or self.flattened(id_) is not None

    def accepts(self, desc: PrimitiveDesc | None) -> bool:
        """Whether a primitive is there, and none that a strict plan refuses."""
        return desc is not None and not (self._strict and desc.is_reference)

    def row_major(self, sizes: Sequence[int], dtype: str = "float32") -> MemoryDesc:
        """Gives the description of a row-major tensor."""
        return MemoryDesc.strided(self.engine, sizes, dtype=dtype)

    def channels_last(self, sizes: Sequence[int], dtype: str = "float32") -> MemoryDesc:
        """Gives the description of a tensor whose axis 1 is the innermost."""
        axes = [0, *range(2, len(sizes)), 1]
        places = [axes.index(axis) for axis in range(len(sizes))]
        return self.row_major([sizes[axis] for axis in axes], dtype).permuted(places)

    def any(self, sizes: Sequence[int], dtype: str = "float32") -> MemoryDesc:
        """Gives the description that leaves the layout to a primitive."""
        return MemoryDesc.any(self.engine, sizes, dtype)

    def own_dtype(self, id_: int) -> str:
        """Gives the dtype that the function says of a value; what is stored may be narrower."""
        return self._function.values[id_].dtype

    def factor_dtypes(self, call: Call) -> Sequence[str]:
        """Gives what the factors of a product or convolution may be read as, best first."""
        own = call.operands[0].dtype
        return (own,) if own != "float32" or self._precision == own else (self._precision, own)

    def result_dtype(self, call: Call) -> str:
        """Gives what a result is best stored as by what is able to convert it: narrow where that is read."""
        if call.result.dtype != "float32" or self._precision == "float32":
            return call.result.dtype
        value = call
        while (follower := self.follower(value)) is not None and follower.op in PASSING:
            value = follower
        reads_narrow = any(reader.op in READING_NARROW for reader in self._readers.get(value.output, ()))
        return self._precision if reads_narrow else "float32"

    def stored(self, id_: int) -> Place:
        """Gives where a value lies, in whatever layout and dtype; :meth:`place` is for who knows one dtype only."""
        if id_ in self._deferred:
            self._deferred.pop(id_)()
        return self._places[id_]

    def array(self, id_: int) -> NDArray | None:
        """Gives the elements of a constant; ``None`` where a value is none, or nothing is known of it."""
        place = self._places.get(id_)
        if place is None:
            return None
        made = self._made.get(place.buffer.digest)
        return self._constants.exact(place.buffer.digest) if made is None else made

    def quantised(self, id_: int) -> Quantised | None:
        """Gives the integers that a value stands for, where it is dequantised."""
        known = self._known.get(id_)
        return known if isinstance(known, Quantised) else None

    def flattened(self, id_: int) -> Flattened | None:
        """Gives how the rows of a matrix lie, where that is not the order of its columns."""
        known = self._known.get(id_)
        return known if isinstance(known, Flattened) else None

    def place(self, id_: int) -> Place:
        """Gives where a value lies, in whatever layout."""
        return self.place_as(id_, self.own_dtype(id_))

    def place_as(self, id_: int, dtype: str) -> Place:
        """Gives where a value lies in a dtype, in whatever layout."""
        desc = self.stored(id_).desc
        return self.place_in(id_, desc.cast(self.engine, dtype) or self.row_major(desc.sizes, dtype))

    def ways(self, id_: int) -> Iterator[Place]:
        """Yields where a value lies: as it is stored; then as more primitives take it, reordered if need be.

        What lies in blocks is tried channels-last first: that is what convolutions read next.
        """
        yield self.stored(id_)
        desc = self.stored(id_).desc
        if desc.is_blocked() and len(desc.sizes) > 2:
            yield self.place_in(id_, self.channels_last(desc.sizes, self.own_dtype(id_)))
        if not desc.is_row_major() or desc.dtype != self.own_dtype(id_):
            yield self.place_row_major(id_)

    def place_derived(self, id_: int, derivation: Derivation) -> Place:
        """Gives what is made of a constant that lies row-major, on the axes that the derivation speaks of.

        Raises:
            ArtifactError: the constant has another number of elements; only a document from a file can say so.
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
        """Gives where a value lies in a layout; it is reordered, once, where it lies in another."""
        return self.reordered(id_, self.stored(id_), desc)

    def place_row_major(self, id_: int, dtype: str | None = None) -> Place:
        """Gives where a value lies in row-major order, in its own dtype if no other is given."""
        place, dtype = self.stored(id_), dtype or self.own_dtype(id_)
        if place.desc.is_row_major() and place.desc.dtype == dtype:
            return place
        return self.place_in(id_, self.row_major(place.desc.sizes, dtype))

    def reordered(self, id_: int, place: Place, desc: MemoryDesc) -> Place:
        """Gives a copy in a layout of what lies in a place, a view of a value; the place itself if it lies so.

        Args:
            id_: the value, of which each copy is made once.
            place: the view.
            desc: the layout, of the view's sizes.
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
        """Gives checks of values that are there, as few as prove what is needed; ``None`` where none do.

        Args:
            needs: what has to be proved.
            sources: values that are there, and from which it follows.
        """
        if self.ranges.hold(needs):
            return ()
        live = [id_ for id_ in self._places if any(map(self._is_pending, self._readers.get(id_, ())))]
        return self.ranges.find_checks(needs, sources, live)

    def _is_pending(self, call: Call) -> bool:
        return call.output >= self._next and call.output not in self._fused

    # What a lowering does.

    def defer(self, id_: int, known: Quantised | Flattened, place: Callable[[], None]) -> None:
        """Says what a value can be computed from; it is placed itself only where somebody asks for it."""
        self._known[id_] = known
        self._deferred[id_] = place
        if isinstance(known, Flattened):
            self._values_in.setdefault(known.place.buffer, []).append(id_)

    def set_constant(self, id_: int, digest: str, array: NDArray) -> None:
        """Says that a value is an array, computed from constants; ``digest`` tells it from all others."""
        desc = self._row_major_of(self._function.values[id_])
        self._places[id_] = self.made_constant(f"%{id_}", digest, array, desc)

    def made_constant(self, name: str, digest: str, array: NDArray, desc: MemoryDesc) -> Place:
        """Gives where an array lies that is none of the function's constants; ``digest`` tells it from all others."""
        self._made[digest] = array
        return Place(Buffer(Kind.CONSTANT, name, desc.nbytes, digest=digest), desc)

    def result(self, id_: int, desc: MemoryDesc) -> Place:
        """Gives memory for a value in a layout of its sizes; that of the caller where the value is a result."""
        arguments = self._arguments_of.get(id_, [])
        if arguments and desc.is_row_major() and desc.dtype == self.own_dtype(id_):
            place = Place(Buffer(Kind.ARGUMENT, f"%{id_}", desc.nbytes, index=arguments[0]), desc)
        else:
            place = self._in_arena(f"%{id_}", desc)
        self.set_view(id_, place)
        return place

    def temporary(self, name: str, desc: MemoryDesc) -> Place:
        """Gives memory for what one primitive of a lowering leaves to the next."""
        return self._in_arena(name, desc)

    def set_view(self, id_: int, place: Place) -> None:
        """Says that a value lies in memory that is there already.

        Raises:
            ArtifactError: the value has another dtype or other sizes; only a document from a file can say so.
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
        """Adds a primitive.

        Raises:
            ArtifactError: an operand is smaller than the primitive reads; only a document from a file can say so.
        """
        for argument, place in arguments.items():
            needed = desc.argument_nbytes(argument)
            if needed > place.buffer.nbytes:
                name = f"`{title}`, operand {place.buffer.name}"
                raise ArtifactError(name, "is too small", got=place.buffer.nbytes, expected=f"{needed} bytes")
        self._steps.append(Step(title, desc, {int(argument): place for argument, place in arguments.items()}))

    def add_kernel(self, kernel: Kernel) -> None:
        """Adds a function of the core: of each element, or of rows of elements that lie next to each other."""
        self._steps.append(kernel)

    def check_finite(self, ids: Sequence[int]) -> bool:
        """Adds checks that values which are there are finite, as many as are needed; not where one cannot be."""
        needs = [(id_, LARGEST) for id_ in ids]
        if self.find_checks(needs, ids) is None:
            return False
        self.check(needs, ids)
        return True

    def check(self, needs: Sequence[Need], sources: Sequence[int]) -> None:
        """Adds the checks that :meth:`find_checks` finds."""
        for id_, limit in self.find_checks(needs, sources) or ():
            self.ranges.set_checked(id_, limit)
            flat = self.flattened(id_)
            self._steps.append(Check("finite numbers", flat.place if flat else self.stored(id_), limit))

    def check_result(self, call: Call, limit: float) -> None:
        """Adds a check of what a call has just computed."""
        self._steps.append(Check(call.op, self.stored(call.output), limit))

    def mark_fused(self, calls: Sequence[Call]) -> None:
        """Says that calls are computed by one primitive; only the last one's result lies anywhere."""
        self._fused.update(call.output for call in calls)

    def _row_major_of(self, tensor: GraphTensor) -> MemoryDesc:
        return self.row_major(sizes_of(tensor), tensor.dtype)

    def _in_arena(self, name: str, desc: MemoryDesc) -> Place:
        return Place(Buffer(Kind.ARENA, name, desc.nbytes), desc)

    def _deliver(self, id_: int, argument: int) -> None:
        """Brings a value into a result's memory, unless it was computed there."""
        place = self.stored(id_)
        if place.buffer.kind is Kind.ARGUMENT and place.buffer.index == argument and place.desc.is_row_major():
            return
        desc = self._row_major_of(self._function.values[id_])
        target = Place(Buffer(Kind.ARGUMENT, f"%{id_}", desc.nbytes, index=argument), desc)
        self._add_reorder(id_, place, target)

    def _add_reorder(self, id_: int, source: Place, target: Place) -> None:
        """Adds what copies a value; one that is of bfloat16 by itself as bytes, since oneDNN loses subnormal ones."""
        if self.own_dtype(id_) == source.desc.dtype == target.desc.dtype == "bfloat16":
            seen = [place.desc.as_bytes(self.engine) for place in (source, target)]
            source, target = (
                place.seen_as(desc or place.desc) if all(seen) else place
                for place, desc in zip((source, target), seen, strict=True)
            )
        reorder = self.workshop.reorder(source.desc, target.desc)
        self._steps.append(Step("reorder", reorder, {Argument.SRC: source, Argument.DST: target}))
