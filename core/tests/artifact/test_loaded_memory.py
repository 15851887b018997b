"""Memory held by a loaded executable: constants as an array each, and nothing readable again from the file."""

from __future__ import annotations

import ctypes
import gc
import mmap
import os
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from byoc_core.artifact import Executable, load
from byoc_core.artifact.archive import Member, map_file
from byoc_core.artifact.constants import MappedConstants, StoredBytes
from byoc_core.artifact.loading import OpenedArtifact
from byoc_core.artifact.manifest import ConstantEntry
from byoc_core.errors import ArtifactError
from byoc_core.vm import Program

ROWS = [{"name": f"value_{number}", "text": f"{number} reasons " * 20} for number in range(10_000)]


def traced(make: Callable[[], object]) -> int:
    """Return the bytes of Python objects held by a function's result, the least of two runs.

    A run may hold more once: a module is imported on the way, or a thread of an earlier test ends.
    """
    return min(_traced_once(make) for _ in range(2))


def _traced_once(make: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        made = make()
        gc.collect()
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
        del made


@pytest.fixture
def reporting(tmp_path: Path) -> Path:
    path = tmp_path / "model.byoc"
    Executable(Program(()), report={"ops": ROWS}).save(path)
    load(path)  # what is imported on the way is not measured
    return path


def test_a_report_is_read_when_it_is_asked_for(reporting: Path) -> None:
    assert traced(lambda: load(reporting)) < reporting.stat().st_size / 100
    loaded = load(reporting)
    assert loaded.report_data == {"ops": ROWS}
    assert loaded.report_data is loaded.report_data


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_pages_that_were_read_once_are_given_back(reporting: Path) -> None:
    loaded = load(reporting)
    lines = iter(Path("/proc/self/smaps").read_text("utf-8").splitlines())
    assert any(line.endswith(str(reporting)) for line in lines)
    resident = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Rss:"))
    assert resident < reporting.stat().st_size / 10
    assert loaded.report_data == {"ops": ROWS}


@pytest.mark.skipif(not hasattr(mmap, "MADV_DONTNEED"), reason="a system that takes no pages back")
def test_pages_of_a_process_that_locks_its_memory_stay(tmp_path: Path) -> None:
    path = tmp_path / "model.byoc"
    Executable(Program(())).save(path)
    data = map_file(path)
    address = np.frombuffer(data, np.uint8).ctypes.data
    libc = ctypes.CDLL(None)
    if libc.mlock(ctypes.c_void_p(address), ctypes.c_size_t(len(data))):
        pytest.skip("no memory may be locked here")
    opened = OpenedArtifact.open(data, "artifact")
    opened.give_back_pages()
    assert opened.report_reader()() == {}


def overwrite(path: Path) -> None:
    data = path.read_bytes().replace(b"reasons", b"raisons")
    with path.open("r+b") as file:
        file.write(data)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda path: os.truncate(path, 1000), ": was truncated after loading"),
        (overwrite, ", member manifest.json: is damaged"),
    ],
)
@pytest.mark.skipif(sys.platform == "win32", reason="a file that is mapped cannot be changed")
def test_a_file_that_is_changed_in_place_gives_no_report(
    reporting: Path, change: Callable[[Path], None], text: str
) -> None:
    loaded = load(reporting)
    change(reporting)
    for _ in range(2):
        with pytest.raises(ArtifactError) as caught:
            _ = loaded.report_data
        assert str(caught.value) == (f"artifact `{reporting}`{text}. Copy the file again, or compile the model again.")


@pytest.mark.skipif(sys.platform == "win32", reason="a file that is mapped cannot be removed")
def test_a_file_that_is_removed_or_replaced_still_gives_its_report(reporting: Path) -> None:
    first, second = load(reporting), load(reporting)
    first.save(reporting)
    reporting.unlink()
    assert first.report_data == second.report_data == {"ops": ROWS}


def test_a_constant_costs_one_array_and_its_place_in_a_table() -> None:
    count, nbytes = 4096, 64
    data = memoryview(bytes(count * nbytes))
    entries = {f"{number:064x}": ConstantEntry("float32", (4, 4)) for number in range(count)}
    stored = {digest: StoredBytes(data, Member("", index * nbytes, nbytes, 0)) for index, digest in enumerate(entries)}

    def read_all() -> MappedConstants:
        constants = MappedConstants(entries, stored, "artifact")
        assert all(constants[digest].shape == (4, 4) for digest in entries)
        return constants

    array = sys.getsizeof(np.empty(0)) + 4 * 8  # with its sizes and strides
    table = sys.getsizeof(dict.fromkeys(entries)) / count
    rounding = 2 * 16  # an object and its sizes, each
    assert traced(read_all) / count < array + table + rounding
