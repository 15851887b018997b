"""Answers of a backend to "can you take this?": a yes, or a no with a reason. Values, not exceptions."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Rejection", "Support"]


@dataclass(frozen=True, slots=True)
class Support:
    """The yes: the backend takes the op."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """No, with the reason.

    Attributes:
        code: stable, lower case with hyphens (``"dtype"``, ``"dynamic-shape"``): reports group by the code.
            The lint lists the ops refused by the code ``"new-op"``.
        text: a clause for a person, with the values at fault.
    """

    code: str
    text: str

    @classmethod
    def of_new_op(cls, op: str) -> Rejection:
        """Return the rejection of an op if the backend has neither a rule nor a reason for this op yet."""
        return cls("new-op", f"this backend has neither a rule nor a reason for `{op}` yet")
