"""Bools of any bytes in generated C: by every way through the machine, and from callers in C."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import byoc_core
import numpy as np
import pytest
from byoc_core.partitioning import PartitionOptions
from byoc_core.runtime.module import NDArray, PackedFunction
from byoc_core.vm import VirtualMachine

from core.tests.runtime.test_bool_bytes import DIRTY, MODULE, OTHER, ROADS, WANTED

ONE_REGION = PartitionOptions(sideways=True)


class _Tensor(ctypes.Structure):
    """A ``DLTensor``."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.c_void_p),
        ("offset", ctypes.c_uint64),
    )


class _Any(ctypes.Structure):
    """A ``TVMFFIAny``."""

    _fields_ = (("type_index", ctypes.c_int32), ("padding", ctypes.c_uint32), ("tensor", ctypes.c_void_p))


_CODES = {"i": 0, "f": 2, "b": 6}


@pytest.mark.parametrize("native", [True, False], ids=["native", "python"])
@pytest.mark.parametrize("road", ROADS, ids=lambda road: road.__name__)
def test_bytes_of_bools_are_true_or_false_on_every_road(
    road: Callable[[VirtualMachine, NDArray, NDArray], Any], native: bool
) -> None:
    executable = byoc_core.build(MODULE, ["ccompiler"])
    assert executable.report_data["offloaded_share"] == 1.0
    machine = byoc_core.VirtualMachine(executable, native=native)
    for actual, right in zip(road(machine, DIRTY.view(np.bool_), OTHER.view(np.bool_)), WANTED, strict=True):
        np.testing.assert_array_equal(actual.view(np.uint8), right.view(np.uint8))


@pytest.mark.parametrize("is_program", [True, False], ids=["main", "region"])
def test_a_library_reads_bools_of_any_bytes(tmp_path: Path, is_program: bool) -> None:
    executable = byoc_core.build(MODULE, ["ccompiler"], partition_options=ONE_REGION)
    (module,) = executable.modules
    (region,) = module.function_names
    executable.export_library(tmp_path / "model.so")
    call = getattr(ctypes.CDLL(str(tmp_path / "model.so")), f"__tvm_ffi_{'main' if is_program else region}")
    call.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p]
    inputs = [DIRTY.copy().view(np.bool_), OTHER.copy().view(np.bool_)]
    results = [np.empty_like(array) for array in WANTED]
    arrays = [*inputs, *results]
    shape = (ctypes.c_int64 * 1)(DIRTY.size)
    tensors = [
        _Tensor(a.ctypes.data, (1, 0), 1, _CODES[a.dtype.kind], a.itemsize * 8, 1, shape, None, 0) for a in arrays
    ]
    arguments = (_Any * len(tensors))(*(_Any(7, 0, ctypes.addressof(tensor)) for tensor in tensors))
    assert call(None, arguments, len(tensors), ctypes.byref(_Any())) == 0
    for actual, right in zip(results, WANTED, strict=True):
        np.testing.assert_array_equal(actual.view(np.uint8), right.view(np.uint8))
    np.testing.assert_array_equal(inputs[0].view(np.uint8), DIRTY, "the caller's memory is as it was")


def test_a_function_of_generated_c_reads_bools_of_any_bytes() -> None:
    """The wrapper of a region cleans the bytes, for any caller."""
    (module,) = byoc_core.build(MODULE, ["ccompiler"], partition_options=ONE_REGION).modules
    (region,) = module.function_names
    function: PackedFunction = module.get_function(region)
    results = [np.empty_like(array) for array in WANTED]
    function(DIRTY.view(np.bool_), OTHER.view(np.bool_), *results)
    for actual, right in zip(results, WANTED, strict=True):
        np.testing.assert_array_equal(actual.view(np.uint8), right.view(np.uint8))
