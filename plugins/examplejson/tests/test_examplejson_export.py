"""An exported library: functions and regions are called alike, here and by other programs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import byoc_core
import numpy as np
import pytest
from byoc_core import script as R
from byoc_core.errors import CallError
from byoc_core.native.toolchain import Toolchain

pytestmark = pytest.mark.interpreter

TEXT = """
@R.ir_module
class Module:
    @R.function
    def region(x: R.Tensor((4, 4)), y: R.Tensor((4, 4))):
        R.func_attr({"Codegen": "examplejson", "global_symbol": "subgraph_0"})
        a = R.add(x, y)
        b = R.multiply(a, y)
        return b, a

    @R.function
    def main(x: R.Tensor((4, 4)), y: R.Tensor((4, 4))):
        z, a = region(x, y)
        return z
"""
X, Y = np.arange(32, dtype=np.float32).reshape(2, 4, 4)


@pytest.fixture(params=["model.so", "model.byoc"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    executable = byoc_core.build(R.parse(TEXT), [])
    found = tmp_path / str(request.param)
    if found.suffix == ".byoc":
        executable.save(found)
    elif not Toolchain.status().ok:
        pytest.skip("no C compiler")
    else:
        executable.export_library(found)
    return found


def check(get_function: Callable[[str], Callable[..., object]]) -> None:
    z, b, a = np.empty((3, 4, 4), np.float32)
    get_function("main")(X, Y, z)
    np.testing.assert_array_equal(z, (X + Y) * Y)
    get_function("subgraph_0")(X, Y, b, a)
    np.testing.assert_array_equal(b, (X + Y) * Y)
    np.testing.assert_array_equal(a, X + Y)


def test_regions_are_functions_of_the_module(path: Path) -> None:
    module = byoc_core.load_module(path)
    assert module.function_names == ("main", "subgraph_0")
    check(module.get_function)
    with pytest.raises(CallError, match="function `subgraph_0`, input 0 `input0`: axis 0 has the wrong size"):
        module.get_function("subgraph_0")(X[:2], Y, X, Y)
    with pytest.raises(
        CallError, match=r"has no function `subgraph_1`; expected main, subgraph_0\. Did you mean 'subgraph_0'"
    ):
        module.get_function("subgraph_1")


@pytest.mark.parametrize("path", ["model.so"], indirect=True)
def test_regions_are_exported_to_other_programs(path: Path) -> None:
    tvm_ffi = pytest.importorskip("tvm_ffi")
    module = tvm_ffi.load_module(str(path))
    check(module.get_function)
    with pytest.raises(ValueError, match="axis 0 has the wrong size"):
        module.get_function("subgraph_0")(np.zeros((2, 4), np.float32), Y, Y, Y)
