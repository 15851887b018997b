"""Locks: files from anywhere, differences from the place of the measurement, and builds by locks."""

from __future__ import annotations

import contextlib
import importlib
import json
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import byoc_core
import numpy as np
import pytest
from byoc_core.driver import Compiler, CompileRequest
from byoc_core.driver.lock import LOCK_SCHEMA, Lock, read_placement, versions_of
from byoc_core.errors import OptionsError
from byoc_core.measurements.machine import machine_facts
from byoc_core.partitioning import GreedyByOrder
from byoc_core.transform import evaluate_function
from byoc_core.version import __version__
from hypothesis import given, settings
from hypothesis import strategies as st

from core.tests.tuning.toys import MODULE, OPS, Installed, SleepyBackend, X

TEXTS = st.text(max_size=8)
SECONDS = st.floats(0, 1e6)
LOCKS = st.builds(
    Lock,
    backends=st.lists(TEXTS, max_size=3),
    ops=st.dictionaries(TEXTS, TEXTS, max_size=4),
    function=TEXTS,
    sizes=st.dictionaries(TEXTS, st.integers(0, 1 << 62), max_size=3),
    num_threads=st.integers(1, 1 << 20),
    seconds=SECONDS,
    rivals=st.dictionaries(TEXTS, SECONDS, max_size=3),
    machine=st.dictionaries(TEXTS, TEXTS, max_size=3),
    versions=st.dictionaries(TEXTS, TEXTS, max_size=3),
    schedules=st.dictionaries(TEXTS, TEXTS, max_size=3),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
GOOD: dict[str, Any] = {
    "schema": LOCK_SCHEMA,
    "backends": ["aone"],
    "ops": {"main/a": "aone"},
    "function": "main",
    "sizes": {"n": 2},
    "num_threads": 1,
    "seconds": 1e-3,
    "rivals": {"aone alone": 1},
    "machine": {"cpus": "2"},
    "versions": {"aone": "1"},
    "schedules": {"main/a": "tile=8"},
}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("locks") / "model.lock"


@given(lock=LOCKS)
def test_what_is_saved_is_loaded(path: Path, lock: Lock) -> None:
    lock.save(path)
    assert Lock.load(path) == lock
    assert Lock.load(str(path)).policy == lock.policy


def test_saved_locks_are_json_with_a_schema(path: Path) -> None:
    Lock(("aone",), {"main/a": "aone"}).save(path)
    data = json.loads(path.read_text("utf-8"))
    assert (data["schema"], data["backends"], data["machine"]) == (LOCK_SCHEMA, ["aone"], machine_facts())
    with pytest.raises(ValueError, match="JSON compliant"):
        Lock(["aone"], {}, seconds=float("nan")).save(path)
    assert json.loads(path.read_text("utf-8")) == data


@given(data=JSON | st.fixed_dictionaries({name: st.just(value) | JSON for name, value in GOOD.items()}))
def test_any_json_is_a_lock_or_an_error(path: Path, data: Any) -> None:
    path.write_text(json.dumps(data))
    lock = None
    with contextlib.suppress(OptionsError):
        lock = Lock.load(path)
    if lock is not None:
        lock.save(path)
        assert Lock.load(path) == lock


@given(content=st.binary(max_size=60), length=st.integers(0, 400))
def test_damaged_files_are_errors(path: Path, content: bytes, length: int) -> None:
    whole = json.dumps(GOOD).encode()
    for damaged in (content, whole[: min(length, len(whole) - 1)], whole[:length] + b"\xff" + whole[length:]):
        path.write_bytes(damaged)
        with pytest.raises(OptionsError, match=r"is malformed JSON|is not a lock of this version"):
            Lock.load(path)


@pytest.mark.parametrize("content", ["[" * 200_000, '{"a":' * 200_000, "1" * 10_000, '"' + "x" * 10_000_000 + '"'])
def test_huge_files_are_errors(path: Path, content: str) -> None:
    path.write_text(content)
    with pytest.raises(OptionsError) as caught:
        Lock.load(path)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("backends", "aone"),
        ("backends", [1]),
        ("ops", ["main/a"]),
        ("ops", {"main/a": None}),
        ("function", 3),
        ("sizes", {"n": 2.0}),
        ("sizes", {"n": True}),
        ("sizes", {"n": -1}),
        ("num_threads", 0),
        ("num_threads", True),
        ("num_threads", 1.0),
        ("seconds", -1),
        ("seconds", "1"),
        ("seconds", False),
        ("seconds", 10**400),
        ("rivals", {"x": None}),
        ("rivals", []),
        ("machine", {"cpus": 2}),
        ("versions", {"aone": ["x" * 1000]}),
        ("schedules", {"main/a": 8}),
        ("schedules", ["tile=8"]),
    ],
)
def test_values_of_the_wrong_kind_are_named(path: Path, name: str, value: Any) -> None:
    path.write_text(json.dumps({**GOOD, name: value}))
    with pytest.raises(OptionsError) as caught:
        Lock.load(path)
    assert str(caught.value) == f"lock `{path}`, `{name}`: has a bad value; got {repr(value)[:80]}"


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ([], "lock: is not a lock of this version; got list, expected schema 1"),
        ({}, "lock: is not a lock of this version; got None, expected schema 1"),
        ({**GOOD, "schema": 2}, "lock: is not a lock of this version; got 2, expected schema 1"),
        ({"schema": 1}, "lock: lacks `backends`, `ops`"),
        ({"schema": 1, "ops": {}}, "lock: lacks `backends`"),
    ],
)
def test_data_of_other_kinds_are_told(data: Any, text: str) -> None:
    with pytest.raises(OptionsError) as caught:
        Lock.from_data(data)
    assert str(caught.value) == text


def test_fields_of_later_versions_are_passed_over() -> None:
    assert Lock.from_data({**GOOD, "later": 3}) == Lock.from_data(GOOD)
    assert Lock.from_data({"schema": 1, "backends": [], "ops": {}}) == Lock([], {})


def test_files_that_cannot_be_read_are_system_errors(tmp_path: Path) -> None:
    for missing in (tmp_path, tmp_path / "missing.lock"):
        with pytest.raises(OSError, match=str(tmp_path)):
            Lock.load(missing)


def toys() -> tuple[SleepyBackend, SleepyBackend]:
    return SleepyBackend("aone"), SleepyBackend("btwo", ops=["tanh"])


def test_nothing_differs_at_the_place_of_the_measurement() -> None:
    registry = Installed(*toys())
    names = ["aone", "btwo"]
    lock = Lock(names, {}, versions=versions_of(names, registry))
    assert lock.versions == {"byoc-core": __version__, "aone": "byoc-aone 1.0", "btwo": "byoc-btwo 1.0"}
    assert list(lock.differences(registry)) == []
    assert {"machine", "processor", "cpus", "features"} == lock.machine.keys()
    assert all(lock.machine[name] for name in ("machine", "cpus", "features"))


def test_each_difference_is_told() -> None:
    registry = Installed(*toys(), version="2.0")
    facts = machine_facts()
    lock = Lock(
        ["aone", "cthree"],
        {},
        machine={**facts, "cpus": "4096", "moon": "full"},
        versions={"byoc-core": "0.0", "aone": "byoc-aone 1.0", "cthree": "byoc-cthree 1.0"},
    )
    assert list(lock.differences(registry)) == [
        f"cpus: measured on `4096`, here `{facts['cpus']}`",
        "moon: measured on `full`, here `None`",
        "backend `cthree` is not installed",
        f"byoc-core: measured with 0.0, here {__version__}",
        "aone: measured with byoc-aone 1.0, here byoc-aone 2.0",
    ]


def test_backends_given_as_objects_are_present() -> None:
    lock = Lock(["aone"], {"main/a": "aone"}, versions={"aone": "byoc-aone 1.0"})
    assert list(lock.differences(Installed())) == ["backend `aone` is not installed"]
    assert list(lock.differences(Installed(), ["aone"])) == []
    assert list(lock.differences(Installed(toys()[0], version="2.0"), ["aone"])) == []


def test_a_build_warns_of_all_differences() -> None:
    registry = Installed(*toys())
    lock = Lock(["aone"], {}, machine={"cpus": "a\x1b[31m"}, versions={"aone": "byoc-aone 0.9"})
    with pytest.warns(UserWarning, match="measured elsewhere") as caught:
        Compiler(registry).build(MODULE, CompileRequest(placement=lock))
    (warning,) = caught
    assert str(warning.message) == (
        "the placement may be slow here: it was measured elsewhere.\n"
        f"cpus: measured on `a\N{REPLACEMENT CHARACTER}[31m`, here `{machine_facts()['cpus']}`\n"
        "aone: measured with byoc-aone 0.9, here byoc-aone 1.0"
    )
    assert warning.filename == __file__


@pytest.fixture
def no_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def outcomes(executable: byoc_core.Executable) -> dict[str, str]:
    return {row["name"]: row["outcome"] for row in executable.report_data["ops"]}


def call(executable: byoc_core.Executable) -> Any:
    return byoc_core.VirtualMachine(executable)["main"](X)


@pytest.mark.usefixtures("no_warnings")
def test_the_backends_of_a_lock_are_the_default(path: Path) -> None:
    compiler = Compiler(Installed(*toys()))
    lock = Lock(["aone", "btwo"], {"main/a": "aone", "main/b": "btwo", "main/c": "host"})
    lock.save(path)
    for placement in (lock, path, str(path)):
        built = compiler.build(MODULE, CompileRequest(placement=placement))  # type: ignore[arg-type]
        assert outcomes(built) == {"a": "aone", "b": "btwo", "c": "host"}
        assert [row["name"] for row in built.report_data["backends"]] == ["aone", "btwo", "host"]
    built = compiler.build(MODULE, CompileRequest(backends=["aone"], placement=lock))
    assert outcomes(built) == {"a": "aone", "b": "host", "c": "host"}
    explained = compiler.explain(MODULE, CompileRequest(placement=path))
    assert {row["name"]: row["outcome"] for row in explained.report_data["ops"]} == {
        "a": "aone",
        "b": "btwo",
        "c": "host",
    }
    assert compiler.pass_names(CompileRequest(placement=lock))


@pytest.mark.usefixtures("no_warnings")
def test_the_record_of_a_build_replays_the_placement() -> None:
    compiler = Compiler(Installed(*toys()))
    lock = Lock(["aone", "btwo"], {"main/a": "aone", "main/b": "btwo", "main/c": "host"})
    built = compiler.build(MODULE, CompileRequest(placement=lock))
    assert built.request_data["policy"] == {"name": "placed", "ops": dict(lock.ops)}
    again = compiler.build(MODULE, CompileRequest.from_data(built.request_data))
    assert (again.report_data, again.request_data) == (built.report_data, built.request_data)


@pytest.mark.usefixtures("no_warnings")
def test_regions_of_a_placement_are_debugged() -> None:
    lock = Lock(["aone"], {"main/a": "aone", "main/b": "host"})
    report = byoc_core.debug_model(
        MODULE, [], [X], placement=lock, compiler=Compiler(Installed(*toys())), isolate=False
    )
    assert sorted(op for region in report.regions for op in region.ops) == ["add", "nn.relu"]


def test_a_placement_beside_a_policy_is_an_error() -> None:
    lock = Lock(["aone"], {})
    for placement in (lock, "x.lock", Path("x.lock")):
        with pytest.raises(OptionsError) as caught:
            byoc_core.build(MODULE, [], placement=placement, policy=GreedyByOrder())
        assert str(caught.value) == "placement: is given beside `policy`; expected a single way to place ops"
    request = CompileRequest(policy=GreedyByOrder())
    with pytest.raises(OptionsError, match="is given beside `policy`"):
        request.updated(placement=lock)


@pytest.mark.usefixtures("no_warnings")
def test_a_build_measures_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_arguments: object, **_named: object) -> None:
        raise AssertionError("a measurement")

    for module, name in (("search", "race"), ("search", "challenge"), ("bench", "profile")):
        monkeypatch.setattr(importlib.import_module(f"byoc_core.tuning.{module}"), name, forbidden)
    backend = SleepyBackend("aone", dict.fromkeys(OPS, 1.0))
    Lock(["aone"], dict.fromkeys(("main/a", "main/b", "main/c"), "aone")).save(path)
    built = byoc_core.build(MODULE, [backend], placement=path)
    assert outcomes(built) == dict.fromkeys("abc", "aone")
    assert backend.calls == []
    with pytest.raises(AssertionError, match="a measurement"):
        byoc_core.tune(MODULE, [backend])


def check_results(executable: byoc_core.Executable) -> None:
    (expected,) = evaluate_function(MODULE, "main", [X])
    np.testing.assert_array_equal(call(executable), expected)


POISON = st.sampled_from(["aone", "btwo", "host", "", "(view)", "vm", "aone\x00", "nonsense"]) | TEXTS
KEYS = st.sampled_from(["main/a", "main/b", "main/c", "main/x", "main/", "main", "other/a"]) | TEXTS


@settings(max_examples=max(settings().max_examples // 2, 1), deadline=None)
@given(ops=st.dictionaries(KEYS, POISON, max_size=6), order=st.permutations(["aone", "btwo"]))
def test_poisoned_locks_change_places_and_no_results(ops: dict[str, str], order: list[str]) -> None:
    compiler = Compiler(Installed(*toys()))
    built = compiler.build(MODULE, CompileRequest(placement=Lock(order, ops)))
    able = {"aone": "abc", "btwo": "b"}
    for name, outcome in outcomes(built).items():
        place = ops.get(f"main/{name}")
        if place is None:
            assert outcome == next(backend for backend in order if name in able[backend])
        else:
            assert outcome == (place if name in able.get(place, "") else "host")
    check_results(built)


def test_read_placement_returns_the_lock(path: Path) -> None:
    lock = replace(Lock.from_data(GOOD), machine=machine_facts(), versions={})
    lock.save(path)
    registry = Installed(*toys())
    assert read_placement(path, registry) == lock
    assert read_placement(lock, registry) is lock
