"""The definition of repeated computations."""

from __future__ import annotations

import pytest
from byoc_core.transform import EliminateCommonSubexpressions

from core.tests.ir_text import check_pass, check_unchanged

PARAMS = 'c: R.Tensor((), "bool"), x: R.Tensor((3,), "float32"), y: R.Tensor((3,), "float32")'
REGION = "@R.region\ndef {name}(p: R.Tensor((3,))):\n    q = R.exp(p)\n    r = R.{op}(q)\n    return r\n"

MERGED = {
    "equal ops": ("a = R.exp(x)\nb = R.exp(x)\nz = R.add(a, b)", "a = R.exp(x)\nz = R.add(a, a)"),
    "chains": (
        "a = R.exp(x)\nb = R.exp(x)\nd = R.negative(a)\ne = R.negative(b)\nz = R.add(d, e)",
        "a = R.exp(x)\nd = R.negative(a)\nz = R.add(d, d)",
    ),
    "swapped operands": ("a = R.add(x, y)\nb = R.add(y, x)\nz = R.divide(a, b)", "a = R.add(x, y)\nz = R.divide(a, a)"),
    "equal constants": (
        'a = R.add(x, R.const(2.0, "float32"))\nb = R.add(R.const(2.0, "float32"), x)\nz = R.divide(a, b)',
        'a = R.add(x, R.const(2.0, "float32"))\nz = R.divide(a, a)',
    ),
    "several results": (
        "a, b = R.split(x, sections=(1, 2))\nd, e = R.split(x, sections=(1, 2))\nz = R.concat(a, e)",
        "a, b = R.split(x, sections=(1, 2))\nz = R.concat(a, b)",
    ),
    "pure calls": (
        (
            'a = R.call_packed("f", (x,), pure=True, out_types=[R.Tensor((3,))])\n'
            'b = R.call_packed("f", (x,), pure=True, out_types=[R.Tensor((3,))])\nz = R.add(a, b)'
        ),
        'a = R.call_packed("f", (x,), pure=True, out_types=[R.Tensor((3,))])\nz = R.add(a, a)',
    ),
    "branches with equal regions": (
        REGION.format(name="t", op="tanh")
        + REGION.format(name="e", op="abs")
        + "a = R.if_(c, x, regions=[t, e])\n"
        + REGION.format(name="u", op="tanh")
        + REGION.format(name="f", op="abs")
        + "b = R.if_(c, x, regions=[u, f])\nz = R.add(a, b)",
        REGION.format(name="t", op="tanh")
        + REGION.format(name="e", op="abs")
        + "a = R.if_(c, x, regions=[t, e])\nz = R.add(a, a)",
    ),
    "inside regions": (
        REGION.format(name="t", op="tanh").replace("R.tanh(q)", "R.exp(p)")
        + REGION.format(name="e", op="abs")
        + "z = R.if_(c, x, regions=[t, e])",
        "@R.region\ndef t(p: R.Tensor((3,))):\n    q = R.exp(p)\n    return q\n"
        + REGION.format(name="e", op="abs")
        + "z = R.if_(c, x, regions=[t, e])",
    ),
}


@pytest.mark.parametrize("case", MERGED)
def test_what_is_computed_twice_is_merged(case: str) -> None:
    before, after = MERGED[case]
    check_pass(EliminateCommonSubexpressions(), PARAMS, f"{before}\nreturn z", f"{after}\nreturn z")


KEPT = {
    "other operands": "a = R.exp(x)\nb = R.exp(y)\nz = R.add(a, b)",
    "other attributes": "a = R.clip(x, min=0.0)\nb = R.clip(x, min=-0.0)\nz = R.add(a, b)",
    "order of operands": "a = R.subtract(x, y)\nb = R.subtract(y, x)\nz = R.add(a, b)",
    "order of float zeros": "a = R.maximum(x, y)\nb = R.maximum(y, x)\nz = R.add(a, b)",
    "constants of other dtype": (
        'a = R.cast(R.const(2.0, "float32"), dtype="float16")\nb = R.cast(R.const(2.0, "float64"), dtype="float16")\n'
        "z = R.add(a, b)"
    ),
    "impure calls": (
        'a = R.call_packed("f", (x,), out_types=[R.Tensor((3,))])\n'
        'b = R.call_packed("f", (x,), out_types=[R.Tensor((3,))])\nz = R.add(a, b)'
    ),
    "other result types": (
        'a = R.call_packed("f", (x,), pure=True, out_types=[R.Tensor((3,))])\n'
        'b = R.call_packed("f", (x,), pure=True, out_types=[R.Tensor((1,))])\nz = R.add(a, b)'
    ),
    "other claims": 'a = R.exp(x, codegen="some")\nb = R.exp(x)\nz = R.add(a, b)',
    "a scope outside": (
        "a = R.exp(x)\n@R.region\ndef t(p: R.Tensor((3,))):\n    q = R.exp(p)\n    return q\n"
        "@R.region\ndef e(p: R.Tensor((3,))):\n    return p\n"
        "z = R.if_(c, a, regions=[t, e])"
    ),
    "annotated functions": (
        'R.func_attr({"Codegen": "some", "global_symbol": "f"})\na = R.exp(x)\nb = R.exp(x)\nz = R.add(a, b)'
    ),
}


@pytest.mark.parametrize("case", KEPT)
def test_what_may_differ_stays(case: str) -> None:
    check_unchanged(EliminateCommonSubexpressions(), PARAMS, f"{KEPT[case]}\nreturn z")
