"""Layers compiled by the backend alone, and judged by float64 within the bounds of sums (Higham, chapter 3)."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import byoc_core
import numpy as np
from byoc_cblas import backend
from byoc_core.artifact.executable import Executable
from byoc_core.ops import default_ops
from byoc_core.runtime.module import NDArray

__all__ = ["build_layer", "judge", "module_text", "numbers", "reference", "run_layer"]

OPTIONS: Mapping[str, Mapping[str, object]] = (
    {} if os.environ.get("BYOC_EXAMPLES") == "thorough" else {"cblas": {"opt_level": 0}}
)
"""The options of builds tested for results: gcc optimises the C around a call for longer than all calls take.

``nox -s thorough`` compiles all these layers with optimisation; the zoo's networks and the kit test optimised C too.
"""
UNIT_ROUNDOFF = {"float32": 2.0**-24, "float64": 2.0**-53}


def module_text(operands: Mapping[str, Sequence[object]], dtype: str, lines: Sequence[str]) -> str:
    """Return a module of one function; each line assigns a value, the last value is the result."""

    def shape(sizes: Sequence[object]) -> str:
        texts = [repr(size) if isinstance(size, str) else str(size) for size in sizes]
        return f"({''.join(text + ',' for text in texts)})"

    params = ", ".join(f'{name}: R.Tensor({shape(sizes)}, "{dtype}")' for name, sizes in operands.items())
    body = "\n".join(f"    {line}" for line in lines)
    return f"def main({params}):\n{body}\n    return {lines[-1].partition(' = ')[0]}\n"


def build_layer(text: str) -> Executable:
    """Return a function compiled by the backend, with nothing left to the host."""
    module = byoc_core.parse(text)
    executable = byoc_core.build(module, backends=[backend], options=OPTIONS, strict=True, fallback="error")
    assert executable.report_data["offloaded_share"] == 1.0
    assert [module.type_key for module in executable.modules] == ["csource"]
    assert "cblas_" in executable.get_source()
    return executable


def run_layer(executable: Executable, num_threads: int, *arrays: NDArray) -> NDArray:
    """Return the only result of a function."""
    result = byoc_core.VirtualMachine(executable, num_threads=num_threads)["main"](*arrays)
    assert isinstance(result, np.ndarray)
    return result


def numbers(shape: Sequence[int], dtype: str, seed: int) -> NDArray:
    """Return normally distributed numbers."""
    return np.random.default_rng(seed).standard_normal(tuple(shape)).astype(dtype)


def reference(op: str, *operands: NDArray, **attrs: Any) -> NDArray:
    """Return the result of the core's reference kernel in float64."""
    kernel = default_ops()[op].kernel
    assert kernel is not None
    return np.asarray(kernel(*(operand.astype("float64") for operand in operands), **attrs))


def judge(result: NDArray, exact: NDArray, magnitude: NDArray, num_terms: int, dtype: str) -> None:
    """Check a result against the bound ``gamma_K * sum |a| |b|`` for sums of K terms and a bias.

    Args:
        result: the result.
        exact: the result in float64.
        magnitude: the same sums over absolute values, in float64.
        num_terms: K.
        dtype: the dtype of the computation.
    """
    assert result.dtype == dtype
    assert result.shape == exact.shape
    k = (num_terms + 2) * UNIT_ROUNDOFF[dtype]
    wrong = ~(np.abs(result.astype("float64") - exact) <= k / (1 - k) * magnitude)
    assert not wrong.any(), f"{wrong.sum()} of {wrong.size} elements, first at {np.argwhere(wrong)[0]}"
