"""Answers to "can you take this?": a yes, or a no with its reason. Values, not exceptions."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Rejection", "Support"]


@dataclass(frozen=True, slots=True)
class Support:
    """Yes."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """No, and why.

    Attributes:
        code: stable, lower case with hyphens (``"dtype"``, ``"dynamic-shape"``): reports group by it.
            The lint lists the ops that are refused by the code ``"new-op"``.
        text: one clause for a person, with the values at fault.
    """

    code: str
    text: str

    @classmethod
    def of_new_op(cls, op: str) -> Rejection:
        """Return the rejection of an op for which the backend has neither a rule nor a reason yet."""
        return cls("new-op", f"this backend has not looked at `{op}` yet")
