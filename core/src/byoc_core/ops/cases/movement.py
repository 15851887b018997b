"""Cases of the ops that rearrange, gather, make or combine elements."""

from __future__ import annotations

from byoc_core.ops.cases.case import case
from byoc_core.opset.cases import OpCase, OperandCase, Shape, integers

__all__ = ["CASES"]

_IMAGE: Shape = (2, 16, 9, 8)
_TOKENS: Shape = (2, 5, 3)
_REDUCTIONS = {
    **dict.fromkeys(["sum", "mean", "max", "min", "prod", "logsumexp"], "float32"),
    "all": "bool",
    "any": "bool",
}
_ALONG_AXIS = ("sort", "argsort", "cumsum", "cumprod", "argmin", "argmax")

CASES: tuple[OpCase, ...] = (
    case("reshape", (2, 6), shape=(3, 4)),
    case("reshape", _IMAGE, shape=(2, -1)),
    case("reshape", _TOKENS, shape=(10, 3)),
    case("squeeze", (2, 1, 3), axis=(1,)),
    case("squeeze", (2, 4, 1, 1), axis=(2, 3)),
    case("squeeze", (1, 2, 3), axis=(0,)),
    case("expand_dims", (2, 3), axis=(1,)),
    case("permute_dims", (2, 3)),
    case("permute_dims", _IMAGE, axes=(0, 2, 3, 1)),
    case("permute_dims", _TOKENS, axes=(0, 2, 1)),
    case("permute_dims", (2, 5, 4, 3), axes=(0, 2, 1, 3)),
    case("broadcast_to", (3,), shape=(2, 3)),
    case("broadcast_to", (2, 1, 3), shape=(2, 5, 3)),
    case("concat", (2, 3), (2, 5), axis=1),
    case("concat", _IMAGE, (2, 6, 9, 8), axis=1),
    case("concat", (2, 3), (5, 3)),
    case("concat", (2, 3), (2, 4), (2, 5), axis=-1),
    case("split", (2, 6), sections=(2, 4), axis=1),
    case("split", (2, 9), sections=(3, 3, 3), axis=-1),
    case("split", (2, 6, 9, 8), sections=(2, 4), axis=1),
    case("strided_slice", (4, 6), axes=(1,), begin=(1,), end=(5,), strides=(1,)),
    case("strided_slice", (4, 6), axes=(0, 1), begin=(3, 0), end=(0, 6), strides=(-1, 2)),
    case("strided_slice", _IMAGE, axes=(1,), begin=(0,), end=(2,), strides=(1,)),
    case("nn.pad", (2, 3), pad_width=(0, 0, 1, 1)),
    case("nn.pad", _IMAGE, pad_width=(0, 0, 0, 0, 1, 1, 1, 1)),
    case("nn.border_pad", (2, 3), pad_width=(0, 0, 1, 1), mode="reflect"),
    case("nn.border_pad", _IMAGE, pad_width=(0, 0, 0, 0, 1, 1, 1, 1), mode="edge"),
    case("tile", (2, 3), repeats=(2, 1)),
    case("flip", (2, 3), axis=1),
    case("roll", (2, 3), shift=(1,), axis=(1,)),
    case("stack", (2, 3), (2, 3)),
    case("stack", (2, 3), (2, 3), (2, 3), axis=-1),
    case("trilu", (4, 5)),
    case("trilu", (2, 4, 5), upper=False, k=1),
    case("depth_to_space", (2, 8, 3, 5), block_size=2),
    case("space_to_depth", (2, 3, 4, 6), block_size=2),
    case("reverse_sequence", (2, 5, 3), integers((2,), 1, 5)),
    case("take", (4, 3), integers((5,), 0, 3)),
    case("take", (4, 3), integers((2, 5), 0, 3)),
    case("take", (2, 4), integers((), 0, 3), axis=1),
    case("gather_elements", (4, 3), integers((5, 3), 0, 3)),
    case("gather_nd", (4, 3), integers((5, 1), 0, 3)),
    case("gather_nd", (2, 4, 3), integers((2, 5, 1), 0, 3), batch_dims=1),
    case("one_hot", integers((2, 3), 0, 4), (), (), depth=5),
    case("scatter_elements", (4, 3), integers((2, 3), 0, 3), (2, 3)),
    case("scatter_elements", (4, 3), integers((2, 3), 0, 3), (2, 3), reduction="add"),
    case("scatter_nd", (4, 3), integers((5, 1), 0, 3), (5, 3)),
    case("scatter_slice", (2, 7, 3), (2, 4, 3), integers((), 0, 3), axis=1),
    case("scatter_slice", (2, 7, 3), (2, 4, 3), integers((2,), 0, 3), axis=1),
    OpCase("arange", (), {"stop": 5}, "int64"),
    OpCase("arange", (), {"start": 1, "stop": 7, "step": 2, "dtype": "float32"}, "float32"),
    case("full", (), shape=(2, 3)),
    *(case(name, shape) for name in ("shape_of", "size") for shape in ((2, 3), _IMAGE, ())),
    OpCase("shape_to_tensor", (), {"sizes": (2, 3)}, "int64"),
    *(
        case(name, shape, dtype=dtype, **attrs)
        for name, dtype in _REDUCTIONS.items()
        for shape, attrs in (
            ((2, 3), {"axis": (1,)}),
            ((2, 3), {}),
            (_IMAGE, {"axis": (2, 3)}),
            (_TOKENS, {"axis": (-1,), "keepdims": True}),
        )
    ),
    *(
        case(name, shape, axis=axis)
        for name in _ALONG_AXIS
        for shape, axis in (((2, 3), 1), (_TOKENS, -1), (_IMAGE, 1))
    ),
    case("topk", (2, 5), k=3),
    case("topk", _TOKENS, k=2, axis=1, largest=False),
    case("nonzero", (2, 3)),
    case("compress", (4, 3), OperandCase((4,), "bool"), axis=0),
    case("unique", (6,)),
    case("unique", (4, 3), axis=0),
    case("range", integers((), 0, 3), integers((), 4, 9), integers((), 1, 3)),
    OpCase("range", (OperandCase((), "int32", 0, 3), OperandCase((), "int32", 4, 9), OperandCase((), "int32", 1, 3))),
)
"""The cases of each op, the most common first."""
