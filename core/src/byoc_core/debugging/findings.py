"""The possible faults of a region's call, and the figures of the outputs.

Codes and fields appear in the JSON of ``byoc debug``, and findings also in the replies of the isolated process.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any

__all__ = ["REFUSED", "REGION_FINDING_CODES", "OutputError", "RegionCheck", "RegionFinding"]

REFUSED = "refused"
"""The code of a region refused by the region's backend during compilation: the region is not tested, and not wrong."""

REGION_FINDING_CODES: Mapping[str, str] = MappingProxyType(
    {
        "wrong-values": "an output differs from the float64 reference by more than the allowed error",
        "wrong-nonfinite": "an output is NaN or infinite but the reference is not, or the reverse",
        "wrong-shape": "an output with a size known only at run time has another shape than the reference",
        "wrong-signature": "the compiled function has other parameters or results than the region",
        "output-unwritten": "elements of an output are never written",
        "output-read": "the results depend on the contents of the outputs before the call",
        "input-written": "the call changed an input",
        "not-deterministic": "two calls on the same inputs differ, but the backend declares determinism",
        "compile-error": "the backend failed to compile the region",
        "run-error": "the compiled region raised an error",
        "crash": "the process compiling and running the region died",
        "hang": "compiling and running the region took longer than the deadline",
        REFUSED: "the backend's codegen refused the region; nothing was tested",
    }
)
"""Every verdict but ``right``, with the meaning."""


@dataclass(frozen=True, slots=True)
class RegionFinding:
    """A fault of a region's call.

    Attributes:
        code: a key of :data:`REGION_FINDING_CODES`.
        text: the fault and the place.
        output: the index of the output at fault, if any.
    """

    code: str
    text: str
    output: int | None = None


@dataclass(frozen=True, slots=True)
class OutputError:
    """The error of an output against the reference in float64.

    Attributes:
        name: the output's name.
        dtype: the output's dtype.
        max_abs_error: largest difference of an element.
        relative_error: the largest difference over the largest magnitude of the output.
        host_relative_error: the same of the reference kernels in the output's own dtype.
        allowed_relative_error: the largest relative error accepted as rounding.
        excess: the error over the allowed error; above 1 is too much.
    """

    name: str
    dtype: str
    max_abs_error: float = 0.0
    relative_error: float = 0.0
    host_relative_error: float = 0.0
    allowed_relative_error: float = 0.0
    excess: float = 0.0

    def to_data(self) -> dict[str, Any]:
        """Return plain JSON values; ``null`` for infinite values."""
        return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in asdict(self).items()}


@dataclass(frozen=True, slots=True)
class RegionCheck:
    """The outcome of a call of a region.

    Attributes:
        region: the name of the region's function.
        backend: the region's backend.
        call: the number of the region's call, from 0; in a loop each round is a call.
        findings: the faults; empty if all is right.
        outputs: the figures of each output, if there are results to compare.
    """

    region: str
    backend: str
    call: int
    findings: tuple[RegionFinding, ...]
    outputs: tuple[OutputError, ...]

    @property
    def is_right(self) -> bool:
        """Whether nothing diverges. A refused region does not diverge."""
        return all(finding.code == REFUSED for finding in self.findings)

    @property
    def verdict(self) -> str:
        """The code of the first finding, or ``right``."""
        return self.findings[0].code if self.findings else "right"

    @property
    def excess(self) -> float:
        """The largest error over the allowed error; infinite for faults other than errors of values."""
        if any(finding.code not in ("wrong-values", REFUSED) for finding in self.findings):
            return math.inf
        return max((output.excess for output in self.outputs), default=0.0)

    @property
    def worst(self) -> OutputError | None:
        """The figures of the output with the largest excess."""
        return max(self.outputs, key=lambda output: output.excess, default=None)

    def to_data(self) -> dict[str, Any]:
        """Return plain JSON values."""
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
            f"allowed {o.allowed_relative_error:.3g}, host {o.host_relative_error:.3g}"
            for o in self.outputs
        ]
        return "\n".join(lines)
