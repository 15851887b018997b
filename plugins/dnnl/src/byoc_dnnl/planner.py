"""Makes the plan of a region: layouts are chosen by primitives, and reorders stand where they differ.

A tensor stays in the layout in which its producer gives it. A primitive that chooses (convolutions and pooling) is
offered all layouts, and its operands are brought into the ones it chose; one that does not takes its first operand as
it lies. Where that has no fast implementation the operands are brought into row-major order. Constants are reordered
once, when the program is made. Reshapes and permutations are other descriptions of the same memory where the layout
permits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from byoc_core.errors import ArtifactError
from byoc_core.runtime.graph_document import GraphAttr, GraphFunction, GraphTensor

from byoc_dnnl.capi import Argument
from byoc_dnnl.handles import Engine, MemoryDesc, PrimitiveDesc
from byoc_dnnl.plan import Buffer, Kind, Packing, Place, Plan, Step
from byoc_dnnl.primitives import Workshop

__all__ = ["Call", "Planner", "sizes_of"]


@dataclass(frozen=True, slots=True)
class Call:
    """One node of a region, with the types of what it reads and gives."""

    op: str
    inputs: tuple[int, ...]
    output: int
    operands: tuple[GraphTensor, ...]
    result: GraphTensor
    attrs: Mapping[str, GraphAttr]


class Planner:
    """Plans one function.

    Args:
        engine: where primitives are made.
        function: what is planned; its nodes have no bodies.
        strict: whether a reference implementation of oneDNN is a refusal, as when something is compiled; what is loaded
            from an artifact is run as this machine can.
    """

    def __init__(self, engine: Engine, function: GraphFunction, *, strict: bool) -> None:
        self.engine = engine
        self.workshop = Workshop(engine)
        self._strict = strict
        self._function = function
        self._calls = _calls_of(function)
        self._readers: dict[int, list[Call]] = {}
        for call in self._calls:
            for id_ in dict.fromkeys(call.inputs):
                self._readers.setdefault(id_, []).append(call)
        self._steps: list[Step] = []
        self._packings: list[Packing] = []
        self._places: dict[int, Place] = {}
        self._copies: dict[int, list[Place]] = {}
        self._fused: set[int] = set()
        self._arguments_of: dict[int, list[int]] = {}
        for number, (_, id_) in enumerate(function.outputs):
            self._arguments_of.setdefault(id_, []).append(len(function.inputs) + number)
        self._add_given()

    def _add_given(self) -> None:
        function = self._function
        for id_ in range(len(function.inputs)):
            desc = self.row_major(sizes_of(function.values[id_]))
            self._places[id_] = Place(Buffer(Kind.ARGUMENT, f"%{id_}", desc.nbytes, index=id_), desc)
        for id_, constant in enumerate(function.constants, start=len(function.inputs)):
            desc = self.row_major(sizes_of(constant.tensor))
            self._places[id_] = Place(Buffer(Kind.CONSTANT, f"%{id_}", desc.nbytes, digest=constant.digest), desc)

    def plan(self) -> Plan | str:
        """Gives the plan, or the reason why there is none, which names the op."""
        from byoc_dnnl.lowerings import lower

        for call in self._calls:
            if call.output in self._fused:
                continue
            reason = lower(call, self)
            if reason is not None:
                return f"`{call.op}`: {reason}"
        for id_, arguments in self._arguments_of.items():
            for argument in arguments:
                self._deliver(id_, argument)
        return Plan(self._steps, self._packings)

    # What a lowering asks.

    def is_constant(self, id_: int) -> bool:
        """Whether a value is a constant."""
        return self._places[id_].buffer.kind is Kind.CONSTANT

    def is_placed(self, id_: int) -> bool:
        """Whether a value is there already."""
        return id_ in self._places

    def follower(self, call: Call) -> Call | None:
        """Gives the one call that reads a call's result, where nothing else does."""
        readers = self._readers.get(call.output, [])
        if len(readers) != 1 or readers[0].inputs.count(call.output) != 1 or call.output in self._arguments_of:
            return None
        return readers[0]

    def accepts(self, desc: PrimitiveDesc | None) -> bool:
        """Whether a primitive is there, and none that a strict plan refuses."""
        return desc is not None and not (self._strict and desc.is_reference)

    def row_major(self, sizes: Sequence[int]) -> MemoryDesc:
        """Gives the description of a row-major tensor."""
        return MemoryDesc.strided(self.engine, sizes)

    def any(self, sizes: Sequence[int]) -> MemoryDesc:
        """Gives the description that leaves the layout to a primitive."""
        return MemoryDesc.any(self.engine, sizes)

    def place(self, id_: int) -> Place:
        """Gives where a value lies, in whatever layout."""
        return self._places[id_]

    def place_in(self, id_: int, desc: MemoryDesc) -> Place:
        """Gives where a value lies in a layout; it is reordered, once, where it lies in another."""
        return self.reordered(id_, self._places[id_], desc)

    def place_row_major(self, id_: int) -> Place:
        """Gives where a value lies in row-major order."""
        place = self._places[id_]
        return place if place.desc.is_row_major() else self.place_in(id_, self.row_major(place.desc.sizes))

    def reordered(self, id_: int, place: Place, desc: MemoryDesc) -> Place:
        """Gives a copy in a layout of what lies in a place, a view of a value; the place itself if it lies so.

        Args:
            id_: the value, of which each copy is made once.
            place: the view.
            desc: the layout, of the view's sizes.
        """
        if place.desc == desc:
            return place
        for copy in self._copies.setdefault(id_, []):
            if copy.desc == desc:
                return copy
        reorder = self.workshop.reorder(place.desc, desc)
        if place.buffer.kind is Kind.CONSTANT:
            copy = Place(Buffer(Kind.PACKED, place.buffer.name, desc.nbytes), desc)
            self._packings.append(Packing(place, copy, reorder))
        else:
            copy = self._in_arena(place.buffer.name, desc)
            self._steps.append(Step("reorder", reorder, {Argument.SRC: place, Argument.DST: copy}))
        self._copies[id_].append(copy)
        return copy

    # What a lowering does.

    def result(self, id_: int, desc: MemoryDesc) -> Place:
        """Gives memory for a value in a layout of its sizes; that of the caller where the value is a result."""
        arguments = self._arguments_of.get(id_, [])
        if arguments and desc.is_row_major():
            place = Place(Buffer(Kind.ARGUMENT, f"%{id_}", desc.nbytes, index=arguments[0]), desc)
        else:
            place = self._in_arena(f"%{id_}", desc)
        self.set_view(id_, place)
        return place

    def set_view(self, id_: int, place: Place) -> None:
        """Says that a value lies in memory that is there already.

        Raises:
            ArtifactError: the value has other sizes; only a document from a file can say so.
        """
        expected = sizes_of(self._function.values[id_])
        if place.desc.sizes != expected or place.desc.nbytes > place.buffer.nbytes:
            raise ArtifactError(f"value {id_}", "has other sizes", got=expected, expected=place.desc.sizes)
        self._places[id_] = place

    def add_step(self, title: str, desc: PrimitiveDesc, arguments: Mapping[int, Place]) -> None:
        """Adds a primitive.

        Raises:
            ArtifactError: an operand is smaller than the primitive reads; only a document from a file can say so.
        """
        for argument, place in arguments.items():
            needed = desc.argument_nbytes(argument)
            if needed > place.buffer.nbytes:
                name = f"`{title}`, operand {place.buffer.name}"
                raise ArtifactError(name, "is too small", got=place.buffer.nbytes, expected=f"{needed} bytes")
        self._steps.append(Step(title, desc, dict(arguments)))

    def mark_fused(self, calls: Sequence[Call]) -> None:
        """Says that calls are computed by an earlier one's primitive."""
        self._fused.update(call.output for call in calls)

    def _in_arena(self, name: str, desc: MemoryDesc) -> Place:
        return Place(Buffer(Kind.ARENA, name, desc.nbytes), desc)

    def _deliver(self, id_: int, argument: int) -> None:
        """Brings a value into a result's memory, unless it was computed there."""
        place = self._places[id_]
        if place.buffer.kind is Kind.ARGUMENT and place.buffer.index == argument and place.desc.is_row_major():
            return
        desc = self.row_major(place.desc.sizes)
        target = Place(Buffer(Kind.ARGUMENT, f"%{id_}", desc.nbytes, index=argument), desc)
        reorder = self.workshop.reorder(place.desc, desc)
        self._steps.append(Step("reorder", reorder, {Argument.SRC: place, Argument.DST: target}))


def sizes_of(tensor: GraphTensor) -> tuple[int, ...]:
    """Gives the sizes of a static tensor; a scalar has one element on one axis, since oneDNN knows no rank 0."""
    return tuple(dim for dim in tensor.shape if isinstance(dim, int)) or (1,)


def _calls_of(function: GraphFunction) -> list[Call]:
    calls = []
    id_ = len(function.inputs) + len(function.constants)
    for node in function.nodes:
        operands = tuple(function.values[value] for value in node.inputs)
        calls.append(Call(node.op, node.inputs, id_, operands, node.outputs[0], node.attrs))
        id_ += len(node.outputs)
    return calls
