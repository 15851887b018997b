"""Primitive descriptors of the kinds used here: a method for each kind, over memory descriptors.

A method returns ``None`` if oneDNN has no implementation for the case. Reference implementations are returned too;
:meth:`~byoc_dnnl.planner.Planner.accepts` refuses them in strict plans.
"""

from __future__ import annotations

import ctypes
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from byoc_dnnl.capi import (
    FORWARD_INFERENCE,
    Algorithm,
    Api,
    DimsArray,
    Direction,
    NormalizationFlags,
    Status,
    dims_array,
    failure,
)
from byoc_dnnl.handles import Engine, MemoryDesc, PrimitiveDesc
from byoc_dnnl.post_ops import Attributes, PostOp, Scaling

__all__ = ["PrimitiveFactory", "RecurrentLayer", "Windows"]


class Windows:
    """The motion of windows over spatial axes.

    Args:
        strides: the step between windows.
        dilation: the step between the taps of a window; 1: no element is skipped.
        before: padding before each axis.
        after: padding after each axis; negative if the last elements are not read.
    """

    __slots__ = ("after", "before", "dilation", "strides")

    def __init__(
        self, strides: Sequence[int], dilation: Sequence[int], before: Sequence[int], after: Sequence[int]
    ) -> None:
        self.strides, self.before, self.after = (dims_array(tuple(x)) for x in (strides, before, after))
        self.dilation = dims_array(tuple(step - 1 for step in dilation))  # oneDNN counts the skipped elements

    @property
    def parameters(self) -> tuple[DimsArray, ...]:
        """The arguments of the C API in order, without the sizes of windows."""
        return self.strides, self.dilation, self.before, self.after

    @property
    def key(self) -> tuple[object, ...]:
        """A key, equal for equal windows."""
        return tuple([array.numbers for array in self.parameters])


@dataclass(frozen=True, slots=True)
class RecurrentLayer:
    """The layouts of the tensors of a recurrent layer.

    Attributes:
        direction: the order of the steps.
        source: ``(T, N, I)``.
        state: ``(1, D, N, H)``: each state before the first step, and after the last.
        weights: weights of the input, ``(1, D, I, G, H)``.
        recurrence: weights of the state, ``(1, D, H, G, H)``.
        bias: ``(1, D, G, H)``, with an additional gate if the reset gate comes after the matrix.
        target: ``(T, N, D * H)``.
        writes_states: whether the last states are written.
    """

    direction: Direction
    source: MemoryDesc
    state: MemoryDesc
    weights: MemoryDesc
    recurrence: MemoryDesc
    bias: MemoryDesc
    target: MemoryDesc
    writes_states: bool

    def descs(self, num_states: int) -> tuple[MemoryDesc | None, ...]:
        """Return the descriptions in oneDNN's order."""
        states, last = [self.state] * num_states, [self.state if self.writes_states else None] * num_states
        unused = [None, None] if num_states > 1 else []  # neither peepholes nor a projection
        return (self.source, *states, self.weights, self.recurrence, *unused, self.bias, self.target, *last)


class PrimitiveFactory:
    """A maker of primitive descriptors in an engine."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    @property
    def _api(self) -> Api:
        return self.engine.api

    def windows(self, *motion: tuple[int, ...]) -> Windows:
        """Return windows for arguments of :class:`Windows`; for recent arguments the same object."""
        recent = self.engine.windows
        found = recent.get(motion, None)
        return found or recent.put(motion, Windows(*motion))

    def reorder(self, source: MemoryDesc, target: MemoryDesc) -> PrimitiveDesc:
        """Describe a copy of a tensor into another layout or dtype; every pair of layouts has a reorder."""
        primitive = self.conversion(source, target, Scaling())
        if primitive is None:
            raise failure("dnnl_reorder_primitive_desc_create", Status.UNIMPLEMENTED)
        return primitive

    def conversion(self, source: MemoryDesc, target: MemoryDesc, scaling: Scaling) -> PrimitiveDesc | None:
        """Describe a copy of a tensor into another layout or dtype, with scales and zero points."""
        descs = (source, self.engine, target, self.engine)
        return self._make("dnnl_reorder_primitive_desc_create", descs, scaling=scaling)

    def convolution(
        self,
        source: MemoryDesc,
        weights: MemoryDesc,
        bias: MemoryDesc | None,
        target: MemoryDesc,
        windows: Windows,
        post_ops: Sequence[PostOp],
        scaling: Scaling | None = None,
        number: int = 0,
    ) -> PrimitiveDesc | None:
        """Describe a convolution; weights are ``(O, I, ...)``, in groups ``(G, O, I, ...)``.

        ``number`` is the number of oneDNN's implementations passed over.
        """
        descs = (source, weights, bias, target)
        parameters = (FORWARD_INFERENCE, Algorithm.CONVOLUTION_DIRECT, *descs, *windows.parameters)
        name = "dnnl_convolution_forward_primitive_desc_create"
        primitive = self._make_in_engine(name, *parameters, post_ops=post_ops, scaling=scaling, number=number)
        return self._with_recipe(primitive, name, descs, windows, post_ops, scaling)

    def deconvolution(
        self,
        source: MemoryDesc,
        weights: MemoryDesc,
        target: MemoryDesc,
        windows: Windows,
        post_ops: Sequence[PostOp],
    ) -> PrimitiveDesc | None:
        """Describe a transposed convolution: windows move over ``target``; weights are as for a convolution."""
        kind = (FORWARD_INFERENCE, Algorithm.DECONVOLUTION_DIRECT)
        parameters = (*kind, source, weights, None, target, *windows.parameters)
        name = "dnnl_deconvolution_forward_primitive_desc_create"
        primitive = self._make_in_engine(name, *parameters, post_ops=post_ops)
        return self._with_recipe(primitive, name, (source, weights, target), windows, post_ops)

    def matmul(
        self,
        source: MemoryDesc,
        weights: MemoryDesc,
        bias: MemoryDesc | None,
        target: MemoryDesc,
        post_ops: Sequence[PostOp],
        scaling: Scaling | None = None,
        number: int = 0,
    ) -> PrimitiveDesc | None:
        """Describe a product of (stacks of) matrices, all of equal rank; leading axes of size 1 are broadcast.

        ``number`` is the number of oneDNN's implementations passed over.
        """
        descs = (source, weights, bias, target)
        name = "dnnl_matmul_primitive_desc_create"
        return self._make_in_engine(name, *descs, post_ops=post_ops, scaling=scaling, number=number)

    def eltwise(self, function: PostOp, desc: MemoryDesc, post_ops: Sequence[PostOp]) -> PrimitiveDesc | None:
        """Describe a function of each element; the result has the layout of the operand."""
        parameters = (FORWARD_INFERENCE, function.algorithm, desc, desc, function.alpha, function.beta)
        return self._make_in_engine("dnnl_eltwise_forward_primitive_desc_create", *parameters, post_ops=post_ops)

    def binary(
        self,
        algorithm: Algorithm,
        left: MemoryDesc,
        right: MemoryDesc,
        post_ops: Sequence[PostOp],
        target: MemoryDesc | None = None,
        scaling: Scaling | None = None,
    ) -> PrimitiveDesc | None:
        """Describe an elementwise operation on ``left`` and ``right``; axes of ``right`` with size 1 are broadcast.

        For a post-op's operand ``(1, C, 1, ...)`` and a result ``(N, C, 1, ...)``, oneDNN 3.2 reads only the first
        element; this case is refused. The strides of axes of size 1 can make oneDNN take ``(1, 1, 1, W)`` for another
        kind of broadcast and read beyond the tensors. These strides are therefore made plain.
        """
        left, right = left.with_plain_unit_axes(), right.with_plain_unit_axes()
        target = target and target.with_plain_unit_axes()
        images, channels, *spatial = (*left.sizes, 1, 1)
        if 1 not in (images, channels) and set(spatial) == {1} and len(left.sizes) > 2:
            per_channel = (1, *left.sizes[1:])
            if any(post_op.operand is not None and post_op.operand.sizes == per_channel for post_op in post_ops):
                return None
        parameters = (algorithm, left, right, target or left)
        name = "dnnl_binary_primitive_desc_create"
        return self._make_in_engine(name, *parameters, post_ops=post_ops, scaling=scaling)

    def pooling(
        self,
        algorithm: Algorithm,
        source: MemoryDesc,
        target: MemoryDesc,
        window: Sequence[int],
        windows: Windows,
        post_ops: Sequence[PostOp] = (),
    ) -> PrimitiveDesc | None:
        """Describe the largest element, or the mean, of each window."""
        parameters = (FORWARD_INFERENCE, algorithm, source, target)
        geometry = (windows.strides, dims_array(tuple(window)), windows.dilation, windows.before, windows.after)
        name = "dnnl_pooling_forward_primitive_desc_create"
        return self._make_in_engine(name, *parameters, *geometry, post_ops=post_ops)

    def softmax(self, source: MemoryDesc, target: MemoryDesc, axis: int) -> PrimitiveDesc | None:
        """Describe softmax along an axis."""
        parameters = (FORWARD_INFERENCE, Algorithm.SOFTMAX_ACCURATE, source, target, axis)
        name = "dnnl_softmax_forward_primitive_desc_create"
        return self._make_in_engine(name, *parameters)

    def lrn(self, desc: MemoryDesc, size: int, alpha: float, beta: float, bias: float) -> PrimitiveDesc | None:
        """Describe local response normalisation across channels."""
        parameters = (FORWARD_INFERENCE, Algorithm.LRN_ACROSS_CHANNELS, desc, desc, size, alpha, beta, bias)
        name = "dnnl_lrn_forward_primitive_desc_create"
        return self._make_in_engine(name, *parameters)

    def batch_normalization(
        self, desc: MemoryDesc, epsilon: float, post_ops: Sequence[PostOp] = ()
    ) -> PrimitiveDesc | None:
        """Describe batch normalisation with given statistics, scale and shift, over axis 1."""
        flags = NormalizationFlags.USE_GLOBAL_STATS | NormalizationFlags.USE_SCALE | NormalizationFlags.USE_SHIFT
        parameters = (FORWARD_INFERENCE, desc, desc, epsilon, flags)
        name = "dnnl_batch_normalization_forward_primitive_desc_create"
        return self._make_in_engine(name, *parameters, post_ops=post_ops)

    def layer_normalization(self, source: MemoryDesc, target: MemoryDesc, epsilon: float) -> PrimitiveDesc | None:
        """Describe layer normalisation over the last axis, with scale and shift of float32."""
        flags = NormalizationFlags.USE_SCALE | NormalizationFlags.USE_SHIFT
        parameters = (FORWARD_INFERENCE, source, target, None, epsilon, flags)
        name = "dnnl_layer_normalization_forward_primitive_desc_create"
        return self._make_in_engine(name, *parameters)

    def standardisation(self, desc: MemoryDesc, epsilon: float) -> PrimitiveDesc | None:
        """Describe layer normalisation over the last axis, without scale and shift."""
        name = "dnnl_layer_normalization_forward_primitive_desc_create"
        return self._make_in_engine(name, FORWARD_INFERENCE, desc, desc, None, epsilon, NormalizationFlags.NONE)

    def channel_standardisation(self, desc: MemoryDesc, epsilon: float) -> PrimitiveDesc | None:
        """Describe normalisation of each channel (axis 1) by the channel's own statistics, with scale and shift."""
        flags = NormalizationFlags.USE_SCALE | NormalizationFlags.USE_SHIFT
        name = "dnnl_batch_normalization_forward_primitive_desc_create"
        return self._make_in_engine(name, FORWARD_INFERENCE, desc, desc, epsilon, flags)

    def resampling(self, algorithm: Algorithm, source: MemoryDesc, target: MemoryDesc) -> PrimitiveDesc | None:
        """Describe the resizing of an image, by nearest elements or linear interpolation at half-pixel coordinates."""
        parameters = (FORWARD_INFERENCE, algorithm, None, source, target)
        return self._make_in_engine("dnnl_resampling_forward_primitive_desc_create", *parameters)

    def prelu(self, source: MemoryDesc, slopes: MemoryDesc) -> PrimitiveDesc | None:
        """Describe a multiplication of negative elements by slopes; axes of the slopes with size 1 are broadcast."""
        parameters = (FORWARD_INFERENCE, source, slopes, source)
        return self._make_in_engine("dnnl_prelu_forward_primitive_desc_create", *parameters)

    def reduction(
        self, algorithm: Algorithm, source: MemoryDesc, target: MemoryDesc, post_ops: Sequence[PostOp] = ()
    ) -> PrimitiveDesc | None:
        """Describe a reduction of the axes with size 1 in ``target``."""
        parameters = (algorithm, source, target, 0.0, 0.0)
        return self._make_in_engine("dnnl_reduction_primitive_desc_create", *parameters, post_ops=post_ops)

    def concat(self, axis: int, sources: Sequence[MemoryDesc], target: MemoryDesc) -> PrimitiveDesc | None:
        """Describe a concatenation of tensors along an axis."""
        parameters = (target, len(sources), axis, tuple(sources))
        return self._make_in_engine("dnnl_concat_primitive_desc_create", *parameters)

    def rnn(self, layer: RecurrentLayer, activation: Algorithm) -> PrimitiveDesc | None:
        """Describe a plain recurrent layer."""
        parameters = (FORWARD_INFERENCE, activation, layer.direction, *layer.descs(1), 0, 0.0, 0.0)
        name = "dnnl_vanilla_rnn_forward_primitive_desc_create"
        return self._make_in_engine(name, *parameters)

    def gru(self, layer: RecurrentLayer, *, linear_before_reset: bool) -> PrimitiveDesc | None:
        """Describe a gated recurrent unit, with gates in the order update, reset, hidden."""
        parameters = (FORWARD_INFERENCE, layer.direction, *layer.descs(1), 0)
        name = f"dnnl_{'lbr_' if linear_before_reset else ''}gru_forward_primitive_desc_create"
        return self._make_in_engine(name, *parameters)

    def lstm(self, layer: RecurrentLayer) -> PrimitiveDesc | None:
        """Describe a long short-term memory, with gates in the order input, forget, cell, output."""
        parameters = (FORWARD_INFERENCE, layer.direction, *layer.descs(2), 0)
        return self._make_in_engine("dnnl_lstm_forward_primitive_desc_create", *parameters)

    def _with_recipe(
        self,
        primitive: PrimitiveDesc | None,
        name: str,
        descs: Sequence[MemoryDesc | None],
        windows: Windows,
        post_ops: Sequence[PostOp],
        scaling: Scaling | None = None,
    ) -> PrimitiveDesc | None:
        """Return the primitive, with a recipe if oneDNN would leak its code (:mod:`byoc_dnnl.primitive_cache`)."""
        if primitive is None or primitive.recipe is not None:
            return primitive
        ends_in_function = any(post_op.operand is None and post_op.algorithm for post_op in post_ops)
        if ends_in_function and "brgconv" in primitive.implementation:
            environment = (self.engine, self.engine.num_threads)
            identities = tuple(desc and desc.identity() for desc in descs)
            scales = scaling and scaling.key
            primitive.recipe = (
                name,
                primitive.implementation,
                environment,
                identities,
                windows.key,
                tuple(post_op.key for post_op in post_ops),
                scales,
            )
        return primitive

    def _make_in_engine(
        self,
        name: str,
        *arguments: object,
        post_ops: Sequence[PostOp] = (),
        scaling: Scaling | None = None,
        number: int = 0,
    ) -> PrimitiveDesc | None:
        return self._make(name, (self.engine, *arguments), post_ops, scaling, number)

    def _make(
        self,
        name: str,
        arguments: Sequence[object],
        post_ops: Sequence[PostOp] = (),
        scaling: Scaling | None = None,
        number: int = 0,
    ) -> PrimitiveDesc | None:
        """Return the primitive descriptor of a request; of a recent equal request the same descriptor.

        The number of threads is a part of the request, because oneDNN plans primitives for the current number.
        """
        engine = self.engine
        request = (
            (name, engine.num_threads, number),
            tuple([arg.token if isinstance(arg, MemoryDesc) else _key(arg) for arg in arguments]),
            tuple([post_op.request for post_op in post_ops]) if post_ops else (),
            scaling and scaling.key,
        )
        found = engine.primitives.get(request, _MISSING)
        if found is _MISSING:
            found = engine.primitives.put(request, self._created(name, arguments, post_ops, scaling, number))
        assert not isinstance(found, _Missing)
        return found

    def _created(
        self, name: str, arguments: Sequence[object], post_ops: Sequence[PostOp], scaling: Scaling | None, number: int
    ) -> PrimitiveDesc | None:
        pointer, attributes = ctypes.c_void_p(), self._attributes(post_ops, scaling)
        status = self._api.attempt(name, ctypes.byref(pointer), *map(_pointers, arguments), attributes)
        if status in (Status.UNIMPLEMENTED, Status.INVALID_ARGUMENTS):
            return None
        if status != Status.SUCCESS:
            raise failure(name, status)
        return _passed_over(PrimitiveDesc(self._api, pointer), number)

    def _attributes(self, post_ops: Sequence[PostOp], scaling: Scaling | None) -> Attributes:
        """Return the attributes of a request; oneDNN copies the attributes into each descriptor."""
        recent = self.engine.attributes
        key = tuple([post_op.request for post_op in post_ops]), scaling and scaling.key
        found = recent.get(key, None)
        return found or recent.put(key, Attributes(self.engine, post_ops, scaling))


class _Missing:
    """No result, not even ``None``."""


_MISSING = _Missing()


def _key(argument: object) -> Hashable:
    """Return an argument other than a description in the form of a key: equal for equal arguments of the C API."""
    if isinstance(argument, int):
        return int(argument)
    if isinstance(argument, float):
        return argument.hex()  # 0 and -0 differ
    if isinstance(argument, DimsArray):
        return argument.numbers
    if isinstance(argument, tuple):
        return tuple([desc.token for desc in argument])
    assert argument is None or isinstance(argument, Engine)
    return None


def _pointers(argument: object) -> object:
    """Return an argument in the form of the C API: several descriptions as an array of pointers."""
    if not isinstance(argument, tuple):
        return argument
    return (ctypes.c_void_p * len(argument))(*(desc.pointer.value for desc in argument))


def _passed_over(primitive: PrimitiveDesc | None, number: int) -> PrimitiveDesc | None:
    """Return the primitive after passing over a number of implementations; ``None`` if there are fewer."""
    for _ in range(number):
        if primitive is None or not primitive.advance():
            return None
    return primitive
