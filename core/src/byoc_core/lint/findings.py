"""The possible findings of the lint, as data: one table of codes, and the finding itself.

Codes and fields appear in the JSON of ``byoc lint-backend``. The table in ``docs/write-a-backend.md`` repeats all
codes, severities and meanings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Literal

from byoc_core.errors import ByocError

__all__ = ["CODES", "Code", "Finding", "Severity", "clause_of"]

Severity = Literal["error", "warning"]
"""``"error"`` for a fault of the backend, ``"warning"`` for a doubt."""


@dataclass(frozen=True, slots=True)
class Code:
    """A kind of finding.

    Attributes:
        severity: ``"error"`` if something cannot work, ``"warning"`` if the behaviour may be intended.
        meaning: one clause.
    """

    severity: Severity
    meaning: str


def _error(meaning: str) -> Code:
    return Code("error", meaning)


def _warning(meaning: str) -> Code:
    return Code("warning", meaning)


CODES: Mapping[str, Code] = MappingProxyType(
    {
        "bad-name": _error("the backend's name is not a single lower-case word"),
        "bad-info": _error("a field of `BackendInfo` has a value unknown to the core"),
        "bad-options": _error("an option has no default, so the backend cannot be used without options"),
        "bad-status": _error("`byoc_compile_status` raises, or refuses without a reason"),
        "bad-ops": _error("`byoc_ops` raises, or returns an op defined already"),
        "unstated-kernel": _warning("an op of `byoc_ops` has no kernel: the host and the judge cannot compute the op"),
        "unstated-flops": _warning("an op of `byoc_ops` states no FLOPs: costs and error bounds are guesses"),
        "unstated-rounding": _warning("an op of `byoc_ops` does not state the allowed error of results"),
        "unstated-cases": _warning("an op of `byoc_ops` has no canonical cases: lint and kit do not try the op"),
        "unstated-doc": _warning("an op of `byoc_ops` has no description of the computation"),
        "bad-patterns": _error("`byoc_patterns` raises, or returns anything but patterns"),
        "foreign-name": _error("a pattern's name does not start with the backend's name"),
        "duplicate-name": _error(
            "two patterns have the same name: codegen and reports cannot distinguish the patterns"
        ),
        "unknown-op": _error("a pattern names an unknown op"),
        "operand-count": _error("a pattern has a number of operands impossible for the op"),
        "bad-attribute": _error("a pattern requires an attribute or attribute value impossible for the op"),
        "result-index": _error("a pattern requires a result index impossible for the op"),
        "contradiction": _error("conditions on the same value contradict each other"),
        "condition-raises": _error("a condition raises for a possible value"),
        "no-root": _error("a pattern does not end with an op, so the pattern matches nothing"),
        "no-instance": _warning("no function matching the pattern was found"),
        "dead-alternative": _warning("no function matching an alternative of the pattern was found"),
        "never-asked": _error("the core rejects every match, so the pattern never claims anything"),
        "shadowed": _error("an equally or less specific pattern wins for every match of this pattern"),
        "outranked": _warning("another pattern wins in every canonical instance claimed by this pattern"),
        "check-raises": _error("a check raises and stops the partition"),
        "unknown-capture": _error("a check requests a capture missing from the match"),
        "check-type": _error("a check returns neither a `Rejection` nor `None`"),
        "check-changes": _error("a check gives two answers for the same match"),
        "check-always-rejects": _warning("a check rejects every canonical instance"),
        "check-never-rejects": _warning(
            "a pattern claims every canonical instance, including unusual dtypes and sizes"
        ),
        "supports-raises": _error("`byoc_supports` raises and stops the partition"),
        "supports-type": _error("`byoc_supports` returns neither `Support` nor a `Rejection`"),
        "supports-changes": _error("`byoc_supports` gives two answers for the same op"),
        "new-op": _warning("`byoc_supports` has neither a rule nor a reason for an op (`Rejection.of_new_op`)"),
        "supports-every-dtype": _warning("`byoc_supports` claims ops with FLOPs in every dtype of the op"),
        "accepts-everything": _warning("`byoc_supports` claims an undefined op"),
        "unused-capability": _warning("a declared capability is used in no canonical case"),
        "claims-nothing": _warning("neither patterns nor `byoc_supports` claim any canonical case"),
        "codegen-refuses": _error("`byoc_codegen` or `byoc_lower` refuses a claimed region (with `--compile`)"),
        "codegen-raises": _error("`byoc_codegen` or `byoc_lower` raises for a claimed region (with `--compile`)"),
        "not-compiled": _warning("`--compile` was requested, but the backend cannot compile here"),
    }
)
"""Every code, with the meaning."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault of a backend.

    Attributes:
        code: a key of :data:`CODES`.
        where: the object at fault: a pattern, a hook, an op.
        text: the fault, as a clause.
        pattern: the pattern's name, ``""`` for a finding about no pattern.
        hint: the next step, as a sentence.
    """

    code: str
    where: str
    text: str
    pattern: str = ""
    hint: str = ""

    @property
    def severity(self) -> Severity:
        """``"error"`` or ``"warning"``."""
        return CODES[self.code].severity

    def as_dict(self) -> dict[str, str]:
        """Return the finding as plain data."""
        return {"severity": self.severity, **asdict(self)}

    def __str__(self) -> str:
        """Return one paragraph."""
        return f"{self.severity}: {self.where}: {self.text} [{self.code}]" + (f". {self.hint}" if self.hint else "")


def clause_of(error: ByocError) -> str:
    """Return the problem stated by an error, without the place and the hint."""
    return str(ByocError("", error.problem, got=error.got, expected=error.expected)).removeprefix(": ")
