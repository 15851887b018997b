"""Recognised spellings of attention, and similar graphs with another meaning."""

from __future__ import annotations

import numpy as np
import pytest
from byoc_core.ir import TensorType
from byoc_core.transform import RecogniseComposites, evaluate_function
from hypothesis import given
from hypothesis import strategies as st

from core.tests.ir_text import check_pass, check_unchanged, parse_main

BATCH = 'q: R.Tensor(("b", 4, "s", 2)), k: R.Tensor(("b", 4, "t", 2)), v: R.Tensor(("b", 4, "t", 3))'
GROUPS = 'q: R.Tensor(("b", 4, "s", 2)), k: R.Tensor(("b", 2, "t", 2)), v: R.Tensor(("b", 2, "t", 3))'
ADDED = ', m: R.Tensor(("b", 1, "s", "t"))'
HIDDEN = ', c: R.Tensor(("s", "t"), "bool")'
LOWEST = "-3.4028234663852886e+38"

TURN = "kt = R.permute_dims(k, axes=(0, 1, 3, 2))\n"
SCORES = "a = R.matmul(q, kt)\n"
HALF = "e = R.multiply(a, R.const(0.5, 'float32'))\n"
REST = "w = R.nn.softmax(e, axis=-1)\ny = R.matmul(w, v)"
PLAIN = "y = R.nn.attention(q, k, v, scale=0.5)"
MASKED = "y = R.nn.attention(q, k, v, m, scale=0.5)"


def _repeated(name: str, size: int, *, by: str) -> str:
    expanded = f'{name}1 = R.reshape({name}, shape=("b", 2, 1, "t", {size}))\n'
    joined = f'{name}3 = R.reshape({name}2, shape=("b", 4, "t", {size}))\n'
    if by == "broadcast":
        return expanded + f'{name}2 = R.broadcast_to({name}1, shape=("b", 2, 2, "t", {size}))\n' + joined
    if by == "tile":
        return expanded + f"{name}2 = R.tile({name}1, repeats=(1, 1, 2, 1, 1))\n" + joined
    if by == "concat":
        return expanded + f"{name}2 = R.concat({name}1, {name}1, axis=2)\n" + joined
    return f"{name}3 = R.take({name}, R.const([{by}], 'int64'), axis=1)\n"


def _grouped(by: str) -> str:
    body = _repeated("k", 2, by=by) + _repeated("v", 3, by=by) + TURN.replace("(k,", "(k3,") + SCORES + HALF
    return body + REST.replace("v)", "v3)")


FOUND = {
    "scaled scores": (BATCH, TURN + SCORES + HALF + REST, PLAIN),
    "divided scores": (BATCH, TURN + SCORES + HALF.replace("multiply", "divide").replace("0.5", "2.0") + REST, PLAIN),
    "no scale": (BATCH, TURN + SCORES + REST.replace("(e", "(a"), PLAIN.replace("0.5", "1.0")),
    "scaled query": (
        BATCH,
        "d = R.divide(q, R.const([2.0], 'float32'))\n" + TURN + SCORES.replace("(q", "(d") + REST.replace("(e", "(a"),
        PLAIN,
    ),
    "scale on both": (
        BATCH,
        "d = R.multiply(R.const(0.5, 'float32'), q)\n"
        + TURN
        + "kd = R.multiply(kt, R.const(0.25, 'float32'))\na = R.matmul(d, kd)\n"
        + REST.replace("(e", "(a"),
        PLAIN.replace("0.5", "0.125"),
    ),
    "scale on both, before the transpose": (
        BATCH,
        "d = R.multiply(q, R.const(2.0, 'float32'))\nkd = R.multiply(k, R.const(0.25, 'float32'))\n"
        + TURN.replace("(k,", "(kd,")
        + SCORES.replace("(q", "(d")
        + REST.replace("(e", "(a"),
        PLAIN,
    ),
    "heads behind the steps": (
        BATCH.replace('k: R.Tensor(("b", 4, "t", 2))', 'k: R.Tensor(("b", "t", 4, 2))'),
        "kt = R.permute_dims(k, axes=(0, 2, 3, 1))\n" + SCORES + HALF + REST,
        "y = R.permute_dims(k, axes=(0, 2, 1, 3))\n" + PLAIN.replace("k, v", "y, v"),
    ),
    "added mask": (BATCH + ADDED, TURN + SCORES + HALF + "f = R.add(e, m)\n" + REST.replace("(e", "(f"), MASKED),
    "mask first": (BATCH + ADDED, TURN + SCORES + HALF + "f = R.add(m, e)\n" + REST.replace("(e", "(f"), MASKED),
    "two masks": (
        BATCH + ADDED + ', l: R.Tensor(("t",))',
        TURN + SCORES + HALF + "f = R.add(e, m)\ng = R.add(l, f)\n" + REST.replace("(e", "(g"),
        "y = R.add(m, l)\n" + MASKED.replace("m,", "y,"),
    ),
    "shown": (
        BATCH + HIDDEN,
        TURN + SCORES + HALF + f"f = R.where(c, e, R.const({LOWEST}, 'float32'))\n" + REST.replace("(e", "(f"),
        f"y = R.where(c, R.const(0.0, 'float32'), R.const({LOWEST}, 'float32'))\n" + MASKED.replace("m,", "y,"),
    ),
    "hidden": (
        BATCH + HIDDEN,
        TURN + SCORES + HALF + "f = R.where(c, R.const(-inf, 'float32'), e)\n" + REST.replace("(e", "(f"),
        "y = R.where(c, R.const(-inf, 'float32'), R.const(0.0, 'float32'))\n" + MASKED.replace("m,", "y,"),
    ),
    "groups by broadcast": (GROUPS, _grouped("broadcast"), PLAIN),
    "groups by concat": (GROUPS, _grouped("concat"), PLAIN),
    "groups by tile": (GROUPS, _grouped("tile"), PLAIN),
    "groups by indices": (GROUPS, _grouped("0, 0, 1, 1"), PLAIN),
    "spelled-out softmax": (
        BATCH,
        TURN
        + SCORES
        + HALF
        + "n = R.max(e, axis=(-1,), keepdims=True)\nd = R.subtract(e, n)\np = R.exp(d)\n"
        + "r = R.sum(p, axis=(3,), keepdims=True)\nw = R.divide(p, r)\ny = R.matmul(w, v)",
        PLAIN,
    ),
}


@pytest.mark.parametrize("case", FOUND)
def test_spelled_out_attention_is_recognised(case: str) -> None:
    params, before, after = (text.replace("-inf", 'float("-inf")') for text in FOUND[case])
    check_pass(RecogniseComposites(), params, f"{before}\nreturn y", f"{after}\nreturn y")


@pytest.mark.parametrize("case", FOUND)
@given(seed=st.integers(0, 2**32 - 1), batch=st.integers(1, 2), steps=st.integers(1, 4), length=st.integers(1, 6))
def test_recognised_attention_gives_the_same_numbers(case: str, seed: int, batch: int, steps: int, length: int) -> None:
    params, before, _ = (text.replace("-inf", 'float("-inf")') for text in FOUND[case])
    module = parse_main(params, f"{before}\nreturn y")
    generator = np.random.default_rng(seed)
    sizes = {"b": batch, "s": steps, "t": length}
    inputs = []
    for param in module["main"].params:
        assert isinstance(param.type, TensorType)
        shape = [sizes[str(size)] if str(size) in sizes else int(str(size)) for size in param.type.shape or ()]
        numbers = generator.integers(-3, 4, size=shape)
        inputs.append(numbers > 0 if param.type.dtype == "bool" else numbers.astype(np.float32))
    (want,) = evaluate_function(module, "main", inputs)
    (have,) = evaluate_function(RecogniseComposites()(module), "main", inputs)
    # Small integers and powers of two: scores, and so weights, are exact in any order, and the softmax has the same
    # steps. The last product sums a term for each key on each side, each a weight (they sum to 1) times at most 3.
    terms = length * 2.0**-24
    np.testing.assert_array_equal(np.isnan(have), np.isnan(want))  # where minus infinity hides every key of a step
    assert not np.any(np.abs(have - want) > 2 * terms / (1 - terms) * 3 * (1 + terms))


KEPT = {
    "softmax along another axis": (
        BATCH.replace('"s"', '"t"'),
        TURN + SCORES + HALF + REST.replace("-1", "2"),
    ),
    "scores that are read": (BATCH, TURN + SCORES + HALF + REST + "\nreturn y, a"),
    "weights that are read": (BATCH, TURN + SCORES + HALF + REST + "\nreturn y, w"),
    "scale that is no constant": (
        BATCH + ", z: R.Tensor(())",
        TURN + SCORES + HALF.replace("R.const(0.5, 'float32')", "z") + REST,
    ),
    "scale after the mask": (
        BATCH + ADDED,
        TURN + SCORES + "f = R.add(a, m)\n" + HALF.replace("(a", "(f") + REST,
    ),
    "a mask that widens": (
        BATCH.replace('"b"', "1") + ADDED,
        TURN + SCORES + HALF + "f = R.add(e, m)\n" + REST.replace("(e", "(f"),
    ),
    "scores replaced by a small number": (
        BATCH + HIDDEN,
        TURN + SCORES + HALF + "f = R.where(c, e, R.const(-10000.0, 'float32'))\n" + REST.replace("(e", "(f"),
    ),
    "masked scores replaced by the lowest": (
        BATCH + ADDED + HIDDEN,
        TURN
        + SCORES
        + HALF
        + f"f = R.add(e, m)\ng = R.where(c, f, R.const({LOWEST}, 'float32'))\n"
        + REST.replace("(e", "(g"),
    ),
    "keys as they are": (
        BATCH.replace('k: R.Tensor(("b", 4, "t", 2))', 'kt: R.Tensor(("b", 4, 2, "t"))'),
        SCORES + HALF + REST,
    ),
    "one group for all": (
        BATCH.replace('k: R.Tensor(("b", 4', 'k: R.Tensor(("b", 1'),
        TURN + SCORES + HALF + REST,
    ),
    "three axes": (
        'q: R.Tensor((4, "s", 2)), k: R.Tensor((4, "t", 2)), v: R.Tensor((4, "t", 3))',
        "kt = R.permute_dims(k, axes=(0, 2, 1))\n" + SCORES + HALF + REST,
    ),
}


@pytest.mark.parametrize("case", KEPT)
def test_what_is_not_attention_stays(case: str) -> None:
    params, body = KEPT[case]
    check_unchanged(RecogniseComposites(), params, body if "return" in body else f"{body}\nreturn y")


def test_repeats_in_another_order_stay() -> None:
    keys, values = (_repeated(name, size, by="0, 1, 0, 1") for name, size in (("k", 2), ("v", 3)))
    check_pass(
        RecogniseComposites(),
        GROUPS,
        _grouped("0, 1, 0, 1") + "\nreturn y",
        keys + values + PLAIN.replace("k, v", "k3, v3") + "\nreturn y",
    )


def test_only_keys_repeated_stay_repeated() -> None:
    params = GROUPS.replace('v: R.Tensor(("b", 2', 'v: R.Tensor(("b", 4')
    body = _repeated("k", 2, by="broadcast") + TURN.replace("(k,", "(k3,") + SCORES + HALF + REST
    after = _repeated("k", 2, by="broadcast") + PLAIN.replace("k,", "k3,")
    check_pass(RecogniseComposites(), params, f"{body}\nreturn y", f"{after}\nreturn y")


@pytest.mark.parametrize("softmax", ["nn.softmax", "nn.stepwise_softmax", "float32"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_stages_of_narrow_floats_stay_rounded(dtype: str, softmax: str) -> None:
    params = BATCH.replace("))", f"), {dtype!r})")
    weights = f"w = R.{softmax}(a, axis=3)\n"
    if softmax == "float32":
        weights = f"e = R.cast(a, dtype='float32')\nf = R.nn.softmax(e, axis=3)\nw = R.cast(f, dtype={dtype!r})\n"
    module = parse_main(params, TURN + SCORES + weights + "y = R.matmul(w, v)\nreturn y")
    assert RecogniseComposites()(module)["main"] is module["main"]


def test_a_softmax_by_steps_is_no_part_of_the_op() -> None:
    module = parse_main(BATCH, TURN + SCORES + "w = R.nn.stepwise_softmax(a, axis=3)\ny = R.matmul(w, v)\nreturn y")
    assert RecogniseComposites()(module)["main"] is module["main"]


@pytest.mark.parametrize("narrow", ["float16", "bfloat16", "float32"])
def test_an_rms_norm_in_float32_is_what_the_op_computes(narrow: str) -> None:
    wide = "float64" if narrow == "float32" else "float32"
    body = (
        f"a = R.cast(x, dtype={wide!r})\ns = R.multiply(a, a)\nm = R.mean(s, axis=(1,), keepdims=True)\n"
        f"e = R.add(m, R.const(0.25, {wide!r}))\nq = R.sqrt(e)\nr = R.reciprocal(q)\nt = R.multiply(a, r)\n"
        f"n = R.cast(t, dtype={narrow!r})\ny = R.multiply(g, n)\nreturn y"
    )
    params = f'x: R.Tensor(("n", 4), {narrow!r}), g: R.Tensor((4,), {narrow!r})'
    recognise = RecogniseComposites(("nn.rms_norm",))
    if narrow == "float32":
        ones = 'R.const([1.0, 1.0, 1.0, 1.0], "float64")'
        wanted = (
            f'a = R.cast(x, dtype="float64")\nt = R.nn.rms_norm(a, {ones}, axes=(1,), epsilon=0.25)\n'
            'n = R.cast(t, dtype="float32")\ny = R.multiply(g, n)\nreturn y'
        )
        check_pass(recognise, params, body, wanted)
        return
    check_pass(recognise, params, body, "y = R.nn.rms_norm(x, g, axes=(1,), epsilon=0.25)\nreturn y")
    module = parse_main(params, body)
    after = recognise(module)
    generator = np.random.default_rng(3)
    inputs = [generator.normal(size=shape).astype(np.float32) for shape in ((50, 4), (4,))]
    narrowed = [
        evaluate_function(
            parse_main(f'x: R.Tensor({array.shape}, "float32")', f"y = R.cast(x, dtype={narrow!r})\nreturn y"),
            "main",
            [array],
        )[0]
        for array in inputs
    ]
    (want,), (have,) = (evaluate_function(m, "main", narrowed) for m in (module, after))
    # Before the product with gamma the spelled-out form rounds to the narrow dtype: one rounding more than the op.
    unit = 2.0**-11 if narrow == "float16" else 2.0**-8
    exact = np.abs(have.astype(float))
    assert np.all(np.abs(have.astype(float) - want.astype(float)) <= 3.01 * unit * exact + 2.0**-24)
