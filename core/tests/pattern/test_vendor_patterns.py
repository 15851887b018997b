"""Patterns in vendors' style, on functions in exporters' style: expected matches and no others."""

from __future__ import annotations

import pytest
from byoc_core import script as R
from byoc_core.partitioning import FuseOpsByPattern
from byoc_core.pattern import CompositePattern, Pattern, Rejection, any_number, is_const, is_op, wildcard
from byoc_core.pattern.match import Match

IMAGE = 'R.Tensor((1, 8, 6, 6), "float32")'
VECTOR = 'R.Tensor((8,), "float32")'


def composites(pattern: Pattern, params: str, body: str, check: object = None) -> list[str]:
    """Fuse by a single pattern; return each composite's ops and each remaining op, in order."""
    lines = "\n".join(f"    {line.strip()}" for line in body.strip().splitlines())
    module = R.parse(f"def main({params}):\n{lines}")
    fused = FuseOpsByPattern([CompositePattern("npu.it", pattern, check)])(module)  # type: ignore[arg-type]
    return [
        f"[{str(b.attrs['pattern']).rstrip('_').replace('_nn.', ' nn.')}]" if b.op.name == "composite" else b.op.name
        for b in fused["main"].bindings
    ]


def conv() -> Pattern:
    return is_op("nn.conv2d")(wildcard(), wildcard())


CONV_PARAMS = f'x: {IMAGE}, w: R.Tensor((8, 8, 1, 1), "float32"), b: {VECTOR}, g: {VECTOR}, m: {VECTOR}, v: {VECTOR}'


def test_convolution_with_batch_norm_and_activation() -> None:
    norm = is_op("nn.batch_norm")(conv(), wildcard(), wildcard(), wildcard(), wildcard())
    pattern = norm.optional(is_op("nn.relu", "nn.leaky_relu"))
    body = "c = R.nn.conv2d(x, w)\nn = R.nn.batch_norm(c, g, b, m, v)\nr = R.{last}(n)\nreturn r"
    assert composites(pattern, CONV_PARAMS, body.format(last="nn.relu")) == ["[nn.conv2d nn.batch_norm nn.relu]"]
    assert composites(pattern, CONV_PARAMS, body.format(last="tanh")) == ["[nn.conv2d nn.batch_norm]", "tanh"]
    alone = "n = R.nn.batch_norm(x, g, b, m, v)\nr = R.nn.relu(n)\nreturn r"
    assert composites(pattern, CONV_PARAMS, alone) == ["nn.batch_norm", "nn.relu"]


RESIDUAL = is_op("nn.relu")(is_op("add")(is_op("nn.bias_add")(conv(), wildcard()), wildcard().named("shortcut")))


@pytest.mark.parametrize("operands", ["s, x", "x, s"])
def test_a_residual_sum_in_either_order(operands: str) -> None:
    body = f"c = R.nn.conv2d(x, w)\ns = R.nn.bias_add(c, b, axis=1)\na = R.add({operands})\nr = R.nn.relu(a)\nreturn r"
    assert composites(RESIDUAL, CONV_PARAMS, body) == ["[nn.conv2d nn.bias_add_add nn.relu]"]


@pytest.mark.parametrize("shortcut", ["s", "t"])
def test_a_shortcut_that_depends_on_the_convolution_is_none(shortcut: str) -> None:
    body = f"""
        c = R.nn.conv2d(x, w)
        s = R.nn.bias_add(c, b, axis=1)
        t = R.tanh(s)
        a = R.add(s, {shortcut})
        r = R.nn.relu(a)
        return r, t
    """
    assert composites(RESIDUAL, CONV_PARAMS, body) == ["nn.conv2d", "nn.bias_add", "tanh", "add", "nn.relu"]


def test_the_two_convolutions_of_a_projected_shortcut_go_one_into_the_composite() -> None:
    body = """
        c = R.nn.conv2d(x, w)
        s = R.nn.bias_add(c, b, axis=1)
        d = R.nn.conv2d(x, w)
        t = R.nn.bias_add(d, b, axis=1)
        a = R.add(s, t)
        r = R.nn.relu(a)
        return r
    """
    found = composites(RESIDUAL, CONV_PARAMS, body)
    assert sorted(found) == ["[nn.conv2d nn.bias_add_add nn.relu]", "nn.bias_add", "nn.conv2d"]


HEADS = 'R.Tensor((1, 2, 4, 8), "float32")'
ATTENTION_PARAMS = f'q: {HEADS}, k: {HEADS}, v: {HEADS}, mask: R.Tensor((1, 1, 4, 4), "float32")'


@pytest.mark.parametrize("masked", [True, False])
def test_attention_with_and_without_a_mask(masked: bool) -> None:
    scores = is_op("matmul")(wildcard(), is_op("permute_dims")(wildcard()).has_attr(axes=(0, 1, 3, 2)))
    scaled = is_op("multiply")(scores, is_const(0.125))
    weights = is_op("nn.softmax")(scaled.optional(lambda s: is_op("add")(s, wildcard().named("mask"))))
    pattern = is_op("matmul")(weights.has_attr(axis=-1), wildcard())
    body = f"""
        t = R.permute_dims(k, axes=(0, 1, 3, 2))
        s = R.matmul(q, t)
        h = R.multiply(s, R.const({{scale}}, "float32"))
        {"h = R.add(mask, h)" if masked else ""}
        p = R.nn.softmax(h, axis=-1)
        o = R.matmul(p, v)
        return o
    """
    found = composites(pattern, ATTENTION_PARAMS, body.format(scale=0.125))
    assert len(found) == 1
    assert found[0].startswith("[permute_dims_matmul_multiply")
    assert ("add" in found[0]) == masked
    other_scale = composites(pattern, ATTENTION_PARAMS, body.format(scale=0.25))
    assert all(not name.startswith("[") for name in other_scale)


@pytest.mark.parametrize("count", [2, 3, 5])
def test_convolutions_that_write_into_one_concatenation(count: int) -> None:
    pattern = is_op("concat")(any_number(conv(), at_least=2)).has_attr(axis=1)
    lines = [f"c{i} = R.nn.conv2d(x, w)" for i in range(count)]
    names = ", ".join(f"c{i}" for i in range(count))
    body = "\n".join([*lines, f"j = R.concat({names}, axis=1)", "return j"])
    assert composites(pattern, CONV_PARAMS, body) == [f"[{' '.join(['nn.conv2d'] * count)}_concat]"]
    with_input = "\n".join([*lines, f"j = R.concat({names}, x, axis=1)", "return j"])
    assert composites(pattern, CONV_PARAMS, with_input)[-1] == "concat"


GATES = "gates: R.Tensor((1, 16)), cell: R.Tensor((1, 4))"


def lstm_cell() -> Pattern:
    parts = is_op("split")(wildcard())
    keep = is_op("multiply")(is_op("sigmoid")(parts.result(2)), wildcard().named("cell"))
    write = is_op("multiply")(is_op("sigmoid")(parts.result(0)), is_op("tanh")(parts.result(3)))
    cell = is_op("add")(keep, write).named("next_cell")
    return is_op("multiply")(is_op("sigmoid")(parts.result(1)), is_op("tanh")(cell))


def lstm(order: str = "iofc") -> str:
    return f"""
        {", ".join(order)} = R.split(gates, sections=(4, 4, 4, 4), axis=1)
        si = R.sigmoid(i)
        sf = R.sigmoid(f)
        tc = R.tanh(c)
        keep = R.multiply(cell, sf)
        write = R.multiply(si, tc)
        next_cell = R.add(keep, write)
        so = R.sigmoid(o)
        tn = R.tanh(next_cell)
        h = R.multiply(so, tn)
    """


def test_the_gates_of_an_lstm_cell() -> None:
    assert composites(lstm_cell(), GATES, lstm() + "return h") == [
        "[split_sigmoid_sigmoid_tanh_multiply_multiply_add_sigmoid_tanh_multiply]"
    ]
    # The parts of the split are told apart: with other gates in their places it is another function.
    assert composites(lstm_cell(), GATES, lstm("oifc") + "return h")[0] == "split"


def test_a_cell_state_that_goes_on_is_given_back_by_option() -> None:
    text = f"def main({GATES}):\n" + "\n".join(f"    {line.strip()}" for line in lstm().strip().splitlines())
    module = R.parse(f"{text}\n    return h, next_cell")
    declining = CompositePattern("npu.lstm", lstm_cell())
    assert FuseOpsByPattern([declining])(module) is module
    (composite,) = FuseOpsByPattern([CompositePattern("npu.lstm", lstm_cell(), leaked="return")])(module)[
        "main"
    ].bindings
    assert [result.name for result in composite.results] == ["h", "next_cell"]


QUANTISED = 'x: R.Tensor((2, 8), "int8"), w: R.Tensor((4, 8), "int8"), s: R.Tensor((), "float32")'
ZERO = 'R.const(0, "int8")'


def test_a_quantised_product() -> None:
    def dequantized() -> Pattern:
        return is_op("dequantize")(wildcard().has_dtype("int8"), wildcard(), is_const(0))

    pattern = is_op("quantize")(is_op("nn.dense")(dequantized(), dequantized()), wildcard(), is_const(0))
    body = f"""
        a = R.dequantize(x, s, {ZERO})
        b = R.dequantize(w, s, {{zero}})
        d = R.nn.dense(a, b)
        q = R.quantize(d, s, {ZERO})
        return q
    """
    assert composites(pattern, QUANTISED, body.format(zero=ZERO)) == ["[dequantize_dequantize nn.dense_quantize]"]
    shifted = composites(pattern, QUANTISED, body.format(zero='R.const(3, "int8")'))
    assert shifted == ["dequantize", "dequantize", "nn.dense", "quantize"]


def test_a_layer_norm_that_reads_its_input_three_times() -> None:
    x = wildcard().named("x")
    centred = is_op("subtract")(x, is_op("mean")(x))
    deviation = is_op("sqrt")(is_op("add")(is_op("mean")(is_op("multiply")(centred, centred)), is_const()))
    pattern = is_op("divide")(centred, deviation)
    body = """
        m = R.mean(x, axis=(-1,), keepdims=True)
        c = R.subtract({what}, m)
        p = R.multiply(c, c)
        n = R.mean(p, axis=(-1,), keepdims=True)
        e = R.add(n, R.const(1e-05, "float32"))
        s = R.sqrt(e)
        y = R.divide(c, s)
        return y
    """
    params = "x: R.Tensor((2, 8)), z: R.Tensor((2, 8))"
    assert composites(pattern, params, body.format(what="x")) == ["[mean_subtract_multiply_mean_add_sqrt_divide]"]
    assert all(not name.startswith("[") for name in composites(pattern, params, body.format(what="z")))


def test_a_check_sees_captures_attributes_types_and_readers() -> None:
    seen: list[object] = []
    data, weight = wildcard().named("data"), wildcard().named("weight")
    pattern = is_op("nn.relu")(is_op("nn.conv2d")(data, weight).named("conv"))

    def check(match: Match) -> Rejection | None:
        seen.append((match.attrs("conv")["groups"], match.tensor("weight").shape, len(match.users("conv"))))
        return Rejection("groups", "one group only") if match.attrs("conv")["groups"] == 1 else None

    body = "c = R.nn.conv2d(x, w)\nr = R.nn.relu(c)\nreturn r"
    assert composites(pattern, CONV_PARAMS, body, check) == ["nn.conv2d", "nn.relu"]
    assert seen == [(1, (8, 8, 1, 1), 1)]
