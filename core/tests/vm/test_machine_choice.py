"""The choice of the machine without a native machine: reasons for Python, requests, refusals."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import byoc_core
import numpy as np
import pytest
from byoc_core.artifact import Executable
from byoc_core.errors import OptionsError
from byoc_core.plugin.installation import using
from byoc_core.vm import VirtualMachine
from byoc_core.vm.numpy_ops import find_numpy_op

from core.tests.native_machine_installation import installation_with_machines

SELECTION = """
@R.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n",), "bool")):
        found = R.nonzero(x, out_types=[R.Tensor((1, "k"), "int64")])
        return found
"""


@pytest.fixture(autouse=True)
def _without_machines(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("BYOC_MACHINE", raising=False)
    with using(installation_with_machines({})):
        yield


@pytest.fixture
def loaded(tmp_path: Path) -> Executable:
    path = tmp_path / "model.byoc"
    byoc_core.build(byoc_core.parse(SELECTION), []).save(path)
    return byoc_core.load(path)


def test_reasons_for_python(loaded: Executable) -> None:
    def reason(executable: Executable, **arguments: object) -> str:
        choice = VirtualMachine(executable, **arguments)["main"].machine  # type: ignore[arg-type]
        assert choice.name == "python"
        return choice.reason

    built = byoc_core.build(byoc_core.parse(SELECTION), [])
    assert reason(built) == "the executable is not loaded from an artifact with all constants"
    assert reason(loaded).startswith(("no native machine is installed", "the C extension is missing", "BYOC_NATIVE=0"))
    assert reason(loaded, machine="python") == "as requested"
    symbol = loaded.program.externs[0]
    assert reason(loaded, externs={symbol: np.flatnonzero}) == "functions of the caller are called (`externs`)"
    assert reason(loaded, native=False) == "each call is made by Python (`native=False`)"
    assert reason(loaded, record=lambda name, record: None) == "calls are recorded"


def test_executables_know_their_artifact(loaded: Executable, tmp_path: Path) -> None:
    assert loaded.artifact is not None
    assert bytes(loaded.artifact) == (tmp_path / "model.byoc").read_bytes()
    assert byoc_core.build(byoc_core.parse(SELECTION), []).artifact is None


def test_a_request_that_cannot_be_met_is_an_error(loaded: Executable, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OptionsError, match="function `main` cannot run natively: "):
        VirtualMachine(loaded, machine="native")
    with pytest.raises(OptionsError, match=r"machine: is unknown; got 'c', expected auto or python or native"):
        VirtualMachine(loaded, machine="c")  # type: ignore[arg-type]
    monkeypatch.setenv("BYOC_MACHINE", "native")  # where possible
    assert VirtualMachine(loaded)["main"].machine.name == "python"
    monkeypatch.setenv("BYOC_MACHINE", "python")
    assert VirtualMachine(loaded)["main"].machine.reason == "as requested"
    monkeypatch.setenv("BYOC_MACHINE", "fast")
    with pytest.raises(OptionsError, match="environment variable `BYOC_MACHINE`: is unknown; got 'fast'"):
        VirtualMachine(loaded)


OPS = [
    ('R.Tensor((64, 64), "float32")', "R.matmul(x, x)", False),
    ('R.Tensor(("n",), "float32")', "R.add(x, x)", True),
    ('R.Tensor(("n",), "float16")', "R.add(x, x)", False),
    ('R.Tensor(("n",), "float16")', "R.less(x, x)", False),
    ('R.Tensor(("n",), "int64")', "R.divide(x, x)", True),
    ('R.Tensor((8, 8), "float32")', "R.add(x, x)", True),
    ('R.Tensor((33, 32), "bfloat16")', "R.add(x, x)", False),
    ('R.Tensor((33, 32), "int64")', "R.sum(x, axis=[1])", True),
    ('R.Tensor((33, 64), "int64")', "R.sum(x, axis=[0])", True),
    ('R.Tensor(("n", 64), "int64")', "R.sum(x, axis=[1])", False),
    ('R.Tensor((8, 8), "float32")', "R.exp(x)", False),
    ('R.Tensor((8, 8), "float32")', "R.sum(x, axis=[0])", False),
    ('R.Tensor((8, 8), "int64")', "R.sum(x, axis=[0])", True),
    ('R.Tensor((8, 8), "float32")', "R.less(x, x)", True),
    ('R.Tensor(("n", 4), "float32")', "R.concat((x, x), axis=0)", True),
    ('R.Tensor(("n", 6), "float32")', 'R.reshape(x, shape=("n", 2, 3))', True),
]


@pytest.mark.parametrize(("type_", "op", "is_native"), OPS)
def test_ops_better_run_by_numpy(type_: str, op: str, is_native: bool) -> None:
    """Exact ops on elements or small arrays, and moves, run natively; roundings and large sums do not."""
    text = f"@R.ir_module\nclass M:\n    @R.function\n    def main(x: {type_}):\n        y = {op}\n        return y\n"
    executable = byoc_core.build(byoc_core.parse(text), [])
    expected = None if is_native else op.removeprefix("R.").partition("(")[0]
    assert find_numpy_op(executable.modules, executable.program.externs) == expected
    assert find_numpy_op(executable.modules, []) is None
