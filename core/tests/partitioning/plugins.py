"""Real distributions on disk, for tests in fresh processes.

Plugins ``alpha`` and ``beta`` have a backend and a runtime each; ``idle`` cannot even be imported. ``alpha`` claims
``add``, ``split`` and ``nn.relu``; ``beta`` claims ``abs``, ``negative`` and ``concat``. Both run numpy's kernels.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from core.tests.plugin.conftest import Site

__all__ = ["install_plugins", "run_program"]

_ROOT = Path(__file__).parents[3]

_BACKEND = """
from byoc_core.authoring.graph import GraphCodegen
from byoc_core.backend.hooks import BackendInfo, Rejection, Support, hookimpl
from byoc_core.pattern import CompositePattern, is_op, wildcard
from {name}_runtime import Engine

@hookimpl
def byoc_backend_info():
    return BackendInfo("{name}", dynamic_shapes=True)

@hookimpl
def byoc_patterns():
    inner = is_op("add", "maximum")(wildcard(), wildcard())
    return [CompositePattern("{name}.{op}_of_two", is_op("{op}")(inner), leaked="return")]

@hookimpl
def byoc_supports(binding):
    is_taken = binding.op.name in {ops!r}
    return Support() if is_taken else Rejection("op", f"no {{binding.op.name}} here")

@hookimpl
def byoc_codegen(functions, context):
    return GraphCodegen().compile(functions, context, Engine())
"""

_RUNTIME = """
from byoc_core.runtime.graph import KernelEngine, load_graph, save_graph
from byoc_core.runtime.hooks import RuntimeInfo, hookimpl

class Engine(KernelEngine):
    @property
    def type_key(self):
        return "{name}"

@hookimpl
def byoc_runtime_info():
    return RuntimeInfo(type_key="{name}", formats=(1,))

@hookimpl
def byoc_save_module(module):
    return save_graph(module)

@hookimpl
def byoc_load_module(payload, context):
    return load_graph(payload, context, Engine())
"""


def install_plugins(folder: Path, distributions: Sequence[Sequence[str]]) -> list[Path]:
    """Install plugins by name, each inner sequence into a separate folder; return the folders."""
    sites = [Site(folder / f"site{index}") for index in range(len(distributions))]
    for site, names in zip(sites, distributions, strict=True):
        site.folder.mkdir(parents=True)
        for name in names:
            _install(site, name)
    return [site.folder for site in sites]


def run_program(program: str, arguments: Sequence[str], sites: Sequence[Path], **environment: str) -> bytes:
    """Run a program in a fresh process with access to the plugins and these tests; return the output."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("BYOC_")}
    paths = [*map(str, sites), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program, *arguments],
        capture_output=True,
        check=False,
        cwd=_ROOT,
        env={**inherited, "PYTHONPATH": os.pathsep.join(filter(None, paths)), **environment},
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def _install(site: Site, name: str) -> None:
    if name == "idle":
        site.install("byoc-idle", "[byoc.backends]\nidle = idle_backend\n", {"idle_backend": "raise SystemExit(3)"})
        return
    op, ops = {"alpha": ("nn.relu", ("add", "split", "nn.relu")), "beta": ("abs", ("abs", "negative", "concat"))}[name]
    site.install(
        f"byoc-{name}",
        f"[byoc.backends]\n{name} = {name}_backend\n[byoc.runtimes]\n{name} = {name}_runtime\n",
        {
            f"{name}_backend": _BACKEND.format(name=name, op=op, ops=ops),
            f"{name}_runtime": _RUNTIME.format(name=name),
        },
    )
