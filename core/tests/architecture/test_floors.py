"""Import rules: the floors of byoc_core, read from the source by syntax tree."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[3]
SOURCE = REPOSITORY / "core" / "src" / "byoc_core"
PACKAGES = (*REPOSITORY.glob("plugins/*/src/*/"), *REPOSITORY.glob("conformance/src/*/"))
PLUGIN_SOURCES = [path for path in sorted(PACKAGES) if path.name.isidentifier()]

# Each tuple is a floor; a floor imports only from floors to its left. Parts that share a floor do not import each
# other, except on the ground floor, which is one piece (of it, `errors` imports `printable` alone).
RUN_SIDE = (
    (
        *("errors", "version", "dtypes", "dims", "digest", "file_replacement", "isolation", "printable"),
        "absent_names",
        "lazy_names",
        "renamed",
    ),
    ("plugin",),
    ("kernels", "native", "_native"),
    ("opset",),
    ("runtime",),
    ("vm",),
    ("artifact",),
    ("session",),
)
COMPILE_SIDE = (
    ("ir",),
    ("ops",),
    ("script",),
    ("pattern",),
    ("transform",),
    ("backend",),
    ("measurements",),
    ("partitioning", "lower"),
    ("frontend", "lint", "scaffold"),
    ("driver",),
    ("debugging",),
    ("tuning", "onnx_backend"),
    ("benchmarking",),
    ("cli",),
)
GROUND = RUN_SIDE[0]

# What an op is, and which ops there are: both sides stand on it, since documents are checked by the rules of their ops.
VOCABULARY = "opset"

# The compile side stands on the run side's ground floor, on the vocabulary and, beyond that, on these bridges alone.
BRIDGES = {
    "backend": {"native", "plugin", "reporting", "runtime"},
    "measurements": {"native", "runtime"},
    "partitioning": {"reporting"},
    "lower": {"vm", "runtime"},
    "frontend": {"plugin", "runtime"},
    "scaffold": {"plugin"},
    "driver": {"artifact", "reporting"},
    "debugging": {"runtime"},
    "tuning": {"artifact", "profiling", "reporting", "runtime", "vm"},
    "onnx_backend": {"artifact", "runtime", "session", "vm"},
    "benchmarking": {"artifact", "profiling", "runtime", "vm"},
    "cli": {"artifact", "native", "plugin", "profiling", "reporting", "runtime", "session", "vm"},
}

# What a part imports inside functions only: an executable renders its report when somebody asks, never to load or run;
# a backend's lowered functions are printed by the kit for C; the list of all hooks includes the hooks of the front end;
# a session compiles a model that is no artifact.
LAZY_BRIDGES = {
    "artifact": {"reporting"},
    "session": {"backend", "driver", "frontend", "ir", "profiling"},
    "backend": {"authoring", "frontend"},
}

# Leaves: what they may import beside the ground floor. Nobody imports `host`; only `host` and, inside functions,
# `backend` import `authoring`; only `session`, `benchmarking`, `cli` and `tuning` import `profiling`.
LEAVES = {
    "authoring": {"ir", "backend", "runtime", "native"},
    "host": {"authoring", "ir", "backend"},
    "reporting": {"runtime"},
    "profiling": {"artifact", "reporting", "runtime", "vm"},
}


def allowed_imports() -> dict[str, set[str]]:
    """Return the permitted imports of each part of byoc_core."""
    allowed: dict[str, set[str]] = {part: set(GROUND) - {part} for part in GROUND}
    allowed["errors"], allowed["printable"] = {"printable"}, set()
    for side, ground in ((RUN_SIDE, GROUND), (COMPILE_SIDE, (*GROUND, VOCABULARY))):
        below: set[str] = set(ground)
        for floor in side:
            for part in floor if floor is not GROUND else ():
                allowed[part] = below | BRIDGES.get(part, set()) | LAZY_BRIDGES.get(part, set())
            below = below | set(floor)
    for part, extra in LEAVES.items():
        allowed[part] = {*GROUND, VOCABULARY} | extra
    return allowed


ALLOWED = allowed_imports()


def imported_modules(source: str, module: str) -> Iterator[tuple[int, str]]:
    """Yield line and dotted name of each import of a module, at any depth of the syntax tree.

    Imports for type checkers count: a type pointing upwards is a wall in the wrong place too. Calls of
    ``importlib.import_module("literal")`` count as well.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = module.split(".")[: -node.level]
                base = ".".join([*parents, base] if base else parents)
            yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in ("import_module", "__import__") and isinstance(node.args[0].value, str):
                yield node.lineno, node.args[0].value


def lines_of_functions(source: str) -> set[int]:
    """Return the numbers of the lines inside functions: these lines run only when called."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    found = [node for node in ast.walk(ast.parse(source)) if isinstance(node, functions)]
    return {line for node in found for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)}


def violations(source: str, module: str) -> list[str]:
    """Return a line for each import of a byoc_core module forbidden by the floor of the importing module."""
    part = module.split(".")[1]
    later = lines_of_functions(source)
    found = []
    for line, name in imported_modules(source, module):
        package, _, rest = name.partition(".")
        target = rest.split(".")[0]
        if package == "byoc_core" and target != part and target not in ALLOWED[part]:
            found.append(f"{module}:{line}: `{part}` may not import `{name}`")
        elif target in LAZY_BRIDGES.get(part, ()) and line not in later:
            found.append(f"{module}:{line}: `{part}` may import `{name}` inside functions only")
    return found


def core_modules() -> Iterator[tuple[str, Path]]:
    """Yield dotted name and path of every module below byoc_core, except the package's own facade."""
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        if parts != ("__init__",):
            # A package keeps its `__init__` here: relative imports count from it.
            yield ".".join(("byoc_core", *parts)), path


def test_every_part_of_core_has_a_floor() -> None:
    parts = {path.stem for path in SOURCE.glob("*.py")} | {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert parts - {"__init__"} <= set(ALLOWED)


def test_imports_only_go_down() -> None:
    modules = list(core_modules())
    assert len(modules) > 20
    assert [line for module, path in modules for line in violations(path.read_text("utf-8"), module)] == []


def test_the_page_for_contributors_shows_the_floors() -> None:
    page = (REPOSITORY / "CONTRIBUTING.md").read_text("utf-8")
    for title, side, between in (("run side", RUN_SIDE, ", "), ("compile side", COMPILE_SIDE, " | ")):
        assert f"    {title:<14} {' < '.join(between.join(floor) for floor in side)}\n" in page


def test_every_bridge_is_used() -> None:
    used: dict[str, set[str]] = {}
    for module, path in core_modules():
        for _, name in imported_modules(path.read_text("utf-8"), module):
            if name.startswith("byoc_core."):
                used.setdefault(module.split(".")[1], set()).add(name.split(".")[1])
    listed = BRIDGES | LEAVES | LAZY_BRIDGES
    assert {part: sorted(extra - used[part]) for part, extra in listed.items() if extra - used[part]} == {}


RUN_PARTS = tuple(part for floor in RUN_SIDE for part in floor)
BLOCK_COMPILE_SIDE = f"""
import importlib, pkgutil, sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        parts = name.split(".")
        if parts[0] == "byoc_core" and len(parts) > 1 and parts[1] not in {RUN_PARTS!r}:
            raise ImportError("not of the run side: " + name)

sys.meta_path.insert(0, Blocked())
"""
IMPORT_RUN_SIDE = f"""
for part in {RUN_PARTS!r}:
    module = importlib.import_module("byoc_core." + part)
    for found in pkgutil.walk_packages(getattr(module, "__path__", ()), module.__name__ + "."):
        print(importlib.import_module(found.name).__name__)
"""


def run_python(script: str) -> subprocess.CompletedProcess[str]:
    """Run a script in a fresh process."""
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)


@pytest.mark.interpreter
def test_run_side_never_reaches_the_compile_side() -> None:
    reached = {part: sorted(ALLOWED[part] - set(RUN_PARTS)) for part in RUN_PARTS}
    assert reached == {part: sorted(LAZY_BRIDGES.get(part, ())) for part in RUN_PARTS}


@pytest.mark.interpreter
def test_run_side_imports_where_the_compile_side_is_blocked() -> None:
    done = run_python(BLOCK_COMPILE_SIDE + IMPORT_RUN_SIDE)
    assert done.returncode == 0, done.stderr
    assert "byoc_core.runtime.module" in done.stdout.split()


@pytest.mark.interpreter
def test_the_block_blocks() -> None:
    done = run_python(BLOCK_COMPILE_SIDE + "import byoc_core.ir.types")
    assert done.stderr.splitlines()[-1] == "ImportError: not of the run side: byoc_core.ir"


@pytest.mark.parametrize(
    ("module", "source", "expected"),
    [
        ("byoc_core.vm.link", "from byoc_core.ir import Function", "`vm` may not import `byoc_core.ir.Function`"),
        ("byoc_core.vm.link", "from byoc_core import script", "`vm` may not import `byoc_core.script`"),
        ("byoc_core.vm.link", "def f():\n    import byoc_core.driver", "`vm` may not import `byoc_core.driver`"),
        ("byoc_core.vm.link", "from ..ops import add", "`vm` may not import `byoc_core.ops.add`"),
        ("byoc_core.vm.__init__", "from ..ops import add", "`vm` may not import `byoc_core.ops.add`"),
        ("byoc_core.ir.x", "import_module('byoc_core.cli')", "`ir` may not import `byoc_core.cli`"),
        ("byoc_core.lower.x", "import byoc_core.partitioning", "`lower` may not import `byoc_core.partitioning`"),
        (
            "byoc_core.artifact.x",
            "from byoc_core.reporting.text import render_report",
            "`artifact` may import `byoc_core.reporting.text.render_report` inside functions only",
        ),
        ("byoc_core.vm.x", "def f():\n    import byoc_core.reporting", "`vm` may not import `byoc_core.reporting`"),
        ("byoc_core.driver", "import byoc_core.host.backend", "`driver` may not import `byoc_core.host.backend`"),
        ("byoc_core.ops.x", "import byoc_core", "`ops` may not import `byoc_core`"),
        ("byoc_core.errors", "import byoc_core.dims", "`errors` may not import `byoc_core.dims`"),
    ],
)
def test_the_floor_check_sees(module: str, source: str, expected: str) -> None:
    assert [line.split(": ", 1)[1] for line in violations(source, module)] == [expected]


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("byoc_core.vm.link", "from byoc_core.runtime.module import RuntimeModule\nimport numpy"),
        ("byoc_core.vm.link", "from .program import Program"),
        ("byoc_core.opset.x", "from byoc_core.opset.families import KERNELS"),
        ("byoc_core.artifact.x", "def report():\n    from byoc_core.reporting.text import render_report"),
        ("byoc_core.runtime.x", "from byoc_core.opset.families import find_op"),
    ],
)
def test_the_floor_check_permits(module: str, source: str) -> None:
    assert violations(source, module) == []


PLUGIN_NAMES = re.compile(r"dnnl|onednn|ccompiler|examplejson|byoc[-_](cblas|mlops|msops|opencl)", re.IGNORECASE)


def named_plugins(text: str) -> list[str]:
    """Return each line naming a plugin: in code, a string, a docstring or a comment."""
    return [
        f"{number}: {line.strip()}" for number, line in enumerate(text.splitlines(), 1) if PLUGIN_NAMES.search(line)
    ]


def test_core_never_names_a_plugin() -> None:
    files = [path for suffix in ("*.py", "*.h") for path in sorted(SOURCE.rglob(suffix))]
    found = [f"{path.relative_to(SOURCE)}:{line}" for path in files for line in named_plugins(path.read_text("utf-8"))]
    assert found == []


def test_the_name_check_sees_a_name() -> None:
    assert named_plugins("x = 1\nif backend == 'DNNL':") == ["2: if backend == 'DNNL':"]


def plugin_violations(source: str, module: str) -> list[str]:
    """Return a line for each import, by a plugin, of a private name of core or of another plugin."""
    own = module.split(".", maxsplit=1)[0]
    found = []
    for line, name in imported_modules(source, module):
        package, *rest = name.split(".")
        if package == "byoc_core" and any(re.match(r"_(?!_)", segment) for segment in rest):
            found.append(f"{module}:{line}: private name `{name}`")
        elif package.startswith("byoc_") and package not in ("byoc_core", own):
            found.append(f"{module}:{line}: another plugin, `{name}`")
    return found


@pytest.mark.parametrize("folder", PLUGIN_SOURCES, ids=lambda folder: folder.name)
def test_plugins_import_public_names_of_core_and_no_other_plugin(folder: Path) -> None:
    found = []
    for path in sorted(folder.rglob("*.py")):
        module = ".".join((folder.name, *path.relative_to(folder).with_suffix("").parts))
        found += plugin_violations(path.read_text("utf-8"), module)
    assert found == []


def test_the_plugin_check_sees() -> None:
    source = "from byoc_core._native import run\nfrom byoc_core.ir.printer import _format\nimport byoc_other.codegen\n"
    assert plugin_violations(source, "byoc_mine.codegen") == [
        "byoc_mine.codegen:1: private name `byoc_core._native.run`",
        "byoc_mine.codegen:2: private name `byoc_core.ir.printer._format`",
        "byoc_mine.codegen:3: another plugin, `byoc_other.codegen`",
    ]


@pytest.mark.interpreter
def test_core_needs_no_module_beyond_its_declared_dependencies() -> None:
    declared = {"numpy", "pluggy", "pydantic", "packaging", "ml_dtypes", "typer", "rich"}
    declared |= {"threadpoolctl", "onnx", "byoc_core"}
    # onnx's messages are google.protobuf's; the extra `distributed` and the peers of benchmarks are imported by name.
    permitted = declared | set(sys.stdlib_module_names) | {"google", "distributed", "onnxruntime", "openvino"}
    imported = {
        name.split(".")[0]
        for module, path in core_modules()
        for _, name in imported_modules(path.read_text("utf-8"), module)
    }
    assert imported - permitted == set()


def test_the_demo_blocks_all_but_the_run_side() -> None:
    tree = ast.parse((REPOSITORY / "examples" / "digits" / "deploy.py").read_text("utf-8"))
    (value,) = [n.value for n in tree.body if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == "RUN_SIDE"]
    listed = {node.value for node in ast.walk(value) if isinstance(node, ast.Constant)}
    run_side = {part for floor in RUN_SIDE for part in floor}
    assert run_side - listed == {"isolation", "absent_names", "renamed"}, (
        "parts that loading and running an artifact do without"
    )
    assert listed <= run_side
