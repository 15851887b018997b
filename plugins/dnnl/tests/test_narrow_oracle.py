"""The oracle of narrow floats, on numbers that no processor need compute: overflow, ties, subnormals, NaN."""

from __future__ import annotations

import numpy as np
import pytest
from byoc_core.dtypes import float_limits, to_numpy
from byoc_dnnl.capi import Isa
from byoc_dnnl.precision import lacks
from hypothesis import given
from hypothesis import strategies as st

from plugins.dnnl.tests.narrow_oracle import is_rounded_once

_UNIT = 2.0**-24


def _judge(found: float, exact: float, error: float, dtype: str) -> bool:
    return bool(is_rounded_once(np.array(found).astype(to_numpy(dtype)), np.array(exact), error, dtype))


@pytest.mark.parametrize(
    ("found", "exact", "error", "right"),
    [
        (np.inf, np.exp(13.87), 1.0, True),  # 1.05e6 is beyond float16, whose largest number is 65504
        (65504.0, np.exp(13.87), 1.0, False),
        (np.inf, 65519.0, 0.5, False),  # below the tie with the number after the largest
        (65504.0, 65519.0, 0.5, True),
        (np.inf, 65519.9, 0.5, True),  # the error reaches the tie, so both are right
        (65504.0, 65519.9, 0.5, True),
        (-np.inf, -1e6, 1.0, True),
        (np.inf, -1e6, 1.0, False),
        (np.nan, 1e6, 1.0, False),
        (np.nan, np.nan, 1.0, True),
        (1.0, np.nan, 1.0, False),
        (1.0, 1 + 2.0**-11, 0.0, True),  # a tie goes to even
        (1 + 2.0**-10, 1 + 2.0**-11, 0.0, False),
        (0.0, 2.0**-15, 0.0, True),  # flushed
        (2.0**-15, 2.0**-15, 0.0, True),
        (2.0**-14, 2.0**-15, 0.0, False),
        (0.0, 2.0**-14, 0.0, False),
    ],
)
def test_float16(found: float, exact: float, error: float, right: bool) -> None:
    assert _judge(found, exact, error, "float16") == right


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@given(exact=st.floats(-1e6, 1e6), part=st.floats(-1, 1))
def test_what_is_computed_in_float32_and_rounded_once_is_right(dtype: str, exact: float, part: float) -> None:
    error = 16 * _UNIT * max(abs(exact), 32)
    computed = np.float64(exact + 0.9 * part * error).astype(np.float32)
    with np.errstate(over="ignore"):
        rounded = computed.astype(to_numpy(dtype)).astype(np.float64)
    assert _judge(float(rounded), exact, error, dtype)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@given(exact=st.floats(1e-3, 6e4))
def test_two_units_beside_it_is_wrong(dtype: str, exact: float) -> None:
    """What was rounded twice, or computed in the narrow type, shows."""
    wrong = exact * (1 + 4 * float_limits(dtype).unit_roundoff)
    assert not _judge(wrong, exact, 16 * _UNIT * exact, dtype)


def test_processors_with_and_without_instructions_are_told_apart() -> None:
    assert not lacks(Isa.AVX512_CORE_FP16, "float16")
    assert lacks(Isa.AVX512_CORE_BF16, "float16")
