"""Graph codegen and engines: refusals, and single preparation."""

from __future__ import annotations

from collections.abc import Mapping

from byoc_core import script as R
from byoc_core.authoring.graph import GraphCodegen
from byoc_core.backend.hooks import CompileContext, Rejection
from byoc_core.runtime.graph import FunctionRefused, GraphModule, load_graph, save_graph
from byoc_core.runtime.graph.document import GraphFunction
from byoc_core.runtime.hooks import LoadContext
from byoc_core.runtime.module import NDArray

from core.tests.runtime.graph.engines import DoublingEngine, Program

MODULE = R.parse("""
@R.ir_module
class Module:
    @R.function
    def double(x: R.Tensor(("n",), "float32")):
        y = R.add(x, x)
        return y

    @R.function
    def quadruple(x: R.Tensor(("n",), "float32")):
        y = R.add(x, x)
        z = R.add(y, y)
        return z

    @R.function
    def root(x: R.Tensor(("n",), "float32")):
        y = R.sqrt(x)
        return y
""")


class Counting(DoublingEngine):
    """An engine counting preparations."""

    def __init__(self, factor: int = 1) -> None:
        super().__init__(factor)
        self.prepared: list[str] = []

    def prepare(
        self, function: GraphFunction, constants: Mapping[str, NDArray], saved: bytes | None = None
    ) -> Program | FunctionRefused:
        self.prepared.append(function.name)
        return super().prepare(function, constants, saved)


def test_what_an_engine_refuses_is_a_rejection_and_nothing_is_prepared_twice() -> None:
    engine = Counting()
    result = GraphCodegen().compile([*MODULE.functions.values()], CompileContext("doubling"), engine)
    assert result.rejections == {
        "quadruple": Rejection("engine", "has more than one node"),
        "root": Rejection("engine", "sqrt: is no addition"),
    }
    assert result.module is not None
    assert result.module.function_names == ("double",)
    assert engine.prepared == ["double", "quadruple"]


def test_the_settings_of_the_engine_of_a_compilation_reach_the_process_that_loads() -> None:
    result = GraphCodegen().compile([MODULE.functions["double"]], CompileContext("doubling"), DoublingEngine(5))
    assert isinstance(result.module, GraphModule)
    loaded = load_graph(save_graph(result.module), LoadContext(), DoublingEngine)
    assert isinstance(loaded.engine, DoublingEngine)
    assert loaded.engine.factor == 5
