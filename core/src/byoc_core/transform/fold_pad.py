"""Folding of explicit padding into the windows of convolution and pooling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from byoc_core.ir import Binding, IRModule, Value
from byoc_core.transform.pass_ import Pass
from byoc_core.transform.rewriter import RewriteGraph, Rules, rewrite_module

__all__ = ["FoldPad"]


@dataclass(frozen=True)
class FoldPad(Pass):
    """Folding of ``nn.pad`` of zeros on spatial axes into convolution and average pooling (one to three axes).

    The numbers stay the same bit for bit. Folding into average pooling needs: no ``ceil_mode``; zeros included in the
    count (``count_include_pad``, or no padding of the pooling yet); padding smaller than the window.
    """

    def __call__(self, module: IRModule) -> IRModule:
        """Return the module with zeros folded into windows. Cost: linear."""
        return rewrite_module(module, _RULES)


def _fold_into_conv(binding: Binding, graph: RewriteGraph) -> Sequence[Value] | None:
    found = _find_zeros(binding, graph, str(binding.attrs["data_layout"]))
    if found is None:
        return None
    image, padding = found
    attrs = {**binding.attrs, "padding": padding}
    return (graph.emit(binding.op.name, (image, binding.operands[1]), attrs),)


def _fold_into_avg_pool(binding: Binding, graph: RewriteGraph) -> Sequence[Value] | None:
    attrs: dict[str, Any] = dict(binding.attrs)
    found = _find_zeros(binding, graph, attrs["layout"])
    if found is None or attrs["ceil_mode"] or not (attrs["count_include_pad"] or not any(attrs["padding"])):
        return None
    image, padding = found
    reach = [(size - 1) * step + 1 for size, step in zip(attrs["pool_size"], attrs["dilation"], strict=True)]
    if any(width >= reach[side % len(reach)] for side, width in enumerate(padding)):
        return None
    return (graph.emit(binding.op.name, (image,), {**attrs, "padding": padding, "count_include_pad": True}),)


def _find_zeros(binding: Binding, graph: RewriteGraph, layout: str) -> tuple[Value, tuple[int, ...]] | None:
    """Return the image before zero padding, and the total padding; ``None`` without foldable zeros."""
    pad = graph.maker(binding.operands[0], "nn.pad")
    if pad is None:
        return None
    attrs: dict[str, Any] = dict(pad.attrs)
    widths = list(zip(attrs["pad_width"][::2], attrs["pad_width"][1::2], strict=True))
    if attrs["pad_value"] != 0 or math.copysign(1, attrs["pad_value"]) < 0:
        return None
    if any(any(widths[layout.index(axis)]) for axis in "NC"):
        return None
    spatial = [widths[layout.index(axis)] for axis in "DHW" if axis in layout]
    added = [*(before for before, _ in spatial), *(after for _, after in spatial)]
    own: Any = binding.attrs["padding"]
    return pad.operands[0], tuple(mine + more for mine, more in zip(own, added, strict=True))


_RULES: Rules = {
    **{f"nn.conv{rank}d": (_fold_into_conv,) for rank in (1, 2, 3)},
    **{f"nn.avg_pool{rank}d": (_fold_into_avg_pool,) for rank in (1, 2, 3)},
}
