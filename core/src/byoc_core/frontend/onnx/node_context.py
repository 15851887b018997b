"""One node while it is imported: typed access to its inputs and attributes, and emission of IR."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import onnx

from byoc_core.dims import Dim, symbols_of
from byoc_core.dtypes import to_numpy
from byoc_core.errors import ExecutionError, IRTypeError
from byoc_core.frontend.onnx.graph_order import node_label
from byoc_core.frontend.onnx.node_attributes import NodeAttributes
from byoc_core.frontend.onnx.sequence_value import SequenceValue
from byoc_core.frontend.onnx.shape_value import MAX_ELEMENTS, ShapeValue
from byoc_core.ir.constants import Constant
from byoc_core.ir.module import Binding, Function, Location, Value, Var
from byoc_core.opset.opdef import OpDef, Trait
from byoc_core.opset.types import TensorType, Type
from byoc_core.transform.evaluate import evaluate_binding
from byoc_core.transform.folding_budget import folding_cost

if TYPE_CHECKING:
    from byoc_core.frontend.onnx.importer import GraphImporter
    from byoc_core.frontend.onnx.regions import Region

_MAX_COST = 1 << 20
"""What an op that is computed while importing may cost: attributes can name work that its operands do not show."""

__all__ = ["Imported", "NodeContext", "NodeImporter", "ShapeImporter"]

Imported = Value | ShapeValue | npt.NDArray[np.generic] | SequenceValue
"""What an ONNX name stands for: an IR value, a known shape, an array that is no IR constant yet, or a sequence."""


class NodeContext(NodeAttributes):
    """A node, seen by the importer of its op."""

    def __init__(self, graph: GraphImporter, proto: onnx.NodeProto) -> None:
        super().__init__(proto, f"{graph.where}, {node_label(proto)}", graph.model.directory)
        self._graph = graph
        self._proto = proto
        self._folded: dict[Var, npt.NDArray[np.generic]] = {}
        output = next((name for name in proto.output if name), "")
        self.path = f"{graph.path}{proto.name or output}"
        self._location = Location(Path(graph.model.source).name, self.path)

    # What the node is

    def find_op(self, name: str) -> OpDef:
        """Return the op of that name in the registry that the model is imported with.

        Raises:
            IRTypeError: the registry has none.
        """
        return self._graph.builder.ops.find(name)

    @property
    def op_type(self) -> str:
        """The ONNX name of the op."""
        return self._proto.op_type

    @property
    def opset(self) -> int:
        """The version of the operator set."""
        return self._graph.opset

    @property
    def num_inputs(self) -> int:
        """The number of inputs, left-out ones at the end not counted."""
        count = len(self._proto.input)
        while count and not self._proto.input[count - 1]:
            count -= 1
        return count

    @property
    def num_outputs(self) -> int:
        """The number of outputs, unnamed ones at the end not counted."""
        count = len(self._proto.output)
        while count and not self._proto.output[count - 1]:
            count -= 1
        return count

    @property
    def output_names(self) -> Sequence[str]:
        """The names of all outputs; empty ones are left out by the model."""
        return list(self._proto.output)

    # Inputs

    def has_input(self, index: int) -> bool:
        """Tells whether an optional input is there."""
        return index < len(self._proto.input) and bool(self._proto.input[index])

    def imported(self, index: int) -> Imported:
        """Gives an input in the form in which it is known.

        Raises:
            FrontendError: the input is left out.
        """
        if not self.has_input(index):
            raise self.error(f"lacks input {index}")
        return self._graph.lookup(self._proto.input[index])

    def value(self, index: int) -> Value:
        """Gives an input as IR value.

        Raises:
            FrontendError: the input is left out, or is a sequence.
        """
        self.imported(index)
        return self._graph.materialise(self._proto.input[index], self.label)

    def named(self, name: str) -> Imported:
        """Gives what a name stands for where the node stands."""
        return self._graph.lookup(name)

    def to_value(self, imported: Imported, what: str) -> Value:
        """Gives as IR value what is known; ``what`` is what messages call it."""
        return self._graph.as_value(imported, what, self.label)

    def values(self) -> list[Value]:
        """Gives all inputs as IR values."""
        return [self.value(index) for index in range(self.num_inputs)]

    def type(self, index: int) -> TensorType:
        """Gives the tensor type of an input."""
        imported = self.imported(index)
        if isinstance(imported, ShapeValue):
            return TensorType(imported.shape, imported.dtype)
        type_ = self.value(index).type
        if not isinstance(type_, TensorType):
            raise self.error(f"input {index} is not a tensor", got=type_)
        return type_

    def shape(self, index: int) -> tuple[Dim, ...]:
        """Gives the shape of an input.

        Raises:
            FrontendError: its rank is unknown.
        """
        shape = self.type(index).shape
        if shape is None:
            raise self.error(f"needs the rank of input `{self._proto.input[index]}`, which the model does not say")
        return shape

    def array(self, index: int) -> npt.NDArray[np.generic] | None:
        """Gives an input as an array if it is constant."""
        return self.as_array(self.imported(index))

    def as_array(self, imported: Imported) -> npt.NDArray[np.generic] | None:
        """Gives what is imported as an array if it is constant."""
        if isinstance(imported, ShapeValue):
            return imported.to_array()
        if isinstance(imported, Constant):
            return self._graph.constant_array(imported)
        return imported if isinstance(imported, np.ndarray) else None

    def shape_value(self, index: int) -> ShapeValue | None:
        """Gives an input as a known shape, if it is one."""
        return self.as_shape_value(self.imported(index))

    def as_shape_value(self, imported: Imported) -> ShapeValue | None:
        """Gives what is imported as a known shape, if it is one."""
        if isinstance(imported, ShapeValue):
            return imported
        array = self.as_array(imported)
        return None if array is None else ShapeValue.from_array(array)

    def dims(self, index: int) -> tuple[Dim, ...]:
        """Gives the elements of an input that must be a known shape.

        Raises:
            FrontendError: it is computed while the model runs.
        """
        known = self.shape_value(index)
        dims = None if known is None else known.dims
        if dims is None:
            raise self.error(
                f"input `{self._proto.input[index]}` is not known before the model runs",
                expected="a constant, or sizes computed from shapes",
            )
        return dims

    def ints(self, index: int) -> tuple[int, ...]:
        """Gives the elements of an input that must be constant integers.

        Raises:
            FrontendError: it is not constant, or depends on symbolic sizes.
        """
        dims = self.dims(index)
        ints = tuple(dim for dim in dims if isinstance(dim, int))
        if len(ints) != len(dims):
            raise self.error(
                f"input `{self._proto.input[index]}` depends on dynamic sizes",
                got=ShapeValue(dims),
                expected="integers",
            )
        return ints

    # Results

    def emit(self, op: str, *operands: Value, **attrs: object) -> Var:
        """Adds a binding with one result and gives the result."""
        return self.emit_all(op, operands, attrs)[0]

    def emit_all(
        self,
        op: str,
        operands: Sequence[Value],
        attrs: dict[str, object],
        regions: Sequence[Function] = (),
        *,
        out_types: Sequence[Type] | None = None,
    ) -> tuple[Var, ...]:
        """Adds a binding and gives all of its results.

        Args:
            op: its name.
            operands: what it reads.
            attrs: its attributes.
            regions: its nested functions.
            out_types: result types, for ops that declare them.

        Raises:
            IRTypeError: the operands do not fit the op; whoever imports the node adds its name.
            FrontendError: the model stands for too many nodes.
        """
        self._graph.bounds.spend(1, self.label)
        binding = self._graph.builder.bind(
            op, operands, attrs, regions=regions, out_types=out_types, location=self._location
        )
        arrays = [self._known_array(operand) for operand in operands]
        known = [array for array in arrays if array is not None]
        if len(known) == len(arrays) and _is_small(binding):
            with suppress(ExecutionError, IRTypeError):  # it fails, or depends on a size: running it shows
                self._folded.update(zip(binding.results, evaluate_binding(binding, known, {}), strict=True))
        return binding.results

    def _known_array(self, value: Value) -> npt.NDArray[np.generic] | None:
        return self._graph.constant_array(value) if isinstance(value, Constant) else self._folded.get(value)

    def folded(self, results: Sequence[Imported]) -> Sequence[Imported]:
        """Gives the node's results, as arrays where they are small and computed from small constants alone.

        Shapes go through such nodes (the square root of a number of channels).
        """
        return [self._folded.get(result, result) if isinstance(result, Var) else result for result in results]

    def check_count(self, count: int) -> None:
        """Check that the node may become so many values or ops, before they are made.

        Raises:
            FrontendError: the model stands for too many nodes.
        """
        self._graph.bounds.check(count, self.label)

    def may_generate(self, nbytes: int) -> bool:
        """Return whether the node may become a constant of so many bytes that the file does not have."""
        return self._graph.bounds.may_generate(nbytes)

    def stack(self, values: Sequence[Value], axis: int = 0) -> Value:
        """Gives values joined along a new axis, which is counted from the front.

        Raises:
            FrontendError: their types differ, or the rank is unknown.
        """
        shapes = [self.shape_of(value) for value in values]
        for value in values:
            if value.type != values[0].type:
                raise self.error("stacks tensors of different types", got=value.type, expected=values[0].type)
        pairs = zip(values, shapes, strict=True)
        return self.emit("concat", *(self.reshape(v, (*s[:axis], 1, *s[axis:])) for v, s in pairs), axis=axis)

    def tensor_type(self, value: Value) -> TensorType:
        """Gives the type of a value that is no input.

        Raises:
            FrontendError: it is no tensor.
        """
        if not isinstance(value.type, TensorType):
            raise self.error("needs a tensor", got=value.type)
        return value.type

    def shape_of(self, value: Value) -> tuple[Dim, ...]:
        """Gives the shape of a value that is no input.

        Raises:
            FrontendError: its rank is unknown.
        """
        shape = self.tensor_type(value).shape
        if shape is None:
            raise self.error("needs the rank of a value, which the model does not say", got=value.type)
        return shape

    def fresh_size(self, name: str) -> Dim:
        """Gives a symbol for a size that only running tells, with a name like ``name``."""
        size = self._graph.symbols.fresh(name)
        self._graph.region.born |= symbols_of(size)
        return size

    def constant(self, array: npt.ArrayLike) -> Constant:
        """Gives an array as IR constant."""
        return self._graph.builder.const(array)

    def scalar(self, value: float, dtype_like: int) -> Constant:
        """Gives a 0-d constant in the dtype of an input."""
        return self.constant(np.asarray(value).astype(to_numpy(self.type(dtype_like).dtype)))

    def reshape(self, value: Value, shape: Sequence[Dim]) -> Value:
        """Gives a value in another shape; the value itself where that is its shape already."""
        if isinstance(value.type, TensorType) and value.type.shape == tuple(shape):
            return value
        return self.emit("reshape", value, shape=tuple(shape))

    # Nested graphs

    @property
    def repeats(self) -> int:
        """How often the node is imported, where it stands in what is unrolled."""
        return self._graph.repeats

    def open_region(self, name: str) -> tuple[Region, NodeContext]:
        """Gives a new region, and this node seen from inside of it."""
        region = self._graph.region.nest(name)
        return region, NodeContext(self._graph.nest(region=region), self._proto)

    def repeated(self, repeats: int) -> NodeContext:
        """Gives this node seen from inside of what is imported so many times for it."""
        return NodeContext(self._graph.nest(repeats=repeats), self._proto)

    def bring_in(self, outer: Imported) -> Imported:
        """Gives what stands inside, where this node is seen from there, for what is known or computed outside."""
        return self._graph.bring_in(outer)

    def inline(self, attribute: str, inputs: Sequence[Imported]) -> list[Imported]:
        """Imports a graph that is an attribute in the place of the node, and gives what its outputs stand for."""
        graph = self._graph.nest(f"{self.label}, attribute `{attribute}`", f"{self.path}/")
        return graph.import_nested(self.attr_graph(attribute), inputs)

    def axis(self, axis: int, rank: int) -> int:
        """Gives an axis counted from the front.

        Raises:
            FrontendError: there is no such axis.
        """
        if not -rank <= axis < rank:
            raise self.error(f"names no axis of a tensor of rank {rank}", got=axis)
        return axis % rank


NodeImporter = Callable[[NodeContext], Sequence[Imported]]
"""Imports one node: gives what each of its outputs stands for, in order."""


ShapeImporter = Callable[[NodeContext, Sequence[ShapeValue]], Sequence[Imported] | None]
"""Computes a node on known shapes; ``None`` where it cannot, and the node is imported as any other."""


def _is_small(binding: Binding) -> bool:
    """Tells whether an op of known operands may be computed while importing."""
    sizes = [v.type.num_elements if isinstance(v.type, TensorType) else None for v in binding.results]
    sizes += [v.type.num_elements if isinstance(v.type, TensorType) else None for v in binding.operands]
    is_own = binding.op.kernel is not None and binding.op.has_trait(Trait.PURE)
    if not is_own or not all(isinstance(size, int) and size <= MAX_ELEMENTS for size in sizes):
        return False
    cost = folding_cost(binding)
    return cost is not None and cost <= _MAX_COST
