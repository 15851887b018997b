"""Builds the shared library `byoc_rt/lib/libbyoc_rt.so` (macOS: `.dylib`); everything else stands in pyproject.toml.

The library is no extension module: it calls nothing of Python, so one wheel serves all versions of Python on a
platform. The files in ``csrc/shared`` are links to files of byoc-core in the repository, and files in an sdist.
"""

import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

PLATFORM = sysconfig.get_platform()  # of the machine that runs the library, which may not be this machine
IS_MACOS = PLATFORM.startswith("macosx")
if PLATFORM.startswith(("win", "mingw", "cygwin")):
    raise SystemExit("byoc-rt: the library is for POSIX systems (Linux, macOS); this is Windows")
FILE = f"libbyoc_rt.{'dylib' if IS_MACOS else 'so'}"

FOLDERS = [Path("csrc"), Path("csrc/shared")]
SOURCES = sorted(str(path) for folder in FOLDERS for path in folder.glob("*.c"))
HEADERS = sorted(str(path) for folder in FOLDERS for path in folder.glob("*.h"))
INCLUDES = ["src/byoc_rt/include", *map(str, FOLDERS)]

COMPILE_ARGUMENTS = [
    "-std=c11",
    "-O3",
    "-g0",
    "-ffp-contract=off",  # products round where the code says so, as in numpy
    # Loops over functions of floats vectorise; no code reads errno of such a function, or flags of exceptions.
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fvisibility=hidden",
    "-pthread",
    "-Wall",
    "-Wextra",
    "-Wno-unused-parameter",
]
# The name recorded in programs is the name of the file: a wheel cannot hold the link from a name with a version.
LINK_ARGUMENTS = [
    "-pthread",
    *([f"-Wl,-install_name,@rpath/{FILE}"] if IS_MACOS else [f"-Wl,-soname,{FILE}", "-Wl,-z,defs", "-ldl"]),
    "-lm",
]


class BuildLibrary(build_ext):
    """Builds a library for linkers in place of an extension module."""

    def get_ext_filename(self, fullname: str) -> str:
        """Return the file of the library, without the suffix of extension modules."""
        return str(Path(*fullname.split(".")).with_name(FILE))

    def get_libraries(self, ext: Extension) -> list[str]:
        """Return the libraries of the library, without Python's."""
        return list(ext.libraries)

    def build_extensions(self) -> None:
        """Build with Python's linker, without the options for Python.

        These are the folder of libpython, and on macOS bundles with undefined symbols: programs cannot be linked with
        bundles.
        """
        words = [word for word in self.compiler.linker_so if not word.startswith("-Wl,-rpath")]
        if IS_MACOS:
            words = [word for word in words if word not in ("-undefined", "dynamic_lookup")]
            words = ["-dynamiclib" if word == "-bundle" else word for word in words]
        self.compiler.set_executable("linker_so", words)
        super().build_extensions()

    def copy_extensions_to_source(self) -> None:
        """Put the library beside the sources, for an editable installation."""
        Path("src/byoc_rt/lib").mkdir(exist_ok=True)
        super().copy_extensions_to_source()


class PlatformWheel(bdist_wheel):
    """Tags the wheel with the platform only."""

    def get_tag(self) -> tuple[str, str, str]:
        """Return the tag: any Python 3, no ABI of Python, this platform."""
        return ("py3", "none", super().get_tag()[2])


setup(
    ext_modules=[
        Extension(
            "byoc_rt.lib.libbyoc_rt",
            SOURCES,
            depends=HEADERS,
            include_dirs=INCLUDES,
            define_macros=[("BYOC_RT_BUILDS", None)],
            extra_compile_args=COMPILE_ARGUMENTS,
            extra_link_args=LINK_ARGUMENTS,
        )
    ],
    cmdclass={"build_ext": BuildLibrary, "bdist_wheel": PlatformWheel},
)
