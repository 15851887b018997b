"""Regions: post-ops, kept layouts, artifacts, threads, and guards of actual offloading."""

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
from byoc_core.ir import tensor
from byoc_core.runtime.hooks import LoadContext
from byoc_core.runtime.threads import num_threads
from byoc_dnnl.engine import MAX_PROGRAMS
from byoc_dnnl.engine import Region as BuiltRegion
from byoc_dnnl.program import Program
from byoc_dnnl.runtime import byoc_load_module, byoc_save_module

from plugins.dnnl.tests.dnnl_region import Region, check_sums, emit


def _residual_block() -> tuple[Region, Any]:
    """Return two convolutions with bias and ReLU, the second with a shortcut around both."""
    region = Region()
    x = region.builder.param("x", tensor((1, 16, 10, 10)))
    value = x
    for last in (False, True):
        value = emit(region, "nn.conv2d", value, region.builder.const(region.draw(16, 16, 3, 3)), padding=(1,) * 4)
        value = emit(region, "nn.bias_add", value, region.builder.const(region.draw(16)), axis=1)
        value = emit(region, "add", value, x) if last else value
        value = emit(region, "nn.relu", value)
    return region.finish(value), region.draw(1, 16, 10, 10)


def test_a_residual_block_is_two_convolutions() -> None:
    region, x = _residual_block()
    check_sums(region, [x], 2 * (2 * 16 * 9 + 8))
    titles = [line.split("  ")[0] for line in region.source.splitlines()]
    assert titles[-5:] == [
        "reorder",
        "check for finite numbers",
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
    product = emit(region, "nn.dense", x, region.builder.const(region.draw(8, 8)))
    region.finish(emit(region, "nn.relu", product), product, emit(region, "add", product, product))
    check_sums(region, [region.draw(6, 8)], 2 * 8 + 6)


@pytest.mark.parametrize("is_constant", [True, False])
def test_weights_that_are_read_in_two_ways_are_packed_twice(is_constant: bool) -> None:
    region = Region()
    x, inputs = region.builder.param("x", tensor((32, 64))), [region.draw(32, 64), region.draw(64, 64)]
    weight = region.builder.const(inputs.pop()) if is_constant else region.builder.param("w", tensor((64, 64)))
    region.finish(emit(region, "nn.dense", x, weight), emit(region, "matmul", x, weight))
    check_sums(region, inputs, 2 * 64)


def test_functions_after_operations_keep_their_operands_apart() -> None:
    region = Region()
    x, y = (region.builder.param(name, tensor((3, 16))) for name in "xy")
    value = emit(region, "nn.relu", x)
    value = emit(region, "add", value, y)
    value = emit(region, "multiply", value, region.builder.const(region.draw(16)))
    region.finish(emit(region, "nn.relu", value))
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
    payload = byoc_save_module(region.module).replace(b'"nn.relu"', b'"erf"')
    with pytest.raises(ArtifactError) as caught:
        byoc_load_module(payload, LoadContext(constants=region.builder.constants))
    assert "oneDNN has no such function" in str(caught.value)


def test_an_attribute_of_the_wrong_kind_is_refused() -> None:
    region = Region()
    x = region.builder.param("x", tensor((4, 4)))
    region.finish(emit(region, "nn.softmax", x, axis=1))
    payload = byoc_save_module(region.module).replace(b'"axis":1', b'"axis":7')
    assert payload != byoc_save_module(region.module)
    with pytest.raises(ArtifactError) as caught:
        byoc_load_module(payload, LoadContext())
    assert "attribute `axis` names no axis of a tensor of rank 2; got 7, expected -2 to 1" in str(caught.value)


def _damaged(region: Region, change: Callable[[Any], None]) -> bytes:
    document = json.loads(byoc_save_module(region.module))
    change(document["functions"])
    return json.dumps(document).encode()


@pytest.mark.parametrize("size", [1, 3, 5])
def test_sizes_that_do_not_fit_are_refused_and_nothing_is_read_beyond_them(size: int) -> None:
    region = Region()
    x = region.builder.param("x", tensor((2, 4, 6)))
    given = [region.builder.param(name, tensor((6,))) for name in ("gamma", "beta")]
    region.finish(emit(region, "nn.layer_norm", x, *given))

    def shrink(functions: list[dict[str, Any]]) -> None:
        (function,) = functions
        assert function["inputs"][1]["shape"] == [6]
        function["inputs"][1]["shape"] = [size]

    with pytest.raises(ArtifactError) as caught:
        byoc_load_module(_damaged(region, shrink), LoadContext())
    assert f"operand `gamma`: axis 0 has size {size}; got ({size},), expected 6 as axis 2" in str(caught.value)


def test_an_operand_of_another_rank_is_refused() -> None:
    region = Region()
    x = region.builder.param("x", tensor((1, 16, 8, 8)))
    region.finish(emit(region, "nn.avg_pool2d", x, pool_size=(2, 2)))

    def flatten(functions: list[dict[str, Any]]) -> None:
        functions[0]["inputs"][0]["shape"] = [1, 16, 8]

    with pytest.raises(ArtifactError) as caught:
        byoc_load_module(_damaged(region, flatten), LoadContext())
    assert "operand `x`: has rank 3; got (1, 16, 8), expected rank 4: (N, C, H, W)" in str(caught.value)


def test_weights_of_another_rank_are_refused() -> None:
    region = Region()
    x = region.builder.param("x", tensor((1, 16, 8, 8)))
    region.finish(emit(region, "nn.conv2d", x, region.builder.param("w", tensor((8, 16, 1, 1)))))

    def flatten(functions: list[dict[str, Any]]) -> None:
        functions[0]["inputs"][1]["shape"] = [8, 16]

    with pytest.raises(ArtifactError) as caught:
        byoc_load_module(_damaged(region, flatten), LoadContext())
    assert "operand `weight`: has rank 2; got (8, 16), expected rank 4: (O, I, H, W)" in str(caught.value)


@pytest.mark.parametrize("shape", [[400, 7], [300, 5], [500, 5]])
def test_parts_that_do_not_make_up_the_whole_are_refused(shape: list[int]) -> None:
    region = Region()
    x, y = (region.builder.param(name, tensor((400, 5))) for name in "xy")
    region.finish(emit(region, "concat", x, y, axis=1))

    def change(functions: list[dict[str, Any]]) -> None:
        functions[0]["inputs"][1]["shape"] = shape

    with pytest.raises(ArtifactError):
        byoc_load_module(_damaged(region, change), LoadContext())


@pytest.mark.parametrize(("number", "op"), [(0, "tanh"), (1, "nn.bias_add")])
def test_a_result_that_an_op_does_not_have_is_refused(number: int, op: str) -> None:
    region = Region()
    x = emit(region, "tanh", region.builder.param("x", tensor((4, 4))))
    region.finish(emit(region, "nn.bias_add", x, region.builder.param("b", tensor((4,)))))

    def add(functions: list[dict[str, Any]]) -> None:
        functions[0]["nodes"][number]["outputs"] *= 2

    with pytest.raises(ArtifactError) as caught:
        byoc_load_module(_damaged(region, add), LoadContext())
    text = f"node {number} (`{op}`): breaks the type rule of the op: has another number of results; got 2"
    assert text in str(caught.value)


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
    assert {1, 2} <= {number for number, _ in built.programs}
    shapes = (x.shape, x.shape)
    first, second = (built.program(number, shapes) for number in (1, 2))
    assert isinstance(first, Program)
    assert isinstance(second, Program)
    shared = {id(array) for array in first.arrays.values()} & {id(array) for array in second.arrays.values()}
    assert len(shared) >= 2
    for number in range(3, MAX_PROGRAMS + 4):
        built.program(number, shapes)
    assert len(built.programs) == MAX_PROGRAMS


def test_a_machine_makes_the_programs_of_its_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    region, x = _residual_block()
    made: list[int] = []
    make = BuiltRegion._make

    def noting(built: BuiltRegion, number: int, sizes: tuple[tuple[int, ...], ...]) -> object:
        made.append(number)
        return make(built, number, sizes)

    monkeypatch.setattr(BuiltRegion, "_make", noting)
    executable = byoc_core.build(region.ir, backends=["dnnl"], fallback="error")
    assert not made
    machines = {number: byoc_core.VirtualMachine(executable, num_threads=number) for number in (1, 2)}
    assert made == [1, 2]
    for machine in machines.values():
        machine["f"](x)
    assert made == [1, 2]


def test_frames_are_used_again() -> None:
    region, x = _residual_block()
    for _ in range(50):
        region.run(x)
    gc.collect()
    built = region.module.get_function("f").impl
    assert isinstance(built, BuiltRegion)
    program = built.program(num_threads(), (x.shape, x.shape))
    assert isinstance(program, Program)
    assert program.num_frames == 1


@pytest.mark.parametrize("shape", [(2, 3, 1, 1), (3, 16, 1), (2, 1, 1), (1, 5, 1, 1)])
def test_channels_of_images_of_one_pixel_keep_their_own_operands(shape: tuple[int, ...]) -> None:
    """oneDNN 3.2 takes the first channel's for all, if an operation on two tensors has this post-op."""
    region = Region()
    x, y = (region.builder.param(name, tensor(shape)) for name in "xy")
    per_channel = region.builder.param("z", tensor((1, *shape[1:])))
    result = region.builder.emit("add", region.builder.emit("multiply", x, y), per_channel)  # type: ignore[arg-type]
    region.finish(result)  # type: ignore[arg-type]
    check_sums(region, [region.draw(*shape), region.draw(*shape), region.draw(1, *shape[1:])], 2)
