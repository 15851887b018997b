"""Two ops of a third-party package, defined in a single file: each verb for the core's ops works for these too.

The package is ``foreign``: ``foreign.log1p``, made by ``unary_op``, and ``foreign.flatten2``, a pure view.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import byoc_core
import numpy as np
import numpy.typing as npt
import onnx
import pytest
from byoc_core import script as R
from byoc_core.debugging import debug_model
from byoc_core.ir import IRModule, OpRegistry
from byoc_core.lint import lint_backend
from byoc_core.ops import default_ops
from byoc_core.partitioning import PeelViews, partition
from byoc_core.transform import Canonicalise, EliminateCommonSubexpressions, FoldConstants, MoveTransposes

from core.tests.fresh_process import answer_of
from core.tests.plugin.foreign_site import foreign_paths

pytestmark = [pytest.mark.interpreter, pytest.mark.asks_for_plugins]

X = np.linspace(-0.9, 20, 60, dtype=np.float32).reshape(3, 4, 5)
CHAIN = """
def main(x: R.Tensor(("n", 4, 5), "float32")):
    a = R.foreign.flatten2(x)
    b = R.foreign.log1p(a)
    c = R.add(b, b)
    return c
"""


@pytest.fixture
def paths(tmp_path: Path) -> tuple[str, str]:
    """The entries of ``sys.path`` needed by the package."""
    return foreign_paths(tmp_path / "site")


@pytest.fixture
def ops(
    paths: tuple[str, str], monkeypatch: pytest.MonkeyPatch, look_again: Callable[[], None]
) -> Iterator[OpRegistry]:
    """The ops of the core and of the installed package."""
    for path in paths:
        monkeypatch.syspath_prepend(path)
    monkeypatch.delenv("FOREIGN_ULPS", raising=False)
    look_again()
    yield default_ops().extended(byoc_core.backends.ops(["foreign"]))
    for name in [name for name in sys.modules if name.startswith("foreign_")]:
        del sys.modules[name]


def run(module: IRModule, *inputs: npt.NDArray[Any], backends: Sequence[str] = ()) -> Any:
    return byoc_core.VirtualMachine(byoc_core.build(module, backends))["main"](*inputs)


def check_chain(found: npt.NDArray[Any]) -> None:
    exact = 2 * np.log1p(X.reshape(3, 20).astype(np.float64))
    np.testing.assert_allclose(found, exact, rtol=3 * 2.0**-24)


def rewritten(transform: Callable[[IRModule], IRModule], params: str, lines: Sequence[str], ops: OpRegistry) -> Any:
    """Return the names of the ops in ``main`` after a pass."""
    text = f"def main({params}):\n" + "".join(f"    {line}\n" for line in lines)
    return [binding.op.name for binding in transform(R.parse(text, ops=ops))["main"].bindings]


def test_the_ops_state_all_facts(ops: OpRegistry) -> None:
    assert [ops[name].unstated for name in ("foreign.log1p", "foreign.flatten2")] == [(), ()]
    assert lint_backend("foreign") == ()


def test_a_program_is_printed_parsed_and_run_on_the_host(ops: OpRegistry) -> None:
    module = R.parse(CHAIN, ops=ops)
    assert R.parse(str(module), ops=ops) == module
    check_chain(run(module, X))


def test_a_view_op_is_a_view_in_the_program(ops: OpRegistry) -> None:
    executable = byoc_core.build(R.parse(CHAIN, ops=ops), [])
    outcomes = {op["op"]: op["outcome"] for op in executable.report_data["ops"]}
    assert outcomes == {"foreign.flatten2": "(view)", "foreign.log1p": "host", "add": "host"}
    (function,) = executable.program.functions
    assert [str(view.shape) for view in function.views] == ["(<dim n>, 20)"]
    assert function.storages == ()


def test_a_view_op_is_peeled_off_a_region(ops: OpRegistry) -> None:
    parted = partition(R.parse(CHAIN, ops=ops), ["foreign"])
    assert [binding.op.name for binding in parted["main"].bindings] == ["call", "add"]
    peeled = PeelViews(["foreign"])(parted)
    assert [binding.op.name for binding in peeled["main"].bindings] == ["foreign.flatten2", "call", "add"]


def test_an_op_is_offloaded_and_computed_there(ops: OpRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    module = R.parse(CHAIN, ops=ops)
    executable = byoc_core.build(module, ["foreign"])
    outcomes = {op["op"]: op["outcome"] for op in executable.report_data["ops"]}
    assert outcomes == {"foreign.flatten2": "(view)", "foreign.log1p": "foreign", "add": "host"}
    main: Any = byoc_core.VirtualMachine(executable)["main"]
    right = main(X)
    check_chain(right)
    monkeypatch.setenv("FOREIGN_ULPS", "3")
    assert not np.array_equal(main(X), right), "its engine was called"


def test_constants_are_folded(ops: OpRegistry) -> None:
    lines = [
        'a = R.foreign.log1p(R.const([0.0, 1.0], "float32"))',
        "b = R.add(x, a)",
        "return b",
    ]
    assert rewritten(FoldConstants(), 'x: R.Tensor((2,), "float32")', lines, ops) == ["add"]


def test_equal_uses_are_computed_once(ops: OpRegistry) -> None:
    lines = ["a = R.foreign.log1p(x)", "b = R.foreign.log1p(x)", "c = R.add(a, b)", "return c"]
    names = rewritten(EliminateCommonSubexpressions(), 'x: R.Tensor((2,), "float32")', lines, ops)
    assert names == ["foreign.log1p", "add"]


def test_a_view_that_changes_nothing_is_left_out(ops: OpRegistry) -> None:
    lines = ["a = R.foreign.flatten2(x)", "b = R.foreign.log1p(a)", "return b"]
    assert rewritten(Canonicalise(), 'x: R.Tensor((2, 3), "float32")', lines, ops) == ["foreign.log1p"]


def test_transposes_move_through_an_elementwise_op(ops: OpRegistry) -> None:
    lines = [
        "a = R.permute_dims(x, axes=(1, 0))",
        "b = R.foreign.log1p(a)",
        "c = R.permute_dims(b, axes=(1, 0))",
        "return c",
    ]
    assert rewritten(MoveTransposes(), 'x: R.Tensor((2, 3), "float32")', lines, ops) == ["foreign.log1p"]


@pytest.mark.parametrize(("ulps", "is_right"), [(0, True), (1, True), (16, False)])
def test_results_are_judged_by_the_rounding_that_the_op_states(
    ulps: int, is_right: bool, ops: OpRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOREIGN_ULPS", str(ulps))
    report = debug_model(R.parse(CHAIN, ops=ops), ["foreign"], [X])
    assert report.is_tested
    assert report.is_right is is_right, str(report)


def test_an_onnx_model_names_the_ops_in_their_own_domain(ops: OpRegistry) -> None:
    made = onnx.helper.make_tensor_value_info
    nodes = [
        onnx.helper.make_node("Flatten2", ["x"], ["a"], domain="foreign"),
        onnx.helper.make_node("Log1p", ["a"], ["b"], domain="foreign"),
        onnx.helper.make_node("Add", ["b", "b"], ["c"]),
    ]
    inputs, outputs = (
        [made("x", onnx.TensorProto.FLOAT, ["n", 4, 5])],
        [made("c", onnx.TensorProto.FLOAT, ["n", 20])],
    )
    opsets = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("foreign", 1)]
    model = onnx.helper.make_model(onnx.helper.make_graph(nodes, "g", inputs, outputs), opset_imports=opsets)
    module = byoc_core.from_onnx(model, ops=ops)
    assert [binding.op.name for binding in module["main"].bindings] == ["foreign.flatten2", "foreign.log1p", "add"]
    check_chain(run(module, X, backends=["foreign"]))


LOAD = """
import json, sys
import numpy as np
import byoc_core

results = []
for path in sys.argv[1:]:
    main = byoc_core.VirtualMachine(byoc_core.load(path))["main"]
    x = np.linspace(-0.9, 20, 60, dtype=np.float32).reshape(3, 4, 5)
    results.append(main(x).tolist())
compile_side = {"byoc_core.ir", "byoc_core.ops", "byoc_core.backend", "byoc_core.transform", "foreign_backend"}
print(json.dumps([results, sorted(compile_side & sys.modules.keys())]))
"""


def test_an_artifact_runs_in_a_process_that_never_imports_the_compile_side(
    ops: OpRegistry, paths: tuple[str, str], tmp_path: Path
) -> None:
    """One artifact has the ops on the host, with the kernels of the run half; the other has offloaded ops."""
    files = [tmp_path / "host.byoc", tmp_path / "foreign.byoc"]
    for path, backends in zip(files, ([], ["foreign"]), strict=True):
        byoc_core.build(R.parse(CHAIN, ops=ops), backends).save(path)
    inherited = filter(None, [os.environ.get("PYTHONPATH")])
    environment = {"PYTHONPATH": os.pathsep.join([*paths, *inherited])}
    results, compile_side = answer_of(LOAD, *map(str, files), environment=environment)
    for found in results:
        check_chain(np.array(found, np.float32))
    assert compile_side == []
