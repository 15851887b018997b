"""Products of floats by dequantised constants of 4 or 8 bits: packed weights, results, and what is not taken.

The oracle is the product by the dequantised weights in float64.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import byoc_core
import numpy as np
import pytest
from byoc_core.dtypes import to_numpy
from byoc_core.ir import FunctionBuilder, IRModule, Value, tensor
from byoc_core.ops import default_ops
from byoc_core.transform import evaluate_function
from byoc_dnnl.derived_constants import PANEL_COLUMNS, ParameterPanels, WeightPanels
from byoc_dnnl.native import extension
from byoc_dnnl.weights import shared_constants
from hypothesis import given, settings
from hypothesis import strategies as st

from plugins.dnnl.tests.dnnl_region import NDArray, Region
from plugins.dnnl.tests.fake_onednn import FakeOneDNN
from plugins.dnnl.tests.test_dnnl_extension import make_program

native: Any = extension()
pytestmark = pytest.mark.skipif(native is None, reason="the C extension is missing")

BITS = {"int4": 4, "uint4": 4, "int8": 8, "uint8": 8}
SPELLINGS = ("nn.dense", "matmul", "matmul of transposed weights")
UNIT = 2.0**-24


class Weights:
    """Drawn weights: integers ``(K, N)``, and scales and zero points in the shapes of ``dequantize`` along axis 0.

    Args:
        depth: K.
        columns: N.
        dtype: the dtype of the integers.
        block_size: of ``blocks``.
        kind: of the scales: ``blocks``, ``channels`` or ``tensor``.
        has_zeros: whether zero points differ from 0.
    """

    def __init__(self, depth: int, columns: int, dtype: str, block_size: int, kind: str, *, has_zeros: bool) -> None:
        rng = np.random.default_rng(depth * 1000 + columns)
        shape = {"blocks": (-(-depth // block_size), columns), "channels": (columns,), "tensor": ()}[kind]
        low = 0 if dtype.startswith("uint") else -(1 << BITS[dtype] - 1)

        def integers(sizes: tuple[int, ...]) -> NDArray:
            return rng.integers(low, low + (1 << BITS[dtype]), sizes).astype(to_numpy(dtype))

        self.block_size = block_size if kind == "blocks" else 0
        self.integers = integers((depth, columns))
        self.scale = rng.uniform(-0.2, 0.2, shape).astype(np.float32)
        self.zero = integers(shape) if has_zeros else np.zeros(shape, to_numpy(dtype))

    @property
    def exact(self) -> NDArray:
        """The weights in float64."""
        scale, zero = self.scale.astype(np.float64), self.zero.astype(np.int64)
        if self.block_size:
            block = np.arange(len(self.integers)) // self.block_size
            scale, zero = scale[block], zero[block]
        return np.asarray((self.integers.astype(np.int64) - zero) * scale)

    def emit(self, builder: FunctionBuilder, x: Value, spelling: str) -> Value:
        """Emit the product of ``x`` by the weights."""
        arrays, along = [self.integers, self.scale, self.zero], 0 if self.block_size else 1
        if spelling != "matmul":
            arrays = [array.T if array.ndim == 2 else array for array in arrays]
            along = 1 - along
        constants = [builder.const(array.copy()) for array in arrays]
        weight = builder.bind("dequantize", constants, {"axis": along, "block_size": self.block_size}).result
        if spelling == SPELLINGS[2]:
            weight = builder.bind("permute_dims", [weight], {"axes": (1, 0)}).result
        return builder.bind("nn.dense" if spelling == "nn.dense" else "matmul", [x, weight], {}).result


def region_of(weights: Weights, lead: tuple[int | str, ...], spelling: str = "matmul") -> Region:
    region = Region()
    x = region.builder.param("x", tensor((*lead, len(weights.integers))))
    return region.finish(weights.emit(region.builder, x, spelling))


def draw_rows(weights: Weights, lead: tuple[int, ...]) -> NDArray:
    return np.random.default_rng(len(lead)).standard_normal((*lead, len(weights.integers))).astype(np.float32)


def check(result: NDArray, x: NDArray, exact: NDArray) -> None:
    """Check sums against ``gamma * sum |x| |w|`` (Higham, section 3.1)."""
    terms = len(exact) + 3
    gamma = terms * UNIT / (1 - terms * UNIT)
    error = np.abs(result - x.astype(np.float64) @ exact)
    assert np.all(error <= gamma * (np.abs(x).astype(np.float64) @ np.abs(exact)) + np.finfo(np.float32).tiny)


DRAWN = st.tuples(
    st.sampled_from(sorted(BITS)),
    st.sampled_from([16, 32, 5, 24, 100]),
    st.sampled_from(["blocks", "blocks", "channels", "tensor"]),
    st.booleans(),
)
"""Dtype, block size, kind of scales, and whether there are zero points."""


@settings(deadline=None, max_examples=60)
@given(DRAWN, st.sampled_from(SPELLINGS), st.integers(1, 40), st.integers(1, 300), st.integers(1, 100))
def test_products(drawn: tuple[str, int, str, bool], spelling: str, rows: int, depth: int, columns: int) -> None:
    dtype, block_size, kind, has_zeros = drawn
    weights = Weights(depth, columns, dtype, block_size, kind, has_zeros=has_zeros)
    region = region_of(weights, (rows,), spelling)
    assert f"{'nn.dense' if spelling == 'nn.dense' else 'matmul'}  byoc" in region.source
    x = draw_rows(weights, (rows,))
    check(region.run(x)[0], x, weights.exact)


@pytest.mark.parametrize("lead", [(), (2, 3), (197,), (400,)])
def test_vectors_batches_and_more_rows_than_sums_at_hand(lead: tuple[int, ...]) -> None:
    weights = Weights(100, 70, "uint4", 32, "blocks", has_zeros=True)
    x = draw_rows(weights, lead)
    check(region_of(weights, lead).run(x)[0], x, weights.exact)


def test_one_build_for_all_numbers_of_rows_holds_the_packed_weights_once() -> None:
    weights = Weights(96, 80, "int4", 16, "blocks", has_zeros=False)
    builder = FunctionBuilder("main", ops=default_ops())
    x = builder.param("x", tensor(("n", 96)))
    module = IRModule({"main": builder.finish(weights.emit(builder, x, "matmul"))}, builder.constants)
    executable = byoc_core.build(module, ["dnnl"])
    executable.require_offload(1.0)
    before = len(shared_constants())
    machine = byoc_core.VirtualMachine(executable)
    for rows in (1, 9, 33, 1):
        given_rows = draw_rows(weights, (rows,))
        check(np.asarray(machine["main"](given_rows)), given_rows, weights.exact)
    assert len(shared_constants()) - before == 2  # weights and scales


@pytest.mark.parametrize("size", [1e31, np.inf, np.nan])
def test_rows_of_large_numbers_give_the_reference_results(size: float) -> None:
    """A sum of a block would overflow before the small scale makes it small again."""
    weights = Weights(64, 40, "int8", 32, "blocks", has_zeros=True)
    weights.scale *= np.float32(1e-8)
    x = draw_rows(weights, (2,))
    x[1, 3] = size
    region = region_of(weights, (2,))
    with np.errstate(all="ignore"):
        (expected,) = evaluate_function(region.ir, "f", [x])
    np.testing.assert_allclose(region.run(x)[0], expected, rtol=1e-5)


def test_scales_along_the_sums_without_blocks_are_dequantised() -> None:
    rng = np.random.default_rng(0)
    region = Region()
    integers, scale = rng.integers(-8, 8, (12, 5)).astype(np.int8), rng.random(12).astype(np.float32)
    x = region.builder.param("x", tensor((3, 12)))
    constants = [region.builder.const(array) for array in (integers, scale, np.zeros(12, np.int8))]
    weight = region.builder.bind("dequantize", constants, {"axis": 0}).result
    region.finish(region.builder.bind("matmul", [x, weight], {}).result)
    assert "matmul  byoc" not in region.source
    rows = rng.standard_normal((3, 12)).astype(np.float32)
    check(region.run(rows)[0], rows, integers * scale.astype(np.float64)[:, np.newaxis])


def test_weights_read_by_other_ops_are_dequantised_too() -> None:
    weights = Weights(20, 20, "int4", 10, "blocks", has_zeros=True)
    region = Region()
    x = region.builder.param("x", tensor((20, 20)))
    constants = [region.builder.const(array) for array in (weights.integers, weights.scale, weights.zero)]
    weight = region.builder.bind("dequantize", constants, {"axis": 0, "block_size": 10}).result
    product_ = region.builder.bind("matmul", [x, weight], {}).result
    region.finish(product_, region.builder.bind("add", [x, weight], {}).result)
    rows = draw_rows(weights, (20,))
    result, total = region.run(rows)
    check(result, rows, weights.exact)
    np.testing.assert_allclose(total, rows + weights.exact, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("lanes", [1, 8, 16])
@settings(deadline=None, max_examples=25)
@given(DRAWN, st.sampled_from([1, 2, 3, 4, 5, 7, 8, 13, 193]), st.integers(1, 150), st.integers(1, 70))
def test_kernels_of_all_vectors(
    lanes: int, drawn: tuple[str, int, str, bool], rows: int, depth: int, columns: int
) -> None:
    """Small integers as elements and scales: all sums are exact. No other memory is written."""
    dtype, block_size, kind, has_zeros = drawn
    weights = Weights(depth, columns, dtype, block_size, kind, has_zeros=has_zeros)
    weights.scale = np.rint(weights.scale * 20)
    x = np.random.default_rng(rows).integers(-2, 3, (rows, depth)).astype(np.float32)
    centre = 1 << BITS[dtype] - 1 if dtype.startswith("uint") else 0
    size = min(weights.block_size or depth, depth)
    words = WeightPanels((depth, columns), 0, BITS[dtype], centre, size).apply(weights.integers)
    scales = ParameterPanels(weights.scale.shape, 0, columns).apply(weights.scale)
    zeros = ParameterPanels(weights.zero.shape, 0, columns, centre).apply(weights.zero)
    memory = np.full(rows * columns + 2, 7, np.float32)
    form = (rows, depth, columns, size, BITS[dtype], lanes, has_zeros or bool(np.any(zeros)))
    arrays = (x, words, scales, zeros, memory[1:])
    program = make_program(
        FakeOneDNN(),
        num_tensors=5,
        locations=tuple((0, native.ARGUMENT, number) for number in range(5)),
        steps=((native.MULTIPLY, *range(5), *form),),
    )
    assert program.run(*(array.ctypes.data for array in arrays))
    np.testing.assert_array_equal(memory[1:-1].reshape(rows, columns), x @ weights.exact)
    assert memory[0] == memory[-1] == 7


def test_panels_have_the_columns_of_the_extension() -> None:
    assert native.PANEL_COLUMNS == PANEL_COLUMNS


GOOD = (0, 1, 2, 3, 4, 2, 8, 5, 4, 8, 8, False)
"""Five locations, rows, depth, columns, block size, bits, lanes, whether there are zero points."""


@pytest.mark.parametrize(
    ("at", "number"),
    [*product(range(5), (-1, 5)), (5, -1), (6, 0), (6, 1 << 31), (7, 0), (8, 0), (8, 9), (9, 3), (9, 16)],
)
def test_a_product_of_bad_numbers_is_refused(at: int, number: int) -> None:
    numbers = list(GOOD)
    numbers[at] = number
    locations = tuple((0, native.ARGUMENT, number) for number in range(5))
    with pytest.raises(ValueError, match="product"):
        make_program(FakeOneDNN(), num_tensors=5, locations=locations, steps=((native.MULTIPLY, *numbers),))
