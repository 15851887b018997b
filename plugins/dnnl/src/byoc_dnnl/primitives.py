"""Primitive descriptors of the kinds used here: one method for each, over memory descriptors.

A method gives ``None`` where oneDNN has no implementation for the case.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from byoc_dnnl.capi import FORWARD_INFERENCE, Algorithm, Api, NormalizationFlags, Status, dims_array, failure
from byoc_dnnl.handles import Attributes, Engine, MemoryDesc, PostOp, PrimitiveDesc

__all__ = ["Windows", "Workshop"]


class Windows:
    """How windows go over spatial axes.

    Args:
        strides: the step between windows.
        dilation: the step between the taps of a window; 1: none is left out.
        before: padding before each axis.
        after: padding after each axis; negative where the last elements are not read.
    """

    __slots__ = ("after", "before", "dilation", "strides")

    def __init__(
        self, strides: Sequence[int], dilation: Sequence[int], before: Sequence[int], after: Sequence[int]
    ) -> None:
        self.strides, self.before, self.after = (dims_array(tuple(x)) for x in (strides, before, after))
        self.dilation = dims_array(tuple(step - 1 for step in dilation))  # oneDNN counts what is left out


class Workshop:
    """Makes primitive descriptors in an engine."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    @property
    def _api(self) -> Api:
        return self.engine.api

    def reorder(self, source: MemoryDesc, target: MemoryDesc) -> PrimitiveDesc:
        """Gives what copies a tensor into another layout; every pair of layouts has one."""
        descs = (source, self.engine, target, self.engine)
        made = self._make("dnnl_reorder_primitive_desc_create", *descs, Attributes(self.engine))
        if made is None:
            raise failure("dnnl_reorder_primitive_desc_create", Status.UNIMPLEMENTED)
        return made

    def convolution(
        self,
        source: MemoryDesc,
        weights: MemoryDesc,
        bias: MemoryDesc | None,
        target: MemoryDesc,
        windows: Windows,
        post_ops: Sequence[PostOp],
    ) -> PrimitiveDesc | None:
        """Gives a convolution; weights are ``(O, I, ...)``, in groups ``(G, O, I, ...)``."""
        attributes = Attributes(self.engine, post_ops)
        descs = (source, weights, bias, target)
        geometry = (windows.strides, windows.dilation, windows.before, windows.after)
        kind = (FORWARD_INFERENCE, Algorithm.CONVOLUTION_DIRECT)
        name = "dnnl_convolution_forward_primitive_desc_create"
        return self._make_in_engine(name, *kind, *descs, *geometry, attributes)

    def matmul(
        self,
        source: MemoryDesc,
        weights: MemoryDesc,
        bias: MemoryDesc | None,
        target: MemoryDesc,
        post_ops: Sequence[PostOp],
    ) -> PrimitiveDesc | None:
        """Gives a product of (stacks of) matrices, all of one rank; leading axes of size 1 are repeated."""
        attributes = Attributes(self.engine, post_ops)
        descs = (source, weights, bias, target)
        return self._make_in_engine("dnnl_matmul_primitive_desc_create", *descs, attributes)

    def eltwise(
        self, algorithm: Algorithm, alpha: float, desc: MemoryDesc, post_ops: Sequence[PostOp]
    ) -> PrimitiveDesc | None:
        """Gives a function of each element; the result lies as the operand does."""
        attributes = Attributes(self.engine, post_ops)
        what = (FORWARD_INFERENCE, algorithm, desc, desc, alpha, 0.0)
        return self._make_in_engine("dnnl_eltwise_forward_primitive_desc_create", *what, attributes)

    def binary(
        self, algorithm: Algorithm, left: MemoryDesc, right: MemoryDesc, post_ops: Sequence[PostOp]
    ) -> PrimitiveDesc | None:
        """Gives an operation on each element of ``left`` and one of ``right``, whose axes of size 1 are repeated."""
        what = (algorithm, left, right, left)
        attributes = Attributes(self.engine, post_ops)
        return self._make_in_engine("dnnl_binary_primitive_desc_create", *what, attributes)

    def pooling(
        self, algorithm: Algorithm, source: MemoryDesc, target: MemoryDesc, window: Sequence[int], windows: Windows
    ) -> PrimitiveDesc | None:
        """Gives the largest element, or the mean, of each window."""
        what = (FORWARD_INFERENCE, algorithm, source, target)
        geometry = (windows.strides, dims_array(tuple(window)), windows.dilation, windows.before, windows.after)
        name = "dnnl_pooling_forward_primitive_desc_create"
        return self._make_in_engine(name, *what, *geometry, Attributes(self.engine))

    def softmax(self, desc: MemoryDesc, axis: int) -> PrimitiveDesc | None:
        """Gives softmax along an axis."""
        what = (FORWARD_INFERENCE, Algorithm.SOFTMAX_ACCURATE, desc, desc, axis)
        name = "dnnl_softmax_forward_primitive_desc_create"
        return self._make_in_engine(name, *what, Attributes(self.engine))

    def lrn(self, desc: MemoryDesc, size: int, alpha: float, beta: float, bias: float) -> PrimitiveDesc | None:
        """Gives local response normalisation across channels."""
        what = (FORWARD_INFERENCE, Algorithm.LRN_ACROSS_CHANNELS, desc, desc, size, alpha, beta, bias)
        name = "dnnl_lrn_forward_primitive_desc_create"
        return self._make_in_engine(name, *what, Attributes(self.engine))

    def batch_normalization(self, desc: MemoryDesc, epsilon: float) -> PrimitiveDesc | None:
        """Gives batch normalisation with given statistics, scale and shift, over axis 1."""
        flags = NormalizationFlags.USE_GLOBAL_STATS | NormalizationFlags.USE_SCALE | NormalizationFlags.USE_SHIFT
        what = (FORWARD_INFERENCE, desc, desc, epsilon, flags)
        name = "dnnl_batch_normalization_forward_primitive_desc_create"
        return self._make_in_engine(name, *what, Attributes(self.engine))

    def layer_normalization(self, desc: MemoryDesc, epsilon: float) -> PrimitiveDesc | None:
        """Gives layer normalisation over the last axis, with scale and shift."""
        flags = NormalizationFlags.USE_SCALE | NormalizationFlags.USE_SHIFT
        what = (FORWARD_INFERENCE, desc, desc, None, epsilon, flags)
        name = "dnnl_layer_normalization_forward_primitive_desc_create"
        return self._make_in_engine(name, *what, Attributes(self.engine))

    def reduction(self, algorithm: Algorithm, source: MemoryDesc, target: MemoryDesc) -> PrimitiveDesc | None:
        """Gives what brings the axes that have size 1 in ``target`` to one element."""
        what = (algorithm, source, target, 0.0, 0.0, Attributes(self.engine))
        return self._make_in_engine("dnnl_reduction_primitive_desc_create", *what)

    def concat(self, axis: int, sources: Sequence[MemoryDesc], target: MemoryDesc) -> PrimitiveDesc | None:
        """Gives what joins tensors along an axis."""
        pointers = (ctypes.c_void_p * len(sources))(*(source.pointer.value for source in sources))
        what = (target, len(sources), axis, pointers, Attributes(self.engine))
        return self._make_in_engine("dnnl_concat_primitive_desc_create", *what)

    def _make_in_engine(self, name: str, *arguments: object) -> PrimitiveDesc | None:
        return self._make(name, self.engine, *arguments)

    def _make(self, name: str, *arguments: object) -> PrimitiveDesc | None:
        pointer = ctypes.c_void_p()
        status = self._api.attempt(name, ctypes.byref(pointer), *arguments)
        if status in (Status.UNIMPLEMENTED, Status.INVALID_ARGUMENTS):
            return None
        if status != Status.SUCCESS:
            raise failure(name, status)
        return PrimitiveDesc(self._api, pointer)
