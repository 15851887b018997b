"""Parts of the calls of graph modules: each op of the report is a part within the call."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import byoc_core
import numpy as np
import pytest
from byoc_core import script as R
from byoc_core.authoring import GraphCodegen
from byoc_core.backend.hooks import CompileContext
from byoc_core.errors import ArtifactError
from byoc_core.runtime.arguments import concrete_shape
from byoc_core.runtime.delegating import DelegatingModule
from byoc_core.runtime.graph import GraphEngine, GraphModule, KernelEngine, decode_document, load_graph, save_graph
from byoc_core.runtime.graph.document import GraphNode
from byoc_core.runtime.graph.encoding import encode_document
from byoc_core.runtime.module import NDArray, PackedFunction, RuntimeModule
from byoc_core.runtime.parts import Event, events_of, record_call, start_recording
from byoc_core.runtime.serial import SerialModule
from byoc_core.runtime.specialised import SpecialisedModule, Variant

from core.tests.recorded_parts import check_times, ops_in, record_run, rows_in_regions
from core.tests.specialised_toys import made_module

MODEL = """
def main(x: R.Tensor((3, 4), "float32")):
    a = R.add(x, x)
    b, c = R.split(a, sections=(1, 3), axis=1)
    d = R.nn.relu(c)
    e = R.exp(d)
    return b, e
"""
SYMBOLIC = """
def main(x: R.Tensor(("n", 4), "float32")):
    a = R.add(x, x)
    b = R.reshape(a, shape=("4*n",))
    c = R.exp(b)
    return c
"""
BRANCHES = """
def main(x: R.Tensor((3,), "float32"), flag: R.Tensor((), "bool")):
    a = R.negative(x)

    def yes(p: R.Tensor((3,), "float32")):
        q = R.exp(p)
        return q

    def no(p: R.Tensor((3,), "float32")):
        r = R.nn.relu(p)
        return r

    y = R.if_(flag, a, regions=[yes, no])
    z = R.add(y, y)
    return z
"""
X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)


@pytest.fixture(scope="module")
def model() -> byoc_core.Executable:
    return byoc_core.build(R.parse(MODEL), [])


def test_each_op_of_the_report_is_a_part_of_its_name(model: byoc_core.Executable) -> None:
    events = record_run(model, {"x": X})
    check_times(events)
    rows = rows_in_regions(model)
    assert ops_in(events) == Counter(rows)
    assert [part for _, part, _, _, _ in events if part is not None] == [op for op, _ in rows]


def test_a_loaded_artifact_has_the_same_parts(model: byoc_core.Executable, tmp_path: Path) -> None:
    model.save(tmp_path / "model.byoc")
    assert ops_in(record_run(byoc_core.load(tmp_path / "model.byoc"), {"x": X})) == Counter(rows_in_regions(model))


def test_parts_of_any_sizes() -> None:
    model = byoc_core.build(R.parse(SYMBOLIC), [])
    for n in (1, 3, 0, 1):
        events = record_run(model, {"x": np.ones((n, 4), np.float32)})
        check_times(events)
        assert ops_in(events) == Counter(rows_in_regions(model))


@pytest.mark.parametrize(("flag", "taken", "other"), [(True, "exp", "nn.relu"), (False, "nn.relu", "exp")])
def test_only_the_taken_branch_has_parts(flag: bool, taken: str, other: str) -> None:
    model = byoc_core.build(R.parse(BRANCHES), [])
    events = record_run(model, {"x": np.ones(3, np.float32), "flag": np.array(flag)})
    check_times(events)
    found = ops_in(events)
    assert set(found.values()) == {1}
    assert set(found) <= set(rows_in_regions(model))
    assert {op for op, _ in found} >= {"negative", taken, "add"}
    assert other not in {op for op, _ in found}


def test_the_record_of_a_thread_holds_its_own_calls_only(model: byoc_core.Executable) -> None:
    records: list[list[Event]] = []
    machine = byoc_core.VirtualMachine(model, record=lambda _, record: records.append(events_of(record)))

    def call(number: int) -> bool:
        x = np.full((3, 4), number, np.float32)
        return all(
            np.array_equal(e, np.exp(np.maximum(2 * x[:, 1:], 0))) for e in [machine.run("main", {"x": x})[1]] * 2
        )

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(call, [n % 5 for n in range(200)]))
    assert len(records) == 200
    for events in records:
        check_times(events)
        assert ops_in(events) == Counter(rows_in_regions(model))


def test_nothing_is_marked_before_a_machine_records() -> None:
    script = f"""
import byoc_core, numpy as np
from byoc_core import script as R
from byoc_core.runtime.graph import function_plan
from byoc_core.runtime.parts import events_of
marks = []
mark_part = function_plan.mark_part
function_plan.mark_part = lambda *part: (marks.append(part), mark_part(*part))
model = byoc_core.build(R.parse('''{MODEL}'''), [])
plain = byoc_core.VirtualMachine(model)
x = np.ones((3, 4), np.float32)
plain.run("main", {{"x": x}})
before = len(marks)
events = []
recording = byoc_core.VirtualMachine(model, record=lambda _, record: events.extend(events_of(record)))
recording.run("main", {{"x": x}})
num_events = len(events)
plain.run("main", {{"x": x}})
print(before, num_events, len(events), [ops for _, _, ops, _, _ in events])
"""
    expected = [None, "add a", "split b", "nn.relu d", "exp e"]
    for switch in ("0", "1"):
        done = subprocess.run(
            [sys.executable, "-c", script],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "BYOC_NATIVE": switch},
            timeout=120,
        )
        assert done.stdout.strip() == f"0 5 5 {expected}"


class _Engine(KernelEngine):
    """Counts requests, and computes composites as a whole."""

    num_requests = 0

    def report_parts(self) -> None:
        self.num_requests += 1

    def bind_composite(self, node: GraphNode, constants: Mapping[str, NDArray]) -> Any:
        return lambda x: np.maximum(x + x, 0)


COMPOSITE = """
def main(x: R.Tensor((3, 4), "float32")):
    def body(p: R.Tensor((3, 4), "float32")):
        a = R.add(p, p)
        b = R.nn.relu(a)
        return b

    y = R.composite("toy.double_relu", x, regions=[body])
    return y
"""


def _module(text: str, engine: GraphEngine | None = None) -> GraphModule:
    module = R.parse(text)
    context = CompileContext("toy", None, module.constants)
    result = GraphCodegen(composites="keep").compile([module["main"]], context, engine)
    assert isinstance(result.module, GraphModule)
    return result.module


def test_the_request_reaches_engines_through_wrapping_modules() -> None:
    engine = _Engine()
    module = _module(MODEL, engine)
    signature = module.find_signature("main")
    assert signature is not None
    variant = Variant("main", (), module)
    for wrapper in (module, SerialModule(module), SpecialisedModule("toy", {"main": signature}, (variant,))):
        before = engine.num_requests
        wrapper.report_parts()
        assert engine.num_requests == before + 1


def test_the_request_reaches_modules_compiled_before_and_after() -> None:
    asked: list[int] = []

    class Module(DelegatingModule):
        def __init__(self, inner: RuntimeModule, size: int) -> None:
            super().__init__(inner)
            self.size = size

        def find_function(self, name: str) -> PackedFunction:
            return self.inner.find_function(name)

        def report_parts(self) -> None:
            asked.append(self.size)

    _, _, signatures = made_module(4)

    def compile_sizes(name: str, sizes: Mapping[str, int]) -> RuntimeModule:
        function = R.parse(f"def f(x: R.Tensor(({sizes['n']},), 'float32')):\n    a = R.add(x, x)\n    return a\n")["f"]
        compiled = GraphCodegen().compile([function], CompileContext("toy")).module
        assert compiled is not None
        return Module(compiled, sizes["n"])

    module = SpecialisedModule("toy", signatures, (), compile_sizes)
    call = module.get_function("f")
    call(np.ones(2, np.float32), np.empty(2, np.float32))
    assert asked == []
    module.report_parts()
    assert asked == [2]
    call(np.ones(3, np.float32), np.empty(3, np.float32))
    call(np.ones(2, np.float32), np.empty(2, np.float32))
    assert asked == [2, 3]


def test_a_document_without_origins_is_loaded_and_has_parts_without_ops() -> None:
    module = _module(MODEL)
    payload = save_graph(module)
    assert b'"origin":"split b"' in payload
    lines = [f',"origin":"{origin}"' for node in module.document.functions["main"].nodes for origin in node.origins]
    for line in lines:
        assert line.encode() in payload
        payload = payload.replace(line.encode(), b"")
    older = payload.replace(b'"version":3', b'"version":1')
    assert encode_document(decode_document(older)) == older
    with pytest.raises(ArtifactError, match="names the origin of a node; got version 1, expected version 3"):
        decode_document(save_graph(module).replace(b'"version":3', b'"version":1'))
    found = load_graph(older, module)  # type: ignore[arg-type]  # the document cites no constants
    assert _parts(found) == [("add", ""), ("split", ""), ("nn.relu", ""), ("exp", "")]


@pytest.mark.parametrize(
    ("engine", "expected"),
    [
        (None, [("add", "add a"), ("nn.relu", "nn.relu b")]),
        (_Engine(), [("toy.double_relu", "add a\nnn.relu b")]),
    ],
)
def test_the_rows_of_a_composite_are_the_ops_of_the_body(
    engine: GraphEngine | None, expected: Sequence[tuple[str, str]]
) -> None:
    assert _parts(_module(COMPOSITE, engine)) == expected


def _parts(module: GraphModule) -> list[tuple[str | None, str | None]]:
    """Return the parts of a recorded call of a module."""
    start_recording()
    function = module.get_function("main")
    assert function.signature is not None
    outputs = [np.empty(concrete_shape(spec, {}, "main"), spec.dtype) for spec in function.signature.outputs]
    _, record = record_call(0, function.impl, (X, *outputs))
    return [(part, ops) for _, part, ops, _, _ in events_of(record)[1:]]
