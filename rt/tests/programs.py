"""Compilation of programs with the flags printed by ``python -m byoc_rt``, and their runs without an environment."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from byoc_core.native.toolchain import find_toolchain

__all__ = ["EXAMPLES", "WARNINGS", "byoc_rt_flags", "compile_c", "compile_cpp", "compile_rust", "run_alone"]

EXAMPLES = Path(__file__).parents[1] / "examples"
WARNINGS = ("-O1", "-Wall", "-Wextra", "-Wpedantic", "-Werror")


def byoc_rt_flags(*options: str) -> list[str]:
    """Return the flags printed by the command."""
    done = subprocess.run([sys.executable, "-m", "byoc_rt", *options], capture_output=True, text=True, check=True)
    return shlex.split(done.stdout)


def compile_c(source: Path, target: Path, *options: str) -> Path:
    """Compile and link a program in C, or with ``-shared`` a library; return the file."""
    flags = byoc_rt_flags("--cflags", "--libs")
    return _compile([*find_toolchain().command, "-std=c11", *WARNINGS, *options, str(source), *flags], target)


def compile_cpp(source: Path, target: Path) -> Path:
    """Compile and link a program in C++17; return the file. Skip the test without a compiler of C++."""
    command = shlex.split(os.environ.get("CXX", "")) or ["c++"]
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    flags = byoc_rt_flags("--cflags", "--libs")
    return _compile([*command, "-std=c++17", *WARNINGS, str(source), *flags], target)


def compile_rust(source: Path, target: Path) -> Path:
    """Compile and link a program in Rust; return the file. Skip the test without the compiler."""
    if shutil.which("rustc") is None:
        pytest.skip("rustc is not installed")
    flags = shlex.join(byoc_rt_flags("--libs"))
    return _compile(["rustc", "--edition", "2021", "-O", "-D", "warnings", str(source), f"-Clink-args={flags}"], target)


def _compile(command: Sequence[str], target: Path) -> Path:
    done = subprocess.run([*command, "-o", str(target)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return target


def run_alone(
    program: Path, *arguments: str | Path, variables: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program with the given environment variables only, by default with none."""
    command = [str(program), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=dict(variables or {}), timeout=120)
