"""FlexAttention of ONNX's preview domain, against ONNX's function body in ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from byoc_core.errors import FrontendError
from byoc_core.frontend.onnx import from_onnx
from byoc_core.ir.module import IRModule
from byoc_core.transform import EliminateCommonSubexpressions, FoldConstants, RecogniseComposites
from onnx import TensorProto, helper, parser

NDArray = npt.NDArray[Any]
Run = Callable[..., Sequence[NDArray]]
DOMAIN = "ai.onnx.preview"

BIAS = "m (T[b, h, l, s] t) => (T[b, h, l, s] u) { u = Add(t, bias) }"
HALVED = (
    "m (T[b, h, l, s] t) => (T[b, h, l, s] u) { n = Constant<value_float = 2.0>() d = CastLike(n, t) u = Div(t, d) }"
)
CAPPED = """m (T[b, h, l, s] t) => (T[b, h, l, s] u) {
    n = Constant<value_float = 3.0>() c = CastLike(n, t) v = Div(t, c) w = Tanh(v) u = Mul(w, c) }"""
CAUSAL = """m (T[b, h, l, s] t) => (T[b, h, l, s] u) <int64 k0 = {0}, int64 k1 = {1}> {
    r = Shape<start = 2, end = 3>(t) z = Shape<start = 3>(t)
    rows = Squeeze(r) columns = Squeeze(z)
    i = Range(k0, rows, k1) j = Range(k0, columns, k1) a = Unsqueeze(i, one_axis)
    seen = GreaterOrEqual(a, j) n = Constant<value = float {-inf}>() low = CastLike(n, t)
    u = Where(seen, t, low) }"""


def _graph(text: str, dtype: str) -> onnx.GraphProto:
    graph: onnx.GraphProto = parser.parse_graph(text.replace("T[", f"{dtype}["))
    return graph


def _model(
    arrays: Sequence[NDArray], *, dynamic: bool = False, names: Sequence[tuple[str, ...]] = (), **attrs: Any
) -> onnx.ModelProto:
    """Return a model of one node; its modifiers may read the input ``bias``.

    Args:
        arrays: the inputs.
        dynamic: whether batch and numbers of steps are dynamic.
        names: the names of all sizes of the first inputs.
        attrs: the attributes of the node.
    """
    sizes: list[Sequence[Any]] = [array.shape for array in arrays]
    if dynamic:
        for index, length in ((0, "l"), (1, "s"), (2, "s")):
            _, heads, _, size = arrays[index].shape
            sizes[index] = ("b", heads, length, size)
    sizes[: len(names)] = names
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), shape)
        for name, array, shape in zip(("q", "k", "v", "bias"), arrays, sizes, strict=False)
    ]
    node = helper.make_node("FlexAttention", ["q", "k", "v"], ["y"], name="the_node", domain=DOMAIN, **attrs)
    axis = helper.make_tensor("one_axis", TensorProto.INT64, [1], [1])
    graph = helper.make_graph([node], "g", inputs, [onnx.ValueInfoProto(name="y")], [axis])
    opsets = [helper.make_opsetid("", 24), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def _expanded(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model with the node replaced by ONNX's function body."""
    (node,) = model.graph.node
    schema: Any = onnx.defs.get_schema("FlexAttention", 1, DOMAIN)
    types = [value.type.SerializeToString() for value in model.graph.input[:3]]
    data = schema.get_context_dependent_function_with_opset_version(1, node.SerializeToString(), types)
    body = onnx.FunctionProto.FromString(data)
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    del copy.graph.node[:]
    renamed = dict(zip((*body.input, *body.output), ("q", "k", "v", "y"), strict=True))
    for inner in body.node:
        for names in (inner.input, inner.output):
            names[:] = [renamed.get(name, name) for name in names]
        copy.graph.node.append(inner)
    return copy


def _arrays(heads: tuple[int, int], dtype: str, seed: int = 0) -> list[NDArray]:
    rng = np.random.default_rng(seed)
    shapes = (2, heads[0], 3, 8), (2, heads[1], 5, 8), (2, heads[1], 5, 4), (heads[0], 1, 5)
    return [rng.uniform(-1, 1, shape).astype(dtype) for shape in shapes]


def _ops(module: IRModule) -> list[str]:
    return [binding.op.name for binding in module["main"].bindings]


def _feeds(arrays: Sequence[NDArray]) -> dict[str, NDArray]:
    return dict(zip(("q", "k", "v", "bias"), arrays, strict=False))


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("heads", [(4, 4), (4, 2), (3, 1)])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize(
    ("score", "prob", "attrs"),
    [
        (None, None, {}),
        (None, None, {"scale": 0.3}),
        (BIAS, None, {}),
        (BIAS, HALVED, {"scale": 0.7}),
        (CAPPED, BIAS, {}),
        (CAUSAL, None, {}),
        (None, HALVED, {}),
        (None, None, {"softmax_precision": TensorProto.DOUBLE}),
        (None, CAPPED, {"softmax_precision": TensorProto.FLOAT}),
        (CAUSAL, HALVED, {"softmax_precision": TensorProto.FLOAT16}),
    ],
)
def test_same_as_the_function_body(
    score: str | None,
    prob: str | None,
    attrs: dict[str, Any],
    dtype: str,
    heads: tuple[int, int],
    dynamic: bool,
    run: Run,
) -> None:
    precision = {1: "float32", 10: "float16", 11: "float64"}.get(attrs.get("softmax_precision", 0))
    precision = precision or ("float64" if dtype == "float64" else "float32")
    modifiers = {"score_mod": score, "prob_mod": prob}
    types = {"float16": "float16", "float32": "float", "float64": "double"}
    graphs = {name: _graph(text, types[precision]) for name, text in modifiers.items() if text}
    arrays = _arrays(heads, dtype)
    arrays[3] = arrays[3].astype(precision)
    model = _model(arrays, dynamic=dynamic, **attrs, **graphs)
    (wanted,) = run(_expanded(_model(arrays, **attrs, **graphs)), _feeds(arrays))
    (result,) = run(from_onnx(model), _feeds(arrays))
    assert (result.dtype, result.shape) == (wanted.dtype, wanted.shape)
    error = 2.0**-7 if "float16" in (dtype, precision) else 2.0**-19
    np.testing.assert_allclose(result.astype(np.float64), wanted.astype(np.float64), rtol=error, atol=error)


def test_bfloat16(run: Run) -> None:
    """ONNX Runtime has no products of bfloat16: float32 bounds the error."""
    import ml_dtypes

    arrays = _arrays((4, 2), "float32")
    narrow = [array.astype(ml_dtypes.bfloat16) for array in arrays[:3]]
    graph = _graph(CAPPED, "float")
    (wanted,) = run(
        _expanded(_model([array.astype(np.float32) for array in narrow], score_mod=graph)), _feeds(arrays[:3])
    )
    (result,) = run(from_onnx(_model(narrow, score_mod=graph)), _feeds(narrow))
    assert result.dtype == ml_dtypes.bfloat16
    np.testing.assert_allclose(result.astype(np.float32), wanted, rtol=2**-6, atol=2**-6)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_attention_without_modifiers_is_attention(dtype: str) -> None:
    for heads in ((4, 4), (4, 2)):
        for dynamic in (False, True):
            module = from_onnx(_model(_arrays(heads, dtype), dynamic=dynamic))
            assert _ops(module) == ["nn.attention"]


@pytest.mark.parametrize("text", [BIAS, CAUSAL])
@pytest.mark.parametrize("heads", [(4, 4), (4, 2)])
def test_masking_modifiers_are_recognised(text: str, heads: tuple[int, int], run: Run) -> None:
    """The repeated heads, the scale and the mask become operands and attributes of the op."""
    arrays = _arrays(heads, "float32")
    score = _graph(text, "float")
    model = _model(arrays, score_mod=score)
    module = from_onnx(model)
    assert "nn.attention" not in _ops(module)
    for step in (FoldConstants(), EliminateCommonSubexpressions(), RecogniseComposites()):
        module = step(module)
    assert "nn.attention" in _ops(module)
    assert "nn.softmax" not in _ops(module)
    (wanted,), (result,) = run(_expanded(model), _feeds(arrays)), run(module, _feeds(arrays))
    np.testing.assert_allclose(result, wanted, rtol=2**-19, atol=2**-21)


def test_negative_scales_are_signs(run: Run) -> None:
    """ONNX's function body takes the root of the scale; the definition of the op multiplies."""
    arrays = _arrays((4, 4), "float32")
    query, key, value, bias = (array.astype(np.float64) for array in arrays)
    powers = np.exp(query @ key.swapaxes(2, 3) * -0.5 + bias)
    wanted = powers / powers.sum(axis=-1, keepdims=True) @ value
    (result,) = run(from_onnx(_model(arrays, scale=-0.5, score_mod=_graph(BIAS, "float"))), _feeds(arrays))
    np.testing.assert_allclose(result, wanted, rtol=2**-18, atol=2**-20)


def _refuse(arrays: Sequence[NDArray], **attrs: Any) -> str:
    with pytest.raises(FrontendError) as caught:
        from_onnx(_model(arrays, **attrs))
    return str(caught.value).removeprefix("ONNX model, node `the_node` (FlexAttention): ")


def _of_shapes(*shapes: tuple[int, ...]) -> list[NDArray]:
    return [np.zeros(shape, np.float32) for shape in shapes]


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (
            ((2, 4, 8), (2, 4, 5, 8), (2, 4, 5, 8)),
            "input 0 has the wrong rank; got (2, 4, 8), expected (batch, heads, steps, size)",
        ),
        (((2, 4, 3, 8), (1, 4, 5, 8), (1, 4, 5, 8)), "keys have another batch size than queries; got 1, expected 2"),
        (((2, 4, 3, 8), (2, 4, 5, 6), (2, 4, 5, 8)), "keys have another head size than queries; got 6, expected 8"),
        (((2, 4, 3, 8), (2, 4, 5, 8), (1, 4, 5, 8)), "values have another batch size than keys; got 1, expected 2"),
        (
            ((2, 4, 3, 8), (2, 4, 5, 8), (2, 2, 5, 8)),
            "values have another number of heads than keys; got 2, expected 4",
        ),
        (
            ((2, 4, 3, 8), (2, 4, 5, 8), (2, 4, 6, 8)),
            "values have another number of steps than keys; got 6, expected 5",
        ),
    ],
)
def test_malformed_shapes(shapes: Sequence[tuple[int, ...]], message: str) -> None:
    assert _refuse(_of_shapes(*shapes)) == message


def test_malformed_attributes() -> None:
    arrays = _arrays((4, 4), "float32")
    assert _refuse(arrays, softmax_precision=TensorProto.INT32) == (
        "attribute `softmax_precision` is unknown; got int32, expected float16, bfloat16, float32, float64"
    )
    assert "too large for float16" in _refuse(_arrays((4, 4), "float16"), scale=1e12)
    two = _graph("m (T[b, h, l, s] t) => (T[b, h, l, s] u, T[b, h, l, s] v) { u = Neg(t) v = Neg(t) }", "float")
    assert _refuse(arrays, score_mod=two) == "attribute `score_mod` has the wrong number of outputs; got 2, expected 1"
    wide = _graph("m (T[b, h, l, s] t) => (double[b, h, l, s] u) { u = Cast<to = 11>(t) }", "float")
    assert _refuse(arrays, prob_mod=wide) == (
        'attribute `prob_mod` changes the type; got R.Tensor((2, 4, 3, 5), "float64"), '
        'expected R.Tensor((2, 4, 3, 5), "float32")'
    )
    summed = _graph("m (T[b, h, l, s] t) => (T[b, h, l, k] u) { u = ReduceMax(t) }", "float")
    assert "attribute `score_mod` changes the type" in _refuse(arrays, score_mod=summed)
    none = _graph("m () => (T[1] u) { u = Constant<value_floats = [1.0]>() }", "float")
    assert "has the wrong number of inputs; got 0, expected 1" in _refuse(arrays, score_mod=none)


def test_unknown_numbers_of_heads() -> None:
    arrays, bias = _arrays((4, 4), "float32"), _graph(BIAS, "float")
    with pytest.raises(FrontendError, match="need equal or known numbers of heads"):
        from_onnx(_model([*arrays[:1], *_arrays((4, 3), "float32")[1:]], score_mod=bias))
    unknown = [("b", "h", "l", "e"), ("b", "g", "s", "e"), ("b", "g", "s", "f")]
    with pytest.raises(FrontendError, match="need equal or known numbers of heads"):
        from_onnx(_model(arrays, names=unknown, score_mod=bias))
    assert _ops(from_onnx(_model(arrays, names=unknown))) == ["nn.attention"]


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_all_sizes_may_be_unknown(dtype: str, run: Run) -> None:
    arrays = _arrays((4, 4), dtype)
    arrays[3] = arrays[3].astype(np.float32)
    names = [("b", "h", "l", "e"), ("b", "h", "s", "e"), ("b", "h", "s", "f")]
    graphs = {"score_mod": _graph(BIAS, "float"), "prob_mod": _graph(HALVED, "float")}
    (wanted,) = run(_expanded(_model(arrays, **graphs)), _feeds(arrays))
    (result,) = run(from_onnx(_model(arrays, names=names, **graphs)), _feeds(arrays))
    error = 2.0**-7 if dtype == "float16" else 2.0**-19
    np.testing.assert_allclose(result.astype(np.float64), wanted.astype(np.float64), rtol=error, atol=error)


def test_inputs_are_three() -> None:
    model = _model(_arrays((4, 4), "float32"))
    model.graph.node[0].input.append("bias")
    with pytest.raises(FrontendError, match="has the wrong number of inputs; got 4, expected 3"):
        from_onnx(model)
