"""Cases of ops that work element by element."""

from __future__ import annotations

from byoc_core.ops.cases.case import OpCase, OperandCase, Shape, case

__all__ = ["CASES"]

_SHAPES: tuple[Shape, ...] = ((2, 3), (2, 3, 4, 5), (3,), (), (2, 3, 4), (0, 3))
_PAIRS: tuple[tuple[Shape, Shape], ...] = (
    ((2, 3), (2, 3)),
    ((2, 3, 4, 5), (2, 3, 4, 5)),
    ((2, 3), (3,)),
    ((2, 3), ()),
    ((2, 3, 4, 5), (3, 1, 1)),
    ((2, 1), (3,)),
    ((3,), (2, 3)),
    ((), ()),
    ((0, 3), (0, 3)),
)
_FLOATS = (
    "exp log sqrt tanh sigmoid erf floor ceil round reciprocal sin cos tan asin acos atan sinh cosh asinh acosh atanh "
    "isnan isinf nn.softplus nn.softsign nn.elu nn.selu nn.celu nn.hard_sigmoid nn.hard_swish nn.swish nn.mish "
    "nn.thresholded_relu nn.shrink nn.leaky_relu nn.gelu"
)
_UNARY = {
    **dict.fromkeys(_FLOATS.split(), "float32"),
    **dict.fromkeys(["negative", "abs", "sign", "clip", "nn.relu"], "float32"),
    "bitwise_not": "int32",
    "logical_not": "bool",
}
_BINARY = {
    **dict.fromkeys(["add", "subtract", "multiply", "divide", "maximum", "minimum", "power", "mod"], "float32"),
    **dict.fromkeys(["equal", "not_equal", "less", "less_equal", "greater", "greater_equal"], "float32"),
    **dict.fromkeys(["bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift"], "int32"),
    **dict.fromkeys(["logical_and", "logical_or", "logical_xor"], "bool"),
}


def _bool(shape: Shape) -> OperandCase:
    return OperandCase(shape, "bool")


CASES: tuple[OpCase, ...] = (
    *(case(name, shape, dtype=dtype) for name, dtype in _UNARY.items() for shape in _SHAPES),
    *(case(name, *pair, dtype=dtype) for name, dtype in _BINARY.items() for pair in _PAIRS),
    case("clip", (2, 3), min=0.0, max=6.0),
    case("clip", (2, 3, 4, 5), min=0.0, max=6.0),
    case("nn.gelu", (2, 3), approximate="tanh"),
    case("mod", (2, 3), (2, 3), fmod=True),
    *(OpCase("cast", (OperandCase(shape),), {"dtype": "float16"}) for shape in _SHAPES),
    OpCase("cast", (OperandCase((2, 3)),), {"dtype": "int32"}),
    case("where", _bool((2, 3)), (2, 3), (2, 3)),
    case("where", _bool((2, 3, 4, 5)), (2, 3, 4, 5), (2, 3, 4, 5)),
    case("where", _bool((3,)), (2, 3), ()),
    case("where", _bool((2, 1)), (3,), (2, 3)),
    case("where", _bool(()), (), ()),
    *(case("nn.prelu", shape, slope) for shape, slope in (((2, 3), (3,)), ((2, 3, 4, 5), (3, 1, 1)), ((3,), ()))),
)
"""The cases of each op, the most common first."""
