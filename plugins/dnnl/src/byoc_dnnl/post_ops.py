"""Extras of a primitive beside its own computation: post-ops, and scales and zero points of integers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from byoc_dnnl.capi import DATA_TYPE_UNDEF, SCRATCHPAD_USER, Algorithm
from byoc_dnnl.handles import Engine, Handle, MemoryDesc

__all__ = ["Attributes", "PostOp", "Scaling"]


class PostOp:
    """An operation on each element of a primitive's result: a function, or an operation with a second operand.

    With ``Algorithm.UNDEF``, a primitive adds the previous contents of the destination.

    Args:
        algorithm: the operation.
        alpha: the first parameter of a function.
        operand: the description of the second operand of a binary operation.
        beta: the second parameter of a function.
        dtype: the dtype of the primitive's result, if this post-op decides the dtype.
    """

    __slots__ = ("algorithm", "alpha", "beta", "dtype", "operand")

    def __init__(
        self,
        algorithm: Algorithm,
        alpha: float = 0.0,
        operand: MemoryDesc | None = None,
        beta: float = 0.0,
        dtype: str | None = None,
    ) -> None:
        self.algorithm, self.alpha, self.operand, self.beta, self.dtype = algorithm, alpha, operand, beta, dtype

    @property
    def key(self) -> tuple[object, ...]:
        """A key, equal for equal post-ops; part of a primitive's recipe (:mod:`byoc_dnnl.primitive_cache`)."""
        operand = self.operand and self.operand.identity()
        return self.algorithm, float(self.alpha).hex(), float(self.beta).hex(), operand, self.dtype

    @property
    def request(self) -> tuple[object, ...]:
        """A key, equal for equal post-ops with the same description of the operand."""
        operand = self.operand and self.operand.token
        return self.algorithm, float(self.alpha).hex(), float(self.beta).hex(), operand


class Scaling(NamedTuple):
    """The integer arguments with scales and zero points; scales and zero points are arguments themselves.

    Attributes:
        scales: masks by argument: the axes with a scale for each index; 0: a single scale.
        zero_points: arguments with a single zero point.
    """

    scales: Mapping[int, int] = MappingProxyType({})
    zero_points: tuple[int, ...] = ()

    @property
    def key(self) -> tuple[object, ...]:
        """A key, equal for equal scales and zero points."""
        return tuple(sorted(self.scales.items())), self.zero_points


class _PostOps(Handle):
    __slots__ = ()
    _destroy = "dnnl_post_ops_destroy"


class Attributes(Handle):
    """Attributes of a primitive: external scratch memory, post-ops, and scales of integers."""

    __slots__ = ()
    _destroy = "dnnl_primitive_attr_destroy"

    def __init__(self, engine: Engine, post_ops: Iterable[PostOp] = (), scaling: Scaling | None = None) -> None:
        api = engine.api
        super().__init__(api, "dnnl_primitive_attr_create")
        api.call("dnnl_primitive_attr_set_scratchpad_mode", self, SCRATCHPAD_USER)
        chain = _PostOps(api, "dnnl_post_ops_create")
        for post_op in post_ops:
            if post_op.algorithm is Algorithm.UNDEF:
                api.call("dnnl_post_ops_append_sum", chain, 1.0, 0, DATA_TYPE_UNDEF)
            elif post_op.operand is None:
                name = "dnnl_post_ops_append_eltwise"
                api.call(name, chain, post_op.algorithm, post_op.alpha, post_op.beta)
            else:
                name = "dnnl_post_ops_append_binary"
                api.call(name, chain, post_op.algorithm, post_op.operand)
        api.call("dnnl_primitive_attr_set_post_ops", self, chain)
        scaling = scaling or Scaling()
        for argument, mask in scaling.scales.items():
            api.call("dnnl_primitive_attr_set_scales_mask", self, argument, mask)
        for argument in scaling.zero_points:
            api.call("dnnl_primitive_attr_set_zero_points_mask", self, argument, 0)
