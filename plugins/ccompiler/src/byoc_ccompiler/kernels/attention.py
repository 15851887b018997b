"""Attention."""

from __future__ import annotations

from byoc_core.backend.info import Rejection
from byoc_core.ir import Binding

from byoc_ccompiler.family import Access, KernelFamily
from byoc_ccompiler.kernels.attention_tiles import is_suited, write_attention
from byoc_ccompiler.rejections import reject_non_floats
from byoc_ccompiler.steps import Step

__all__ = ["FAMILY"]


def _reject(binding: Binding) -> Rejection | None:
    rejection = reject_non_floats(binding)
    if rejection is None and not is_suited(Step(binding, binding.operands)):
        return Rejection("shape", "nn.attention is compiled for known heads, of up to 512 elements, without scores")
    return rejection


def _any(step: Step, index: int) -> Access:
    return Access.ANY


FAMILY = KernelFamily(frozenset({"nn.attention"}), _reject, write_attention, reads=_any, writes=_any)
"""Attention."""
