"""Host regions: the same bits as the kernels in sequence, private memory, errors in the kernels' words."""

from __future__ import annotations

import threading
import tracemalloc
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any

import numpy as np
import pytest
from byoc_core.backend.info import CompileContext
from byoc_core.dims import parse_dim
from byoc_core.dtypes import to_numpy
from byoc_core.errors import ArtifactError, ExecutionError
from byoc_core.host.backend import byoc_codegen
from byoc_core.ops import default_ops
from byoc_core.ops.cases import canonical_cases, dtypes_of, new_function
from byoc_core.opset.families import KERNELS
from byoc_core.runtime.graph import GraphModule, KernelEngine
from byoc_core.runtime.graph.document import (
    GraphAttr,
    GraphConstant,
    GraphDocument,
    GraphFunction,
    GraphNode,
    GraphTensor,
)
from byoc_core.runtime.module import NDArray, TensorSpec
from hypothesis import given, settings
from hypothesis import strategies as st

DIGEST = "ab" * 32
Node = tuple[str, tuple[int, ...], Mapping[str, GraphAttr]]


def spread_out(array: NDArray) -> NDArray:
    """Return the same elements, without neighbours in memory."""
    wide = np.zeros((*array.shape, 2), array.dtype)
    wide[..., 1] = array
    return wide[..., 1]


@pytest.mark.parametrize("name", sorted(set(canonical_cases(default_ops())) - {"random.seed"}))
def test_a_region_of_one_op_gives_the_bits_of_its_kernel(name: str) -> None:
    op = default_ops()[name]
    for index, case in enumerate(canonical_cases(default_ops())[name]):
        for dtype in dtypes_of(case, op):
            function, binding = new_function(op, case.types(dtype), case.attrs)
            module = byoc_codegen([function], CompileContext("host", None, {})).module
            assert module is not None
            packed = module.get_function(function.name)
            contiguous = case.arrays(np.random.default_rng(index), dtype)
            for arrays in (contiguous, [spread_out(array) for array in contiguous]):
                for array in arrays:
                    array.setflags(write=False)
                expected = KERNELS[name](*arrays, **binding.attrs)
                expected = expected if isinstance(expected, tuple) else (expected,)
                params = [arrays[binding.operands.index(param)] for param in function.params]
                if packed.returns_results:
                    results = packed.impl(*params)
                    assert isinstance(results, tuple)
                    check(results, expected)
                    continue
                for outputs in ([np.empty_like(a) for a in expected], [spread_out(np.empty_like(a)) for a in expected]):
                    packed.impl(*params, *outputs)
                    check(outputs, expected)


def check(results: Sequence[NDArray], expected: Sequence[NDArray]) -> None:
    """Compare bits, except for NaNs: the bits of NaNs computed by numpy depend on strides."""
    assert [(r.dtype, r.shape) for r in results] == [(e.dtype, e.shape) for e in expected]
    for result, array in zip(results, expected, strict=True):
        if result.tobytes() != array.tobytes():
            both = np.isnan(array)
            assert (np.isnan(result) == both).all()
            assert np.where(both, array, result).tobytes() == array.tobytes()


def tensor(*shape: int | str, dtype: str = "float32") -> GraphTensor:
    return GraphTensor(dtype, tuple(parse_dim(dim) for dim in shape))


def make_region(
    nodes: list[GraphNode],
    inputs: list[GraphTensor],
    outputs: list[int],
    constants: tuple[NDArray, ...] = (),
    engine: KernelEngine | None = None,
) -> Callable[..., Any]:
    """Return the bare implementation of a function."""
    specs = tuple(TensorSpec(f"x{i}", t.dtype, t.shape) for i, t in enumerate(inputs))
    cited = tuple(GraphConstant(DIGEST, tensor(*c.shape, dtype=c.dtype.name)) for c in constants)
    named = tuple((f"y{i}", id_) for i, id_ in enumerate(outputs))
    function = GraphFunction("f", specs, cited, tuple(nodes), named)
    return (
        GraphModule(GraphDocument({"f": function}), dict.fromkeys([DIGEST], *constants), engine).get_function("f").impl
    )


ANY_DTYPE: list[tuple[str, int, Mapping[str, GraphAttr]]] = [
    ("add", 2, {}), ("multiply", 2, {}), ("maximum", 2, {}), ("subtract", 2, {}), ("divide", 2, {}), ("abs", 1, {}),
    ("nn.relu", 1, {}), ("clip", 1, {"min": -2.0, "max": 3.0}), ("clip", 1, {"min": None, "max": None}),
    ("permute_dims", 1, {"axes": (1, 0)}), ("reshape", 1, {"shape": (3, 3)}), ("flip", 1, {"axis": 0}),
    ("broadcast_to", 1, {"shape": (3, 3)}), ("split", 1, {"sections": (3,), "axis": 0}),
]  # fmt: skip
INTEGERS: list[tuple[str, int, Mapping[str, GraphAttr]]] = [("matmul", 2, {}), ("nn.dense", 2, {})]
"""Integer dtypes: for floats, the order of BLAS additions depends on strides."""
FLOATS: list[tuple[str, int, Mapping[str, GraphAttr]]] = [
    ("sigmoid", 1, {}), ("exp", 1, {}), ("tanh", 1, {}), ("nn.softmax", 1, {"axis": 0}),
    ("nn.log_softmax", 1, {"axis": 1}), ("nn.gelu", 1, {"approximate": "none"}),
]  # fmt: skip


@st.composite
def square_graphs(draw: st.DrawFn) -> tuple[str, list[Node], list[int]]:
    """Draw nodes over 3x3 values of the same dtype: two inputs, a constant, then a value for each node."""
    dtype = draw(st.sampled_from(["float32", "float64", "float16", "bfloat16", "int32", "int8"]))
    table = ANY_DTYPE + (FLOATS if "float" in dtype else INTEGERS)
    nodes: list[Node] = []
    for index in range(draw(st.integers(1, 12))):
        op, count, attrs = draw(st.sampled_from(table))
        near = st.integers(max(0, index), index + 2)
        nodes.append((op, tuple(draw(near | st.integers(0, index + 2)) for _ in range(count)), attrs))
    outputs = draw(st.lists(st.integers(0, len(nodes) + 2), min_size=1, max_size=3))
    return dtype, nodes, outputs


@pytest.mark.interpreter
@settings(max_examples=300, deadline=None)
@given(square_graphs(), st.booleans(), st.booleans())
def test_graphs_give_the_bits_of_the_kernels_one_by_one(
    graph: tuple[str, list[Node], list[int]], strided: bool, symbolic: bool
) -> None:
    dtype, nodes, outputs = graph
    type_ = tensor("n", 3, dtype=dtype) if symbolic else tensor(3, 3, dtype=dtype)
    rng = np.random.default_rng(len(nodes))
    x, y, constant = ((rng.standard_normal((3, 3)) * 3).astype(to_numpy(dtype)) for _ in range(3))
    constant.setflags(write=False)
    values: list[NDArray] = [x.copy(), y.copy(), constant.copy()]
    for op, operands, attrs in nodes:
        made = KERNELS[op](*(values[id_] for id_ in operands), **attrs)
        values.append(np.array(made[0] if isinstance(made, tuple) else made))
    made_nodes = [
        GraphNode(
            op, operands, (type_,), {**attrs, "shape": (parse_dim("n"), 3)} if symbolic and "shape" in attrs else attrs
        )
        for op, operands, attrs in nodes
    ]
    run = make_region(made_nodes, [type_, type_], outputs, (constant,))
    arrays = [spread_out(x), spread_out(y)] if strided else [x, y]
    before = [array.tobytes() for array in (*arrays, constant)]
    for _ in range(2):
        results = [np.zeros((3, 3), x.dtype) for _ in outputs]
        results = [spread_out(result) for result in results] if strided else results
        run(*arrays, *results)
        check(results, [values[id_] for id_ in outputs])
        assert [array.tobytes() for array in (*arrays, constant)] == before
        for result in results:
            result[...] = 0  # what is kept between calls would show


@pytest.mark.interpreter
@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (1,)])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int64"])
def test_chains_of_small_and_empty_arrays(shape: tuple[int, ...], dtype: str) -> None:
    type_ = tensor(*shape, dtype=dtype)
    chain = [
        ("add", (0, 1)),
        ("multiply", (2, 0)),
        ("nn.relu", (3,)),
        ("negative", (4,)),
        ("abs", (5,)),
        ("divide", (6, 1)),
    ]
    x, y = np.full(shape, 3, dtype), np.full(shape, 2, dtype)
    out = np.zeros(shape, dtype)
    make_region([GraphNode(op, ids, (type_,)) for op, ids in chain], [type_, type_], [7])(x, y, out)
    values = [x, y]
    for op, ids in chain:
        values.append(KERNELS[op](*(values[id_] for id_ in ids)))
    assert out.tobytes() == values[-1].tobytes()


@pytest.mark.interpreter
def test_two_threads_do_not_see_each_others_memory() -> None:
    vector = tensor("n")
    nodes = [GraphNode("add", (0, 0), (vector,))]
    nodes += [GraphNode("nn.relu", (index,), (vector,)) for index in range(1, 10)]
    nodes += [
        GraphNode("reshape", (10,), (vector,), {"shape": (parse_dim("n"),)}),
        GraphNode("add", (11, 0), (vector,)),
    ]
    run = make_region(nodes, [vector], [12])
    failures: list[str] = []

    def work(seed: int) -> None:
        for size in range(1, 200):
            x = np.full(size % 7 + seed, seed, "float32")
            out = np.zeros_like(x)
            run(x, out)
            if not (out == 3 * seed).all():
                failures.append(f"{seed}: {out}")

    threads = [threading.Thread(target=work, args=(seed,)) for seed in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def peak_of(run: Callable[..., Any], *arrays: NDArray) -> int:
    """Return the peak bytes of a call beyond the arguments."""
    run(*arrays)
    tracemalloc.start()
    try:
        run(*arrays)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.interpreter
def test_a_chain_holds_one_intermediate() -> None:
    matrix = tensor(512, 512)
    ops = ["exp", "nn.relu", "sqrt", "tanh", "negative"] * 4
    nodes = [GraphNode(op, (index,), (matrix,)) for index, op in enumerate(ops)]
    x, out = np.ones((512, 512), "float32"), np.empty((512, 512), "float32")
    assert peak_of(make_region(nodes, [matrix], [20]), x, out) < x.nbytes + 20_000
    assert peak_of(make_region(nodes[:1], [matrix], [1]), x, out) < 20_000


@pytest.mark.interpreter
def test_a_result_that_is_read_again_is_not_written_over() -> None:
    vector = tensor(4)
    nodes = [
        GraphNode("add", (0, 0), (vector,)),
        GraphNode("reshape", (1,), (vector,), {"shape": (4,)}),  # the same memory
        GraphNode("negative", (1,), (vector,)),
        GraphNode("add", (2, 3), (vector,)),
    ]
    out = np.empty(4, "float32")
    make_region(nodes, [vector], [4])(np.arange(4, dtype="float32"), out)
    assert out.tolist() == [0, 0, 0, 0]


@pytest.mark.interpreter
def test_all_operands_are_released_when_nothing_reads_them() -> None:
    vector = tensor(4)
    made: list[weakref.ref[NDArray]] = []

    def make(x: NDArray) -> NDArray:
        made.append(weakref.ref(result := x + 1))
        return result

    def see(x: NDArray) -> NDArray:
        assert [array() for array in made] == [None, None, None]
        return x

    nodes = [GraphNode("make", (0,), (vector,)) for _ in range(3)]  # the third is never read
    nodes += [GraphNode("add", (1, 2), (vector,)), GraphNode("see", (4,), (vector,))]
    engine = KernelEngine({"make": make, "see": see, "add": KERNELS["add"]})
    out = np.empty(4, "float32")
    make_region(nodes, [vector], [5], engine=engine)(np.ones(4, "float32"), out)
    assert out.tolist() == [4, 4, 4, 4]


def test_memory_of_another_dtype_than_declared_is_not_taken() -> None:
    vector = tensor(2)
    nodes = [
        GraphNode("negative", (0,), (vector,)),  # gives float64, whatever the document says
        GraphNode("cast", (1,), (vector,), {"dtype": "float32"}),
        GraphNode("reshape", (2,), (vector,), {"shape": (2,)}),
    ]
    out = np.empty(2, "float32")
    make_region(nodes, [tensor(2, dtype="float64")], [3])(np.array([1.0, 2.0]), out)
    assert out.tolist() == [-1, -2]


def test_an_op_of_several_passes_is_not_written_over_what_it_still_reads() -> None:
    matrix = tensor(3, 3)
    attrs: Mapping[str, GraphAttr] = {"axes": (0, 1), "epsilon": 1e-5}
    nodes = [GraphNode("negative", (index,), (matrix,)) for index in range(3)]
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((3, 3), "float32") for _ in range(3)]
    for operands in ((0, 4, 2), (0, 1, 5), (3, 1, 5), (3, 4, 5)):
        norm = [
            GraphNode("nn.layer_norm", operands, (matrix,), attrs),
            GraphNode("reshape", (6,), (matrix,), {"shape": (3, 3)}),
        ]
        out = np.empty((3, 3), "float32")
        make_region([*nodes, *norm], [matrix] * 3, [7])(*arrays, out)
        values = [*arrays, *(-array for array in arrays)]
        assert out.tobytes() == KERNELS["nn.layer_norm"](*(values[id_] for id_ in operands), **attrs).tobytes()


SPREAD = (
    "graph function `f`, output `y0`: the result is not of the declared type; got float32[1, 4], expected float32[3, 4]"
)


def test_a_result_is_not_spread_over_a_larger_output() -> None:
    row, matrix = tensor(1, 4), tensor(3, 4)
    for nodes, last in (
        ([GraphNode("add", (0, 0), (matrix,))], 1),
        ([GraphNode("nn.relu", (0,), (row,)), GraphNode("nn.relu", (1,), (matrix,))], 2),
        ([GraphNode("matmul", (0, 1), (matrix,))], 2),
    ):
        inputs = [row, tensor(4, 4)] if nodes[0].op == "matmul" else [row]
        arrays = [np.ones([int(str(dim)) for dim in spec.shape], "float32") for spec in inputs]
        with pytest.raises(ExecutionError) as caught:
            make_region(list(nodes), inputs, [last])(*arrays, np.empty((3, 4), "float32"))
        assert str(caught.value) == SPREAD


@pytest.mark.parametrize("op", ["matmul", "nn.dense"])
def test_a_product_is_not_repeated_over_a_stack(op: str) -> None:
    region = make_region([GraphNode(op, (0, 0), (tensor(3, 2, 2),))], [tensor(2, 2)], [1])
    with pytest.raises(ExecutionError) as caught:
        region(np.ones((2, 2), "float32"), np.empty((3, 2, 2), "float32"))
    assert str(caught.value) == (
        "graph function `f`, output `y0`: the result is not of the declared type;"
        " got float32[2, 2], expected float32[3, 2, 2]"
    )


def test_a_smaller_output_is_named() -> None:
    with pytest.raises(ExecutionError) as caught:
        make_region([GraphNode("add", (0, 0), (tensor(2),))], [tensor(4)], [1])(
            np.ones(4, "float32"), np.ones(2, "float32")
        )
    assert str(caught.value) == (
        "graph function `f`, output `y0`: the result is not of the declared type; got float32[4], expected float32[2]"
    )


def test_a_result_of_another_dtype_is_named() -> None:
    nodes = [GraphNode("add", (0, 0), (tensor(2, dtype="float32"),))]
    with pytest.raises(ExecutionError) as caught:
        make_region(nodes, [tensor(2, dtype="float64")], [1])(np.ones(2), np.ones(2, "float32"))
    assert str(caught.value) == (
        "graph function `f`, output `y0`: the result is not of the declared type; got float64[2], expected float32[2]"
    )


@pytest.mark.interpreter
def test_operands_that_do_not_fit_are_named_in_the_words_of_numpy() -> None:
    nodes = [GraphNode("negative", (0,), (tensor("n"),)), GraphNode("add", (2, 1), (tensor("n"),))]
    with pytest.raises(ExecutionError) as caught:
        make_region(nodes, [tensor("n"), tensor("m")], [3])(np.ones(2, "f4"), np.ones(3, "f4"), np.ones(2, "f4"))
    assert str(caught.value) == (
        "graph function `f`, node 1 (`add`): the kernel failed: ValueError: operands could not be broadcast together "
        "with shapes (2,) (3,) "
    )


def test_an_error_in_a_body_names_node_and_body() -> None:
    def fail(x: NDArray) -> NDArray:
        raise ZeroDivisionError("no")

    vector = tensor(2)
    body = GraphFunction(
        "body", (TensorSpec("a", "float32", (2,)),), (), (GraphNode("bad", (0,), (vector,)),), (("b", 1),)
    )
    with pytest.raises(ExecutionError) as caught:
        make_region([GraphNode("toy", (0,), (vector,), {}, body)], [vector], [1], engine=KernelEngine({"bad": fail}))(
            np.ones(2, "f4"), np.ones(2, "f4")
        )
    assert str(caught.value) == (
        "graph function `f`, node 0 (`toy`): graph function `f`, body of `toy`, node 0 (`bad`): "
        "the kernel failed: ZeroDivisionError: no"
    )


@pytest.mark.parametrize(("results", "got"), [((), 0), ((1, 2), 2)])
def test_another_number_of_results_is_named(results: tuple[Any, ...], got: int) -> None:
    with pytest.raises(ExecutionError) as caught:
        make_region(
            [GraphNode("odd", (0,), (tensor(2),))], [tensor(2)], [1], engine=KernelEngine({"odd": lambda _: results})
        )(np.ones(2, "f4"), np.ones(2, "f4"))
    assert str(caught.value) == (
        f"graph function `f`, node 0 (`odd`): the kernel returns another number of results; got {got}, expected 1"
    )


def test_one_operand_too_many_is_refused_and_not_taken_for_memory_to_write_to() -> None:
    with pytest.raises(ArtifactError) as caught:
        make_region([GraphNode("add", (0, 1, 0), (tensor(2),))], [tensor(2), tensor(2)], [2])
    assert str(caught.value) == (
        "graph function `f`, node 0 (`add`): the kernel does not take these operands and attributes: "
        "too many positional arguments"
    )
    with pytest.raises(ArtifactError):
        make_region([GraphNode("nn.relu", (0,), (tensor(2),), {"out": 1})], [tensor(2)], [1])


@pytest.mark.interpreter
def test_kernels_of_others_run_in_the_context_of_the_caller_and_ours_beside_them_do_not_warn() -> None:
    mine: ContextVar[float] = ContextVar("mine", default=0.0)

    def read(x: NDArray) -> NDArray:
        return np.asarray(x + np.asarray(mine.get(), x.dtype))

    vector = tensor(2)
    nodes = [GraphNode("log", (0,), (vector,)), GraphNode("read", (1,), (vector,)), GraphNode("exp", (2,), (vector,))]
    run = make_region(nodes, [vector], [3], engine=KernelEngine({**KERNELS, "read": read}))
    out = np.empty(2, "float32")
    mine.set(1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(np.array([0, 1], "float32"), out)
    np.testing.assert_allclose(out, [0, np.e], rtol=1e-6)


@pytest.mark.interpreter
def test_a_kernel_of_ours_that_an_engine_takes_for_a_composite_does_not_warn() -> None:
    class Engine(KernelEngine):
        def bind_composite(self, node: GraphNode, constants: Mapping[str, NDArray]) -> Any:
            return KERNELS["log"]

    vector = tensor(2)
    body = GraphFunction(
        "b", (TensorSpec("p", "float32", vector.shape),), (), (GraphNode("log", (0,), (vector,)),), (("q", 1),)
    )
    nodes = [GraphNode("mine.log", (0,), (vector,), {"label": "x"}, body), GraphNode("own", (1,), (vector,))]
    run = make_region(nodes, [vector], [2], engine=Engine({**KERNELS, "own": lambda x: x.copy()}))
    out = np.empty(2, "float32")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(np.array([0, 1], "float32"), out)
    assert out.tolist() == [-np.inf, 0]


@pytest.mark.interpreter
def test_a_region_of_ours_does_not_warn() -> None:
    vector = tensor(2)
    out = np.empty(2, "float32")
    with warnings.catch_warnings(), np.errstate(all="raise"):
        warnings.simplefilter("error")
        make_region([GraphNode("log", (0,), (vector,)), GraphNode("exp", (1,), (vector,))], [vector], [2])(
            np.array([0, -1], "float32"), out
        )
    assert out[0] == 0
    assert np.isnan(out[1])


def test_sizes_of_another_call_are_not_taken_over() -> None:
    flat = GraphNode("reshape", (0,), (tensor("2*n"),), {"shape": (parse_dim("2*n"),)})
    run = make_region([flat, GraphNode("add", (1, 1), (tensor("2*n"),))], [tensor("n", 2)], [2])
    for n in (3, 1, 0, 3, 4, *range(20), 3, 19, 0):  # more than are kept
        x = np.arange(2 * n, dtype="float32").reshape(n, 2)
        out = np.empty(2 * n, "float32")
        run(x, out)
        assert out.tolist() == [2 * i for i in range(2 * n)]
