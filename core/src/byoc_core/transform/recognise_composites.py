"""Recognition of ops decomposed by exporters: normalisation, softmax, activations, attention."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from byoc_core.errors import OptionsError, near_names
from byoc_core.ir import IRModule
from byoc_core.transform.pass_ import Pass
from byoc_core.transform.recognition import activations, normalisation
from byoc_core.transform.recognition.attention import attention_rules
from byoc_core.transform.rewriter import Rule, Rules, rewrite_module

__all__ = ["RECOGNISED_OPS", "RecogniseComposites"]

RECOGNISED_OPS = (
    "nn.layer_norm",
    "nn.softmax",
    "nn.gelu",
    "nn.rms_norm",
    "nn.swish",
    "nn.hard_swish",
    "nn.attention",
)
"""The ops recognised by :class:`RecogniseComposites`."""


@dataclass(frozen=True)
class RecogniseComposites(Pass):
    """Replacement of a decomposed op by the op itself, if intermediate values have no other readers.

    - ``nn.layer_norm``: ``(x - mean(x)) / sqrt(mean((x - mean(x))**2) + epsilon) * gamma + beta`` over trailing axes,
      or ``x * f + (beta - mean(x) * f)`` with ``f = gamma / sqrt(...)``; without ``beta``, or without both, if the
      sizes of these axes are known. The square may be a power or a product, the root a power of 1/2, the quotient a
      product with a reciprocal or with a power of -1/2.
    - ``nn.rms_norm``: ``x / sqrt(mean(x**2) + epsilon) * gamma``, likewise; for float16 and bfloat16 also computed in
      float32 between two casts, the same as in the op.
    - ``nn.softmax``: ``exp(x - max(x)) / sum(exp(x - max(x)))`` along one axis. The form without the shift by the
      maximum is left alone: it overflows for inputs handled by ``nn.softmax``.
    - ``nn.gelu``: ``x/2 * (1 + erf(x / sqrt(2)))`` and ``x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 * x**3)))``, with
      the factors in any order. At minus infinity the decomposed forms give NaN, ``nn.gelu`` the limit 0.
    - ``nn.swish``: ``x * sigmoid(alpha * x)`` and ``x / (1 + exp(-alpha * x))``; the limit likewise.
    - ``nn.hard_swish``: ``x * clip(x + 3, 0, 6) / 6`` with any limiter and in any order, and ``x`` times
      ``nn.hard_sigmoid`` of slope 1/6; the limit likewise.
    - ``nn.attention``: ``softmax(query @ permute(key) * scale + mask) @ value`` on four axes, the scale on scores,
      queries or keys, or spread over several of these. Masks are added. Masks may also replace a score (which must be
      finite) by minus infinity, or by the lowest number of the dtype (unchanged by adding a score below ``1e30``). Keys
      and values both repeated for groups of heads are read unrepeated. Only float32 and float64: stages of narrower
      floats are rounded separately, but the op rounds once.

    Constants must be these numbers rounded to the dtype (or to float32 first, for narrower dtypes). The result is the
    same in real numbers. Repeated values must be a single value, and constants folded: run :class:`FoldConstants` and
    :class:`EliminateCommonSubexpressions` before. An op inside another is found if both are among ``ops``: attention of
    a decomposed softmax needs ``nn.softmax`` too.

    A backend with such ops runs the pass when preparing the module::

        def byoc_prepare(self, module):
            return RecogniseComposites(("nn.layer_norm", "nn.gelu"))(module)

    Attributes:
        ops: names of the ops to recognise.
    """

    ops: Sequence[str] = RECOGNISED_OPS

    def __post_init__(self) -> None:
        for name in self.ops:
            if name not in RECOGNISED_OPS:
                hint = near_names(name, RECOGNISED_OPS) or None
                raise OptionsError(
                    "ops", f"`{name}` is not a recognised op", expected=", ".join(RECOGNISED_OPS), hint=hint
                )

    def __call__(self, module: IRModule) -> IRModule:
        """Return the module with decomposed ops replaced. Cost: linear."""
        for walk in range(len(_WALKS)):
            rules = _rules(tuple(name for name in RECOGNISED_OPS if name in self.ops), walk)
            module = rewrite_module(module, rules) if rules else module
        return module


_Family = Callable[[], Iterable[tuple[str, Rule]]]

# Separate walks, because a match of an earlier walk contains matches of later walks.
_WALKS: tuple[dict[str, _Family], ...] = (
    {
        "nn.layer_norm": normalisation.layer_norm_rules,
        "nn.softmax": normalisation.softmax_rules,
        "nn.gelu": activations.gelu_rules,
        "nn.swish": activations.swish_rules,
        "nn.hard_swish": activations.hard_swish_rules,
        "nn.attention": attention_rules,
    },
    {"nn.layer_norm": normalisation.scaled_layer_norm_rules},
    {"nn.layer_norm": normalisation.plain_layer_norm_rules},
    {"nn.rms_norm": normalisation.rms_norm_rules},
    {"nn.rms_norm": normalisation.plain_rms_norm_rules},
)


@cache
def _rules(ops: tuple[str, ...], walk: int) -> Rules:
    rules: dict[str, list[Rule]] = {}
    for op in ops:
        for root, rule in _WALKS[walk][op]() if op in _WALKS[walk] else ():
            rules.setdefault(root, []).append(rule)
    return rules
