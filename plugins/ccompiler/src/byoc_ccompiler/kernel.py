"""One C kernel under construction: its pointers, its scratch memory, its text."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from byoc_core.authoring.c import (
    C11_VECTORS,
    Block,
    BlockPrinter,
    Buffer,
    Call,
    Callee,
    CType,
    Evaluate,
    Fail,
    Function,
    Literal,
    MemoryAccess,
    Names,
    ParallelWork,
    Return,
    Variable,
    called_by,
    outline,
    parallel_works,
    print_function,
    simplify,
    statements_in,
    symbols_in,
    vector_typedefs,
)
from byoc_core.authoring.csource import (
    C_LIBRARY_NAMES,
    END_ITEM,
    FIRST_ITEM,
    FunctionScope,
    KernelFacts,
    NameTable,
    ParallelLoop,
    c_identifier,
    c_literal,
    c_type,
    tensor_type,
)
from byoc_core.authoring.layouts import compact_layout
from byoc_core.dims import Dim
from byoc_core.ir import Binding, Constant, Value, Var

from byoc_ccompiler.options import CCompilerOptions
from byoc_ccompiler.steps import Step, dtype_of, shape_of
from byoc_ccompiler.vector_unit import VectorUnit

__all__ = ["Group", "Kernel", "KernelContext", "compact_strides"]


def compact_strides(shape: Sequence[Dim]) -> tuple[Dim, ...]:
    """Gives the distances, in elements, from one position to the next along each axis of a row-major tensor."""
    return compact_layout(shape).strides


@dataclass(eq=False, slots=True)
class Group:
    """The steps of one kernel, in order; the first is the anchor where it has one.

    Attributes:
        space: the shape of the iteration space, ``None`` for a kernel that nothing joins.
        anchored: whether the first step is computed by a family that takes an epilogue.
        results: what the steps make.
        reads: what they read.
        reduced: the axes of the space that the group's reductions reduce; ``None`` where it has none.
        row_axes: for the results that have one element where the reduced axes have many, the axes of the space that
            their own axes lie along.
        chain: the groups that this one is made of, each computing on what the one before it gives; empty for one.
    """

    steps: list[Step]
    space: tuple[Dim, ...] | None
    anchored: bool = False
    results: set[Value] = field(default_factory=set)
    reads: set[Value] = field(default_factory=set)
    reduced: frozenset[int] | None = None
    row_axes: dict[Value, tuple[int, ...]] = field(default_factory=dict)
    chain: tuple[Group, ...] = ()


@dataclass(frozen=True, slots=True)
class KernelContext:
    """What all kernels of a function share.

    Attributes:
        scope: the function under construction.
        unit: the vector registers of the target.
        options: the user's options.
        strides: the strides of values that do not lie row-major without gaps, in elements.
    """

    scope: FunctionScope
    unit: VectorUnit
    options: CCompilerOptions
    strides: Mapping[Value, tuple[Dim, ...]]


_STATUS = CType("int32")

_NAMED_OPS = 4
"""Ops that a kernel's name tells of."""

_RESERVED = (
    "scratch",
    "sum",
    "sums",
    "image",
    "taps",
    "rows",
    "columns",
    FIRST_ITEM,
    END_ITEM,
    "loop",
    "data",
    *C_LIBRARY_NAMES,
)


class _Text(NamedTuple):
    """What :meth:`Kernel.finish` was given."""

    body: tuple[str | ParallelLoop, ...]
    helpers: str
    variables: tuple[str, ...]


class _TextNames(Names):
    """The names of variables in a body that is text: buffers have theirs already, and no name is free again."""

    def __init__(self, table: NameTable) -> None:
        super().__init__()
        self._table = table

    def __getitem__(self, item: Buffer | Variable) -> str:
        return item.name if isinstance(item, Buffer) and item not in self else super().__getitem__(item)

    def new_name(self, hint: str) -> str:
        return self._table.unique(hint)

    def leave(self) -> None:
        """Keep the names of the block."""


class Kernel:
    """Collects what one kernel reads and writes while its body is written.

    Args:
        context: the function it belongs to, and what it is compiled for.
        group: what it computes.
        stored: the values that must reach memory, in order.

    Attributes:
        scope: the function it belongs to.
        unit: the vector registers of the target.
        options: the user's options.
        group: its steps.
        stored: the values that it writes.
        names: the C names in use.
        scratch: elements of scratch memory, 0 for none.
        scratch_dtype: their dtype; where nothing is said that of what the anchor makes, or of the first stored value.
        can_fail: whether it gives a status, as its body's lines that return one say, in place of nothing.
        parallel_loops: the work of its loops that several threads may do.
        shared: inputs in whose memory an output may lie, and the outputs that may.
    """

    def __init__(self, context: KernelContext, group: Group, stored: Sequence[Var]) -> None:
        self.scope = context.scope
        self.unit = context.unit
        self.options = context.options
        self._strides = context.strides
        self.group = group
        self.stored = tuple(stored)
        self.names = NameTable()
        self.names.reserve(_RESERVED)
        self.names.forbid_prefixes("byoc_", "dim_", "vec_", f"{self.scope.symbol}_")
        self.scratch: Dim = 0
        self.scratch_dtype = dtype_of(group.steps[0].binding.results[0] if group.anchored else self.stored[0])
        self.can_fail = False
        self.shared: frozenset[Value] = frozenset()
        self.name = ""
        self._inputs: dict[Value, str] = {}
        self._outputs: dict[Var, str] = {}
        self._buffers: dict[tuple[Value, bool], Buffer] = {}
        self.names.reserve(["out"])
        self.sizes: list[str] = []
        self.parallel_loops: list[ParallelLoop | ParallelWork] = []
        self._text = _Text((), "", ())
        self._function: Function | None = None
        self._scratch_buffer: Buffer | None = None

    @property
    def scratch_ctype(self) -> str:
        """The C type of the elements of scratch memory."""
        return c_type(self.scratch_dtype)

    @property
    def inputs(self) -> tuple[Value, ...]:
        """The values that it reads, in the order of its parameters."""
        return tuple(self._inputs)

    def input(self, value: Value, role: str = "x") -> str:
        """Gives the C name of the pointer to a value that the kernel reads; a constant is named after its role."""
        if value not in self._inputs:
            self._inputs[value] = self.names.unique(value.name if isinstance(value, Var) else role)
        return self._inputs[value]

    def output(self, value: Var) -> str:
        """Gives the C name of the pointer to a value that the kernel writes."""
        if value not in self._outputs:
            self._outputs[value] = "out" if len(self.stored) == 1 else self.names.unique(f"out_{value.name}")
        return self._outputs[value]

    def source(self, value: Value, role: str = "x") -> Buffer:
        """Return the buffer of a value that the kernel reads; that of a constant is named after its role."""
        name = self.input(value, role)
        return self._buffers.setdefault((value, False), Buffer(name, dtype_of(value), MemoryAccess.READ))

    def target(self, value: Var) -> Buffer:
        """Return the buffer of a value that the kernel writes."""
        access = MemoryAccess.SHARED if value in self.shared else MemoryAccess.WRITE
        return self._buffers.setdefault((value, True), Buffer(self.output(value), dtype_of(value), access))

    def scratch_memory(self, count: Dim, dtype: str) -> Buffer:
        """Return the buffer of the kernel's scratch memory; asked for once.

        Args:
            count: elements; none becomes one, so that there is a pointer.
            dtype: their dtype.
        """
        self.scratch, self.scratch_dtype = (1 if count == 0 else count), dtype
        self._scratch_buffer = Buffer("scratch", dtype, MemoryAccess.WRITE)
        return self._scratch_buffer

    def shared_function(self, function: Function) -> Callee:
        """Return a C function that all kernels of the source share; equal functions are written once.

        Args:
            function: the function; its name is a hint, behind ``byoc_shared_``.
        """
        text = print_function(replace(function, name="{name}"))
        name = self.scope.definitions.reserve(function.name, text)
        buffers = [isinstance(item, Buffer) and item.is_writable for item in function.parameters]
        writes = tuple(number for number, is_written in enumerate(buffers) if is_written)
        return Callee(name, writes=writes, definition=text, function=function)

    def shared_name(self, function: Function) -> str:
        """Return the name of a C function that all kernels of the source share, for a body that is text."""
        callee = self.shared_function(function)
        self._share(Function("", (), (Evaluate(Call(callee, ())),)))
        return callee.name

    def _share(self, function: Function) -> None:
        """Add what a function needs to the source, once: vector types, and the C functions that it calls."""
        for line in vector_typedefs([function]):
            self.scope.definitions.add(line)
        for callee in called_by(function):
            if callee.function is not None:
                self._share(callee.function)
            if callee.header:
                self.scope.definitions.add(f'#include "{callee.header}"')
            if callee.definition:
                self.scope.definitions.add(callee.definition.replace("{name}", callee.name).strip())

    def strides(self, value: Value) -> tuple[Dim, ...]:
        """Gives the distances, in elements, from one position to the next along each axis of a value."""
        found = self._strides.get(value)
        return compact_strides(shape_of(value)) if found is None else found

    def part(self, group: Group, buffer: tuple[str, tuple[Dim, ...]] | None = None) -> Kernel:
        """Gives a kernel for a part of this one's steps, which has its names and its pointers and is not finished.

        Args:
            group: the steps.
            buffer: the C name of a pointer to where their last result goes, and its strides there; without one they
                write what this kernel writes.
        """
        result = group.steps[-1].result
        strides = self._strides if buffer is None else {**self._strides, result: buffer[1]}
        context = KernelContext(self.scope, self.unit, self.options, strides)
        part = Kernel(context, group, self.stored if buffer is None else [result])
        part.names, part._inputs = self.names, self._inputs
        part._outputs = self._outputs if buffer is None else {result: buffer[0]}
        return part

    def literal(self, value: Value) -> str | None:
        """Gives a constant of one element as a C literal; ``None`` for anything else."""
        found = self.constant(value)
        return None if found is None else c_literal(found.value, found.type.dtype)

    def constant(self, value: Value) -> Literal | None:
        """Return a constant of one element; ``None`` for anything else."""
        if not isinstance(value, Constant) or any(dim != 1 for dim in shape_of(value)):
            return None
        array = self.scope.constants.array(value, self.scope.where)
        return Literal(array.reshape(-1)[0], CType(dtype_of(value)))

    def ctype(self, value: Value) -> str:
        """Gives the C type of a value's elements."""
        return c_type(tensor_type(value, self.scope.where)[1])

    def helper(self, hint: str, text: str) -> str:
        """Gives the name of a C definition that all kernels of the source share; equal text is written once.

        Args:
            hint: what it is called; the name begins with ``byoc_shared_``.
            text: the definition; ``{name}`` in it is its name.
        """
        return self.scope.definitions.name(hint, text)

    def _is_idle(self, body: Sequence[str | ParallelLoop]) -> bool:
        """Tells whether a body does nothing but check its inputs: empty axes are known to leave its loops no rounds."""
        loops = [part for part in body if isinstance(part, ParallelLoop)]
        if not loops or any(loop.count != 0 or "byoc_shared_" in "".join(loop.lines) for loop in loops):
            return False
        return self.can_fail or len(loops) == len(body)

    def finish(self, body: Sequence[str | ParallelLoop], helpers: str = "", *, variables: Sequence[str] = ()) -> None:
        """Ends the writing of the kernel.

        Args:
            body: its lines, indented; a loop stands for lines of its own.
            helpers: C definitions that stand before it; ``{name}`` in them is the kernel's name.
            variables: C declarations of variables of the body that its loops read.
        """
        if self._is_idle(body):
            body, helpers = [part for part in body if isinstance(part, str)], ""
        self._text = _Text(tuple(body), helpers, tuple(variables))
        self.parallel_loops = [
            part for part in body if isinstance(part, ParallelLoop) and (part.is_worth_waking or part.is_worth_sharing)
        ]

    def print_block(self, block: Block) -> tuple[list[str], Names]:
        """Return the lines of statements in a body that is text, and the names of the variables that they declare."""
        names = _TextNames(self.names)
        return BlockPrinter(C11_VECTORS, names).lines(block), names

    def finish_block(self, block: Block) -> None:
        """End the writing of the kernel.

        Args:
            block: its statements, over the buffers of :meth:`source` and :meth:`target`.
        """
        buffers = [self._buffers.get((value, False)) or self.source(value) for value in self._inputs]
        buffers += [self.target(value) for value in self.stored]
        buffers += [self._scratch_buffer] if self._scratch_buffer is not None else []
        self.can_fail = any(isinstance(statement, Fail) for statement in statements_in(block))
        result = _STATUS if self.can_fail else None
        ends: Block = (Return(Literal(0, _STATUS)),) if self.can_fail else ()
        self._function = simplify(Function("", tuple(buffers), (*block, *ends), result))
        works = parallel_works(self._function)
        self.parallel_loops = [work for work in works if work.is_worth_waking or work.is_worth_sharing]

    def declare(self, *, has_team: bool) -> None:
        """Declares the kernel, which is finished.

        Args:
            has_team: whether the function that it belongs to keeps its threads awake.
        """
        origins = dict.fromkeys(step.origin or step.binding for step in self.group.steps)
        ops = [origin.op.name for origin in origins]
        comments = [*map(_describe, origins), f"/* {', '.join(ops)} */"]
        hint = "_".join(op.rpartition(".")[2] for op in ops[:_NAMED_OPS])
        if self._function is None:
            loops = [loop for loop in self._text.body if isinstance(loop, ParallelLoop)]
            shared = tuple(item for item in loops if item.is_worth_waking or (has_team and item.is_worth_sharing))
            facts = KernelFacts(tuple(origins), loops=shared)
            self.name = self.scope.declare_kernel(self._definition(comments, has_team=has_team), hint, facts)
            return
        function = replace(self._function, name=self.scope.kernel_name(hint), comments=tuple(comments))
        function = outline(function, has_team=has_team)
        self.sizes = [f"dim_{c_identifier(symbol)}" for symbol in sorted(symbols_in(function.body))]
        self._share(function)
        facts = KernelFacts(tuple(origins), function)
        self.name = self.scope.declare_kernel(print_function(function), hint, facts)

    def _definition(self, comments: Sequence[str], *, has_team: bool) -> str:
        """Return the text of a kernel whose body is text."""
        body, helpers, variables = self._text
        pointers = [f"const {self.ctype(value)} *{name}" for value, name in self._inputs.items()]
        pointers += [
            f"{self.ctype(value)} *{'' if value in self.shared else 'restrict '}{self.output(value)}"
            for value in self.stored
        ]
        if self.scratch != 0:
            pointers.append(f"{self.scratch_ctype} *restrict scratch")
        texts = [text for part in body for text in ([part] if isinstance(part, str) else part.serial_lines())]
        sizes = [f"int64_t {name}" for name in self.scope.symbols_in("\n".join(texts))]
        lines: list[str] = []
        for part in body:
            if isinstance(part, str):
                lines.append(part)
            elif part.is_worth_waking or (has_team and part.is_worth_sharing):
                definitions, calls = part.functions(f"{{name}}_loop{len(lines)}", [*pointers, *variables, *sizes])
                helpers += definitions
                lines += calls
            else:
                lines += part.serial_lines()
        words = set(re.findall(r"\w+", "\n".join(lines)))
        names = (text.split()[-1].lstrip("*") for text in pointers)
        lines = [*(f"  (void){name};" for name in names if name not in words), *lines]
        self.sizes = self.scope.symbols_in("\n".join(lines))
        parameters = [*pointers, *(f"int64_t {name}" for name in self.sizes)]
        status, end = ("int32_t", ["  return 0;", "}"]) if self.can_fail else ("void", ["}"])
        head = f"static {status} {{name}}({', '.join(parameters)}) {{"
        return "\n".join([f"{helpers}{comments[0]}", *comments[1:], head, *lines, *end])


def _describe(binding: Binding) -> str:
    """Gives a comment of one line that says what an op computes, and which node of a model it was."""
    operands = ", ".join(operand.name if isinstance(operand, Var) else "constant" for operand in binding.operands)
    results = ", ".join(f"{result.name}: {result.type}" for result in binding.results)
    place = f" [{binding.location}]" if binding.location else ""
    text = f"{results} = {binding.op.name}({operands}){place}"
    # Names are the model's: none may end the comment, or carry it on to the next line.
    return "// " + re.sub(r"[^\w .,:;=(){}\[\]\"'*+-]", "_", text, flags=re.ASCII)
