"""Parts of recorded calls: steps with the ops of the offload report, by machine code and by Python."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import byoc_core
import numpy as np
import pytest
from byoc_core.cli.demo_model import make_demo_image, make_demo_model
from byoc_core.ir import tensor
from byoc_core.runtime.extension import extension as core_extension
from byoc_core.runtime.parts import Event, events_of, record_call, start_recording
from byoc_dnnl.calls import Call
from byoc_dnnl.engine import DnnlModule
from byoc_dnnl.native import extension, extension_status
from byoc_dnnl.origins import ops_of_steps
from byoc_dnnl.program import Program

from core.tests.recorded_parts import check_times, ops_in, record_run, rows_in_regions
from plugins.dnnl.tests.dnnl_region import Region, emit


def demo() -> byoc_core.Executable:
    executable = byoc_core.build(make_demo_model(), backends=["dnnl"])
    assert any(isinstance(module, DnnlModule) for module in executable.modules)
    return executable


def demo_inputs(executable: byoc_core.Executable) -> dict[str, np.ndarray]:
    (spec,) = executable.functions["main"].inputs
    return {spec.name: make_demo_image()}


def parts_of(events: list[Event]) -> list[tuple[str, str]]:
    return [(part, ops or "") for _, part, ops, _, _ in events if part is not None]


@pytest.mark.parametrize("num_threads", [1, 2])
def test_each_op_of_the_report_is_in_one_step(num_threads: int) -> None:
    executable = demo()
    events = record_run(executable, demo_inputs(executable), num_threads=num_threads)
    check_times(events)
    assert ops_in(events) == Counter(rows_in_regions(executable))
    assert len(parts_of(events)) < len(rows_in_regions(executable)), "nothing was fused"
    for part, ops in parts_of(events):
        title, *_ = part.split("  ")
        computed = [line.split()[0] for line in ops.splitlines()]
        # Some processors need another layout at a border: the reorder computes no op.
        titled = [op for op in title.split(" + ") if "check" not in op and op != "reorder"]
        assert [op for op in computed if op != "reshape"] == titled


def test_parts_are_named_as_in_the_listing_of_primitives(tmp_path: Path) -> None:
    executable = demo()
    executable.save(tmp_path / "model.byoc")
    loaded = byoc_core.load(tmp_path / "model.byoc")
    events = record_run(loaded, demo_inputs(loaded), num_threads=1)
    assert ops_in(events) == Counter(rows_in_regions(loaded))
    (module,) = loaded.modules
    assert isinstance(module, DnnlModule)
    (program,) = (program for _, region in module.regions() for (n, _), program in region.programs.items() if n == 1)
    assert isinstance(program, Program)
    assert [part for part, _ in parts_of(events)] == list(map(str, program.plan.steps))


def test_any_sizes() -> None:
    region = Region()
    x = region.builder.param("x", tensor(("n", 64)))
    value = emit(region, "nn.dense", x, region.builder.const(region.draw(32, 64)))
    value = emit(region, "nn.relu", emit(region, "nn.bias_add", value, region.builder.const(region.draw(32))))
    region.finish(emit(region, "add", value, value))
    executable = byoc_core.build(region.ir, backends=["dnnl"], fallback="error")
    for rows in (1, 7, 1):
        events = record_run(executable, {"x": region.draw(rows, 64)}, "f")
        check_times(events)
        assert ops_in(events) == Counter(rows_in_regions(executable))


def test_steps_of_attention_name_the_attention() -> None:
    region = Region()
    parts = [region.builder.param(name, tensor((1, 2, 8, 16))) for name in "qkv"]
    attended = emit(region, "nn.attention", *parts)
    region.finish(emit(region, "tanh", emit(region, "negative", attended)))
    executable = byoc_core.build(region.ir, backends=["dnnl"], fallback="error")
    events = record_run(executable, {name: region.draw(1, 2, 8, 16) for name in "qkv"}, "f")
    found = ops_in(events)
    (attention,) = (row for row in rows_in_regions(executable) if row[0] == "nn.attention")
    assert set(found) == set(rows_in_regions(executable))
    assert found.pop(attention) > 1
    assert set(found.values()) == {1}


def test_a_failed_check_ends_the_steps_and_the_kernels_of_the_host_follow() -> None:
    executable = demo()
    inputs = {name: np.full_like(image, np.nan) for name, image in demo_inputs(executable).items()}
    events = record_run(executable, inputs)
    check_times(events)
    titles = [part.partition("  ")[0] for part, _ in parts_of(events)]
    last = titles.index("check for finite numbers")
    assert titles[last + 1 :] == [op for op, _ in rows_in_regions(executable)]


def test_eight_threads() -> None:
    executable = demo()
    inputs = demo_inputs(executable)
    expected = byoc_core.VirtualMachine(executable, num_threads=1).run("main", inputs)
    records: list[list[Event]] = []
    machine = byoc_core.VirtualMachine(
        executable, num_threads=1, record=lambda _, record: records.append(events_of(record))
    )
    with ThreadPoolExecutor(8) as pool:
        results = [*pool.map(lambda _: machine.run("main", inputs), range(100))]
    assert all(np.array_equal(result, expected) for result in results)
    assert len(records) == 100
    for events in records:
        check_times(events)
        assert ops_in(events) == Counter(rows_in_regions(executable))


SCRIPT = """
import byoc_core
from collections import Counter
from byoc_core.cli.demo_model import make_demo_image, make_demo_model
from byoc_core.runtime import parts
from byoc_dnnl import program
marks = []
program.mark_part = lambda *part: (marks.append(part), parts.mark_part(*part))
executable = byoc_core.build(make_demo_model(), backends=["dnnl"])
(name,) = (spec.name for spec in executable.functions["main"].inputs)
inputs = {name: make_demo_image()}
plain = byoc_core.VirtualMachine(executable)
first = plain.run("main", inputs)
(module,) = executable.modules
programs = [found for _, region in module.regions() for found in region.programs.values()]
print(len(marks), any(found.parts for found in programs))
events = []
recording = byoc_core.VirtualMachine(executable, record=lambda _, record: events.extend(parts.events_of(record)))
assert (recording.run("main", inputs) == first).all()
num_events = len(events)
plain.run("main", inputs)
assert len(events) == num_events
rows = Counter(f"{row['op']} {row['name']}" for row in executable.report_data["ops"])
found = Counter(line for _, _, ops, _, _ in events for line in (ops or "").splitlines())
print(found == rows, bool(marks), all(found.parts for found in programs))
"""


needs_extension = pytest.mark.skipif(
    extension() is None or core_extension() is None, reason=extension_status() or "a C extension is missing"
)


@pytest.mark.parametrize(("switch", "marks_in_python"), [("0", True), pytest.param("1", False, marks=needs_extension)])
def test_nothing_is_marked_before_a_machine_records(switch: str, marks_in_python: bool) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "BYOC_NATIVE": switch},
        timeout=120,
    )
    assert done.stdout.split() == ["0", "False", "True", str(marks_in_python), "True"]


def test_programs_built_while_a_machine_records_report() -> None:
    start_recording()
    region = Region()
    region.finish(emit(region, "exp", region.builder.param("x", tensor((4,)))))
    (name,) = region.module.function_names
    out = np.empty(4, np.float32)
    _, record = record_call(3, region.module.get_function(name).impl, (np.zeros(4, np.float32), out))
    assert out.tolist() == [1.0] * 4
    assert [(index, ops) for index, part, ops, _, _ in events_of(record) if part is not None] == [(3, "exp lv0")]


def test_calls_without_steps_are_listed_beside_readers_or_makers() -> None:
    def call(output: int, *inputs: int) -> Call:
        return Call("op", inputs, (output,), (), (), {}, f"op v{output}")

    calls = [call(1, 0), call(2, 1), call(3, 2), call(4, 3), call(5, 4)]
    assert ops_of_steps(calls, [(2,), (), (3,)]) == ["op v1\nop v2", "", "op v3\nop v4\nop v5"]
    assert ops_of_steps(calls[:1], [()]) == ["op v1"]
    assert ops_of_steps(calls, []) == []
