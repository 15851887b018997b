"""C of lowered functions: a function for each statement, and a function for the whole region.

A lowered function ``f`` becomes the exported functions ``f_step0``, ``f_step1``, ..., one for each top-level statement,
and ``f``, calling the steps in order with intermediates in a workspace. Programs call the steps (see
:class:`~byoc_core.runtime.module.CallSteps`), with all intermediates in one memory plan. Direct callers call ``f``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from byoc_core.authoring.csource import CSourceCodegen, FunctionScope, c_dim, c_type
from byoc_core.authoring.csource_shared import WORKSPACE_ALIGNMENT, ConstantPool, Definitions
from byoc_core.backend.kernel_report import KernelReport
from byoc_core.backend.lowered_buffers import Access, Buffer, BufferPart, BufferRole
from byoc_core.backend.lowered_function import (
    Copy,
    CValue,
    ExternCall,
    Loop,
    LoweredFunction,
    Statement,
    parts_of,
    symbols_in,
)
from byoc_core.dims import linear_form, product, shape_symbols
from byoc_core.dims import symbol as dim_symbol
from byoc_core.dtypes import dtype_info
from byoc_core.errors import CodegenError
from byoc_core.ir import CALL_DPS_PACKED, Binding, Function, TensorType, Var
from byoc_core.native.toolchain import BuildOptions
from byoc_core.runtime.csource import CSourceModule
from byoc_core.runtime.module import CallStep, CallSteps, NDArray, TensorSpec
from byoc_core.runtime.symbolic_storage import SymbolicInterval, plan_block

__all__ = ["lowered_kernels", "lowered_modules"]

_STRICT = '#pragma GCC diagnostic error "-Wimplicit-function-declaration"'

_STATUS = """\
/* Return a status of an external function: 0, or -1 with an error. */
static inline int32_t byoc_external_status(const char *function, const char *callee, int status) {
  return status ? byoc_fail("RuntimeError", "function `%s`: `%s` returned %d", function, callee, status) : 0;
}"""


def lowered_modules(functions: Sequence[LoweredFunction], constants: Mapping[str, NDArray]) -> list[CSourceModule]:
    """Return modules with all lowered functions: a module for each distinct set of options.

    The C is compiled here, so undefined symbols of libraries are reported.

    Args:
        functions: each with a distinct ``global_symbol``.
        constants: arrays by digest, including the arrays of the builders.

    Raises:
        CodegenError: a called symbol is defined nowhere, is called with arguments of different types, or a function or
            value has no C form.
        ToolchainError: no C compiler, or the compiler refuses the text.
    """
    groups: dict[BuildOptions, list[LoweredFunction]] = {}
    for function in functions:
        groups.setdefault(function.options, []).append(function)
    return [_LoweredCodegen(group, options).module(constants) for options, group in groups.items()]


def lowered_kernels(functions: Sequence[LoweredFunction], constants: Mapping[str, NDArray]) -> list[KernelReport]:
    """Return a report of each step of lowered functions: the called C, the written buffers, and the loops.

    Args:
        functions: each with a distinct ``global_symbol``.
        constants: arrays by digest, including the arrays of the builders.

    Raises:
        CodegenError: a function or value has no C form.
    """
    return [
        report for function in functions for report in _LoweredCodegen([function], function.options).steps(constants)
    ]


@dataclass(frozen=True, slots=True)
class _Step:
    """A step as a function of its own.

    Attributes:
        function: parameters and results stand for buffers.
        reads: the buffers of the parameters, in order.
        writes: the buffers of the results, in order.
        statement: the body.
    """

    function: Function
    reads: tuple[Buffer, ...]
    writes: tuple[Buffer, ...]
    statement: Statement


class _LoweredCodegen(CSourceCodegen):
    """The generator of the C of lowered functions with equal options."""

    def __init__(self, lowered: Sequence[LoweredFunction], options: BuildOptions) -> None:
        super().__init__(options)
        self._lowered = {_symbol(item.function): item for item in lowered}
        self._steps = {symbol: _steps_of(item) for symbol, item in self._lowered.items()}
        self._by_symbol = {_symbol(step.function): step for steps in self._steps.values() for step in steps}

    def module(self, constants: Mapping[str, NDArray]) -> CSourceModule:
        """Return the module of all functions and steps."""
        functions = [
            function
            for symbol, item in self._lowered.items()
            for function in (*(step.function for step in self._steps[symbol]), item.function)
        ]
        plain = self.generate(functions, constants)
        return CSourceModule(
            plain.get_source("c"),
            plain.signatures,
            constants=plain.constants,
            options=plain.options,
            library=plain.build(),
            traits=plain.traits,
            steps={symbol: self._call_steps(symbol) for symbol in self._lowered},
        )

    def steps(self, constants: Mapping[str, NDArray]) -> list[KernelReport]:
        """Return a report of each step."""
        functions = [step.function for steps in self._steps.values() for step in steps]
        reports = []
        for scope in self._visited(functions, ConstantPool(constants), Definitions()):
            step = self._by_symbol[scope.symbol]
            written = tuple(buffer.name for buffer in step.writes)
            source, owner = "\n".join(scope.statements), str(step.function.attrs["lowered"])
            loops = tuple(_outline(step.statement))
            reports.append(KernelReport(scope.symbol, owner, source, results=written, loops=loops))
        return reports

    @property
    def checks_links(self) -> bool:
        """``True``: every lowered function calls C functions defined elsewhere."""
        return True

    @property
    def reserved_names(self) -> frozenset[str]:
        """The called functions and all words of scalar arguments: a parameter of the same name would hide these."""
        values = [item.text for call in self._calls() for item in call.arguments if isinstance(item, CValue)]
        return frozenset(call.symbol for call in self._calls()).union(*(re.findall(r"\w+", text) for text in values))

    def preamble(self, text: str) -> str:
        """Return includes, sources and prototypes, each once; prototypes only for functions declared nowhere else."""
        declarations = dict.fromkeys(text for item in self._lowered.values() for text in item.declarations)
        includes = [text for text in declarations if _is_include(text)]
        sources = [text for text in declarations if not _is_include(text)]
        has_status = any(call.returns_status for call in self._calls())
        lines = [*includes, *([_STRICT] if includes else []), *sources]
        return "\n".join([*lines, *([_STATUS] if has_status else []), *self._prototypes()]) + "\n"

    def visit_function(self, scope: FunctionScope) -> None:
        """Add the calls of a step's function, or of all steps of a lowered function."""
        for param in scope.function.params:
            scope.bind(param, scope.parameter(param))
        step = self._by_symbol.get(scope.symbol)
        if step is None:
            self._visit_whole(scope, self._lowered[scope.symbol])
        else:
            _StepText(scope, step).write()

    def _visit_whole(self, scope: FunctionScope, lowered: LoweredFunction) -> None:
        steps = self._steps[scope.symbol]
        pointers = dict(zip(lowered.inputs, scope.inputs, strict=True))
        pointers |= dict(zip(lowered.outputs, scope.outputs, strict=True))
        buffers, intervals = _intervals(lowered, steps)
        for buffer in buffers:
            scope.require_at_least("allocate", f"buffer `{buffer.name}`", buffer.shape, [0] * len(buffer.shape))
        if buffers:
            offsets, nbytes = plan_block(intervals, WORKSPACE_ALIGNMENT)
            block = scope.workspace(WORKSPACE_ALIGNMENT if nbytes == 0 else nbytes)
            for buffer, offset in zip(buffers, offsets, strict=True):
                name = scope.names.unique(f"{buffer.name}_data")
                ctype = c_type(buffer.dtype)
                scope.statements.append(f"{ctype} *const {name} = ({ctype} *)({block} + {c_dim(offset)});")
                pointers[buffer] = name
        sizes = {name: f"dim_{name}" for name in scope.symbols}
        for step in steps:
            names = sorted(_function_symbols(step.function))
            arguments = [*(pointers[buffer] for buffer in (*step.reads, *step.writes)), *(sizes[n] for n in names)]
            scope.call_checked(f"{_symbol(step.function)}_", *arguments)
        for result, name in zip(scope.function.results, scope.outputs, strict=True):
            scope.bind(result, name)

    def _call_steps(self, symbol: str) -> CallSteps:
        lowered, steps = self._lowered[symbol], self._steps[symbol]
        intermediates = _intervals(lowered, steps)[0]
        numbers = {b: n for n, b in enumerate((*lowered.inputs, *lowered.outputs, *intermediates))}
        return CallSteps(
            tuple(TensorSpec(buffer.name, buffer.dtype, buffer.shape) for buffer in intermediates),
            tuple(
                CallStep(
                    _symbol(step.function),
                    tuple(numbers[buffer] for buffer in step.reads),
                    tuple(numbers[buffer] for buffer in step.writes),
                )
                for step in steps
            ),
        )

    def _calls(self) -> Iterable[ExternCall]:
        for item in self._lowered.values():
            yield from _extern_calls(item.statements)

    def _prototypes(self) -> list[str]:
        """Return a prototype, made from the arguments, for each called function without another declaration.

        A lowered function's own headers and sources decide, so other functions of the module change nothing.
        """
        found: dict[str, str] = {}
        for item in self._lowered.values():
            self._add_prototypes(item, found)
        return list(found.values())

    @staticmethod
    def _add_prototypes(item: LoweredFunction, found: dict[str, str]) -> None:
        if any(map(_is_include, item.declarations)):
            return
        words = {word for text in item.declarations for word in re.findall(r"\w+", text)}
        for call in _extern_calls(item.statements):
            if call.symbol in words:
                continue
            result = "int" if call.returns_status else "void"
            prototype = f"{result} {call.symbol}({', '.join(map(_parameter_type, call.arguments)) or 'void'});"
            if found.setdefault(call.symbol, prototype) != prototype:
                raise CodegenError(
                    f"extern function `{call.symbol}`",
                    "is called with arguments of different types",
                    got=f"`{prototype}` and `{found[call.symbol]}`",
                    hint="Declare the function with `builder.add_source` or `builder.include`.",
                )


class _StepText:
    """The C statements of a step."""

    def __init__(self, scope: FunctionScope, step: _Step) -> None:
        self._scope = scope
        self._step = step
        self._pointers = dict(zip(step.reads, scope.inputs, strict=True))
        self._pointers |= dict(zip(step.writes, scope.outputs, strict=True))
        self._depth = 0

    def write(self) -> None:
        scope, step = self._scope, self._step
        pairs = [
            (w, r) for w, written in enumerate(step.writes) for r, read in enumerate(step.reads) if written is read
        ]
        for output, index in pairs:
            source, target = scope.inputs[index], scope.outputs[output]
            nbytes = f"(size_t){c_dim(step.writes[output].size)} * {dtype_info(step.writes[output].dtype).itemsize}"
            self._add(f"if ({target} != {source}) memcpy({target}, {source}, {nbytes});")
        scope.in_place = tuple(pairs)
        self._write(step.statement)
        for result, name in zip(scope.function.results, scope.outputs, strict=True):
            scope.bind(result, name)

    def _write(self, statement: Statement) -> None:
        match statement:
            case ExternCall(symbol=symbol, arguments=arguments):
                call = f"{symbol}({', '.join(map(self._argument, arguments))})"
                if statement.returns_status:
                    owner = self._scope.function.attrs["lowered"]
                    self._scope.call_checked("byoc_external_status", f'"{owner}"', f'"{symbol}"', call)
                    self._scope.statements.append("  " * self._depth + self._scope.statements.pop())
                else:
                    self._add(f"{call};")
            case Copy(source=source, target=target):
                nbytes = f"(size_t){c_dim(source.size)} * {dtype_info(source.buffer.dtype).itemsize}"
                self._add(f"memcpy({self._argument(target)}, {self._argument(source)}, {nbytes});")
            case Loop(index=index, extent=extent, body=body):
                name = c_dim(dim_symbol(index))
                self._add(f"for (int64_t {name} = 0; {name} < {c_dim(extent)}; ++{name}) {{")
                self._depth += 1
                for inner in body:
                    self._write(inner)
                self._depth -= 1
                self._add("}")

    def _add(self, line: str) -> None:
        self._scope.statements.append("  " * self._depth + line)

    def _argument(self, argument: object) -> str:
        if isinstance(argument, BufferPart):
            buffer = argument.buffer
            pointer = self._pointers[buffer] if buffer.constant is None else self._scope.value(buffer.constant)
            return pointer if argument.offset == 0 else f"{pointer} + {c_dim(argument.offset)}"
        return argument.text if isinstance(argument, CValue) else c_dim(argument)  # type: ignore[arg-type]


def _steps_of(lowered: LoweredFunction) -> list[_Step]:
    steps = []
    written: set[Buffer] = set()
    for number, statement in enumerate(lowered.statements):
        accesses: dict[Buffer, set[Access]] = {}
        for part in parts_of(statement):
            if part.buffer.role is not BufferRole.CONSTANT:
                accesses.setdefault(part.buffer, set()).add(part.access)
        defined = written.union(lowered.inputs)
        # A buffer read before the first write has no elements, or is read in a part without elements.
        writes = [buffer for buffer, kinds in accesses.items() if kinds != {Access.READ} or buffer not in defined]
        if number == len(lowered.statements) - 1:  # outputs without elements need no statement
            writes += [buffer for buffer in lowered.outputs if buffer not in written and buffer not in writes]
        # A buffer written in several steps keeps the elements of earlier steps.
        reads = [buffer for buffer in accesses if buffer in defined]
        written.update(writes)
        steps.append(_step(lowered, number, statement, reads, writes))
    return steps


def _step(
    lowered: LoweredFunction, number: int, statement: Statement, reads: Sequence[Buffer], writes: Sequence[Buffer]
) -> _Step:
    reads = list(reads)

    def missing() -> frozenset[str]:
        shapes = shape_symbols(dim for buffer in (*reads, *writes) for dim in buffer.shape)
        return (symbols_in(statement) | shapes) - _determined(reads)

    # Outputs determine no sizes: a function with sizes known only from its outputs would return new tensors.
    while unknown := missing():
        further = (buffer for buffer in lowered.inputs if buffer not in reads and unknown & _determined([buffer]))
        found = next(further, None)
        if found is None:
            raise CodegenError(
                f"function `{lowered.function.name}`",
                f"the size of {', '.join(sorted(unknown))} cannot be computed from the shapes of the parameters",
            )
        reads.append(found)
    params = tuple(Var(buffer.name, TensorType(buffer.shape, buffer.dtype)) for buffer in reads)
    results = tuple(Var(f"{buffer.name}_out", TensorType(buffer.shape, buffer.dtype)) for buffer in writes)
    symbol = f"{_symbol(lowered.function)}_step{number}"
    binding = Binding(results, CALL_DPS_PACKED, params, CALL_DPS_PACKED.normalise_attrs({"symbol": symbol}))
    attrs = {"global_symbol": symbol, "lowered": _symbol(lowered.function)}
    return _Step(
        Function(lowered.function.name, params, (binding,), results, attrs), tuple(reads), tuple(writes), statement
    )


def _outline(statement: Statement, indentation: str = "") -> Iterator[str]:
    """Yield a line for each loop of a statement; inner loops are indented."""
    if isinstance(statement, Loop):
        yield f"{indentation}for {statement.index} in 0..{statement.extent}"
        for inner in statement.body:
            yield from _outline(inner, indentation + "  ")


def _determined(buffers: Iterable[Buffer]) -> frozenset[str]:
    """Return the symbols determined by the shapes of buffers, as the wrappers of functions compute them."""
    forms = (linear_form(dim) for buffer in buffers for dim in buffer.shape if not isinstance(dim, int))
    return frozenset(form[0] for form in forms if form is not None)


def _function_symbols(function: Function) -> frozenset[str]:
    types = [value.type for value in (*function.params, *function.results)]
    return shape_symbols(dim for type_ in types if isinstance(type_, TensorType) for dim in type_.shape or ())


def _intervals(lowered: LoweredFunction, steps: Sequence[_Step]) -> tuple[list[Buffer], list[SymbolicInterval]]:
    """Return the used intermediates and their live ranges over the steps."""
    ranges: dict[Buffer, tuple[int, int]] = {}
    for number, step in enumerate(steps):
        for buffer in (*step.reads, *step.writes):
            if buffer.role is BufferRole.INTERMEDIATE:
                ranges[buffer] = (ranges.get(buffer, (number, number))[0], number)
    nbytes = {buffer: product(buffer.shape) * dtype_info(buffer.dtype).itemsize for buffer in ranges}
    return list(ranges), [SymbolicInterval(nbytes[buffer], *span) for buffer, span in ranges.items()]


def _is_include(text: str) -> bool:
    return text.startswith("#include")


def _extern_calls(statements: Iterable[Statement]) -> Iterable[ExternCall]:
    for statement in statements:
        if isinstance(statement, ExternCall):
            yield statement
        elif isinstance(statement, Loop):
            yield from _extern_calls(statement.body)


def _parameter_type(argument: object) -> str:
    if isinstance(argument, BufferPart):
        return f"{'const ' if argument.access is Access.READ else ''}{c_type(argument.buffer.dtype)} *"
    return argument.ctype if isinstance(argument, CValue) else "int64_t"


def _symbol(function: Function) -> str:
    return str(function.attrs["global_symbol"])
