"""Moves, gathers, scatters and orders at the edges: symbolic sizes, empty axes, all kinds of indices, NaN."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from byoc_core.dtypes import to_numpy
from byoc_core.ir import TensorType, tensor

from plugins.ccompiler.tests.bench import Bench
from plugins.ccompiler.tests.edge_values import floats, ints, wild

NDArray = npt.NDArray[Any]
Entry = tuple[str, tuple[TensorType, ...], Mapping[str, Any], Sequence[tuple[NDArray, ...]]]
F, I64 = "float32", "int64"


ENTRIES: list[Entry] = [
    # Symbolic sizes, empty ones among them.
    ("reshape", (tensor(("n", 4)),), {"shape": ("n*2", 2)}, [(floats(n, 4),) for n in (0, 1, 3)]),
    ("squeeze", (tensor(("n", 4)),), {"axis": (0,)}, [(floats(1, 4),)]),
    ("concat", (tensor((2, "n")), tensor((2, "m"))), {"axis": 1}, [(floats(2, 3), floats(2, m)) for m in (0, 5)]),
    ("stack", (tensor(("n",)), tensor(("n",))), {"axis": -1}, [(floats(n), floats(n)) for n in (0, 7)]),
    ("split", (tensor(("n + 2", 3)),), {"sections": ("n", 2), "axis": 0}, [(floats(n + 2, 3),) for n in (0, 5)]),
    (
        "strided_slice",
        (tensor(("n", "m")),),
        {"axes": (0, 1), "begin": (-2, 2**62), "end": (2**62, -(2**62)), "strides": (1, -2)},
        [(floats(n, m),) for n, m in ((0, 0), (1, 1), (5, 6))],
    ),
    (
        "strided_slice",
        (tensor(("n",)),),
        {"axes": (0,), "begin": ("n//2",), "end": ("n",), "strides": (1,)},
        [(floats(n),) for n in (0, 1, 7)],
    ),
    ("nn.pad", (tensor((2, "n")),), {"pad_width": (0, 1, 2, 0), "pad_value": 3.5}, [(floats(2, n),) for n in (0, 3)]),
    *(
        (
            "nn.border_pad",
            (tensor((2, "n")),),
            {"pad_width": (1, 0, 3, 4), "mode": mode},
            [(floats(2, n),) for n in (1, 2, 5)],
        )
        for mode in ("edge", "wrap", "reflect")
    ),
    ("tile", (tensor(("n", 3)),), {"repeats": (2, "n")}, [(floats(n, 3),) for n in (0, 2)]),
    ("flip", (tensor(("n", 3)),), {"axis": 0}, [(floats(n, 3),) for n in (0, 1, 4)]),
    ("roll", (tensor(("n", 3)),), {"shift": (-5, 4), "axis": (0, 1)}, [(floats(n, 3),) for n in (0, 1, 4)]),
    ("roll", (tensor(("n", 3)),), {"shift": (2,), "axis": (0,)}, [(floats(n, 3),) for n in (0, 1, 4)]),
    *(
        (
            "trilu",
            (tensor(("b", "n", "m")),),
            {"k": k, "upper": upper},
            [(floats(2, n, m),) for n, m in ((0, 3), (4, 3), (3, 5))],
        )
        for k in (-7, -1, 0, 2, 9)
        for upper in (True, False)
    ),
    *(
        (name, (tensor((2, "4*c", "2*h", "w*2")),), {"block_size": 2, "mode": mode}, [(floats(2, 4, 6, 2),)])
        for name in ("depth_to_space", "space_to_depth")
        for mode in ("DCR", "CRD")
    ),
    *(
        (
            "reverse_sequence",
            (tensor((3, "t", 2)), tensor((3,), dtype)),
            {"batch_axis": 0, "seq_axis": 1},
            [(floats(3, 4, 2), ints(dtype, [0, 3, 4]))],
        )
        for dtype in ("int32", "uint64", "int8")
    ),
    (
        "reverse_sequence",
        (tensor(("t", 3, 2)), tensor((3,), I64)),
        {"batch_axis": 1, "seq_axis": 0},
        [(floats(4, 3, 2), ints(I64, [1, 2, 4]))],
    ),
    ("shape_of", (tensor(("n", 3, "m")),), {}, [(floats(2, 3, 0),)]),
    ("size", (tensor(("n", 3, "m")),), {}, [(floats(2, 3, 4),)]),
    # Indices: negative, unsigned, none at all, limited.
    *(
        (
            "take",
            (tensor((2, "n", 3)), tensor(("k",), dtype)),
            {"axis": 1},
            [(floats(2, 4, 3), ints(dtype, v)) for v in ([], [3, 0, 3])],
        )
        for dtype in ("int8", "int32", "uint8", "uint64")
    ),
    ("take", (tensor((4,)), tensor((3,), I64)), {"axis": 0}, [(floats(4), ints(I64, [-4, -1, 3]))]),
    *(
        (
            "take",
            (tensor((2, "n")), tensor(("k",), dtype)),
            {"axis": 1, "mode": "clip"},
            [(floats(2, 4), ints(dtype, values)), (floats(2, 0), ints(dtype, []))],
        )
        for dtype, values in ((I64, [-9, 2, 2**62]), ("uint64", [0, 2**63 + 5, 3]), ("int8", [-128, 127]))
    ),
    (
        "gather_elements",
        (tensor(("n", "m")), tensor(("k", "j"), "int32")),
        {"axis": 0},
        [(floats(3, 4), ints("int32", [[-3, 2, 0], [1, -1, -2]]))],
    ),
    (
        "gather_nd",
        (tensor(("b", 3, "n", 2)), tensor(("b", "k", 2), I64)),
        {"batch_dims": 1},
        [(floats(2, 3, 4, 2), ints(I64, [[[-1, 0], [2, -4]], [[0, 3], [1, 1]]]))],
    ),
    *(
        (
            "one_hot",
            (tensor(("n", 2), dtype), tensor(()), tensor(())),
            {"depth": 3, "axis": axis},
            [(ints(dtype, values), np.array(5, F), np.array(-1, F))],
        )
        for dtype, values in ((I64, [[-1, 0], [3, -4], [2, -3]]), ("uint64", [[0, 2], [2**64 - 1, 1]]))
        for axis in (0, 1, -1)
    ),
    # Updates that meet, and NaN in them and in what is there.
    *(
        (
            "scatter_elements",
            (tensor(("n", "m"), dtype), tensor(("k", "m"), I64), tensor(("k", "m"), dtype)),
            {"axis": 0, "reduction": reduction},
            [(x, ints(I64, [[0, 1, -1], [0, 1, 2], [0, 0, 2]]), y)],
        )
        for dtype, x, y in (
            (F, wild(3, 3), wild(3, 3)[::-1].copy()),
            ("int8", ints("int8", [[100, -100, 3]] * 3), ints("int8", [[100, -100, 2]] * 3)),
            ("bool", ints("bool", [[1, 0, 1]] * 3), ints("bool", [[0, 1, 1]] * 3)),
        )
        for reduction in ("update", "add", "mul", "min", "max")
    ),
    *(
        (
            "scatter_nd",
            (tensor((3, "n")), tensor(("k", 1), "int32"), tensor(("k", "n"))),
            {"reduction": reduction},
            [(wild(3, 5), ints("int32", [[1], [-2], [1], [0]]), wild(4, 5))],
        )
        for reduction in ("update", "add", "mul", "min", "max")
    ),
    *(
        (
            "scatter_slice",
            (tensor(("b", "n", 2)), tensor(("b", "m", 2)), tensor(starts, dtype)),
            {"axis": 1, "mode": mode},
            [(floats(2, 5, 2), floats(2, m, 2), ints(dtype, values)) for m in (0, 3)],
        )
        for starts, dtype, values, mode in (
            ((), I64, 2, "linear"),
            (("b",), "int32", [0, 1], "linear"),
            ((), I64, -7, "circular"),
            (("b",), "uint64", [4, 2**64 - 1], "circular"),
        )
    ),
    # Order: NaN, zeros of both signs, equal elements.
    *(
        (name, (tensor(("n", "m")),), {"axis": axis, "descending": descending}, [(wild(n, 9),) for n in (0, 1, 40)])
        for name in ("sort", "argsort")
        for axis in (0, 1)
        for descending in (False, True)
    ),
    *(
        (
            "topk",
            (tensor((2, "m")),),
            {"k": k, "largest": largest, "sorted": in_order},
            [(wild(2, m),) for m in (5, 33)],
        )
        for k in (0, 1, 5)
        for largest in (False, True)
        for in_order in (False, True)
    ),
    *(
        (
            name,
            (tensor(("n", "m")),),
            {"axis": axis, "select_last_index": last, "keepdims": last},
            [(wild(n, 7),) for n in (1, 30)],
        )
        for name in ("argmin", "argmax")
        for axis in (0, 1)
        for last in (False, True)
    ),
    *(
        (name, (tensor(("n", 3, "m"), dtype),), {"axis": 1, "exclusive": exclusive, "reverse": reverse}, [(x,)])
        for name in ("cumsum", "cumprod")
        for dtype, x in ((F, floats(2, 3, 4)), ("int8", ints("int8", np.arange(24).reshape(2, 3, 4) * 7)))
        for exclusive in (False, True)
        for reverse in (False, True)
    ),
]


@pytest.fixture(scope="module")
def compiled(module_bench: Bench) -> Bench:
    """Return all functions, by their place in the table, compiled at once."""
    for name, types, attrs, _ in ENTRIES:
        module_bench.op(name, types, **attrs)
    return module_bench


@pytest.mark.parametrize("index", range(len(ENTRIES)), ids=lambda index: f"{index}-{ENTRIES[index][0]}")
def test_results_are_the_bits_of_the_reference(compiled: Bench, index: int) -> None:
    function = compiled.functions[index]
    for inputs in ENTRIES[index][3]:
        expected = compiled.reference(function, *inputs)
        for found, right in zip(compiled.run(function, *inputs), expected, strict=True):
            assert (found.shape, found.dtype) == (right.shape, right.dtype)
            np.testing.assert_array_equal(found, right)
            if found.dtype.kind == "f":
                numbers = ~np.isnan(right)
                np.testing.assert_array_equal(np.signbit(found[numbers]), np.signbit(right[numbers]))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_scattered_halves_are_added_in_float32_and_rounded_once(bench: Bench, dtype: str) -> None:
    types = (tensor((2,), dtype), tensor((3,), I64), tensor((3,), dtype))
    function = bench.op("scatter_elements", types, reduction="add")
    x, updates = np.array([1, 1], to_numpy(dtype)), np.array([2.0**-11, 2.0**-11, 1], to_numpy(dtype))
    inputs = (x, ints(I64, [0, 0, 1]), updates)
    outputs = [np.zeros(2, to_numpy(dtype))]
    bench.module.get_function(function.name)(*inputs, *outputs)
    expected = (1 + np.array([2.0**-10, 1.0], np.float32)).astype(to_numpy(dtype))
    np.testing.assert_array_equal(outputs[0], expected)
