"""Building of a report from the judgements of a run, in any order."""

from __future__ import annotations

import platform
from collections.abc import Iterable
from datetime import UTC, datetime

from byoc_conformance.environment import describe_cpu, find_plugins, find_version
from byoc_conformance.outcome import Status
from byoc_conformance.promises import all_items
from byoc_conformance.report.model import Coverage, Environment, Plugin, Report, ReportItem, Settings
from byoc_conformance.subject import SubjectSpec
from byoc_conformance.verdict import Judgement, Verdict

__all__ = ["new_report"]


def new_report(
    spec: SubjectSpec, judgements: Iterable[Judgement], started: datetime, changes: Iterable[str] = ()
) -> Report:
    """Return the report of a run ending now: all tests of the kit, in the kit's order.

    Args:
        spec: the specification of the backend under test.
        judgements: of the tests run.
        started: the start of the run.
        changes: changes to the suite itself.
    """
    found = {judgement.id: judgement for judgement in judgements}
    items = []
    for item in all_items():
        left_out = Judgement(item.id, Verdict.NOT_RUN, "", 0.0)
        judgement = found.get(item.id, left_out)
        items.append(
            ReportItem(
                id=item.id,
                level=item.promise.level,
                promise=item.promise.name,
                case=item.case,
                status=judgement.verdict,
                text=judgement.text,
                seconds=judgement.seconds,
                xfail=judgement.reason,
            )
        )
    return Report(
        started=started,
        finished=datetime.now(UTC),
        environment=_describe_environment(spec),
        settings=Settings(**spec.to_json()),
        changes=tuple(changes),
        items=tuple(items),
        coverage=_merge_cells(found.values()),
    )


def _describe_environment(spec: SubjectSpec) -> Environment:
    plugins = tuple(
        Plugin(group=record.group, name=record.name, distribution=record.distribution, version=record.version)
        for record in find_plugins(spec)
    )
    return Environment(
        kit=find_version("byoc-conformance"),
        core=find_version("byoc-core"),
        python=f"{platform.python_implementation()} {platform.python_version()}",
        numpy=find_version("numpy"),
        onnx=find_version("onnx"),
        platform=platform.platform(),
        cpu=describe_cpu(),
        plugins=plugins,
    )


def _merge_cells(judgements: Iterable[Judgement]) -> tuple[Coverage, ...]:
    order = list(Status)
    worst: dict[tuple[str, str], Status] = {}
    for judgement in judgements:
        for cell in judgement.cells:
            key = cell.op, cell.dtype
            worst[key] = max(worst.get(key, Status.PASSED), cell.status, key=order.index)
    return tuple(Coverage(op=op, dtype=dtype, status=worst[op, dtype]) for op, dtype in sorted(worst))
