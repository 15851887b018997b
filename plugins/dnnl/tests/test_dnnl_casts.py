"""Casts: bit for bit equal to numpy, over all numbers of small dtypes."""

from __future__ import annotations

import numpy as np
import pytest
from byoc_core.backend.hooks import Rejection, Support
from byoc_core.dtypes import to_numpy
from byoc_core.ir import tensor
from byoc_core.opset.families import KERNELS
from byoc_dnnl.engine import open_engine
from byoc_dnnl.precision import lacks_instructions

from plugins.dnnl.tests.dnnl_region import NDArray, Region

PAIRS = [
    ("float32", "float16"),
    *[("float16", "float32"), ("float16", "bfloat16"), ("bfloat16", "float32"), ("bfloat16", "float16")],
    *[(source, target) for source in ("int8", "uint8") for target in ("float32", "float16", "bfloat16", "int32")],
    ("int32", "float32"),
]


def _need(*dtypes: str) -> None:
    for dtype in dtypes:
        if lacks_instructions(open_engine().isa, dtype):
            pytest.skip(f"oneDNN has no instructions for {dtype} here")


def _numbers(dtype: str) -> NDArray:
    """Return all numbers of one or two bytes; of four bytes, the two-byte numbers, and arbitrary numbers."""
    bits = to_numpy(dtype).itemsize * 8
    if bits < 32:
        return np.arange(2**bits, dtype=f"uint{bits}").view(to_numpy(dtype))
    arbitrary = np.random.default_rng(1).integers(0, 2**32, 4096, np.uint32).view(to_numpy(dtype))
    halves = np.arange(2**16, dtype=np.uint16).view(np.float16)
    if dtype == "int32":
        return np.concatenate([arbitrary, np.arange(-(2**15), 2**15, dtype=np.int32) << 9])
    between = (halves[:-1].astype(np.float32) + halves[1:]) / 2  # ties
    return np.concatenate([arbitrary, halves.astype(np.float32), between])


def _region(source: str, target: str, size: int) -> Region:
    region = Region()
    result = region.builder.emit("cast", region.builder.param("x", tensor((size,), source)), dtype=target)
    assert not isinstance(result, tuple)
    return region.finish(result)


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_numbers_are_those_of_the_reference(source: str, target: str) -> None:
    _need(source, target)
    with np.errstate(all="ignore"):
        x = _numbers(source)
        x = x[~np.isnan(x.astype(np.float64))]
        expected = KERNELS["cast"](x, dtype=target)
    region = _region(source, target, x.size)
    assert isinstance(region.judge(region.function.bindings[0]), Support)
    (found,) = region.run(x)
    assert found.tobytes() == expected.tobytes()
    assert "cast  " in region.source


@pytest.mark.parametrize("target", ["float16"])
def test_nan_stays_nan(target: str) -> None:
    _need(target)
    x = np.array([np.nan, -np.nan, 1], np.float32)
    assert np.isnan(_region("float32", target, 3).run(x)[0]).tolist() == [True, True, False]


@pytest.mark.parametrize(
    ("source", "target", "text"),
    [
        ("float32", "int32", "oneDNN rounds and saturates"),
        ("int8", "uint8", "oneDNN rounds and saturates"),
        ("float32", "bfloat16", "oneDNN flushes subnormal bfloat16 numbers to 0"),
        ("int32", "float16", "oneDNN does not convert int32 to float16"),
    ],
)
def test_refusals(source: str, target: str, text: str) -> None:
    _need(source, target)
    region = _region(source, target, 3)
    answer = region.judge(region.function.bindings[0])
    assert isinstance(answer, Rejection)
    assert answer.text == f"`cast`: {text}"
