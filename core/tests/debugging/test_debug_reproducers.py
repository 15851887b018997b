"""Reproducers: written once, with the same bytes each time, and run in a fresh process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from byoc_core import debug_model, parse
from byoc_core.debugging import DebugReport, check_region, load_arrays, save_arrays, save_reproducers
from byoc_core.dtypes import all_dtypes, to_numpy
from byoc_core.errors import ArtifactError, OptionsError

FILES = ["constants.npz", "inputs.npz", "region.py", "repro.py"]
TWO = """
class M:
    @R.function
    def main(x: R.Tensor(("n", 6), "{dtype}")):
        a = R.add(x, {constant})
        b = R.tanh(a)
        c = R.multiply(b, a)
        d = R.subtract(c, x)
        return d
"""


def debug(dtype: str = "float32", *, isolate: bool = False, **options: object) -> DebugReport:
    weight = np.arange(6).astype(to_numpy(dtype))
    from byoc_core.ir import digest_of

    text = TWO.format(dtype=dtype, constant="w")
    head = f'    w = R.constant("{digest_of(weight)}", R.Tensor((6,), "{dtype}"))\n'
    module = parse(text.replace("class M:\n", f"class M:\n{head}"), constants={digest_of(weight): weight})
    x = np.random.default_rng(0).standard_normal((2, 6)).astype(to_numpy(dtype))
    return debug_model(module, ["faulty"], [x], options={"faulty": options}, isolate=isolate)


def run(script: Path, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    """Run a reproducer in a fresh process, from another folder, with the installed faulty backend on the path."""
    import os

    path = os.pathsep.join([str(tmp_path / "site"), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-W", "error", str(script)]
    return subprocess.run(
        command, cwd="/", env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_it_fails_in_a_fresh_process_and_passes_once_the_backend_is_right(
    installed_faulty: str, tmp_path: Path, dtype: str
) -> None:
    report = debug(dtype, fault="lane", op="multiply")
    (folder,) = save_reproducers(report, tmp_path / "out")
    assert folder == tmp_path / "out" / "00_faulty_main_1"
    assert sorted(item.name for item in folder.iterdir()) == FILES
    failing = run(folder / "repro.py", tmp_path)
    assert (failing.returncode, failing.stderr) == (1, "")
    assert failing.stdout == f"{report.cases[0].verdict}\n"

    script = folder / "repro.py"
    options = "OPTIONS = {'faulty': {'fault': 'lane', 'op': 'multiply'}}"
    assert options in script.read_text(encoding="utf-8")
    script.write_text(script.read_text(encoding="utf-8").replace(options, "OPTIONS = {}"), encoding="utf-8")
    passing = run(script, tmp_path)
    assert (passing.returncode, passing.stderr) == (0, "")
    assert passing.stdout.startswith("region `faulty_main_1` on `faulty`, call 0: right\n")


def test_a_crash_is_reproduced_without_crashing_the_script(installed_faulty: str, tmp_path: Path) -> None:
    (folder,) = save_reproducers(debug(isolate=True, fault="segfault", op="add"), tmp_path / "out")
    failing = run(folder / "repro.py", tmp_path)
    assert failing.returncode == 1, failing.stderr
    assert "  crash: the process ended with signal SIGSEGV" in failing.stdout


def test_its_head_says_what_it_shows(installed_faulty: str, tmp_path: Path) -> None:
    (folder,) = save_reproducers(debug(fault="lane", op="multiply"), tmp_path)
    lines = (folder / "repro.py").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "# A reproducer written by byoc debug."
    assert "# Region `faulty_main_1` of backend `faulty` diverges (wrong-values)." in lines
    assert "# Ops: multiply, subtract." in lines
    assert "# guilty: `multiply` (`c`); the value of this op is the first diverging value" in lines
    assert any(line.startswith("# Written with byoc-core ") and ", byoc-faulty 1.0, numpy " in line for line in lines)


def test_each_failing_region_has_one_and_the_bytes_are_the_same(installed_faulty: str, tmp_path: Path) -> None:
    written = []
    for name in ("a", "b"):
        folders = save_reproducers(debug(fault="raise"), tmp_path / name)
        assert [folder.name for folder in folders] == ["00_faulty_main_0", "01_faulty_main_1"]
        written.append([(folder / name).read_bytes() for folder in folders for name in FILES])
    assert written[0] == written[1]
    assert save_reproducers(debug(), tmp_path / "c") == ()
    assert not (tmp_path / "c").exists()


def test_only_what_is_its_own_is_replaced(installed_faulty: str, tmp_path: Path) -> None:
    report = debug(fault="raise")
    first, _ = save_reproducers(report, tmp_path / "out")
    save_reproducers(report, tmp_path / "out")
    (first / "notes.txt").write_text("mine")
    with pytest.raises(OptionsError) as caught:
        save_reproducers(report, tmp_path / "out")
    assert str(caught.value) == f"folder `{first}`: exists and is not a reproducer. Name another folder."

    other = tmp_path / "other" / "01_faulty_main_1"
    other.mkdir(parents=True)
    (other / "repro.py").write_text("print('mine')")
    with pytest.raises(OptionsError):
        save_reproducers(report, tmp_path / "other")
    assert (other / "repro.py").read_text() == "print('mine')"
    assert not (tmp_path / "other" / "00_faulty_main_0").exists(), "nothing is written where one cannot be"


def test_a_region_alone_is_checked_as_in_the_session(installed_faulty: str, faulty: Callable[..., object]) -> None:
    report = debug(fault="lane", op="multiply")
    (case,) = report.cases
    verdict = check_region(case.module, case.name, case.inputs, options=report.options)
    assert verdict == case.verdict
    names = [param.name for param in case.module[case.name].params]
    by_name = dict(zip(names, case.inputs, strict=True))
    assert check_region(case.module, case.name, by_name, backends=[faulty()]).is_right
    with pytest.raises(OptionsError) as caught:
        check_region(case.module, "main", [])
    assert str(caught.value) == "function `main`: is not annotated with `Codegen`"
    with pytest.raises(OptionsError) as caught:
        check_region(case.module, case.name, case.inputs, backends=["host"])
    assert str(caught.value) == "backends: lack `faulty`, the function's own backend"


def test_arrays_of_every_dtype_come_back_as_they_were(tmp_path: Path) -> None:
    bits = np.random.default_rng(0).integers(0, 2, (2, 3))
    arrays = {name: bits.astype(to_numpy(name)) for name in all_dtypes()}
    arrays |= {f"{name}|x|": array for name, array in arrays.items()}
    arrays["|"] = arrays["0-d"] = np.array(1.5)
    arrays["empty"] = np.zeros((0, 3), np.float32)
    save_arrays(tmp_path / "a.npz", arrays)
    loaded = load_arrays(tmp_path / "a.npz")
    assert list(loaded) == list(arrays)
    for name, array in arrays.items():
        assert (loaded[name].dtype, loaded[name].shape) == (array.dtype, array.shape)
        assert loaded[name].tobytes() == array.tobytes()


@pytest.mark.parametrize("content", [b"", b"PK", b"not a zip file at all", b"\x93NUMPY\x01\x00"])
def test_other_files_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.npz"
    path.write_bytes(content)
    with pytest.raises(ArtifactError) as caught:
        load_arrays(path)
    assert str(caught.value) == f"file `{path}`: is not an .npz file of arrays"
