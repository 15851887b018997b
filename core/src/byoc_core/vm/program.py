"""Programs of the virtual machine, as frozen data.

A function's registers are numbered in six groups, one after the other:

=========  =======  ==============================================================================================
group      listing  content of a register
=========  =======  ==============================================================================================
params     ``p0``   an argument of the call; read-only
results    ``o0``   the buffer of a result: the caller's, or a fresh one
constants  ``c0``   a constant of the program; read-only
tensors    ``t0``   an intermediate at a planned place in the frame's arena
dynamics   ``v0``   a tensor of a size only known while the function runs, or a tensor returned by an extern
views      ``w0``   part or all of a register of the first four groups, in another shape: memory of that register
=========  =======  ==============================================================================================

The arena of a frame holds the function's storages one after the other, each aligned to :data:`ALIGNMENT` bytes.

Memory belongs to domains, counted from 1 in the order of :attr:`Program.domains`; :data:`HOST` is the memory of numpy
arrays. Each register lies in a single domain, params and results in the host's. A storage holds tensors of a single
domain, so each domain has an arena of its own: one for each pool of the domain, if pools are stated
(:class:`~byoc_core.runtime.memory.Pool`). Only copies take registers of different domains. Each device of a
program has a domain of its own: several devices with one kind of memory are several domains of equal
:class:`~byoc_core.runtime.module.MemoryDomain`, told apart by the numbers in :attr:`Program.device_numbers`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum

from byoc_core.dims import Dim, bound_symbols, exact_div, product
from byoc_core.dtypes import dtype_info
from byoc_core.opset.layout import Layout, is_compact, row_major
from byoc_core.runtime.memory import MemoryDomain, Pool
from byoc_core.runtime.module import TensorSpec
from byoc_core.vm.instructions import Call, CallKind, Instruction

__all__ = [
    "ALIGNMENT",
    "HOST",
    "HOST_NAME",
    "ConstantRef",
    "DynamicTensor",
    "PlannedTensor",
    "Program",
    "Register",
    "RegisterKind",
    "StateSlot",
    "VMFunction",
    "View",
    "copies_directly",
    "nbytes_of",
]

ALIGNMENT = 64
"""The alignment in bytes of storages, and of the offsets of tensors inside storages.

Repeated in ``csrc/frame.c``. The verifier refuses other offsets; a larger value refuses programs of stored artifacts.
"""

HOST = 0
"""The number of the host's memory among the domains of a program."""

HOST_NAME = "host"
"""The name of the host's memory; no device has memory of this name."""


@dataclass(frozen=True, slots=True)
class ConstantRef:
    """A constant held by the executable, by digest."""

    digest: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PlannedTensor:
    """An intermediate at a fixed place: ``offset`` bytes into storage ``storage``."""

    storage: int
    offset: int
    dtype: str
    shape: tuple[Dim, ...]


@dataclass(frozen=True, slots=True)
class DynamicTensor:
    """A tensor defined by the running function.

    Attributes:
        binds: the symbols of the shape whose sizes are learnt from the definition of the register.
    """

    dtype: str
    shape: tuple[Dim, ...]
    binds: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class View:
    """Elements of another register as a tensor; writes through the view change the other register.

    Attributes:
        base: the number of the register owning the memory: a param, result, constant or planned tensor.
        offset: bytes from the base's first element to the view's.
        dtype: the dtype of the base.
        shape: the sizes of the view.
        strides: elements from an index of an axis to the next; ``None``: the strides of a C-contiguous tensor.
    """

    base: int
    offset: Dim
    dtype: str
    shape: tuple[Dim, ...]
    strides: tuple[Dim, ...] | None = None

    @property
    def layout(self) -> Layout:
        """The layout of the view's elements in the base; requires an offset of a whole number of elements."""
        offset = exact_div(self.offset, dtype_info(self.dtype).itemsize)
        assert offset is not None
        return Layout(offset, self.shape, row_major(self.shape) if self.strides is None else self.strides)

    @property
    def is_compact(self) -> bool:
        """Whether the view is provably C-contiguous."""
        return self.strides is None or is_compact(self.shape, self.strides)


@dataclass(frozen=True, slots=True)
class StateSlot:
    """A param and a result in one buffer: the value before and after a call; see :mod:`byoc_core.vm.state_laws`.

    Both begin at the first byte of the buffer. The machine, or a caller, keeps the buffer from call to call.

    Attributes:
        param: the index of the param with the value before the call.
        result: the index of the result with the value after the call.
        initial: the program's number of the constant before the first call; ``None`` for zeros.
        axis: the axis of a moving length: the result may have more rows than the param, and the first call gets no
            rows. ``None``: param and result have the same shape.
    """

    param: int
    result: int
    initial: int | None = None
    axis: int | None = None


class RegisterKind(Enum):
    """The groups of registers; the value is the prefix in listings."""

    PARAM = "p"
    RESULT = "o"
    CONSTANT = "c"
    TENSOR = "t"
    DYNAMIC = "v"
    VIEW = "w"


@dataclass(frozen=True, slots=True)
class Register:
    """A register: its group, the position in the group, dtype and shape."""

    kind: RegisterKind
    index: int
    dtype: str
    shape: tuple[Dim, ...]

    def __str__(self) -> str:
        return f"{self.kind.value}{self.index}"


@dataclass(frozen=True, slots=True)
class VMFunction:
    """A function of the machine.

    Attributes:
        name: the name used by callers.
        params: inputs; their shapes bind the function's symbols.
        results: outputs. A result of a size determined by the inputs is written into its result register; any other is
            a dynamic register named by ``ret``.
        constants: indexes into the program's constants.
        storages: sizes in bytes.
        tensors: planned intermediates.
        dynamics: tensors defined while the function runs.
        code: the instructions; the first is the entry.
        views: registers naming memory of other registers.
        states: params and results in one buffer.
        domains: the domain of each register owning memory, by register number; empty if all memory is the host's.
        storage_pools: for each storage, the index of its pool among the pools of the domain; empty if all are 0, as for
            domains without stated pools.
    """

    name: str
    params: tuple[TensorSpec, ...]
    results: tuple[TensorSpec, ...]
    constants: tuple[int, ...]
    storages: tuple[Dim, ...]
    tensors: tuple[PlannedTensor, ...]
    dynamics: tuple[DynamicTensor, ...]
    code: tuple[Instruction, ...]
    views: tuple[View, ...] = ()
    states: tuple[StateSlot, ...] = ()
    domains: tuple[int, ...] = ()
    storage_pools: tuple[int, ...] = ()

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """The params passed by every call: all but the params of states."""
        state_params = {state.param for state in self.states}
        return tuple(spec for index, spec in enumerate(self.params) if index not in state_params)

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """The results returned by every call: all but the results of states."""
        state_results = {state.result for state in self.states}
        return tuple(spec for index, spec in enumerate(self.results) if index not in state_results)

    @property
    def first_view(self) -> int:
        """The number of the first view; all earlier registers own memory."""
        groups: tuple[Sequence[object], ...] = (
            self.params,
            self.results,
            self.constants,
            self.tensors,
            self.dynamics,
        )
        return sum(map(len, groups))

    @property
    def num_registers(self) -> int:
        """The number of registers in all groups."""
        return self.first_view + len(self.views)

    @property
    def is_plain(self) -> bool:
        """Whether no two registers share memory, and no call writes a register also read by the call."""
        return not (self.views or self.states) and not any(
            isinstance(instruction, Call)
            and instruction.kind is CallKind.EXTERN
            and not set(instruction.args).isdisjoint(instruction.results)
            for instruction in self.code
        )

    def domain_of(self, register: int) -> int:
        """Return the domain of a register's memory."""
        if not self.domains:
            return HOST
        owner = self.views[register - self.first_view].base if register >= self.first_view else register
        return self.domains[owner]

    @property
    def first_tensor(self) -> int:
        """The number of the first planned tensor."""
        return len(self.params) + len(self.results) + len(self.constants)

    @property
    def storage_domains(self) -> tuple[int, ...]:
        """The domain of each storage; the host's for a storage without tensors."""
        found = [HOST] * len(self.storages)
        if self.domains:
            for number, tensor in enumerate(self.tensors, start=self.first_tensor):
                found[tensor.storage] = self.domains[number]
        return tuple(found)

    def pool_of(self, storage: int) -> int:
        """Return the index of a storage's pool among the pools of its domain."""
        return self.storage_pools[storage] if self.storage_pools else 0

    def nbytes_in(self, domain: int) -> Dim:
        """Return the bytes of a domain's storages, needed by a running call for planned memory of the domain."""
        if not self.domains:
            return sum(self.storages, 0) if domain == HOST else 0
        pairs = zip(self.storages, self.storage_domains, strict=True)
        return sum((nbytes for nbytes, found in pairs if found == domain), 0)

    @property
    def arena_nbytes(self) -> Dim:
        """The bytes of the host's storages, needed by a running call for planned memory: intermediates, workspaces."""
        return self.nbytes_in(HOST)

    @property
    def input_symbols(self) -> frozenset[str]:
        """The symbols determined by the shapes of the inputs."""
        return bound_symbols([param.shape for param in self.params])


@dataclass(frozen=True, slots=True)
class Program:
    """Functions with the cited external symbols and constants.

    Attributes:
        domains: the domains besides the host's memory.
        extern_domains: the domain of each external symbol's tensors; empty if all are the host's.
        device_numbers: the number of each domain's device among the program's devices of this memory; empty if all are
            0. A machine chooses a device of the runtime for each.
        is_verified: whether :func:`~byoc_core.vm.verify.verify` has found this program lawful.
    """

    functions: tuple[VMFunction, ...]
    externs: tuple[str, ...] = ()
    constants: tuple[ConstantRef, ...] = ()
    domains: tuple[MemoryDomain, ...] = ()
    extern_domains: tuple[int, ...] = ()
    device_numbers: tuple[int, ...] = ()
    is_verified: bool = field(default=False, init=False, repr=False, compare=False)
    _domain_names: tuple[str, ...] | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def function_names(self) -> tuple[str, ...]:
        """The names of all functions, in order."""
        return tuple(function.name for function in self.functions)

    def domain_of(self, extern: int) -> int:
        """Return the domain of an external symbol's tensors."""
        return self.extern_domains[extern] if self.extern_domains else HOST

    def is_visible(self, domain: int) -> bool:
        """Return whether the host reads and writes the memory of a domain in place."""
        return domain == HOST or self.domains[domain - 1].host_accessible

    def device_number(self, domain: int) -> int:
        """Return the number of a domain's device among the program's devices of the same memory."""
        return self.device_numbers[domain - 1] if self.device_numbers else 0

    def copies_directly(self, source: int, target: int) -> bool:
        """Return whether a copy needs no way over the host's memory: see :func:`copies_directly`."""
        domains = (None, *self.domains)
        return source == target or copies_directly(domains[source], domains[target])

    def pool(self, domain: int, index: int) -> Pool | None:
        """Return a pool of a domain; ``None`` for memory without stated pools."""
        pools = () if domain == HOST else self.domains[domain - 1].pools
        return pools[index] if pools else None

    def alignment_in(self, domain: int, pool: int) -> int:
        """Return the alignment of storages in a pool of a domain."""
        if domain == HOST:
            return ALIGNMENT
        found = self.pool(domain, pool)
        return max(ALIGNMENT, self.domains[domain - 1].alignment, 1 if found is None else found.alignment)

    def domain_name(self, domain: int) -> str:
        """Return the name of a domain: ``host``, or the name of the memory with the device's number, such as ``npu:1``.

        The number is left out if the program has a single device of this memory, and the number is 0.
        """
        if domain == HOST:
            return HOST_NAME
        return self.domain_names[domain - 1]

    @property
    def domain_names(self) -> tuple[str, ...]:
        """The names of the domains besides the host's memory, in order; made once."""
        if self._domain_names is None:
            num_devices = Counter(domain.name for domain in self.domains)
            pairs = [(domain.name, self.device_number(index)) for index, domain in enumerate(self.domains, start=1)]
            names = (name if num_devices[name] == 1 and not number else f"{name}:{number}" for name, number in pairs)
            object.__setattr__(self, "_domain_names", tuple(names))
        assert self._domain_names is not None
        return self._domain_names

    def registers(self, function: VMFunction) -> tuple[Register, ...]:
        """Return the registers of a function, by register number."""
        constants = [self.constants[index] for index in function.constants]
        groups: tuple[
            tuple[RegisterKind, Iterable[TensorSpec | ConstantRef | PlannedTensor | DynamicTensor | View]], ...
        ] = (
            (RegisterKind.PARAM, function.params),
            (RegisterKind.RESULT, function.results),
            (RegisterKind.CONSTANT, constants),
            (RegisterKind.TENSOR, function.tensors),
            (RegisterKind.DYNAMIC, function.dynamics),
            (RegisterKind.VIEW, function.views),
        )
        return tuple(
            Register(kind, index, item.dtype, item.shape) for kind, items in groups for index, item in enumerate(items)
        )


def copies_directly(source: MemoryDomain | None, target: MemoryDomain | None) -> bool:
    """Return whether a copy between two domains needs no way over the host's memory; ``None`` is the host's memory.

    The host reads and writes host-accessible memory; devices of one memory may copy to each other.
    """
    if source is None or target is None or source.host_accessible or target.host_accessible:
        return True
    return source == target and source.peer_copies


def nbytes_of(shape: Iterable[Dim], dtype: str) -> Dim:
    """Return the bytes of a contiguous tensor."""
    return product(shape) * dtype_info(dtype).itemsize
