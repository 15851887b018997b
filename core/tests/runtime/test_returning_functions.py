"""Functions with result sizes known only after running: called with inputs only, returning their results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from byoc_core import VirtualMachine, build, load, load_module, parse
from byoc_core.dims import parse_dim
from byoc_core.errors import ArtifactError, CallError, ExecutionError, LinkError
from byoc_core.runtime.graph import GraphModule, load_graph, save_graph
from byoc_core.runtime.graph.document import GraphDocument, GraphFunction, GraphNode, GraphTensor
from byoc_core.runtime.graph.encoding import decode_document, encode_document
from byoc_core.runtime.hooks import LoadContext
from byoc_core.runtime.module import PackedFunction, RuntimeModule, Signature
from byoc_core.runtime.serial import SerialModule
from byoc_core.vm import Call, CallKind, Program, Ret, VMFunction, verify
from byoc_core.vm.program import DynamicTensor

from core.tests.vm.programs import Executable, spec

pytestmark = pytest.mark.interpreter

X = np.array([0, 1, 0, 2], np.float32)


NONZERO = Signature((spec("x", "n"),), (spec("y", 1, "k", dtype="int64"),))


def nonzero(impl: Callable[..., Any] = lambda x: (np.argwhere(x).T,)) -> PackedFunction:
    return PackedFunction("f", impl, NONZERO)


def test_a_signature_says_which_sizes_are_new() -> None:
    assert NONZERO.new_symbols == {"k"}
    assert nonzero().returns_results
    filling = Signature((spec("x", "n*m"),), (spec("y", "n", "m"),))
    assert filling.new_symbols == frozenset()
    assert not PackedFunction("f", print, filling).returns_results
    assert not PackedFunction("f", print).returns_results


def test_results_come_back() -> None:
    results = nonzero()(X)
    assert results is not None
    assert results[0].tolist() == [[1, 3]]
    assert PackedFunction("f", lambda x, y: None, Signature(NONZERO.inputs, NONZERO.inputs))(X, X.copy()) is None


def test_a_result_that_is_an_input_is_copied() -> None:
    signature = Signature((spec("x", "n"),), (spec("y", "k"), spec("z", "k")))
    results = PackedFunction("f", lambda x: (x[:2], x[:2]), signature)(X)
    assert results is not None
    assert not any(np.shares_memory(result, X) for result in results)
    assert not np.shares_memory(results[0], results[1])


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            (X, np.zeros((1, 2), np.int64)),
            (
                "function `f`: wrong number of arguments; got 2, expected 1 inputs (x). "
                "The function returns its results: the size k is known only after a run."
            ),
        ),
        ((X.astype(np.int32),), "function `f`, input 0 `x`: wrong dtype; got int32, expected float32"),
    ],
)
def test_wrong_arguments(arguments: tuple[Any, ...], text: str) -> None:
    with pytest.raises(CallError) as caught:
        nonzero()(*arguments)
    assert str(caught.value) == text


@pytest.mark.parametrize(
    ("returned", "text"),
    [
        ((), "function `f`, returned values: wrong number of values; got 0, expected 1"),
        ((X,), "function `f`, returned value 0 `y`: wrong dtype; got float32, expected int64"),
        (
            np.zeros((2, 3), np.int64),
            "function `f`, returned value 0 `y`: axis 0 has the wrong size; got [2, 3], expected [1, k] with k = 3",
        ),
    ],
)
def test_wrong_results(returned: object, text: str) -> None:
    with pytest.raises(CallError) as caught:
        nonzero(lambda x: returned)(X)
    assert str(caught.value) == text


def test_a_module_that_takes_one_call_at_a_time_returns_results_too() -> None:
    @dataclass
    class Module(RuntimeModule):
        type_key: str = "one"
        function_names: tuple[str, ...] = ("f",)

        def find_function(self, name: str) -> PackedFunction:
            return nonzero()

    results = SerialModule(Module()).get_function("f")(X)
    assert results is not None
    assert results[0].tolist() == [[1, 3]]


GRAPH = GraphFunction(
    "f",
    NONZERO.inputs,
    (),
    (
        GraphNode("nonzero", (0,), (GraphTensor("int64", (1, parse_dim("k"))),)),
        GraphNode("broadcast_to", (0,), (GraphTensor("float32", (3, parse_dim("n"))),), {"shape": (3, parse_dim("n"))}),
    ),
    (("y", 1), ("z", 2)),
)


class TestGraph:
    def test_it_runs_and_is_saved(self) -> None:
        module = GraphModule(GraphDocument({"f": GRAPH}), {})
        again = load_graph(save_graph(module), LoadContext())
        assert again.document == module.document
        for graph in (module, again):
            results = graph.get_function("f")(X)
            assert results is not None
            assert [result.tolist() for result in results] == [[[1, 3]], [X.tolist()] * 3]

    def test_an_attribute_cannot_need_the_new_size(self) -> None:
        node = GraphNode(
            "broadcast_to", (0,), (GraphTensor("float32", (3, parse_dim("n"))),), {"shape": (parse_dim("k"),)}
        )
        broken = GraphFunction("f", GRAPH.inputs, (), (GRAPH.nodes[0], node), GRAPH.outputs)
        with pytest.raises(ArtifactError) as caught:
            decode_document(encode_document(GraphDocument({"f": broken})))
        assert str(caught.value) == (
            "graph document, function 0 (`f`), node 1 (`broadcast_to`), attribute `shape`: "
            "symbol k is in no shape passed by the caller"
        )


class TestLinking:
    def machine(self, function: PackedFunction, kind: CallKind = CallKind.PACKED) -> VirtualMachine:
        results = NONZERO.outputs if kind is CallKind.PACKED else (spec("y", 1, "n", dtype="int64"),)
        dynamics = (DynamicTensor("int64", results[0].shape, ("k",)),) if kind is CallKind.PACKED else ()
        target = 2 if dynamics else 1
        code = (Call(kind, 0, (0,), (target,)), Ret((target,)))
        main = VMFunction("main", NONZERO.inputs, results, (), (), (), dynamics, code)
        program = Program((main,), ("f",))
        verify(program)
        return VirtualMachine(Executable(program), externs={"f": function})

    def test_its_results_become_registers(self) -> None:
        machine = self.machine(nonzero())
        for x in (X, X[:1], X[:2]):
            np.testing.assert_array_equal(machine["main"](x), np.argwhere(x).T)

    def test_it_is_not_called_to_fill_buffers(self) -> None:
        with pytest.raises(LinkError) as caught:
            self.machine(nonzero(), CallKind.EXTERN)
        assert str(caught.value) == (
            "function `main`, instruction 0: `f` returns results instead of filling buffers; expected a call_packed"
        )

    def test_what_fills_buffers_cannot_tell_a_size(self) -> None:
        with pytest.raises(LinkError) as caught:
            self.machine(PackedFunction("f", print))
        assert str(caught.value) == (
            "function `main`, instruction 0: `f` fills buffers and cannot return results of unknown size; "
            "expected a Python callable in externs={...}"
        )

    def test_wrong_results_name_the_function(self) -> None:
        with pytest.raises(ExecutionError) as caught:
            self.machine(nonzero(lambda x: (X,)))["main"](X)
        assert str(caught.value) == (
            "function `main`, instruction 0 (call_packed `f`): failed with CallError: function `main`, "
            "returned value 0 `v0`: wrong dtype; got float32, expected int64"
        )


SCRIPT = """
class M:
    @R.function
    def main(x: R.Tensor(("n",), "float32")):
        i = R.nonzero(x, out_types=[R.Tensor((1, "k"), "int64")])
        j = R.reshape(i, shape=("k",))
        s = R.add(j, j)
        y = R.nn.relu(x)
        return s, y
"""


class TestExecutable:
    def check(self, module: RuntimeModule) -> None:
        results = module.get_function("main")(X)
        assert results is not None
        assert [result.tolist() for result in results] == [[2, 6], X.tolist()]
        with pytest.raises(CallError) as caught:
            module.get_function("main")(X, np.zeros(2, np.int64), X.copy())
        assert str(caught.value) == (
            "function `main`: wrong number of arguments; got 3, expected 1 inputs (x). "
            "The function returns its results: the size k is known only after a run."
        )

    def test_an_artifact_round_trips(self, tmp_path: Path) -> None:
        executable = build(parse(SCRIPT), [])
        path = tmp_path / "model.byoc"
        executable.save(path)
        loaded = load(path)
        assert loaded.to_bytes() == executable.to_bytes()
        for x in (X, X[:1], X[:0]):
            s, y = VirtualMachine(loaded)["main"](x)
            np.testing.assert_array_equal(s, 2 * np.flatnonzero(x))
            np.testing.assert_array_equal(y, x)
        self.check(load_module(path))

    def test_buffers_by_name_for_sizes_that_the_caller_knows(self) -> None:
        machine = VirtualMachine(build(parse(SCRIPT), []))
        s, y = np.zeros(2, np.int64), np.zeros(4, np.float32)
        machine.run("main", {"x": X}, out={"s": s, "y": y})
        assert (s.tolist(), y.tolist()) == ([2, 6], X.tolist())

    def test_a_library_holds_it(self, tmp_path: Path) -> None:
        path = tmp_path / "model.so"
        build(parse(SCRIPT), []).export_library(path)
        self.check(load_module(path))
