"""Graph documents written by hand: bodies, shared values, results without nodes, constants, memory of many calls."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
from byoc_core.dims import parse_dim
from byoc_core.runtime.graph.document import GraphFunction, GraphNode, GraphTensor
from byoc_core.runtime.module import TensorSpec

from rt.tests.graph_programs import constant_of, executable_of_functions
from rt.tests.runner import NativeLibrary
from rt.tests.saved import check_calls, load_saved

N = parse_dim("n")
F32 = npt.NDArray[np.float32]


def vector(size: object = N) -> GraphTensor:
    return GraphTensor("float32", (parse_dim(str(size)),))


def spec(name: str, size: object = N) -> TensorSpec:
    return TensorSpec(name, "float32", (parse_dim(str(size)),))


def numbers(count: int) -> F32:
    return np.arange(count, dtype=np.float32) - 1


def composite(name: str, body: GraphFunction, operands: tuple[int, ...], size: object = N) -> GraphNode:
    return GraphNode(name, operands, (vector(size),), body=body)


def doubled(depth: int) -> GraphFunction:
    """Return a body adding its input to itself, in ``depth`` nested bodies."""
    inner = (
        GraphNode("add", (0, 0), (vector("m"),))
        if depth == 1
        else composite("fake.nested", doubled(depth - 1), (0,), "m")
    )
    return GraphFunction("doubled", (spec("a", "m"),), (), (inner,), (("out", 1),))


def test_bodies_have_symbols_of_their_own(native: NativeLibrary, tmp_path: Path) -> None:
    for depth in (1, 2, 16):
        function = GraphFunction("f", (spec("x"),), (), (composite("fake.twice", doubled(depth), (0,)),), (("y", 1),))
        check_calls(executable_of_functions([function]), native, tmp_path, "f", [[numbers(n)] for n in (3, 0, 5)])


def test_a_body_may_return_its_input_and_a_constant(native: NativeLibrary, tmp_path: Path) -> None:
    table = np.array([1, 2, 3], np.float32)
    body = GraphFunction("b", (spec("a", "m"),), (constant_of(table),), (), (("a", 0), ("c", 1)))
    node = GraphNode("fake.both", (0,), (vector(), vector(3)), body=body)
    nodes = (node, GraphNode("nn.relu", (2,), (vector(3),)), GraphNode("negative", (1,), (vector(),)))
    outputs = (("x", 1), ("c", 2), ("r", 3), ("n", 4), ("n_again", 4), ("input", 0))
    function = GraphFunction("f", (spec("x"),), (), nodes, outputs)
    executable = executable_of_functions([function], [table])
    check_calls(executable, native, tmp_path, "f", [[numbers(n)] for n in (4, 0, 1)])


def test_values_share_memory_only_while_unused(native: NativeLibrary, tmp_path: Path) -> None:
    """A reshaped value outlives its operand, and a long chain reuses memory without mixing values."""
    nodes = [
        GraphNode("negative", (0,), (vector(),)),
        GraphNode("reshape", (1,), (GraphTensor("float32", (1, N)),), MappingProxyType({"shape": (1, N)})),
        GraphNode("abs", (0,), (vector(),)),
        GraphNode("squeeze", (2,), (vector(),), MappingProxyType({"axis": (0,)})),
    ]
    nodes += [GraphNode("add", (index - 1, 4 if index % 3 else 3), (vector(),)) for index in range(5, 40)]
    function = GraphFunction("f", (spec("x"),), (), tuple(nodes), (("y", 39), ("z", 4)))
    check_calls(executable_of_functions([function]), native, tmp_path, "f", [[numbers(n)] for n in (4, 900, 0, 30)])


def test_attributes_take_sizes_of_the_call(native: NativeLibrary, tmp_path: Path) -> None:
    shape = (2, parse_dim("n//2"))
    result = GraphTensor("float32", shape)
    nodes = (
        GraphNode("reshape", (0,), (result,), MappingProxyType({"shape": shape})),
        GraphNode("negative", (1,), (result,)),
    )
    function = GraphFunction("f", (spec("x"),), (), nodes, (("y", 2),))
    check_calls(executable_of_functions([function]), native, tmp_path, "f", [[numbers(n)] for n in (4, 0, 10)])


def test_threads_share_a_function(native: NativeLibrary, tmp_path: Path) -> None:
    nodes = [GraphNode("add", (0, 0), (vector(),))]
    nodes += [GraphNode("nn.softmax", (index,), (vector(),), MappingProxyType({"axis": -1})) for index in range(1, 12)]
    function = GraphFunction("f", (spec("x"),), (), tuple(nodes), (("y", 12), ("z", 1)))
    call = load_saved(executable_of_functions([function]), native, tmp_path)["f"]
    inputs = [numbers(n) for n in (5, 700, 3, 64)] * 25
    expected = [call(array) for array in inputs]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(call, inputs))
    for have, want in zip(found, expected, strict=True):
        for left, right in zip(have, want, strict=True):
            np.testing.assert_array_equal(left, right)
