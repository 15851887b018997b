"""Calls of a compiled region as in the VM, with checks of the buffers.

Each call has fresh copies of the inputs, and outputs filled with another byte. Changed inputs, unwritten outputs,
outputs read before a write, and differing results are findings; nothing is raised for a fault of the backend.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from byoc_core.debugging.compiling import CompiledRegion
from byoc_core.debugging.findings import RegionFinding
from byoc_core.dtypes import dtype_name
from byoc_core.errors import CallError
from byoc_core.runtime.arguments import check_returned
from byoc_core.runtime.module import Signature

__all__ = ["CallOutcome", "call_region"]

NDArray = npt.NDArray[Any]
ResultSpec = tuple[tuple[int, ...], np.dtype[Any]]

_FILLS = (0xFF, 0x01)
"""The bytes of outputs before the first and before the second call: NaN and tiny, -1 and 1, true and true."""


@dataclass(frozen=True, slots=True)
class CallOutcome:
    """The outcome of calls of a region on the same inputs.

    Attributes:
        runs: the outputs of a call, or of two differing calls; empty if there are no outputs.
        findings: the faults of the calls themselves.
    """

    runs: tuple[tuple[NDArray, ...], ...] = ()
    findings: tuple[RegionFinding, ...] = ()


def call_region(
    compiled: CompiledRegion, inputs: Sequence[NDArray], results: Sequence[ResultSpec], names: Sequence[str]
) -> CallOutcome:
    """Call a region twice, and a third time if the two calls differ.

    Args:
        compiled: the region.
        inputs: one array per parameter; left unchanged.
        results: shape and dtype of each result.
        names: of the results.
    """
    problem = _signature_problem(compiled, inputs, results)
    if problem is not None:
        return CallOutcome(findings=(RegionFinding("wrong-signature", problem),))
    try:
        watch = _Watch(compiled, inputs, results)
        with np.errstate():  # a backend's settings must not affect the reference kernels
            runs = [watch.call(fill) for fill in _FILLS]
            if not _same(*runs):
                runs.append(watch.call(_FILLS[0]))
    except _MisfitError as error:
        return CallOutcome(findings=(RegionFinding("wrong-signature", str(error)),))
    except Exception as error:  # noqa: BLE001 - the plugin border: whatever a backend's code raises is its fault
        return CallOutcome(findings=(RegionFinding("run-error", f"{type(error).__name__}: {error}"),))
    findings = [
        RegionFinding("input-written", f"input {index} `{name}` was changed") for index, name in sorted(watch.written)
    ]
    if len(runs) == 2:
        return CallOutcome((runs[0],), tuple(findings))
    about_buffers = _buffer_findings(runs, compiled, names)
    if about_buffers:  # the outputs of the second call give no more evidence
        return CallOutcome((runs[0],), (*findings, *about_buffers))
    if compiled.is_deterministic:
        findings.append(RegionFinding("not-deterministic", "two calls on the same inputs differ"))
    return CallOutcome((runs[0], runs[1]), tuple(findings))


class _MisfitError(Exception):
    """The values returned by a function do not fit the region's results."""


class _Watch:
    """Calls on fresh copies of the same inputs."""

    def __init__(self, compiled: CompiledRegion, inputs: Sequence[NDArray], results: Sequence[ResultSpec]) -> None:
        self._function = compiled.function
        self._inputs = [*inputs, *compiled.constants]
        self._num_inputs = len(inputs)
        self._results = results
        self.written: set[tuple[int, str]] = set()

    def call(self, fill: int) -> tuple[NDArray, ...]:
        inputs = [np.array(array, order="C", copy=True) for array in self._inputs]
        if self._function.returns_results:
            outputs = self._take(inputs)
        else:
            outputs = tuple(_filled(shape, dtype, fill) for shape, dtype in self._results)
            self._function.impl(*inputs, *outputs)
        for index, (before, after) in enumerate(zip(self._inputs, inputs, strict=True)):
            if not np.array_equal(_bytes(before), _bytes(after)):
                self.written.add((index, self._name(index)))
        return outputs

    def _take(self, inputs: Sequence[NDArray]) -> tuple[NDArray, ...]:
        returned = self._function.impl(*inputs)
        assert self._function.signature is not None  # functions that return results have a signature
        specs = self._function.signature.outputs
        try:
            return tuple(check_returned(f"function `{self._function.name}`", returned, specs, inputs, {}))
        except CallError as error:
            raise _MisfitError(str(error)) from error

    def _name(self, index: int) -> str:
        signature = self._function.signature
        return f"constant {index - self._num_inputs}" if signature is None else signature.inputs[index].name


def _filled(shape: tuple[int, ...], dtype: np.dtype[Any], fill: int) -> NDArray:
    if dtype.kind == "b":  # bytes other than 0 and 1 are no booleans
        return np.full(shape, fill == _FILLS[0], dtype)
    array = np.empty(shape, dtype)
    array.reshape(-1).view(np.uint8)[...] = fill
    return array


def _bytes(array: NDArray) -> NDArray:
    """Return the bytes of an array, one row per element."""
    flat = np.ascontiguousarray(array).reshape(-1)
    return flat.view(np.uint8).reshape(flat.size, array.dtype.itemsize)


def _same(left: Sequence[NDArray], right: Sequence[NDArray]) -> bool:
    return all(a.shape == b.shape and np.array_equal(_bytes(a), _bytes(b)) for a, b in zip(left, right, strict=True))


def _buffer_findings(
    runs: Sequence[tuple[NDArray, ...]], compiled: CompiledRegion, names: Sequence[str]
) -> list[RegionFinding]:
    """Return the faults if two calls differ because the outputs held different values before.

    The third call began with the same values as the first: these two differ by chance only.
    """
    if compiled.function.returns_results:
        return []
    first, second, third = runs
    unwritten, is_read = [], False
    for index, (a, b) in enumerate(zip(first, second, strict=True)):
        fills = [_bytes(_filled(a.shape, a.dtype, fill)) for fill in _FILLS]
        missing = ((_bytes(a) == fills[0]) & (_bytes(b) == fills[1])).all(axis=1)
        is_read = is_read or bool(((_bytes(a) != _bytes(b)).any(axis=1) & ~missing).any())
        if missing.any():
            text = f"output `{names[index]}`: {int(missing.sum())} of {a.size} elements are never written"
            unwritten.append(RegionFinding("output-unwritten", text, index))
    if is_read and _same(first, third):
        return [RegionFinding("output-read", "the results depend on the contents of the outputs before the call")]
    return unwritten


def _signature_problem(
    compiled: CompiledRegion, inputs: Sequence[NDArray], results: Sequence[ResultSpec]
) -> str | None:
    """Return the misfit between a compiled function's signature and the region, as found by linking a program."""
    if compiled.must_return and not compiled.function.returns_results:
        return "the compiled function fills buffers, but the result sizes of the region are known only after running"
    signature: Signature | None = compiled.function.signature
    if signature is None:
        return None
    input_specs = [(array.shape, array.dtype) for array in (*inputs, *compiled.constants)]
    for role, expected, specs in (("input", input_specs, signature.inputs), ("output", results, signature.outputs)):
        if len(expected) != len(specs):
            return f"the compiled function has {len(specs)} {role}s; the region has {len(expected)}"
        for index, ((shape, dtype), spec) in enumerate(zip(expected, specs, strict=True)):
            sizes_fit = len(shape) == len(spec.shape) and all(
                not isinstance(dim, int) or dim == size for dim, size in zip(spec.shape, shape, strict=True)
            )
            if spec.dtype != dtype_name(dtype) or not sizes_fit:
                got = f"{spec.dtype}[{', '.join(map(str, spec.shape))}]"
                return f"{role} {index} `{spec.name}` is {got}; the region has {dtype_name(dtype)}{list(shape)}"
    return None
