"""numpy's BLAS in measurements: as many threads as the calls have, and the user's number afterwards."""

from __future__ import annotations

import numpy as np
import pytest
from byoc_core.runtime.threads.blas_threads import limited_blas
from threadpoolctl import ThreadpoolController


def numbers() -> list[int]:
    """Return the number of threads of each BLAS of the process."""
    np.ones((2, 2)) @ np.ones((2, 2))
    return [found["num_threads"] for found in ThreadpoolController().select(user_api="blas").info()]


def test_a_blas_gets_no_more_threads_than_the_calls() -> None:
    before = numbers()
    if not before:
        pytest.skip("numpy has no BLAS with a number of threads")
    with limited_blas(1):
        assert set(numbers()) == {1}
    assert numbers() == before


def test_a_smaller_number_of_the_user_stays() -> None:
    with ThreadpoolController().limit(limits=1, user_api="blas"):
        before = numbers()
        with limited_blas(7):
            assert numbers() == before
        assert numbers() == before


def test_the_number_comes_back_after_an_error() -> None:
    before = numbers()
    with pytest.raises(KeyboardInterrupt), limited_blas(1):
        raise KeyboardInterrupt
    assert numbers() == before
