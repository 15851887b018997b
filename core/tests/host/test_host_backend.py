"""The numpy host as a backend: claimed ops, and correct results of the modules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from byoc_core import script as R
from byoc_core.authoring.graph import GraphCodegen
from byoc_core.backend.info import CompileContext, Rejection, Support
from byoc_core.backend.registry import backends
from byoc_core.dims import symbol
from byoc_core.host.backend import byoc_codegen, byoc_supports
from byoc_core.ir import Binding, Function, FunctionBuilder, IRModule, ObjectType, TensorType, Var, tensor
from byoc_core.ir.builder import Operand
from byoc_core.ir.structural import COMPOSITE
from byoc_core.ops import default_ops
from byoc_core.opset.families import KERNELS
from byoc_core.runtime.graph import GraphEngine, GraphModule
from byoc_core.runtime.graph.document import GraphFunction, GraphNode, GraphTensor
from byoc_core.runtime.hooks import LoadContext
from byoc_core.runtime.module import NDArray
from byoc_core.runtime.registry import runtimes
from hypothesis import given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.asks_for_plugins

OPS = default_ops()


def context_of(module: IRModule) -> CompileContext:
    return CompileContext("host", None, module.constants, module)


def compile_all(module: IRModule) -> GraphModule:
    result = byoc_codegen(list(module.functions.values()), context_of(module))
    assert not result.rejections
    assert isinstance(result.module, GraphModule)
    return result.module


def emit(builder: FunctionBuilder, op: str, *operands: Operand) -> Var:
    """Return the only result of an op."""
    result = builder.emit(op, *operands)
    assert isinstance(result, Var)
    return result


def call(module: GraphModule, name: str, *inputs: NDArray) -> list[NDArray]:
    """Call a function with outputs allocated from the inputs' sizes."""
    from byoc_core.runtime.arguments import bind_symbols, concrete_shape

    function = module.get_function(name)
    assert function.signature is not None
    sizes = bind_symbols(function.signature.inputs, inputs)
    outputs = [np.empty(concrete_shape(s, sizes, s.name), s.dtype) for s in function.signature.outputs]
    function(*inputs, *outputs)
    return outputs


SOURCE = """
@R.ir_module
class M:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32"), unused: R.Tensor((2,), "int64"), w: R.Tensor((3, 4), "float32")):
        a = R.nn.dense(x, w)
        b = R.multiply(a, a)
        c, d = R.split(b, sections=(1, 2), axis=1)
        e = R.reshape(d, shape=("2*n",))
        g = R.negative(e)
        f = R.subtract(e, g)
        return f, c, f, x

    @R.function
    def other(x: R.Tensor(("m",), "float64")):
        y = R.exp(x)
        return y
"""


def test_functions_with_symbols_several_results_and_reuse() -> None:
    module = compile_all(R.parse(SOURCE))
    assert module.function_names == ("main", "other")
    rng = np.random.default_rng(0)
    for n in (1, 5):
        x, w = rng.random((n, 4), "float32"), rng.random((3, 4), "float32")
        f, c, again, same = call(module, "main", x, np.zeros(2, "int64"), w)
        b = (x @ w.T) ** 2
        np.testing.assert_allclose(f, 2 * b[:, 1:].reshape(-1), rtol=1e-6)
        np.testing.assert_allclose(c, b[:, :1], rtol=1e-6)
        assert np.array_equal(again, f)
        assert np.array_equal(same, x)
        y = rng.random(n)
        assert np.array_equal(call(module, "other", y)[0], np.exp(y))


def test_symbol_names_the_function() -> None:
    parsed = R.parse(SOURCE)
    function = parsed["other"].with_attrs(Codegen="host", global_symbol="host_0")
    module = compile_all(parsed.with_functions({"other": function}))
    assert module.function_names == ("host_0",)


def test_module_survives_saving() -> None:
    module = compile_all(R.parse(SOURCE))
    handle = runtimes().get("graph")
    loaded = handle.load(handle.save(module), LoadContext())
    assert loaded.get_source() == module.get_source()
    assert handle.save(loaded) == handle.save(module)


def test_constants_are_cited_once() -> None:
    builder = FunctionBuilder("main", ops=OPS)
    x = builder.param("x", tensor((4,)))
    one, again = builder.const(np.ones(4, "float32")), builder.const(np.ones(4, "float32"))
    two = builder.const(np.full(4, 2, "float32"))
    y = emit(builder, "subtract", emit(builder, "add", x, one), again)
    function = builder.finish(emit(builder, "subtract", two, y), two)
    module = IRModule({"main": function}, builder.constants)
    compiled = compile_all(module)
    assert len(compiled.constants) == 2
    result, constant = call(compiled, "main", np.array([1, 2, 3, 4], "float32"))
    assert result.tolist() == [1, 0, -1, -2]
    assert constant.tolist() == [2, 2, 2, 2]


def composite_module() -> IRModule:
    builder = FunctionBuilder("body", ops=OPS)
    a, b = builder.param("a", tensor(("n", 4))), builder.param("b", tensor((4,)))
    three = builder.const(np.full(4, 3, "float32"))
    body = builder.finish(emit(builder, "nn.relu", emit(builder, "multiply", emit(builder, "add", a, b), three)))
    x, bias = Var("x", tensor(("n", 4))), Var("bias", tensor((4,)))
    y = Var("y", tensor(("n", 4)))
    fused = Binding((y,), COMPOSITE, (x, bias), COMPOSITE.normalise_attrs({"name": "toy.add_relu"}), (body,))
    negative = OPS["negative"]
    z = Var("z", tensor(("n", 4)))
    last = Binding((z,), negative, (y,), negative.normalise_attrs({}))
    return IRModule({"main": Function("main", (x, bias), (fused, last), (z,))}, builder.constants)


def test_composite_is_inlined_by_the_host() -> None:
    module = composite_module()
    assert byoc_supports(module["main"].bindings[0]) == Support()
    compiled = compile_all(module)
    assert [node.op for node in compiled.document.functions["main"].nodes] == ["add", "multiply", "nn.relu", "negative"]
    x = np.array([[-5, 0, 1, 2]], "float32")
    assert call(compiled, "main", x, np.ones(4, "float32"))[0].tolist() == [[0, -3, -6, -9]]


def test_composite_is_kept_on_request() -> None:
    module = composite_module()
    codegen = GraphCodegen(composites="keep")
    translation = codegen.translate(list(module.functions.values()), context_of(module))
    graph = translation.document.functions["main"]
    assert [node.op for node in graph.nodes] == ["toy.add_relu", "negative"]
    assert graph.constants == ()
    assert graph.nodes[0].body is not None
    assert [node.op for node in graph.nodes[0].body.nodes] == ["add", "multiply", "nn.relu"]
    result = codegen.compile(list(module.functions.values()), context_of(module))
    assert isinstance(result.module, GraphModule)
    x = np.array([[-5, 0, 1, 2]], "float32")
    assert call(result.module, "main", x, np.ones(4, "float32"))[0].tolist() == [[0, -3, -6, -9]]


def test_engine_that_refuses_a_node_rejects_the_function() -> None:
    class OnlyExp(GraphEngine):
        @property
        def type_key(self) -> str:
            return "exponent"

        def check_node(self, node: GraphNode, operands: Sequence[GraphTensor] = ()) -> str | None:
            return None if node.op == "exp" else "the library has exp only"

        def build(
            self, function: GraphFunction, constants: Mapping[str, NDArray], prepared: object = None
        ) -> Callable[..., object]:
            return lambda x, y: np.exp(x, out=y)

    module = R.parse(SOURCE)
    result = GraphCodegen().compile(list(module.functions.values()), context_of(module), OnlyExp())
    assert result.rejections == {"main": Rejection("engine", "nn.dense: the library has exp only")}
    assert result.module is not None
    assert result.module.type_key == "exponent"
    assert result.module.function_names == ("other",)


def rejected(function: Function) -> Rejection:
    module = IRModule({function.name: function})
    result = byoc_codegen([function], context_of(module))
    assert result.module is None
    return result.rejections[function.name]


def binding(op: str, operands: tuple[Var, ...], result: Var, **attrs: object) -> Binding:
    return Binding((result,), OPS[op], operands, OPS[op].normalise_attrs(attrs))


def test_what_cannot_be_serialised_is_rejected_with_a_reason() -> None:
    x, y = Var("x", tensor((4,))), Var("y", tensor((4,)))
    object_ = Var("o", ObjectType("sequence"))
    unranked = Var("u", TensorType(None, "float32"))
    k = Var("k", tensor(("k", 2)))
    call_ = binding("call_packed", (x,), y, symbol="f")
    assert rejected(Function("f", (x,), (call_,), (y,))) == Rejection(
        "structural", "`call_packed` is control flow or a call, not supported by graph documents"
    )
    assert rejected(Function("f", (object_,), (), (object_,))) == Rejection(
        "object", 'o is R.Object("sequence"), not a tensor'
    )
    assert rejected(Function("f", (unranked,), (), (unranked,))) == Rejection("rank", "the rank of u is unknown")
    assert byoc_supports(binding("negative", (unranked,), y)) == Rejection(
        "rank", "the rank of u of `negative` is unknown"
    )
    assert byoc_supports(call_) == Rejection(
        "structural", "`call_packed` is control flow or a call, not supported by graph documents"
    )
    scalar = Var("s", tensor(()))
    hidden = (binding("reshape", (x,), k, shape=(symbol("k"), 2)), binding("sum", (k,), scalar))
    assert rejected(Function("f", (x,), hidden, (scalar,))) == Rejection(
        "symbol", "attribute `shape` of `reshape` needs the size k, not determined by the inputs"
    )


def test_every_op_with_a_kernel_is_taken() -> None:
    assert {op.name for op in OPS.values() if op.kernel is not None} <= set(KERNELS)
    for op in OPS.values():
        results = (Var("y", tensor((4,))),)
        operands = tuple(Var(spec.name, tensor((4,))) for spec in op.operands)
        answer = byoc_supports(Binding(results, op, operands, {}, ()))
        if op.name != "composite":
            assert isinstance(answer, Support) == (op.kernel is not None)


def test_registry_knows_the_host() -> None:
    handle = backends().get("host")
    assert handle.info().dynamic_shapes
    assert handle.compile_status().ok
    assert handle.patterns() == ()
    module = R.parse(SOURCE)
    result = handle.codegen([module["other"].with_attrs(Codegen="host", global_symbol="s")], handle.context(module))
    assert result.module is not None


BINARY = ("add", "subtract", "multiply", "maximum", "minimum")
UNARY = ("negative", "nn.relu", "tanh", "sigmoid")


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_random_graphs_compute_what_the_kernels_do(data: st.DataObject) -> None:
    builder = FunctionBuilder("f", ops=OPS)
    size = data.draw(st.integers(0, 4))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    inputs = [rng.random((size, 3), "float32") for _ in range(data.draw(st.integers(1, 3)))]
    constant = rng.random(3, "float32")
    pairs: list[tuple[Any, NDArray]] = [
        (builder.param(f"x{index}", tensor(("n", 3))), array) for index, array in enumerate(inputs)
    ]
    constant_pair = (builder.const(constant), constant)
    for _ in range(data.draw(st.integers(0, 12))):
        left, left_value = data.draw(st.sampled_from(pairs))
        if data.draw(st.booleans()):
            op = data.draw(st.sampled_from(UNARY))
            value = KERNELS[op](left_value)
            pairs.append((emit(builder, op, left), np.asarray(value)))
        else:
            op = data.draw(st.sampled_from(BINARY))
            right, right_value = data.draw(st.sampled_from([*pairs, constant_pair]))
            value = KERNELS[op](left_value, right_value)
            pairs.append((emit(builder, op, left, right), np.asarray(value)))
    results = data.draw(st.lists(st.sampled_from(pairs), min_size=1, max_size=3))
    function = builder.finish(*(var for var, _ in results))
    outputs = call(compile_all(IRModule({"f": function}, builder.constants)), "f", *inputs)
    for output, (_, expected) in zip(outputs, results, strict=True):
        assert np.array_equal(output, expected)


def test_wrong_call_names_the_argument() -> None:
    module = compile_all(R.parse(SOURCE))
    with pytest.raises(Exception, match="function `other`, input 0 `x`: wrong dtype; got float32, expected float64"):
        module.get_function("other")(np.zeros(2, "float32"), np.zeros(2))
