"""What all tests share: how hypothesis runs, and where what they compile is kept.

Hypothesis has no deadlines, since machines are shared; in CI it draws the same examples each time. With
``BYOC_EXAMPLES=thorough`` (``nox -s thorough``) it draws twenty times as many, unless a test says a number of its own;
a costly property takes a part of ``settings().max_examples``. With ``BYOC_EXAMPLES=mutation`` there are fewer, and a
counterexample is not made smaller: mutation testing asks only whether there is one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings

settings.register_profile(
    "local", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True, max_examples=50
)
settings.register_profile("ci", settings.get_profile("local"), derandomize=True)
settings.register_profile("thorough", settings.get_profile("local"), max_examples=1000)
settings.register_profile(
    "mutation", settings.get_profile("ci"), phases=[Phase.explicit, Phase.generate], max_examples=40
)
settings.load_profile(os.environ.get("BYOC_EXAMPLES") or ("ci" if os.environ.get("CI") else "local"))


@pytest.fixture(autouse=True, scope="session")
def build_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Libraries go into ``$BYOC_CACHE_DIR``, else into a folder of this run that its workers share; not the user's."""
    own = tmp_path_factory.getbasetemp()
    shared = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BYOC_CACHE_DIR", os.environ.get("BYOC_CACHE_DIR") or str(shared / "build-cache"))
        yield


def pytest_sessionfinish(session: pytest.Session) -> None:
    """In nox, write down why tests were skipped; fail where a skip has no kind, or what it lacked is there."""
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
