"""Products of sizes for estimates."""

from __future__ import annotations

from byoc_core.dims import ceildiv, dim_min, evaluate, rough_product, symbol
from hypothesis import given
from hypothesis import strategies as st

N, M = symbol("n"), symbol("m")


def test_numbers_are_rounded_up() -> None:
    assert rough_product(3, 10, 4) == 8
    assert rough_product(3, 0, 4) == 0


def test_tiles_times_their_size_are_the_axis() -> None:
    assert rough_product(16, ceildiv(N, 16)) == N
    assert rough_product(rough_product(12, N, 12), ceildiv(M, 64), 1) == rough_product(N, M, 64)
    assert rough_product(16, N // 16 * M) == N * M


def test_other_calls_stay() -> None:
    assert rough_product(2, dim_min(N, M)) == dim_min(N, M) * 2


@given(st.integers(0, 10**6), st.integers(0, 500), st.integers(1, 64))
def test_a_symbolic_product_is_at_least_the_exact_one(work: int, size: int, step: int) -> None:
    """And at most 1 more for each position, since factors are rounded up."""
    found = evaluate(rough_product(work, N, step), {"n": size})
    assert work * size <= found * step <= (work + step - 1) * size
