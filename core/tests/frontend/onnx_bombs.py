"""Models of few bytes, describing far more work, memory or nodes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from onnx import FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

__all__ = ["BOMBS", "REFUSED", "new_nested"]

_OPSETS = [helper.make_opsetid("", 18), helper.make_opsetid("local", 1)]


def _value(name: str, shape: Sequence[int] | None = None, dtype: int = TensorProto.FLOAT) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def _model(
    nodes: Sequence[NodeProto],
    weights: Mapping[str, object] | None = None,
    *,
    functions: Sequence[FunctionProto] = (),
    x: Sequence[int] = (1,),
    outputs: Sequence[str] = ("y",),
) -> ModelProto:
    initializers = [numpy_helper.from_array(np.asarray(array), name) for name, array in (weights or {}).items()]
    graph = helper.make_graph(
        nodes, "g", [_value("x", x), _value("c", (), TensorProto.BOOL)], list(map(_value, outputs)), initializers
    )
    return helper.make_model(graph, opset_imports=_OPSETS, ir_version=9, functions=functions)


def _node(op: str, inputs: Sequence[str], output: str = "y", **attrs: Any) -> NodeProto:
    return helper.make_node(op, inputs, [output], **attrs)


def _chain(op: str, count: int, first: str, last: str, repeats: int, **attrs: Any) -> list[NodeProto]:
    names = [first, *(f"t{index}" for index in range(1, count)), last]
    return [_node(op, [names[index]] * repeats, names[index + 1], **attrs) for index in range(count)]


def concat_tenfold() -> ModelProto:
    nodes = _chain("Concat", 11, "w", "t", 10, axis=0)
    return _model([*nodes, _node("Add", ["x", "t"])], {"w": np.ones(4, np.float32)})


def concat_then_reduce() -> ModelProto:
    nodes = [*_chain("Concat", 11, "w", "t", 10, axis=0), _node("ReduceSum", ["t"], "s"), _node("Add", ["x", "s"])]
    return _model(nodes, {"w": np.ones(4, np.float32)})


def expand() -> ModelProto:
    return _model([_node("Expand", ["w", "s"], "t"), _node("Add", ["x", "t"])], {"w": np.float32(1), "s": [2**38]})


def tile() -> ModelProto:
    weights = {"w": np.ones(4, np.float32), "r": np.array([2**36])}
    return _model([_node("Tile", ["w", "r"], "t"), _node("Add", ["x", "t"])], weights)


def constant_of_shape() -> ModelProto:
    return _model([_node("ConstantOfShape", ["s"], "t"), _node("Add", ["x", "t"])], {"s": np.array([2**19, 2**19])})


def many_constants_of_shape() -> ModelProto:
    """Each constant has 256 MiB and a different value."""
    made = [
        _node("ConstantOfShape", ["s"], f"t{index}", value=numpy_helper.from_array(np.array([index], np.float32)))
        for index in range(50)
    ]
    added = [_node("Add", ["x", f"t{index}"], f"y{index}") for index in range(50)]
    return _model([*made, *added], {"s": np.array([2**26])}, outputs=[f"y{index}" for index in range(50)])


def positions_of_constant() -> ModelProto:
    one = numpy_helper.from_array(np.array([True]))
    nodes = [_node("ConstantOfShape", ["s"], "t", value=one), _node("NonZero", ["t"], "p"), _node("Size", ["p"], "n")]
    nodes += [_node("Cast", ["n"], "f", to=TensorProto.FLOAT), _node("Add", ["x", "f"])]
    return _model(nodes, {"s": np.array([2**14, 2**12, 1, 1, 1, 1, 1, 1])})


def range_() -> ModelProto:
    nodes = [_node("Range", ["a", "b", "d"], "t"), _node("Add", ["x", "t"])]
    return _model(nodes, {"a": np.float32(0), "b": np.float32(2**40), "d": np.float32(1)})


def one_weight_changed_often() -> ModelProto:
    """Fifteen hundred tensors of 1 MiB are made of a single tensor."""
    nodes = []
    for index in range(1500):
        nodes += [_node("Add", ["w", f"c{index}"], f"t{index}"), _node("Add", ["x", f"t{index}"], f"y{index}")]
    weights = {f"c{index}": np.float32(index + 1) for index in range(1500)}
    outputs = [f"y{index}" for index in range(1500)]
    return _model(nodes, {"w": np.ones(1 << 18, np.float32), **weights}, outputs=outputs)


def long_chain_on_one_weight() -> ModelProto:
    nodes = _chain("Sin", 4000, "w", "t", 1)
    return _model([*nodes, _node("Add", ["x", "t"])], {"w": np.ones(1 << 17, np.float32)})


def sums_of_one_weight() -> ModelProto:
    """``((x + w) + w) + w``: each sum of constants is another tensor."""
    names = ["k", *(f"t{index}" for index in range(3000))]
    nodes = [_node("Cast", ["x"], "k", to=TensorProto.INT32)]
    nodes += [_node("Add", [before, "w"], after) for before, after in itertools.pairwise(names)]
    weight = np.arange(1 << 18, dtype=np.int32)
    return _model([*nodes, _node("Cast", [names[-1]], to=TensorProto.FLOAT)], {"w": weight})


def products_of_one_weight() -> ModelProto:
    """Integer products, without fast kernel."""
    names = ["w", *(f"t{index}" for index in range(300))]
    nodes = [_node("MatMul", [before, "w"], after) for before, after in itertools.pairwise(names)]
    nodes += [_node("Cast", [names[-1]], "f", to=TensorProto.FLOAT), _node("Add", ["x", "f"])]
    return _model(nodes, {"w": np.ones((512, 512), np.int64)})


def normalised_products_of_one_weight() -> ModelProto:
    nodes, outputs = [], []
    weights = {"w": np.ones((256, 1024, 1, 1), np.float32), "b": np.ones(256, np.float32)}
    for index in range(2000):
        weights[f"s{index}"] = np.full(256, index + 1, np.float32)
        inputs = [f"t{index}", f"s{index}", "b", "b", "b"]
        nodes += [_node("Conv", ["x", "w"], f"t{index}"), _node("BatchNormalization", inputs, f"y{index}")]
        outputs.append(f"y{index}")
    return _model(nodes, weights, x=(1, 1024, 1, 1), outputs=outputs)


def window_of_all() -> ModelProto:
    size = 2**29
    pool = _node("AveragePool", ["w"], "t", kernel_shape=[size], pads=[size - 1, 0], count_include_pad=1)
    return _model([pool, _node("Add", ["x", "t"])], {"w": np.ones((1, 1, 1), np.float32)})


def padding_between_windows() -> ModelProto:
    pool = _node("MaxPool", ["w"], "t", kernel_shape=[2], pads=[1, 1], strides=[2**40])
    conv = _node("Conv", ["w", "w"], "u", pads=[2**40, 2**40], strides=[2**40])
    nodes = [pool, conv, _node("Add", ["x", "t"], "v"), _node("Add", ["v", "u"])]
    return _model(nodes, {"w": np.ones((1, 1, 1), np.float32)})


def attention_of_all() -> ModelProto:
    nodes = [_node("Mul", ["w", "w"], "q"), _node("Transpose", ["w"], "k", perm=[1, 0])]
    nodes += [_node("MatMul", ["q", "k"], "s"), _node("ReduceSum", ["s"], "t"), _node("Add", ["x", "t"])]
    return _model(nodes, {"w": np.ones((1 << 17, 1), np.float32)})


def million_steps() -> ModelProto:
    weights = {"v": np.ones((1, 1, 1), np.float32), "w": np.ones((10**6, 1, 1), np.float32)}
    nodes = [_node("RNN", ["w", "v", "v"], "t", hidden_size=1), _node("Add", ["x", "t"])]
    return _model(nodes, weights)


def billion_rounds() -> ModelProto:
    body = helper.make_graph(
        [_node("Identity", ["go"], "again"), _node("Add", ["v", "v"], "u")],
        "body",
        [_value("i", (), TensorProto.INT64), _value("go", (), TensorProto.BOOL), _value("v", (4,))],
        [_value("again", (), TensorProto.BOOL), _value("u", (4,))],
    )
    nodes = [_node("Loop", ["n", "", "w"], "t", body=body), _node("Add", ["x", "t"])]
    return _model(nodes, {"n": np.int64(2**62), "w": np.ones(4, np.float32)})


def squares() -> ModelProto:
    """A size of ``2 ** 2 ** 60``, if sizes were not limited to 64 bits."""
    nodes = _chain("Mul", 60, "w", "s", 2)
    return _model([*nodes, _node("Cast", ["s"], "f", to=TensorProto.FLOAT), _node("Add", ["x", "f"])], {"w": [2]})


def batch_without_state() -> ModelProto:
    layer = helper.make_node("LSTM", ["x", "v", "r"], ["", "y"], hidden_size=1)
    weights = {"v": np.ones((1, 4, 1), np.float32), "r": np.ones((1, 4, 1), np.float32)}
    return _model([layer], weights, x=(1, 2**40, 1))


def selections_in_turn() -> ModelProto:
    """Positions of positions: each op is folded only after the op before."""
    nodes = []
    for index in range(600):
        before = "w" if index == 0 else f"f{index - 1}"
        nodes += [_node("NonZero", [before], f"p{index}"), _node("Cast", [f"p{index}"], f"f{index}", to=1)]
    return _model([*nodes, _node("Add", ["x", "f599"])], {"w": np.ones((2, 2), np.float32)})


def _function(name: str, nodes: Sequence[NodeProto]) -> FunctionProto:
    return helper.make_function("local", name, ["x", "c"], ["y"], nodes, _OPSETS)


def _call(name: str, x: str, output: str = "y") -> NodeProto:
    return helper.make_node(name, [x, "c"], [output], domain="local")


def functions_that_call_threefold() -> ModelProto:
    functions = [_function("F0", [_node("Relu", ["x"])])]
    for index in range(20):
        name = f"F{index}"
        calls = [_call(name, "x", "t"), _call(name, "t", "u"), _call(name, "u")]
        functions.append(_function(f"F{index + 1}", calls))
    return _model([_call("F20", "x")], functions=functions)


def function_with_large_constant() -> ModelProto:
    """A constant of 1 MiB in a function called five thousand times."""
    large = numpy_helper.from_array(np.ones(1 << 18, np.float32))
    body = _function(
        "F", [_node("Constant", [], "k", value=large), _node("ReduceSum", ["k"], "s"), _node("Add", ["x", "s"])]
    )
    names = ["x", *(f"t{index}" for index in range(5000)), "y"]
    return _model([_call("F", a, b) for a, b in itertools.pairwise(names)], functions=[body])


def calls_in_rounds() -> ModelProto:
    """Rounds are counted by the nodes of their body, but these call far more nodes."""
    functions = [_function("F0", _chain("Relu", 4000, "x", "y", 1))]
    inputs = [_value("i", (), TensorProto.INT64), _value("go", (), TensorProto.BOOL), _value("v", (1,))]
    nodes = [_node("Identity", ["go"], "again"), _call("F0", "v", "u")]
    body = helper.make_graph(nodes, "body", inputs, [_value("again", (), TensorProto.BOOL), _value("u", (1,))])
    names = ["x", *(f"t{index}" for index in range(10)), "y"]
    loops = [_node("Loop", ["n", "", a], b, body=body) for a, b in itertools.pairwise(names)]
    return _model(loops, {"n": np.int64(120)}, functions=functions)


def split_into_all() -> ModelProto:
    return _model(
        [_node("SplitToSequence", ["x"], "s"), _node("SequenceAt", ["s", "n"])], {"n": np.int64(0)}, x=(2**40,)
    )


def split_by_attribute() -> ModelProto:
    return _model([_node("Split", ["x"], "y", num_outputs=2**40)], x=(2**41,))


def new_nested(calls: int, branches: int) -> ModelProto:
    """Return functions calling each other, each from inside of a given number of nested ``If`` branches."""
    functions = []
    for index in range(calls):
        nodes = [_node("Relu", ["x"]) if index == 0 else _call(f"F{index - 1}", "x")]
        for _ in range(branches):
            then, other = (_branch(inner) for inner in (nodes, [_node("Neg", ["x"])]))
            nodes = [_node("If", ["c"], then_branch=then, else_branch=other)]
        functions.append(_function(f"F{index}", nodes))
    return _model([_call(f"F{calls - 1}", "x")], functions=functions)


def _branch(nodes: Sequence[NodeProto]) -> GraphProto:
    return helper.make_graph(nodes, "branch", [], [helper.make_empty_tensor_value_info("y")])


def _chain_of_sizes(*step: tuple[str, Sequence[str]]) -> ModelProto:
    """Return 40 repetitions of steps from the size ``v`` to the next; the last step gives the next size."""
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "zero"], ["v0"]),
        helper.make_node("Gather", ["shape", "one"], ["m"]),
    ]
    for number in range(40):
        for index, (op, operands) in enumerate(step):
            names = [
                f"v{number}" if name == "v" else name if name in "m two" else f"{name}{number}" for name in operands
            ]
            result = f"v{number + 1}" if index == len(step) - 1 else f"{'abc'[index]}{number}"
            nodes.append(helper.make_node(op, names, [result]))
    nodes += [
        helper.make_node("Unsqueeze", ["v40", "axes"], ["size"]),
        helper.make_node("ConstantOfShape", ["size"], ["y"]),
    ]
    stored = {"zero": np.array(0), "one": np.array(1), "two": np.array(2), "axes": np.array([0])}
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", "k"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in stored.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])


def differences_of_sizes() -> ModelProto:
    """Each size names the size before twice: ``max(v-m, m-v)``."""
    return _chain_of_sizes(("Sub", ["v", "m"]), ("Abs", ["a"]))


def squares_of_quotients() -> ModelProto:
    """Each size names the size before twice: ``((v+m)//2)*((v+m)//2)``."""
    return _chain_of_sizes(("Add", ["v", "m"]), ("Div", ["a", "two"]), ("Mul", ["b", "b"]))


def nested_in_functions() -> ModelProto:
    return new_nested(11, 5)


BOMBS: dict[str, Callable[[], ModelProto]] = {
    make.__name__: make
    for make in (
        attention_of_all,
        batch_without_state,
        billion_rounds,
        concat_tenfold,
        concat_then_reduce,
        constant_of_shape,
        differences_of_sizes,
        expand,
        long_chain_on_one_weight,
        many_constants_of_shape,
        million_steps,
        normalised_products_of_one_weight,
        one_weight_changed_often,
        padding_between_windows,
        positions_of_constant,
        products_of_one_weight,
        range_,
        selections_in_turn,
        squares,
        squares_of_quotients,
        sums_of_one_weight,
        tile,
        window_of_all,
    )
}
"""Models with a successful build: excessive constants stay in the program."""

REFUSED: dict[str, Callable[[], ModelProto]] = {
    make.__name__: make
    for make in (
        calls_in_rounds,
        function_with_large_constant,
        functions_that_call_threefold,
        nested_in_functions,
        split_by_attribute,
        split_into_all,
    )
}
"""Refused models."""
