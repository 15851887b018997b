"""Vectorised float32 functions of the C extension, for runtimes with calls into C.

Runtimes rely on names, signature and accuracy; the table is ``VECTOR_FUNCTIONS`` of the extension. Address 0 is an
ordinary answer: each caller needs another way.
"""

from __future__ import annotations

from byoc_core.runtime.extension import extension

__all__ = ["vector_function"]


def vector_function(name: str) -> int:
    """Return the address of a C function ``void f(const float *x, float *y, int64_t count)``.

    The function computes ``count`` adjacent numbers, in the calling thread, by the best instructions of the processor;
    ``y`` is separate memory. Results are within 1.5 units in the last place for ``"exp"``, within 1 for ``"log"``,
    within 2.5 for ``"softplus"``, within 2 for ``"elu"``, whose ``alpha`` is 1. Infinities, NaN and subnormal numbers
    are right. Without the extension, or with an older extension without the function, the address is 0.

    Args:
        name: one of these names, elementwise; or ``"log_softmax"``, of all numbers as one row of less than 2**31; or
            ``"stepwise_softmax_bfloat16"`` or ``"stepwise_softmax_float16"``, of a row of such numbers, widened; with
            the suffix ``"_zero_unseen"`` if a row of minus infinities gives zeros.
    """
    found = extension()
    return 0 if found is None else int(found.VECTOR_FUNCTIONS.get(name, (0,))[-1])
