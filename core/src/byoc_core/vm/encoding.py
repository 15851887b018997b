"""The binary form of programs: deterministic, versioned, and safe to read from any source.

Layout: :data:`MAGIC`, the format version (two bytes, little-endian), then the program. Numbers are unsigned LEB128 in
shortest form; texts are UTF-8 preceded by their length; sequences are preceded by their length; dimensions are the
canonical text of :mod:`byoc_core.dims`. Version 2 has the views of each function after the code, version 3 also the
states after the views. Version 4 has the domains of each function after the states, and the domains of the program and
of its externs after the functions. Version 5 has the numbers of the devices of the domains at the end. Version 6 has
the pools of each domain and the flag for copies between devices after the domain, and the pools of the storages of each
function after the function's domains. A program without pools and such copies has version 5 at most. A program also
without numbers of devices has version 4 at most. A program without domains has version 3 at most, and a program without
states and domains has version 2 at most. A program without registers sharing memory and without calls writing their own
inputs has version 1: every version of the machine runs such a program. Therefore every program has exactly one
encoding, and any bytes accepted by :func:`decode` encode to the same bytes again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from byoc_core.dims import Dim, read_dim, read_problem
from byoc_core.errors import IRTypeError, OptionsError, ProgramError
from byoc_core.runtime.memory import MemoryDomain, Pool
from byoc_core.runtime.module import TensorSpec
from byoc_core.vm.instructions import INSTRUCTIONS, CallKind, FieldKind, Instruction, spec_of
from byoc_core.vm.program import ConstantRef, DynamicTensor, PlannedTensor, Program, StateSlot, View, VMFunction

__all__ = ["FORMAT_VERSION", "MAGIC", "decode", "encode"]

MAGIC = b"BYOC-VM\0"
"""The first bytes of every encoded program."""

FORMAT_VERSION = 6
"""The newest version written by :func:`encode`; :func:`decode` reads this version and all earlier versions."""

_PLAIN_VERSION = 1
_VIEW_VERSION = 2
_STATE_VERSION = 3
_DOMAIN_VERSION = 4
_NUMBER_VERSION = 5

_MAX_NUMBER_BYTES = 9
_ACCESS_BITS = {"read": 1, "write": 2}
_SPECS_BY_OPCODE = {spec.opcode: spec for spec in INSTRUCTIONS}

_T = TypeVar("_T")


def encode(program: Program) -> bytes:
    """Return the binary form of a program; equal programs have equal bytes.

    Raises:
        ProgramError: a number is negative or has more than 63 bits, or a size is longer or nested deeper than the
            format permits.
    """
    version = _version_of(program)
    writer = _Writer(version)
    writer.sequence(program.externs, writer.text)
    writer.sequence(program.constants, writer.constant)
    writer.sequence(program.functions, writer.function)
    if version >= _DOMAIN_VERSION:
        writer.sequence(program.domains, writer.domain)
        writer.sequence(program.extern_domains, writer.number)
    if version >= _NUMBER_VERSION:
        writer.sequence(program.device_numbers, writer.number)
    return MAGIC + version.to_bytes(2, "little") + bytes(writer.data)


def decode(data: bytes) -> Program:
    """Parse a program written by :func:`encode`.

    Only the form is checked here; :func:`~byoc_core.vm.verify` checks the laws of programs.

    Raises:
        ProgramError: the bytes are no program, are of another version, or are damaged; names the offset.
    """
    data = bytes(data)
    if not data.startswith(MAGIC):
        raise ProgramError("bytecode", "is not a VM program", got=repr(data[: len(MAGIC)]), expected=repr(MAGIC))
    reader = _Reader(data, len(MAGIC))
    version = int.from_bytes(reader.take(2), "little")
    if not _PLAIN_VERSION <= version <= FORMAT_VERSION:
        raise ProgramError(
            "bytecode",
            "has another format version",
            got=version,
            expected=f"{_PLAIN_VERSION} to {FORMAT_VERSION}",
            hint="Load the program with the byoc-core version of the writer, or build the model again.",
        )
    reader.version = version
    externs = reader.sequence(reader.text)
    constants = reader.sequence(reader.constant)
    functions = reader.sequence(reader.function)
    has_domains = version >= _DOMAIN_VERSION
    domains = reader.sequence(reader.domain) if has_domains else ()
    extern_domains = reader.sequence(reader.number) if has_domains else ()
    device_numbers = reader.sequence(reader.number) if version >= _NUMBER_VERSION else ()
    if reader.position != len(data):
        raise reader.error("bytes after the end of the program")
    program = Program(functions, externs, constants, domains, extern_domains, device_numbers)
    if version != (expected := _version_of(program)):
        raise ProgramError("bytecode", "has the wrong format version for this program", got=version, expected=expected)
    return program


def _version_of(program: Program) -> int:
    if any(d.pools or d.peer_copies for d in program.domains) or any(f.storage_pools for f in program.functions):
        return FORMAT_VERSION
    if program.device_numbers:
        return _NUMBER_VERSION
    if program.domains or program.extern_domains or any(function.domains for function in program.functions):
        return _DOMAIN_VERSION
    if any(function.states for function in program.functions):
        return _STATE_VERSION
    return _PLAIN_VERSION if all(function.is_plain for function in program.functions) else _VIEW_VERSION


class _Writer:
    def __init__(self, version: int) -> None:
        self.data = bytearray()
        self._version = version

    def number(self, value: int) -> None:
        if not 0 <= value < 1 << 7 * _MAX_NUMBER_BYTES:
            raise ProgramError("program", "a number does not fit the encoding", got=value, expected="0 to 2**63-1")
        while value > 0x7F:
            self.data.append(value & 0x7F | 0x80)
            value >>= 7
        self.data.append(value)

    def text(self, value: str) -> None:
        encoded = value.encode()
        self.number(len(encoded))
        self.data += encoded

    def dim(self, value: Dim) -> None:
        text = str(value)
        problem = read_problem(text)
        if problem:
            raise ProgramError("program", problem, got=text)
        self.text(text)

    def sequence(self, values: Iterable[_T], write: Callable[[_T], None]) -> None:
        items = tuple(values)
        self.number(len(items))
        for item in items:
            write(item)

    def constant(self, value: ConstantRef) -> None:
        self.text(value.digest)
        self.text(value.dtype)
        self.sequence(value.shape, self.number)

    def spec(self, value: TensorSpec) -> None:
        self.text(value.name)
        self.text(value.dtype)
        self.sequence(value.shape, self.dim)

    def tensor(self, value: PlannedTensor) -> None:
        self.number(value.storage)
        self.number(value.offset)
        self.text(value.dtype)
        self.sequence(value.shape, self.dim)

    def dynamic(self, value: DynamicTensor) -> None:
        self.text(value.dtype)
        self.sequence(value.shape, self.dim)
        self.sequence(value.binds, self.text)

    def view(self, value: View) -> None:
        self.number(value.base)
        self.dim(value.offset)
        self.text(value.dtype)
        self.sequence(value.shape, self.dim)
        self.number(value.strides is not None)
        if value.strides is not None:
            self.sequence(value.strides, self.dim)

    def state(self, value: StateSlot) -> None:
        self.number(value.param)
        self.number(value.result)
        for number in (value.initial, value.axis):  # 0 for none
            self.number(0 if number is None else number + 1)

    def instruction(self, value: Instruction) -> None:
        spec = spec_of(value)
        self.number(spec.opcode)
        for field in spec.fields:
            content = getattr(value, field.name)
            if field.kind is FieldKind.REGISTERS:
                self.sequence(content, self.number)
            else:
                self.number(int(content))

    def function(self, value: VMFunction) -> None:
        self.text(value.name)
        self.sequence(value.params, self.spec)
        self.sequence(value.results, self.spec)
        self.sequence(value.constants, self.number)
        self.sequence(value.storages, self.dim)
        self.sequence(value.tensors, self.tensor)
        self.sequence(value.dynamics, self.dynamic)
        self.sequence(value.code, self.instruction)
        if self._version >= _VIEW_VERSION:
            self.sequence(value.views, self.view)
        if self._version >= _STATE_VERSION:
            self.sequence(value.states, self.state)
        if self._version >= _DOMAIN_VERSION:
            self.sequence(value.domains, self.number)
        if self._version == FORMAT_VERSION:
            self.sequence(value.storage_pools, self.number)

    def domain(self, value: MemoryDomain) -> None:
        self.text(value.name)
        self.number(value.alignment)
        self.number(value.host_accessible)
        if self._version == FORMAT_VERSION:
            self.sequence(value.pools, self.pool)
            self.number(value.peer_copies)

    def pool(self, value: Pool) -> None:
        self.text(value.name)
        self.number(0 if value.nbytes is None else value.nbytes + 1)  # 0 for no limit
        self.number(value.alignment)
        self.number(sum(bit for access, bit in _ACCESS_BITS.items() if access in value.accesses))


class _Reader:
    def __init__(self, data: bytes, position: int) -> None:
        self.data = data
        self.position = position
        self.version = _PLAIN_VERSION
        self._dims: dict[str, Dim] = {}

    def error(self, problem: str, *, got: object = None) -> ProgramError:
        return ProgramError(f"bytecode, byte {self.position}", problem, got=got)

    def take(self, count: int) -> bytes:
        if count > len(self.data) - self.position:
            raise self.error("the program ends too early")
        chunk = self.data[self.position : self.position + count]
        self.position += count
        return chunk

    def number(self) -> int:
        position = self.position
        if position < len(self.data) and self.data[position] < 0x80:  # one byte, the usual case
            self.position = position + 1
            return self.data[position]
        value = 0
        for index in range(_MAX_NUMBER_BYTES):
            (byte,) = self.take(1)
            value |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                if index and not byte:
                    raise self.error("a number is not in shortest form")
                return value
        raise self.error("a number is too large")

    def text(self) -> str:
        try:
            return self.take(self.number()).decode()
        except UnicodeDecodeError as error:
            raise self.error("a text is not UTF-8") from error

    def dim(self) -> Dim:
        text = self.text()
        dim = self._dims.get(text)
        if dim is None:
            dim = self._dims[text] = self._read_dim(text)
        return dim

    def _read_dim(self, text: str) -> Dim:
        problem = read_problem(text)
        if problem:
            raise self.error(problem)
        if text.isascii() and text.isdigit() and (text == "0" or text[0] != "0"):
            return int(text)
        try:
            dim = read_dim(text)
            canonical = str(dim)
        except (IRTypeError, RecursionError, MemoryError, ValueError) as error:
            raise self.error("a size does not parse", got=repr(text)) from error
        if canonical != text:
            raise self.error("a size is not in canonical form", got=repr(text))
        return dim

    def sequence(self, read: Callable[[], _T]) -> tuple[_T, ...]:
        count = self.number()
        if count > len(self.data) - self.position:
            raise self.error("a sequence is longer than the program", got=count)
        return tuple(read() for _ in range(count))

    def constant(self) -> ConstantRef:
        return ConstantRef(self.text(), self.text(), self.sequence(self.number))

    def spec(self) -> TensorSpec:
        return TensorSpec(self.text(), self.text(), self.sequence(self.dim))

    def tensor(self) -> PlannedTensor:
        return PlannedTensor(self.number(), self.number(), self.text(), self.sequence(self.dim))

    def dynamic(self) -> DynamicTensor:
        return DynamicTensor(self.text(), self.sequence(self.dim), self.sequence(self.text))

    def view(self) -> View:
        base, offset, dtype, shape = self.number(), self.dim(), self.text(), self.sequence(self.dim)
        strides = self.sequence(self.dim) if self.flag("the strides of a view") else None
        return View(base, offset, dtype, shape, strides)

    def state(self) -> StateSlot:
        param, result, initial, axis = (self.number() for _ in range(4))
        return StateSlot(param, result, initial - 1 if initial else None, axis - 1 if axis else None)

    def call_kind(self) -> CallKind:
        value = self.number()
        try:
            return CallKind(value)
        except ValueError as error:
            raise self.error("unknown call kind", got=value) from error

    def instruction(self) -> Instruction:
        opcode = self.number()
        spec = _SPECS_BY_OPCODE.get(opcode)
        if spec is None:
            raise self.error("unknown opcode", got=opcode)
        content: dict[str, Any] = {}
        for field in spec.fields:
            match field.kind:
                case FieldKind.REGISTERS:
                    content[field.name] = self.sequence(self.number)
                case FieldKind.CALL_KIND:
                    content[field.name] = self.call_kind()
                case FieldKind.CALLEE | FieldKind.REGISTER | FieldKind.TARGET:
                    content[field.name] = self.number()
        return spec.type(**content)

    def function(self) -> VMFunction:
        return VMFunction(
            self.text(),
            self.sequence(self.spec),
            self.sequence(self.spec),
            self.sequence(self.number),
            self.sequence(self.dim),
            self.sequence(self.tensor),
            self.sequence(self.dynamic),
            self.sequence(self.instruction),
            self.sequence(self.view) if self.version >= _VIEW_VERSION else (),
            self.sequence(self.state) if self.version >= _STATE_VERSION else (),
            self.sequence(self.number) if self.version >= _DOMAIN_VERSION else (),
            self.sequence(self.number) if self.version == FORMAT_VERSION else (),
        )

    def domain(self) -> MemoryDomain:
        return MemoryDomain(
            self.text(),
            self.number(),
            self.flag("a host-accessible domain"),
            self.sequence(self.pool) if self.version == FORMAT_VERSION else (),
            self.flag("copies between devices") if self.version == FORMAT_VERSION else False,
        )

    def pool(self) -> Pool:
        name, limit, alignment, bits = self.text(), self.number(), self.number(), self.number()
        if bits >= 1 << len(_ACCESS_BITS):
            raise self.error("unknown accesses of a pool", got=bits)
        accesses = frozenset(access for access, bit in _ACCESS_BITS.items() if bits & bit)
        try:
            return Pool(name, limit - 1 if limit else None, alignment, accesses)
        except OptionsError as error:
            raise self.error(f"a pool without meaning: {error}") from error

    def flag(self, subject: str) -> bool:
        value = self.number()
        if value > 1:
            raise self.error(f"the flag for {subject} is neither 0 nor 1", got=value)
        return bool(value)
