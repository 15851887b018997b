"""Pure movements of elements: bit for bit equal to the reference kernels, in any layout of the operand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from byoc_core.backend.hooks import Rejection
from byoc_core.dtypes import to_numpy
from byoc_core.ir import Value, tensor
from byoc_core.opset.families import KERNELS
from byoc_dnnl.engine import open_engine
from byoc_dnnl.precision import lacks_instructions
from hypothesis import given
from hypothesis import strategies as st

from plugins.dnnl.tests.dnnl_region import NDArray, Region, check_sums, emit, need_avx512

_ODD = np.array([np.nan, np.inf, -np.inf, -0.0, 1e-45, -1e-40, 3e38], np.float32)


def _values(*shape: int) -> NDArray:
    """Return distinct numbers, including NaN and the like."""
    count = int(np.prod(shape))
    values = np.arange(count, dtype=np.float32)
    values[: len(_ODD)] = _ODD[:count]
    return np.random.default_rng(count).permutation(values).reshape(shape)


def _check(op: str, arrays: list[NDArray], attrs: dict[str, Any], *, turned: bool = False) -> str:
    """Check an op against the kernel; ``turned``: the operands have the first axis innermost. Return the source."""
    region = Region()
    given_ = [np.ascontiguousarray(np.moveaxis(array, 0, -1)) if turned and array.ndim else array for array in arrays]
    operands: list[Value] = []
    for index, array in enumerate(given_):
        operand: Any = region.builder.param(f"x{index}", tensor(array.shape, str(array.dtype)))
        if turned and array.ndim:
            order = (array.ndim - 1, *range(array.ndim - 1))
            operand = region.builder.emit("permute_dims", operand, axes=order)
        operands.append(operand)
    made = region.builder.emit(op, *operands, **attrs)
    results = made if isinstance(made, tuple) else (made,)
    region.finish(*results)
    expected = KERNELS[op](*arrays, **region.function.bindings[-1].attrs)
    expected = expected if isinstance(expected, tuple) else (expected,)
    for found, exact in zip(region.run(*given_), expected, strict=True):
        assert found.tobytes() == np.ascontiguousarray(exact).tobytes()
    assert "ref" not in region.source
    assert "reorder" in region.source or op in region.source
    return region.source


MOVES: list[tuple[str, list[tuple[int, ...]], dict[str, Any]]] = [
    ("split", [(2, 9, 4)], {"sections": (2, 4, 3), "axis": 1}),
    ("split", [(6, 5)], {"sections": (6,), "axis": 0}),
    ("split", [(2, 32, 3, 3)], {"sections": (16, 16), "axis": -3}),
    ("stack", [(2, 3)], {"axis": 0}),
    ("stack", [(), ()], {"axis": 0}),
    ("strided_slice", [()], {"axes": (), "begin": (), "end": (), "strides": ()}),
    ("roll", [()], {"shift": (), "axis": ()}),
    ("broadcast_to", [()], {"shape": (2, 3)}),
    ("tile", [()], {"repeats": ()}),
    ("stack", [(2, 3), (2, 3), (2, 3)], {"axis": -1}),
    ("stack", [(2, 3, 4), (2, 3, 4)], {"axis": 1}),
    ("strided_slice", [(4, 6)], {"axes": (1,), "begin": (-5,), "end": (100,), "strides": (1,)}),
    ("strided_slice", [(5, 7, 6)], {"axes": (0, 2), "begin": (1, 3), "end": (5, 6), "strides": (3, 2)}),
    ("strided_slice", [(2, 3, 8, 8)], {"axes": (2, 3), "begin": (1, 0), "end": (8, 8), "strides": (2, 2)}),
    ("strided_slice", [(9,)], {"axes": (0,), "begin": (7,), "end": (9,), "strides": (5,)}),
    ("roll", [(4, 5)], {"shift": (1, -2), "axis": (0, 1)}),
    ("roll", [(2, 8, 8, 3)], {"shift": (-3, -3), "axis": (1, 2)}),
    ("roll", [(7,)], {"shift": (7,), "axis": (0,)}),
    ("broadcast_to", [(3,)], {"shape": (4, 2, 3)}),
    ("broadcast_to", [(2, 1, 3)], {"shape": (2, 5, 3)}),
    ("broadcast_to", [(4, 1)], {"shape": (4, 33)}),
    ("tile", [(2, 3)], {"repeats": (2, 3)}),
    ("tile", [(4, 1, 3)], {"repeats": (1, 5, 1)}),
    ("depth_to_space", [(2, 12, 3, 5)], {"block_size": 2}),
    ("depth_to_space", [(1, 18, 2, 3)], {"block_size": 3, "mode": "CRD"}),
    ("space_to_depth", [(2, 3, 4, 6)], {"block_size": 2}),
    ("space_to_depth", [(1, 2, 9, 6)], {"block_size": 3, "mode": "CRD"}),
]


def _bits(shape: tuple[int, ...], dtype: str) -> NDArray:
    """Return arbitrary bits, except signalling NaN, made quiet by processors."""
    nbytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
    found = np.frombuffer(np.random.default_rng(nbytes).bytes(nbytes), dtype).reshape(shape)
    return np.where(found == found, found, np.array(np.nan).astype(dtype)) if dtype == "float16" else found


@pytest.mark.parametrize("dtype", ["float16", "int32", "int8", "uint8"])
@pytest.mark.parametrize(("op", "shapes", "attrs"), MOVES)
def test_bits_of_any_dtype_are_moved(op: str, shapes: list[tuple[int, ...]], attrs: dict[str, Any], dtype: str) -> None:
    if lacks_instructions(open_engine().isa, dtype):
        pytest.skip(f"oneDNN has no instructions for {dtype} here")
    _check(op, [_bits(shape, dtype) for shape in shapes], attrs, turned=True)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("op", "shapes", "attrs"), MOVES)
def test_bits_are_moved(op: str, shapes: list[tuple[int, ...]], attrs: dict[str, Any], turned: bool) -> None:
    _check(op, [_values(*shape) for shape in shapes], attrs, turned=turned)


@given(st.data())
def test_slices_of_any_geometry(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(1, 7), min_size=1, max_size=4))
    axes = data.draw(st.lists(st.integers(0, len(shape) - 1), unique=True, max_size=len(shape)))
    begin = [data.draw(st.integers(0, shape[axis] - 1)) for axis in axes]
    end = [data.draw(st.integers(first + 1, shape[axis])) for axis, first in zip(axes, begin, strict=True)]
    steps = [data.draw(st.integers(1, 4)) for _ in axes]
    attrs = {"axes": tuple(axes), "begin": tuple(begin), "end": tuple(end), "strides": tuple(steps)}
    _check("strided_slice", [_values(*shape)], attrs, turned=data.draw(st.booleans()))


def test_a_slice_of_a_blocked_tensor_needs_no_row_major_copy() -> None:
    """Reordering first would copy the convolution's whole result."""
    region = Region()
    x = region.builder.param("x", tensor((1, 16, 8, 8)))
    weight = region.builder.const(region.draw(32, 16, 3, 3))
    y: Any = region.builder.emit("nn.conv2d", x, weight)
    first, second = region.builder.emit("split", y, sections=(16, 16), axis=1)  # type: ignore[misc]
    region.finish(region.builder.emit("add", first, second))  # type: ignore[arg-type]
    region.run(region.draw(1, 16, 8, 8))
    lines = [line.split()[0] for line in region.source.splitlines()]
    assert lines.count("split") == 2
    after = lines[lines.index("nn.conv2d") + 1 :]
    assert after[0] == "split", region.source


def test_parts_that_nobody_reads_are_not_copied() -> None:
    region = Region()
    parts = region.builder.emit("split", region.builder.param("x", tensor((6, 4))), sections=(2, 2, 2), axis=0)
    assert isinstance(parts, tuple)
    region.finish(parts[1])
    x = _values(6, 4)
    np.testing.assert_array_equal(region.run(x)[0], x[2:4])
    assert region.source.count("split") == 1


def test_memory_is_walked_forwards() -> None:
    region = Region()
    x = region.builder.param("x", tensor((4, 6)))
    attrs = {"axes": (0,), "begin": (3,), "end": (0,), "strides": (-1,)}
    answer = region.judge(region.builder.bind("strided_slice", [x], attrs))
    assert isinstance(answer, Rejection)
    assert answer.text == "`strided_slice`: oneDNN does not support negative strides"


def _joined(channels: Sequence[int], side: int, *, rank: int = 2) -> tuple[Region, list[NDArray]]:
    """Return a region joining images left by 1x1 convolutions, and the convolved images."""
    region = Region()
    shape = (2, 16, *(side,) * rank)
    x = region.builder.param("x", tensor(shape))
    weights = [region.builder.const(region.draw(count, 16, *(1,) * rank)) for count in channels]
    parts = [emit(region, f"nn.conv{rank}d", x, weight) for weight in weights]
    region.finish(emit(region, "concat", *parts, axis=1))
    return region, [region.draw(*shape)]


@pytest.mark.parametrize(("channels", "side"), [((3, 3), 24), ((24, 8, 16), 16), ((1, 5), 33)])
def test_short_runs_are_joined_by_copies(channels: Sequence[int], side: int) -> None:
    need_avx512()
    region, inputs = _joined(channels, side)
    lines = [line for line in region.source.splitlines() if line.startswith("concat")]
    assert ["jit" in line for line in lines] == [True] * len(channels)
    check_sums(region, inputs, 34)


@pytest.mark.parametrize(("channels", "side"), [((32, 32), 24), ((16, 64), 16), ((3, 3), 8)])
def test_long_runs_and_few_of_them_are_joined_by_one_primitive(channels: Sequence[int], side: int) -> None:
    need_avx512()
    region, inputs = _joined(channels, side)
    assert "concat  simple:any" in region.source
    check_sums(region, inputs, 34)


@given(
    parts=st.lists(st.integers(1, 12), min_size=1, max_size=4),
    rows=st.integers(1, 400),
    axis=st.integers(0, 2),
    kind=st.sampled_from(["float32", "int8"]),
)
def test_joining_moves_bits(parts: list[int], rows: int, axis: int, kind: str) -> None:
    region = Region()
    shapes = [tuple(part if place == axis else size for place, size in enumerate((3, rows, 5))) for part in parts]
    operands = [region.builder.param(f"x{index}", tensor(shape, kind)) for index, shape in enumerate(shapes)]
    region.finish(emit(region, "concat", *operands, axis=axis))
    inputs = [(100 * region.draw(*shape)).astype(kind) for shape in shapes]
    np.testing.assert_array_equal(region.run(*inputs)[0], np.concatenate(inputs, axis))


def test_a_value_is_joined_with_itself() -> None:
    region = Region()
    x = region.builder.param("x", tensor((400, 5)))
    region.finish(emit(region, "concat", x, x, x, axis=1))
    (drawn,) = inputs = [region.draw(400, 5)]
    np.testing.assert_array_equal(region.run(*inputs)[0], np.concatenate([drawn] * 3, 1))


def test_copies_of_bfloat16_move_bytes() -> None:
    """Some reorders of oneDNN flush subnormals of bfloat16 to 0; reorders of bytes interpret no numbers."""
    if lacks_instructions(open_engine().isa, "bfloat16"):
        pytest.skip("oneDNN has no instructions for bfloat16 here")
    region = Region()
    x = region.builder.param("x", tensor((256, 256), "bfloat16"))
    region.finish(emit(region, "permute_dims", x, axes=(1, 0)))
    (reorder,) = (line for line in region.source.splitlines() if line.startswith("reorder"))
    assert reorder.count("uint8") == 2
    bits = np.arange(1 << 16, dtype=np.uint16).reshape(256, 256)
    with np.errstate(all="ignore"):
        bits[np.isnan(bits.view(to_numpy("bfloat16")).astype(np.float32))] = 0
    (found,) = region.run(bits.view(to_numpy("bfloat16")))
    np.testing.assert_array_equal(np.asarray(found).view(np.uint16), bits.T)
