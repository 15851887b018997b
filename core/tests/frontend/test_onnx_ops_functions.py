"""Mathematical functions and activations of ONNX, at every changing opset, against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from byoc_core.errors import FrontendError
from byoc_core.frontend.onnx import from_onnx
from byoc_core.ir import IRModule
from onnx import TensorProto

from core.tests.frontend.conftest import Array, Case

NEWEST = 26  # the newest opset of the oracle

Cases = list[dict[str, Any]]


def _ints(*shape: int, seed: int = 0, low: int = -4, high: int = 5, dtype: str = "float32") -> Any:
    return np.random.default_rng(seed).integers(low, high, shape).astype(dtype)


def _floats(*shape: int, low: float = -3.0, high: float = 3.0) -> Any:
    return np.random.default_rng(1).uniform(low, high, shape).astype(np.float32)


def _case(
    *inputs: npt.ArrayLike, constants: tuple[int, ...] = (), outputs: int = 1, exact: bool = True, **attrs: object
) -> dict[str, Any]:
    arrays = [np.asarray(item) for item in inputs]
    return {"inputs": arrays, "attrs": attrs, "constants": constants, "num_outputs": outputs, "exact": exact}


def _smooth(low: float = -3.0, high: float = 3.0, **attrs: Any) -> Callable[[int], Cases]:
    def cases(opset: int) -> Cases:
        x = _floats(3, 4, low=low, high=high)
        return [_case(x, exact=False), *([_case(x, exact=False, **attrs)] if attrs else [])]

    return cases


def _rounding(opset: int) -> Cases:
    return [
        _case(np.arange(-2.75, 3, 0.25, dtype=np.float32)),
        _case(np.array([np.inf, -np.inf, np.nan, -0.0], np.float32)),
    ]


def _sign(opset: int) -> Cases:
    return [_case(_ints(3, 4)), _case(_ints(3, 4, dtype="int32")), _case(_ints(3, 4, low=0, dtype="uint8"))]


def _isnan(opset: int) -> Cases:
    return [_case(np.array([[np.nan, 0.0, np.inf], [-np.nan, 1.0, -np.inf]], np.float32))]


def _isinf(opset: int) -> Cases:
    x = np.array([np.inf, -np.inf, np.nan, 0.0], np.float32)
    return [_case(x), _case(x, detect_negative=0), _case(x, detect_positive=0)]


def _mod(opset: int) -> Cases:
    cases = [_case(_ints(3, 4), _ints(4, seed=1) + np.float32(0.5), fmod=1)]
    for dtype in ("int32", "int64"):
        x, y = _ints(3, 4, low=-9, high=9, dtype=dtype), np.array([3, -3, 2, -4], dtype)
        cases += [_case(x, y), _case(x, y, fmod=1, constants=(1,))]
    return cases


def _bit_shift(opset: int) -> Cases:
    x, y = _ints(3, 4, low=0, high=99, dtype="uint32"), _ints(4, low=0, high=7, dtype="uint32")
    return [_case(x, y, direction="LEFT"), _case(x, y, direction="RIGHT")]


def _bitwise(opset: int) -> Cases:
    return [_case(_ints(3, 4, dtype=dtype), _ints(4, seed=1, dtype=dtype)) for dtype in ("int32", "int64")]


def _bitwise_not(opset: int) -> Cases:
    return [_case(_ints(3, 4, dtype=dtype)) for dtype in ("int8", "int64")]


def _cast_like(opset: int) -> Cases:
    return [_case(_floats(3, 4), _ints(1, dtype=dtype)) for dtype in ("int32", "float32", "float64", "bool")]


def _prelu(opset: int) -> Cases:
    return [
        _case(_ints(2, 3, 4), _ints(3, 1, seed=1)),
        _case(_ints(2, 3), np.array([0.25], np.float32), constants=(1,)),
    ]


def _xor(opset: int) -> Cases:
    return [_case(_ints(3, 4, low=0, high=2, dtype="bool"), _ints(4, seed=1, low=0, high=2, dtype="bool"))]


def _bit_cast(opset: int) -> Cases:
    return [_case(np.array([1.5, -0.0], np.float32), to=TensorProto.INT32)] if opset >= 26 else []


_CASES: dict[str, Callable[[int], Cases]] = {
    **dict.fromkeys(["Asinh", "Atan", "Cos", "Cosh", "Sin", "Sinh"], _smooth()),
    **dict.fromkeys(["Acos", "Asin", "Atanh"], _smooth(-0.9, 0.9)),
    **dict.fromkeys(["BitwiseAnd", "BitwiseOr", "BitwiseXor"], _bitwise),
    **dict.fromkeys(["Ceil", "Floor", "Round"], _rounding),
    **dict.fromkeys(["HardSwish", "Mish", "Softplus", "Softsign"], _smooth(-8, 8)),
    **dict.fromkeys(["Celu", "Elu", "Swish", "ThresholdedRelu"], _smooth(-8, 8, alpha=0.75)),
    "Acosh": _smooth(1.1, 5),
    "BitCast": _bit_cast,
    "BitShift": _bit_shift,
    "BitwiseNot": _bitwise_not,
    "CastLike": _cast_like,
    "HardSigmoid": _smooth(-8, 8, alpha=0.25, beta=0.125),
    "IsInf": _isinf,
    "IsNaN": _isnan,
    "Mod": _mod,
    "PRelu": _prelu,
    "Reciprocal": _smooth(0.1, 3),
    "Selu": _smooth(-8, 8, alpha=1.5, gamma=2.0),
    "Shrink": _smooth(-3, 3, lambd=1.5, bias=0.5),
    "Sign": _sign,
    "Tan": _smooth(-1.25, 1.25),
    "Xor": _xor,
}


WITHOUT_KERNEL = {"BitCast", "Swish"}  # ONNX Runtime has none at any opset that has the op


def test_op_equals_onnx_runtime(
    op_type: str, opset: int, check_case: Callable[..., IRModule], make_case: type[Case]
) -> None:
    for arguments in _CASES[op_type](opset):
        check_case(op_type, opset, make_case(**arguments))


@pytest.mark.parametrize("op_type", sorted(set(_CASES) - WITHOUT_KERNEL))
def test_op_imports_with_dynamic_sizes(
    op_type: str, check_case: Callable[..., IRModule], make_case: type[Case]
) -> None:
    for arguments in _CASES[op_type](NEWEST):
        check_case(op_type, NEWEST, make_case(**arguments), dynamic=True)


def test_swish_equals_its_definition_in_onnx_runtime(
    node_model: Callable[..., onnx.ModelProto], make_case: type[Case], run: Callable[..., Sequence[Array]]
) -> None:
    for arguments in _CASES["Swish"](NEWEST):
        model = node_model("Swish", NEWEST, make_case(**arguments))
        x = arguments["inputs"][0]
        alpha = np.float32(arguments["attrs"].get("alpha", 1.0))
        gate = run(node_model("Sigmoid", NEWEST, make_case([x])), {"i0": alpha * x})[0]
        np.testing.assert_allclose(run(from_onnx(model), {"i0": x})[0], x * gate, rtol=2**-19, atol=2**-21)


def test_mod_of_floats_needs_fmod(node_model: Callable[..., onnx.ModelProto], make_case: type[Case]) -> None:
    with pytest.raises(FrontendError) as caught:
        from_onnx(node_model("Mod", NEWEST, make_case([_ints(3), _ints(3)])))
    assert str(caught.value) == (
        "ONNX model, node `the_node` (Mod): attribute `fmod` is 0 with floating-point inputs; got float32, "
        "expected 1, or integers"
    )


def test_bit_shift_has_two_directions(node_model: Callable[..., onnx.ModelProto], make_case: type[Case]) -> None:
    x = _ints(3, low=0, dtype="uint8")
    with pytest.raises(FrontendError) as caught:
        from_onnx(node_model("BitShift", NEWEST, make_case([x, x], {"direction": "UP"})))
    assert str(caught.value) == (
        "ONNX model, node `the_node` (BitShift): attribute `direction` is unknown; got UP, expected LEFT or RIGHT"
    )
