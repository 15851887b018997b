"""Profiles as pages: the page of the offload report, with tables of times and the graph coloured by time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from byoc_core.profiling.text import render_profile
from byoc_core.reporting.page import Heat, TimedOp, TimedRow, render_page

if TYPE_CHECKING:
    from byoc_core.profiling.results import PartProfile, Profile, RegionProfile

__all__ = ["render_profile_page"]


def render_profile_page(profile: Profile, title: str = "Profile") -> str:
    """Return a self-contained HTML page with a profile; the page needs no network.

    Args:
        profile: the profile; without an offload report, the graph is empty.
        title: of the page, e.g. the model's name.

    Cost: ``O(n log n)`` in ops, operands and parts.
    """
    text = render_profile(profile)
    regions = [_row(profile, region, region.backend) for region in profile.regions]
    parts = [
        _row(profile, part, region.backend, position, [TimedOp(op.op, op.value, op.location) for op in part.ops])
        for position, region in enumerate(profile.regions)
        for part in region.parts
    ]
    regions.append(TimedRow("(machine)", "", 0, max(0.0, profile.machine_seconds)))
    heat = Heat(text.partition("\n\n")[0], text, profile.seconds, regions, parts)
    return render_page(profile.report, title, heat)


def _row(
    profile: Profile,
    item: RegionProfile | PartProfile,
    backend: str,
    region: int = -1,
    ops: Sequence[TimedOp] = (),
) -> TimedRow:
    roofline = profile.roofline(item)
    return TimedRow(item.name, backend, item.calls, item.seconds, item.flops, item.nbytes, roofline, region, ops)
