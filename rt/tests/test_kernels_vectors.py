"""Loops with vectors: elementwise ops, choices, conversions and copies of any length have the bits of numpy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import byoc_core
import numpy as np
import numpy.typing as npt
import pytest
from byoc_core import VirtualMachine
from byoc_core.dtypes import to_numpy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rt.tests.runner import NativeLibrary
from rt.tests.saved import assert_same_bits, load_saved

NDArray = npt.NDArray[Any]

REALS, SIGNED = ("float32", "float64"), ("int8", "int16", "int32", "int64")
INTEGERS = (*SIGNED, "uint8", "uint16", "uint32", "uint64")
NUMBERS = (*REALS, *INTEGERS)
BINARY = {
    **dict.fromkeys(("add", "subtract", "multiply", "divide", "maximum", "minimum"), NUMBERS),
    **dict.fromkeys(("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"), NUMBERS),
    **dict.fromkeys(("bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift"), INTEGERS),
    **dict.fromkeys(("logical_and", "logical_or", "logical_xor"), ("bool",)),
    "mod": INTEGERS,
    "nn.prelu": REALS,
}
UNARY = {
    **dict.fromkeys(("negative", "abs", "sign"), (*REALS, *SIGNED)),
    **dict.fromkeys(("floor", "ceil", "round", "sqrt", "isnan", "isinf", "nn.relu"), REALS),
    "bitwise_not": INTEGERS,
    "logical_not": ("bool",),
}
LENGTH = 1100
"""More than a block of repeated elements, and no multiple of any vector."""


def drawn(dtype: str, seed: int, *, is_divisor: bool = False) -> NDArray:
    """Return numbers of all signs, with infinities, NaN and zeros of both signs among floats."""
    rng = np.random.default_rng(seed)
    if dtype == "bool":
        return rng.integers(0, 2, LENGTH).astype(bool)
    values = rng.integers(-9, 10, LENGTH).astype(to_numpy(dtype))
    if dtype in REALS:
        values = values + rng.choice([0, 0.5, -0.25], LENGTH).astype(values.dtype)
        values[::97], values[1::89], values[2::83], values[3::79] = np.inf, -np.inf, np.nan, -0.0
    elif is_divisor:
        values[values == 0] = 1
    return values


def program_of(lines: list[str], params: str, native: NativeLibrary, folder: Path) -> tuple[Any, Any]:
    """Return a function by numpy's kernels, and by the library."""
    names = ", ".join(line.partition(" ")[0] for line in lines)
    body = "\n".join(f"    {line}" for line in lines)
    executable = byoc_core.build(byoc_core.parse(f"@R.function\ndef main({params}):\n{body}\n    return {names}\n"), [])
    return VirtualMachine(executable, machine="python")["main"], load_saved(executable, native, folder)["main"]


@pytest.mark.parametrize("dtype", [*NUMBERS, "bool"])
def test_operands_of_any_length_and_repeated_operands(native: NativeLibrary, tmp_path: Path, dtype: str) -> None:
    binary = [op for op, dtypes in BINARY.items() if dtype in dtypes]
    unary = [op for op, dtypes in UNARY.items() if dtype in dtypes]
    lines = [f"b{i} = R.{op}(x, y)" for i, op in enumerate(binary)]
    lines += [f"r{i} = R.{op}(x, s)" for i, op in enumerate(binary) if op != "nn.prelu"]
    lines += [f"l{i} = R.{op}(s, y)" for i, op in enumerate(binary) if op != "nn.prelu"]
    lines += [f"u{i} = R.{op}(x)" for i, op in enumerate(unary)]
    params = ", ".join(f'{name}: R.Tensor(("{size}",), "{dtype}")' for name, size in (("x", "n"), ("y", "n")))
    python, function = program_of(lines, f'{params}, s: R.Tensor((1,), "{dtype}")', native, tmp_path)
    x, y = drawn(dtype, 1), drawn(dtype, 2, is_divisor=True)
    with np.errstate(all="ignore"):
        for length in (0, 1, 2, 3, 7, 15, 16, 17, 31, 33, 64, 100, 511, 512, 513, LENGTH):
            values = x[:length].copy(), y[:length].copy(), y[5:6].copy()
            assert_same_bits(function(*values), python(*values))


@pytest.mark.parametrize("dtype", ["int8", "float16", "float32", "int64", "complex64", "complex128"])
def test_choices_of_any_length(native: NativeLibrary, tmp_path: Path, dtype: str) -> None:
    params = f'c: R.Tensor(("n",), "bool"), x: R.Tensor(("n",), "{dtype}"), y: R.Tensor(("n",), "{dtype}")'
    lines = ["a = R.where(c, x, y)", "b = R.where(c, y, x)"]
    python, function = program_of(lines, params, native, tmp_path)
    numbers = np.arange(LENGTH).astype(to_numpy(dtype))
    for length in (0, 1, 5, 16, 33, LENGTH):
        values = drawn("bool", length)[:length].copy(), numbers[:length].copy(), -numbers[:length]
        assert_same_bits(function(*values), python(*values))


@pytest.mark.parametrize("source", [*NUMBERS, "bool"])
def test_conversions_of_any_length(native: NativeLibrary, tmp_path: Path, source: str) -> None:
    """Numbers in the range of all types: others have no specified result."""
    targets = [*NUMBERS, "bool", "float16"]
    lines = [f'y{i} = R.cast(x, dtype="{target}")' for i, target in enumerate(targets)]
    python, function = program_of(lines, f'x: R.Tensor(("n",), "{source}")', native, tmp_path)
    numbers = (np.arange(LENGTH) % 101).astype(to_numpy(source))
    if source in REALS:
        numbers = numbers + numbers.dtype.type(0.75)
    for length in (0, 1, 5, 16, 33, LENGTH):
        values = numbers[:length].copy()
        assert_same_bits(function(values), python(values))


SIZES = st.sampled_from((1, 2, 3, 4, 5, 8, 12, 15, 16, 17, 31, 33, 64, 65))


@given(data=st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_copies_of_any_strides(native: NativeLibrary, tmp_path: Path, data: st.DataObject) -> None:
    """Permuted axes of slices with steps of both signs: runs, planes and lines."""
    shape = data.draw(st.lists(SIZES, min_size=1, max_size=4).filter(lambda sizes: np.prod(sizes) <= 200_000))
    dtype = data.draw(st.sampled_from(("int8", "float16", "float32", "float64", "complex128")))
    steps = [data.draw(st.sampled_from((1, 1, 1, 2, -1))) for _ in shape]
    order = data.draw(st.permutations(range(len(shape))))
    axes = [*range(len(shape))]
    begin = [0 if step > 0 else -1 for step in steps]
    end = [(1 if step > 0 else -1) * 2**62 for step in steps]
    lines = [
        f"a = R.strided_slice(x, axes={axes}, begin={begin}, end={end}, strides={steps})",
        f"y = R.permute_dims(a, axes={[*order]})",
    ]
    whole = [size * abs(step) for size, step in zip(shape, steps, strict=True)]
    _, function = program_of(lines, f'x: R.Tensor({tuple(whole)}, "{dtype}")', native, tmp_path)
    x = (np.arange(np.prod(whole)) % 127).astype(to_numpy(dtype)).reshape(whole)
    sliced = x[tuple(slice(None, None, step) for step in steps)]
    assert_same_bits(function(x), [sliced, np.ascontiguousarray(sliced.transpose(order))])
