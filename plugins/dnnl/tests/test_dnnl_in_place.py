"""Results overwriting an added tensor: only without later readers of the tensor."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from byoc_core.ir import Var, tensor

from plugins.dnnl.tests.dnnl_region import Region, check_sums, emit

CHANNELS, SIZE = 16, 10
SHAPE = (1, CHANNELS, SIZE, SIZE)
LENGTH = 4 * (2 * CHANNELS * 9 + 8)
"""Operations in a row summed up in a result: at most four convolutions."""

Build = Callable[[Region, Var, Var], tuple[Var, ...]]
"""Returns the results of a region, from a shortcut in an arena and the value beside."""


def _convolve(region: Region, value: Var) -> Var:
    weight = region.builder.const(region.draw(CHANNELS, CHANNELS, 3, 3))
    value = emit(region, "nn.conv2d", value, weight, padding=(1,) * 4)
    return emit(region, "nn.bias_add", value, region.builder.const(region.draw(CHANNELS)), axis=1)


def _check(build: Build) -> int:
    """Compare a region with the oracle, and return the number of steps overwriting their addend."""
    region = Region()
    x = region.builder.param("x", tensor(SHAPE))
    shortcut = _convolve(region, x)
    region.finish(*build(region, shortcut, _convolve(region, _convolve(region, shortcut))))
    check_sums(region, [region.draw(*SHAPE)], LENGTH)
    lines = [
        line.split("  ")[2] for line in region.source.splitlines() if line.startswith("nn.conv2d + nn.bias_add + add")
    ]
    buffers = [[place.split(":")[0] for place in line.split(", ")] for line in lines]
    return sum(len(names) == 4 for names in buffers)


def test_a_shortcut_that_ends_is_written_over() -> None:
    assert _check(lambda region, shortcut, value: (emit(region, "nn.relu", emit(region, "add", value, shortcut)),)) == 1


def _read_later(region: Region, shortcut: Var, value: Var) -> tuple[Var, ...]:
    total = emit(region, "add", value, shortcut)
    return (emit(region, "add", _convolve(region, total), shortcut),)


def _given_too(region: Region, shortcut: Var, value: Var) -> tuple[Var, ...]:
    return emit(region, "nn.relu", emit(region, "add", value, shortcut)), shortcut


def _viewed(region: Region, shortcut: Var, value: Var) -> tuple[Var, ...]:
    seen = emit(region, "permute_dims", shortcut, axes=(0, 2, 3, 1))
    total = emit(region, "nn.relu", emit(region, "add", value, shortcut))
    return total, emit(region, "nn.relu", seen)


def _added_to_its_own(region: Region, shortcut: Var, value: Var) -> tuple[Var, ...]:
    weight = region.builder.const(region.draw(CHANNELS, CHANNELS, 1, 1))
    return emit(region, "add", emit(region, "nn.conv2d", shortcut, weight), shortcut), value


def _copied(region: Region, shortcut: Var, value: Var) -> tuple[Var, ...]:
    """Return a sum able to overwrite a row-major copy of the shortcut, and a second reader of this copy."""
    shape = (CHANNELS, SIZE * SIZE)
    first = emit(region, "reshape", shortcut, shape=shape)
    weight = region.builder.const(region.draw(SIZE * SIZE, SIZE * SIZE))
    product = emit(region, "matmul", region.builder.const(region.draw(*shape)), weight)
    total = emit(region, "permute_dims", emit(region, "add", product, first))
    second = emit(region, "reshape", shortcut, shape=(CHANNELS * SIZE * SIZE,))
    return total, emit(region, "nn.relu", second), value


@pytest.mark.parametrize("build", [_given_too, _viewed, _added_to_its_own])
def test_a_shortcut_that_is_read_elsewhere_stays(build: Build) -> None:
    assert _check(build) == 0


def test_a_shortcut_is_written_over_by_the_last_that_reads_it() -> None:
    assert _check(_read_later) == 1


def test_a_copy_that_is_read_again_stays() -> None:
    assert _check(_copied) == 0
