"""The rules of all differentiable ops."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from byoc_core.transform.gradients import (
    activations,
    arithmetic,
    attention,
    convolution,
    data_movement,
    normalisation,
    pooling,
    products,
    reductions,
    resampling,
    selection,
)
from byoc_core.transform.gradients.pullback import Rule

__all__ = ["RULES"]

RULES: Mapping[str, Rule] = MappingProxyType(
    {
        **arithmetic.RULES,
        **activations.RULES,
        **products.RULES,
        **convolution.RULES,
        **pooling.RULES,
        **normalisation.RULES,
        **attention.RULES,
        **reductions.RULES,
        **resampling.RULES,
        **data_movement.RULES,
        **selection.RULES,
    }
)
"""The rules, by name of the op of the core. The ``if`` is differentiated by the walk itself."""
