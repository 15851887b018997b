"""Type rules of mathematical functions and activations against their kernels, with known and with symbolic sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

Shape = tuple[int, ...]
Case = tuple[list[tuple[Shape, str]], dict[str, Any]]
Draw = Callable[[st.SearchStrategy[Any]], Any]

_FLOATS = st.sampled_from(["float32", "float64", "float16", "bfloat16"])
_INTEGERS = st.sampled_from(["int8", "int32", "int64", "uint8"])
_NUMBERS = st.sampled_from(["float32", "float64", "int8", "int32", "int64", "uint8"])
_SIZES = st.integers(1, 5)


def _shape(draw: Draw) -> Shape:
    return tuple(draw(st.lists(_SIZES, max_size=4)))


def _unary(dtypes: st.SearchStrategy[str], **attrs: st.SearchStrategy[Any]) -> Callable[[Draw], Case]:
    def case(draw: Draw) -> Case:
        return [(_shape(draw), draw(dtypes))], {name: draw(values) for name, values in attrs.items()}

    return case


def _binary(dtypes: st.SearchStrategy[str], **attrs: st.SearchStrategy[Any]) -> Callable[[Draw], Case]:
    def case(draw: Draw) -> Case:
        shape, dtype = _shape(draw), draw(dtypes)
        kept = shape[draw(st.integers(0, len(shape))) :]
        partner = tuple(1 if draw(st.booleans()) else size for size in kept)
        return [(shape, dtype), (partner, dtype)], {name: draw(values) for name, values in attrs.items()}

    return case


_TRIGONOMETRIC = ["sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh"]
_ACTIVATIONS = ["celu", "elu", "hard_sigmoid", "hard_swish", "mish", "selu", "shrink", "softplus", "softsign", "swish"]

_CASES: dict[str, Callable[[Draw], Case]] = {
    **dict.fromkeys([*_TRIGONOMETRIC, "floor", "ceil", "round", "reciprocal", "isnan"], _unary(_FLOATS)),
    **dict.fromkeys([f"nn.{name}" for name in [*_ACTIVATIONS, "thresholded_relu"]], _unary(_FLOATS)),
    **dict.fromkeys(["bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift"], _binary(_INTEGERS)),
    "bitwise_not": _unary(_INTEGERS),
    "isinf": _unary(_FLOATS, detect_negative=st.booleans(), detect_positive=st.booleans()),
    "logical_xor": _binary(st.just("bool")),
    "mod": _binary(_NUMBERS, fmod=st.booleans()),
    "nn.prelu": _binary(_NUMBERS),
    "not_equal": _binary(_NUMBERS | st.just("bool")),
    "sign": _unary(_NUMBERS),
}
