"""What ``byoc new-backend`` writes keeps every promise as it is written, and so does the example that came of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from byoc_conformance import Runner, Status, SubjectSpec, all_items
from byoc_core.lint import lint_backend
from byoc_core.scaffold import Kind, write_package

from conformance.tests.conftest import forget_plugins
from conformance.tests.new_packages import install_package

EXAMPLES = Path(__file__).parents[2] / "examples"


def _write(kind: Kind) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        write_package(f"fresh_{kind}", kind, folder)
        return folder

    return write


PACKAGES: dict[str, Callable[[Path], Path]] = {
    **{kind.value: _write(kind) for kind in Kind},
    "example": lambda folder: EXAMPLES / "byoc_scipy",
}


@pytest.fixture(params=PACKAGES)
def backend(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of an installed backend, for this process and those that it starts."""
    name = install_package(PACKAGES[request.param](tmp_path / "package"), tmp_path / "site")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.setenv("BYOC_CACHE_DIR", str(tmp_path / "cache"))
    forget_plugins()
    yield name
    monkeypatch.undo()
    forget_plugins()


def test_it_passes_the_kit(backend: str) -> None:
    with Runner(SubjectSpec(backend)) as runner:
        results = [runner.run(item) for item in all_items()]
    broken = [f"{r.item.id}: {r.outcome.text}" for r in results if r.outcome.status.is_broken]
    assert broken == []
    # A green by declining is no green: it is held to something on every level.
    passed = {result.item.promise.level for result in results if result.outcome.status is Status.PASSED}
    assert passed == {item.promise.level for item in all_items()}


def test_the_lint_finds_nothing(backend: str) -> None:
    assert [str(finding) for finding in lint_backend(backend, compile_claims=True)] == []
