"""The importer: walks a graph in order and hands each node to the importer of its op."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx

from byoc_core.dims import Dim
from byoc_core.errors import FrontendError, IRTypeError, UnsupportedOpsError
from byoc_core.frontend.onnx.graph_order import order_nodes
from byoc_core.frontend.onnx.loading import STANDARD_DOMAINS, LoadedModel
from byoc_core.frontend.onnx.node_context import Imported, NodeContext
from byoc_core.frontend.onnx.ops import NODE_IMPORTERS, SHAPE_IMPORTERS
from byoc_core.frontend.onnx.shape_value import ShapeValue
from byoc_core.frontend.onnx.symbols import NameTable, SymbolTable
from byoc_core.frontend.onnx.weights import dtype_of, to_array
from byoc_core.ir.builder import FunctionBuilder
from byoc_core.ir.constants import Constant
from byoc_core.ir.module import IRModule, Value
from byoc_core.ir.opdef import OpRegistry
from byoc_core.ir.types import TensorType

__all__ = ["GraphImporter", "import_model"]


def import_model(model: LoadedModel, ops: OpRegistry) -> IRModule:
    """Gives a loaded model as an IR module with the function ``main``.

    Raises:
        UnsupportedOpsError: the model has ops that are not imported.
        FrontendError: the graph is malformed, or a node is of a variant that is not imported.
    """
    _check_ops(model)
    return GraphImporter(model, ops).run()


def _check_ops(model: LoadedModel) -> None:
    unknown = Counter(
        node.op_type if node.domain in STANDARD_DOMAINS else f"{node.domain}.{node.op_type}"
        for node in model.graph.node
        if node.domain not in STANDARD_DOMAINS or node.op_type not in NODE_IMPORTERS
    )
    if unknown:
        listed = ", ".join(f"{name} ({count}x)" for name, count in sorted(unknown.items()))
        raise UnsupportedOpsError(
            model.source,
            f"{unknown.total()} of its {len(model.graph.node)} nodes are of ops that are not imported",
            got=listed,
        )


class GraphImporter:
    """The state of one import: what each ONNX name stands for, and the function built so far.

    Attributes:
        builder: the function under construction.
        opset: the version of the operator set.
        source: the model, for messages.
        directory: where external data may lie.
        symbols: the names of dynamic sizes.
    """

    def __init__(self, model: LoadedModel, ops: OpRegistry) -> None:
        self.builder = FunctionBuilder("main", ops=ops)
        self.opset = model.opset
        self.source = model.source
        self.directory: Path | None = model.directory
        self._graph = model.graph
        self._names = NameTable()
        self.symbols = SymbolTable()
        self._imported: dict[str, Imported] = {}
        self._initializers: dict[str, onnx.TensorProto] = {}
        self._not_imported: dict[str, NodeContext] = {}

    def run(self) -> IRModule:
        """Imports the graph."""
        graph = self._graph
        if graph.sparse_initializer:
            raise FrontendError(self.source, "has sparse initializers, which are not imported")
        if not graph.output:
            raise FrontendError(self.source, "its graph has no outputs")
        nodes = order_nodes(graph, self.source)
        self._initializers = {tensor.name: tensor for tensor in graph.initializer}
        inputs = [value for value in graph.input if value.name not in self._initializers]
        for value in inputs:
            self._imported[value.name] = self.builder.param(
                self._names.fresh(value.name, "input"), self._input_type(value)
            )
        for node in nodes:
            self._import_node(node)
        names = [output.name for output in graph.output]
        results = [self.materialise(name, f"{self.source}, output `{name}`") for name in names]
        main = self.builder.finish(
            *results, input_names=tuple(value.name for value in inputs), output_names=tuple(names)
        )
        return IRModule({"main": main}, self.builder.constants)

    def lookup(self, name: str) -> Imported:
        """Gives what a name stands for; initializers are decoded when they are first asked for.

        Raises:
            FrontendError: an initializer is damaged, or the name is a secondary output that is not imported.
        """
        found = self._imported.get(name)
        if found is None:
            if name in self._not_imported:
                raise self._not_imported[name].error(f"its output `{name}` is not imported, but the model uses it")
            where = f"{self.source}, initializer `{name}`"
            found = to_array(self._initializers[name], where, self.directory)
            self._imported[name] = found
        return found

    def materialise(self, name: str, where: str) -> Value:
        """Gives what a name stands for as IR value; arrays and known shapes become constants.

        Raises:
            FrontendError: it is a shape with symbolic sizes, which the IR has no op for.
        """
        found = self.lookup(name)
        if isinstance(found, ShapeValue):
            array = found.to_array()
            if array is None:
                raise FrontendError(
                    where,
                    f"uses `{name}` as data, whose elements are dynamic sizes",
                    got=found,
                    expected="a tensor that is computed from data, or sizes that are known",
                )
            return self.builder.const(array)
        if isinstance(found, np.ndarray):
            found = self.builder.const(found)
            self._imported[name] = found
        return found

    def constant_array(self, constant: Constant) -> npt.NDArray[np.generic]:
        """Gives the array of a constant."""
        return self.builder.constants[constant.digest]

    def _import_node(self, proto: onnx.NodeProto) -> None:
        node = NodeContext(self, proto)
        _check_arity(node, proto)
        try:
            results = self._import_as_shape(node) or NODE_IMPORTERS[proto.op_type](node)
        except IRTypeError as error:
            problem = f"{error.where}: {error.problem}"
            raise FrontendError(
                node.label, problem, got=error.got, expected=error.expected, hint=error.hint, detail=error.detail
            ) from error
        node.finish()
        self._not_imported.update((name, node) for name in list(proto.output)[len(results) :])
        for name, result in zip(proto.output, results, strict=False):
            if name:
                self._imported[name] = result

    def _import_as_shape(self, node: NodeContext) -> Sequence[Imported] | None:
        importer = SHAPE_IMPORTERS.get(node.op_type)
        if importer is None:
            return None
        inputs: list[ShapeValue] = []
        for index in range(node.num_inputs):
            known = node.shape_value(index) if node.has_input(index) else None
            if known is None:
                return None
            inputs.append(known)
        result = importer(node, inputs)
        return None if result is None else (result,)

    def _input_type(self, value: onnx.ValueInfoProto) -> TensorType:
        where = f"{self.source}, input `{value.name}`"
        if not value.type.HasField("tensor_type"):
            kind = value.type.WhichOneof("value") or "nothing"
            raise FrontendError(where, "is not a tensor", got=kind.removesuffix("_type"))
        tensor = value.type.tensor_type
        dtype = dtype_of(tensor.elem_type, where)
        if not tensor.HasField("shape"):
            return TensorType(None, dtype)
        return TensorType(
            tuple(self._dim(dim, f"{value.name}_dim{axis}") for axis, dim in enumerate(tensor.shape.dim)), dtype
        )

    def _dim(self, dim: onnx.TensorShapeProto.Dimension, fallback: str) -> Dim:
        if dim.HasField("dim_value") and dim.dim_value >= 0:
            return int(dim.dim_value)
        if dim.dim_param:
            return self.symbols.named(dim.dim_param)
        return self.symbols.fresh(fallback)


def _check_arity(node: NodeContext, proto: onnx.NodeProto) -> None:
    try:
        schema = onnx.defs.get_schema(proto.op_type, node.opset, "")
    except onnx.defs.SchemaError as error:
        raise node.error(f"the op does not exist in operator set {node.opset}") from error
    if not schema.min_input <= node.num_inputs <= schema.max_input:
        bounds = {schema.min_input, schema.max_input}
        raise node.error(
            "has the wrong number of inputs", got=node.num_inputs, expected=" to ".join(map(str, sorted(bounds)))
        )
