"""Code generation: the ops of a region become kernels, launches, and parts of a planned workspace.

An op and the elementwise ops right behind the op become a nest if nothing else reads the values between. Kernels with
equal statements are printed once, for all regions of a module.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from byoc_core.authoring import c
from byoc_core.authoring.csource import c_identifier
from byoc_core.dims import Dim, product, symbol
from byoc_core.dtypes import dtype_info
from byoc_core.ir import Binding, Function, Value, Var
from byoc_core.runtime.module import Signature, TensorSpec
from byoc_core.runtime.symbolic_storage import SymbolicInterval, plan_block

from byoc_opencl.kernels import FAMILIES
from byoc_opencl.kernels.elementwise import ELEMENTWISE_OPS
from byoc_opencl.kernels.family import dtype_of, shape_of
from byoc_opencl.kernels.step import KernelSizes, Step, Tensor, Work, for_each, lowered
from byoc_opencl.program import DOMAIN, DeviceFunction, DeviceProgram, Launch, Part
from byoc_opencl.source import HEADER
from byoc_opencl.support import is_view

__all__ = ["generate"]

_MOST_NAMES = 8
"""Ops named by the name of a kernel; a group may have hundreds."""


def generate(functions: Sequence[Function]) -> DeviceProgram:
    """Return the program of functions of supported ops."""
    pool = _KernelPool()
    compiled = tuple(_FunctionWriter(function, pool).compile() for function in functions)
    return DeviceProgram(pool.source(), compiled)


class _KernelPool:
    """The kernels of a source, each with different statements."""

    def __init__(self) -> None:
        self._kernels: dict[str, c.Function] = {}
        self._num_named: Counter[str] = Counter()

    def add(self, kernel: c.Function, hint: str) -> str:
        """Return the name of a kernel with these statements."""
        placed = c.verify(_with_offsets(kernel))
        text = c.anonymous_text(placed, c.OPENCL)
        if text not in self._kernels:
            self._num_named[hint] += 1
            self._kernels[text] = replace(placed, name=f"{hint}_{self._num_named[hint]}")
        return self._kernels[text].name

    def source(self) -> str:
        """Return the source of all kernels."""
        return HEADER + c.print_definitions(self._kernels.values(), c.OPENCL)


def _with_offsets(kernel: c.Function) -> c.Function:
    """Return a kernel with an offset in elements behind each buffer: a driver passes whole buffers only."""
    parameters: list[c.Buffer | c.Variable] = []
    aliases: c.Block = ()
    for item in kernel.parameters:
        assert isinstance(item, c.Buffer)  # nests have no other parameters
        memory, offset = replace(item, name=f"{item.name}_memory", size=None), c.Variable(f"{item.name}_offset")
        parameters += [memory, offset]
        aliases += (c.Alias(item, memory, offset),)
    return replace(kernel, parameters=tuple(parameters), body=(*aliases, *kernel.body))


@dataclass(slots=True)
class _Memory:
    """A part of the workspace: the elements, and the first and last group of ops using the part."""

    dtype: str
    nbytes: Dim
    start: int
    end: int


class _FunctionWriter:
    """The writer of the launches of a function.

    Args:
        function: the function.
        pool: the kernels of the source.
    """

    def __init__(self, function: Function, pool: _KernelPool) -> None:
        self._function = function
        self._pool = pool
        self._launches: list[Launch] = []
        self._parts: list[_Memory] = []
        self._num_tensors = len(function.params) + len(function.results)
        self._memory: dict[Value, int] = {value: number for number, value in enumerate(function.params)}
        self._time = 0

    def compile(self) -> DeviceFunction:
        """Return the compiled function."""
        function = self._function
        for number, value in reversed(list(enumerate(function.results, len(function.params)))):
            if self._is_computed(value):
                self._memory[value] = number
        for bindings in _groups(function):
            if is_view(bindings[0]):
                self._memory[bindings[0].result] = self._memory[bindings[0].operands[0]]
                continue
            self._write(bindings)
            self._time += 1
        for number, value in enumerate(function.results, len(function.params)):
            if self._memory[value] != number:
                self._write_copy(value, number)
        intervals = [SymbolicInterval(part.nbytes, part.start, part.end) for part in self._parts]
        block = plan_block(intervals, DOMAIN.alignment)
        parts = (Part(part.dtype, offset, part.nbytes) for part, offset in zip(self._parts, block.offsets, strict=True))
        symbol = str(function.attrs.get("global_symbol", function.name))
        return DeviceFunction(symbol, _signature(function), tuple(parts), block.nbytes, tuple(self._launches))

    def _is_computed(self, value: Value) -> bool:
        """Return whether a value is computed, and no parameter or view."""
        return any(value in binding.results and not is_view(binding) for binding in self._function.bindings)

    def _new_part(self, dtype: str, dims: Sequence[Dim]) -> int:
        nbytes = product(dims) * dtype_info(dtype).itemsize
        self._parts.append(_Memory(dtype, nbytes, self._time, self._time))
        return self._num_tensors + len(self._parts) - 1

    def _write(self, bindings: Sequence[Binding]) -> None:
        """Write the kernels of a group of ops."""
        sizes, numbers, tensors = KernelSizes(), dict[c.Buffer, int](), dict[Value, Tensor]()
        work: Work | None = None
        for position, binding in enumerate(bindings):
            for value in binding.operands:
                if value not in tensors:
                    tensors[value] = self._tensor(value, c.MemoryAccess.READ, sizes)
                    numbers[tensors[value].buffer] = self._memory[value]
            for value in binding.results:
                tensors[value] = self._tensor(value, c.MemoryAccess.WRITE, sizes)
                if binding is bindings[-1]:
                    numbers[tensors[value].buffer] = self._memory_for(value)
            operands, results = (
                tuple(tensors[value] for value in values) for values in (binding.operands, binding.results)
            )
            step = Step(binding, operands, results, sizes)
            written = FAMILIES[binding.op.name].write(step)
            numbers.update((item.buffer, self._new_part(item.buffer.dtype, item.dims)) for item in step.scratch)
            if work is not None:
                assert isinstance(work, c.Nest)  # groups are of nests
                assert isinstance(written, c.Nest)
                written = c.fuse_into_store(work, written, tensors[bindings[position - 1].result].buffer)
            work = written
        assert work is not None  # a group has an op
        names = [c_identifier(binding.op.name) for binding in bindings]
        hint = names if len(names) <= _MOST_NAMES else [*names[:_MOST_NAMES], "and", str(len(names) - _MOST_NAMES)]
        self._launch("_".join(hint), work, numbers, sizes)

    def _write_copy(self, value: Value, number: int) -> None:
        """Write the copy of a value to an output."""
        sizes = KernelSizes()
        source, target = (self._tensor(value, access, sizes) for access in (c.MemoryAccess.READ, c.MemoryAccess.WRITE))
        numbers = {source.buffer: self._memory[value], target.buffer: number}
        self._launch("copy", for_each(target, lambda indices: source[indices]), numbers, sizes)
        self._time += 1

    def _tensor(self, value: Value, access: c.MemoryAccess, sizes: KernelSizes) -> Tensor:
        dims = shape_of(value)
        shape = tuple(map(sizes, dims))
        name = value.name if isinstance(value, Var) else "constant"
        return Tensor(c.Buffer(c_identifier(name), dtype_of(value), access, product(shape)), dims, shape)

    def _memory_for(self, value: Value) -> int:
        """Return the memory for a computed value: an output, or a new part of the workspace."""
        if value not in self._memory:
            self._memory[value] = self._new_part(dtype_of(value), shape_of(value))
        return self._memory[value]

    def _launch(self, hint: str, work: Work, numbers: Mapping[c.Buffer, int], sizes: KernelSizes) -> None:
        """Add the launches of work, and extend the lives of the memory used."""
        unmapped = c.Function("kernel", tuple(numbers), lowered(work))
        for launch in c.map_to_grid(c.simplify(c.hoist(unmapped))).launches:
            kernel = launch.kernel
            memory = tuple(numbers[item] for item in kernel.parameters if isinstance(item, c.Buffer))
            for number in memory:
                if number >= self._num_tensors:
                    self._parts[number - self._num_tensors].end = self._time
            names = sorted(c.symbols_in(kernel.body))
            passed = tuple(sizes.of_region(symbol(name)) for name in names)
            self._launches.append(Launch(self._pool.add(kernel, hint), memory, passed, sizes.of_region(launch.rounds)))


def _groups(function: Function) -> list[list[Binding]]:
    """Return the ops of a function in groups, each a nest, a sequence of launches, or a view."""
    readers = Counter(value for binding in function.bindings for value in binding.operands)
    groups: list[list[Binding]] = []
    for binding in function.bindings:
        if groups and _is_joined(groups[-1][-1], binding, readers, function.results):
            groups[-1].append(binding)
        else:
            groups.append([binding])
    return groups


def _is_joined(before: Binding, binding: Binding, readers: Mapping[Value, int], results: Sequence[Value]) -> bool:
    """Return whether an op is computed in the nest of the op before."""
    if is_view(before) or is_view(binding) or not FAMILIES[before.op.name].is_nest:
        return False
    value = before.result
    return (
        binding.op.name in ELEMENTWISE_OPS
        and readers[value] == binding.operands.count(value)
        and value not in results
        and shape_of(value) == shape_of(binding.result)
    )


def _signature(function: Function) -> Signature:
    def specs(values: Iterable[Value], names: Iterable[str]) -> tuple[TensorSpec, ...]:
        pairs = zip(values, names, strict=True)
        return tuple(TensorSpec(name, dtype_of(value), shape_of(value)) for value, name in pairs)

    return Signature(
        specs(function.params, [param.name for param in function.params]),
        specs(function.results, function.output_names),
    )
