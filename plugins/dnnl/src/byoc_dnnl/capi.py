"""oneDNN's C API for ``ctypes``: only the constants, structures and functions used by this plugin.

The values come from the public headers of version 3.2 (``dnnl_types.h``, ``dnnl_common_types.h``); within version 3
the values do not change.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable
from ctypes import POINTER, c_char_p, c_float, c_int, c_int32, c_int64, c_size_t, c_uint, c_void_p
from enum import IntEnum
from typing import Any

from byoc_core.errors import ArtifactError, ExecutionError
from byoc_core.runtime.threads import ForkGate

from byoc_dnnl.extension import extension
from byoc_dnnl.memo import Memo

__all__ = [
    "MAX_INT",
    "MAX_NDIMS",
    "NEXT_POST_OP",
    "PARAMETERS",
    "Algorithm",
    "Api",
    "Argument",
    "DataType",
    "Dims",
    "DimsArray",
    "ExecArg",
    "Isa",
    "Query",
    "Status",
    "Version",
    "dims_array",
]

MAX_NDIMS = 12
"""``DNNL_MAX_NDIMS``: the largest rank of a tensor."""

NEXT_POST_OP = 32768
"""The difference between the argument numbers of the operands of consecutive post-ops."""

MAX_INT = 2**31 - 1
"""The largest count supported by all of oneDNN's implementations, although the API takes sizes of 64 bits."""

_MAX_DIM = 2**63 - 1

_NUM_DESCS = 1024
"""Number of memory descriptions kept in a generation, each of about 2 kB; a large network needs some hundred."""


Dims = c_int64 * MAX_NDIMS

CPU_ENGINE = 1
IN_ORDER_STREAM = 1
DATA_TYPE_UNDEF = 0
FORMAT_ANY = 1
FORMAT_KIND_ANY = 1
FORMAT_KIND_BLOCKED = 2
FORWARD_INFERENCE = 96
SCRATCHPAD_USER = 1


class Status(IntEnum):
    """``dnnl_status_t``."""

    SUCCESS = 0
    OUT_OF_MEMORY = 1
    INVALID_ARGUMENTS = 2
    UNIMPLEMENTED = 3
    LAST_IMPL_REACHED = 4
    RUNTIME_ERROR = 5
    NOT_REQUIRED = 6


class DataType(IntEnum):
    """``dnnl_data_type_t``, by byoc's names of dtypes."""

    float16 = 1
    bfloat16 = 2
    float32 = 3
    int32 = 4
    int8 = 5
    uint8 = 6


class CpuRuntime(IntEnum):
    """``DNNL_RUNTIME_*``: the threading runtime of the library."""

    SEQUENTIAL = 1
    OPENMP = 2
    TBB = 4
    THREADPOOL = 8
    SYCL = 0x200


class Isa(IntEnum):
    """``dnnl_cpu_isa_t``: the instruction sets usable by the library."""

    DEFAULT = 0x0
    SSE41 = 0x1
    AVX = 0x3
    AVX2 = 0x7
    AVX2_VNNI = 0xF
    AVX2_VNNI_2 = 0x1F
    AVX512_CORE = 0x27
    AVX512_CORE_VNNI = 0x67
    AVX512_CORE_BF16 = 0xE7
    AVX512_CORE_FP16 = 0x1EF
    AVX512_CORE_AMX = 0xFEF
    AVX512_CORE_AMX_FP16 = 0x1FEF


class Algorithm(IntEnum):
    """``dnnl_alg_kind_t``; ``UNDEF`` stands for the sum with the previous contents of the destination."""

    UNDEF = 0x0
    CONVOLUTION_DIRECT = 0x1
    DECONVOLUTION_DIRECT = 0xA
    ELTWISE_RELU = 0x20
    ELTWISE_TANH = 0x21
    ELTWISE_ELU = 0x22
    ELTWISE_ABS = 0x24
    ELTWISE_SQRT = 0x25
    ELTWISE_LINEAR = 0x26
    ELTWISE_HARDSIGMOID = 0x28
    ELTWISE_LOGISTIC = 0x29
    ELTWISE_GELU_TANH = 0x2B
    ELTWISE_SWISH = 0x2C
    ELTWISE_CLIP = 0x2E
    ELTWISE_POW = 0x30
    ELTWISE_GELU_ERF = 0x31
    ELTWISE_ROUND = 0x32
    ELTWISE_MISH = 0x33
    ELTWISE_HARDSWISH = 0x34
    POOLING_MAX = 0x1FF
    POOLING_AVG_INCLUDE_PADDING = 0x2FF
    POOLING_AVG_EXCLUDE_PADDING = 0x3FF
    LRN_ACROSS_CHANNELS = 0xAFF
    BINARY_ADD = 0x1FFF0
    BINARY_MUL = 0x1FFF1
    BINARY_MAX = 0x1FFF2
    BINARY_MIN = 0x1FFF3
    BINARY_DIV = 0x1FFF4
    BINARY_SUB = 0x1FFF5
    RESAMPLING_NEAREST = 0x2FFF0
    RESAMPLING_LINEAR = 0x2FFF1
    REDUCTION_MAX = 0x2FFF2
    REDUCTION_MIN = 0x2FFF3
    REDUCTION_SUM = 0x2FFF4
    REDUCTION_MUL = 0x2FFF5
    REDUCTION_MEAN = 0x2FFF6
    SOFTMAX_ACCURATE = 0x30000


class Direction(IntEnum):
    """``dnnl_rnn_direction_t``: the order of the steps of a recurrent layer."""

    LEFT_TO_RIGHT = 1
    RIGHT_TO_LEFT = 2
    BOTH_CONCATENATED = 3


class NormalizationFlags(IntEnum):
    """``dnnl_normalization_flags_t``."""

    NONE = 0x0
    USE_GLOBAL_STATS = 0x1
    USE_SCALE = 0x2
    USE_SHIFT = 0x4


class Query(IntEnum):
    """``dnnl_query_t``."""

    IMPL_INFO_STR = 8
    SRC_MD = 129
    WEIGHTS_MD = 131
    DST_MD = 133
    SCRATCHPAD_MD = 136
    EXEC_ARG_MD = 255
    NDIMS = 256
    DIMS = 257
    DATA_TYPE = 258
    SUBMEMORY_OFFSET = 259
    PADDED_DIMS = 260
    FORMAT_KIND = 262
    INNER_NBLKS = 263
    INNER_BLKS = 264
    INNER_IDXS = 265
    STRIDES = 14


class Argument(IntEnum):
    """``DNNL_ARG_*``: the positions of a primitive's arguments."""

    SRC = 1
    SRC_1 = 2
    SRC_2 = 3
    DST = 17
    DST_1 = 18
    DST_2 = 19
    WEIGHTS = 33
    WEIGHTS_1 = 34
    BIAS = 41
    MEAN = 49
    VARIANCE = 50
    SCALE = 51
    SHIFT = 52
    SCRATCHPAD = 80
    MULTIPLE_SRC = 1024
    SCALES = 4096
    """``DNNL_ARG_ATTR_SCALES``: the scales of an argument have this number combined with the number of the argument."""
    ZERO_POINTS = 8192
    """``DNNL_ARG_ATTR_ZERO_POINTS``: likewise."""
    POST_OP_SRC_1 = 32768 + 2
    """``DNNL_ARG_ATTR_MULTIPLE_POST_OP(0) | DNNL_ARG_SRC_1``; the operand of post-op ``n`` has ``n * 32768`` more."""


class Version(ctypes.Structure):
    """``dnnl_version_t``."""

    _fields_ = (
        ("major", c_int),
        ("minor", c_int),
        ("patch", c_int),
        ("hash", c_char_p),
        ("cpu_runtime", c_uint),
        ("gpu_runtime", c_uint),
    )


class ExecArg(ctypes.Structure):
    """``dnnl_exec_arg_t``: an argument of an executed primitive."""

    _fields_ = (("arg", c_int), ("memory", c_void_p))


_OUT = POINTER(c_void_p)
_CREATE = (_OUT, c_void_p)  # a primitive descriptor is made for an engine

PARAMETERS: dict[str, tuple[Any, ...]] = {
    "dnnl_set_primitive_cache_capacity": (c_int,),
    "dnnl_get_primitive_cache_capacity": (POINTER(c_int),),
    "dnnl_engine_create": (_OUT, c_int, c_size_t),
    "dnnl_engine_destroy": (c_void_p,),
    "dnnl_stream_create": (_OUT, c_void_p, c_uint),
    "dnnl_stream_wait": (c_void_p,),
    "dnnl_stream_destroy": (c_void_p,),
    "dnnl_memory_desc_create_with_strides": (_OUT, c_int, Dims, c_int, Dims),
    "dnnl_memory_desc_create_with_tag": (_OUT, c_int, Dims, c_int, c_int),
    "dnnl_memory_desc_clone": _CREATE,
    "dnnl_memory_desc_reshape": (_OUT, c_void_p, c_int, Dims),
    "dnnl_memory_desc_create_submemory": (_OUT, c_void_p, Dims, Dims),
    "dnnl_memory_desc_permute_axes": (_OUT, c_void_p, POINTER(c_int)),
    "dnnl_memory_desc_query": (c_void_p, c_int, c_void_p),
    "dnnl_memory_desc_destroy": (c_void_p,),
    "dnnl_memory_create": (_OUT, c_void_p, c_void_p, c_void_p),
    "dnnl_memory_set_data_handle": (c_void_p, c_void_p),
    "dnnl_memory_destroy": (c_void_p,),
    "dnnl_primitive_attr_create": (_OUT,),
    "dnnl_primitive_attr_set_scratchpad_mode": (c_void_p, c_int),
    "dnnl_primitive_attr_set_post_ops": (c_void_p, c_void_p),
    "dnnl_primitive_attr_set_scales_mask": (c_void_p, c_int, c_int),
    "dnnl_primitive_attr_set_zero_points_mask": (c_void_p, c_int, c_int),
    "dnnl_primitive_attr_destroy": (c_void_p,),
    "dnnl_post_ops_create": (_OUT,),
    "dnnl_post_ops_append_sum": (c_void_p, c_float, c_int32, c_int),
    "dnnl_post_ops_append_eltwise": (c_void_p, c_int, c_float, c_float),
    "dnnl_post_ops_append_binary": (c_void_p, c_int, c_void_p),
    "dnnl_post_ops_destroy": (c_void_p,),
    "dnnl_primitive_desc_query": (c_void_p, c_int, c_int, c_void_p),
    "dnnl_primitive_desc_next_impl": (c_void_p,),
    "dnnl_primitive_desc_destroy": (c_void_p,),
    "dnnl_primitive_create": _CREATE,
    "dnnl_primitive_execute": (c_void_p, c_void_p, c_int, POINTER(ExecArg)),
    "dnnl_primitive_destroy": (c_void_p,),
    # Primitive descriptors: result, engine, computation, memory descriptors, parameters, attributes.
    "dnnl_reorder_primitive_desc_create": (_OUT, *[c_void_p] * 5),
    "dnnl_concat_primitive_desc_create": (*_CREATE, c_void_p, c_int, c_int, _OUT, c_void_p),
    "dnnl_binary_primitive_desc_create": (*_CREATE, c_int, *[c_void_p] * 4),
    **dict.fromkeys(
        ["dnnl_convolution_forward_primitive_desc_create", "dnnl_deconvolution_forward_primitive_desc_create"],
        (*_CREATE, c_int, c_int, *[c_void_p] * 4, *[Dims] * 4, c_void_p),
    ),
    "dnnl_eltwise_forward_primitive_desc_create": (
        *(*_CREATE, c_int, c_int, c_void_p, c_void_p),
        *(c_float, c_float, c_void_p),
    ),
    "dnnl_softmax_forward_primitive_desc_create": (*_CREATE, c_int, c_int, c_void_p, c_void_p, c_int, c_void_p),
    "dnnl_pooling_forward_primitive_desc_create": (
        *(*_CREATE, c_int, c_int, c_void_p, c_void_p),
        *(*[Dims] * 5, c_void_p),
    ),
    "dnnl_lrn_forward_primitive_desc_create": (
        *(*_CREATE, c_int, c_int, c_void_p, c_void_p),
        *(c_int64, c_float, c_float, c_float, c_void_p),
    ),
    "dnnl_batch_normalization_forward_primitive_desc_create": (
        *(*_CREATE, c_int, c_void_p, c_void_p),
        *(c_float, c_uint, c_void_p),
    ),
    "dnnl_layer_normalization_forward_primitive_desc_create": (
        *(*_CREATE, c_int, c_void_p, c_void_p, c_void_p),
        *(c_float, c_uint, c_void_p),
    ),
    "dnnl_matmul_primitive_desc_create": (*_CREATE, *[c_void_p] * 5),
    "dnnl_prelu_forward_primitive_desc_create": (*_CREATE, c_int, *[c_void_p] * 4),
    "dnnl_vanilla_rnn_forward_primitive_desc_create": (
        *(*_CREATE, c_int, c_int, c_int, *[c_void_p] * 7),
        *(c_uint, c_float, c_float, c_void_p),
    ),
    "dnnl_lstm_forward_primitive_desc_create": (*_CREATE, c_int, c_int, *[c_void_p] * 11, c_uint, c_void_p),
    "dnnl_gru_forward_primitive_desc_create": (*_CREATE, c_int, c_int, *[c_void_p] * 7, c_uint, c_void_p),
    "dnnl_lbr_gru_forward_primitive_desc_create": (*_CREATE, c_int, c_int, *[c_void_p] * 7, c_uint, c_void_p),
    "dnnl_resampling_forward_primitive_desc_create": (*_CREATE, c_int, c_int, *[c_void_p] * 4),
    "dnnl_reduction_primitive_desc_create": (*_CREATE, c_int, c_void_p, c_void_p, c_float, c_float, c_void_p),
}
"""The parameters of functions with a status as result."""

_EXECUTE = "dnnl_primitive_execute"
"""The only function called without Python's lock, inside :data:`FORK_GATE`.

The others hold Python's lock, so no other thread forks meanwhile: oneDNN's locks are free in children.
"""

FORK_GATE = ForkGate()
"""The gate for executions from Python; the extension has a gate of its own (``csrc/lock.c``)."""

_WITHOUT_STATUS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "dnnl_version": (POINTER(Version), ()),
    "dnnl_get_effective_cpu_isa": (c_int, ()),
    "dnnl_memory_desc_equal": (c_int, (c_void_p, c_void_p)),
    "dnnl_memory_desc_get_size": (c_size_t, (c_void_p,)),
    "dnnl_primitive_desc_query_md": (c_void_p, (c_void_p, c_int, c_int)),
}
"""The results and parameters of functions without a status."""


class DimsArray(Dims):  # type: ignore[misc, valid-type]  # a class of ctypes
    """Sizes, strides or paddings in the form of the C API.

    Attributes:
        numbers: the given numbers.
    """

    numbers: tuple[int, ...]


def dims_array(sizes: tuple[int, ...]) -> DimsArray:
    """Convert sizes, strides or paddings to the form of the C API.

    Raises:
        ArtifactError: a number exceeds 64 bits; only possible in a document from a file.
    """
    if not -_MAX_DIM <= min(sizes, default=0) <= max(sizes, default=0) <= _MAX_DIM:
        raise ArtifactError("sizes, strides or paddings", "are too large", got=sizes, expected=f"up to {_MAX_DIM}")
    found = DimsArray(*sizes)
    found.numbers = sizes
    return found


class Api:
    """The functions of a loaded library.

    Args:
        library: the library; each function gets types.

    Attributes:
        descs: recent memory descriptions, by request (:class:`~byoc_dnnl.memory_desc.MemoryDesc`).
        desc_queries: the addresses of the functions for queries of a memory description, and of the size in bytes.

    Raises:
        AttributeError: a function is missing; the library is no oneDNN of version 3.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        self._functions: dict[str, Callable[..., Any]] = {}
        self.descs: Memo[object] = Memo(_NUM_DESCS)
        locked = ctypes.PyDLL(None, handle=library._handle)
        for name, parameters in PARAMETERS.items():
            self._add(library if name == _EXECUTE else locked, name, c_int, parameters)
        for name, (result, parameters) in _WITHOUT_STATUS.items():
            self._add(locked, name, result, parameters)
        self._destroyers = {name: self._address(name) for name in PARAMETERS if name.endswith("_destroy")}
        self.desc_queries = tuple(self._address(f"dnnl_memory_desc_{name}") for name in ("query", "get_size"))

    def _address(self, name: str) -> int:
        function: Any = self._functions[name]
        return ctypes.cast(function, c_void_p).value or 0

    def _add(self, library: ctypes.CDLL, name: str, result: object, parameters: tuple[object, ...]) -> None:
        function: Any = library[name]
        function.restype, function.argtypes = result, parameters
        self._functions[name] = function

    def own(self, handle: object, destroy: str, pointer: c_void_p) -> object:
        """Free an object when its handle is collected; return an object for the handle to hold.

        Nothing is freed at the end of the process: the system frees everything, and libraries may be unloaded before.

        Args:
            handle: the handle.
            destroy: the name of the function that frees the object.
            pointer: the object.
        """
        native = extension()
        if native is None:
            return self._finalize(handle, destroy, pointer)
        return native.own(pointer.value, self._destroyers[destroy])

    def _finalize(self, handle: object, destroy: str, pointer: c_void_p) -> object:
        finalizer = weakref.finalize(handle, self.function(destroy), pointer)
        finalizer.atexit = False
        return None

    def ask(self, name: str, *arguments: object) -> Any:
        """Call an infallible function and return its result."""
        return self._functions[name](*arguments)

    def function(self, name: str) -> Callable[..., int]:
        """Return a function with a status as result; the caller has to check the status."""
        return self._functions[name]

    def attempt(self, name: str, *arguments: object) -> int:
        """Call a function and return its status, a number of :class:`Status`."""
        return int(self._functions[name](*arguments))

    def call(self, name: str, *arguments: object) -> None:
        """Call a function and check its status.

        Raises:
            ExecutionError: the call failed; names the function and the status.
        """
        status = self._functions[name](*arguments)
        if status:
            raise failure(name, status)


def failure(name: str, status: int) -> ExecutionError:
    """Return the error for a function's status."""
    is_named = status in Status._value2member_map_
    text = Status(status).name.lower().replace("_", " ") if is_named else "unknown status"
    return ExecutionError(f"oneDNN's `{name}`", "failed", got=f"status {int(status)} ({text})")
