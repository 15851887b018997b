"""Merging sideways: claims of a backend share a region without an edge in between."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from byoc_core import script as R
from byoc_core.ir import Binding, Function, IRModule, Value, Var, tensor
from byoc_core.ops import default_ops
from byoc_core.partitioning import MergeCompositeFunctions, check_partition
from byoc_core.partitioning.merging.typed_fusion import fuse_claims
from byoc_core.transform.capture_sizes import CaptureSizes
from byoc_core.transform.specialise import symbols_in
from hypothesis import given, settings
from hypothesis import strategies as st

from core.tests.partitioning.conftest import Cases
from core.tests.partitioning.graphs import Plan, grow, plans

ROW = tensor((4,))


def merged(text: str, *, sideways: bool = True) -> IRModule:
    return MergeCompositeFunctions(sideways=sideways)(R.parse(text))


def regions(module: IRModule) -> dict[str, list[str]]:
    """Return the names of the first results of the ops in each region."""
    return {
        name: [binding.results[0].name for binding in function.bindings]
        for name, function in module.functions.items()
        if "Codegen" in function.attrs
    }


TOWERS = """
def main(x: R.Tensor((4,)), y: R.Tensor((4,))):
    a = R.nn.relu(x, codegen="aone")
    b = R.nn.relu(y, codegen="aone")
    c = R.exp(a)
    d = R.tanh(c, codegen="aone")
    e = R.tanh(b, codegen="aone")
    return d, e
"""


def test_claims_without_an_edge_share_a_region_by_option_only() -> None:
    assert regions(merged(TOWERS, sideways=False)) == {
        "aone_main_0": ["a"],
        "aone_main_1": ["b", "e"],
        "aone_main_2": ["d"],
    }
    assert str(merged(TOWERS)) == str(
        R.parse("""
class Module:
    def aone_main_0(x: R.Tensor((4,)), y: R.Tensor((4,))):
        R.func_attr({"Codegen": "aone", "global_symbol": "aone_main_0", "source": "main"})
        a = R.nn.relu(x)
        b = R.nn.relu(y)
        e = R.tanh(b)
        return a, e
    def aone_main_1(c: R.Tensor((4,))):
        R.func_attr({"Codegen": "aone", "global_symbol": "aone_main_1", "source": "main"})
        d = R.tanh(c)
        return d
    def main(x: R.Tensor((4,)), y: R.Tensor((4,))):
        a, e = aone_main_0(x, y)
        c = R.exp(a)
        d = aone_main_1(c)
        return d, e
""")
    )


def test_an_impure_call_is_a_barrier() -> None:
    module = merged("""
def main(x: R.Tensor((4,)), y: R.Tensor((4,))):
    a = R.nn.relu(x, codegen="aone")
    b = R.call_packed("log", (y,), out_types=[R.Tensor((4,))])
    c = R.nn.relu(y, codegen="aone")
    d = R.tanh(x, codegen="aone")
    return a, b, c, d
""")
    assert regions(module) == {"aone_main_0": ["a"], "aone_main_1": ["c", "d"]}


def test_a_data_dependent_op_stays_alone() -> None:
    module = merged("""
def main(x: R.Tensor((4,)), y: R.Tensor((4,))):
    a = R.nn.relu(x, codegen="aone")
    b = R.nonzero(y, codegen="aone", out_types=[R.Tensor((1, "k"), "int64")])
    c = R.nn.relu(y, codegen="aone")
    d = R.negative(b, codegen="aone")
    return a, b, c, d
""")
    assert regions(module) == {"aone_main_0": ["b"], "aone_main_1": ["a", "c", "d"]}


def test_each_body_is_treated_by_itself() -> None:
    module = merged("""
def main(p: R.Tensor((), "bool"), x: R.Tensor((4,)), y: R.Tensor((4,))):
    def yes(a: R.Tensor((4,)), b: R.Tensor((4,))):
        c = R.nn.relu(a, codegen="aone")
        d = R.nn.relu(b, codegen="aone")
        return c, d
    def no(a: R.Tensor((4,)), b: R.Tensor((4,))):
        c2 = R.tanh(a, codegen="aone")
        d2 = R.tanh(b, codegen="btwo")
        return c2, d2
    e = R.nn.relu(x, codegen="aone")
    f, g = R.if_(p, x, y, regions=[yes, no])
    h = R.nn.relu(y, codegen="aone")
    return e, f, g, h
""")
    assert sorted(regions(module).values()) == [["c", "d"], ["c2"], ["d2"], ["e", "h"]]


def test_the_backend_with_the_most_claims_chooses_first() -> None:
    # One region of either backend leaves the other backend with one region before it and one behind it.
    text = """
def main(x: R.Tensor((4,)), y: R.Tensor((4,))):
    a = R.nn.relu(x, codegen="{0}")
    b = R.tanh(a, codegen="{1}")
    c = R.tanh(y, codegen="{1}")
    d = R.nn.relu(c, codegen="{0}")
    e = R.negative(d, codegen="{0}")
    return b, e
"""
    for few, many in itertools.permutations(("aone", "btwo")):
        found = regions(merged(text.format(many, few)))
        assert sorted(found.values()) == [["a", "d", "e"], ["b"], ["c"]]


Graph = Sequence[tuple[str | None, Sequence[int], int]]
"""For each op the claim, the operands, and the epoch."""


@st.composite
def graphs(draw: st.DrawFn, backends: Sequence[str], max_size: int) -> Graph:
    claims = (None, *backends, *backends)
    size = draw(st.integers(1, max_size))
    epoch, ops = 0, []
    for position in range(size):
        reads = draw(st.lists(st.integers(0, position - 1), max_size=3, unique=True)) if position else []
        impure = draw(st.integers(0, 9)) == 9
        epoch += impure
        ops.append((None if impure else draw(st.sampled_from(claims)), reads, epoch))
        epoch += impure
    return ops


def bindings_of(graph: Graph) -> list[Binding]:
    source, bindings = Var("x", ROW), list[Binding]()
    for position, (claim, reads, _) in enumerate(graph):
        operands: tuple[Value, ...] = tuple(bindings[read].result for read in reads) or (source,)
        result = (Var(f"v{position}", ROW),)
        bindings.append(Binding(result, default_ops().find("concat"), operands, codegen=claim))
    return bindings


def is_acyclic(graph: Graph, group_of: Sequence[int]) -> bool:
    """Return whether the groups can run in sequence, epoch by epoch."""
    sources: dict[int, set[int]] = {group: set() for group in group_of}
    for position, (_, reads, epoch) in enumerate(graph):
        group = group_of[position]
        sources[group].update(group_of[read] for read in reads)
        sources[group].update(group_of[p] for p, (_, _, other) in enumerate(graph) if other < epoch)
        if any(graph[p][2] != epoch for p, other in enumerate(group_of) if other == group):
            return False
    for group, needed in sources.items():
        needed.discard(group)
    done: set[int] = set()
    while ready := {group for group, needed in sources.items() if group not in done and needed <= done}:
        done |= ready
    return len(done) == len(sources)


def groupings(graph: Graph, position: int = 0, groups: tuple[tuple[int, ...], ...] = ()) -> Iterator[list[int]]:
    """Yield every partition into groups of the same backend and epoch."""
    if position == len(graph):
        named = {member: group[0] for group in groups for member in group}
        yield [named[p] for p in range(len(graph))]
        return
    claim, _, epoch = graph[position]
    yield from groupings(graph, position + 1, (*groups, (position,)))
    for index, group in enumerate(groups):
        if claim is not None and graph[group[0]][0] == claim and graph[group[0]][2] == epoch:
            yield from groupings(graph, position + 1, (*groups[:index], (*group, position), *groups[index + 1 :]))


def fused(graph: Graph) -> list[int]:
    return fuse_claims(bindings_of(graph), [epoch for _, _, epoch in graph])


@settings(max_examples=3 * settings().max_examples, deadline=None)
@given(graph=graphs(("one",), 7))
def test_one_backend_has_the_fewest_groups(graph: Graph) -> None:
    least = min(len(set(groups)) for groups in groupings(graph) if is_acyclic(graph, groups))
    found = fused(graph)
    assert is_acyclic(graph, found)
    assert len(set(found)) == least


@settings(max_examples=3 * settings().max_examples, deadline=None)
@given(graph=graphs(("one", "two", "three"), 24))
def test_no_two_groups_of_one_backend_could_be_merged(graph: Graph) -> None:
    groups = fused(graph)
    assert is_acyclic(graph, groups)
    assert all(groups[group] == group <= position for position, group in enumerate(groups))
    for first, second in itertools.combinations(sorted(set(groups)), 2):
        claim, _, epoch = graph[first]
        if claim is not None and graph[second][0] == claim and graph[second][2] == epoch:
            assert not is_acyclic(graph, [first if group == second else group for group in groups])


@settings(max_examples=settings().max_examples * 3 // 5, deadline=None)
@given(data=st.data())
def test_modules_stay_lawful(data: st.DataObject, cases: Cases) -> None:
    case = data.draw(cases(60))
    claimed = case.claimed()
    merge = MergeCompositeFunctions(sideways=True)
    after = merge(claimed)
    check_partition(claimed, after)
    assert repr(case.evaluate(after)) == repr(case.evaluate(claimed))
    assert merge(after) is after
    assert MergeCompositeFunctions()(after) is after


@settings(max_examples=settings().max_examples * 3 // 5, deadline=None)
@given(plan=plans(30, symbolic=True), sideways=st.booleans())
def test_separated_backends_have_regions_of_known_sizes_or_of_symbolic_ones(plan: Plan, sideways: bool) -> None:
    claimed = grow(plan).claimed()
    backends = {str(binding.codegen) for function in claimed.functions.values() for binding in function.walk()}
    separated = frozenset(sorted(backends - {"None"})[:2])
    merge = MergeCompositeFunctions(sideways, separated)
    after = merge(claimed)
    check_partition(CaptureSizes()(claimed), after)
    assert merge(after) is after
    for function in after.functions.values():
        if function.attrs.get("Codegen") in separated:
            parts = [Function("op", (), (binding,), ()) for binding in function.bindings]
            assert len({bool(symbols_in(part)) for part in parts}) == 1
