"""``ByCost`` with a database of measured ops: known optima, factors of families, and poisoned measurements."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import byoc_core
import numpy as np
import pytest
from byoc_core import script as R
from byoc_core.backend import Estimate
from byoc_core.driver import CompileRequest
from byoc_core.errors import OptionsError
from byoc_core.ir import Function, IRModule
from byoc_core.measurements import Calibration, Measurement, Measurements
from byoc_core.measurements.keys import heaviest_op, op_family, op_key
from byoc_core.measurements.setting import BackendSetting, find_calibrations
from byoc_core.partitioning import ByCost, MachineModel, partition
from byoc_core.partitioning.op_function import as_function
from byoc_core.partitioning.policies.neighbours import neighbours_of
from byoc_core.runtime.threads import num_threads
from hypothesis import given
from hypothesis import strategies as st

from core.tests.conftest import FakeBackend
from core.tests.partitioning.conftest import Placement

US = 1e-6
TEXT = """
def main(x: R.Tensor((1000,), "float32")):
    a = R.nn.relu(x)
    b = R.tanh(a)
    c = R.matmul(b, b)
    return c
"""
MODULE = R.parse(TEXT)
OPS = ("a", "b", "c")
SLOW = MachineModel(1.0, 1.0)


def backends() -> list[FakeBackend]:
    """Return two backends; the first says to be faster."""
    seconds = {"aone": US, "btwo": 2 * US}
    return [FakeBackend(name, None, estimate=partial(_estimate, value)) for name, value in seconds.items()]


def _estimate(seconds: float, _function: Function) -> Estimate:
    return Estimate(seconds)


def places(measurements: Measurements | None, **fields: Any) -> dict[str, str]:
    """Return the backend of each op, by cost without a margin."""
    policy = ByCost(measurements=measurements, margin=0, machines={"host": SLOW}, **fields)
    where = Placement(partition(MODULE, backends(), policy=policy))
    return {name: where.backend_of[region] for name, region in where.region_of.items()}


def functions(module: IRModule) -> dict[str, Function]:
    """Return the function priced for each op."""
    sites = neighbours_of(module)
    body = module["main"].bindings
    return {
        op.results[0].name: as_function(op, "aone", sites["main", op.results[0].name].neighbours._asdict())
        for op in body
    }


def measured(name: str, seconds: Mapping[str, float], module: IRModule = MODULE, /, **fields: Any) -> list[Measurement]:
    """Return measurements of the ops of a module on a backend and this machine."""
    (backend,) = (backend for backend in backends() if backend.name == name)
    setting = BackendSetting.of(byoc_core.backends.get(backend), {})
    estimated = US if name == "aone" else 2 * US
    rows = []
    for op_name, value in seconds.items():
        function = functions(module)[op_name]
        op = heaviest_op(function)
        values = (
            *setting,
            "",
            op_key(function),
            op.op.name,
            op_family(function),
            1,
            1,
            estimated,
            value,
            6,
            "2026-01-01",
        )
        rows.append(replace(Measurement(*values), **fields))
    return rows


@pytest.fixture
def database(tmp_path: Path) -> Measurements:
    return Measurements(str(tmp_path / "db"))


def test_without_measurements_estimates_count(database: Measurements) -> None:
    assert places(None) == places(database) == dict.fromkeys(OPS, "aone")


def test_measured_seconds_replace_estimates(database: Measurements) -> None:
    database.add(measured("aone", {"a": US, "b": 9 * US, "c": US}) + measured("btwo", {"a": 3 * US, "b": US}))
    assert places(database) == {"a": "aone", "b": "btwo", "c": "aone"}


def test_measurements_beside_other_estimates_do_not_count(database: Measurements) -> None:
    """A factor is measured over estimated seconds: true of the estimates at the time of the measurement."""
    database.add(measured("aone", {"a": 9 * US, "b": 9 * US, "c": 9 * US}))
    assert places(database) == dict.fromkeys(OPS, "btwo")
    faster, other = FakeBackend("aone", None, estimate=partial(_estimate, US / 2)), backends()[1]
    policy = ByCost(measurements=database, margin=0, machines={"host": SLOW})
    where = Placement(partition(MODULE, [faster, other], policy=policy))
    assert {where.backend_of[region] for region in where.region_of.values()} == {"aone"}


@pytest.mark.parametrize(
    "fields",
    [
        {"threads": num_threads() + 1},
        {"processor": "another"},
        {"version": "byoc-aone 0.9"},
        {"options": "0123"},
        {"schedule": "tiles 8"},
        {"backend": "other"},
    ],
)
def test_measurements_of_another_setting_do_not_count(database: Measurements, fields: Mapping[str, Any]) -> None:
    database.add(measured("aone", dict.fromkeys(OPS, 9 * US), **fields))
    assert len(database.rows()) == 3
    assert places(database) == dict.fromkeys(OPS, "aone")


def test_the_number_of_threads_may_be_given(database: Measurements) -> None:
    database.add(measured("aone", {"a": 9 * US}, threads=7))
    assert places(database)["a"] == "aone"
    assert places(database, num_threads=7)["a"] == "btwo"


def test_given_machines_stay_as_given(database: Measurements) -> None:
    database.add(measured("aone", dict.fromkeys(OPS, 9 * US)))
    policy = ByCost(measurements=database, machines={"aone": MachineModel(1e15, 1e15), "host": SLOW})
    assert set(Placement(partition(MODULE, backends(), policy=policy)).backend_of.values()) == {"aone"}


def test_an_estimate_is_corrected_by_the_factor_of_the_family(database: Measurements) -> None:
    lines = ["def main(v0: R.Tensor((8, 8), 'float32')):"]
    lines += [f"    v{i + 1} = R.{'nn.relu' if i < 6 else 'matmul'}(v{i}{', v0' * (i >= 6)})" for i in range(12)]
    others = R.parse("\n".join([*lines, "    return v12"]))
    database.add(measured("aone", {f"v{i + 1}": (30 if i < 6 else 1) * US for i in range(12)}, others))
    assert len(database.rows()) > 4
    assert places(database) == {"a": "btwo", "b": "btwo", "c": "aone"}
    assert places(None) == dict.fromkeys(OPS, "aone")


def test_factors_are_means_drawn_towards_all_families() -> None:
    rows = measured("aone", {"a": 4 * US, "b": 4 * US, "c": US})
    calibration = Calibration.of(rows)
    families = {row.family for row in rows}
    assert calibration.factor == pytest.approx(4 ** ((len(families) - 1) / len(families)))
    assert set(calibration.factors) == families
    assert all(1 < factor < 4 for factor in calibration.factors.values())
    many = [replace(row, key=f"{index}") for index in range(400) for row in measured("aone", {"a": 3 * US})]
    many += measured("aone", {"c": US / 50})
    assert Calibration.of(many).factors[many[0].family] == pytest.approx(3, rel=0.05)


def test_an_op_beside_other_neighbours_has_the_ratio_of_the_same_op() -> None:
    calibration = Calibration.of(measured("aone", {"b": 5 * US}))
    alone = as_function(MODULE["main"].bindings[1], "aone")
    assert alone.attrs != functions(MODULE)["b"].attrs
    assert calibration.corrected(alone, 2 * US) == pytest.approx(10 * US)
    assert calibration.corrected(functions(MODULE)["b"], 2 * US) == 5 * US


def test_keys_know_structure_and_neighbours_only() -> None:
    renamed = R.parse("""
def main(u: R.Tensor((1000,), "float32")):
    v = R.nn.relu(u)
    w = R.tanh(v)
    z = R.matmul(w, w)
    return z
""")
    assert [op_key(f) for f in functions(renamed).values()] == [op_key(f) for f in functions(MODULE).values()]
    first = MODULE["main"].bindings[1]
    keys = {op_key(functions(module)["b"]) for module in (MODULE, _text("1000,", "999,"), _text("float32", "float64"))}
    assert len(keys | {op_key(as_function(first, "aone"))}) == 4


def _text(old: str, new: str) -> IRModule:
    """Return the module with another text."""
    return R.parse(TEXT.replace(old, new))


TIMES = st.one_of(st.floats(0, 1e6), st.just(0.0), st.just(1e-300))


@given(st.lists(st.tuples(TIMES, TIMES, st.sampled_from(["aone", "btwo"])), min_size=3, max_size=3))
def test_poisoned_measurements_change_speed_never_results(
    tmp_path_factory: pytest.TempPathFactory, figures: Sequence[tuple[float, float, str]]
) -> None:
    database = Measurements(str(tmp_path_factory.mktemp("poisoned") / "db"))
    for name, (seconds, estimated, backend) in zip(OPS, figures, strict=True):
        database.add(replace(row, estimated=estimated) for row in measured(backend, {name: seconds}))
    executable = byoc_core.build(MODULE, backends(), policy=ByCost(measurements=database, machines={"host": SLOW}))
    assert executable.report_data["offloaded_share"] > 0
    x = np.linspace(-1, 1, 1000, dtype=np.float32)
    hidden = np.tanh(np.maximum(x, 0).astype(np.float64))
    expected = float(hidden @ hidden)
    result = float(np.asarray(byoc_core.VirtualMachine(executable)["main"](x)))
    # 1000 sums of products, and a few roundings of each factor
    assert abs(result - expected) <= 1010 * float(np.finfo(np.float32).eps) * expected


def test_a_damaged_database_changes_nothing_but_a_warning(
    database: Measurements, caplog: pytest.LogCaptureFixture
) -> None:
    Path(database.path).write_bytes(b"damaged" * 1000)
    assert places(database) == dict.fromkeys(OPS, "aone")
    assert "byoc measurements clear" in caplog.text


def test_rows_of_hostile_databases_do_not_count(database: Measurements) -> None:
    database.add(measured("aone", dict.fromkeys(OPS, 9 * US)))
    assert set(places(database).values()) == {"btwo"}
    with sqlite3.connect(database.path) as connection:
        connection.execute("UPDATE measurements SET seconds = 'fast'")
    assert places(database) == dict.fromkeys(OPS, "aone")


def test_placements_are_equal_in_every_order_of_measurements(tmp_path: Path) -> None:
    rows = measured("aone", {"a": US, "b": 9 * US, "c": US}) + measured("btwo", {"a": 3 * US, "b": US})
    found = []
    for number, order in enumerate(itertools.islice(itertools.permutations(rows), 0, 120, 17)):
        database = Measurements(str(tmp_path / f"db{number}"))
        for row in order:
            database.add([row])
        found.append((database.rows(), places(database)))
    assert all(item == found[0] for item in found)


def test_no_file_is_made_by_reading(database: Measurements) -> None:
    places(database)
    assert not Path(database.path).exists()
    assert find_calibrations(database, [], {}) == {}


def test_requests_keep_databases_and_records_do_not(tmp_path: Path) -> None:
    policy = ByCost(measurements=Measurements(str(tmp_path / "db")), num_threads=3)
    request = CompileRequest(policy=policy)
    assert CompileRequest.from_data(request.to_data()).policy == policy
    assert str(tmp_path) not in str(request.to_record())
    assert CompileRequest.from_data(request.to_record()).policy == ByCost(measurements=Measurements(), num_threads=3)


@pytest.mark.parametrize(("field", "value"), [("measurements", "db"), ("num_threads", 0), ("num_threads", True)])
def test_bad_fields_are_errors(field: str, value: object) -> None:
    with pytest.raises(OptionsError, match=f"ByCost, {field}"):
        ByCost(**{field: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(("margin", "place"), [(0.15, "aone"), (0.0, "host")])
def test_beside_measured_backends_the_host_must_save_the_margin(
    database: Measurements, margin: float, place: str
) -> None:
    database.add(measured("aone", {"a": 5 * US, "b": US, "c": US}))
    # 8,000 bytes are 4 us on the host: 6 us with the first op there, against 7 us
    host = MachineModel(1e15, 2e9)
    policy = ByCost(measurements=database, margin=margin, machines={"host": host})
    one = [FakeBackend("aone", None, estimate=partial(_estimate, US))]
    where = Placement(partition(MODULE, one, policy=policy))
    found = {name: where.backend_of[region] for name, region in where.region_of.items()}
    assert found.get("a", "host") == place
