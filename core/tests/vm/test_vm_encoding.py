from __future__ import annotations

import pytest
from byoc_core.dims import Dim, parse_dim
from byoc_core.errors import ProgramError
from byoc_core.runtime.module import MemoryDomain, TensorSpec
from byoc_core.vm import (
    Call,
    CallKind,
    ConstantRef,
    DynamicTensor,
    Goto,
    If,
    PlannedTensor,
    Program,
    Ret,
    VMFunction,
    decode,
    disassemble,
    encode,
    verify,
)
from byoc_core.vm.encoding import MAGIC
from hypothesis import given
from hypothesis import strategies as st

pytestmark = pytest.mark.interpreter

small = st.integers(0, 300)
numbers = st.integers(0, 2**62)
texts = st.text(max_size=6)
dtypes = st.sampled_from(["float32", "int64", "bool", "bfloat16"])
dims: st.SearchStrategy[Dim] = st.one_of(
    st.integers(0, 10**20), st.sampled_from(["n", "2*n+1", "n//4", "max(m, n)", "n*m-1", "(n+1)//2*m"]).map(parse_dim)
)
shapes = st.lists(dims, max_size=3).map(tuple)
registers = st.lists(small, max_size=4).map(tuple)
instructions = st.one_of(
    st.builds(Call, st.sampled_from(CallKind), small, registers, registers),
    st.builds(Ret, registers),
    st.builds(Goto, small),
    st.builds(If, small, small),
)


def tuples_of(strategy: st.SearchStrategy[object]) -> st.SearchStrategy[tuple[object, ...]]:
    return st.lists(strategy, max_size=3).map(tuple)


specs = st.builds(TensorSpec, texts, dtypes, shapes)
functions = st.builds(
    VMFunction,
    texts,
    tuples_of(specs),
    tuples_of(specs),
    tuples_of(small),
    tuples_of(dims),
    tuples_of(st.builds(PlannedTensor, small, numbers, dtypes, shapes)),
    tuples_of(st.builds(DynamicTensor, dtypes, shapes, tuples_of(texts))),
    tuples_of(instructions),
    domains=st.one_of(st.just(()), tuples_of(small)),
)
programs = st.builds(
    Program,
    tuples_of(functions),
    tuples_of(texts),
    tuples_of(st.builds(ConstantRef, texts, dtypes, tuples_of(numbers))),
    st.one_of(st.just(()), tuples_of(st.builds(MemoryDomain, texts, small, st.booleans()))),
    st.one_of(st.just(()), tuples_of(small)),
)


@given(programs)
def test_decoding_inverts_encoding(program: Program) -> None:
    data = encode(program)
    assert decode(data) == program
    assert encode(decode(data)) == data


@given(st.data())
def test_mutated_bytes_raise_only_program_errors(data: st.DataObject) -> None:
    program = data.draw(programs)
    encoded = bytearray(encode(program))
    for _ in range(data.draw(st.integers(1, 3))):
        position = data.draw(st.integers(0, len(encoded) - 1))
        match data.draw(st.sampled_from(["set", "cut", "insert"])):
            case "set":
                encoded[position] = data.draw(st.integers(0, 255))
            case "cut":
                del encoded[position : position + data.draw(st.integers(1, 4))]
            case _:
                encoded[position:position] = data.draw(st.binary(min_size=1, max_size=4))
        if not encoded:
            break
    try:
        decoded = decode(bytes(encoded))
    except ProgramError:
        return
    assert encode(decoded) == bytes(encoded)
    try:
        verify(decoded)
    except ProgramError:
        return


def test_every_single_byte_change_of_a_rich_program_is_safe(rich_program: Program) -> None:
    verify(rich_program)
    data = encode(rich_program)
    for position in range(len(data)):
        for value in (0, 1, data[position] ^ 1, data[position] ^ 0x80, 255):
            changed = data[:position] + bytes([value]) + data[position + 1 :]
            try:
                verify(decode(changed))
            except ProgramError:
                continue
    for length in range(len(data)):
        with pytest.raises(ProgramError):
            decode(data[:length])


def test_errors_of_decoding_name_the_place(rich_program: Program) -> None:
    data = encode(rich_program)
    cases = {
        b"PK\x03\x04 something else": "bytecode: is not a VM program; "
        "got b'PK\\x03\\x04 som', expected b'BYOC-VM\\x00'",
        MAGIC + b"\x07\x00": "bytecode: has another format version; got 7, expected 1 to 6. "
        "Load the program with the byoc-core version of the writer, or build the model again.",
        data + b"\0": f"bytecode, byte {len(data)}: bytes after the end of the program",
        MAGIC + b"\x01\x00\x01\x05a": "bytecode, byte 12: the program ends too early",
        MAGIC + b"\x01\x00\x80\x00": "bytecode, byte 12: a number is not in shortest form",
        MAGIC + b"\x01\x00" + b"\xff" * 9: "bytecode, byte 19: a number is too large",
        MAGIC + b"\x01\x00\x01\x01\xff": "bytecode, byte 13: a text is not UTF-8",
        MAGIC + b"\x01\x00\x7f": "bytecode, byte 11: a sequence is longer than the program; got 127",
    }
    for damaged, text in cases.items():
        with pytest.raises(ProgramError) as caught:
            decode(damaged)
        assert str(caught.value) == text


def test_sizes_must_be_canonical() -> None:
    def program(size: str) -> bytes:
        spec = TensorSpec("x", "float32", (parse_dim("n+1"),))
        text = encode(Program((VMFunction("f", (spec,), (), (), (), (), (), (Ret(()),)),)))
        return text.replace(b"\x03n+1", bytes([len(size)]) + size.encode())

    assert decode(program("n+1")).functions[0].params[0].shape == (parse_dim("n+1"),)
    for size, text in {
        "1+n": "a size is not in canonical form; got '1+n'",
        "n+": "a size does not parse; got 'n+'",
        "-" * 100 + "n": f"a size is not in canonical form; got '{'-' * 100}n'",
        "01": "a size does not parse; got '01'",
        "*".join(f"(a{i}+b)" for i in range(7)): "a size does not parse; "
        "got '(a0+b)*(a1+b)*(a2+b)*(a3+b)*(a4+b)*(a5+b)*(a6+b)'",
    }.items():
        with pytest.raises(ProgramError) as caught:
            decode(program(size))
        assert str(caught.value).partition(": ")[2] == text


def test_what_the_encoding_cannot_hold() -> None:
    size = parse_dim("n")
    for index in range(70):
        size = (size + 1) // (3 + index % 2)
    spec = TensorSpec("x", "float32", (size,))
    deep = Program((VMFunction("f", (spec,), (), (), (), (), (), (Ret(()),)),))
    with pytest.raises(ProgramError) as caught:
        encode(deep)
    assert str(caught.value) == f"program: a size is nested more than 64 levels deep; got {size}"
    with pytest.raises(ProgramError) as caught:
        encode(Program((), (), (ConstantRef("", "float32", (2**63,)),)))
    assert str(caught.value) == f"program: a number does not fit the encoding; got {2**63}, expected 0 to 2**63-1"
    spec = TensorSpec("x", "float32", (parse_dim("n"),))
    data = encode(Program((VMFunction("f", (spec,), (), (), (), (), (), (Ret(()),)),)))
    text = b"(" * 65 + b"n" + b")" * 65
    with pytest.raises(ProgramError) as caught:
        decode(data.replace(b"\x01n", bytes([len(text) & 0x7F | 0x80, len(text) >> 7]) + text))
    assert str(caught.value).partition(": ")[2] == "a size is nested more than 64 levels deep"


def test_listing(rich_program: Program) -> None:
    assert disassemble(rich_program) == (
        "extern add\n"
        "extern nonzero\n"
        f"constant 0: float32[4] {'0' * 64}\n"
        "\n"
        "function main(p0 x: float32[n, 4], p1 flag: bool[]) -> (o0 y: float32[n, 4], o1 z: int64[k])\n"
        "    c0 = constant 0\n"
        "    storage 0: 16*n bytes\n"
        "    storage 1: 64 bytes\n"
        "    t0 = float32[n, 4] at storage 0 + 0\n"
        "    t1 = int64[] at storage 1 + 0\n"
        "    v0 = int64[k] binds k\n"
        "    v1 = int64[k]\n"
        "       0: call_dps_packed add(p0, c0) -> t0\n"
        "       1: if p1 else 4\n"
        "       2: call double(t0) -> o0\n"
        "       3: goto 5\n"
        "       4: call_builtin copy(p0) -> o0\n"
        "       5: call_packed nonzero(o0) -> v0\n"
        "       6: call_builtin allocate() -> v1\n"
        "       7: call_builtin copy(v0) -> v1\n"
        "       8: ret o0, v1\n"
        "\n"
        "function double(p0 a: float32[m, 4]) -> (o0 b: float32[m, 4])\n"
        "       0: call_dps_packed add(p0, p0) -> o0\n"
        "       1: ret o0\n"
    )
