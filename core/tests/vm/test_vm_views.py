"""Views and results in the place of arguments: laws, encoding, linking, and execution."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from byoc_core.dims import Dim, parse_dim
from byoc_core.errors import LinkError, ProgramError
from byoc_core.runtime.module import CallTraits, NDArray, PackedFunction, RuntimeModule, TensorSpec
from byoc_core.vm import (
    Builtin,
    Call,
    CallKind,
    ConstantRef,
    DynamicTensor,
    If,
    PlannedTensor,
    Program,
    Ret,
    View,
    VirtualMachine,
    VMFunction,
    decode,
    disassemble,
    encode,
    verify,
)
from byoc_core.vm.encoding import MAGIC
from hypothesis import given
from hypothesis import strategies as st

from core.tests.vm.programs import Executable

pytestmark = pytest.mark.interpreter

n = parse_dim("n")
EXTERN, PACKED, FUNCTION, BUILTIN = CallKind.EXTERN, CallKind.PACKED, CallKind.FUNCTION, CallKind.BUILTIN
F32 = "float32"


class Functions(RuntimeModule):
    """Functions: ``next`` computes ``x + 1``, ``add`` computes ``x + y``, element by element."""

    type_key = "functions"
    function_names = ("next", "add")

    def __init__(self, traits: CallTraits) -> None:
        self._traits = traits

    def call_traits(self, name: str) -> CallTraits:
        return self._traits

    def find_function(self, name: str) -> PackedFunction:
        def run(*arrays: NDArray) -> None:
            arrays[-1][...] = arrays[0] + (arrays[1] if name == "add" else 1)

        return PackedFunction(name, run)


def view(base: int, offset: Dim, *shape: Dim, strides: tuple[Dim, ...] | None = None) -> View:
    return View(base, offset, F32, shape, strides)


def extern(number: int, args: tuple[int, ...], *results: int) -> Call:
    return Call(EXTERN, number, args, results)


def copy(source: int, target: int) -> Call:
    return Call(BUILTIN, Builtin.COPY, (source,), (target,))


# Registers: 0 p0 x, 1 p1 flag, 2 o0 y, 3 c0, 4 t0, 5 t1, 6 v0, then the views.
PARAMS = (TensorSpec("x", F32, (n, 4)), TensorSpec("flag", "bool", ()))
TENSORS = (PlannedTensor(0, 0, F32, (n, 8)), PlannedTensor(1, 0, F32, (4, 4)))
LEFT = view(4, 0, n, 4, strides=(8, 1))
RIGHT = view(4, 16, n, 4, strides=(8, 1))
WHOLE = view(4, 0, 2 * n, 4)


def program(views: Sequence[View] = (LEFT, RIGHT, WHOLE), code: Sequence[Any] = ()) -> Program:
    main = VMFunction(
        "main",
        PARAMS,
        (TensorSpec("y", F32, (n, 8)),),
        (0,),
        (32 * n, 64),
        TENSORS,
        (DynamicTensor(F32, (n, 4)),),
        tuple(code) or (extern(0, (0,), 7), extern(1, (0, 7), 8), extern(0, (4,), 2), Ret((2,))),
        tuple(views),
    )
    callee = VMFunction("callee", PARAMS[:1], (TensorSpec("b", F32, (n, 4)),), (), (), (), (), (copy(0, 1), Ret((1,))))
    return Program((main, callee), ("next", "add"), (ConstantRef("0" * 64, F32, (4,)),))


def machine(made: Program, traits: CallTraits) -> VirtualMachine:
    return VirtualMachine(Executable(made, (Functions(traits),), {"0" * 64: np.ones(4, np.float32)}))


ANY = CallTraits(strided=True, in_place=((0, 0), (0, 1)))


def test_a_tensor_is_written_in_parts_and_read_as_a_whole() -> None:
    vm = machine(program(), ANY)
    for size in (3, 1, 0, 5, 5):
        x = np.arange(size * 4, dtype=np.float32).reshape(size, 4)
        result = vm["main"](x, np.bool_(True))
        np.testing.assert_array_equal(result, np.concatenate([x + 1, x + x + 1], 1) + 1)


def test_views_of_what_comes_with_a_call() -> None:
    views = (view(0, 0, 2 * n, 2), view(2, 0, 2 * n, 2, strides=(4, 1)), view(2, 8, 2 * n, 2, strides=(4, 1)))
    vm = machine(program(views, (copy(7, 8), extern(0, (7,), 9), Ret((2,)))), ANY)
    for size in (2, 3, 3):
        x = np.arange(size * 4, dtype=np.float32).reshape(size, 4)
        halves = x.reshape(-1, 2)
        result = vm["main"](x, np.bool_(True))
        np.testing.assert_array_equal(result, np.concatenate([halves, halves + 1], 1).reshape(size, 8))


def test_a_view_of_a_constant_may_repeat_it() -> None:
    views = (view(3, 0, n, 4, strides=(0, 1)), LEFT, RIGHT)
    vm = machine(program(views, (copy(7, 8), extern(1, (7, 0), 9), copy(4, 2), Ret((2,)))), ANY)
    result = vm["main"](np.zeros((3, 4), np.float32), np.bool_(True))
    np.testing.assert_array_equal(result, np.ones((3, 8)))


def test_a_result_in_the_place_of_an_argument() -> None:
    code = (copy(0, 7), copy(0, 8), extern(0, (4,), 4), extern(0, (9,), 9), copy(4, 2), Ret((2,)))
    made = program(code=code)
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    np.testing.assert_array_equal(machine(made, ANY)["main"](x, np.bool_(True)), np.concatenate([x, x], 1) + 2)


def test_encoding_is_of_version_1_where_nothing_new_is_used() -> None:
    plain = program((), (copy(0, 2), Ret((2,))))
    in_place = program((), (extern(0, (4,), 4), Ret((2,))))
    for made, version in ((plain, 1), (in_place, 2), (program(), 2)):
        data = encode(made)
        assert data[len(MAGIC) : len(MAGIC) + 2] == bytes([version, 0])
        assert decode(data) == made


def test_a_program_has_one_encoding() -> None:
    plain = Program((VMFunction("main", PARAMS, (), (), (), (), (), (Ret(()),)),))
    body = encode(plain)[len(MAGIC) + 2 :]
    no_views = b"\0"
    in_place = encode(
        replace(plain, functions=(replace(program().functions[0], code=(extern(0, (4,), 4),), views=()),))
    )
    for data, got in ((MAGIC + b"\2\0" + body + no_views, 2), (MAGIC + b"\1\0" + in_place[len(MAGIC) + 2 : -1], 1)):
        with pytest.raises(ProgramError) as caught:
            decode(data)
        expected = 3 - got
        text = f"bytecode: has the wrong format version for this program; got {got}, expected {expected}"
        assert str(caught.value) == text


def test_every_single_byte_change_is_safe() -> None:
    data = encode(program())
    for position in range(len(data)):
        for value in (0, 1, data[position] ^ 1, data[position] ^ 0x80, 255):
            changed = data[:position] + bytes([value]) + data[position + 1 :]
            try:
                decoded = decode(changed)
            except ProgramError:
                continue
            assert encode(decoded) == changed
            try:
                verify(decoded)
            except ProgramError:
                continue


def test_listing() -> None:
    assert disassemble(program()).split("\n\n")[1] == (
        "function main(p0 x: float32[n, 4], p1 flag: bool[]) -> (o0 y: float32[n, 8])\n"
        "    c0 = constant 0\n"
        "    storage 0: 32*n bytes\n"
        "    storage 1: 64 bytes\n"
        "    t0 = float32[n, 8] at storage 0 + 0\n"
        "    t1 = float32[4, 4] at storage 1 + 0\n"
        "    v0 = float32[n, 4]\n"
        "    w0 = float32[n, 4] at t0 + 0 strides [8, 1]\n"
        "    w1 = float32[n, 4] at t0 + 16 strides [8, 1]\n"
        "    w2 = float32[2*n, 4] at t0 + 0\n"
        "       0: call_dps_packed next(p0) -> w0\n"
        "       1: call_dps_packed add(p0, w0) -> w1\n"
        "       2: call_dps_packed next(t0) -> o0\n"
        "       3: ret o0"
    )


NO_MEMORY = "the base of the view owns no memory of known size"
BROKEN: dict[str, tuple[Program, str]] = {
    "of a dynamic register": (
        program((view(6, 0, n, 4),)),
        f"register w0: {NO_MEMORY}; got v0, expected a param, result, constant or planned tensor",
    ),
    "of a view": (
        program((LEFT, view(7, 0, n, 4))),
        f"register w1: {NO_MEMORY}; got 7, expected a param, result, constant or planned tensor",
    ),
    "another dtype": (
        program((View(4, 0, "int32", (n, 8)),)),
        "register w0: has another dtype than the base t0; got int32, expected float32",
    ),
    "unknown dtype": (program((View(4, 0, "int33", (n, 8)),)), "register w0: unknown dtype 'int33'. "),
    "unknown size": (program((view(4, 0, parse_dim("m")),)), "register w0: the inputs do not determine the symbols m"),
    "number of strides": (
        program((view(4, 0, n, 4, strides=(1,)),)),
        "register w0: has another number of strides than axes; got 1",
    ),
    "alignment": (
        program((view(5, 2, 4),)),
        "register w0: is not aligned; got 2, expected a multiple of 4 bytes",
    ),
    "symbolic alignment": (
        program((view(4, n, n),)),
        "register w0: is not aligned; got n, expected a multiple of 4 bytes",
    ),
    "negative stride": (
        program((view(5, 12, 4, strides=(-1,)),)),
        "register w0: has a negative stride; got [-1]",
    ),
    "beyond its base": (
        program((view(5, 4, 4, 4),)),
        "register w0: does not provably lie inside the base; got 16 elements from 1, expected at most 16 elements",
    ),
    "perhaps beyond its base": (
        program((view(4, 0, 8),)),
        "register w0: does not provably lie inside the base; got 8 elements from 0, expected at most 8*n elements",
    ),
    "before its base": (
        program((view(5, -4, 4),)),
        "register w0: does not provably lie inside the base; got 4 elements from -1, expected at most 16 elements",
    ),
    "one place twice": (
        program((view(5, 0, 4, 4, strides=(2, 1)),)),
        "register w0: may name the same element twice; got strides [2, 1]",
    ),
    "writes a param": (
        program((view(0, 0, 4 * n),), (extern(0, (0,), 7), Ret((2,)))),
        "instruction 0: register w0 is read-only",
    ),
    "writes what repeats": (
        program((view(5, 0, 4, 4, strides=(0, 1)),), (extern(0, (3,), 7), Ret((2,)))),
        "instruction 0: register w0 has repeated elements and cannot be written",
    ),
    "reads what is half written": (
        program(code=(extern(0, (0,), 7), extern(0, (4,), 2), Ret((2,)))),
        "instruction 1: register t0 is read before it is written",
    ),
    "reads a part that is not written": (
        program(code=(extern(0, (0,), 7), extern(0, (8,), 2), Ret((2,)))),
        "instruction 1: register w1 is read before it is written",
    ),
    "half written on one path": (
        program(code=(extern(0, (0,), 7), If(1, 3), extern(0, (0,), 8), extern(0, (4,), 2), Ret((2,)))),
        "instruction 3: register t0 is read before it is written",
    ),
    "returns what is half written": (
        program((view(2, 0, n, 4, strides=(8, 1)),), (copy(0, 7), Ret((2,)))),
        "instruction 1: register o0 is read before it is written",
    ),
    "a copy onto what it reads": (
        program(code=(copy(0, 7), copy(0, 8), copy(4, 4), Ret((2,)))),
        "instruction 2: register t0 is written while in use",
    ),
    "a result upon a part of an argument": (
        program(code=(copy(0, 7), copy(0, 8), extern(0, (4,), 7), Ret((2,)))),
        "instruction 2: register w0 is written while in use",
    ),
    "results that overlap": (
        program(code=(extern(0, (0,), 4, 7), Ret((2,)))),
        "instruction 0: register w0 is written while in use",
    ),
    "strides into a function": (
        program(code=(Call(FUNCTION, 1, (0,), (7,)), Ret((2,)))),
        "instruction 0: a call takes no strides; got w0",
    ),
    "strides into one that returns": (
        program(code=(copy(0, 7), Call(PACKED, 0, (7,), (6,)), Ret((2,)))),
        "instruction 1: a call_packed takes no strides; got w0",
    ),
}


@pytest.mark.parametrize("law", BROKEN)
def test_law(law: str) -> None:
    made, text = BROKEN[law]
    verify(program())
    with pytest.raises(ProgramError) as caught:
        verify(made)
    found = str(caught.value)
    assert found.startswith("function `main`, ")
    assert found.removeprefix("function `main`, ").startswith(text) if text.endswith(" ") else found.endswith(text)


def test_a_part_of_a_tensor_that_is_needed_keeps_the_bytes_of_all() -> None:
    tensors = (PlannedTensor(0, 0, F32, (n, 8)), PlannedTensor(0, 0, F32, (n, 8)))
    made = program(code=(copy(0, 7), copy(0, 8), extern(0, (0,), 5), extern(0, (7,), 2), Ret((2,))))
    main = replace(made.functions[0], tensors=tensors)
    with pytest.raises(ProgramError) as caught:
        verify(replace(made, functions=(main, made.functions[1])))
    assert str(caught.value) == "function `main`, instruction 2: registers t1 and t0 are both in use and share bytes"


def test_linking_refuses_what_a_function_does_not_permit() -> None:
    in_place = program((view(4, 0, 2 * n, 4),), (extern(0, (3,), 4), extern(1, (7, 4), 4), copy(4, 2), Ret((2,))))
    for made, traits, text in (
        (
            program(),
            CallTraits(),
            "function `main`, instruction 0: `next` takes C-contiguous arrays only; got register w0 with strides",
        ),
        (
            in_place,
            CallTraits(strided=True, in_place=((0, 1),)),
            "function `main`, instruction 1: `add` does not permit output 0 in the memory of input 0; got t0 and w0",
        ),
    ):
        with pytest.raises(LinkError) as caught:
            machine(made, traits)
        assert str(caught.value) == text
    with pytest.raises(LinkError):
        VirtualMachine(
            Executable(program(), (Functions(ANY),), {"0" * 64: np.ones(4, np.float32)}),
            externs={"next": lambda x, out: np.add(x, 1, out=out)},
        )


SHAPES: tuple[tuple[int, tuple[int, ...], tuple[int, ...] | None], ...] = (
    (0, (16,), None),
    (0, (4, 4), None),
    (0, (4, 4), (1, 4)),
    (0, (8,), None),
    (32, (8,), None),
    (0, (4, 2), (4, 1)),
    (8, (4, 2), (4, 1)),
    (4, (8,), (2,)),
    (0, (2, 4), (8, 1)),
    (16, (2, 4), (8, 1)),
    (16, (4,), None),
    (0, (4, 4), (0, 1)),
)


class Naive:
    """Memory byte by byte, with value and writing tensor of each byte; another tensor's write leaves no value."""

    def __init__(self, function: VMFunction, x: NDArray) -> None:
        self.function = function
        self.memory = {0: x.copy(), 1: np.zeros(16, np.float32), 2: np.zeros(128, np.float32)}
        self.writer: dict[tuple[int, int], int] = {(0, index): 0 for index in range(16)}

    def places(self, register: int) -> tuple[int, NDArray, int]:
        """Return memory, the numbers of the elements in memory, and the owning register."""
        layout: tuple[int, tuple[int, ...], tuple[int, ...] | None] = (0, (16,), None)
        first_view = 2 + len(self.function.tensors)
        if register >= first_view:
            found = self.function.views[register - first_view]
            register, layout = found.base, (found.offset, found.shape, found.strides)  # type: ignore[assignment]
        offset, shape, strides = layout
        start = offset // 4 + (self.function.tensors[register - 2].offset // 4 if register > 1 else 0)
        steps = strides or tuple(int(np.prod(shape[axis + 1 :])) for axis in range(len(shape)))
        grid = np.indices(shape)
        return min(register, 2), start + sum(index * step for index, step in zip(grid, steps, strict=True)), register

    def read(self, register: int) -> NDArray:
        memory, elements, owner = self.places(register)
        assert all(self.writer.get((memory, int(element))) == owner for element in elements.flat)
        return self.memory[memory][elements]

    def write(self, register: int, values: NDArray) -> None:
        memory, elements, owner = self.places(register)
        self.memory[memory][elements] = values
        self.writer.update(((memory, int(element)), owner) for element in elements.flat)

    def run(self) -> NDArray:
        for step in self.function.code:
            if isinstance(step, Call):
                values = [self.read(number) for number in step.args]
                if step.kind is EXTERN:
                    values = [values[0] + values[1] if step.callee else values[0] + 1]
                self.write(step.results[0], values[0])
        return self.read(1)


@given(st.data())
def test_a_program_that_is_accepted_computes_what_memory_would(data: st.DataObject) -> None:
    """Any instructions on any views: a program without broken laws gives the results of a memory of elements."""
    offsets = data.draw(st.lists(st.sampled_from([0, 64, 128, 192]), min_size=1, max_size=4))
    tensors = tuple(PlannedTensor(0, offset, F32, (16,)) for offset in offsets)
    bases = st.integers(0, 1 + len(tensors))
    views = []
    for offset, shape, strides in data.draw(st.lists(st.sampled_from(SHAPES), min_size=1, max_size=10)):
        views.append(View(data.draw(bases), offset, F32, shape, strides))
    shapes: list[tuple[Any, ...]] = [(16,)] * (2 + len(tensors)) + [one.shape for one in views]
    spec = TensorSpec("x", F32, (16,))
    empty = VMFunction("main", (spec,), (replace(spec, name="y"),), (), (256,), tensors, (), (), tuple(views))
    code: list[Any] = []
    for _ in range(data.draw(st.integers(1, 12))):
        target = data.draw(st.integers(1, len(shapes) - 1))
        same = st.sampled_from([number for number, shape in enumerate(shapes) if shape == shapes[target]])
        kind = data.draw(st.sampled_from(["copy", "next", "add"]))
        args = tuple(data.draw(same) for _ in range(2 if kind == "add" else 1))
        step = copy(args[0], target) if kind == "copy" else extern(int(kind == "add"), args, target)
        attempt = Program((replace(empty, code=(*code, step, copy(0, 1), Ret((1,)))),), ("next", "add"))
        try:
            verify(attempt)
        except ProgramError:
            if data.draw(st.integers(0, 9)):
                continue
        code.append(step)
    made = Program((replace(empty, code=(*code, Ret((1,)))),), ("next", "add"))
    try:
        verify(made)
    except ProgramError:
        made = Program((replace(empty, code=(*code, copy(0, 1), Ret((1,)))),), ("next", "add"))
        try:
            verify(made)
        except ProgramError:
            return
    assert decode(encode(made)) == made
    x = np.arange(16, dtype=np.float32)
    vm = machine(made, ANY)
    np.testing.assert_array_equal(vm["main"](x), Naive(made.functions[0], x).run())


def test_a_size_without_a_value_is_no_harm() -> None:
    """Orders to try use sizes at some values of the symbols; other sizes may divide by zero there."""
    size = parse_dim("n//(n-1009)")
    views = (View(2, 0, F32, (size,)), View(2, 0, F32, (size, 1)))
    made = program(views, (extern(0, (0,), 7), Ret((2,))))
    main = replace(made.functions[0], results=(TensorSpec("y", F32, (size,)),))
    data = encode(replace(made, functions=(main, made.functions[1])))
    verify(decode(data))
