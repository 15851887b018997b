"""What a call of a region can be found guilty of, and the figures of its outputs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any

__all__ = ["CODES", "REFUSED", "Finding", "OutputError", "RegionCheck"]

REFUSED = "refused"
"""The code of a region that its backend will not compile after all: it is not tested, and not wrong."""

CODES: Mapping[str, str] = MappingProxyType(
    {
        "wrong-values": "an output is further from the reference in float64 than is allowed",
        "wrong-nonfinite": "an output is NaN or infinite where the reference is not, or the other way round",
        "wrong-shape": "an output whose size only running tells has another shape than the reference",
        "wrong-signature": "the compiled function does not take and give what the region does",
        "output-unwritten": "elements of an output are never written",
        "output-read": "the results depend on what was in the outputs before the call",
        "input-written": "the call changed an input",
        "not-deterministic": "two calls on the same inputs differ, and the backend says that it is deterministic",
        "compile-error": "the backend failed to compile the region",
        "run-error": "the compiled region raised an error",
        "crash": "the process that compiled and ran the region died",
        "hang": "compiling and running the region took longer than the deadline",
        REFUSED: "the backend's codegen refused the region; nothing was tested",
    }
)
"""Every verdict but ``right``, with what it means."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault of one call.

    Attributes:
        code: a key of :data:`CODES`.
        text: what was found, and where.
        output: which output it is about, where it is about one.
    """

    code: str
    text: str
    output: int | None = None


@dataclass(frozen=True, slots=True)
class OutputError:
    """How far one output is from the reference in float64.

    Attributes:
        name: the output's name.
        dtype: its dtype.
        max_abs_error: largest difference of an element.
        relative_error: that, over the largest magnitude of the output.
        host_relative_error: the same of the reference kernels in the output's own dtype.
        allowed_relative_error: the largest relative error that is taken for rounding.
        excess: the error over the allowed one; above 1 it is too much.
    """

    name: str
    dtype: str
    max_abs_error: float = 0.0
    relative_error: float = 0.0
    host_relative_error: float = 0.0
    allowed_relative_error: float = 0.0
    excess: float = 0.0

    def to_data(self) -> dict[str, Any]:
        """Gives plain JSON values; ``null`` for what is infinite."""
        return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in asdict(self).items()}


@dataclass(frozen=True, slots=True)
class RegionCheck:
    """What came out of one call of one region.

    Attributes:
        region: the name of the region's function.
        backend: whose region it is.
        call: which call of it, from 0; in a loop each round is one.
        findings: what is wrong; empty where all is right.
        outputs: the figures of each output, where there are results to compare.
    """

    region: str
    backend: str
    call: int
    findings: tuple[Finding, ...]
    outputs: tuple[OutputError, ...]

    @property
    def is_right(self) -> bool:
        """Whether nothing diverges. A region that was refused does not."""
        return all(finding.code == REFUSED for finding in self.findings)

    @property
    def verdict(self) -> str:
        """The code of the first finding, or ``right``."""
        return self.findings[0].code if self.findings else "right"

    @property
    def excess(self) -> float:
        """The largest error over the allowed one; infinite where something else than an error of values is wrong."""
        if any(finding.code not in ("wrong-values", REFUSED) for finding in self.findings):
            return math.inf
        return max((output.excess for output in self.outputs), default=0.0)

    @property
    def worst(self) -> OutputError | None:
        """The figures of the output with the largest excess."""
        return max(self.outputs, key=lambda output: output.excess, default=None)

    def to_data(self) -> dict[str, Any]:
        """Gives plain JSON values."""
        return {
            "region": self.region,
            "backend": self.backend,
            "call": self.call,
            "verdict": self.verdict,
            "findings": [asdict(finding) for finding in self.findings],
            "outputs": [output.to_data() for output in self.outputs],
        }

    def __str__(self) -> str:
        lines = [f"region `{self.region}` on `{self.backend}`, call {self.call}: {self.verdict}"]
        lines += [f"  {finding.code}: {finding.text}" for finding in self.findings]
        lines += [
            f"  {o.name} ({o.dtype}): error {o.max_abs_error:.3g}, relative {o.relative_error:.3g}, "
            f"allowed {o.allowed_relative_error:.3g}, the host's own {o.host_relative_error:.3g}"
            for o in self.outputs
        ]
        return "\n".join(lines)
