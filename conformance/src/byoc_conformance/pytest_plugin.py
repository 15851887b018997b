"""The kit under pytest: ``pytest --pyargs byoc_conformance --byoc-backend=mynpu``, and classes of ``BackendSuite``.

pytest imports this module in every run of every project if the kit is installed. Therefore the module imports
nothing of the kit before a test of the kit is collected or reported, or an option of the kit is given.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from byoc_conformance.pytest_reports import RunReports

__all__ = ["pytest_addoption", "pytest_collect_file", "pytest_configure", "pytest_pycollect_makeitem"]

_SUITE_FILE = Path(__file__).with_name("suite.py")
"""The file standing for the kit's tests in `--pyargs byoc_conformance`."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options; all begin with ``--byoc-``."""
    group = parser.getgroup("byoc", "conformance of byoc backends")
    add = group.addoption
    add("--byoc-backend", metavar="NAME", help="the installed backend tested by `--pyargs byoc_conformance`")
    add("--byoc-option", action="append", default=[], metavar="KEY=VALUE", help="an option of the backend, as JSON or "
        "text; NAME.KEY=VALUE for a companion; repeat for several")  # fmt: skip
    add("--byoc-with", action="append", default=[], metavar="NAME", help="a backend asked after the tested backend in "
        "every build; repeat for several")  # fmt: skip
    add("--byoc-xfail", metavar="FILE", help="a TOML file with a table `xfail`: tests expected to be broken, with "
        "reasons")  # fmt: skip
    add("--byoc-level", action="append", default=[], metavar="LEVEL", help="run the tests of this level only: L0 to "
        "L4; repeat for several")  # fmt: skip
    add("--byoc-examples", type=int, metavar="N", help="random examples for each property")
    add("--byoc-seed", type=int, metavar="N", help="seed of all random numbers")
    add("--byoc-patience", type=float, metavar="FACTOR", help="make all deadlines longer by this factor")
    add("--byoc-report", metavar="DIR", help="write conformance.json, .html, .md and badges into this folder")


def pytest_configure(config: pytest.Config) -> None:
    """Check the options, and register the gatherer of reports in the process receiving the results of all tests."""
    packages = {argument.partition("::")[0] for argument in config.args if config.option.pyargs}
    if "byoc_conformance" in packages or config.option.byoc_backend:
        _check_usage(config)
    if config.option.byoc_report:
        from byoc_conformance.report.writing import prepare_folder

        try:
            prepare_folder(Path(config.option.byoc_report))
        except OSError as error:
            raise pytest.UsageError(f"--byoc-report: {error}") from error
    if not hasattr(config, "workerinput"):  # pytest-xdist: workers send their results to the parent process
        config.pluginmanager.register(_Gatherer(config), "byoc-conformance-reports")


def _check_usage(config: pytest.Config) -> None:
    if not config.option.byoc_backend:
        raise pytest.UsageError("--pyargs byoc_conformance: name the backend to test: --byoc-backend=NAME")
    from byoc_core.errors import ByocError

    from byoc_conformance.pytest_kit import new_kit_of_options

    try:
        new_kit_of_options(config)
    except (ByocError, OSError) as error:
        raise pytest.UsageError(str(error)) from error


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Return the kit's tests for ``--pyargs byoc_conformance``."""
    if file_path.name != _SUITE_FILE.name or file_path != _SUITE_FILE or not parent.config.option.byoc_backend:
        return None
    from byoc_conformance.pytest_kit import KitFile

    file: pytest.Collector = KitFile.from_parent(parent, path=file_path)
    return file


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(
    collector: pytest.Module | pytest.Class, name: str, obj: object
) -> list[pytest.Collector] | None:
    """Return the kit's tests for a subclass of ``BackendSuite``."""
    suite = sys.modules.get("byoc_conformance.suite")
    if suite is None or not isinstance(obj, type) or not issubclass(obj, suite.BackendSuite):
        return None
    if obj is suite.BackendSuite or not collector.istestclass(obj, name):
        return []
    from byoc_conformance.pytest_kit import KitClass

    return [KitClass.from_parent(collector, name=name, obj=obj)] if getattr(obj, "backend", "") else []


class _Gatherer:
    """A hook passing records of kit tests to :class:`byoc_conformance.pytest_reports.RunReports`, if there are any."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._started = datetime.now(UTC)
        self._reports: RunReports | None = None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note the result of a test of the kit."""
        record = getattr(report, "byoc_conformance", None)
        if record is None:
            return
        if self._reports is None:
            from byoc_conformance.pytest_reports import RunReports

            self._reports = RunReports(self._started, self._config.option.byoc_report)
        self._reports.add(record)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the reports; after Ctrl-C too. The run has failed if a report cannot be written."""
        if self._reports is not None and not self._reports.finish() and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the level reached by each backend."""
        if self._reports is not None:
            terminalreporter.section("byoc conformance")
            for line in self._reports.summary:
                terminalreporter.line(line)
        elif self._config.option.byoc_report:
            terminalreporter.section("byoc conformance")
            terminalreporter.line("no test of the kit ran, and no report is written")
