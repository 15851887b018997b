"""The error bounds in the comments of the headers of generated C's functions."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from byoc_core.native.toolchain import include_directory

NDArray = npt.NDArray[Any]
_LINE = re.compile(r"^ \*     (\w+) +(\d[\d.]*)(?: +(result|operand|one)\b)?", re.MULTILINE)

MAGNITUDES: Mapping[str, Callable[[NDArray, NDArray], NDArray]] = {
    "result": lambda x, y: np.abs(y),
    "operand": lambda x, y: np.maximum(np.abs(x), np.abs(y)),
    "one": lambda x, y: np.maximum(np.abs(y), 1),
}
"""The magnitudes counted in ULP, from operand and result."""


def stated_bounds(header: str) -> dict[str, tuple[float, str]]:
    """Return the bound of each function of a header in ULP, and a key of :data:`MAGNITUDES`."""
    text = (include_directory() / header).read_text(encoding="utf-8")
    found = {name: (float(bound), unit or "result") for name, bound, unit in _LINE.findall(text)}
    assert found, header
    return found


def ulps(actual: NDArray, exact: NDArray, magnitude: NDArray) -> NDArray:
    """Return errors in ULP of a magnitude, in the dtype of the results; ``exact`` has a longer type."""
    limits = np.finfo(actual.dtype)
    exponents = np.maximum(np.frexp(magnitude)[1], limits.minexp + 1)
    unit = np.ldexp(np.ones_like(exact), exponents - limits.nmant - 1)
    return np.asarray(np.abs(actual.astype(exact.dtype) - exact) / unit)


def assert_close(actual: NDArray, exact: NDArray, magnitude: NDArray, bound: float, name: str) -> None:
    """Check finite results within a bound in ULP, and the others for equality."""
    with np.errstate(over="ignore", under="ignore"):
        expected = exact.astype(actual.dtype)
    limits = np.finfo(actual.dtype)
    # Next to the largest number a bound of some ULP reaches infinity.
    edge = np.abs(exact) > limits.max * (1 - bound * float(limits.eps))
    edge &= np.abs(actual) > limits.max * (1 - 2 * bound * float(limits.eps))
    finite = np.isfinite(expected) & ~(edge & np.isfinite(exact))
    special = ~np.isfinite(expected) & ~(edge & np.isfinite(exact))
    np.testing.assert_array_equal(actual[special], expected[special], err_msg=name)
    errors = ulps(actual[finite], exact[finite], magnitude[finite])
    assert np.all(errors <= bound), f"{name}: {errors.max()} ULP at {actual[finite][errors.argmax()]}"
