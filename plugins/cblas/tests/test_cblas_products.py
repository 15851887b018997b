"""Products of matrices: dense layers, stacks, vectors, sizes known only at the call."""

from __future__ import annotations

import numpy as np
import pytest
from byoc_core.errors import ExecutionError
from byoc_core.runtime.module import NDArray
from hypothesis import given
from hypothesis import strategies as st

from plugins.cblas.tests.judged_layers import build_layer, judge, module_text, numbers, reference, run_layer

DTYPES = pytest.mark.parametrize("dtype", ["float32", "float64"])
EPILOGUES = {
    "": (),
    "bias": ("s = R.nn.bias_add(p, b)",),
    "row": ("s = R.add(p, b)",),
    "row on the left": ("s = R.add(b, p)",),
    "bias_relu": ("s = R.nn.bias_add(p, b)", "r = R.nn.relu(s)"),
    "relu": ("r = R.nn.relu(p)",),
}
LEADING = st.lists(st.sampled_from([1, 2, 3, 5]), max_size=3)


def check_product(op: str, x: NDArray, y: NDArray, bias: NDArray | None, result: NDArray, *, relu: bool) -> None:
    exact, magnitude = reference(op, x, y), reference(op, abs(x), abs(y))
    if bias is not None:
        exact, magnitude = exact + bias.astype("float64"), magnitude + abs(bias.astype("float64"))
    judge(result, np.maximum(exact, 0) if relu else exact, magnitude, x.shape[-1], str(x.dtype))


@DTYPES
@pytest.mark.parametrize("epilogue", list(EPILOGUES))
@pytest.mark.parametrize(("rows", "inner", "columns"), [(5, 7, 3), (1, 64, 40), (64, 33, 1), (130, 90, 70), (0, 3, 2)])
def test_dense_layers(dtype: str, epilogue: str, rows: int, inner: int, columns: int) -> None:
    lines = ("p = R.nn.dense(x, w)", *EPILOGUES[epilogue])
    x, w, b = numbers((rows, inner), dtype, 1), numbers((columns, inner), dtype, 2), numbers((columns,), dtype, 3)
    for sizes in ((rows, inner), ("n", inner)):
        operands = {"x": sizes, "w": (columns, inner), "b": (columns,)}
        if epilogue in ("", "relu"):
            del operands["b"]
        executable = build_layer(module_text(operands, dtype, lines))
        arrays = (x, w, b)[: len(operands)]
        result = run_layer(executable, 1, *arrays)
        bias = b if len(arrays) == 3 else None
        check_product("nn.dense", x, w, bias, result, relu="relu" in epilogue)


@given(
    leading=LEADING,
    sizes=st.tuples(*[st.integers(0, 40)] * 3),
    dtype=st.sampled_from(["float32", "float64"]),
    is_symbolic=st.booleans(),
    seed=st.integers(0, 99),
)
def test_dense_of_any_size(
    leading: list[int], sizes: tuple[int, int, int], dtype: str, is_symbolic: bool, seed: int
) -> None:
    rows, inner, columns = sizes
    x, w = numbers((*leading, rows, inner), dtype, seed), numbers((columns, inner), dtype, seed + 1)
    shape: list[object] = [*(f"d{axis}" if is_symbolic else size for axis, size in enumerate(x.shape[:-1])), inner]
    executable = build_layer(module_text({"x": shape, "w": w.shape}, dtype, ["p = R.nn.dense(x, w)"]))
    result = run_layer(executable, 1, x, w)
    check_product("nn.dense", x, w, None, result, relu=False)


@st.composite
def stacks(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Draw shapes of two operands with axes of size 1, missing axes, rows and columns."""
    batch = draw(LEADING)
    left = [draw(st.sampled_from([size, 1])) for size in batch]
    right = [
        size if own == 1 and size != 1 else draw(st.sampled_from([size, 1]))
        for size, own in zip(batch, left, strict=True)
    ]
    if draw(st.booleans()):
        right = right[draw(st.integers(0, len(right))) :]
    rows, inner, columns = (draw(st.integers(1, 17)) for _ in range(3))
    x, y = (*left, rows, inner), (*right, inner, columns)
    if not left and draw(st.booleans()):
        x = (inner,)
    if not right and draw(st.booleans()):
        y = (inner,)
    return x, y


@given(shapes=stacks(), dtype=st.sampled_from(["float32", "float64"]), seed=st.integers(0, 99))
def test_stacks_of_matrices_of_any_size(shapes: tuple[tuple[int, ...], tuple[int, ...]], dtype: str, seed: int) -> None:
    x, y = (numbers(shape, dtype, seed + number) for number, shape in enumerate(shapes))
    executable = build_layer(module_text({"x": x.shape, "y": y.shape}, dtype, ["p = R.matmul(x, y)"]))
    check_product("matmul", x, y, None, run_layer(executable, 1, x, y), relu=False)


@given(
    shape=st.sampled_from(
        [
            (("a", "b", "m", 6), ("a", "b", 6, "n")),
            (("a", 1, "m", 6), (1, "b", 6, "n")),
            (("a", "m", 6), (6, "n")),
            (("m", 6), ("a", "b", 6, "n")),
            (("a", "b", "m", 6), ("b", 6, 5)),
            ((6,), ("a", 6, "n")),
            (("a", "m", 6), (6,)),
            (("a", "b", "m", 6), ("a", 1, 6, "n")),
        ]
    ),
    values=st.fixed_dictionaries({name: st.integers(0, 7) for name in "abmn"}),
)
def test_symbolic_stacks(shape: tuple[tuple[object, ...], tuple[object, ...]], values: dict[str, int]) -> None:
    executable = build_layer(module_text({"x": shape[0], "y": shape[1]}, "float32", ["p = R.matmul(x, y)"]))
    x, y = (
        numbers([values[size] if isinstance(size, str) else int(str(size)) for size in sizes], "float32", number)
        for number, sizes in enumerate(shape)
    )
    check_product("matmul", x, y, None, run_layer(executable, 1, x, y), relu=False)


@DTYPES
def test_stacks_with_a_bias(dtype: str) -> None:
    x, y, b = numbers((3, 4, 5), dtype, 1), numbers((5, 6), dtype, 2), numbers((1, 6), dtype, 3)
    lines = ["p = R.matmul(x, y)", "s = R.add(p, b)", "r = R.nn.relu(s)"]
    executable = build_layer(module_text({"x": ("n", 4, 5), "y": (5, 6), "b": (1, 6)}, dtype, lines))
    assert executable.report_data["offloaded_share"] == 1.0
    result = run_layer(executable, 1, x, y, b)
    check_product("matmul", x, y, b, result, relu=True)


def test_nan_and_infinities_reach_the_result() -> None:
    lines = ["p = R.nn.dense(x, w)", "s = R.nn.bias_add(p, b)", "r = R.nn.relu(s)"]
    executable = build_layer(module_text({"x": ("n", 3), "w": (2, 3), "b": (2,)}, "float32", lines))
    w, b = np.array([[1, 0, 0], [0, 1, 0]], "float32"), np.array([0, np.nan], "float32")
    for rows in (1, 4):
        x = np.full((rows, 3), np.nan, "float32")
        assert np.isnan(run_layer(executable, 1, x, w, b)).all()
        x[:] = [np.inf, 1, 1]
        expected = reference("nn.dense", x, w) + b
        np.testing.assert_array_equal(np.isnan(run_layer(executable, 1, x, w, b)), np.isnan(expected))


def test_threads_change_no_result_beyond_rounding() -> None:
    x, w = numbers((300, 200), "float32", 1), numbers((250, 200), "float32", 2)
    executable = build_layer(module_text({"x": ("n", 200), "w": (250, 200)}, "float32", ["p = R.nn.dense(x, w)"]))
    for num_threads in (1, 2, 3):
        result = run_layer(executable, num_threads, x, w)
        check_product("nn.dense", x, w, None, result, relu=False)


def test_more_than_31_bits_are_refused_at_the_call() -> None:
    executable = build_layer(module_text({"x": ("m", "k"), "y": ("k", "n")}, "float32", ["p = R.matmul(x, y)"]))
    assert run_layer(executable, 1, np.empty((2, 0), "float32"), np.empty((0, 1), "float32")).tolist() == [[0], [0]]
    with pytest.raises(ExecutionError, match=r"`byoc_cblas_matmul_float` returned 1$"):
        run_layer(executable, 1, np.empty((0, 2**31), "float32"), np.empty((2**31, 0), "float32"))
