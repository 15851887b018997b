"""The laws of memory domains in programs, the encoding of domains, and the listing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from byoc_core.errors import ProgramError
from byoc_core.runtime.module import MemoryDomain
from byoc_core.vm import (
    Builtin,
    Call,
    CallKind,
    ConstantRef,
    DynamicTensor,
    PlannedTensor,
    Program,
    Ret,
    View,
    VMFunction,
    decode,
    disassemble,
    encode,
    verify,
)

from core.tests.vm.programs import spec

NPU, GPU = MemoryDomain("npu"), MemoryDomain("gpu", alignment=256)
VISIBLE = MemoryDomain("npu", host_accessible=True)
X, Y = spec("x", 4), spec("y", 4)


def copy(source: int, target: int) -> Call:
    return Call(CallKind.BUILTIN, Builtin.COPY, (source,), (target,))


def extern(number: int, *registers: int) -> Call:
    return Call(CallKind.EXTERN, number, registers[:-1], registers[-1:])


def tensor(storage: int, offset: int = 0, size: int = 4) -> PlannedTensor:
    return PlannedTensor(storage, offset, "float32", (size,))


# Registers: p0 0, o0 1, c0 2, t0 3, t1 4.
FUNCTION = VMFunction(
    "main",
    (X,),
    (Y,),
    (0,),
    (128,),
    (tensor(0), tensor(0, 64)),
    (),
    (copy(0, 3), extern(0, 3, 2, 4), copy(4, 1), Ret((1,))),
    domains=(0, 0, 1, 1, 1),
)
PROGRAM = Program((FUNCTION,), ("add",), (ConstantRef("a" * 64, "float32", (4,)),), (NPU,), (1,))


def with_function(program: Program = PROGRAM, **changes: Any) -> Program:
    return replace(program, functions=(replace(program.functions[0], **changes),))


def test_a_lawful_program_is_accepted_and_kept_by_the_encoding() -> None:
    verify(PROGRAM)
    data = encode(PROGRAM)
    assert data[8:10] == b"\x04\x00"
    assert decode(data) == PROGRAM
    assert encode(decode(data)) == data


def test_programs_without_domains_keep_their_version() -> None:
    plain = Program((replace(FUNCTION, domains=()),), PROGRAM.externs, PROGRAM.constants)
    assert encode(plain)[8:10] == b"\x01\x00"


def test_the_listing_names_domains() -> None:
    assert disassemble(PROGRAM) == (
        "domain npu: aligned to 64 bytes\n"
        "extern add in npu\n"
        f"constant 0: float32[4] {'a' * 64}\n"
        "\n"
        "function main(p0 x: float32[4]) -> (o0 y: float32[4])\n"
        "    c0 = constant 0 in npu\n"
        "    storage 0: 128 bytes\n"
        "    t0 = float32[4] at storage 0 + 0 in npu\n"
        "    t1 = float32[4] at storage 0 + 64 in npu\n"
        "       0: call_builtin copy(p0) -> t0\n"
        "       1: call_dps_packed add(t0, c0) -> t1\n"
        "       2: call_builtin copy(t1) -> o0\n"
        "       3: ret o0\n"
    )


def test_the_bytes_of_each_domain_are_counted_apart() -> None:
    function = replace(
        FUNCTION,
        storages=(128, 64),
        tensors=(*FUNCTION.tensors, tensor(1)),
        domains=(0, 0, 1, 1, 1, 0),
    )
    assert (function.nbytes_in(0), function.nbytes_in(1), function.arena_nbytes) == (64, 128, 64)
    assert function.storage_domains == (1, 0)


BROKEN: dict[str, tuple[Program, str]] = {
    "a host call reads a device": (
        replace(PROGRAM, extern_domains=()),
        "function `main`, instruction 1: register t0 is not in the memory of `add`; got npu, expected host",
    ),
    "externs all in the host's memory": (
        replace(PROGRAM, extern_domains=(0,)),
        "program: lists domains although all memory is the host's",
    ),
    "a device call reads the host": (
        with_function(code=(copy(0, 3), extern(0, 0, 2, 4), copy(4, 1), Ret((1,)))),
        "function `main`, instruction 1: register p0 is not in the memory of `add`; got host, expected npu",
    ),
    "a device call writes the host": (
        with_function(code=(copy(0, 3), extern(0, 3, 2, 1), Ret((1,)))),
        "function `main`, instruction 1: register o0 is not in the memory of `add`; got host, expected npu",
    ),
    "a device tensor is returned by a host call": (
        with_function(
            replace(PROGRAM, externs=("add", "neg"), extern_domains=(1, 0)),
            code=(copy(0, 3), extern(0, 3, 2, 4), extern(1, 4, 1), Ret((1,))),
        ),
        "function `main`, instruction 2: register t1 is not in the memory of `neg`; got npu, expected host",
    ),
    "a param lies on a device": (
        with_function(domains=(1, 0, 1, 1, 1)),
        "function `main`, register p0: lies in the memory of a device; got npu, expected host",
    ),
    "a result lies on a device": (
        with_function(domains=(0, 1, 1, 1, 1)),
        "function `main`, register o0: lies in the memory of a device; got npu, expected host",
    ),
    "a storage in two domains": (
        with_function(domains=(0, 0, 1, 1, 0)),
        "function `main`, register t1: lies in storage 0 of another domain; got host, expected npu",
    ),
    "a missing domain": (
        with_function(domains=(0, 0, 1, 1, 2)),
        "function `main`: names a missing domain; got 2, expected at most 1",
    ),
    "too few domains": (
        with_function(domains=(0, 0, 1, 1)),
        "function `main`: has another number of domains than registers owning memory; got 4, expected 5",
    ),
    "only the host's domain": (
        with_function(domains=(0, 0, 0, 0, 0)),
        "function `main`: lists domains although all memory is the host's",
    ),
    "no domains of the function": (
        with_function(domains=()),
        "function `main`, instruction 1: register t0 is not in the memory of `add`; got host, expected npu",
    ),
    "a domain named as the host": (
        replace(PROGRAM, domains=(MemoryDomain("host"),)),
        "domain 1: has no name of its own; got 'host'",
    ),
    "two domains of a name": (
        replace(PROGRAM, domains=(NPU, NPU)),
        "domain 2: has no name of its own; got 'npu:0'",
    ),
    "an alignment that is no power of two": (
        replace(PROGRAM, domains=(MemoryDomain("npu", 48),)),
        "domain 1: has an impossible alignment; got 48, expected a power of two up to 1048576",
    ),
    "a tensor without the alignment of its domain": (
        replace(PROGRAM, domains=(replace(NPU, alignment=128),)),
        "function `main`, register t1: is not aligned for `npu`; got 64, expected a multiple of 128",
    ),
    "a copy between devices": (
        with_function(
            replace(PROGRAM, domains=(NPU, GPU)),
            storages=(128, 64),
            tensors=(*FUNCTION.tensors, tensor(1)),
            domains=(0, 0, 1, 1, 1, 2),
            code=(copy(0, 3), extern(0, 3, 2, 4), copy(4, 5), copy(5, 1), Ret((1,))),
        ),
        (
            "function `main`, instruction 2: a copy between two devices; got npu to gpu, "
            "expected a copy from or to the host's memory"
        ),
    ),
    "strides on a device": (
        with_function(
            tensors=(tensor(0, size=8), tensor(0, 64)),
            views=(View(3, 0, "float32", (4,), (2,)),),
            code=(copy(0, 5), extern(0, 5, 2, 4), copy(4, 1), Ret((1,))),
        ),
        "function `main`, register w0: has strides in the memory of a device",
    ),
    "strides on a device, in memory accessible to the host": (
        with_function(
            replace(PROGRAM, domains=(VISIBLE,)),
            tensors=(tensor(0, size=8), tensor(0, 64)),
            views=(View(3, 0, "float32", (4,), (2,)),),
            code=(copy(0, 5), extern(0, 5, 2, 4), copy(4, 1), Ret((1,))),
        ),
        "function `main`, instruction 1: register w0 has strides on a device",
    ),
    "a result defined in memory accessible to the host": (
        with_function(
            replace(PROGRAM, domains=(VISIBLE,), externs=("add", "new"), extern_domains=(1, 0)),
            dynamics=(DynamicTensor("float32", (4,)),),
            domains=(0, 0, 1, 1, 1, 1),
            code=(copy(0, 3), Call(CallKind.PACKED, 1, (3,), (5,)), copy(5, 1), Ret((1,))),
        ),
        "function `main`, instruction 1: register v0 is not in the memory of `new`; got npu, expected host",
    ),
    "a device function returning results": (
        with_function(
            dynamics=(DynamicTensor("float32", (4,)),),
            domains=(0, 0, 1, 1, 1, 1),
            code=(copy(0, 3), Call(CallKind.PACKED, 0, (3, 2), (5,)), copy(5, 1), Ret((1,))),
        ),
        "function `main`, instruction 1: a call_packed runs on a device; expected a call_dps_packed",
    ),
    "a device tensor read before it is written": (
        with_function(code=(extern(0, 3, 2, 4), copy(4, 1), Ret((1,)))),
        "function `main`, instruction 0: register t0 is read before it is written",
    ),
    "live device tensors share bytes": (
        with_function(tensors=(tensor(0), tensor(0))),
        "function `main`, instruction 1: registers t0 and t1 are both in use and share bytes",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_programs_are_refused(name: str) -> None:
    program, message = BROKEN[name]
    with pytest.raises(ProgramError) as caught:
        verify(program)
    assert str(caught.value) == message


def test_calls_of_the_host_take_memory_accessible_to_the_host() -> None:
    program = with_function(
        replace(PROGRAM, externs=("add", "neg"), extern_domains=(1, 0)),
        code=(extern(1, 0, 3), extern(0, 3, 2, 4), extern(1, 4, 1), Ret((1,))),
    )
    with pytest.raises(ProgramError, match="instruction 0: register t0 is not in the memory of `neg`"):
        verify(program)
    visible = replace(program, domains=(VISIBLE,))
    verify(visible)
    assert decode(encode(visible)) == visible
    assert "domain npu: aligned to 64 bytes, accessible to the host\n" in disassemble(visible)


def test_dynamic_tensors_may_lie_on_devices() -> None:
    program = with_function(
        tensors=(),
        storages=(),
        dynamics=(DynamicTensor("float32", (4,)), DynamicTensor("float32", (4,))),
        code=(
            Call(CallKind.BUILTIN, Builtin.ALLOCATE, (), (3,)),
            Call(CallKind.BUILTIN, Builtin.ALLOCATE, (), (4,)),
            *FUNCTION.code,
        ),
    )
    verify(program)
    assert decode(encode(program)) == program
