"""The copies between memory domains in reports and explanations: each with its value and its readers."""

from __future__ import annotations

import sys
from typing import Any

import byoc_core
import pytest
from byoc_core.ir import IRModule
from byoc_core.reporting.text import render_report
from byoc_core.runtime.protected_device import ProtectedDevice
from byoc_core.vm.border_copies import border_copies
from hypothesis import given
from hypothesis import strategies as st

from core.tests.devices.test_device_property import HOSTED, devices_of, straight_line
from core.tests.devices.toys import DeviceToy, build_on, crossings, toy_of

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="memory is protected by calls of POSIX systems")


def module_of(body: str) -> IRModule:
    return byoc_core.parse(f"def main(x: R.Tensor((2, 3))):\n{body}")


def test_report_and_explanation_list_the_same_copies() -> None:
    module = module_of("    a = R.negative(x)\n    h = R.floor(a)\n    b = R.exp(h)\n    return b")
    report = byoc_core.build(module, [DeviceToy()]).report()
    assert report.endswith(
        """
copies between memory domains:
  input `x`, 24 bytes: host to npu, for `npu_main_0`
  `npu_main_0`, 24 bytes: npu to host, for `host_main_0`
  `host_main_0`, 24 bytes: host to npu, for `npu_main_1`
  `npu_main_1`, 24 bytes: npu to host, for result `b`"""
    )
    assert byoc_core.explain(module, [DeviceToy()]).report() == report


def test_the_size_of_a_copy_may_be_symbolic() -> None:
    module = byoc_core.parse('def main(x: R.Tensor(("n", 3))):\n    a = R.negative(x)\n    return a')
    executable = byoc_core.build(module, [DeviceToy()])
    assert [copy["nbytes"] for copy in executable.report_data["copies"]] == ["12*n", "12*n"]
    assert "input `x`, 12*n bytes: host to npu" in executable.report()


def test_programs_of_the_host_list_no_copies_and_explanations_do_not_lower() -> None:
    module = module_of("    a = R.negative(x)\n    return a")
    stages: list[str] = []
    explanation = byoc_core.explain(module, [], progress=stages.append)
    assert "copies" not in explanation.report_data
    assert "lower" not in stages


def test_parts_of_a_joined_value_are_read_by_the_reader_of_the_whole() -> None:
    module = module_of(
        "    a = R.negative(x)\n    b = R.exp(x)\n    c = R.concat(a, b, axis=0)\n    d = R.floor(c)\n    return d"
    )
    program = build_on(module, DeviceToy()).program
    copies = border_copies(program, program.functions[0])
    assert [copy.readers for copy in copies if copy.target == "host"] == [("`host_main_0`",)] * 2


def test_a_copy_by_way_of_the_host_names_the_last_reader() -> None:
    module = module_of("    a = R.abs(x)\n    b = R.exp(a)\n    return b")
    npu, gpu = ProtectedDevice("npu", is_lazy=True), ProtectedDevice("gpu", is_lazy=True)
    program = build_on(module, toy_of(npu, ["abs"]), toy_of(gpu, ["exp"])).program
    copies = border_copies(program, program.functions[0])
    assert [(copy.source, copy.target, copy.readers) for copy in copies] == [
        ("host", "npu", ("`npu_main_0`",)),
        ("npu", "host", ("`gpu_main_0`",)),
        ("host", "gpu", ("`gpu_main_0`",)),
        ("gpu", "host", ("result `b`",)),
    ]


@given(st.data())
def test_every_copy_of_a_program_is_reported_with_a_reader(data: st.DataObject) -> None:
    module = straight_line(data.draw)
    executable = build_on(module, *(toy for _, toy in devices_of(data.draw, HOSTED)))
    program = executable.program
    rows: list[dict[str, Any]] = executable.report_data.get("copies", [])
    assert len(rows) >= sum(crossings(program))  # the host copies between memory visible to it
    assert all(row["readers"] for row in rows)
    assert all(row["source"] != row["target"] for row in rows)


@pytest.mark.parametrize("copies", [[{}], [{"readers": [1], "nbytes": -1, "value": 3}], "text", [3]])
def test_hostile_reports_are_no_error(copies: object) -> None:
    executable = build_on(module_of("    a = R.negative(x)\n    return a"), DeviceToy())
    text = render_report({**executable.report_data, "copies": copies})
    assert text.startswith(executable.report().partition("\n")[0])
