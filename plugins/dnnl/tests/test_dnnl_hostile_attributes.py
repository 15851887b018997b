"""Inconsistent or too large attributes and declared shapes never reach oneDNN."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import byoc_dnnl.backend as dnnl
import numpy as np
import pytest
from byoc_core.backend.hooks import Rejection
from byoc_core.errors import ArtifactError, ExecutionError, IRTypeError
from byoc_core.ir import Binding, tensor
from byoc_core.opset.families import KERNELS
from byoc_core.runtime.graph.document import GraphDocument, GraphFunction
from byoc_dnnl.engine import DnnlModule
from byoc_dnnl.lowerings.geometry import MAX_TAPS
from hypothesis import event, given
from hypothesis import strategies as st

from plugins.dnnl.tests.dnnl_region import Region, emit

ROOT = Path(__file__).parents[3]
NUM_MUTANTS = 600
DEADLINE = 300
"""Seconds for a process of mutants, with a usual duration of about 20."""


@pytest.mark.parametrize("seed", range(2))
def test_mutants_are_refused_or_run_and_end(seed: int, tmp_path: Path) -> None:
    path = tmp_path / "mutant.txt"
    command = [sys.executable, "-m", "plugins.dnnl.tests.mutants", str(seed), str(NUM_MUTANTS), str(path)]
    try:
        done = subprocess.run(command, cwd=ROOT, timeout=DEADLINE, capture_output=True, text=True, check=False)
    except subprocess.TimeoutExpired:
        pytest.fail(f"a mutant has no end: {path.read_text()}")
    assert done.returncode == 0, f"{path.read_text()}\n{done.stderr[-3000:]}"
    ends = json.loads(done.stdout)
    assert ends["ran"] > NUM_MUTANTS // 10
    assert ends["not loaded"] > NUM_MUTANTS // 10


@pytest.mark.parametrize("batch", [2, "n"])
def test_a_window_that_is_larger_than_its_image_is_refused(batch: int | str) -> None:
    region = Region()
    x = region.builder.param("x", tensor((batch, 4, 8, 8)))
    region.finish(emit(region, "nn.max_pool2d", x, pool_size=(2, 2)))
    function = region.module.document.functions["f"]
    (node,) = function.nodes
    node = replace(node, attrs=MappingProxyType({**node.attrs, "pool_size": (2, 2**62)}))
    changed = GraphFunction("f", function.inputs, function.constants, (node,), function.outputs)
    text = (
        "graph function `f`, node 0 (`nn.max_pool2d`): breaks the type rule of the op: operand `x`: width of the "
        "padded image is smaller than the window; got 8, expected 4611686018427387904 or more"
    )
    with pytest.raises(ArtifactError, match=re.escape(text)):
        DnnlModule(GraphDocument(MappingProxyType({"f": changed})), {})


def test_sizes_of_a_call_that_break_a_rule_are_refused_before_anything_reads_them() -> None:
    """The difference of two symbols may be zero; for the sizes of this call, it is not."""
    region = Region()
    x, y = region.builder.param("x", tensor(("n", 8))), region.builder.param("y", tensor(("m", 8)))
    call = _as_loaded(region, region.builder.bind("concat", [x, y], {"axis": 1})).get_function("op")
    with pytest.raises(ExecutionError) as caught:
        call(np.ones((2, 8), np.float32), np.ones((3, 8), np.float32), np.ones((2, 16), np.float32))
    assert "graph function `op`: cannot be computed at these sizes: " in str(caught.value)
    assert "breaks the type rule of the op" in str(caught.value)


@pytest.mark.parametrize("window", [MAX_TAPS + 1, 2**30])
def test_a_window_of_more_taps_than_code_is_generated_for_is_left_alone(window: int) -> None:
    region = Region()
    x = region.builder.param("x", tensor((1, 1, 1, 4)))
    padding = (0, window // 2, 0, window // 2)
    binding = region.builder.bind("nn.max_pool2d", [x], {"pool_size": (1, window), "padding": padding})
    answer = region.judge(binding)
    assert isinstance(answer, Rejection)
    assert answer.text == f"`nn.max_pool2d`: oneDNN would generate code for more than {MAX_TAPS} taps"


@pytest.mark.parametrize("op", ["nn.conv2d", "nn.conv2d_transpose"])
def test_padding_beyond_what_onednn_counts_is_left_alone(op: str) -> None:
    region = Region()
    x, weight = (
        region.builder.param(name, tensor(shape)) for name, shape in (("x", (1, 2, 4, 4)), ("w", (2, 2, 1, 1)))
    )
    size = 2**31
    changed = (
        {"padding": (0, size, 0, size), "strides": (1, 2 * size)}
        if op == "nn.conv2d"
        else {"padding": (0, size, 0, size), "output_padding": (0, 2 * size)}
    )
    answer = region.judge(region.builder.bind(op, [x, weight], changed))
    assert isinstance(answer, Rejection)
    assert answer.text == f"`{op}`: with padding an image has more than {2**31 - 1} elements"


@st.composite
def _windows(draw: Callable[..., Any]) -> dict[str, Any]:
    """Draw the windows of a pooling or convolution, some of them not fitting."""
    of_each = st.tuples(*[st.integers(1, 4)] * 2)
    return {
        "image": draw(st.tuples(*[st.integers(1, 9)] * 2)),
        "window": draw(st.tuples(*[st.integers(1, 5)] * 2)),
        "strides": draw(of_each),
        "dilation": draw(of_each),
        "padding": draw(st.tuples(*[st.integers(0, 6)] * 4)),
        "ceil_mode": draw(st.booleans()),
        "counts": draw(st.booleans()),
    }


_OPS = ("nn.max_pool2d", "nn.avg_pool2d", "nn.conv2d", "nn.conv2d_transpose")


@given(op=st.sampled_from(_OPS), found=_windows(), seed=st.integers(0, 9))
def test_windows_of_all_geometries_give_what_the_reference_gives(op: str, found: dict[str, Any], seed: int) -> None:
    """Elements are small integers with exact sums; a mean is rounded once."""
    region = Region(seed=seed)
    generator = np.random.default_rng(seed)
    x = region.builder.param("x", tensor((2, 3, *found["image"])))
    arrays = [generator.integers(-4, 5, (2, 3, *found["image"])).astype(np.float32)]
    attrs = {name: found[name] for name in ("strides", "dilation", "padding")}
    operands: list[Any] = [x]
    if "pool" in op:
        attrs.update(pool_size=found["window"], ceil_mode=found["ceil_mode"])
        attrs.update({"count_include_pad": found["counts"]} if "avg" in op else {})
    else:
        shape = (4, 3, *found["window"]) if op == "nn.conv2d" else (3, 4, *found["window"])
        operands.append(region.builder.const(generator.integers(-4, 5, shape).astype(np.float32)))
    try:
        binding = region.builder.bind(op, operands, attrs)
    except IRTypeError:
        event("does not fit")
        return
    region.finish(*binding.results)
    module = _as_loaded(region, binding)
    event(f"{op}, {'numpy' if _is_reference(module) else 'oneDNN'}")
    others = [region.builder.constants[operand.digest] for operand in operands[1:]]
    expected = np.asarray(KERNELS[op](*arrays, *others, **binding.attrs), np.float32)
    got = np.full_like(expected, 7)
    module.get_function("op")(*arrays, got)
    np.testing.assert_array_max_ulp(got, expected, maxulp=1 if "avg" in op else 0)


def _as_loaded(region: Region, binding: Binding) -> DnnlModule:
    """Return the module of a single op as after loading: if necessary with oneDNN's reference implementations."""
    function = dnnl._graph_of(binding)
    return DnnlModule(GraphDocument(MappingProxyType({function.name: function})), region.builder.constants)


def _is_reference(module: DnnlModule) -> bool:
    return "numpy" in module.get_source()


@pytest.mark.parametrize(
    ("size", "window", "padding", "is_taken"),
    [(1, 3, 2, True), (1, 2, 1, False), (3, 2, 1, True), (2, 2, 1, True), (1, 3, 3, False)],
)
def test_dilated_windows_are_taken_where_each_holds_an_element(
    size: int, window: int, padding: int, is_taken: bool
) -> None:
    """Taps two steps apart: the taps of a window may lie on both sides of a small image."""
    region = Region()
    x = region.builder.param("x", tensor((1, 16, size, 9)))
    geometry = {"pool_size": (window, 1), "dilation": (2, 1), "padding": (padding, 0, padding, 0), "strides": (1, 1)}
    binding = region.builder.bind("nn.max_pool2d", [x], geometry)
    module, array = _as_loaded(region, binding), region.draw(1, 16, size, 9)
    assert _is_reference(module) is not is_taken
    expected = np.asarray(KERNELS["nn.max_pool2d"](array, **binding.attrs))
    got = np.full_like(expected, 7)
    module.get_function("op")(array, got)
    np.testing.assert_array_equal(got, expected)
