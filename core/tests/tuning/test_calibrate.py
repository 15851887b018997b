"""Calibration of backends with kernels asleep, and placements by cost behind."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import byoc_core
import numpy as np
import pytest
from byoc_core import calibrate, tune
from byoc_core.backend import Estimate
from byoc_core.driver import Compiler, CompileRequest
from byoc_core.errors import ArtifactError, ByocError, OptionsError
from byoc_core.ir import Function
from byoc_core.measurements import Calibration, Measurements
from byoc_core.measurements.predictions import predict
from byoc_core.partitioning import ByCost, MachineModel
from byoc_core.runtime.threads import num_threads
from byoc_core.tuning.layers import LAYER_GROUPS, LayerGroup, build_layers

from core.tests.tuning.toys import MODULE, Installed, SleepyBackend, X

MS = 1e-3
SLOW = MachineModel(1.0, 1.0)


def _unary(op: str, size: int, sketch: Any) -> None:
    sketch.add(op, sketch.param(sketch.draw(size)))


def layers(*ops: str) -> list[LayerGroup]:
    """Return a group for each op, of three layers."""
    return [LayerGroup(op, [partial(_unary, op, size) for size in (4, 5, 6)]) for op in ops]


GROUPS = layers("nn.relu", "tanh")


class Estimating(SleepyBackend):
    """A backend with an estimate for each op, and kernels asleep for other times."""

    def __init__(self, name: str, sleeps: Mapping[str, float], estimates: Mapping[str, float]) -> None:
        super().__init__(name, sleeps, None)
        self._estimate = partial(_look_up, estimates)


def _look_up(estimates: Mapping[str, float], function: Function) -> Estimate:
    return Estimate(max(estimates[binding.op.name] for binding in function.walk()))


def toys() -> tuple[Estimating, Estimating]:
    """Return two backends; the first promises a third of its time of ``tanh``."""
    true = {"nn.relu": 2 * MS, "tanh": 6 * MS, "add": 2 * MS}
    promised = {**true, "tanh": 2 * MS}
    other = {"nn.relu": 4 * MS, "tanh": 3 * MS, "add": 9 * MS}
    return Estimating("aone", true, promised), Estimating("btwo", other, other)


@pytest.fixture
def database(tmp_path: Path) -> Measurements:
    return Measurements(str(tmp_path / "db"))


def run(database: Measurements | None, *backends: SleepyBackend, **fields: Any) -> Any:
    registry = Installed(*backends)
    names = [backend.name for backend in backends]
    settings: dict[str, Any] = {"num_threads": 1, "groups": GROUPS} | fields
    return calibrate(names, compiler=Compiler(backends=registry), measurements=database, **settings)


def places(database: Measurements | None, *backends: SleepyBackend) -> dict[str, str]:
    """Return the backend of each op of a model of other sizes than the layers."""
    policy = ByCost(measurements=database, margin=0, machines={"host": SLOW}, num_threads=1)
    compiler = Compiler(backends=Installed(*backends))
    executable = compiler.build(MODULE, CompileRequest(backends=[backend.name for backend in backends], policy=policy))
    (result,) = (byoc_core.VirtualMachine(executable)["main"](X),)
    assert np.allclose(np.asarray(result), np.tanh(np.maximum(X, 0)) + np.maximum(X, 0))
    return {row["name"]: row["outcome"] for row in executable.report_data["ops"]}


def test_a_wrong_estimate_of_a_family_is_corrected_and_the_right_backend_is_chosen(database: Measurements) -> None:
    backends = toys()
    assert places(database, *backends) == {"a": "aone", "b": "aone", "c": "aone"}
    found = run(database, *backends)
    assert found.is_complete
    assert len(found.rows) == 12
    assert places(database, *backends) == {"a": "aone", "b": "btwo", "c": "aone"}
    assert database.rows() == list(found.rows)


def test_factors_are_measured_over_estimated_seconds(database: Measurements) -> None:
    (backend,) = (Estimating("aone", dict.fromkeys(["nn.relu"], 6 * MS), dict.fromkeys(["nn.relu"], 2 * MS)),)
    found = run(database, backend, groups=layers("nn.relu"))
    (family,) = found.predictions
    # a sleep takes the time asked for or longer
    assert 1 / 6 < family.before.mean <= 1 / 2.9
    assert family.rows == 3
    assert 0.4 < family.after.mean < 2.5
    assert 2.9 < Calibration.of(found.rows).factor < 6
    assert str(found).splitlines()[-1].startswith("aone                1  activations                 3 ")
    assert predict(database.rows()) == list(found.predictions)


def test_ops_not_taken_are_left_out(database: Measurements) -> None:
    backend = SleepyBackend("aone", {"tanh": MS}, ["tanh"])
    lines: list[str] = []
    found = run(database, backend, progress=lines.append)
    assert {row.op for row in found.rows} == {"tanh"}
    assert [line.split(",")[1] for line in lines] == [" 0 measured ops", " 3 measured ops"]


def test_each_number_of_threads_is_measured(database: Measurements) -> None:
    backend = SleepyBackend("aone", {"tanh": MS}, ["tanh"])
    assert {row.threads for row in run(database, backend, num_threads=[3, 1]).rows} == {1, 3}
    assert {row.threads for row in run(database, backend, num_threads=None).rows} == {1, num_threads()}


def test_the_budget_ends_a_calibration_behind_the_first_group(database: Measurements) -> None:
    found = run(database, *toys(), seconds=0)
    assert not found.is_complete
    assert {(row.backend, row.op) for row in found.rows} == {("aone", "nn.relu"), ("btwo", "nn.relu")}


def test_an_interrupted_calibration_keeps_the_measured_ops(database: Measurements) -> None:
    def interrupt(line: str) -> None:
        if "tanh" in line:
            raise KeyboardInterrupt

    found = run(database, *toys(), progress=interrupt)
    assert not found.is_complete
    assert {row.op for row in database.rows()} == {"nn.relu", "tanh"}
    assert list(found.rows) == database.rows()


def test_a_failing_backend_is_left_out_unless_strict(database: Measurements) -> None:
    failing = SleepyBackend("aone", {}, ["tanh"], fault=ByocError("kernel", "is missing"))
    with pytest.warns(UserWarning, match="kernel: is missing"):
        found = run(database, failing)
    assert found.rows == ()
    assert found.is_complete
    with pytest.raises(ByocError):
        run(database, failing, strict=True)


def test_without_a_database_nothing_is_kept(database: Measurements) -> None:
    assert run(None, SleepyBackend("aone", {"tanh": MS}, ["tanh"])).rows
    assert database.rows() == []


def test_a_damaged_database_is_an_error_before_any_measurement(database: Measurements) -> None:
    Path(database.path).write_bytes(b"damaged" * 1000)
    backend = SleepyBackend("aone", {"tanh": MS}, ["tanh"])
    with pytest.raises(ArtifactError, match="byoc measurements clear"):
        run(database, backend)
    assert backend.calls == []


@pytest.mark.parametrize(
    ("fields", "problem"),
    [({"seconds": -1}, "seconds"), ({"num_threads": 0}, "num_threads"), ({"num_threads": []}, "num_threads")],
)
def test_bad_numbers_are_errors(fields: Mapping[str, Any], problem: str) -> None:
    with pytest.raises(OptionsError, match=f"calibrate, {problem}"):
        run(None, SleepyBackend("aone"), **fields)


def test_the_layers_are_models_with_results() -> None:
    for group in LAYER_GROUPS:
        module, inputs = build_layers(group.layers)
        assert len(module.functions) == len(inputs) == len(group.layers) > 2
        assert all(function.results for function in module.functions.values())


def tuned(database: Measurements | None, *backends: SleepyBackend) -> Iterator[str]:
    """Yield the ops in the database behind a search."""
    compiler = Compiler(backends=Installed(*backends))
    names = [backend.name for backend in backends]
    tune(MODULE, names, compiler=compiler, num_threads=1, seconds=0.5, measurements=database)
    yield from (f"{row.backend} {row.op}" for row in (database.rows() if database else []))


def test_tuning_keeps_the_times_of_ops(database: Measurements) -> None:
    backends = toys()
    ops = ("nn.relu", "tanh", "add")
    assert sorted(tuned(database, *backends)) == sorted(f"{name} {op}" for name in ("aone", "btwo") for op in ops)
    assert places(database, *backends) == {"a": "aone", "b": "btwo", "c": "aone"}
    seconds = {row.op: row.seconds for row in database.rows(backend="aone")}
    assert 6 * MS <= seconds["tanh"] < 12 * MS
    assert 2 * MS <= seconds["add"] < 6 * MS


def test_tuning_of_one_backend_keeps_the_times_too(database: Measurements) -> None:
    assert len([*tuned(database, toys()[0])]) == 3
    assert [*tuned(None, toys()[0])] == []


def test_tuning_goes_on_with_a_damaged_database(database: Measurements) -> None:
    Path(database.path).write_bytes(b"damaged" * 1000)
    compiler = Compiler(backends=Installed(*toys()))
    lines: list[str] = []
    found = tune(
        MODULE,
        ["aone", "btwo"],
        compiler=compiler,
        num_threads=1,
        seconds=0,
        measurements=database,
        progress=lines.append,
    )
    assert found.lock.ops
    assert sum("are not kept" in line for line in lines) == 1
    with pytest.raises(sqlite3.DatabaseError), sqlite3.connect(database.path) as connection:
        connection.execute("SELECT * FROM measurements")
