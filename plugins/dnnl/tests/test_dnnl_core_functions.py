"""Functions computed by the core within a region: in any layout, with any number of threads, by numpy too."""

from __future__ import annotations

from typing import Any

import byoc_core
import numpy as np
import pytest
from byoc_core.errors import ArtifactError
from byoc_core.ir import tensor
from byoc_core.opset.families import KERNELS
from byoc_core.runtime.hooks import LoadContext
from byoc_core.runtime.threads import num_threads, set_num_threads
from byoc_dnnl.engine import open_engine
from byoc_dnnl.lowerings.core_functions import CORE_FUNCTIONS
from byoc_dnnl.precision import lacks_instructions
from byoc_dnnl.profile import profile
from byoc_dnnl.runtime import byoc_load_module, byoc_save_module
from hypothesis import given, settings
from hypothesis import strategies as st

from plugins.dnnl.tests.dnnl_region import TINY, UNIT, NDArray, Region, all_magnitudes, emit
from plugins.dnnl.tests.narrow_oracle import is_rounded_once, log_softmax_error, narrowed

ULPS = {"exp": 1.5, "log": 1.0, "nn.softplus": 2.5}


def _alone(op: str, *shape: int, **attrs: object) -> Region:
    region = Region()
    return region.finish(emit(region, op, region.builder.param("x", tensor(shape)), **attrs))


@pytest.mark.parametrize("op", CORE_FUNCTIONS)
def test_functions_are_exact_for_all_numbers(op: str) -> None:
    x = all_magnitudes()
    region = _alone(op, *x.shape)
    assert region.source == f"f\n{op}  byoc  %0:a, %1:a"
    (found,), (exact,) = region.run(x), region.oracle(x)
    with np.errstate(all="ignore"):
        rounded = exact.astype(np.float32)
        error = abs(found.astype(np.float64) - exact)
    allowed = 2 * ULPS[op] * UNIT * abs(exact) + TINY
    assert ((error <= allowed) | (found == rounded) | (np.isnan(found) & np.isnan(rounded))).all()


@pytest.mark.parametrize("missing", ["byoc_dnnl.native.extension", "byoc_dnnl.native.vector_function"])
@pytest.mark.parametrize(
    ("op", "attrs"), [*((op, {}) for op in CORE_FUNCTIONS), *(("nn.log_softmax", {"axis": axis}) for axis in (1, 3))]
)
def test_without_an_extension_numpy_computes(
    op: str, attrs: dict[str, Any], missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(missing, lambda *_: None)
    region = _alone(op, 2, 5, 3, 4, **attrs)
    assert f"{op}  byoc" in region.source
    x = abs(region.draw(2, 5, 3, 4))
    moved = np.ascontiguousarray(np.moveaxis(x, attrs.get("axis", 3), 3))  # sums go along rows that lie so
    expected = KERNELS[op](moved, **({"axis": 3} if attrs else {}))
    np.testing.assert_array_equal(region.run(x)[0], np.moveaxis(expected, 3, attrs.get("axis", 3)))


@settings(max_examples=60, deadline=None)
@given(
    shape=st.lists(st.integers(1, 12), min_size=1, max_size=5),
    axis=st.integers(-5, 4),
    order=st.permutations(range(5)),
    seed=st.integers(0, 99),
)
def test_log_softmax_along_any_axis_of_any_layout(shape: list[int], axis: int, order: list[int], seed: int) -> None:
    """The result equals the result for contiguous rows, bit for bit."""
    axis = axis % len(shape) - len(shape) * (axis < 0)
    axes = tuple(one for one in order if one < len(shape))
    region = Region(seed=seed)
    x = region.builder.param("x", tensor(tuple(shape)))
    region.finish(emit(region, "nn.log_softmax", emit(region, "permute_dims", x, axes=axes), axis=axis))
    assert "nn.log_softmax  byoc" in region.source
    array = region.draw(*shape)
    rows = np.ascontiguousarray(np.moveaxis(array.transpose(axes), axis, -1))
    (expected,) = _alone("nn.log_softmax", *rows.shape, axis=-1).run(rows)
    np.testing.assert_array_equal(region.run(array)[0], np.moveaxis(expected, -1, axis))


@pytest.mark.parametrize("op", CORE_FUNCTIONS)
@pytest.mark.parametrize("channels", [3, 16, 20])
def test_padding_of_blocks_stays_zero(op: str, channels: int) -> None:
    """A convolution in blocks of channels also reads the padding of a partial block: it has to be 0.

    The convolutions here return the channels read, some of them several times.
    """
    region = Region()
    x = region.builder.param("x", tensor((1, 3, 6, 6)))
    first, second = np.zeros((channels, 3, 3, 3), np.float32), np.zeros((channels, channels, 3, 3), np.float32)
    for channel in range(channels):
        first[channel, channel % 3, 1, 1] = second[channel, channel, 1, 1] = 1
    value = emit(region, "nn.conv2d", x, region.builder.const(first), padding=(1,) * 4)
    value = emit(region, op, value)
    region.finish(emit(region, "nn.conv2d", value, region.builder.const(second), padding=(1,) * 4))
    assert f"{op}  byoc" in region.source
    image = abs(region.draw(1, 3, 6, 6))
    (found,), (exact,) = region.run(image), region.oracle(image)
    assert (abs(found - exact) <= 2 * ULPS[op] * UNIT * abs(exact) + TINY).all()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize(
    ("op", "attrs"), [*((op, {}) for op in CORE_FUNCTIONS), *(("nn.log_softmax", {"axis": axis}) for axis in (1, 3))]
)
def test_narrow_floats_are_computed_in_float32_and_rounded_once(op: str, attrs: dict[str, Any], dtype: str) -> None:
    if lacks_instructions(open_engine().isa, dtype):
        pytest.skip(f"oneDNN has no instructions for {dtype} here")
    region = Region()
    x = region.builder.param("x", tensor((2, 16, 5, 4), dtype))
    region.finish(emit(region, op, x, **attrs))
    assert f"{op}  byoc" in region.source
    assert region.source.count("reorder") <= 3
    array = narrowed(abs(region.draw(2, 16, 5, 4)) * 8, dtype)
    (found,), (exact,) = region.run(array), region.oracle(array)
    error = log_softmax_error(array, exact, **attrs) if attrs else 2 * ULPS[op] * UNIT * abs(exact)
    assert is_rounded_once(found, exact, error, dtype).all()


def _run_with(number: int, region: Region, x: NDArray) -> NDArray:
    before = num_threads()
    set_num_threads(number)
    try:
        return region.run(x)[0]
    finally:
        set_num_threads(before)


@pytest.mark.parametrize(
    ("op", "shape", "attrs"),
    [
        ("exp", (501, 401), {}),
        ("nn.log_softmax", (501, 401), {"axis": 1}),
        ("nn.log_softmax", (2, 40_001), {"axis": 1}),
        ("nn.log_softmax", (200_003, 1), {"axis": 1}),
    ],
)
def test_threads_share_the_work_and_change_nothing(op: str, shape: tuple[int, ...], attrs: dict[str, Any]) -> None:
    region = _alone(op, *shape, **attrs)
    x = region.draw(*shape)
    np.testing.assert_array_equal(_run_with(3, region, x), _run_with(1, region, x))


@pytest.mark.parametrize("op", ["exp", "nn.log_softmax"])
def test_a_result_of_other_sizes_than_the_operand_is_refused(op: str) -> None:
    region = _alone(op, 8, **({"axis": 0} if op == "nn.log_softmax" else {}))
    payload = byoc_save_module(region.module)
    last = payload.rindex(b"[8]")
    with pytest.raises(ArtifactError, match="result 0 has another type"):
        byoc_load_module(payload[:last] + b"[4]" + payload[last + 3 :], LoadContext())


def test_a_profile_names_them() -> None:
    region = Region()
    x = region.builder.param("x", tensor((4, 8)))
    region.finish(emit(region, "log", emit(region, "exp", x)))
    executable = byoc_core.build(region.ir, backends=["dnnl"], fallback="error")
    (times,) = profile(executable, {"x": region.draw(4, 8)}, function="f", num_calls=2).regions
    assert [(step.title, step.implementation) for step in times.steps] == [("exp", "byoc"), ("log", "byoc")]
    assert all(step.shapes == ((4, 8), (4, 8)) for step in times.steps)
