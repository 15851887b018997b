"""Which tests run again where their outcome may be another: on other Pythons, without plugins, with old versions."""

from __future__ import annotations

__all__ = ["ASKING_FOR_PLUGINS", "DIFFERING", "LIBRARY_TESTS", "MINIMUM_TESTS"]

DIFFERING = (
    *(f"core/tests/{name}" for name in ("architecture", "native", "plugin", "runtime", "seeds", "vm")),
    *(f"core/tests/test_{name}.py" for name in ("driver", "errors", "file_replacement", "script", "script_sources")),
    *(
        f"core/tests/artifact/test_{name}.py"
        for name in ("artifact", "fresh_process", "hostile_artifact", "native_artifact", "shared_constants")
    ),
    *(f"core/tests/kernels/test_{name}.py" for name in ("kernels_dtypes", "numpy_kernel")),
    *(f"core/tests/cli/test_cli_{name}.py" for name in ("installed_commands", "models", "native", "shell")),
    "core/tests/debugging/test_debug_isolation.py",
    *(f"plugins/ccompiler/tests/test_ccompiler_{name}.py" for name in ("backend", "export", "seed_s002", "threads")),
    *(f"plugins/dnnl/tests/test_dnnl_{name}.py" for name in ("extension", "native_calls")),
    *(f"plugins/examplejson/tests/test_examplejson_{name}.py" for name in ("backend", "export", "road", "text")),
    *(f"conformance/tests/test_{name}.py" for name in ("fresh_process", "subject")),
)
"""Tests whose outcome may hang on the interpreter or on its numpy: of imports, parsing of Python, metadata, processes,
threads, files, the C extension, warnings of numpy. The others compute on what these have tested."""
ASKING_FOR_PLUGINS = (
    *(f"core/tests/{name}" for name in ("architecture", "backend", "cli", "plugin", "scaffold", "seeds")),
    *(f"core/tests/host/test_host_{name}.py" for name in ("backend", "road")),
    *(
        f"core/tests/artifact/test_{name}.py"
        for name in ("artifact", "fresh_process", "fuzzing", "native_artifact", "report")
    ),
    *(f"core/tests/test_driver{name}.py" for name in ("", "_constraints")),
)
"""Core's tests of what looks for installed backends and runtimes."""

MINIMUM_TESTS = (
    *(path for path in DIFFERING if not path.startswith("plugins/ccompiler")),
    *(f"core/tests/{name}" for name in ("cli", "kernels", "scaffold", "test_dims.py", "test_dtypes.py")),
    *(f"core/tests/frontend/test_onnx_{name}.py" for name in ("errors", "models", "sizes", "transformers")),
    *(f"conformance/tests/test_{name}.py" for name in ("command", "pytest_plugin")),
    "conformance/tests/report",
)
"""Tests of what calls other packages. Those of single ONNX ops want the newest opset, which needs the newest onnx."""

LIBRARY_TESTS = (
    "core/tests/native",
    "core/tests/artifact/test_library_program.py",
    "plugins/ccompiler/tests/test_ccompiler_export.py",
)
"""What loads libraries in the programs of others."""
