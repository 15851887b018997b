"""Swappable weights of ONNX models: the choice, weights read by importers, and the numbers of other weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import byoc_core
import numpy as np
import onnx
import pytest
from byoc_core.errors import OptionsError, WeightsError
from byoc_core.frontend.onnx import from_onnx
from byoc_core.ir.weights import fixed_weights_of, weights_of
from byoc_core.vm import VirtualMachine
from onnx import numpy_helper, parser

HEAD = '<ir_version: 10, opset_import: ["" : 17]>'


def model_of(graph: str, weights: Mapping[str, Any]) -> onnx.ModelProto:
    model = parser.parse_model(f"{HEAD} {graph}")
    model.graph.initializer.extend(numpy_helper.from_array(np.asarray(v), name) for name, v in weights.items())
    return model


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


AFFINE = """g (float[2, 3] x) => (float[k] y) {
    wt = Transpose<perm=[1, 0]>(w) p = MatMul(x, wt) q = Add(p, b) r = Mul(q, s) y = Reshape(r, shape) }"""


def affine(seed: int = 0, **changes: Any) -> dict[str, Any]:
    weights = {"w": random(4, 3, seed=seed), "b": random(4, seed=seed + 1), "s": np.float32(2)}
    return {**weights, "shape": np.array([-1], np.int64), "unused": random(2), **changes}


def test_tensors_of_floats_are_chosen_by_default() -> None:
    main = from_onnx(model_of(AFFINE, affine()), swappable_weights=True)["main"]
    assert list(weights_of(main)) == ["w", "b"]
    assert [(weight.name, weight.reason) for weight in fixed_weights_of(main)] == [
        ("s", "is a scalar: only tensors are chosen without a name"),
        ("shape", "has dtype int64: only weights of floats are chosen without a name"),
        ("unused", "is not used by the model"),
    ]
    assert main.input_names == ("x", "w", "b")


@pytest.mark.parametrize("choice", [False, []])
def test_no_choice_changes_nothing(choice: Any) -> None:
    model = model_of(AFFINE, affine())
    assert str(from_onnx(model, swappable_weights=choice)) == str(from_onnx(model))


def test_names_choose_weights() -> None:
    main = from_onnx(model_of(AFFINE, affine()), swappable_weights=["w*", "s"])["main"]
    assert list(weights_of(main)) == ["w", "s"]
    assert "is not chosen by `swappable_weights`" in {weight.reason for weight in fixed_weights_of(main)}
    with pytest.raises(OptionsError) as caught:
        from_onnx(model_of(AFFINE, affine()), swappable_weights=["shap"])
    assert str(caught.value) == "swappable_weights: the model has no weight `shap`. Did you mean 'shape'?"
    with pytest.raises(OptionsError, match="is a single text"):
        from_onnx(model_of(AFFINE, affine()), swappable_weights="w")


def test_names_with_brackets_and_stars_are_names() -> None:
    names = ["w[0]", "w0", "w*", "w1"]
    nodes = "; ".join(f"p{i} = Mul({'x' if not i else f'p{i - 1}'}, n{i})" for i in range(4))
    model = model_of(f"g (float[2] x) => (float[2] p3) {{ {nodes.replace(';', ' ')} }}", {})
    for node, name in zip(model.graph.node, names, strict=True):
        node.input[1] = name
        model.graph.initializer.append(numpy_helper.from_array(random(2), name))

    def chosen(*patterns: str) -> list[str]:
        return list(weights_of(from_onnx(model, swappable_weights=patterns)["main"]))

    assert chosen("w[0]") == ["w[0]"]
    assert chosen("w*") == ["w*"]
    assert chosen("w?") == ["w0", "w*", "w1"]
    assert chosen("w[*") == ["w[0]"]
    assert chosen("?*") == names
    with pytest.raises(OptionsError, match=r"the model has no weight `w\[1\]`"):
        chosen("w[1]")


def test_numbers_equal_a_build_without_swappable_weights() -> None:
    x, new = random(2, 3, seed=9), affine(seed=4)
    swappable = byoc_core.build(from_onnx(model_of(AFFINE, affine()), swappable_weights=True), backends=[])
    fresh = byoc_core.build(from_onnx(model_of(AFFINE, new)), backends=[])
    changed = swappable.with_weights({"w": new["w"], "b": new["b"]})
    np.testing.assert_array_equal(VirtualMachine(changed)["main"](x), VirtualMachine(fresh)["main"](x))


READ: dict[str, tuple[str, np.ndarray]] = {
    "the shape of a reshape": ("y = Reshape(x, read)", np.array([3, 2], np.int64)),
    "the value of a pad": ("y = Pad(x, pads, read)", np.array(1, np.float32)),
    "the scales of a resize": ("y = Resize(x, , read)", np.array([2, 2], np.float32)),
    "the depth of a tile": ("y = Tile(x, read)", np.array([1, 2], np.int64)),
}


@pytest.mark.parametrize("kind", READ)
def test_weights_that_decide_are_refused_with_the_reader(kind: str) -> None:
    node, value = READ[kind]
    weights = {"read": value, "pads": np.array([0, 1, 0, 1], np.int64)}
    model = model_of(f"g (float[2, 3] x) => (float[a, b] y) {{ {node} }}", weights)
    executable = byoc_core.build(from_onnx(model, swappable_weights=["read"]), backends=[])
    with pytest.raises(WeightsError) as caught:
        executable.with_weights({"read": value + 1})
    reader = f"node `y` ({node.split('(')[0].split()[-1]})"
    assert str(caught.value) == (
        "executable: weight `read` cannot be swapped: the weight was read during import by ONNX model, "
        f"{reader}. Compile the model again with the new value."
    )
    executable.with_weights({"read": value})  # the same value decides the same


def test_a_weight_read_once_is_fixed_for_all_readers() -> None:
    graph = """g (float[2, 2] x) => (float[a, b] y) {
        z = Resize(x, , w) v = Mul(x, w) u = Add(z, bias) y = Concat<axis=0>(u, v) }"""
    weights = {"w": np.array([1, 1], np.float32), "bias": np.ones(2, np.float32)}
    executable = byoc_core.build(from_onnx(model_of(graph, weights), swappable_weights=True), backends=[])
    assert [weight.name for weight in executable.weights.weights] == ["bias"]
    x = random(2, 2)
    np.testing.assert_array_equal(VirtualMachine(executable)["main"](x), np.concatenate([x + 1, x]))


def test_weights_read_inside_loops_are_swappable() -> None:
    graph = """g (float[3] x, int64 m) => (float[3] y) { y = Loop(m, , x) <
        body = b (int64 i, bool c_in, float[3] v) => (bool c_out, float[3] u) {
            c_out = Identity(c_in) a = Mul(v, w) u = Add(a, w) }> }"""
    executable = byoc_core.build(from_onnx(model_of(graph, {"w": np.ones(3, np.float32)}), swappable_weights=True), [])
    assert [weight.name for weight in executable.weights.weights] == ["w"]
    found = VirtualMachine(executable.with_weights({"w": np.full(3, 2, np.float32)}))["main"](
        np.ones(3, np.float32), np.array(2)
    )
    np.testing.assert_array_equal(found, np.full(3, (1 * 2 + 2) * 2 + 2))


OPERATORS: dict[str, tuple[str, dict[str, tuple[int, ...]]]] = {
    "LSTM": (
        "(float[5, 2, 4] x) => (float[5, 1, 2, 3] y) { y = LSTM<hidden_size=3>(x, w, r, b) }",
        {"w": (1, 12, 4), "r": (1, 12, 3), "b": (1, 24)},
    ),
    "GRU": (
        "(float[5, 2, 4] x) => (float[5, 1, 2, 3] y) { y = GRU<hidden_size=3>(x, w, r, b) }",
        {"w": (1, 9, 4), "r": (1, 9, 3), "b": (1, 18)},
    ),
    "LayerNormalization": (
        "(float[2, 4] x) => (float[2, 4] y) { y = LayerNormalization(x, w, b) }",
        {"w": (4,), "b": (4,)},
    ),
    "Gather": ("(float[2, 4] x) => (float[3, 4] y) { z = Gather(w, i) y = Add(z, z) }", {"w": (9, 4)}),
    "Gemm": (
        "(float[2, 4] x) => (float[2, 3] y) { y = Gemm<alpha=0.5, beta=2.0, transB=1>(x, w, b) }",
        {"w": (3, 4), "b": (3,)},
    ),
    "PRelu": ("(float[2, 4, 3, 3] x) => (float[2, 4, 3, 3] y) { y = PRelu(x, w) }", {"w": (4, 1, 1)}),
    "ConvTranspose": (
        "(float[1, 4, 3, 3] x) => (float[1, 2, 5, 5] y) { y = ConvTranspose(x, w, b) }",
        {"w": (4, 2, 3, 3), "b": (2,)},
    ),
    "Conv": (
        "(float[1, 4, 8, 8] x) => (float[1, 4, 6, 6] y) { y = Conv<group=4>(x, w, b) }",
        {"w": (4, 1, 3, 3), "b": (4,)},
    ),
    "If": (
        """(float[4] x) => (float[4] y) { m = ReduceMax<keepdims=0>(x) z = Constant<value_float=0.0>() c = Greater(m, z)
        y = If (c) <then_branch = t () => (float[4] a) { a = Add(x, w) }, else_branch = e () => (float[4] d) {
        d = Mul(x, w) }> }""",
        {"w": (4,)},
    ),
    "Einsum": ('(float[2, 4] x) => (float[2, 3] y) { y = Einsum<equation="ij,jk->ik">(x, w) }', {"w": (4, 3)}),
    "Where": ("(float[4] x) => (float[4] y) { z = Greater(x, w) y = Where(z, x, w) }", {"w": (4,)}),
    "TopK": ("(float[2] x) => (float[2] y) { s, j = TopK(w, k) y = Add(s, x) }", {"w": (9,)}),
    "DynamicQuantizeLinear": (
        """(float[2, 4] x) => (float[2, 3] y) {
        q, s, z = DynamicQuantizeLinear(w) d = DequantizeLinear(q, s, z) y = MatMul(x, d) }""",
        {"w": (4, 3)},
    ),
}
INTEGERS = {"i": np.array([1, 0, 7], np.int64), "k": np.array([2], np.int64)}


@pytest.mark.parametrize("operator", OPERATORS)
def test_numbers_of_operators_equal_a_build_without_swappable_weights(operator: str) -> None:
    graph, shapes = OPERATORS[operator]
    first, second = ({name: random(*shape, seed=seed) for name, shape in shapes.items()} for seed in (3, 4))
    integers = {name: value for name, value in INTEGERS.items() if f" {name})" in graph}
    models = [model_of(f"g {graph}", {**weights, **integers}) for weights in (first, second)]
    swappable = byoc_core.build(from_onnx(models[0], swappable_weights=True), backends=[])
    assert {weight.name for weight in swappable.weights.weights} == set(shapes)
    plain = byoc_core.build(from_onnx(models[1]), backends=[])
    (spec,) = plain.functions["main"].inputs
    x = random(*(int(str(size)) for size in spec.shape), seed=5)
    found, wanted = (VirtualMachine(e)["main"](x) for e in (swappable.with_weights(second), plain))
    np.testing.assert_array_equal(found, wanted)
