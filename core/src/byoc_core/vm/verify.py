"""The laws of programs, checked before anything runs.

The checks of this module need no knowledge of paths: names, indexes, counts, types, storage bounds.
:mod:`byoc_core.vm.dataflow` checks the laws depending on the order of execution (definition before use, overlap of live
tensors), :mod:`byoc_core.vm.state_laws` the laws of states.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from byoc_core.dims import Dim, bound_symbols, is_nonnegative, product, shape_symbols
from byoc_core.dtypes import dtype_info
from byoc_core.errors import IRTypeError, ProgramError
from byoc_core.runtime.module import TensorSpec
from byoc_core.vm.dataflow import check_dataflow
from byoc_core.vm.domain_laws import check_domains, check_program_domains
from byoc_core.vm.footprints import Footprints
from byoc_core.vm.instructions import (
    BUILTINS,
    Builtin,
    BuiltinSpec,
    Call,
    CallKind,
    Effect,
    FieldKind,
    Goto,
    If,
    Instruction,
    Ret,
    spec_of,
)
from byoc_core.vm.liveness import is_defining
from byoc_core.vm.program import (
    ALIGNMENT,
    Program,
    Register,
    RegisterKind,
    VMFunction,
    nbytes_of,
)
from byoc_core.vm.state_laws import check_stale_reads, check_state_slots
from byoc_core.vm.view_laws import check_memory, check_views

__all__ = ["verify"]

_DIGEST_CHARS = frozenset("0123456789abcdef")
_DIGEST_LENGTH = 64
_MAX_VOLUME_TERMS = 256
"""The most terms of a tensor's number of elements; bounded because this number is computed repeatedly."""


def verify(program: Program) -> None:
    """Check every law of a program; a program found lawful is not checked again.

    Cost: near-linear in the code for programs without thousands of long-lived tensors.

    Raises:
        ProgramError: the first broken law, with function and instruction.
    """
    if program.is_verified:
        return
    try:
        _verify(program)
    except IRTypeError as error:
        raise ProgramError("program", f"a size cannot be computed: {error.problem}") from error
    object.__setattr__(program, "is_verified", True)


def _verify(program: Program) -> None:
    _check_names("program", "function", program.function_names)
    _check_names("program", "extern", program.externs)
    for index, ref in enumerate(program.constants):
        where = f"constant {index}"
        if len(ref.digest) != _DIGEST_LENGTH or not _DIGEST_CHARS.issuperset(ref.digest):
            raise ProgramError(where, "has no valid digest", got=repr(ref.digest))
        _check_tensor(where, ref.dtype, ref.shape)
    check_program_domains(program)
    for function in program.functions:
        _check_declarations(program, function)
    for function in program.functions:
        check_state_slots(program, function)
    for function in program.functions:
        checker = _CodeChecker(program, function)
        checker.check()
        check_domains(program, function)
        footprints = Footprints(program, function)
        check_memory(program, function, footprints)
        check_dataflow(program, function, footprints)
        check_stale_reads(program, function, footprints)


def _check_names(where: str, kind: str, names: Sequence[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if not name:
            raise ProgramError(where, f"a {kind} has no name")
        if name in seen:
            raise ProgramError(where, f"two {kind}s have the name `{name}`")
        seen.add(name)


def _check_tensor(where: str, dtype: str, shape: Sequence[Dim]) -> None:
    try:
        dtype_info(dtype)
    except IRTypeError as error:
        raise ProgramError(where, error.problem, hint=error.hint) from error
    for axis, dim in enumerate(shape):
        if isinstance(dim, int) and dim < 0:
            raise ProgramError(where, f"axis {axis} has a negative size", got=dim)
    try:
        product(shape, max_terms=_MAX_VOLUME_TERMS)
    except IRTypeError as error:
        raise ProgramError(where, "the number of elements cannot be computed", got=_shape(shape)[:200]) from error


def _check_declarations(program: Program, function: VMFunction) -> None:
    where = f"function `{function.name}`"
    _check_names(where, "parameter", [param.name for param in function.params])
    _check_names(where, "result", [result.name for result in function.results])
    for kind, specs in (("parameter", function.params), ("result", function.results)):
        for spec in specs:
            _check_tensor(f"{where}, {kind} `{spec.name}`", spec.dtype, spec.shape)
    for index, constant in enumerate(function.constants):
        if constant >= len(program.constants):
            raise ProgramError(
                f"{where}, register c{index}",
                "cites a missing constant",
                got=constant,
                expected=f"less than {len(program.constants)}",
            )
    input_symbols = function.input_symbols
    for index, nbytes in enumerate(function.storages):
        location = f"{where}, storage {index}"
        if isinstance(nbytes, int) and nbytes < 0:
            raise ProgramError(location, "has a negative size", got=nbytes)
        _check_determined(location, (nbytes,), input_symbols)
    _check_tensors(function, where, input_symbols)
    for index, view in enumerate(function.views):
        _check_tensor(f"{where}, register w{index}", view.dtype, view.shape)
        dims = (view.offset, *view.shape, *(view.strides or ()))
        _check_determined(f"{where}, register w{index}", dims, input_symbols)
    check_views(program, function)
    for index, dynamic in enumerate(function.dynamics):
        location = f"{where}, register v{index}"
        _check_tensor(location, dynamic.dtype, dynamic.shape)
        symbols = shape_symbols(dynamic.shape)
        determined = bound_symbols([dynamic.shape], symbols - set(dynamic.binds))
        for name in dynamic.binds:
            if name in input_symbols:
                raise ProgramError(location, f"binds symbol {name}, already bound by the inputs")
            if name not in symbols or name not in determined:
                raise ProgramError(
                    location, f"symbol {name} cannot be computed from the shape", got=_shape(dynamic.shape)
                )


def _check_tensors(function: VMFunction, where: str, input_symbols: frozenset[str]) -> None:
    for index, tensor in enumerate(function.tensors):
        location = f"{where}, register t{index}"
        _check_tensor(location, tensor.dtype, tensor.shape)
        _check_determined(location, tensor.shape, input_symbols)
        if tensor.storage >= len(function.storages):
            raise ProgramError(
                location,
                "lies in a missing storage",
                got=tensor.storage,
                expected=f"less than {len(function.storages)}",
            )
        if tensor.offset % ALIGNMENT or tensor.offset < 0:
            raise ProgramError(location, "is not aligned", got=tensor.offset, expected=f"a multiple of {ALIGNMENT}")
        nbytes = function.storages[tensor.storage]
        if not is_nonnegative(nbytes - tensor.offset - nbytes_of(tensor.shape, tensor.dtype)):
            raise ProgramError(
                location,
                f"reaches beyond storage {tensor.storage}",
                got=f"{nbytes_of(tensor.shape, tensor.dtype)} bytes at {tensor.offset}",
                expected=f"at most {nbytes} bytes",
            )


def _check_determined(where: str, dims: Iterable[Dim], input_symbols: frozenset[str]) -> None:
    unknown = shape_symbols(dims) - input_symbols
    if unknown:
        raise ProgramError(where, f"the inputs do not determine the symbols {', '.join(sorted(unknown))}")


def _shape(shape: Iterable[Dim]) -> str:
    return f"[{', '.join(map(str, shape))}]"


def _type(register: Register | TensorSpec) -> str:
    return f"{register.dtype}{_shape(register.shape)}"


class _CodeChecker:
    """A checker of the instructions of a function, each by itself."""

    def __init__(self, program: Program, function: VMFunction) -> None:
        self._program = program
        self._function = function
        self._registers = program.registers(function)
        self._where = f"function `{function.name}`"

    def check(self) -> None:
        code = self._function.code
        if not code:
            raise ProgramError(self._where, "has no instructions")
        for index, instruction in enumerate(code):
            self._where = f"function `{self._function.name}`, instruction {index}"
            self._check_fields(instruction)
            match instruction:
                case Call():
                    self._check_call(instruction)
                case Ret():
                    self._check_ret(instruction)
                case If():
                    condition = self._registers[instruction.condition]
                    if condition.dtype != "bool" or condition.shape:
                        raise self._error("the condition is not a bool scalar", got=_type(condition))
                case Goto():
                    pass
        if not spec_of(code[-1]).ends_block:
            raise self._error("the last instruction does not end the code", expected="ret or goto")

    def _error(self, problem: str, *, got: object = None, expected: object = None) -> ProgramError:
        return ProgramError(self._where, problem, got=got, expected=expected)

    def _check_fields(self, instruction: Instruction) -> None:
        for field in spec_of(instruction).fields:
            content = getattr(instruction, field.name)
            match field.kind:
                case FieldKind.REGISTERS | FieldKind.REGISTER:
                    registers = content if field.kind is FieldKind.REGISTERS else (content,)
                    for register in registers:
                        if not 0 <= register < len(self._registers):
                            raise self._error(
                                "no such register", got=register, expected=f"less than {len(self._registers)}"
                            )
                case FieldKind.TARGET:
                    if not 0 <= content < len(self._function.code):
                        raise self._error(
                            "the jump target is outside the function",
                            got=content,
                            expected=f"less than {len(self._function.code)}",
                        )
                case FieldKind.CALL_KIND | FieldKind.CALLEE:
                    pass

    def _check_call(self, call: Call) -> None:
        table: tuple[Sequence[object], str]
        match call.kind:
            case CallKind.EXTERN | CallKind.PACKED:
                table = (self._program.externs, "extern")
            case CallKind.FUNCTION:
                table = (self._program.functions, "function")
            case CallKind.BUILTIN:
                table = (Builtin.__members__.values(), "builtin")  # type: ignore[assignment]
        if not 0 <= call.callee < len(table[0]):
            raise self._error(f"no such {table[1]}", got=call.callee, expected=f"less than {len(table[0])}")
        self._check_results(call)
        if call.kind is CallKind.FUNCTION:
            callee = self._program.functions[call.callee]
            self._check_types(f"arguments of `{callee.name}`", call.args, callee.params)
            self._check_types(f"results of `{callee.name}`", call.results, callee.results)
        elif call.kind is CallKind.BUILTIN:
            self._check_builtin(call)

    def _check_results(self, call: Call) -> None:
        if not call.results:
            raise self._error("a call without results")
        for number in call.results:
            register = self._registers[number]
            if register.kind is not RegisterKind.DYNAMIC:
                if call.kind is CallKind.PACKED:
                    raise self._error(
                        f"register {register} cannot hold a returned value", expected="a dynamic register"
                    )
            elif self._function.dynamics[register.index].binds and not is_defining(call):
                raise self._error(f"register {register} binds symbols: only a returned value can define the register")

    def _check_types(self, operands: str, numbers: Sequence[int], specs: Sequence[TensorSpec]) -> None:
        if len(numbers) != len(specs):
            raise self._error(f"wrong number of {operands}", got=len(numbers), expected=len(specs))
        for number, spec in zip(numbers, specs, strict=True):
            register = self._registers[number]
            self._check_like(f"register {register} does not fit `{spec.name}` of the {operands}", register, spec)

    def _check_like(self, problem: str, actual: Register, expected: Register | TensorSpec) -> None:
        if actual.dtype != expected.dtype or len(actual.shape) != len(expected.shape):
            raise self._error(problem, got=_type(actual), expected=_type(expected))
        # Symbols of different functions are unrelated, therefore only plain sizes are compared.
        for left, right in zip(actual.shape, expected.shape, strict=True):
            if isinstance(left, int) and isinstance(right, int) and left != right:
                raise self._error(problem, got=_type(actual), expected=_type(expected))

    def _check_builtin(self, call: Call) -> None:
        spec = BUILTINS[Builtin(call.callee)]
        if spec.effect is Effect.DEFINES:
            self._check_clone(spec, call)
            return
        if len(call.args) != len(spec.args) or len(call.results) != 1:
            raise self._error(
                f"wrong number of operands of {spec.name}",
                got=f"{len(call.args)} arguments and {len(call.results)} results",
                expected=f"{len(spec.args)} arguments and 1 results",
            )
        result = self._registers[call.results[0]]
        if spec.effect is Effect.ALLOCATES and result.kind is not RegisterKind.DYNAMIC:
            raise self._error(f"register {result} cannot be allocated", expected="a dynamic register")
        self._check_scalar(spec.name, result, spec.result)
        for number, dtype in zip(call.args, spec.args, strict=True):
            register = self._registers[number]
            self._check_scalar(spec.name, register, dtype)
            if dtype is None:
                self._check_like(f"operands of {spec.name} differ in type", register, result)

    def _check_clone(self, spec: BuiltinSpec, call: Call) -> None:
        if len(call.args) != len(call.results) or len(set(call.results)) != len(call.results):
            raise self._error(
                f"wrong operands of {spec.name}",
                got=f"{len(call.args)} arguments and {len(set(call.results))} different results",
                expected="a different result for each argument",
            )
        for number, target in zip(call.args, call.results, strict=True):
            register, result = self._registers[number], self._registers[target]
            if result.kind is not RegisterKind.DYNAMIC:
                raise self._error(f"register {result} cannot be defined", expected="a dynamic register")
            self._check_like(f"operands of {spec.name} differ in type", register, result)

    def _check_scalar(self, name: str, register: Register, dtype: str | None) -> None:
        if dtype is not None and (register.dtype != dtype or register.shape):
            raise self._error(f"register {register} does not fit {name}", got=_type(register), expected=f"{dtype}[]")

    def _check_ret(self, ret: Ret) -> None:
        function = self._function
        self._check_types(f"results of `{function.name}`", ret.values, function.results)
        if len(set(ret.values)) != len(ret.values):
            raise self._error("returns the same register twice")
        input_symbols = function.input_symbols
        for index, (number, spec) in enumerate(zip(ret.values, function.results, strict=True)):
            register = self._registers[number]
            if shape_symbols(spec.shape) <= input_symbols:
                if number != len(function.params) + index:
                    raise self._error(
                        f"result `{spec.name}` is in the wrong register", got=register, expected=f"o{index}"
                    )
            elif register.kind is not RegisterKind.DYNAMIC:
                raise self._error(
                    f"result `{spec.name}` is in the wrong register", got=register, expected="a dynamic register"
                )
