"""Builds the optional extension `byoc_dnnl._native`; everything else stands in pyproject.toml.

Without a C compiler the package is built without it, and calls oneDNN from Python. The environment variable
``BYOC_BUILD_EXTENSION`` says otherwise: ``required`` ends the build where the extension cannot be built, ``never``
builds the package without it, for any platform. The extension is not linked with oneDNN: its functions come by address.
"""

import os
from pathlib import Path

from setuptools import Extension, setup

SOURCES = sorted(str(path) for path in Path("csrc").glob("*.c"))
HEADERS = sorted(str(path) for path in Path("csrc").glob("*.h"))

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

WANTED = os.environ.get("BYOC_BUILD_EXTENSION", "")
if WANTED not in ("", "required", "never"):
    raise SystemExit(f"BYOC_BUILD_EXTENSION: got {WANTED!r}, expected `required`, `never` or nothing")

setup(
    ext_modules=[]
    if WANTED == "never"
    else [
        Extension(
            "byoc_dnnl._native",
            SOURCES,
            depends=HEADERS,
            include_dirs=["csrc"],
            # One wheel for all versions of Python from 3.11 on.
            define_macros=[("Py_LIMITED_API", "0x030B0000")],
            py_limited_api=True,
            extra_compile_args=COMPILE_ARGUMENTS,
            extra_link_args=["-pthread"],
            optional=WANTED != "required",
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
