"""Generated code on several threads: the same bits on any number, few threads under many callers, safe after a fork."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import byoc_core
import numpy as np
import pytest
from byoc_core.artifact import Executable
from byoc_core.runtime.threads.openmp import load_openmp

pytestmark = pytest.mark.interpreter

WORK = "byoc_core.authoring.csource_parallel.PARALLEL_WORK_PS"
needs_openmp = pytest.mark.skipif(load_openmp() is None, reason="the system has no libgomp")

Shapes = Sequence[tuple[Any, ...]]

# On sizes that no tile divides: the op, its operands, and the parallel loops of its kernel, the same with all vectors.
CASES: dict[str, tuple[str, Shapes, int]] = {
    "conv2d with padding": ("R.nn.conv2d(x, w, padding=(1, 1))", [(2, 5, 9, 31), (67, 5, 3, 3)], 3),
    "conv2d with padding, larger": ("R.nn.conv2d(x, w, padding=(1, 1))", [(2, 5, 29, 31), (67, 5, 3, 3)], 4),
    "conv2d, strided and grouped": (
        "R.nn.conv2d(x, w, strides=(2, 2), padding=(1, 1), groups=3)",
        [(1, 6, 17, 15), (33, 2, 5, 5)],
        4,
    ),
    "conv2d, pointwise": ("R.nn.conv2d(x, w)", [(2, 7, 21, 23), (13, 7, 1, 1)], 3),
    "conv2d, channels last": ('R.nn.conv2d(x, w, data_layout="NHWC")', [(1, 9, 31, 19), (133, 19, 2, 3)], 2),
    "conv2d, a large filter": ('R.nn.conv2d(x, w, data_layout="NHWC")', [(1, 7, 9, 130), (150, 130, 3, 3)], 2),
    "conv1d": ("R.nn.conv1d(x, w, padding=(1,))", [(2, 5, 71), (67, 5, 3)], 3),
    "conv2d_transpose": ("R.nn.conv2d_transpose(x, w, strides=(2, 2))", [(2, 5, 9, 31), (5, 19, 3, 3)], 1),
    "dense": ("R.nn.dense(x, w)", [(3, 17), (131, 17)], 1),
    "dense, one row": ("R.nn.dense(x, w)", [(1, 17), (131, 17)], 1),
    "batched matmul": ("R.matmul(x, w)", [(2, 5, 7, 6), (5, 6, 96)], 1),
    "matmul with a padded panel": ("R.matmul(x, w)", [(2, 13, 7), (2, 7, 133)], 1),
    "elementwise": ("R.exp(x)", [(7, 13, 31)], 1),
    "broadcast": ("R.multiply(x, w)", [(1, 5, 13, 31), (5, 1, 1)], 1),
    "max pool": ("R.nn.max_pool2d(x, pool_size=(3, 3), strides=(2, 2), padding=(1, 1))", [(1, 7, 17, 55)], 1),
    "average pool": ("R.nn.avg_pool2d(x, pool_size=(2, 2), strides=(2, 2))", [(2, 3, 12, 14)], 1),
    "sum": ("R.sum(x, axis=(2, 3))", [(1, 7, 9, 5)], 1),
    "mean over the first axis": ("R.mean(x, axis=(0,))", [(5, 30, 50)], 1),
    "softmax": ("R.nn.softmax(x)", [(13, 31)], 1),
    "softmax of columns": ("R.nn.softmax(x, axis=0)", [(13, 531)], 1),
    "permute_dims": ("R.permute_dims(x, axes=(0, 2, 3, 1))", [(1, 7, 5, 3)], 1),
    "symbolic conv2d": ("R.nn.conv2d(x, w, padding=(1, 1))", [("n", 3, "h", 13), (9, 3, 3, 3)], 3),
    "symbolic batch of conv2d": ("R.nn.conv2d(x, w, padding=(1, 1))", [("n", 3, 8, 13), (9, 3, 3, 3)], 2),
    "symbolic dense": ("R.nn.dense(x, w)", [("n", 17), ("m", 17)], 2),
    "symbolic matmul": ("R.matmul(x, w)", [("b", "n", 7), ("b", 7, "m")], 1),
    "symbolic elementwise": ("R.exp(x)", [("n", "m")], 1),
    "symbolic softmax": ("R.nn.softmax(x)", [("n", "m")], 1),
}
SIZES = {"n": 11, "m": 53, "b": 3, "h": 8}


def text_of(expression: str, shapes: Shapes) -> str:
    params = ", ".join(f'{name}: R.Tensor({shape!r}, "float32")' for name, shape in zip("xw", shapes, strict=False))
    return f"@R.ir_module\nclass M:\n  @R.function\n  def main({params}):\n    y = {expression}\n    return y\n"


def compile_case(expression: str, shapes: Shapes) -> Executable:
    module = byoc_core.parse(text_of(expression, shapes))
    return byoc_core.build(module, backends=["ccompiler"], fallback="error")


def count_loops(executable: Executable) -> int:
    return sum(module.get_source("c").count("byoc_parallel_for(") for module in executable.modules)


@pytest.mark.parametrize("case", CASES)
def test_the_bits_do_not_depend_on_the_number_of_threads(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expression, shapes, num_loops = CASES[case]
    monkeypatch.setattr(WORK, 1)
    parallel = compile_case(expression, shapes)
    assert count_loops(parallel) == num_loops
    monkeypatch.setattr(WORK, 10**18)
    alone = compile_case(expression, shapes)
    rng = np.random.default_rng(0)
    arrays = [
        rng.standard_normal([SIZES[size] if isinstance(size, str) else size for size in shape], np.float32)
        for shape in shapes
    ]
    # The form of one thread is held against oracles by the other tests of this folder.
    expected = byoc_core.VirtualMachine(alone)["main"](*arrays)
    for number in (1, 2, 3, 7):
        result = byoc_core.VirtualMachine(parallel, num_threads=number)["main"](*arrays)
        assert np.asarray(result).tobytes() == np.asarray(expected).tobytes(), number


def test_constant_weights_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WORK, 1)
    rng = np.random.default_rng(0)
    builder: Any = byoc_core.FunctionBuilder("main")
    x = builder.param("x", byoc_core.TensorType((9, 13), "float32"))
    product = builder.emit("nn.dense", x, rng.standard_normal((301, 13), np.float32))
    module = byoc_core.IRModule({"main": builder.finish(builder.emit("nn.relu", product))}, builder.constants)
    executable = byoc_core.build(module, backends=["ccompiler"], fallback="error")
    assert count_loops(executable) == 1
    array = rng.standard_normal((9, 13), np.float32)
    results = [byoc_core.VirtualMachine(executable, num_threads=n)["main"](array) for n in (1, 2, 3, 7)]
    assert len({np.asarray(result).tobytes() for result in results}) == 1


def test_zero_sizes_have_no_items(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WORK, 1)
    machine = byoc_core.VirtualMachine(compile_case("R.exp(x)", [("n", "m")]), num_threads=2)
    assert np.shape(machine["main"](np.empty((0, 5), np.float32))) == (0, 5)
    machine = byoc_core.VirtualMachine(compile_case("R.nn.dense(x, w)", [("n", 4), ("m", 4)]), num_threads=2)
    assert np.shape(machine["main"](np.empty((3, 4), np.float32), np.empty((0, 4), np.float32))) == (3, 0)


def test_only_work_that_is_worth_it_is_shared() -> None:
    small, large = (compile_case("R.exp(x)", [(size,)]) for size in (1_000, 1_000_000))
    assert (count_loops(small), count_loops(large)) == (0, 1)
    assert not any(module.uses_threads for module in small.modules)
    assert any(module.uses_threads for module in large.modules)
    unknown = compile_case("R.exp(x)", [("n",)])
    (text,) = (module.get_source("c") for module in unknown.modules)
    assert "if ((100.0 * dim_n) >= 20000000) byoc_parallel_for(" in text


HEAD = """
import json, os, signal, sys, threading, time
import byoc_core, numpy as np
from byoc_core.runtime import threads

vm = byoc_core.VirtualMachine(byoc_core.load(sys.argv[1], allow_native=True))
x = np.random.default_rng(0).standard_normal((1_000_000,)).astype("float32")
expected = np.load(sys.argv[2])
ALARM_S = 60


def is_right():
    return bool((vm["main"](x) == expected).all())


def num_tasks():
    return len(os.listdir("/proc/self/task"))


def num_tasks_of_calls():
    # A call after time lost with busy processors makes no threads.
    end = time.monotonic() + 20
    while num_tasks() < threads.num_threads() and time.monotonic() < end:
        assert is_right()
    return num_tasks()
"""


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """An artifact with a loop worth several threads, and the result on the input of ``HEAD``."""
    folder = tmp_path_factory.mktemp("threads")
    executable = compile_case("R.exp(x)", [("n",)])
    executable.save(folder / "model.byoc")
    x = np.random.default_rng(0).standard_normal((1_000_000,)).astype("float32")
    np.save(folder / "expected.npy", byoc_core.VirtualMachine(executable, num_threads=1)["main"](x))
    return folder / "model.byoc", folder / "expected.npy"


def answer(saved: tuple[Path, Path], script: str, environment: Mapping[str, str] | None = None) -> Any:
    """Run a script with the saved model in a fresh process, and return the last line of output, parsed as JSON."""
    variables = {
        name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_", "BYOC_NUM"))
    }
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", HEAD + script, *map(str, saved)],
        env={**variables, "OPENBLAS_NUM_THREADS": "1", **(environment or {})},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("native", ["0", "1"])
@needs_openmp
def test_a_machine_has_its_number_of_threads_and_small_work_none(saved: tuple[Path, Path], native: str) -> None:
    script = """
found = [num_tasks()]
vm["main"](x[:100])
found.append(num_tasks())
found.append(is_right())
found.append(num_tasks_of_calls())
print(json.dumps(found))
"""
    environment = {"BYOC_NUM_THREADS": "3", "BYOC_NATIVE": native}
    assert answer(saved, script, environment) == [1, 1, True, 3]
    assert answer(saved, script, {**environment, "BYOC_NUM_THREADS": "1"}) == [1, 1, True, 1]


@needs_openmp
def test_the_setting_of_the_thread_is_as_it_was_after_a_call(saved: tuple[Path, Path]) -> None:
    script = """
import ctypes

gomp = ctypes.CDLL("libgomp.so.1")
gomp.omp_set_num_threads(5)
found = [is_right(), num_tasks_of_calls(), gomp.omp_get_max_threads(), threads.num_threads()]
print(json.dumps([*found, "GOMP_SPINCOUNT" in os.environ]))
"""
    assert answer(saved, script, {"BYOC_NUM_THREADS": "2"}) == [True, 2, 5, 2, False]


@needs_openmp
@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, "1000"),
        ({"GOMP_SPINCOUNT": "77"}, "77"),
        ({"OMP_WAIT_POLICY": "passive"}, "0"),
        ({"OMP_WAIT_POLICY": "active"}, "30000000000"),
    ],
)
def test_how_long_workers_spin_is_the_environments_to_say(
    saved: tuple[Path, Path], environment: dict[str, str], expected: str
) -> None:
    """On request of ``OMP_DISPLAY_ENV``, libgomp shows the settings during loading."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_"))}
    done = subprocess.run(
        [sys.executable, "-c", HEAD + "assert is_right()", *map(str, saved)],
        env={**variables, "OMP_DISPLAY_ENV": "verbose", "BYOC_NUM_THREADS": "2", **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert f"GOMP_SPINCOUNT = '{expected}'" in done.stderr


@needs_openmp
@pytest.mark.parametrize("native", ["0", "1"])
def test_many_callers_are_right_and_make_few_threads(saved: tuple[Path, Path], native: str) -> None:
    script = """
threads.set_num_threads(3)
results, most = [], 0
start = threading.Barrier(33)


def call():
    start.wait()
    for _ in range(10):
        results.append(is_right())
    while most <= 33 and time.monotonic() < deadline:
        results.append(is_right())


deadline = time.monotonic() + 60
callers = [threading.Thread(target=call) for _ in range(32)]
for caller in callers:
    caller.start()
start.wait()
while any(caller.is_alive() for caller in callers):
    most = max(most, num_tasks())
for caller in callers:
    caller.join()
deadline = time.monotonic() + 10
while num_tasks() > 1 and time.monotonic() < deadline:
    time.sleep(0.01)
print(json.dumps([len(results), all(results), most, num_tasks()]))
"""
    number, right, most, rest = answer(saved, script, {"BYOC_NATIVE": native})
    # 32 callers and the main thread; 8 teams may wait with two workers each, those of a call under way work, and two
    # that have ended may still be listed.
    assert number >= 320
    assert right
    assert 33 < most <= 33 + 8 * 2 + 2 + 2
    assert rest == 1


@needs_openmp
@pytest.mark.parametrize("native", ["0", "1"])
def test_forked_processes_run_after_parallel_work_of_their_parents(saved: tuple[Path, Path], native: str) -> None:
    script = """
import multiprocessing


def child(number):
    signal.alarm(ALARM_S)
    if not is_right():
        return -1
    return num_tasks_of_calls()


found = [is_right()]
with multiprocessing.get_context("fork").Pool(2) as pool:
    found += pool.map(child, range(2), chunksize=1)
found.append(is_right())
pid = os.fork()
if pid == 0:
    signal.alarm(ALARM_S)
    grandchild = os.fork()
    if grandchild == 0:
        signal.alarm(ALARM_S)
        os._exit(0 if is_right() else 3)
    status = os.waitstatus_to_exitcode(os.waitpid(grandchild, 0)[1])
    os._exit(status if is_right() else 4)
found.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
print(json.dumps(found))
"""
    found = answer(saved, script, {"BYOC_NUM_THREADS": "3", "BYOC_NATIVE": native})
    assert found == [True, 3, 3, True, 0]


@needs_openmp
@pytest.mark.parametrize("native", ["0", "1"])
def test_a_child_whose_workers_could_not_be_ended_runs_in_one_thread(saved: tuple[Path, Path], native: str) -> None:
    """As with a libgomp unable to end a team."""
    script = """
found = [is_right()]
threads.use_openmp()._pause = None
pid = os.fork()
if pid == 0:
    signal.alarm(ALARM_S)
    os._exit(num_tasks() if is_right() else 9)
found.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
found += [is_right(), num_tasks_of_calls()]
print(json.dumps(found))
"""
    assert answer(saved, script, {"BYOC_NUM_THREADS": "3", "BYOC_NATIVE": native}) == [True, 1, True, 3]


@needs_openmp
def test_a_fork_while_another_thread_computes_leaves_the_child_its_workers(saved: tuple[Path, Path]) -> None:
    script = """
stop = threading.Event()


def compute():
    while not stop.is_set():
        vm["main"](x)


caller = threading.Thread(target=compute)
caller.start()
codes = []
for _ in range(20):
    pid = os.fork()
    if pid == 0:
        signal.alarm(ALARM_S)
        os._exit(num_tasks_of_calls() if is_right() else 9)
    codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
stop.set()
caller.join()
print(json.dumps(codes))
"""
    assert answer(saved, script, {"BYOC_NUM_THREADS": "2"}) == [2] * 20


@pytest.mark.parametrize("native", ["0", "1"])
def test_without_libgomp_everything_runs_in_one_thread(saved: tuple[Path, Path], tmp_path: Path, native: str) -> None:
    (tmp_path / "libgomp.so.1").write_text("not a library")
    environment = {"LD_LIBRARY_PATH": str(tmp_path), "BYOC_NUM_THREADS": "3", "BYOC_NATIVE": native}
    assert answer(saved, "print(json.dumps([is_right(), num_tasks()]))", environment) == [True, 1]


@needs_openmp
def test_an_exported_library_runs_parallel_loops_by_itself(tmp_path: Path) -> None:
    compile_case("R.exp(x)", [(1_000_000,)]).export_library(tmp_path / "model.so")
    script = """
import json, os, sys
import numpy as np
from tvm_ffi import load_module

module = load_module(sys.argv[1])
assert "byoc_core" not in sys.modules
x, y = np.ones(1_000_000, "float32"), np.zeros(1_000_000, "float32")
(name,) = [name for name in sys.argv[2:]]
before = len(os.listdir("/proc/self/task"))
module[name](x, y)
print(json.dumps([len(os.listdir("/proc/self/task")) - before, float(np.ptp(y))]))
"""
    pytest.importorskip("tvm_ffi")
    symbol = compile_case("R.exp(x)", [(1_000_000,)]).modules[0].function_names[0]
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "model.so"), symbol],
        env={**os.environ, "OMP_NUM_THREADS": "3"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == [2, 0.0]
