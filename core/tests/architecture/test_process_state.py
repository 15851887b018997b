"""State with the lifetime of the process: every cache and every object with state, each with a reason.

Everything else is an argument: a registry of backends, an installation of plugins, a toolchain. No test clears a cache.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[3]
SOURCE = REPOSITORY / "core" / "src" / "byoc_core"

STATE = {
    # The process itself: what is installed, what the machine is, what is loaded.
    "plugin.installation._of_process": "the plugins, read at import, again in forked processes; holds all registries",
    "plugin.installation._HANDED_IN": "another installation in its place, for a context",
    "native.cpu.machine_features": "what the processor can do",
    "native.toolchain._toolchain_for": "a compiler found on PATH, by the command that names it",
    "runtime.extension.extension": "the C extension, or none",
    "runtime.graph.native_kernels.native_kernels": "the host's kernels in C, none without the extension",
    "runtime.extension._find": "the same, with the reason where there is none",
    "runtime.csource.library_pool.library_pool": "loaded shared libraries, which one process must not load twice",
    "runtime.parts.global _recording": "whether any machine records calls",
    "runtime.threads.setting._process": "the number of threads that the user set for the process",
    "session.cache_key._code_digest": "of the files of byoc and its plugins, as they were when first asked for",
    "tuning.building._models": "the latest models of a worker's builds, so a model travels once",
    "tuning.trial._executables": "the latest artifacts of a worker's trials, so an artifact travels once",
    "runtime.parts._state": "the record of a thread's running call, without the C extension",
    "runtime.threads.fork_lock._locks": "locks to make anew in a forked child",
    "artifact.embedded._module_at": "what exported libraries that are loaded hold, by address: they are never unloaded",
    # Constants of the package, made when first asked for so that imports stay light.
    "ir.op_registry.default_ops": "the core's ops",
    "opset.families.__init__.KERNELS": "the reference kernels",
    "opset.families.__init__.ops_of": "the ops of a family",
    "native.compile_units._read_files": "C files of the package",
    "transform.canonicalise._named_rules": "rewrite rules",
    "transform.recognise_composites._rules": "rewrite rules",
    "runtime.device_dlpack._dtype_names": "names of dtypes by the codes of DLPack",
    "runtime.dlpack._numpy_dtypes": "numpy's dtypes by the codes of DLPack",
    "measurements.database.USER_DATABASE": "a frozen default of arguments; the environment is read at the time of use",
    "kernels.numpy_kernel._QUIET": "numpy's error state in which kernels run",
    # Answers to pure questions, bounded or few.
    "dtypes.float_limits": "of a dtype",
    "kernels.delegated._evaluator": "of a node of ONNX, by its text",
    "kernels.numpy_kernel._has_loop": "of a ufunc and dtypes",
    "kernels.token_runs.token_runs": "of a kind and expressions of tokens",
    "kernels.tokens.compile_expression": "of a regular expression",
    "opset.delegated.delegated_op": "of a name",
    "kernels.numpy_kernel._takes_out": "of a kernel",
    "native.linked_files._digest": "of a file, by the status of the file",
    "native.linked_files._name": "of a library, by the status of the file",
    "pattern.plan.plan_of": "of a pattern",
    "runtime.graph.kernel_engine._misfit": "of a kernel and how it is called",
    # Empty, and never written.
    "pattern.matcher._NO_SCOPE": "no names are bound",
    "pattern.search._NOTHING": "no names are bound",
}

ASKS_FOR_BACKENDS = {
    "__init__": "the facade: `byoc_core.backends`",
    "partitioning.partition": "called by users with names",
    "partitioning.run_codegen": "called by users with names",
    "partitioning.layouts.plan_layouts": "called by users with names",
    "partitioning.peeling.peel": "called by users with names",
    "partitioning.claiming.annotate": "called by users with names",
    "partitioning.claiming.request": "made by users who call a policy by themselves",
    "backend.size_compiler": "`byoc_core.compiler()`, which is given to `load`",
    "lint.backend": "called by users with names",
    "debugging.checking": "called by users with names",
    "driver.compiler": "the default compiler",
    "session.compiling": "a session asks which backends can compile now",
    "cli.request": "`byoc` without --backend takes what is installed",
    "cli.plugin_status": "`byoc backends` and `byoc doctor` list what is installed",
}
"""The modules with the backends of the process as default."""

_STATEFUL = re.compile(
    r"(^|\.)(ContextVar|R?Lock|Condition|Event|Semaphore|local|count|defaultdict|OrderedDict|Counter|deque"
    r"|Weak\w+|dict|list|set)$"
)


def modules() -> Iterator[tuple[str, ast.Module]]:
    """Yield the name of each core module, relative to the core, with the syntax tree."""
    for path in sorted(SOURCE.rglob("*.py")):
        yield ".".join(path.relative_to(SOURCE).with_suffix("").parts), ast.parse(path.read_text("utf-8"))


def state_of(tree: ast.Module) -> Iterator[str]:
    """Yield a module's names with state: caches, empty containers, instances of own classes, globals."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Global):
            yield from (f"global {name}" for name in node.names)
        if isinstance(node, ast.FunctionDef) and any(_is_cache(item) for item in node.decorator_list):
            yield node.name
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None and _keeps_state(node.value):
            yield ast.unparse(node.targets[0] if isinstance(node, ast.Assign) else node.target)


def _is_cache(decorator: ast.expr) -> bool:
    name = ast.unparse(decorator.func if isinstance(decorator, ast.Call) else decorator)
    return name.rpartition(".")[2] in {"cache", "lru_cache"}


def _keeps_state(value: ast.expr) -> bool:
    if isinstance(value, ast.Dict | ast.List):
        return not (value.keys if isinstance(value, ast.Dict) else value.elts)
    if not isinstance(value, ast.Call):
        return False
    name = ast.unparse(value.func)
    is_bare_instance = not value.args and not value.keywords and re.fullmatch(r"_?[A-Z]\w*|_quiet_context", name)
    return bool(_STATEFUL.search(name) or is_bare_instance)


def test_state_of_the_process_is_listed() -> None:
    assert sorted(f"{name}.{item}" for name, tree in modules() for item in state_of(tree)) == sorted(STATE)


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("@functools.cache\ndef f(x): ...", ["f"]),
        ("@lru_cache(maxsize=3)\ndef f(): ...", ["f"]),
        ("class C:\n    @cached_property\n    def f(self): ...", []),
        ("_KNOWN: dict[str, int] = {}", ["_KNOWN"]),
        ("_KNOWN = weakref.WeakValueDictionary()", ["_KNOWN"]),
        ("_POOL = _Pool()", ["_POOL"]),
        ("TABLE = {'a': 1}", []),
        ("HOST = MachineModel(1.0)", []),
        ("def f():\n    global x", ["global x"]),
    ],
)
def test_the_list_sees_state(source: str, found: list[str]) -> None:
    assert list(state_of(ast.parse(source))) == found


def asks_for_backends(tree: ast.Module) -> bool:
    """Return whether a module names the function returning the backends of the process."""
    names = {"backends", "find_registry"}
    imported = (
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("byoc_core.backend")
        for alias in node.names
    )
    called = (
        node.func.attr for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    )
    return bool(names & {*imported, *called})


def test_few_modules_ask_for_the_backends_of_the_process() -> None:
    asking = {name for name, tree in modules() if asks_for_backends(tree)} - {"backend.registry", "backend.__init__"}
    assert asking == set(ASKS_FOR_BACKENDS)


def test_no_test_clears_a_cache() -> None:
    own = Path(__file__)
    files = [
        path for folder in ("core", "plugins", "conformance", "docs") for path in REPOSITORY.glob(f"{folder}/**/*.py")
    ]
    clearing = [path.name for path in files if path != own and "cache_clear" in path.read_text("utf-8")]
    assert clearing == []
