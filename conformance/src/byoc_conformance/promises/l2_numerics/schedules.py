"""The schedules of an op: right numbers with every name, also with unknown names."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from byoc_core.backend.hooks import CompileContext

from byoc_conformance.core_ops import core_op_names
from byoc_conformance.outcome import Outcome
from byoc_conformance.promise import Level, Promise
from byoc_conformance.promises.l2_numerics.region_forms import (
    ClaimedOp,
    RegionForm,
    hold_forms,
    require_hook,
    thin_out,
    with_schedule,
)
from byoc_conformance.subject import Subject

__all__ = ["PROMISES"]

_UNKNOWN = "no such schedule"
_MAX_FORMS = 6
_MAX_NAMES = 2
"""The numbers of schedules tried for an op, apart from schedules with another first word, and for a case."""


def _compute_scheduled(subject: Subject, case: str) -> Outcome:
    require_hook(subject, "byoc_schedules")
    missing = "the backend names no schedules for the claimed cases"
    duty = "a backend ignores schedules unknown or unfit for an op"
    return hold_forms(subject, case, partial(_forms, subject), missing=missing, duty=duty)


def _forms(subject: Subject, claimed: Sequence[ClaimedOp], context: CompileContext) -> list[RegionForm]:
    """Return claimed ops with names of schedules: an op for each first word of the names, and some others."""
    firsts: list[RegionForm] = []
    more: list[RegionForm] = []
    tried: set[str] = set()
    for op in claimed:
        by_op = subject.handle.schedules(op.question, context)
        offered = dict.fromkeys(name for names in by_op.values() for name in names)
        if offered and not firsts:
            firsts.append(with_schedule(op, _UNKNOWN))
        by_novelty = sorted(offered, key=lambda name: (name.partition(" ")[0] in tried, name in tried))
        for name in by_novelty[:_MAX_NAMES]:
            kind = name.partition(" ")[0]
            (more if kind in tried else firsts).append(with_schedule(op, name))
            tried.update((kind, name))
    return [*firsts, *thin_out(more, max(1, _MAX_FORMS - len(firsts)))]


PROMISES = (
    Promise(
        Level.L2,
        "schedules",
        "computes an op within the same bounds with each schedule named by `byoc_schedules`, and with an unknown name",
        _compute_scheduled,
        cases=core_op_names,
        deadline=120.0,
    ),
)
