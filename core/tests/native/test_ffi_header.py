"""The C header's layouts equal the layouts of the real TVM FFI package."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from byoc_core.native.toolchain import find_toolchain, include_directory

pytestmark = [pytest.mark.interpreter, pytest.mark.libraries]

PINS = {
    "TVMFFIAny": ("type_index", "v_int64", "v_ptr"),
    "TVMFFIObject": ("combined_ref_count", "type_index"),
    "DLTensor": ("data", "device", "ndim", "dtype", "shape", "strides", "byte_offset"),
    "DLDataType": ("code", "bits", "lanes"),
    "DLDevice": ("device_type", "device_id"),
}
CONSTANTS = (
    *("kDLCPU", "kDLInt", "kDLUInt", "kDLFloat", "kDLBfloat", "kDLComplex", "kDLBool"),
    *("kTVMFFINone", "kTVMFFIDLTensorPtr", "kTVMFFITensor"),
)


def _real_headers() -> Path:
    tvm_ffi = pytest.importorskip("tvm_ffi")
    return Path(tvm_ffi.__file__).parent / "include"


def test_layouts_and_codes_equal_those_of_the_package(tmp_path: Path) -> None:
    ours = (include_directory() / "byoc_ffi.h").read_text()
    renamed = re.sub(r"\b(k?)(TVMFFI[A-Z]\w*|DL[A-Z]\w*)\b(?!K_)", r"\1Our\2", ours)
    renamed = renamed.replace("DLPACK_DLPACK_H_", "OUR_DLPACK").replace("TVM_FFI_C_API_H_", "OUR_FFI")
    lines = ["#include <tvm/ffi/c_api.h>", renamed]
    for name, fields in PINS.items():
        lines.append(f'_Static_assert(sizeof({name}) == sizeof(Our{name}), "{name}");')
        lines += [
            f'_Static_assert(offsetof({name}, {field}) == offsetof(Our{name}, {field}), "{name}.{field}");'
            for field in fields
        ]
    lines += [f'_Static_assert((int){name} == (int)kOur{name[1:]}, "{name}");' for name in CONSTANTS]
    source = tmp_path / "pins.c"
    source.write_text("\n".join(lines) + "\nint main(void) { return 0; }\n")
    command = [
        *find_toolchain().command,
        "-std=c11",
        f"-I{_real_headers()}",
        f"-I{include_directory()}",
        "-c",
        "-o",
        str(tmp_path / "made.o"),
        str(source),
    ]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr


def test_the_package_s_own_headers_may_come_first(tmp_path: Path) -> None:
    source = tmp_path / "both.c"
    source.write_text('#include <tvm/ffi/c_api.h>\n#include "byoc_ffi.h"\nint main(void) { return 0; }\n')
    includes = [f"-I{_real_headers()}", f"-I{include_directory()}"]
    command = [*find_toolchain().command, "-std=c11", *includes, "-c", "-o", str(tmp_path / "made.o"), str(source)]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_the_support_code_compiles_without_a_warning(tmp_path: Path, compiler: str) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    command = [compiler, "-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-pedantic", "-fPIC", "-c", "-o", "out.o"]
    source = str(include_directory() / "byoc_ffi.c")
    finished = subprocess.run([*command, source], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
