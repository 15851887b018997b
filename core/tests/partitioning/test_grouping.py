"""Grouping on plain graphs: the groups never depend on one another in a cycle."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import pytest
from byoc_core.ir import Binding, Value, Var, tensor
from byoc_core.ops import default_ops
from byoc_core.partitioning.grouping import group_claims
from byoc_core.partitioning.ordering import sort_groups

ROW = tensor((4,))


def graph(claims: Mapping[str, tuple[str | None, Sequence[str]]]) -> list[Binding]:
    """Gives a binding for each name, from its claim and the names of what it reads."""
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
