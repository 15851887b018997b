"""Functions and nodes by the reference kernels, for calls passed on by engines."""

from __future__ import annotations

import subprocess
import sys
import threading

import numpy as np
import pytest
from byoc_core.dims import parse_dim
from byoc_core.errors import ArtifactError, CallError, ExecutionError
from byoc_core.runtime.graph import ReferenceFunction, ReferenceNode
from byoc_core.runtime.graph.document import GraphConstant, GraphFunction, GraphNode
from byoc_core.runtime.module import NDArray, TensorSpec

from core.tests.runtime.graph.engines import DOUBLE, tensor

pytestmark = pytest.mark.interpreter

DIGEST = "ab" * 32
CONSTANT = np.arange(4, dtype="float32")
CONSTANTS = {DIGEST: CONSTANT}
BODY = GraphFunction(
    "body",
    (TensorSpec("a", "float32", tensor("k", 4).shape),),
    (GraphConstant(DIGEST, tensor(4)),),
    (GraphNode("add", (0, 1), (tensor("k", 4),)), GraphNode("nn.relu", (2,), (tensor("k", 4),))),
    (("b", 3),),
)
COMPOSITE = GraphNode("toy.shift_relu", (0,), (tensor("n", 4),), {}, BODY)
RESHAPE = GraphNode("reshape", (1,), (tensor("4*n"),), {"shape": (parse_dim("4*n"),)})
FUNCTION = GraphFunction(
    "f", (TensorSpec("x", "float32", tensor("n", 4).shape),), (), (COMPOSITE, RESHAPE), (("y", 2),)
)


@pytest.mark.parametrize("n", [0, 1, 3])
def test_a_function_at_any_sizes(n: int) -> None:
    x = np.random.default_rng(n).standard_normal((n, 4)).astype("float32")
    expected = np.maximum(x + CONSTANT, 0).reshape(-1)
    reference = ReferenceFunction(FUNCTION, CONSTANTS)
    out = np.empty(4 * n, "float32")
    reference(x, out)
    (result,) = reference.results([x])
    assert np.array_equal(out, expected)
    assert np.array_equal(result, expected)
    assert result.dtype == np.float32


def test_threads_share_a_reference() -> None:
    reference = ReferenceFunction(DOUBLE, {})
    failures: list[int] = []

    def work(size: int) -> None:
        for _ in range(50):
            (found,) = reference.results([np.ones(size, "float32")])
            failures.extend([size] if found.tolist() != [2] * size else [])

    threads = [threading.Thread(target=work, args=(size,)) for size in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_a_function_that_returns_its_results() -> None:
    node = GraphNode("nonzero", (0,), (tensor(1, "count", dtype="int64"),))
    function = GraphFunction("f", (TensorSpec("x", "float32", tensor("n").shape),), (), (node,), (("y", 1),))
    reference = ReferenceFunction(function, {})
    x = np.array([0, 3, 0, 5], "float32")
    (found,) = reference.results([x])
    assert found.tolist() == [[1, 3]]
    returned = reference(x)
    assert isinstance(returned, tuple)
    assert returned[0].tolist() == [[1, 3]]


def test_nodes() -> None:
    x = np.array([[-3, -1, 0, 2]], "float32")
    (shifted,) = ReferenceNode(COMPOSITE, CONSTANTS)({}, x)
    assert shifted.tolist() == [[0, 0, 2, 5]]
    (flat,) = ReferenceNode(RESHAPE, {})({"n": 1}, x)
    assert flat.tolist() == [-3, -1, 0, 2]
    split = GraphNode("split", (0,), (tensor(1, 1), tensor(1, 3)), {"sections": (1, 3), "axis": 1})
    first, rest = ReferenceNode(split, {})({}, x)
    assert (first.tolist(), rest.tolist()) == ([[-3]], [[-1, 0, 2]])


def test_numbers_that_are_not_finite_are_no_warning() -> None:
    log = GraphNode("log", (0,), (tensor(3),))
    (found,) = ReferenceNode(log, {})({}, np.array([-1, 0, np.nan], "float32"))
    assert np.isnan(found[[0, 2]]).all()
    assert found[1] == -np.inf


def test_what_the_core_has_no_kernel_for() -> None:
    odd = GraphNode("mynpu.swish", (0,), (tensor("n"),))
    function = GraphFunction("f", DOUBLE.inputs, (), (odd,), (("y", 1),))
    problem = "has no kernel."
    for make in (lambda: ReferenceFunction(function, {}), lambda: ReferenceNode(odd, {})):
        with pytest.raises(ArtifactError, match=problem):
            make()


def swish(x: NDArray) -> NDArray:
    return np.asarray(x / (1 + np.exp(-x)))


def test_own_ops_of_a_package() -> None:
    own = GraphNode("mynpu.swish", (0,), (tensor("n"),))
    function = GraphFunction("f", DOUBLE.inputs, (), (own,), (("y", 1),))
    x = np.array([-1000, 0, 2], "float32")
    expected = [-0.0, 0.0, float(swish(x[2:])[0])]
    assert ReferenceFunction(function, {}, {"mynpu.swish": swish}).results([x])[0].tolist() == expected
    assert ReferenceNode(own, {}, {"mynpu.swish": swish})({}, x)[0].tolist() == expected
    wrong = ReferenceFunction(function, {}, {"mynpu.swish": lambda x: x[:1]})
    with pytest.raises(ExecutionError, match="has the wrong size"):
        wrong.results([x])


def test_sizes_that_do_not_fit() -> None:
    with pytest.raises(CallError, match="axis 1 has the wrong size"):
        ReferenceFunction(FUNCTION, CONSTANTS).results([np.zeros((2, 5), "float32")])


def test_who_uses_no_reference_imports_no_kernels() -> None:
    code = (
        "import sys\nfrom byoc_core.runtime.graph import GraphModule, ReferenceFunction\n"
        "assert 'byoc_core.runtime.graph.reference_function' in sys.modules\n"
        "assert 'byoc_core.kernels' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
