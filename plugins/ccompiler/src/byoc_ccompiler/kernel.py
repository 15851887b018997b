"""A C kernel under construction: buffers, scratch memory, statements.

A writer takes buffers from :meth:`Kernel.source` and :meth:`Kernel.target`, and ends with :meth:`Kernel.finish_block`,
once. Only :meth:`Kernel.declare` gives the kernel a name. The C parameters are the inputs in the order of first use,
the stored values, the scratch memory and the symbolic sizes; :mod:`byoc_ccompiler.codegen` calls the kernel in this
order.
"""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from byoc_core.authoring.c import (
    C11_KERNELS,
    Alias,
    Block,
    Buffer,
    Call,
    Callee,
    CType,
    Evaluate,
    Expression,
    Fail,
    Function,
    KnownCalls,
    Literal,
    MemoryAccess,
    Nest,
    ParallelWork,
    Return,
    Schedule,
    Size,
    Uses,
    anonymous_text,
    lower_nest,
    name_sizes,
    outline,
    parallel_works,
    print_function,
    print_prototype,
    simplify,
    statements_in,
    uses_of,
    vector_typedefs,
)
from byoc_core.authoring.csource import (
    FunctionScope,
    KernelFacts,
    c_symbol,
)
from byoc_core.authoring.layouts import compact_layout
from byoc_core.dims import Dim
from byoc_core.ir import Binding, Constant, Value, Var

from byoc_ccompiler.kernels.panel_order import PanelOrder
from byoc_ccompiler.options import CCompilerOptions
from byoc_ccompiler.portable import PORTABLE, has_large_arrays, move_arrays, plain_function
from byoc_ccompiler.steps import Step, dtype_of, shape_of
from byoc_ccompiler.vector_unit import VectorUnit

__all__ = ["Group", "Kernel", "KernelContext", "compact_strides"]


def compact_strides(shape: Sequence[Dim]) -> tuple[Dim, ...]:
    """Return the strides, in elements, of a row-major tensor."""
    return compact_layout(shape).strides


@dataclass(eq=False, slots=True)
class Group:
    """The steps of a kernel, in order; the first is the anchor, if any.

    Attributes:
        space: the shape of the iteration space, ``None`` for a kernel joined by nothing.
        anchored: whether the first step is computed by a family with an epilogue.
        results: the results of the steps.
        reads: the operands of the steps.
        reduced: the axes of the space reduced by the group's reductions; ``None`` without reductions.
        row_axes: the axes of the space along the axes of a result, for results with a single element per many elements
            of the reduced axes.
        chain: the groups combined into this group, each computing on the results of the group before; otherwise empty.
        loads: earlier steps, by their results, with elements computed at their uses in the group's steps.
    """

    steps: list[Step]
    space: tuple[Dim, ...] | None
    anchored: bool = False
    results: set[Value] = field(default_factory=set)
    reads: set[Value] = field(default_factory=set)
    reduced: frozenset[int] | None = None
    row_axes: dict[Value, tuple[int, ...]] = field(default_factory=dict)
    chain: tuple[Group, ...] = ()
    loads: dict[Value, Step] = field(default_factory=dict)

    @property
    def all_steps(self) -> tuple[Step, ...]:
        """The loads and the steps."""
        return (*self.loads.values(), *self.steps)


@dataclass(frozen=True, slots=True)
class KernelContext:
    """The state shared by all kernels of a function.

    Attributes:
        scope: the function under construction.
        unit: the vector registers of the target.
        options: the user's options.
        strides: the strides of values not row-major without gaps, in elements.
        callees: the C functions shared by kernels, by their identity, because printing is slow.
        uses: the uses of these functions, beside the functions to keep them alive.
        calls: the estimated work of these functions, beside the functions likewise.
        plain_functions: the forms for any C compiler of these functions, beside the functions likewise.
        offered: the names of schedules open to choice, by the name of the op's result; ``None`` if nobody asks.
        prepackable: swappable weights read by a single product, possibly in the order of panels.
        panel_orders: receives the order in which a kernel reads such a weight.
    """

    scope: FunctionScope
    unit: VectorUnit
    options: CCompilerOptions
    strides: Mapping[Value, tuple[Dim, ...]]
    callees: dict[int, Callee] = field(default_factory=dict)
    uses: dict[int, tuple[Function, Uses]] = field(default_factory=dict)
    calls: KnownCalls = field(default_factory=dict)
    plain_functions: dict[int, tuple[Function, Function]] = field(default_factory=dict)
    offered: dict[str, tuple[str, ...]] | None = None
    prepackable: frozenset[Value] = frozenset()
    panel_orders: dict[Value, PanelOrder] = field(default_factory=dict)

    def plain(self, function: Function) -> Function:
        """Return the form for any C compiler of a C function shared by kernels, computed once."""
        if id(function) not in self.plain_functions:
            self.plain_functions[id(function)] = function, plain_function(function)
        return self.plain_functions[id(function)][1]

    def uses_of(self, function: Function) -> Uses:
        """Return the uses of a C function shared by kernels, computed once."""
        if id(function) not in self.uses:
            self.uses[id(function)] = function, uses_of(function)
        return self.uses[id(function)][1]


_STATUS = CType("int32")

_NAMED_OPS = 4
"""Maximum number of ops mentioned in a kernel's name."""

_HARMLESS = frozenset(string.ascii_letters + string.digits + "_ .,:;=(){}[]\"'*+-")
"""The characters allowed in a comment."""


class Kernel:
    """A kernel under construction, collecting inputs and outputs while the body is written.

    Args:
        context: the function of the kernel, and the target.
        group: the steps to compute.
        stored: the values required in memory, in order.

    Attributes:
        context: the context given at construction.
        scope: the function of the kernel.
        unit: the vector registers of the target.
        options: the user's options.
        group: the steps of the kernel.
        stored: the values written by the kernel.
        scratch: elements of scratch memory, 0 for none.
        scratch_dtype: the dtype of the scratch memory; by default the dtype of the anchor's result, or of the first
            stored value.
        can_fail: whether the kernel returns a status in place of nothing, because statements of the body do.
        parallel_loops: the work of the loops open to several threads.
        checks: statements failing for an index of a load outside its axis; placed before all others.
        schedule: a dataclass of the choices made in the computation, printed by reports; ``None`` without choices.
        shared: inputs with memory possibly shared by an output, and the possible outputs.
    """

    def __init__(self, context: KernelContext, group: Group, stored: Sequence[Var]) -> None:
        self.context = context
        self.scope = context.scope
        self.unit = context.unit
        self.options = context.options
        self._strides = context.strides
        self.group = group
        self.stored = tuple(stored)
        self.scratch: Dim = 0
        self.scratch_dtype = dtype_of(group.steps[0].binding.results[0] if group.anchored else self.stored[0])
        self.can_fail = False
        self.checks: dict[Step, Block] = {}
        self.shared: frozenset[Value] = frozenset()
        self.schedule: object = None
        self.name = ""
        self._inputs: dict[Value, Buffer] = {}
        self._outputs: dict[Value, Buffer] = {}
        self.sizes: list[str] = []
        self.parallel_loops: list[ParallelWork] = []
        self._function: Function | None = None
        self._scratch_buffer: Buffer | None = None

    @property
    def inputs(self) -> tuple[Value, ...]:
        """The values read by the kernel, in the order of the parameters."""
        return tuple(self._inputs)

    def source(self, value: Value, role: str = "x") -> Buffer:
        """Return the buffer of a value read by the kernel; the buffer of a constant is named after its role."""
        if value not in self._inputs:
            name = value.name if isinstance(value, Var) else role
            self._inputs[value] = Buffer(name, dtype_of(value), MemoryAccess.READ)
        return self._inputs[value]

    def target(self, value: Var) -> Buffer:
        """Return the buffer of a value written by the kernel."""
        if value not in self._outputs:
            name = "out" if len(self.stored) == 1 else f"out_{value.name}"
            access = MemoryAccess.SHARED if value in self.shared else MemoryAccess.WRITE
            self._outputs[value] = Buffer(name, dtype_of(value), access)
        return self._outputs[value]

    def scratch_memory(self, count: Dim, dtype: str) -> Buffer:
        """Return the buffer of the kernel's scratch memory; to be called once.

        Args:
            count: elements; 0 becomes 1 at the end, because a pointer is needed.
            dtype: the dtype of the elements.
        """
        self.scratch, self.scratch_dtype = count, dtype
        self._scratch_buffer = Buffer("scratch", dtype, MemoryAccess.WRITE)
        return self._scratch_buffer

    def in_scratch(self, buffer: Buffer) -> Alias:
        """Return the declaration of a buffer of known size in scratch memory, behind the earlier buffers.

        All of these buffers have the same dtype.
        """
        first, size = self.scratch, buffer.size
        assert size is not None
        memory = self._scratch_buffer or self.scratch_memory(0, buffer.dtype)
        self.scratch = first + size
        return Alias(buffer, memory, Size(first))

    def shared_function(self, function: Function) -> Callee:
        """Return a C function shared by all kernels of the source; equal functions are written once.

        Args:
            function: the function; the name is a hint, behind ``byoc_shared_``.
        """
        function = self.context.plain(function) if self.options.portable else function
        registered = self.context.callees.get(id(function))
        if registered is not None and registered.function is function:
            return registered
        uses = self.context.uses_of(function)
        text = print_function(replace(function, name="{name}"), uses=uses)
        name = self.scope.definitions.reserve(function.name, text)
        buffers = [isinstance(item, Buffer) and item.is_writable for item in function.parameters]
        writes = tuple(number for number, is_written in enumerate(buffers) if is_written)
        callee = Callee(name, writes=writes, definition=text, function=function)
        self.context.callees[id(function)] = callee
        return callee

    def call(self, function: Function, *arguments: Expression) -> Evaluate:
        """Return the call of a C function shared by all kernels of the source."""
        return Evaluate(Call(self.shared_function(function), arguments))

    def _share(self, uses: Uses) -> None:
        """Add the uses of a function to the source, once: vector types, and the called C functions."""
        for line in vector_typedefs(uses.vector_types):
            self.scope.definitions.add(line)
        for callee in uses.callees:
            if callee.function is not None:
                self._share(self.context.uses_of(callee.function))
            if callee.header:
                self.scope.definitions.add(f'#include "{callee.header}"')
            if callee.definition:
                self.scope.definitions.add(callee.definition.replace("{name}", callee.name))

    def strides(self, value: Value) -> tuple[Dim, ...]:
        """Return the strides of a value, in elements."""
        found = self._strides.get(value)
        return compact_strides(shape_of(value)) if found is None else found

    def part(self, group: Group, buffer: Buffer | None = None, strides: Sequence[Dim] = ()) -> Kernel:
        """Return an unfinished kernel for a part of this kernel's steps, with the same buffers.

        Args:
            group: the steps.
            buffer: the buffer of their last result; without a buffer, the part writes the outputs of this kernel.
            strides: the strides of the result in the buffer.
        """
        result = group.steps[-1].result
        known_strides = self._strides if buffer is None else {**self._strides, result: tuple(strides)}
        context = replace(self.context, strides=known_strides)
        part = Kernel(context, group, self.stored if buffer is None else [result])
        part.shared, part._inputs = self.shared, self._inputs
        part._outputs = self._outputs if buffer is None else {result: buffer}
        return part

    def constant(self, value: Value) -> Literal | None:
        """Return a constant of a single element; ``None`` for anything else."""
        if not isinstance(value, Constant) or any(dim != 1 for dim in shape_of(value)):
            return None
        array = self.scope.constants.array(value, self.scope.where)
        return Literal(array.reshape(-1)[0], CType(dtype_of(value)))

    def lower(self, nest: Nest, schedule: Schedule) -> Block:
        """Return the statements of a nest; reports print the first schedule of a kernel."""
        self.schedule = self.schedule or schedule
        return lower_nest(nest, schedule)

    def finish_block(self, block: Block) -> None:
        """Finish the writing of the kernel.

        Args:
            block: the statements, over the buffers of :meth:`source` and :meth:`target`.
        """
        block = (*(check for checks in self.checks.values() for check in checks), *block)
        if self.options.portable:
            block = self._plain(block)
        buffers = [*self._inputs.values(), *(self.target(value) for value in self.stored)]
        if self._scratch_buffer is not None:
            buffers.append(self._scratch_buffer)
            self.scratch = 1 if self.scratch == 0 else self.scratch
        self.can_fail = any(isinstance(statement, Fail) for statement in statements_in(block))
        result = _STATUS if self.can_fail else None
        ends: Block = (Return(Literal(0, _STATUS)),) if self.can_fail else ()
        self._function = simplify(Function("", tuple(buffers), (*block, *ends), result))
        works = parallel_works(self._function, self.context.calls)
        self.parallel_loops = [work for work in works if work.is_worth_waking or work.is_worth_sharing]

    def _plain(self, block: Block) -> Block:
        """Return the statements for any C compiler, with large arrays in scratch memory."""
        block = plain_function(Function("", (), block)).body
        if has_large_arrays(block):
            scratch = self._scratch_buffer or self.scratch_memory(0, "uint8")
            block, self.scratch = move_arrays(block, scratch, self.scratch)
        return block

    @property
    def origins(self) -> tuple[Binding, ...]:
        """The ops computed by the kernel, in order."""
        return tuple(dict.fromkeys(step.origin or step.binding for step in self.group.all_steps))

    def declare(self, *, has_team: bool) -> None:
        """Declare the finished kernel.

        Args:
            has_team: whether the function of the kernel keeps threads awake.
        """
        origins = self.origins
        ops = [origin.op.name for origin in origins]
        described = [_describe(origin) for origin in origins]
        comments = [*described, f"/* {', '.join(ops)} */"]
        hint = "_".join(op.rpartition(".")[2] for op in ops[:_NAMED_OPS])
        assert self._function is not None
        function = replace(self._function, name=self.scope.kernel_name(hint), comments=tuple(comments))
        function = outline(function, has_team=has_team, calls=self.context.calls)
        uses = uses_of(function)
        printed, sizes = name_sizes(function, uses)
        uses = uses_of(printed) if sizes else uses
        symbols = sorted(uses.symbols)
        self.sizes = [self.scope.sizes.variable(sizes[name]) if name in sizes else c_symbol(name) for name in symbols]
        # The layers of a network repeat: C compilers take longest of all, and get a kernel once.
        key = anonymous_text(printed, uses=uses)
        shared_name = self.scope.reuse_kernel(key, origins, described)
        if shared_name is not None:
            self.name = shared_name
            return
        self._share(uses)
        facts = KernelFacts(origins, function, schedule=self.schedule)
        target = PORTABLE if self.options.portable else C11_KERNELS
        text, prototype = print_function(printed, target, uses), print_prototype(printed, target, uses)
        self.name = self.scope.declare_kernel(text, hint, facts, key=key, prototype=prototype)


def _describe(binding: Binding) -> str:
    """Return a one-line comment with an op's computation and the op's node of the model."""
    operands = ", ".join(operand.name if isinstance(operand, Var) else "constant" for operand in binding.operands)
    results = ", ".join(f"{result.name}: {result.type}" for result in binding.results)
    location = f" [{binding.location}]" if binding.location else ""
    text = f"{results} = {binding.op.name}({operands}){location}"
    # Names come from the model: no name may end the comment, or continue it on the next line.
    return "// " + "".join(letter if letter in _HARMLESS else "_" for letter in text)
