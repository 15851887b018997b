"""An op under differentiation, and the forms of rules."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

from byoc_core.errors import IRError
from byoc_core.ir import Binding
from byoc_core.transform.gradients.terms import Emitter, Term

__all__ = ["Derivative", "Pullback", "Rule", "by_operand", "constant_between_steps", "elementwise", "label_of"]


class Pullback:
    """An op under differentiation, as seen by the rule of the op.

    Args:
        emitter: the emitter of ops.
        binding: the use of the op.
        cotangents: the cotangent of each result; ``None`` for a result without influence on the differentiated number.
        active: the ids of the values depending on the variables of the differentiation.

    Attributes:
        emitter: the emitter of ops.
        binding: the use of the op.
    """

    def __init__(
        self, emitter: Emitter, binding: Binding, cotangents: Sequence[Term | None], active: Container[int]
    ) -> None:
        self.emitter = emitter
        self.binding = binding
        self._cotangents = cotangents
        self._active = active

    @property
    def attrs(self) -> Mapping[str, Any]:
        """The attributes of the op."""
        return self.binding.attrs

    @property
    def num_operands(self) -> int:
        """The number of operands."""
        return len(self.binding.operands)

    def needs(self, index: int) -> bool:
        """Return whether an operand depends on the variables, so its cotangent is needed."""
        return id(self.binding.operands[index]) in self._active

    def operand(self, index: int = 0) -> Term:
        """Return an operand."""
        return Term(self.emitter, self.binding.operands[index])

    def result(self, index: int = 0) -> Term:
        """Return a result."""
        return Term(self.emitter, self.binding.results[index])

    def has_cotangent(self, index: int) -> bool:
        """Return whether a result influences the differentiated number."""
        return self._cotangents[index] is not None

    def cotangent(self, index: int = 0) -> Term:
        """Return the cotangent of a result: zeros for a result without influence."""
        cotangent = self._cotangents[index]
        result = self.result(index)
        return self.emitter.full(0, result.shape, result.dtype) if cotangent is None else cotangent

    def refusal(self, reason: str) -> IRError:
        """Return the error for a variant of the op without derivative; the reason continues ``has no derivative``."""
        return IRError(label_of(self.binding), f"has no derivative {reason}")


def label_of(binding: Binding) -> str:
    """Return the label of an op in messages: its name, and the origin if stated."""
    origin = "" if binding.location is None else f" of `{binding.location.name or binding.location}`"
    return f"op `{binding.op.name}`{origin}"


Rule = Callable[[Pullback], Sequence[Term | None]]
"""Returns the cotangent of each operand; ``None`` for a cotangent of zeros. Cotangents of operands not needed are not
read. A cotangent has the elements of its operand's shape."""

Derivative = Callable[[Pullback], Term]
"""Returns the cotangent of a single operand."""


def constant_between_steps(pullback: Pullback) -> Sequence[Term | None]:
    """Return cotangents of zeros: the rule of ops with a derivative of 0 except at steps."""
    return [None] * pullback.num_operands


def by_operand(*derivatives: Derivative | None) -> Rule:
    """Return the rule of an op from the derivatives by the operands; ``None`` refuses a derivative by an operand."""

    def rule(pullback: Pullback) -> Sequence[Term | None]:
        cotangents: list[Term | None] = []
        for index, derivative in enumerate(derivatives):
            if not pullback.needs(index):
                cotangents.append(None)
            elif derivative is None:
                name = pullback.binding.op.operand_names(pullback.num_operands)[index]
                raise pullback.refusal(f"by operand `{name}`")
            else:
                cotangents.append(derivative(pullback))
        return cotangents

    return rule


def elementwise(*derivatives: Derivative | None) -> Rule:
    """Return the rule of an op with broadcast operands: each cotangent is summed to the shape of the operand."""
    rule = by_operand(*derivatives)

    def summed(pullback: Pullback) -> Sequence[Term | None]:
        return [
            None if cotangent is None else cotangent.sum_to(pullback.operand(index).shape)
            for index, cotangent in enumerate(rule(pullback))
        ]

    return summed
