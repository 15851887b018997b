"""Packages written by ``byoc new-backend`` can be continued as described on the page for authors.

:mod:`conformance.tests.new_backend_trial` shows, for installed packages, the keeping of every promise by the written
package and the resulting example.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from byoc_conformance import Runner, Status, SubjectSpec, all_items, find_item
from byoc_core.lint import lint_backend
from byoc_core.scaffold.kind import Kind
from byoc_core.scaffold.package import write_package

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
def installing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, look_again: Callable[[], None]) -> Iterator[Installing]:
    """Return a function installing a package for this process and its children, and returning the backend's name."""
    sites: list[str] = []

    def install(package: Path) -> str:
        site = tmp_path / f"site-{len(sites)}"
        name = install_package(package, site)
        monkeypatch.setattr(sys, "path", [str(site), *(path for path in sys.path if path not in sites)])
        sites.append(str(site))
        look_again()
        return name

    loaded_modules = set(sys.modules)
    yield install
    monkeypatch.undo()
    # What this process has imported of a package would else be an installed module to the next test.
    for name in [
        name for name in sys.modules if name not in loaded_modules and name.startswith(("byoc_fresh_", "byoc_scipy"))
    ]:
        del sys.modules[name]


@pytest.fixture(params=PACKAGES)
def backend(request: pytest.FixtureRequest, tmp_path: Path, installing: Installing) -> str:
    """The name of an installed backend."""
    return installing(PACKAGES[request.param](tmp_path / "package"))


HUNK = re.compile(r"^```diff\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def _edit_as_the_page_tells(package: Path, name: str) -> list[str]:
    """Make the edits of ``docs/write-a-backend.md`` fitting a package; return the names of the files, one per edit."""
    edited = []
    for hunk in HUNK.findall((ROOT / "docs" / "write-a-backend.md").read_text("utf-8").replace("mynpu", name)):
        lines = hunk.splitlines(keepends=True)
        old, new = ("".join(line[1:] or line for line in lines if line[0] != sign) for sign in "+-")
        for path in sorted([*package.rglob("src/**/*.py"), *package.rglob("src/**/*.c")]):
            text = path.read_text("utf-8")
            if old in text:
                path.write_text(text.replace(old, new, 1), "utf-8")
                edited.append(path.name)
    return edited


FIRST_OPS = {Kind.GRAPH: "tanh", Kind.ENGINE: "tanh", Kind.CSOURCE: "reciprocal", Kind.LOWERING: "reciprocal"}


@pytest.mark.parametrize(("kind", "op"), FIRST_OPS.items())
def test_a_first_op_as_the_page_tells_it(kind: Kind, op: str, tmp_path: Path, installing: Installing) -> None:
    """The kit's tests of the op are skipped before the page's edits, and pass after them."""
    items = [item for item in all_items() if item.case.split("-")[0] == op and item.promise.name != "random-graphs"]
    package = _write(kind)(tmp_path / "package")
    with Runner(SubjectSpec(installing(package))) as runner:
        before = {runner.run(item).outcome.status for item in items}
    assert kind.first_file in _edit_as_the_page_tells(package, f"fresh_{kind}")
    with Runner(SubjectSpec(installing(package))) as runner:
        after = {item: runner.run(item).outcome for item in items}
    assert before <= {Status.DECLINED, Status.NOT_COVERED}
    for item, outcome in after.items():
        is_of_other_hook = item.promise.name in ("layouts", "schedules")
        assert outcome.status is (Status.NOT_COVERED if is_of_other_hook else Status.PASSED), (item.id, outcome)


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
    assert "multiply_add`, `v1_0`): the kernel failed: TypeError" in outcome.text


OTHER_KERNELS = """
from byoc_core.opset.families import KERNELS
from byoc_core.runtime.graph import KernelEngine

DTYPES = ("float32", "float64", "int32")
DENSE_RELU = "fresh_graph.dense_relu"


class Engine(KernelEngine):
    type_key = "fresh_graph"
"""
OTHER_ENGINE = """
from byoc_core.runtime.graph import GraphEngine, ReferenceFunction

MAX_IDLE_REQUESTS = 8


class Engine(GraphEngine):
    type_key = "fresh_engine"

    def __init__(self, idle_requests):
        self.state = {"idle_requests": idle_requests}

    state = {}

    @classmethod
    def from_state(cls, state):
        return cls(state["idle_requests"])

    def check_node(self, node, operands):
        return None

    def prepare(self, function, constants, saved=None):
        return ReferenceFunction(function, constants)

    def build(self, function, constants, prepared):
        return prepared
"""
REPLACED_FILES = {Kind.GRAPH: OTHER_KERNELS, Kind.ENGINE: OTHER_ENGINE}


def _own_tests(package: Path, site: Path) -> subprocess.CompletedProcess[str]:
    """Run the tests of an installed package, without the kit."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(site), *sys.path])}
    command = ("-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", "--ignore=tests/test_conformance.py")
    arguments = [sys.executable, *command, "tests"]
    return subprocess.run(arguments, cwd=package, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("kind", REPLACED_FILES)
def test_the_tests_of_a_package_stay_green_when_its_engine_is_another_right_one(kind: Kind, tmp_path: Path) -> None:
    package = _write(kind)(tmp_path / "package")
    (package / "src" / f"byoc_fresh_{kind}" / "engine.py").write_text(REPLACED_FILES[kind], "utf-8")
    install_package(package, tmp_path / "site")
    done = _own_tests(package, tmp_path / "site")
    assert done.returncode == 0, done.stdout


WRONG = {
    Kind.GRAPH: ("engine.py", "x @ weight.T", "x @ weight.T + 1"),
    Kind.ENGINE: ("library.py", "x @ weight.T", "x @ weight.T + 1"),
    Kind.CSOURCE: ("codegen.py", '"add": "a[i] + b[i]"', '"add": "a[i] - b[i]"'),
    Kind.LOWERING: ("library.c", "out[i] = a[i] * b[i]", "out[i] = a[i] + b[i]"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_the_tests_of_a_package_are_red_when_its_engine_is_wrong(kind: Kind, tmp_path: Path) -> None:
    package = _write(kind)(tmp_path / "package")
    file, right, wrong = WRONG[kind]
    path = package / "src" / f"byoc_fresh_{kind}" / file
    text = path.read_text("utf-8")
    assert right in text
    path.write_text(text.replace(right, wrong), "utf-8")
    install_package(package, tmp_path / "site")
    done = _own_tests(package, tmp_path / "site")
    assert done.returncode == 1, done.stdout


ONE_CALL = """\
            builder.call_extern("fresh_lowering_dense_relu", x, weight, bias, output.written(), *sizes)
"""
THREE_CALLS = """\
            scratch = builder.allocate(binding.result.type)
            builder.call_extern("fresh_lowering_dense_relu", x, weight, bias, scratch.written(), *sizes)
            builder.call_extern("fresh_lowering_clip", scratch.updated(), scratch.size)
            builder.copy(scratch, output)
"""
CLIP = """
static inline void fresh_lowering_clip(float *a, int64_t size) {
  for (int64_t i = 0; i < size; ++i) a[i] = a[i] < 0.0f ? 0.0f : a[i];
}
"""


def test_the_kit_judges_lowered_regions_with_scratch_memory_and_updates(tmp_path: Path, installing: Installing) -> None:
    package = _write(Kind.LOWERING)(tmp_path / "package")
    folder = package / "src" / "byoc_fresh_lowering"
    text = (folder / "lowering.py").read_text("utf-8")
    assert ONE_CALL in text
    (folder / "lowering.py").write_text(text.replace(ONE_CALL, THREE_CALLS), "utf-8")
    (folder / "library.c").write_text((folder / "library.c").read_text("utf-8") + CLIP, "utf-8")
    names = {
        *("codegen-functions", "codegen-leaves-input", "save-and-load"),
        *("inputs-unwritten", "permitted-workspace", "lowered-accesses"),
    }
    items = [item for item in all_items() if item.promise.name in names]
    with Runner(SubjectSpec(installing(package))) as runner:
        outcomes = {item.id: runner.run(item).outcome for item in items}
    assert [outcome.status for outcome in outcomes.values()] == [Status.PASSED] * len(names), outcomes


def test_the_lint_finds_nothing(backend: str) -> None:
    assert [str(finding) for finding in lint_backend(backend, compile_claims=True)] == []
