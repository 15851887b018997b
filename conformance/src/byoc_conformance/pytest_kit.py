"""The kit's tests as items of pytest, and a guard test against removal of tests from the suite.

A test of the kit runs in a worker process of a ``Runner``, not in pytest's own. The guard fails if another plugin
removes tests, if a mark hides a test, or if a method of the class has the name of a kit test. Tests left out by an
option of the command line do not count.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from byoc_core.errors import ByocError, near_names

from byoc_conformance.choices import parse_levels, parse_options
from byoc_conformance.environment import check_installed
from byoc_conformance.overrides import Overrides, read_overrides
from byoc_conformance.promise import Item, Level
from byoc_conformance.promises import all_items
from byoc_conformance.pytest_reports import RECORD, new_record
from byoc_conformance.report.tables import list_names
from byoc_conformance.runner import Runner, check_patience, new_fork_server
from byoc_conformance.subject import SubjectSpec
from byoc_conformance.suite import GUARD, BackendSuite
from byoc_conformance.verdict import Judgement, Verdict, judge

__all__ = ["Kit", "KitClass", "KitFile", "new_kit_of_options"]

_SETTINGS = tuple(name for name in vars(BackendSuite) if not name.startswith("_"))
_LIKE_KIT_TEST = re.compile(r"test_?L\d", re.IGNORECASE)


class Kit:
    """The tests for a backend, with the chosen settings.

    Args:
        spec: the backend under test.
        reasons: reasons for tests expected to be broken.
        patience: the factor on all deadlines.
        levels: the levels to run.
        where: the source of the reasons, for errors.

    Raises:
        OptionsError: a reason is invalid, or names no test; the patience is invalid.
        PluginError: the backend is not installed, or may not be used.
    """

    def __init__(
        self,
        spec: SubjectSpec,
        reasons: Mapping[str, str],
        patience: float,
        levels: tuple[Level, ...],
        where: str,
    ) -> None:
        check_installed(spec)
        check_patience(patience)
        self.spec = spec
        self.patience = patience
        self.overrides = Overrides(reasons, [item.id for item in all_items()], where=where)
        self.items = tuple(item for item in all_items() if item.promise.level in levels)
        self.changes: tuple[str, ...] = ()

    def collect(self, collector: pytest.Collector) -> Iterator[pytest.Item]:
        """Yield the tests, the guard before the others."""
        hooks = _hooks_of(collector.config)
        yield _Guard.from_parent(collector, name=GUARD, kit=self, hooks=hooks)
        for item in self.items:
            yield _KitItem.from_parent(collector, name=item.id, kit=self, hooks=hooks, item=item)


def new_kit_of_options(config: pytest.Config) -> Kit:
    """Return the kit for ``--byoc-backend`` and the related options.

    Raises:
        OptionsError: an option is malformed.
        PluginError: the backend is not installed, or may not be used.
        OSError: the file of overrides cannot be read.
    """
    options_of_pytest = config.option
    options, of_companions = parse_options(options_of_pytest.byoc_option, options_of_pytest.byoc_with, "--byoc-option")
    spec = SubjectSpec(options_of_pytest.byoc_backend, options, tuple(options_of_pytest.byoc_with), of_companions)
    reasons = read_overrides(Path(options_of_pytest.byoc_xfail)) if options_of_pytest.byoc_xfail else {}
    return _new_kit(config, spec, reasons, BackendSuite.patience, options_of_pytest.byoc_xfail or "xfail")


def _new_kit_of_class(config: pytest.Config, suite: type[BackendSuite]) -> Kit:
    for name in dir(suite):
        hint = near_names(name, _SETTINGS) if not name.startswith(("_", "test")) and name not in _SETTINGS else ""
        if hint and not callable(getattr(suite, name)):
            raise pytest.Collector.CollectError(f"{suite.__name__}.{name}: is no setting of `BackendSuite`. {hint}")
    spec = SubjectSpec(
        suite.backend,
        suite.options,
        suite.companions,
        suite.companion_options,
        examples=suite.examples,
        seed=suite.seed,
    )
    return _new_kit(config, spec, suite.xfail, suite.patience, f"{suite.__name__}.xfail")


def _new_kit(config: pytest.Config, spec: SubjectSpec, reasons: Mapping[str, str], patience: float, where: str) -> Kit:
    """Return the kit with the examples, seed, patience and levels of the command line."""
    options = config.option
    values = spec.to_json()
    values |= {
        name: value
        for name, value in {"examples": options.byoc_examples, "seed": options.byoc_seed}.items()
        if value is not None
    }
    patience = patience if options.byoc_patience is None else options.byoc_patience
    levels = parse_levels(options.byoc_level, "--byoc-level")
    return Kit(SubjectSpec.from_json(values), reasons, patience, levels, where)


class KitFile(pytest.File):
    """The kit for the backend named by the command line."""

    def collect(self) -> Iterator[pytest.Item]:
        """Yield the tests of the kit."""
        yield from new_kit_of_options(self.config).collect(self)


class KitClass(pytest.Class):
    """A subclass of ``BackendSuite``: the kit's tests, and the tests added by the class."""

    def collect(self) -> Iterator[pytest.Item | pytest.Collector]:
        """Yield the tests of the class."""
        try:
            kit = _new_kit_of_class(self.config, self.obj)
        except ByocError as error:
            raise self.CollectError(str(error)) from error
        kit.changes = tuple(_find_replacements(self.obj))
        yield from kit.collect(self)
        yield from super().collect()


def _find_replacements(suite: type[BackendSuite]) -> Iterator[str]:
    for base in suite.__mro__[: suite.__mro__.index(BackendSuite)]:
        for name in vars(base):
            if _LIKE_KIT_TEST.match(name):
                yield f"`{base.__name__}.{name}` has the name of a test of the kit, and cannot replace a test"


class _RedError(Exception):
    """A test of the kit is red; only the text is to be shown."""


class _KitNode(pytest.Item):
    """A test with failures reported by text alone, unaffected by ``xfail`` marks."""

    def __init__(self, *, kit: Kit, hooks: _Hooks, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.kit = kit
        self.hooks = hooks
        self.record: dict[str, Any] | None = None

    def iter_markers_with_node(
        self, name: str | None = None
    ) -> Iterator[tuple[pytest.Item | pytest.Collector | Any, pytest.Mark]]:
        """Yield all marks except ``xfail``: this mark would hide a failure without a reason in the report."""
        yield from (pair for pair in super().iter_markers_with_node(name) if pair[1].name != "xfail")

    def hidden_marks(self) -> list[str]:
        """Return the names of nodes with a mark ``xfail``, and of this node if a mark skips this node alone."""
        nodes = [node.name for node, _ in super().iter_markers_with_node("xfail")]
        is_skipped = any(mark.name in {"skip", "skipif"} for mark in self.own_markers)
        return [*nodes, *([self.name] if is_skipped else [])]

    def note(self, judgement: Judgement | None) -> None:
        """Keep the judgement of this test for the report."""
        assert self.parent is not None
        self.record = new_record(self.parent.nodeid, self.kit.spec, self.kit.changes, judgement)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Return the text of a red test without a traceback into the kit's own lines."""
        if isinstance(excinfo.value, _RedError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        """Return the location and the name of the test; pytest needs a line if a mark skips the test."""
        return self.path, 0, self.name


class _Guard(_KitNode):
    """A test failing if the suite differs from the kit."""

    def runtest(self) -> None:
        self.note(None)
        if self.kit.changes:
            raise _RedError("\n".join(self.kit.changes))


class _KitItem(_KitNode):
    """A test of the kit."""

    def __init__(self, *, item: Item, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.item = item

    def runtest(self) -> None:
        judgement = judge(self.hooks.runner_for(self).run(self.item), self.kit.overrides.reason(self.item.id))
        self.note(judgement)
        text = f"{judgement.verdict}: {judgement.text}" if judgement.text else judgement.verdict.value
        if judgement.verdict.is_red:
            raise _RedError(f"{self.item.id} {self.item.promise.text}.\n{text}")
        if judgement.verdict is Verdict.XFAILED:
            raise pytest.xfail.Exception(judgement.reason)
        if judgement.verdict is not Verdict.PASSED:
            raise pytest.skip.Exception(f"{self.item.id}: {text}")


class _Hooks:
    """The runner of tests in a pytest process; registered as a plugin when a test of the kit is collected."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._fork_server = new_fork_server()
        self._runner: Runner | None = None
        self._kit: Kit | None = None
        self._level: Level | None = None

    def runner_for(self, node: _KitItem) -> Runner:
        """Return the runner of a test. Processes of another suite or level are ended first, to free memory."""
        if self._runner is None or self._kit is not node.kit:
            self._close_runner()
            self._kit = node.kit
            runner = Runner(node.kit.spec, patience=node.kit.patience, fork_server=self._fork_server)
            self._runner = runner.__enter__()
        if self._level is not node.item.promise.level:
            self._runner.stop()
        self._level = node.item.promise.level
        return self._runner

    def _close_runner(self) -> None:
        if self._runner is not None:
            self._runner.__exit__(None, None, None)
        self._runner = None

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> Generator[None]:
        """Compare the tests left after all other plugins with the whole kit."""
        collected = [node for node in items if isinstance(node, _KitNode)]
        yield
        remaining = set(items)
        for kit in dict.fromkeys(node.kit for node in collected):
            mine = [node for node in collected if node.kit is kit]
            missing = [node for node in mine if node not in remaining]
            if missing and not self._is_chosen_by_user:
                names = list_names([node.name for node in missing])
                kit.changes += (f"removed without an option of the command line: {names}",)
                items.extend(node for node in missing if isinstance(node, _Guard))
            hidden = list(dict.fromkeys(name for node in mine for name in node.hidden_marks()))
            if hidden:
                kit.changes += (f"marked `xfail`, or skipped alone, without an override: {list_names(hidden)}",)

    @property
    def _is_chosen_by_user(self) -> bool:
        option = self._config.option
        names = ("keyword", "markexpr", "deselect", "lf", "stepwise")
        return any(getattr(option, name, None) for name in names)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Attach the record of a kit test to pytest's report of the test, in any process."""
        report = yield
        if isinstance(item, _KitNode) and report.when == "call" and item.record is not None:
            report.__dict__[RECORD] = item.record
        return report

    def pytest_sessionfinish(self) -> None:
        """End all processes."""
        self._close_runner()
        self._fork_server.close()


def _hooks_of(config: pytest.Config) -> _Hooks:
    name = "byoc-conformance-kit"
    hooks = config.pluginmanager.get_plugin(name)
    if not isinstance(hooks, _Hooks):
        hooks = _Hooks(config)
        config.pluginmanager.register(hooks, name)
    return hooks
