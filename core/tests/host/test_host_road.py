"""The host compiled like any backend: annotate, RunCodegen, lower, save, load, run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from byoc_core import script as R
from byoc_core.artifact import Executable, inspect, load
from byoc_core.lower import lower
from byoc_core.partitioning import RunCodegen
from byoc_core.vm import VirtualMachine

pytestmark = pytest.mark.asks_for_plugins

SOURCE = """
@R.ir_module
class Example:
    @R.function
    def region(x: R.Tensor(("n", 4), "float32"), w: R.Tensor((3, 4), "float32")):
        R.func_attr({"Codegen": "host", "global_symbol": "region_lib"})
        a = R.nn.dense(x, w)
        b = R.nn.relu(a)
        c, d = R.split(b, sections=(1, 2), axis=1)
        e = R.reshape(d, shape=("2*n",))
        return e, c

    @R.function
    def main(x: R.Tensor(("n", 4), "float32"), w: R.Tensor((3, 4), "float32")):
        e, c = region(x, w)
        return c, e
"""


def test_from_script_to_a_loaded_artifact(tmp_path: Path) -> None:
    module = RunCodegen()(R.parse(SOURCE))
    assert len(module.attrs["external_mods"]) == 1
    executable = Executable(lower(module), module.attrs["external_mods"], module.constants)
    path = tmp_path / "model.byoc"
    executable.save(path)
    assert [(m.type_key, m.functions) for m in inspect(path).modules] == [("graph", ("region_lib",))]
    rng = np.random.default_rng(0)
    for machine in (VirtualMachine(executable), VirtualMachine(load(path))):
        for n in (1, 3, 0):
            x, w = rng.standard_normal((n, 4), "float32"), rng.standard_normal((3, 4), "float32")
            b = np.maximum(x @ w.T, 0)
            c, e = machine["main"](x, w)
            np.testing.assert_allclose(c, b[:, :1], rtol=1e-5)
            np.testing.assert_allclose(e, b[:, 1:].reshape(-1), rtol=1e-5)
