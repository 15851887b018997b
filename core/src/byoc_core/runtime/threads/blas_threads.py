"""The threads of numpy's BLAS, in measurements for a number of threads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["limited_blas"]


@contextmanager
def limited_blas(num_threads: int) -> Iterator[None]:
    """Limit each BLAS of the process to a number of threads within the context.

    Matrix products of the host run on the threads of numpy's BLAS, by default as many as processors: measured so, the
    host would win races of calls on one thread by two threads. A smaller number set by the user stays.
    """
    from threadpoolctl import ThreadpoolController  # looks at all loaded libraries: only where threads are measured

    controller = ThreadpoolController().select(user_api="blas")
    present = {found["prefix"]: found["num_threads"] for found in controller.info()}
    with controller.limit(limits={prefix: min(number, num_threads) for prefix, number in present.items()}):
        yield
