"""Drawn graphs of the conformance kit: the C runtime gives the bits of Python's machine."""

from __future__ import annotations

from pathlib import Path

import byoc_core
import pytest
from byoc_conformance.drawing import draw_graph, generator_of, graph_ops
from byoc_core.ir import IRModule
from byoc_core.native.toolchain import Toolchain
from byoc_core.ops import default_ops

from rt.tests.runner import NativeLibrary
from rt.tests.saved import check_calls

pytestmark = pytest.mark.skipif(not Toolchain.status().ok, reason="no C compiler")

FAVOURED = ("add", "concat", "nn.dense", "nn.softmax", "nn.relu", "split")


@pytest.mark.parametrize("is_dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("favoured", FAVOURED)
def test_compiled_graphs_have_the_bits_of_python(
    native: NativeLibrary, tmp_path: Path, favoured: str, is_dynamic: bool
) -> None:
    assert favoured in graph_ops()
    generator = generator_of(0, "c runtime", favoured, is_dynamic)
    for _ in range(2):
        graph = draw_graph("main", default_ops(), favoured, generator, is_dynamic=is_dynamic)
        module = IRModule({"main": graph.function}, graph.constants)
        executable = byoc_core.build(module, backends=["ccompiler"])
        assert any(part.type_key == "csource" for part in executable.modules)
        check_calls(executable, native, tmp_path, "main", [*graph.calls, *graph.calls])
