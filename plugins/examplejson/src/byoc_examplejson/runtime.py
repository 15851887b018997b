"""The run half: a module that runs graphs, and its serialisation."""

from __future__ import annotations

import numpy as np
from byoc_core.runtime.hooks import LoadContext, RuntimeInfo, hookimpl
from byoc_core.runtime.module import NDArray, PackedFunction, RuntimeModule, Signature, TensorSpec

from byoc_examplejson.graph import Graph, parse, to_text

_UFUNCS = {"add": np.add, "sub": np.subtract, "mul": np.multiply}


class ExampleJsonModule(RuntimeModule):
    """A module of graphs, each a function under its name."""

    type_key = "examplejson"

    def __init__(self, graphs: dict[str, Graph]) -> None:
        self._graphs = graphs

    @property
    def function_names(self) -> tuple[str, ...]:
        """The names of all graphs, in the order of the text."""
        return tuple(self._graphs)

    def find_function(self, name: str) -> PackedFunction:
        """Return a graph as a function of inputs and outputs."""
        graph = self._graphs[name]

        def run(*arrays: NDArray) -> None:
            # All mutable state is local, so any number of threads may run a graph at once.
            values = dict(zip(graph.inputs, arrays, strict=False))
            with np.errstate(all="ignore"):
                for node_id, node in graph.nodes.items():
                    if node.op != "input":
                        values[node_id] = _UFUNCS[node.op](*(values[i] for i in node.inputs))
            for output, node_id in zip(arrays[len(graph.inputs) :], graph.outputs, strict=True):
                output[...] = values[node_id]

        def spec(role: str, node_id: int) -> TensorSpec:
            return TensorSpec(f"{role}{node_id}", "float32", graph.nodes[node_id].shape)

        inputs = tuple(spec("input", node_id) for node_id in graph.inputs)
        outputs = tuple(spec("output", node_id) for node_id in graph.outputs)
        return PackedFunction(name, run, Signature(inputs, outputs))

    def get_source(self, format: str = "") -> str:  # noqa: A002 - the interface's keyword
        """Return the text of all graphs; :func:`byoc_save_module` saves the same text."""
        return to_text(self._graphs)


@hookimpl
def byoc_runtime_info() -> RuntimeInfo:
    """Describe the runtime: payloads and files hold the same text."""
    return RuntimeInfo(type_key="examplejson", file_formats=("examplejson",))


@hookimpl
def byoc_save_module(module: ExampleJsonModule) -> bytes:
    """Serialise a module as text."""
    return module.get_source().encode()


@hookimpl
def byoc_check_payload(payload: bytes, context: LoadContext) -> None:
    """Check a saved text."""
    parse(payload, context.source)


@hookimpl
def byoc_load_module(payload: bytes, context: LoadContext) -> ExampleJsonModule:
    """Load a module from a saved text."""
    return ExampleJsonModule(parse(payload, context.source))


@hookimpl
def byoc_load_file(data: bytes, context: LoadContext) -> ExampleJsonModule:
    """Load a module from a text written by a person."""
    return ExampleJsonModule(parse(data, context.source))
