"""Mutants of artifacts, run on guarded buffers: only our own errors come out, in bounded time and memory."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import byoc_core
import numpy as np
import pytest
from byoc_core.artifact import load, verify
from byoc_core.cli.main import main
from byoc_core.errors import ArtifactError

from core.tests.artifact.fuzzing.folder import Folder
from core.tests.artifact.fuzzing.guarded import guarded_empty
from core.tests.artifact.fuzzing.parent import REPOSITORY, Tally, fuzz, new_corpus
from core.tests.artifact.fuzzing.sabotage import SABOTAGES

if not sys.platform.startswith("linux"):
    pytest.skip("limits of processes and pages are Linux's", allow_module_level=True)


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with new_corpus() as made:
        yield made


@pytest.fixture(scope="module")
def tally(folder: Path) -> Tally:
    """Return the results of all attacks and of 500 mutants."""
    return fuzz(folder, range(-len(Folder.read(folder).attacks), 500), seed=1)


def test_the_attacks_and_500_mutants(folder: Path, tally: Tally) -> None:
    found = Folder.read(folder)
    assert tally.faults == {}
    assert tally.count == 500 + len(found.attacks)
    assert {seed.name for seed in found.seeds} <= set(tally.origins)
    assert all(tally.outcomes[outcome] >= 25 for outcome in ("refused", "ran", "unfit")), tally.outcomes


@pytest.mark.asks_for_plugins
def test_the_corpus_holds_what_runs_everywhere(folder: Path) -> None:
    names = {seed.name for seed in Folder.read(folder).seeds}
    assert {"images.host", "batches.host", "sequences.host", "pointwise.host"} <= names
    attacks = {name.rpartition(".")[2] for name, _ in Folder.read(folder).attacks}
    assert len(attacks) == 8


WINDOWS = ("pool-leak", "pool-crash", "conv-leak", "conv-crash", "pool-hang")


def test_windows_out_of_bounds_are_called_wrong(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    attacks = [
        (name, content)
        for name, content in Folder.read(folder).attacks
        # Native code in an artifact is refused before anything else.
        if name.endswith(WINDOWS) and not byoc_core.backends.get(name.split(".")[1]).info().native
    ]
    assert len(attacks) >= 10
    for name, content in attacks:
        path = tmp_path / f"{name}.byoc"
        path.write_bytes(content)
        for action in (verify, load):
            with pytest.raises(ArtifactError, match="breaks the type rule of the op: "):
                action(path)
        for command in ("verify", "run"):
            monkeypatch.setattr(sys, "argv", ["byoc", command, str(path)])
            with pytest.raises(SystemExit) as ended:
                main()
            assert ended.value.code == 1
            assert "breaks the type rule of the op: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("sabotage", "expected"),
    [
        ("windows_out_of_bounds", "signal SIGSEGV"),
        ("wrong_error", "IRTypeError: artifact: is not what it seems"),
        ("endless_loop", "more processor time than a mutant may take"),
        ("much_memory", "MemoryError"),
    ],
)
def test_faults_are_found(folder: Path, tally: Tally, sabotage: str, expected: str) -> None:
    attacks = [name for name, _ in Folder.read(folder).attacks]
    first = -1 - attacks.index("sequences.host.pool-leak") if sabotage == "windows_out_of_bounds" else 0
    numbers = range(first, first + (6 if sabotage == "endless_loop" else 8))  # each loop takes all of its time
    assert not tally.faults.keys() & set(numbers)
    broken = fuzz(folder, numbers, seed=1, sabotage=sabotage, cpu_s=0.25)
    assert any(expected in text for text in broken.faults.values()), broken.faults
    assert broken.count == len(numbers)  # mutants behind a fault are tried too


def test_every_sabotage_is_tried() -> None:
    assert set(SABOTAGES) == {"windows_out_of_bounds", "wrong_error", "endless_loop", "much_memory"}


@pytest.mark.parametrize(("at_end", "byte"), [(True, "nbytes"), (False, "-1")])
def test_a_byte_beside_an_array_ends_the_process(at_end: bool, byte: str) -> None:
    script = f"""
import ctypes, numpy
from core.tests.artifact.fuzzing.guarded import guarded_empty
array = guarded_empty((3, 5), numpy.dtype("float32"), at_end={at_end})
array[...] = 1
nbytes = array.nbytes
print(ctypes.c_char.from_address(array.ctypes.data + {byte}))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False, cwd=REPOSITORY)
    assert done.returncode < 0


def test_a_guarded_array_may_be_empty() -> None:
    assert guarded_empty((0, 3), np.dtype("float32")).size == 0
