"""Grouping on plain graphs: the groups never form a cycle."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

import byoc_core.partitioning.merging.grouping
import pytest
from byoc_core.ir import Binding, Value, Var, tensor
from byoc_core.ops import default_ops
from byoc_core.partitioning.merging.grouping import group_claims
from byoc_core.partitioning.merging.ordering import sort_groups

ROW = tensor((4,))


def graph(claims: Mapping[str, tuple[str | None, Sequence[str]]]) -> list[Binding]:
    """Return a binding for each name, from the claim and the names of the operands."""
    source, values, bindings = Var("x", ROW), dict[str, Value](), []
    for name, (claim, reads) in claims.items():
        operands = tuple(values[read] for read in reads) or (source,)
        values[name] = result = Var(name, ROW)
        bindings.append(Binding((result,), default_ops().find("concat"), operands, codegen=claim))
    return bindings


def are_acyclic(bindings: Sequence[Binding], groups: Sequence[int]) -> bool:
    return sort_groups(bindings, groups, [0] * len(bindings)) is not None


def test_a_binding_that_sinks_into_its_group_is_seen_by_what_else_it_reads() -> None:
    # `e` joins the group of `d` at `d`'s stage, which is lower than the one that `a` knew `e` by.
    bindings = graph({
        "a": ("one", ()), "b": (None, ()), "c": ("one", "b"), "d": ("two", "b"), "e": ("two", "ad"),
        "f": ("one", "ca"), "g": ("one", "ce"),
    })  # fmt: skip
    groups = group_claims(bindings, [0] * len(bindings))
    assert are_acyclic(bindings, groups)
    assert groups == [0, 1, 0, 3, 3, 0, 6]


@pytest.mark.parametrize("seed", range(5))
def test_random_graphs_of_two_thousand_ops(seed: int) -> None:
    rng = random.Random(seed)
    claims: dict[str, tuple[str | None, Sequence[str]]] = {}
    for index in range(2000):
        reach = 12 if rng.random() < 0.95 else index
        reads = {f"v{max(0, index - 1 - int(rng.random() ** 2 * reach))}" for _ in range(rng.choice((1, 2, 3)))}
        claims[f"v{index}"] = (rng.choice((None, "one", "two")), sorted(reads) if index else ())
    bindings = graph(claims)
    groups = group_claims(bindings, [0] * len(bindings))
    assert are_acyclic(bindings, groups)


def two_streams(length: int) -> list[Binding]:
    """Return two chains of alternating claims, and joins reading from the start of one and the end of the other."""
    claims: dict[str, tuple[str | None, Sequence[str]]] = {}
    for stream in "ab":
        for index in range(length):
            reads = (f"{stream}{index - 1}",) if index else ()
            claims[f"{stream}{index}"] = (("one", "two")[index % 2], reads)
    for index in range(0, length, 2):
        claims[f"c{index}"] = ("one", (f"a{index}", f"b{length - 1 - index}"))
    return graph(claims)


def test_a_search_goes_on_while_the_budget_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    bindings = two_streams(200)
    monkeypatch.setattr(byoc_core.partitioning.merging.grouping, "_FREE_VISITS", 4)
    groups = group_claims(bindings, [0] * len(bindings))
    assert are_acyclic(bindings, groups)
    assert_maximal(bindings, groups)
    monkeypatch.setattr(byoc_core.partitioning.merging.grouping, "_SEARCH_BUDGET", 0)
    monkeypatch.setattr(byoc_core.partitioning.merging.grouping, "_SEARCH_BUDGET_PER_BINDING", 0)
    bounded = group_claims(bindings, [0] * len(bindings))
    assert are_acyclic(bindings, bounded)
    assert len(set(bounded)) > len(set(groups))


def wide_below() -> list[Binding]:
    """Return `before` and `after`, and a crowd of ancestors of `after` no higher than `before`."""
    claims: dict[str, tuple[str | None, Sequence[str]]] = {f"s{index}": (None, ()) for index in range(50)}
    claims |= {"before": ("one", ("s0",)), "level": (None, [f"s{index}" for index in range(1, 50)])}
    claims |= {f"reader{index}": (None, ("before",)) for index in range(50)}
    return graph(claims | {"between": (None, ("level",)), "after": ("one", ("before", "between"))})


def wide_above() -> list[Binding]:
    """Return `before` and `after`, and a crowd of readers behind an op no lower than `after`."""
    claims: dict[str, tuple[str | None, Sequence[str]]] = {f"s{index}": (None, ()) for index in range(50)}
    claims |= {"root": (None, ()), "before": ("one", ("root",)), "other": (None, ("root",))}
    claims |= {f"middle{index}": (None, (f"s{index}",)) for index in range(50)}
    claims |= {"far": (None, ("other",)), "level": (None, ("before", "far"))}
    claims |= {f"reader{index}": (None, ("level",)) for index in range(50)}
    return graph(claims | {"after": ("one", ("before", "far", *(f"middle{index}" for index in range(50))))})


@pytest.mark.parametrize("make", [wide_below, wide_above])
def test_searches_stay_between_the_stages_of_the_two_groups(
    make: Callable[[], list[Binding]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(byoc_core.partitioning.merging.grouping, "_FREE_VISITS", 12)
    monkeypatch.setattr(byoc_core.partitioning.merging.grouping, "_SEARCH_BUDGET", 0)
    monkeypatch.setattr(byoc_core.partitioning.merging.grouping, "_SEARCH_BUDGET_PER_BINDING", 0)
    bindings = make()
    names = [binding.results[0].name for binding in bindings]
    groups = group_claims(bindings, [0] * len(bindings))
    assert groups[names.index("after")] == groups[names.index("before")]


@pytest.mark.parametrize("length", range(16, 24))
def test_a_way_that_a_search_found_is_not_searched_again(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each reader of a hub depends on the hub by the same long path: a single look at the path suffices."""
    claims: dict[str, tuple[str | None, Sequence[str]]] = {"hub": ("one", ()), "way0": (None, ("hub",))}
    claims |= {f"way{index}": (None, (f"way{index - 1}",)) for index in range(1, length)}
    claims |= {f"reader{index}": ("one", ("hub", f"way{length - 1}")) for index in range(40)}
    bindings = graph(claims | {"before": ("two", ()), "after": ("two", ("before",))})
    names = [binding.results[0].name for binding in bindings]
    for name, value in (("_FREE_VISITS", 0), ("_SEARCH_BUDGET_PER_BINDING", 0)):
        monkeypatch.setattr(byoc_core.partitioning.merging.grouping, name, value)
    monkeypatch.setattr(byoc_core.partitioning.merging.grouping, "_SEARCH_BUDGET", 2 * length + 4 * 40)
    groups = group_claims(bindings, [0] * len(bindings))
    assert groups[names.index("after")] == groups[names.index("before")]
    assert len(set(groups)) == len(bindings) - 1


@pytest.mark.parametrize("seed", range(20))
def test_no_two_neighbours_could_be_merged(seed: int) -> None:
    rng = random.Random(seed)
    claims: dict[str, tuple[str | None, Sequence[str]]] = {}
    for index in range(300):
        reach = index if rng.random() < 0.3 else 9
        reads = {f"v{index - 1 - rng.randrange(min(reach, index))}" for _ in range(rng.choice((1, 2, 3))) if index}
        claims[f"v{index}"] = (rng.choice((None, "one", "two", "three")[: 2 + seed % 3]), sorted(reads))
    bindings = graph(claims)
    assert_maximal(bindings, group_claims(bindings, [0] * len(bindings)))


def assert_maximal(bindings: Sequence[Binding], groups: Sequence[int]) -> None:
    """Check each edge between groups of the same claim for a parallel path through another group."""
    position = {id(result): index for index, binding in enumerate(bindings) for result in binding.results}
    sources: dict[int, set[int]] = {group: set() for group in groups}
    for binding, group in zip(bindings, groups, strict=True):
        sources[group].update(groups[position[id(o)]] for o in binding.operands if id(o) in position)
    for group, found in sources.items():
        found.discard(group)
    reach: dict[int, set[int]] = {}
    while len(reach) < len(sources):
        for group, found in sources.items():
            if group not in reach and found <= reach.keys():
                reach[group] = found.union(*(reach[source] for source in found))
    for group, found in sources.items():
        for before in found:
            claim = bindings[group].codegen
            if claim is not None and bindings[before].codegen == claim:
                assert any(before in reach[other] for other in found - {before})
