"""Scratch memory handed over by a call: planned with everything else, linked only if certainly sufficient."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from byoc_core import VirtualMachine, parse
from byoc_core.artifact import Executable
from byoc_core.dims import Dim, parse_dim
from byoc_core.errors import LinkError
from byoc_core.ir import FunctionBuilder, IRModule, tensor
from byoc_core.ir.structural import CALL_DPS_PACKED
from byoc_core.lower import lower
from byoc_core.ops import default_ops
from byoc_core.runtime.module import CallTraits, NDArray, PackedFunction, RuntimeModule, Signature, TensorSpec
from byoc_core.runtime.serial import SerialModule
from byoc_core.vm import Call, CallKind, PlannedTensor, Program, Ret, VMFunction, decode, encode, verify

pytestmark = pytest.mark.interpreter


class Doubling(RuntimeModule):
    """A function ``double`` over float32 vectors requesting scratch memory and recording the memory received."""

    def __init__(self, workspace_nbytes: Dim, size: str = "m") -> None:
        shape = (parse_dim(size),)
        self.signature = Signature((TensorSpec("x", "float32", shape),), (TensorSpec("y", "float32", shape),))
        self.traits = CallTraits(workspace_nbytes=workspace_nbytes)
        self.scratch: list[NDArray] = []

    @property
    def type_key(self) -> str:
        return "doubling"

    @property
    def function_names(self) -> tuple[str, ...]:
        return ("double",)

    def find_function(self, name: str) -> PackedFunction:
        return PackedFunction(name, self._double, self.signature)

    def call_traits(self, name: str) -> CallTraits:
        return self.traits

    def _double(self, x: NDArray, y: NDArray, workspace: NDArray | None = None) -> None:
        if workspace is not None:
            self.scratch.append(workspace)
            workspace[...] = 0xFF
        np.add(x, x, out=y)


def lowered(module: RuntimeModule, *shape: int | str, times: int = 3) -> Program:
    builder = FunctionBuilder("main", ops=default_ops())
    value = builder.param("x", tensor(shape))
    for _ in range(times):
        (value,) = builder.bind(CALL_DPS_PACKED, [value], {"symbol": "double"}, out_types=[value.type]).results
    program = lower(IRModule({"main": builder.finish(value)}, attrs={"external_mods": (module,)}))
    verify(program)
    assert decode(encode(program)) == program
    return program


def run(module: RuntimeModule, program: Program, size: int, **externs: Callable[..., Any]) -> NDArray:
    machine = VirtualMachine(Executable(program, (module,)), externs=externs)
    result = machine["main"](np.arange(size, dtype=np.float32))
    assert isinstance(result, np.ndarray)
    return result


@pytest.mark.parametrize("wrap", [lambda module: module, SerialModule])
def test_the_arena_holds_it_and_calls_share_it(wrap: Callable[[RuntimeModule], RuntimeModule]) -> None:
    inner = Doubling(4096)
    module = wrap(inner)
    program = lowered(module, 16)
    # Two intermediates of 64 bytes at most live beside the workspace, which all three calls use.
    assert program.functions[0].arena_nbytes == 4096 + 2 * 64
    np.testing.assert_array_equal(run(module, program, 16), np.arange(16, dtype=np.float32) * 8)
    assert [w.nbytes for w in inner.scratch] == [4096] * 3
    assert len({w.ctypes.data for w in inner.scratch}) == 1
    assert all(w.ctypes.data % 64 == 0 for w in inner.scratch)


def test_branches_share_it() -> None:
    module = Doubling(4096)
    call = 'R.call_dps_packed("double", (y,), out_types=[R.Tensor((16,), "float32")])'
    regions = "".join(
        f"        @R.region\n        def {name}(y: R.Tensor((16,), 'float32')):\n"
        f"            z = {call}\n            return z\n"
        for name in ("then", "otherwise")
    )
    text = (
        "class M:\n    @R.function\n    def main(c: R.Tensor((), 'bool'), x: R.Tensor((16,), 'float32')):\n"
        f"{regions}        b = R.if_(c, x, regions=[then, otherwise])\n        return b\n"
    )
    program = lower(parse(text).with_attrs(external_mods=(module,)))
    verify(program)
    assert program.functions[0].storages == (4096,)
    machine = VirtualMachine(Executable(program, (module,)))
    for flag in (True, False):
        np.testing.assert_array_equal(machine["main"](np.array(flag), np.ones(16, np.float32)), np.full(16, 2.0))
    assert len({w.ctypes.data for w in module.scratch}) == 1


def test_symbols_are_translated_to_the_callers() -> None:
    module = Doubling(parse_dim("64*m"))
    program = lowered(module, "2*n", times=1)
    assert list(map(str, program.functions[0].storages)) == ["128*n"]
    for size in (6, 0, 10):
        np.testing.assert_array_equal(run(module, program, size), np.arange(size, dtype=np.float32) * 2)
    assert [w.nbytes for w in module.scratch] == [64 * 6, 0, 64 * 10]


def test_a_size_that_the_caller_cannot_tell_leaves_it_to_the_function() -> None:
    module = Doubling(parse_dim("64*m"), "m*k")
    program = lowered(module, "n", times=1)
    assert program.functions[0].storages == ()
    np.testing.assert_array_equal(run(module, program, 3), [0, 2, 4])
    assert module.scratch == []


def test_what_stands_in_for_a_function_gets_no_workspace() -> None:
    module = Doubling(4096)
    program = lowered(module, 4, times=1)
    seen = []

    def tripled(*arrays: NDArray) -> None:
        seen.append(len(arrays))
        np.multiply(arrays[0], 3, out=arrays[1])

    np.testing.assert_array_equal(run(module, program, 4, double=tripled), [0, 3, 6, 9])
    assert seen == [2]


def test_a_function_without_a_signature_gets_none() -> None:
    """Linking distinguishes scratch memory from results by the signature."""

    class Unsigned(Doubling):
        def find_function(self, name: str) -> PackedFunction:
            return PackedFunction(name, self._double)

    module = Unsigned(4096)
    program = lowered(module, 4, times=1)
    np.testing.assert_array_equal(run(module, program, 4), [0, 2, 4, 6])
    assert module.scratch == []
    assert program.functions[0].tensors == ()


def test_a_direct_call_needs_none() -> None:
    module = Doubling(4096)
    out = np.empty(3, np.float32)
    module.get_function("double")(np.ones(3, np.float32), out)
    np.testing.assert_array_equal(out, [2, 2, 2])
    assert module.scratch == []


def by_hand(register: PlannedTensor, storage: Dim) -> Program:
    x, y = (TensorSpec(name, "float32", (parse_dim("n"),)) for name in "xy")
    code = (Call(CallKind.EXTERN, 0, (0,), (1, 2)), Ret((1,)))
    program = Program((VMFunction("main", (x,), (y,), (), (storage,), (register,), (), code),), ("double",))
    verify(program)
    return program


AT = "function `main`, instruction 0: "
TYPE = "register t0 cannot be the workspace of `double`; got {}, expected uint8 of one axis"
SIZE = "register t0 is not provably large enough for the workspace of `double`; got {} bytes, expected {} bytes"
MISFITS: Mapping[str, tuple[Dim, PlannedTensor, Dim, str]] = {
    "no workspace wanted": (
        0,
        PlannedTensor(0, 0, "uint8", (64,)),
        64,
        "wrong number of outputs of `double`; got 2, expected 1",
    ),
    "another dtype": (
        64,
        PlannedTensor(0, 0, "int8", (64,)),
        64,
        TYPE.format("int8[64]"),
    ),
    "two axes": (
        64,
        PlannedTensor(0, 0, "uint8", (1, 64)),
        64,
        TYPE.format("uint8[1, 64]"),
    ),
    "too small": (
        65,
        PlannedTensor(0, 0, "uint8", (64,)),
        64,
        SIZE.format("64", "65"),
    ),
    "too small for some sizes": (
        parse_dim("8*m"),
        PlannedTensor(0, 0, "uint8", (parse_dim("4*n"),)),
        parse_dim("4*n"),
        SIZE.format("4*n", "8*n"),
    ),
    "of unknown size": (
        parse_dim("8*k"),
        PlannedTensor(0, 0, "uint8", (parse_dim("8*n"),)),
        parse_dim("8*n"),
        SIZE.format("8*n", "8*k"),
    ),
}


@pytest.mark.parametrize("case", MISFITS)
def test_what_does_not_fit_is_not_linked(case: str) -> None:
    wanted, register, storage, text = MISFITS[case]
    with pytest.raises(LinkError) as caught:
        VirtualMachine(Executable(by_hand(register, storage), (Doubling(wanted),)))
    assert str(caught.value) == AT + text


def test_more_than_is_wanted_fits() -> None:
    module = Doubling(parse_dim("8*m"))
    program = by_hand(PlannedTensor(0, 0, "uint8", (parse_dim("9*n+1"),)), parse_dim("9*n+1"))
    np.testing.assert_array_equal(run(module, program, 2), [0, 2])
    assert [w.nbytes for w in module.scratch] == [19]


def test_a_program_without_workspaces_still_runs() -> None:
    module = Doubling(0)
    program = lowered(module, 4)
    module.traits = CallTraits(workspace_nbytes=4096)
    np.testing.assert_array_equal(run(module, program, 4), [0, 8, 16, 24])
    assert module.scratch == []


class Replanned(Doubling):
    """A function with other workspaces than at the creation of the program."""

    workspaces_may_differ = True


@pytest.mark.parametrize("wrap", [lambda module: module, SerialModule])
@pytest.mark.parametrize(
    ("wanted", "given"), [(4096, [4096]), (64, [4096]), (0, []), (8192, []), (parse_dim("2048*m"), [])]
)
def test_a_workspace_that_is_not_wanted_any_more_or_too_small_is_left_out(
    wrap: Callable[[RuntimeModule], RuntimeModule], wanted: Dim, given: list[int]
) -> None:
    inner = Replanned(4096)
    module = wrap(inner)
    program = lowered(module, 4, times=1)
    inner.traits = CallTraits(workspace_nbytes=wanted)
    np.testing.assert_array_equal(run(module, program, 4), [0, 2, 4, 6])
    assert [w.nbytes for w in inner.scratch] == given


def test_another_dtype_is_never_a_workspace() -> None:
    with pytest.raises(LinkError) as caught:
        VirtualMachine(Executable(by_hand(PlannedTensor(0, 0, "int8", (64,)), 64), (Replanned(64),)))
    assert str(caught.value) == AT + TYPE.format("int8[64]")
