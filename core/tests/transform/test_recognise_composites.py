"""Recognised spellings, and similar graphs differing from the op."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from byoc_core.errors import OptionsError
from byoc_core.runtime.module import NDArray
from byoc_core.transform import RecogniseComposites, evaluate_function
from hypothesis import given
from hypothesis import strategies as st

from core.tests.ir_text import check_pass, check_unchanged, parse_main

X = 'x: R.Tensor(("n", 4), "{dtype}")'
AFFINE = X + ', g: R.Tensor((4,), "{dtype}"), b: R.Tensor((4,), "{dtype}")'

MEAN = "m = R.mean(x, axis=(-1,), keepdims=True)\nd = R.subtract(x, m)\n"
VARIANCE = "v = R.mean(s, axis=(1,), keepdims=True)\ne = R.add(v, R.const(0.25, '{dtype}'))\nq = R.sqrt(e)\n"
POWER, PRODUCT = "s = R.power(d, R.const(2.0, '{dtype}'))\n", "s = R.multiply(d, d)\n"
QUOTIENT = "t = R.divide(d, q)\n"
RECIPROCAL = "r = R.divide(R.const(1.0, '{dtype}'), q)\nt = R.multiply(r, d)\n"
SCALE = "u = R.multiply(t, g)\ny = R.add(u, b)"
RMS = POWER.replace("(d", "(x") + VARIANCE
ONES, ZEROS = "R.const([1.0, 1.0, 1.0, 1.0], '{dtype}')", "R.const([0.0, 0.0, 0.0, 0.0], '{dtype}')"
LAYER_NORM = "y = R.nn.layer_norm(x, g, b, axes=(1,), epsilon=0.25)"


ERF = "a = R.divide(x, R.const({sqrt_2}, '{dtype}'))\nc = R.erf(a)\ne = R.add(c, R.const(1.0, '{dtype}'))\n"
ERF_TIMES = "a = R.multiply(x, R.const({sqrt_half}, '{dtype}'))\nc = R.erf(a)\ne = R.add(R.const(1.0, '{dtype}'), c)\n"
HALF = "R.const(0.5, '{dtype}')"
CUBE = "k = R.power(x, R.const(3.0, '{dtype}'))\n"
CUBE_BY_PRODUCTS = "j = R.multiply(x, x)\nk = R.multiply(j, x)\n"
CUBE_BY_A_SQUARE = "j = R.power(x, R.const(2.0, '{dtype}'))\nk = R.multiply(x, j)\n"
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
SHIFT, CLIP = "a = R.add(x, R.const(3.0, '{dtype}'))\n", "c = R.clip(a, min=0.0, max=6.0)\n"
OVER_SIX = "y = R.divide(p, R.const(6.0, '{dtype}'))"
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
    "softmax by the reciprocal": (
        X,
        (
            "m = R.max(x, axis=(1,), keepdims=True)\nd = R.subtract(x, m)\ne = R.exp(d)\n"
            "s = R.sum(e, axis=(-1,), keepdims=True)\nr = R.reciprocal(s)\ny = R.multiply(e, r)"
        ),
        "y = R.nn.softmax(x, axis=1)",
    ),
    "layer_norm by powers": (
        AFFINE,
        MEAN + PRODUCT + VARIANCE.replace("R.sqrt(e)", "R.power(e, R.const(0.5, '{dtype}'))") + QUOTIENT + SCALE,
        LAYER_NORM,
    ),
    "layer_norm by one factor": (
        AFFINE,
        MEAN + PRODUCT + VARIANCE + "r = R.reciprocal(q)\nf = R.multiply(r, g)\nt = R.multiply(x, f)\n"
        "u = R.multiply(m, f)\nw = R.subtract(b, u)\ny = R.add(t, w)",
        LAYER_NORM,
    ),
    "layer_norm without shift": (
        X + ', g: R.Tensor((4,), "{dtype}")',
        MEAN + POWER + VARIANCE + QUOTIENT + "y = R.multiply(t, g)",
        LAYER_NORM.replace("g, b", f"g, {ZEROS}"),
    ),
    "layer_norm without parameters": (
        X,
        MEAN + POWER + VARIANCE + QUOTIENT.replace("t =", "y ="),
        LAYER_NORM.replace("g, b", f"{ONES}, {ZEROS}"),
    ),
    "layer_norm scaled by a scalar": (
        X,
        MEAN + POWER + VARIANCE + RECIPROCAL + "y = R.multiply(t, R.const(2.0, '{dtype}'))",
        LAYER_NORM.replace("y =", "t =").replace("g, b", f"{ONES}, {ZEROS}")
        + "\ny = R.multiply(t, R.const(2.0, '{dtype}'))",
    ),
    "rms_norm by a power": (
        X + ', g: R.Tensor((4,), "{dtype}")',
        RMS.partition("q =")[0]
        + "r = R.power(e, R.const(-0.5, '{dtype}'))\nt = R.multiply(x, r)\ny = R.multiply(g, t)",
        "y = R.nn.rms_norm(x, g, axes=(1,), epsilon=0.25)",
    ),
    "rms_norm by one factor": (
        X + ', g: R.Tensor((4,), "{dtype}")',
        RMS + "r = R.reciprocal(q)\nt = R.multiply(r, g)\ny = R.multiply(x, t)",
        "y = R.nn.rms_norm(x, g, axes=(1,), epsilon=0.25)",
    ),
    "rms_norm without scale": (
        X,
        RMS + "y = R.divide(x, q)",
        f"y = R.nn.rms_norm(x, {ONES}, axes=(1,), epsilon=0.25)",
    ),
    "gelu": (X, ERF + LAST_HALF, "y = R.nn.gelu(x)"),
    "gelu, half first": (X, ERF_TIMES + FIRST_HALF, "y = R.nn.gelu(x)"),
    "gelu, half inside": (X, ERF + INNER_HALF, "y = R.nn.gelu(x)"),
    "gelu, by two": (X, ERF_TIMES + BY_TWO, "y = R.nn.gelu(x)"),
    "gelu, two last": (X, ERF + "f = R.multiply(x, e)\ny = R.divide(f, R.const(2.0, '{dtype}'))", "y = R.nn.gelu(x)"),
    "gelu, two inside": (
        X,
        ERF + "f = R.divide(e, R.const(2.0, '{dtype}'))\ny = R.multiply(f, x)",
        "y = R.nn.gelu(x)",
    ),
    "tanh gelu": (X, CUBE + TANH + LAST_HALF, 'y = R.nn.gelu(x, approximate="tanh")'),
    "tanh gelu by products": (X, CUBE_BY_PRODUCTS + TANH + FIRST_HALF, 'y = R.nn.gelu(x, approximate="tanh")'),
    "tanh gelu by products of all": (
        X,
        "i = R.multiply(R.const({cubic}, '{dtype}'), x)\nj = R.multiply(i, x)\nl = R.multiply(j, x)\n"
        + TANH.partition("\n")[2]
        + LAST_HALF,
        'y = R.nn.gelu(x, approximate="tanh")',
    ),
    "tanh gelu, fast": (X, FAST_TANH + INNER_HALF, 'y = R.nn.gelu(x, approximate="tanh")'),
    "swish": (X, "s = R.sigmoid(x)\ny = R.multiply(s, x)", "y = R.nn.swish(x, alpha=1.0)"),
    "swish with a slope": (
        X,
        "a = R.multiply(R.const(1.75, '{dtype}'), x)\ns = R.sigmoid(a)\ny = R.multiply(x, s)",
        "y = R.nn.swish(x, alpha=1.75)",
    ),
    "swish by the exponential": (
        X,
        "a = R.negative(x)\ne = R.exp(a)\ns = R.add(R.const(1.0, '{dtype}'), e)\ny = R.divide(x, s)",
        "y = R.nn.swish(x, alpha=1.0)",
    ),
    "hard_swish": (X, SHIFT + CLIP + "p = R.multiply(x, c)\n" + OVER_SIX, "y = R.nn.hard_swish(x)"),
    "hard_swish by a sixth": (
        X,
        SHIFT
        + CLIP
        + "p = R.multiply(x, c)\n"
        + OVER_SIX.replace("divide(p, R.const(6.0", "multiply(p, R.const({sixth}"),
        "y = R.nn.hard_swish(x)",
    ),
    "hard_swish, six inside": (
        X,
        SHIFT + CLIP + OVER_SIX.replace("y =", "p =").replace("(p", "(c") + "\ny = R.multiply(p, x)",
        "y = R.nn.hard_swish(x)",
    ),
    "hard_swish, six first": (
        X,
        SHIFT + CLIP + OVER_SIX.replace("y =", "p =").replace("(p", "(x") + "\ny = R.multiply(p, c)",
        "y = R.nn.hard_swish(x)",
    ),
    "hard_swish by relu": (
        X,
        SHIFT + "r = R.nn.relu(a)\nc = R.minimum(r, R.const(6.0, '{dtype}'))\np = R.multiply(x, c)\n" + OVER_SIX,
        "y = R.nn.hard_swish(x)",
    ),
    "hard_swish by relu and clip": (
        X,
        SHIFT + "r = R.nn.relu(a)\n" + CLIP.replace("clip(a, min=0.0", "clip(r") + "p = R.multiply(x, c)\n" + OVER_SIX,
        "y = R.nn.hard_swish(x)",
    ),
    "hard_swish by extremes": (
        X,
        SHIFT
        + "r = R.maximum(a, R.const(0.0, '{dtype}'))\nc = R.minimum(r, R.const(6.0, '{dtype}'))\n"
        + "p = R.multiply(x, c)\n"
        + OVER_SIX,
        "y = R.nn.hard_swish(x)",
    ),
    "hard_swish by hard_sigmoid": (
        X,
        "s = R.nn.hard_sigmoid(x, alpha={sixth}, beta=0.5)\ny = R.multiply(x, s)",
        "y = R.nn.hard_swish(x)",
    ),
}


def _fill(text: str, dtype: str) -> str:
    """Fill in the dtype, and the constants as rounded by exporters."""
    kind = np.dtype(dtype).type
    numbers = {
        "sqrt_2": float(kind(2.0**0.5)),
        "sqrt_half": float(kind(0.5**0.5)),
        "cubic": float(kind(0.044715)),
        "factor": float(kind((2 / np.pi) ** 0.5)),
        "sixth": float(kind(1 / 6)),
    }
    return text.format(dtype=dtype, **numbers)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("case", FOUND)
def test_spelled_out_ops_are_recognised(case: str, dtype: str) -> None:
    params, before, after = (_fill(text, dtype) for text in FOUND[case])
    check_pass(RecogniseComposites(), params, f"{before}\nreturn y", f"{after}\nreturn y")


@pytest.mark.parametrize("case", FOUND)
@given(seed=st.integers(0, 2**32 - 1), spread=st.sampled_from((0.01, 1.0, 3.0, 30.0)))
def test_recognised_ops_give_the_same_numbers(case: str, seed: int, spread: float) -> None:
    params, before, _ = (_fill(text, "float64") for text in FOUND[case])
    module = parse_main(params, f"{before}\nreturn y")
    generator = np.random.default_rng(seed)
    inputs = [generator.normal(size=(40, 4)) * spread, generator.normal(size=4), generator.normal(size=4)]
    inputs = inputs[: len(module["main"].params)]
    (want,) = evaluate_function(module, "main", inputs)
    (have,) = evaluate_function(RecogniseComposites()(module), "main", inputs)
    assert np.all(np.abs(have - want) <= 2.0**-53 * _error_bound(case, want, *inputs))


def _error_bound(case: str, want: NDArray, x: NDArray, *parameters: NDArray) -> Any:
    """Return the largest distance between the two spellings, in units of roundoff."""
    if case == "softmax":
        return 0.0  # the same steps
    if "gelu" in case or "swish" in case:
        # In gelu the argument t of erf or tanh has a relative error of at most 8u, and t * f'(t) < 1/2; then a sum of
        # at most 2 and two products round. The other gates are at most 1 and have five roundings on each side.
        return 10 * np.abs(x)
    # The statistics are computed by the same steps; then no more than ten roundings differ. Each is of a number that is
    # no larger than the sum of the magnitudes of the terms of the result.
    offset = np.abs(parameters[1]) if len(parameters) == 2 else 0.0
    if "layer_norm by one factor" not in case:
        return 10 * (np.abs(want) + offset)
    mean = x.mean(axis=1, keepdims=True)
    factor = np.abs(parameters[0]) / np.sqrt(np.square(x - mean).mean(axis=1, keepdims=True) + 0.25)
    return 10.01 * (np.abs(x) * factor + np.abs(mean) * factor + offset)


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
    "layer_norm of unknown sizes, without scale": (
        'x: R.Tensor((4, "n"), "{dtype}")',
        MEAN + POWER + VARIANCE + QUOTIENT.replace("t =", "y ="),
    ),
    "rms_norm of another power": (
        X,
        RMS.replace("R.sqrt(e)", "R.power(e, R.const(0.25, '{dtype}'))") + "y = R.divide(x, q)",
    ),
    "rms_norm over another one": (
        X,
        RMS + RECIPROCAL.replace("1.0", "2.0").replace("(r, d)", "(r, x)") + "y = R.abs(t)",
    ),
    "swish of two values": (X + ', z: R.Tensor(("n", 4), "{dtype}")', "s = R.sigmoid(x)\ny = R.multiply(s, z)"),
    "swish with a slope for each": (
        X + ', z: R.Tensor((4,), "{dtype}")',
        "a = R.multiply(z, x)\ns = R.sigmoid(a)\ny = R.multiply(x, s)",
    ),
    "swish of the positive exponential": (
        X,
        "e = R.exp(x)\ns = R.add(e, R.const(1.0, '{dtype}'))\ny = R.divide(x, s)",
    ),
    "swish whose gate is read": (X, "s = R.sigmoid(x)\ny = R.multiply(s, x)\nreturn y, s"),
    "hard_swish of another shift": (X, SHIFT.replace("3.0", "2.0") + CLIP + "p = R.multiply(x, c)\n" + OVER_SIX),
    "hard_swish of another limit": (X, SHIFT + CLIP.replace("6.0", "5.0") + "p = R.multiply(x, c)\n" + OVER_SIX),
    "hard_swish without a floor": (X, SHIFT + CLIP.replace("min=0.0, ", "") + "p = R.multiply(x, c)\n" + OVER_SIX),
    "hard_swish over five": (X, SHIFT + CLIP + "p = R.multiply(x, c)\n" + OVER_SIX.replace("6.0", "5.0")),
    "hard_sigmoid of another slope": (X, "s = R.nn.hard_sigmoid(x)\ny = R.multiply(x, s)"),
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
    "tanh gelu by another divisor": (X, CUBE_BY_A_SQUARE + TANH + BY_TWO.replace("2.0", "5.0")),
    "tanh gelu of another exponent": (X, CUBE_BY_A_SQUARE.replace("2.0", "5.0") + TANH + BY_TWO),
}


@pytest.mark.parametrize("case", KEPT)
def test_other_ops_stay(case: str) -> None:
    params, body = (_fill(text, "float32") for text in KEPT[case])
    check_unchanged(RecogniseComposites(), params, body if "return" in body else f"{body}\nreturn y")


def test_only_the_ops_asked_for_are_recognised() -> None:
    check_unchanged(RecogniseComposites(("nn.gelu",)), _fill(X, "float32"), f"{SOFTMAX}\nreturn y")


def test_an_unknown_op_is_refused() -> None:
    with pytest.raises(OptionsError) as caught:
        RecogniseComposites(("nn.gelo",))
    assert str(caught.value) == (
        "ops: `nn.gelo` is not a recognised op; expected nn.layer_norm, nn.softmax, nn.gelu, nn.rms_norm, nn.swish, "
        "nn.hard_swish, nn.attention. Did you mean 'nn.gelu'?"
    )
