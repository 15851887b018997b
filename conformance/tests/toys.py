"""A backend in a single file without claims; the name of an op selects an effect on the process."""

from __future__ import annotations

import os
from pathlib import Path

SOURCE = """
import os
import time

from byoc_core.backend.hooks import BackendInfo, CodegenResult, Rejection, hookimpl
from pydantic import BaseModel


class Options(BaseModel):
    a: list[int] = []


@hookimpl
def byoc_backend_info():
    return BackendInfo("toy", options=Options)


@hookimpl
def byoc_supports(binding):
    if binding.op.name == "exp":
        os.write(2, b"the driver is gone\\n")
        os.abort()
    if binding.op.name == "log":
        time.sleep(1000)
    if binding.op.name == "sin":
        raise LookupError("<no> sine")
    return Rejection("op", f"no {binding.op.name}")


@hookimpl
def byoc_codegen(functions):
    return CodegenResult(None)
"""
CRASHES = "L1-op-compiles[exp]"
HANGS = "L1-op-compiles[log]"
FAILS = "L1-op-compiles[sin]"
DECLINES = "L1-op-compiles[cos]"


def install_toy(folder: Path) -> str:
    """Write the backend ``toy`` into a folder as pip would, and return a ``PYTHONPATH`` for the backend."""
    info = folder / "byoc_toy-2.0.dist-info"
    info.mkdir(parents=True)
    (folder / "toy_backend.py").write_text(SOURCE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: byoc-toy\nVersion: 2.0\n")
    (info / "entry_points.txt").write_text("[byoc.backends]\ntoy = toy_backend\n")
    return os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
