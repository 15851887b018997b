"""Generated C with calls of an author's library: linked, saved, loaded, exported; missing parts are named."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import byoc_core
import numpy as np
import pytest
from byoc_core import script as R
from byoc_core.artifact.executable import Executable
from byoc_core.authoring import CSourceCodegen
from byoc_core.authoring.csource_scope import FunctionScope
from byoc_core.errors import ArtifactError, CodegenError, OptionsError, ToolchainError
from byoc_core.ir import Binding
from byoc_core.native.build_options import merge_linkage
from byoc_core.native.elf import read_dynamic_names
from byoc_core.native.toolchain import BuildOptions, Toolchain, find_toolchain
from byoc_core.runtime.csource import CSourceModule
from byoc_core.runtime.csource.payload import decode, encode
from byoc_core.runtime.hooks import LoadContext

pytestmark = [
    pytest.mark.skipif(not Toolchain.status().ok, reason="no C compiler"),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the library is built as on Linux"),
]

HEADER = "#define SCALE_STEP 1.0f\nfloat mylib_scale(float x);\n"
LIBRARY = '#include "mylib.h"\nfloat mylib_scale(float x) { return FACTOR * x; }\n'
INPUT = np.arange(8, dtype=np.float32)


class Codegen(CSourceCodegen):
    """Generated code with calls of ``mylib_scale`` for ``exp``, and of ``mylib_gone`` for ``tanh``."""

    def preamble(self, text: str) -> str:
        return '\n#include "mylib.h"\nfloat mylib_gone(float x);\n'

    def visit_call(self, scope: FunctionScope, binding: Binding, inputs: Sequence[str]) -> None:
        function = {"exp": "mylib_scale", "tanh": "mylib_gone"}.get(binding.op.name)
        if function is None:
            super().visit_call(scope, binding, inputs)
            return
        kernel = scope.declare_kernel(
            "static void {name}(const float *x, float *out) {"
            f" for (int i = 0; i < 8; ++i) out[i] = SCALE_STEP * {function}(x[i]); }}"
        )
        scope.call(kernel, *inputs, scope.buffer(binding.result))


def module_of(**ops: str) -> Any:
    return R.parse(
        "\n".join(f"def {name}(x: R.Tensor((8,))):\n    y = R.{op}(x)\n    return y\n" for name, op in ops.items())
    )


class Author:
    """A folder with a header and the library in several forms."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        (folder / "mylib.h").write_text(HEADER)

    def run(self, *command: str) -> None:
        subprocess.run(command, cwd=self.folder, check=True, capture_output=True, timeout=120)

    def build(self, kind: str, factor: str = "3.0f", *, own_name: bool = False) -> None:
        (self.folder / "mylib.c").write_text(LIBRARY)
        cc = [*find_toolchain().command, f"-DFACTOR={factor}", "-fPIC"]
        self.run(*cc, "-c", "-o", "mylib.o", "mylib.c")
        if kind == "static":
            self.run("ar", "rcs", "libmylib.a", "mylib.o")
        elif kind == "shared":
            name = ["-Wl,-soname,libmylib.so.1"] if own_name else []
            self.run(*cc, "-shared", *name, "-o", "libmylib.so", "mylib.c")

    def options(self, kind: str, **more: object) -> BuildOptions:
        given: dict[str, Any] = {"include_dirs": (self.folder,), "opt_level": 1, "march": "generic", **more}
        if kind == "object":
            given["extra_objects"] = (self.folder / "mylib.o",)
        elif kind == "archive":
            given["extra_objects"] = (self.folder / "libmylib.a",)
        else:
            given |= {"libraries": ("mylib",), "library_dirs": (self.folder,)}
        return BuildOptions(**given)


@pytest.fixture
def author(tmp_path: Path) -> Author:
    return Author(tmp_path / "author")


def executable_of(*modules: CSourceModule, names: Mapping[str, str] = MappingProxyType({"f": "f"})) -> Executable:
    calls = "".join(
        f"def call_{name}(x: R.Tensor((8,))):\n"
        f'    y = R.call_dps_packed("{symbol}", (x,), out_types=[R.Tensor((8,))])\n    return y\n'
        for name, symbol in names.items()
    )
    return byoc_core.build(R.parse(calls).with_attrs(external_mods=modules), [])


def call(function: Callable[..., object]) -> Any:
    out = np.empty_like(INPUT)
    function(INPUT, out)
    return out


FORMS = pytest.mark.parametrize(
    ("built", "linked", "own_name"),
    [
        ("shared", "library", False),
        ("shared", "library", True),
        ("static", "library", False),
        ("static", "archive", False),
        ("object", "object", False),
    ],
)


@FORMS
def test_a_library_of_any_form_is_called(author: Author, built: str, linked: str, own_name: bool) -> None:
    author.build(built, own_name=own_name)
    module = Codegen(author.options(linked)).generate(module_of(f="exp", g="exp", h="abs"))
    np.testing.assert_array_equal(call(module.get_function("f")), 3 * INPUT)
    np.testing.assert_array_equal(call(module.get_function("g")), 3 * INPUT)
    np.testing.assert_array_equal(call(module.get_function("h")), INPUT)
    assert str(author.folder).encode() not in module.build().data  # nobody's folders travel


def test_relative_folders_are_those_of_the_caller(author: Author, monkeypatch: pytest.MonkeyPatch) -> None:
    author.build("shared")
    monkeypatch.chdir(author.folder)
    given: Any = {"libraries": "mylib", "library_dirs": ".", "include_dirs": Path()}
    options = BuildOptions(**given)
    assert options.library_dirs == (str(author.folder),)
    monkeypatch.chdir("/")
    np.testing.assert_array_equal(call(Codegen(options).generate(module_of(f="exp")).get_function("f")), 3 * INPUT)


@FORMS
def test_saved_and_loaded_in_another_process(
    author: Author, tmp_path: Path, built: str, linked: str, own_name: bool
) -> None:
    author.build(built, own_name=own_name)
    module = Codegen(author.options(linked)).generate(module_of(f="exp"))
    path = tmp_path / "model.byoc"
    executable_of(module).save(path)
    assert str(author.folder).encode() not in path.read_bytes()
    program = (
        "import byoc_core, numpy as np, os\n"
        f"exe = byoc_core.load({str(path)!r}, allow_native=True)\n"
        "try:\n"
        "    print(byoc_core.VirtualMachine(exe)['call_f'](np.arange(8, dtype=np.float32))[7])\n"
        "except byoc_core.errors.ArtifactError as error:\n"
        "    print(error)\n"
    )
    needed = "libmylib.so.1" if own_name else "libmylib.so"
    (tmp_path / "found").mkdir()
    told = {}
    for setting in ("", str(tmp_path / "found")):
        if setting and built == "shared":
            (author.folder / "libmylib.so").rename(tmp_path / "found" / needed)
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "BYOC_LIBRARY_PATH": setting},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.stderr == ""
        told[bool(setting)] = done.stdout
    assert told[True] == "21.0\n"
    missing = (
        f"library `f`: needs library `{needed}`, but the library is not found. Install the library, or add the folder "
        f"to $BYOC_LIBRARY_PATH: artifacts do not contain shared libraries.\n"
    )
    assert told[False] == (missing if built == "shared" else "21.0\n")


def test_several_modules_are_exported_into_one_library(author: Author, tmp_path: Path) -> None:
    author.build("static")
    other = Author(tmp_path / "other")
    (other.folder / "mylib.h").write_text(
        "#define SCALE_STEP 1.0f\nfloat mylib_gone(float x);float mylib_scale(float);\n"
    )
    (other.folder / "gone.c").write_text(
        "float mylib_scale(float);float mylib_gone(float x) { return mylib_scale(x) + 1; }\n"
    )
    other.run(*find_toolchain().command, "-shared", "-fPIC", "-o", "libgone.so", "gone.c")
    one = Codegen(author.options("library")).generate(module_of(f="exp"))
    folders: Any = {"library_dirs": (other.folder, author.folder), "include_dirs": (other.folder,)}
    options = BuildOptions(1, "generic", libraries=("gone", "mylib"), **folders)
    two = Codegen(options).generate(module_of(g="tanh", h="exp"))
    executable = executable_of(one, two, names={"f": "f", "h": "h"})
    path = other.folder / "model.so"  # beside the shared library
    executable.export_library(path)
    names = read_dynamic_names(path.read_bytes())
    assert names is not None
    assert "libgone.so" in names.needed
    assert not any("mylib" in name for name in names.needed)
    assert str(author.folder).encode() not in path.read_bytes()
    program = (
        "import ctypes, sys\n"
        f"library = ctypes.CDLL({str(path)!r})\n"
        "print(all(hasattr(library, '__tvm_ffi_' + name) for name in 'fgh'), hasattr(library, 'byoc_last_error'))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert (done.stdout, done.stderr) == ("True True\n", "")  # found beside the file


@pytest.mark.parametrize("form", ["shared", "static"])
def test_the_test_program_of_exported_c_finds_the_library(author: Author, tmp_path: Path, form: str) -> None:
    author.build(form)
    main = (
        'def main(x: R.Tensor((8,))):\n    y = R.call_dps_packed("f", (x,), out_types=[R.Tensor((8,))])\n    return y\n'
    )
    modules = (Codegen(author.options("library")).generate(module_of(f="exp")),)
    byoc_core.build(R.parse(main).with_attrs(external_mods=modules), []).export_c(tmp_path / "c")
    command = ["make", "-s", "check", f"CPPFLAGS=-I{author.folder}"]
    done = subprocess.run(command, cwd=tmp_path / "c", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "right" in done.stdout


def test_a_loaded_artifact_is_not_exported_without_what_it_was_built_with(author: Author, tmp_path: Path) -> None:
    author.build("static")
    module = Codegen(author.options("archive")).generate(module_of(f="exp"))
    assert module.payload_format == 3
    executable_of(module).save(tmp_path / "model.byoc")
    loaded = byoc_core.load(tmp_path / "model.byoc", allow_native=True)
    np.testing.assert_array_equal(byoc_core.VirtualMachine(loaded)["call_f"](INPUT), 3 * INPUT)
    loaded.save(tmp_path / "again.byoc")
    assert (tmp_path / "again.byoc").read_bytes() == (tmp_path / "model.byoc").read_bytes()
    with pytest.raises(ToolchainError) as caught:
        loaded.export_library(tmp_path / "model.so")
    assert str(caught.value) == (
        "library `f`: was built with files missing in the artifact: libmylib.a, headers. "
        "Build or export the library where the model is compiled."
    )


# -- what is missing ---------------------------------------------------------------------------------------------------


def test_a_symbol_that_nobody_defines_is_named_at_codegen(author: Author) -> None:
    author.build("shared")
    with pytest.raises(CodegenError) as caught:
        Codegen(author.options("library")).generate(module_of(f="exp", g="tanh"))
    assert str(caught.value).splitlines()[0] == (
        "function `g`: calls `mylib_gone`, defined by no library; expected a definition in library `mylib`; "
        f"looked for in {author.folder}, the folders of the linker"
    )
    assert "undefined" in str(caught.value)


def test_a_symbol_without_any_library_is_named_when_the_library_is_built(author: Author) -> None:
    module = Codegen(BuildOptions(include_dirs=(str(author.folder),))).generate(module_of(f="exp"))
    with pytest.raises(ToolchainError, match=r"^C linker: no object and no library defines `mylib_scale`\n"):
        module.build()


def test_a_library_that_is_not_there_is_named_with_the_folders(author: Author) -> None:
    with pytest.raises(ToolchainError) as caught:
        Codegen(author.options("library")).generate(module_of(f="exp"))
    assert str(caught.value).splitlines()[0] == (
        "library `mylib`: is not found; expected libmylib.so or libmylib.a in the linker's own folders or in "
        f"{author.folder}. Give the library's folder as `library_dirs` of the build options."
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"extra_objects": ("/no/such/a.o",)}, "extra object `/no/such/a.o`: cannot be read: "),
        (
            {"extra_objects": ("/no/such/liba.so",)},
            (
                "extra object `/no/such/liba.so`: is neither an object file nor a static library; expected *.o or *.a. "
                "Name a shared library in `libraries`, and the folder in `library_dirs`."
            ),
        ),
        (
            {"libraries": ("m",), "library_dirs": ("/no/such",)},
            "library folder `/no/such`: does not exist. See `library_dirs`.",
        ),
    ],
)
def test_files_that_are_not_there(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ToolchainError) as caught:
        CSourceCodegen(BuildOptions(**options)).generate(module_of(f="abs")).build()
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"libraries": ("-lmylib",)},
            "option `libraries`: is not a library name; got '-lmylib', expected a name such as 'mylib'",
        ),
        ({"libraries": ("libmylib.so",)}, "option `libraries`: is a file name; got 'libmylib.so', expected 'mylib'"),
        (
            {"libraries": ("./mylib",)},
            (
                "option `libraries`: is a path; got './mylib', expected a name such as 'mylib'. "
                "Give the folder as `library_dirs`, or a static library's path as `extra_objects`."
            ),
        ),
        (
            {"extra_flags": ("-L.", "-lmylib")},
            (
                "option `extra_flags`: flag -L. names a relative folder, but the compiler runs in another folder. "
                "Give the folder as `library_dirs`."
            ),
        ),
    ],
)
def test_options_that_cannot_be_meant(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionsError) as caught:
        BuildOptions(**options)
    assert str(caught.value) == message


def test_flags_that_name_libraries_stand_behind_the_objects(author: Author) -> None:
    author.build("static")
    flags = (f"-I{author.folder}", f"-L{author.folder}", "-lmylib")
    module = Codegen(BuildOptions(1, "generic", flags)).generate(module_of(f="exp"))
    np.testing.assert_array_equal(call(module.get_function("f")), 3 * INPUT)


# -- the build cache ---------------------------------------------------------------------------------------------------


@FORMS
def test_a_changed_library_is_linked_again(author: Author, built: str, linked: str, own_name: bool) -> None:
    author.build(built, own_name=own_name)
    options = author.options(linked)
    first = Codegen(options).generate(module_of(f="exp")).build()
    assert Codegen(options).generate(module_of(f="exp")).build() == first
    author.build(built, "5.0f", own_name=own_name)
    if built != "shared":
        second = Codegen(options).generate(module_of(f="exp"))
        np.testing.assert_array_equal(call(second.get_function("f")), 5 * INPUT)
        return
    (author.folder / "mylib.c").write_text("int nothing;\n")
    author.run(*find_toolchain().command, "-shared", "-fPIC", "-o", "libmylib.so", "mylib.c")
    with pytest.raises(CodegenError, match="calls `mylib_scale`, defined by no library"):
        Codegen(options).generate(module_of(f="exp"))


def test_a_changed_header_is_compiled_again(author: Author) -> None:
    author.build("static")
    options = author.options("library")
    np.testing.assert_array_equal(call(Codegen(options).generate(module_of(f="exp")).get_function("f")), 3 * INPUT)
    (author.folder / "mylib.h").write_text(HEADER.replace("1.0f", "2.0f"))
    np.testing.assert_array_equal(call(Codegen(options).generate(module_of(f="exp")).get_function("f")), 6 * INPUT)


def test_options_of_several_sources_keep_each_order() -> None:
    one = BuildOptions(2, libraries=("a", "b"), library_dirs=("/x",), extra_objects=("/o.o",))
    two = BuildOptions(3, libraries=("c", "a"), library_dirs=("/y", "/x"), extra_objects=("/o.o",))
    merged = merge_linkage([one, two, one])
    assert merged.opt_level == 2
    assert merged.libraries == ("a", "b", "c", "a")
    assert (merged.library_dirs, merged.extra_objects) == (("/x", "/y"), ("/o.o",))


def test_a_payload_cannot_name_a_path(author: Author) -> None:
    author.build("static")
    payload = encode(Codegen(author.options("library")).generate(module_of(f="exp")))
    magic = b"byoc-csource-3\n"
    body = payload[len(magic) + 32 :]
    assert b'"libraries": ["mylib"]' in body
    forged = body.replace(b'["mylib"]', b'["../ib"]')
    with pytest.raises(ArtifactError, match="the header of a csource module is malformed"):
        decode(magic + hashlib.sha256(forged).digest() + forged, LoadContext(source="forged"))
