"""Profiles as text: a table of regions, and a table of the slowest parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from byoc_core.printable import to_printable_lines
from byoc_core.profiling.columns import table_lines, time_text

if TYPE_CHECKING:
    from byoc_core.profiling.results import PartProfile, Profile, RegionProfile

__all__ = ["render_profile"]

_UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_MAX_OPS = 4


def render_profile(profile: Profile, max_parts: int | None = 30) -> str:
    """Return a profile as readable text.

    Args:
        profile: the profile.
        max_parts: the number of parts in the table of parts, slowest first; ``None`` for all.
    """
    lines = [_headline(profile), *_limits(profile), "", *_regions(profile), "", *_parts(profile, max_parts)]
    return to_printable_lines("\n".join(lines).rstrip())


def _headline(profile: Profile) -> str:
    sizes = "".join(f", {name} = {size}" for name, size in sorted(profile.sizes.items()))
    threads = f"{profile.num_threads} thread{'s' if profile.num_threads != 1 else ''}"
    calls = f"mean of the faster half of {profile.num_calls} calls"
    return f"`{profile.function}` on {threads}{sizes}: {time_text(profile.seconds)} per call, {calls}"


def _limits(profile: Profile) -> list[str]:
    if profile.peaks is None:
        return []
    flops = f"{_count(profile.peaks.flops)}FLOP/s of float32, " if profile.peaks.flops else ""
    return [f"limits of this machine, measured: {flops}{_count(profile.peaks.bandwidth)}B/s of memory"]


def _regions(profile: Profile) -> list[str]:
    heads = ("region", "backend", "calls", "time", "share", "FLOPs", "FLOP/s", "bytes", "roofline", "parts")
    rows = [
        (region.name, region.backend, _calls(region.calls), *_work(profile, region), str(len(region.parts) or "-"))
        for region in profile.regions
    ]
    machine = profile.machine_seconds
    share = f"{machine / profile.seconds:.1%}" if profile.seconds else ""
    rows.append(("(machine)", "", "", time_text(machine), share, "", "", "", "", ""))
    return table_lines(heads, rows, left=2)


def _parts(profile: Profile, max_parts: int | None) -> list[str]:
    pairs = [(region, part) for region in profile.regions for part in region.parts]
    if not pairs:
        return ["no backend reports parts of regions"] if profile.regions else []
    pairs.sort(key=lambda pair: -pair[1].seconds)
    shown = pairs[:max_parts]
    heads = ("part", "backend", "calls", "time", "share", "FLOPs", "FLOP/s", "bytes", "roofline", "ops")
    rows = [
        (part.name, region.backend, _calls(part.calls), *_work(profile, part), _ops(part)) for region, part in shown
    ]
    lines = table_lines(heads, rows, left=2)
    if len(pairs) > len(shown):
        rest = sum(part.seconds for _, part in pairs[len(shown) :])
        lines.append(f"and {len(pairs) - len(shown)} faster parts with {time_text(rest)} in all")
    return lines


def _work(profile: Profile, item: RegionProfile | PartProfile) -> tuple[str, ...]:
    """Return time, share, FLOPs, FLOP/s, bytes and share of the roofline."""
    roofline = profile.roofline(item)
    return (
        time_text(item.seconds),
        f"{item.seconds / profile.seconds:.1%}" if profile.seconds else "",
        _count(item.flops) if item.flops else "-",
        _count(item.flops / item.seconds) if item.flops and item.seconds else "-",
        _count(item.nbytes) if item.nbytes else "-",
        "-" if roofline is None else f"{roofline:.0%}",
    )


def _ops(part: PartProfile) -> str:
    """Return the ops of a part, and in brackets their origins in the model or, without an origin, their values."""
    if not part.ops:
        return ""
    ops = _listed([op.op.rpartition(".")[2] for op in part.ops])
    return f"{ops} [{_listed(list(dict.fromkeys(op.location or op.value for op in part.ops)))}]"


def _listed(names: Sequence[str]) -> str:
    rest = len(names) - _MAX_OPS
    return ", ".join(names[:_MAX_OPS]) + (f" and {rest} more" if rest > 0 else "")


def _calls(calls: float) -> str:
    return str(int(calls)) if calls == int(calls) else f"{calls:.1f}"


def _count(number: float) -> str:
    for scale, unit in _UNITS:
        if number >= scale:
            return f"{number / scale:.3g} {unit}"
    return f"{number:.3g} "
