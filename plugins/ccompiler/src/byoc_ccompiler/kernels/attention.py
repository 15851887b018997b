"""Attention: tiles where the heads are known and small, rows of scores otherwise."""

from __future__ import annotations

from byoc_core.backend.hooks import Rejection
from byoc_core.ir import Binding

from byoc_ccompiler.family import Access, KernelFamily
from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.attention_rows import require_attention, write_rows
from byoc_ccompiler.kernels.attention_tiles import is_suited, write_attention
from byoc_ccompiler.rejections import operand_shape, reject_non_floats
from byoc_ccompiler.steps import Step

__all__ = ["FAMILY"]


def _reject(binding: Binding) -> Rejection | None:
    """Refuses numbers of heads of which only running shows whether one divides the other."""
    heads, groups = operand_shape(binding, 0)[1], operand_shape(binding, 1)[1]
    are_known = isinstance(heads, int) and isinstance(groups, int)
    # What is recognised as attention may have any number of heads, but as many groups, or a known part of them.
    if not are_known and (groups == 0 or heads % groups != 0):
        return Rejection("dynamic-shape", "nn.attention is compiled for known numbers of heads")
    return reject_non_floats(binding)


def _write(kernel: Kernel) -> None:
    """Writes the kernel of ``nn.attention``."""
    (step,) = kernel.group.steps
    (write_attention if is_suited(step) else write_rows)(kernel)


def _access(step: Step, index: int) -> Access:
    return Access.ANY if is_suited(step) else Access.COMPACT


FAMILY = KernelFamily(
    frozenset({"nn.attention"}), _reject, _write, require=require_attention, reads=_access, writes=_access
)
"""Attention."""
