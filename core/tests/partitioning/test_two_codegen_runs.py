"""S001.3: two runs of codegen for two backends, other passes between them: both modules and all constants survive."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from byoc_core import script as R
from byoc_core.ir import IRModule, verify
from byoc_core.partitioning import RunCodegen, partition
from byoc_core.transform import (
    BindParams,
    FoldConstants,
    InferTypes,
    Pass,
    RemoveDeadCode,
    Sequential,
    Simplify,
    UniqueNames,
)

from core.tests.conftest import FakeBackend, RunCompiled
from core.tests.partitioning.plugins import install_plugins, run_program

# Backend `alpha` takes the ops up to `b`, `beta` those from `e` on; `k` can be folded, `z` is dead.
TEXT = """
def main(x: R.Tensor((4,)), w: R.Tensor((4,))):
    a = R.add(x, R.const([1.0, 2.0, 3.0, 4.0], "float32"))
    b = R.nn.relu(a)
    z = R.tanh(b)
    k = R.subtract(R.const([9.0, 8.0, 7.0, 6.0], "float32"), R.const([5.0, 5.0, 5.0, 5.0], "float32"))
    c = R.multiply(b, w)
    e = R.concat(c, k, R.const([-1.0, 0.5], "float32"))
    f = R.abs(e)
    g = R.negative(f)
    return b, g
"""
ALPHA_OPS, BETA_OPS = ("add", "split", "nn.relu"), ("abs", "negative", "concat")
X, W = np.array([-2.0, -1.0, 0.5, 3.0], np.float32), np.array([2.0, -3.0, 0.25, -1.0], np.float32)
BETWEEN = {
    "nothing": Sequential([]),
    "BindParams": BindParams({"w": W}),
    "FoldConstants": FoldConstants(),
    "RemoveDeadCode": RemoveDeadCode(),
    "UniqueNames": UniqueNames(),
    "InferTypes": InferTypes(),
    "Simplify": Simplify(),
}
BETWEEN["all of them"] = Sequential(list(BETWEEN.values()))


def expected() -> list[np.ndarray[Any, Any]]:
    """The text's expected results; all numbers are exact in float32."""
    b = np.maximum(X.astype(np.float64) + np.arange(1, 5), 0)
    return [b, -np.abs(np.concatenate([b * W, [4, 3, 2, 1], [-1, 0.5]]))]


@pytest.mark.parametrize("between", BETWEEN)
def test_s001_3_both_modules_and_all_constants_survive(
    between: str, fake_backend: type[FakeBackend], run_compiled: RunCompiled
) -> None:
    alpha, beta = fake_backend("alpha", ALPHA_OPS), fake_backend("beta", BETA_OPS, constants="lifted")
    first = RunCodegen(backends=[alpha])(partition(R.parse(TEXT), [alpha]))
    middle: Pass | Sequential = BETWEEN[between]
    second: IRModule = verify(RunCodegen(backends=[beta])(partition(middle(first), [beta])))
    assert second.attrs["external_mods"][0] is first.attrs["external_mods"][0]
    assert [m.function_names for m in second.attrs["external_mods"]] == [("alpha_main_0",), ("beta_main_0",)]
    assert [len(f.bindings) for f in (*alpha.compiled, *beta.compiled)] == [2, 3]
    assert set(first.constants) <= set(second.constants)
    inputs = [X, W][: len(second["main"].params)]
    for have, want in zip(run_compiled(second, "main", inputs), expected(), strict=True):
        np.testing.assert_array_equal(have, want)


_COMPILE = """
import sys
import byoc_core
from byoc_core import script as R
from byoc_core.partitioning import RunCodegen
from core.tests.partitioning.test_two_codegen_runs import BETWEEN, TEXT
module = RunCodegen()(byoc_core.partition(R.parse(TEXT), ["alpha"]))
module = BETWEEN["all of them"](module)
module = RunCodegen()(byoc_core.partition(module, ["beta"]))
byoc_core.build(module, []).save(sys.argv[1])
"""

_RUN = """
import json, sys
import numpy as np
import byoc_core
executable = byoc_core.load(sys.argv[1])
results = byoc_core.VirtualMachine(executable)["main"](np.array(json.loads(sys.argv[2]), np.float32))
assert "byoc_core.ir" not in sys.modules
print(json.dumps([[module.type_key for module in executable.modules], [r.tolist() for r in results]]))
"""


def test_s001_3_saved_and_run_in_a_fresh_process(tmp_path: Path) -> None:
    sites = install_plugins(tmp_path, [["alpha"], ["beta"]])
    path = str(tmp_path / "model.byoc")
    run_program(_COMPILE, [path], sites)
    type_keys, results = json.loads(run_program(_RUN, [path, json.dumps(X.tolist())], sites))
    assert type_keys[:2] == ["alpha", "beta"]
    for have, want in zip(results, expected(), strict=True):
        np.testing.assert_array_equal(have, want)
