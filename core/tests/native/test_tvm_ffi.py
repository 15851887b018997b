"""Compiled functions under the real TVM FFI package: the same library, loaded by a program without byoc."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from byoc_core.native.toolchain import find_toolchain

pytestmark = [pytest.mark.interpreter, pytest.mark.libraries]

pytest.importorskip("tvm_ffi")

# Whichever library comes first, the error must arrive: the weak reference is settled at load, or looked up later.
SCRIPT = """
import ctypes, sys
import numpy as np
if sys.argv[2] == "first":
    keep = ctypes.CDLL(sys.argv[1])
import tvm_ffi
function = tvm_ffi.load_module(sys.argv[1])["scaled_add"]
tensor = tvm_ffi.from_dlpack
x, y, out = np.arange(4, dtype="float32"), np.ones(4, dtype="float32"), np.zeros(4, dtype="float32")
function(tensor(x), tensor(y), tensor(out))
assert out.tolist() == [2, 4, 6, 8], out
function(x, y, out)
for arguments in [(x, y), (x, 1, out), (x, y.astype("float64"), out), (x, np.ones(3, "float32"), out),
                  (np.ones((4, 1), "float32"), y, out), (np.arange(8, dtype="float32")[::2], y, out)]:
    try:
        function(*[tensor(a) if isinstance(a, np.ndarray) else a for a in arguments])
    except Exception as error:
        print(type(error).__name__, str(error).splitlines()[0], sep=": ")
    else:
        print("no error")
# a slice: the address of its first element counts
function(tensor(np.arange(8, dtype="float32")[4:]), tensor(y), tensor(out))
assert out.tolist() == [10, 12, 14, 16], out
"""

EXPECTED = """\
TypeError: function `scaled_add`: takes 3 tensors (inputs, then outputs); got 2
TypeError: function `scaled_add`, argument `y`: is not a tensor (type index 1)
TypeError: function `scaled_add`, argument `y`: wrong element type; got float64 (lanes 1), expected float32
ValueError: function `scaled_add`, argument `y`: wrong size of axis 0; got 3, expected 4
ValueError: function `scaled_add`, argument `x`: wrong rank; got 2, expected 1
ValueError: function `scaled_add`, argument `x`: is not contiguous (stride of axis 0: got 2, expected 1)
"""


@pytest.mark.parametrize("order", ["first", "second"])
def test_results_and_errors_cross_the_border(tmp_path: Path, source: str, order: str) -> None:
    path = tmp_path / "library.so"
    path.write_bytes(find_toolchain().compile(source).data)
    command = [sys.executable, "-c", SCRIPT, str(path), order]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout == EXPECTED


def test_byte_offset_is_honoured(source: str) -> None:
    import ctypes

    from byoc_core.native.loader import _Block as Block
    from byoc_core.native.loader import load_library

    compiled = find_toolchain().compile(source)
    library = load_library(compiled.data, compiled.target, "test")
    block = Block([("float32", (2,))] * 3)
    memory, out = np.arange(4, dtype="float32"), np.zeros(2, dtype="float32")
    for tensor, array in zip(block.tensors, (memory, memory, out), strict=True):
        tensor.data = array.ctypes.data
    block.tensors[0].byte_offset = 8
    call = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 2, ctypes.c_int32, ctypes.c_void_p)
    assert call(library.address_of("__tvm_ffi_scaled_add"))(None, block.address, 3, None) == 0
    np.testing.assert_array_equal(out, [4, 8])
