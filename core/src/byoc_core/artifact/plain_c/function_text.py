"""A function of a program as a C function: the calls in order, over pointers into one workspace."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

from byoc_core.artifact.native_program import NativeProgram
from byoc_core.artifact.plain_c.layout import WorkspaceLayout
from byoc_core.artifact.plain_c.names import FunctionNames
from byoc_core.artifact.plain_c.raw_functions import RawFunctions, size_symbols
from byoc_core.artifact.plain_c.size_checks import size_checks
from byoc_core.dims import Dim, match_symbols, product, substitute, symbols_of
from byoc_core.dtypes import dtype_info
from byoc_core.errors import InternalError
from byoc_core.native.c_text import c_comment, c_storage_type, c_string
from byoc_core.native.plain_c import has_raw_functions
from byoc_core.opset.layout import row_major
from byoc_core.runtime.csource import CSourceModule
from byoc_core.vm.instructions import Builtin, Call, CallKind, Goto, If, Instruction, Ret
from byoc_core.vm.program import Register, RegisterKind, View, VMFunction, nbytes_of

__all__ = ["FunctionText"]


class FunctionText:
    """The C of a function.

    Args:
        native: the program, with a function for machine code alone.
        function: the function.
        names: the C names of all functions of the program, by name.
        layouts: the workspaces of all functions.
        constants: C expressions of the program's constants, by digest.
        raw: the generated functions called by the C.
        takes_constants: whether functions have the parameter ``constants``.
        is_library: whether the C is part of a shared library: functions without a form over plain pointers are called
            with tensors, and scratch memory may be left to the functions.
    """

    def __init__(
        self,
        native: NativeProgram,
        function: VMFunction,
        names: Mapping[str, FunctionNames],
        layouts: Mapping[str, WorkspaceLayout],
        constants: Mapping[str, str],
        raw: RawFunctions | None = None,
        *,
        takes_constants: bool = False,
        is_library: bool = False,
    ) -> None:
        self._raw = raw or RawFunctions()
        self._takes_constants = takes_constants
        self._is_library = is_library
        self._native = native
        self._program = native.program
        self._function = function
        self._all_names = names
        self._names = names[function.name]
        self._layout = layouts[function.name]
        self._constants = constants
        self._registers = native.program.registers(function)
        count = len(function.params) + len(function.results)
        # Registers as names: names of users may be keywords, macros or names of other variables.
        self._variables = {number: str(register) for number, register in enumerate(self._registers[:count])}

    @cached_property
    def _tables(self) -> dict[tuple[str, ...], str]:
        """The names of the tables of constants passed to called functions, by pointers."""
        externs = self._program.externs
        calls = (call for call in self._function.code if isinstance(call, Call) and call.kind is CallKind.EXTERN)
        called = dict.fromkeys(externs[call.callee] for call in calls)
        tables = dict.fromkeys(tuple(self._raw.tables[symbol]) for symbol in called if symbol in self._raw.tables)
        return {pointers: f"table_{number}" for number, pointers in enumerate(tables)}

    def prototype(self) -> str:
        """Return the head of the C function."""
        function, names = self._function, self._names
        parameters = [
            *(f"const {c_storage_type(spec.dtype)} *{self._variables[n]}" for n, spec in enumerate(function.params)),
            *(
                f"{c_storage_type(spec.dtype)} *{self._variables[n]}"
                for n, spec in enumerate(function.results, start=len(function.params))
            ),
            *(f"int64_t {names.size_variable(name)}" for name in names.sizes),
            *(f"char *{pool}" for pool in names.pools),
            *(["const unsigned char *constants"] if self._takes_constants else []),
        ]
        return f"static int32_t {names.body}({', '.join(parameters)})"

    def definition(self) -> str:
        """Return the C function."""
        body = [*self._declarations(), *self._statements()]
        words = set(re.findall(r"\w+", "\n".join(body)))
        parameters = re.findall(r"(\w+)[,)]", self.prototype())
        unused = [f"  (void){name};" for name in parameters if name not in words]
        return "\n".join([f"{self.prototype()} {{", *unused, *body, "}"])

    def sizes_prototype(self) -> str:
        """Return the head of the C function checking the symbolic sizes."""
        sizes = ", ".join(f"int64_t {self._names.size_variable(name)}" for name in self._names.sizes)
        return f"static int32_t {self._names.check}({sizes or 'void'})"

    def sizes_definition(self, max_sizes: Mapping[str, int] | None = None) -> str:
        """Return the C function checking the symbolic sizes; the result is 0 for sizes with a meaning.

        Args:
            max_sizes: the largest size of each symbol.
        """
        function, names = self._function, self._names
        symbols = [(names.size_variable(name), None if max_sizes is None else max_sizes[name]) for name in names.sizes]
        axes = [dim for register in self._registers for dim in register.shape]
        sizes = [nbytes_of(register.shape, register.dtype) for register in self._registers]
        sizes += [*function.storages, *self._layout.callees, *self._layout.nbytes]
        sizes += [location.offset for location in self._layout.tensors]
        for view in function.views:
            sizes += [view.offset, *(view.strides or ())]
        checks = size_checks(function.name, symbols, axes, sizes, self._text)
        return "\n".join([f"{self.sizes_prototype()} {{", *checks, "  return 0;", "}"])

    def _text(self, dim: Dim) -> str:
        return self._names.size_text(dim)

    def _declarations(self) -> Iterator[str]:
        used = sorted({number for instruction in self._function.code for number in _operands(instruction)})
        bases = {self._view(number).base for number in used if self._registers[number].kind is RegisterKind.VIEW}
        for number in sorted({*used, *bases}):
            register = self._registers[number]
            if register.kind in (RegisterKind.PARAM, RegisterKind.RESULT):
                continue
            self._variables[number] = str(register)
            ctype = c_storage_type(register.dtype)
            comment = c_comment(f"{register.dtype}[{', '.join(map(str, register.shape))}]")
            yield f"  {ctype} *const {register} = {self._address(number, register)}; /* {comment} */"
        for pointers, name in self._tables.items():
            yield f"  const void *const {name}[] = {{{', '.join(pointers)}}};"

    def _address(self, number: int, register: Register) -> str:
        ctype = c_storage_type(register.dtype)
        match register.kind:
            case RegisterKind.CONSTANT:
                digest = self._program.constants[self._function.constants[register.index]].digest
                return f"({ctype} *)(uintptr_t)({self._constants[digest]})"
            case RegisterKind.TENSOR:
                location = self._layout.tensors[register.index]
                return f"({ctype} *)({self._names.pools[location.pool]} + {self._text(location.offset)})"
            case RegisterKind.VIEW:
                view = self._view(number)
                return f"({ctype} *)(uintptr_t)({self._variables[view.base]} + {self._text(view.layout.offset)})"
        raise InternalError(f"function `{self._function.name}`", f"register {register} has no address")

    def _view(self, number: int) -> View:
        return self._function.views[number - self._function.first_view]

    def _statements(self) -> Iterator[str]:
        targets = {i.target for i in self._function.code if isinstance(i, Goto)}
        targets |= {i.otherwise for i in self._function.code if isinstance(i, If)}
        for number, instruction in enumerate(self._function.code):
            if number in targets:
                yield f"label_{number}:;"
            match instruction:
                case Ret():
                    yield "  return 0;"
                case Goto(target=target):
                    yield f"  goto label_{target};"
                case If(condition=condition, otherwise=target):
                    yield f"  if (!*{self._variables[condition]}) goto label_{target};"
                case Call(kind=CallKind.EXTERN):
                    yield from self._extern(instruction)
                case Call(kind=CallKind.FUNCTION):
                    yield from self._call(instruction)
                case Call(kind=CallKind.BUILTIN):
                    yield from self._builtin(instruction)
                case _:
                    raise InternalError(f"function `{self._function.name}`", "has an instruction without a C form")

    def _extern(self, call: Call) -> Iterator[str]:
        symbol = self._program.externs[call.callee]
        module = self._native.owner(symbol)
        assert isinstance(module, CSourceModule)
        signature = module.signatures[symbol]
        count = len(signature.inputs) + len(signature.outputs)
        numbers = (*call.args, *call.results)
        if self._is_library and not self._has_raw_form(module, symbol, numbers):
            yield from self._packed(symbol, numbers)
            return
        declared = [dim for spec in (*signature.inputs, *signature.outputs) for dim in spec.shape]
        passed = [dim for number in numbers[:count] for dim in self._registers[number].shape]
        sizes = match_symbols(declared, passed)
        yield from self._equal([substitute(dim, sizes) for dim in declared], passed, f"call of `{symbol}`")
        size_texts = [self._text(sizes[name]) for name in size_symbols(module, symbol)]
        check = self._raw.size_check(module, symbol)
        if check is not None:
            yield f"  if ({check}({', '.join(size_texts)})) return -1;"
        pointers = [self._variables[number] for number in numbers[:count]]
        scratch = [f"(char *){self._variables[number]}" for number in numbers[count:]]
        if module.call_traits(symbol).workspace_nbytes != 0 and not scratch:
            scratch = ["NULL"]  # the function allocates scratch memory
        pointers[:0] = [self._tables[tuple(self._raw.tables[symbol])]] if symbol in self._raw.tables else []
        yield f"  if ({self._raw.name(symbol)}({', '.join([*pointers, *size_texts, *scratch])})) return -1;"

    def _has_raw_form(self, module: CSourceModule, symbol: str, numbers: Sequence[int]) -> bool:
        """Return whether a call may pass pointers: the sizes follow from the shapes, and no tensor has strides."""
        signature = module.signatures[symbol]
        count = len(signature.inputs) + len(signature.outputs)
        declared = [dim for spec in (*signature.inputs, *signature.outputs) for dim in spec.shape]
        passed = [dim for number in numbers[:count] for dim in self._registers[number].shape]
        names = {name for dim in declared for name in symbols_of(dim)}
        return (
            has_raw_functions(module.get_source("c"))
            and len(numbers) - count <= (module.call_traits(symbol).workspace_nbytes != 0)
            and len(declared) == len(passed)
            and names <= match_symbols(declared, passed).keys()
            and all(self._strides(number) is None for number in numbers)
        )

    def _packed(self, symbol: str, numbers: Sequence[int]) -> Iterator[str]:
        """Yield a call over tensors of the foreign interface, for sources without functions over pointers."""
        yield "  {"
        for index, number in enumerate(numbers):
            register = self._registers[number]
            info = dtype_info(register.dtype)
            sizes = ", ".join(map(self._text, register.shape)) or "0"
            yield f"    int64_t shape_{index}[] = {{{sizes}}};"
            steps = self._strides(number)
            if steps is not None:
                yield f"    int64_t strides_{index}[] = {{{', '.join(map(self._text, steps))}}};"
            fields = (
                f".data = (void *)(uintptr_t){self._variables[number]}",
                ".device = {kDLCPU, 0}",
                f".ndim = {len(register.shape)}",
                f".dtype = {{{int(info.dl_code)}, {info.bits}, 1}}",
                f".shape = shape_{index}",
                f".strides = {'NULL' if steps is None else f'strides_{index}'}",
            )
            yield f"    DLTensor tensor_{index} = {{{', '.join(fields)}}};"
        items = (f"{{.type_index = kTVMFFIDLTensorPtr, .v_ptr = &tensor_{index}}}" for index in range(len(numbers)))
        yield f"    const TVMFFIAny tensors[] = {{{', '.join(items)}}};"
        yield "    TVMFFIAny result = {0};"
        yield f"    if ({self._native.region_symbol(symbol)}(NULL, tensors, {len(numbers)}, &result)) return -1;"
        yield "  }"

    def _call(self, call: Call) -> Iterator[str]:
        callee = self._program.functions[call.callee]
        numbers = (*call.args, *call.results)
        declared = [dim for spec in (*callee.params, *callee.results) for dim in spec.shape]
        passed = [dim for number in numbers for dim in self._registers[number].shape]
        sizes = match_symbols(declared, passed)
        yield from self._equal([substitute(dim, sizes) for dim in declared], passed, f"call of `{callee.name}`")
        names = self._all_names[callee.name]
        size_texts = [self._text(sizes[name]) for name in names.sizes]
        if size_texts:
            yield f"  if ({names.check}({', '.join(size_texts)})) return -1;"
        arguments = [*(self._variables[number] for number in numbers), *size_texts]
        offsets = zip(self._names.pools, self._layout.callees, strict=True)
        arguments += [f"{pool} + {self._text(offset)}" for pool, offset in offsets]
        arguments += ["constants"] if self._takes_constants else []
        yield f"  if ({names.body}({', '.join(arguments)})) return -1;"

    def _equal(self, left: Sequence[Dim], right: Sequence[Dim], subject: str) -> Iterator[str]:
        """Yield checks of sizes equal in every lawful call, but not by their expressions."""
        pairs = dict.fromkeys((a, b) for a, b in zip(left, right, strict=True) if a != b)
        text = c_string(f"function `{self._function.name}`, {subject}: the sizes %lld and %lld differ")
        for first, second in ((self._text(a), self._text(b)) for a, b in pairs):
            failure = f'byoc_fail("ValueError", {text}, (long long){first}, (long long){second})'
            yield f"  if ({first} != {second}) return {failure};"

    def _builtin(self, call: Call) -> Iterator[str]:
        args = [self._variables[number] for number in call.args]
        (result,) = (self._variables[number] for number in call.results)
        match Builtin(call.callee):
            case Builtin.COPY:
                yield from self._copy(call.args[0], call.results[0])
            case Builtin.ZERO:
                yield f"  *{result} = 0;"
            case Builtin.INCREMENT:
                yield f"  *{result} = (int64_t)((uint64_t)*{result} + 1);"
            case Builtin.LOOP_TEST:
                yield f"  *{result} = *{args[2]} && *{args[0]} < *{args[1]};"
            case _:
                raise InternalError(f"function `{self._function.name}`", "calls a builtin without a C form")

    def _copy(self, source: int, target: int) -> Iterator[str]:
        shape = self._registers[target].shape
        yield from self._equal(self._registers[source].shape, shape, "a copy")
        strides = [self._strides(number) for number in (source, target)]
        names = [self._variables[number] for number in (source, target)]
        if strides == [None, None]:
            itemsize = dtype_info(self._registers[target].dtype).itemsize
            yield f"  memmove({names[1]}, {names[0]}, (size_t){self._text(product(shape))} * {itemsize});"
            return
        steps = [row_major(shape) if item is None else item for item in strides]
        axes = range(len(shape))
        for axis in axes:
            yield f"  for (int64_t i{axis} = 0; i{axis} < {self._text(shape[axis])}; ++i{axis})"
        indexes = [" + ".join([f"i{axis} * {self._text(step[axis])}" for axis in axes] or ["0"]) for step in steps]
        yield f"    {names[1]}[{indexes[1]}] = {names[0]}[{indexes[0]}];"

    def _strides(self, number: int) -> tuple[Dim, ...] | None:
        if self._registers[number].kind is not RegisterKind.VIEW:
            return None
        view = self._view(number)
        return None if view.is_compact else view.strides


def _operands(instruction: Instruction) -> Sequence[int]:
    match instruction:
        case Call(args=args, results=results):
            return (*args, *results)
        case If(condition=condition):
            return (condition,)
    return ()
