"""The structures of ``byoc_ffi.h`` for ``ctypes``.

Field order and sizes are fixed by DLPack and the TVM FFI: compiled functions of any age read this layout.
"""

from __future__ import annotations

import ctypes

__all__ = ["CPU", "DLTENSOR_TYPE_INDEX", "DLDataType", "DLDevice", "DLTensor", "TVMFFIAny"]

CPU = 1
"""``kDLCPU``, DLPack's device type of ordinary memory."""

DLTENSOR_TYPE_INDEX = 7
"""``kTVMFFIDLTensorPtr``, the type index of a ``DLTensor*`` argument."""


class DLDevice(ctypes.Structure):
    """The device of memory."""

    _fields_ = (("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32))


class DLDataType(ctypes.Structure):
    """An element type."""

    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class DLTensor(ctypes.Structure):
    """A view of a tensor; owns nothing."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", DLDevice),
        ("ndim", ctypes.c_int32),
        ("dtype", DLDataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class TVMFFIAny(ctypes.Structure):
    """One argument: a tag and eight bytes, here always a pointer."""

    _fields_ = (("type_index", ctypes.c_int32), ("zero_padding", ctypes.c_uint32), ("v_ptr", ctypes.c_void_p))
