"""Scripts in forked children: refused variables, and the end of the process forked for each script."""

from __future__ import annotations

import os

import pytest

from core.tests.forked_process import _ENVIRONMENT, _Server, run_script

pytestmark = [
    pytest.mark.interpreter,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="a system without fork"),
]


def test_a_script_has_its_environment() -> None:
    script = "import os; print(os.environ['OTHER'], os.environ['PYTHONPATH'])"
    done = run_script(script, environment={**_ENVIRONMENT, "OTHER": "1", "PYTHONPATH": "folder"})
    assert (done.returncode, done.stdout) == (0, "1 folder\n")


def test_settings_by_imported_packages_are_no_difference() -> None:
    """scikit-learn sets this variable of Intel's OpenMP when imported, in the process of all tests."""
    assert run_script("", environment={**_ENVIRONMENT, "KMP_DUPLICATE_LIB_OK": "True"}).returncode == 0


@pytest.mark.parametrize("name", ["PYTHONHASHSEED", "LD_LIBRARY_PATH", "OMP_NUM_THREADS", "NPY_PROMOTION"])
def test_a_variable_without_effect_is_refused(name: str) -> None:
    with pytest.raises(
        ValueError, match=f"^a forked process cannot have other values of {name}: start a fresh process"
    ):
        run_script("", environment={**_ENVIRONMENT, name: "5"})


def test_a_missing_variable_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(_ENVIRONMENT, "OMP_NUM_THREADS", "5")
    with pytest.raises(ValueError, match="OMP_NUM_THREADS"):
        run_script("", environment={k: v for k, v in _ENVIRONMENT.items() if k != "OMP_NUM_THREADS"})


def test_the_end_of_the_server_is_told() -> None:
    server = _Server()
    request = {"script": "", "path": [], "file": "", "folder": ".", "environment": _ENVIRONMENT}
    request |= dict.fromkeys(("stdout", "stderr"), os.devnull)
    assert server.run(request) == 0
    server._process.kill()
    with pytest.raises(RuntimeError, match=r"^the process forked for each script ended with status -9$"):
        server.run(request)
    server.end()
