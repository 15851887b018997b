"""The search for a BLAS: order, refusals, messages; the threads of a library."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import byoc_core
import numpy as np
import pytest
from byoc_cblas import backend
from byoc_cblas.library import (
    Candidate,
    Library,
    Missing,
    ThreadControl,
    candidates,
    find_library,
    library_status,
    look_for_library,
)
from byoc_cblas.wheel import DISTRIBUTION, find_file
from byoc_core.native.toolchain import Toolchain, find_toolchain

from plugins.cblas.tests.judged_layers import module_text, numbers

pytestmark = [
    pytest.mark.skipif(not Toolchain.status().ok, reason="no C compiler"),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the library is built as on Linux"),
]

REMEDY = (
    "Install OpenBLAS: pip install scipy-openblas32, or apt install libopenblas-dev (Debian, Ubuntu); or name a "
    "library with the option `library`."
)
TEXT = module_text({"x": ("n", 4), "w": (3, 4)}, "float32", ["p = R.nn.dense(x, w)"])


def build_fake(folder: Path, name: str, *defines: str, prefix: str = "", suffix: str = "", config: str = "") -> Path:
    """Build a library from ``fake_blas.c``; the name must be new in this process."""
    path = folder / f"lib{name}.so"
    values = [f"-DPREFIX={prefix}", f"-DSUFFIX={suffix}", f'-DCONFIG="{config}"', *(f"-D{item}" for item in defines)]
    source = Path(__file__).parent / "fake_blas.c"
    command = [*find_toolchain().command, "-O1", "-fPIC", "-shared", f"-Wl,-soname,{path.name}", *values]
    subprocess.run([*command, "-o", str(path), str(source)], check=True, capture_output=True, timeout=120)
    return path


def test_the_library_in_use_is_the_status() -> None:
    found = find_library()
    if isinstance(found, Missing):
        pytest.skip(found.reason)
    status = library_status()
    assert status.ok
    assert status.reason == str(found) == f"{found.path} ({found.origin})"
    assert find_library() is found


def test_the_wheel_goes_first_and_is_not_imported() -> None:
    path = find_file()
    if path is None:
        pytest.skip(f"no BLAS: {DISTRIBUTION} is not installed")
    first = next(candidates("auto"))
    assert first == Candidate(path, str(path.parent), f"of distribution {DISTRIBUTION}")
    found = find_library("scipy-openblas")
    assert isinstance(found, Library)
    assert (found.prefix, found.threads, found.name) == ("scipy_", ThreadControl.PRIVATE_OPENBLAS, "scipy_openblas")
    assert "scipy_openblas32" not in sys.modules


def test_nothing_found_is_said_with_the_remedy() -> None:
    assert look_for_library("auto", []) == Missing("no BLAS was found", REMEDY)
    assert look_for_library("mkl", []) == Missing("no library `mkl` was found", REMEDY)


def test_the_first_usable_file_is_taken_and_the_first_reason_told(tmp_path: Path) -> None:
    (tmp_path / "libtext.so").write_text("no library")
    text = Candidate(tmp_path / "libtext.so", str(tmp_path), "of the system")
    good = Candidate(build_fake(tmp_path, "byocgood"), "", "of the system")
    wide = Candidate(build_fake(tmp_path, "byocwide", suffix="64_"), str(tmp_path), "of the system")
    found = look_for_library("auto", [text, wide, good])
    assert isinstance(found, Library)
    assert (found.name, found.path, found.folder) == ("byocgood", str(good.path), "")
    missing = look_for_library("auto", [text, wide])
    assert isinstance(missing, Missing)
    assert missing.reason.startswith(f"{text.path} (of the system) cannot be loaded: ")
    assert look_for_library("auto", [wide, text]) == Missing(
        f"{wide.path} (of the system) has no function `cblas_sgemm` with sizes of 32 bits", REMEDY
    )


def test_incomplete_and_wide_libraries_are_refused(tmp_path: Path) -> None:
    single = build_fake(tmp_path, "byocsingle", "SINGLE_ONLY")
    named = f"{single} (named by the option `library`)"
    assert find_library(str(single)) == Missing(f"{named} has no function `cblas_dgemm`", REMEDY)
    wide = build_fake(tmp_path, "byocilp", "OPENBLAS", config="OpenBLAS USE64BITINT")
    named = f"{wide} (named by the option `library`)"
    assert find_library(str(wide)) == Missing(f"{named} has sizes of 64 bits, expected 32", REMEDY)


def test_a_path_must_be_a_shared_library(tmp_path: Path) -> None:
    remedy = "Set the option `library` to auto, scipy-openblas, openblas, mkl, or the path of a shared library."
    assert find_library("opnblas") == Missing("the library `opnblas` does not exist", remedy)
    odd = tmp_path / "blas.so.3"
    odd.touch()
    reason = "a linker does not find a library with the file name `blas.so.3`"
    assert find_library(str(odd)) == Missing(reason, "Name the file lib*.so.")


@pytest.mark.parametrize(
    ("name", "defines", "prefix", "control", "during", "after"),
    [
        ("byocplain", (), "", ThreadControl.NONE, 8, 8),
        ("byocshared", ("OPENBLAS",), "", ThreadControl.OPENBLAS, 1, 8),
        ("byocprivate", ("OPENBLAS",), "scipy_", ThreadControl.PRIVATE_OPENBLAS, 1, 1),
        ("byocmkl", ("MKL",), "", ThreadControl.MKL, 1, 8),
    ],
)
def test_a_library_computes_in_the_calling_thread(
    tmp_path: Path, name: str, defines: tuple[str, ...], prefix: str, control: ThreadControl, during: int, after: int
) -> None:
    path = build_fake(tmp_path, name, *defines, prefix=prefix)
    found = find_library(str(path))
    assert isinstance(found, Library)
    assert found.threads is control
    options = {"cblas": {"library": str(path)}}
    executable = byoc_core.build(byoc_core.parse(TEXT), backends=[backend], options=options, fallback="error")
    assert executable.report_data["offloaded_share"] == 1
    library = ctypes.CDLL(str(path))
    vm = byoc_core.VirtualMachine(executable)
    for rows in (1, 5):
        x, w = numbers((rows, 4), "float32", 1), numbers((3, 4), "float32", 2)
        np.testing.assert_allclose(vm["main"](x, w), x @ w.T, rtol=1e-5, atol=1e-6)
        assert ctypes.c_int.in_dll(library, "fake_threads_during_call").value == during
        assert library.fake_threads() == after


FORK = """
import os, signal, sys, threading, warnings
import byoc_core, numpy as np
warnings.simplefilter("ignore")  # Python 3.12 warns of forks beside threads
executable = byoc_core.load(sys.argv[1], allow_native=True)
machine = byoc_core.VirtualMachine(executable, num_threads=1)
x, w = np.ones((5, 4), np.float32), np.ones((3, 4), np.float32)
done = threading.Event()
def work():
    while not done.is_set():
        machine["main"](x, w)
workers = [threading.Thread(target=work) for _ in range(2)]
for worker in workers: worker.start()
statuses = []
for _ in range(20):
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        os._exit(0 if (machine["main"](x, w) == 4).all() else 1)
    statuses.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    if statuses[-1]: break
done.set()
for worker in workers: worker.join()
print(statuses == [0] * 20)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a system without fork")
def test_a_child_forked_beside_calls_finds_the_locks_of_the_library_free(tmp_path: Path) -> None:
    path = build_fake(tmp_path, "byoclocked", "LOCKED")
    options = {"cblas": {"library": str(path)}}
    executable = byoc_core.build(byoc_core.parse(TEXT), backends=[backend], options=options, fallback="error")
    executable.save(tmp_path / "model.byoc")
    done = subprocess.run(
        [sys.executable, "-c", FORK, str(tmp_path / "model.byoc")],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "BYOC_LIBRARY_PATH": str(tmp_path), "LD_LIBRARY_PATH": str(tmp_path)},
    )
    assert (done.stdout.strip(), done.returncode) == ("True", 0), done.stderr
