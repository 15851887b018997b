"""The algebra of symbolic sizes against Python's integers."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from functools import reduce

import pytest
from byoc_core.dims import (
    Dim,
    DimExpr,
    broadcast_dim,
    ceildiv,
    dim_max,
    dim_min,
    evaluate,
    evaluate_at_one,
    exact_div,
    is_name,
    is_nonnegative,
    is_positive,
    match_symbols,
    parse_dim,
    product,
    read_dim,
    solve_symbol,
    substitute,
    symbol,
    symbols_of,
    typical_value,
)
from byoc_core.errors import IRTypeError
from hypothesis import assume, given
from hypothesis import strategies as st

pytestmark = pytest.mark.lowest

OPERATORS: dict[str, Callable[[Dim, Dim], Dim]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "max": dim_max,
    "min": dim_min,
}
Tree = int | str | tuple[str, "Tree", "Tree"]

names = st.sampled_from(["n", "m", "batch"])
leaves = st.integers(-7, 7) | names
trees: st.SearchStrategy[Tree] = st.recursive(
    leaves, lambda inner: st.tuples(st.sampled_from(sorted(OPERATORS)), inner, inner), max_leaves=6
)
sizes = st.fixed_dictionaries({name: st.integers(0, 12) for name in ("n", "m", "batch")})


def build(tree: Tree) -> Dim:
    """The tree as a dimension; a division by a constant zero discards the example."""
    if isinstance(tree, int):
        return tree
    if isinstance(tree, str):
        return symbol(tree)
    left, right = build(tree[1]), build(tree[2])
    assume(tree[0] not in ("//", "%") or right != 0)
    return OPERATORS[tree[0]](left, right)


def compute(tree: Tree, values: dict[str, int]) -> int:
    """The tree over Python's integers, with negative intermediate values possible."""
    if isinstance(tree, int):
        return tree
    if isinstance(tree, str):
        return values[tree]
    left, right = compute(tree[1], values), compute(tree[2], values)
    assume(tree[0] not in ("//", "%") or right != 0)
    result = {"max": max, "min": min}.get(tree[0])
    value = result(left, right) if result else OPERATORS[tree[0]](left, right)
    assert isinstance(value, int)
    return value


@given(trees, sizes)
def test_a_dimension_has_the_value_that_python_computes(tree: Tree, values: dict[str, int]) -> None:
    expected = compute(tree, values)
    assert evaluate(build(tree), values) == expected


@given(trees, trees, trees)
def test_ring_laws(first: Tree, second: Tree, third: Tree) -> None:
    a, b, c = build(first), build(second), build(third)
    assert a + b == b + a
    assert a * b == b * a
    assert (a + b) + c == a + (b + c)
    assert (a * b) * c == a * (b * c)
    assert a * (b + c) == a * b + a * c
    assert a + 0 == a
    assert a * 1 == a
    assert a * 0 == 0
    assert a - a == 0
    assert a - b == a + -b
    assert hash(a + b) == hash(b + a)


@given(trees)
def test_parsing_what_was_printed_gives_the_dimension_back(tree: Tree) -> None:
    dim = build(tree)
    assert parse_dim(str(dim)) == dim
    assert str(parse_dim(str(dim))) == str(dim)
    assert parse_dim(dim) is dim


@given(trees, st.fixed_dictionaries({"n": trees, "m": trees}), sizes)
def test_substituting_and_evaluating_commute(tree: Tree, replaced: dict[str, Tree], values: dict[str, int]) -> None:
    inner = {name: compute(by, values) for name, by in replaced.items()}
    assume(all(size >= 0 for size in inner.values()))
    expected = compute(tree, {**values, **inner})
    assert evaluate(substitute(build(tree), {n: build(t) for n, t in replaced.items()}), values) == expected


@given(trees)
def test_substituting_nothing_changes_nothing(tree: Tree) -> None:
    dim = build(tree)
    assert substitute(dim, {}) == dim
    assert substitute(dim, {name: symbol(name) for name in symbols_of(dim)}) == dim


@given(trees, trees)
def test_substitution_is_simultaneous(first: Tree, second: Tree) -> None:
    n, m = symbol("n"), symbol("m")
    assert substitute(n - m, {"n": m, "m": n}) == m - n


@given(trees, trees, sizes)
def test_exact_division_undoes_multiplication(first: Tree, second: Tree, values: dict[str, int]) -> None:
    a, b = build(first), build(second)
    assume(b != 0)
    assert exact_div(a * b, b) == a


@given(trees, trees)
def test_an_exact_quotient_times_the_divisor_is_the_dividend(first: Tree, second: Tree) -> None:
    a, b = build(first), build(second)
    quotient = exact_div(a, b)
    assert quotient is None or quotient * b == a


@given(trees, trees, sizes)
def test_known_signs_and_bounds_are_true(first: Tree, second: Tree, values: dict[str, int]) -> None:
    a, b = build(first), build(second)
    left, right = compute(first, values), compute(second, values)
    assert not is_nonnegative(a) or left >= 0
    assert not is_positive(a) or left >= 1
    assert evaluate(dim_max(a, b), values) == max(left, right)
    assert evaluate(dim_min(a, b), values) == min(left, right)


@given(trees, trees)
def test_extrema_are_lattice_operations(first: Tree, second: Tree) -> None:
    a, b = build(first), build(second)
    for extremum in (dim_max, dim_min):
        assert extremum(a, a) == a
        assert extremum(a, b) == extremum(b, a)
        assert extremum(extremum(a, b), a) == extremum(a, b)


@given(st.permutations(["n", "m", "batch", "n + 1", "2*m"]))
def test_nested_calls_have_one_form_whatever_their_order(texts: list[str]) -> None:
    for combine in (dim_max, dim_min, broadcast_dim):
        forwards = reduce(combine, map(parse_dim, texts))
        backwards = reduce(lambda done, next_: combine(next_, done), map(parse_dim, ["batch", "m", "n", "n+1", "2*m"]))
        assert forwards == backwards
        assert parse_dim(str(forwards)) == forwards


@given(trees, trees, sizes)
def test_quotient_and_remainder_make_the_dividend(first: Tree, second: Tree, values: dict[str, int]) -> None:
    a, b = build(first), build(second)
    dividend, divisor = compute(first, values), compute(second, values)
    assume(b != 0 and divisor != 0)
    assert evaluate(a // b, values) * divisor + evaluate(a % b, values) == dividend


@given(trees, st.integers(1, 6), st.integers(1, 6))
def test_common_factors_and_repeated_divisions_have_one_form(tree: Tree, divisor: int, factor: int) -> None:
    dim = build(tree)
    assert (dim * factor) // (divisor * factor) == dim // divisor
    n = symbol("n")
    assert n // divisor // factor == n // (divisor * factor)


@pytest.mark.parametrize(
    "text",
    [
        "max(m, n) - n",
        "n - min(m, n)",
        "n - n//4",
        "n - (3*n)//4",
        "3 - n%4",
        "n*max(m, 3) - 3*n",
        "max(m, n) - min(m, n)",
        "n + m - broadcast(m, n)",
        "min(n+m, 1024) - min(n, 1024)",
        "n - n//(m+1)",
        "n - n%(m+1)",
        "m - n%(m+1)",
    ],
)
def test_signs_follow_from_the_bounds_of_calls(text: str) -> None:
    assert is_nonnegative(parse_dim(text))
    assert not is_nonnegative(parse_dim(text) - 1)


def test_signs_of_deeply_nested_calls_are_proved_in_short_time() -> None:
    """Without memory of proved parts, each level takes three times as long."""
    size: Dim = symbol("n")
    for _ in range(30):
        size = dim_max(0, (size - 1) // 2)
    assert is_nonnegative(size)
    assert not is_nonnegative(size - 1)


@given(trees, st.integers(-5, 5).filter(bool), sizes)
def test_ceildiv_rounds_up(tree: Tree, divisor: int, values: dict[str, int]) -> None:
    expected = -(-compute(tree, values) // divisor)
    assert evaluate(ceildiv(build(tree), divisor), values) == expected


@given(st.integers(-4, 4).filter(bool), st.integers(-9, 9), st.integers(0, 20))
def test_a_linear_size_is_solved_for_its_symbol(factor: int, constant: int, size: int) -> None:
    dim = factor * symbol("n") + constant
    assert solve_symbol(dim, factor * size + constant) == ("n", size)


@pytest.mark.parametrize(
    ("text", "value"), [("2*n", 3), ("n+4", 3), ("n*n", 4), ("n+m", 4), ("n//2", 1), ("3", 3), ("max(m, n)", 1)]
)
def test_what_has_no_single_solution_is_not_solved(text: str, value: int) -> None:
    assert solve_symbol(parse_dim(text), value) is None


@given(trees, st.integers(0, 9), sizes)
def test_broadcasting_follows_numpy(tree: Tree, other: int, values: dict[str, int]) -> None:
    dim, value = build(tree), compute(tree, values)
    assume(value >= 0)
    size = other if value == 1 else (1, value)[other % 2]
    expected = size if value == 1 else value
    assert evaluate(broadcast_dim(dim, size), values) == expected
    assert evaluate(broadcast_dim(size, dim), values) == expected
    both = broadcast_dim(dim, symbol("s"))
    assert evaluate(both, {**values, "s": size}) == expected


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("n", "n"),
        (" 3 ", "3"),
        ("-3", "-3"),
        ("1 + n*2", "2*n+1"),
        ("n - n", "0"),
        ("-n", "-n"),
        ("n*n*m - 2", "m*n*n-2"),
        ("(n + 1)*(n - 1)", "n*n-1"),
        ("n // 4", "n//4"),
        ("3*(n//4)", "3*(n//4)"),
        ("(4*n + 2)//4", "n"),
        ("(4*n + 6)//4", "n+1"),
        ("(5*n)//4", "n+(n//4)"),
        ("(n+1)//(m-1)", "(n+1)//(m-1)"),
        ("(4*n + 7) % 4", "3"),
        ("(5*n) % 4", "n%4"),
        ("n % n", "0"),
        ("max(n, m)", "max(m, n)"),
        ("max(n, 2*n)", "2*n"),
        ("min(n, n + 1)", "n"),
        ("max(n, 0)", "n"),
        ("broadcast(n, 1)", "n"),
        ("broadcast(n, 7)", "7"),
        ("broadcast(n, m)", "broadcast(m, n)"),
        ("broadcast(n, broadcast(m, n))", "broadcast(m, n)"),
        ("broadcast(n + 2, m)", "n+2"),
        ("max(max(n, 3), 5)", "max(5, n)"),
        ("max(n, min(m, n))", "n"),
        ("(2*n)//4", "n//2"),
        ("(6*n + 5)//4", "n+(n//2)+1"),
        ("n//2//3", "n//6"),
        ("(n % 4)//4", "0"),
        ("n % 4 % 6", "n%4"),
        ("(n*past + n*seq)//(past + seq)", "n"),
        ("(n*past + n*seq) % (past + seq)", "0"),
        ("max(n, m)*2 + max(m, n)", "3*max(m, n)"),
        ("floordiv", "floordiv"),
    ],
)
def test_canonical_form(text: str, printed: str) -> None:
    assert str(parse_dim(text)) == printed


@pytest.mark.parametrize(
    ("dividend", "divisor", "quotient"),
    [
        ("4*n+4", "n+1", "4"),
        ("n*n-m*m", "n-m", "m+n"),
        ("n*m*2", "m", "2*n"),
        ("6", "4", None),
        ("6*n", "4", None),
        ("n", "m", None),
        ("n*n+1", "n+1", None),
        ("0", "n", "0"),
        ("n", "0", None),
        ("n//2*3", "n//2", "3"),
        ("-6", "-3", "2"),
    ],
)
def test_exact_division(dividend: str, divisor: str, quotient: str | None) -> None:
    result = exact_div(parse_dim(dividend), parse_dim(divisor))
    assert (None if result is None else str(result)) == quotient


def test_constants_are_plain_integers() -> None:
    n = symbol("n")
    assert type(n - n + 3) is int
    assert isinstance(n + 3, DimExpr)
    assert repr(n + 3) == "<dim n+3>"
    assert product([2, n, 3]) == 6 * n
    assert product([]) == 1
    assert 7 // n != 7
    assert str(7 % n) == "7%n"


def test_symbols_are_found_at_any_depth() -> None:
    assert symbols_of(parse_dim("max(n//2, m) + k*3")) == {"n", "m", "k"}
    assert symbols_of(4) == frozenset()


@pytest.mark.parametrize("name", ["n", "N_1", "é", "match"])
def test_names(name: str) -> None:
    assert is_name(name)
    assert str(symbol(name)) == name
    assert parse_dim(name) == symbol(name)


@pytest.mark.parametrize("name", ["", "1n", "a b", "lambda", "None", "ｎ"])
def test_what_python_does_not_read_back_is_no_name(name: str) -> None:
    assert not is_name(name)
    with pytest.raises(IRTypeError) as caught:
        symbol(name)
    assert str(caught.value) == f"dim: {name!r} cannot name a symbol; expected a Python identifier"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "n +",
        "1.5",
        "n/2",
        "n**2",
        "f(n)",
        "max(n)",
        "max(n, m, 3)",
        "max(n, m, key=3)",
        "True",
        "'n'",
        "n.m",
        "n if n else m",
        "\x00",
        "(" * 500 + "n" + ")" * 500,
        "+n",
        "not n",
    ],
)
def test_text_that_is_no_dimension(text: str) -> None:
    with pytest.raises(IRTypeError) as caught:
        parse_dim(text)
    assert str(caught.value) == f"dim: cannot read {text!r} as an integer expression"


@given(st.text(alphabet="nm01+-*/%(), max", max_size=12))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        dim = parse_dim(text)
    except IRTypeError:
        return
    assert parse_dim(str(dim)) == dim


@pytest.mark.parametrize(
    ("compute", "text"),
    [
        (lambda: symbol("n") // 0, "dim: division by zero"),
        (lambda: symbol("n") % 0, "dim: division by zero"),
        (lambda: parse_dim("3//(n-n)"), "dim: division by zero"),
        (lambda: evaluate(parse_dim("4//n"), {"n": 0}), "dim: division by zero"),
        (lambda: evaluate(parse_dim("2*n+m+k"), {"m": 1}), "dim: the size of k, n in k+m+2*n is not known"),
        (lambda: broadcast_dim(2, 3), "broadcast: sizes 2 and 3 do not fit; expected equal sizes, or a size of 1"),
        (
            lambda: evaluate(parse_dim("broadcast(n, m)"), {"n": 2, "m": 3}),
            "broadcast: sizes 3 and 2 do not fit; expected equal sizes, or a size of 1",
        ),
        (lambda: parse_dim(True), "dim: a bool is not a size; got True"),
        (lambda: symbol("max"), "dim: 'max' cannot name a symbol; expected a Python identifier"),
    ],
)
def test_errors(compute: Callable[[], object], text: str) -> None:
    with pytest.raises(IRTypeError) as caught:
        compute()
    assert str(caught.value) == text


def test_an_expression_only_meets_dimensions() -> None:
    with pytest.raises(TypeError):
        symbol("n") + "m"  # type: ignore[operator]
    with pytest.raises(TypeError):
        symbol("n") * 1.5  # type: ignore[operator]
    with pytest.raises(TypeError):
        symbol("n") - None  # type: ignore[operator]


def test_a_product_of_many_sums_is_refused() -> None:
    text = "*".join(f"(a{i} + b{i})" for i in range(40))
    with pytest.raises(IRTypeError) as caught:
        parse_dim(text)
    assert str(caught.value) == "dim: a product of sums is too large; expected at most 4096 terms"


def test_reading_refuses_text_that_costs_much() -> None:
    sums = "*".join(f"(a{i}+b{i})" for i in range(7))
    refused = {
        "a" * ((1 << 16) + 1): "dim: a size is longer than 65536 characters",
        "+".join(["a"] * 2050): "dim: a size has more than 2048 operators",
        "(" * 65 + "a" + ")" * 65: "dim: a size is nested more than 64 levels deep",
        sums: "dim: a product of sums is too large; expected at most 64 terms",
        "": "dim: cannot read '' as an integer expression",
    }
    for text, message in refused.items():
        with pytest.raises(IRTypeError) as caught:
            read_dim(text)
        assert str(caught.value) == message


def test_reading_gives_back_what_prints() -> None:
    names = [symbol(name) for name in "abcdef"]
    terms = [left * right * 3 for left in names for right in names]
    wide = product([sum(names[:3], start=1), sum(names[3:], start=2)]) * 2 // (names[0] + 1)
    for dim in (7, -7, sum(terms, start=0), wide, dim_max(wide, names[1]) % 5 - names[2]):
        assert read_dim(str(dim)) == dim


@pytest.mark.parametrize(
    ("declared", "given", "meanings"),
    [
        (["n", 4, "m"], ["k", 4, 7], {"n": "k", "m": 7}),
        (["2*n+1"], ["4*k+3"], {"n": "2*k+1"}),
        (["2*n"], ["k"], {}),
        (["2*n", "n"], ["k", "j"], {"n": "j"}),
        (["n", "n"], [3, 4], {"n": 3}),
        (["n*m", "n//2", "m+n"], [8, 2, 6], {}),
        (["n"], ["min(k, 4)"], {"n": "min(k, 4)"}),
    ],
)
def test_match_symbols(declared: list[int | str], given: list[int | str], meanings: dict[str, int | str]) -> None:
    def dim(value: int | str) -> Dim:
        return parse_dim(value) if isinstance(value, str) else value

    expected = {name: dim(value) for name, value in meanings.items()}
    assert match_symbols(map(dim, declared), map(dim, given)) == expected


@given(st.sampled_from(["broadcast(n+1, m)", "2*broadcast((n+1)//2, m)", "n-broadcast(n, m+2)"]), st.integers(0, 50))
def test_a_typical_value_takes_the_larger_size_of_a_broadcast(text: str, size: int) -> None:
    larger = parse_dim(text.replace("broadcast", "max"))
    assert typical_value(parse_dim(text), size) == evaluate(larger, dict.fromkeys(("n", "m"), size))


def test_a_typical_value_without_meaning_is_zero() -> None:
    assert typical_value(parse_dim("n//m"), 0) == 0
    assert evaluate_at_one(parse_dim("broadcast(n+1, m+2)*3")) == 9


def test_sizes_from_another_process_are_found() -> None:
    """Hashes of texts differ between processes, so a kept hash does not travel."""
    code = (
        "import pickle, sys; from byoc_core.dims import parse_dim\n"
        "dim = parse_dim('max((n+1)//2, m)'); hash(dim), str(dim)\n"
        "sys.stdout.buffer.write(pickle.dumps(dim))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": "1"}, stdout=subprocess.PIPE, check=True
    )
    travelled, own = pickle.loads(done.stdout), parse_dim("max((n+1)//2, m)")
    assert travelled == own
    assert {own: "found"}[travelled] == "found"
