"""Which spellings are recognised, and which are not the op they look like."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from byoc_core.errors import OptionsError
from byoc_core.transform import RecogniseComposites, evaluate_function

X = 'x: R.Tensor(("n", 4), "{dtype}")'
AFFINE = X + ', g: R.Tensor((4,), "{dtype}"), b: R.Tensor((4,), "{dtype}")'

MEAN = "m = R.mean(x, axis=(-1,), keepdims=True)\nd = R.subtract(x, m)\n"
VARIANCE = "v = R.mean(s, axis=(1,), keepdims=True)\ne = R.add(v, R.const(0.25, '{dtype}'))\nq = R.sqrt(e)\n"
POWER, PRODUCT = "s = R.power(d, R.const(2.0, '{dtype}'))\n", "s = R.multiply(d, d)\n"
QUOTIENT = "t = R.divide(d, q)\n"
RECIPROCAL = "r = R.divide(R.const(1.0, '{dtype}'), q)\nt = R.multiply(r, d)\n"
SCALE = "u = R.multiply(t, g)\ny = R.add(u, b)"
RMS = POWER.replace("(d", "(x") + VARIANCE
LAYER_NORM = "y = R.nn.layer_norm(x, g, b, axes=(1,), epsilon=0.25)"


ERF = "a = R.divide(x, R.const({sqrt_2}, '{dtype}'))\nc = R.erf(a)\ne = R.add(c, R.const(1.0, '{dtype}'))\n"
ERF_TIMES = "a = R.multiply(x, R.const({sqrt_half}, '{dtype}'))\nc = R.erf(a)\ne = R.add(R.const(1.0, '{dtype}'), c)\n"
HALF = "R.const(0.5, '{dtype}')"
CUBE = "k = R.power(x, R.const(3.0, '{dtype}'))\n"
CUBE_BY_PRODUCTS = "j = R.multiply(x, x)\nk = R.multiply(j, x)\n"
TANH = (
    "l = R.multiply(R.const({cubic}, '{dtype}'), k)\no = R.add(x, l)\n"
    "p = R.multiply(o, R.const({factor}, '{dtype}'))\nc = R.tanh(p)\ne = R.add(c, R.const(1.0, '{dtype}'))\n"
)
FAST_TANH = (
    "i = R.multiply(x, R.const({factor}, '{dtype}'))\nj = R.multiply(x, R.const({cubic}, '{dtype}'))\n"
    "k = R.multiply(j, x)\nl = R.add(R.const(1.0, '{dtype}'), k)\no = R.multiply(i, l)\n"
    "c = R.tanh(o)\ne = R.add(c, R.const(1.0, '{dtype}'))\n"
)
LAST_HALF = f"f = R.multiply(x, e)\ny = R.multiply(f, {HALF})"
FIRST_HALF = f"f = R.multiply(x, {HALF})\ny = R.multiply(f, e)"
INNER_HALF = f"f = R.multiply({HALF}, e)\ny = R.multiply(x, f)"
BY_TWO = "f = R.divide(x, R.const(2.0, '{dtype}'))\ny = R.multiply(f, e)"

FOUND = {
    "softmax": (
        X,
        (
            "m = R.max(x, axis=(1,), keepdims=True)\nd = R.subtract(x, m)\ne = R.exp(d)\n"
            "s = R.sum(e, axis=(-1,), keepdims=True)\ny = R.divide(e, s)"
        ),
        "y = R.nn.softmax(x, axis=1)",
    ),
    "layer_norm": (AFFINE, MEAN + POWER + VARIANCE + QUOTIENT + SCALE, LAYER_NORM),
    "layer_norm by products": (AFFINE, MEAN + PRODUCT + VARIANCE + RECIPROCAL + SCALE, LAYER_NORM),
    "layer_norm with bias_add": (
        AFFINE,
        MEAN + POWER + VARIANCE + QUOTIENT + SCALE.replace("R.add(u", "R.nn.bias_add(u"),
        LAYER_NORM,
    ),
    "layer_norm with constants": (
        X,
        MEAN + POWER + VARIANCE + QUOTIENT + "u = R.multiply(R.const([[1.0, 2.0, 3.0, 4.0]], '{dtype}'), t)\n"
        "y = R.add(u, R.const([0.0, 1.0, 0.0, 1.0], '{dtype}'))",
        (
            "y = R.nn.layer_norm(x, R.const([1.0, 2.0, 3.0, 4.0], '{dtype}'), "
            "R.const([0.0, 1.0, 0.0, 1.0], '{dtype}'), axes=(1,), epsilon=0.25)"
        ),
    ),
    "rms_norm": (
        X + ', g: R.Tensor((4,), "{dtype}")',
        RMS + "t = R.divide(x, q)\ny = R.multiply(g, t)",
        "y = R.nn.rms_norm(x, g, axes=(1,), epsilon=0.25)",
    ),
    "rms_norm by products": (
        X + ', g: R.Tensor((4,), "{dtype}")',
        RMS + RECIPROCAL.replace("(r, d)", "(r, x)") + "y = R.multiply(g, t)",
        "y = R.nn.rms_norm(x, g, axes=(1,), epsilon=0.25)",
    ),
    "gelu": (X, ERF + LAST_HALF, "y = R.nn.gelu(x)"),
    "gelu, half first": (X, ERF_TIMES + FIRST_HALF, "y = R.nn.gelu(x)"),
    "gelu, half inside": (X, ERF + INNER_HALF, "y = R.nn.gelu(x)"),
    "gelu, by two": (X, ERF_TIMES + BY_TWO, "y = R.nn.gelu(x)"),
    "tanh gelu": (X, CUBE + TANH + LAST_HALF, 'y = R.nn.gelu(x, approximate="tanh")'),
    "tanh gelu by products": (X, CUBE_BY_PRODUCTS + TANH + FIRST_HALF, 'y = R.nn.gelu(x, approximate="tanh")'),
    "tanh gelu, fast": (X, FAST_TANH + INNER_HALF, 'y = R.nn.gelu(x, approximate="tanh")'),
}


def _fill(text: str, dtype: str) -> str:
    """Fills in the dtype, and the constants as exporters round them."""
    kind = np.dtype(dtype).type
    numbers = {
        "sqrt_2": float(kind(2.0**0.5)),
        "sqrt_half": float(kind(0.5**0.5)),
        "cubic": float(kind(0.044715)),
        "factor": float(kind((2 / np.pi) ** 0.5)),
    }
    return text.format(dtype=dtype, **numbers)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("case", FOUND)
def test_spelled_out_ops_are_recognised(case: str, dtype: str, rewrites: Any) -> None:
    params, before, after = (_fill(text, dtype) for text in FOUND[case])
    rewrites(RecogniseComposites(), params, f"{before}\nreturn y", f"{after}\nreturn y")


@pytest.mark.parametrize("case", FOUND)
def test_recognised_ops_give_the_same_numbers(case: str, main: Any) -> None:
    params, before, _ = (_fill(text, "float64") for text in FOUND[case])
    module = main(params, f"{before}\nreturn y")
    generator = np.random.default_rng(1)
    inputs = [generator.normal(size=(40, 4)) * 3, generator.normal(size=4), generator.normal(size=4)]
    inputs = inputs[: len(module["main"].params)]
    (want,) = evaluate_function(module, "main", inputs)
    (have,) = evaluate_function(RecogniseComposites()(module), "main", inputs)
    # Softmax and layer_norm do the same steps, but for one reciprocal and its product. In gelu the argument t of erf or
    # tanh has a relative error of at most 8u, and t * f'(t) < 1/2; then a sum of at most 2 and two products round.
    offset = np.abs(inputs[2]) if len(inputs) == 3 else 0.0
    scale = np.abs(inputs[0]) * 10 if "gelu" in case else 0.0 if case == "softmax" else 4 * (np.abs(want) + 2 * offset)
    assert np.all(np.abs(have - want) <= 2.0**-53 * scale)


SOFTMAX = FOUND["softmax"][1]
KEPT = {
    "softmax without the shift": (
        X,
        "e = R.exp(x)\ns = R.sum(e, axis=(-1,), keepdims=True)\ny = R.divide(e, s)",
    ),
    "softmax along two axes": (X, SOFTMAX.replace("(1,)", "(0, 1)").replace("(-1,)", "(0, 1)")),
    "softmax along different axes": (X, SOFTMAX.replace("(-1,)", "(0,)")),
    "softmax of other values": (X, SOFTMAX.replace("subtract(x, m)", "subtract(m, x)")),
    "softmax that is read inside": (X, SOFTMAX + "\nreturn y, e"),
    "layer_norm along another axis": (
        'x: R.Tensor((4, 4), "{dtype}"), g: R.Tensor((4,), "{dtype}"), b: R.Tensor((4,), "{dtype}")',
        (MEAN + POWER + VARIANCE + QUOTIENT + SCALE).replace("(-1,)", "(0,)").replace("(1,)", "(0,)"),
    ),
    "layer_norm of the third power": (AFFINE, (MEAN + POWER + VARIANCE + QUOTIENT + SCALE).replace("2.0", "3.0")),
    "layer_norm scaled by a matrix": (
        X + ', g: R.Tensor(("n", 4), "{dtype}"), b: R.Tensor((4,), "{dtype}")',
        MEAN + POWER + VARIANCE + QUOTIENT + SCALE,
    ),
    "rms_norm scaled by a scalar": (
        X + ', g: R.Tensor((), "{dtype}")',
        RMS + "t = R.divide(x, q)\ny = R.multiply(t, g)",
    ),
    "rms_norm of another value": (AFFINE, RMS + "t = R.divide(g, q)\ny = R.multiply(t, b)"),
    "gelu of another constant": (X, ERF.replace("{sqrt_2}", "1.5") + LAST_HALF),
    "gelu in float64 of a float32 constant": (
        'x: R.Tensor(("n", 4), "float64")',
        (ERF + LAST_HALF).replace("{dtype}", "float64").replace("{sqrt_2}", "1.4142135381698608"),
    ),
    "gelu of another half": (X, ERF + LAST_HALF.replace("0.5", "0.25")),
    "gelu plus two": (X, ERF.replace("1.0", "2.0") + LAST_HALF),
    "gelu of two values": (
        X + ', z: R.Tensor(("n", 4), "{dtype}")',
        ERF + LAST_HALF.replace("multiply(x, e)", "multiply(z, e)"),
    ),
    "tanh gelu of the square": (X, CUBE.replace("3.0", "2.0") + TANH + LAST_HALF),
}


@pytest.mark.parametrize("case", KEPT)
def test_other_ops_stay(case: str, leaves: Any) -> None:
    params, body = (_fill(text, "float32") for text in KEPT[case])
    leaves(RecogniseComposites(), params, body if "return" in body else f"{body}\nreturn y")


def test_only_the_ops_asked_for_are_recognised(leaves: Any) -> None:
    leaves(RecogniseComposites(("nn.gelu",)), _fill(X, "float32"), f"{SOFTMAX}\nreturn y")


def test_an_unknown_op_is_refused() -> None:
    with pytest.raises(OptionsError) as caught:
        RecogniseComposites(("nn.gelo",))
    assert str(caught.value) == (
        "ops: `nn.gelo` is not recognised; expected nn.layer_norm, nn.softmax, nn.gelu, nn.rms_norm. "
        "Did you mean 'nn.gelu'?"
    )
