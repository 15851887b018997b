"""Kernels in C on drawn shapes: scalars, axes without elements, broadcast and many axes; bits as numpy's kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from byoc_conformance.judging import judge
from byoc_core.dtypes import is_float, to_numpy
from byoc_core.errors import ByocError
from byoc_core.ir import ConstantStore, IRModule, TensorType, Var
from byoc_core.ops import default_ops
from byoc_core.ops.cases import array_of, function_of
from byoc_core.transform import evaluate_function
from hypothesis import HealthCheck, assume, given, reject, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as shapes

from rt.tests.kernel_programs import executable_of
from rt.tests.kernel_table import KERNELS
from rt.tests.runner import NativeError, NativeLibrary
from rt.tests.saved import assert_same_bits, load_saved

OPS = default_ops()
NDArray = npt.NDArray[Any]
Draw = st.DrawFn

DTYPES = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "bfloat16", "float32",
    "float64", "float8_e4m3fn", "float8_e5m2", "int4",
)  # fmt: skip
NUMBERS = DTYPES[1:]
ALL_DTYPES = sorted(KERNELS["cast"].dtypes)
FLOATS = tuple(name for name in NUMBERS if is_float(name))
SIZES = st.integers(0, 4)
SHAPES = st.lists(SIZES, max_size=5).map(tuple)
quick = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def check(
    native: NativeLibrary, folder: Path, op: str, arrays: Sequence[NDArray], attrs: Mapping[str, Any], *, is_exact: bool
) -> None:
    """Run an op on arrays, and compare with the reference kernel: bits, or the bounds of the op."""
    params = [Var(f"x{index}", TensorType(array.shape, array.dtype.name)) for index, array in enumerate(arrays)]
    try:
        function = function_of(OPS[op], params, attrs, "main")[0]
        module = IRModule({"main": function}, ConstantStore())
        expected = evaluate_function(module, "main", arrays)
    except ByocError:
        reject()  # the type rule, or the kernel, refuses the operands
    found = load_saved(executable_of(module), native, folder)["main"](*arrays)
    if is_exact:
        assert_same_bits(found, expected)
    else:
        verdict = judge(module, "main", arrays, found, {})
        assert verdict.is_right, verdict.text


def drawn(draw: Draw, shape: Sequence[int], dtype: str) -> NDArray:
    """Return an array with numbers of a drawn seed; floats have zeros, NaN and infinities among the numbers."""
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    array = array_of(TensorType(tuple(shape), dtype), generator)
    if is_float(dtype) and array.size:
        special = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 1.0], np.float64).astype(to_numpy(dtype))
        mask = generator.random(array.shape) < 0.2
        array = np.where(mask, generator.choice(special, array.shape), array)
    return np.asarray(array, to_numpy(dtype))


arrays_of = st.composite(drawn)


def positions(draw: Draw, shape: Sequence[int], low: int, high: int) -> NDArray:
    """Return integers of a drawn dtype between two bounds."""
    dtype = draw(st.sampled_from(["int64", "int32", "int8", "uint8"] if low >= 0 else ["int64", "int32", "int8"]))
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return np.asarray(generator.integers(low, high + 1, tuple(shape))).astype(dtype)


positions_of = st.composite(positions)

BINARY = {
    "add": DTYPES, "subtract": NUMBERS, "multiply": DTYPES, "divide": NUMBERS, "maximum": DTYPES, "minimum": DTYPES,
    "equal": DTYPES, "not_equal": DTYPES, "less": DTYPES, "less_equal": DTYPES, "greater": DTYPES,
    "greater_equal": DTYPES, "logical_and": ("bool",), "logical_xor": ("bool",), "mod": NUMBERS, "nn.prelu": NUMBERS,
    "power": NUMBERS, "bitwise_xor": tuple(name for name in NUMBERS if not is_float(name)),
    "left_shift": ("int8", "uint16", "int32", "int64"), "right_shift": ("int8", "uint16", "int32", "int64"),
}  # fmt: skip


@quick
@given(st.data(), st.sampled_from(sorted(BINARY)))
def test_binary_ops_broadcast(native: NativeLibrary, tmp_path: Path, data: st.DataObject, op: str) -> None:
    dtype = data.draw(st.sampled_from(BINARY[op]))
    pair = data.draw(shapes.mutually_broadcastable_shapes(num_shapes=2, min_side=0, max_side=4, max_dims=5))
    arrays = [data.draw(arrays_of(shape, dtype)) for shape in pair.input_shapes]
    check(native, tmp_path, op, arrays, {}, is_exact=not is_float(dtype))


@quick
@given(st.data())
def test_where_broadcasts(native: NativeLibrary, tmp_path: Path, data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from(DTYPES))
    found = data.draw(shapes.mutually_broadcastable_shapes(num_shapes=3, min_side=0, max_side=4, max_dims=5))
    arrays = [
        data.draw(arrays_of(shape, "bool" if index == 0 else dtype)) for index, shape in enumerate(found.input_shapes)
    ]
    check(native, tmp_path, "where", arrays, {}, is_exact=True)


@quick
@given(st.data(), st.sampled_from(ALL_DTYPES), st.sampled_from(ALL_DTYPES))
def test_casts_between_all_dtypes(
    native: NativeLibrary, tmp_path: Path, data: st.DataObject, source: str, target: str
) -> None:
    array = data.draw(arrays_of(data.draw(SHAPES), source))
    if is_float(source) and not is_float(target) and target != "bool":
        within = np.clip(np.nan_to_num(array.astype(np.float64)), 0, 3)  # other numbers have unspecified results
        array = np.asarray(within).astype(array.dtype)
    check(native, tmp_path, "cast", [array], {"dtype": target}, is_exact=True)


@st.composite
def movements(draw: Draw) -> tuple[str, list[NDArray], dict[str, Any]]:
    """Return an op moving elements, with operands and attributes."""
    dtype = draw(st.sampled_from(DTYPES))
    shape = draw(SHAPES.filter(bool))
    rank = len(shape)
    x = drawn(draw, shape, dtype)
    axis = draw(st.integers(-rank, rank - 1))
    size = shape[axis]
    widths = draw(st.lists(st.integers(0, 3), min_size=2 * rank, max_size=2 * rank))
    bound = st.integers(-6, 6) | st.sampled_from([2**62, -(2**62), 2**63 - 1])
    step = draw(st.sampled_from([1, 2, 3, -1, -2]))
    other = tuple(draw(SIZES) if index == axis % rank else extent for index, extent in enumerate(shape))
    indices = draw(st.lists(SIZES, max_size=2).map(tuple))
    choices: dict[str, tuple[list[NDArray], dict[str, Any]]] = {
        "permute_dims": ([x], {"axes": tuple(draw(st.permutations(range(rank))))}),
        "reshape": ([x], {"shape": draw(st.sampled_from([(-1,), (x.size,), shape[::-1], (1, x.size, 1)]))}),
        "expand_dims": ([x], {"axis": (draw(st.integers(0, rank)),)}),
        "concat": ([x, drawn(draw, other, dtype), x], {"axis": axis}),
        "stack": ([x, x[::-1].copy()], {"axis": draw(st.integers(-rank - 1, rank))}),
        "split": ([x], {"sections": (size // 2, size - size // 2), "axis": axis}),
        "strided_slice": (
            [x],
            {"axes": (axis % rank,), "begin": (draw(bound),), "end": (draw(bound),), "strides": (step,)},
        ),
        "nn.pad": ([x], {"pad_width": widths, "pad_value": 1.0}),
        "nn.border_pad": ([x], {"pad_width": widths, "mode": draw(st.sampled_from(["edge", "reflect", "wrap"]))}),
        "tile": ([x], {"repeats": draw(st.lists(st.integers(0, 3), min_size=rank, max_size=rank))}),
        "flip": ([x], {"axis": axis}),
        "roll": ([x], {"shift": (draw(st.integers(-9, 9)),), "axis": (axis,)}),
        "trilu": ([x], {"k": draw(st.integers(-5, 5)), "upper": draw(st.booleans())}),
        "broadcast_to": ([x], {"shape": (3, *(4 if extent == 1 else extent for extent in shape))}),
        "squeeze": ([x.reshape(1, *shape)], {"axis": (0,)}),
        "take": ([x, positions(draw, indices, -size, size - 1)], {"axis": axis}) if size else ([x], {}),
        "gather_elements": (
            ([x, positions(draw, other, -size, size - 1)], {"axis": axis % rank}) if size else ([x], {})
        ),
        "one_hot": (
            [positions(draw, shape, -3, 5), x.reshape(-1)[:1].reshape(()), x.reshape(-1)[-1:].reshape(())],
            {"depth": 4},
        )
        if x.size
        else ([x], {}),
        "shape_of": ([x], {}),
        "size": ([x], {}),
        "bitcast": ([x], {"dtype": dtype}),
    }
    op = draw(st.sampled_from(sorted(choices)))
    return (op, *choices[op])


@quick
@given(movements())
def test_movements(native: NativeLibrary, tmp_path: Path, case: tuple[str, list[NDArray], dict[str, Any]]) -> None:
    op, arrays, attrs = case
    check(native, tmp_path, op, arrays, attrs, is_exact=True)


@st.composite
def scatters(draw: Draw) -> tuple[str, list[NDArray], dict[str, Any]]:
    """Return a scatter with repeated positions."""
    dtype = draw(st.sampled_from(NUMBERS))
    shape = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple))
    x = drawn(draw, shape, dtype)
    reduction = draw(st.sampled_from(["update", "add", "mul", "min", "max"]))
    if draw(st.booleans()):
        axis = draw(st.integers(0, len(shape) - 1))
        extents = [draw(SIZES) if index == axis else draw(st.integers(0, size)) for index, size in enumerate(shape)]
        indices = positions(draw, extents, -shape[axis], shape[axis] - 1)
        return "scatter_elements", [x, indices, drawn(draw, extents, dtype)], {"axis": axis, "reduction": reduction}
    depth = draw(st.integers(1, len(shape)))
    count = draw(SIZES)
    columns = [positions(draw, (count, 1), -size, size - 1).astype(np.int64) for size in shape[:depth]]
    updates = drawn(draw, (count, *shape[depth:]), dtype)
    return "scatter_nd", [x, np.concatenate(columns, axis=1), updates], {"reduction": reduction}


@quick
@given(scatters())
def test_scatters(native: NativeLibrary, tmp_path: Path, case: tuple[str, list[NDArray], dict[str, Any]]) -> None:
    op, arrays, attrs = case
    is_exact = attrs["reduction"] not in ("add", "mul") or not is_float(arrays[0].dtype.name)
    check(native, tmp_path, op, arrays, attrs, is_exact=is_exact and attrs["reduction"] not in ("min", "max"))


REDUCTIONS = {"sum": NUMBERS, "max": NUMBERS, "min": NUMBERS, "prod": NUMBERS, "mean": FLOATS, "logsumexp": FLOATS}
ALONG_AN_AXIS = ("argmax", "argmin", "sort", "argsort", "cumsum", "cumprod")


@quick
@given(st.data(), st.sampled_from([*REDUCTIONS, "all", "any"]))
def test_reductions(native: NativeLibrary, tmp_path: Path, data: st.DataObject, op: str) -> None:
    dtype = data.draw(st.sampled_from(REDUCTIONS.get(op, ("bool",))))
    shape = data.draw(SHAPES)
    axes = data.draw(st.none() | st.lists(st.integers(0, max(len(shape) - 1, 0)), unique=True).map(tuple))
    assume(shape or not axes)
    array = data.draw(arrays_of(shape, dtype))
    check(
        native,
        tmp_path,
        op,
        [array],
        {"axis": axes, "keepdims": data.draw(st.booleans())},
        is_exact=not is_float(dtype) or not array.size,  # the mean of nothing is NaN, which has no bound
    )


@quick
@given(st.data(), st.sampled_from(ALONG_AN_AXIS))
def test_ops_along_an_axis(native: NativeLibrary, tmp_path: Path, data: st.DataObject, op: str) -> None:
    dtype = data.draw(st.sampled_from(NUMBERS))
    shape = data.draw(SHAPES.filter(bool))
    array = data.draw(arrays_of(shape, dtype))
    flags = {"argmax": ("keepdims", "select_last_index"), "sort": ("descending",), "cumsum": ("exclusive", "reverse")}
    flags |= {"argmin": flags["argmax"], "argsort": flags["sort"], "cumprod": flags["cumsum"]}
    attrs: dict[str, Any] = {name: data.draw(st.booleans()) for name in flags[op]}
    attrs["axis"] = data.draw(st.integers(-len(shape), len(shape) - 1))
    is_exact = not is_float(dtype) or not op.startswith("cum")
    check(native, tmp_path, op, [array], attrs, is_exact=is_exact)


@quick
@given(st.data())
def test_topk(native: NativeLibrary, tmp_path: Path, data: st.DataObject) -> None:
    shape = data.draw(SHAPES.filter(bool))
    array = data.draw(arrays_of(shape, data.draw(st.sampled_from(NUMBERS))))
    axis = data.draw(st.integers(0, len(shape) - 1))
    attrs = {
        "axis": axis,
        "k": data.draw(st.integers(0, shape[axis])),
        "largest": data.draw(st.booleans()),
        "sorted": data.draw(st.booleans()),
    }
    check(native, tmp_path, "topk", [array], attrs, is_exact=True)


@quick
@given(st.data(), st.sampled_from(["nonzero", "compress", "unique", "range", "ragged_take", "as_dynamic", "as_size"]))
def test_data_dependent_ops(native: NativeLibrary, tmp_path: Path, data: st.DataObject, op: str) -> None:
    dtype = data.draw(st.sampled_from(DTYPES))
    shape = data.draw(SHAPES)
    array = data.draw(arrays_of(shape, dtype))
    axis = data.draw(st.none() | st.integers(0, len(shape) - 1)) if shape else None
    arrays: list[NDArray] = [array]
    attrs: dict[str, Any] = {}
    if op in ("compress", "unique"):
        attrs["axis"] = axis
    if op == "unique":
        attrs["sorted"] = data.draw(st.booleans())
    if op == "compress":
        length = array.size if axis is None else shape[axis]
        arrays.append(data.draw(arrays_of((data.draw(st.integers(0, length)),), "bool")))
    if op == "range":
        dtype = data.draw(st.sampled_from([name for name in NUMBERS if name not in ("float8_e4m3fn", "float8_e5m2")]))
        numbers = [
            data.draw(st.integers(0, 7)),
            data.draw(st.integers(-3, 7)),
            data.draw(st.sampled_from([1, 2, 3, -1])),
        ]
        scale = 0.37 if is_float(dtype) else 1
        arrays = [np.asarray(abs(n) if dtype.startswith("u") else n * scale).astype(to_numpy(dtype)) for n in numbers]
    if op == "ragged_take":
        lengths = np.array(data.draw(st.lists(st.integers(0, 3), max_size=5)), np.int64)
        taken = st.lists(st.integers(0, max(len(lengths) - 1, 0)), max_size=5 if len(lengths) else 0)
        elements = data.draw(arrays_of((int(lengths.sum()) + data.draw(SIZES),), dtype))
        arrays = [elements, lengths, np.array(data.draw(taken), np.int64)]
    if op == "as_dynamic":
        assume(shape)
        arrays, attrs = [array, array.copy()], {"axes": (0, 0)}
    if op == "as_size":
        arrays = [np.array(data.draw(SIZES), data.draw(st.sampled_from(["int8", "uint64", "int64"])))]
    check(native, tmp_path, op, arrays, attrs, is_exact=True)


@quick
@given(st.lists(st.binary(max_size=3), max_size=6), st.lists(st.binary(max_size=3), max_size=9))
def test_strings_among_keys(native: NativeLibrary, tmp_path: Path, texts: list[bytes], keys: list[bytes]) -> None:
    arrays: list[NDArray] = []
    for items in ([*texts, *keys[:3]], keys):
        arrays += [np.frombuffer(b"".join(items), np.uint8), np.array([len(item) for item in items], np.int64)]
    check(native, tmp_path, "strings.key_index", arrays, {}, is_exact=True)


@quick
@given(st.data(), st.sampled_from(["float16", "float32", "float64"]))
def test_suppression_of_random_boxes(native: NativeLibrary, tmp_path: Path, data: st.DataObject, dtype: str) -> None:
    generator = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    batch, classes, count = (data.draw(st.integers(0, limit)) for limit in (2, 3, 40))
    steps = data.draw(st.sampled_from([4, 16, 1000]))  # few steps: equal scores, and overlaps at the limit
    boxes = generator.integers(0, steps, (batch, count, 4)) / steps
    scores = generator.integers(0, steps, (batch, classes, count)) / steps
    floats = [boxes, scores, np.array(data.draw(st.sampled_from([0.0, 0.25, 0.5, 1.0]))), np.array(0.125)]
    boxes, scores, overlap, least = (np.asarray(array).astype(dtype) for array in floats)
    number = np.array(data.draw(st.sampled_from([0, 1, 5, 2**31 - 1])), np.int64)
    attrs = {"center_point_box": data.draw(st.booleans())}
    check(native, tmp_path, "nn.non_max_suppression", [boxes, scores, number, overlap, least], attrs, is_exact=True)


@quick
@given(st.data(), st.sampled_from(("float32", "float16", "float64", "int8", "uint32", "int64")))
def test_products_of_matrices(native: NativeLibrary, tmp_path: Path, data: st.DataObject, dtype: str) -> None:
    found = data.draw(shapes.mutually_broadcastable_shapes(signature="(m?,k),(k,n?)->(m?,n?)", max_side=4, max_dims=3))
    arrays = [data.draw(arrays_of(shape, dtype)) for shape in found.input_shapes]
    check(native, tmp_path, "matmul", arrays, {}, is_exact=not is_float(dtype))


def test_many_axes_are_refused(native: NativeLibrary, tmp_path: Path) -> None:
    array = np.zeros((1,) * 32, np.float32)
    params = [Var("x", TensorType(array.shape, "float32"))]
    function = function_of(OPS["expand_dims"], params, {"axis": (0,)}, "main")[0]
    executable = executable_of(IRModule({"main": function}, ConstantStore()))
    with pytest.raises(NativeError, match="has rank 33; this runtime has at most 32 axes"):
        load_saved(executable, native, tmp_path)


@quick
@given(st.data())
def test_writes_of_slices(native: NativeLibrary, tmp_path: Path, data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(1, 5), min_size=2, max_size=3).map(tuple))
    axis = data.draw(st.integers(1, len(shape) - 1))
    length = data.draw(st.integers(0, shape[axis]))
    is_circular = data.draw(st.booleans())
    low, high = (-9, 12) if is_circular else (0, shape[axis] - length)
    arrays = [
        data.draw(arrays_of(shape, "int16")),
        data.draw(arrays_of((*shape[:axis], length, *shape[axis + 1 :]), "int16")),
        data.draw(positions_of(data.draw(st.sampled_from([(), shape[:1]])), low, high)),
    ]
    attrs = {"axis": axis, "mode": "circular" if is_circular else "linear"}
    check(native, tmp_path, "scatter_slice", arrays, attrs, is_exact=True)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_an_overlap_of_exactly_the_limit_suppresses_no_box(native: NativeLibrary, tmp_path: Path, dtype: str) -> None:
    boxes = np.array([[[0, 0, 4, 4], [0, 0, 4, 2], [0, 0, 4, 3], [4, 4, 0, 0], [8, 8, 9, 9]]], dtype)
    scores = np.array([[[0.9, 0.8, 0.7, 0.9, 0.5]]], dtype)
    limits = [np.array(10), np.array(0.5, dtype), np.array(0.5, dtype)]
    check(native, tmp_path, "nn.non_max_suppression", [boxes, scores, *limits], {}, is_exact=True)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_long_ranges_have_the_bits_of_numpy(native: NativeLibrary, tmp_path: Path, dtype: str) -> None:
    """The product and the sum of each element are rounded."""
    for start, limit, step in ((0.1, 90.0, 0.1), (-3.3, 5.0, 0.007), (5.0, -5.0, -0.3)):
        arrays = [np.asarray(number).astype(to_numpy(dtype)) for number in (start, limit, step)]
        check(native, tmp_path, "range", arrays, {}, is_exact=True)


@pytest.mark.parametrize("method", ["avg", "max"])
def test_a_neighbour_without_weight_counts_as_0_whatever_its_value(
    native: NativeLibrary, tmp_path: Path, method: str
) -> None:
    image = np.ones((1, 1, 3, 3), "float32")
    image[0, 0, :, 2] = [np.nan, np.inf, -np.inf]
    # The samples lie on pixels of the first two columns: the third column has no weight.
    rois, batches = np.array([[0, 0, 2, 2]], "float32"), np.zeros(1, "int64")
    attrs = {"size": (2, 2), "samples": 1, "method": method}
    operands = (image, rois, batches)
    params = [Var(f"x{index}", TensorType(array.shape, array.dtype.name)) for index, array in enumerate(operands)]
    module = IRModule({"main": function_of(OPS["nn.roi_align"], params, attrs, "main")[0]}, ConstantStore())
    (expected,) = evaluate_function(module, "main", operands)
    np.testing.assert_array_equal(expected, np.ones((1, 1, 2, 2), "float32"))
    (found,) = load_saved(executable_of(module), native, tmp_path)["main"](*operands)
    np.testing.assert_array_equal(found, expected)
