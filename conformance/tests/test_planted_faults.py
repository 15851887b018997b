"""The table of planted faults fits the sources of the plugins, and planting a fault makes the kit red.

:mod:`conformance.tests.planted_faults` shows the catch of each fault.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from byoc_conformance import SubjectSpec, all_items
from byoc_conformance.outcome import NotCoveredError
from byoc_conformance.overrides import select_ids
from byoc_conformance.subject import Subject
from byoc_core.errors import BackendNotFoundError

from conformance.tests.planted_faults import FAULTS, PlantedFault
from conformance.tests.planted_faults.planting import copy_plugin, find_catch, hold_copy, show_witness
from conformance.tests.planted_faults.witnesses import WITNESSES

LEAST = 18
FAULT_BY_NAME = {fault.name: fault for fault in FAULTS}
CHEAP = ("cc-even-window-leans-back", "dnnl-clip-without-minimum-is-relu6")


def require_backend(plugin: str) -> None:
    """Skip the test if a backend is not installed, or cannot compile on this machine."""
    try:
        Subject(SubjectSpec(plugin)).require_tools()
    except BackendNotFoundError:
        pytest.skip(f"no backend {plugin} here")
    except NotCoveredError as error:
        pytest.skip(str(error))


def test_there_are_enough_faults_of_each_plugin() -> None:
    counts = Counter(fault.plugin for fault in FAULTS)
    assert min(counts.values()) >= LEAST
    assert counts.total() >= 40


def test_names_are_unique() -> None:
    assert len(FAULT_BY_NAME) == len(FAULTS)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_replaces_one_text_by_valid_python(fault: PlantedFault) -> None:
    compile(fault.faulty_text(), fault.file, "exec")
    assert fault.before != fault.after


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_the_tests_of_a_fault_are_tests_of_the_kit(fault: PlantedFault) -> None:
    ids = [item.id for item in all_items()]
    assert [test for test in fault.tests if not list(select_ids(test, ids))] == []


@pytest.mark.parametrize("name", CHEAP)
def test_a_planted_fault_is_caught(name: str, tmp_path: Path) -> None:
    fault = FAULT_BY_NAME[name]
    require_backend(fault.plugin)
    caught = find_catch(fault)
    assert caught is not None
    copy_plugin(fault.package, tmp_path)
    assert hold_copy(tmp_path, fault.plugin, fault.package, [caught.test]) is None


def test_witnesses_are_those_of_faults() -> None:
    assert WITNESSES.keys() <= FAULT_BY_NAME.keys()


def test_a_witness_shows_its_fault() -> None:
    require_backend("dnnl")
    assert "elements are wrong" in show_witness(FAULT_BY_NAME["dnnl-slice-begin-wraps"])


def test_a_package_of_another_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="imported from another folder"):
        hold_copy(tmp_path, "dnnl", "byoc_dnnl", ["L2-op[clip]"])
