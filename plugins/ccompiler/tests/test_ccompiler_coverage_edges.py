"""What the canonical cases do not show: symbolic sizes, empty axes, indices of every kind, NaN, updates that meet."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from byoc_core.dims import DimExpr, evaluate, solve_symbol
from byoc_core.dtypes import to_numpy
from byoc_core.errors import ExecutionError
from byoc_core.ir import Function, TensorType, tensor

NDArray = npt.NDArray[Any]
Entry = tuple[str, tuple[TensorType, ...], dict[str, Any], list[tuple[NDArray, ...]]]


def _floats(*shape: int) -> NDArray:
    return np.random.default_rng(3).standard_normal(shape).astype(np.float32)


def _wild(*shape: int) -> NDArray:
    """Gives floats of few values, zeros of both signs, infinities and NaN among them."""
    values = np.array([0.0, -0.0, 1.0, -1.0, 2.0, np.inf, -np.inf, np.nan], np.float32)
    return np.random.default_rng(4).choice(values, shape)


def _ints(dtype: str, values: object) -> NDArray:
    return np.array(values, dtype)


F, I64 = "float32", "int64"
LSTM = (tensor(("t", "b", 3)), tensor((2, 16, 3)), tensor((2, 16, 4)), tensor((2, 32)), *[tensor((2, "b", 4))] * 2)
RESIZES = [
    {"method": method, "coordinates": coordinates, **more}
    for method, more in (
        ("nearest", {"rounding": "half_down"}),
        ("nearest", {"rounding": "half_up"}),
        ("nearest", {"rounding": "floor"}),
        ("nearest", {"rounding": "ceil"}),
        ("linear", {}),
        ("cubic", {"cubic_coefficient": -0.5}),
        ("cubic", {"exclude_outside": True}),
    )
    for coordinates in (
        "half_pixel",
        "half_pixel_symmetric",
        "half_pixel_or_first",
        "half_pixel_for_nearest",
        "align_corners",
        "asymmetric",
    )
]
ENTRIES: list[Entry] = [
    # Symbolic sizes, empty ones among them.
    ("reshape", (tensor(("n", 4)),), {"shape": ("n*2", 2)}, [(_floats(n, 4),) for n in (0, 1, 3)]),
    ("squeeze", (tensor(("n", 4)),), {"axis": (0,)}, [(_floats(1, 4),)]),
    ("concat", (tensor((2, "n")), tensor((2, "m"))), {"axis": 1}, [(_floats(2, 3), _floats(2, m)) for m in (0, 5)]),
    ("stack", (tensor(("n",)), tensor(("n",))), {"axis": -1}, [(_floats(n), _floats(n)) for n in (0, 7)]),
    ("split", (tensor(("n + 2", 3)),), {"sections": ("n", 2), "axis": 0}, [(_floats(n + 2, 3),) for n in (0, 5)]),
    (
        "strided_slice",
        (tensor(("n", "m")),),
        {"axes": (0, 1), "begin": (-2, 2**62), "end": (2**62, -(2**62)), "strides": (1, -2)},
        [(_floats(n, m),) for n, m in ((0, 0), (1, 1), (5, 6))],
    ),
    (
        "strided_slice",
        (tensor(("n",)),),
        {"axes": (0,), "begin": ("n//2",), "end": ("n",), "strides": (1,)},
        [(_floats(n),) for n in (0, 1, 7)],
    ),
    ("nn.pad", (tensor((2, "n")),), {"pad_width": (0, 1, 2, 0), "pad_value": 3.5}, [(_floats(2, n),) for n in (0, 3)]),
    *(
        (
            "nn.border_pad",
            (tensor((2, "n")),),
            {"pad_width": (1, 0, 3, 4), "mode": mode},
            [(_floats(2, n),) for n in (1, 2, 5)],
        )
        for mode in ("edge", "wrap", "reflect")
    ),
    ("tile", (tensor(("n", 3)),), {"repeats": (2, "n")}, [(_floats(n, 3),) for n in (0, 2)]),
    ("flip", (tensor(("n", 3)),), {"axis": 0}, [(_floats(n, 3),) for n in (0, 1, 4)]),
    ("roll", (tensor(("n", 3)),), {"shift": (-5, 4), "axis": (0, 1)}, [(_floats(n, 3),) for n in (0, 1, 4)]),
    ("roll", (tensor(("n", 3)),), {"shift": (2,), "axis": (0,)}, [(_floats(n, 3),) for n in (0, 1, 4)]),
    *(
        (
            "trilu",
            (tensor(("b", "n", "m")),),
            {"k": k, "upper": upper},
            [(_floats(2, n, m),) for n, m in ((0, 3), (4, 3), (3, 5))],
        )
        for k in (-7, -1, 0, 2, 9)
        for upper in (True, False)
    ),
    *(
        (name, (tensor((2, "4*c", "2*h", "w*2")),), {"block_size": 2, "mode": mode}, [(_floats(2, 4, 6, 2),)])
        for name in ("depth_to_space", "space_to_depth")
        for mode in ("DCR", "CRD")
    ),
    *(
        (
            "reverse_sequence",
            (tensor((3, "t", 2)), tensor((3,), dtype)),
            {"batch_axis": 0, "seq_axis": 1},
            [(_floats(3, 4, 2), _ints(dtype, [0, 3, 4]))],
        )
        for dtype in ("int32", "uint64", "int8")
    ),
    (
        "reverse_sequence",
        (tensor(("t", 3, 2)), tensor((3,), I64)),
        {"batch_axis": 1, "seq_axis": 0},
        [(_floats(4, 3, 2), _ints(I64, [1, 2, 4]))],
    ),
    ("shape_of", (tensor(("n", 3, "m")),), {}, [(_floats(2, 3, 0),)]),
    ("size", (tensor(("n", 3, "m")),), {}, [(_floats(2, 3, 4),)]),
    # Indices: negative, unsigned, none at all, limited.
    *(
        (
            "take",
            (tensor((2, "n", 3)), tensor(("k",), dtype)),
            {"axis": 1},
            [(_floats(2, 4, 3), _ints(dtype, v)) for v in ([], [3, 0, 3])],
        )
        for dtype in ("int8", "int32", "uint8", "uint64")
    ),
    ("take", (tensor((4,)), tensor((3,), I64)), {"axis": 0}, [(_floats(4), _ints(I64, [-4, -1, 3]))]),
    *(
        (
            "take",
            (tensor((2, "n")), tensor(("k",), dtype)),
            {"axis": 1, "mode": "clip"},
            [(_floats(2, 4), _ints(dtype, values)), (_floats(2, 0), _ints(dtype, []))],
        )
        for dtype, values in ((I64, [-9, 2, 2**62]), ("uint64", [0, 2**63 + 5, 3]), ("int8", [-128, 127]))
    ),
    (
        "gather_elements",
        (tensor(("n", "m")), tensor(("k", "j"), "int32")),
        {"axis": 0},
        [(_floats(3, 4), _ints("int32", [[-3, 2, 0], [1, -1, -2]]))],
    ),
    (
        "gather_nd",
        (tensor(("b", 3, "n", 2)), tensor(("b", "k", 2), I64)),
        {"batch_dims": 1},
        [(_floats(2, 3, 4, 2), _ints(I64, [[[-1, 0], [2, -4]], [[0, 3], [1, 1]]]))],
    ),
    *(
        (
            "one_hot",
            (tensor(("n", 2), dtype), tensor(()), tensor(())),
            {"depth": 3, "axis": axis},
            [(_ints(dtype, values), np.float32(5).reshape(()), np.float32(-1).reshape(()))],
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
            [(x, _ints(I64, [[0, 1, -1], [0, 1, 2], [0, 0, 2]]), y)],
        )
        for dtype, x, y in (
            (F, _wild(3, 3), _wild(3, 3)[::-1].copy()),
            ("int8", _ints("int8", [[100, -100, 3]] * 3), _ints("int8", [[100, -100, 2]] * 3)),
            ("bool", _ints("bool", [[1, 0, 1]] * 3), _ints("bool", [[0, 1, 1]] * 3)),
        )
        for reduction in ("update", "add", "mul", "min", "max")
    ),
    *(
        (
            "scatter_nd",
            (tensor((3, "n")), tensor(("k", 1), "int32"), tensor(("k", "n"))),
            {"reduction": reduction},
            [(_wild(3, 5), _ints("int32", [[1], [-2], [1], [0]]), _wild(4, 5))],
        )
        for reduction in ("update", "add", "mul", "min", "max")
    ),
    *(
        (
            "scatter_slice",
            (tensor(("b", "n", 2)), tensor(("b", "m", 2)), tensor(starts, dtype)),
            {"axis": 1, "mode": mode},
            [(_floats(2, 5, 2), _floats(2, m, 2), _ints(dtype, values)) for m in (0, 3)],
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
        (name, (tensor(("n", "m")),), {"axis": axis, "descending": descending}, [(_wild(n, 9),) for n in (0, 1, 40)])
        for name in ("sort", "argsort")
        for axis in (0, 1)
        for descending in (False, True)
    ),
    *(
        (
            "topk",
            (tensor((2, "m")),),
            {"k": k, "largest": largest, "sorted": in_order},
            [(_wild(2, m),) for m in (5, 33)],
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
            [(_wild(n, 7),) for n in (1, 30)],
        )
        for name in ("argmin", "argmax")
        for axis in (0, 1)
        for last in (False, True)
    ),
    *(
        (name, (tensor(("n", 3, "m"), dtype),), {"axis": 1, "exclusive": exclusive, "reverse": reverse}, [(x,)])
        for name in ("cumsum", "cumprod")
        for dtype, x in ((F, _floats(2, 3, 4)), ("int8", _ints("int8", np.arange(24).reshape(2, 3, 4) * 7)))
        for exclusive in (False, True)
        for reverse in (False, True)
    ),
    # Quantisation: halves to even, what does not fit, NaN; parameters for the tensor, an axis, blocks.
    *(
        (
            "quantize",
            (tensor(("n", 5)), tensor(shape), tensor(shape, dtype)),
            {"axis": 1, "block_size": block},
            [
                (
                    np.array([[0.5, 1.5, -2.5, 1e9, np.nan], [-np.inf, np.inf, -0.0, 7, 3]], F),
                    np.full(sizes, 0.5, F),
                    np.full(sizes, 3, dtype),
                )
            ],
        )
        for shape, sizes, block in (((), (), 0), ((5,), (5,), 0), (("n", 3), (2, 3), 2))
        for dtype in ("int8", "uint8", "int16", "uint16")
    ),
    *(
        (
            "dequantize",
            (tensor(("n", 5), dtype), tensor(shape), tensor(shape, dtype)),
            {"axis": 1, "block_size": block},
            [(np.array([[0, 1, 2, 100, 127]] * 2, dtype), _floats(*sizes), np.full(sizes, 3, dtype))],
        )
        for shape, sizes, block in (((), (), 0), ((5,), (5,), 0), (("n", 3), (2, 3), 2))
        for dtype in ("int8", "uint8", "int16", "int32", "int64", "uint64")
    ),
    (
        "quantize",
        (tensor(("n", 5, 2)), tensor((5,)), tensor((5,), "int8")),
        {"axis": 1},
        [(_floats(2, 5, 2), np.full(5, 0.01, F), np.arange(5, dtype="int8"))],
    ),
    # Sums in which letters are missing, come twice, broadcast, or are none.
    *(
        (
            "einsum",
            types,
            {"equation": equation},
            [tuple(_ints("int32", np.arange(np.prod(s)).reshape(s) % 5) for s in shapes)],
        )
        for equation, types, shapes in (
            ("ii->i", (tensor(("n", "n"), "int32"),), [(3, 3)]),
            ("ii", (tensor((3, 3), "int32"),), [(3, 3)]),
            ("ij,ij", (tensor(("n", 4), "int32"), tensor(("n", 4), "int32")), [(3, 4), (3, 4)]),
            (
                "...ij,...jk->...ik",
                (tensor((2, 3, 4), "int32"), tensor((5, 1, 4, 2), "int32")),
                [(2, 3, 4), (5, 1, 4, 2)],
            ),
            (
                "i,j,k->kij",
                (tensor(("n",), "int32"), tensor(("m",), "int32"), tensor((2,), "int32")),
                [(3,), (4,), (2,)],
            ),
            ("ij,kj->ik", (tensor(("n", 4), "int32"), tensor(("m", 4), "int32")), [(3, 4), (2, 4)]),
            ("ji->", (tensor(("n", 4), "int32"),), [(3, 4)]),
            ("b...,b...->b", (tensor((2, 3, 4), "int32"), tensor((2, 3, 4), "int32")), [(2, 3, 4), (2, 3, 4)]),
        )
    ),
    *(
        (
            "nn.resize",
            (tensor((2, "h", "w", 2)),),
            {"axes": (1, 2), "sizes": (5, "2*w"), **attrs},
            [(_floats(2, h, 3, 2),) for h in (4, 5)],
        )
        for attrs in RESIZES
    ),
    *(
        (
            "nn.resize",
            (tensor((2, 3, "w")),),
            {"axes": (2,), "sizes": ("w",), "scales": (1.0,), **attrs},
            [(_wild(2, 3, 4),)],
        )
        for attrs in RESIZES[::5]
    ),
    ("nn.resize", (tensor((2, "w")),), {"axes": (1,), "sizes": (4,)}, [(_floats(2, 0),)]),
    *(
        ("nn.lrn", (tensor(("n", "c", "s")),), {"size": size, "beta": 0.5}, [(_floats(2, c, 3),) for c in (1, 5)])
        for size in (1, 2, 5)
    ),
    *(
        (
            "nn.rotary_embedding",
            (tensor(("b", 2, "s", 7)), *[tensor(("b", "s", 3))] * 2),
            {"interleaved": pairs},
            [(_floats(2, 2, 3, 7), _floats(2, 3, 3), _floats(2, 3, 3))],
        )
        for pairs in (False, True)
    ),
    *(
        (
            "nn.attention",
            (tensor(("b", 4, "s", 5)), tensor(("b", 2, "t", 5)), tensor(("b", 2, "t", 3)), tensor(mask)),
            attrs,
            [(_floats(2, 4, 11, 5), _floats(2, 2, 6, 5), _floats(2, 2, 6, 3), values)],
        )
        for mask, values in (
            (("s", "t"), _floats(11, 6)),
            (("b", 1, 1, "m"), _floats(2, 1, 1, 6)),
            ((4, 1, 1), _floats(4, 1, 1)),
        )
        for attrs in (
            {"scores": "products", "scale": 0.3},
            {"scores": "capped", "softcap": 2.0},
            {"scores": "masked", "causal": True, "offset": 1},
            {"scores": "weights", "causal": True, "offset": -3, "zero_unseen": True},
        )
    ),
    *(
        (
            "nn.lstm",
            (*LSTM, tensor(("b",), "int32")),
            {"direction": "bidirectional"},
            [
                (
                    *(_floats(*s) for s in ((t, 3, 3), (2, 16, 3), (2, 16, 4), (2, 32), (2, 3, 4), (2, 3, 4))),
                    _ints("int32", lengths),
                )
            ],
        )
        for t, lengths in ((5, [5, 0, 2]), (0, [0, 0, 0]))
    ),
    *(
        (
            "nn.gru",
            (tensor(("t", "b", 3)), tensor((1, 12, 3)), tensor((1, 12, 4)), tensor((1, 24)), tensor((1, "b", 4))),
            {"direction": direction, "linear_before_reset": linear},
            [tuple(_floats(*s) for s in ((5, 2, 3), (1, 12, 3), (1, 12, 4), (1, 24), (1, 2, 4)))],
        )
        for direction in ("forward", "reverse")
        for linear in (False, True)
    ),
    (
        "nn.rnn",
        (tensor(("t", "b", 3)), tensor((1, 4, 3)), tensor((1, 4, 4)), tensor((1, 8)), tensor((1, "b", 4))),
        {"direction": "reverse", "activation": "relu"},
        [tuple(_floats(*s) for s in ((5, 2, 3), (1, 4, 3), (1, 4, 4), (1, 8), (1, 2, 4)))],
    ),
]


def _reference(function: Function, inputs: tuple[NDArray, ...], *, wide: bool) -> tuple[NDArray, ...]:
    """Gives what the reference kernel computes, sizes in attributes being those of the inputs."""
    (binding,) = function.bindings
    sizes: dict[str, int] = {}
    for param, array in zip(function.params, inputs, strict=True):
        assert isinstance(param.type, TensorType)
        for dim, size in zip(param.type.shape or (), array.shape, strict=True):
            sizes.update([solve_symbol(dim, size) or ("", 0)])

    def known(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(known, value))
        return evaluate(value, sizes) if isinstance(value, DimExpr) else value

    given = [array.astype(np.float64) if wide and array.dtype.kind == "f" else array for array in inputs]
    assert binding.op.kernel is not None
    made = binding.op.kernel(*given, **{name: known(value) for name, value in binding.attrs.items()})
    return made if isinstance(made, tuple) else (made,)


COMPUTED = ("einsum", "nn.resize", "nn.lrn", "nn.rotary_embedding", "nn.attention", "nn.lstm", "nn.gru", "nn.rnn")
UNIT = 2.0**-24
"""The unit roundoff of float32."""


@pytest.fixture(scope="module")
def compiled(module_bench: Any) -> Any:
    """Gives all functions compiled at once, by their place in the table, and those that fail."""
    for name, types, attrs, _ in ENTRIES:
        module_bench.op(name, types, **attrs)
    for name, types, attrs, _, _ in FAILING:
        module_bench.op(name, types, **attrs)
    return module_bench


@pytest.mark.parametrize("index", range(len(ENTRIES)), ids=lambda index: f"{index}-{ENTRIES[index][0]}")
def test_results_are_those_of_the_reference(compiled: Any, index: int) -> None:
    """The same bits but for sums: these are within tens of roundings of the reference in float64."""
    name, _, _, calls = ENTRIES[index]
    function = compiled.functions[index]
    for inputs in calls:
        made = compiled.run(function, *inputs)
        expected = _reference(function, inputs, wide=name in COMPUTED)
        for found, right in zip(made, expected, strict=True):
            assert found.shape == right.shape
            if name in COMPUTED and found.dtype.kind == "f":
                np.testing.assert_array_equal(np.isfinite(found), np.isfinite(right))
                finite = np.isfinite(right)
                largest = max(1.0, float(np.abs(right[finite]).max(initial=0)))
                assert np.all(np.abs(found[finite] - right[finite]) <= 64 * UNIT * largest)
                np.testing.assert_array_equal(found[~finite], right[~finite])
            else:
                assert found.dtype == right.dtype
                np.testing.assert_array_equal(found, right)
                if found.dtype.kind == "f":
                    numbers = ~np.isnan(right)
                    np.testing.assert_array_equal(np.signbit(found[numbers]), np.signbit(right[numbers]))


FAILING: list[tuple[str, tuple[TensorType, ...], dict[str, Any], tuple[NDArray, ...], str]] = [
    (
        "take",
        (tensor((2, "n")), tensor(("k",), I64)),
        {"axis": 1},
        (_floats(2, 4), _ints(I64, [0, -5, 9])),
        "op `take`: an index lies outside axis 1; got -5, expected -4 to 3",
    ),
    (
        "take",
        (tensor((4,)), tensor((1,), "uint64")),
        {"axis": 0},
        (_floats(4), _ints("uint64", [2**64 - 1])),
        "op `take`: an index lies outside axis 0; got 18446744073709551615, expected -4 to 3",
    ),
    *(
        (
            "take",
            (tensor(("n",)), tensor((1,), "int8")),
            {"axis": 0, "mode": mode},
            (_floats(0), _ints("int8", [1])),
            "op `take`: an index lies outside axis 0; got 1, expected no index at all: the axis is empty",
        )
        for mode in ("fast", "clip")
    ),
    (
        "gather_elements",
        (tensor((3, 2)), tensor((1, 2), I64)),
        {"axis": 0},
        (_floats(3, 2), _ints(I64, [[0, 3]])),
        "op `gather_elements`: an index lies outside axis 0; got 3, expected -3 to 2",
    ),
    (
        "gather_nd",
        (tensor((3, "n")), tensor((2, 2), "int32")),
        {},
        (_floats(3, 2), _ints("int32", [[0, 2], [0, 0]])),
        "op `gather_nd`: an index lies outside axis 1; got 2, expected -2 to 1",
    ),
    (
        "scatter_elements",
        (tensor((3,)), tensor((1,), I64), tensor((1,))),
        {"axis": 0},
        (_floats(3), _ints(I64, [-4]), _floats(1)),
        "op `scatter_elements`: an index lies outside axis 0; got -4, expected -3 to 2",
    ),
    (
        "scatter_nd",
        (tensor((3, 2)), tensor((1, 1), I64), tensor((1, 2))),
        {},
        (_floats(3, 2), _ints(I64, [[3]]), _floats(1, 2)),
        "op `scatter_nd`: an index lies outside axis 0; got 3, expected -3 to 2",
    ),
    (
        "scatter_slice",
        (tensor((2, 5)), tensor((2, "m")), tensor((), I64)),
        {"axis": 1},
        (_floats(2, 5), _floats(2, 3), _ints(I64, 3)),
        "op `scatter_slice`: the updates do not fit axis 1 from a start on; got 3, expected 0 to 2",
    ),
    (
        "reverse_sequence",
        (tensor((2, 5)), tensor((2,), I64)),
        {},
        (_floats(2, 5), _ints(I64, [5, 6])),
        "op `reverse_sequence`: a length does not fit axis 1; got 6, expected 0 to 5",
    ),
    (
        "nn.rnn",
        (tensor((5, 2, 3)), tensor((1, 4, 3)), tensor((1, 4, 4)), tensor((1, 8)), tensor((1, 2, 4)), tensor((2,), I64)),
        {},
        (*[_floats(*s) for s in ((5, 2, 3), (1, 4, 3), (1, 4, 4), (1, 8), (1, 2, 4))], _ints(I64, [5, -1])),
        "op `nn.rnn`: a length does not fit the steps; got -1, expected 0 to 5",
    ),
    # Sizes that symbols hid from the type rules.
    (
        "squeeze",
        (tensor(("n", 2)),),
        {"axis": (0,)},
        (_floats(3, 2),),
        "op `squeeze`, operand `x`: wrong size of axis 0; got 3, expected 1",
    ),
    (
        "topk",
        (tensor((2, "n")),),
        {"k": 3},
        (_floats(2, 2),),
        "op `topk`: axis 1 of operand `x` is too small; got 2, expected 3 or more",
    ),
    (
        "argmax",
        (tensor((2, "n")),),
        {"axis": 1},
        (_floats(2, 0),),
        "op `argmax`: axis 1 of operand `x` is too small; got 0, expected 1 or more",
    ),
    (
        "nn.border_pad",
        (tensor(("n",)),),
        {"pad_width": (1, 1), "mode": "edge"},
        (_floats(0),),
        "op `nn.border_pad`: axis 0 of operand `x` is too small; got 0, expected 1 or more",
    ),
    (
        "depth_to_space",
        (tensor((1, "c", 1, 1)),),
        {"block_size": 2},
        (_floats(1, 6, 1, 1),),
        "op `depth_to_space`, operand `x`: wrong size of axis 0; got 6, expected 4",
    ),
]


@pytest.mark.parametrize("index", range(len(FAILING)), ids=lambda index: f"{index}-{FAILING[index][0]}")
def test_what_means_no_element_is_an_error_that_names_it(compiled: Any, index: int) -> None:
    *_, inputs, text = FAILING[index]
    function = compiled.functions[len(ENTRIES) + index]
    with pytest.raises(ExecutionError) as caught:
        compiled.run(function, *inputs)
    assert str(caught.value) == f"function `{function.name}`, {text}"


def test_a_function_that_failed_works_again(compiled: Any) -> None:
    """The memory of the call that failed is freed, its message is of no later call."""
    index = next(place for place, entry in enumerate(FAILING) if entry[0] == "take")
    function = compiled.functions[len(ENTRIES) + index]
    x = _floats(2, 4)
    for _ in range(3):
        with pytest.raises(ExecutionError):
            compiled.run(function, x, _ints(I64, [7]))
        np.testing.assert_array_equal(compiled.run(function, x, _ints(I64, [-1]))[0], x[:, [-1]])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_scattered_halves_are_added_in_float32_and_rounded_once(bench: Any, dtype: str) -> None:
    types = (tensor((2,), dtype), tensor((3,), I64), tensor((3,), dtype))
    function = bench.op("scatter_elements", types, reduction="add")
    x, updates = np.array([1, 1], to_numpy(dtype)), np.array([2.0**-11, 2.0**-11, 1], to_numpy(dtype))
    inputs = (x, _ints(I64, [0, 0, 1]), updates)
    outputs = [np.zeros(2, to_numpy(dtype))]
    bench.module.get_function(function.name)(*inputs, *outputs)
    expected = (1 + np.array([2.0**-10, 1.0], np.float32)).astype(to_numpy(dtype))
    np.testing.assert_array_equal(outputs[0], expected)
