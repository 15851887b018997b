"""What ``byoc new-backend`` writes can be gone on from as the page for authors tells it.

That it keeps every promise as it is written, and so does the example that came of it, is for
:mod:`conformance.tests.new_backend_trial` to show, of the packages as they are installed.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from byoc_conformance import Runner, Status, SubjectSpec, all_items, find_item
from byoc_core.lint import lint_backend
from byoc_core.scaffold.kind import Kind
from byoc_core.scaffold.package import write_package

from conformance.tests.conftest import forget_plugins
from conformance.tests.new_packages import install_package

ROOT = Path(__file__).parents[2]


def _write(kind: Kind) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        write_package(f"fresh_{kind}", kind, folder)
        return folder

    return write


PACKAGES: dict[str, Callable[[Path], Path]] = {
    **{kind.value: _write(kind) for kind in Kind},
    "example": lambda folder: ROOT / "examples" / "byoc_scipy",
}


Installing = Callable[[Path], str]


@pytest.fixture
def installing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Installing]:
    """A function that installs a package for this process and those that it starts, and gives its backend's name."""
    sites: list[str] = []

    def install(package: Path) -> str:
        site = tmp_path / f"site-{len(sites)}"
        name = install_package(package, site)
        monkeypatch.setattr(sys, "path", [str(site), *(path for path in sys.path if path not in sites)])
        sites.append(str(site))
        forget_plugins()
        return name

    known = set(sys.modules)
    yield install
    monkeypatch.undo()
    forget_plugins()
    # What this process has imported of a package would else be an installed module to the next test.
    for name in [name for name in sys.modules if name not in known and name.startswith(("byoc_fresh_", "byoc_scipy"))]:
        del sys.modules[name]


@pytest.fixture(params=PACKAGES)
def backend(request: pytest.FixtureRequest, tmp_path: Path, installing: Installing) -> str:
    """The name of an installed backend."""
    return installing(PACKAGES[request.param](tmp_path / "package"))


HUNK = re.compile(r"^```diff\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def _edit_as_the_page_tells(package: Path, name: str) -> list[str]:
    """Makes the edits of ``docs/write-a-backend.md`` that fit a package; gives the names of the files, one per edit."""
    edited = []
    for hunk in HUNK.findall((ROOT / "docs" / "write-a-backend.md").read_text("utf-8").replace("mynpu", name)):
        lines = hunk.splitlines(keepends=True)
        old, new = ("".join(line[1:] or line for line in lines if line[0] != sign) for sign in "+-")
        for path in sorted((package / "src").rglob("*.py")):
            text = path.read_text("utf-8")
            if old in text:
                path.write_text(text.replace(old, new, 1), "utf-8")
                edited.append(path.name)
    return edited


@pytest.mark.parametrize(("kind", "op"), [(Kind.GRAPH, "tanh"), (Kind.CSOURCE, "reciprocal")])
def test_a_first_op_as_the_page_tells_it(kind: Kind, op: str, tmp_path: Path, installing: Installing) -> None:
    """The kit's tests of the op are skipped before the page's edits, and pass after them."""
    items = [item for item in all_items() if item.case.split("-")[0] == op]
    package = _write(kind)(tmp_path / "package")
    with Runner(SubjectSpec(installing(package))) as runner:
        before = {runner.run(item).outcome.status for item in items}
    assert kind.first_file in _edit_as_the_page_tells(package, f"fresh_{kind}")
    with Runner(SubjectSpec(installing(package))) as runner:
        after = {item.id: runner.run(item).outcome for item in items}
    assert before <= {Status.DECLINED, Status.NOT_COVERED}
    assert {outcome.status for outcome in after.values()} == {Status.PASSED}, after


def test_a_first_pattern_as_the_page_tells_it(tmp_path: Path, installing: Installing) -> None:
    name = f"fresh_{Kind.GRAPH}"
    package = _write(Kind.GRAPH)(tmp_path / "package")
    assert _edit_as_the_page_tells(package, name) == ["engine.py", "engine.py", "patterns.py", "engine.py", "engine.py"]
    items = [item for item in all_items() if item.promise.name in {"patterns-claim", "patterns-compile", "pattern"}]
    with Runner(SubjectSpec(installing(package))) as runner:
        outcomes = {item.id: runner.run(item).outcome for item in items}
    assert [outcome.status for outcome in outcomes.values()] == [Status.PASSED] * 3, outcomes
    assert lint_backend(name, compile_claims=True) == ()
    engine = package / "src" / f"byoc_{name}" / "engine.py"
    engine.write_text(engine.read_text("utf-8").replace("len(body.inputs) == 3 and ", ""), "utf-8")
    with Runner(SubjectSpec(installing(package))) as runner:
        outcome = runner.run(find_item("L2-pattern")).outcome
    assert outcome.status is Status.FAILED
    assert "multiply_add`): the kernel failed: TypeError" in outcome.text


def test_the_lint_finds_nothing(backend: str) -> None:
    assert [str(finding) for finding in lint_backend(backend, compile_claims=True)] == []
