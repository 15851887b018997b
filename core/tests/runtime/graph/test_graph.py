"""Graph documents: the JSON form, laws, and runs by kernels."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from byoc_core.dims import parse_dim
from byoc_core.errors import ArtifactError, ExecutionError
from byoc_core.runtime.graph import BuiltFunction, GraphEngine, GraphModule, KernelEngine, load_graph, save_graph
from byoc_core.runtime.graph.document import (
    GraphConstant,
    GraphDocument,
    GraphFunction,
    GraphNode,
    GraphTensor,
)
from byoc_core.runtime.graph.encoding import decode_document, encode_document
from byoc_core.runtime.hooks import LoadContext
from byoc_core.runtime.module import CallTraits, NDArray
from hypothesis import given, settings
from hypothesis import strategies as st

from core.tests.vm.native_functions import native_entry
from core.tests.vm.programs import spec

pytestmark = pytest.mark.interpreter

DIGEST = "ab" * 32
CONSTANT = np.arange(4, dtype="float32")


def reshape(x: NDArray, *, shape: tuple[int, ...]) -> NDArray:
    return x.reshape(shape)


def split(x: NDArray, *, sections: tuple[int, ...], axis: int = 0) -> tuple[NDArray, ...]:
    return tuple(np.split(x, np.cumsum(sections)[:-1], axis))


def add(x: NDArray, y: NDArray) -> NDArray:
    return np.asarray(x + y)


KERNELS: dict[str, Callable[..., Any]] = {"add": add, "reshape": reshape, "split": split}


def tensor(*shape: int | str, dtype: str = "float32") -> GraphTensor:
    return GraphTensor(dtype, tuple(parse_dim(dim) for dim in shape))


BODY = GraphFunction(
    "body",
    (spec("a", "n", 4), spec("b", 4)),
    (),
    (GraphNode("add", (0, 1), (tensor("n", 4),)),),
    (("out", 2),),
)
MAIN = GraphFunction(
    "main",
    (spec("x", "n", 4),),
    (GraphConstant(DIGEST, tensor(4)),),
    (
        GraphNode("toy.add", (0, 1), (tensor("n", 4),), {"name": "toy.add", "scale": float("inf")}, BODY),
        GraphNode("split", (2,), (tensor("n", 1), tensor("n", 3)), {"sections": (1, 3), "axis": 1}),
        GraphNode("reshape", (4,), (tensor("3*n"),), {"shape": (parse_dim("3*n"),)}),
        GraphNode("add", (5, 5), (tensor("3*n"),)),
    ),
    (("double", 6), ("first", 3)),
)
DOCUMENT = GraphDocument({"main": MAIN})
PAYLOAD = encode_document(DOCUMENT)
CONTEXT = LoadContext({DIGEST: CONSTANT}, source="test")


def make_module() -> GraphModule:
    return load_graph(PAYLOAD, CONTEXT, KernelEngine(KERNELS))


def check_results(module: GraphModule, n: int) -> None:
    x = np.random.default_rng(n).random((n, 4), "float32")
    double, first = np.empty(3 * n, "float32"), np.empty((n, 1), "float32")
    module.get_function("main")(x, double, first)
    assert np.array_equal(double, (x + CONSTANT)[:, 1:].reshape(-1) * 2)
    assert np.array_equal(first, (x + CONSTANT)[:, :1])


def test_document_survives_its_json_form() -> None:
    decoded = decode_document(PAYLOAD)
    assert encode_document(decoded) == PAYLOAD
    assert decoded.functions["main"].nodes == MAIN.nodes
    assert decoded.functions["main"].signature == MAIN.signature


def test_payload_survives_the_module() -> None:
    assert save_graph(make_module()) == PAYLOAD


def test_module_runs_for_any_size() -> None:
    module = make_module()
    assert module.type_key == "graph"
    assert module.function_names == ("main",)
    assert set(module.constants) == {DIGEST}
    for n in (1, 3, 0):
        check_results(module, n)


def test_threads_share_a_module() -> None:
    module = make_module()
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            for n in range(1, 20):
                check_results(module, n + seed)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


SOURCE = """
graph main(%0 x: float32[n, 4])
  %1 = constant abababababab: float32[4]
  %2 = toy.add(%0, %1, name='toy.add', scale=inf): float32[n, 4]
    body body(%0 a: float32[n, 4], %1 b: float32[4])
      %2 = add(%0, %1): float32[n, 4]
      return %2 as out
  %3, %4 = split(%2, axis=1, sections=(1, 3)): float32[n, 1], float32[n, 3]
  %5 = reshape(%4, shape=(3*n,)): float32[3*n]
  %6 = add(%5, %5): float32[3*n]
  return %6 as double, %3 as first
"""


def test_source_is_one_line_for_each_value() -> None:
    assert make_module().get_source() == SOURCE.strip()
    assert json.loads(make_module().get_source("json"))["schema"] == "byoc.graph"
    assert make_module().get_source("c") == ""


def test_intermediates_are_released() -> None:
    import weakref

    alive: list[weakref.ref[NDArray]] = []

    def tracked(x: NDArray) -> NDArray:
        if len(alive) >= 2:
            assert alive[-2]() is None
        result = x + 1
        alive.append(weakref.ref(result))
        return result

    nodes = tuple(GraphNode("inc", (index,), (tensor(3),)) for index in range(6))
    function = GraphFunction("f", (spec("x", 3),), (), nodes, (("y", 6),))
    module = GraphModule(GraphDocument({"f": function}), {}, KernelEngine({"inc": tracked}))
    out = np.empty(3, "float32")
    module.get_function("f")(np.zeros(3, "float32"), out)
    assert out.tolist() == [6, 6, 6]


def test_input_and_constant_as_outputs() -> None:
    function = GraphFunction(
        "f", (spec("x", 4),), (GraphConstant(DIGEST, tensor(4)),), (), (("a", 0), ("b", 1), ("c", 0))
    )
    module = GraphModule(GraphDocument({"f": function}), {DIGEST: CONSTANT}, KernelEngine(KERNELS))
    outs = [np.empty(4, "float32") for _ in range(3)]
    x = np.ones(4, "float32")
    module.get_function("f")(x, *outs)
    assert [out.tolist() for out in outs] == [x.tolist(), CONSTANT.tolist(), x.tolist()]


def test_foreign_engine() -> None:
    class Engine(GraphEngine):
        @property
        def type_key(self) -> str:
            return "toy"

        # Written before the core gave more arguments.
        def check_node(self, node: GraphNode) -> str | None:  # type: ignore[override]
            return None if node.op in ("toy.add", "add", "split", "reshape") else "unknown to toy"

        def build(  # type: ignore[override]
            self, function: GraphFunction, constants: Mapping[str, NDArray]
        ) -> Callable[..., object]:
            return lambda *arrays: arrays[-1].fill(len(function.nodes))

    module = load_graph(PAYLOAD, CONTEXT, Engine())
    assert module.type_key == "toy"
    out, first = np.zeros(3, "float32"), np.zeros((1, 1), "float32")
    module.get_function("main")(np.zeros((1, 4), "float32"), out, first)
    assert first.item() == 4


def test_an_engine_gives_how_machine_code_calls_a_function() -> None:
    def implement(x: NDArray, out: NDArray) -> None:
        np.add(x, 1, out=out)

    entry = native_entry(implement)

    class Engine(KernelEngine):
        def build(
            self, function: GraphFunction, constants: Mapping[str, NDArray], prepared: object = None
        ) -> BuiltFunction:
            return BuiltFunction(implement, native=entry)

    function = GraphFunction("f", (spec("x", 4),), (), (), (("y", 0),))
    built = GraphModule(GraphDocument({"f": function}), {}, Engine())
    assert built.get_function("f").native is entry
    assert built.get_function("f").impl is implement
    assert built.call_traits("f") == CallTraits()
    assert GraphModule(GraphDocument({"f": function}), {}).get_function("f").native is None


def test_an_engine_binds_a_composite_to_one_kernel_once() -> None:
    bound: list[tuple[str, NDArray]] = []

    class Engine(KernelEngine):
        def bind_composite(self, node: GraphNode, constants: Mapping[str, NDArray]) -> Callable[..., Any]:
            bound.append((node.op, constants[DIGEST]))
            return lambda x, y: x + y + 1

    module = load_graph(PAYLOAD, CONTEXT, Engine(KERNELS))
    double, first = np.empty(6, "float32"), np.empty((2, 1), "float32")
    for _ in range(2):
        module.get_function("main")(np.zeros((2, 4), "float32"), double, first)
        assert double.tolist() == [4, 6, 8, 4, 6, 8]
        assert first.tolist() == [[1], [1]]
    assert [(op, array is CONSTANT) for op, array in bound] == [("toy.add", True)]


def changed(change: Callable[[Any], object]) -> bytes:
    data = json.loads(PAYLOAD)
    change(data)
    return json.dumps(data).encode()


def node(data: Mapping[str, Any], index: int) -> Any:
    return data["functions"][0]["nodes"][index]


LAWS: list[tuple[Callable[[Any], object], str]] = [
    (lambda d: d.update(schema="x"), "graph document: has another schema; got 'x', expected 'byoc.graph'"),
    (
        lambda d: d.update(version=4),
        "graph document: has a version unknown to this byoc-core; got 4, expected 1 to 3",
    ),
    (
        lambda d: d.update(kernels=[]),
        "graph document: has an unknown field 'kernels'; expected schema, version, functions",
    ),
    (lambda d: d.update(version=2, kernels={}), "graph document, kernels: is not a list; got dict"),
    (
        lambda d: d.update(version=2, kernels=[{"op": "npu.a", "runtime": "npu"}]),
        "graph document, kernels, item 0: has no field 'distribution'",
    ),
    (
        lambda d: d.update(version=2, kernels=[{"op": "", "runtime": "npu", "distribution": "byoc-npu"}]),
        "graph document, kernels, item 0, op: is not a text; got ''",
    ),
    (
        lambda d: d.update(version=2, kernels=[{"op": "npu.a", "runtime": "npu", "distribution": "d"}] * 2),
        "graph document, kernels, item 1: names a kernel twice; got 'npu.a'",
    ),
    (
        lambda d: d.update(version=2, kernels=[{"op": "npu.a", "runtime": "npu", "distribution": "byoc-npu"}]),
        "graph document, kernels: names a kernel for an op without nodes; got 'npu.a'",
    ),
    (lambda d: d.pop("functions"), "graph document: has no field 'functions'"),
    (
        lambda d: d.update(more=1),
        "graph document: has an unknown field 'more'; expected schema, version, functions, kernels",
    ),
    (lambda d: d["functions"].append(d["functions"][0]), "graph document, function 1: the name `main` is used twice"),
    (
        lambda d: node(d, 1).update(inputs=[3]),
        "graph document, function 0 (`main`), node 1 (`split`): reads a value not defined earlier; got 3",
    ),
    (
        lambda d: node(d, 1).update(inputs=[True]),
        "graph document, function 0 (`main`), node 1 (`split`): reads a value not defined earlier; got True",
    ),
    (
        lambda d: node(d, 3).update(op="ad"),
        "graph function `main`, node 3 (`ad`): has no kernel. Did you mean 'add'?",
    ),
    (
        lambda d: node(d, 3).update(attrs={"axis": 1}),
        (
            "graph document, function `main`, node 3 (`add`): breaks the type rule of the op: has no attribute `axis`; "
            "expected none"
        ),
    ),
    (
        lambda d: node(d, 2).update(attrs={"shape": [{"dim": "k"}]}),
        (
            "graph document, function 0 (`main`), node 2 (`reshape`), attribute `shape`: "
            "symbol k is in no shape passed by the caller"
        ),
    ),
    (
        lambda d: node(d, 2).update(attrs={"shape": {"list": []}}),
        (
            "graph document, function 0 (`main`), node 2 (`reshape`), attribute `shape`: "
            "is not an attribute value; got {'list': []}"
        ),
    ),
    (
        lambda d: node(d, 2)["outputs"][0].update(shape=[-1]),
        (
            "graph document, function 0 (`main`), node 2 (`reshape`), output 0, shape, axis 0: is not a size; got -1, "
            "expected a non-negative integer or an expression"
        ),
    ),
    (
        lambda d: node(d, 2)["outputs"][0].update(dtype="float33"),
        (
            "graph document, function 0 (`main`), node 2 (`reshape`), output 0: unknown dtype 'float33'. "
            "Did you mean 'float32' or 'float16'?"
        ),
    ),
    (
        lambda d: node(d, 0)["body"]["outputs"].append({"name": "z", "value": 0}),
        "graph document, function 0 (`main`), node 0 (`toy.add`): the body has other inputs or outputs than the node",
    ),
    (
        lambda d: d["functions"][0]["constants"][0].update(digest="cd" * 32),
        "test: cites a missing constant; got " + "cd" * 32,
    ),
    (
        lambda d: d["functions"][0]["constants"][0].update(shape=[5]),
        (
            "graph document, function `main`, node 0 (`toy.add`): breaks the type rule of the op: the body has other "
            "sizes than the node; got float32[4], expected float32[5]"
        ),
    ),
]


@pytest.mark.parametrize(("change", "text"), LAWS)
def test_broken_law(change: Callable[[Any], object], text: str) -> None:
    with pytest.raises(ArtifactError) as caught:
        load_graph(changed(change), CONTEXT, KernelEngine(KERNELS))
    assert str(caught.value).replace(" or 'float64'", "") == text


@pytest.mark.parametrize(
    "payload", [b"", b"{", b"\xff", b"NaN", b"[" * 100_000, b"9" * 5000, b"null", b'{"schema":"byoc.graph"}']
)
def test_no_document(payload: bytes) -> None:
    with pytest.raises(ArtifactError):
        decode_document(payload)


@settings(max_examples=300, deadline=None)
@given(st.integers(0, len(PAYLOAD) - 1), st.binary(min_size=1, max_size=3), st.booleans())
def test_mutated_bytes_raise_only_artifact_errors(position: int, replacement: bytes, insert: bool) -> None:
    tail = position if insert else position + len(replacement)
    payload = PAYLOAD[:position] + replacement + PAYLOAD[tail:]
    try:
        module = load_graph(payload, CONTEXT, KernelEngine(KERNELS))
    except ArtifactError:
        return
    assert save_graph(module)


json_values = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=4), st.just([]), st.just({}),
    st.sampled_from(["n", "n//0", "3*n", "(n)", 2**70, -1, {"dim": "n"}, {"dim": 3}, {"float": []}, [[0]]]),
)  # fmt: skip


def places(data: object) -> list[tuple[Any, Any]]:
    found: list[tuple[Any, Any]] = []
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in items:
        found += [(data, key), *places(value)]
    return found


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_mutated_values_raise_only_artifact_errors(data: st.DataObject) -> None:
    document = json.loads(PAYLOAD)
    holder, key = data.draw(st.sampled_from(places(document)))
    holder[key] = data.draw(json_values)
    with contextlib.suppress(ArtifactError):
        load_graph(json.dumps(document).encode(), CONTEXT, KernelEngine(KERNELS))


def test_kernel_that_fails_is_named() -> None:
    def fail(x: NDArray) -> NDArray:
        raise ZeroDivisionError("no")

    function = GraphFunction("f", (spec("x", 3),), (), (GraphNode("bad", (0,), (tensor(3),)),), (("y", 1),))
    module = GraphModule(GraphDocument({"f": function}), {}, KernelEngine({"bad": fail}))
    with pytest.raises(ExecutionError) as caught:
        module.get_function("f")(np.zeros(3, "float32"), np.zeros(3, "float32"))
    assert str(caught.value) == "graph function `f`, node 0 (`bad`): the kernel failed: ZeroDivisionError: no"


def test_kernel_of_another_shape_is_named() -> None:
    function = GraphFunction("f", (spec("x", 3),), (), (GraphNode("bad", (0,), (tensor(3),)),), (("y", 1),))
    module = GraphModule(GraphDocument({"f": function}), {}, KernelEngine({"bad": lambda x: x[:1]}))
    with pytest.raises(ExecutionError) as caught:
        module.get_function("f")(np.zeros(3, "float32"), np.zeros(3, "float32"))
    assert str(caught.value) == (
        "graph function `f`, output `y`: the result is not of the declared type; got float32[1], expected float32[3]"
    )


def test_strided_functions_are_those_of_the_core_and_of_engines_that_say_so() -> None:
    class Scaling(KernelEngine):
        """An engine of another library, perhaps without support of strides."""

    class Strided(Scaling):
        @property
        def strided(self) -> bool:
            return True

    function = GraphFunction("f", (spec("x", 4),), (), (GraphNode("nn.relu", (0,), (tensor(4),)),), (("y", 1),))
    document = GraphDocument({"f": function})
    engines = {"core": None, "kernels": KernelEngine(KERNELS | {"nn.relu": abs}), "mine": Scaling(), "says": Strided()}
    strided = {name: GraphModule(document, {}, engine).call_traits("f").strided for name, engine in engines.items()}
    assert strided == {"core": True, "kernels": False, "mine": False, "says": True}


def test_a_function_of_the_core_fills_strided_outputs() -> None:
    function = GraphFunction("f", (spec("x", 2, 4),), (), (GraphNode("negative", (0,), (tensor(2, 4),)),), (("y", 1),))
    module = GraphModule(GraphDocument({"f": function}), {})
    memory = np.zeros((4, 6), np.float32)
    x = np.arange(8, dtype=np.float32).reshape(4, 2).T
    module.find_function("f").impl(x, memory[1::2, 1:5])
    wanted = np.zeros((4, 6), np.float32)
    wanted[1::2, 1:5] = -x
    assert memory.tolist() == wanted.tolist()
