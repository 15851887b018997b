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

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
from byoc_core.authoring.csource import c_literal

__all__ = ["MinimalFilter", "map_inputs", "map_products", "minimal_filter"]

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

    def transform_filter(self, weight: npt.NDArray[Any]) -> Matrix:
        """Gives the factors that a filter becomes, in float64.

        Shapes: ``(O, I, 3, 3) -> ((m + 2) ** 2, I, O)``.
        """
        factors = np.einsum("ay,oiyx,bx->abio", self.taps, weight.astype(np.float64), self.taps)
        return np.asarray(factors.reshape(-1, *factors.shape[2:]))


@cache
def minimal_filter(num_outputs: int) -> MinimalFilter:
    """Gives the algorithm with so many outputs along an axis: 2 or 4."""
    points = _POINTS[num_outputs]
    size = len(points) + 1
    outputs = np.zeros((num_outputs, size))
    taps = np.zeros((size, _TAPS))
    inputs = np.zeros((size, size))
    for index, point in enumerate(points):
        others = [other for other in points if other != point]
        outputs[:, index] = [point**power for power in range(num_outputs)]
        taps[index] = [point**power / np.prod([point - other for other in others]) for power in range(_TAPS)]
        inputs[index, :-1] = np.polynomial.polynomial.polyfromroots(others)
    outputs[-1, -1] = taps[-1, -1] = 1.0
    inputs[-1] = np.polynomial.polynomial.polyfromroots(points)
    return MinimalFilter(num_outputs, outputs, taps, inputs)


def map_inputs(matrix: Matrix, source: Callable[[int], str], target: Callable[[int], str], dtype: str) -> list[str]:
    """Gives C statements for ``target = matrix @ source``, on vectors.

    Rows of opposite points have the same coefficients but for the signs of the odd ones: they share two sums.

    Args:
        matrix: ``B^T``.
        source: C expression of an input, by its number.
        target: C of what a result is assigned to, by its number.
        dtype: of the vectors' elements.
    """
    lines = []
    paired: set[int] = set()
    signs = (-1.0) ** np.arange(matrix.shape[1])
    for row, coefficients in enumerate(matrix):
        if row in paired:
            continue
        terms = [(float(factor), source(index)) for index, factor in enumerate(coefficients)]
        if row + 1 < len(matrix) and np.array_equal(matrix[row + 1], coefficients * signs):
            paired.add(row + 1)
            even, odd = _combine(terms[0::2], dtype), _combine(terms[1::2], dtype)
            lines.append(f"even = {even}, odd = {odd};")
            lines += [f"{target(row)} = even + odd;", f"{target(row + 1)} = even - odd;"]
        else:
            lines.append(f"{target(row)} = {_combine(terms, dtype)};")
    return lines


def map_products(matrix: Matrix, source: Callable[[int], str], target: Callable[[int], str], dtype: str) -> list[str]:
    """Gives C statements for ``target = matrix @ source``, on vectors.

    Columns of opposite points have the same coefficients but for the signs of the odd ones: their sum and their
    difference serve all rows.

    Args:
        matrix: ``A^T``.
        source: C expression of a product, by its number.
        target: C of what a result is assigned to, by its number.
        dtype: of the vectors' elements.
    """
    lines: list[str] = []
    even: list[tuple[int, str]] = []
    odd: list[tuple[int, str]] = []
    signs = (-1.0) ** np.arange(matrix.shape[0])
    column = 0
    while column < matrix.shape[1]:
        has_opposite = column + 1 < matrix.shape[1] and np.array_equal(matrix[:, column + 1], matrix[:, column] * signs)
        if has_opposite:
            left, right, number = source(column), source(column + 1), len(lines) // 2
            lines += [f"plus[{number}] = {left} + {right};", f"minus[{number}] = {left} - {right};"]
            even.append((column, f"plus[{number}]"))
            odd.append((column, f"minus[{number}]"))
        else:
            even.append((column, source(column)))
            odd.append((column, source(column)))
        column += 2 if has_opposite else 1
    for row, coefficients in enumerate(matrix):
        terms = [(float(coefficients[column]), name) for column, name in (odd if row % 2 else even)]
        lines.append(f"{target(row)} = {_combine(terms, dtype)};")
    return lines


def _combine(terms: Sequence[tuple[float, str]], dtype: str) -> str:
    """Gives a C expression for a sum of multiples, those of factor 1 first so that the others can be contracted."""
    ordered = sorted((term for term in terms if term[0] != 0.0), key=lambda term: (abs(term[0]) != 1.0, term[0] != 1.0))
    text = ""
    for factor, name in ordered:
        sign = ("- " if factor < 0 else "+ ") if text else ("-" if factor < 0 else "")
        scaled = name if abs(factor) == 1.0 else f"{c_literal(abs(factor), dtype)} * {name}"
        text += f" {sign}{scaled}" if text else f"{sign}{scaled}"
    return text
