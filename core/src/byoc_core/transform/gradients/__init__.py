"""Reverse-mode differentiation of functions of the IR, with a rule for each differentiable op.

:mod:`~byoc_core.transform.gradients.differentiate` walks a function backwards; the families of rules are the other
modules. A rule takes the cotangents of an op's results (the derivatives of the differentiated number with respect to
these results) and emits ops computing the cotangents of the operands. All emitted ops are ops of the core.
"""

from byoc_core.transform.gradients.differentiate import differentiate
from byoc_core.transform.gradients.rules import RULES

__all__ = ["RULES", "differentiate"]
