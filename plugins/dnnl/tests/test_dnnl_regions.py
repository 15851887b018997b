"""Regions: post-ops, layouts that stay, artifacts, threads, and guards that something was offloaded."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import byoc_core
import numpy as np
import pytest
from byoc_core.errors import ArtifactError
from byoc_core.ir import Var, tensor
from byoc_core.runtime.hooks import LoadContext
from byoc_core.runtime.threads import num_threads
from byoc_dnnl.engine import Region as BuiltRegion
from byoc_dnnl.runtime import byoc_load_module, byoc_save_module

from plugins.dnnl.tests.dnnl_region import Region, check_sums


def _emit(region: Region, op: str, *operands: Any, **attrs: Any) -> Var:
    result = region.builder.emit(op, *operands, **attrs)
    assert isinstance(result, Var)
    return result


def _residual_block() -> tuple[Region, Any]:
    """Gives two convolutions with bias and ReLU, the second with a shortcut around both."""
    region = Region()
    x = region.builder.param("x", tensor((1, 16, 10, 10)))
    value = x
    for last in (False, True):
        value = _emit(region, "nn.conv2d", value, region.builder.const(region.draw(16, 16, 3, 3)), padding=(1,) * 4)
        value = _emit(region, "nn.bias_add", value, region.builder.const(region.draw(16)), axis=1)
        value = _emit(region, "add", value, x) if last else value
        value = _emit(region, "nn.relu", value)
    return region.finish(value), region.draw(1, 16, 10, 10)


def test_a_residual_block_is_two_convolutions() -> None:
    region, x = _residual_block()
    check_sums(region, [x], 2 * (2 * 16 * 9 + 8))
    titles = [line.split("  ")[0] for line in region.source.splitlines()]
    assert titles[-4:] == [
        "reorder",
        "nn.conv2d + nn.bias_add + nn.relu",
        "nn.conv2d + nn.bias_add + add + nn.relu",
        "reorder",
    ]


def test_a_convolution_with_relu_hands_nan_on() -> None:
    region, x = _residual_block()
    x[0, 3, 5, 5] = np.nan
    (found,), (exact,) = region.run(x), region.oracle(x)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(exact))


def test_a_value_that_others_read_is_not_fused_away() -> None:
    region = Region()
    x = region.builder.param("x", tensor((6, 8)))
    product = _emit(region, "nn.dense", x, region.builder.const(region.draw(8, 8)))
    region.finish(_emit(region, "nn.relu", product), product, _emit(region, "add", product, product))
    check_sums(region, [region.draw(6, 8)], 2 * 8 + 6)


def test_functions_after_operations_keep_their_operands_apart() -> None:
    region = Region()
    x, y = (region.builder.param(name, tensor((3, 16))) for name in "xy")
    value = _emit(region, "nn.relu", x)
    value = _emit(region, "add", value, y)
    value = _emit(region, "multiply", value, region.builder.const(region.draw(16)))
    region.finish(_emit(region, "nn.relu", value))
    inputs = [region.draw(3, 16), region.draw(3, 16)]
    check_sums(region, inputs, 6)


def test_a_model_is_offloaded_saved_and_loaded(tmp_path: Path) -> None:
    region, x = _residual_block()
    executable = byoc_core.build(region.ir, backends=["dnnl"], fallback="error")
    (found,) = [byoc_core.VirtualMachine(executable)["f"](x)]
    path = tmp_path / "model.byoc"
    executable.save(path)
    loaded = byoc_core.load(path)
    assert [module.type_key for module in loaded.modules] == ["dnnl"]
    np.testing.assert_array_equal(byoc_core.VirtualMachine(loaded)["f"](x), found)
    np.testing.assert_array_equal(found, region.run(x)[0])


def test_a_payload_that_cannot_be_planned_is_refused() -> None:
    region, _ = _residual_block()
    payload = byoc_save_module(region.module).replace(b'"nn.relu"', b'"nn.gelu"')
    with pytest.raises(ArtifactError) as caught:
        byoc_load_module(payload, LoadContext(constants=region.builder.constants))
    assert "oneDNN 3.2 gives NaN for an infinity" in str(caught.value)


def test_an_attribute_of_the_wrong_kind_is_refused() -> None:
    region = Region()
    x = region.builder.param("x", tensor((4, 4)))
    region.finish(_emit(region, "nn.softmax", x, axis=1))
    payload = byoc_save_module(region.module).replace(b'"axis":1', b'"axis":7')
    assert payload != byoc_save_module(region.module)
    with pytest.raises(ArtifactError) as caught:
        byoc_load_module(payload, LoadContext())
    assert str(caught.value) == "attribute `axis` of `nn.softmax`: has a wrong value; got 7, expected -2 to 1"


def _damaged(region: Region, change: Callable[[Any], None]) -> bytes:
    document = json.loads(byoc_save_module(region.module))
    change(document["functions"])
    return json.dumps(document).encode()


@pytest.mark.parametrize("size", [1, 3, 5])
def test_sizes_that_do_not_fit_are_refused_and_nothing_is_read_beyond_them(size: int) -> None:
    region = Region()
    x = region.builder.param("x", tensor((2, 4, 6)))
    given = [region.builder.param(name, tensor((6,))) for name in ("gamma", "beta")]
    region.finish(_emit(region, "nn.layer_norm", x, *given))

    def shrink(functions: Any) -> None:
        (function,) = functions
        assert function["inputs"][1]["shape"] == [6]
        function["inputs"][1]["shape"] = [size]

    with pytest.raises(ArtifactError) as caught:
        byoc_load_module(_damaged(region, shrink), LoadContext())
    expected = f"`nn.layer_norm`, operand %1: is too small; got {4 * size}, expected 24 bytes"
    assert str(caught.value) == expected


def test_an_operand_of_another_rank_is_refused() -> None:
    region = Region()
    x = region.builder.param("x", tensor((1, 16, 8, 8)))
    region.finish(_emit(region, "nn.avg_pool2d", x, pool_size=(2, 2)))

    def flatten(functions: Any) -> None:
        functions[0]["inputs"][0]["shape"] = [1, 16, 8]

    with pytest.raises(ArtifactError) as caught:
        byoc_load_module(_damaged(region, flatten), LoadContext())
    text = "`nn.avg_pool2d`: has tensors of different ranks; got float32[1, 16, 8], float32[1, 16, 4, 4]"
    assert str(caught.value) == text


def test_many_threads_run_one_region() -> None:
    region, x = _residual_block()
    (expected,) = region.run(x)
    function = region.module.get_function("f")

    def run(_: int) -> bool:
        out = np.empty_like(expected)
        return all(function(x, out) is None and np.array_equal(out, expected) for _ in range(20))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(run, range(8)))


def test_each_number_of_threads_has_its_primitives_and_the_weights_are_packed_once() -> None:
    region, x = _residual_block()
    executable = byoc_core.build(region.ir, backends=["dnnl"], fallback="error")
    results = [byoc_core.VirtualMachine(executable, num_threads=number)["f"](x) for number in (1, 2)]
    np.testing.assert_allclose(results[0], results[1], rtol=1e-5, atol=1e-4)
    built = executable.modules[0].get_function(executable.modules[0].function_names[0]).impl
    assert isinstance(built, BuiltRegion)
    assert {1, 2} <= built._programs.keys()
    first, second = (built.program(number) for number in (1, 2))
    shared = {id(array) for array in first.arrays.values()} & {id(array) for array in second.arrays.values()}
    assert len(shared) >= 2
    for number in range(3, 9):
        built.program(number)
    assert len(built._programs) == 4


def test_frames_are_used_again() -> None:
    region, x = _residual_block()
    for _ in range(50):
        region.run(x)
    gc.collect()
    built = region.module.get_function("f").impl
    assert isinstance(built, BuiltRegion)
    assert len(built.program(num_threads())._frames) == 1
