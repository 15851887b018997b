"""Checks of tensors passed to generated functions: fixed sizes, numbers of tensors, sizes of any magnitude."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from byoc_core.native.toolchain import include_directory

PROGRAM = """
#include "byoc_ffi.h"
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
  static float data[4];
  int64_t shape[8];
  for (int axis = 0; axis < argc - 1; ++axis) shape[axis] = strtoll(argv[axis + 1], NULL, 10);
  DLTensor tensor = {data, {kDLCPU, 0}, argc - 1, {kDLFloat, 32, 1}, shape, NULL, 0};
  printf("%d\\n", (int)byoc_check_tensor("f", "x", &tensor, kDLFloat, 32, argc - 1));
  return 0;
}
"""

CALL = """
#include "byoc_ffi.h"
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
  static const char *const names[] = {"x", "out", "workspace"};
  static const int64_t expected[] = {3, -1, 2};
  static float data[64];
  int64_t shape[3] = {0, 0, 0};
  for (int axis = 0; axis < argc - 3 && axis < 3; ++axis) shape[axis] = strtoll(argv[axis + 3], NULL, 10);
  DLTensor tensor = {data, {kDLCPU, 0}, argc - 3, {kDLFloat, 32, 1}, shape, NULL, 0};
  const DLTensor other = tensor, *tensors[3] = {&other, &other, &other};
  int32_t num_args = atoi(argv[2]);
  TVMFFIAny *args = (TVMFFIAny *)calloc((size_t)num_args + 1, sizeof(TVMFFIAny));
  for (int32_t index = 0; index < num_args; ++index) {
    args[index].type_index = kTVMFFIDLTensorPtr;
    args[index].v_ptr = &tensor;
  }
  if (byoc_read_tensors("f", names, 2, atoi(argv[1]), args, num_args, tensors) ||
      byoc_check_shape("f", "x", tensors[0], kDLFloat, 32, 3, expected)) {
    printf("%s\\n", byoc_last_error());
  } else {
    printf("read, %s workspace\\n", tensors[2] == &tensor ? "own" : tensors[2] ? "other" : "no");
  }
  free(args);
  return 0;
}
"""


@pytest.fixture(scope="module")
def check(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a program checking a tensor of the sizes given as arguments, under UBSan."""
    return _build(PROGRAM, tmp_path_factory.mktemp("check"))


@pytest.fixture(scope="module")
def call(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a program reading tensors as a generated function does, under UBSan.

    The arguments are: whether the function takes a workspace, the number of tensors, and their sizes.
    """
    return _build(CALL, tmp_path_factory.mktemp("call"))


def _build(program: str, folder: Path) -> Path:
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    (folder / "check.c").write_text(program)
    sources = ["check.c", str(include_directory() / "byoc_ffi.c")]
    flags = ["-std=c11", "-fsanitize=undefined", "-fno-sanitize-recover=all", f"-I{include_directory()}"]
    subprocess.run(["gcc", *flags, *sources, "-o", "check", "-ldl", "-lpthread"], cwd=folder, check=True)
    return folder / "check"


@pytest.mark.parametrize(
    ("sizes", "is_accepted"),
    [
        ((2, 2), True),
        ((), True),
        ((2**61 - 1,), True),  # 4 bytes short of the largest number of 64 bits
        ((2**61,), False),
        ((2**31, 2**31), False),
        ((2**32, 2**32), False),  # the product of 64 bits is 0
        ((2**62, 8, 0), True),
        ((0, 2**62, 8), True),
        ((4, -1), False),
        ((0, -1), False),
    ],
)
def test_sizes_beyond_any_memory_are_refused(check: Path, sizes: tuple[int, ...], is_accepted: bool) -> None:
    done = subprocess.run([check, *map(str, sizes)], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == (f"{0 if is_accepted else -1}\n", "")


def _print_call(program: Path, *arguments: int) -> str:
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, check=True)
    assert not done.stderr
    return done.stdout.rstrip()


@pytest.mark.parametrize(
    ("shape", "text"),
    [
        ((3, 4, 2), "read"),
        ((3, 0, 2), "read"),
        ((4, 4, 2), "function `f`, argument `x`: wrong size of axis 0; got 4, expected 3"),
        ((3, 4, 1), "function `f`, argument `x`: wrong size of axis 2; got 1, expected 2"),
        ((0, 4, 3), "function `f`, argument `x`: wrong size of axis 0; got 0, expected 3"),
        ((3, 4), "function `f`, argument `x`: wrong rank; got 2, expected 3"),
        ((3, -1, 2), "function `f`, argument `x`: axis 1 has a negative size"),
    ],
)
def test_fixed_sizes_of_a_table_are_checked(call: Path, shape: tuple[int, ...], text: str) -> None:
    assert _print_call(call, 0, 2, *shape).startswith(text)


def test_a_call_has_all_tensors_and_may_have_a_workspace(call: Path) -> None:
    assert _print_call(call, 1, 2, 3, 4, 2) == "read, no workspace"
    assert _print_call(call, 1, 3, 3, 4, 2) == "read, own workspace"
    for has_workspace, counts in ((0, (0, 1, 3)), (1, (0, 1, 4))):
        for count in counts:
            expected = f"function `f`: takes 2 tensors (inputs, then outputs); got {count}"
            assert _print_call(call, has_workspace, count, 3, 4, 2) == expected
