"""Computations of weights alone leave a function, in one derivation for weights computed together."""

from __future__ import annotations

import numpy as np
import pytest
from byoc_core.errors import IRError
from byoc_core.ir import TensorType
from byoc_core.ir.weights import FixedWeight, declare_weights, fixed_weights_of, weights_of
from byoc_core.transform.hoist_weights import DerivedValue, HoistedWeights, hoist_weights

from core.tests.ir_text import parse_main

PARAMS = ", ".join(
    f'{name}: R.Tensor({shape}, "float32")'
    for name, shape in (("x", (2, 3)), ("a", (4, 3)), ("b", (4,)), ("c", (4,)), ("d", (4, 4)))
)
BODY = """at = R.permute_dims(a, axes=(1, 0))
y = R.matmul(x, at)
bc = R.add(b, c)
z = R.add(y, bc)
e = R.exp(d)
f = R.tanh(e)
u = R.matmul(z, f)
v = R.matmul(u, e)
w = R.add(v, b)
return w"""


def hoist(names: str = "abcd", body: str = BODY, refused: str = "") -> HoistedWeights:
    """Hoist the ops of some parameters; the host refuses one op."""
    module = parse_main(PARAMS, body)
    main = module["main"]
    types = dict(zip(main.input_names, (param.type for param in main.params), strict=True))
    values = {}
    for name in names:
        type_ = types[name]
        assert isinstance(type_, TensorType)
        values[name] = np.ones([int(str(size)) for size in type_.shape or ()], np.float32)
    found = hoist_weights(declare_weights(module, values)["main"], lambda binding: binding.op.name != refused)
    assert found is not None
    return found


def ops(found: HoistedWeights) -> tuple[list[str], list[list[str]]]:
    """Return the ops of the function, and of each derivation."""
    return (
        [binding.op.name for binding in found.function.bindings],
        [[binding.op.name for binding in derived.bindings] for derived in found.derivations],
    )


def test_weights_computed_together_share_a_derivation() -> None:
    found = hoist()
    assert ops(found) == (["matmul", "add", "matmul", "matmul", "add"], [["permute_dims"], ["add"], ["exp", "tanh"]])
    assert [derived.input_names for derived in found.derivations] == [("a",), ("b", "c"), ("d",)]
    assert found.function.input_names == ("x", "b", "at.derived", "bc.derived", "e.derived", "f.derived")
    assert dict(found.inputs) == {
        "b": "b",  # also read by an op of the function
        "at.derived": DerivedValue(0, 0),
        "bc.derived": DerivedValue(1, 0),
        "e.derived": DerivedValue(2, 0),
        "f.derived": DerivedValue(2, 1),
    }
    assert list(found.weights) == list("abcd")


def test_ops_refused_by_the_host_stay_with_their_readers() -> None:
    assert ops(hoist(refused="exp")) == (
        ["matmul", "add", "exp", "tanh", "matmul", "matmul", "add"],
        [["permute_dims"], ["add"]],
    )


def test_ops_of_other_parameters_stay() -> None:
    assert ops(hoist("b")) == ([binding.op.name for binding in parse_main(PARAMS, BODY)["main"].bindings], [])


def test_large_results_are_computed_in_each_call() -> None:
    body = "big = R.broadcast_to(b, shape=(1000, 1000, 4))\ny = R.sum(big, axis=(0, 1))\nreturn y"
    assert ops(hoist(body=body)) == (["broadcast_to", "sum"], [])
    body = body.replace("1000, 1000", "10, 10")
    assert ops(hoist(body=body)) == ([], [["broadcast_to", "sum"]])


def test_functions_without_weights_are_left_alone() -> None:
    assert hoist_weights(parse_main(PARAMS, BODY)["main"], lambda _: True) is None


def test_declarations_are_read_back_from_text() -> None:
    from byoc_core import script as R

    module = parse_main(PARAMS, BODY)
    value = np.arange(4, dtype=np.float32)
    fixed = FixedWeight("scale", "int64", (2, 3), "is an integer", "0" * 64)
    declared = declare_weights(module, {"b": value}, fixed=[fixed])
    parsed = R.parse(str(declared), constants=declared.constants)
    (digest,) = weights_of(parsed["main"]).values()
    np.testing.assert_array_equal(parsed.constants[digest], value)
    assert fixed_weights_of(parsed["main"]) == (fixed,)


TYPE_ERROR = (
    "function `main`: weight `b` is not of the input's type; "
    'got R.Tensor((3,), "float32"), expected R.Tensor((4,), "float32")'
)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"bb": np.ones(4, np.float32)}, "function `main`: has no input `bb`. Did you mean 'b'?"),
        (
            {"b": np.ones(3, np.float32)},
            TYPE_ERROR,
        ),
    ],
)
def test_wrong_declarations_are_refused(values: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(IRError) as caught:
        declare_weights(parse_main(PARAMS, BODY), values)
    assert str(caught.value) == message
    module = declare_weights(parse_main(PARAMS, BODY), {"b": np.ones(4, np.float32)})
    with pytest.raises(IRError, match="input `b` is a weight already"):
        declare_weights(module, {"b": np.ones(4, np.float32)})
