"""The number of threads: of the process, by the environment; of a call; and the threads left to other calls."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import byoc_core
import pytest
from byoc_core.errors import OptionsError
from byoc_core.native import processors as cpus
from byoc_core.runtime.threads import check_num_threads, default_num_threads
from byoc_core.runtime.threads.worker_accounts import NativeAccounts, ThreadAccounts, WorkerAccounts

from core.tests.fresh_process import answer_of

pytestmark = pytest.mark.interpreter


def extension() -> ModuleType | None:
    try:
        from byoc_core import _native
    except ImportError:
        return None
    return _native if hasattr(_native, "threads_enter") else None


def native_accounts() -> ThreadAccounts:
    found = extension()
    assert found is not None
    found.threads_reset_after_fork(False)
    return NativeAccounts(found)


MAKERS = [
    WorkerAccounts,
    pytest.param(native_accounts, marks=pytest.mark.skipif(extension() is None, reason="the extension is not built")),
]


@pytest.fixture(params=MAKERS)
def accounts(request: pytest.FixtureRequest) -> ThreadAccounts:
    made: ThreadAccounts = request.param()
    made.set_limit(4)
    return made


def run_in_thread(work: Callable[[], object]) -> Any:
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.append(work()))
    thread.start()
    thread.join(60)
    (result,) = found
    return result


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"BYOC_NUM_THREADS": "3"}, 3),
        ({"BYOC_NUM_THREADS": " 3 ", "OMP_NUM_THREADS": "5"}, 3),
        ({"OMP_NUM_THREADS": "5"}, 5),
        ({"OMP_NUM_THREADS": " 5 , 2"}, 5),
        ({"OMP_NUM_THREADS": "5000"}, 1024),
        ({"OMP_NUM_THREADS": "0"}, None),
        ({"OMP_NUM_THREADS": "5,"}, None),
        ({"OMP_NUM_THREADS": "many"}, None),
        ({"OMP_NUM_THREADS": ""}, None),
        ({"BYOC_NUM_THREADS": "", "OMP_NUM_THREADS": "5"}, 5),
        ({}, None),
    ],
)
def test_the_number_of_a_process_is_the_environments_else_that_of_the_processors(
    environment: dict[str, str], expected: int | None
) -> None:
    assert default_num_threads(environment) == (expected or cpus.count_cpus())
    script = "from byoc_core.runtime import threads; print(threads.num_threads())"
    assert answer_of(script, environment=environment) == (expected or cpus.count_cpus())


@pytest.mark.parametrize("value", ["0", "-1", "two", "1025", "1.5", "²"])
def test_a_wrong_number_in_the_environment_is_an_error_that_names_the_variable(value: str) -> None:
    with pytest.raises(OptionsError) as caught:
        default_num_threads({"BYOC_NUM_THREADS": value})
    got = value if value in ("0", "1025") else repr(value)
    assert str(caught.value) == f"$BYOC_NUM_THREADS: value not permitted; got {got}, expected 1 to 1024"


@pytest.mark.parametrize("value", [0, -2, 1025, True, 2.0, "2"])
def test_a_wrong_number_is_an_error(value: object) -> None:
    message = f"option `num_threads`: value not permitted; got {value!r}, expected 1 to 1024"
    with pytest.raises(OptionsError) as caught:
        check_num_threads(value)
    assert str(caught.value) == message
    executable = byoc_core.build(byoc_core.parse(IDENTITY), [])
    number: Any = value
    with pytest.raises(OptionsError) as caught:
        byoc_core.VirtualMachine(executable, num_threads=number)
    assert str(caught.value) == message


def write_group(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)


def test_control_groups_of_both_versions_limit_the_processors(tmp_path: Path) -> None:
    write_group(tmp_path / "a" / "b", cpu__max="max 100000\n")
    write_group(tmp_path / "a", cpu__max="250000 100000\n")
    write_group(tmp_path / "cpu,cpuacct", cpu__cfs_quota_us="-1\n", cpu__cfs_period_us="100000\n")
    write_group(tmp_path / "cpu,cpuacct" / "c", cpu__cfs_quota_us="50000\n", cpu__cfs_period_us="100000\n")
    listing = tmp_path / "listing"
    listing.write_text("9:memory:/m\n2:cpu,cpuacct:/c\n0::/a/b\n")
    quotas = [cpus._quota(group) for group in cpus._control_groups(listing, tmp_path)]
    assert quotas == [0.5, None, None, 2.5, None]
    assert cpus._control_groups(tmp_path / "absent", tmp_path) == []


@pytest.mark.parametrize(("quota", "expected"), [("50000 100000", 1), ("max 100000", None), ("1000000 100000", None)])
def test_a_quota_that_pays_for_less_counts(
    quota: str, expected: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cpu.max").write_text(quota)
    monkeypatch.setattr(cpus, "_control_groups", lambda: [tmp_path])
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 3}, raising=False)
    assert cpus.count_cpus() == (expected or 4)


def test_a_call_has_the_number_of_the_process_or_its_own(accounts: ThreadAccounts) -> None:
    assert accounts.number() == 0
    for wanted, expected in ((0, 4), (2, 2), (1, 1), (7, 7)):
        token = accounts.enter(wanted)
        assert accounts.number() == expected
        assert run_in_thread(accounts.number) == 0
        accounts.leave(token)
    assert accounts.number() == 0


def test_a_call_inside_another_has_at_most_its_number_and_takes_nobody(accounts: ThreadAccounts) -> None:
    outer = accounts.enter(3)
    for wanted, expected in ((0, 3), (2, 2), (7, 3)):
        inner = accounts.enter(wanted)
        assert accounts.number() == expected
        accounts.leave(inner)
        assert accounts.number() == 3
    accounts.leave(outer)
    token = accounts.enter(0)
    assert accounts.number() == 4
    accounts.leave(token)


def test_an_orphan_has_one_thread_whatever_is_wanted(accounts: ThreadAccounts) -> None:
    outer = accounts.enter(3)
    accounts.reset_after_fork(True)
    inner = accounts.enter(0)
    assert accounts.number() == 1
    accounts.leave(inner)
    accounts.leave(outer)
    assert [number_of_a_call(accounts, wanted) for wanted in (0, 1, 7)] == [1, 1, 1]
    accounts.reset_after_fork(False)
    assert number_of_a_call(accounts, 0) == 4


def test_a_child_forked_in_a_call_inside_a_call_counts_the_workers_of_both(accounts: ThreadAccounts) -> None:
    outer = accounts.enter(4)
    inner = accounts.enter(2)
    accounts.reset_after_fork(False)
    assert run_in_thread(lambda: number_of_a_call(accounts, 2)) == 1
    accounts.leave(inner)
    accounts.leave(outer)
    # A number beside which there are not enough of the process's: only a call that is alone gets its workers.
    assert [run_in_thread(lambda: number_of_a_call(accounts, 7)) for _ in range(2)] == [7, 7]


FORK_IN_CRITICAL_SECTION = """
import os, signal, threading, warnings
from byoc_core.runtime.threads.worker_accounts import WorkerAccounts

warnings.simplefilter("ignore")
accounts = WorkerAccounts()
accounts.set_limit(4)
ready, leave = threading.Event(), threading.Event()


def call():
    accounts.leave(accounts.enter(0))
    with accounts._lock:
        ready.set()
        leave.wait(60)


caller = threading.Thread(target=call)
caller.start()
ready.wait(60)
child = os.fork()
if child == 0:
    signal.alarm(20)
    accounts.reset_after_fork(False)
    token = accounts.enter(0)
    os._exit(accounts.number())
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
leave.set()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a system without fork")
def test_a_child_may_be_forked_while_another_thread_keeps_accounts() -> None:
    assert answer_of(FORK_IN_CRITICAL_SECTION) == 4


def number_of_a_call(accounts: ThreadAccounts, wanted: int) -> int:
    token = accounts.enter(wanted)
    number = accounts.number()
    accounts.leave(token)
    return number


@pytest.mark.parametrize(
    ("first", "wanted", "expected"),
    [(0, 0, 1), (2, 2, 2), (2, 3, 3), (2, 4, 1), (3, 3, 1), (7, 2, 1), (1, 0, 4), (1, 7, 7)],
)
def test_a_call_beside_another_gets_all_its_workers_or_none(
    accounts: ThreadAccounts, first: int, wanted: int, expected: int
) -> None:
    token = accounts.enter(first)
    assert run_in_thread(lambda: number_of_a_call(accounts, wanted)) == expected
    accounts.leave(token)
    assert run_in_thread(lambda: number_of_a_call(accounts, wanted)) == (wanted or 4)


def test_many_callers_never_have_more_workers_than_there_are(accounts: ThreadAccounts) -> None:
    lock = threading.Lock()
    busy, most, shared = 0, 0, 0

    def call() -> None:
        nonlocal busy, most, shared
        for _ in range(300):
            token = accounts.enter(2)
            workers = accounts.number() - 1
            with lock:  # counted while they surely are in use
                busy += workers
                most = max(most, busy)
                shared += workers
            with lock:
                busy -= workers
            accounts.leave(token)

    callers = [threading.Thread(target=call) for _ in range(8)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(60)
    assert 1 <= most <= 3
    assert shared >= 300
    assert number_of_a_call(accounts, 0) == 4


IDENTITY = """
@R.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        y = R.call_packed("look", (x,), out_types=[R.Tensor((4,), "float32")])
        return y
"""


def test_a_call_of_a_machine_tells_its_number_and_leaves_no_trace() -> None:
    script = f"""
import json, threading
import numpy as np
import byoc_core
from byoc_core.runtime import threads

seen = []


def look(x):
    seen.append(threads.num_threads())
    return x


def nest(x):
    seen.append(threads.num_threads())
    result = inner["main"](x)
    seen.append(threads.num_threads())
    return result


executable = byoc_core.build(byoc_core.parse({IDENTITY!r}), [])
inner = byoc_core.VirtualMachine(executable, externs={{"look": look}}, num_threads=2)
outer = byoc_core.VirtualMachine(executable, externs={{"look": nest}}, num_threads=3)
plain = byoc_core.VirtualMachine(executable, externs={{"look": nest}})
x = np.ones(4, "float32")
outer["main"](x)
seen.append(threads.num_threads())
plain.run("main", {{"x": x}})
threads.set_num_threads(6)
plain.run("main", {{"x": x}}, out={{"y": np.empty(4, "float32")}})
seen.append(threads.num_threads())


def fail(x):
    raise ValueError("no")


try:
    byoc_core.VirtualMachine(executable, externs={{"look": fail}}, num_threads=3)["main"](x)
except byoc_core.ByocError:
    seen.append(threads.num_threads())
print(json.dumps(seen))
"""
    for switch in ("0", "1"):
        found = answer_of(script, environment={"BYOC_NUM_THREADS": "5", "BYOC_NATIVE": switch})
        assert found == [3, 2, 3, 5, 5, 2, 5, 6, 2, 6, 6, 6]


def test_a_call_begun_by_python_before_all_machines_has_the_keeper_of_machines() -> None:
    """A build for a number of threads begins a call before the first machine: both have to know the library."""
    script = f"""
import json
import numpy as np
import byoc_core
from byoc_core.runtime import threads

threads.leave_call(threads.enter_call(1))
openmp, seen = threads.use_openmp(), []


def look(x):
    seen.append(openmp.max_threads() if openmp else threads.num_threads())
    return x


executable = byoc_core.build(byoc_core.parse({IDENTITY!r}), [])
machine = byoc_core.VirtualMachine(executable, externs={{"look": look}}, num_threads=3)
machine["main"](np.ones(4, "float32"))
print(json.dumps([seen, threads.team_runner() != 0]))
"""
    for switch in ("0", "1"):
        has_extension = switch == "1" and extension() is not None
        environment = {"BYOC_NUM_THREADS": "5", "BYOC_NATIVE": switch}
        assert answer_of(script, environment=environment) == [[3], has_extension]
