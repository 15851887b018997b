"""Externs read the caller's arrays and intermediates in place, without write access."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import byoc_core
import numpy as np
import pytest
from byoc_core import script as R
from byoc_core.errors import ExecutionError
from byoc_core.runtime.module import NDArray, PackedFunction

pytestmark = pytest.mark.interpreter

TEXT = """
def main(x: R.Tensor((N, 2)), y: R.Tensor((N, 2))):
    a = R.nn.relu(x)
    b = R.CALL
    c = R.nn.relu(b)
    return c
"""
DPS = 'call_dps_packed("work", (x, a, y), out_types=[R.Tensor((N, 2))])'
PACKED = 'call_packed("work", (x, a, y), out_types=[R.Tensor((N, 2))])'
CALLS = pytest.mark.parametrize("call", [DPS, PACKED, PACKED.replace("))])", "))], pure=True)")])
SIZES = pytest.mark.parametrize("size", ["3", '"n"'])
BOTH_WAYS = pytest.mark.parametrize("native", [True, False])


def machine(call: str, size: str, work: Callable[..., Any], *, native: bool) -> byoc_core.VirtualMachine:
    module = R.parse(TEXT.replace("CALL", call).replace("N", size))
    return byoc_core.VirtualMachine(byoc_core.build(module, []), externs={"work": work}, native=native)


def arrays() -> tuple[Any, Any]:
    x, y = np.arange(12, dtype=np.float32).reshape(2, 3, 2)
    return x, y


@CALLS
@SIZES
@BOTH_WAYS
@pytest.mark.parametrize("position", [0, 1, 2])
@pytest.mark.parametrize("is_packed_function", [False, True])
def test_an_extern_cannot_write_to_what_it_reads(
    call: str, size: str, native: bool, position: int, is_packed_function: bool
) -> None:
    def work(*given: NDArray) -> Any:
        given[position][...] = 7
        return given[0]

    extern = PackedFunction("work", work, None) if is_packed_function else work
    vm = machine(call, size, extern, native=native)
    x, y = arrays()
    calls: list[Callable[[], Any]] = [
        lambda: vm["main"](x, y),
        lambda: vm.run("main", {"x": x, "y": y}, out={"c": np.empty((3, 2), np.float32)}),
    ]
    if size == "3":
        calls += [vm.bind("main", {"x": x, "y": y})] if call == DPS else []
    for attempt in calls * 2:
        with pytest.raises(ExecutionError, match="assignment destination is read-only"):
            attempt()
    for array, untouched in zip((x, y), arrays(), strict=True):
        np.testing.assert_array_equal(array, untouched)
        assert array.flags.writeable  # the caller's own array stays as it was


@CALLS
@SIZES
@BOTH_WAYS
def test_an_extern_reads_without_a_copy_and_writes_its_output(call: str, size: str, native: bool) -> None:
    seen: list[Any] = []

    def work(x: NDArray, a: NDArray, y: NDArray, *out: NDArray) -> Any:
        seen.append((x, y))
        if not out:
            return a + y
        assert out[0].flags.writeable
        np.add(a, y, out=out[0])
        return None

    vm = machine(call, size, work, native=native)
    x, y = arrays()
    np.testing.assert_array_equal(vm["main"](x, y), x + y)
    for array, view in zip((x, y), seen[0], strict=True):
        assert array.ctypes.data == view.ctypes.data
        assert (array.shape, array.dtype) == (view.shape, view.dtype)
        assert not view.flags.writeable
        assert not np.from_dlpack(view).flags.writeable


def test_what_an_extern_returns_may_be_what_it_was_given() -> None:
    vm = machine(PACKED, "3", lambda x, a, y: y, native=True)
    x, y = arrays()
    result: Any = vm["main"](x, y)
    np.testing.assert_array_equal(result, y)
    assert not np.shares_memory(result, y)
    assert result.flags.writeable
