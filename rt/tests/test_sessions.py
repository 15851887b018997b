"""Sessions and virtual machines of byoc-core run functions by this library: results, errors, memory, threads."""

from __future__ import annotations

import gc
import importlib
import logging
import multiprocessing
import os
import pickle
import signal
import threading
import tomllib
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import byoc_core
import byoc_rt
import numpy as np
import numpy.typing as npt
import onnx
import pytest
from byoc_core import Session, VirtualMachine
from byoc_core.artifact import Executable
from byoc_core.errors import CallError, ExecutionError
from byoc_core.native.toolchain import Toolchain
from byoc_core.runtime.csource import CSourceModule
from byoc_core.runtime.module import Signature
from byoc_core.vm import Builtin, DynamicTensor, Goto, If, Instruction, Program, Ret
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.tests.fresh_process import answer_of
from core.tests.lower.test_control_flow_property import Maker
from rt.tests.models import build_detector, draw_image
from rt.tests.saved import assert_same_bits
from rt.tests.test_machine_control_flow import calls
from rt.tests.test_machine_programs import draw
from rt.tests.written_programs import N, advance, builtin, executable_of, function_of, spec

pytestmark = [
    pytest.mark.skipif(not Toolchain.status().ok, reason="no C compiler"),
    pytest.mark.usefixtures("native_machine"),
]

NDArray = npt.NDArray[Any]

# The numbers of the elements above a limit, and these elements doubled: sizes known only after the run.
SELECTION = """
<ir_version: 8, opset_import: ["" : 17]>
selection (float[n] x, float limit) => (int64[k] positions, float[k] doubled)
{
    is_above = Greater(x, limit)
    found = NonZero(is_above)
    axes = Constant<value = int64[1] {0}>()
    positions = Squeeze(found, axes)
    chosen = Gather(x, positions)
    doubled = Add(chosen, chosen)
}
"""


@pytest.fixture
def selection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a model with results of sizes known only after the run, and a cache for its compiled form."""
    monkeypatch.setenv("BYOC_CACHE_DIR", str(tmp_path / "cache"))
    path = tmp_path / "selection.onnx"
    onnx.save_model(onnx.parser.parse_model(SELECTION), path)
    return path


def tuple_of(results: NDArray | tuple[NDArray, ...]) -> tuple[NDArray, ...]:
    return results if isinstance(results, tuple) else (results,)


def feeds_of(*numbers: float, limit: float = 0) -> dict[str, NDArray]:
    return {"x": np.array(numbers, np.float32), "limit": np.array(limit, np.float32)}


def open_both(path: Path, **arguments: Any) -> tuple[Session, Session]:
    """Return sessions of a model, on Python's machine and on the native machine."""
    python = Session(path, ["ccompiler"], machine="python", **arguments)
    native = Session(path, ["ccompiler"], **arguments)
    assert (python.machine.name, native.machine.name) == ("python", "native")
    return python, native


def load_saved(executable: Executable, folder: Path) -> Executable:
    path = folder / "saved.byoc"
    executable.save(path)
    return byoc_core.load(path, allow_native=True)


@given(st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_random_programs_give_equal_results(tmp_path: Path, data: st.DataObject) -> None:
    """Nested branches and loops, symbolic and learnt sizes; buffers of the caller for some calls."""
    executable = load_saved(byoc_core.build(Maker(data.draw).module(), []), tmp_path)
    python, native = (VirtualMachine(executable, machine=machine)["main"] for machine in ("python", "native"))
    assert native.machine.name == "native"
    names = [spec.name for spec in python.params]
    for index, inputs in enumerate(calls()):
        expected = python(*inputs)
        assert isinstance(expected, tuple)
        assert_same_bits(tuple_of(native(*inputs)), expected)
        number = index % len(expected)
        buffers = {native.results[number].name: np.empty_like(expected[number])}
        found = native.run(dict(zip(names, inputs, strict=True)), buffers)
        assert_same_bits(found, expected)
        assert found[number] is buffers[native.results[number].name]


def test_detectors_run_natively_with_the_bits_of_python(tmp_path: Path) -> None:
    path = tmp_path / "detector.byoc"
    byoc_core.build(byoc_core.from_onnx(build_detector()), ["ccompiler"]).save(path)
    native, python = Session(path), Session(path, machine="python")
    assert str(native.machine) == "native (Python would run instructions in each call)"
    assert str(python.machine) == "python (as requested)"
    assert native.report().endswith("\nmachine: native (Python would run instructions in each call)\n")
    for seed in range(4):
        feeds = {"image": draw_image(seed)}
        assert_same_bits(native.run(None, feeds), python.run(None, feeds))


def test_all_kinds_of_calls(selection: Path) -> None:
    python, native = open_both(selection)
    feeds = feeds_of(1, -1, 3, 0.5)
    expected = python.run(None, feeds)
    assert expected[0].tolist() == [0, 2, 3]
    assert_same_bits(native.run(None, feeds), expected)
    assert_same_bits([*native(**feeds).values()], expected)
    assert_same_bits([*native(*feeds.values()).values()], expected)
    assert_same_bits(native.run(["doubled"], feeds), expected[1:])
    assert_same_bits(native.run_async(None, feeds).result(), expected)
    buffers = {"doubled": np.empty(6, np.float32)[::2]}
    found = native.run(None, feeds, out=buffers)
    assert found[1] is buffers["doubled"]
    assert_same_bits(found, expected)
    native.warm_up(n=[1, 5])
    # Strided, unaligned, read-only and big-endian inputs are converted as by Python's machine, or refused.
    strided = {**feeds, "x": np.repeat(feeds["x"], 2)[::2]}
    assert_same_bits(native.run(None, strided), expected)
    unaligned = np.frombuffer(b"\0" + feeds["x"].tobytes(), np.float32, offset=1)
    assert_same_bits(native.run(None, {**feeds, "x": unaligned}), expected)
    assert native.profile(feeds, num_calls=3).num_calls == 3


def test_converted_inputs(selection: Path) -> None:
    python, native = open_both(selection, casting="same_kind")
    feeds = {"x": [1, -1, 3], "limit": 0.5}
    assert_same_bits(native.run(None, feeds), python.run(None, feeds))


ERRORS = [
    lambda session: session.run(None, {"x": np.zeros(3, np.float32)}),
    lambda session: session.run(None, {**feeds_of(1), "y": np.zeros(1)}),
    lambda session: session.run(None, {**feeds_of(1), "x": np.zeros((1, 2), np.float32)}),
    lambda session: session.run(None, {**feeds_of(1), "x": np.zeros(2)}),
    lambda session: session.run(["z"], feeds_of(1)),
    lambda session: session.run(None, feeds_of(1, 2), out={"doubled": np.empty(7, np.float32)}),
    lambda session: session(np.zeros(3, np.float32)),
]


@pytest.mark.parametrize("call", ERRORS)
def test_errors_of_arguments_are_those_of_python(selection: Path, call: Any) -> None:
    python, native = open_both(selection)
    with pytest.raises(CallError) as expected:
        call(python)
    with pytest.raises(CallError) as caught:
        call(native)
    assert str(caught.value) == str(expected.value)


def failing(folder: Path) -> Executable:
    """Return a loaded program with a call that refuses negative numbers, on a tensor of a learnt size."""
    code: list[Instruction] = [builtin(Builtin.CLONE, [0], [2]), advance(2, 1), Ret((1,))]
    dynamics = [DynamicTensor("float32", (N, 4))]
    function = function_of([spec("x", "n", 4)], [spec("y", "n", 4)], code, dynamics=dynamics)
    return load_saved(executable_of(function), folder)


def test_failures_of_callees_are_those_of_python(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    executable = failing(tmp_path)
    python, native = (VirtualMachine(executable, machine=machine)["main"] for machine in ("python", "auto"))
    assert native.machine.name == "native"
    assert VirtualMachine(executable, native=False)["main"].machine.name == "python"
    for _ in range(5):
        with pytest.raises(ExecutionError) as expected:
            python(-draw(2, 4))
        with pytest.raises(ExecutionError) as caught:
            native(-draw(2, 4))
        assert str(caught.value) == str(expected.value)
        assert_same_bits(tuple_of(native(draw(2, 4))), tuple_of(python(draw(2, 4))))
    assert native.machine.name == "native"  # a failure of both machines is no refusal
    assert caplog.records == []


def test_calls_refused_by_the_native_machine_alone_run_in_python(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    callable_ = VirtualMachine(failing(tmp_path))["main"]
    native = callable_._native
    assert native is not None
    x = draw(2, 4)
    caplog.set_level(logging.WARNING, "byoc_core")
    for count in range(1, 6):
        native._call_refused("for a test", (x,))
        assert (callable_.machine.name == "python") == (count >= 3)
        assert_same_bits(tuple_of(callable_(x)), [x + np.float32(1)])
    assert str(callable_.machine) == "python (the native machine has refused 3 calls: for a test)"
    (record,) = caplog.records
    assert "function `main` is run by Python's machine: the native machine has refused" in record.getMessage()


def test_bound_buffers(tmp_path: Path) -> None:
    executable = failing(tmp_path)
    native = VirtualMachine(executable)
    x, y = draw(3, 4), np.empty((3, 4), np.float32)
    bound = native.bind("main", {"x": x}, {"y": y})
    for number in (1, 2):
        x[:] = number
        assert bound() is y
        assert (y == number + 1).all()
    x[0, 0] = -1
    with pytest.raises(ExecutionError, match="row 0 is negative"):
        bound()


def test_results_outlive_session_and_machine(selection: Path) -> None:
    _, native = open_both(selection)
    positions, doubled = native.run(None, feeds_of(*range(1000)))
    assert positions.flags.writeable
    assert positions.ctypes.data % 64 == 0
    alive = weakref.ref(native)
    del native
    gc.collect()
    assert alive() is None
    doubled += 1
    assert doubled.tolist() == [2 * number + 1 for number in range(1, 1000)]
    assert positions[-1] == 999


def test_the_weights_are_mapped_once(tmp_path: Path) -> None:
    """Both machines read the constants in one mapping of the artifact."""
    if not Path("/proc/self/maps").exists():
        pytest.skip("the system does not tell the mappings of a process")
    path = tmp_path / "detector.byoc"
    byoc_core.build(byoc_core.from_onnx(build_detector()), ["ccompiler"]).save(path)
    native = Session(path)
    native.run(None, {"image": draw_image(0)})
    lines = [line for line in Path("/proc/self/maps").read_text("utf-8").splitlines() if line.endswith(path.name)]
    assert native.machine.name == "native"
    assert len(lines) == 1


def test_several_threads_share_a_session(selection: Path) -> None:
    python, native = open_both(selection, num_threads=2)
    drawn = [feeds_of(*np.random.default_rng(seed).standard_normal(50 + 7 * seed)) for seed in range(8)]
    expected = [python.run(None, feeds) for feeds in drawn]
    barrier = threading.Barrier(4)

    def work(number: int) -> None:
        barrier.wait()
        for turn in range(200):
            index = (number + turn) % len(drawn)
            assert_same_bits(native.run(None, drawn[index]), expected[index])

    with ThreadPoolExecutor(4) as pool:
        assert [*pool.map(work, range(4))] == [None] * 4


PARTS = """\
#include "byoc_parallel.h"
static void mark(int64_t begin, int64_t end, const void *data) {
  (void)end;
  ((float *)(uintptr_t)data)[begin] = 1;
}
/* Set the first element of the part of each thread to 1, and all other elements to 0. */
BYOC_EXPORT int32_t __tvm_ffi_parts(void *handle, const TVMFFIAny *args, int32_t num_args, TVMFFIAny *result) {
  (void)handle, (void)num_args, (void)result;
  float *marks = byoc_data((const DLTensor *)args[1].v_ptr);
  for (int64_t i = 0; i < 64; ++i) marks[i] = 0;
  byoc_parallel_for(64, 1, mark, marks);
  return 0;
}
"""


@pytest.mark.parametrize("machine", ["python", "auto"])
def test_calls_have_the_number_of_threads_of_the_session(tmp_path: Path, machine: Any) -> None:
    x, y = spec("x", 64), spec("y", 64)
    code: list[Instruction] = [builtin(Builtin.CLONE, [0], [2]), advance(2, 1), Ret((1,))]
    function = function_of([x], [y], code, dynamics=[DynamicTensor("float32", (64,))])
    module = CSourceModule(PARTS, {"parts": Signature((x,), (y,))})
    path = tmp_path / "parts.byoc"
    Executable(Program((function,), ("parts",)), [module], is_own=True).save(path)
    for num_threads in (1, 2, 1):
        session = Session(path, num_threads=num_threads, machine=machine)
        assert session.machine.name == ("native" if machine == "auto" else "python")
        assert session.run(None, {"x": np.ones(64, np.float32)})[0].sum() == num_threads


def total_of(session: Session) -> float:
    return float(session.run(["doubled"], feeds_of(1, -1, 3))[0].sum())


@pytest.mark.parametrize("method", ["spawn", "fork"])
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_sessions_travel_to_workers(selection: Path, method: str) -> None:
    _, native = open_both(selection)
    assert total_of(native) == 8
    assert total_of(pickle.loads(pickle.dumps(native))) == 8
    with multiprocessing.get_context(method).Pool(1) as pool:
        assert pool.map(total_of, [native] * 3) == [8] * 3


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_forked_children_call_while_other_threads_call(selection: Path) -> None:
    _, native = open_both(selection)
    stopped = threading.Event()

    def work() -> None:
        while not stopped.is_set():
            total_of(native)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(20):
            child = os.fork()
            if not child:
                os._exit(0 if total_of(native) == 8 and total_of(native) == 8 else 1)
            assert os.waitpid(child, 0)[1] == 0
    finally:
        stopped.set()
        for thread in threads:
            thread.join()


LOOPS: dict[str, list[Instruction]] = {
    "steps": [builtin(Builtin.CLONE, [1], [3]), If(0, 3), Goto(0), builtin(Builtin.COPY, [3], [2]), Ret((2,))],
    "jumps": [builtin(Builtin.CLONE, [1], [3]), If(0, 3), Goto(1), builtin(Builtin.COPY, [3], [2]), Ret((2,))],
}
"""Loops without end if the flag is true: over a step of the machine, and over jumps alone."""


@pytest.fixture
def interrupts() -> Iterator[None]:
    """Let interrupts raise KeyboardInterrupt: processes started in the background may ignore the signal."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interrupts")
@pytest.mark.parametrize("loop", LOOPS)
def test_endless_calls_can_be_interrupted(tmp_path: Path, loop: str) -> None:
    flag, dynamics = spec("flag", dtype="bool"), [DynamicTensor("float32", (N, 4))]
    function = function_of([flag, spec("x", "n", 4)], [spec("y", "n", 4)], LOOPS[loop], dynamics=dynamics)
    native = VirtualMachine(load_saved(executable_of(function), tmp_path))["main"]
    assert native.machine.name == "native"
    x = draw(2, 4)
    assert_same_bits(tuple_of(native(np.array(False), x)), [x])
    timer = threading.Timer(0.3, signal.raise_signal, [signal.SIGINT])
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        native(np.array(True), x)
    timer.join()
    assert_same_bits(tuple_of(native(np.array(False), x)), [x])
    assert native.machine.name == "native"


@pytest.mark.parametrize("dtype", byoc_core.dtypes.all_dtypes())
def test_values_of_all_dtypes_pass(tmp_path: Path, dtype: str) -> None:
    function = function_of(
        [spec("x", "n", dtype=dtype)],
        [spec("y", "n", dtype=dtype)],
        [builtin(Builtin.CLONE, [0], [2]), builtin(Builtin.COPY, [2], [1]), Ret((1,))],
        dynamics=[DynamicTensor(dtype, (N,))],
    )
    executable = load_saved(executable_of(function), tmp_path)
    native, python = (VirtualMachine(executable, machine=machine)["main"] for machine in ("native", "python"))
    x = (np.arange(5) % 2).astype(byoc_core.dtypes.to_numpy(dtype))
    assert_same_bits(tuple_of(native(x)), tuple_of(python(x)))


OPEN = """
import json, sys
import numpy as np

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "byoc_rt":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

if sys.argv[2] == "blocked":
    sys.meta_path.insert(0, Blocker())
import byoc_core
from byoc_core.plugin.installation import using
from core.tests.native_machine_installation import installation_with_machines

with using(installation_with_machines({"byoc-rt": "byoc_rt.files:library_path"})):
    session = byoc_core.Session(sys.argv[1])
    (found,) = session.run(None, {"x": np.array([1, -1, 3], np.float32), "limit": np.float32(0)})[:1]
print(json.dumps([session.machine.name, session.machine.reason, found.tolist(), "byoc_rt" in sys.modules]))
"""


def test_fresh_processes_with_and_without_the_package(selection: Path, tmp_path: Path) -> None:
    path = tmp_path / "selection.byoc"
    byoc_core.build(byoc_core.from_onnx(selection), ["ccompiler"]).save(path)
    machine, _, found, is_imported = answer_of(OPEN, str(path), "open")
    assert (machine, found, is_imported) == ("native", [0, 2], True)
    machine, reason, found, is_imported = answer_of(OPEN, str(path), "blocked")
    assert (machine, found, is_imported) == ("python", [0, 2], False)
    assert "importing `byoc_rt.files:library_path` raised ModuleNotFoundError" in reason


def test_models_without_steps_of_python_load_no_native_machine(selection: Path, tmp_path: Path) -> None:
    path = tmp_path / "doubled.byoc"
    inputs = "x: R.Tensor((4,), 'float32'), limit: R.Tensor((), 'float32')"
    text = f"def main({inputs}):\n    y = R.add(x, limit)\n    return y\n"
    byoc_core.build(byoc_core.parse(text), ["ccompiler"]).save(path)
    script = OPEN.replace("[1, -1, 3]", "[1, -1, 3, 0]")
    assert answer_of(script, str(path), "open") == ["python", "Python runs no instruction", [1, -1, 3, 0], False]


def test_the_entry_point_of_the_package_is_the_path_of_the_library() -> None:
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text("utf-8"))["project"]
    module, _, name = project["entry-points"]["byoc.native_machines"]["byoc-rt"].partition(":")
    assert getattr(importlib.import_module(module), name) is byoc_rt.library_path
