"""Models describing far more than their bytes: import and build end soon, and in little memory."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import takewhile

import byoc_core
import numpy as np
import pytest
from byoc_core.errors import FrontendError, OptionsError
from byoc_core.frontend.onnx import from_onnx
from onnx import ModelProto, helper

from core.tests.frontend.onnx_bombs import BOMBS, REFUSED, concat_tenfold, functions_that_call_threefold, new_nested

_ADDRESS_SPACE = 3 << 30
_RESIDENT_KIB = 1 << 20
_SECONDS = 240
_SERVER = """
import os, resource, signal, sys, traceback
import byoc_core
from byoc_core.errors import ByocError
from byoc_core.frontend.onnx import from_onnx

def build(path):
    signal.alarm(int(sys.argv[2]))
    resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[1]),) * 2)
    try:
        byoc_core.build(from_onnx(path), [])
        print("built")
    except ByocError as error:
        print(type(error).__name__, error)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, flush=True)

byoc_core.build(from_onnx(sys.argv[3]), [])  # imports everything once, for all children
for line in sys.stdin:
    child = os.fork()
    if not child:
        try:
            build(line.strip())
        except BaseException:
            traceback.print_exc()
        os._exit(0)
    print("status", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
"""A process building each named model in a forked child of bounded memory and time: imports take the longest."""

Build = Callable[[ModelProto], tuple[str, int]]


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Build]:
    """Return a function building a model in a process of bounded memory: the output, and the peak memory in KiB."""
    folder = tmp_path_factory.mktemp("bombs")
    plain, path = folder / "plain.onnx", folder / "model.onnx"
    plain.write_bytes(_new_chain(1).SerializeToString())
    command = [sys.executable, "-c", _SERVER, str(_ADDRESS_SPACE), str(_SECONDS), str(plain)]
    with (
        (folder / "errors.txt").open("w+") as errors,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True) as server,
    ):
        requests, replies = server.stdin, server.stdout
        assert requests is not None
        assert replies is not None

        def ask(model: ModelProto) -> tuple[str, int]:
            path.write_bytes(model.SerializeToString())
            requests.write(f"{path}\n")
            requests.flush()
            lines = list(takewhile(lambda line: not line.startswith("status"), replies))
            assert len(lines) == 2, f"{lines}\n{(folder / 'errors.txt').read_text()}"
            return lines[0].rstrip("\n"), int(lines[1])

        yield ask
        requests.close()


def _new_chain(length: int) -> ModelProto:
    """Return a model of a chain of ops."""
    nodes = [helper.make_node("Relu", [f"x{k}"], [f"x{k + 1}"]) for k in range(length)]
    value = helper.make_tensor_value_info("x0", 1, [4]), helper.make_tensor_value_info(f"x{length}", 1, [4])
    graph = helper.make_graph(nodes, "g", value[:1], value[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


@pytest.mark.parametrize("name", BOMBS)
def test_what_costs_too_much_stays_in_the_program(name: str, build: Build) -> None:
    said, peak = build(BOMBS[name]())
    assert said == "built"
    assert peak < _RESIDENT_KIB * (2 if name == "many_constants_of_shape" else 1)


@pytest.mark.parametrize("name", REFUSED)
def test_what_stands_for_too_much_is_refused(name: str, build: Build) -> None:
    said, peak = build(REFUSED[name]())
    assert said.startswith("FrontendError")
    assert "expand to too many nodes" in said or "nested too deeply" in said
    assert peak < _RESIDENT_KIB


def test_the_error_names_the_bound_and_how_to_raise_it() -> None:
    with pytest.raises(FrontendError) as caught:
        from_onnx(functions_that_call_threefold())
    assert str(caught.value) == (
        "ONNX model: functions, loops and sequences expand to too many nodes; got 3,486,784,401 "
        "or more, expected at most 100,992 for a model with 62 declared nodes. If you trust the model, pass a "
        "higher `max_nodes` (on the command line, --max-nodes)."
    )


def test_the_bound_of_nodes_is_the_users() -> None:
    model = _new_chain(2)
    assert len(from_onnx(model, max_nodes=4)["main"].bindings) == 2
    with pytest.raises(FrontendError, match="got 4 or more, expected at most 3 for a model with 2 declared nodes"):
        from_onnx(model, max_nodes=3)
    with pytest.raises(OptionsError, match="max_nodes: is not positive; got 0"):
        from_onnx(model, max_nodes=0)


def test_the_bound_of_folding_is_the_users(caplog: pytest.LogCaptureFixture) -> None:
    """With bound 0, anything with a cost stays in the program; the default folds up to a growth of 1 MiB."""
    module = from_onnx(concat_tenfold())
    by_cost = {cost: byoc_core.build(module, [], max_fold_cost=cost).constants for cost in (0, None)}
    sizes = {cost: max(array.size for array in arrays.values()) for cost, arrays in by_cost.items()}
    assert sizes[0] == 40  # what is computed while importing
    assert sizes[None] == 40_000
    assert (
        "Raise the bound with build(..., max_fold_cost=...), on the command line with --max-fold-cost." in caplog.text
    )
    with pytest.raises(OptionsError, match="max_fold_cost: is negative; got -1"):
        byoc_core.build(module, [], max_fold_cost=-1)


def test_graphs_and_calls_nest_up_to_the_bound_without_recursion_errors() -> None:
    module = from_onnx(new_nested(10, 5))
    executable = byoc_core.build(module, [])
    x = np.array([-3.0], np.float32)
    for condition, expected in ((True, 0.0), (False, 3.0)):
        result = byoc_core.VirtualMachine(executable)["main"](x, np.array(condition))
        np.testing.assert_array_equal(result, np.array([expected], np.float32))
    assert byoc_core.parse(str(module)) == module


def test_this_process_is_not_bounded() -> None:
    assert resource.getrlimit(resource.RLIMIT_AS)[0] != _ADDRESS_SPACE
