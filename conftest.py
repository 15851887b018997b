"""Settings of all tests: profiles of hypothesis, the folder of compiled libraries, a single thread for BLAS libraries.

Hypothesis has no deadlines, because machines are shared; in CI the examples are the same each time. With
``BYOC_EXAMPLES=thorough`` (``nox -s thorough``) each property has forty times as many examples, except in tests with a
separate number; a costly property uses a part of ``settings().max_examples``. With ``BYOC_EXAMPLES=mutation`` the
examples are fewer, and counterexamples are not shrunk: mutation testing needs only their existence.

The threads of a BLAS spin between products. Beside other test processes the spinning costs several times the
processor time of the tests. ``nox -s pythons`` runs with threads of numpy's BLAS.

OpenCL drivers compile kernels without optimisation, except in ``nox -s thorough``: PoCL optimises for longer than the
kernels run.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings

IS_THOROUGH = os.environ.get("BYOC_EXAMPLES") == "thorough"
for _variable in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"):
    os.environ.setdefault(_variable, "1")  # read when numpy is imported: no plugin of pytest imports numpy
if not IS_THOROUGH:
    os.environ.setdefault("PYOPENCL_BUILD_OPTIONS", "-cl-opt-disable")  # read at each build of a program

settings.register_profile(
    "local", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True, max_examples=25
)
settings.register_profile("ci", settings.get_profile("local"), derandomize=True)
settings.register_profile("thorough", settings.get_profile("local"), max_examples=1000)
settings.register_profile(
    "mutation", settings.get_profile("ci"), phases=[Phase.explicit, Phase.generate], max_examples=40
)
settings.load_profile(os.environ.get("BYOC_EXAMPLES") or ("ci" if os.environ.get("CI") else "local"))


@pytest.fixture(autouse=True, scope="session")
def build_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Set the folder of libraries: ``$BYOC_CACHE_DIR``, else a folder of this run shared by all workers.

    The user's measured ops do not count.
    """
    own = tmp_path_factory.getbasetemp()
    shared = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BYOC_CACHE_DIR", os.environ.get("BYOC_CACHE_DIR") or str(shared / "build-cache"))
        patch.setenv("BYOC_MEASUREMENTS", "0")  # tests of the database of measured ops set their own
        yield


@pytest.fixture
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Set a new folder as the user's cache, and return the folder: no artifact is trusted there.

    The libraries in the cache are those of all tests: a test of cold builds sets a cache of its own.
    """
    folder = tmp_path_factory.mktemp("cache")
    libraries = Path(os.environ["BYOC_CACHE_DIR"]) / "build"
    libraries.mkdir(mode=0o700, parents=True, exist_ok=True)
    (folder / "build").symlink_to(libraries)
    monkeypatch.setenv("BYOC_CACHE_DIR", str(folder))
    return folder


def pytest_collection_finish(session: pytest.Session) -> None:
    """Take the collected tests and imported modules out of garbage collection: each full collection walked over all.

    A collection takes half a second for the tests of core, and a quarter of the time of all tests without this.
    """
    _freeze_objects()
    gc.set_threshold(10_000, 20, 50)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, object, object]:
    """After the last test of a file, take the objects alive out of garbage collection.

    Caches of byoc and hypothesis, and reports of pytest, grow to millions of objects during the tests of core. Then
    each explicit collection of a later test takes half a second.
    """
    try:
        return (yield)
    finally:
        if nextitem is None or nextitem.path != item.path:
            _freeze_objects()


def _freeze_objects() -> None:
    gc.collect()
    gc.freeze()


_test_times = pytest.StashKey[dict[str, float]]()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """In nox, measure the processor time of each test, with its fixtures and processes."""
    if not os.environ.get("BYOC_TIMES"):
        return (yield)
    from processor_times import spent

    start = spent()
    try:
        return (yield)
    finally:
        times = item.session.stash.setdefault(_test_times, {})
        times[item.nodeid] = times.get(item.nodeid, 0.0) + spent() - start


def pytest_sessionfinish(session: pytest.Session) -> None:
    """In nox, leave the records of skipped tests and of processor time."""
    _write_times(session)
    _write_skips(session)


def _write_times(session: pytest.Session) -> None:
    """Record the times of the tests of this process."""
    times = session.stash.get(_test_times, {})
    if times:
        from processor_times import FOLDER, TestTime, write_times

        name = os.environ.get("NOX_CURRENT_SESSION", "pytest")
        write_times(Path(os.environ[FOLDER]), "tests", [TestTime(name, *row) for row in times.items()])


def _write_skips(session: pytest.Session) -> None:
    """Record the reasons of skipped tests; fail if a reason has no rule, or if nothing is missing."""
    folder = os.environ.get("BYOC_SKIPS")
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if not folder or reporter is None or hasattr(session.config, "workerinput"):
        return
    import skipped_tests

    found = [report.longrepr for report in reporter.stats.get("skipped", []) if isinstance(report.longrepr, tuple)]
    reasons = [str(text).removeprefix("Skipped: ") for _, _, text in found]
    skipped_tests.write_counts(Path(folder), os.environ.get("NOX_CURRENT_SESSION", "pytest"), reasons)
    faults = skipped_tests.find_faults(reasons)
    for fault in faults:
        reporter.write_line(fault, red=True)
    if faults and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
