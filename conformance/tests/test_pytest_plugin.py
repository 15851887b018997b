"""The kit under pytest, run as by an author: in a separate process, with a completely wrong backend."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from byoc_conformance.promises import all_items

from conformance.tests.toys import CRASHES, DECLINES, FAILS, HANGS, install_toy

pytestmark = pytest.mark.lowest

pytest_plugins = ["pytester"]

FOUR = f"{CRASHES} or {HANGS} or {FAILS} or {DECLINES}"
Run = Callable[..., pytest.RunResult]


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Run pytest in an empty folder, with warnings as errors, and the backend ``toy`` installed."""
    monkeypatch.setenv("PYTHONPATH", install_toy(tmp_path / "toy"))
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: str) -> pytest.RunResult:
        return pytester.runpytest_subprocess("-W", "error", "-p", "no:cacheprovider", *arguments, timeout=120)

    return run


def read(folder: Path) -> Any:
    """Return the data of a report, after a check for all files."""
    names = ["badge.json", "badge.svg", "conformance.html", "conformance.json", "conformance.md"]
    assert sorted(path.name for path in folder.iterdir()) == names
    return json.loads((folder / "conformance.json").read_text())


def statuses(report: Mapping[str, Any]) -> dict[str, str]:
    """Return the tests run, by id."""
    return {item["id"]: item["status"] for item in report["items"] if item["status"] != "not-run"}


@pytest.mark.parametrize("workers", [[], ["-n", "2"]])
def test_a_run_by_name_with_a_report(run: Run, pytester: pytest.Pytester, workers: list[str]) -> None:
    kit = ["--pyargs", "byoc_conformance", "--byoc-backend=toy", "--byoc-option", "a=[1]", "--byoc-patience", "0.02"]
    done = run(*kit, "-k", FOUR, "--byoc-report", "out", "--byoc-examples", "7", "--byoc-seed", "5", "-rfs", *workers)
    done.assert_outcomes(failed=3, skipped=1)
    assert done.ret == 1
    text = done.stdout.str()
    assert f"while `{CRASHES}` ran: the process ended with signal SIGABRT\nthe driver is gone\n" in text
    assert f"{HANGS} compiles every claimed canonical case of an op.\nhung: while" in text
    assert "LookupError: <no> sine" in text
    assert f"{DECLINES}: declined: op: no cos" in text
    assert "_KitItem" not in text
    left_out = len(all_items()) - 4
    line = f"toy: partial 0/3, {left_out} not run (1 declined, {left_out} not run, 1 failed, 1 crashed, 1 hung)"
    assert line in text.splitlines()
    report = read(pytester.path / "out")
    assert statuses(report) == {CRASHES: "crashed", HANGS: "hung", FAILS: "failed", DECLINES: "declined"}
    assert report["settings"] | {"companion_options": {}} == {
        "backend": "toy",
        "options": {"a": [1]},
        "companions": [],
        "companion_options": {},
        "examples": 7,
        "seed": 5,
    }
    assert [plugin["version"] for plugin in report["environment"]["plugins"]] == ["2.0"]
    assert [report["is_complete"], report["is_red"], report["level_reached"]] == [False, True, None]


def test_levels_and_a_file_of_overrides(run: Run, pytester: pytest.Pytester) -> None:
    pytester.path.joinpath("known.toml").write_text(f'[xfail]\n"{FAILS}" = "it has no table of sines"\n')
    kit = ["--pyargs", "byoc_conformance", "--byoc-backend=toy", "--byoc-xfail", "known.toml"]
    done = run(*kit, "--byoc-level", "L1", "-k", f"{FAILS} or {DECLINES}", "--byoc-report", "out")
    done.assert_outcomes(xfailed=1, skipped=1)
    items = {item["id"]: item for item in read(pytester.path / "out")["items"]}
    assert items[FAILS]["xfail"] == "it has no table of sines"
    assert items[FAILS]["text"].startswith("failed: HookError: plugin `toy` (byoc-toy 2.0), ")
    listed = run(*kit, "--byoc-level", "L0", "--collect-only", "-q").stdout.str()
    assert "L0-lint" in listed
    assert "L1-" not in listed


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "ERROR: --pyargs byoc_conformance: name the backend to test: --byoc-backend=NAME"),
        (["--byoc-backend=toi"], "ERROR: byoc.backends: backend `toi` is not installed; installed: "),
        (["--byoc-backend=toy", "--byoc-xfail=no.toml"], "No such file or directory: 'no.toml'"),
        (
            ["--byoc-backend=toy", "--byoc-examples=0"],
            "ERROR: examples: cannot be used; got 0, expected an integer",
        ),
        (["--byoc-backend=toy", "--byoc-seed=-1"], "ERROR: seed: cannot be used; got -1, expected an integer"),
        (["--byoc-backend=toy", "--byoc-patience=nan"], "ERROR: patience: cannot be used; got nan, expected 0.01 or"),
        (["--byoc-backend=toy", "--byoc-report=conftest.py"], "ERROR: --byoc-report: "),
    ],
)
def test_wrong_usage(run: Run, pytester: pytest.Pytester, arguments: list[str], text: str) -> None:
    pytester.makeconftest("")
    done = run("--pyargs", "byoc_conformance", *arguments)
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    assert text in done.stderr.str()
    assert "Traceback" not in done.stderr.str()


SUITE = """
from byoc_conformance import BackendSuite

class TestToy(BackendSuite):
    backend = "toy"
    patience = 0.02
    xfail = {
        "L1-op-compiles[exp]": "the driver of SDK 1.2 aborts",
        "L1-op-compiles[l?g]": "the driver of SDK 1.2 waits",
        "L1-op-compiles[cos]": "this one is declined instead",
    }

    def test_own(self):
        assert self.backend == "toy"
"""


def test_a_class_to_inherit_from(run: Run, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_toy=SUITE)
    done = run("-v", "-k", f"{FOUR} or test_own", "--byoc-report", "out")
    done.assert_outcomes(passed=1, failed=2, xfailed=2)
    text = done.stdout.str()
    assert f"test_toy.py::TestToy::{CRASHES} XFAIL" in text
    assert f"test_toy.py::TestToy::{FAILS} FAILED" in text
    assert "is expected to be broken (this one is declined instead), but is not: declined: op: no cos" in text
    assert "Remove the test from the overrides." in text
    found = statuses(read(pytester.path / "out"))
    assert found == {CRASHES: "xfailed", HANGS: "xfailed", FAILS: "failed", DECLINES: "xpassed"}
    without_xfail = run("--runxfail", "-k", CRASHES)
    without_xfail.assert_outcomes(failed=1)


def test_two_suites_have_reports_of_their_own(run: Run, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_a="from byoc_conformance import BackendSuite\nclass TestA(BackendSuite):\n    backend = 'toy'\n"
        "class Base(BackendSuite):\n    seed = 1\nclass TestNothing(BackendSuite):\n    pass\n"
        "class TestB(Base):\n    backend = 'toy'\n    def test_more(self): pass\n"
    )
    done = run("-k", DECLINES, "--byoc-report", "out")
    done.assert_outcomes(skipped=2)
    assert [read(pytester.path / "out" / name)["settings"]["seed"] for name in ("TestA", "TestB")] == [0, 1]


def test_suites_of_one_name_have_reports_of_their_own(run: Run, pytester: pytest.Pytester) -> None:
    for number, folder in enumerate(("one", "two")):
        pytester.mkdir(folder)
        pytester.makepyfile(
            **{
                f"{folder}/test_x{number}": "from byoc_conformance import BackendSuite\n"
                f"class TestX(BackendSuite):\n    backend = 'toy'\n    seed = {number}\n"
                f"class TestY{number}(BackendSuite):\n    backend = 'toy'\n"
            }
        )
    done = run("-k", DECLINES, "--byoc-report", "out")
    done.assert_outcomes(skipped=4)
    out = pytester.path / "out"
    assert sorted(path.name for path in out.iterdir()) == ["TestY0", "TestY1", "one", "two"]
    found = [read(out / folder / "TestX")["settings"]["seed"] for folder in ("one/test_x0.py", "two/test_x1.py")]
    assert found == [0, 1]


@pytest.mark.parametrize("test_id", [DECLINES, FAILS])
def test_a_report_that_cannot_be_written_fails_the_run(run: Run, pytester: pytest.Pytester, test_id: str) -> None:
    pytester.mkdir("out").joinpath("conformance.json").mkdir()
    done = run("--pyargs", "byoc_conformance", "--byoc-backend=toy", "-k", test_id, "--byoc-report", "out")
    assert done.ret == pytest.ExitCode.TESTS_FAILED
    text = done.stdout.str() + done.stderr.str()
    assert "  no report: [Errno 21] Is a directory: 'out/conformance.json'" in text
    assert "toy: partial 0/" in text
    assert "INTERNALERROR" not in text


SENSELESS = {
    "backend = 'toi'": "byoc.backends: backend `toi` is not installed; installed: ",
    "backend = 'toy'; xfail = {'L0-lint': 'broken'}": "TestX1.xfail, `L0-lint`: gives no reason; got 'broken', ",
    "backend = 'toy'; xfail = {'L7-x': 'there is no such'}": "TestX2.xfail, `L7-x`: names no test of the kit.",
    "backend = 'toy'; xfail = ['L0-lint']": "TestX3.xfail: is no table of reasons by test; got ['L0-lint']",
    "backend = 'toy'; xfail = {'L0-lint': None}": "TestX4.xfail, `L0-lint`: gives no reason; got None, ",
    "backend = 'toy'; examples = 0": "examples: cannot be used; got 0, expected an integer, 1 or more",
    "backend = 'toy'; seed = -1": "seed: cannot be used; got -1, expected an integer, 0 or more",
    "backend = 'toy'; patience = 0": "patience: cannot be used; got 0, expected 0.01 or more",
    "backend = 'toy'; options = {'a': object}": "options of `toy`: are no plain JSON values: ",
    "backend = 'toy'; xfails = {}": "TestX9.xfails: is no setting of `BackendSuite`. Did you mean 'xfail'?",
    "backend = 'toy'; companions = 'host'": "companions: cannot be used; got 'host', expected a list of names",
    "backend = 'toy'; companions = ['host', 'toy']": "companions: cannot be used; got ['host', 'toy'], expected a list",
}


def test_suites_that_make_no_sense(run: Run, pytester: pytest.Pytester) -> None:
    classes = [f"class TestX{number}(BackendSuite):\n    {body}\n" for number, body in enumerate(SENSELESS)]
    pytester.makepyfile(test_x="from byoc_conformance import BackendSuite\n" + "".join(classes))
    done = run()
    done.assert_outcomes(errors=len(SENSELESS))
    for text in SENSELESS.values():
        assert text in done.stdout.str()
    assert "Traceback" not in done.stdout.str()


CHANGED = """
from byoc_conformance import BackendSuite
import pytest

class TestNames(BackendSuite):
    backend = "toy"
    test_L1 = None
    def testL2_ops(self): pass

@pytest.mark.xfail
class TestMarked(BackendSuite):
    backend = "toy"

class TestSkipped(BackendSuite):
    backend = "toy"

class TestWhole(BackendSuite):
    backend = "toy"
"""
SKIPS = f"""
import pytest

def pytest_collection_modifyitems(items):
    for item in items:
        if item.name == "{DECLINES}" and item.parent.name == "TestSkipped":
            item.add_marker(pytest.mark.skip(reason="slow"))
"""
SEEN = {
    "TestNames": [
        "`TestNames.test_L1` has the name of a test of the kit, and cannot replace a test",
        "`TestNames.testL2_ops` has the name of a test of the kit, and cannot replace a test",
    ],
    "TestMarked": ["marked `xfail`, or skipped alone, without an override: TestMarked"],
    "TestSkipped": [f"marked `xfail`, or skipped alone, without an override: {DECLINES}"],
    "TestWhole": [],
}


def test_the_guard_sees_a_changed_suite(run: Run, pytester: pytest.Pytester) -> None:
    pytester.makeconftest(SKIPS)
    pytester.makepyfile(test_x=CHANGED)
    done = run("-k", f"{DECLINES} or {FAILS} or kit-is-whole", "--byoc-report", "out")
    done.assert_outcomes(failed=3 + 4, passed=1, skipped=4)
    for suite, changes in SEEN.items():
        assert "\n".join(changes) in done.stdout.str()
        report = read(pytester.path / "out" / suite)
        assert report["changes"] == changes
        badge = json.loads((pytester.path / "out" / suite / "badge.json").read_text())
        assert (badge["message"] == "suite changed") == bool(changes)


def test_the_guard_sees_tests_that_something_takes_out(run: Run, pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        f"def pytest_collection_modifyitems(items):\n    items[:] = [i for i in items if i.name == '{DECLINES}']\n"
    )
    pytester.makepyfile(
        test_x="from byoc_conformance import BackendSuite\nclass TestX(BackendSuite):\n    backend = 'toy'\n"
    )
    done = run("--byoc-report", "out")
    done.assert_outcomes(failed=1, skipped=1)
    names = ["kit-is-whole", *(item.id for item in all_items() if item.id != DECLINES)]
    text = f"removed without an option of the command line: {', '.join(names[:5])} and {len(names) - 5} more"
    assert read(pytester.path / "out")["changes"] == [text]


def test_marks_that_skip_a_whole_suite_are_seen_as_not_run(run: Run, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_x="import pytest\nfrom byoc_conformance import BackendSuite\n"
        "@pytest.mark.skipif(True, reason='no device')\nclass TestX(BackendSuite):\n    backend = 'toy'\n"
    )
    done = run("--byoc-report", "out", "-rN")
    done.assert_outcomes(skipped=len(all_items()) + 1)
    assert "no test of the kit ran, and no report is written" in done.stdout.str()
    assert list((pytester.path / "out").iterdir()) == []


def test_the_plugin_costs_others_nothing(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_x="import sys\ndef test_x():\n    loaded = {n.partition('.')[0] for n in sys.modules}\n"
        "    mine = {n for n in sys.modules if n.startswith('byoc_conformance')}\n"
        "    assert mine == {'byoc_conformance', 'byoc_conformance.pytest_plugin'}, mine\n"
        "    assert not loaded & {'byoc_core', 'numpy', 'pydantic', 'typer', 'hypothesis'}, loaded\n"
    )
    done = pytester.runpytest_subprocess("-W", "error", "-p", "no:cacheprovider", "-p", "no:hypothesispytest")
    done.assert_outcomes(passed=1)
    assert "byoc" not in done.stdout.str().replace("byoc-conformance-", "").partition("collected")[2]


def test_a_bare_import_loads_nothing_of_the_compiler() -> None:
    script = (
        "import sys, byoc_conformance\n"
        "assert 'BackendSuite' in dir(byoc_conformance)\n"
        "print(sorted(name for name in sys.modules if name.startswith(('byoc', 'numpy'))))\n"
        "from byoc_conformance import BackendSuite\n"
        "print(sorted(name for name in sys.modules if name.startswith(('byoc', 'numpy'))))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["['byoc_conformance']", "['byoc_conformance', 'byoc_conformance.suite']"]


def test_every_public_name_is_there() -> None:
    import byoc_conformance

    for name in byoc_conformance.__all__:
        assert getattr(byoc_conformance, name).__module__.startswith("byoc_conformance.")
    with pytest.raises(AttributeError, match=r"^module 'byoc_conformance' has no attribute 'Rnner'$"):
        _ = byoc_conformance.Rnner


def test_defaults_are_the_same_in_all_ways_in() -> None:
    from byoc_conformance import BackendSuite, SubjectSpec
    from byoc_conformance.command import run_kit

    spec = SubjectSpec("x")
    parameters = inspect.signature(run_kit).parameters
    assert (BackendSuite.examples, BackendSuite.seed, BackendSuite.patience) == (spec.examples, spec.seed, 1.0)
    assert [parameters[name].default for name in ("examples", "seed", "patience")] == [spec.examples, spec.seed, 1.0]
