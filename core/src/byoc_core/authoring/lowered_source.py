"""C of lowered functions: a function for each statement, and a function for the whole region.

A lowered function ``f`` becomes the exported functions ``f_step0``, ``f_step1``, ..., one for each top-level statement,
and ``f``, calling the steps in order with intermediates in a workspace. Programs call the steps (see
:class:`~byoc_core.runtime.module.CallSteps`), with all intermediates in one memory plan. Direct callers call ``f``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from byoc_core.authoring.csource import CSourceCodegen, FunctionScope, c_dim, c_symbol, c_type
from byoc_core.authoring.csource_shared import WORKSPACE_ALIGNMENT, ConstantPool, Definitions
from byoc_core.authoring.lowered_steps import Step, find_intervals, steps_of, symbol_of, symbols_of_function
from byoc_core.backend.kernel_report import KernelReport
from byoc_core.backend.lowered_buffers import Access, Buffer, BufferPart
from byoc_core.backend.lowered_function import (
    Copy,
    CValue,
    ExternCall,
    Loop,
    LoweredFunction,
    Statement,
)
from byoc_core.dims import Dim
from byoc_core.dims import symbol as dim_symbol
from byoc_core.dtypes import dtype_info
from byoc_core.errors import CodegenError
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
    generators = (_LoweredCodegen([function], function.options) for function in functions)
    return [report for generator in generators for report in generator.steps(constants)]


class _LoweredCodegen(CSourceCodegen):
    """The generator of the C of lowered functions with equal options."""

    def __init__(self, lowered: Sequence[LoweredFunction], options: BuildOptions) -> None:
        super().__init__(options)
        self._lowered = {symbol_of(item.function): item for item in lowered}
        self._steps = {symbol: steps_of(item) for symbol, item in self._lowered.items()}
        self._by_symbol = {symbol_of(step.function): step for steps in self._steps.values() for step in steps}

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
        buffers, intervals = find_intervals(lowered, steps)
        _require_sizes(scope, buffers)
        scratch = {n: step.plan_scratch().nbytes for n, step in enumerate(steps) if step.scratch}
        intervals += [SymbolicInterval(nbytes, number, number) for number, nbytes in scratch.items()]
        workspaces: dict[int, str] = {}
        if intervals:
            plan = plan_block(intervals, WORKSPACE_ALIGNMENT)
            block = scope.workspace(WORKSPACE_ALIGNMENT if plan.nbytes == 0 else plan.nbytes)
            for buffer, offset in zip(buffers, plan.offsets, strict=False):
                pointers[buffer] = _add_pointer(scope, buffer, block, offset)
            offsets = plan.offsets[len(buffers) :]
            workspaces = {n: f"{block} + {c_dim(offset)}" for n, offset in zip(scratch, offsets, strict=True)}
        sizes = {name: c_symbol(name) for name in scope.symbols}
        for number, step in enumerate(steps):
            names = sorted(symbols_of_function(step.function))
            arguments = [*(pointers[buffer] for buffer in (*step.reads, *step.writes)), *(sizes[n] for n in names)]
            arguments += [workspaces[number]] if step.scratch else []
            scope.call_checked(f"{symbol_of(step.function)}_", *arguments)
            scope.mark_part(symbol_of(step.function))
        for result, name in zip(scope.function.results, scope.outputs, strict=True):
            scope.bind(result, name)

    def _call_steps(self, symbol: str) -> CallSteps:
        lowered, steps = self._lowered[symbol], self._steps[symbol]
        intermediates = find_intervals(lowered, steps)[0]
        numbers = {b: n for n, b in enumerate((*lowered.inputs, *lowered.outputs, *intermediates))}
        return CallSteps(
            tuple(TensorSpec(buffer.name, buffer.dtype, buffer.shape) for buffer in intermediates),
            tuple(
                CallStep(
                    symbol_of(step.function),
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

    def __init__(self, scope: FunctionScope, step: Step) -> None:
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
        self._place_scratch()
        self._write(step.statement)
        for result, name in zip(scope.function.results, scope.outputs, strict=True):
            scope.bind(result, name)

    def _place_scratch(self) -> None:
        if self._step.scratch:
            _require_sizes(self._scope, self._step.scratch)
            plan = self._step.plan_scratch()
            block = self._scope.workspace(plan.nbytes)
            for buffer, offset in zip(self._step.scratch, plan.offsets, strict=True):
                self._pointers[buffer] = _add_pointer(self._scope, buffer, block, offset)

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


def _outline(statement: Statement, indentation: str = "") -> Iterator[str]:
    """Yield a line for each loop of a statement; inner loops are indented."""
    if isinstance(statement, Loop):
        yield f"{indentation}for {statement.index} in 0..{statement.extent}"
        for inner in statement.body:
            yield from _outline(inner, indentation + "  ")


def _require_sizes(scope: FunctionScope, buffers: Iterable[Buffer]) -> None:
    for buffer in buffers:
        scope.require_at_least("allocate", f"buffer `{buffer.name}`", buffer.shape, [0] * len(buffer.shape))


def _add_pointer(scope: FunctionScope, buffer: Buffer, block: str, offset: Dim) -> str:
    """Add a pointer to a buffer in a block of memory, and return the pointer's name."""
    name = scope.names.unique(f"{buffer.name}_data")
    ctype = c_type(buffer.dtype)
    scope.statements.append(f"{ctype} *const {name} = ({ctype} *)({block} + {c_dim(offset)});")
    return name


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
