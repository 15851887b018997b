"""Packed weights: a single copy for all programs of the process, freed with the last of them."""

from __future__ import annotations

import gc
from collections.abc import Mapping
from pathlib import Path

import byoc_core
import numpy as np
import pytest
from byoc_core.ir import Var, tensor
from byoc_core.runtime.hooks import LoadContext
from byoc_dnnl.arrays import address_of, give_back_pages
from byoc_dnnl.engine import DnnlModule
from byoc_dnnl.engine import Region as BuiltRegion
from byoc_dnnl.plan import Kind
from byoc_dnnl.program import Program
from byoc_dnnl.runtime import byoc_load_module, byoc_save_module
from byoc_dnnl.weights import shared_constants

from plugins.dnnl.tests.dnnl_region import UNIT, NDArray, Region

PAGES = 64


def product(seed: int = 0, size: int = 256) -> Region:
    """Return a product with constant weights, packed by oneDNN."""
    region = Region(seed=seed)
    x = region.builder.param("x", tensor((4, size)))
    result = region.builder.emit("nn.dense", x, region.builder.const(region.draw(size, size)))
    assert isinstance(result, Var)
    return region.finish(result)


def packed_arrays(module: object) -> list[NDArray]:
    assert isinstance(module, DnnlModule)
    module.prepare()
    found = []
    for name in module.function_names:
        built = module.get_function(name).impl
        assert isinstance(built, BuiltRegion)
        for program in built.programs.values():
            assert isinstance(program, Program)
            found += [array for buffer, array in program.arrays.items() if buffer.kind is Kind.PACKED]
    assert found, "nothing was packed"
    return found


def load(region: Region, constants: Mapping[str, NDArray] | None = None) -> object:
    given = region.builder.constants if constants is None else constants
    return byoc_load_module(byoc_save_module(region.module), LoadContext(constants=given))


def test_two_loads_of_one_artifact_and_two_numbers_of_threads_share_weights(tmp_path: Path) -> None:
    region = product()
    byoc_core.build(region.ir, backends=["dnnl"], fallback="error").save(tmp_path / "model.byoc")
    gc.collect()
    before = len(shared_constants())
    loaded = [byoc_core.load(tmp_path / "model.byoc") for _ in range(3)]
    x = region.draw(4, 256)
    results = [byoc_core.VirtualMachine(each, num_threads=n)["f"](x) for each in loaded for n in (1, 2)]
    arrays = [array for each in loaded for array in packed_arrays(each.modules[0])]
    assert len({id(array) for array in arrays}) == 1
    assert len(shared_constants()) <= before + 1
    (exact,), (magnitude,) = region.oracle(x), region.oracle(x, magnitudes=True)
    for result in results:
        assert (np.abs(result - exact) <= 2 * 256 * UNIT * magnitude).all()
    del loaded, arrays
    gc.collect()
    assert len(shared_constants()) <= before


def test_weights_are_gone_with_the_last_module() -> None:
    gc.collect()
    before = len(shared_constants())
    region = product(seed=1)
    other = load(region, {digest: array.copy() for digest, array in region.builder.constants.items()})
    assert packed_arrays(other)[0] is packed_arrays(region.module)[0]
    assert len(shared_constants()) == before + 1
    first = packed_arrays(other)[0]
    del region
    gc.collect()
    assert packed_arrays(other)[0] is first
    assert len(shared_constants()) == before + 1
    del other
    gc.collect()
    assert len(shared_constants()) == before


def test_a_damaged_constant_of_the_same_digest_is_not_shared() -> None:
    region = product(seed=2)
    (digest,) = region.builder.constants
    damaged = region.builder.constants[digest].copy()
    damaged[3, 5] += 1
    x = region.draw(4, 256)
    (right,) = region.run(x)
    module = load(region, {digest: damaged})
    assert packed_arrays(module)[0] is not packed_arrays(region.module)[0]
    assert isinstance(module, DnnlModule)
    wrong = np.empty_like(right)
    module.get_function("f")(x, wrong)
    assert (wrong[:, 3] != right[:, 3]).all()
    np.testing.assert_array_equal(np.delete(wrong, 3, 1), np.delete(right, 3, 1))
    np.testing.assert_array_equal(region.run(x)[0], right)


def test_weights_that_are_not_a_number_are_shared_too() -> None:
    region = Region()
    weights = np.full((64, 64), np.nan, np.float32)
    x = region.builder.param("x", tensor((4, 64)))
    result = region.builder.emit("nn.dense", x, region.builder.const(weights))
    assert isinstance(result, Var)
    region.finish(result)
    module = load(region, {digest: array.copy() for digest, array in region.builder.constants.items()})
    assert packed_arrays(module)[0] is packed_arrays(region.module)[0]


def resident_nbytes(array: NDArray) -> int:
    """Return the number of bytes in memory of the mapping around an array (Linux)."""
    address = address_of(array)
    size = inside = 0
    for line in Path("/proc/self/smaps").read_text(encoding="ascii").splitlines():
        head = line.split()[0]
        if "-" in head and not head.endswith(":"):
            start, end = (int(part, 16) for part in head.split("-"))
            inside = start <= address < end
        elif inside and head == "Rss:":
            size += int(line.split()[1]) * 1024
    return size


@pytest.mark.skipif(not Path("/proc/self/smaps").is_file(), reason="Linux only")
def test_packed_weights_of_a_file_do_not_stay_in_memory_twice(tmp_path: Path) -> None:
    region = product(seed=3, size=1024)
    byoc_core.build(region.ir, backends=["dnnl"], fallback="error").save(tmp_path / "model.byoc")
    loaded = byoc_core.load(tmp_path / "model.byoc")
    (source,) = loaded.modules[0].constants.values()
    assert source.nbytes == 4 << 20
    assert len(packed_arrays(loaded.modules[0])) == 1
    assert resident_nbytes(source) < source.nbytes // 4
    total = float(source.sum(dtype=np.float64))  # and can be read again
    assert total == pytest.approx(float(next(iter(region.builder.constants.values())).sum(dtype=np.float64)))
    assert resident_nbytes(source) >= source.nbytes
    give_back_pages(source)
    assert resident_nbytes(source) < source.nbytes // 4


def test_pages_of_memory_of_ones_own_are_kept() -> None:
    array = np.arange(PAGES * 4096, dtype=np.uint8)
    give_back_pages(array)
    np.testing.assert_array_equal(array, np.arange(PAGES * 4096, dtype=np.uint8))
