"""Fake distributions: real files on disk, as left by pip."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from core.tests.forked_process import run_script


@dataclass(frozen=True)
class Site:
    """A folder in the role of ``site-packages``."""

    folder: Path

    def install(
        self,
        distribution: str,
        entry_points: str,
        modules: Mapping[str, str] | None = None,
        *,
        version: str = "1.0",
        requires: tuple[str, ...] = ("byoc-core>=0.1,<1",),
    ) -> None:
        """Write modules and the metadata of a distribution."""
        for name, text in (modules or {}).items():
            (self.folder / f"{name}.py").write_text(textwrap.dedent(text))
        info = self.folder / f"{distribution.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        lines = [f"Name: {distribution}", f"Version: {version}", *(f"Requires-Dist: {line}" for line in requires)]
        (info / "METADATA").write_text("Metadata-Version: 2.1\n" + "\n".join(lines) + "\n")
        (info / "entry_points.txt").write_text(textwrap.dedent(entry_points))

    def run(self, script: str, **environment: str) -> str:
        """Run a script in a process without imported plugins, with the folder on its path; return the output."""
        done = run_script(textwrap.dedent(script), path=[self.folder], environment=self._variables(environment))
        assert done.returncode == 0, done.stderr
        return done.stdout

    def run_fresh(self, script: str, **environment: str) -> str:
        """Run a script in the same way, in a process without any imports, for tests of imported packages."""
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", textwrap.dedent(script)],
            env=self._variables(environment),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def _variables(self, environment: Mapping[str, str]) -> dict[str, str]:
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("BYOC_")}
        path = os.pathsep.join(filter(None, [str(self.folder), os.environ.get("PYTHONPATH")]))
        return {**inherited, "PYTHONPATH": path, **environment}


@pytest.fixture
def site(tmp_path: Path) -> Site:
    folder = tmp_path / "site-packages"
    folder.mkdir()
    return Site(folder)
