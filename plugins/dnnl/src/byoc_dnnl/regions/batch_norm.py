"""Batch normalisation as elementwise operations: post-ops of the op before, or of the first of these operations.

oneDNN's own primitive has no such post-ops, writes float32 past the caches, and takes four to ten times as long with
outermost channels. A plan still uses the primitive if faster (`byoc_dnnl.lowerings.batch_norm`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from byoc_core.ir import Binding, IRModule, Value
from byoc_core.transform import RewriteGraph, Rules, dtype_of, rank_of, rewrite_module

__all__ = ["spell_batch_norm"]


def spell_batch_norm(module: IRModule) -> IRModule:
    """Replace batch normalisation of float32 with constant parameters by ``(x - mean) * scale + beta``.

    ``scale`` is ``gamma / sqrt(variance + epsilon)``, computed in float64 and rounded once. Normalisations behind a
    convolution or product are already folded into the weights. The channels have to be axis 1: along another axis,
    oneDNN's operations have no fast post-ops.
    """
    return rewrite_module(module, _RULES)


def _spell(binding: Binding, graph: RewriteGraph) -> Sequence[Value] | None:
    attrs: dict[str, Any] = dict(binding.attrs)
    rank = rank_of(binding.results[0])
    arrays = [graph.array(operand) for operand in binding.operands[1:]]
    is_known = rank is not None and all(array is not None for array in arrays)
    if not rank or not is_known or attrs["axis"] % rank != 1 or dtype_of(binding.results[0]) != "float32":
        return None
    gamma, beta, mean, variance = (np.asarray(array, np.float64) for array in arrays)
    with np.errstate(all="ignore"):
        scale = (gamma / np.sqrt(variance + attrs["epsilon"])).astype(np.float32)
    is_normal = np.abs(scale) >= np.finfo(np.float32).tiny
    if not (np.isfinite(scale) & (is_normal | (gamma == 0))).all():
        return None
    shape = [1] * rank
    shape[attrs["axis"]] = -1
    centred = graph.emit("subtract", (binding.operands[0], graph.const(mean.astype(np.float32).reshape(shape))))
    scaled = graph.emit("multiply", (centred, graph.const(scale.reshape(shape))))
    return (graph.emit("nn.bias_add", (scaled, graph.const(beta.astype(np.float32))), {"axis": attrs["axis"]}),)


_RULES: Rules = {"nn.batch_norm": (_spell,)}
