"""Profiles: the time of a call is found again in regions and parts, and the work in the report."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import byoc_core
import numpy as np
import pytest
from byoc_core.artifact import Executable
from byoc_core.authoring.csource import CSourceCodegen
from byoc_core.backend.hooks import (
    BackendInfo,
    CodegenResult,
    CompileContext,
    LoweringBuilder,
    Rejection,
    Support,
    hookimpl,
)
from byoc_core.errors import CallError, OptionsError
from byoc_core.ir import Binding, Function, tensor
from byoc_core.profiling import OpName, Peaks, Profile, RegionProfile, measure_peaks, profile
from byoc_core.runtime.extension import extension

from core.tests.lowered_toys import LoweringToy

pytestmark = [
    pytest.mark.interpreter,
    pytest.mark.skipif(extension() is None, reason="the C extension is missing"),
]

MODEL = """
from byoc_core import script as R

@R.function
def main(x: R.Tensor(("n", 8), "float32"), y: R.Tensor(("n", 8), "float32")):
    a = R.add(x, y)
    b = R.nn.relu(a)
    c = R.negative(b)
    d = R.exp(c)
    return d
"""
PEAKS = Peaks(1e9, 1e9)


class PrintedC:
    """A backend with a C kernel for each elementwise op but ``exp``."""

    name = "printed"

    @hookimpl
    def byoc_backend_info(self) -> BackendInfo:
        return BackendInfo(self.name, dynamic_shapes=True, native=True)

    @hookimpl
    def byoc_supports(self, binding: Binding) -> Support | Rejection:
        is_ours = binding.op.name in ("add", "nn.relu", "negative")
        return Support() if is_ours else Rejection("op", "not mine")

    @hookimpl
    def byoc_codegen(self, functions: Sequence[Function], context: CompileContext) -> CodegenResult:
        assert context.module is not None
        return CodegenResult(CSourceCodegen().generate(functions, context.module.constants))


def inputs(rows: int = 3) -> list[np.ndarray]:
    generator = np.random.default_rng(0)
    return [generator.standard_normal((rows, 8)).astype(np.float32) for _ in range(2)]


@pytest.fixture(scope="module")
def printed() -> Executable:
    """The model with one region of C kernels, and `exp` on the host."""
    return byoc_core.build(byoc_core.parse(MODEL), backends=[PrintedC()])


@pytest.fixture(scope="module")
def found(printed: Executable) -> Profile:
    return profile(printed, inputs(), num_calls=20, peaks=PEAKS)


def region(found: Profile, backend: str) -> RegionProfile:
    (only,) = [item for item in found.regions if item.backend == backend]
    return only


def test_regions_have_the_bytes_and_operations_of_the_report(printed: Executable, found: Profile) -> None:
    assert found.sizes == {"n": 3}
    assert found.num_calls == 20
    taken, host = region(found, "printed"), region(found, "host")
    assert taken.name in {row["name"] for row in printed.report_data["regions"]}
    assert (taken.calls, taken.nbytes) == (1, 3 * 24 * 4)
    assert (host.calls, host.nbytes) == (1, 2 * 24 * 4)
    flops = {row["op"]: row["flops"] for row in printed.report_data["ops"]}
    assert flops["add"] == "8*n"
    assert taken.flops == 24 * 3
    assert sum(item.seconds for item in found.regions) + found.machine_seconds == pytest.approx(found.seconds)
    assert 0 < found.machine_seconds < found.seconds


def test_each_op_of_a_region_is_in_one_part(printed: Executable, found: Profile) -> None:
    parts = region(found, "printed").parts
    rows = [row for row in printed.report_data["ops"] if row["outcome"] == "printed"]
    assert [row["location"] for row in rows] == ["line 6", "line 7", "line 8"]
    assert [op for part in parts for op in part.ops] == [
        OpName(row["op"], row["name"], row["location"]) for row in rows
    ]
    assert [part.calls for part in parts] == [1, 1, 1]
    assert [part.flops for part in parts] == [24, 24, 24]
    assert [part.nbytes for part in parts] == [3 * 96, 2 * 96, 2 * 96]
    assert 0 < sum(part.seconds for part in parts) <= region(found, "printed").seconds


def test_rooflines_are_least_seconds_over_seconds(found: Profile) -> None:
    for part in region(found, "printed").parts:
        assert found.roofline(part) == pytest.approx(max(part.flops, part.nbytes) / 1e9 / part.seconds)
    without = profile_without_peaks(found)
    assert without.roofline(region(found, "printed")) is None


def profile_without_peaks(found: Profile) -> Profile:
    return Profile(found.function, found.sizes, 1, 1, found.seconds, found.regions)


def lower(function: Function, builder: LoweringBuilder) -> None:
    (x, y), (out,) = builder.inputs, builder.outputs
    total = builder.allocate(tensor(out.shape), "total")
    size = out.size
    builder.call_extern("toy_add", x, y, total.written(), size)
    builder.call_extern("toy_scale", total, out.written(), size, 2.0)


def test_the_calls_of_a_lowered_region_are_listed() -> None:
    toy = LoweringToy(lower, ops=("add",))
    executable = byoc_core.build(byoc_core.parse(MODEL), backends=[toy])
    found = profile(executable, inputs(), num_calls=10, peaks=PEAKS)
    lowered = region(found, "toy")
    assert lowered.calls == 1
    assert [part.name for part in lowered.parts] == [f"{lowered.name}_step0", f"{lowered.name}_step1"]
    assert all(part.seconds > 0 for part in lowered.parts)
    assert sum(part.seconds for part in lowered.parts) == pytest.approx(lowered.seconds)
    assert lowered.flops == 24
    assert lowered.parts[0].name in str(found)
    names = [event["name"] for event in found.to_trace()["traceEvents"]]
    assert names.count(f"{lowered.name}_step1") == len(found.records)


def test_results_are_those_of_an_ordinary_machine_and_profiles_travel_as_json(
    printed: Executable, found: Profile
) -> None:
    results = byoc_core.VirtualMachine(printed)["main"](*inputs())
    recorded = byoc_core.VirtualMachine(printed, record=lambda name, record: None)["main"](*inputs())
    np.testing.assert_array_equal(results, recorded)
    data = json.loads(json.dumps(found.to_data(), allow_nan=False))
    assert data["seconds"] == found.seconds
    assert [item["name"] for item in data["regions"]] == [item.name for item in found.regions]
    text = str(found)
    assert "n = 3" in text
    assert all(item.name in text for item in found.regions)


def test_a_saved_artifact_has_the_same_regions_and_parts(printed: Executable, found: Profile, tmp_path: Path) -> None:
    printed.save(tmp_path / "m.byoc")
    loaded = byoc_core.load(tmp_path / "m.byoc", allow_native=True)
    again = profile(loaded, dict(zip("xy", inputs(), strict=True)), num_calls=10, peaks=PEAKS)

    def outline(item: Profile) -> list[object]:
        return [(r.name, r.backend, r.calls, r.flops, r.nbytes, [p.name for p in r.parts]) for r in item.regions]

    assert outline(again) == outline(found)


def test_impossible_requests_are_errors(printed: Executable) -> None:
    with pytest.raises(OptionsError, match="num_calls"):
        profile(printed, inputs(), num_calls=0)
    with pytest.raises(OptionsError, match="warm_up"):
        profile(printed, inputs(), warm_up=-1)
    with pytest.raises(CallError, match="has no input `z`"):
        profile(printed, {"x": inputs()[0], "z": inputs()[1]})
    with pytest.raises(CallError, match="wrong number"):
        profile(printed, inputs()[:1])
    with pytest.raises(CallError, match="is not in the program"):
        profile(printed, inputs(), function="mian")


def test_limits_of_the_machine_are_measured() -> None:
    peaks = measure_peaks(1)
    assert peaks.flops > 1e8
    assert peaks.bandwidth > 1e7
    assert peaks.fastest_seconds(peaks.flops, 0) == pytest.approx(1)
    assert peaks.fastest_seconds(0, 2 * peaks.bandwidth) == pytest.approx(2)
    assert Peaks(0, 0).fastest_seconds(1, 1) == 0
