"""Combination of elements: the reductions' neutral elements and operations, and C functions combining a row.

The functions ``(const T *x, int64_t count)`` combine floats side by side. A row goes through four registers at once,
lane by lane, then the lanes by halves: an order determined by the row's length only. Rows shorter than a register go
through a narrower register. Long rows are summed in chunks, see :data:`CHUNK`.

Maxima and minima: a NaN wins over every number. Beside the registers of the best so far, which may lose a NaN, stand
sums, which do not. If a sum is NaN, the best is taken to be infinite; if the result is infinite, every element is
examined again. Neither the loop nor the combination of the lanes need check for NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import chain

import numpy as np
from byoc_core.authoring import c
from byoc_core.authoring.csource import c_suffix
from byoc_core.dims import Dim

from byoc_ccompiler.kernels.copies import fetch
from byoc_ccompiler.steps import Step, shape_of

__all__ = [
    "ADD_CHUNK",
    "CHUNK",
    "DOUBLE",
    "REDUCTIONS",
    "SUM_UP",
    "cast",
    "combined",
    "finished",
    "reduced_axes",
    "row_function",
    "start",
]

_ELEMENT_OPS = {"sum": "add", "mean": "add", "prod": "multiply", "max": "maximum", "min": "minimum"}
_ELEMENT_OPS |= {"any": "logical_or", "all": "logical_and"}
"""The elementwise ops that combine two elements; numpy has them under the same names."""

REDUCTIONS = frozenset(_ELEMENT_OPS)
"""The reductions computed by row kernels."""

DOUBLE = c.CType("float64")

_Register = tuple[c.Variable, ...]

_ROUNDS, CHUNK = 16, 1024
"""Vectors summed in a register before adding to the sum of earlier vectors; elements of a row combined by a call.

The sums of chunks are added up in float64 (with a second number for the lost part if the elements are float64),
because then the error does not grow with the number of chunks.
"""

_FETCH_NBYTES, _LINE_NBYTES, _LEAST_NBYTES = 2048, 64, 16
"""Bytes: the prefetch distance in a row (processors prefetch within a page only), a line, the narrowest register."""


def reduced_axes(step: Step) -> tuple[int, ...]:
    """Return the axes reduced by a reduction, ascending."""
    rank, axes = len(shape_of(step.operands[0])), step.binding.attrs["axis"]
    if not isinstance(axes, tuple):
        return tuple(range(rank))
    return tuple(sorted(int(str(axis)) % rank for axis in axes))


def start(op: str, dtype: str) -> c.Literal:
    """Return the neutral element of a reduction."""
    value: float = int(op in ("prod", "all", "min"))
    if op in ("max", "min") and dtype.startswith("float"):
        value = float("-inf" if op == "max" else "inf")
    elif op in ("max", "min") and dtype != "bool":
        value = int(np.iinfo(dtype).min if op == "max" else np.iinfo(dtype).max)
    return c.Literal(value, c.CType(dtype))


def cast(value: c.Expression, dtype: str) -> c.Expression:
    """Return a value in a dtype."""
    return value if value.type.dtype == dtype else c.Cast(value, c.CType(dtype))


def finished(op: str, total: c.Expression, count: Dim, dtype: str) -> c.Expression:
    """Return the result of a reduction of ``count`` elements from their combination."""
    return cast(total / c.Cast(c.Size(count), total.type) if op == "mean" else total, dtype)


def combined(op: str, left: c.Expression, right: c.Expression) -> c.Expression:
    """Return two elements, literals or variables, combined by a reduction."""
    return c.Element(_ELEMENT_OPS[op], (left, right), left.type)


@cache
def row_function(op: str, dtype: str, nbytes: int, registers: int = 4) -> c.Function:
    """Return the C function ``(const T *x, int64_t count)`` combining elements side by side.

    Args:
        op: the reduction.
        dtype: the dtype of the elements.
        nbytes: bytes of a register, a power of 2; integers are combined by loops vectorised by C compilers.
        registers: registers combined at a time, a power of 2.
    """
    return _RowFunction("sum" if op == "mean" else op, c.CType(dtype), nbytes).function(registers)


class _RowFunction:
    """The writer of a function combining a row.

    A register is a vector of the partial result, with a second vector for maxima and minima: a sum.
    """

    def __init__(self, op: str, type_: c.CType, nbytes: int) -> None:
        self.op, self.type, self.nbytes, self.is_extreme = op, type_, nbytes, op in ("max", "min")
        self.none, self.names = start(op, type_.dtype).value, ("best", "sum") if self.is_extreme else ("total",)
        self.x, self.count = c.Buffer("x", type_.dtype), c.Variable("count")

    def function(self, registers: int) -> c.Function:
        """Return the function combining ``registers`` registers at a time."""
        lanes, most = _LEAST_NBYTES // self.type.nbytes, self.nbytes // self.type.nbytes
        body: c.Block = ()
        while self.type.is_float and 1 < lanes <= most:
            body = (c.If(self.count.compare(">=", lanes), self._short(lanes, is_widest=lanes == most), body),)
            lanes *= 2
        if body and registers > 1:
            body = (c.If(self.count.compare(">=", registers * most), self._long(most, registers), body),)
        k, total, element = c.Variable("k"), c.Variable("total", self.type), c.Variable("element", self.type)
        each = (c.Let(element, self.x[k]), c.Assign(total, combined(self.op, total, element)))
        body += (c.Declare(total, c.Literal(self.none, self.type)), c.For(k, c.Size(0), self.count, each))
        name = f"row_{self.op}_{'b8' if self.type.dtype == 'bool' else c_suffix(self.type.dtype)}"
        return c.Function(name, (self.x, self.count), (*body, c.Return(total)), self.type, is_inline=True)

    def _short(self, lanes: int, *, is_widest: bool) -> c.Block:
        """Return the statements for a row of a register or more, but less than two except for the widest register."""
        element = c.Variable("element", self.type.with_lanes(lanes))
        loaded = element if self.is_extreme else self._combine(self._all(lanes, self.none), element)
        declared, register = self._register([loaded] * len(self.names))
        rest = self._rest([register], c.Size(lanes) if is_widest else None)
        return (c.Let(element, c.Load(self.x, c.Size(0), lanes)), *declared, *rest, *self._result(register))

    def _long(self, lanes: int, count: int) -> c.Block:
        """Return the statements for a row filling ``count`` registers."""
        (body, registers), vector_end = self._registers(lanes, count), c.Variable("vector_end")
        body += (c.Let(vector_end, self.count // (count * lanes) * (count * lanes)), self._walk(registers, vector_end))
        if self.is_extreme:
            # The sign of a zero result reveals the order.
            body += (*self._merged(registers), *self._rest(registers[:1], vector_end))
        else:
            body += (*self._rest(registers[:2], vector_end), *self._merged(registers))
        return (*body, *self._result(registers[0]))

    def _registers(self, lanes: int, count: int) -> tuple[c.Block, list[_Register]]:
        """Return ``count`` empty registers, behind their declarations."""
        nothing = [self._all(lanes, value) for value in (self.none, 0)[: len(self.names)]]
        found = [self._register(nothing) for _ in range(count)]
        return tuple(chain.from_iterable(declared for declared, _ in found)), [register for _, register in found]

    def _register(self, values: Sequence[c.Expression]) -> tuple[c.Block, _Register]:
        """Return a register starting with these vectors, behind the declaration."""
        register = tuple(c.Variable(name, value.type) for name, value in zip(self.names, values, strict=True))
        return tuple(map(c.Declare, register, values)), register

    def _all(self, lanes: int, value: float) -> c.Expression:
        """Return a vector with the same number in all lanes."""
        return c.Broadcast(c.Literal(value, self.type), lanes)

    def _walk(self, registers: Sequence[_Register], vector_end: c.Expression) -> c.For:
        """Return the loop over the elements for all registers together: sums of many rounds are sums of short sums."""
        lanes, k = registers[0][0].type.lanes, c.Variable("k")
        wide = len(registers) * lanes

        def rounds(to: Sequence[_Register], begin: c.Expression, end: c.Expression) -> c.For:
            loads = (self._loaded(register, c.Load(self.x, k + v * lanes, lanes)) for v, register in enumerate(to))
            nbytes = max(_LINE_NBYTES, wide * self.type.nbytes)
            ahead = fetch(self.x, k + _FETCH_NBYTES // self.type.nbytes, nbytes)
            return c.For(k, begin, end, (ahead, *chain.from_iterable(loads)), step=wide)

        if self.op != "sum" or wide * _ROUNDS >= CHUNK:
            return rounds(registers, c.Size(0), vector_end)
        first, end, (body, parts) = c.Variable("first"), c.Variable("end"), self._registers(lanes, len(registers))
        body += (c.Let(end, c.index_min(vector_end, first + wide * _ROUNDS)), rounds(parts, first, end))
        body += tuple(chain.from_iterable(map(self._added, registers, parts)))
        return c.For(first, c.Size(0), vector_end, body, step=wide * _ROUNDS)

    def _rest(self, registers: Sequence[_Register], begin: c.Expression | None) -> c.Block:
        """Return the statements for single vectors from ``begin`` on, if any, and for the last lanes of a row.

        A sum or product takes from the last vector only the lanes not in any earlier vector.
        """
        lanes, k = registers[0][0].type.lanes, c.Variable("k")
        ones = self._loaded(registers[0], c.Load(self.x, k, lanes))
        loop = () if begin is None else (c.For(k, begin, self.count - (lanes - 1), ones, step=lanes),)
        last: c.Expression = c.Load(self.x, self.count - lanes, lanes)
        if not self.is_extreme:
            number = c.CType(f"int{8 * self.type.nbytes}")
            lane_numbers = c.Literal(tuple(range(lanes)), number.with_lanes(lanes))
            fresh = lane_numbers.compare(">=", c.Broadcast(cast(lanes - self.count % lanes, number.dtype), lanes))
            last = c.Select(fresh, last, self._all(lanes, self.none))
        return (*loop, c.If((self.count % lanes).compare("!=", 0), self._loaded(registers[-1], last)))

    def _loaded(self, register: _Register, value: c.Expression) -> c.Block:
        """Return the statements combining a register with a vector."""
        element = c.Variable("element", value.type)
        return (c.Let(element, value), *self._added(register, (element,) * len(register)))

    def _added(self, register: _Register, other: _Register) -> c.Block:
        """Return the statements combining a register with another."""
        (result, *sums), (addend, *addends) = register, other
        added = (c.Assign(total, total + value) for total, value in zip(sums, addends, strict=True))
        return (c.Assign(result, self._combine(result, addend)), *added)

    def _combine(self, left: c.Expression, right: c.Expression) -> c.Expression:
        """Return two vectors combined lane by lane."""
        if self.is_extreme:
            return c.Select(left.compare(">" if self.op == "max" else "<", right), left, right)
        return left * right if self.op == "prod" else left + right

    def _merged(self, registers: Sequence[_Register]) -> c.Block:
        """Return the statements combining all registers, in pairs, into the first."""
        body, apart = list[c.Statement](), 1
        while apart < len(registers):
            for index in range(0, len(registers), 2 * apart):
                body += self._added(registers[index], registers[index + apart])
            apart *= 2
        return tuple(body)

    def _result(self, register: _Register) -> c.Block:
        """Return the statements combining lanes, by halves, and returning the result unless possibly NaN."""
        (total, *sums), result, body = register, c.Variable("result", self.type), list[c.Statement]()
        lanes = apart = total.type.lanes
        body += (
            c.Assign(total, c.Select(lane_sums.compare("!=", lane_sums), self._all(lanes, -self.none), total))
            for lane_sums in sums
        )
        while apart > 1:
            apart //= 2
            turned, order = c.Variable("turned", total.type), tuple((lane + apart) % lanes for lane in range(lanes))
            body += (c.Let(turned, c.Shuffle(total, total, order)), c.Assign(total, self._combine(total, turned)))
        is_sure = c.If(result.compare("!=", -self.none), (c.Return(result),))
        return (*body, c.Let(result, c.Lane(total, c.Size(0))), is_sure if sums else c.Return(result))


def _add_chunk() -> c.Function:
    """Return the function adding to a sum of two parts: the rounded sum, the lost part (Neumaier's form of Kahan's)."""
    total, addend = c.Buffer("total", "float64", c.MemoryAccess.WRITE, 2), c.Variable("addend", DOUBLE)
    before, rounded = c.Variable("before", DOUBLE), c.Variable("rounded", DOUBLE)
    sizes = (c.Element("abs", (number,), DOUBLE) for number in (before, addend))
    lost = c.Select(c.Binary(">=", *sizes), (before - rounded) + addend, (addend - rounded) + before)
    sums = (c.Store(total, c.Size(1), total[1] + lost), c.Store(total, c.Size(0), rounded))
    return c.Function("add_piece", (total, addend), (c.Let(before, total[0]), c.Let(rounded, before + addend), *sums))


def _pair_sum() -> c.Function:
    """Return the function adding the two parts; with infinities and NaN, the lost part is meaningless."""
    total, is_finite = c.Buffer("total", "float64", size=2), c.Callee("isfinite", np.isfinite)
    result = c.Select(c.Call(is_finite, (total[1],), c.BOOL), total[0] + total[1], total[0])
    return c.Function("whole_sum", (total,), (c.Return(result),), DOUBLE)


ADD_CHUNK, SUM_UP = _add_chunk(), _pair_sum()
"""Functions ``(double *total, double addend)`` and ``(const double *total)`` on a sum of two parts."""
