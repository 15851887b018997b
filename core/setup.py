"""Builds the optional extension `byoc_core._native`; everything else stands in pyproject.toml.

Without a C compiler the package is built without it, and runs programs in Python. The environment variable
``BYOC_BUILD_EXTENSION`` says otherwise: ``required`` ends the build where the extension cannot be built, ``never``
builds the package without it, for any platform.
"""

import os
from pathlib import Path

from setuptools import Extension, setup

SHARED = Path("src/byoc_core/native")  # also compiled into exported libraries
SHARED_SOURCES = [SHARED / "byoc_executor.c", SHARED / "byoc_places.c"]
SHARED_HEADERS = sorted(SHARED.glob("*.h"))
SOURCES = sorted(str(path) for path in (*Path("csrc").glob("*.c"), *SHARED_SOURCES))
HEADERS = sorted(str(path) for path in (*Path("csrc").glob("*.h"), *SHARED_HEADERS))


def find_numpy_headers() -> list[str]:
    """Gives the folder of numpy's headers; none where numpy is not there, and then the extension is not built."""
    try:
        import numpy as np
    except ImportError:
        return []
    return [np.get_include()]


COMPILE_ARGUMENTS = [
    "-std=c11",
    "-O3",
    # As generated C is compiled: loops over functions of floats vectorise, and products round where the code says so.
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-trapping-math",
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
            "byoc_core._native",
            SOURCES,
            depends=HEADERS,
            include_dirs=["csrc", str(SHARED), *find_numpy_headers()],
            # One wheel for all versions of Python from 3.11 on.
            define_macros=[("Py_LIMITED_API", "0x030B0000")],
            py_limited_api=True,
            extra_compile_args=COMPILE_ARGUMENTS,
            optional=WANTED != "required",
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
