"""Register tiles by themselves, compiled for several vector units: against a float64 oracle (Higham, ch. 3)."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from byoc_ccompiler.kernels import copies
from byoc_ccompiler.kernels.product_schedules import even_part
from byoc_ccompiler.kernels.tiles import DEPTH_CHUNK, steps_of_a_line, tile_function
from byoc_ccompiler.vector_unit import NO_VECTORS, VectorUnit
from byoc_core.authoring import c
from byoc_core.native.toolchain import BuildOptions, find_toolchain
from byoc_core.runtime.module import NDArray
from hypothesis import given
from hypothesis import strategies as st

from plugins.ccompiler.tests.bench import assert_sum

SHAPES = [(1, 2), (5, 1), (8, 2)]
DEPTHS = (0, 1, 7, DEPTH_CHUNK, DEPTH_CHUNK + 1, 3 * DEPTH_CHUNK + 5)
UNITS = [
    (VectorUnit(16, 16), "generic"),
    (VectorUnit(32, 16), "generic"),
    (VectorUnit(64, 32), "native"),
    (NO_VECTORS, "generic"),
]
HEADERS = '#include "byoc_ffi.h"\n#include "byoc_scalar.h"\n'


def _build(folder: Path, unit: VectorUnit, march: str, dtype: str) -> ctypes.CDLL:
    """Return a library with an exported function for every shape in both forms."""
    functions = []
    for rows, vectors in SHAPES:
        for indirect in (False, True):
            tile = c.verify(tile_function(unit, dtype, rows, vectors, indirect=indirect))
            functions.append(replace(tile, name=f"{'rows' if indirect else 'tile'}_{rows}x{vectors}"))
    text = c.print_definitions(functions).replace("static BYOC_CONTRACTED", "BYOC_EXPORT BYOC_CONTRACTED")
    options = BuildOptions(2, march, ("-Wall", "-Wextra", "-Wno-psabi", "-Werror"))
    library = find_toolchain().compile(HEADERS + text, options)
    path = folder / "tiles.so"
    path.write_bytes(library.data)
    return ctypes.CDLL(str(path))


def _pointer(array: NDArray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def _check(sums: NDArray, factors: NDArray, panel: NDArray) -> None:
    wide, columns = factors.astype("float64"), panel.astype("float64")
    assert_sum(sums, wide @ columns, np.abs(wide) @ np.abs(columns), len(panel))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("unit", "march"), UNITS)
def test_panel_tiles(tmp_path: Path, unit: VectorUnit, march: str, dtype: str) -> None:
    library = _build(tmp_path, unit, march, dtype)
    generator = np.random.default_rng(0)
    for rows, vectors in SHAPES:
        width = vectors * unit.lanes(dtype)
        for depth in DEPTHS:
            # What lies between two rows must not be read.
            a = np.full((rows, depth + 3), np.nan, dtype)
            a[:, :depth] = generator.standard_normal((rows, depth))
            panel = generator.standard_normal((depth, width)).astype(dtype)
            sums = np.full((rows, width), np.nan, dtype)
            left = (_pointer(a), ctypes.c_int64(depth + 3))
            target = (_pointer(sums), ctypes.c_int64(width), False)
            library[f"tile_{rows}x{vectors}"](*left, _pointer(panel), ctypes.c_int64(depth), *target)
            _check(sums, a[:, :depth], panel)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("unit", "march"), UNITS)
def test_panel_tiles_of_scattered_rows(tmp_path: Path, unit: VectorUnit, march: str, dtype: str) -> None:
    library = _build(tmp_path, unit, march, dtype)
    generator = np.random.default_rng(0)
    for rows, vectors in SHAPES:
        width = vectors * unit.lanes(dtype)
        for depth, num_taps in [(d, t) for d in DEPTHS for t in (0, 1, 3)] + [(100, 13)]:
            runs = generator.standard_normal((num_taps, rows, depth)).astype(dtype)
            pointers = np.array([[runs[t, j].ctypes.data for j in range(rows)] for t in range(num_taps)], "uintp")
            panel = generator.standard_normal((num_taps * depth, width)).astype(dtype)
            sums = np.full((rows, width), np.nan, dtype)
            left = (_pointer(pointers), ctypes.c_int64(num_taps), ctypes.c_int64(0))
            target = (_pointer(sums), ctypes.c_int64(width), False)
            library[f"rows_{rows}x{vectors}"](*left, _pointer(panel), ctypes.c_int64(depth), *target)
            _check(sums, runs.transpose(1, 0, 2).reshape(rows, num_taps * depth), panel)


@pytest.mark.parametrize(("unit", "vectors"), [(VectorUnit(32, 16), 2), (NO_VECTORS, 8)])
@pytest.mark.parametrize(("depth", "panels"), [(3, 1), (5, 4), (DEPTH_CHUNK + 1, 2)])
def test_a_row_times_panels(depth: int, panels: int, unit: VectorUnit, vectors: int) -> None:
    function = c.verify(tile_function(unit, "float64", 1, vectors, panels=panels))
    rng = np.random.default_rng(depth)
    row, matrices, sums = (rng.standard_normal(size) for size in (depth, (panels, depth, 8), panels * 8))
    expected = sums + np.einsum("k,pkn->pn", row, matrices).reshape(-1)
    values = (row, 0, matrices.reshape(-1), depth, sums, 0, True)
    c.interpret(function, dict(zip(function.parameters, values, strict=True)))
    np.testing.assert_allclose(sums, expected, rtol=1e-12)


@given(step=st.integers(1, 16), depth=st.integers(1, 40), shape=st.sampled_from([(1, 2), (9, 3), (10, 2)]))
def test_every_line_of_what_comes_next_is_fetched(step: int, depth: int, shape: tuple[int, int]) -> None:
    rows, vectors = shape
    width, fetched = vectors * 16, set[int]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(copies, "_evaluate", lambda _, offset: fetched.add(offset // 64))
        # Not the kept function, whose calls were made before.
        function = tile_function.__wrapped__(
            VectorUnit(64, 32), "float32", rows, vectors, fetch_interval=steps_of_a_line(c.Size(step), "float32")
        )
    values = (np.ones(rows * depth), depth, np.ones(depth * width), depth, np.ones(1), 0, step)
    target = (np.zeros(rows * width, "float32"), width, False)
    arguments = [item.astype("float32") if isinstance(item, np.ndarray) else item for item in (*values, *target)]
    c.interpret(function, dict(zip(function.parameters, arguments, strict=True)))
    # The line of the last steps may begin behind the last step that fetches.
    last = (depth - 1) * step * 4 // 64
    assert fetched | {last} == set(range(last + 1))


@given(st.integers(1, 5000), st.integers(8, 300), st.integers(1, 8))
def test_parts_of_rows_are_about_even(size: int, most: int, step: int) -> None:
    part = even_part(size, most, step)
    count = -(-size // part)
    assert count == -(-size // most)
    assert part <= max(most, min(size, most))
    last = size - part * (count - 1)
    assert 0 < last <= part
    assert part - last < step * count
