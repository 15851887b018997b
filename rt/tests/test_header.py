"""The header compiles alone, and its structures have the layouts of DLPack and of the TVM FFI package."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import byoc_rt
import pytest
from byoc_core.native.toolchain import Toolchain, find_toolchain

pytestmark = pytest.mark.skipif(not Toolchain.status().ok, reason="no C compiler")

HEADER = byoc_rt.include_directory() / "byoc_rt.h"
PINS = {
    "DLManagedTensorVersioned": ("version", "manager_ctx", "deleter", "flags", "dl_tensor"),
    "DLPackVersion": ("major", "minor"),
    "DLTensor": ("data", "device", "ndim", "dtype", "shape", "strides", "byte_offset"),
    "DLDataType": ("code", "bits", "lanes"),
    "DLDevice": ("device_type", "device_id"),
    "TVMFFIAny": ("type_index", "v_int64", "v_float64", "v_ptr"),
}
CODES = (
    *("kDLCPU", "kDLInt", "kDLUInt", "kDLFloat", "kDLBfloat", "kDLComplex", "kDLBool"),
    *("kTVMFFINone", "kTVMFFIDLTensorPtr", "kTVMFFITensor"),
)


def check(source: Path, *options: str, command: Sequence[str] = ()) -> None:
    """Compile a source without a warning."""
    flags = [*shlex.split("-Wall -Wextra -Wpedantic -Werror -fsyntax-only"), f"-I{HEADER.parent}", *options]
    words = [*(command or find_toolchain().command), *flags, str(source)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("language", ["c11", "c17", "c++11", "c++17"])
def test_the_header_compiles_alone(tmp_path: Path, language: str) -> None:
    is_cpp = language.startswith("c++")
    if is_cpp and shutil.which("c++") is None:
        pytest.skip("c++ is not installed")
    source = tmp_path / ("alone.cpp" if is_cpp else "alone.c")
    source.write_text("#include <byoc_rt.h>\n#include <byoc_rt.h>\nint version = BYOC_RT_ABI_VERSION;\n", "utf-8")
    check(source, f"-std={language}", command=["c++"] if is_cpp else ())


@pytest.mark.libraries
def test_layouts_and_codes_are_those_of_the_packages(tmp_path: Path) -> None:
    text = HEADER.read_text("utf-8").replace("DLPACK_DLPACK_H_", "OUR_DLPACK_H").replace("TVM_FFI_C_API_H_", "OUR_FFI")
    text = re.sub(r"\b(k?)(TVMFFI[A-Z]\w*|DL[A-Z]\w*)\b", r"\1Our\2", text)
    lines = ["#include <tvm/ffi/c_api.h>", text]
    for name, fields in PINS.items():
        lines.append(f'_Static_assert(sizeof({name}) == sizeof(Our{name}), "{name}");')
        for field in fields:
            offsets = f"offsetof({name}, {field}) == offsetof(Our{name}, {field})"
            lines.append(f'_Static_assert({offsets}, "{name}.{field}");')
    lines += [f'_Static_assert((int){name} == (int)kOur{name[1:]}, "{name}");' for name in CODES]
    source = tmp_path / "pins.c"
    source.write_text("\n".join(lines) + "\n", "utf-8")
    check(source, "-std=c11", "-Wno-pedantic", "-isystem", str(_real_headers()))


@pytest.mark.libraries
def test_the_headers_of_the_packages_may_come_first(tmp_path: Path) -> None:
    source = tmp_path / "both.c"
    source.write_text("#include <tvm/ffi/c_api.h>\n#include <byoc_rt.h>\nint version = BYOC_RT_ABI_VERSION;\n", "utf-8")
    check(source, "-std=c11", "-Wno-pedantic", "-isystem", str(_real_headers()))


def _real_headers() -> Path:
    tvm_ffi = pytest.importorskip("tvm_ffi")
    return Path(tvm_ffi.__file__).parent / "include"
