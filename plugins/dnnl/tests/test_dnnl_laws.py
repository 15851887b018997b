"""Laws between attributes and declared shapes: true cases keep them, and what breaks them never reaches oneDNN."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType
from typing import Any

import byoc_dnnl.backend as dnnl
import numpy as np
import pytest
from byoc_core.backend.info import Rejection
from byoc_core.errors import ArtifactError, ExecutionError, IRTypeError
from byoc_core.ir import Binding, tensor
from byoc_core.kernels import KERNELS
from byoc_core.ops.cases import OpCase
from byoc_core.runtime.graph_document import GraphDocument
from byoc_core.runtime.hooks import LoadContext
from byoc_dnnl.calls import calls_of
from byoc_dnnl.engine import DnnlModule
from byoc_dnnl.lowerings import LOWERINGS, require_form
from byoc_dnnl.lowerings.laws import LAWS
from byoc_dnnl.lowerings.window_laws import MAX_TAPS
from byoc_dnnl.runtime import byoc_load_module, byoc_save_module
from hypothesis import event, given
from hypothesis import strategies as st

from plugins.dnnl.tests.dnnl_region import Region, emit
from plugins.dnnl.tests.mutants import cases_with_laws, document_of

ROOT = Path(__file__).parents[3]
NUM_MUTANTS = 600
DEADLINE = 300
"""Seconds for a process of mutants, which takes about 20."""


def test_each_op_with_a_lowering_has_a_law() -> None:
    assert set(LAWS) == set(LOWERINGS)


@pytest.mark.parametrize(("case", "dtype"), cases_with_laws(), ids=lambda part: getattr(part, "op", part))
def test_the_cases_of_an_op_keep_its_law(case: OpCase, dtype: str) -> None:
    for call in calls_of(document_of(case, dtype)):
        require_form(call)


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


def _changed(region: Region, change: Callable[[Any], None]) -> bytes:
    document = json.loads(byoc_save_module(region.module))
    change(document["functions"][0]["nodes"][0])
    return json.dumps(document).encode()


def _widen(node: Any) -> None:
    node["attrs"]["pool_size"] = [2, 2**62]


@pytest.mark.parametrize("batch", [2, "n"])
def test_a_window_that_is_larger_than_its_image_is_refused(batch: int | str) -> None:
    region = Region()
    x = region.builder.param("x", tensor((batch, 4, 8, 8)))
    region.finish(emit(region, "nn.max_pool2d", x, pool_size=(2, 2)))
    text = (
        "`nn.max_pool2d`: an axis of the padded image is smaller than the window; got 8, expected 4611686018427387904"
    )
    payload = _changed(region, _widen)
    if batch == "n":
        call = byoc_load_module(payload, LoadContext()).get_function("f")
        with pytest.raises(ExecutionError, match=re.escape(text)):
            call(np.ones((2, 4, 8, 8), np.float32), np.ones((2, 4, 4, 4), np.float32))
    else:
        with pytest.raises(ArtifactError, match=re.escape(text)):
            byoc_load_module(payload, LoadContext())


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
    assert answer.text == f"`{op}`: with its padding an image has more than {2**31 - 1} elements"


@st.composite
def _windows(draw: Any) -> dict[str, Any]:
    """Draw the windows of a pooling or convolution, of which some do not fit."""
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
    """Elements are small integers, of which sums are exact; a mean is rounded once."""
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
    """Return the module of one op as it is loaded: planned with oneDNN's reference implementations if need be."""
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
    """Taps two steps apart: those of a window may lie on both sides of a small image."""
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
