"""Estimates of a backend from a table of measurements shipped with the backend.

``python -m benchmarks.collect_costs`` of the repository writes such tables. A row is an op with shapes, attributes and
measured seconds. An estimate is the time expected from similar measured ops, scaled by the limits of the machine::

    from byoc_core.authoring.cost_table import CostTable

    TABLE = CostTable.load(files("mybackend") / "costs.json")

    @hookimpl
    def byoc_estimate(function, context):
        return TABLE.estimate(function, context.num_threads)

A table is good for processors similar to the measured processor; :func:`is_amd` tells two makers apart.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.resources.abc import Traversable
from typing import Any, Protocol

import numpy as np

from byoc_core.authoring.cost_regression import DistanceRegression
from byoc_core.authoring.cost_rows import CostRow, Setting
from byoc_core.backend import Estimate
from byoc_core.errors import ArtifactError
from byoc_core.ir import Binding, Constant, Function, Trait
from byoc_core.native.cpu import is_amd
from byoc_core.opset.families import find_op

__all__ = ["CostRow", "CostTable", "Limits", "Setting", "is_amd"]

_SCHEMA = 1
_MOST_FITTED = 600
"""The most rows of a regression; of more rows, every few count."""
_FLOOR_SECONDS = 1e-7
"""The least seconds of the work of an op: smaller ops are mostly overhead."""
_DISTANCES = 32.0, 2.0, 0.5
"""Distances of rows with other dtypes, attributes or makers than the op."""


class Limits(Protocol):
    """The limits of a machine: operations and bytes per second."""

    @property
    def flops(self) -> float:
        """Operations per second."""

    @property
    def bandwidth(self) -> float:
        """Bytes per second."""


@dataclass(frozen=True)
class CostTable:
    """Measured ops of a backend.

    Attributes:
        flops: operations per second of the measured machine.
        bandwidth: bytes per second of the measured machine.
        rows: the measured ops.
        shares: by op and setting, the number of ops computed by a kernel of their own, and the number of all ops. The
            rest is computed along with other ops: a bias behind a convolution, say.
        call_seconds: a value crossing the border of a region; see :class:`byoc_core.backend.Estimate`.
        borders: seconds for each byte crossing the border of a region with an op: the change between the layout
            preferred by the op and the layout outside. Other ops have no preference.
        scale: seconds on this machine for a second of the measured machine, for arithmetic and for memory.
    """

    flops: float
    bandwidth: float
    rows: tuple[CostRow, ...]
    shares: Mapping[tuple[str, str, str], tuple[int, int]] = field(default_factory=dict)
    call_seconds: float = 0.0
    borders: Mapping[str, float] = field(default_factory=dict)
    scale: tuple[float, float] = (1.0, 1.0)
    _groups: Mapping[str, _Rows] = field(init=False, repr=False, compare=False)
    _elementwise_shares: Mapping[tuple[str, str, str], tuple[int, int]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        groups: dict[str, list[CostRow]] = {}
        for row in self.rows:
            groups.setdefault(row.op, []).append(row)
            groups.setdefault(_KIND + row.kind, []).append(row)
        pooled: dict[tuple[str, str, str], tuple[int, int]] = {}
        for (op, maker, reader), (alone, count) in self.shares.items():
            if _is_elementwise(op):
                key = _ELEMENTWISE, maker, reader
                before = pooled.get(key, (0, 0))
                pooled[key] = before[0] + alone, before[1] + count
        object.__setattr__(self, "_elementwise_shares", pooled)
        object.__setattr__(self, "_groups", {name: _Rows(found, self._work) for name, found in groups.items()})

    @classmethod
    def load(cls, resource: Traversable) -> CostTable:
        """Return the table of a JSON file.

        Raises:
            ArtifactError: the file is no table of costs.
        """
        return cls.from_text(resource.read_text(encoding="utf-8"), str(resource))

    @classmethod
    def from_text(cls, text: str, where: str = "costs") -> CostTable:
        """Return the table of JSON text.

        Args:
            text: written by :meth:`to_text`.
            where: the place of the text, for messages.

        Raises:
            ArtifactError: the text is no table of costs.
        """
        try:
            return _read_table(json.loads(text))
        except (ValueError, TypeError, KeyError, IndexError, OverflowError, AttributeError, RecursionError) as error:
            problem = f"is no table of costs: {type(error).__name__}: {error}"
            raise ArtifactError(f"cost table {where}", problem, expected=f"schema {_SCHEMA}") from error

    def to_text(self) -> str:
        """Return the table as JSON text, a line for each row."""
        texts = sorted({text for row in self.rows for text in (row.dtypes, row.attributes)})
        numbers = {text: number for number, text in enumerate(texts)}
        kinds = {row.op: row.kind for row in self.rows}
        rows = [
            [
                row.op,
                numbers[row.dtypes],
                numbers[row.attributes],
                row.flops,
                row.nbytes,
                [list(shape) for shape in row.shapes],
                float(f"{row.seconds:.4g}"),
                row.maker,
                *([float(f"{row.parallel_seconds:.4g}")] if row.parallel_seconds else []),
            ]
            for row in self.rows
        ]
        head = {
            "schema": _SCHEMA,
            "flops": self.flops,
            "bandwidth": self.bandwidth,
            "call_seconds": self.call_seconds,
            "borders": dict(sorted(self.borders.items())),
            "kinds": dict(sorted(kinds.items())),
        }
        shares = [[*key, *counts] for key, counts in sorted(self.shares.items())]
        lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in head.items()]
        lines += [_listing("texts", texts), _listing("shares", shares), _listing("rows", rows)]
        return "{\n" + ",\n".join(lines) + "\n}\n"

    def scaled(self, limits: Limits) -> CostTable:
        """Return the table for a machine of other limits."""
        flops = self.flops / limits.flops if limits.flops else 1.0
        return replace(self, scale=(flops, self.bandwidth / limits.bandwidth if limits.bandwidth else 1.0))

    def estimate(self, function: Function, num_threads: int = 1) -> Estimate | None:
        """Return the cost of a function of one op or composite; ``None`` if nothing similar was measured.

        A composite costs as much as the op with most work inside. A function with the neighbours of the op in its
        attributes (:class:`Setting`) costs less if the backend computes such ops along with neighbours. On several
        threads a part of the time shrinks with the number of threads (Amdahl, AFIPS 1967): the part follows from the
        times on one thread and on two.

        Args:
            function: the function.
            num_threads: the number of threads of a call.

        Cost: linear in the rows of the op; cubic for the first estimate of an op.
        """
        constants = {
            id(param)
            for binding in function.bindings
            for region in binding.regions
            for param, operand in zip(region.params, binding.operands, strict=False)
            if isinstance(operand, Constant)
        }
        ops = [binding for binding in function.walk() if not binding.regions]
        settings = [_setting_inside(ops, index, Setting.of(function)) for index in range(len(ops))]
        rows = [
            CostRow.of(binding, 0.0, constants, setting.maker) for binding, setting in zip(ops, settings, strict=True)
        ]
        sized = [row for row in rows if row is not None]
        if not sized or len(sized) < len(rows):
            return None
        heaviest = max(range(len(sized)), key=lambda index: (sized[index].flops, sized[index].nbytes))
        seconds = self.seconds(sized[heaviest], settings[heaviest], num_threads)
        if seconds is None:
            return None
        per_byte = self.borders.get(sized[heaviest].op, 0.0)
        return Estimate(seconds, self.call_seconds, layout_bytes_per_second=1 / per_byte if per_byte else 0.0)

    def seconds(self, row: CostRow, setting: Setting = Setting(), num_threads: int = 1) -> float | None:  # noqa: B008 - a constant
        """Return the expected seconds of an op in a setting; ``None`` if nothing similar was measured."""
        group = self._groups.get(row.op) or self._groups.get(_KIND + row.kind)
        if group is None:
            return None
        efficiency = group.efficiency(row, num_threads)
        return self._seconds_of_work(row) * efficiency * self.share(row.op, setting)

    def share(self, op: str, setting: Setting) -> float:
        """Return the share of ops with kernels of their own among the measured ops of a setting; 1 if unknown.

        Without measured ops between the same neighbours, ops with one of the neighbours count; an op with a single
        known neighbour is computed along with this neighbour, or not at all. An elementwise op never measured between
        such neighbours is like the other elementwise ops there.
        """
        if setting == Setting():
            return 1.0
        settings = [tuple(setting)]
        if setting.maker and setting.reader:
            settings += [(setting.maker, "*"), ("*", setting.reader), ("*", "*")]
        for shares, name in ((self.shares, op), (self._elementwise_shares, _ELEMENTWISE)):
            if name == op or _is_elementwise(op):
                for maker, reader in settings:
                    alone, count = shares.get((name, maker, reader), (0, 0))
                    if count:
                        return alone / count
        return 1.0

    def _work(self, row: CostRow) -> float:
        return max(row.flops / self.flops, row.nbytes / self.bandwidth, _FLOOR_SECONDS)

    def _seconds_of_work(self, row: CostRow) -> float:
        of_flops, of_bytes = self.scale
        return max(row.flops / self.flops * of_flops, row.nbytes / self.bandwidth * of_bytes, _FLOOR_SECONDS)


def _setting_inside(ops: Sequence[Binding], index: int, outside: Setting) -> Setting:
    """Return the setting of an op among the ops of a composite, with the setting of the composite at both ends."""
    op = ops[index]
    first = next((value for value in op.operands if not isinstance(value, Constant)), None)
    maker = next((other for other in ops if any(result is first for result in other.results)), None)
    readers = [other for other in ops if any(operand is op.results[0] for operand in other.operands)]
    if readers:
        reader = readers[0].op.name if len(readers) == 1 else ""
    else:
        reader = outside.reader if index == len(ops) - 1 else ""
    return Setting(outside.maker if maker is None else maker.op.name, reader)


_KIND = "kind "
_ELEMENTWISE = "elementwise"


def _is_elementwise(op: str) -> bool:
    found = find_op(op)
    return found is not None and Trait.ELEMENTWISE in found.traits


class _Rows:
    """Rows of an op or of a kind, as arrays."""

    def __init__(self, rows: Sequence[CostRow], work: Callable[[CostRow], float]) -> None:
        self._rows, self._work = rows, work

    @cached_property
    def _features(self) -> Any:
        return np.array([row.features for row in self._rows])

    @cached_property
    def _marks(self) -> tuple[tuple[float, Mapping[str, int], Any], ...]:
        """The other properties of the rows: the distance between rows that differ, numbers of texts, and of rows."""
        return tuple(
            (distance, numbers, np.array([numbers[text] for text in texts]))
            for distance, texts in zip(_DISTANCES, zip(*map(_texts_of, self._rows), strict=True), strict=True)
            for numbers in ({text: number for number, text in enumerate(dict.fromkeys(texts))},)
        )

    @cached_property
    def _logs(self) -> Any:
        """The logarithms of seconds over the least seconds of the work."""
        return np.array([math.log(max(row.seconds, 1e-12) / self._work(row)) for row in self._rows])

    @cached_property
    def _ratios(self) -> Any:
        """Seconds on two threads over seconds on one; 0 if not measured."""
        return np.array([row.parallel_seconds / max(row.seconds, 1e-12) for row in self._rows])

    @cached_property
    def _regression(self) -> tuple[Any, DistanceRegression]:
        """The rows in use, and the regression of their logarithms."""
        return self._fit(np.arange(len(self._rows)), self._logs)

    @cached_property
    def _parallel_regression(self) -> tuple[Any, DistanceRegression] | None:
        """The rows with times on two threads in use, and the regression of the logarithms of the ratios."""
        timed = np.flatnonzero(self._ratios)
        return self._fit(timed, np.log(self._ratios[timed])) if timed.size else None

    def _fit(self, used: Any, values: Any) -> tuple[Any, DistanceRegression]:
        picked = np.linspace(0, len(used) - 1, min(len(used), _MOST_FITTED)).astype(int)
        used, values = used[picked], values[picked]
        distances = np.zeros((len(used), len(used)))
        for column in self._features[used].T:
            distances += np.abs(column[:, None] - column)
        for distance, _, marks in self._marks:
            distances += distance * (marks[used][:, None] != marks[used])
        return used, DistanceRegression(distances, values)

    def efficiency(self, row: CostRow, num_threads: int = 1) -> float:
        """Return seconds over the least seconds of the work: measured for such an op, or else expected."""
        distances = np.abs(self._features - np.array(row.features)).sum(axis=1)
        for (distance, numbers, marks), text in zip(self._marks, _texts_of(row), strict=True):
            distances += distance * (marks != numbers.get(text, -1))
        equal = np.flatnonzero(distances == 0)
        single = math.exp(_expected(self._regression, distances, self._logs[equal]))
        if num_threads < 2:
            return single
        timed = equal[self._ratios[equal] > 0]
        ratio = 1.0
        if self._parallel_regression is not None:
            ratio = math.exp(_expected(self._parallel_regression, distances, np.log(self._ratios[timed])))
        parallel = 2 * (1 - ratio)
        return single * max(1 - parallel + parallel / num_threads, 1 / num_threads)


def _texts_of(row: CostRow) -> tuple[str, str, str]:
    return row.kind_of_numbers, row.attributes, row.maker


def _expected(regression: tuple[Any, DistanceRegression], distances: Any, measured: Any) -> float:
    """Return the mean of the values measured for an equal op, or else the expected value."""
    if measured.size:
        return float(measured.mean())
    used, fitted = regression
    return fitted.predict(distances[used])


def _read_table(data: Any) -> CostTable:
    if data["schema"] != _SCHEMA:
        raise ValueError(f"schema {data['schema']!r}")
    texts, kinds = data["texts"], data["kinds"]
    rows = tuple(
        CostRow(
            _text(op),
            _text(kinds[op]),
            _text(texts[dtypes]),
            _text(texts[attributes]),
            _count(flops),
            _count(nbytes),
            tuple(tuple(map(_count, shape)) for shape in shapes),
            _number(seconds),
            _text(maker),
            *map(_number, parallel[:1]),
        )
        for op, dtypes, attributes, flops, nbytes, shapes, seconds, maker, *parallel in data["rows"]
    )
    if any(len(row.shapes) != 3 for row in rows):
        raise ValueError("a row without three shapes")
    shares = {
        (_text(op), _text(maker), _text(reader)): (_count(alone), _count(count))
        for op, maker, reader, alone, count in data["shares"]
    }
    if any(alone > count for alone, count in shares.values()):
        raise ValueError("a share above 1")
    borders = {_text(op): _number(per_byte) for op, per_byte in data["borders"].items()}
    flops, bandwidth = _number(data["flops"]), _number(data["bandwidth"])
    if not flops or not bandwidth:
        raise ValueError("a limit of 0")
    return CostTable(flops, bandwidth, rows, shares, _number(data["call_seconds"]), borders)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 62:
        raise ValueError(f"{value!r} is no count")
    return value


def _number(value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < math.inf:
        raise ValueError(f"{value!r} is no finite number, 0 or more")
    return float(value)


def _listing(name: str, items: Iterable[object]) -> str:
    lines = ",\n".join(json.dumps(item, separators=(",", ":")) for item in items)
    return f"{json.dumps(name)}: [\n{lines}\n]" if lines else f"{json.dumps(name)}: []"
