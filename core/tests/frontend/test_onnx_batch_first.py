"""Recurrent layers with the batch before the steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from byoc_core.frontend.onnx import from_onnx
from onnx import helper, numpy_helper

from core.tests.frontend.conftest import Array


@pytest.mark.parametrize("op_type", ["LSTM", "GRU", "RNN"])
def test_a_layer_with_the_batch_first_is_the_turned_layer(op_type: str, run: Callable[..., Sequence[Array]]) -> None:
    """ONNX Runtime has no layers with the batch first, so the other layout is the oracle."""
    gates, states = {"LSTM": (4, 2), "GRU": (3, 1), "RNN": (1, 1)}[op_type]
    rng = np.random.default_rng(3)
    weights = [rng.normal(size=shape).astype(np.float32) for shape in ((2, gates * 3, 4), (2, gates * 3, 3))]
    x, lengths = rng.normal(size=(5, 2, 4)).astype(np.float32), np.array([5, 2], np.int32)
    initial = [rng.normal(size=(2, 2, 3)).astype(np.float32) for _ in range(states)]
    feeds = dict(zip(["x", "n", *(f"s{i}" for i in range(states))], [x, lengths, *initial], strict=True))
    turned = {name: array.swapaxes(0, 1) if array.ndim == 3 else array for name, array in feeds.items()}
    models = []
    for layout, inputs in ((0, feeds), (1, turned)):
        node = helper.make_node(
            op_type,
            ["x", "w", "r", "", "n", *(f"s{i}" for i in range(states))],
            [f"o{i}" for i in range(1 + states)],
            hidden_size=3,
            direction="bidirectional",
            layout=layout,
        )
        graph = helper.make_graph(
            [node],
            "layer",
            [
                helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
                for name, array in inputs.items()
            ],
            [helper.make_empty_tensor_value_info(name) for name in node.output],
            [numpy_helper.from_array(array, name) for array, name in zip(weights, "wr", strict=True)],
        )
        models.append(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10))
    every, *last = run(from_onnx(models[0]), feeds)
    turned_every, *turned_last = run(from_onnx(models[1]), turned)
    np.testing.assert_array_equal(turned_every, every.transpose(2, 0, 1, 3))
    for state, turned_state in zip(last, turned_last, strict=True):
        np.testing.assert_array_equal(turned_state, state.swapaxes(0, 1))
    expected = run(models[0], feeds)
    np.testing.assert_allclose(every, expected[0], rtol=2**-19, atol=2**-21)
