"""The report of a debugging session: per region, the first and the worst divergence, as text and as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy.typing as npt

from byoc_core.debugging.checking import DEADLINE
from byoc_core.debugging.comparing import Tolerance
from byoc_core.debugging.findings import REFUSED, OutputError, RegionCheck, RegionFinding
from byoc_core.debugging.narrowing import Guilt
from byoc_core.ir import IRModule

__all__ = ["DebugReport", "FailingCase", "RegionReport"]

NDArray = npt.NDArray[Any]


@dataclass(frozen=True, eq=False, slots=True)
class FailingCase:
    """The first diverging call of a region: everything needed to reproduce the divergence.

    Attributes:
        module: contains the region.
        name: the region's function.
        inputs: the call's inputs.
        verdict: the verdict on the call.
        guilt: the op at fault, if the search ran and found the op.
    """

    module: IRModule = field(repr=False)
    name: str
    inputs: tuple[NDArray, ...] = field(repr=False)
    verdict: RegionCheck
    guilt: Guilt | None


@dataclass(frozen=True, eq=False, slots=True)
class RegionReport:
    """The report of a region.

    Attributes:
        name: the name of the region's function.
        backend: the region's backend.
        ops: the names of the region's ops, in order.
        checks: the region's calls, in order; empty if the run did not reach the region.
        case: the region's first diverging call.
    """

    name: str
    backend: str
    ops: tuple[str, ...]
    checks: tuple[RegionCheck, ...]
    case: FailingCase | None

    @property
    def shown(self) -> RegionCheck | None:
        """The call to show: the first diverging call, else the call with the largest error over the allowed error."""
        if self.case is not None:
            return self.case.verdict
        return max(self.checks, key=lambda check: check.excess, default=None)

    @property
    def verdict(self) -> str:
        """``right``, the code of the first divergence, ``refused`` or ``not-reached``."""
        return self.shown.verdict if self.shown is not None else "not-reached"

    def to_data(self) -> dict[str, Any]:
        """Return plain JSON values."""
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
    """The findings of :func:`byoc_core.debug_model`.

    Attributes:
        regions: in module order.
        checks: every call of a region, in program order.
        tolerance: the error accepted as rounding.
        options: the backends' options, by backend name.
        findings: the faults in the results of the whole run, if the run went on with the backends' values.
        results: the figures of these results.
        isolated: whether regions ran in a separate process.
        deadline: the seconds allowed for this process, for each region.
        origins: the distribution and version of each backend from a distribution, by backend name.
    """

    regions: tuple[RegionReport, ...]
    checks: tuple[RegionCheck, ...]
    tolerance: Tolerance
    options: Mapping[str, Mapping[str, object]]
    findings: tuple[RegionFinding, ...] = ()
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
        """Whether any region ran on the region's backend at all: a refused region was not tested."""
        return any(check.verdict != REFUSED for check in self.checks)

    @property
    def first(self) -> RegionCheck | None:
        """The first diverging call in program order."""
        return next((check for check in self.checks if not check.is_right), None)

    @property
    def worst(self) -> RegionCheck | None:
        """The call with the largest error over the allowed error; faults other than errors of values come first."""
        wrong = [check for check in self.checks if not check.is_right]
        return max(wrong, key=lambda check: check.excess, default=None)

    @property
    def cases(self) -> tuple[FailingCase, ...]:
        """The first diverging call of each diverging region."""
        return tuple(region.case for region in self.regions if region.case is not None)

    def to_data(self) -> dict[str, Any]:
        """Return plain JSON values."""
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
        """Return one line: the number of checked regions and calls, and the number of diverging regions."""
        wrong = sum(region.case is not None for region in self.regions)
        text = f"{_count(len(self.regions), 'region')}, {_count(len(self.checks), 'call')}"
        if not self.is_tested:
            return f"{text}: every region was refused, so nothing was tested"
        if self.is_right:
            return f"{text}: nothing diverges"
        if not wrong:
            return f"{text}: no single region diverges, but the results of the whole run diverge"
        return f"{text}: {_count(wrong, 'region')} diverge{'s' if wrong == 1 else ''}"

    def details(self) -> str:
        """Return the first and the worst divergence, and the op at fault in each diverging region."""
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
