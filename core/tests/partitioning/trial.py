"""Partition of a graph, with all laws for the result."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from byoc_core.backend import Estimate
from byoc_core.ir import Function, IRModule
from byoc_core.partitioning import ByCost, FuseOpsByPattern, MergeCompositeFunctions, RunCodegen, partition

from core.tests.conftest import FakeBackend, with_inlined_externals
from core.tests.partitioning.constraint_laws import check_constraints, draw_options, ops_of
from core.tests.partitioning.graphs import Case
from core.tests.partitioning.laws import Facts, LawBrokenError, check_laws

__all__ = [
    "check_case",
    "check_claims_merged",
    "check_composites_alone",
    "check_constrained",
    "check_placed_by_cost",
    "check_same_run",
]


def check_case(case: Case) -> int:
    """Partition and compile a case; return the number of regions.

    Besides the laws of :func:`check_laws`: ``same run`` (numbers and effects, before and after, and once compiled),
    ``deterministic`` (two partitions are equal) and ``stable`` (a second run changes nothing).

    Raises:
        LawBrokenError: the first broken law.
        InternalError: the product's own checker found something.
    """
    fakes = case.plugins(FakeBackend)
    after = partition(case.module, fakes)
    facts = check_laws(case.module, after, case.claims)
    run = case.evaluate(case.module)
    check_same_run(case, after, run)
    text = str(after)
    if str(partition(case.module, fakes)) != text:
        raise LawBrokenError("deterministic", "a second run from the same module prints another text")
    repeated = partition(after, fakes)
    if repeated != after or str(repeated) != text:
        raise LawBrokenError("stable", "a second run after the first changes the module")
    compiled = RunCodegen(backends=fakes)(after)
    if any("Codegen" in function.attrs for function in compiled.functions.values()):
        raise LawBrokenError("same run", "codegen left an annotated function")
    check_same_run(case, with_inlined_externals(compiled), run)
    return len(facts.calls)


def check_claims_merged(case: Case, *, sideways: bool) -> int:
    """Merge the claims of a case without patterns; return the number of regions.

    Raises:
        LawBrokenError: the first broken law.
    """
    merge = MergeCompositeFunctions(sideways=sideways)
    before = case.claimed()
    after = merge(before)
    facts = check_laws(before, after, case.claims, sideways=sideways)
    check_same_run(case, after)
    if merge(after) is not after:
        raise LawBrokenError("stable", "a second run after the first changes the module")
    return len(facts.calls)


def check_composites_alone(case: Case) -> int:
    """Make a region of each composite of a case; return their number.

    Raises:
        LawBrokenError: the first broken law; regions are not merged, so not maximal.
    """
    after = FuseOpsByPattern(case.patterns, annotate_codegen=True)(case.module)
    facts = check_laws(case.module, after, maximal=False)
    check_same_run(case, after)
    return len(facts.calls)


def check_constrained(case: Case, seed: int) -> int:
    """Partition a case under constraints drawn from a seed; return the number of regions.

    Raises:
        LawBrokenError: the first broken law. Regions given back separate others, so with limits on regions these are
            not maximal.
    """
    if not ops_of(case.module):
        return 0
    options = draw_options(case, random.Random(seed))
    fakes = case.plugins(FakeBackend)
    after = partition(case.module, fakes, partition_options=options)
    has_limits = options.min_ops or options.min_flops or options.min_bytes
    facts = check_laws(case.module, after, maximal=not has_limits, sideways=options.sideways)
    check_same_run(case, after)
    check_constraints(case, after, options, _backends_of_ops(facts))
    if partition(after, fakes, partition_options=options) != after:
        raise LawBrokenError("stable", "a second run under the same constraints changes the module")
    return len(facts.calls)


def check_placed_by_cost(case: Case, seed: int) -> int:
    """Partition a case by the costs estimated by backends; return the number of regions.

    Raises:
        LawBrokenError: the first broken law.
    """
    case = case.with_claims_by_kind()
    rng = random.Random(seed)
    per_op, call = rng.choice((1e-9, 3e-8, 3e-7)), rng.choice((1e-9, 1e-7, 1e-6))

    def estimate(function: Function) -> Estimate:
        return Estimate(len(function.bindings) * per_op, call_seconds=call, bytes_per_second=2e8)

    after = partition(case.module, case.plugins(FakeBackend, estimate=estimate), policy=ByCost())
    facts = check_laws(case.module, after)
    for name, backend in _backends_of_ops(facts).items():
        expected = facts.composite_of.get(name, "").partition(".")[0] or case.claims.get(name)
        if backend != expected:
            raise LawBrokenError("claims", f"{name} went to {backend}, which takes it no more than {expected}")
    check_same_run(case, after)
    return len(facts.calls)


def _backends_of_ops(facts: Facts) -> dict[str, str]:
    return {name: facts.backend_of[region] for name, region in facts.region_of.items()}


def check_same_run(
    case: Case,
    after: IRModule,
    run: tuple[list[Any], list[Any]] | None = None,
    inputs: Sequence[npt.NDArray[Any]] | None = None,
) -> None:
    """Check a module for the same results bit for bit, and the same effects in the same order.

    Args:
        case: the module's origin.
        after: the module.
        run: results and effects of the case, if known.
        inputs: arguments of the module's ``main``, if not the case's.

    Raises:
        LawBrokenError: a difference.
    """
    results, effects = case.evaluate(after, inputs)
    expected_results, expected_effects = run if run is not None else case.evaluate(case.module)
    if effects != expected_effects:
        raise LawBrokenError("same run", f"effects were {expected_effects}, are {effects}")
    for have, want in zip(results, expected_results, strict=True):
        if have.dtype != want.dtype or not np.array_equal(have, want):
            raise LawBrokenError("same run", f"a result was {want}, is {have}")
