"""Regions in a single native call: equal to calls through ``ctypes``, in threads, in forked children, at any sizes."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path

import byoc_core
import numpy as np
import pytest
from byoc_core.artifact import Executable
from byoc_core.errors import CallError, ExecutionError
from byoc_core.ir import Var, tensor
from byoc_core.ir.builder import Operand
from byoc_core.runtime.extension import extension as core_extension
from byoc_core.runtime.threads import num_threads, team_runner
from byoc_dnnl.engine import MAX_PROGRAMS
from byoc_dnnl.engine import Region as BuiltRegion
from byoc_dnnl.native import extension, extension_status
from byoc_dnnl.plan import Check, Plan, Step
from byoc_dnnl.program import Program

from plugins.dnnl.tests.dnnl_region import NDArray, Region
from plugins.dnnl.tests.fake_onednn import Arguments

pytestmark = pytest.mark.interpreter

needs_extension = pytest.mark.skipif(
    extension() is None or core_extension() is None, reason=extension_status() or "a C extension is missing"
)


def _network(batch: int | str = 2) -> Region:
    """Return a region with intermediates in the arena, packed weights, scratch memory, and two results."""
    region = Region()
    x = region.builder.param("x", tensor((batch, 8, 12, 12)))

    def emit(op: str, *operands: Operand, **attrs: object) -> Var:
        (result,) = region.builder.bind(op, operands, attrs).results
        return result

    value = emit("nn.conv2d", x, region.builder.const(region.draw(16, 8, 3, 3)), padding=(1, 1, 1, 1))
    value = emit("nn.relu", emit("nn.bias_add", value, region.builder.const(region.draw(16)), axis=1))
    pooled = emit("nn.max_pool2d", value, pool_size=(2, 2), strides=(2, 2))
    mean = emit("mean", pooled, axis=(2, 3))
    return region.finish(emit("nn.dense", mean, region.builder.const(region.draw(10, 16))), pooled)


def _built(region: Region) -> Executable:
    executable = byoc_core.build(region.ir, backends=["dnnl"], fallback="error")
    assert [module.type_key for module in executable.modules] == ["dnnl"]
    return executable


def _symbol(executable: Executable) -> str:
    (module,) = executable.modules
    (name,) = module.function_names
    return name


def _impl(executable: Executable) -> BuiltRegion:
    impl = executable.modules[0].get_function(_symbol(executable)).impl
    assert isinstance(impl, BuiltRegion)
    return impl


def _call(machine: byoc_core.VirtualMachine, *inputs: NDArray) -> list[NDArray]:
    found = machine["f"](*inputs)
    assert isinstance(found, tuple)
    return list(found)


@pytest.fixture
def no_python(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fail if a region is called, or asked for a program, through Python."""

    def fail(*arguments: object) -> None:
        raise AssertionError("Python was called")

    with monkeypatch.context() as patched:
        patched.setattr(BuiltRegion, "__call__", fail)
        patched.setattr(BuiltRegion, "program", fail)
        yield


@needs_extension
@pytest.mark.parametrize("num_threads", [1, 2])
def test_a_native_call_gives_what_ctypes_gives(num_threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    region = _network()
    x = region.draw(2, 8, 12, 12)
    results = [_call(byoc_core.VirtualMachine(_built(region), num_threads=num_threads), x)]
    results.append(_call(byoc_core.VirtualMachine(_built(region), num_threads=num_threads, native=False), x))
    monkeypatch.setattr("byoc_dnnl.native.extension", lambda: None)
    executable = _built(region)
    assert executable.modules[0].get_function(_symbol(executable)).native is None
    results.append(_call(byoc_core.VirtualMachine(executable, num_threads=num_threads), x))
    for others in results[1:]:
        for found, other in zip(results[0], others, strict=True):
            np.testing.assert_array_equal(found, other)


@needs_extension
def test_a_region_of_several_threads_runs_in_a_team_that_is_spread(monkeypatch: pytest.MonkeyPatch) -> None:
    body_type = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
    runner_type = ctypes.CFUNCTYPE(ctypes.c_int, body_type, ctypes.c_void_p)
    calls = []

    def run_team(body: object, data: int) -> int:
        calls.append(data)
        result: int = runner_type(team_runner())(body, data)
        return result

    callback = runner_type(run_team)
    monkeypatch.setattr("byoc_dnnl.native.team_runner", lambda: ctypes.cast(callback, ctypes.c_void_p).value)
    region = _network(16)
    executable = _built(region)
    machine = byoc_core.VirtualMachine(executable, num_threads=2)
    calls.clear()  # where oneDNN would generate code in the first call, the machine makes one
    for _ in range(3):
        _call(machine, region.draw(16, 8, 12, 12))
    assert len(calls) == 3


@needs_extension
def test_python_is_asked_once_for_each_number_of_threads_and_shape(request: pytest.FixtureRequest) -> None:
    region = _network("n")
    executable = _built(region)
    machines = [byoc_core.VirtualMachine(executable, num_threads=number) for number in (1, 2)]
    inputs = [region.draw(batch, 8, 12, 12) for batch in (1, 2, 3)]
    expected = [_call(machine, x) for machine in machines for x in inputs]
    request.getfixturevalue("no_python")
    found = [_call(machine, x) for machine in machines for x in inputs]
    for left, right in zip(expected, found, strict=True):
        for one, other in zip(left, right, strict=True):
            np.testing.assert_array_equal(one, other)


@needs_extension
def test_inputs_need_no_more_alignment_than_their_elements(request: pytest.FixtureRequest) -> None:
    region = _network()
    machine = byoc_core.VirtualMachine(_built(region), num_threads=1)
    x = region.draw(2, 8, 12, 12)
    expected = _call(machine, x)
    request.getfixturevalue("no_python")
    for offset in range(1, 16):
        memory = np.empty(x.size + 16, np.float32)
        moved = memory[offset : offset + x.size].reshape(x.shape)
        moved[:] = x
        for one, other in zip(expected, _call(machine, moved), strict=True):
            np.testing.assert_array_equal(one, other)


@needs_extension
def test_eight_threads_call_one_module_with_changing_shapes() -> None:
    region = _network("n")
    executable = _built(region)
    machines = [byoc_core.VirtualMachine(executable, num_threads=number) for number in (1, 2)]
    inputs = [region.draw(batch, 8, 12, 12) for batch in range(1, MAX_PROGRAMS + 4)]
    expected = [[_call(machine, x) for x in inputs] for machine in machines]

    def run(seed: int) -> bool:
        generator = np.random.default_rng(seed)
        for _ in range(200):
            number, case = generator.integers(2), generator.integers(len(inputs) if generator.integers(8) == 0 else 4)
            found = _call(machines[number], inputs[case])
            if not all(map(np.array_equal, found, expected[number][case])):
                return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(run, range(8)))
    assert len(_impl(executable).programs) <= MAX_PROGRAMS


@needs_extension
def test_a_region_without_primitives_for_the_sizes_of_a_call_is_computed_by_the_reference(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    region = _network("n")
    machine = byoc_core.VirtualMachine(_built(region), num_threads=1)
    x = region.draw(3, 8, 12, 12)
    expected = _call(machine, x)
    executable = _built(region)
    impl = _impl(executable)
    monkeypatch.setattr(impl, "_make", lambda number, sizes: impl.reference)
    found = _call(byoc_core.VirtualMachine(executable, num_threads=1), x)
    assert set(impl.programs.values()) == {impl.reference}
    for one, other in zip(expected, found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)


@needs_extension
def test_an_error_in_python_reaches_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    region = _network("n")
    executable = _built(region)
    machine = byoc_core.VirtualMachine(executable, num_threads=1)
    error = CallError("argument `x`", "cannot be had")

    def fail(number: int, sizes: object) -> Program:
        raise error

    monkeypatch.setattr(_impl(executable), "_make", fail)
    with pytest.raises(ExecutionError) as caught:
        machine["f"](region.draw(1, 8, 12, 12))
    assert str(caught.value).endswith("failed with ExecutionError: argument `x`: cannot be had")
    monkeypatch.undo()
    assert len(_call(machine, region.draw(1, 8, 12, 12))) == 2


@needs_extension
@pytest.mark.parametrize(
    ("shapes", "text"),
    [
        (((2, 8, 12, 12), (2, 10)), "the tensors do not match the signature"),
        (((2, 8, 12, 12), (2, 16, 36), (2, 10)), "the tensors do not match the signature"),
        (
            ((2, 8, 12, 12), (2, 16, 6, 5), (2, 10)),
            "graph function `{}`, output 0 `output0`: axis 3 has the wrong size; got {}, expected [2, 16, 6, 6]",
        ),
    ],
)
def test_tensors_that_do_not_fit_are_refused_before_anything_is_read(
    shapes: tuple[tuple[int, ...], ...], text: str
) -> None:
    executable = _built(_network())
    entry = executable.modules[0].get_function(_symbol(executable)).native
    assert entry is not None
    arguments = Arguments(shapes, [0] * len(shapes))  # at these addresses there is nothing
    call = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p)
    status = call(entry.function)(entry.context, ctypes.addressof(arguments.block), len(shapes), None)
    assert status < 0
    assert entry.explain(status) == text.format(_symbol(executable), list(shapes[1]))


@needs_extension
def test_where_a_check_does_not_hold_the_reference_kernels_compute() -> None:
    region = _network()
    x = region.draw(2, 8, 12, 12)
    x[1, 3, 5, 5] = np.nan
    executable = _built(region)
    executable.modules[0].prepare()
    (program,) = _impl(executable).programs.values()
    assert isinstance(program, Program)
    assert any(isinstance(step, Check) for step in program.plan.steps)
    pooled, product = np.empty((2, 16, 6, 6), np.float32), np.empty((2, 10), np.float32)
    _impl(executable).reference(x, pooled, product)
    found = _call(byoc_core.VirtualMachine(executable), x)
    np.testing.assert_array_equal(found[0], product)
    np.testing.assert_array_equal(found[1], pooled)


@needs_extension
def test_an_interrupt_in_python_stays_one(monkeypatch: pytest.MonkeyPatch) -> None:
    region = _network("n")
    executable = _built(region)

    def interrupt(number: int, sizes: object) -> Program:
        raise KeyboardInterrupt

    monkeypatch.setattr(_impl(executable), "_make", interrupt)
    with pytest.raises(KeyboardInterrupt):
        byoc_core.VirtualMachine(executable)["f"](region.draw(1, 8, 12, 12))


@pytest.mark.parametrize("native", [pytest.param(True, marks=needs_extension), False])
def test_a_failure_of_a_primitive_names_it(native: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    region = _network()
    executable = _built(region)
    executable.modules[0].prepare()
    (program,) = _impl(executable).programs.values()
    assert isinstance(program, Program)
    steps = [step for step in program.plan.steps if isinstance(step, Step)]
    steps[1] = Step(steps[1].title, steps[1].desc, {})
    if not native:
        monkeypatch.setattr("byoc_dnnl.native.extension", lambda: None)
    with program.engine.threads(1 if program.is_serial else num_threads()):
        broken = Program(program.engine, Plan(steps, program.plan.packings), region.builder.constants)
    with pytest.raises(ExecutionError) as caught:
        broken(region.draw(2, 8, 12, 12), region.draw(2, 10), region.draw(2, 16, 6, 6))
    text = f"oneDNN's `dnnl_primitive_execute` of `{steps[1].title}`: failed; got status 2 (invalid arguments)"
    assert str(caught.value) == text


FORK = """
import os, threading, warnings
import numpy as np, byoc_core
from plugins.dnnl.tests.test_dnnl_native_calls import _network, _built, _call
warnings.simplefilter("ignore")  # Python 3.12 warns of forks beside threads
region = _network("n")
machine = byoc_core.VirtualMachine(_built(region), num_threads=1)
inputs = [region.draw(batch, 8, 12, 12) for batch in (1, 2)]
expected = [_call(machine, x) for x in inputs]
done = threading.Event()
def work():
    while not done.is_set():
        _call(machine, inputs[0])
threads = [threading.Thread(target=work) for _ in range(3)]
for thread in threads: thread.start()
for _ in range(20):
    child = os.fork()
    if child == 0:
        good = all(np.array_equal(a, b) for x, e in zip(inputs, expected) for a, b in zip(_call(machine, x), e))
        os._exit(0 if good else 1)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status == 0, status
done.set()
for thread in threads: thread.join()
print("the same in all children")
"""


@needs_extension
@pytest.mark.skipif(not hasattr(os, "fork"), reason="a system without fork")
def test_a_child_forked_beside_calls_goes_on() -> None:
    root = Path(__file__).parents[3]
    path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(root)]))
    done = subprocess.run(
        [sys.executable, "-c", FORK],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=root,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert (done.stdout.strip(), done.returncode) == ("the same in all children", 0), done.stderr


SLOW = """
import ctypes, os, signal, threading, time, warnings
from byoc_dnnl.engine import open_engine
from byoc_dnnl.native import _FUNCTIONS, _functions, extension
warnings.simplefilter("ignore")  # Python 3.12 warns of forks beside threads
engine, native = open_engine(), extension()
usleep = ctypes.cast(ctypes.CDLL(None).usleep, ctypes.c_void_p).value
functions = list(_functions(engine, is_serial=True, run_team=0))
functions[_FUNCTIONS.index("dnnl_primitive_execute")] = usleep  # of the first argument, the primitive
steps = tuple((native.EXECUTE, microseconds, ()) for microseconds in (300_000, 900_000))
program = native.Program(tuple(functions), engine.pointer.value, 0, 64, (), steps, None, print)
ended = []
def work():
    program.run()
    ended.append(time.monotonic())
signal.alarm(60)
thread = threading.Thread(target=work)
begin = time.monotonic()
thread.start()
time.sleep(0.05)
child = os.fork()
if child == 0:
    signal.alarm(20)
    is_late = time.monotonic() >= begin + 0.3
    os._exit(0 if is_late and program.run() else 1)
print("running" if not ended else "ended", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
thread.join()
"""


@needs_extension
@pytest.mark.skipif(not hasattr(os, "fork"), reason="a system without fork")
def test_a_fork_waits_for_the_end_of_a_primitive_but_not_of_the_program() -> None:
    done = subprocess.run([sys.executable, "-c", SLOW], capture_output=True, text=True, timeout=120, check=False)
    assert (done.stdout.strip(), done.returncode) == ("running 0", 0), done.stderr


@needs_extension
@pytest.mark.skipif(
    not Path("/proc/self/statm").exists(), reason="the system does not tell how much memory is resident"
)
def test_memory_is_steady_over_ten_thousand_calls() -> None:
    region = _network("n")
    executable = _built(region)
    machine = byoc_core.VirtualMachine(executable, num_threads=1)
    inputs = [region.draw(batch, 8, 12, 12) for batch in (1, 2, 3)]

    def call(times: int) -> int:
        for _ in range(times):
            for x in inputs:
                _call(machine, x)
        pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    before = call(500)
    grown = call(3500) - before
    assert grown < 64 * 1024, grown  # 10 bytes for each call would be more
    assert all(isinstance(p, Program) and p.num_frames <= 1 for p in _impl(executable).programs.values())


@pytest.mark.skipif(os.environ.get("BYOC_TEST_INSTALLED") != "1", reason="nox tests the installed wheel, and says so")
def test_the_wheel_holds_the_extension_for_all_versions_of_python() -> None:
    """The extension is optional, so a build without a C compiler succeeds; here there is a compiler."""
    files = {path.as_posix() for path in metadata.files("byoc-dnnl") or ()}
    assert "byoc_dnnl/_native.abi3.so" in files
    assert extension_status() == ""


@needs_extension
def test_the_backend_says_whether_regions_are_native_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    from byoc_dnnl.runtime import byoc_runtime_status

    assert byoc_runtime_status().reason.endswith("; a region is one native call")
    monkeypatch.setattr("byoc_dnnl.runtime.extension_status", lambda: "it was not built")
    assert byoc_runtime_status().reason.endswith("; Python calls each primitive separately: it was not built")
