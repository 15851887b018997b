"""Tensors of other packages with dtypes unknown to numpy: bfloat16 and float8, read from DLPack's capsules."""

from __future__ import annotations

import ctypes
import gc
import sys
from typing import Any

import byoc_core
import ml_dtypes
import numpy as np
import onnx
import pytest
from byoc_core.errors import CallError
from byoc_core.native.abi import DLDataType, DLDevice, DLTensor
from byoc_core.runtime.dlpack import from_dlpack
from byoc_core.session import Session

BFLOAT = 4
"""``kDLBfloat``."""
_OWN_REFERENCES = 3
"""The list, the variable of the loop, and the argument of ``sys.getrefcount``."""


class Managed(ctypes.Structure):
    """DLPack's ``DLManagedTensor``."""

    _fields_ = (("tensor", DLTensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype, _new_capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


class Tensor:
    """A tensor of another package, of any dtype and strides."""

    def __init__(self, array: Any, code: int = BFLOAT, lanes: int = 1, device: int = 1, error: str = "") -> None:
        self.array, self.error, self.device = array, error, device
        self._shape = (ctypes.c_int64 * array.ndim)(*array.shape)
        self._strides = (ctypes.c_int64 * array.ndim)(*(step // array.itemsize for step in array.strides))
        dtype = DLDataType(code, array.itemsize * 8 // lanes, lanes)
        tensor = DLTensor(array.ctypes.data, DLDevice(device, 0), array.ndim, dtype, self._shape, self._strides, 0)
        self._managed = Managed(tensor, None, None)
        self.capsules: list[Any] = []

    @property
    def is_in_use(self) -> bool:
        """Whether anybody but this list holds a capsule."""
        return any(sys.getrefcount(capsule) > _OWN_REFERENCES for capsule in self.capsules)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device, 0

    def __dlpack__(self, **_arguments: Any) -> Any:
        if self.error:
            raise BufferError(self.error)
        self.capsules.append(_new_capsule(ctypes.addressof(self._managed), b"dltensor", None))
        return self.capsules[-1]


VALUES = np.arange(12, dtype=np.float32).reshape(3, 4).astype(ml_dtypes.bfloat16)


@pytest.mark.parametrize(
    "array",
    [VALUES, VALUES.T, VALUES[::-1], VALUES[:, ::2], VALUES[1], VALUES[:0], np.array(3, ml_dtypes.bfloat16)],
    ids=["whole", "transposed", "backwards", "strided", "row", "empty", "scalar"],
)
def test_the_memory_is_read_in_place_and_released(array: Any) -> None:
    tensor = Tensor(array)
    found = from_dlpack(tensor, "x")
    np.testing.assert_array_equal(found, array)
    assert found.dtype == array.dtype
    assert array.size == 0 or np.shares_memory(found.view(np.uint16), array.view(np.uint16))
    view = found[...]
    del found
    gc.collect()
    assert tensor.is_in_use == (array.size != 0)  # the view still reads the memory
    del view
    gc.collect()
    assert not tensor.is_in_use


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (object(), "x: is not an array; got object, expected a numpy array or an object with __dlpack__"),
        (Tensor(VALUES, device=2), "x: is not in CPU memory; got DLPack device type 2"),
        (Tensor(VALUES, code=77), "x: has elements of a type unknown to numpy; got DLPack type code and bits (77, 16)"),
        (Tensor(VALUES, lanes=2), "x: has elements of a type unknown to numpy; got DLPack type code and bits (4, 8)"),
        (Tensor(VALUES, error="no export today"), "x: cannot be read through DLPack: no export today; got Tensor"),
    ],
    ids=["no tensor", "device", "code", "lanes", "error"],
)
def test_other_tensors_are_refused(tensor: Any, message: str) -> None:
    with pytest.raises(CallError) as caught:
        from_dlpack(tensor, "x")
    assert str(caught.value) == message


def test_models_read_and_write_tensors_of_bfloat16() -> None:
    text = '<ir_version: 10, opset_import: ["" : 21]> g (bfloat16[n, 4] x) => (bfloat16[n, 4] y) { y = Neg(x) }'
    session = Session(onnx.parser.parse_model(text), [])
    np.testing.assert_array_equal(session(Tensor(VALUES))["y"], -VALUES)
    buffer = np.zeros_like(VALUES)
    session.run(None, {"x": Tensor(VALUES[::-1])}, out={"y": Tensor(buffer)})
    np.testing.assert_array_equal(buffer, -VALUES[::-1])
    with pytest.raises(CallError, match="input 0 `x`: wrong dtype; got bfloat16, expected float32"):
        byoc_core.VirtualMachine(
            byoc_core.build(
                byoc_core.from_onnx(
                    onnx.parser.parse_model(text.replace("bfloat16", "float")),
                ),
                [],
            )
        )["main"](Tensor(VALUES))
