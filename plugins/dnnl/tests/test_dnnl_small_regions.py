"""Small regions: they run in the calling thread alone, whatever the number of threads."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import numpy as np
import pytest
from byoc_core.ir import tensor
from byoc_core.runtime.threads import set_num_threads
from byoc_dnnl.engine import Region as BuiltRegion
from byoc_dnnl.engine import open_engine
from byoc_dnnl.program import Frame, Program

from plugins.dnnl.tests.dnnl_region import Region, emit

TWO = 2


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    if open_engine().openmp is None:
        pytest.skip("no OpenMP")
    before = open_engine().num_threads
    set_num_threads(TWO)
    yield
    set_num_threads(max(before, 1))


def _program(rows: int, columns: int) -> tuple[Region, Program]:
    region = Region()
    x = region.builder.param("x", tensor((rows, columns)))
    region.finish(emit(region, "nn.dense", x, region.builder.const(region.draw(columns, columns))))
    built = region.module.get_function("f").impl
    assert isinstance(built, BuiltRegion)
    program = built.program(TWO, ((rows, columns), (rows, columns)))
    assert isinstance(program, Program)
    return region, program


@pytest.mark.parametrize(("rows", "columns", "expected"), [(1, 64, True), (64, 64, True), (64, 1024, False)])
def test_products_of_few_numbers_are_small(rows: int, columns: int, expected: bool) -> None:
    _, program = _program(rows, columns)
    assert program.is_serial == expected


def test_a_convolution_of_an_image_is_large() -> None:
    region = Region()
    x = region.builder.param("x", tensor((1, 32, 56, 56)))
    weight = region.builder.const(region.draw(32, 32, 3, 3))
    region.finish(emit(region, "nn.conv2d", x, weight, padding=(1, 1, 1, 1)))
    built = region.module.get_function("f").impl
    assert isinstance(built, BuiltRegion)
    program = built.program(TWO, ((1, 32, 56, 56), (1, 32, 56, 56)))
    assert isinstance(program, Program)
    assert not program.is_serial


def test_the_calling_thread_keeps_its_number_of_threads() -> None:
    region, program = _program(1, 64)
    x, out = region.draw(1, 64), np.empty((1, 64), np.float32)
    openmp = open_engine().openmp
    assert openmp is not None
    with open_engine().threads(TWO):
        assert program(x, out)
        assert openmp.omp_get_max_threads() == TWO
        again = np.empty_like(out)
        assert Frame(program).run([x, again])
        assert openmp.omp_get_max_threads() == TWO
    np.testing.assert_array_equal(out, again)
    np.testing.assert_array_equal(out, region.run(x)[0])


def test_primitives_of_a_small_region_find_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    region, program = _program(1, 64)
    openmp = open_engine().openmp
    assert openmp is not None
    frame = Frame(program)
    numbers = []
    execute = frame._execute

    def noting(*arguments: ctypes.c_void_p) -> int:
        numbers.append(openmp.omp_get_max_threads())
        return int(execute(*arguments))

    monkeypatch.setattr(frame, "_execute", noting)
    with open_engine().threads(TWO):
        assert frame.run([region.draw(1, 64), np.empty((1, 64), np.float32)])
    assert numbers == [1]
