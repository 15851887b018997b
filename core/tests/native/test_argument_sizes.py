"""Checks of tensors passed to generated functions: sizes of any magnitude are judged without overflow."""

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


@pytest.fixture(scope="module")
def check(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a program checking a tensor of the sizes given as arguments, under UBSan."""
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    folder = tmp_path_factory.mktemp("check")
    (folder / "check.c").write_text(PROGRAM)
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
