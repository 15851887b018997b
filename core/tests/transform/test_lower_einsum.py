"""Einstein sums as products of matrices: the replaced equations, and equal results on any equation."""

from __future__ import annotations

import numpy as np
import pytest
from byoc_core.dims import symbol
from byoc_core.ir import FunctionBuilder, IRModule, Var, tensor, verify
from byoc_core.transform import LowerEinsum, evaluate_function
from hypothesis import example, given, settings
from hypothesis import strategies as st

from core.tests.ir_text import check_pass, check_unchanged

LOWERED = {
    "projection to heads": (
        'x: R.Tensor(("n", 5, 8), "float32"), w: R.Tensor((8, 2, 3), "float32")',
        "ibh,hnd->ibnd",
        'y = R.reshape(w, shape=(8, 6))\ny_1 = R.matmul(x, y)\ny_2 = R.reshape(y_1, shape=("n", 5, 2, 3))',
    ),
    "scores of heads": (
        'x: R.Tensor((7, 5, 2, 3), "float32"), w: R.Tensor((9, 5, 2, 3), "float32")',
        "ibnd,jbnd->bnij",
        "y = R.permute_dims(x, axes=(1, 2, 0, 3))\ny_1 = R.permute_dims(w, axes=(1, 2, 3, 0))\ny_2 = R.matmul(y, y_1)",
    ),
    "operands in the other order": (
        'x: R.Tensor((4, 6), "float32"), w: R.Tensor((3, 4), "float32")',
        "kn,mk->mn",
        "y = R.matmul(w, x)",
    ),
    "two summed letters": (
        'x: R.Tensor((7, 2, 3), "float32"), w: R.Tensor((2, 3, 8), "float32")',
        "ind,ndh->ih",
        "y = R.reshape(x, shape=(7, 6))\ny_1 = R.reshape(w, shape=(6, 8))\ny_2 = R.matmul(y, y_1)",
    ),
    "a matrix and a vector": (
        'x: R.Tensor((4, 6), "float32"), w: R.Tensor((6,), "float32")',
        "mk,k",
        "y = R.matmul(x, w)",
    ),
    "no sum": (
        'x: R.Tensor((4, "n"), "float32"), w: R.Tensor((4,), "float32")',
        "an,a->na",
        "y = R.permute_dims(x, axes=(1, 0))\ny_1 = R.reshape(w, shape=(1, 4))\ny_2 = R.multiply(y, y_1)",
    ),
    "one operand": (
        'x: R.Tensor((4, 5, 6), "float32"), w: R.Tensor((6,), "float32")',
        "abc->ca",
        "y = R.sum(x, axis=(1,))\ny_1 = R.permute_dims(y, axes=(1, 0))",
    ),
}

KEPT = {
    "a diagonal": ("ii,i->i", (3, 3), (3,)),
    "a sum of one operand": ("ab,bc->c", (2, 3), (3, 4)),
    "products summed element by element": ("ab,ab->b", (2, 3), (2, 3)),
    "a summed axis of size 1": ("ab,bc->ac", (2, 1), (3, 4)),
}


@pytest.mark.parametrize("case", LOWERED)
def test_replaced(case: str) -> None:
    params, equation, after = LOWERED[case]
    operands = "x" if "," not in equation else "x, w"
    last = after.rpartition("\n")[2].partition(" ")[0]
    check_pass(
        LowerEinsum(), params, f'y = R.einsum({operands}, equation="{equation}")\nreturn y', f"{after}\nreturn {last}"
    )


@pytest.mark.parametrize("case", KEPT)
def test_kept(case: str) -> None:
    equation, left, right = KEPT[case]
    params = f'x: R.Tensor({left}, "float32"), w: R.Tensor({right}, "float32")'
    check_unchanged(LowerEinsum(), params, f'y = R.einsum(x, w, equation="{equation}")\nreturn y')


def test_more_operands_are_multiplied_in_pairs_with_a_common_letter() -> None:
    params = 'x: R.Tensor((2, 3), "float32"), z: R.Tensor((4, 5), "float32"), w: R.Tensor((3, 4), "float32")'
    after = "y = R.matmul(x, w)\ny_1 = R.matmul(y, z)\nreturn y_1"
    check_pass(LowerEinsum(), params, 'y = R.einsum(x, z, w, equation="ab,cd,bc->ad")\nreturn y', after)
    check_unchanged(LowerEinsum(), params, 'y = R.einsum(x, z, w, equation="ab,cd,ef->abcdef")\nreturn y')


@pytest.mark.parametrize(
    ("dtype", "equation", "shapes"),
    [
        ("float16", "ab,bc,cd->ad", [(2, 3), (3, 4), (4, 5)]),
        ("bfloat16", "ab,ab,ab->ab", [(2, 3)] * 3),
        ("float32", "ai,bi,ci->abc", [(6, 50), (7, 50), (2, 50)]),
    ],
)
def test_products_of_pairs_are_neither_rounded_to_few_bits_nor_larger_than_the_tensors(
    dtype: str, equation: str, shapes: list[tuple[int, ...]]
) -> None:
    names = [f"x{index}" for index in range(len(shapes))]
    params = ", ".join(f'{name}: R.Tensor({shape}, "{dtype}")' for name, shape in zip(names, shapes, strict=True))
    check_unchanged(LowerEinsum(), params, f'y = R.einsum({", ".join(names)}, equation="{equation}")\nreturn y')


def test_small_products_come_first() -> None:
    params = 'x: R.Tensor((20, 30), "float32"), z: R.Tensor((30, 40), "float32"), w: R.Tensor((40, 1), "float32")'
    after = "y = R.matmul(z, w)\ny_1 = R.matmul(x, y)\nreturn y_1"
    check_pass(LowerEinsum(), params, 'y = R.einsum(x, z, w, equation="ab,bc,cd->ad")\nreturn y', after)


@st.composite
def equations(draw: st.DrawFn) -> tuple[str, list[tuple[int, ...]]]:
    """Return an equation of one operand or more, and shapes; an axis may have size 1 in one of the operands."""
    letters = "abcdef"
    sizes = {letter: draw(st.integers(0, 4)) for letter in letters}
    own = st.lists(st.sampled_from(letters), unique=True, max_size=5)
    terms = draw(st.lists(own, min_size=1, max_size=4))
    used = sorted({letter for term in terms for letter in term})
    result = draw(st.permutations(used)) if used else []
    result = result[: draw(st.integers(0, len(result)))]
    shapes = [tuple(1 if draw(st.integers(0, 9)) == 0 else sizes[letter] for letter in term) for term in terms]
    return f"{','.join(map(''.join, terms))}->{''.join(result)}", shapes


@settings(deadline=None, max_examples=200)
@given(case=equations(), is_symbolic=st.booleans(), seed=st.integers(0, 9))
@example(case=("abc,cd->bad", [(2, 3, 4), (4, 2)]), is_symbolic=True, seed=0)
@example(case=("abc,dcb->da", [(2, 3, 4), (2, 4, 3)]), is_symbolic=True, seed=0)
def test_any_equation(case: tuple[str, list[tuple[int, ...]]], *, is_symbolic: bool, seed: int) -> None:
    """Small integers have exact sums: the results are equal bit for bit, whatever the order."""
    equation, shapes = case
    builder = FunctionBuilder("main")
    terms = equation.partition("->")[0].split(",")
    params = []
    for index, (term, shape) in enumerate(zip(terms, shapes, strict=True)):
        dims = [symbol(letter) if is_symbolic and size > 1 else size for letter, size in zip(term, shape, strict=True)]
        params.append(builder.param(f"x{index}", tensor(tuple(dims), "float64")))
    result = builder.emit("einsum", *params, equation=equation)
    assert isinstance(result, Var)
    module = IRModule({"main": builder.finish(result)})
    lowered = verify(LowerEinsum()(module))
    rng = np.random.default_rng(seed)
    arrays = [rng.integers(-8, 9, shape).astype("float64") for shape in shapes]
    (wanted,) = evaluate_function(module, "main", arrays)
    (found,) = evaluate_function(lowered, "main", arrays)
    np.testing.assert_array_equal(found, wanted, strict=True)
    assert LowerEinsum()(lowered) is lowered
