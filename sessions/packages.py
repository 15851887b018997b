"""The packages of this repository, the wheels, and the requirements installed beside the wheels."""

from __future__ import annotations

import shutil
from pathlib import Path

import nox

from sessions.installations import install
from sessions.skips import leave_out_wheel

__all__ = [
    "BACKENDS",
    "DIST",
    "EXAMPLES",
    "GROUPS",
    "PACKAGES",
    "PLUGINS",
    "ROOT",
    "UNBUILT",
    "WITH_PEERS",
    "group",
    "install_peers",
    "install_wheels",
    "wheel",
]

ROOT = Path(__file__).parent.parent
DIST = ROOT / "dist"
GROUPS = nox.project.load_toml(ROOT / "pyproject.toml")
PLUGINS = tuple(sorted(path.parent.name for path in ROOT.glob("plugins/*/pyproject.toml")))
BACKENDS = tuple(
    name
    for name in PLUGINS
    if "byoc.backends" in nox.project.load_toml(ROOT / "plugins" / name / "pyproject.toml")["project"]["entry-points"]
)
"""The plugins that are backends; the others bring importers only."""
WITH_PEERS = ("core", "ccompiler", "dnnl", "mlops", "msops", "opencl")
"""Packages with tests comparing with other programs, or running in other programs."""
PACKAGES = {
    "core": "core",
    **{name: f"plugins/{name}" for name in PLUGINS},
    "conformance": "conformance",
    "rt": "rt",
}
EXAMPLES = tuple(path.parent for path in sorted(ROOT.glob("examples/*/pyproject.toml")))
UNBUILT = shutil.ignore_patterns("build", "*.egg-info", "__pycache__")


def group(*names: str) -> tuple[str, ...]:
    """Return the requirements of dependency groups of the root pyproject.toml."""
    return nox.project.dependency_groups(GROUPS, *names)


def wheel(name: str) -> Path:
    """Return the wheel built by session `wheels` for a package."""
    (found,) = DIST.glob(f"byoc_{name}-*.whl")
    return found


def install_wheels(session: nox.Session, names: tuple[str, ...], *requirements: str, zig: bool = False) -> None:
    """Install the wheels of packages, core with its extra ``onnx``, and other requirements.

    With ``zig``, byoc-ccompiler has its extra too.
    """
    extras = {"core": "[onnx]", "ccompiler": "[zig]" if zig else ""}
    install(session, {wheel(name): extras.get(name, "") for name in names}, *requirements)


def install_peers(session: nox.Session) -> None:
    """Install the programs compared by tests or running tests; warn of a program without a wheel for this Python."""
    pip = ["uv", "pip"] if session.venv_backend == "uv" else ["python", "-m", "pip"]
    command = [*pip, "install", "--quiet", "--only-binary", ":all:"]
    absent = ("No matching distribution", "ResolutionImpossible", "No solution found")
    printed = str(session.run(*command, *group("peers"), success_codes=range(256), silent=True) or "")
    are_installed = not any(text in printed for text in (*absent, "error:", "ERROR:"))
    for requirement in () if are_installed else group("peers"):
        printed = str(session.run(*command, requirement, success_codes=range(256), silent=True) or "")
        if any(text in printed for text in absent):
            session.warn(leave_out_wheel(session.name, requirement, str(session.python)))
        elif "error:" in printed.lower():
            session.error(f"{requirement} cannot be installed: {printed}")
