"""Primitives created by other threads while Python plans: complete, in order, freed once, with failures and forks."""

from __future__ import annotations

import ctypes
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import byoc_core
import numpy as np
import pytest
from byoc_core.errors import ExecutionError
from byoc_core.ir import tensor
from byoc_dnnl import primitive_cache
from byoc_dnnl.creation import Creation
from byoc_dnnl.engine import DnnlModule, open_engine
from byoc_dnnl.engine import Region as BuiltRegion
from byoc_dnnl.extension import extension, extension_status
from byoc_dnnl.handles import Primitive
from byoc_dnnl.library import load_library
from byoc_dnnl.lowerings.epilogue import _Search
from byoc_dnnl.plan import Plan, Step
from byoc_dnnl.planner import Planner
from byoc_dnnl.program import Program
from hypothesis import given, settings
from hypothesis import strategies as st

from plugins.dnnl.tests.dnnl_region import NDArray, Region, emit, need_avx512
from plugins.dnnl.tests.drawn_graphs import DrawnGraph
from plugins.dnnl.tests.test_dnnl_fresh_sizes import counted

WIDTH = 256
pytestmark = [
    pytest.mark.skipif(extension() is None, reason=extension_status()),
    pytest.mark.skipif(load_library().runtime.name != "OPENMP", reason="oneDNN has a single thread"),
]


class _FakeOnednn:
    """Functions in place of oneDNN's: primitive `n + 1000` is created from descriptor `n`.

    Args:
        failing: descriptors without a primitive.
        gate: a wait before each creation.
    """

    def __init__(self, failing: frozenset[int] = frozenset(), gate: Callable[[], object] = lambda: None) -> None:
        self.created: list[int] = []
        self.destroyed: list[int] = []
        self.threads: Counter[int] = Counter()
        self.numbers: list[int] = []

        def create(result: Any, desc: int) -> int:
            gate()
            self.created.append(desc)
            self.threads[threading.get_ident()] += 1
            if desc in failing:
                return 1
            result[0] = desc + 1000
            return 0

        def destroy(primitive: int) -> int:
            self.destroyed.append(primitive)
            return 0

        pointer = ctypes.c_void_p
        self._callbacks: list[Any] = [
            ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(pointer), pointer)(create),
            ctypes.CFUNCTYPE(ctypes.c_int, pointer)(destroy),
            ctypes.CFUNCTYPE(None, ctypes.c_int)(self.numbers.append),
        ]

    def queue(self, num_threads: int, max_creating: int) -> Any:
        native: Any = extension()
        addresses = [ctypes.cast(callback, ctypes.c_void_p).value for callback in self._callbacks]
        return native.Queue(*addresses, num_threads, max_creating, self)


@settings(max_examples=max(1, settings().max_examples // 2), deadline=None)
@given(
    failing=st.frozensets(st.integers(1, 40)),
    count=st.integers(0, 40),
    max_creating=st.integers(0, 3),
    is_canceled=st.booleans(),
)
def test_each_creation_has_an_outcome_in_order(
    *, failing: frozenset[int], count: int, max_creating: int, is_canceled: bool
) -> None:
    fake = _FakeOnednn(failing)
    queue = fake.queue(3, max_creating)
    for desc in range(1, count + 1):
        queue.add(desc, object())
    outcomes = queue.finish(is_canceled)
    assert len(outcomes) == count
    for desc, (address, status) in enumerate(outcomes, 1):
        is_created = desc in fake.created
        assert is_created or is_canceled
        assert (address, status) == ((desc + 1000, 0) if is_created and desc not in failing else (0, int(is_created)))
    assert len(fake.created) == len(set(fake.created))
    assert set(fake.numbers) <= {3}
    assert len(fake.numbers) <= max_creating
    del queue
    assert fake.destroyed == []  # the caller owns all of them


def test_primitives_of_a_dropped_queue_are_freed_once() -> None:
    fake = _FakeOnednn()
    queue = fake.queue(2, 1)
    for desc in range(1, 9):
        queue.add(desc, object())
    del queue
    assert sorted(fake.destroyed) == sorted(desc + 1000 for desc in fake.created)


def test_other_threads_create_while_the_caller_adds() -> None:
    begun, passed = threading.Semaphore(0), threading.Semaphore(0)

    def gate() -> None:
        begun.release()
        passed.acquire()

    fake = _FakeOnednn(gate=gate)
    queue = fake.queue(4, 2)
    for desc in range(1, 6):
        queue.add(desc, object())
    for _ in range(2):  # two threads are at work at once, although nobody waits for them
        assert begun.acquire(timeout=60)
    passed.release(5)
    assert [address for address, _ in queue.finish()] == [1001, 1002, 1003, 1004, 1005]
    assert threading.get_ident() not in fake.threads or len(fake.threads) == 3
    assert fake.numbers == [4, 4]


def test_a_finished_queue_takes_nothing() -> None:
    queue = _FakeOnednn().queue(2, 1)
    assert queue.finish() == []
    for call in (queue.finish, lambda: queue.add(1, object())):
        with pytest.raises(ValueError, match="the queue is finished"):
            call()
    with pytest.raises(ValueError, match="a descriptor has no address"):
        _FakeOnednn().queue(2, 1).add(0, object())
    with pytest.raises(ValueError, match="a queue needs the addresses of functions"):
        _FakeOnednn().queue(0, 1)


def layers(count: int = 2, width: int = WIDTH) -> Region:
    """Return layers on any number of rows, by default with too much work for a single thread."""
    region = Region()
    const = region.builder.const
    value = region.builder.param("x", tensor(("n", width)))
    for _ in range(count):
        inner = emit(region, "matmul", value, const(region.draw(width, 4 * width) / 16))
        inner = emit(region, "tanh", emit(region, "add", inner, const(region.draw(4 * width))))
        outer = emit(region, "matmul", inner, const(region.draw(4 * width, width) / 16))
        value = emit(region, "nn.layer_norm", emit(region, "add", outer, value), *(const(region.draw(width)),) * 2)
    return region.finish(value)


def program_of(region: Region, rows: int, number: int, width: int = WIDTH) -> Program:
    built = region.module.get_function("f").impl
    assert isinstance(built, BuiltRegion)
    program = built.program(number, ((rows, width), (rows, width)))
    assert isinstance(program, Program)
    return program


@contextmanager
def created_by_python() -> Iterator[list[Primitive]]:
    """Yield the list of primitives created by the calling thread, and not by a queue."""
    created: list[Primitive] = []
    original = Primitive.__init__

    def init(self: Primitive, desc: Any) -> None:
        created.append(self)
        original(self, desc)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Primitive, "__init__", init)
        yield created


def test_a_program_of_several_threads_takes_its_primitives_from_the_queue() -> None:
    region = layers()
    program_of(region, 300, 2)  # weights are packed
    with created_by_python() as created:
        several = program_of(region, 301, 2)
    assert created == []
    assert len(several.primitives) >= 6
    with created_by_python() as created:
        single = program_of(region, 301, 1)
    assert len(created) >= 3
    assert len(single.primitives) == len(several.primitives)


def test_equal_steps_share_a_created_primitive() -> None:
    program = program_of(layers(3), 303, 2)
    steps = [step for step in program.plan.steps if isinstance(step, Step)]
    primitives: dict[int, int] = {}
    for step, primitive in zip(steps, program.primitives, strict=True):
        assert primitives.setdefault(id(step.desc), id(primitive)) == id(primitive)
    assert len(primitives) < len(steps)


def test_a_small_plan_creates_nothing_beside() -> None:
    added = list[object]()
    add = Creation.add

    def add_and_list(self: Creation, step: Step) -> None:
        add(self, step)
        added.extend(self._added)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Creation, "add", add_and_list)
        assert program_of(layers(1, 8), 3, 2, 8).is_serial
        assert added == []
        assert not program_of(layers(1), 305, 2).is_serial
        assert added


def convolution() -> BuiltRegion:
    """Return a convolution with a ReLU, of any number of images."""
    region = Region()
    x = region.builder.param("x", tensor(("n", 32, 20, 20)))
    value = emit(region, "nn.conv2d", x, region.builder.const(region.draw(32, 32, 3, 3)), padding=(1,) * 4)
    built = region.finish(emit(region, "nn.relu", value)).module.get_function("f").impl
    assert isinstance(built, BuiltRegion)
    return built


class _Outcomes:
    """A queue with outcomes of its own; nothing is canceled."""

    def __init__(self, queue: Any, change: Callable[[list[tuple[int, int]]], list[tuple[int, int]]]) -> None:
        self._queue, self._change = queue, change

    def add(self, address: int, desc: object) -> None:
        self._queue.add(address, desc)

    def finish(self, is_canceled: bool = False) -> list[tuple[int, int]]:
        del is_canceled
        return self._change(self._queue.finish())


def test_a_primitive_to_be_kept_is_kept_after_a_refusal() -> None:
    need_avx512()
    built, canceled = convolution(), list[Creation]()
    close = Creation.close

    def close_late(self: Creation) -> None:
        canceled.append(self)
        self._queue = _Outcomes(self._queue, lambda outcomes: outcomes)  # type: ignore[assignment]
        close(self)

    with pytest.MonkeyPatch.context() as patch:
        original = Planner.plan
        patch.setattr(Planner, "plan", lambda self: original(self) and "refused")
        patch.setattr(Creation, "close", close_late)
        assert built._best_plan(2, built._forms.at({"n": 11})) is None
    recipes = {desc.recipe for creation in canceled for desc in creation._added}
    assert len(canceled) == 2  # a strict plan, and another
    assert recipes
    assert recipes <= {None, *primitive_cache._PRIMITIVES}
    assert recipes != {None}


def test_primitives_are_kept_if_the_weights_cannot_be_packed() -> None:
    need_avx512()
    built = convolution()
    closed = list[Creation]()
    close = Creation.close

    def close_late(self: Creation) -> None:
        closed.append(self)
        self._queue = _Outcomes(self._queue, lambda outcomes: outcomes)  # type: ignore[assignment]
        close(self)

    choice = built._best_plan(2, built._forms.at({"n": 13}))
    assert choice is not None
    assert choice.creation is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Creation, "close", close_late)
        patch.setattr(Plan, "lay_out", lambda _: (_ for _ in ()).throw(MemoryError("a test")))
        with pytest.raises(MemoryError, match="a test"):
            built._build(2, choice)
    recipes = {desc.recipe for creation in closed for desc in creation._added} - {None}
    assert recipes
    assert recipes <= set(primitive_cache._PRIMITIVES)


@pytest.mark.parametrize("is_added", [False, True])
def test_an_interrupted_planner_raises_the_interrupt(*, is_added: bool) -> None:
    region = layers()

    class Interrupted(_Outcomes):
        def add(self, address: int, desc: object) -> None:
            if is_added:
                super().add(address, desc)
            raise KeyboardInterrupt

    add = Creation.add

    def add_once(self: Creation, step: Step) -> None:
        if not isinstance(self._queue, Interrupted):
            self._queue = Interrupted(self._queue, lambda outcomes: outcomes)  # type: ignore[assignment]
        add(self, step)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Creation, "add", add_once)
        with pytest.raises(KeyboardInterrupt):
            program_of(region, 311, 2)
    assert program_of(region, 311, 2) is not None


def test_a_planner_that_raises_leaves_no_thread() -> None:
    region = layers()
    program_of(region, 300, 2)
    before = threading.active_count(), _num_native_threads()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Planner, "_deliver", lambda *_: (_ for _ in ()).throw(ValueError("a test")))
        with pytest.raises(ValueError, match="a test"):
            program_of(region, 309, 2)
    assert (threading.active_count(), _num_native_threads()) == before


def _num_native_threads() -> int:
    tasks = Path("/proc/self/task")
    return len(list(tasks.iterdir())) if tasks.exists() else 0


def test_after_a_failed_creation_the_reference_kernels_compute_the_size() -> None:
    region, errors = layers(), list[str]()
    finish, destroy = Creation.finish, open_engine().api.function("dnnl_primitive_destroy")

    def fail_second(outcomes: list[tuple[int, int]]) -> list[tuple[int, int]]:
        first, (address, _), *others = outcomes
        destroy(address)
        return [first, (0, 1), *others]

    def fail(self: Creation) -> list[Primitive]:
        self._queue = _Outcomes(self._queue, fail_second)  # type: ignore[assignment]
        try:
            return finish(self)
        except ExecutionError as error:
            errors.append(str(error))
            raise

    built = region.module.get_function("f").impl
    assert isinstance(built, BuiltRegion)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Creation, "finish", fail)
        program = built.program(2, ((307, WIDTH), (307, WIDTH)))
    assert program is built.reference
    assert errors == ["oneDNN's `dnnl_primitive_create`: failed; got status 1 (out of memory)"]
    x = np.linspace(-1, 1, 308 * WIDTH, dtype=np.float32).reshape(308, WIDTH)
    expected = np.full_like(x, 7.0)
    built.reference(x, expected)
    np.testing.assert_allclose(run(region, x, 2), expected, rtol=1e-4, atol=1e-4)


def run(region: Region, x: NDArray, number: int) -> NDArray:
    """Return the result of a call on a number of threads."""
    with open_engine().threads(number):
        result = np.full_like(x, 7.0)
        assert program_of(region, len(x), number)(x, result)
    return result


def test_eight_calls_bring_sizes_at_once() -> None:
    region, other = layers(), layers()
    inputs = [np.full((rows, WIDTH), rows / 500, np.float32) for rows in range(310, 342)]
    expected = [run(other, x, 1) for x in inputs]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda x: run(region, x, 2), inputs))
    for result, of_single in zip(found, expected, strict=True):
        np.testing.assert_allclose(result, of_single, rtol=1e-5, atol=1e-5)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a system without fork")
def test_a_queue_goes_on_in_a_child() -> None:
    """The owner of a queue forks: the child has no threads that create, and creates the rest."""
    fake = _FakeOnednn()
    queue = fake.queue(2, 1)
    for desc in range(1, 5):
        queue.add(desc, object())
    first = queue.finish()  # no callback waits for Python's lock while this thread forks
    late = fake.queue(2, 0)
    late.add(7, object())
    child = os.fork()
    if child == 0:
        late.add(8, object())
        os._exit(0 if late.finish() == [(1007, 0), (1008, 0)] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(first) == 4
    assert late.finish() == [(1007, 0)]


@settings(max_examples=max(1, settings().max_examples // 4), deadline=None)
@given(seed=st.integers(0, 2**32 - 1), number=st.integers(1, 2))
def test_the_usual_layout_tried_first_changes_no_plan(seed: int, number: int) -> None:
    module = DrawnGraph(np.random.default_rng(seed)).module

    def plans() -> list[str]:
        executable = byoc_core.build(module, backends=["dnnl"])
        regions = [
            region for found in executable.modules if isinstance(found, DnnlModule) for region in found.regions()
        ]
        plans = [region._best_plan(number, region._function) for _, region in regions if region._is_static]
        return [str(found and found.plan) for found in plans]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_Search, "whole_chain", lambda *_: None)
        expected = plans()
    assert plans() == expected


def test_a_convolution_with_followers_is_described_once() -> None:
    need_avx512()
    built = convolution()

    def described(images: int) -> int:
        with counted() as calls:
            found = built._best_plan(1, built._forms.at({"n": images}))
        assert found is not None
        assert "nn.conv2d + nn.relu" in [step.title for step in found.plan.steps if isinstance(step, Step)]
        return calls["dnnl_convolution_forward_primitive_desc_create"]

    assert described(13) == 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_Search, "whole_chain", lambda *_: None)
        assert described(14) == 2
