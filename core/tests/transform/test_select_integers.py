"""Ops that select elements, between ``dequantize`` and ``quantize``: moved to the integers, or left alone."""

from __future__ import annotations

import byoc_core
import numpy as np
import pytest
from byoc_core.transform import SelectIntegers, Sequential, default_passes
from hypothesis import given, settings
from hypothesis import strategies as st

from core.tests.conftest import FakeBackend
from core.tests.ir_text import check_pass, check_unchanged, parse_main

IMAGE = 'q: R.Tensor((1, 4, 6, 6), "uint8")'
SCALE, ZERO = "R.const(0.03125)", 'R.const(128, "uint8")'
DEQUANTIZE = f"a = R.dequantize(q, {SCALE}, {ZERO})"
QUANTIZE = f"y = R.quantize(b, {SCALE}, {ZERO})"

SELECTIONS = {
    "max_pool2d": "R.nn.max_pool2d({}, pool_size=(3, 3), strides=(2, 2), padding=(1, 1, 1, 1))",
    "max_pool2d over padding alone": "R.nn.max_pool2d({}, pool_size=(2, 2), dilation=(8, 8), padding=(7, 7, 7, 7))",
    "adaptive_max_pool2d": "R.nn.adaptive_max_pool2d({}, output_size=(2, 3))",
    "reshape": "R.reshape({}, shape=(4, 36))",
    "squeeze": "R.squeeze({}, axis=(0,))",
    "permute_dims": "R.permute_dims({}, axes=(0, 2, 3, 1))",
    "strided_slice": "R.strided_slice({}, axes=(3,), begin=(1,), end=(6,), strides=(2,))",
    "broadcast_to": "R.broadcast_to({}, shape=(2, 4, 6, 6))",
    "depth_to_space": "R.depth_to_space({}, block_size=2)",
    "space_to_depth": "R.space_to_depth({}, block_size=3)",
}


@pytest.mark.parametrize("selection", SELECTIONS.values(), ids=SELECTIONS)
def test_elements_are_selected_among_integers(selection: str) -> None:
    before = f"{DEQUANTIZE}\nb = {selection.format('a')}\n{QUANTIZE}\nreturn y"
    after = f"y = {selection.format('q')}\nreturn y"
    check_pass(SelectIntegers(), IMAGE, before, after)


def test_a_chain_of_selections_moves_as_a_whole() -> None:
    before = (
        f"{DEQUANTIZE}\nc = R.dequantize(p, {SCALE}, {ZERO})\nd = R.nn.max_pool2d(a, pool_size=(2, 2))\n"
        f"e = R.concat((d, c), axis=1)\nb = R.reshape(e, shape=(1, 72))\n{QUANTIZE}\nreturn y"
    )
    after = (
        "y = R.nn.max_pool2d(q, pool_size=(2, 2))\ny = R.concat((y, p), axis=1)\n"
        "y = R.reshape(y, shape=(1, 72))\nreturn y"
    )
    params = f'{IMAGE}, p: R.Tensor((1, 4, 3, 3), "uint8")'
    check_pass(SelectIntegers(), params, before, after)


def test_quantisation_of_a_dequantised_value_returns_the_integers() -> None:
    check_pass(
        SelectIntegers(), IMAGE, f"{DEQUANTIZE}\nb = R.reshape(a, shape=(144,))\n{QUANTIZE}\nreturn y",
        "y = R.reshape(q, shape=(144,))\nreturn y",
    )  # fmt: skip
    check_pass(SelectIntegers(), IMAGE, f"{DEQUANTIZE}\n{QUANTIZE.replace('(b', '(a')}\nreturn y", "return q")


FLATTEN = "b = R.reshape(a, shape=(144,))"
POOL = "b = R.nn.max_pool2d(a, pool_size=(2, 2))"


def quantised_by(scale: str, zero: str) -> str:
    return f"{DEQUANTIZE}\n{FLATTEN}\ny = R.quantize(b, {scale}, {zero})\nreturn y"


def pooled_by(scale: str) -> str:
    return f"a = R.dequantize(q, {scale}, {ZERO})\n{POOL}\ny = R.quantize(b, {scale}, {ZERO})\nreturn y"


LEFT_ALONE = {
    "another scale": quantised_by("R.const(0.25)", ZERO),
    "another zero point": quantised_by(SCALE, 'R.const(0, "uint8")'),
    "another dtype": quantised_by(SCALE, 'R.const(0, "int8")'),
    "a negative scale": pooled_by("R.const(-0.5)"),
    "a tiny scale": pooled_by("R.const(1e-40)"),
    "a mean": f"{DEQUANTIZE}\nb = R.nn.avg_pool2d(a, pool_size=(2, 2))\n{QUANTIZE}\nreturn y",
    "an operand of floats": f"{DEQUANTIZE}\nb = R.concat((a, x), axis=0)\n{QUANTIZE}\nreturn y",
    "another reader": f"{DEQUANTIZE}\n{POOL}\n{QUANTIZE}\nreturn y, b",
}


@pytest.mark.parametrize("case", LEFT_ALONE)
def test_what_would_change_a_number_or_compute_twice_stays(case: str) -> None:
    check_unchanged(SelectIntegers(), f'{IMAGE}, x: R.Tensor((1, 4, 6, 6), "float32")', LEFT_ALONE[case])


@settings(deadline=None)
@given(
    bits=st.sampled_from(["int8", "uint8", "int16", "uint16"]),
    scale=st.floats(2.0**-100, 2.0**100, width=32),
    data=st.data(),
)
def test_every_integer_survives(bits: str, scale: float, data: st.DataObject) -> None:
    """The law behind the pass: integers restored and quantised with the same parameters are the same."""
    limits = np.iinfo(bits)
    zero = data.draw(st.integers(limits.min, limits.max))
    body = (
        f'a = R.dequantize(q, R.const({scale!r}, "float32"), R.const({zero}, "{bits}"))\n'
        f'y = R.quantize(a, R.const({scale!r}, "float32"), R.const({zero}, "{bits}"))\nreturn y'
    )
    module = parse_main(f'q: R.Tensor(("n",), "{bits}")', body)
    numbers = np.arange(limits.min, limits.max + 1).astype(bits)
    np.testing.assert_array_equal(byoc_core.VirtualMachine(byoc_core.build(module, []))["main"](numbers), numbers)
    assert not SelectIntegers()(module)["main"].bindings


@pytest.mark.parametrize("selection", SELECTIONS.values(), ids=SELECTIONS)
def test_a_build_for_a_backend_with_integers_keeps_the_bits(selection: str, fake_backend: type[FakeBackend]) -> None:
    body = f"{DEQUANTIZE}\nb = {selection.format('a')}\n{QUANTIZE}\nreturn y"
    module = parse_main(IMAGE, body)
    q = np.random.default_rng(0).integers(0, 256, (1, 4, 6, 6)).astype(np.uint8)
    results = []
    for quantised in (True, False):
        backend = fake_backend("aone", ["add"], quantised=quantised)
        executable = byoc_core.build(module, [backend])
        names = [row["op"] for row in executable.report_data["ops"]]
        assert ("dequantize" in names) is not quantised
        results.append(byoc_core.VirtualMachine(executable)["main"](q))
    np.testing.assert_array_equal(results[0], results[1])


def test_constants_among_the_integers_are_folded() -> None:
    body = (
        f'{DEQUANTIZE}\nk = R.dequantize(R.const([1, 2, 3], "uint8"), {SCALE}, {ZERO})\nf = R.flip(k, axis=0)\n'
        f"c = R.reshape(a, shape=(144,))\nb = R.concat((c, f), axis=0)\n{QUANTIZE}\nreturn y"
    )
    module = Sequential(default_passes(keep_quantised=True))(parse_main(IMAGE, body))
    assert [binding.op.name for binding in module["main"].bindings] == ["reshape", "concat"]
