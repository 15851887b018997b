"""Programs written by hand, calling functions of written C."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy.typing as npt
from byoc_core.artifact import Executable
from byoc_core.digest import digest_of
from byoc_core.dims import Dim, parse_dim
from byoc_core.runtime.csource import CSourceModule
from byoc_core.runtime.module import CallTraits, Signature, TensorSpec
from byoc_core.vm import (
    Builtin,
    Call,
    CallKind,
    ConstantRef,
    DynamicTensor,
    Instruction,
    PlannedTensor,
    Program,
    View,
    VMFunction,
)
from byoc_core.vm.program import StateSlot

__all__ = [
    "N",
    "advance",
    "builtin",
    "call",
    "constant_of",
    "executable_of",
    "function_of",
    "module_of",
    "spec",
    "view",
]

F32 = "float32"
N = parse_dim("n")
SOURCE = """\
#include "byoc_ffi.h"

static int64_t stride_of(const DLTensor *tensor, int32_t axis) {
  int64_t stride = 1;
  if (tensor->strides) return tensor->strides[axis];
  for (int32_t i = axis + 1; i < tensor->ndim; ++i) stride *= tensor->shape[i];
  return stride;
}

/* y = x + 1 for tensors of two axes of any strides; a row with a negative first element is refused. */
BYOC_EXPORT int32_t __tvm_ffi_advance(void *handle, const TVMFFIAny *args, int32_t num_args, TVMFFIAny *result) {
  (void)handle, (void)result;
  if (byoc_check_count("advance", num_args, 2)) return -1;
  const DLTensor *x = byoc_tensor("advance", "x", &args[0]), *y = byoc_tensor("advance", "y", &args[1]);
  if (!x || !y) return -1;
  for (int32_t axis = 0; axis < 2; ++axis)
    if (byoc_check_size("advance", "y", y, axis, x->shape[axis])) return -1;
  for (int64_t i = 0; i < x->shape[0]; ++i) {
    for (int64_t k = 0; k < x->shape[1]; ++k) {
      const float element = ((const float *)byoc_data(x))[i * stride_of(x, 0) + k * stride_of(x, 1)];
      if (k == 0 && element < 0) return byoc_fail("ValueError", "function `advance`: row %d is negative", (int)i);
      ((float *)byoc_data(y))[i * stride_of(y, 0) + k * stride_of(y, 1)] = element + 1;
    }
  }
  return 0;
}
"""


def spec(name: str, *shape: Dim | str, dtype: str = F32) -> TensorSpec:
    """Return the declaration of a tensor."""
    return TensorSpec(name, dtype, tuple(parse_dim(dim) if isinstance(dim, str) else dim for dim in shape))


def module_of(*, is_strided: bool = True) -> CSourceModule:
    """Return the module with the function ``advance``."""
    signature = Signature((spec("x", "n", "m"),), (spec("y", "n", "m"),))
    return CSourceModule(SOURCE, {"advance": signature}, traits={"advance": CallTraits(strided=is_strided)})


def call(kind: CallKind, callee: int, args: Sequence[int], results: Sequence[int]) -> Call:
    """Return a call."""
    return Call(kind, callee, tuple(args), tuple(results))


def advance(source: int, target: int) -> Call:
    """Return a call of the only external function."""
    return call(CallKind.EXTERN, 0, [source], [target])


def builtin(name: Builtin, args: Sequence[int], results: Sequence[int]) -> Call:
    """Return a call of a builtin."""
    return call(CallKind.BUILTIN, name, args, results)


def view(base: int, offset: Dim, *shape: Dim, strides: tuple[Dim, ...] | None = None, dtype: str = F32) -> View:
    """Return a view."""
    return View(base, offset, dtype, shape, strides)


def constant_of(array: npt.NDArray[Any]) -> ConstantRef:
    """Return the reference of an array."""
    return ConstantRef(digest_of(array), array.dtype.name, array.shape)


def function_of(
    params: Sequence[TensorSpec],
    results: Sequence[TensorSpec],
    code: Sequence[Instruction],
    *,
    name: str = "main",
    constants: Sequence[int] = (),
    storages: Sequence[Dim] = (),
    tensors: Sequence[PlannedTensor] = (),
    dynamics: Sequence[DynamicTensor] = (),
    views: Sequence[View] = (),
    states: Sequence[StateSlot] = (),
) -> VMFunction:
    """Return a function."""
    groups = (params, results, constants, storages, tensors, dynamics, code, views, states)
    return VMFunction(name, *map(tuple, groups))  # type: ignore[arg-type]


def executable_of(
    *functions: VMFunction, is_strided: bool = True, arrays: Sequence[npt.NDArray[Any]] = ()
) -> Executable:
    """Return the executable of functions calling ``advance``."""
    program = Program(functions, ("advance",), tuple(map(constant_of, arrays)))
    constants = {digest_of(array): array for array in arrays}
    return Executable(program, [module_of(is_strided=is_strided)], constants, is_own=True)
