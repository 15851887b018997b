"""Programs that break a law: refused when loaded, or when the sizes are known, with the place and the law."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from byoc_core.artifact import Executable
from byoc_core.dims import parse_dim
from byoc_core.native.toolchain import Toolchain
from byoc_core.runtime.csource import CSourceModule
from byoc_core.runtime.module import Signature
from byoc_core.vm import (
    Builtin,
    Call,
    CallKind,
    DynamicTensor,
    Goto,
    If,
    Instruction,
    PlannedTensor,
    Program,
    Ret,
    VMFunction,
)

from core.tests.artifact.fuzzing.members import packed, taken_apart
from rt.tests.runner import NativeError, NativeLibrary, Status
from rt.tests.saved import assert_same_bits, load_saved
from rt.tests.test_machine_programs import draw
from rt.tests.written_programs import N, advance, builtin, call, executable_of, function_of, module_of, spec, view

pytestmark = pytest.mark.skipif(not Toolchain.status().ok, reason="no C compiler")

F32 = "float32"
X, Y = spec("x", "n", 4), spec("y", "n", 4)
FLAG = spec("flag", dtype="bool")
K = parse_dim("k")
EXTERN, PACKED, FUNCTION, BUILTIN = CallKind.EXTERN, CallKind.PACKED, CallKind.FUNCTION, CallKind.BUILTIN


def code_of(*code: Instruction, results: Sequence[Any] = (Y,), **parts: Any) -> VMFunction:
    """Return a function of ``x: float32[n, 4]`` and ``flag: bool``; registers: x, flag, results, ..."""
    return function_of([X, FLAG], results, code, **parts)


# Registers: 0 x, 1 flag, 2 y, then constants, tensors, dynamics and views.
END = (advance(0, 2), Ret((2,)))
TENSOR: dict[str, Any] = {"storages": [16 * N], "tensors": [PlannedTensor(0, 0, F32, (N, 4))]}
DYNAMIC: dict[str, Any] = {"dynamics": [DynamicTensor(F32, (N, 4))]}
BINDING: dict[str, Any] = {"dynamics": [DynamicTensor(F32, (K, 4), ("k",))]}

MALFORMED = [
    (code_of(), "has no instructions"),
    (code_of(advance(0, 2)), "instruction 0: the last instruction does not end the code"),
    (code_of(*END[:1], If(1, 0)), "instruction 1: the last instruction does not end the code"),
    (code_of(Goto(7)), "instruction 0: the jump target is outside the function"),
    (code_of(If(1, 2), Ret((2,))), "instruction 0: the jump target is outside the function"),
    (code_of(If(0, 1), Ret((2,))), "register p0 is not the scalar expected by the instruction"),
    (code_of(If(9, 1), Ret((2,))), "instruction 0: no such register"),
    (code_of(advance(9, 2), Ret((2,))), "instruction 0: no such register"),
    (code_of(Ret((2, 2))), "wrong number of returned values"),
    (code_of(Ret((9,))), "no such register"),
    (code_of(Ret((0,))), "register p0 is the wrong register for a result"),
    (code_of(Call(EXTERN, 3, (0,), (2,)), Ret((2,))), "instruction 0: no such callee"),
    (code_of(Call(FUNCTION, 3, (0,), (2,)), Ret((2,))), "instruction 0: no such callee"),
    (code_of(Call(BUILTIN, 6, (0,), (2,)), Ret((2,))), "instruction 0: no such callee"),
    (code_of(call(EXTERN, 0, [0], []), Ret((2,))), "instruction 0: a call without results"),
    (code_of(advance(2, 0), Ret((2,))), "register p0 is read-only"),
    (code_of(advance(0, 3), Ret((2,)), constants=[0]), "register c0 is read-only"),
    (code_of(advance(2, 3), Ret((2,)), views=[view(0, 0, N, 4)]), "register w0 is read-only"),
    (code_of(call(EXTERN, 0, [0], [2, 2]), Ret((2,))), "register o0 is written twice"),
    (code_of(call(PACKED, 0, [0], [2]), Ret((2,))), "register o0 cannot hold a returned value"),
    (code_of(builtin(Builtin.ALLOCATE, [], [2]), *END), "register o0 is not dynamic"),
    (code_of(builtin(Builtin.CLONE, [0], [2]), *END), "register o0 is not dynamic"),
    (code_of(builtin(Builtin.CLONE, [0], [3, 4]), *END, **DYNAMIC), "no such register"),
    (code_of(builtin(Builtin.CLONE, [0, 0], [3]), *END, **DYNAMIC), "wrong number of operands of a builtin"),
    (code_of(builtin(Builtin.COPY, [0, 0], [2]), *END), "wrong number of operands of a builtin"),
    (code_of(builtin(Builtin.COPY, [1], [2]), *END), "register p1 has another dtype or rank than declared"),
    (code_of(builtin(Builtin.ZERO, [], [2]), *END), "register o0 is not the scalar expected"),
    (code_of(builtin(Builtin.LOOP_TEST, [1, 1, 1], [2]), *END), "register p1 is not the scalar expected"),
    (code_of(builtin(Builtin.ALLOCATE, [], [3]), *END, **BINDING), "register v0 binds symbols: only a returned value"),
    (code_of(call(FUNCTION, 0, [0], [2]), *END), "wrong number of arguments or results of a function"),
    (code_of(call(FUNCTION, 0, [1, 1], [2]), *END), "register p1 has another dtype or rank than declared"),
    (
        code_of(call(FUNCTION, 0, [3, 1], [2]), *END, views=[view(0, 0, N, 3, strides=(4, 1))]),
        "register w0 has another size than declared by the callee",
    ),
    (code_of(advance(0, 2), Ret((2,)), results=[spec("y", "k", 4)]), "register o0 has no memory before the function"),
    (code_of(*END, constants=[5]), "register c0 cites a missing constant"),
    (code_of(*END, tensors=[PlannedTensor(0, 0, F32, (N, 4))]), "register t0 lies in a missing storage"),
    (code_of(*END, storages=[99], tensors=[PlannedTensor(0, 8, F32, (N, 4))]), "register t0 is not aligned"),
    (
        code_of(*END, storages=[99], tensors=[PlannedTensor(0, 0, F32, (K, 4))]),
        "has a size not determined by the inputs",
    ),
    (code_of(*END, dynamics=[DynamicTensor(F32, (N, 4), ("n",))]), "binds a symbol already bound by the inputs"),
    (code_of(*END, views=[view(3, 0, N, 4)]), "register w0 is a view of a register without memory of known size"),
    (code_of(*END, **DYNAMIC, views=[view(3, 0, N, 4)]), "register w0 is a view of a register without memory"),
    (code_of(*END, views=[view(0, 0, N, 4, dtype="int32")]), "register w0 has another dtype than the base of the view"),
    (code_of(*END, views=[view(0, 0, N, 4, strides=(4,))]), "a view has another number of strides than axes"),
    (code_of(*END, storages=[parse_dim("n")], views=[view(0, 0, *[1] * 65)]), "a register has too many axes"),
]


def loading_error(native: NativeLibrary, executable: Executable) -> NativeError:
    """Return the error of loading an executable."""
    with pytest.raises(NativeError) as caught:
        native.load_bytes(executable.to_bytes())
    return caught.value


@pytest.mark.parametrize(("function", "problem"), MALFORMED)
def test_malformed_programs_are_refused(native: NativeLibrary, function: VMFunction, problem: str) -> None:
    error = loading_error(native, executable_of(function, arrays=[draw(2, 4)]))
    assert str(error).startswith("artifact in memory, member program: is malformed: ")
    assert problem in str(error)
    assert error.status is Status.ARTIFACT


def test_names_are_unique(native: NativeLibrary) -> None:
    function = code_of(*END)
    assert "a function has no name, or two have the name `main`" in str(
        loading_error(native, executable_of(function, function))
    )
    twice = Executable(Program((function,), ("advance", "advance")), [module_of()], is_own=True)
    assert "a symbol has no name, or two have the name `advance`" in str(loading_error(native, twice))


UNLINKED = [
    (code_of(call(EXTERN, 0, [0], [2, 3]), Ret((2,)), **TENSOR), "`advance` takes other numbers of inputs and outputs"),
    (code_of(advance(1, 2), Ret((2,))), "`advance` does not take register p1 as `x`: another dtype, rank or size"),
]


@pytest.mark.parametrize(("function", "problem"), UNLINKED)
def test_calls_fit_the_called_function(native: NativeLibrary, function: VMFunction, problem: str) -> None:
    error = loading_error(native, executable_of(function))
    assert f"function `main`, instruction 0: {problem}" in str(error)
    assert error.status is Status.LINK


def test_sizes_known_on_both_sides_are_compared(native: NativeLibrary) -> None:
    signature = Signature((spec("x", "n", 3),), (spec("y", "n", 3),))
    text = module_of().get_source()
    executable = Executable(
        Program((code_of(*END),), ("advance",)), [CSourceModule(text, {"advance": signature})], is_own=True
    )
    assert "`advance` does not take register p0 as `x`" in str(loading_error(native, executable))


def test_a_symbol_has_one_module(native: NativeLibrary) -> None:
    program = Program((code_of(*END),), ("advance",))
    executable = Executable(program, [module_of(), module_of(is_strided=False)], is_own=True)
    error = loading_error(native, executable)
    assert str(error) == "symbol `advance`: is defined by two modules; got runtimes `csource` and `csource`"
    assert error.status is Status.LINK


UNFIT = [
    # Refused for the sizes of the call, n = 3.
    (code_of(*END, storages=[parse_dim("n-5")]), "storage 0: size n-5 is negative; got -2"),
    (code_of(*END, storages=[parse_dim("7//(n-3)")]), "storage 0: size 7//(n-3) cannot be computed with n = 3"),
    (code_of(*END, storages=[K]), "storage 0: size k is not determined by the inputs: k is unknown"),
    (code_of(*END, storages=[9], tensors=[PlannedTensor(0, 0, F32, (N,))]), "register t0: reaches beyond the storage"),
    (
        code_of(*END, storages=[64], tensors=[PlannedTensor(0, 64, F32, (N,))]),
        "register t0: reaches beyond the storage",
    ),
    (
        code_of(*END, storages=[64], tensors=[PlannedTensor(0, 0, F32, (parse_dim("n-5"),))]),
        "register t0: size n-5 is negative; got -2",
    ),
    (
        code_of(*END, storages=[64], tensors=[PlannedTensor(0, 0, F32, (1 << 40, 1 << 40))]),
        "register t0: the bytes exceed 64 bits",
    ),
    (code_of(*END, views=[view(0, 16, N, 4)]), "register w0: does not lie inside the base"),
    (code_of(*END, views=[view(0, 0, N, 4, strides=(5, 1))]), "register w0: does not lie inside the base"),
    (
        code_of(*END, views=[view(0, 0, N, 4, strides=(parse_dim("n-7"), 1))]),
        "register w0: does not lie inside the base",
    ),
    (code_of(*END, views=[view(0, 0, 2, 2, strides=(1 << 62, 1 << 62))]), "register w0: does not lie inside the base"),
    (code_of(*END, views=[view(0, 2, 1)]), "register w0: is not aligned"),
    (code_of(*END, views=[view(0, parse_dim("n-7"), 1)]), "register w0: is not aligned"),
    (code_of(*END, views=[view(0, parse_dim("7//(n-3)"), 1)]), "register w0: size 7//(n-3) cannot be computed"),
    (
        code_of(*END, views=[view(0, 0, 1, 1, strides=(parse_dim("7//(n-3)"), 1))]),
        "register w0: size 7//(n-3) cannot be computed",
    ),
    (code_of(Ret((2,)), results=[spec("y", "n-5")]), "register o0: size n-5 is negative"),
]


@pytest.mark.parametrize(("function", "problem"), UNFIT)
def test_sizes_of_a_call_keep_the_bounds(native: NativeLibrary, function: VMFunction, problem: str) -> None:
    program = native.load_bytes(executable_of(function).to_bytes())
    with pytest.raises(NativeError) as caught:
        program["main"](draw(3, 4), np.array(True))
    assert str(caught.value).startswith("function `main`, ")
    assert problem in str(caught.value)
    assert caught.value.status is Status.CALL


UNDEFINED = [
    (code_of(advance(3, 2), Ret((2,)), **DYNAMIC), 0),
    (code_of(advance(0, 3), advance(3, 2), Ret((2,)), **DYNAMIC), 0),
    (code_of(builtin(Builtin.COPY, [3], [2]), Ret((2,)), **DYNAMIC), 0),
    (code_of(builtin(Builtin.CLONE, [3], [3]), Ret((2,)), **DYNAMIC), 0),
    (code_of(call(PACKED, 0, [3], [3]), Ret((2,)), **DYNAMIC), 0),
    (code_of(call(FUNCTION, 0, [3, 1], [2]), Ret((2,)), **DYNAMIC), 0),
    (code_of(If(3, 0), Ret((2,)), dynamics=[DynamicTensor("bool", ())]), 0),
    (code_of(Goto(1), Ret((3,)), results=[spec("y", "k", 4)], **BINDING), None),
]


@pytest.mark.parametrize(("function", "instruction"), UNDEFINED)
def test_undefined_registers_are_found(native: NativeLibrary, function: VMFunction, instruction: int | None) -> None:
    program = native.load_bytes(executable_of(function).to_bytes())
    with pytest.raises(NativeError, match="register v0 is read before it is defined") as caught:
        program["main"](draw(3, 4), np.array(True))
    assert instruction is None or f"function `main`, instruction {instruction}" in str(caught.value)
    assert caught.value.status is Status.EXECUTION
    if instruction is None:
        with pytest.raises(NativeError, match="register v0 is read before it is defined"):
            program["main"].run_into([draw(3, 4), np.array(True)], [draw(3, 4)])


def test_conditions_may_be_dynamic(native: NativeLibrary, tmp_path: Path) -> None:
    function = code_of(
        builtin(Builtin.CLONE, [1], [3]),
        If(3, 4),
        advance(0, 2),
        Ret((2,)),
        builtin(Builtin.COPY, [0], [2]),
        Ret((2,)),
        dynamics=[DynamicTensor("bool", ())],
    )
    native_function = load_saved(executable_of(function), native, tmp_path)["main"]
    x = draw(2, 4)
    assert_same_bits(native_function(x, np.array(True)), [x + np.float32(1)])
    assert_same_bits(native_function(x, np.array(False)), [x])


def test_functions_filling_buffers_may_return_results(native: NativeLibrary, tmp_path: Path) -> None:
    """A call_packed of a function that fills buffers: the registers get new memory; the argument stays until then."""
    function = code_of(
        call(PACKED, 0, [0], [3]), call(PACKED, 0, [3], [3]), builtin(Builtin.COPY, [3], [2]), Ret((2,)), **DYNAMIC
    )
    native_function = load_saved(executable_of(function), native, tmp_path)["main"]
    for n in (2, 0, 2):
        x = draw(n, 4)
        assert_same_bits(native_function(x, np.array(True)), [x + np.float32(1) + np.float32(1)])
    with pytest.raises(NativeError, match=r"instruction 0 \(call_packed `advance` of runtime `csource`\): failed"):
        native_function(-1 - x, np.array(True))
    unknown = code_of(call(PACKED, 0, [0], [3]), Ret((3,)), results=[spec("y", "k", 4)], **BINDING)
    with pytest.raises(NativeError, match="v0: size k is not determined by the inputs: k is unknown"):
        load_saved(executable_of(unknown), native, tmp_path)["main"](x, np.array(True))


def test_results_fit_the_buffers_of_the_caller(native: NativeLibrary, tmp_path: Path) -> None:
    """Buffers of other symbols than the callee's: the sizes of the call decide."""
    inner = function_of([X], [Y], [advance(0, 1), Ret((1,))], name="inner")
    code: list[Instruction] = [builtin(Builtin.CLONE, [0], [2]), Ret((2,))]
    learnt = function_of([X], [spec("y", "k", 4)], code, name="learnt", **BINDING)
    for callee, index in ((inner, 1), (learnt, 1)):
        main = function_of([X, spec("u", "m")], [spec("y", "m", 4)], [call(FUNCTION, index, [0], [2]), Ret((2,))])
        native_function = load_saved(executable_of(main, callee), native, tmp_path)["main"]
        x = draw(3, 4)
        expected = x + np.float32(1) if callee is inner else x
        assert_same_bits(native_function(x, draw(3)), [expected])
        with pytest.raises(NativeError) as caught:
            native_function(x, draw(2))
        problem = "register o0 has another size than the result; got [2, 4], expected [3, 4]"
        assert str(caught.value) == f"function `main`, instruction 0 (call `{callee.name}`): failed: {problem}"


def test_learnt_sizes_are_compared(native: NativeLibrary, tmp_path: Path) -> None:
    """A returned value must have the sizes known before."""
    function = code_of(
        builtin(Builtin.CLONE, [0], [3]),
        Ret((3,)),
        results=[spec("y", "k", 4)],
        dynamics=[DynamicTensor(F32, (parse_dim("2*k+n-1"), 4), ("k",))],
    )
    native_function = load_saved(executable_of(function), native, tmp_path)["main"]
    with pytest.raises(NativeError) as caught:
        native_function(draw(3, 4), np.array(True))  # 2*k + 2 = 3 has no solution
    assert "returned value 0 `v0`: axis 0 has the wrong size; got [3, 4], expected [2*k+n-1, 4] with n = 3" in str(
        caught.value
    )


def test_programs_have_the_version_of_their_content(native: NativeLibrary) -> None:
    for function, version, other in (
        (code_of(*END), 1, 2),
        (code_of(*END, views=[view(0, 0, N, 4)]), 2, 1),
        (code_of(advance(0, 2), advance(2, 2), Ret((2,))), 2, 1),
    ):
        members = taken_apart(executable_of(function).to_bytes())
        program = bytearray(members["program"])
        assert program[8] == version
        program[8] = other
        if (version, other) == (1, 2):
            program += b"\0"  # no views
        with pytest.raises(NativeError) as caught:
            native.load_bytes(packed({**members, "program": bytes(program)}))
        assert "has the wrong format version" in str(caught.value) or "bytes after the end" in str(caught.value)
        program[8] = 7
        with pytest.raises(NativeError, match="has another format version; got 7, expected 1 to 3"):
            native.load_bytes(packed({**members, "program": bytes(program)}))


@pytest.mark.parametrize("version", [4, 5, 6])
def test_programs_of_devices_are_refused_with_the_reason(native: NativeLibrary, version: int) -> None:
    members = taken_apart(executable_of(code_of(*END)).to_bytes())
    program = bytearray(members["program"])
    program[8] = version
    with pytest.raises(
        NativeError, match="keeps tensors in the memory of a device, and this runtime knows none"
    ) as caught:
        native.load_bytes(packed({**members, "program": bytes(program)}))
    assert caught.value.status == Status.UNSUPPORTED
