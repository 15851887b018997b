"""What a debugging session found: per region, the first and the worst divergence, as text and as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy.typing as npt

from byoc_core.debugging.checking import DEADLINE
from byoc_core.debugging.comparing import Tolerance
from byoc_core.debugging.findings import REFUSED, Finding, OutputError, RegionCheck
from byoc_core.debugging.narrowing import Guilt
from byoc_core.ir import IRModule

__all__ = ["DebugReport", "FailingCase", "RegionReport"]

NDArray = npt.NDArray[Any]


@dataclass(frozen=True, eq=False, slots=True)
class FailingCase:
    """The first call of a region that diverges: all that is needed to see it again.

    Attributes:
        module: where the region stands.
        name: the region's function.
        inputs: the call's inputs.
        verdict: what was found.
        guilt: the op at fault, where it was looked for and can be told.
    """

    module: IRModule = field(repr=False)
    name: str
    inputs: tuple[NDArray, ...] = field(repr=False)
    verdict: RegionCheck
    guilt: Guilt | None


@dataclass(frozen=True, eq=False, slots=True)
class RegionReport:
    """What became of one region.

    Attributes:
        name: the name of its function.
        backend: whose it is.
        ops: the names of its ops, in order.
        checks: its calls, in order; none where the run did not reach it.
        case: its first call that diverges.
    """

    name: str
    backend: str
    ops: tuple[str, ...]
    checks: tuple[RegionCheck, ...]
    case: FailingCase | None

    @property
    def shown(self) -> RegionCheck | None:
        """The call to show: the first that diverges, or else the one with the largest error beside what is allowed."""
        if self.case is not None:
            return self.case.verdict
        return max(self.checks, key=lambda check: check.excess, default=None)

    @property
    def verdict(self) -> str:
        """``right``, the code of the first divergence, ``refused`` or ``not-reached``."""
        return self.shown.verdict if self.shown is not None else "not-reached"

    def to_data(self) -> dict[str, Any]:
        """Gives plain JSON values."""
        return {
            "name": self.name,
            "backend": self.backend,
            "ops": list(self.ops),
            "verdict": self.verdict,
            "calls": len(self.checks),
            "diverging_calls": sum(not check.is_right for check in self.checks),
            "shown": None if self.shown is None else self.shown.to_data(),
            "guilt": None if self.case is None or self.case.guilt is None else self.case.guilt.to_data(),
        }


@dataclass(frozen=True, eq=False)
class DebugReport:
    """What :func:`byoc_core.debug_model` found.

    Attributes:
        regions: in module order.
        checks: every call of a region, in program order.
        tolerance: how much error was taken for rounding.
        options: the backends' options, by backend name.
        findings: what is wrong with the results of the whole run, where the backends' values went on.
        results: the figures of these results.
        isolated: whether regions ran in a process of their own.
        deadline: the seconds that this process had for each.
        origins: the distribution and version of each backend that comes from one, by backend name.
    """

    regions: tuple[RegionReport, ...]
    checks: tuple[RegionCheck, ...]
    tolerance: Tolerance
    options: Mapping[str, Mapping[str, object]]
    findings: tuple[Finding, ...] = ()
    results: tuple[OutputError, ...] = ()
    isolated: bool = False
    deadline: float = DEADLINE
    origins: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_right(self) -> bool:
        """Whether nothing diverges."""
        return not self.findings and all(check.is_right for check in self.checks)

    @property
    def is_tested(self) -> bool:
        """Whether any region ran on its backend at all: a region that was refused was not tested."""
        return any(check.verdict != REFUSED for check in self.checks)

    @property
    def first(self) -> RegionCheck | None:
        """The first call in program order that diverges."""
        return next((check for check in self.checks if not check.is_right), None)

    @property
    def worst(self) -> RegionCheck | None:
        """The call with the largest error beside what is allowed; what is no error of values comes before others."""
        wrong = [check for check in self.checks if not check.is_right]
        return max(wrong, key=lambda check: check.excess, default=None)

    @property
    def cases(self) -> tuple[FailingCase, ...]:
        """The first diverging call of each region that diverges."""
        return tuple(region.case for region in self.regions if region.case is not None)

    def to_data(self) -> dict[str, Any]:
        """Gives plain JSON values."""
        return {
            "right": self.is_right,
            "tested": self.is_tested,
            "tolerance": asdict(self.tolerance),
            "isolated": self.isolated,
            "regions": [region.to_data() for region in self.regions],
            "first": None if self.first is None else self.first.to_data(),
            "worst": None if self.worst is None else self.worst.to_data(),
            "findings": [asdict(finding) for finding in self.findings],
            "results": [result.to_data() for result in self.results],
        }

    def summary(self) -> str:
        """Gives one line: how much was checked, and how much of it diverges."""
        wrong = sum(region.case is not None for region in self.regions)
        text = f"{_count(len(self.regions), 'region')}, {_count(len(self.checks), 'call')}"
        if not self.is_tested:
            return f"{text}: every region was refused, so nothing was tested"
        if self.is_right:
            return f"{text}: nothing diverges"
        if not wrong:
            return f"{text}: no region diverges by itself, but the results of the whole run do"
        return f"{text}: {_count(wrong, 'region')} diverge{'s' if wrong == 1 else ''}"

    def details(self) -> str:
        """Gives the first and the worst divergence, and the op at fault in each region that diverges."""
        parts = []
        if self.first is not None and self.worst is not None:
            if self.worst is self.first:
                parts.append(f"first and worst divergence: {self.first}")
            else:
                parts += [f"first divergence: {self.first}", f"worst divergence: {self.worst}"]
        parts += [f"{case.name}: {case.guilt}" for case in self.cases if case.guilt is not None]
        parts += [f"whole run: {finding.code}: {finding.text}" for finding in self.findings]
        return "\n\n".join(parts)

    def __str__(self) -> str:
        lines = [
            f"{region.name} ({region.backend}, {len(region.ops)} ops): {region.verdict}" for region in self.regions
        ]
        return "\n\n".join(filter(None, ["\n".join([*lines, self.summary()]), self.details()]))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
