"""Computing ops beyond the canonical cases: symbolic sizes, all modes, infinities and NaN."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from byoc_core.ir import TensorType, tensor

from plugins.ccompiler.tests.bench import Bench
from plugins.ccompiler.tests.edge_values import floats, ints, wild

NDArray = npt.NDArray[Any]
Entry = tuple[str, tuple[TensorType, ...], Mapping[str, Any], Sequence[tuple[NDArray, ...]]]
F = "float32"
UNIT = 2.0**-24
"""The unit roundoff of float32."""


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
            [(np.array([[0, 1, 2, 100, 127]] * 2, dtype), floats(*sizes), np.full(sizes, 3, dtype))],
        )
        for shape, sizes, block in (((), (), 0), ((5,), (5,), 0), (("n", 3), (2, 3), 2))
        for dtype in ("int8", "uint8", "int16", "int32", "int64", "uint64")
    ),
    (
        "quantize",
        (tensor(("n", 5, 2)), tensor((5,)), tensor((5,), "int8")),
        {"axis": 1},
        [(floats(2, 5, 2), np.full(5, 0.01, F), np.arange(5, dtype="int8"))],
    ),
    # Sums in which letters are missing, come twice, broadcast, or are none.
    *(
        (
            "einsum",
            types,
            {"equation": equation},
            [tuple(ints("int32", np.arange(np.prod(s)).reshape(s) % 5) for s in shapes)],
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
            ("i->i", (tensor((0,), "int32"),), [(0,)]),
            ("ij->j", (tensor((3, 0), "int32"),), [(3, 0)]),
            ("ij->i", (tensor((3, 0), "int32"),), [(3, 0)]),
            ("b...,b...->b", (tensor((2, 3, 4), "int32"), tensor((2, 3, 4), "int32")), [(2, 3, 4), (2, 3, 4)]),
        )
    ),
    *(
        (
            "nn.resize",
            (tensor((2, "h", "w", 2)),),
            {"axes": (1, 2), "sizes": (5, "2*w"), **attrs},
            [(floats(2, h, 3, 2),) for h in (4, 5)],
        )
        for attrs in RESIZES
    ),
    *(
        (
            "nn.resize",
            (tensor((2, 3, "w")),),
            {"axes": (2,), "sizes": ("w",), "scales": (1.0,), **attrs},
            [(wild(2, 3, 4),)],
        )
        for attrs in RESIZES[::5]
    ),
    ("nn.resize", (tensor((2, "w")),), {"axes": (1,), "sizes": (4,)}, [(floats(2, 0),)]),
    *(
        ("nn.lrn", (tensor(("n", "c", "s")),), {"size": size, "beta": 0.5}, [(floats(2, c, 3),) for c in (1, 5)])
        for size in (1, 2, 5)
    ),
    *(
        (
            "nn.lrn",
            (tensor(("n", "s", "c")),),
            {"size": size, "alpha": 0.5, "axis": axis},
            [(wild(2, 3, c),) for c in (1, 5, 40)],
        )
        for size, axis in ((1, 2), (2, -1), (5, 2), (8, 2), (33, 2), (4, 0))
    ),
    *(
        (
            "nn.rotary_embedding",
            (tensor(("b", 2, "s", 7)), *[tensor(("b", "s", 3))] * 2),
            {"interleaved": pairs},
            [(floats(2, 2, 3, 7), floats(2, 3, 3), floats(2, 3, 3))],
        )
        for pairs in (False, True)
    ),
    *(
        (
            "nn.attention",
            (tensor(("b", 4, "s", 5)), tensor(("b", 2, "t", 5)), tensor(("b", 2, "t", 3)), tensor(mask)),
            attrs,
            [(floats(2, 4, 11, 5), floats(2, 2, 6, 5), floats(2, 2, 6, 3), values)],
        )
        for mask, values in (
            (("s", "t"), floats(11, 6)),
            (("b", 1, 1, "m"), floats(2, 1, 1, 6)),
            ((4, 1, 1), floats(4, 1, 1)),
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
                    *(floats(*s) for s in ((t, 3, 3), (2, 16, 3), (2, 16, 4), (2, 32), (2, 3, 4), (2, 3, 4))),
                    ints("int32", lengths),
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
            [tuple(floats(*s) for s in ((5, 2, 3), (1, 12, 3), (1, 12, 4), (1, 24), (1, 2, 4)))],
        )
        for direction in ("forward", "reverse")
        for linear in (False, True)
    ),
    (
        "nn.rnn",
        (tensor(("t", "b", 3)), tensor((1, 4, 3)), tensor((1, 4, 4)), tensor((1, 8)), tensor((1, "b", 4))),
        {"direction": "reverse", "activation": "relu"},
        [tuple(floats(*s) for s in ((5, 2, 3), (1, 4, 3), (1, 4, 4), (1, 8), (1, 2, 4)))],
    ),
]


@pytest.fixture(scope="module")
def compiled(module_bench: Bench) -> Bench:
    """Return all functions, by their place in the table, compiled at once."""
    for name, types, attrs, _ in ENTRIES:
        module_bench.op(name, types, **attrs)
    return module_bench


@pytest.mark.parametrize("index", range(len(ENTRIES)), ids=lambda index: f"{index}-{ENTRIES[index][0]}")
def test_results_are_near_those_of_the_reference_in_float64(compiled: Bench, index: int) -> None:
    """Integers are the same; floats are within tens of roundings of numbers as large as the largest."""
    name, _, _, calls = ENTRIES[index]
    function = compiled.functions[index]
    for inputs in calls:
        expected = compiled.reference(function, *inputs, wide="quantize" not in name)
        for found, right in zip(compiled.run(function, *inputs), expected, strict=True):
            assert found.shape == right.shape
            finite = np.isfinite(right)
            np.testing.assert_array_equal(found[~finite], right[~finite])
            largest = max(1.0, float(np.abs(right[finite]).max(initial=0)))
            bound = 64 * UNIT * largest if found.dtype.kind == "f" and "quantize" not in name else 0
            error = np.abs(found[finite].astype(np.float64) - right[finite].astype(np.float64))
            assert np.all(error <= bound)
