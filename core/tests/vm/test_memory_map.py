"""Memory maps: live ranges and buffers of written programs, and new plans of the buffers of random programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import byoc_core
import numpy as np
import pytest
from byoc_core import VirtualMachine
from byoc_core.dims import Dim, parse_dim, substitute
from byoc_core.errors import CallError, ProgramError
from byoc_core.ir import FunctionBuilder, IRModule, tensor
from byoc_core.ir.printer import EXTERNAL_MODULES
from byoc_core.lower import lower
from byoc_core.ops import default_ops
from byoc_core.runtime.module import NDArray
from byoc_core.runtime.plan_storage import plan
from byoc_core.vm import (
    Builtin,
    Call,
    CallKind,
    Goto,
    If,
    PlannedTensor,
    Program,
    Ret,
    View,
    VMFunction,
    verify,
)
from byoc_core.vm.memory_map import MemoryMap, Purpose, memory_map
from hypothesis import given
from hypothesis import strategies as st

from core.tests.lower.test_control_flow_property import Maker as NestMaker
from core.tests.lower.test_views_property import NAMES, SHAPES, SIZES, TRAITS, Maker
from core.tests.lower.view_modules import TraitModule
from core.tests.vm.programs import Executable, spec

X, Y, FLAG = spec("x", 16), spec("y", 16), spec("flag", dtype="bool")
UNIT = 64  # bytes of x


def tensor_at(offset: int, *, storage: int = 0, size: Dim = 16, dtype: str = "float32") -> PlannedTensor:
    return PlannedTensor(storage, offset, dtype, (size,))


def next_(arg: int, *results: int) -> Call:
    return Call(CallKind.EXTERN, 0, (arg,), results)


def map_of(*code: Any, tensors: Any, storages: Any = (4096,), params: Any = (X,), views: Any = ()) -> MemoryMap:
    function = VMFunction("main", params, (Y,), (), storages, tuple(tensors), (), code, tuple(views))
    return memory_map(Program((function,), ("next",)), function)


def rows(found: MemoryMap) -> list[tuple[Any, ...]]:
    return [(buffer.name, buffer.nbytes, buffer.first, buffer.last, buffer.offset) for buffer in found.buffers]


def test_live_ranges_of_straight_code() -> None:
    # Registers: 0 param, 1 result, then tensors.
    found = map_of(next_(0, 2), next_(2, 3), next_(3, 1), Ret((1,)), tensors=[tensor_at(0), tensor_at(64)])
    assert rows(found) == [("t0", UNIT, 0, 1, 0), ("t1", UNIT, 1, 2, 64)]
    assert (found.arena_nbytes, found.peak_nbytes, found.total_nbytes) == (4096, 2 * UNIT, 2 * UNIT)
    assert found.live_nbytes() == (UNIT, 2 * UNIT, UNIT, 0)
    assert found.function == "main"
    assert not found.is_symbolic
    assert [buffer.writer for buffer in found.buffers] == ["next", "next"]
    assert [buffer.registers for buffer in found.buffers] == [(2,), (3,)]


def test_a_workspace_is_live_during_its_call_only() -> None:
    scratch = tensor_at(64, size=100, dtype="uint8")
    found = map_of(next_(0, 2, 3), next_(2, 1, 4), Ret((1,)), tensors=[tensor_at(0), scratch, scratch])
    assert [(b.name, b.first, b.last, b.purpose) for b in found.buffers] == [
        ("t0", 0, 1, Purpose.INTERMEDIATE),
        ("t1", 0, 0, Purpose.WORKSPACE),
        ("t2", 1, 1, Purpose.WORKSPACE),
    ]


@pytest.mark.parametrize(
    ("scratch", "code"),
    [
        (tensor_at(64, size=100, dtype="uint8"), (next_(0, 2, 3), next_(3, 1), Ret((1,)))),  # is read
        (tensor_at(64, size=100, dtype="uint8"), (next_(0, 3), next_(0, 2, 1), Ret((1,)))),  # is the only result
        (tensor_at(64, size=100, dtype="uint8"), (next_(0, 3, 2), next_(2, 1), Ret((1,)))),  # is not the last result
        (tensor_at(64, size=25), (next_(0, 2, 3), next_(2, 1), Ret((1,)))),  # is not bytes
        (
            tensor_at(64, size=100, dtype="uint8"),
            (next_(0, 2, 3), Call(CallKind.BUILTIN, Builtin.COPY, (3,), (4,)),
             next_(2, 1), Ret((1,))),
        ),  # is copied
    ],
)  # fmt: skip
def test_other_results_are_no_workspaces(scratch: PlannedTensor, code: Any) -> None:
    found = map_of(*code, tensors=[tensor_at(0), scratch, tensor_at(192, size=100, dtype="uint8")])
    assert {buffer.purpose for buffer in found.buffers if buffer.name != "t2"} == {Purpose.INTERMEDIATE}


def test_a_tensor_read_by_a_call_with_a_workspace_is_none() -> None:
    scratch = tensor_at(64, size=100, dtype="uint8")
    found = map_of(next_(0, 2, 3), next_(3, 1, 4), Ret((1,)), tensors=[tensor_at(0), scratch, tensor_at(192, size=9)])
    assert [buffer.purpose for buffer in found.buffers] == [Purpose.INTERMEDIATE] * 3


def test_a_value_of_a_loop_is_live_in_the_whole_loop() -> None:
    """t0 lives around the back edge; t1 is written and read within a round; t2 is read behind the loop."""
    function = VMFunction(
        "main", (X, FLAG), (Y,), (), (4096,), (tensor_at(0), tensor_at(64), tensor_at(128)), (),
        (
            next_(0, 3),  # t0, before the loop
            next_(0, 5),  # t2, for behind the loop
            If(1, 6),
            next_(3, 4),  # t1 from t0
            next_(4, 3),  # t0 from t1, for the next round
            Goto(2),
            next_(3, 2),
            next_(5, 2),
            Ret((2,)),
        ),
    )  # fmt: skip
    found = memory_map(Program((function,), ("next",)), function)
    assert rows(found) == [("t0", UNIT, 0, 6, 0), ("t1", UNIT, 3, 4, 64), ("t2", UNIT, 1, 7, 128)]


def test_a_value_carried_by_a_loop_alone_is_live_to_the_back_edge() -> None:
    """t0 is never read behind the loop, but the next round reads t0 at its begin."""
    function = VMFunction(
        "main", (X, FLAG), (Y,), (), (4096,), (tensor_at(0),), (),
        (next_(0, 3), If(1, 5), next_(3, 2), next_(2, 3), Goto(1), next_(0, 2), Ret((2,))),
    )  # fmt: skip
    found = memory_map(Program((function,), ("next",)), function)
    assert rows(found) == [("t0", UNIT, 0, 4, 0)]


def test_branches_have_ranges_of_their_own() -> None:
    function = VMFunction(
        "main", (X, FLAG), (Y,), (), (4096,), (tensor_at(0), tensor_at(0)), (),
        (If(1, 4), next_(0, 3), next_(3, 2), Goto(6), next_(0, 4), next_(4, 2), Ret((2,))),
    )  # fmt: skip
    found = memory_map(Program((function,), ("next",)), function)
    assert rows(found) == [("t0", UNIT, 1, 2, 0), ("t1", UNIT, 4, 5, 0)]


def test_views_belong_to_the_buffer_of_their_base() -> None:
    half = View(2, 32, "float32", (8,))
    found = map_of(next_(0, 2), next_(3, 1), Ret((1,)), tensors=[tensor_at(64)], views=[half])
    (buffer,) = found.buffers
    assert (buffer.registers, buffer.relative_offsets, buffer.offset) == ((2, 3), (0, 32), 64)
    assert (buffer.first, buffer.last) == (0, 1)


def test_a_tensor_written_in_parts_is_live_from_the_first_part() -> None:
    low, high = View(2, 0, "float32", (8,)), View(2, 32, "float32", (8,))
    found = map_of(next_(0, 3), next_(0, 4), next_(2, 1), Ret((1,)), tensors=[tensor_at(0)], views=[low, high])
    assert rows(found) == [("t0", UNIT, 0, 2, 0)]


def test_tensors_with_shared_bytes_are_one_buffer() -> None:
    """No value of t0 is needed between its two uses, and t1 lies there meanwhile: lawful, though ranges intersect."""
    found = map_of(
        next_(0, 2), next_(2, 1), next_(0, 3), next_(3, 1), next_(0, 2), next_(2, 1), Ret((1,)),
        tensors=[tensor_at(64, size=32), tensor_at(128), tensor_at(256)],
    )  # fmt: skip
    assert rows(found) == [("t0+t1", 128, 0, 5, 64), ("t2", UNIT, 0, 0, 256)]
    assert found.buffers[0].relative_offsets == (0, 64)
    assert found.buffers[1].writer == ""


def test_joined_buffers_join_further_tensors() -> None:
    """t0 and t1 do not overlap, but each overlaps t2, the last of the three."""
    found = map_of(
        next_(0, 2), next_(0, 3), next_(2, 1), next_(3, 1), next_(0, 4), next_(4, 1), next_(0, 2), next_(2, 1),
        next_(0, 3), next_(3, 1), Ret((1,)),
        tensors=[tensor_at(0), tensor_at(64), tensor_at(0, size=32)],
    )  # fmt: skip
    assert rows(found) == [("t0+t1+t2", 128, 0, 9, 0)]


def symbolic() -> tuple[Program, VMFunction]:
    n = parse_dim("n")
    params, result = (spec("x", "n"), spec("z", 16)), spec("y", "n")
    tensors = (tensor_at(64), tensor_at(0, storage=1, size=n), tensor_at(0, storage=2, size=2 * n))
    code = (next_(1, 3), next_(0, 4), next_(3, 2), next_(4, 5), next_(5, 2), Ret((2,)))
    function = VMFunction("main", params, (result,), (), (128, 4 * n, 8 * n), tensors, (), code)
    return Program((function,), ("next",)), function


def test_symbolic_sizes_stay_until_given() -> None:
    program, function = symbolic()
    found = memory_map(program, function)
    assert [str(buffer.nbytes) for buffer in found.buffers] == ["64", "4*n", "8*n"]
    assert [str(buffer.offset) for buffer in found.buffers] == ["64", "128", "64*((n+15)//16)+128"]
    assert found.is_symbolic
    assert found.peak_nbytes is None
    assert str(found.total_nbytes) == "12*n+64"
    with pytest.raises(CallError) as caught:
        found.live_nbytes()
    missing = (
        "function `main`: the memory depends on symbolic sizes without a value; got no value of n, "
        "expected a size for each symbol"
    )
    assert str(caught.value) == missing
    with pytest.raises(CallError) as caught:
        memory_map(program, function, {"m": 3})
    assert str(caught.value) == missing
    at_three = memory_map(program, function, {"n": 3, "m": 1})
    assert rows(at_three) == [("t0", 64, 0, 2, 64), ("t1", 12, 1, 3, 128), ("t2", 24, 3, 4, 192)]
    assert (at_three.arena_nbytes, at_three.peak_nbytes, at_three.live_nbytes()) == (216, 76, (64, 76, 76, 36, 24, 0))
    with pytest.raises(CallError, match=r"size 4\*n is negative; got -4"):
        memory_map(program, function, {"n": -1})


def test_tensors_of_symbolic_size_with_shared_bytes_reach_to_the_end_of_the_storage() -> None:
    n = parse_dim("n")
    tensors = (PlannedTensor(0, 0, "float32", (n,)), PlannedTensor(0, 0, "float32", (2 * n,)))
    code = (next_(0, 2), next_(2, 1), next_(0, 3), next_(3, 1), next_(0, 2), next_(2, 1), Ret((1,)))
    function = VMFunction("main", (spec("x", "n"),), (spec("y", "n"),), (), (8 * n,), tensors, (), code)
    found = memory_map(Program((function,), ("next",)), function)
    assert [(buffer.name, str(buffer.nbytes)) for buffer in found.buffers] == [("t0+t1", "8*n")]


def test_tensors_of_disjoint_ranges_share_bytes_as_separate_buffers() -> None:
    found = map_of(next_(0, 3), next_(3, 1), next_(0, 2), next_(2, 1), Ret((1,)), tensors=[tensor_at(0), tensor_at(0)])
    assert [(buffer.name, buffer.first, buffer.last) for buffer in found.buffers] == [("t0", 2, 3), ("t1", 0, 1)]


def test_the_size_of_each_buffer_must_be_given() -> None:
    n, m = parse_dim("n"), parse_dim("m")
    params = (spec("x", "n"), spec("z", "m"))
    tensors = (PlannedTensor(0, 0, "float32", (n,)), PlannedTensor(1, 0, "float32", (m,)))
    code = (next_(0, 3), next_(1, 4), next_(3, 2), next_(4, 2), Ret((2,)))
    function = VMFunction("main", params, (spec("y", "n"),), (), (4 * n, 4 * m), tensors, (), code)
    program = Program((function,), ("next",))
    with pytest.raises(CallError, match="got no value of m, n, expected"):
        memory_map(program, function, {})
    with pytest.raises(CallError, match="got no value of n, expected"):
        memory_map(program, function, {"m": 2})
    assert memory_map(program, function, {"n": 17, "m": 2}).buffers[1].offset == 128


def test_an_unlawful_program_has_no_map() -> None:
    with pytest.raises(ProgramError, match="registers t0 and t1 are both in use and share bytes"):
        map_of(next_(0, 2), next_(2, 3), next_(3, 1), Ret((1,)), tensors=[tensor_at(0), tensor_at(0)])


def test_an_executable_has_the_maps_of_its_functions() -> None:
    module = byoc_core.parse(
        "def main(x: R.Tensor((64, 'n'))):\n    y = R.exp(x)\n    z = R.nn.softmax(y)\n    return z\n"
    )
    executable = byoc_core.build(module, [])
    found = executable.memory_map()
    assert found == executable.memory_map("main") == memory_map(executable.program, executable.program.functions[0])
    assert found.is_symbolic
    (workspace,) = executable.memory_map(sizes={"n": 32}).buffers
    assert workspace.purpose is Purpose.WORKSPACE
    assert workspace.writer == executable.program.externs[0]
    with pytest.raises(CallError, match=r"has no function `mian`; expected main. Did you mean 'main'\?"):
        executable.memory_map("mian")


def at_sizes(function: VMFunction, sizes: Mapping[str, int]) -> VMFunction:
    """Return a function of static sizes; storages stay."""

    def shape(dims: tuple[Dim, ...]) -> tuple[Dim, ...]:
        return tuple(substitute(dim, sizes) for dim in dims)

    return replace(
        function,
        params=tuple(replace(param, shape=shape(param.shape)) for param in function.params),
        results=tuple(replace(result, shape=shape(result.shape)) for result in function.results),
        tensors=tuple(replace(tensor_, shape=shape(tensor_.shape)) for tensor_ in function.tensors),
        dynamics=tuple(replace(dynamic, shape=shape(dynamic.shape)) for dynamic in function.dynamics),
        views=tuple(
            replace(
                view,
                offset=substitute(view.offset, sizes),
                shape=shape(view.shape),
                strides=None if view.strides is None else shape(view.strides),
            )
            for view in function.views
        ),
    )


def moved(program: Program, found: MemoryMap, sizes: Mapping[str, int]) -> Program:
    """Return the program of static sizes with the buffers of a map planned anew."""
    (function,) = program.functions
    intervals = found.intervals
    assert intervals is not None
    offsets, total = plan(intervals, found.alignment)
    assert total >= (found.peak_nbytes or 0)
    new_offsets: dict[int, int] = {}
    for buffer, offset in zip(found.buffers, offsets, strict=True):
        for number, relative in zip(buffer.registers, buffer.relative_offsets, strict=True):
            assert isinstance(relative, int)
            new_offsets[number] = offset + relative
    first = function.first_view - len(function.dynamics) - len(function.tensors)
    static = at_sizes(function, sizes)
    tensors = tuple(
        replace(tensor_, storage=0, offset=new_offsets[number]) for number, tensor_ in enumerate(static.tensors, first)
    )
    storages = (total,) if tensors else ()
    return Program((replace(static, tensors=tensors, storages=storages),), program.externs, program.constants)


@given(st.data())
def test_buffers_planned_anew_give_a_lawful_program_with_the_same_results(data: st.DataObject) -> None:
    """Random graphs of calls in place, views, branches and loops."""
    externals = TraitModule({name: data.draw(st.sampled_from(TRAITS)) for name in NAMES})
    maker = Maker(data.draw, FunctionBuilder("main", ops=default_ops()))
    inputs: list[NDArray] = []
    for index, dims in enumerate(SHAPES):
        concrete = [int(substitute(parse_dim(dim), SIZES)) for dim in dims]  # type: ignore[arg-type]
        inputs.append(np.arange(np.prod(concrete), dtype=np.float32).reshape(concrete) + 100 * index)
        maker.values.append(maker.fb.param(f"x{index}", tensor(dims)))
    maker.fill(data.draw(st.integers(1, 14)))
    results = data.draw(st.lists(st.sampled_from(maker.values), min_size=2, max_size=4))
    module = IRModule({"main": maker.fb.finish(*results)}, maker.fb.constants, {EXTERNAL_MODULES: (externals,)})
    program = lower(module)
    (function,) = program.functions
    found = memory_map(program, function, SIZES)
    assert len(found.buffers) == len(function.tensors), "the ranges of tensors with shared bytes intersect"
    program_again = moved(program, found, SIZES)
    verify(program_again)
    (function_again,) = program_again.functions
    again = memory_map(program_again, function_again)
    assert again.intervals == found.intervals
    assert [b.registers for b in again.buffers] == [b.registers for b in found.buffers]
    constants = dict(module.constants)
    expected = VirtualMachine(Executable(program, (externals,), constants))["main"](*inputs)
    have = VirtualMachine(Executable(program_again, (externals,), constants))["main"](*inputs)
    for left, right in zip(have, expected, strict=True):
        np.testing.assert_array_equal(left, right)


@given(st.data())
def test_nested_branches_and_loops_with_learnt_sizes_can_be_planned_anew(data: st.DataObject) -> None:
    module = NestMaker(data.draw).module()
    executable = byoc_core.build(module, [])
    sizes = {"n": 4}
    found = executable.memory_map(sizes=sizes)
    program = moved(executable.program, found, sizes)
    verify(program)
    table = np.random.default_rng(0).integers(-3, 4, (4, 3)).astype(np.float32)
    for flag in (True, False):
        inputs: list[Any] = [np.array(flag), np.int64(2), np.array([1.5, -2.0, 0.25], np.float32), table]
        expected = VirtualMachine(executable)["main"](*inputs)
        have = VirtualMachine(Executable(program, executable.modules, executable.constants))["main"](*inputs)
        for left, right in zip(have, expected, strict=True):
            np.testing.assert_array_equal(left, right)


@given(st.data())
def test_a_buffer_moved_onto_a_live_buffer_is_refused(data: st.DataObject) -> None:
    """The ranges of straight code are exact: two buffers live at once and put onto each other break a law."""
    externals = TraitModule(dict.fromkeys(NAMES, TRAITS[0]))
    fb = FunctionBuilder("main", ops=default_ops())
    maker = Maker(data.draw, fb)
    maker.values.append(fb.param("x", tensor((2, 3))))
    for _ in range(data.draw(st.integers(3, 10))):
        maker.call()
    module = IRModule({"main": fb.finish(maker.values[-1])}, fb.constants, {EXTERNAL_MODULES: (externals,)})
    program = lower(module)
    (function,) = program.functions
    found = memory_map(program, function)
    buffers = found.buffers
    pairs = [
        (left, right)
        for right in range(len(buffers))
        for left in range(right)
        if buffers[left].first <= buffers[right].last and buffers[right].first <= buffers[left].last
    ]
    for left, right in pairs:
        tensors = list(function.tensors)
        tensors[right] = replace(tensors[right], offset=tensors[left].offset)
        with pytest.raises(ProgramError, match="both in use and share bytes"):
            verify(Program((replace(function, tensors=tuple(tensors)),), program.externs, program.constants))
