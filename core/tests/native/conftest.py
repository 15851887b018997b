"""A C function of the ABI, written by hand, for the tests of toolchain, loader and bundles."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

SCALED_ADD = """\
#include "byoc_ffi.h"

/* out = FACTOR * (x + y), float32[n] */
BYOC_EXPORT int32_t __tvm_ffi_SYMBOL(void *handle, const TVMFFIAny *args, int32_t num_args, TVMFFIAny *result) {
  static const char *const names[] = {"x", "y", "out"};
  const DLTensor *tensors[3];
  int64_t n = 0;
  (void)handle;
  (void)result;
  if (byoc_check_count("SYMBOL", num_args, 3)) return -1;
  for (int32_t i = 0; i < 3; ++i) {
    tensors[i] = byoc_tensor("SYMBOL", names[i], &args[i]);
    if (!tensors[i]) return -1;
    if (byoc_check_tensor("SYMBOL", names[i], tensors[i], kDLFloat, 32, 1)) return -1;
  }
  if (byoc_solve_size("SYMBOL", "x", tensors[0], 0, 1, 0, &n)) return -1;
  if (byoc_check_size("SYMBOL", "y", tensors[1], 0, n)) return -1;
  if (byoc_check_size("SYMBOL", "out", tensors[2], 0, n)) return -1;
  const float *x = byoc_data(tensors[0]);
  const float *y = byoc_data(tensors[1]);
  float *out = byoc_data(tensors[2]);
  for (int64_t i = 0; i < n; ++i) {
    out[i] = FACTOR * (x[i] + y[i]);
  }
  return 0;
}
"""


def scaled_add(symbol: str = "scaled_add", factor: str = "2.0f") -> str:
    return SCALED_ADD.replace("SYMBOL", symbol).replace("FACTOR", factor)


@pytest.fixture
def source() -> str:
    return scaled_add()


@pytest.fixture
def make_source() -> Callable[..., str]:
    return scaled_add


@pytest.fixture(autouse=True)
def _trust_nothing(own_cache: Path) -> None:
    """A cache for each test: artifacts recorded in the user's cache need no permission."""
