"""A node during import: typed access to its inputs and attributes, and emission of IR."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import onnx

from byoc_core.dims import Dim, symbols_of
from byoc_core.dtypes import is_float, to_numpy
from byoc_core.errors import ExecutionError, IRTypeError
from byoc_core.frontend.onnx.graph_order import node_label
from byoc_core.frontend.onnx.node_attributes import NodeAttributes
from byoc_core.frontend.onnx.operator_graph import operator_graph
from byoc_core.frontend.onnx.sequence_value import (
    MapSequence,
    MapValue,
    OptionalValue,
    RunTimeSequence,
    SequenceValue,
)
from byoc_core.frontend.onnx.shape_value import MAX_ELEMENTS, ShapeValue
from byoc_core.frontend.onnx.string_tensor import StringTensor
from byoc_core.frontend.onnx.weights import to_strings
from byoc_core.frontend.onnx_names import standardised
from byoc_core.ir.constants import Constant
from byoc_core.ir.module import Binding, Function, Location, Value, Var
from byoc_core.opset.opdef import OpDef, Trait
from byoc_core.opset.strings import pack_strings
from byoc_core.opset.types import TensorType, Type
from byoc_core.transform.evaluate import evaluate_binding
from byoc_core.transform.folding_budget import folding_cost

if TYPE_CHECKING:
    from byoc_core.frontend.onnx.importer import GraphImporter
    from byoc_core.frontend.onnx.regions import Region

_MAX_COST = 1 << 20
"""The highest cost of an op computed during import: attributes can demand work not visible in the operands."""

__all__ = ["Imported", "NodeContext", "NodeImporter", "ShapeImporter"]

Imported = (
    Value
    | ShapeValue
    | npt.NDArray[np.generic]
    | SequenceValue
    | RunTimeSequence
    | MapSequence
    | MapValue
    | OptionalValue
    | StringTensor
)
"""The imported form of an ONNX name: an IR value, a known shape, an array not yet an IR constant, a sequence of tensors
or of maps, a map, an optional value, or a tensor of strings."""


class NodeContext(NodeAttributes):
    """A node, from the perspective of the importer of its op."""

    def __init__(self, graph: GraphImporter, proto: onnx.NodeProto) -> None:
        super().__init__(proto, f"{graph.where}, {node_label(proto)}", graph.model.directory)
        self._graph = graph
        self._proto = proto
        self._folded: dict[Var, npt.NDArray[np.generic]] = {}
        output = next((name for name in proto.output if name), "")
        self.path = f"{graph.path}{proto.name or output}"
        self._location = Location(graph.model.name, self.path)

    # Properties of the node

    def find_op(self, name: str) -> OpDef:
        """Return the op of this name in the registry used for the import.

        Raises:
            IRTypeError: the registry has no such op.
        """
        return self._graph.builder.ops.find(name)

    @property
    def op_type(self) -> str:
        """The ONNX name of the op."""
        return self._proto.op_type

    @property
    def domain(self) -> str:
        """The domain of the op; the standard domain is empty."""
        return standardised(self._proto.domain)

    @property
    def opset(self) -> int:
        """The version of the standard operator set."""
        return self._graph.opset

    @property
    def domain_version(self) -> int:
        """The version of the operator set of the op's domain, as stated by the model or by the function around; else 1.

        Raises:
            FrontendError: several versions are stated.
        """
        imports = self._graph.opset_imports
        versions = sorted({int(entry.version) for entry in imports if standardised(entry.domain) == self.domain})
        if len(versions) > 1:
            raise self.error(f"several versions of the domain `{self.domain}` are declared", got=versions)
        return versions[0] if versions else 1

    @property
    def written_opset(self) -> int:
        """The version of the operator set before the conversion of an old model."""
        return self._graph.model.written_opset

    @property
    def num_inputs(self) -> int:
        """The number of inputs, without omitted inputs at the end."""
        count = len(self._proto.input)
        while count and not self._proto.input[count - 1]:
            count -= 1
        return count

    @property
    def num_outputs(self) -> int:
        """The number of outputs, without unnamed outputs at the end."""
        count = len(self._proto.output)
        while count and not self._proto.output[count - 1]:
            count -= 1
        return count

    @property
    def input_names(self) -> Sequence[str]:
        """The names of all inputs; an empty name means an input omitted by the model."""
        return list(self._proto.input)

    @property
    def output_names(self) -> Sequence[str]:
        """The names of all outputs; an empty name means an output omitted by the model."""
        return list(self._proto.output)

    def serialised(self) -> bytes:
        """Return the node in ONNX's form; all its attributes count as read."""
        self.ignore_attrs(*(attribute.name for attribute in self._proto.attribute))
        return bytes(self._proto.SerializeToString(deterministic=True))

    # Inputs

    def has_input(self, index: int) -> bool:
        """Return whether an optional input is present."""
        return index < len(self._proto.input) and bool(self._proto.input[index])

    def imported(self, index: int) -> Imported:
        """Return the imported form of an input.

        Raises:
            FrontendError: the input is omitted.
        """
        if not self.has_input(index):
            raise self.error(f"lacks input {index}")
        return self._graph.lookup(self._proto.input[index])

    def value(self, index: int) -> Value:
        """Return an input as IR value.

        Raises:
            FrontendError: the input is omitted, or is a sequence.
        """
        self.imported(index)
        return self._graph.materialise(self._proto.input[index], self.label)

    def named(self, name: str) -> Imported:
        """Return the imported form of a name at the place of the node."""
        return self._graph.lookup(name)

    def to_value(self, imported: Imported, subject: str) -> Value:
        """Return an imported form as IR value; ``subject`` is the name in messages."""
        return self._graph.as_value(imported, subject, self.label)

    def values(self) -> list[Value]:
        """Return all inputs as IR values."""
        return [self.value(index) for index in range(self.num_inputs)]

    def type(self, index: int) -> TensorType:
        """Return the tensor type of an input."""
        imported = self.imported(index)
        if isinstance(imported, ShapeValue):
            return TensorType(imported.shape, imported.dtype)
        type_ = self.value(index).type
        if not isinstance(type_, TensorType):
            raise self.error(f"input {index} is not a tensor", got=type_)
        return type_

    def shape(self, index: int) -> tuple[Dim, ...]:
        """Return the shape of an input.

        Raises:
            FrontendError: the rank of the input is unknown.
        """
        shape = self.type(index).shape
        if shape is None:
            raise self.error(f"needs the rank of input `{self._proto.input[index]}`, but the rank is unknown")
        return shape

    def array(self, index: int) -> npt.NDArray[np.generic] | None:
        """Return an input as an array if constant, else ``None``."""
        return self.as_array(self.imported(index))

    def as_array(self, imported: Imported) -> npt.NDArray[np.generic] | None:
        """Return an imported form as an array if constant, else ``None``."""
        if isinstance(imported, ShapeValue):
            return imported.to_array()
        if isinstance(imported, Constant):
            return self._graph.constant_array(imported)
        if isinstance(imported, Var):
            return self._graph.weight_array(imported, self.label)
        return imported if isinstance(imported, np.ndarray) else None

    def shape_value(self, index: int) -> ShapeValue | None:
        """Return an input as a known shape if possible, else ``None``."""
        return self.as_shape_value(self.imported(index))

    def as_shape_value(self, imported: Imported) -> ShapeValue | None:
        """Return an imported form as a known shape if possible, else ``None``."""
        if isinstance(imported, ShapeValue):
            return imported
        if isinstance(imported, Var) and isinstance(imported.type, TensorType) and is_float(imported.type.dtype):
            return None  # a swappable weight of floats is no shape, and is not read
        array = self.as_array(imported)
        return None if array is None else ShapeValue.from_array(array)

    def dims(self, index: int) -> tuple[Dim, ...]:
        """Return the elements of an input; the input must be a known shape.

        Raises:
            FrontendError: the input is computed at run time.
        """
        shape_value = self.shape_value(index)
        dims = None if shape_value is None else shape_value.dims
        if dims is None:
            raise self.error(
                f"input `{self._proto.input[index]}` is computed at run time",
                expected="a constant, or sizes computed from shapes",
            )
        return dims

    def ints(self, index: int) -> tuple[int, ...]:
        """Return the elements of an input; the elements must be constant integers.

        Raises:
            FrontendError: the input is not constant, or depends on symbolic sizes.
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
        """Add a binding with a single result and return the result."""
        return self.emit_all(op, operands, attrs)[0]

    def emit_all(
        self,
        op: str,
        operands: Sequence[Value],
        attrs: dict[str, object],
        regions: Sequence[Function] = (),
        *,
        out_types: Sequence[Type] | None = None,
        names: Sequence[str] | None = None,
    ) -> tuple[Var, ...]:
        """Add a binding and return all results.

        Args:
            op: the name of the op.
            operands: the operands of the op.
            attrs: the attributes of the op.
            regions: the nested functions of the op.
            out_types: result types, for ops with declared types.
            names: the names of the results; numbered names by default.

        Raises:
            IRTypeError: the operands do not fit the op; the importer of the graph adds the node's name.
            FrontendError: the model expands to too many nodes.
        """
        self._graph.bounds.spend(1, self.label)
        binding = self._graph.builder.bind(
            op, operands, attrs, regions=regions, out_types=out_types, names=names, location=self._location
        )
        arrays = [self._known_array(operand) for operand in operands]
        constants = [array for array in arrays if array is not None]
        if len(constants) == len(arrays) and _is_small(binding):
            with suppress(ExecutionError, IRTypeError):  # an error or a dependence on a size appears at run time
                self._folded.update(zip(binding.results, evaluate_binding(binding, constants, {}), strict=True))
        return binding.results

    def _known_array(self, value: Value) -> npt.NDArray[np.generic] | None:
        return self._graph.constant_array(value) if isinstance(value, Constant) else self._folded.get(value)

    def folded(self, results: Sequence[Imported]) -> Sequence[Imported]:
        """Return the node's results, as arrays if small and computed from small constants alone.

        Shapes pass through such nodes (for example the square root of a number of channels).
        """
        return [self._folded.get(result, result) if isinstance(result, Var) else result for result in results]

    def check_count(self, count: int) -> None:
        """Check whether the node may become ``count`` values or ops, before creating any.

        Raises:
            FrontendError: the model expands to too many nodes.
        """
        self._graph.bounds.check(count, self.label)

    def may_generate(self, nbytes: int) -> bool:
        """Return whether the node may become a constant of ``nbytes`` bytes not stored in the file."""
        return self._graph.bounds.may_generate(nbytes)

    def stack(self, values: Sequence[Value], axis: int = 0) -> Value:
        """Stack values along a new axis, counted from the front.

        Raises:
            FrontendError: the types of the values differ, or the rank is unknown.
        """
        shapes = [self.shape_of(value) for value in values]
        for value in values:
            if value.type != values[0].type:
                raise self.error("stacks tensors of different types", got=value.type, expected=values[0].type)
        pairs = zip(values, shapes, strict=True)
        return self.emit("concat", *(self.reshape(v, (*s[:axis], 1, *s[axis:])) for v, s in pairs), axis=axis)

    def tensor_type(self, value: Value) -> TensorType:
        """Return the type of a value other than an input.

        Raises:
            FrontendError: the value is no tensor.
        """
        if not isinstance(value.type, TensorType):
            raise self.error("needs a tensor", got=value.type)
        return value.type

    def shape_of(self, value: Value | StringTensor) -> tuple[Dim, ...]:
        """Return the shape of a value other than an input.

        Raises:
            FrontendError: the rank of the value is unknown.
        """
        type_ = self.tensor_type(value.shaped if isinstance(value, StringTensor) else value)
        if type_.shape is None:
            raise self.error("needs the rank of a value, but the rank is unknown", got=type_)
        return type_.shape

    def fresh_size(self, name: str) -> Dim:
        """Return a symbol for a size only known after running, with a name like ``name``."""
        size = self._graph.symbols.fresh(name)
        self._graph.region.own_symbols |= symbols_of(size)
        return size

    def constant(self, array: npt.ArrayLike) -> Constant:
        """Return an array as IR constant."""
        return self._graph.builder.const(array)

    def attr_tensor(self, name: str) -> Imported:
        """Return a tensor attribute: an array, or strings."""
        tensor = self.attr_proto(name)
        if tensor.data_type != onnx.TensorProto.STRING:
            return self.attr_array(name)
        data, lengths = map(self.constant, pack_strings(to_strings(tensor, f"{self.label}, attribute `{name}`")))
        return StringTensor(data, lengths)

    def strings(self, strings: Sequence[str], index: Value | None = None) -> StringTensor:
        """Return constant strings.

        Args:
            strings: the strings.
            index: int64: the number of the string for each element of the tensor. By default the strings are the
                elements of a vector.
        """
        data, lengths = pack_strings(strings)
        return StringTensor(self.constant(data), self.constant(lengths), index)

    def map_sequence(self, keys: Sequence[int] | Sequence[str], values: Value) -> MapSequence:
        """Return a sequence of maps from constant keys.

        Args:
            keys: the keys of each map.
            values: the values of each map, ``(N, C)``.
        """
        if any(isinstance(key, str) for key in keys):
            return MapSequence(self.strings([str(key) for key in keys]), values)
        return MapSequence(self.constant(np.array(keys, np.int64)), values)

    def scalar(self, value: float, dtype_like: int) -> Constant:
        """Return a 0-d constant in the dtype of an input."""
        return self.constant(np.asarray(value).astype(to_numpy(self.type(dtype_like).dtype)))

    def reshape(self, value: Value, shape: Sequence[Dim]) -> Value:
        """Return a value in another shape; the value itself if already of this shape."""
        if isinstance(value.type, TensorType) and value.type.shape == tuple(shape):
            return value
        return self.emit("reshape", value, shape=tuple(shape))

    # Nested graphs

    @property
    def repeats(self) -> int:
        """The number of imports of the node, as part of unrolled code; limits the unrolling of loops inside."""
        return self._graph.repeats

    def open_region(self, name: str) -> tuple[Region, NodeContext]:
        """Return a new region, and this node from the perspective inside the region."""
        region = self._graph.region.nest(name)
        return region, NodeContext(self._graph.nest(region=region), self._proto)

    def repeated(self, repeats: int) -> NodeContext:
        """Return this node from the perspective of code imported ``repeats`` times for this node."""
        return NodeContext(self._graph.nest(repeats=repeats), self._proto)

    def bring_in(self, outer: Imported) -> Imported:
        """Convert an imported form of the surrounding graph for use in the graph of this node."""
        return self._graph.bring_in(outer)

    def inline(self, attribute: str, inputs: Sequence[Imported]) -> list[Imported]:
        """Import a graph attribute in the place of the node, and return the imported outputs."""
        graph = self._graph.nest(f"{self.label}, attribute `{attribute}`", f"{self.path}/")
        return graph.import_nested(self.attr_graph(attribute), inputs)

    def recompute(
        self, target: str, region: Region, variables: Mapping[str, Value], fixed: Mapping[str, Imported]
    ) -> Imported:
        """Import the nodes computing a tensor of the graph once more, into a region, and return the tensor.

        Args:
            target: the name of the tensor.
            region: the region receiving the nodes; further values of the graph enter as parameters.
            variables: values of the region in place of tensors of the graph, by name.
            fixed: imported forms at the place of the node, in place of further tensors of the graph.

        Raises:
            FrontendError: the graph has no tensors of these names, other values determine the tensor, or the node is
                needed to compute the tensor.
        """
        from byoc_core.frontend.onnx.recomputation import Recomputation

        requester = next(filter(None, self._proto.output), "")
        return Recomputation(self._graph, self.label, f"{self.path}/", region, requester).run(target, variables, fixed)

    def inline_region(self, region: Region, function: Function, arguments: Sequence[Value]) -> tuple[Value, ...]:
        """Add the bindings of a function in the place of the node, and return the results.

        Args:
            region: the origin of the function's nodes.
            function: the function.
            arguments: a value for each parameter.

        Raises:
            FrontendError: the model expands to too many nodes.
        """
        self._graph.bounds.spend(len(function.bindings), self.label)
        self._graph.region.own_symbols |= region.own_symbols
        return self._graph.builder.inline(function, arguments)

    def draw_seed(self) -> Var:
        """Return a seed drawn in each run for the node's random numbers."""
        return self._graph.draw_seed(self)

    def import_operator(
        self,
        op_type: str,
        inputs: Sequence[Imported | None],
        attributes: Mapping[str, object] | None = None,
        *,
        opset: int,
        num_outputs: int = 1,
    ) -> list[Imported]:
        """Import an operator of the ONNX standard in the place of the node, and return the imported outputs.

        Args:
            op_type: the operator, such as ``"Conv"``.
            inputs: the imported form of each input; ``None`` for an omitted input.
            attributes: numbers, text, and lists of these, by name.
            opset: the version of the standard operator set with the meant definition of the operator.
            num_outputs: the number of outputs.

        Raises:
            FrontendError: the operator set has no such operator, or this variant is not supported.
        """
        graph = operator_graph(op_type, [form is not None for form in inputs], attributes or {}, num_outputs)
        importer = self._graph.nest(self.label, f"{self.path}/", opset=opset)
        return importer.import_nested(graph, [form for form in inputs if form is not None])

    def axis(self, axis: int, rank: int) -> int:
        """Return an axis counted from the front.

        Raises:
            FrontendError: there is no such axis.
        """
        if not -rank <= axis < rank:
            raise self.error(f"names no axis of a tensor of rank {rank}", got=axis)
        return axis % rank


NodeImporter = Callable[[NodeContext], Sequence[Imported]]
"""Imports a node: returns the imported form of each output, in order."""


ShapeImporter = Callable[[NodeContext, Sequence[ShapeValue]], Sequence[Imported] | None]
"""Computes a node on known shapes; returns ``None`` if not possible, for the ordinary import of the node."""


def _is_small(binding: Binding) -> bool:
    """Return whether an op of known operands may be computed during import."""
    sizes = [v.type.num_elements if isinstance(v.type, TensorType) else None for v in binding.results]
    sizes += [v.type.num_elements if isinstance(v.type, TensorType) else None for v in binding.operands]
    is_own = binding.op.kernel is not None and binding.op.has_trait(Trait.PURE)
    if not is_own or not all(isinstance(size, int) and size <= MAX_ELEMENTS for size in sizes):
        return False
    cost = folding_cost(binding)
    return cost is not None and cost <= _MAX_COST
