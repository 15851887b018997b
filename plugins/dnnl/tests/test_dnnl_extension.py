"""The C extension alone, over stand-ins for oneDNN's functions."""

from __future__ import annotations

import ctypes
import gc
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from byoc_core.opset.families import KERNELS
from byoc_dnnl.native import extension, extension_status

from plugins.dnnl.tests.fake_onednn import Arguments, FakeOneDNN

if TYPE_CHECKING:
    from byoc_dnnl._native import Program, Region

pytestmark = [
    pytest.mark.interpreter,
    pytest.mark.skipif(extension() is None, reason=extension_status() or "it is there"),
]
native: Any = extension()
CALL = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p)
ENGINE, ARENA_NBYTES, FIRST, SECOND = 0xE0, 100, 0xA1, 0xA2


def make_program(fake: FakeOneDNN, **changes: object) -> Program:
    """Return a program of two steps: argument 0 and a constant into the arena, then the arena into argument 1."""

    def error(operation: int, step: int, status: int) -> Exception:
        return ValueError(f"{operation} {step} {status}")

    fields: dict[str, Any] = {
        "functions": fake.addresses,
        "engine": ENGINE,
        "num_tensors": 2,
        "arena_nbytes": ARENA_NBYTES,
        "locations": (
            (0xD0, native.ARGUMENT, 0),
            (0xD1, native.CONSTANT, 0xC0),
            (0xD2, native.ARENA, 64),
            (0xD3, native.ARGUMENT, 1),
        ),
        "steps": (
            (native.EXECUTE, FIRST, ((1, 0), (33, 1), (17, 2))),
            (native.EXECUTE, SECOND, ((1, 2), (17, 3))),
        ),
        "owner": fake,
        "error": error,
    }
    made: Program = native.Program(**fields | changes)
    return made


def test_steps_run_in_order_on_the_memory_of_their_places() -> None:
    fake = FakeOneDNN()
    program = make_program(fake)
    assert program.run(0x10, 0x20) is True
    (first, first_places), (second, second_places) = fake.executed
    arena = first_places.pop(17)
    assert (first, first_places) == (FIRST, {1: 0x10, 33: 0xC0})
    assert (second, second_places) == (SECOND, {1: arena, 17: 0x20})
    assert arena % 64 == 0


def test_a_frame_is_used_again_and_told_only_of_what_moved() -> None:
    fake = FakeOneDNN()
    program = make_program(fake)
    program.run(0x10, 0x20)
    assert (fake.moves, len(fake.alive), program.num_frames) == (3, 5, 1)
    program.run(0x10, 0x20)
    program.run(0x10, 0x30)
    assert (fake.moves, len(fake.alive), program.num_frames) == (4, 5, 1)
    assert fake.executed[-1][1][17] == 0x30


def test_all_handles_are_destroyed_once_with_the_program() -> None:
    fake = FakeOneDNN()
    program = make_program(fake)
    program.run(0x10, 0x20)
    del program
    gc.collect()
    assert fake.alive == set()


def test_programs_share_an_arena_as_large_as_the_largest_needs() -> None:
    fake = FakeOneDNN()
    addresses = []
    programs = [make_program(fake, arena_nbytes=nbytes) for nbytes in (64, 1 << 20, 640)]
    for program in (*programs, *programs):
        program.run(0x10, 0x20)
        addresses.append(fake.executed[-1][1][1])
    assert len(set(addresses[1:])) == 1


def test_calls_at_the_same_time_have_frames_and_arenas_of_their_own() -> None:
    fake = FakeOneDNN()
    program = make_program(fake)
    meeting = threading.Barrier(4, timeout=60)
    arenas = []

    def meet(primitive: int, places: dict[int, int]) -> None:
        if primitive == FIRST:
            arenas.append(places[17])
            meeting.wait()

    fake.execute = meet
    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(lambda number: program.run(16 * number, 0x20), range(1, 5)))
    assert len(set(arenas)) == program.num_frames == 4
    assert {places[1] for primitive, places in fake.executed if primitive == FIRST} == {16, 32, 48, 64}


def test_the_pool_of_frames_is_bounded() -> None:
    fake = FakeOneDNN()
    program = make_program(fake)
    meeting = threading.Barrier(20, timeout=60)
    fake.execute = lambda primitive, places: meeting.wait() if primitive == FIRST else None
    with ThreadPoolExecutor(20) as pool:
        assert all(pool.map(lambda number: program.run(16 * number, 0x20), range(1, 21)))
    assert program.num_frames == 16
    assert len(fake.alive) == 16 * 5


@pytest.mark.parametrize(
    ("function", "text"),
    [
        ("execute", "0 0 5"),
        ("create_memory", "1 0 5"),
        ("create_stream", "2 0 5"),
        ("set_address", "3 0 5"),
        ("wait", "4 0 5"),
    ],
)
def test_a_failure_is_raised_and_the_next_call_works(function: str, text: str) -> None:
    fake = FakeOneDNN()
    program = make_program(fake)
    fake.failing = {function: 5}
    for _ in range(3):
        with pytest.raises(ValueError, match=f"^{text}$"):
            program.run(0x10, 0x20)
    fake.failing = {}
    assert program.run(0x10, 0x20) is True
    assert len(fake.alive) == 5


def test_the_step_that_failed_is_named() -> None:
    fake = FakeOneDNN()
    program = make_program(fake)

    def fail(primitive: int, places: dict[int, int]) -> None:
        fake.failing = {"execute": 3}

    fake.execute = fail
    with pytest.raises(ValueError, match=r"^0 1 3$"):
        program.run(0x10, 0x20)


def test_memory_that_cannot_be_had_is_a_failure() -> None:
    program = make_program(FakeOneDNN(), arena_nbytes=1 << 62)
    with pytest.raises(ValueError, match=r"^5 0 0$"):
        program.run(0x10, 0x20)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"functions": (1, 2)}, "a program needs the address of each function"),
        ({"functions": (0,) * 12}, "a function has no address"),
        ({"locations": ((0xD0, 0, 2),)}, "a location has an unknown kind, or lies outside its memory"),
        ({"locations": ((0xD0, 0, -1),)}, "a location has an unknown kind, or lies outside its memory"),
        ({"locations": ((0xD0, 7, 0),)}, "a location has an unknown kind, or lies outside its memory"),
        ({"locations": ((0xD0, 2, ARENA_NBYTES + 1),)}, "a location has an unknown kind, or lies outside its memory"),
        ({"steps": ((0, FIRST, ((1, 4),)),)}, "an argument has no location with a description"),
        ({"steps": ((0, 0, ()),)}, "a step has no primitive"),
        ({"steps": ((9, 0, ()),)}, "the kind of a step is unknown"),
        ({"steps": ((),)}, "the kind of a step is unknown"),
        ({"steps": ((1, 9, 4, 4, 0),)}, "a check has no location, or its numbers are out of range"),
        ({"steps": ((1, 0, -4, 4, 0),)}, "a check has no location, or its numbers are out of range"),
        ({"steps": ((1, 0, 4, 8, 0),)}, "a check has no location, or its numbers are out of range"),
        ({"steps": ((1, 0, 4, 4, -1),)}, "a check has no location, or its numbers are out of range"),
        *(
            ({"steps": ((2, *numbers),)}, "a step has no function or operand, or its numbers are out of range")
            for numbers in (
                (0, 0, 3, 1, 1),
                (0xF0, -1, 3, 1, 1),
                (0xF0, 4, 3, 1, 1),
                (0xF0, 0, -1, 1, 1),
                (0xF0, 0, 4, 1, 1),
                (0xF0, 0, 3, -1, 1),
                (0xF0, 0, 3, 1, -1),
                (0xF0, 0, 3, 1 << 32, 1 << 32),
            )
        ),
        ({"arena_nbytes": -1}, "a size is negative"),
    ],
)
def test_tables_that_make_no_sense_are_refused(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=f"^{text}$"):
        make_program(FakeOneDNN(), **changes)


def test_too_few_tensors_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^a program needs more tensors$"):
        make_program(FakeOneDNN()).run(0x10)


def holds(elements: np.ndarray[Any, Any], limit: float) -> bool:
    width = elements.itemsize
    bits = int(np.array(limit, elements.dtype).view(f"i{width}"))
    step = (native.CHECK, 0, elements.size, width, bits)
    program = make_program(FakeOneDNN(), num_tensors=1, locations=((0, native.ARGUMENT, 0),), steps=(step,))
    return program.run(elements.ctypes.data)


@pytest.mark.parametrize("size", [0, 1, 3, 4, 1023, 1024, 1025, 5000, 40_000])
@pytest.mark.parametrize("offset", [0, 1, 3])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_a_check_finds_one_element_anywhere(size: int, offset: int, dtype: type[np.floating[Any]]) -> None:
    memory = np.zeros(size + 8, dtype)
    elements = memory[offset : offset + size]
    memory[:offset] = memory[offset + size :] = np.nan  # around it nothing is read
    elements[:] = -1.5
    assert holds(elements, 1.5)
    for place in {0, size // 2, size - 1} if size else ():
        for value in (np.nan, -np.nan, np.inf, -np.inf, 2.0, -2.0, np.nextafter(dtype(1.5), dtype(2))):
            elements[place] = value
            assert not holds(elements, 1.5)
        elements[place] = -0.0
        assert holds(elements, 1.5)


def test_an_infinite_limit_finds_nan_only() -> None:
    elements = np.array([np.inf, -np.inf, 0, 1e38], np.float32)
    assert holds(elements, np.inf)
    assert not holds(np.append(elements, np.float32(np.nan)), np.inf)


@pytest.mark.parametrize(
    ("rows", "columns", "lengths"), [(50_000, 0, [50_000]), (0, 0, [0]), (7, 1, [1] * 7), (3, 5000, [5000] * 3)]
)
def test_a_function_is_computed_of_all_numbers_or_of_each_row(rows: int, columns: int, lengths: list[int]) -> None:
    given = []

    def compute(x: ctypes._Pointer[ctypes.c_float], y: ctypes._Pointer[ctypes.c_float], count: int) -> None:
        given.append(count)
        if count:
            np.ctypeslib.as_array(y, (count,))[:] = np.ctypeslib.as_array(x, (count,)) + len(given)

    numbers = ctypes.POINTER(ctypes.c_float)
    function = ctypes.CFUNCTYPE(None, numbers, numbers, ctypes.c_int64)(compute)
    x = np.arange(rows * max(1, columns), dtype=np.float32)
    memory = np.full(x.size + 2, 7, np.float32)
    step = (native.COMPUTE, ctypes.cast(function, ctypes.c_void_p).value, 0, 1, rows, columns)
    locations = ((0, native.ARGUMENT, 0), (0, native.ARGUMENT, 1))
    assert make_program(FakeOneDNN(), locations=locations, steps=(step,)).run(x.ctypes.data, memory[1:].ctypes.data)
    assert given == lengths
    np.testing.assert_array_equal(memory[1:-1], x + np.repeat(np.arange(1, len(lengths) + 1), lengths))
    assert memory[0] == memory[-1] == 7


@pytest.mark.parametrize("channels", [1, 31, 32, 50, 64, 130])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_the_largest_byte_of_each_window_is_written(channels: int, dtype: type[np.uint8 | np.int8]) -> None:
    """Windows in the padding alone, refused by plans, give the least byte; no other memory is written."""
    rows, columns = (6, 4, 2, 3, 2, 5), (5, 6, 3, 1, 1, 1)  # size, windows, taps, stride, dilation, padding in front
    info = np.iinfo(dtype)
    x = np.random.default_rng(0).integers(info.min, info.max + 1, (2, 6, 5, channels)).astype(dtype)
    memory = np.full(2 * 4 * 6 * channels + 2, 7, dtype)
    step = (native.POOL, 0, 1, dtype is np.int8, 2, channels, rows, columns)
    locations = ((0, native.ARGUMENT, 0), (0, native.ARGUMENT, 1))
    assert make_program(FakeOneDNN(), locations=locations, steps=(step,)).run(x.ctypes.data, memory[1:].ctypes.data)
    expected = np.full((2, 4, 6, channels), info.min, dtype)
    for row, column, a, b in np.ndindex(4, 6, 2, 3):
        top, left = 3 * row + 2 * a - 5, column + b - 1
        if 0 <= top < 6 and 0 <= left < 5:
            np.maximum(expected[:, row, column], x[:, top, left], out=expected[:, row, column])
    np.testing.assert_array_equal(memory[1:-1].reshape(expected.shape), expected)
    assert memory[0] == memory[-1] == 7


@pytest.mark.parametrize(
    "step",
    [
        (native.POOL, 9, 1, False, 2, 3, (4, 4, 1, 1, 1, 0), (4, 4, 1, 1, 1, 0)),
        (native.POOL, 0, 1, False, 0, 3, (4, 4, 1, 1, 1, 0), (4, 4, 1, 1, 1, 0)),
        (native.POOL, 0, 1, False, 2, 3, (4, 4, 0, 1, 1, 0), (4, 4, 1, 1, 1, 0)),
        (native.POOL, 0, 1, False, 2, 3, (4, 4, 1, 1, 1, 0), (4, 4, 1, 1, 1, -1)),
        (native.POOL, 0, 1, False, 2, 3, (4, 4, 1, 1, 1 << 40, 0), (4, 4, 1, 1, 1, 0)),
        (native.POOL, 0, 1, False, 1, 16, (4, 4, 1 << 30, 1, 1, 0), (1 << 30, 1, 1 << 30, 1, 1 << 30, 0)),
    ],
)
def test_a_pooling_of_bad_numbers_is_refused(step: tuple[Any, ...]) -> None:
    locations = ((0, native.ARGUMENT, 0), (0, native.ARGUMENT, 1))
    with pytest.raises(ValueError, match="pooling"):
        make_program(FakeOneDNN(), locations=locations, steps=(step,))


class Machine:
    """The caller of a region, with a given number of threads and a record of Python's answers.

    Args:
        find: returns the program.
        max_programs: the number of programs to keep.
    """

    def __init__(self, find: Callable[[int, Any], Program | None], max_programs: int = 3) -> None:
        self.threads = 1
        self.found: list[tuple[int, Any]] = []
        self.computed: list[tuple[Any, Any]] = []
        self.kept: list[BaseException] = []
        self._max_threads = ctypes.CFUNCTYPE(ctypes.c_int)(lambda: self.threads)

        def note(number: int, shapes: Sequence[Sequence[int]]) -> Program | None:
            self.found.append((number, shapes))
            return find(number, shapes)

        address = ctypes.cast(self._max_threads, ctypes.c_void_p).value
        self.region: Region = native.Region(
            address, (1, 2), max_programs, note, lambda *tensors: self.computed.append(tensors), self.kept.append
        )

    def call(self, *shapes: tuple[int, ...], addresses: Sequence[int] = (0x10, 0x20)) -> int:
        arguments = Arguments(shapes, addresses)
        block = ctypes.addressof(arguments.block)
        return int(CALL(self.region.function)(self.region.context, block, len(shapes), None))


def test_a_region_asks_for_a_program_once_for_each_number_of_threads_and_shapes() -> None:
    fake = FakeOneDNN()
    machine = Machine(lambda number, shapes: make_program(fake))
    for _ in range(3):
        assert machine.call((2,), (3, 4)) == 0
        assert machine.call((2,), (3, 5)) == 0
        machine.threads = 2
        assert machine.call((2,), (3, 4)) == 0
        machine.threads = 1
    assert machine.found == [(1, ((2,), (3, 4))), (1, ((2,), (3, 5))), (2, ((2,), (3, 4)))]
    assert len(fake.executed) == 9 * 2
    assert (machine.computed, machine.kept) == ([], [])


def test_the_program_not_used_for_longest_makes_room() -> None:
    fake = FakeOneDNN()
    machine = Machine(lambda number, shapes: make_program(fake), max_programs=3)
    for size in (1, 2, 3, 1, 4, 1, 3, 2):
        assert machine.call((size,), (1, 1)) == 0
    assert [shapes[0][0] for _, shapes in machine.found] == [1, 2, 3, 4, 2]


def test_a_program_that_is_dropped_is_not_found_any_more() -> None:
    fake = FakeOneDNN()
    programs: list[Program] = []

    def find(number: int, shapes: Sequence[Sequence[int]]) -> Program:
        programs.append(make_program(fake))
        return programs[-1]

    machine = Machine(find)
    machine.call((1,), (1, 1))
    time = machine.region.last_use(programs[0])
    assert 0 < time < machine.region.tick()
    machine.region.drop(programs[0])
    assert machine.region.last_use(programs[0]) == 0
    alive = len(fake.alive)
    programs.clear()
    assert len(fake.alive) == alive - 5
    machine.call((1,), (1, 1))
    assert len(programs) == 1


def test_a_program_that_is_dropped_while_it_runs_runs_to_its_end() -> None:
    fake = FakeOneDNN()
    machine = Machine(lambda number, shapes: make_program(fake), max_programs=1)

    def drop(primitive: int, places: dict[int, int]) -> None:
        fake.execute = lambda primitive, places: None
        (running,) = [found for found in gc.get_objects() if type(found) is native.Program and found.num_frames == 0]
        machine.region.drop(running)
        assert machine.call((7,), (1, 1)) == 0

    fake.execute = drop
    assert machine.call((1,), (1, 1)) == 0
    assert len(fake.executed) == 4
    assert machine.kept == []


def test_where_there_is_no_program_python_computes() -> None:
    machine = Machine(lambda number, shapes: None)
    for _ in range(2):
        assert machine.call((2,), (3, 4)) == 0
    assert machine.computed == [((0x10, 0x20), ((2,), (3, 4)))] * 2


def test_where_a_check_does_not_hold_python_computes() -> None:
    elements = np.array([1, np.nan], np.float32)
    step = (native.CHECK, 0, 2, 4, int(np.float32(2).view(np.int32)))
    program = make_program(FakeOneDNN(), locations=((0, native.ARGUMENT, 0),), steps=(step,))
    machine = Machine(lambda number, shapes: program)
    assert machine.call((2,), (1, 1), addresses=(elements.ctypes.data, 0x20)) == 0
    assert len(machine.computed) == 1
    elements[1] = 0
    assert machine.call((2,), (1, 1), addresses=(elements.ctypes.data, 0x20)) == 0
    assert len(machine.computed) == 1


def test_failures_are_kept_for_who_asks() -> None:
    fake = FakeOneDNN()
    machine = Machine(lambda number, shapes: make_program(fake))
    fake.failing = {"execute": 5}
    assert machine.call((2,), (1, 1)) == -1
    assert machine.call((2, 2), (1, 1)) == -2
    assert machine.call((2,), addresses=(0x10,)) == -2
    assert [str(error) for error in machine.kept] == ["0 0 5"]


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (lambda: 1 // 0, "integer division or modulo by zero"),
        (lambda: 7, "`find` returned no program"),
        (lambda: make_program(FakeOneDNN(), num_tensors=3), "`find` returned a program of other tensors"),
    ],
)
def test_an_answer_that_is_no_program_is_a_failure(answer: Callable[[], Any], text: str) -> None:
    machine = Machine(lambda number, shapes: answer())
    assert machine.call((2,), (1, 1)) == -1
    assert [str(error) for error in machine.kept] == [text]


def test_regions_and_their_programs_are_collected() -> None:
    fake = FakeOneDNN()
    machine = Machine(lambda number, shapes: make_program(fake))
    machine.call((2,), (1, 1))
    assert fake.alive != set()
    del machine
    gc.collect()
    assert fake.alive == set()


def test_a_program_of_several_threads_runs_in_a_team_and_one_of_the_calling_thread_does_not() -> None:
    body_type = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
    results = []

    def run_team(body: Callable[[int], int], data: int) -> int:
        results.append(body(data))
        return results[-1]

    callbacks = (
        ctypes.CFUNCTYPE(ctypes.c_int, body_type, ctypes.c_void_p)(run_team),
        ctypes.CFUNCTYPE(None, ctypes.c_int)(lambda number: None),
    )
    runner, setter = (ctypes.cast(callback, ctypes.c_void_p).value for callback in callbacks)
    fake = FakeOneDNN()
    required = fake.addresses[:-2]
    program = make_program(fake, functions=(*required, 0, runner))
    assert program.run(0x10, 0x20) is True
    assert (len(results), len(fake.executed)) == (1, 2)
    assert make_program(fake, functions=(*required, setter, runner)).run(0x10, 0x20) is True
    assert (len(results), len(fake.executed)) == (1, 4)
    fake.failing = {"execute": 5}
    with pytest.raises(ValueError, match=r"^0 0 5$"):
        program.run(0x10, 0x20)
    assert len(results) == 2


@pytest.mark.parametrize("channels", [2, 3, 4])
@pytest.mark.parametrize(("dtype", "zero"), [(np.uint8, 0), (np.uint8, 200), (np.int8, -5), (np.int8, 127)])
@pytest.mark.parametrize("pixels", [1, 7, 8, 33])
def test_floats_become_bytes_with_channels_last(
    channels: int, dtype: type[np.uint8 | np.int8], zero: int, pixels: int
) -> None:
    """The bytes are those of the reference kernel, for ties and NaN too; no other memory is written."""
    generator = np.random.default_rng(0)
    x = np.float32(0.3) * generator.integers(-600, 600, (2, channels, pixels)).astype(np.float32) / np.float32(2)
    x.flat[generator.integers(0, x.size, 3)] = [np.nan, np.inf, -np.inf]
    memory = np.full(x.size + 2, 7, dtype)
    step = (native.QUANTISE, 0, 1, dtype is np.int8, *x.shape, 0.3, zero)
    locations = ((0, native.ARGUMENT, 0), (0, native.ARGUMENT, 1))
    assert make_program(FakeOneDNN(), locations=locations, steps=(step,)).run(x.ctypes.data, memory[1:].ctypes.data)
    bytes_ = KERNELS["quantize"](x, np.array(0.3, np.float32), np.array(zero, dtype), axis=1, block_size=0)
    np.testing.assert_array_equal(memory[1:-1].reshape(2, pixels, channels), np.moveaxis(bytes_, 1, 2))
    assert memory[0] == memory[-1] == 7


@pytest.mark.parametrize(
    "numbers",
    [(9, 1, False, 1, 3, 4, 1.0, 0), (0, 9, False, 1, 3, 4, 1.0, 0), (0, 1, False, 0, 3, 4, 1.0, 0)]
    + [(0, 1, False, 1, channels, 4, 1.0, 0) for channels in (0, 1, 5)]
    + [(0, 1, False, 1 << 40, 3, 1 << 40, 1.0, 0), (0, 1, False, 1, 3, 0, 1.0, 0)]
    + [(0, 1, is_signed, 1, 3, 4, 1.0, zero) for is_signed, zero in ((False, -1), (False, 256), (True, 128))],
)
def test_a_quantisation_of_bad_numbers_is_refused(numbers: tuple[Any, ...]) -> None:
    locations = ((0, native.ARGUMENT, 0), (0, native.ARGUMENT, 1))
    with pytest.raises(ValueError, match="quantisation"):
        make_program(FakeOneDNN(), locations=locations, steps=((native.QUANTISE, *numbers),))
