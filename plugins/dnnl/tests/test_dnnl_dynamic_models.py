"""Models with symbolic sizes are taken: decoders with a cache, networks halving images and joining the halves."""

from __future__ import annotations

import byoc_core
import numpy as np
import pytest
from byoc_core.backend.hooks import Support
from byoc_core.dims import symbol
from byoc_core.ir import Value, tensor

from benchmarks.zoo.graph_builder import STYLES
from benchmarks.zoo.networks import NETWORKS
from plugins.dnnl.tests.dnnl_region import Region, check_sums, emit


@pytest.mark.parametrize("style", sorted(STYLES))
@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_decoders_with_a_cache_are_taken(name: str, style: str) -> None:
    model = byoc_core.from_onnx(NETWORKS[name].build("tiny", style).SerializeToString())
    report = byoc_core.build(model, backends=["dnnl"]).report_data
    assert report["offloaded_share"] > 0.98, report["summary"]


def _heads(region: Region, value: Value) -> Value:
    split = emit(region, "reshape", value, shape=(symbol("b"), symbol("s"), 4, 8))
    return emit(region, "permute_dims", split, axes=(0, 2, 1, 3))


@pytest.mark.parametrize(("batch", "past", "sequence"), [(1, 3, 1), (2, 7, 5), (3, 0, 2)])
def test_keys_of_a_cache_are_multiplied_where_they_are_joined(batch: int, past: int, sequence: int) -> None:
    """Joined keys are row-major: with heads innermost oneDNN has only the reference implementation of a product."""
    region = Region()
    x = region.builder.param("x", tensor(("b", "s", 32)))
    cache = region.builder.param("cache", tensor(("b", 4, "p", 8)))
    query, key = (emit(region, "nn.dense", x, region.builder.const(region.draw(32, 32))) for _ in range(2))
    keys = emit(region, "concat", cache, _heads(region, key), axis=2)
    columns = emit(region, "permute_dims", keys, axes=(0, 1, 3, 2))
    region.finish(emit(region, "matmul", _heads(region, query), columns), keys)
    inputs = [region.draw(batch, sequence, 32), region.draw(batch, 4, past, 8)]
    if past:
        check_sums(region, inputs, 2 * 32 + 8)
    (found, joined), (exact, _) = region.run(*inputs), region.oracle(*inputs)
    assert found.shape == (batch, 4, sequence, past + sequence)
    np.testing.assert_array_equal(joined[:, :, :past], inputs[1])
    assert np.isfinite(exact).all()


@pytest.mark.parametrize("height", [2, 6, 32])
def test_halves_of_images_are_joined_where_sizes_are_multiples(height: int) -> None:
    """The rule holds for even heights only: region and ops are judged at fitting sizes."""
    region = Region()
    h = symbol("h")
    x = region.builder.param("x", tensor((1, 16, h, 8)))
    half = emit(region, "nn.max_pool2d", x, pool_size=(2, 1), strides=(2, 1))
    whole = emit(region, "nn.resize", half, axes=(2,), sizes=(2 * (h // 2),), scales=(2.0,))
    region.finish(emit(region, "concat", whole, x, axis=1))
    for binding in region.function.bindings:
        assert isinstance(region.judge(binding), Support), region.judge(binding)
    image = region.draw(1, 16, height, 8)
    (found,) = region.run(image)
    halves = image.reshape(1, 16, height // 2, 2, 8).max(axis=3)
    np.testing.assert_array_equal(found, np.concatenate([np.repeat(halves, 2, axis=2), image], axis=1))
