"""The cost of a search, in steps: pairs of a part of the pattern and a value, and ways put together."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from byoc_core import script as R
from byoc_core.ir import Function, Value, Var
from byoc_core.ops import FunctionBuilder
from byoc_core.pattern import FunctionIndex, Pattern, any_number, find_matches, is_const, is_op, is_var, wildcard
from byoc_core.pattern.fit import Misfit
from byoc_core.pattern.plan import plan_of
from byoc_core.pattern.reachability import MAX_VISITS, Ancestry, is_convex
from byoc_core.pattern.search import MAX_FITS, Search


def emit(builder: FunctionBuilder, op: str, *operands: Value) -> Var:
    return builder.bind(op, operands, {}).result


def steps(pattern: Pattern, main: Function) -> tuple[int, int]:
    """Return the number of ways at the last op, and the number of steps of the search."""
    search = Search(plan_of(pattern), FunctionIndex(main))
    answer = search.solve(pattern, main.bindings[-1].results[0])
    return 0 if isinstance(answer, Misfit) else len(answer), search.num_steps


def chain(length: int, op: str = "tanh") -> Function:
    builder = FunctionBuilder("main")
    value: Value = builder.param("x", R.Tensor((4,)))
    for _ in range(length):
        value = emit(builder, op, value)
    return builder.finish(value)


def tree(depth: int, op: str = "add") -> Function:
    """Return a complete binary tree of ops over two to the ``depth`` params."""
    builder = FunctionBuilder("main")
    values: list[Value] = [builder.param(f"x{i}", R.Tensor((4,))) for i in range(2**depth)]
    while len(values) > 1:
        values = [emit(builder, op, left, right) for left, right in zip(values[::2], values[1::2], strict=True)]
    return builder.finish(values[0])


def tree_pattern(depth: int, leaf: Callable[[], Pattern], op: str = "add") -> Pattern:
    if depth == 0:
        return leaf()
    return is_op(op)(tree_pattern(depth - 1, leaf, op), tree_pattern(depth - 1, leaf, op))


def test_a_chain_takes_steps_in_proportion() -> None:
    def measure(length: int) -> tuple[int, int]:
        pattern: Pattern = wildcard()
        for _ in range(length):
            pattern = is_op("tanh")(pattern)
        return steps(pattern, chain(length + 1))

    (_, short), (num_fits, long) = measure(100), measure(2000)
    assert num_fits == 1
    assert long <= 21 * short


def test_nested_optional_parts_are_tried_once_each() -> None:
    """Each level doubles the combinations, but a single combination per length suffices."""

    def measure(levels: int) -> tuple[int, int]:
        pattern: Pattern = is_op("tanh")(is_const())  # never fits, so every combination fails
        for _ in range(levels):
            pattern = pattern.optional(is_op("tanh")).optional(is_op("nn.relu"))
        return steps(is_op("tanh")(pattern), chain(300))

    (none, few), (_, many) = measure(10), measure(40)
    assert none == 0
    assert many <= 4 * 4 * few  # pairs of a level and a value, not 2 ** 40


def test_a_hundred_nested_optional_parts_fit() -> None:
    pattern: Pattern = is_op("tanh")(is_var())
    for _ in range(100):
        pattern = pattern.optional(is_op("tanh"))
    num_fits, num_steps = steps(pattern, chain(100))
    assert num_fits == 1
    assert num_steps <= 3 * 100 * 100


def test_orders_of_a_commutative_tree_are_one_way() -> None:
    """127 ops have 2 ** 127 orders; the pairs at each level are the ops squared."""
    num_fits, num_steps = steps(tree_pattern(7, wildcard), tree(7))
    assert num_fits == 1
    assert num_steps <= 3 * 4**7


def test_a_commutative_tree_that_fails_at_one_leaf_fails_fast() -> None:
    depth = 6
    leaves = iter([*[wildcard() for _ in range(2**depth - 1)], is_const()])
    num_fits, num_steps = steps(tree_pattern(depth, lambda: next(leaves)), tree(depth))
    assert num_fits == 0
    assert num_steps < 4**depth * 4


def test_ways_are_bounded_and_the_preferred_ones_are_given() -> None:
    """All orders of 64 named leaves are distinct ways: 2 ** 63."""
    names = (f"leaf{i}" for i in range(64))
    pattern = tree_pattern(6, lambda: wildcard().named(next(names)))
    main = tree(6)
    matches = list(find_matches(pattern, main.bindings[-1], FunctionIndex(main)))
    assert len(matches) == MAX_FITS
    assert [value for _, value in sorted(matches[0].captures.items(), key=lambda item: int(item[0][4:]))] == [
        *main.params
    ]


def test_repeated_operands_are_linear() -> None:
    def measure(count: int) -> tuple[int, int]:
        builder = FunctionBuilder("main")
        x = builder.param("x", R.Tensor((4,)))
        parts = [emit(builder, "tanh" if i % 2 else "exp", x) for i in range(count)]
        pattern = is_op("concat")(any_number(is_op("tanh")(wildcard()) | is_op("exp")(wildcard())))
        return steps(pattern, builder.finish(emit(builder, "concat", *parts)))

    (_, few), (num_fits, many) = measure(10), measure(500)
    assert num_fits == 1
    assert many <= 50 * few


def test_same_value_constraints_do_not_blow_up() -> None:
    """The same object at every leaf of a tree with distinct leaves: each op rules itself out."""
    same = wildcard()
    num_fits, num_steps = steps(tree_pattern(6, lambda: same), tree(6))
    assert num_fits == 0
    assert num_steps < 4**6 * 4


def test_the_cost_at_each_root_does_not_depend_on_the_function() -> None:
    def measure(length: int) -> int:
        builder = FunctionBuilder("main")
        value: Value = builder.param("x", R.Tensor((4,)))
        for _ in range(length):
            value = emit(builder, "add", emit(builder, "tanh", value), builder.const(np.ones(4, np.float32)))
        main = builder.finish(value)
        index, pattern = FunctionIndex(main), is_op("add")(is_op("tanh")(wildcard()), is_const())
        total = 0
        for binding in main.bindings:
            search = Search(plan_of(pattern), index)
            search.solve(pattern, binding.results[0])
            total += search.num_steps
        return total

    assert measure(1000) == 10 * measure(100)


def ladder(length: int) -> tuple[Function, list[int]]:
    """Return a chain with reads of the first half in the second half, the last op reading the first: nested skips."""
    builder = FunctionBuilder("main")
    values: list[Value] = [emit(builder, "exp", builder.param("x", R.Tensor((4,))))]
    for _ in range(length):
        values.append(emit(builder, "tanh", values[-1]))
    value = values[-1]
    roots: list[int] = []
    for skipped in reversed(values):
        value = emit(builder, "add", emit(builder, "nn.relu", value), skipped)
        roots.append(2 * len(roots) + length + 2)
    return builder.finish(value), roots


def test_long_skips_are_seen_not_to_be_convex_without_walking_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two ops at start and end are no match: a path leads through the ops in between."""
    visits = 0
    is_on_path = Ancestry.is_on_path

    def counted(self: Ancestry, before: int, after: int) -> bool:
        nonlocal visits
        visits += 1
        return is_on_path(self, before, after)

    monkeypatch.setattr(Ancestry, "is_on_path", counted)
    pattern = is_op("add")(wildcard(), is_op("tanh", "exp")(wildcard()))
    counts = []
    for length in (500, 5000):
        main, roots = ladder(length)
        index, visits = FunctionIndex(main), 0
        found = [match for root in roots for match in find_matches(pattern, main.bindings[root], index)]
        assert len(found) == 0
        counts.append(visits)
    assert counts[0] >= 500
    assert counts[1] <= 10.1 * counts[0]


def test_the_search_for_a_way_back_is_bounded() -> None:
    """Beside a long tower independent of the match; found convex if short, given up if long."""

    def make(length: int) -> bool | None:
        builder = FunctionBuilder("main")
        x, y = (builder.param(name, R.Tensor((4,))) for name in "xy")
        first = emit(builder, "tanh", x)
        reader = emit(builder, "exp", first)
        tower: Value = y
        for _ in range(length):
            tower = emit(builder, "nn.relu", tower)
        last = emit(builder, "add", first, tower)
        main = builder.finish(last, reader)
        inside = (main.bindings[0], main.bindings[-1])
        return is_convex(inside, (x, tower), FunctionIndex(main))

    assert make(MAX_VISITS - 1) is True
    assert make(MAX_VISITS + 1) is None


def test_the_longest_ways_know_their_ops() -> None:
    """Against the definition, on a chain with a side branch at every op."""
    builder = FunctionBuilder("main")
    value: Value = builder.param("x", R.Tensor((4,)))
    for _ in range(50):
        value = emit(builder, "add", emit(builder, "tanh", value), emit(builder, "exp", value))
    main = builder.finish(value)
    ancestry = FunctionIndex(main).ancestry()
    assert ancestry.level == [2 * (i // 3) + (i % 3 == 2) for i in range(150)]
    for before in range(150):
        on_way = [after for after in range(150) if ancestry.is_on_path(before, after)]
        side = before % 3 == 0  # the later of two equal parents is on the way
        assert on_way == ([before] if side else [before, *(i for i in range(before + 1, 150) if _below(before, i))])


def _below(before: int, after: int) -> bool:
    """Return whether the longest path to an op passes an earlier op: every ``exp`` and ``add`` but siblings."""
    return not (before % 3 == 1 and after // 3 == before // 3 and after % 3 != 2)
