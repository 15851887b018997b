"""The runner beside backends fatal to any process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from byoc_conformance import Runner, Status, SubjectSpec, all_items


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, look_again: Callable[[], None]) -> Callable[[str], Path]:
    """Return a function installing the backend ``dead``, and returning a file with a line for each import."""

    def write(code: str) -> Path:
        starts = tmp_path / "starts.txt"
        (tmp_path / "dead_backend.py").write_text(f"open({str(starts)!r}, 'a').write('imported\\n')\n{code}\n")
        info = tmp_path / "byoc_dead-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: byoc-dead\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text("[byoc.backends]\ndead = dead_backend\n")
        monkeypatch.syspath_prepend(str(tmp_path))
        look_again()
        return starts

    return write


@pytest.mark.parametrize(
    ("code", "patience", "status", "text"),
    [
        (
            "import os; os._exit(3)",
            1.0,
            Status.CRASHED,
            "during the import of the backend: the process ended with exit status 3",
        ),
        (
            "import time; time.sleep(1000)",
            0.05,
            Status.HUNG,
            "during the import of the backend: no result within 3 s",
        ),
    ],
)
def test_a_backend_that_ends_each_process_is_asked_for_twice(
    install: Callable[[str], Path], code: str, patience: float, status: Status, text: str
) -> None:
    starts = install(code)
    items = (*all_items()[:3], all_items()[-1])
    with Runner(SubjectSpec("dead"), patience=patience) as runner:
        outcomes = [runner.run(item).outcome for item in items]
    assert {outcome.status for outcome in outcomes} == {status}
    assert {outcome.text for outcome in outcomes} == {text}
    assert starts.read_text() == "imported\nimported\n"
