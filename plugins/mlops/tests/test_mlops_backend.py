"""The plugin: ops claimed in builds, artifacts, and imports of the run half."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import byoc_core
import numpy as np
import pytest
from byoc_core.ops import default_ops
from byoc_mlops.ops import OPS
from byoc_mlops.runtime import KERNELS

from plugins.mlops.tests.ml_nodes import import_model, node_model, run_node
from plugins.mlops.tests.random_trees import Forest


def _classifier() -> tuple[dict[str, Any], np.ndarray[Any, np.dtype[Any]]]:
    forest = Forest(1, 3, weights_per_leaf=(3, 3))
    return {"classlabels_int64s": [4, 7, 1], "post_transform": "SOFTMAX", **forest.named("class")}, forest.samples(9)


@pytest.mark.parametrize("backends", [["mlops"], []])
@pytest.mark.parametrize("dynamic", [False, True])
def test_models_are_built_saved_and_run(backends: list[str], dynamic: bool, tmp_path: Path) -> None:
    """With and without the backend, which compiles its op, or leaves the op to the host."""
    attrs, x = _classifier()
    module = import_model(node_model("TreeEnsembleClassifier", [x], 2, dynamic=dynamic, **attrs))
    executable = byoc_core.build(module, backends)
    outcomes = {op["op"]: op["outcome"] for op in executable.report_data["ops"]}
    assert outcomes["mlops.tree_ensemble"] == (backends[0] if backends else "host")
    executable.save(tmp_path / "model.byoc")
    run = byoc_core.VirtualMachine(byoc_core.load(tmp_path / "model.byoc"))["main"]
    for result, wanted in zip(run(x), run_node("TreeEnsembleClassifier", [x], 2, **attrs), strict=True):
        np.testing.assert_array_equal(result, wanted)


def test_the_backend_has_all_ops() -> None:
    ops = default_ops().extended(byoc_core.backends.ops(["mlops"]))
    assert all(ops[op.name] is op for op in OPS)
    assert {op.name: op.kernel for op in OPS} == dict(KERNELS)
    assert all(op.unstated == () for op in OPS)


def test_the_run_half_imports_no_compiler() -> None:
    names = "(name for name in sys.modules if name.startswith(('byoc_core.ir', 'byoc_core.frontend', 'onnx')))"
    code = f"import sys, byoc_mlops.runtime; print(*{names})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_the_importers_are_listed_without_onnx() -> None:
    """The commands listing plugins also run on machines for artifacts alone."""
    code = (
        "import sys; sys.modules['onnx'] = None; from byoc_mlops.importers import byoc_onnx_importers as hook; hook()"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)
