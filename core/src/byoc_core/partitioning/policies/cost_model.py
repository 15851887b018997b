"""The costs of ops and transfers: asked of backends, or guessed from FLOPs and bytes."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace

from byoc_core.backend import BackendHandle, CompileContext, Estimate
from byoc_core.dims import Dim, evaluate, symbols_of
from byoc_core.errors import ByocError, IRTypeError, OptionsError
from byoc_core.ir import Binding, Function, TensorType, Type, Var, tensor
from byoc_core.ir.sizes import cited_symbols
from byoc_core.measurements import Calibration
from byoc_core.partitioning.op_function import as_function
from byoc_core.partitioning.op_sites import members_of
from byoc_core.partitioning.op_structure import OpNumbers
from byoc_core.partitioning.policies.neighbours import ALONE, Neighbours
from byoc_core.pattern import Rejection
from byoc_core.transform.infer_types import retype

__all__ = [
    "BACKEND_MACHINE",
    "HOST_MACHINE",
    "BackendCosts",
    "MachineModel",
    "Sizes",
    "guess_host",
    "to_seconds",
    "to_units",
]

_UNITS_PER_SECOND = 10**15
_MAX_SECONDS = 1e9


def to_units(seconds: float) -> int:
    """Return a time in whole femtoseconds, the unit for adding all costs: such sums do not depend on the order.

    More than 30 years count as 30 years.
    """
    return round(min(seconds, _MAX_SECONDS) * _UNITS_PER_SECOND)


def to_seconds(cost: float) -> float:
    """Return the time of a cost given by :func:`to_units`."""
    return cost / _UNITS_PER_SECOND


@dataclass(frozen=True, slots=True)
class MachineModel:
    """A machine by a few figures: an op takes as long as its arithmetic or its memory traffic, whichever is longer.

    This is the roofline model (Williams, Waterman, Patterson, CACM 2009) with a constant cost for every op.

    Attributes:
        flops_per_second: the peak; a multiply-add counts two.
        bytes_per_second: between memory and arithmetic units.
        op_seconds: for each op, or composite, of any size.
        call_seconds: for entering the machine.
        transfer_bytes_per_second: for moving data to the machine and back; 0 for a machine working in the host's
            memory.
        peer_bytes_per_second: for moving data directly between two devices of one memory; 0 by way of the host.
    """

    flops_per_second: float
    bytes_per_second: float
    op_seconds: float = 0.0
    call_seconds: float = 0.0
    transfer_bytes_per_second: float = 0.0
    peer_bytes_per_second: float = 0.0

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            bound = "above 0" if name in ("flops_per_second", "bytes_per_second") else "0 or more"
            is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
            if not is_number or not math.isfinite(value) or value < 0 or (value == 0 and bound == "above 0"):
                where = f"MachineModel, `{name}`"
                raise OptionsError(where, "has a bad value", got=repr(value), expected=f"a finite number {bound}")

    def estimate(self, flops: int, nbytes: int) -> Estimate:
        """Return the cost of work on the machine."""
        seconds = max(flops / self.flops_per_second, nbytes / self.bytes_per_second) + self.op_seconds
        return Estimate(
            seconds,
            self.call_seconds,
            self.transfer_bytes_per_second,
            peer_bytes_per_second=self.peer_bytes_per_second,
        )


HOST_MACHINE = MachineModel(flops_per_second=1e10, bytes_per_second=1e10, op_seconds=2e-6)
"""The numpy host on one core of a server, to the order of magnitude: convolutions and recurrent layers, one elementwise
pass over memory, and the overhead of one op. Ops of few operations for each byte are slower. Large products of matrices
run several times as fast: a wrong guess in favour of the host costs more than a missed chance."""

_PASSES = MachineModel(flops_per_second=1e9, bytes_per_second=1e10, op_seconds=2e-6)
"""The numpy host in ops of few operations for each byte: passes over arrays, with temporaries."""
_PRODUCT_INTENSITY = 4
"""Operations for each byte from which an op is likely made of products."""


def guess_host(flops: int, nbytes: int) -> Estimate:
    """Return the guessed cost of work on the numpy host."""
    return (HOST_MACHINE if flops > _PRODUCT_INTENSITY * nbytes else _PASSES).estimate(flops, nbytes)


BACKEND_MACHINE = MachineModel(flops_per_second=1e11, bytes_per_second=2e10, op_seconds=1e-7, call_seconds=1e-6)
"""A backend without figures: compiled code on the same core, in the host's memory, a call per region."""


class Sizes:
    """The assumed values of the symbolic sizes.

    Args:
        expected: by symbol; missing symbols count as 1.
    """

    def __init__(self, expected: Mapping[str, int]) -> None:
        self._expected = expected
        self._nbytes: dict[Type, int] = {}

    def of(self, symbols: Iterable[str]) -> dict[str, int]:
        """Return a size for each symbol, in alphabetical order."""
        return {name: self._expected.get(name, 1) for name in sorted(symbols)}

    def count(self, dim: Dim) -> int:
        """Return a symbolic number (elements, bytes, FLOPs) at the expected sizes; 0 if the sizes contradict it."""
        try:
            return max(0, evaluate(dim, self.of(symbols_of(dim))))
        except IRTypeError:
            return 0

    def nbytes(self, type_: Type) -> int:
        """Return the bytes of a value; 0 if the rank is unknown, or the value is no tensor."""
        if type_ not in self._nbytes:
            size = type_.nbytes if isinstance(type_, TensorType) else None
            self._nbytes[type_] = 0 if size is None else self.count(size)
        return self._nbytes[type_]

    def work(self, binding: Binding) -> tuple[int, int]:
        """Return the FLOPs of an op or a composite, and the bytes read and written."""
        inner = members_of(binding)
        flops = sum(self.count(op.op.flops(op.context())) for op in inner)
        return flops, self.count(binding.op.nbytes(binding.context()))


class BackendCosts:
    """The costs of ops on one backend. The backend is asked once about each distinct op.

    Args:
        handle: the backend.
        context: the context of the module.
        machine: replaces the estimates of the backend; by default :data:`BACKEND_MACHINE` stands in for missing
            estimates.
        sizes: the expected sizes.
        numbers: the distinct ops; may be shared by several backends.
        calibration: corrects estimates by measurements of this machine; ``machine`` stays as given.
    """

    def __init__(
        self,
        handle: BackendHandle,
        context: CompileContext,
        machine: MachineModel | None,
        sizes: Sizes,
        numbers: OpNumbers | None = None,
        calibration: Calibration | None = None,
    ) -> None:
        self._numbers = numbers or OpNumbers()
        self._handle = handle
        self._context = context
        self._asks = machine is None
        self._machine = machine or BACKEND_MACHINE
        self._sizes = sizes
        self._costs: dict[tuple[int, Neighbours], int | Rejection] = {}
        self._estimates: dict[tuple[int, Neighbours], Estimate] = {}
        self._refused: dict[tuple[int, Neighbours], Rejection] = {}
        self._schedules: dict[tuple[int, Neighbours], str] = {}
        self._calibration = None if machine else calibration

    def estimate(self, binding: Binding, neighbours: Neighbours = ALONE) -> Estimate | Rejection:
        """Return the cost of an op or a composite there, or the reason for a failed estimate; the op is then refused.

        Args:
            binding: the op.
            neighbours: the neighbours of the op in the module.

        Raises:
            HookError: the backend's hook failed, and failures of the backend are not contained.
        """
        key = (self._numbers.number(binding), neighbours)
        if key not in self._estimates and key not in self._refused:
            function = self.function(binding, neighbours)
            try:
                answer = None if function is None or not self._asks else self._handle.estimate(function, self._context)
                estimate = answer or self._machine.estimate(*self._sizes.work(binding))
                if self._calibration and function is not None:
                    estimate = replace(estimate, seconds=self._calibration.corrected(function, estimate.seconds))
                self._estimates[key] = estimate
            except ByocError as error:
                self._refused[key] = self._handle.contain("byoc_estimate", error, binding.results[0].name)
        return self._refused.get(key) or self._estimates[key]

    def cost(self, binding: Binding, neighbours: Neighbours = ALONE) -> int | Rejection:
        """Return the seconds of :meth:`estimate` in femtoseconds, or the reason for a failed estimate."""
        key = (self._numbers.number(binding), neighbours)
        cost = self._costs.get(key)
        if cost is None:
            estimate = self.estimate(binding, neighbours)
            cost = self._costs[key] = estimate if isinstance(estimate, Rejection) else to_units(estimate.seconds)
        return cost

    def function(self, binding: Binding, neighbours: Neighbours = ALONE) -> Function | None:
        """Return the function of an op or a composite, as given to the backend; ``None`` if the sizes do not fit."""
        return self._sized(as_function(binding, self._handle.name, neighbours._asdict()))

    @property
    def has_schedules(self) -> bool:
        """Whether measured schedules of any op are known."""
        return self._calibration is not None and bool(self._calibration.schedules)

    def schedule(self, binding: Binding, neighbours: Neighbours = ALONE) -> str:
        """Return the fastest measured schedule of an op or a composite; empty for the backend's own choice."""
        if self._calibration is None or not self.has_schedules:
            return ""
        key = (self._numbers.number(binding), neighbours)
        if key not in self._schedules:
            function = self.function(binding, neighbours)
            self._schedules[key] = "" if function is None else self._calibration.schedule(function)
        return self._schedules[key]

    def border(self) -> Estimate:
        """Return the costliest border of all estimates so far; free of charge without any estimate."""
        calls = [estimate.call_seconds for estimate in self._estimates.values()]
        estimates = self._estimates.values()
        speeds = [estimate.bytes_per_second for estimate in estimates if estimate.bytes_per_second]
        changes = [estimate.layout_bytes_per_second for estimate in estimates if estimate.layout_bytes_per_second]
        peers = [estimate.peer_bytes_per_second for estimate in estimates if estimate.bytes_per_second]
        return Estimate(
            0.0,
            max(calls, default=0.0),
            min(speeds, default=0.0),
            min(changes, default=0.0),
            min(peers, default=0.0),
        )

    def _sized(self, function: Function) -> Function | None:
        """Return the function with the expected sizes; ``None`` if the sizes do not fit an op."""
        sizes = self._sizes.of(cited_symbols(function.bindings))
        stand_ins = [(Var(name, tensor((name,))), Var(name, tensor((size,)))) for name, size in sizes.items()]
        try:
            return retype(function, {}, [*stand_ins]) if sizes else function
        except IRTypeError:
            return None
