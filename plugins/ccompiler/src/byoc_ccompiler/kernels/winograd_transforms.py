"""The linear maps of Winograd's minimal filtering: their matrices, and C that applies them to vectors.

``F(m, 3)`` gives ``m`` neighbouring outputs of a filter of 3 taps from ``m + 2`` inputs with ``m + 2`` products, where
the plain sums take ``3 m``: ``y = A^T [(G g) * (B^T d)]``. Over two axes each map is applied along both. The matrices
interpolate a product of polynomials at chosen points and at infinity (Toom and Cook). What the points are decides how
much rounding errors grow: with 0, +-3/4 and +-3/2 those of ``F(4, 3)`` are a quarter of those with the customary 0,
+-1 and +-2, and all of ``A^T`` and ``B^T`` is exact in float32.

Sources: S. Winograd, Arithmetic Complexity of Computations, SIAM 1980; A. Lavin and S. Gray, Fast Algorithms for
Convolutional Neural Networks, CVPR 2016; B. Barabasz et al., Error Analysis and Improving the Accuracy of Winograd
Convolution for Deep Neural Networks, ACM TOMS 46 (2020), on the points.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt
from byoc_core.authoring import c

__all__ = ["Matrix", "MinimalFilter", "map_values", "minimal_filter"]

_TAPS = 3
_POINTS = {2: (0.0, 1.0, -1.0), 4: (0.0, 0.75, -0.75, 1.5, -1.5)}
"""By the number of outputs: the finite points; those that differ in their sign alone stand side by side."""

Matrix = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False, slots=True)
class MinimalFilter:
    """The algorithm ``F(m, 3)``.

    Attributes:
        num_outputs: ``m``.
        outputs: ``A^T``: products to outputs; ``(m, m + 2)``.
        taps: ``G``: a filter to factors; ``(m + 2, 3)``.
        inputs: ``B^T``: inputs to the other factors; ``(m + 2, m + 2)``.
    """

    num_outputs: int
    outputs: Matrix
    taps: Matrix
    inputs: Matrix

    @property
    def num_inputs(self) -> int:
        """Inputs of one tile along one axis, and as many products."""
        return self.num_outputs + _TAPS - 1


@cache
def minimal_filter(num_outputs: int) -> MinimalFilter:
    """Return the algorithm with so many outputs along an axis: 2 or 4."""
    points = _POINTS[num_outputs]
    size = len(points) + 1
    outputs, taps, inputs = np.zeros((num_outputs, size)), np.zeros((size, _TAPS)), np.zeros((size, size))
    for index, point in enumerate(points):
        others = [other for other in points if other != point]
        outputs[:, index] = [point**power for power in range(num_outputs)]
        taps[index] = [point**power / np.prod([point - other for other in others]) for power in range(_TAPS)]
        inputs[index, :-1] = np.polynomial.polynomial.polyfromroots(others)
    outputs[-1, -1] = taps[-1, -1] = 1.0
    inputs[-1] = np.polynomial.polynomial.polyfromroots(points)
    return MinimalFilter(num_outputs, outputs, taps, inputs)


def map_values(
    matrix: Matrix, values: Sequence[c.Expression], store: Callable[[int, c.Expression], c.Statement]
) -> c.Block:
    """Return the statements that store ``matrix @ values``, on vectors, each result by its number.

    Columns of opposite points have the same coefficients but for the signs of the odd ones: their sum and their
    difference serve all rows. Rows of opposite points, likewise, share two sums.
    """
    block: list[c.Statement] = []

    def let(name: str, value: c.Expression) -> c.Variable:
        variable = c.Variable(name, value.type)
        block.append(c.Let(variable, value))
        return variable

    even, odd = dict(enumerate(values)), dict(enumerate(values))
    for column, has_opposite in _points(matrix.T):
        if has_opposite:
            left, right = values[column], values[column + 1]
            even[column], odd[column] = let("plus", left + right), let("minus", left - right)
            del even[column + 1], odd[column + 1]
    for row, has_opposite in _points(matrix):
        terms = [(matrix[row, column], value) for column, value in (odd if row % 2 else even).items()]
        if has_opposite:
            one, other = let("even", _combined(terms[0::2])), let("odd", _combined(terms[1::2]))
            block += [store(row, one + other), store(row + 1, one - other)]
        else:
            block.append(store(row, _combined(terms)))
    return tuple(block)


def _points(rows: Matrix) -> Iterator[tuple[int, bool]]:
    """Yield the number of each row, of one of two where they are of opposite points, and whether they are."""
    signs, number = (-1.0) ** np.arange(rows.shape[1]), 0
    while number < len(rows):
        has_opposite = number + 1 < len(rows) and np.array_equal(rows[number + 1], rows[number] * signs)
        yield number, has_opposite
        number += 2 if has_opposite else 1


def _combined(terms: Iterable[tuple[float, c.Expression]]) -> c.Expression:
    """Return a sum of multiples, those of factor 1 first so that the others can be contracted."""
    ordered = sorted((term for term in terms if term[0] != 0.0), key=lambda term: (abs(term[0]) != 1.0, term[0] != 1.0))
    total: c.Expression | None = None
    for factor, value in ordered:
        size = c.Broadcast(c.Literal(abs(factor), value.type.with_lanes(1)), value.type.lanes)
        scaled = value if abs(factor) == 1.0 else size * value
        if total is None:
            total = scaled if factor > 0 else c.Unary("-", scaled)
        else:
            total = c.Binary("+" if factor > 0 else "-", total, scaled)
    assert total is not None
    return total
