"""bfloat16 and float16: tensors of these dtypes, and float32 computed with the option ``precision``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import byoc_core
import byoc_dnnl.backend as dnnl
import numpy as np
import pytest
from byoc_core.backend.hooks import CompileContext, Support
from byoc_core.dtypes import float_limits, to_numpy
from byoc_core.errors import ArtifactError
from byoc_core.ir import tensor
from byoc_core.runtime.hooks import LoadContext
from byoc_dnnl.capi import Isa
from byoc_dnnl.engine import open_engine
from byoc_dnnl.library import Library, find_library
from byoc_dnnl.options import DnnlOptions
from byoc_dnnl.precision import lacks_instructions
from byoc_dnnl.runtime import byoc_load_module, byoc_save_module

from plugins.dnnl.tests.dnnl_region import Region, emit
from plugins.dnnl.tests.narrow_oracle import gamma, is_rounded_once, layer_norm_error, narrowed, softmax_error

BFLOAT16 = float_limits("bfloat16").unit_roundoff
BY_BFLOAT16 = DnnlOptions.model_validate({"precision": "bfloat16"})


def _needs(dtype: str) -> None:
    if lacks_instructions(open_engine().isa, dtype):
        pytest.skip(f"oneDNN has no instructions for {dtype} here")


OPS: list[tuple[str, list[tuple[int, ...]], dict[str, Any], int]] = [
    # op, shapes, attributes, and how many roundings of float32 are summed before the result is rounded
    ("nn.conv2d", [(2, 16, 9, 7), (24, 16, 3, 3)], {"padding": (1, 1, 1, 1)}, 2 * 144 + 4),
    ("nn.conv2d", [(1, 32, 9, 7), (32, 1, 3, 3)], {"groups": 32}, 2 * 9 + 4),
    ("nn.conv1d", [(2, 16, 30), (16, 16, 5)], {}, 2 * 80 + 4),
    ("nn.dense", [(5, 70), (33, 70)], {}, 2 * 70 + 4),
    ("matmul", [(3, 8, 40), (3, 40, 6)], {}, 2 * 40 + 4),
    ("add", [(4, 16, 5), (16, 1)], {}, 1),
    ("subtract", [(40,), (40,)], {}, 1),
    ("multiply", [(4, 16, 5), (16, 1)], {}, 1),
    ("divide", [(40,), (40,)], {}, 4),
    ("nn.bias_add", [(2, 16, 5), (16,)], {"axis": 1}, 1),
    ("abs", [(40,)], {}, 0),
    ("nn.relu", [(40,)], {}, 0),
    ("nn.leaky_relu", [(40,)], {"alpha": 0.25}, 0),
    ("sqrt", [(40,)], {}, 3),
    ("nn.avg_pool2d", [(1, 16, 9, 9)], {"pool_size": (3, 3), "padding": (1, 1, 1, 1)}, 12),
    ("concat", [(2, 3, 4), (2, 5, 4)], {"axis": 1}, 0),
]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize(("op", "shapes", "attrs", "length"), OPS)
def test_ops_sum_in_float32_and_round_once(
    op: str, shapes: Sequence[tuple[int, ...]], attrs: Mapping[str, Any], length: int, dtype: str
) -> None:
    _needs(dtype)
    region = Region()
    operands = [region.builder.param(f"x{i}", tensor(shape, dtype)) for i, shape in enumerate(shapes)]
    region.finish(emit(region, op, *operands, **attrs))
    (binding,) = region.function.bindings
    assert isinstance(region.judge(binding), Support)
    inputs = [narrowed(region.draw(*shape), dtype) for shape in shapes]
    inputs = [np.abs(array) for array in inputs] if op == "sqrt" else inputs
    (found,), (exact,), (magnitude,) = (
        region.run(*inputs),
        region.oracle(*inputs),
        region.oracle(*inputs, magnitudes=True),
    )
    assert found.dtype == to_numpy(dtype)
    assert is_rounded_once(found, exact, gamma(length) * magnitude, dtype).all()
    assert "ref" not in region.source


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_normalisations(dtype: str) -> None:
    _needs(dtype)
    region = Region()
    x = region.builder.param("x", tensor((6, 40), dtype))
    scale, shift = (narrowed(region.draw(40), dtype) for _ in range(2))
    constants = map(region.builder.const, (scale, shift))
    region.finish(emit(region, "nn.softmax", x), emit(region, "nn.layer_norm", x, *constants, epsilon=1e-5))
    array = narrowed(region.draw(6, 40), dtype)
    (shares, normalised), (exact_shares, exact_normalised) = region.run(array), region.oracle(array)
    assert is_rounded_once(shares, exact_shares, softmax_error(array, exact_shares, dtype), dtype).all()
    error = layer_norm_error(array, scale, shift, 1e-5)
    assert is_rounded_once(normalised, exact_normalised, error, dtype).all()


def test_a_chain_of_bfloat16_is_rounded_once() -> None:
    _needs("bfloat16")
    region = Region()
    kind = to_numpy("bfloat16")
    x = region.builder.param("x", tensor((8, 64), "bfloat16"))
    product = emit(region, "nn.dense", x, region.builder.const(region.draw(32, 64).astype(kind)))
    biased = emit(region, "nn.bias_add", product, region.builder.const(region.draw(32).astype(kind)), axis=1)
    region.finish(emit(region, "nn.relu", biased))
    assert "nn.dense + nn.bias_add + nn.relu" in region.source
    inputs = [region.draw(8, 64).astype(kind)]
    (found,), (exact,) = region.run(*inputs), region.oracle(*inputs)
    (magnitude,) = region.oracle(*inputs, magnitudes=True)
    summed = 2 * 66 * 2.0**-24 * magnitude
    assert (np.abs(found.astype(np.float64) - exact) <= summed + BFLOAT16 * (exact + summed) + 2.0**-126).all()


def _network() -> tuple[Region, Any]:
    """Return convolutions with a shortcut, pooling, a product and softmax."""
    region = Region()
    x = region.builder.param("x", tensor((1, 16, 12, 12)))
    first = emit(region, "nn.conv2d", x, region.builder.const(region.draw(16, 16, 3, 3) / 12), padding=(1,) * 4)
    first = emit(region, "nn.relu", first)
    second = emit(region, "nn.conv2d", first, region.builder.const(region.draw(16, 16, 3, 3) / 12), padding=(1,) * 4)
    joined = emit(region, "concat", emit(region, "add", second, first), first, axis=1)
    pooled = emit(region, "nn.avg_pool2d", joined, pool_size=(12, 12))
    flat = emit(region, "reshape", pooled, shape=(1, 32))
    product = emit(region, "nn.dense", flat, region.builder.const(region.draw(10, 32)))
    return region.finish(product, emit(region, "nn.softmax", product)), region.draw(1, 16, 12, 12)


def test_a_network_of_float32_is_computed_with_bfloat16() -> None:
    _needs("bfloat16")
    region, x = _network()
    options = {"dnnl": {"precision": "bfloat16"}}
    executable = byoc_core.build(region.ir, backends=["dnnl"], fallback="error", options=options)
    (module,) = executable.modules
    lines = [line for line in module.get_source().splitlines() if not line.startswith("pack")]
    assert [line.startswith("reorder") for line in lines].count(True) == 1
    computed = [line for line in lines if line.startswith(("nn.conv2d", "nn.avg_pool2d", "nn.dense"))]
    assert len(computed) == 4
    assert all(":bfloat16" in line for line in computed)
    found = byoc_core.VirtualMachine(executable)["f"](x)
    exact, magnitude = region.oracle(x), region.oracle(x, magnitudes=True)
    # At most 8 values between the input and the product are rounded to bfloat16, weights among them.
    bound = gamma(8, BFLOAT16) * magnitude[0]
    assert (np.abs(found[0] - exact[0]) <= bound).all()
    largest = float(bound.max())
    assert (np.abs(found[1] - exact[1]) <= 2 * largest * np.exp(2 * largest) * exact[1]).all()
    # It is really another precision than float32's.
    plain = byoc_core.VirtualMachine(byoc_core.build(region.ir, backends=["dnnl"], fallback="error"))["f"](x)
    assert np.abs(plain[0] - exact[0]).max() * 50 < np.abs(found[0] - exact[0]).max()


def test_artifacts_keep_the_precision() -> None:
    _needs("bfloat16")
    region, x = _network()
    result = dnnl.byoc_codegen([region.function], CompileContext("dnnl", BY_BFLOAT16, region.builder.constants))
    assert result.module is not None
    payload = byoc_save_module(result.module)
    loaded = byoc_load_module(payload, LoadContext(constants=region.builder.constants))
    assert loaded.get_source() == result.module.get_source()
    outputs = [[np.empty((1, 10), np.float32) for _ in range(2)] for _ in range(2)]
    for module, arrays in zip((result.module, loaded), outputs, strict=True):
        module.get_function("f")(x, *arrays)
    np.testing.assert_array_equal(outputs[0], outputs[1])
    with pytest.raises(ArtifactError) as caught:
        byoc_load_module(payload.replace(b"=bfloat16", b"=float8", 1), LoadContext())
    text = "payload of byoc-dnnl: names an unknown precision; got float8, expected bfloat16"
    assert str(caught.value) == text


def test_the_option_states_its_rounding() -> None:
    assert DnnlOptions.model_validate({}).unit_roundoff == {}
    assert BY_BFLOAT16.unit_roundoff == {"float32": 2.0**-8}


def test_without_instructions_the_option_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert lacks_instructions(Isa.AVX512_CORE_VNNI, "bfloat16")
    assert lacks_instructions(Isa.AVX2_VNNI_2, "bfloat16")
    assert lacks_instructions(Isa.AVX512_CORE_BF16, "float16")
    assert not lacks_instructions(Isa.AVX512_CORE_AMX, "bfloat16")
    assert not lacks_instructions(Isa.AVX, "float32")
    found = find_library()
    assert isinstance(found, Library)
    old = Library(found.path, "", found.api, found.version, found.runtime, Isa.AVX2, found.handle)
    monkeypatch.setattr(dnnl, "find_library", lambda: old)
    status = dnnl.byoc_compile_status(CompileContext("dnnl", BY_BFLOAT16))
    assert not status.ok
    expected = "precision='bfloat16' is slow without bfloat16 instructions, and oneDNN uses avx2 here"
    assert status.reason == expected
    assert dnnl.byoc_compile_status(CompileContext("dnnl", DnnlOptions.model_validate({}))).ok


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_a_nan_stays_where_it_is_under_bfloat16(value: float, channels: int) -> None:
    _needs("bfloat16")
    region = Region()
    x = region.builder.param("x", tensor((2, channels, 16)))
    region.finish(emit(region, "nn.conv1d", x, region.builder.const(region.draw(1, channels, 3))))
    array = region.draw(2, channels, 16)
    array[0, -1, 5] = value
    options = {"dnnl": {"precision": "bfloat16"}}
    executable = byoc_core.build(region.ir, backends=["dnnl"], fallback="error", options=options)
    found, (exact,) = byoc_core.VirtualMachine(executable)["f"](array), region.oracle(array)
    np.testing.assert_array_equal(np.isnan(np.asarray(found)), np.isnan(exact))
    np.testing.assert_array_equal(np.isinf(np.asarray(found)), np.isinf(exact))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_nan_stays_in_its_group_where_a_channel_gives_several(value: float) -> None:
    _needs("bfloat16")
    region = Region()
    x = region.builder.param("x", tensor((2, 4, 5, 28)))
    weight = region.builder.const(region.draw(24, 1, 3, 3))
    region.finish(emit(region, "nn.conv2d", x, weight, groups=4, padding=(1, 1, 1, 1)))
    array = region.draw(2, 4, 5, 28)
    array[0, 1, 2, 5] = value
    options = {"dnnl": {"precision": "bfloat16"}}
    executable = byoc_core.build(region.ir, backends=["dnnl"], fallback="error", options=options)
    found, (exact,) = byoc_core.VirtualMachine(executable)["f"](array), region.oracle(array)
    np.testing.assert_array_equal(np.isfinite(np.asarray(found)), np.isfinite(exact))


@pytest.mark.parametrize(("channels", "taken"), [(3, False), (4, False), (17, False), (16, True)])
def test_convolutions_of_bfloat16_keep_a_nan_where_it_is(channels: int, taken: bool) -> None:
    _needs("bfloat16")
    region = Region()
    x = region.builder.param("x", tensor((1, channels, 9, 9), "bfloat16"))
    weight = region.builder.const(region.draw(16, channels, 3, 3).astype(to_numpy("bfloat16")))
    region.finish(emit(region, "nn.conv2d", x, weight, padding=(1, 1, 1, 1)))
    answer = region.judge(region.function.bindings[0])
    assert isinstance(answer, Support) == taken
    array = region.draw(1, channels, 9, 9).astype(to_numpy("bfloat16"))
    array[0, -1, 4, 4] = np.nan
    found = byoc_core.VirtualMachine(byoc_core.build(region.ir, backends=["dnnl"]))["f"](array)
    expected = byoc_core.VirtualMachine(byoc_core.build(region.ir, []))["f"](array)
    places, expected_places = (np.isnan(np.asarray(y).astype(np.float32)) for y in (found, expected))
    np.testing.assert_array_equal(places, expected_places)
