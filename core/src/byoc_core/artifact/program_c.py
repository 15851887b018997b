"""Programs of the virtual machine as C, for exported libraries that run functions without Python.

If all calls of a function are machine code, the function becomes tables of registers and instructions, run by
``byoc_program.c``. For any other function the library states the reason for needing Python if no Python is found
(``byoc_python.c``). The tables use the structures and names of the headers beside these files in ``native``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from byoc_core.dims import Dim, broadcast_pairs, shape_symbols, substitute, symbol, symbols_of
from byoc_core.dtypes import dtype_info
from byoc_core.errors import LinkError
from byoc_core.native.bundle import ARTIFACT_SYMBOL
from byoc_core.native.c_text import c_dim, c_string
from byoc_core.runtime.csource import CSourceModule
from byoc_core.runtime.graph import GraphModule
from byoc_core.runtime.module import RuntimeModule, TensorSpec
from byoc_core.vm.disassemble import callee_name
from byoc_core.vm.instructions import Builtin, Call, CallKind, Goto, If, Instruction, Ret
from byoc_core.vm.permissions import check_permissions
from byoc_core.vm.program import ALIGNMENT, Program, Register, RegisterKind, VMFunction

__all__ = ["NativeProgram", "program_source"]

_BUILTINS = {
    Builtin.COPY: "BYOC_COPY",
    Builtin.ZERO: "BYOC_ZERO",
    Builtin.INCREMENT: "BYOC_INCREMENT",
    Builtin.LOOP_TEST: "BYOC_LOOP_TEST",
}
_LOCATIONS = {
    RegisterKind.PARAM: "BYOC_IN_ARGUMENT",
    RegisterKind.RESULT: "BYOC_IN_ARGUMENT",
    RegisterKind.CONSTANT: "BYOC_IN_CONSTANT",
    RegisterKind.TENSOR: "BYOC_IN_ARENA",
}
_MAX_NAMED = 4


class NativeProgram:
    """The functions of a program that machine code can run alone, and the obstacles of the others.

    Args:
        program: a verified program.
        modules: the modules defining the program's external symbols; the first module with a symbol counts.
    """

    def __init__(self, program: Program, modules: Sequence[RuntimeModule]) -> None:
        self.program = program
        self._owners: dict[str, RuntimeModule] = {}
        for module in modules:
            for name in module.function_names:
                self._owners.setdefault(name, module)
        self._obstacles = {function.name: self._own_obstacles(function, modules) for function in program.functions}
        self._propagate_obstacles()

    def python_regions(self) -> Iterator[tuple[str, RuntimeModule]]:
        """Yield the regions that only Python can run, with the regions' modules, if the name is a free C identifier."""
        functions = set(self.program.function_names)
        for name, owner in self._owners.items():
            if (
                not isinstance(owner, CSourceModule)
                and name not in functions
                and name.isascii()
                and name.isidentifier()
            ):
                yield name, owner

    def region_symbol(self, name: str) -> str:
        """Return the symbol of a region in the library, distinct from the export of a function with the same name."""
        return f"byoc_region_{name}" if name in self._obstacles else f"__tvm_ffi_{name}"

    def is_native(self, function: VMFunction) -> bool:
        """Return whether machine code can run a function alone."""
        return not self._obstacles[function.name]

    def obstacles(self, function: VMFunction) -> tuple[str, ...]:
        """Return everything in a function that machine code alone cannot run, each once."""
        return tuple(dict.fromkeys(self._obstacles[function.name]))

    def owner(self, symbol: str) -> RuntimeModule | None:
        """Return the module defining an external symbol."""
        return self._owners.get(symbol)

    def reason(self, function: VMFunction) -> str:
        """Return the reasons for a function's need of Python, for the middle of a sentence."""
        found = self.obstacles(function)
        more = f" and {len(found) - _MAX_NAMED} more" if len(found) > _MAX_NAMED else ""
        return f"needs Python for {', '.join(found[:_MAX_NAMED])}{more}"

    def _own_obstacles(self, function: VMFunction, modules: Sequence[RuntimeModule]) -> list[str]:
        found = [text for instruction in function.code for text in self._obstacles_of(function, instruction)]
        if not found and function.dynamics:
            found.append("tensors of sizes known only after running")
        if not found and _solve(function) is None:
            found.append("sizes not determined by a linear equation with a single unknown")
        if not found:
            try:
                check_permissions(Program((function,), self.program.externs, self.program.constants), modules, ())
            except LinkError as error:
                found.append(f"a call without a valid link ({error.problem})")
        return found

    def _obstacles_of(self, function: VMFunction, instruction: Instruction) -> Iterator[str]:
        if not isinstance(instruction, Call):
            return
        name = callee_name(self.program, instruction)
        match instruction.kind:
            case CallKind.EXTERN:
                owner = self._owners.get(name)
                if owner is None:
                    yield f"`{name}`, not defined by any module"
                elif not isinstance(owner, CSourceModule):
                    yield f"`{name}` of runtime `{owner.type_key}`{_ops_text(owner, name)}"
            case CallKind.PACKED:
                yield f"`{name}`, a function returning results"
            case CallKind.FUNCTION:
                callee = self.program.functions[instruction.callee]
                input_symbols = callee.input_symbols
                early = all(shape_symbols(spec.shape) <= input_symbols for spec in callee.results)
                if not _has_c_name(callee):
                    yield f"`{name}`, not a C identifier"
                elif not early or any(_is_strided(function, n) for n in (*instruction.args, *instruction.results)):
                    yield f"the call of `{name}`"
            case CallKind.BUILTIN:
                if instruction.callee not in _BUILTINS:
                    yield f"`{name}`"

    def _propagate_obstacles(self) -> None:
        """Propagate obstacles from callees to callers until nothing changes."""
        changed = True
        while changed:
            changed = False
            for function in self.program.functions:
                for instruction in function.code:
                    if isinstance(instruction, Call) and instruction.kind is CallKind.FUNCTION:
                        callee = self.program.functions[instruction.callee].name
                        new = [text for text in self._obstacles[callee] if text not in self._obstacles[function.name]]
                        self._obstacles[function.name] += new
                        changed = changed or bool(new)


def program_source(native: NativeProgram, constant_offsets: Mapping[str, int], artifact_nbytes: int) -> str:
    """Return C code exporting ``__tvm_ffi_<name>`` for each function of a program, if the name is a C identifier.

    Args:
        native: the program.
        constant_offsets: positions of constants in the library's artifact, by digest.
        artifact_nbytes: the artifact's size.
    """
    functions = native.program.functions
    exported = list(filter(_has_c_name, functions))
    regions = [(name, owner, owner.find_signature(name)) for name, owner in native.python_regions()]
    used = {native.is_native(function) for function in exported} | {False for *_, signature in regions if signature}
    headers = [name for name, is_native in (("byoc_program.h", True), ("byoc_python.h", False)) if is_native in used]
    parts = [
        "/* The functions of the executable. */",
        *(f'#include "{name}"' for name in ("byoc_ffi.h", *headers)),
        f"BYOC_EXPORT extern const unsigned char {ARTIFACT_SYMBOL}[];",
    ]
    called = dict.fromkeys(name for function in exported for name in _called(native, function))
    parts += [
        f"int32_t {name}(void *handle, const TVMFFIAny *args, int32_t num_args, TVMFFIAny *result);" for name in called
    ]
    for index, function in enumerate(exported):
        if native.is_native(function):
            parts += _FunctionText(native, function, index, constant_offsets).lines()
        else:
            specs = (*function.params, *function.results)
            parts += _python_lines(function.name, specs, native.reason(function), index, artifact_nbytes)
    for index, (name, owner, signature) in enumerate(regions, start=len(exported)):
        if signature is not None:
            specs = (*signature.inputs, *signature.outputs)
            reason = f"needs Python for runtime `{owner.type_key}`{_ops_text(owner, name)}"
            parts += _python_lines(name, specs, reason, index, artifact_nbytes)
    return "\n".join(parts) + "\n"


def _ops_text(owner: RuntimeModule, name: str) -> str:
    """Return the ops of a function of a graph runtime, in parentheses; empty if the runtime has no graph."""
    if not isinstance(owner, GraphModule):
        return ""
    ops = list(dict.fromkeys(node.op for node in owner.document.functions[name].nodes))
    more = ", ..." if len(ops) > _MAX_NAMED else ""
    return f" ({', '.join(ops[:_MAX_NAMED])}{more})"


def _called(native: NativeProgram, function: VMFunction) -> Iterator[str]:
    """Yield the C functions called by a native function."""
    for instruction in function.code if native.is_native(function) else ():
        if isinstance(instruction, Call) and instruction.kind is not CallKind.BUILTIN:
            yield _c_function(native, instruction)


def _c_function(native: NativeProgram, call: Call) -> str:
    name = callee_name(native.program, call)
    return native.region_symbol(name) if call.kind is CallKind.EXTERN else f"__tvm_ffi_{name}"


def _has_c_name(function: VMFunction) -> bool:
    return function.name.isascii() and function.name.isidentifier()


def _is_strided(function: VMFunction, number: int) -> bool:
    return number >= function.first_view and not function.views[number - function.first_view].is_compact


def _export(name: str, call: str) -> list[str]:
    head = f"BYOC_EXPORT int32_t __tvm_ffi_{name}(void *handle, const TVMFFIAny *args, int32_t num_args,"
    return [head, "  TVMFFIAny *result) {", "  (void)handle;", "  (void)result;", f"  return {call};", "}", ""]


def _argument_names(specs: Iterable[TensorSpec], index: int) -> str:
    names = [c_string(spec.name) for spec in specs]
    return f"static const char *const names_{index}[] = {{{', '.join([*names, 'NULL'])}}};"


def _python_lines(name: str, specs: Sequence[TensorSpec], reason: str, index: int, artifact_nbytes: int) -> list[str]:
    fields = f"names_{index}, {len(specs)}, {ARTIFACT_SYMBOL}, {artifact_nbytes}u"
    return [
        "",
        _argument_names(specs, index),
        f"static const byoc_python_function function_{index} = {{",
        f"    {c_string(name)}, {c_string(reason)}, {fields}}};",
        *_export(name, f"byoc_run_in_python(&function_{index}, args, num_args)"),
    ]


class _FunctionText:
    """The C of a native function."""

    def __init__(
        self, native: NativeProgram, function: VMFunction, index: int, constant_offsets: Mapping[str, int]
    ) -> None:
        self._native = native
        self._program = program = native.program
        self._function = function
        self._index = index
        self._constant_offsets = constant_offsets
        self._registers = program.registers(function)
        # Distinct names in a C scope, for any letters of the symbols.
        names = enumerate(sorted(function.input_symbols))
        self._symbols: dict[str, Dim] = {name: symbol(f"s{number}_{name}") for number, name in names}

    def lines(self) -> list[str]:
        """Return tables, the measuring function, and the export."""
        function, index = self._function, self._index
        operands = [number for instruction in function.code for number in _operands(instruction)]
        sizes = self._sizes()
        counts = (len(function.params), len(function.results), len(self._registers), len(operands), len(sizes))
        tables = f"registers_{index}, code_{index}, operands_{index}, constants_{index}, measure_{index}"
        return [
            "",
            f"/* {function.name} */",
            _argument_names((*function.params, *function.results), index),
            *_table(f"static const byoc_register registers_{index}[]", map(self._register, self._registers)),
            *_table(f"static const byoc_instruction code_{index}[]", self._code()),
            *_table(f"static const int32_t operands_{index}[]", [*map(str, operands), "0"], per_line=24),
            *_table(f"static const void *const constants_{index}[]", [*self._constants(), "NULL"]),
            *self._measure(sizes),
            f"static const byoc_program program_{index} = {{",
            f"    {c_string(function.name)}, names_{index}, {', '.join(map(str, counts))}, {tables}}};",
            *_export(function.name, f"byoc_run_program(&program_{index}, args, num_args)"),
        ]

    def _register(self, register: Register) -> str:
        info = dtype_info(register.dtype)
        location = _LOCATIONS.get(register.kind) or str(self._function.views[register.index].base)
        strided = int(self._strides(register) is not None)
        fields = (int(info.dl_code), info.bits, strided, info.itemsize, len(register.shape), location)
        shape = ", ".join(map(str, register.shape)).replace("*/", "* /")
        return f"{{{', '.join(map(str, fields))}}} /* {register}: {register.dtype}[{shape}] */"

    def _strides(self, register: Register) -> tuple[Dim, ...] | None:
        if register.kind is not RegisterKind.VIEW:
            return None
        view = self._function.views[register.index]
        return None if view.is_compact else view.strides

    def _code(self) -> Iterator[str]:
        position = 0
        for number, instruction in enumerate(self._function.code):
            count = len(_operands(instruction))
            op, target, called, comment = self._instruction(instruction)
            yield f"{{{op}, {position}, {count}, {target}, {called}, NULL}} /* {number}: {comment} */"
            position += count

    def _instruction(self, instruction: Instruction) -> tuple[str, int, str, str]:
        """Return operation, target, called function, and comment."""
        match instruction:
            case Ret():
                return "BYOC_RET", 0, "NULL", "ret"
            case Goto(target=target):
                return "BYOC_GOTO", target, "NULL", f"goto {target}"
            case If(otherwise=target):
                return "BYOC_IF", target, "NULL", f"if, else {target}"
            case Call(kind=kind, callee=callee, args=args, results=results):
                name = callee_name(self._program, instruction)
                texts = [", ".join(str(self._registers[number]) for number in numbers) for numbers in (args, results)]
                comment = f"{texts[1]} = {name}({texts[0]})"
                if kind is CallKind.BUILTIN:
                    return _BUILTINS[Builtin(callee)], 0, "NULL", comment
                return "BYOC_CALL", 0, _c_function(self._native, instruction), comment

    def _constants(self) -> Iterator[str]:
        for number in self._function.constants:
            offset = self._constant_offsets[self._program.constants[number].digest]
            yield f"{ARTIFACT_SYMBOL} + {offset}u"

    def _sizes(self) -> list[Dim]:
        """Return shapes, and strides if any, of all registers, one after the other."""
        dims = (dim for register in self._registers for dim in (*register.shape, *(self._strides(register) or ())))
        return [self._renamed(dim) for dim in dims]

    def _renamed(self, dim: Dim) -> Dim:
        return dim if isinstance(dim, int) else substitute(dim, self._symbols)

    def _offsets(self, starts: Sequence[Dim]) -> list[Dim]:
        function = self._function
        offsets: list[Dim] = []
        for register in self._registers:
            offset: Dim = 0
            if register.kind is RegisterKind.TENSOR:
                tensor = function.tensors[register.index]
                offset = starts[tensor.storage] + tensor.offset
            elif register.kind is RegisterKind.VIEW:
                offset = self._renamed(function.views[register.index].offset)
            offsets.append(offset)
        return offsets

    def _measure(self, sizes: Sequence[Dim]) -> list[str]:
        """Return the function for checking arguments and computing sizes, offsets and the bytes of the arena."""
        head = (
            f"static int32_t measure_{self._index}(const DLTensor *const *arguments, int64_t *sizes, int64_t *offsets,"
        )
        lines = [head, "                         int64_t *nbytes) {", *self._checks()]
        starts, total, storages = self._storages()
        lines += storages
        offsets = self._offsets(starts)
        for name, values in (("sizes", sizes), ("offsets", offsets)):
            lines += _filling(name, values)
        return [*lines, f"  *nbytes = {c_dim(total)};", "  return 0;", "}"]

    def _storages(self) -> tuple[list[Dim], Dim, list[str]]:
        """Return the starts of storages and the end of the last; from the first symbolic storage on, as variables."""
        starts: list[Dim] = []
        lines = []
        total: Dim = 0
        for index, nbytes in enumerate(map(self._renamed, self._function.storages)):
            starts.append(total)
            if isinstance(total, int) and isinstance(nbytes, int):
                total += -(-nbytes // ALIGNMENT) * ALIGNMENT
                continue
            end = symbol(f"byoc_end_{index}")
            lines.append(f"  const int64_t {c_dim(end)} = {c_dim(total)} + BYOC_ALIGNED({c_dim(nbytes)});")
            total = end
        return starts, total, lines

    def _checks(self) -> list[str]:
        function = self._function
        name = c_string(function.name)
        lines = []
        for index, spec in enumerate((*function.params, *function.results)):
            info = dtype_info(spec.dtype)
            expected = f"{int(info.dl_code)}, {info.bits}, {len(spec.shape)}"
            lines.append(
                f"  if (byoc_check_tensor({name}, {c_string(spec.name)}, arguments[{index}], {expected})) return -1;"
            )
        solved = _solve(function)
        assert solved is not None
        for (index, axis), (unknown, factor, offset) in solved.items():
            axis_arguments = f"{name}, {c_string(_spec(function, index).name)}, arguments[{index}], {axis}"
            target, rest = c_dim(self._symbols[unknown]), c_dim(self._renamed(offset))
            lines.append(f"  int64_t {target} = 0;")
            lines.append(f"  if (byoc_solve_size({axis_arguments}, {factor}, {rest}, &{target})) return -1;")
        lines += self._broadcast_checks(name)
        for index, spec in enumerate((*function.params, *function.results)):
            for axis, dim in enumerate(spec.shape):
                if (index, axis) not in solved:
                    axis_arguments = f"{name}, {c_string(spec.name)}, arguments[{index}], {axis}"
                    lines.append(f"  if (byoc_check_size({axis_arguments}, {c_dim(self._renamed(dim))})) return -1;")
        return lines

    def _broadcast_checks(self, name: str) -> list[str]:
        dims = (*self._sizes(), *map(self._renamed, self._function.storages))
        pairs = [pair for dim in dims for pair in broadcast_pairs(dim)]
        return [
            f"  if (byoc_check_broadcast({name}, {left}, {right})) return -1;"
            for left, right in dict.fromkeys((c_dim(left), c_dim(right)) for left, right in pairs)
        ]


def _spec(function: VMFunction, index: int) -> TensorSpec:
    return (*function.params, *function.results)[index]


def _operands(instruction: Instruction) -> tuple[int, ...]:
    match instruction:
        case Call(args=args, results=results):
            return (*args, *results)
        case If(condition=condition):
            return (condition,)
    return ()


def _table(declaration: str, items: Iterable[str], *, per_line: int = 1) -> list[str]:
    texts = [_with_comma(item) for item in items]
    rows = [" ".join(texts[start : start + per_line]) for start in range(0, len(texts), per_line)]
    return [f"{declaration} = {{", *(f"    {row}" for row in rows), "};"]


def _with_comma(item: str) -> str:
    text, slash, comment = item.partition(" /*")
    return f"{text},{slash}{comment}"


def _filling(array: str, values: Sequence[Dim]) -> list[str]:
    """Return statements filling an array: the numbers by one copy, then the computed values."""
    if not values:
        return [f"  (void){array};"]
    numbers = [str(value) if isinstance(value, int) else "0" for value in values]
    return [
        *_table(f"  static const int64_t known_{array}[]", numbers, per_line=16),
        f"  for (int32_t i = 0; i < {len(values)}; ++i) {array}[i] = known_{array}[i];",
        *(f"  {array}[{i}] = {c_dim(value)};" for i, value in enumerate(values) if not isinstance(value, int)),
    ]


def _solve(function: VMFunction) -> dict[tuple[int, int], tuple[str, int, Dim]] | None:
    """Return the axes of parameters determining the function's symbols, in order: ``factor * symbol + offset``.

    ``None`` if a needed symbol is not determined by these axes.
    """
    solved: dict[tuple[int, int], tuple[str, int, Dim]] = {}
    solved_symbols: set[str] = set()
    axes = [(i, axis, dim) for i, spec in enumerate(function.params) for axis, dim in enumerate(spec.shape)]
    progress = True
    while progress:
        progress = False
        for index, axis, dim in axes:
            unknown = symbols_of(dim) - solved_symbols
            if len(unknown) != 1:
                continue
            (name,) = unknown
            offset = substitute(dim, {name: 0})
            factor = substitute(dim, {name: 1}) - offset
            if isinstance(factor, int) and factor != 0 and dim == offset + factor * symbol(name):
                solved[index, axis] = (name, factor, offset)
                solved_symbols.add(name)
                progress = True
    needed = shape_symbols(dim for spec in (*function.params, *function.results) for dim in spec.shape)
    return solved if needed <= solved_symbols else None
