"""The importer: walks graphs in order and passes each node to the importer of its op."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt
import onnx

from byoc_core.errors import FrontendError, IRTypeError
from byoc_core.frontend.core_operators import has_core_importer
from byoc_core.frontend.onnx.declared_types import read_input, size_names
from byoc_core.frontend.onnx.foreign_operators import find_importers
from byoc_core.frontend.onnx.function_bodies import instantiate, standard_body
from byoc_core.frontend.onnx.graph_order import order_nodes, subgraphs
from byoc_core.frontend.onnx.graph_slice import GraphNodes
from byoc_core.frontend.onnx.import_bounds import ImportBounds
from byoc_core.frontend.onnx.loading import LoadedModel, find_opset, function_key, onnx_name
from byoc_core.frontend.onnx.node_context import Imported, NodeContext, NodeImporter
from byoc_core.frontend.onnx.ops import SHAPE_IMPORTERS
from byoc_core.frontend.onnx.ops.delegation import (
    STRING_DOMAINS,
    check_all_strings,
    delegate,
    is_evaluated,
    makes_strings,
)
from byoc_core.frontend.onnx.ops.optionals import present_value
from byoc_core.frontend.onnx.ops.string_slices import import_unique_slices
from byoc_core.frontend.onnx.ops.strings import (
    STRUCTURES,
    Movement,
    adds_zeros,
    keeps_order,
    moves_elements,
    reads_shape,
)
from byoc_core.frontend.onnx.ops.structured import form_name, part_names, to_parts, with_values
from byoc_core.frontend.onnx.ops.texts import STRING_READERS
from byoc_core.frontend.onnx.regions import Region
from byoc_core.frontend.onnx.sequence_value import OptionalValue
from byoc_core.frontend.onnx.shape_value import ShapeValue
from byoc_core.frontend.onnx.string_tensor import StringTensor
from byoc_core.frontend.onnx.swappable_weights import SwappableWeights, WeightChoice
from byoc_core.frontend.onnx.symbols import SymbolTable
from byoc_core.frontend.onnx.weights import DTYPES, to_array, to_strings
from byoc_core.frontend.onnx_names import OnnxName
from byoc_core.ir.builder import FunctionBuilder
from byoc_core.ir.constants import Constant, ConstantStore
from byoc_core.ir.module import IRModule, Value, Var
from byoc_core.opset.registry import OpRegistry
from byoc_core.opset.strings import pack_strings

__all__ = ["GraphImporter", "import_model"]


def import_model(
    model: LoadedModel,
    ops: OpRegistry | None,
    max_nodes: int | None = None,
    constants: ConstantStore | None = None,
    *,
    swappable_weights: WeightChoice = False,
) -> IRModule:
    """Convert a loaded model to an IR module with the function ``main``.

    Args:
        model: the model.
        ops: the registry for op names; byoc's own ops by default.
        max_nodes: the bound of the import.
        constants: the store for the constants of the module; a new store by default.
        swappable_weights: the choice of swappable weights.

    Raises:
        OptionsError: a name of ``swappable_weights`` fits no initializer.
        UnsupportedOpsError: the model has unsupported ops.
        FrontendError: the graph is malformed, a node is of an unsupported variant, or the model expands to more than
            ``max_nodes`` nodes.
        PluginError: several plugins import an operator of the model.
        IRError: ops of the same name come from several places.
    """
    bounds = ImportBounds(model.source, model.num_nodes, max_nodes)
    found = find_importers(model, bounds, FunctionBuilder(ops=ops).ops)
    region = Region("main", found.ops, ConstantStore() if constants is None else constants)
    symbols = SymbolTable(size_names(model.graph))
    declared = {
        tensor.name: (DTYPES.get(tensor.data_type, "string"), tuple(tensor.dims)) for tensor in model.graph.initializer
    }
    weights = SwappableWeights(swappable_weights, declared)
    return GraphImporter(model, region, symbols, bounds, found.importers, weights).import_main()


class GraphImporter:
    """The state of a graph during import: the imported form of each ONNX name, and the function built so far.

    A graph nested in a node has a separate importer, with access to the names around. If its nodes become a separate
    region, an outer value enters as parameter; values known during import enter unchanged.

    Args:
        model: the model.
        region: the function receiving the graph's nodes.
        symbols: the symbols of the model.
        bounds: the remaining budget of the import.
        importers: importers of nodes, by domain and operator.
        weights: the swappable weights of the model.
        opset: the version of the operator set; the model's by default.
        opset_imports: the versions of all operator sets; the model's by default.
        where: the graph's place in the model, for messages.
        path: the prefix of locations of the graph's nodes.
        repeats: the number of imports of the nodes, for unrolled code.
        outer: the surrounding graph, if its names are visible.

    Attributes:
        model: the model.
        region: the function receiving the graph's nodes.
        builder: the builder of this function.
        opset: the version of the operator set.
        opset_imports: the versions of all operator sets.
        where: the graph's place in the model, for messages.
        path: the prefix of locations of the graph's nodes.
        repeats: the number of imports of the nodes.
        symbols: the symbols of the model.
        bounds: the remaining budget of the import.
        importers: importers of nodes, by domain and operator.
        weights: the swappable weights of the model.
    """

    def __init__(
        self,
        model: LoadedModel,
        region: Region,
        symbols: SymbolTable,
        bounds: ImportBounds,
        importers: Mapping[OnnxName, NodeImporter],
        weights: SwappableWeights,
        *,
        opset: int | None = None,
        opset_imports: Sequence[onnx.OperatorSetIdProto] | None = None,
        where: str | None = None,
        path: str = "",
        repeats: int = 1,
        outer: GraphImporter | None = None,
    ) -> None:
        self.model = model
        self.region = region
        self.builder: FunctionBuilder = region.builder
        self.opset = model.opset if opset is None else opset
        self.opset_imports = model.opset_imports if opset_imports is None else opset_imports
        self.where = model.source if where is None else where
        self.path = path
        self.repeats = repeats
        self.symbols = symbols
        self.bounds = bounds
        self.importers = importers
        self.weights = weights
        self._outer = outer
        self._imported: dict[str, Imported] = {}
        self._initializers: dict[str, onnx.TensorProto] = {}
        self._not_imported: dict[str, NodeContext] = {}
        self._nodes: Sequence[onnx.NodeProto] = ()
        self._inputs: Sequence[str] = ()
        self._seeds: dict[str, Var] = {}

    def import_main(self) -> IRModule:
        """Import the model's graph: its inputs become parameters."""
        graph = self.model.graph
        if not graph.output:
            raise FrontendError(self.where, "the graph has no outputs")
        weights = {tensor.name for tensor in graph.initializer}
        inputs = [value for value in graph.input if value.name not in weights]
        nodes = self._open(graph)
        input_names: list[str] = []
        input_forms: list[tuple[str, str]] = []
        for value in inputs:
            form = read_input(value, self.where, self.symbols, self.region.param)
            self._imported[value.name] = form
            input_names += part_names(form, value.name)
            input_forms.append((value.name, form_name(form)))
        for node in nodes:
            self._import_node(node)
        results: list[Value] = []
        output_names: list[str] = []
        output_forms: list[tuple[str, str]] = []
        for output in graph.output:
            form_of_output, parts = self._output(output)
            results += parts.values()
            output_names += parts
            output_forms.append((output.name, form_of_output))
        forms = {
            key: tuple(item for item in items if item[1] != "tensor")
            for key, items in (("input_forms", input_forms), ("output_forms", output_forms))
        }
        main = self.builder.finish(
            *results,
            input_names=(*input_names, *self.weights.names),
            output_names=tuple(output_names),
            **{key: items for key, items in forms.items() if items},
        )
        return self.weights.declare(IRModule({"main": main}, self.builder.constants, ops=self.builder.ops))

    def _output(self, output: onnx.ValueInfoProto) -> tuple[str, Mapping[str, Value]]:
        """Return the name of the form of an output of the model, and its tensors by name."""
        form = self.lookup(output.name)
        if isinstance(form, np.ndarray | ShapeValue | Var | Constant):
            return "tensor", {output.name: self.materialise(output.name, f"{self.where}, output `{output.name}`")}
        node = NodeContext(self, onnx.helper.make_node("Identity", [output.name], [output.name]))
        if isinstance(form, OptionalValue) and not output.type.HasField("optional_type"):
            form = present_value(node, form)
        elif not isinstance(form, OptionalValue) and output.type.HasField("optional_type"):
            form = OptionalValue(True, form)
        names = part_names(form, output.name)
        return form_name(form), dict(zip(names, to_parts(node, form, f"output `{output.name}`"), strict=True))

    def import_nested(self, graph: onnx.GraphProto, inputs: Sequence[Imported]) -> list[Imported]:
        """Import a graph for given inputs and return the imported outputs.

        Raises:
            FrontendError: the graph is malformed, takes another number of inputs, or has an unsupported node.
        """
        if len(graph.input) != len(inputs):
            raise FrontendError(
                self.where, "has the wrong number of inputs", got=len(graph.input), expected=len(inputs)
            )
        nodes = self._open(graph)
        self._imported.update(zip((value.name for value in graph.input), inputs, strict=True))
        for node in nodes:
            self._import_node(node)
        return [self.lookup(output.name) for output in graph.output]

    def nest(
        self,
        where: str | None = None,
        path: str | None = None,
        *,
        repeats: int = 1,
        region: Region | None = None,
        opset: int | None = None,
    ) -> GraphImporter:
        """Return an importer for a graph inside this graph with access to its names.

        Args:
            where: the inner graph's place, for messages; the place of this graph by default.
            path: the prefix of locations of the inner nodes; the same as in this graph by default.
            repeats: the number of imports for each import of this graph.
            region: the region receiving the inner nodes; by default this graph's function.
            opset: the version of the standard operator set inside; the same as in this graph by default.
        """
        return GraphImporter(
            self.model,
            self.region if region is None else region,
            self.symbols,
            self.bounds,
            self.importers,
            self.weights,
            opset=self.opset if opset is None else opset,
            opset_imports=self.opset_imports,
            where=self.where if where is None else where,
            path=self.path if path is None else path,
            repeats=self.repeats * repeats,
            outer=self,
        )

    def lookup(self, name: str) -> Imported:
        """Return the imported form of a name; initializers are decoded on first use.

        Raises:
            FrontendError: an initializer is damaged, or the name is an unsupported secondary output.
        """
        imported = self._imported.get(name)
        if imported is None:
            if name in self._not_imported:
                raise self._not_imported[name].error(f"output `{name}` is not supported, but the model uses the output")
            if name not in self._initializers and self._outer is not None:
                return self.bring_in(self._outer.lookup(name))
            imported = self._read_weight(self._initializers[name], f"{self.where}, initializer `{name}`")
            if self._outer is None and isinstance(imported, np.ndarray):
                param = self.weights.enter(name, imported, self.region.param)
                imported = imported if param is None else param
            self._imported[name] = imported
        return imported

    def _read_weight(self, tensor: onnx.TensorProto, where: str) -> Imported:
        if tensor.data_type != onnx.TensorProto.STRING:
            return to_array(tensor, where, self.model.directory)
        data, lengths = map(self.builder.const, pack_strings(to_strings(tensor, where)))
        return StringTensor(data, lengths)

    def materialise(self, name: str, where: str) -> Value:
        """Return the imported form of a name as IR value; arrays become constants, sizes become data at run time.

        Raises:
            FrontendError: the name is a sequence or an optional value.
        """
        if self._outer is not None and not self._defines(name):
            value = self._outer.materialise(name, where)  # in the defining graph, to store the value once
            return self._captured(value) if isinstance(value, Var) else value
        imported = self.lookup(name)
        value = self.as_value(imported, f"`{name}`", where)
        if isinstance(imported, np.ndarray):
            self._imported[name] = value
        return value

    def as_value(self, imported: Imported, subject: str, where: str) -> Value:
        """Return an imported form as IR value.

        Args:
            imported: the imported form.
            subject: the name in the error message.
            where: the requester, for the message.

        Raises:
            FrontendError: ``imported`` is a sequence or an optional value.
        """
        if isinstance(imported, ShapeValue):
            return imported.emit(self.builder)
        if isinstance(imported, StringTensor):
            raise FrontendError(where, f"needs {subject} as a tensor of numbers", got=imported)
        if isinstance(imported, np.ndarray):
            return self.builder.const(imported)
        if isinstance(imported, Var | Constant):
            return imported
        raise FrontendError(where, f"needs {subject} as a tensor", got=imported)

    def bring_in(self, imported: Imported) -> Imported:
        """Convert an imported form of the surrounding graph for use in this graph."""
        return with_values(imported, lambda value: self._captured(value) if isinstance(value, Var) else value)

    def constant_array(self, constant: Constant) -> npt.NDArray[np.generic]:
        """Return the array of a constant."""
        return self.builder.constants[constant.digest]

    def weight_array(self, value: Var, reader: str) -> npt.NDArray[np.generic] | None:
        """Return the array of a swappable weight, which cannot be swapped from now on; else ``None``."""
        return self.weights.read(value, reader)

    def _open(self, graph: onnx.GraphProto) -> Sequence[onnx.NodeProto]:
        """Register a graph's weights and return its nodes in order."""
        if graph.sparse_initializer:
            raise FrontendError(self.where, "has sparse initializers, an unsupported feature")
        self._initializers = {tensor.name: tensor for tensor in graph.initializer}
        self._inputs = [value.name for value in graph.input]
        self._nodes = order_nodes(graph, self.where, lambda name: self._outer is not None and self._outer._knows(name))
        return self._nodes

    @cached_property
    def graph_nodes(self) -> GraphNodes:
        """The nodes of the graph."""
        return GraphNodes(self._nodes, dict.fromkeys((*self._inputs, *self._initializers)), self._is_constant)

    def _is_constant(self, name: str) -> bool | None:
        """Return whether a name from outside of the nodes is a constant; ``None`` for an unknown name."""
        if name in self._initializers:
            return True
        if name not in self._imported:
            return None if self._outer is None else self._outer._is_constant(name)
        form = self._imported[name]
        return isinstance(form, np.ndarray | Constant) or (isinstance(form, ShapeValue) and form.is_static)

    def draw_seed(self, node: NodeContext) -> Var:
        """Return a seed drawn in each run for the random numbers of a node.

        A node imported once more to differentiate the graph has the same seed, if imported before.
        """
        name = next(filter(None, node.output_names), "")
        seed = self._find_seed(name)
        if seed is None:
            seed = self._seeds[name] = node.emit("random.seed")
        return seed

    def _find_seed(self, name: str) -> Var | None:
        """Return the seed of the node with an output, if drawn before."""
        return self._seeds.get(name)

    def _defines(self, name: str) -> bool:
        return name in self._imported or name in self._initializers or name in self._not_imported

    def _knows(self, name: str) -> bool:
        return self._defines(name) or (self._outer is not None and self._outer._knows(name))

    def _captured(self, value: Var) -> Var:
        """Return the replacement in this graph's function for a value of the surrounding graph."""
        if self._outer is None or self._outer.region is self.region:
            return value
        captured = self.region.capture(value)
        self.weights.follow(value, captured)
        return captured

    def _import_node(self, proto: onnx.NodeProto) -> None:
        node = NodeContext(self, proto)
        self.bounds.spend(1, node.label)
        try:
            results = self._results_or_pin(node, proto)
        except IRTypeError as error:
            problem = f"{error.where}: {error.problem}"
            raise FrontendError(
                node.label, problem, got=error.got, expected=error.expected, hint=error.hint, detail=error.detail
            ) from error
        results = node.folded(results)
        node.finish()
        self._not_imported.update((name, node) for name in list(proto.output)[len(results) :])
        for name, result in zip(proto.output, results, strict=False):
            if name:
                self._imported[name] = result

    def _results_or_pin(self, node: NodeContext, proto: onnx.NodeProto) -> Sequence[Imported]:
        """Return the results of a node; a node that needs constants pins the swappable weights among its inputs."""
        try:
            return self._results(node, proto)
        except FrontendError:
            values = {name: value for name in proto.input if name and isinstance(value := self.lookup(name), Var)}
            arrays = {name: self.weights.read(value, node.label) for name, value in values.items()}
            pinned = {name: array for name, array in arrays.items() if array is not None}
            if not pinned:
                raise
            self._imported.update(pinned)
            return self._results(node, proto)

    def _results(self, node: NodeContext, proto: onnx.NodeProto) -> Sequence[Imported]:
        function = self.model.functions.get(function_key(proto))
        if function is None:
            name = onnx_name(proto)
            if not name[0]:
                _check_arity(node, proto)
            if name[0] in STRING_DOMAINS and (of_strings := self._import_strings(node, proto)) is not None:
                return of_strings
            importer = self.importers.get(name)
            if importer is not None:
                return (None if name[0] else self._import_as_shape(node)) or importer(node)
            function = standard_body(node, proto)
            if next(subgraphs(proto), None) is not None:  # the function holds graphs of the model
                return self._inline(node, proto, function, self.nest(node.label, f"{node.path}/"))
        return self._call(node, proto, function)

    def _import_strings(self, node: NodeContext, proto: onnx.NodeProto) -> Sequence[Imported] | None:
        """Import a node that reads tensors of strings, or makes strings of numbers; ``None`` for other nodes."""
        tensors = {name: form for name in proto.input if name and isinstance(form := self.lookup(name), StringTensor)}
        if not tensors:
            return delegate(node) if makes_strings(node) else None
        if proto.op_type in STRUCTURES or (not node.domain and proto.op_type in STRING_READERS):
            return None
        if node.op_type == "Unique" and node.has_attr("axis"):
            return import_unique_slices(node)
        if not moves_elements(node):
            is_left_to_plugin = node.domain and (
                onnx_name(proto) in self.importers or not is_evaluated(node.domain, node.op_type, node.domain_version)
            )
            return None if is_left_to_plugin else delegate(node)
        check_all_strings(node)
        zeros = [node.strings([""])] if adds_zeros(node) else []  # the number 0
        movement = Movement(node, [*zeros, *tensors.values()], keeps_order=keeps_order(node))
        inner = self.nest()
        inner._imported.update(zip(tensors, movement.values[len(zeros) :], strict=True))
        moving = NodeContext(inner, proto)
        results = moving.folded(inner._results(moving, proto))
        node.ignore_attrs(*(attribute.name for attribute in proto.attribute))
        moving.finish()
        return results if reads_shape(node) else [movement.result(result) for result in results]

    def _call(self, node: NodeContext, proto: onnx.NodeProto, function: onnx.FunctionProto) -> Sequence[Imported]:
        """Import a function's nodes in the place of a call."""
        inner = GraphImporter(
            self.model,
            self.region,
            self.symbols,
            self.bounds,
            self.importers,
            self.weights,
            opset=find_opset(function, node.label, nodes=function.node),
            opset_imports=function.opset_import,
            where=node.label,
            path=f"{node.path}/",
            repeats=self.repeats,
        )
        return self._inline(node, proto, function, inner)

    def _inline(
        self, node: NodeContext, proto: onnx.NodeProto, function: onnx.FunctionProto, inner: GraphImporter
    ) -> Sequence[Imported]:
        node.ignore_attrs(*function.attribute, *(attribute.name for attribute in function.attribute_proto))
        self.bounds.spend_copy(function.ByteSize(), node.label)
        graph = instantiate(function, proto, node.label)
        return inner.import_nested(graph, [self.lookup(name) for name in proto.input if name])

    def _import_as_shape(self, node: NodeContext) -> Sequence[Imported] | None:
        importer = SHAPE_IMPORTERS.get(node.op_type)
        if importer is None:
            return None
        inputs: list[ShapeValue] = []
        for index in range(node.num_inputs):
            shape_value = node.shape_value(index) if node.has_input(index) else None
            if shape_value is None:
                return None
            inputs.append(shape_value)
        return importer(node, inputs)


def _check_arity(node: NodeContext, proto: onnx.NodeProto) -> None:
    try:
        schema = onnx.defs.get_schema(proto.op_type, node.opset, "")
    except onnx.defs.SchemaError as error:
        if not has_core_importer(("", proto.op_type)):
            return  # an operator of a plugin, or registered by the process
        raise node.error(f"the op does not exist in operator set {node.opset}") from error
    if not schema.min_input <= node.num_inputs <= schema.max_input:
        bounds = {schema.min_input, schema.max_input}
        raise node.error(
            "has the wrong number of inputs", got=node.num_inputs, expected=" to ".join(map(str, sorted(bounds)))
        )
