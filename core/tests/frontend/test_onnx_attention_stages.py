"""ONNX's attention of narrow floats: each stage equals float64, rounded to the dtype."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from byoc_core.dtypes import float_limits, to_numpy
from byoc_core.errors import FrontendError
from byoc_core.frontend.onnx import from_onnx
from byoc_core.ir import IRModule
from byoc_core.transform import evaluate_function
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

NDArray = npt.NDArray[Any]
CODES = {"float16": TensorProto.FLOAT16, "bfloat16": TensorProto.BFLOAT16, "float32": TensorProto.FLOAT}
CODES |= {"float64": TensorProto.DOUBLE}
FUNCTION_ERROR = 2.0**-21
"""A bound above the relative error of a float32 exponential or hyperbolic tangent with a few following operations."""


@dataclass
class Case:
    """An attention of 4 axes.

    Attributes:
        dtype: of all inputs but the mask.
        heads: the numbers of query heads and key heads.
        attrs: ONNX attributes.
        mask: an addend or a condition; ``None`` for none.
    """

    dtype: str
    heads: tuple[int, int]
    attrs: dict[str, Any]
    mask: NDArray | None
    seed: int
    steps: int = 3
    length: int = 5
    arrays: list[NDArray] = field(init=False)

    def __post_init__(self) -> None:
        rng, (heads, groups) = np.random.default_rng(self.seed), self.heads
        shapes = ((1, heads, self.steps, 4), (1, groups, self.length, 4), (1, groups, self.length, 2))
        self.arrays = [(rng.integers(-16, 17, shape) / 8).astype(to_numpy(self.dtype)) for shape in shapes]
        self.arrays += [] if self.mask is None else [self.mask]

    def module(self) -> IRModule:
        inputs = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in zip("qkvm", self.arrays, strict=False)
        ]
        scored = "qk_matmul_output_mode" in self.attrs
        names = ["y", "", "", "s"] if scored else ["y"]
        node = helper.make_node("Attention", [value.name for value in inputs], names, **self.attrs)
        outputs = [helper.make_tensor_value_info(name, CODES[self.dtype], [None] * 4) for name in names if name]
        graph = helper.make_graph([node], "g", inputs, outputs)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=10)
        onnx.checker.check_model(model)
        return from_onnx(model)


@dataclass
class Rounding:
    """Rounds float64 to dtypes, and records whether an error of the kernels could have changed an outcome."""

    is_sure: bool = True

    def __call__(self, exact: NDArray, dtype: str, error: NDArray | float = 0.0) -> NDArray:
        low, found, high = (
            np.asarray(x).astype(np.float32).astype(to_numpy(dtype)).astype(np.float64)
            for x in (exact - error, exact, exact + error)
        )
        self.is_sure &= bool(((low == high) | np.isneginf(exact)).all())
        return found


def _product(x: NDArray, y: NDArray) -> tuple[NDArray, NDArray]:
    """Return a product of matrices and the bound of the error in float32 (Higham, section 3.1)."""
    return x @ y, (x.shape[-1] + 1) * 2.0**-24 * (np.abs(x) @ np.abs(y))


def _softmax(x: NDArray, precision: str, rounded: Rounding) -> NDArray:
    top = x.max(axis=-1, keepdims=True)
    powers = np.exp(rounded(x - np.where(np.isneginf(top), 0, top), precision))
    if precision == "float32":
        return np.asarray(powers / np.maximum(powers.sum(axis=-1, keepdims=True), 1))
    powers = rounded(powers, precision, powers * FUNCTION_ERROR)
    total = powers[..., :1]
    for k in range(1, x.shape[-1]):
        total = total + powers[..., k : k + 1]
        total = rounded(total, precision) if precision == "bfloat16" else total
    total = rounded(total, precision, total * 2.0**-22)
    return rounded(powers / np.where(total == 0, 1, total), precision)


def _expected(case: Case, rounded: Rounding) -> tuple[NDArray, list[NDArray]]:
    """Return the result and the scores of all stages, by the definition of the op."""
    dtype, attrs = case.dtype, case.attrs
    query, key, value = (array.astype(np.float64) for array in case.arrays[:3])
    repeats = case.heads[0] // case.heads[1]
    key, value = np.repeat(key, repeats, 1), np.repeat(value, repeats, 1)
    scale = attrs.get("scale", 0.5)
    root = rounded(np.asarray(math.sqrt(abs(scale))), dtype)
    query, key = rounded(query * np.copysign(root, scale), dtype), rounded(key * root, dtype)
    exact, error = _product(query, key.swapaxes(2, 3))
    products = rounded(exact, dtype, error)
    capped = products
    if cap := attrs.get("softcap", 0.0):
        cap = rounded(np.asarray(cap), dtype)
        bent = np.tanh(rounded(products / cap, dtype))
        capped = rounded(rounded(bent, dtype, np.abs(bent) * FUNCTION_ERROR) * cap, dtype)
    mask = np.zeros((case.steps, case.length))
    if case.mask is not None:
        given = case.mask
        mask = np.where(given, 0.0, -np.inf) if given.dtype == bool else given.astype(np.float64)
    if attrs.get("is_causal"):
        mask = np.where(np.arange(case.length) > np.arange(case.steps)[:, None], -np.inf, mask)
    masked = rounded(capped + mask, dtype)
    names = {int(code): name for name, code in CODES.items()}
    precision = names[attrs.get("softmax_precision", int(CODES[dtype]))]
    shares = _softmax(masked, precision, rounded)
    weights = rounded(shares, dtype, shares * FUNCTION_ERROR) if precision != dtype else shares
    weights = np.where(np.isneginf(masked.max(axis=-1, keepdims=True)), 0, weights)
    exact, error = _product(weights, value)
    return rounded(exact, dtype, error), [products, capped, masked, weights]


_MASKS = st.one_of(
    st.none(),
    st.lists(st.booleans(), min_size=15, max_size=15),
    st.lists(st.sampled_from([0.0, 0.5, -1.25, -65504.0, -math.inf]), min_size=15, max_size=15),
)


@st.composite
def _cases(draw: st.DrawFn) -> Case:
    dtype = draw(st.sampled_from(["bfloat16", "float16"]))
    attrs: dict[str, Any] = {"is_causal": int(draw(st.booleans()))}
    attrs |= draw(st.sampled_from([{}, {"scale": 0.25}, {"scale": 0.3}, {"scale": -0.25}]))
    attrs |= draw(st.sampled_from([{}, {"softcap": 2.0}]))
    attrs |= draw(st.sampled_from([{}, {"softmax_precision": int(CODES[dtype])}, {"softmax_precision": 1}]))
    attrs |= draw(st.sampled_from([{}, *({"qk_matmul_output_mode": mode} for mode in range(4))]))
    given = draw(_MASKS)
    mask = None if given is None else np.array(given).reshape(3, 5)
    if mask is not None and mask.dtype != bool:
        mask = mask.astype(to_numpy(dtype))
    return Case(dtype, draw(st.sampled_from([(1, 1), (2, 2), (4, 2)])), attrs, mask, draw(st.integers(0, 9999)))


@settings(deadline=None)
@given(case=_cases())
def test_each_stage_is_that_of_float64_rounded(case: Case) -> None:
    rounded = Rounding()
    result, stages = _expected(case, rounded)
    assume(rounded.is_sure)
    expected = [result]
    if (mode := case.attrs.get("qk_matmul_output_mode")) is not None:
        expected.append(stages[mode])
    found = evaluate_function(case.module(), "main", case.arrays)
    for have, want in zip(found, expected, strict=True):
        assert have.dtype == to_numpy(case.dtype)
        np.testing.assert_array_equal(have.astype(np.float64), want)


@pytest.mark.parametrize("precision", [None, 1])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_step_of_which_all_scores_overflow_sees_nothing(dtype: str, precision: int | None) -> None:
    """Exporters hide a key by the lowest number; adding the score may give minus infinity."""
    lowest = -float(float_limits(dtype).largest)
    size = 8.0 if dtype == "float16" else 1e18
    mask = np.array([[lowest] * 5, [0, lowest, lowest, lowest, lowest], [0] * 5]).astype(to_numpy(dtype))
    case = Case(dtype, (1, 1), {} if precision is None else {"softmax_precision": precision}, mask, 0)
    case.arrays[0][:] = size
    case.arrays[1][:] = -size
    (found,) = evaluate_function(case.module(), "main", case.arrays)
    value = case.arrays[2].astype(np.float64)[0, 0]
    np.testing.assert_array_equal(found[0, 0, 0].astype(np.float64), [0, 0])
    np.testing.assert_array_equal(found[0, 0, 1].astype(np.float64), value[0])
    assert np.isfinite(found.astype(np.float64)).all()


REFUSED: dict[str, tuple[dict[str, Any], tuple[int, ...] | None, str]] = {
    "a mask of five axes": ({}, (1, 1, 1, 3, 5), "the mask does not broadcast to the scores"),
    "a mask of more steps": ({}, (4, 5), "the mask does not broadcast to the scores"),
    "a mask of more batches": ({}, (2, 1, 3, 5), "the mask does not broadcast to the scores"),
    "scale": ({"scale": 1e30}, None, "attribute `scale` is too large for float16"),
    "softcap": ({"softcap": 1e30}, None, "attribute `softcap` is too large for float16"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_meaning_in_stages_is_refused(name: str) -> None:
    attrs, shape, text = REFUSED[name]
    mask = None if shape is None else np.zeros(shape, np.float16)
    with pytest.raises(FrontendError, match=text):
        Case("float16", (1, 1), attrs, mask, 0).module()


@pytest.mark.parametrize("rank", [1, 3, 5])
def test_past_keys_of_another_rank_are_refused(rank: int) -> None:
    past = helper.make_tensor_value_info("p", TensorProto.FLOAT16, [1] * rank)
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT16, [1, 1, 3, 4]) for name in "qkv"]
    node = helper.make_node("Attention", ["q", "k", "v", "", "p", "p"], ["y", "a", "b"])
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT16, None) for name in "yab"]
    graph = helper.make_graph([node], "g", [*inputs, past], outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    with pytest.raises(FrontendError, match="the past keys have the wrong rank"):
        from_onnx(model)


@pytest.mark.parametrize(
    ("dtype", "precision", "softmax"),
    [
        ("float32", None, None),
        ("float32", "float32", None),
        ("float64", "float64", None),
        ("float32", "float64", "nn.softmax"),
        ("float64", "float32", "nn.softmax"),
        ("float32", "float16", "nn.stepwise_softmax"),
        ("float16", "float32", "nn.softmax"),
        ("float16", None, "nn.stepwise_softmax"),
        ("bfloat16", "float16", "nn.stepwise_softmax"),
    ],
)
def test_one_op_stands_for_the_stages_where_that_changes_no_rounding(
    dtype: str, precision: str | None, softmax: str | None
) -> None:
    attrs = {} if precision is None else {"softmax_precision": int(CODES[precision])}
    ops = {binding.op.name for binding in Case(dtype, (2, 1), attrs, None, 0).module()["main"].bindings}
    assert ("nn.attention" in ops) is (softmax is None)
    assert ops & {"nn.softmax", "nn.stepwise_softmax"} == ({softmax} if softmax else set())


def test_a_softmax_of_float64_is_computed_in_it() -> None:
    case = Case("float32", (2, 2), {"softmax_precision": int(CODES["float64"])}, None, 0)
    exact, _ = _expected(Case("float32", (2, 2), {"softmax_precision": 1}, None, 0), Rounding())
    (found,) = evaluate_function(case.module(), "main", case.arrays)
    # Scores are exact; weights, products and sums of 5 values below 2 are rounded to float32.
    np.testing.assert_allclose(found, exact, rtol=0, atol=2 * 12 * 2.0**-24)


def test_heads_of_unknown_numbers_are_refused() -> None:
    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT16, ["b", heads, "s", 4])
        for name, heads in (("q", "h"), ("k", "g"), ("v", "g"))
    ]
    node = helper.make_node("Attention", ["q", "k", "v"], ["y"])
    graph = helper.make_graph(
        [node], "g", values, [helper.make_tensor_value_info("y", TensorProto.FLOAT16, [None] * 4)]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    with pytest.raises(FrontendError, match="rounding of each stage needs equal or known numbers of heads"):
        from_onnx(model)


def test_heads_of_a_symbolic_size_are_scaled_by_it() -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((1, 2, 3, 16)).astype(to_numpy("bfloat16")) for _ in range(3)]

    def run(size: int | str) -> NDArray:
        values = [helper.make_tensor_value_info(name, TensorProto.BFLOAT16, [1, 2, 3, size]) for name in "qkv"]
        node = helper.make_node("Attention", ["q", "k", "v"], ["y"])
        result = helper.make_tensor_value_info("y", TensorProto.BFLOAT16, [1, 2, 3, size])
        graph = helper.make_graph([node], "g", values, [result])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
        return evaluate_function(from_onnx(model), "main", arrays)[0]

    np.testing.assert_array_equal(run("d"), run(16))
