"""ONNX Gradient: gradients of graphs by tensors, against differences of the differentiated output."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import byoc_core
import numpy as np
import numpy.typing as npt
import onnx
import pytest
from byoc_core.errors import ByocError, FrontendError, UnsupportedOpsError
from byoc_core.frontend.onnx import from_onnx
from byoc_core.ir import IRModule, verify
from byoc_core.transform import Sequential, default_passes, evaluate_function
from onnx import TensorProto, helper, numpy_helper

from core.tests.onnx_suite.mutants import mutate
from core.tests.transform.gradients.differences import STEP, separated

NDArray = npt.NDArray[Any]
DOMAIN = "ai.onnx.preview.training"
_ROUNDINGS = 2.0**8 * float(np.finfo(np.float64).eps)


def gradient(inputs: Sequence[str], outputs: Sequence[str], name: str = "the_gradient", **attrs: Any) -> onnx.NodeProto:
    """Return a node; by default the inputs are the tensors of ``xs``, then of ``zs``."""
    return helper.make_node("Gradient", inputs, outputs, name=name, domain=DOMAIN, **attrs)


def build(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Sequence[Any]],
    outputs: Sequence[str],
    weights: Mapping[str, NDArray] | None = None,
    functions: Sequence[onnx.FunctionProto] = (),
) -> onnx.ModelProto:
    """Return a model with inputs of float64 of these shapes."""
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, TensorProto.DOUBLE, shape) for name, shape in inputs.items()],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()],
    )
    opsets = [helper.make_opsetid("", 22), helper.make_opsetid(DOMAIN, 1), helper.make_opsetid("local", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10, functions=functions)


def run(model: onnx.ModelProto | IRModule, feeds: Mapping[str, NDArray]) -> tuple[NDArray, ...]:
    module = verify(from_onnx(model)) if isinstance(model, onnx.ModelProto) else model
    return evaluate_function(module, "main", [feeds[name] for name in module["main"].input_names])


def check(model: onnx.ModelProto, feeds: Mapping[str, NDArray], xs: Sequence[str]) -> tuple[NDArray, ...]:
    """Check a model with the outputs ``y`` and the gradients by some inputs; return the gradients."""
    module = verify(from_onnx(model))
    y, *gradients = run(module, feeds)
    assert [array.shape for array in gradients] == [feeds[name].shape for name in xs]
    generator = np.random.default_rng(1)
    directions = {name: generator.choice((-1.0, 1.0), feeds[name].shape) for name in xs}

    def total(step: float) -> float:
        moved = {
            name: array + step * directions[name] if name in directions else array for name, array in feeds.items()
        }
        return float(run(module, moved)[0].sum())

    near, far = ((total(step) - total(-step)) / (2 * step) for step in (STEP, 2 * STEP))
    found = sum(float(np.sum(g * directions[name])) for name, g in zip(xs, gradients, strict=True))
    noise = _ROUNDINGS * float(np.abs(y).sum()) / STEP
    assert found == pytest.approx((4 * near - far) / 3, rel=0, abs=abs(far - near) + noise)
    return tuple(gradients)


def draw(**shapes: Sequence[int]) -> dict[str, NDArray]:
    generator = np.random.default_rng(3)
    return {name: separated(generator, shape) for name, shape in shapes.items()}


def test_a_sum() -> None:
    nodes = [helper.make_node("Add", ["a", "b"], ["c"]), gradient("ab", ["da", "db"], xs=["a", "b"], y="c")]
    by_a, by_b = check(build(nodes, {"a": [2, 3], "b": [3]}, ["c", "da", "db"]), draw(a=(2, 3), b=(3,)), "ab")
    np.testing.assert_array_equal(by_a, np.ones((2, 3)))
    np.testing.assert_array_equal(by_b, [2, 2, 2])


def test_the_example_of_the_standard() -> None:
    """Gradients of ``Gemm(Conv(X, W), Z)`` by weights, and by the result of the convolution."""
    nodes = [
        helper.make_node("Conv", ["X", "W"], ["H"]),
        helper.make_node("Flatten", ["H"], ["F"]),
        helper.make_node("Gemm", ["F", "Z"], ["Y"], transB=1),
        gradient(["W", "Z", "X"], ["dW", "dZ"], "first", xs=["W", "Z"], zs=["X"], y="Y"),
        gradient(["H", "Z"], ["dH", "dZ2"], "second", xs=["H", "Z"], y="Y"),
    ]
    shapes = {"X": (2, 3, 4, 5), "W": (4, 3, 2, 2), "Z": (3, 48)}
    model = build(nodes, shapes, ["Y", "dW", "dZ", "dH", "dZ2"])
    feeds = draw(**shapes)
    *_, by_h, by_z = run(model, feeds)
    del model.graph.output[3:]
    _, by_z_before = check(model, feeds, ["W", "Z"])
    np.testing.assert_array_equal(by_z, by_z_before)
    np.testing.assert_allclose(by_h.reshape(2, -1), np.tile(feeds["Z"].sum(0), (2, 1)), rtol=1e-14)


def test_the_graph_is_differentiated_at_the_inputs() -> None:
    """The inputs of the node stand for the named tensors: here the square's slope at ``b``, of another shape."""
    nodes = [helper.make_node("Mul", ["a", "a"], ["c"]), gradient(["b"], ["d"], xs=["a"], y="c")]
    a, d = run(
        build(nodes, {"a": [], "b": [2, 3]}, ["c", "d"]), {"a": np.array(3.0), "b": np.arange(6.0).reshape(2, 3)}
    )
    assert a == 9
    np.testing.assert_array_equal(d, 2 * np.arange(6.0).reshape(2, 3))


def test_the_differentiated_nodes_may_come_later() -> None:
    """A step of gradient descent, and the loss after the step; the node names the loss after the step."""
    nodes = [
        gradient(["w0"], ["g"], xs=["w1"], y="loss"),
        helper.make_node("Sub", ["w0", "g"], ["w1"]),
        helper.make_node("Mul", ["w1", "w1"], ["loss"]),
    ]
    (loss,) = run(build(nodes, {"w0": [2]}, ["loss"]), {"w0": np.array([1.0, -2.0])})
    np.testing.assert_array_equal(loss, [1, 4])


def test_initializers_and_constants_determine_the_tensor_too() -> None:
    weights = {"w": np.arange(6.0).reshape(3, 2), "axes": np.array([1])}
    nodes = [
        helper.make_node("Constant", [], ["k"], value_floats=[2.0]),
        helper.make_node("CastLike", ["k", "x"], ["kd"]),
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Mul", ["a", "kd"], ["b"]),
        helper.make_node("ReduceSumSquare", ["b", "axes"], ["c"], keepdims=0),
        gradient(["x", "w"], ["dx", "dw"], xs=["x", "w"], y="c"),
    ]
    model = build(nodes, {"x": ["n", 3]}, ["c", "dx", "dw"], weights)
    feeds = draw(x=(4, 3))
    _, dx, dw = run(model, feeds)
    a = 2 * feeds["x"] @ weights["w"]
    np.testing.assert_allclose(dx, 4 * a @ weights["w"].T, rtol=1e-14)
    np.testing.assert_allclose(dw, 4 * feeds["x"].T @ a, rtol=1e-13)


def test_shapes_and_indices_are_no_variables() -> None:
    """Sizes are computed from the shape of a variable; the indices come as further input."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Expand", ["b", "s"], ["e"]),
        helper.make_node("Mul", ["x", "e"], ["p"]),
        helper.make_node("Gather", ["p", "i"], ["y"]),
        gradient(["x", "b", "i"], ["dx", "db"], xs=["x", "b"], zs=["i"], y="y"),
    ]
    model = build(nodes, {"x": ["n", 3], "b": ["n", 1]}, ["y", "dx", "db"])
    model.graph.input.append(helper.make_tensor_value_info("i", TensorProto.INT64, ["m"]))
    feeds = {**draw(x=(4, 3), b=(4, 1)), "i": np.array([0, -1, 0])}
    by_x, _ = check(model, feeds, ["x", "b"])
    assert not by_x[1:3].any()


def test_omitted_outputs() -> None:
    """No derivative is needed by a tensor without output: ``det`` has none."""
    nodes = [
        helper.make_node("Det", ["a"], ["d"]),
        helper.make_node("Mul", ["d", "b"], ["y"]),
        gradient(["a", "b", "c"], ["", "db", ""], xs=["a", "b", "c"], y="y"),
    ]
    model = build(nodes, {"a": [2, 2], "b": [3], "c": [1]}, ["db"])
    (by_b,) = run(model, {"a": np.array([[1.0, 2], [3, 4]]), "b": np.ones(3), "c": np.ones(1)})
    np.testing.assert_allclose(by_b, [-2, -2, -2], rtol=1e-15)


def test_tensors_without_influence_have_a_gradient_of_zero() -> None:
    nodes = [helper.make_node("Exp", ["a"], ["y"]), gradient("ab", ["da", "db"], xs=["a", "b"], y="y")]
    _, by_b = check(build(nodes, {"a": [2], "b": ["n", 3]}, ["y", "da", "db"]), draw(a=(2,), b=(2, 3)), "ab")
    assert not by_b.any()


def _second_order() -> onnx.ModelProto:
    nodes = [
        helper.make_node("Gemm", ["X", "W"], ["Y"]),
        helper.make_node("Sub", ["Y", "L"], ["E"]),
        helper.make_node("Tanh", ["E"], ["T"]),
        helper.make_node("Mul", ["T", "T"], ["O"]),
        gradient(["X", "W", "L"], ["dX", "dW"], "first", xs=["X", "W"], zs=["L"], y="O"),
        gradient(["X", "W", "L"], ["dXdW", "dWdW"], "second", xs=["X", "W"], zs=["L"], y="dW"),
    ]
    return build(nodes, {"X": ["n", 3], "W": [3, 2], "L": ["n", 2]}, ["dW", "dXdW", "dWdW"])


def test_gradients_of_gradients() -> None:
    check(_second_order(), draw(X=(4, 3), W=(3, 2), L=(4, 2)), ["X", "W"])


def test_gradients_of_gradients_by_weights_unnamed_in_the_first() -> None:
    """The inner gradient reads an initializer that the outer gradient varies."""
    nodes = [
        helper.make_node("Mul", ["w", "w"], ["v"]),
        helper.make_node("Mul", ["x", "v"], ["a"]),
        helper.make_node("Mul", ["a", "x"], ["y"]),
        gradient(["x"], ["dx"], "first", xs=["x"], y="y"),
        gradient(["w", "x"], ["d"], "second", xs=["w"], zs=["x"], y="dx"),
    ]
    dx, d = run(build(nodes, {"x": []}, ["dx", "d"], {"w": np.array(3.0)}), {"x": np.array(2.0)})
    assert dx == 2 * 2 * 9
    assert d == 4 * 2 * 3


def test_gradients_in_functions() -> None:
    body = [helper.make_node("Sin", ["u"], ["s"]), gradient(["u"], ["v"], xs=["u"], y="s")]
    opsets = [helper.make_opsetid("", 22), helper.make_opsetid(DOMAIN, 1)]
    function = helper.make_function("local", "Slope", ["u"], ["v"], body, opsets)
    nodes = [
        helper.make_node("Slope", ["x"], ["y"], domain="local"),
        gradient(["x"], ["dx"], xs=["x"], y="y"),
    ]
    model = build(nodes, {"x": [3]}, ["y", "dx"], functions=[function])
    x = draw(x=(3,))
    check(model, x, ["x"])
    np.testing.assert_allclose(run(model, x)[0], np.cos(x["x"]), rtol=1e-15)


@pytest.mark.parametrize("rounds", [3, 300])
def test_gradient_descent_in_a_loop(rounds: int) -> None:
    """The body names a tensor of the graph around among ``zs``."""
    body = helper.make_graph(
        [
            helper.make_node("Sub", ["w", "target"], ["e"]),
            helper.make_node("Mul", ["e", "e"], ["loss"]),
            gradient(["w", "target"], ["g"], xs=["w"], zs=["target"], y="loss"),
            helper.make_node("Mul", ["g", "rate"], ["step"]),
            helper.make_node("Sub", ["w", "step"], ["new_w"]),
            helper.make_node("Identity", ["condition"], ["still"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("round", TensorProto.INT64, []),
            helper.make_tensor_value_info("condition", TensorProto.BOOL, []),
            helper.make_tensor_value_info("w", TensorProto.DOUBLE, [2]),
        ],
        [onnx.ValueInfoProto(name="still"), onnx.ValueInfoProto(name="new_w")],
    )
    nodes = [helper.make_node("Loop", ["rounds", "", "start"], ["final"], body=body)]
    weights = {"rate": np.array(0.25), "rounds": np.array(rounds)}
    model = build(nodes, {"start": [2], "target": [2]}, ["final"], weights)
    feeds = {"start": np.array([9.0, -7.0]), "target": np.array([1.0, 2.0])}
    (final,) = run(model, feeds)
    np.testing.assert_array_equal(final, feeds["target"] + (feeds["start"] - feeds["target"]) * 0.5**rounds)


@pytest.mark.parametrize("is_positive", [True, False])
def test_branches(is_positive: bool) -> None:
    branches = {
        f"{name}_branch": helper.make_graph(
            [helper.make_node(op, ["x"], [name])], name, [], [onnx.ValueInfoProto(name=name)]
        )
        for name, op in (("then", "Sin"), ("else", "Exp"))
    }
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
        helper.make_node("Greater", ["sum", "zero"], ["condition"]),
        helper.make_node("If", ["condition"], ["y"], **branches),
        gradient(["x"], ["dx"], xs=["x"], y="y"),
    ]
    model = build(nodes, {"x": [3]}, ["y", "dx"], {"zero": np.array(0.0)})
    x = draw(x=(3,))["x"]
    x = np.abs(x) if is_positive else -np.abs(x)
    (by_x,) = check(model, {"x": x}, ["x"])
    np.testing.assert_allclose(by_x, np.cos(x) if is_positive else np.exp(x), rtol=1e-15)


def test_the_mask_of_dropout_is_the_mask_of_the_output() -> None:
    nodes = [
        helper.make_node("Dropout", ["x", "ratio", "training"], ["y"]),
        gradient(["x"], ["dx"], xs=["x"], y="y"),
    ]
    weights = {"ratio": np.array(0.5), "training": np.array(True)}
    module = from_onnx(build(nodes, {"x": [64]}, ["y", "dx"], weights))
    x = np.ones(64)
    for _ in range(2):
        y, dx = run(module, {"x": x})
        np.testing.assert_array_equal(y, dx)
    optimised = Sequential(default_passes())(module)
    assert _count(optimised)["random.uniform"] == 1
    executable = byoc_core.build(from_onnx(build(nodes, {"x": [64]}, ["y", "dx"], weights)), backends=[])
    y, dx = byoc_core.VirtualMachine(executable)["main"](x)
    np.testing.assert_array_equal(y, dx)
    assert set(y) == {0, 2}


def _count(module: IRModule) -> Counter[str]:
    return Counter(binding.op.name for binding in module["main"].walk())


def _perceptron() -> onnx.ModelProto:
    """Return a step of training of a classifier with two layers, by the operators of ONNX for training."""
    names = ["w1", "b1", "w2", "b2"]
    nodes = [
        helper.make_node("Gemm", ["x", "w1", "b1"], ["h"], transB=1),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("Gemm", ["r", "w2", "b2"], ["s"], transB=1),
        helper.make_node("SoftmaxCrossEntropyLoss", ["s", "labels"], ["loss"]),
        gradient([*names, "x", "labels"], [f"d{name}" for name in names], xs=names, zs=["x", "labels"], y="loss"),
        helper.make_node(
            "Momentum",
            ["rate", "count", *names, *(f"d{name}" for name in names), *(f"v{name}" for name in names)],
            [*(f"new_{name}" for name in names), *(f"new_v{name}" for name in names)],
            domain=DOMAIN,
            alpha=0.5,
            beta=1.0,
            norm_coefficient=0.0,
            mode="standard",
        ),
    ]
    shapes = {"w1": (8, 4), "b1": (8,), "w2": (3, 8), "b2": (3,)}
    inputs: dict[str, Sequence[Any]] = {"x": ("n", 4), "rate": (), **shapes, **{f"v{n}": s for n, s in shapes.items()}}
    outputs = ["loss", *(f"{kind}{name}" for kind in ("d", "new_", "new_v") for name in names)]
    model = build(nodes, inputs, outputs)
    for name, shape in (("count", ()), ("labels", ("n",))):
        model.graph.input.append(helper.make_tensor_value_info(name, TensorProto.INT64, shape))
    return model


def test_training() -> None:
    model = _perceptron()
    generator = np.random.default_rng(1)
    x = generator.standard_normal((32, 4))
    state = {name: generator.standard_normal(shape) / 4 for name, shape in (("w1", (8, 4)), ("w2", (3, 8)))}
    state |= {"b1": np.zeros(8), "b2": np.zeros(3)}
    state |= {f"v{name}": np.zeros_like(array) for name, array in state.items()}
    fixed = {"x": x, "labels": np.argmax(x[:, :3], axis=1), "rate": np.array(0.5)}
    gradients = onnx.ModelProto()
    gradients.CopyFrom(model)
    del gradients.graph.output[5:]
    check(gradients, {**fixed, **state, "count": np.array(0)}, ["w1", "b1", "w2", "b2"])
    executable = byoc_core.build(from_onnx(model), backends=[])
    machine = byoc_core.VirtualMachine(executable)
    losses = []
    for count in range(40):
        outputs = machine["main"](**fixed, **state, count=np.array(count))
        names = [output.name.removeprefix("new_") for output in model.graph.output]
        losses.append(float(outputs[0]))
        state = {name: outputs[index] for index, name in enumerate(names) if name in state}
    assert losses[0] > 0.9
    assert losses[-1] < losses[0] / 4


def test_the_forward_pass_is_computed_once() -> None:
    """Equal ops of the output and of the gradient are merged: two products forwards, three backwards."""
    optimised = Sequential(default_passes())(from_onnx(_perceptron()))
    counts = _count(optimised)
    assert counts["matmul"] + counts["nn.dense"] == 5
    assert counts["nn.relu"] == 1


def _refuse(model: onnx.ModelProto, error: type[FrontendError] = FrontendError) -> str:
    with pytest.raises(FrontendError) as caught:
        from_onnx(model)
    assert type(caught.value) is error
    return str(caught.value)


@pytest.mark.parametrize(
    ("inputs", "attrs", "expected"),
    [
        ("ab", {"xs": ["a", "b"]}, "lacks attribute `y`"),
        ("ab", {"y": "c"}, "lacks attribute `xs`"),
        (
            "ab",
            {"xs": ["a"], "y": "c"},
            "has the wrong number of inputs; got 2, expected 1, one for each tensor of `xs` and `zs`",
        ),
        (
            "a",
            {"xs": ["a"], "y": "c"},
            (
                "`c` depends on `b`, a tensor missing in `xs` and `zs`; expected a tensor computed from the tensors of "
                "`xs` and `zs`, and constants"
            ),
        ),
        ("aa", {"xs": ["a"], "zs": ["a"], "y": "c"}, "attributes `xs` and `zs` name a tensor twice; got a"),
        ("ab", {"xs": ["a", "q"], "y": "c"}, "names a tensor missing in the graph, `q`"),
        ("ab", {"xs": ["a", "b"], "y": "cc"}, "names a tensor missing in the graph, `cc`. Did you mean 'c'?"),
        (
            "ac",
            {"xs": ["a"], "zs": ["c"], "y": "c"},
            "`c` is computed from `a`; expected independent tensors in `xs` and `zs`",
        ),
        ("ab", {"xs": ["a", "b"], "y": "c", "z": 1}, "has unsupported attributes; got z"),
        ("ai", {"xs": ["a", "i"], "y": "c"}, 'input 1, for `i`, holds no floats; got R.Tensor((2,), "int64")'),
        ("a", {"xs": ["a"], "y": "t"}, '`t` holds no floats; got R.Tensor((2,), "int64")'),
        ("ab", {"xs": "a", "y": "c"}, "attribute `xs` has the wrong type; got string, expected strings"),
    ],
)
def test_malformed_nodes(inputs: str, attrs: Mapping[str, Any], expected: str) -> None:
    nodes = [
        helper.make_node("Mul", ["a", "b"], ["c"]),
        helper.make_node("Cast", ["a"], ["t"], to=TensorProto.INT64),
        gradient(list(inputs), ["d"], **attrs),
    ]
    model = build(nodes, {"a": [2], "b": [2]}, ["d"])
    model.graph.input.append(helper.make_tensor_value_info("i", TensorProto.INT64, [2]))
    assert _refuse(model) == f"ONNX model, node `the_gradient` (Gradient): {expected}"


def test_more_outputs_than_variables() -> None:
    nodes = [helper.make_node("Exp", ["a"], ["c"]), gradient("a", ["d", "e"], xs=["a"], y="c")]
    assert _refuse(build(nodes, {"a": [2]}, ["d"])) == (
        "ONNX model, node `the_gradient` (Gradient): has more outputs than `xs` has tensors; got 2, expected 1"
    )


def test_operators_without_a_derivative() -> None:
    nodes = [
        helper.make_node("Exp", ["a"], ["b"]),
        helper.make_node("Det", ["b"], ["c"], name="the_determinant"),
        gradient("a", ["d"], xs=["a"], y="c"),
    ]
    text, listed = _refuse(build(nodes, {"a": [2, 2]}, ["d"]), UnsupportedOpsError).splitlines()
    assert text == (
        "ONNX model, node `the_gradient` (Gradient): differentiation meets ops without a derivative; got op `det` of "
        "`the_gradient/the_determinant`"
    )
    assert listed.startswith("Ops with a derivative: abs, ")


def test_tensors_of_unknown_rank() -> None:
    model = build([helper.make_node("Exp", ["a"], ["c"]), gradient("a", ["d"], xs=["a"], y="c")], {"a": []}, ["d"])
    model.graph.input[0].type.tensor_type.ClearField("shape")
    assert _refuse(model, UnsupportedOpsError) == (
        "ONNX model, node `the_gradient` (Gradient): differentiation needs the rank of a tensor, but the rank is "
        'unknown; got R.Tensor(None, "float64")'
    )


def test_a_gradient_needed_by_itself() -> None:
    nodes = [gradient("a", ["d"], xs=["a"], y="c"), helper.make_node("Mul", ["d", "a"], ["c"])]
    assert _refuse(build(nodes, {"a": [2]}, ["d"])) == (
        "ONNX model, node `the_gradient` (Gradient), node `the_gradient` (Gradient): is needed to compute `c`, the "
        "differentiated tensor"
    )


def _in_turn(count: int) -> onnx.ModelProto:
    """Return a model of the derivatives of the sine up to an order."""
    nodes = [helper.make_node("Sin", ["a"], ["g0"])]
    nodes += [gradient("a", [f"g{k + 1}"], f"n{k}", xs=["a"], y=f"g{k}") for k in range(count)]
    return build(nodes, {"a": []}, [f"g{count}"])


def test_many_gradients_in_turn() -> None:
    (fifth,) = run(_in_turn(5), {"a": np.array(0.5)})
    assert fifth == pytest.approx(np.cos(0.5), rel=1e-14)


def test_gradients_of_too_many_gradients() -> None:
    """The ops of derivatives in turn multiply; the import ends at its bound."""
    with pytest.raises(FrontendError, match=r"expand to too many nodes|differentiates too many gradients in turn"):
        from_onnx(_in_turn(30), max_nodes=20_000)


def test_no_variables() -> None:
    node = gradient([], ["d"], y="c")
    node.attribute.append(onnx.AttributeProto(name="xs", type=onnx.AttributeProto.STRINGS))
    model = build([helper.make_node("Exp", ["a"], ["c"]), node], {"a": [2]}, ["d"])
    assert _refuse(model) == "ONNX model, node `the_gradient` (Gradient): attribute `xs` names no tensor"


def test_mutants() -> None:
    """Damaged models are imported to a valid module, or refused by an error of byoc."""
    generator = random.Random(1)
    models = [model.SerializeToString() for model in (_second_order(), _perceptron())]
    outcomes = Counter[str]()
    for _ in range(400):
        try:
            verify(from_onnx(mutate(generator.choice(models), generator)))
            outcomes["imported"] += 1
        except ByocError as error:
            outcomes[type(error).__name__] += 1
    assert outcomes["imported"] > 20
    assert outcomes["FrontendError"] > 20
