"""Uses of each differentiable op: the canonical cases of the op, and variants of its attributes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from byoc_core.ir import IRModule, TensorType
from byoc_core.ops import FunctionBuilder, OpCase, OperandCase, default_ops, example, integers

from core.tests.transform.gradients.differences import separated

__all__ = ["CONSTANT_OPERANDS", "DOMAINS", "all_cases", "build_module", "draw_inputs"]

DOMAINS: Mapping[str, tuple[tuple[float, float], ...]] = {
    "divide": ((-2.03, 2.11), (0.51, 2.03)),
    "mod": ((2.07, 2.93), (0.71, 0.99)),
    "power": ((0.31, 2.07), (-2.03, 2.11)),
    "log": ((0.11, 3.07),),
    "sqrt": ((0.11, 3.07),),
    "reciprocal": ((0.31, 3.07),),
    "tan": ((-1.11, 1.07),),
    "asin": ((-0.91, 0.87),),
    "acos": ((-0.91, 0.87),),
    "atanh": ((-0.91, 0.87),),
    "acosh": ((1.21, 3.07),),
    "nn.batch_norm": ((-2.03, 2.11), (-2.03, 2.11), (-2.03, 2.11), (-2.03, 2.11), (0.21, 2.11)),
    "nn.lp_pool1d": ((0.21, 2.11),),
    "nn.lp_pool2d": ((0.21, 2.11),),
    "nn.lp_pool3d": ((0.21, 2.11),),
    "nn.hard_swish": ((-4.0371, 4.1113),),
}
"""The range of each float operand, for ops not smooth everywhere; the last range is for all further operands."""

CONSTANT_OPERANDS: Mapping[str, tuple[int, ...]] = {"nn.rotary_embedding": (1, 2)}
"""The operands of floats without a derivative by the operand."""

_FLAGS = OperandCase((2, 3), "bool")

_SMALL: Mapping[str, tuple[OpCase, ...]] = {
    "nn.conv3d": (
        example((2, 4, 4, 5, 3), (2, 2, 2, 3, 2), strides=(1, 2, 1), padding=(1, 0, 1, 0, 1, 0), groups=2),
        example((2, 4, 5, 3, 2), (3, 2, 2, 2, 2), dilation=(1, 2, 1), data_layout="NDHWC"),
    ),
    "nn.conv3d_transpose": (
        example((2, 4, 2, 3, 2), (4, 2, 2, 3, 2), strides=(1, 2, 1), padding=(1, 0, 1, 0, 1, 0), groups=2),
        example((2, 2, 3, 2, 3), (3, 2, 2, 1, 2), output_padding=(1, 0, 2), data_layout="NDHWC"),
    ),
}
"""Uses in place of the canonical cases, for ops with large canonical cases."""

_POOL_ATTRS: Mapping[str, Mapping[str, Any]] = {"max": {}, "avg": {}, "lp": {"p": 3}}

_VARIANTS: Mapping[str, tuple[OpCase, ...]] = {
    "power": (example((2, 3), ()), example((), (3,))),
    "maximum": (example((3, 1), (2,)),),
    "clip": (example((2, 5), min=-0.5), example((2, 5), max=1.0), example((2, 5), min=-1.0, max=0.5)),
    "mod": (example((2, 3), (3,), fmod=True),),
    "where": (example(_FLAGS, (3,), (2, 1)),),
    "cast": (OpCase("", (OperandCase((2, 3)),), {"dtype": "float64"}),),
    "nn.leaky_relu": (example((2, 5), alpha=0.25),),
    "nn.elu": (example((2, 5), alpha=0.5),),
    "nn.selu": (example((2, 5), alpha=0.5, gamma=2.0),),
    "nn.celu": (example((2, 5), alpha=0.5), example((2, 5), alpha=-1.5)),
    "nn.hard_sigmoid": (example((2, 5), alpha=0.5, beta=0.25),),
    "nn.swish": (example((2, 5), alpha=1.75),),
    "nn.thresholded_relu": (example((2, 5), alpha=0.5),),
    "nn.shrink": (example((2, 5), lambd=0.75, bias=0.5),),
    "nn.conv1d": (example((2, 4, 11), (6, 2, 3), strides=(2,), padding=(2, 1), dilation=(2,), groups=2),),
    "nn.conv2d": (
        example((2, 4, 8, 9), (6, 2, 3, 2), strides=(3, 2), padding=(1, 0, 2, 1), dilation=(1, 2), groups=2),
        example((2, 3, 8, 9), (4, 3, 3, 3), strides=(2, 3), padding=(0, 1, 0, 2)),
        example((2, 3, 5, 5), (4, 3, 1, 1), strides=(3, 3)),
        example((2, 7, 6, 4), (2, 3, 2, 6), strides=(2, 2), groups=2, data_layout="NHWC", kernel_layout="HWIO"),
        example((2, 4, 5, 5), (2, 6, 2, 2), groups=2, kernel_layout="IOHW"),
    ),
    "nn.conv1d_transpose": (example((2, 4, 5), (4, 3, 3), strides=(3,), output_padding=(4,), dilation=(2,)),),
    "nn.conv2d_transpose": (
        example((2, 4, 4, 5), (4, 3, 3, 2), strides=(2, 3), padding=(1, 0, 2, 1), dilation=(2, 1), groups=2),
        example((2, 4, 4, 5), (4, 3, 3, 2), strides=(2, 2), output_padding=(3, 1), padding=(0, 1, 1, 0)),
        example((2, 4, 5, 4), (3, 2, 4, 3), strides=(2, 2), data_layout="NHWC", kernel_layout="HWIO"),
    ),
    **{
        f"nn.{kind}_pool2d": (
            example((2, 3, 8, 9), pool_size=(3, 2), strides=(2, 3), padding=(1, 0, 2, 1), ceil_mode=True, **attrs),
            example((2, 3, 8, 9), pool_size=(3, 2), strides=(1, 2), dilation=(2, 3), padding=(1, 1, 0, 1), **attrs),
            example((2, 3, 7, 7), pool_size=(2, 2), strides=(3, 3), **attrs),
        )
        for kind, attrs in _POOL_ATTRS.items()
    },
    "nn.avg_pool1d": (
        example((2, 3, 8), pool_size=(3,), strides=(2,), padding=(1, 2), ceil_mode=True, count_include_pad=True),
    ),
    "nn.lp_pool1d": (example((2, 3, 8), pool_size=(3,), strides=(2,), p=1),),
    "nn.adaptive_avg_pool2d": (example((2, 3, 7, 8), output_size=(3, 5)),),
    "nn.layer_norm": (example((2, 3, 4, 5), (3, 5), (3, 5), axes=(1, 3), epsilon=0.1),),
    "nn.rms_norm": (example((2, 3, 4, 5), (4, 5), axes=(2, 3), epsilon=0.1),),
    "nn.group_norm": (example((2, 6, 5), (6,), (6,), groups=3, epsilon=0.1), example((3, 4), (4,), (4,), groups=2)),
    "nn.lrn": (
        example((2, 5, 3), size=4, alpha=0.75, beta=0.5, bias=2.0),
        example((2, 3, 4, 5), size=7, alpha=0.5, axis=2),
    ),
    "nn.softmax": (example((2, 3, 4), axis=1),),
    "nn.log_softmax": (example((2, 3, 4), axis=-2),),
    "nn.stepwise_softmax": (example((2, 3, 4), axis=1),),
    "nn.attention": (
        example((2, 4, 3, 5), (2, 2, 6, 5), (2, 2, 6, 3), (2, 1, 3, 6), scale=0.5, softcap=2.0),
        example((2, 4, 3, 5), (2, 4, 6, 5), (2, 4, 6, 3), causal=True, offset=2, zero_unseen=True),
    ),
    "nn.rotary_embedding": (example((2, 3, 5, 8), (2, 5, 3), (2, 5, 3), interleaved=True),),
    **{
        name: (
            example((2, 3, 4), axis=(0, -1)),
            example((2, 3), axis=(), keepdims=True),
            example((2, 3), keepdims=True),
        )
        for name in ("sum", "mean", "max", "min", "prod", "logsumexp")
    },
    "einsum": (
        example((2, 3), (3, 4), (4, 2), equation="ij,jk,ki->"),
        example((3,), (4,), equation="i,j->ji"),
        example((2, 3, 4), equation="ijk->j"),
        example((5, 2, 3), (3, 4), equation="...ij,jk->...ik"),
        example((5, 2, 3), (1, 3, 4), equation="...ij,...jk->...ki"),
        example((2, 1), (2, 3), equation="ij,ij->ij"),
        example((2, 1), (2, 3), equation="ij,ij->"),
        example((3, 3), (3,), equation="ij,j->ij"),
    ),
    "matmul": (example((2, 1, 3, 4), (5, 4, 2)),),
    "nn.bias_add": (example((2, 3, 4), (3,), axis=-2),),
    "nn.dense": (example((3,), (4, 3)),),
    "broadcast_to": (example((), shape=(2, 3)), example((2, 1), shape=(2, 2, 3))),
    "tile": (example((2, 3, 1), repeats=(3, 2, 4)),),
    "roll": (example((4, 5), shift=(3, -2), axis=(1, 0)),),
    "cumsum": (
        example((3, 4), axis=1, exclusive=True),
        example((3, 4), axis=0, reverse=True),
        example((3, 4), axis=-1, exclusive=True, reverse=True),
    ),
    "trilu": (example((3, 4), k=-1), example((3, 4), k=1, upper=False)),
    "depth_to_space": (example((2, 12, 2, 3), block_size=2, mode="CRD"),),
    "space_to_depth": (example((2, 3, 4, 6), block_size=2, mode="CRD"),),
    "nn.pad": (example((2, 3), pad_width=(1, 0, 2, 3), pad_value=4.0),),
    "nn.border_pad": tuple(example((3, 4), pad_width=(2, 1, 0, 5), mode=mode) for mode in ("edge", "reflect", "wrap")),
    "strided_slice": (
        example((7, 6), axes=(1, 0), begin=(-1, 1), end=(-(1 << 62), 6), strides=(-2, 2)),
        example((7, 6), axes=(0,), begin=(5,), end=(2,), strides=(1,)),
        example((7, 6), axes=(-1,), begin=(-4,), end=(1 << 62,), strides=(1,), mode="strict"),
        example((5, 6), axes=(0,), begin=(-9,), end=(9,), strides=(3,)),
    ),
    "split": (example((2, 6), sections=(0, 4, 2), axis=-1),),
    "stack": (example((2, 3), (2, 3), axis=1),),
    "take": (
        example((4, 3), integers((2, 5), -4, 3)),
        example((2, 3, 4), integers((5,), -7, 7), axis=1, mode="clip"),
        example((2, 3, 4), integers((), 0, 3, "int32"), axis=-1),
        example((4, 3), integers((5,), 0, 3, "uint8")),
    ),
    "gather_elements": (example((4, 3), integers((4, 5), -3, 2), axis=-1),),
    "gather_nd": (
        example((4, 3, 2), integers((5, 2), -2, 1)),
        example((2, 3, 4), integers((2, 5, 1), -3, 2), batch_dims=1),
        example((2, 3, 4), integers((2, 3, 1), 0, 3, "int32"), batch_dims=2),
    ),
    "scatter_elements": (
        example((4, 3), integers((4, 5), -3, 2), (4, 5), axis=1),
        example((4, 3), integers((4, 5), -3, 2), (4, 5), axis=1, reduction="add"),
    ),
    "scatter_nd": (
        example((4, 3), integers((7, 1), -4, 3), (7, 3), reduction="add"),
        example((2, 2, 3), integers((3, 4, 2), 0, 1), (3, 4, 3)),
        example((2, 3), integers((5, 2), 0, 1), (5,)),
    ),
    "one_hot": (example(integers((2, 3), -3, 5), (), (), depth=4, axis=0),),
    "topk": (example((3, 6), k=2, axis=0, sorted=False),),
    "sort": (example((3, 6), axis=0, descending=True),),
    "nn.resize": (
        example((2, 5, 4), axes=(1, 2), sizes=(3, 7), method="linear", coordinates="align_corners"),
        example((2, 5, 4), axes=(1,), sizes=(8,), method="cubic", exclude_outside=True, coordinates="asymmetric"),
        example((2, 5), axes=(1,), sizes=(8,), scales=(1.7,), method="linear"),
    ),
    "nn.antialias_resize": (example((2, 9), axes=(1,), sizes=(4,), method="cubic", exclude_outside=True),),
}
"""Further uses of ops, with attributes and shapes not among the canonical cases."""


def all_cases(op: str) -> Iterator[OpCase]:
    """Yield the canonical cases of an op, and further cases, with floats of float64."""
    for case in (*(_SMALL.get(op) or default_ops()[op].canonical_cases), *_VARIANTS.get(op, ())):
        if case.dtype.startswith("float"):
            yield replace(case, op=op, dtype="float64")


def build_module(case: OpCase, types: tuple[TensorType, ...] | None = None) -> IRModule:
    """Return a module with the use of an op as ``main``; of other operand types than the case's, if given.

    Raises:
        IRTypeError: the types do not fit the op.
    """
    fb = FunctionBuilder("main")
    params = [fb.param(f"x{index}", type_) for index, type_ in enumerate(types or case.types())]
    return IRModule({"main": fb.finish(*fb.bind(case.op, params, case.attrs).results)}, fb.constants, ops=fb.ops)


def draw_inputs(case: OpCase, generator: np.random.Generator) -> list[npt.NDArray[Any]]:
    """Return operands for a case: separated floats in the domain of the op, and valid integers."""
    arrays = list(case.arrays(generator))
    for index, operand in enumerate(case.operands):
        if operand.dtype is None:
            domains = DOMAINS.get(case.op, ((-1.9371, 2.1113),))
            low, high = domains[min(index, len(domains) - 1)]
            arrays[index] = separated(generator, operand.shape, low, high, offset=0.25 + 0.45 * (index % 2))
    return arrays
