"""Ops appending rows to a state stand between regions: the buffer of the state is written in place."""

from __future__ import annotations

import byoc_core
import numpy as np
import pytest
from byoc_core import VirtualMachine, parse
from byoc_core.artifact import Executable
from byoc_core.errors import PartitionError
from byoc_core.ir import IRModule
from byoc_core.partitioning import PartitionOptions, partition
from byoc_core.partitioning.state_appends import find_state_appends

from core.tests.conftest import FakeBackend

TEXT = """
@R.function
def main(x: R.Tensor(("n", 3)), log: R.Tensor(("p", 3))):
    R.func_attr({"input_names": ("x", "log"), "output_names": ("y", "z", "new"), "states": (("log", "new", 0),)})
    rows = R.nn.relu(x)
    new = R.concat(log, rows, axis=0)
    twice = R.concat(new, new, axis=0)
    y = R.sum(new, axis=(0,))
    z = R.sum(twice, axis=(0,))
    return y, z, new
"""


@pytest.fixture
def module() -> IRModule:
    return parse(TEXT)


def copied(executable: Executable) -> list[dict[int, object]]:
    return [dict(state.copied_nbytes) for state in executable.states["main"]]


def test_only_joints_of_a_state_and_its_rows_are_appends(module: IRModule) -> None:
    assert find_state_appends(module) == {("main", "new")}
    for changed in ("R.concat(rows, log, axis=0)", "R.concat(rows, rows, axis=0)"):
        assert not find_state_appends(parse(TEXT.replace("R.concat(log, rows, axis=0)", changed)))
    assert not find_state_appends(parse(TEXT.replace('"states": (("log", "new", 0),)', '"states": ()')))


def test_rows_are_appended_in_place(module: IRModule) -> None:
    executable = byoc_core.build(module, [])
    assert copied(executable) == [{}]
    (row,) = [row for row in executable.report_data["ops"] if row["name"] == "new"]
    assert (row["outcome"], row["code"]) == ("(view)", "view")
    vm = VirtualMachine(executable)
    log = np.empty((0, 3), np.float32)
    for count in (2, 1, 30):
        x = np.full((count, 3), count - 1, np.float32)
        log = np.concatenate([log, x])
        y, z = vm["main"](x)
        np.testing.assert_allclose(y, log.sum(0), rtol=1e-5)
        np.testing.assert_allclose(z, 2 * log.sum(0), rtol=1e-5)


def test_without_the_declaration_the_joint_is_claimed(module: IRModule) -> None:
    executable = byoc_core.build(parse(TEXT.replace('"states": (("log", "new", 0),)', '"states": ()')), [])
    (row,) = [row for row in executable.report_data["ops"] if row["name"] == "new"]
    assert row["outcome"] == "host"


def test_no_backend_claims_an_append(module: IRModule, fake_backend: type[FakeBackend]) -> None:
    taker = fake_backend("taker", None, dynamic_shapes=True)
    partitioned = partition(module, [taker])
    names = [binding.op.name for binding in partitioned["main"].bindings]
    assert (names[1], set(names)) == ("concat", {"call", "concat"})
    options = PartitionOptions(force={"new": "taker"})
    with pytest.raises(PartitionError, match="the machine appends the rows of a state in place"):
        partition(module, [taker], partition_options=options)
