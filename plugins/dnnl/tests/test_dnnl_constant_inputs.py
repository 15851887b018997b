"""Swappable weights are packed once, like constants; packed constants equal to stored arrays are not kept twice."""

from __future__ import annotations

import gc
from pathlib import Path

import byoc_core
import numpy as np
import pytest
from byoc_core.artifact import Executable
from byoc_core.ir import IRModule, Value, declare_weights, merge_modules, tensor
from byoc_core.ops import FunctionBuilder
from byoc_core.partitioning import PartitionOptions
from byoc_core.transform import BindParams
from byoc_core.vm import VirtualMachine
from byoc_dnnl.engine import DnnlModule
from byoc_dnnl.plan import Kind
from byoc_dnnl.program import Program
from byoc_dnnl.stored_arrays import StoredArrays
from byoc_dnnl.weights import shared_constants
from hypothesis import given, settings
from hypothesis import strategies as st

from core.tests.weighted_modules import WeightedModule, emit, run, weighted_modules
from plugins.dnnl.tests.dnnl_region import need_avx512

DEPTH, COLUMNS = 256, 512


def product(rows: int | str = 64) -> IRModule:
    fb = FunctionBuilder("main")
    x, w = fb.param("x", tensor((rows, DEPTH))), fb.param("w", tensor((DEPTH, COLUMNS)))
    return IRModule({"main": fb.finish(emit(fb, "nn.relu", emit(fb, "matmul", x, w)))}, fb.constants)


def draw(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def build(module: IRModule) -> Executable:
    executable = byoc_core.build(module, ["dnnl"])
    executable.require_offload(1.0)
    return executable


def packed_arrays(executable: Executable) -> list[np.ndarray]:
    """Return the packed constants of the programs of all regions."""
    (module,) = (item for item in executable.modules if isinstance(item, DnnlModule))
    return [
        array
        for _, region in module.regions()
        for program in region.programs.values()
        if isinstance(program, Program)
        for buffer, array in program.arrays.items()
        if buffer.kind is Kind.PACKED
    ]


@settings(max_examples=max(5, settings().max_examples // 10))
@given(drawn=weighted_modules())
def test_swappable_weights_change_no_number(drawn: WeightedModule) -> None:
    if any(binding.op.name == "nn.batch_norm" for binding in drawn.module["main"].bindings):
        return  # a constant normalisation is folded into weights, exact only in real numbers
    values = drawn.values(5)
    swappable, plain = (byoc_core.build(m, ["dnnl"]) for m in (drawn.swappable(values), drawn.plain(values)))
    for have, want in zip(run(swappable), run(plain), strict=True):
        np.testing.assert_allclose(have, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rows", [1, 64, "n"])
def test_a_swappable_weight_is_packed_once_for_all_machines(rows: int | str) -> None:
    need_avx512()  # oneDNN packs the weights of products
    weight = draw(0, DEPTH, COLUMNS)
    constant, swappable = (
        build(module)
        for module in (BindParams({"w": weight})(product(rows)), declare_weights(product(rows), {"w": weight}))
    )
    x = draw(1, 64 if isinstance(rows, str) else rows, DEPTH)
    want = VirtualMachine(constant)["main"](x)
    machines = [VirtualMachine(swappable, num_threads=threads) for threads in (1, 1, 2)]
    for machine in machines:
        np.testing.assert_array_equal(machine["main"](x), want)
    arrays = [*packed_arrays(swappable), *packed_arrays(constant)]
    assert arrays
    assert len({id(array) for array in arrays}) == 1  # equal to the packed constant: held once


def test_other_weights_are_packed_anew_and_freed() -> None:
    need_avx512()  # oneDNN packs the weights of products
    gc.collect()
    before = len(shared_constants())
    first, second = draw(0, DEPTH, COLUMNS), draw(1, DEPTH, COLUMNS)
    executable = build(declare_weights(product(), {"w": first}))
    x = draw(2, 64, DEPTH)
    machine = VirtualMachine(executable)
    kept = machine["main"](x)
    changed = VirtualMachine(executable.with_weights({"w": second}))
    np.testing.assert_array_equal(
        changed["main"](x), VirtualMachine(build(BindParams({"w": second})(product())))["main"](x)
    )
    np.testing.assert_array_equal(machine["main"](x), kept)
    gc.collect()
    assert len(shared_constants()) == before + 2
    del changed
    gc.collect()
    assert len(shared_constants()) == before + 1
    del machine, executable
    gc.collect()
    assert len(shared_constants()) == before


def test_two_entries_share_the_packed_weight() -> None:
    need_avx512()  # oneDNN packs the weights of products
    weight = draw(3, DEPTH, COLUMNS)
    gc.collect()
    before = len(shared_constants())
    entries = {name: declare_weights(product(rows), {"w": weight}) for name, rows in (("prefill", "n"), ("decode", 1))}
    executable = build(merge_modules(entries))
    machine = VirtualMachine(executable)
    x = draw(4, 1, DEPTH)
    np.testing.assert_allclose(machine["prefill"](x), machine["decode"](x), rtol=1e-4, atol=1e-4)
    assert len(shared_constants()) == before + 1


def test_a_weight_that_is_also_a_result_is_copied() -> None:
    fb = FunctionBuilder("main")
    x, w = fb.param("x", tensor((8, 16))), fb.param("w", tensor((16, 32)))
    module = IRModule({"main": fb.finish(emit(fb, "matmul", x, w), w)}, fb.constants)
    weight = draw(5, 16, 32)
    found = VirtualMachine(byoc_core.build(declare_weights(module, {"w": weight}), ["dnnl"]))["main"](draw(6, 8, 16))
    np.testing.assert_array_equal(found[1], weight)
    np.testing.assert_allclose(found[0], draw(6, 8, 16) @ weight, rtol=1e-4, atol=1e-4)


def with_stored(weight: np.ndarray, stored: np.ndarray) -> IRModule:
    """Return a product by a weight, and a sum with another constant."""
    fb = FunctionBuilder("main")
    x, y = fb.param("x", tensor((64, DEPTH))), fb.param("y", tensor(stored.shape))
    results: list[Value] = [emit(fb, "matmul", x, fb.const(weight)), emit(fb, "add", y, fb.const(stored))]
    return IRModule({"main": fb.finish(*results)}, fb.constants)


@pytest.mark.parametrize("is_equal", [True, False])
def test_a_packed_form_stored_for_another_backend_is_used(tmp_path: Path, is_equal: bool) -> None:
    need_avx512()  # oneDNN packs the weights of products
    weight, x = draw(7, DEPTH, COLUMNS), draw(8, 64, DEPTH)
    alone = build(BindParams({"w": weight})(product()))
    want = VirtualMachine(alone)["main"](x)
    (packed,) = packed_arrays(alone)
    stored = packed.view(np.float32).copy()
    stored[-1] += 0 if is_equal else 1
    del alone, packed
    gc.collect()
    options = PartitionOptions(allow={"dnnl": ["matmul"]})
    byoc_core.build(with_stored(weight, stored), ["dnnl"], partition_options=options).save(tmp_path / "model.byoc")
    executable = byoc_core.load(tmp_path / "model.byoc")
    found, total = VirtualMachine(executable)["main"](x, np.zeros_like(stored))
    np.testing.assert_array_equal(np.maximum(found, 0), want)
    np.testing.assert_array_equal(total, stored)
    (array,) = packed_arrays(executable)
    shares = [np.shares_memory(array, constant) for constant in executable.constants.values()]
    assert any(shares) is is_equal


@given(st.integers(0, (1 << 17) - 1), st.booleans())
def test_an_array_is_found_by_all_its_bytes(place: int, is_own: bool) -> None:
    array = np.arange(1 << 17, dtype=np.int64).astype(np.uint8)
    other = array.copy()
    other[place] ^= 1
    arrays = {"other": other, "same": array.copy(), "short": array[:-1].copy()}
    found = StoredArrays(arrays, ["same"] if is_own else []).find(array)
    assert (found is None) if is_own else (found is not None and np.shares_memory(found, arrays["same"]))
    small = np.zeros(8, np.uint8)
    assert StoredArrays({"same": small}, []).find(small) is None
