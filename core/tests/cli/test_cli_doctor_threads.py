"""Output of ``byoc doctor`` on threads and the C extension, with advice for missing parts."""

from __future__ import annotations

import re

import pytest
from byoc_core.cli.commands.doctor import _extension_remedy, _find_extension
from byoc_core.native.processors import count_cpus

from core.tests.cli.conftest import RunByoc

pytestmark = [pytest.mark.lowest, pytest.mark.asks_for_plugins]


def finding(text: str, subject: str) -> list[str]:
    """Return the line of a subject, and the line below."""
    lines = text.splitlines()
    place = next(index for index, line in enumerate(lines) if re.match(rf"\s*\w+ +{subject}: ", line))
    return [line.strip() for line in lines[place : place + 2]]


def test_it_tells_the_number_of_threads(byoc: RunByoc, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BYOC_NUM_THREADS", "3")
    done = byoc("doctor")
    assert done.code == 0
    cpus = count_cpus()
    processors = f"{cpus} processor{'' if cpus == 1 else 's'} available"
    assert finding(done.out, "threads")[0] == f"fine   threads: 3 for each process; {processors}"
    assert "fine   environment variable BYOC_NUM_THREADS: 3" in done.out


def test_a_number_that_is_none_is_a_fault(byoc: RunByoc, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BYOC_NUM_THREADS", "many")
    done = byoc("doctor")
    assert done.code == 1
    assert finding(done.out, "threads") == [
        "fault  threads: $BYOC_NUM_THREADS: value not permitted; got 'many', expected 1 to 1024",
        "Correct or unset the variable.",
    ]


def test_a_missing_library_is_a_note_with_a_remedy(byoc: RunByoc, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("byoc_core.runtime.threads.use_openmp", lambda: None)
    done = byoc("doctor")
    assert done.code == 0
    assert finding(done.out, "OpenMP") == [
        "note   OpenMP: libgomp.so.1 was not found, so generated code runs on one thread",
        "apt-get install libgomp1.",
    ]


def test_the_library_that_is_there_is_shown(byoc: RunByoc, monkeypatch: pytest.MonkeyPatch) -> None:
    class Found:
        path = "/usr/lib/libgomp.so.1"
        spins = True

    monkeypatch.setattr("byoc_core.runtime.threads.use_openmp", Found)
    assert finding(byoc("doctor").out, "OpenMP")[0].endswith(
        "OpenMP: /usr/lib/libgomp.so.1; idle workers look for work 1,000 times, then sleep"
    )
    Found.spins = False
    assert finding(byoc("doctor").out, "OpenMP")[0].endswith("; idle workers wait as set in the environment")


@pytest.mark.parametrize(
    ("system", "switch", "remedy"),
    [
        ("posix", "", "Install byoc-core from source (a checkout or an sdist) on a machine with a C compiler."),
        ("nt", "", "There is no C extension for Windows."),
        ("posix", "0", "Unset BYOC_NATIVE."),
    ],
)
def test_the_remedy_for_a_missing_extension(
    monkeypatch: pytest.MonkeyPatch, system: str, switch: str, remedy: str
) -> None:
    monkeypatch.setenv("BYOC_NATIVE", switch)
    assert _extension_remedy(system) == remedy


def test_a_missing_extension_is_a_note_with_its_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("byoc_core.runtime.extension.extension_status", lambda: (False, "it is not there"))
    found = _find_extension()
    assert (found.level, found.subject) == ("note", "native calls")
    assert found.text == (
        "run one by one, in Python (half a microsecond more for each step of a model, and five for each call): "
        "it is not there"
    )
