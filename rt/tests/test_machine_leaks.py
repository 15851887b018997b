"""A program with the runtime inside, under AddressSanitizer: no leak, no error after thousands of calls."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import byoc_core
import pytest
from byoc_core.artifact import Executable
from byoc_core.native.toolchain import Toolchain

from rt.tests.hostile_corpus import CONTROL_FLOW
from rt.tests.internals import INCLUDES, SOURCES
from rt.tests.test_machine_programs import counting, joined

pytestmark = pytest.mark.skipif(not Toolchain.status().ok, reason="no C compiler")

FLAGS = ("-std=c11", "-O0", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-DBYOC_RT_BUILDS")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the program that calls functions, with all of the runtime's sources inside."""
    target = tmp_path_factory.mktemp("leaks") / "calls"
    sources = [*SOURCES.glob("*.c"), *(SOURCES / "shared").glob("*.c"), Path(__file__).with_name("machine_calls.c")]
    command = ["gcc", *FLAGS, *(f"-I{folder}" for folder in INCLUDES), *map(str, sources), "-o", str(target)]
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    done = subprocess.run(
        [*command, "-ldl", "-lm", "-pthread"], capture_output=True, text=True, check=False, env=environment
    )
    if "cannot find" in done.stderr or "not found" in done.stderr:
        pytest.skip("gcc has no AddressSanitizer")
    assert done.returncode == 0, done.stderr
    return target


def run(program: Path, executable: Executable, folder: Path, *sizes: str) -> subprocess.CompletedProcess[str]:
    """Run thousands of calls of the function `main`."""
    path = folder / "model.byoc"
    executable.save(path)
    options = "detect_leaks=1:fast_unwind_on_malloc=0"
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    environment |= {"ASAN_OPTIONS": options, "LSAN_OPTIONS": "exitcode=23"}
    command = [str(program), str(path), "main", "200", *sizes]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


@pytest.mark.parametrize("sizes", [(), ("4", "0", "9", "9", "1")], ids=["one size", "changing sizes"])
@pytest.mark.parametrize("name", ["joined", "counting", "control-flow"])
def test_nothing_leaks(program: Path, tmp_path: Path, name: str, sizes: tuple[str, ...]) -> None:
    executables = {"joined": joined, "counting": counting}
    executable = (
        executables[name]() if name in executables else byoc_core.build(byoc_core.parse(CONTROL_FLOW), backends=[])
    )
    done = run(program, executable, tmp_path, *sizes)
    assert done.returncode == 0, done.stderr[-6000:]
    assert "ns with new results" in done.stdout
