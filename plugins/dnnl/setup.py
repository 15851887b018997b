"""Builds the optional native files; everything else stands in pyproject.toml.

These are the extension `byoc_dnnl._native`, and the native half of the runtime, `byoc_dnnl/lib/libbyoc_dnnl_rt.so`
(macOS: `.dylib`), a library for programs without Python. Without a C compiler the package is built without both, and
calls oneDNN from Python. The environment variable ``BYOC_BUILD_EXTENSION`` says otherwise: ``required`` ends the build
where a native file cannot be built, ``never`` builds the package without them, for any platform. Neither file is linked
with oneDNN, and the native half is not linked with the C runtime: their functions come by address.

The files in ``csrc/runtime/shared`` are links to files of byoc-core and byoc-rt in the repository, and files in an
sdist.
"""

import os
import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

CSRC, PYTHON, RUNTIME = Path("csrc"), Path("csrc/python"), Path("csrc/runtime")
LIBRARY = f"libbyoc_dnnl_rt.{'dylib' if sysconfig.get_platform().startswith('macosx') else 'so'}"

COMPILE_ARGUMENTS = [
    "-std=c11",
    "-O3",
    "-pthread",
    "-Wall",
    "-Wextra",
    "-Wno-unused-parameter",
    "-Wno-cast-function-type",
    "-Wno-missing-field-initializers",
    "-fvisibility=hidden",
]

# As in the core, for the functions of the core: loops of floats vectorise, and products round where the code says so.
FUNCTION_ARGUMENTS = ["-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"]

WANTED = os.environ.get("BYOC_BUILD_EXTENSION", "")
if WANTED not in ("", "required", "never"):
    raise SystemExit(f"BYOC_BUILD_EXTENSION: got {WANTED!r}, expected `required`, `never` or nothing")


def files(pattern: str, *folders: Path) -> list[str]:
    """Return the files of folders."""
    return sorted(str(path) for folder in folders for path in folder.glob(pattern))


class Library(Extension):
    """A library for programs, in place of an extension module."""


class BuildLibrary(build_ext):
    """Builds extensions, and the library beside them."""

    def get_ext_filename(self, fullname: str) -> str:
        """Return the file of an extension; the library has no suffix of extension modules."""
        if fullname.rpartition(".")[2] != "libbyoc_dnnl_rt":
            name: str = super().get_ext_filename(fullname)
            return name
        return str(Path(*fullname.split(".")).with_name(LIBRARY))

    def get_libraries(self, ext: Extension) -> list[str]:
        """Return the libraries of a file; the library needs none of Python's."""
        return list(ext.libraries) if isinstance(ext, Library) else super().get_libraries(ext)

    def copy_extensions_to_source(self) -> None:
        """Put the library beside the sources, for an editable installation."""
        Path("src/byoc_dnnl/lib").mkdir(exist_ok=True)
        super().copy_extensions_to_source()


setup(
    ext_modules=[]
    if WANTED == "never"
    else [
        Extension(
            "byoc_dnnl._native",
            files("*.c", CSRC, PYTHON),
            depends=files("*.h", CSRC, PYTHON),
            include_dirs=["csrc", "csrc/python"],
            # One wheel for all versions of Python from 3.11 on.
            define_macros=[("Py_LIMITED_API", "0x030B0000")],
            py_limited_api=True,
            extra_compile_args=COMPILE_ARGUMENTS,
            extra_link_args=["-pthread"],
            optional=WANTED != "required",
        ),
        Library(
            "byoc_dnnl.lib.libbyoc_dnnl_rt",
            files("*.c", CSRC, RUNTIME, RUNTIME / "shared"),
            depends=files("*.h", CSRC, RUNTIME, RUNTIME / "shared"),
            include_dirs=["csrc", "csrc/runtime", "csrc/runtime/shared"],
            extra_compile_args=[*COMPILE_ARGUMENTS, *FUNCTION_ARGUMENTS, "-g0"],
            extra_link_args=["-pthread", "-ldl"],
            optional=WANTED != "required",
        ),
    ],
    cmdclass={"build_ext": BuildLibrary},
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
