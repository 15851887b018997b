"""Forms of weights asked for by compiled functions are computed by derivations, once for each value of a weight."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from byoc_core.ir import CALL_DPS_PACKED, Function, Value, tensor
from byoc_core.ir.verifier import verify
from byoc_core.ir.weights import declare_weights
from byoc_core.ops import FunctionBuilder
from byoc_core.transform.hoist_weight_forms import hoist_weight_forms
from byoc_core.transform.hoist_weights import DerivedValue, HoistedWeights, hoist_weights

from core.tests.ir_text import parse_main
from core.tests.weighted_modules import emit

PARAMS = ", ".join(f'{name}: R.Tensor((4, 4), "float32")' for name in ("x", "a", "b"))
BODY = """bt = R.permute_dims(b, axes=(1, 0))
y = R.matmul(x, a)
z = R.matmul(y, bt)
w = R.matmul(z, bt)
return w"""
TYPE = tensor((4, 4))


def form(op: str) -> Function:
    """Return a function of a weight to the same type."""
    fb = FunctionBuilder("form")
    return fb.finish(emit(fb, op, fb.param("weight", TYPE)))


def compiled(names: str = "ab") -> tuple[HoistedWeights, Function]:
    """Return the weights, and the function with an external call in place of each product: f0, f1, f2."""
    module = declare_weights(parse_main(PARAMS, BODY), {name: np.ones((4, 4), np.float32) for name in names})
    item = hoist_weights(module["main"], lambda _: True)
    assert item is not None
    bindings = []
    for number, binding in enumerate(item.function.bindings):
        attrs = CALL_DPS_PACKED.normalise_attrs({"symbol": f"f{number}", "device": 0})
        bindings.append(replace(binding, op=CALL_DPS_PACKED, attrs=attrs))
    return item, replace(item.function, bindings=tuple(bindings))


def hoisted(forms: Mapping[str, Mapping[int, Function]]) -> HoistedWeights:
    item, function = compiled()
    found = hoist_weight_forms(item, function, forms)
    module = parse_main(PARAMS, BODY).with_function(found.function)
    verify(module)
    for derivation in found.derivations:
        verify(module.with_function(derivation))
    return found


def ops(found: HoistedWeights) -> list[list[str]]:
    return [[binding.op.name for binding in derived.bindings] for derived in found.derivations]


def operands(found: HoistedWeights) -> list[Value]:
    return [binding.operands[1] for binding in found.function.bindings]


def test_without_forms_nothing_changes() -> None:
    item, function = compiled()
    found = hoist_weight_forms(item, function, {"other": {0: form("exp")}})
    assert found.function is function
    assert (found.inputs, found.derivations) == (item.inputs, item.derivations)


def test_a_form_of_a_weight_is_a_derivation_and_replaces_the_parameter() -> None:
    found = hoisted({"f0": {1: form("exp")}})
    assert ops(found) == [["permute_dims"], ["exp"]]
    assert found.derivations[1].input_names == ("a",)
    assert dict(found.inputs) == {"bt.derived": DerivedValue(0, 0), "a.packed": DerivedValue(1, 0)}
    assert found.function.input_names == ("x", "bt.derived", "a.packed")
    assert operands(found) == [found.function.params[2], found.function.params[1], found.function.params[1]]


def test_a_form_of_a_computed_value_joins_its_derivation() -> None:
    found = hoisted({"f1": {1: form("exp")}})
    assert ops(found) == [["permute_dims", "exp"]]
    # The other reader still needs the transposed weight.
    assert found.inputs["bt.derived"] == DerivedValue(0, 0)
    assert found.inputs["bt.derived.packed"] == DerivedValue(0, 1)


def test_a_computed_value_read_in_its_form_alone_is_no_result() -> None:
    found = hoisted({"f1": {1: form("exp")}, "f2": {1: form("exp")}})
    assert ops(found) == [["permute_dims", "exp"]]  # equal forms are computed once
    assert dict(found.inputs) == {"a": "a", "bt.derived.packed": DerivedValue(0, 0)}
    assert len(found.derivations[0].results) == 1
    assert operands(found)[1] is operands(found)[2]


def test_two_forms_of_a_value_are_two_results() -> None:
    found = hoisted({"f1": {1: form("exp")}, "f2": {1: form("tanh")}})
    assert ops(found) == [["permute_dims", "exp", "tanh"]]
    assert found.inputs["bt.derived.packed"] == DerivedValue(0, 0)
    assert found.inputs["bt.derived.packed1"] == DerivedValue(0, 1)
    assert found.function.input_names == ("x", "a", "bt.derived.packed", "bt.derived.packed1")
