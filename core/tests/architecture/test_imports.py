"""What a bare ``import byoc_core`` loads, asked of fresh processes."""

from __future__ import annotations

import json
import subprocess
import sys

HEAVY = {
    *("click", "ml_dtypes", "onnx", "onnxruntime", "pluggy", "pydantic", "rich", "scipy", "tvm_ffi", "typer"),
    *("asyncio", "ctypes", "packaging", "subprocess"),
}


def modules_after(statements: str) -> set[str]:
    """Gives the names in ``sys.modules`` of a fresh process after it has run some statements."""
    script = f"{statements}\nimport sys, json\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


def heavy_after(statements: str) -> set[str]:
    """Gives the heavy modules that some statements load beyond what numpy loads by itself."""
    return {name.split(".")[0] for name in modules_after(statements) - modules_after("import numpy")} & HEAVY


def test_a_bare_import_loads_nothing_heavy() -> None:
    assert heavy_after("import byoc_core") == set()


def test_a_heavy_import_is_seen() -> None:
    assert heavy_after("import byoc_core, pluggy, asyncio") >= {"pluggy", "asyncio"}


def test_a_bare_import_loads_no_plugin_code() -> None:
    loaded = {name.split(".")[0] for name in modules_after("import byoc_core")}
    assert {name for name in loaded if name.startswith("byoc_")} == {"byoc_core"}


def test_a_bare_import_reads_plugin_metadata_and_settings() -> None:
    later = "import os, byoc_core\nos.environ['BYOC_PREFER'] = 'malformed'\nassert 'host' in byoc_core.backends.names()"
    assert "byoc_core.backend.registry" in modules_after(later)


def test_a_malformed_setting_does_not_break_the_import() -> None:
    asked = (
        "import os\nos.environ['BYOC_PREFER'] = 'malformed'\nimport byoc_core\n"
        "try:\n    byoc_core.backends\nexcept byoc_core.errors.OptionsError as error:\n"
        "    assert 'BYOC_PREFER' in str(error)\nelse:\n    raise SystemExit('no error')"
    )
    assert "byoc_core" in modules_after(asked)


def test_every_module_imports() -> None:
    walk = (
        "import pkgutil, importlib, byoc_core\n"
        "for found in pkgutil.walk_packages(byoc_core.__path__, 'byoc_core.'):\n"
        "    if not found.name.endswith('__main__'):\n"
        "        importlib.import_module(found.name)\n"
    )
    assert {"byoc_core.ir.module", "byoc_core.runtime.module"} <= modules_after(walk)
