"""Memory of host regions: planned with the program, of the declared size, and without a trace in the results."""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Mapping
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from byoc_core import VirtualMachine, build, parse
from byoc_core.artifact import Executable, load
from byoc_core.dims import evaluate, parse_dim
from byoc_core.dtypes import to_numpy
from byoc_core.opset.families import KERNELS
from byoc_core.runtime.graph import GraphModule
from byoc_core.runtime.graph.document import (
    GraphAttr,
    GraphConstant,
    GraphDocument,
    GraphFunction,
    GraphNode,
    GraphTensor,
)
from byoc_core.runtime.module import CallTraits, NDArray, TensorSpec
from hypothesis import given, settings
from hypothesis import strategies as st

from core.tests.runtime.graph.test_graph_plan import DIGEST, Node, check, spread_out, square_graphs, tensor

pytestmark = pytest.mark.interpreter

SMALL = 60_000
"""Bytes of Python objects and of numpy's buffers; the planned arrays below are larger, unless stated otherwise."""

NETWORK = """
@R.function
def main(x: R.Tensor({shape}, "float32"), w: R.Tensor((16, 8, 3, 3), "float32"), b: R.Tensor((16,), "float32")):
    c = R.nn.conv2d(x, w, padding=(1, 1, 1, 1))
    d = R.nn.bias_add(c, b, axis=1)
    e = R.nn.relu(d)
    f = R.nn.max_pool2d(e, pool_size=(3, 3), strides=(2, 2), padding=(1, 1, 1, 1))
    g = R.tanh(f)
    h = R.concat(g, f, axis=1)
    i = R.nn.avg_pool2d(h, pool_size=(2, 2), strides=(2, 2))
    return i
"""


def drawn(*shapes: tuple[int, ...]) -> list[NDArray]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape, np.float32) for shape in shapes]


def peak_of_call(executable: Executable, *arrays: NDArray) -> int:
    """Return the peak bytes of a call with a ready frame, beside the result."""
    machine = VirtualMachine(executable)
    result = machine["main"](*arrays)
    assert isinstance(result, np.ndarray)
    tracemalloc.start()
    try:
        machine["main"](*arrays)
        return tracemalloc.get_traced_memory()[1] - result.nbytes
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("shape", ["(1, 8, 96, 80)", "('n', 8, 96, 80)", "(1, 8, 'h', 'w')"])
def test_a_call_holds_no_more_than_its_arena(shape: str) -> None:
    executable = build(parse(NETWORK.format(shape=shape)), ["host"])
    arrays = drawn((1, 8, 96, 80), (16, 8, 3, 3), (16,))
    assert peak_of_call(executable, *arrays) < SMALL
    nbytes = evaluate(executable.arena_nbytes["main"], {"n": 1, "h": 96, "w": 80})
    convolved = 4 * 16 * 96 * 80
    # The convolution's result and what unfolds its operand are needed at once, and then the result and what is pooled.
    least = convolved + (1 << 19)
    # Parts of symbolic sizes share less.
    assert least < nbytes < (2 if "'" in shape else 1) * (least + (1 << 19) + 4 * 8 * 98 * 82)


def test_a_program_hands_the_memory_over_and_direct_calls_do_without() -> None:
    executable = build(parse(NETWORK.format(shape="(1, 8, 96, 80)")), ["host"])
    arrays = drawn((1, 8, 96, 80), (16, 8, 3, 3), (16,))
    expected = VirtualMachine(executable)["main"](*arrays)
    assert isinstance(expected, np.ndarray)
    (module,) = executable.modules
    out = np.empty_like(expected)
    module.get_function(module.function_names[0])(*arrays, out)
    assert out.tobytes() == expected.tobytes()


def test_saved_programs_are_run_with_and_without_the_workspace_they_were_made_with(tmp_path: Path) -> None:
    executable = build(parse(NETWORK.format(shape="(1, 8, 96, 80)")), ["host"])
    arrays = drawn((1, 8, 96, 80), (16, 8, 3, 3), (16,))
    expected = VirtualMachine(executable)["main"](*arrays)
    assert isinstance(expected, np.ndarray)
    executable.save(tmp_path / "model.byoc")
    # Another version may plan more, or nothing.
    for least in (0, 1 << 30):
        with patch("byoc_core.runtime.graph.memory._MIN_NBYTES", least):
            found = VirtualMachine(load(tmp_path / "model.byoc"))["main"](*arrays)
            assert isinstance(found, np.ndarray)
            assert found.tobytes() == expected.tobytes()


def test_small_values_are_left_to_numpy() -> None:
    vector = tensor(1000)
    nodes = (GraphNode("exp", (0,), (vector,)), GraphNode("negative", (1,), (vector,)))
    assert region(nodes, vector, [2]).call_traits("f") == CallTraits(strided=True)


def test_views_keep_what_they_show() -> None:
    matrix = tensor(64, 64)
    nodes = (
        GraphNode("exp", (0,), (matrix,)),
        GraphNode("permute_dims", (1,), (matrix,), {"axes": (1, 0)}),
        GraphNode("matmul", (0, 0), (matrix,)),
        GraphNode("subtract", (2, 3), (matrix,)),  # in the memory of the product
        GraphNode("permute_dims", (4,), (matrix,), {"axes": (1, 0)}),
    )
    module = region(nodes, matrix, [5])
    assert module.call_traits("f").workspace_nbytes == 2 * 64 * 64 * 4
    (x,) = drawn((64, 64))
    (result,) = run_within(module, [x], [x])
    assert result.tobytes() == (np.exp(x).T - x @ x).T.tobytes()


def region(
    nodes: tuple[GraphNode, ...], type_: GraphTensor, outputs: list[int], constants: tuple[NDArray, ...] = ()
) -> GraphModule:
    """Return a module of a function ``f``: with a single input, or with two if there are constants."""
    specs = tuple(TensorSpec(f"x{i}", type_.dtype, type_.shape) for i in range(2 if constants else 1))
    cited = tuple(GraphConstant(DIGEST, tensor(*c.shape, dtype=c.dtype.name)) for c in constants)
    function = GraphFunction("f", specs, cited, nodes, tuple((f"y{i}", id_) for i, id_ in enumerate(outputs)))
    return GraphModule(GraphDocument({"f": function}), dict.fromkeys([DIGEST], *constants))


def run_within(module: GraphModule, arrays: list[NDArray], like: list[NDArray], **sizes: int) -> list[NDArray]:
    """Return the results of a call with a workspace, and check for writes outside the workspace."""
    nbytes = evaluate(module.call_traits("f").workspace_nbytes, sizes)
    room = np.full(nbytes + 192, 0xA5, np.uint8)
    start = 64 - room.ctypes.data % 64
    outputs = [np.zeros_like(a) if a.flags.c_contiguous else spread_out(np.zeros_like(a)) for a in like]
    module.get_function("f").impl(*arrays, *outputs, *([room[start : start + nbytes]] if nbytes else []))
    assert (room[:start] == 0xA5).all()
    assert (room[start + nbytes :] == 0xA5).all()
    return outputs


@settings(max_examples=300, deadline=None)
@given(square_graphs(), st.booleans(), st.booleans())
def test_graphs_give_the_bits_of_the_kernels_one_by_one_in_a_workspace(
    graph: tuple[str, list[Node], list[int]], strided: bool, symbolic: bool
) -> None:
    dtype, nodes, outputs = graph
    type_ = tensor("n", 3, dtype=dtype) if symbolic else tensor(3, 3, dtype=dtype)
    rng = np.random.default_rng(len(nodes))
    x, y, constant = ((rng.standard_normal((3, 3)) * 3).astype(to_numpy(dtype)) for _ in range(3))
    values: list[NDArray] = [x.copy(), y.copy(), constant.copy()]
    for op, operands, attrs in nodes:
        made = KERNELS[op](*(values[id_] for id_ in operands), **attrs)
        values.append(np.array(made[0] if isinstance(made, tuple) else made))
    made_nodes = tuple(
        GraphNode(
            op, operands, (type_,), {**attrs, "shape": (parse_dim("n"), 3)} if symbolic and "shape" in attrs else attrs
        )
        for op, operands, attrs in nodes
    )
    with patch("byoc_core.runtime.graph.memory._MIN_NBYTES", 1):
        module = region(made_nodes, type_, outputs, (constant,))
        arrays = [spread_out(x), spread_out(y)] if strided else [x, y]
        for _ in range(2):
            results = run_within(module, arrays, [spread_out(x) if strided else x for _ in outputs], n=3)
            check(results, [values[id_] for id_ in outputs])


CONVOLUTION: Mapping[str, GraphAttr] = {
    "strides": (1, 1), "padding": (1, 1, 1, 1), "dilation": (1, 1), "groups": 1,
    "data_layout": "NCHW", "kernel_layout": "OIHW",
}  # fmt: skip


@pytest.mark.parametrize("channels", [64, 256])
def test_a_convolution_unfolds_no_more_than_a_block(channels: int) -> None:
    x, weight = drawn((2, channels, 40, 30), (16, channels, 3, 3))
    result = KERNELS["nn.conv2d"](x, weight, **CONVOLUTION)
    tracemalloc.start()
    try:
        KERNELS["nn.conv2d"](x, weight, **CONVOLUTION)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    columns = x.nbytes * 9
    block = max(1 << 20, weight.nbytes)
    assert columns > 4 * block
    assert peak < result.nbytes + block + math.prod((channels, 42, 32, 4)) + SMALL
