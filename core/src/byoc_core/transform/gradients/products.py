"""Rules for products of matrices, adding a bias, and Einstein sums."""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence

from byoc_core.dims import Dim, product
from byoc_core.opset.equation import Equation, parse_equation
from byoc_core.transform.gradients.pullback import Pullback, Rule, by_operand
from byoc_core.transform.gradients.terms import Term

__all__ = ["RULES"]


def _matrices(pullback: Pullback) -> tuple[Term, Term, Term]:
    """Return left factor, right factor and cotangent of a product with vectors as rows and columns."""
    x, y, cotangent = pullback.operand(0), pullback.operand(1), pullback.cotangent()
    shape: list[Dim] = list(cotangent.shape)
    if y.rank == 1:
        y = y.reshape((*y.shape, 1))
        shape.append(1)
    if x.rank == 1:
        x = x.reshape((1, *x.shape))
        shape.insert(len(shape) - 1, 1)
    return x, y, cotangent.reshape(shape)


def _sum_stack(matrices: Term, factor: Term) -> Term:
    """Return the sum of a stack of matrices over the axes repeated from a factor."""
    return matrices.sum_to((*factor.shape[:-2], *matrices.shape[-2:]))


def _matmul_by_left(pullback: Pullback) -> Term:
    x, y, cotangent = _matrices(pullback)
    return _sum_stack(cotangent @ y.transposed(), x)


def _matmul_by_right(pullback: Pullback) -> Term:
    x, y, cotangent = _matrices(pullback)
    if y.rank == 2:  # a single product sums over the stack of left factors
        return _rows(x).transposed() @ _rows(cotangent)
    return _sum_stack(x.transposed() @ cotangent, y)


def _rows(stack: Term) -> Term:
    """Return the rows of a stack of matrices as a matrix."""
    return stack.reshape((product(stack.shape[:-1]), stack.shape[-1]))


def _dense_by_weight(pullback: Pullback) -> Term:
    return _rows(pullback.cotangent()).transposed() @ _rows(pullback.operand(0))


def _bias(pullback: Pullback) -> Term:
    cotangent = pullback.cotangent()
    axis = pullback.attrs["axis"] % cotangent.rank
    return cotangent.sum([other for other in range(cotangent.rank) if other != axis])


def _einsum(pullback: Pullback) -> Sequence[Term | None]:
    operands = [pullback.operand(index) for index in range(pullback.num_operands)]
    equation = parse_equation(str(pullback.attrs["equation"]), [operand.shape for operand in operands])
    if len(equation.sizes) > len(string.ascii_letters):
        raise pullback.refusal(f"for more than {len(string.ascii_letters)} different axes")
    return [
        _einsum_by_operand(pullback, equation, operands, index) if pullback.needs(index) else None
        for index in range(len(operands))
    ]


def _einsum_by_operand(pullback: Pullback, equation: Equation, operands: Sequence[Term], index: int) -> Term:
    """Return the Einstein sum of the cotangent and the other operands, repeated along axes of the operand alone."""
    own, operand = equation.operands[index], operands[index]
    if len(set(own)) != len(own):
        raise pullback.refusal("by an operand with a repeated axis")
    factors = [pullback.cotangent(), *operands[:index], *operands[index + 1 :]]
    labels = [equation.result, *equation.operands[:index], *equation.operands[index + 1 :]]
    found = {label for group in labels for label in group}
    total = _sum_of_products(equation, labels, factors, [label for label in own if label in found])
    sizes = iter(total.shape)
    placed = total.reshape([next(sizes) if label in found else 1 for label in own])
    return placed.broadcast_to([equation.sizes[label] for label in own]).sum_to(operand.shape)


def _sum_of_products(
    equation: Equation, labels: Sequence[Sequence[str]], factors: Sequence[Term], result: Sequence[str]
) -> Term:
    letters = dict(zip(equation.sizes, string.ascii_letters, strict=False))
    left, right = (
        ",".join("".join(map(letters.__getitem__, group)) for group in groups) for groups in (labels, [result])
    )
    if left == right:
        return factors[0]
    return factors[0].emitter.emit("einsum", factors, {"equation": f"{left}->{right}"})[0]


RULES: Mapping[str, Rule] = {
    "matmul": by_operand(_matmul_by_left, _matmul_by_right),
    "nn.dense": by_operand(lambda p: p.cotangent() @ p.operand(1), _dense_by_weight),
    "nn.bias_add": by_operand(lambda p: p.cotangent(), _bias),
    "einsum": _einsum,
}
"""The family's rules, by op."""
