"""Broken mergers are caught: a law never broken by any defect would be worthless.

Each mutant patches real functions of the merger. The brute-force laws must catch the mutant alone, with the product's
own checks disarmed, within the first graphs of the long run; a control applies the same laws to the unbroken merger.
The answer of the product's checker to each mutant is recorded too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import pytest
from byoc_core.errors import InternalError
from byoc_core.ir import Binding, Function, IRModule, Var
from byoc_core.partitioning import MergeCompositeFunctions
from byoc_core.partitioning.claiming import fuse
from byoc_core.partitioning.merging import grouping, merge, ordering
from byoc_core.partitioning.merging.outline import Outliner

from core.tests.partitioning.graphs import FIRST_WITH_COUNTS, Case, grow, plan_of_seed
from core.tests.partitioning.laws import LawBrokenError, check_laws
from core.tests.partitioning.trial import check_claims_merged, check_composites_alone, check_same_run

NUM_GRAPHS = 60
"""The number of graphs: seeds 0 to 59 of the long run."""


def without_convexity_check(patch: pytest.MonkeyPatch) -> None:
    """Neighbours of the same claim are merged, regardless of other paths in between."""
    patch.setattr(grouping._Groups, "_is_indirect", lambda self, before, after: False)
    _without_stages(patch)


def with_stale_dependencies(patch: pytest.MonkeyPatch) -> None:
    """A merged group knows the edges of only one half."""
    patch.setattr(grouping, "_union", lambda left, right: left)
    _without_stages(patch)


def without_recheck(patch: pytest.MonkeyPatch) -> None:
    """Paths are searched in the graph before any merge."""

    groups = grouping._Groups

    class Judging(groups):  # type: ignore[misc, valid-type]
        def __init__(self, count: int) -> None:
            super().__init__(count)
            self._single = groups(count)
            self._sources: dict[int, Sequence[int]] = {}

        def add(self, position: int, sources: Sequence[int]) -> None:
            super().add(position, sources)
            self._single.add(position, sources)
            self._sources[position] = sources
            self._last = position

        def _is_indirect(self, before: int, after: int) -> bool:
            if not super()._is_indirect(before, after):
                return False
            read = [source for source in self._sources[self._last] if self.find(source) == before]
            return any(self._single._is_indirect(source, self._last) for source in read)

    patch.setattr(grouping, "_Groups", Judging)
    _without_stages(patch)


def _without_stages(patch: pytest.MonkeyPatch) -> None:
    """Renumbering would never end on a mutant's cycles; all stages stay within a search's bounds."""
    patch.setattr(grouping._Groups, "_raise_successors", lambda self, before, after, stage: None)


def with_results_out_of_order(patch: pytest.MonkeyPatch) -> None:
    """The call of a region names the results in reverse order."""
    outline = Outliner.outline

    def reversed_outline(self: Outliner, *arguments: object) -> Binding:
        call = outline(self, *arguments)  # type: ignore[arg-type]
        return replace(call, results=call.results[::-1])

    patch.setattr(Outliner, "outline", reversed_outline)


def with_impure_crossed(patch: pytest.MonkeyPatch) -> None:
    """Impure bindings are no barriers."""
    patch.setattr(merge, "barrier_epochs", lambda function, functions: [0] * len(function.bindings))


def _change_regions(patch: pytest.MonkeyPatch, change: Callable[[Function, Binding], tuple[Function, Binding]]) -> None:
    """Change each region and the call during creation."""
    outline = Outliner.outline

    def changed(self: Outliner, *arguments: object) -> Binding:
        call = outline(self, *arguments)  # type: ignore[arg-type]
        symbol = str(call.attrs["callee"])
        self.functions[symbol], call = change(self.functions[symbol], call)
        return call

    patch.setattr(Outliner, "outline", changed)


def merging_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(grouping._Groups, "_is_indirect", lambda self, before, after: True)


def with_inputs_out_of_order(patch: pytest.MonkeyPatch) -> None:
    _change_regions(
        patch,
        lambda region, call: (
            replace(region, params=region.params[::-1]),
            replace(call, operands=call.operands[::-1]),
        ),
    )


def with_every_result_an_output(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(merge, "_outputs", lambda members, readers: [r for member in members for r in member.results])


def for_another_backend(patch: pytest.MonkeyPatch) -> None:
    _change_regions(patch, lambda region, call: (region.with_attrs(Codegen="other"), call))


def with_an_op_twice(patch: pytest.MonkeyPatch) -> None:
    def twice(region: Function, call: Binding) -> tuple[Function, Binding]:
        last = region.bindings[-1]
        repeated = replace(last, results=tuple(Var(result.name, result.type) for result in last.results))
        return replace(region, bindings=(*region.bindings, repeated)), call

    _change_regions(patch, twice)


OTHER_LAWS = [
    (merging_nothing, "maximal"),
    (with_inputs_out_of_order, "inputs"),
    (with_every_result_an_output, "outputs"),
    (for_another_backend, "claims"),
    (with_an_op_twice, "one place"),
]
"""One mutant for each law that the five above leave alone."""


@dataclass(frozen=True)
class Mutant:
    """A broken merger.

    Attributes:
        breaks: applies the patches.
        laws: the broken laws.
        refusal: the merger's complaint about its own regions beforehand; empty if nothing is noticed.
        checker: a complaint of the product's checker about some graphs; all graphs have complaints.
    """

    breaks: Callable[[pytest.MonkeyPatch], None]
    laws: frozenset[str]
    refusal: str
    checker: str


CAUGHT_WITHIN = 10
"""The laws catch each mutant within this number of graphs, seeds 0 to 9."""

_CYCLE_LAWS = frozenset({"convex", "acyclic"})
_CYCLE = "the regions depend on each other in a cycle"
_EARLY = "is read before the definition"
MUTANTS = [
    Mutant(without_convexity_check, _CYCLE_LAWS, _CYCLE, _EARLY),
    Mutant(with_stale_dependencies, _CYCLE_LAWS, _CYCLE, _EARLY),
    Mutant(without_recheck, _CYCLE_LAWS, _CYCLE, _EARLY),
    Mutant(with_results_out_of_order, frozenset({"same program", "same results"}), "", "changed the results of"),
    Mutant(with_impure_crossed, frozenset({"impure"}), "", "the impure ops around an op"),
]


@pytest.fixture(scope="module")
def sample() -> list[Case]:
    return [grow(plan_of_seed(seed)) for seed in range(NUM_GRAPHS)]


def _disarm(patch: pytest.MonkeyPatch, *, checker: bool) -> None:
    """Remove the merger's refusal of cycles, and the product's checker."""

    def sort_somehow(bindings: Sequence[Binding], group_of: Sequence[int], epochs: Sequence[int]) -> list[list[int]]:
        members: dict[int, list[int]] = {}
        for position, group in enumerate(group_of):
            members.setdefault(group, []).append(position)
        return ordering.sort_groups(bindings, group_of, epochs) or list(members.values())

    patch.setattr(merge, "sort_groups", sort_somehow)
    if checker:
        patch.setattr(merge, "check_partition", lambda before, after: None)


def _broken_law(case: Case) -> str:
    """Return the law broken by the merger on a graph, or an empty text."""
    claimed = case.claimed()
    try:
        after = MergeCompositeFunctions()(claimed)
        check_laws(claimed, after, case.claims)
        check_same_run(case, after)
    except LawBrokenError as error:
        return error.law
    return ""


@pytest.fixture(scope="module")
def unbroken(sample: list[Case]) -> list[IRModule]:
    return [MergeCompositeFunctions()(case.claimed()) for case in sample]


def _changed(sample: list[Case], unbroken: list[IRModule]) -> list[int]:
    """Return the graphs with a different result of the merger, now broken and disarmed."""
    broken = [MergeCompositeFunctions()(case.claimed()) for case in sample]
    return [index for index, pair in enumerate(zip(unbroken, broken, strict=True)) if pair[0] != pair[1]]


def _complaints(sample: list[Case], indices: Sequence[int]) -> list[str]:
    """Return the product's complaint about each graph, empty without complaint."""
    complaints = []
    for index in indices:
        try:
            MergeCompositeFunctions()(sample[index].claimed())
            complaints.append("")
        except InternalError as error:
            complaints.append(str(error).splitlines()[0])
    return complaints


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.breaks.__name__)
def test_the_laws_alone_catch_a_broken_merger(
    mutant: Mutant, sample: list[Case], unbroken: list[IRModule], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant.breaks(monkeypatch)
    _disarm(monkeypatch, checker=True)
    caught = {index: law for index, case in enumerate(sample) if (law := _broken_law(case))}
    assert min(caught) < CAUGHT_WITHIN
    assert set(caught.values()) <= mutant.laws
    assert list(caught) == _changed(sample, unbroken)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.breaks.__name__)
def test_the_product_catches_a_broken_merger(
    mutant: Mutant, sample: list[Case], unbroken: list[IRModule], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant.breaks(monkeypatch)
    with monkeypatch.context() as disarmed:
        _disarm(disarmed, checker=True)
        changed = _changed(sample, unbroken)
    if mutant.refusal:
        assert all(mutant.refusal in text for text in _complaints(sample, changed))
    _disarm(monkeypatch, checker=False)
    complaints = _complaints(sample, changed)
    assert any(mutant.checker in text for text in complaints)
    assert all(complaints)


@pytest.mark.parametrize(("breaks", "law"), OTHER_LAWS, ids=lambda value: getattr(value, "__name__", value))
def test_each_other_law_catches_what_breaks_it(
    breaks: Callable[[pytest.MonkeyPatch], None], law: str, sample: list[Case], monkeypatch: pytest.MonkeyPatch
) -> None:
    breaks(monkeypatch)
    _disarm(monkeypatch, checker=True)
    assert {_broken_law(case) for case in sample[:CAUGHT_WITHIN]} <= {law, ""}
    assert any(_broken_law(case) for case in sample[:CAUGHT_WITHIN])


def sharing_what_the_data_sizes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(grouping, "may_share", lambda binding: binding.codegen is not None)


def giving_an_unread_value(patch: pytest.MonkeyPatch) -> None:
    """Each composite returns the result of the first op, too."""
    composite = fuse._Fuser._composite

    def changed(self: object, candidate: object) -> Binding:
        binding = composite(self, candidate)  # type: ignore[arg-type]
        (body,) = binding.regions
        extra = body.bindings[0].results[0]
        if any(result is extra for result in body.results):
            return binding
        body = replace(body, results=(*body.results, extra))
        return replace(binding, results=(*binding.results, Var(extra.name, extra.type)), regions=(body,))

    patch.setattr(fuse._Fuser, "_composite", changed)


def _law_broken_by(check: Callable[[Case], int], case: Case) -> str:
    try:
        check(case)
    except LawBrokenError as error:
        return error.law
    return ""


@pytest.mark.parametrize(
    ("breaks", "check", "law"),
    [
        (sharing_what_the_data_sizes, partial(check_claims_merged, sideways=False), "alone"),
        (giving_an_unread_value, check_composites_alone, "composites"),
    ],
    ids=["alone", "composites"],
)
def test_the_laws_of_sizes_and_composites_catch_what_breaks_them(
    breaks: Callable[[pytest.MonkeyPatch], None],
    check: Callable[[Case], int],
    law: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cases = [grow(plan_of_seed(seed)) for seed in range(FIRST_WITH_COUNTS, FIRST_WITH_COUNTS + 15)]
    _disarm(monkeypatch, checker=True)
    assert {_law_broken_by(check, case) for case in cases} == {""}
    breaks(monkeypatch)
    assert {_law_broken_by(check, case) for case in cases} == {"", law}


def test_the_unbroken_merger_breaks_no_law(
    sample: list[Case], unbroken: list[IRModule], monkeypatch: pytest.MonkeyPatch
) -> None:
    _disarm(monkeypatch, checker=True)
    assert [_broken_law(case) for case in sample] == [""] * NUM_GRAPHS
    assert _changed(sample, unbroken) == []
    assert sum("Codegen" in f.attrs for module in unbroken for f in module.functions.values()) > 500
