"""byoc: Bring Your Own Codegen, a plugin-based compiler and runtime for neural networks.

::

    session = byoc_core.Session("model.onnx")            # compiled once, kept in a cache
    (y,) = session.run(None, {"x": x})

    module = byoc_core.from_onnx("model.onnx")           # the same in steps
    exe = byoc_core.build(module, backends=["mynpu"])
    print(exe.report())
    exe.save("model.byoc")
    vm = byoc_core.VirtualMachine(byoc_core.load("model.byoc", allow_native=True))
    y = vm["main"](x)

Importing the package reads the metadata of installed plugins, and none of their code. Names are imported at first use:
a process that only runs artifacts never loads the compiler.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from byoc_core.errors import ByocError
from byoc_core.plugin.installation import installation
from byoc_core.version import __version__

if TYPE_CHECKING:
    from byoc_core import (
        artifact,
        authoring,
        benchmarking,
        debugging,
        dims,
        errors,
        ir,
        lint,
        measurements,
        ops,
        partitioning,
        pattern,
        profiling,
        runtime,
        script,
        session,
        transform,
        tuning,
    )
    from byoc_core.artifact import Executable, inspect, load, load_module, verify
    from byoc_core.backend.registry import Backends
    from byoc_core.backend.size_compiler import compiler
    from byoc_core.benchmarking import bench
    from byoc_core.debugging import debug_model
    from byoc_core.driver import Compiler, CompileRequest, Explanation
    from byoc_core.driver.build import build, explain
    from byoc_core.frontend.onnx import from_onnx
    from byoc_core.frontend.registration import register_op
    from byoc_core.ir import IRModule, TensorType
    from byoc_core.lint import lint_backend
    from byoc_core.ops import FunctionBuilder
    from byoc_core.partitioning import partition
    from byoc_core.profiling import profile
    from byoc_core.script import parse
    from byoc_core.session import Session
    from byoc_core.tuning import calibrate, tune
    from byoc_core.vm import VirtualMachine

    backends: Backends
    """The installed backends, and the backends registered by the process."""

__all__ = [
    "ByocError",
    "CompileRequest",
    "Compiler",
    "Executable",
    "Explanation",
    "FunctionBuilder",
    "IRModule",
    "Session",
    "TensorType",
    "VirtualMachine",
    "__version__",
    "artifact",
    "authoring",
    "backends",
    "bench",
    "benchmarking",
    "build",
    "calibrate",
    "compiler",
    "debug_model",
    "debugging",
    "dims",
    "errors",
    "explain",
    "from_onnx",
    "inspect",
    "ir",
    "lint",
    "lint_backend",
    "load",
    "load_module",
    "measurements",
    "ops",
    "parse",
    "partition",
    "partitioning",
    "pattern",
    "profile",
    "profiling",
    "register_op",
    "runtime",
    "script",
    "session",
    "transform",
    "tune",
    "tuning",
    "verify",
]

_HOMES = {
    "CompileRequest": "driver",
    "Compiler": "driver",
    "Executable": "artifact",
    "Explanation": "driver",
    "FunctionBuilder": "ir.builder",
    "IRModule": "ir",
    "Session": "session",
    "TensorType": "ir",
    "VirtualMachine": "vm",
    "bench": "benchmarking",
    "build": "driver",
    "calibrate": "tuning",
    "compiler": "backend.size_compiler",
    "debug_model": "debugging",
    "explain": "driver",
    "from_onnx": "frontend.onnx",
    "inspect": "artifact",
    "lint_backend": "lint",
    "load": "artifact",
    "load_module": "artifact",
    "parse": "script",
    "partition": "partitioning",
    "tune": "tuning",
    "profile": "profiling",
    "register_op": "frontend.registration",
    "verify": "artifact",
}
"""The module of each public name; names of modules are not listed."""


def __getattr__(name: str) -> object:
    if name == "backends":
        return import_module("byoc_core.backend.registry").backends()  # of the current installation
    if name in _HOMES:
        value: object = getattr(import_module(f"byoc_core.{_HOMES[name]}"), name)
    elif name in __all__:
        value = import_module(f"byoc_core.{name}")
    else:
        raise import_module("byoc_core.absent_names").absent_name(__name__, name, __all__)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


installation()
