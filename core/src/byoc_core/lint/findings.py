"""What the lint can find, as data: one table of codes, and the finding itself."""

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
    """One kind of finding.

    Attributes:
        severity: ``"error"`` where something cannot work, ``"warning"`` where it may be meant.
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
        "bad-name": _error("the backend's name is not one lower-case word"),
        "bad-info": _error("a field of `BackendInfo` has a value that the core does not know"),
        "bad-options": _error("an option has no default, so the backend cannot be used without options"),
        "bad-status": _error("`byoc_compile_status` raises, or says no without a reason"),
        "bad-ops": _error("`byoc_ops` raises, or gives an op that is defined already"),
        "unstated-kernel": _warning(
            "an op of `byoc_ops` has no kernel, so that neither the host nor a judge computes it"
        ),
        "unstated-flops": _warning(
            "an op of `byoc_ops` states no FLOPs, so that its costs and error bounds are guesses"
        ),
        "unstated-rounding": _warning("an op of `byoc_ops` does not state how far a right result may be off"),
        "unstated-cases": _warning("an op of `byoc_ops` has no canonical cases, so that lint and kit do not try it"),
        "unstated-doc": _warning("an op of `byoc_ops` does not say what it computes"),
        "bad-patterns": _error("`byoc_patterns` raises, or gives something else than patterns"),
        "foreign-name": _error("a pattern is named for another backend"),
        "duplicate-name": _error("two patterns have one name, so codegen and reports cannot tell them apart"),
        "unknown-op": _error("a pattern names an op that does not exist"),
        "operand-count": _error("a pattern gives an op a number of operands that it never has"),
        "bad-attribute": _error("a pattern asks for an attribute, or a value of one, that the op never has"),
        "result-index": _error("a pattern asks for a result that the op never has"),
        "contradiction": _error("conditions on one value cannot hold together"),
        "condition-raises": _error("a condition raises for a value that it may be asked about"),
        "no-root": _error("a pattern ends with no op, so it matches nothing"),
        "no-instance": _warning("no function was found that the pattern matches"),
        "dead-alternative": _warning("no function was found that one reading of the pattern matches"),
        "never-asked": _error("the core turns away every match, so the pattern never takes anything"),
        "shadowed": _error("a pattern that asks for nothing more wins wherever this one matches"),
        "outranked": _warning("another pattern wins in every canonical instance that this one takes"),
        "check-raises": _error("a check raises, which stops the partition"),
        "unknown-capture": _error("a check asks for a capture that the match does not have"),
        "check-type": _error("a check gives neither a `Rejection` nor `None`"),
        "check-changes": _error("a check gives two answers about one match"),
        "check-always-rejects": _warning("a check refuses every canonical instance"),
        "check-never-rejects": _warning("a pattern takes every canonical instance, of odd dtypes and sizes too"),
        "supports-raises": _error("`byoc_supports` raises, which stops the partition"),
        "supports-type": _error("`byoc_supports` gives neither `Support` nor a `Rejection`"),
        "supports-changes": _error("`byoc_supports` gives two answers about one op"),
        "new-op": _warning("`byoc_supports` has neither a rule nor a reason for an op (`Rejection.of_new_op`)"),
        "supports-every-dtype": _warning("`byoc_supports` takes ops that compute in every dtype that they have"),
        "accepts-everything": _warning("`byoc_supports` takes an op that nobody has defined"),
        "unused-capability": _warning("a declared capability is used for none of the canonical cases"),
        "claims-nothing": _warning("neither patterns nor `byoc_supports` take any of the canonical cases"),
        "codegen-refuses": _error("`byoc_codegen` refuses what the backend claimed (with `--compile`)"),
        "codegen-raises": _error("`byoc_codegen` raises for what the backend claimed (with `--compile`)"),
        "not-compiled": _warning("`--compile` was asked for, and the backend cannot compile here"),
    }
)
"""Every code, with what it means."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong with a backend.

    Attributes:
        code: a key of :data:`CODES`.
        where: the object at fault: a pattern, a hook, an op.
        text: what is wrong, as a clause.
        pattern: the pattern's name, ``""`` where the finding is about none.
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
        """Gives the finding as plain data."""
        return {"severity": self.severity, **asdict(self)}

    def __str__(self) -> str:
        """Gives one paragraph."""
        return f"{self.severity}: {self.where}: {self.text} [{self.code}]" + (f". {self.hint}" if self.hint else "")


def clause_of(error: ByocError) -> str:
    """Gives what an error says is wrong, without its place and its hint."""
    return str(ByocError("", error.problem, got=error.got, expected=error.expected)).removeprefix(": ")
