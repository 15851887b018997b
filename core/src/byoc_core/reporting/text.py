"""The offload report as text: each backend's share of the work, and the reasons for the rest staying on the host.

The report's data is plain JSON, made during compilation, in the form described by
``byoc_core.partitioning.build_report``, with the dynamic sizes added::

    "sizes": [{"function", "size", "kind": "input", "expression" or "unknown", "where"}]

and, with devices, the copies between memory domains (``byoc_core.lower.copies_data``)::

    "copies": [{"function", "value", "nbytes", "source", "target", "readers"}]

An artifact may carry any JSON here, or a report of an older form. Unfit data is left out rather than trusted.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from byoc_core.printable import to_printable
from byoc_core.reporting.shares import (
    HOST_NAME,
    MAX_FLOPS,
    count_expression,
    counted_sizes,
    decisive_reasons,
    items_of,
    reason_keys,
)

__all__ = ["counting", "flops_count", "flops_text", "host_reasons", "percent", "render_report", "to_printable"]

_MAX_OPS_NAMED = 4
_MAX_TEXTS = 4
_MAX_REASONS = 12
_MAX_NEAR_MISSES = 6
_MAX_BORDERS = 8
_MAX_COPIES = 12
_MAX_KINDS = 12
_MAX_SETS = 16

_OTHER_SIZES = {
    "first-use": "at first use",
    "compiler-or-host": "at first use if the artifact is loaded with a compiler, else on the host",
    "compiler-or-error": "at first use if the artifact is loaded with a compiler, else an error",
    "host": "on the host",
    "error": "are an error",
}


def render_report(data: Mapping[str, Any], width: int | None = None) -> str:
    """Return the report as readable text.

    Parts, in order: a header line for each backend with the share of FLOPs, and the unit roundoffs if coarse; the
    raising hooks (``hook_failures`` of the data holds the tracebacks); the reasons for ops on the host, the most
    expensive first, an op counted once for each backend with a reason; near misses of patterns not among these reasons;
    pairs of regions of one backend, kept apart although one reads from the other; the values crossing borders in a
    planned layout; the copies between memory domains; the dynamic sizes not determined by any input; the sets of sizes
    compiled by backends with static shapes.

    Args:
        data: the report's data.
        width: breaks longer lines; ``None`` breaks none.
    """
    if not items_of(data.get("backends")) and not items_of(data.get("ops")):
        return "no offload report"
    lines = [
        *_header(data),
        *_failure_lines(data),
        *_reason_lines(data),
        *_near_miss_lines(data),
        *_border_lines(data),
        *_layout_lines(data),
        *_copy_lines(data),
        *_size_lines(data),
        *_specialised_lines(data),
    ]
    lines = [to_printable(line) for line in lines]
    if width is None:
        return "\n".join(lines)
    return "\n".join(part for line in lines for part in _broken(line, width))


def _failure_lines(data: Mapping[str, Any]) -> list[str]:
    """Return a line for each exception of a hook, with the number of affected ops."""
    lines = []
    for item in items_of(data.get("hook_failures")):
        ops = item.get("ops")
        count = len(ops) if isinstance(ops, list) else 0
        times = f" for {count} op{'' if count == 1 else 's'}" if count else ""
        lines.append(f"  {_text(item.get('backend'))}: hook {_text(item.get('hook'))} {_text(item.get('text'))}{times}")
    return ["failed hooks of backends:", *lines[:_MAX_REASONS]] if lines else []


@dataclass
class HostReason:
    """A reason for ops on the host: backend, code, text, number of ops, and share of the FLOPs."""

    backend: str
    code: str
    text: str
    count: int = 0
    share: float = 0.0
    ops: Counter[str] = field(default_factory=Counter)

    def line(self) -> str:
        """Return the line for readers."""
        names = sorted(self.ops, key=lambda name: (-self.ops[name], name))
        more = f" and {len(names) - _MAX_OPS_NAMED} more" if len(names) > _MAX_OPS_NAMED else ""
        reason = f"{self.text} [{self.code}]" if self.text and self.code else self.text or self.code
        by = f"{self.backend}: " if self.backend else ""
        ops = ", ".join(names[:_MAX_OPS_NAMED]) + more
        return f"{percent(self.share):>6}  {self.count:>5} x {ops}: {by}{reason or 'no reason was given'}"

    def costs(self) -> tuple[float, int, str, str, str]:
        """Return a sort key that puts the most expensive reason first."""
        return (-self.share, -self.count, self.backend, self.code, self.text)


def host_reasons(data: Mapping[str, Any]) -> list[HostReason]:
    """Return the reasons for ops on the host; the most FLOPs first, then the most ops.

    Reasons with the same backend and code are merged if the texts are many.
    """
    found: dict[tuple[str, str], dict[str, HostReason]] = {}
    for row in items_of(data.get("ops")):
        if row.get("outcome") == HOST_NAME:
            decisive = decisive_reasons(items_of(row.get("reasons")))
            for key in reason_keys(row):
                text = _text(decisive.get(key[0], row).get("text"))
                reason = found.setdefault(key, {}).setdefault(text, HostReason(*key, text))
                reason.count += 1
                reason.share += _share(row.get("share"))
                reason.ops[_text(row.get("op")) or "?"] += 1
    summary = items_of(data.get("summary"))
    common = {(_text(item.get("backend")), _text(item.get("code"))): _text(item.get("text")) for item in summary}
    reasons: list[HostReason] = []
    for key, by_text in found.items():
        few = len(by_text) <= _MAX_TEXTS
        reasons += by_text.values() if few else [_joined(list(by_text.values()), common.get(key))]
    return sorted(reasons, key=HostReason.costs)


def _joined(reasons: Sequence[HostReason], text: str | None) -> HostReason:
    first = min(reasons, key=HostReason.costs)
    ops = sum((reason.ops for reason in reasons), Counter[str]())
    text = text or f"{first.text}, and {len(reasons) - 1} similar reasons"
    share = sum(reason.share for reason in reasons)
    return HostReason(first.backend, first.code, text, sum(reason.count for reason in reasons), share, ops)


def percent(share: object) -> str:
    """Return a share as readable text. Only the whole is 100.0%."""
    if not isinstance(share, int | float) or not 0 <= share <= 1 + 1e-4:
        return "?"
    return f"{min(share, 0.999) if share < 1 else share:.1%}"


def counting(data: Mapping[str, Any]) -> str:
    """Return the counted values of symbolic sizes as text to append to a clause; empty if there are none."""
    sizes = ", ".join(f"{name} = {size}" for name, size in counted_sizes(data).items())
    return f", counting {sizes}" if sizes else ""


def _header(data: Mapping[str, Any]) -> list[str]:
    share = data.get("offloaded_share")
    share_text = percent(share) if isinstance(share, int | float) and 0 <= share <= 1 else "an unknown share"
    total = flops_text(data.get("total_flops"), data)
    lines = [f"{share_text} of {total} FLOPs offloaded{counting(data)}{_left_over(data, share)}"]
    backends = [item for item in items_of(data.get("backends")) if _text(item.get("name"))]
    width = max((len(item["name"]) for item in backends), default=0)
    for item in backends:
        regions, num_ops = item.get("regions", 0), item.get("ops", 0)
        ops = f"{num_ops} op{'' if num_ops == 1 else 's'}"
        where = f" in {regions} region{'' if regions == 1 else 's'}" if regions else ""
        flops = flops_text(item.get("flops"), data)
        row = f"  {item['name']:<{width}}  {percent(item.get('share')):>6}  {flops:>9} FLOPs  {ops}{where}"
        lines.append(row + _precision(item))
    return [*lines, *_delegated(data)]


def _delegated(data: Mapping[str, Any]) -> list[str]:
    """Return a line on the ops left to the package ``onnx``, if any."""
    names = Counter(name for row in items_of(data.get("ops")) if (name := _text(row.get("op"))).startswith("onnx."))
    if not names:
        return []
    listed = ", ".join(f"{to_printable(name)} ({count}x)" for name, count in sorted(names.items()))
    total = names.total()
    return [f"  delegated by the host to the package onnx: {total} op{'' if total == 1 else 's'}: {listed}"]


def _precision(item: Mapping[str, Any]) -> str:
    """Return the unit roundoffs stated by a backend as text to append to a clause; empty if the backend states none."""
    roundoffs = item.get("unit_roundoff")
    pairs = roundoffs.items() if isinstance(roundoffs, Mapping) else ()
    texts = [f"{dtype} within {unit:.2g}" for dtype, unit in pairs if isinstance(unit, float)]
    return f", computes {' and '.join(texts)} (unit roundoff)" if texts else ""


def _reason_lines(data: Mapping[str, Any]) -> list[str]:
    reasons = host_reasons(data)
    lines = [f"  {reason.line()}" for reason in reasons[:_MAX_REASONS]]
    return _section("why ops stayed on the host:", lines, len(reasons) - len(lines), "reasons")


def _near_miss_lines(data: Mapping[str, Any]) -> list[str]:
    """Return a line for each near miss other than the reason itself, ops of the same kind and text merged."""
    found: dict[tuple[str, str], list[Any]] = {}  # a name, the number of ops, and the ops' share
    for row in items_of(data.get("ops")):
        reasons = items_of(row.get("reasons"))
        decisive = decisive_reasons(reasons)
        for reason in reasons if row.get("outcome") == HOST_NAME else ():
            if reason.get("code") == "near-miss" and decisive[_text(reason.get("backend"))] is not reason:
                key = _text(row.get("op")), _text(reason.get("text"))
                miss = found.setdefault(key, [_text(row.get("name")), 0, 0.0])
                miss[1] += 1
                miss[2] += _share(row.get("share"))
    lines = [
        f"  `{name}` = {op}{f' and {count - 1} more' if count > 1 else ''}: {text}"
        for (op, text), (name, count, _) in sorted(found.items(), key=lambda item: -item[1][2])[:_MAX_NEAR_MISSES]
    ]
    section = _section("near misses of patterns:", lines, len(found) - len(lines), "kinds of near misses")
    passed_over = data.get("num_passed_over")
    if isinstance(passed_over, int) and 0 < passed_over <= MAX_FLOPS:
        section = section or ["", "near misses of patterns:"]
        section.append(f"  ops at the end not reached by the bounded search: {passed_over:,}")
    return section


def _border_lines(data: Mapping[str, Any]) -> list[str]:
    borders = items_of(data.get("borders"))
    lines = [
        f"  {_text(item.get('before')) or '?'} and {_text(item.get('after')) or '?'} stay apart: "
        f"{_text(item.get('text')) or _text(item.get('code')) or 'no reason was given'}"
        for item in borders[:_MAX_BORDERS]
    ]
    return _section("separate regions of the same backend:", lines, len(borders) - len(lines), "pairs")


def _layout_lines(data: Mapping[str, Any]) -> list[str]:
    """Return a line for each order of axes in which values cross borders between regions."""
    by_axes: dict[str, list[str]] = {}
    for item in items_of(data.get("layouts")):
        axes, readers = item.get("axes"), item.get("readers")
        if isinstance(axes, list) and isinstance(readers, list):
            value = f"{_text(item.get('value'))} ({_text(item.get('producer'))} to {', '.join(map(_text, readers))})"
            by_axes.setdefault(", ".join(map(str, axes)), []).append(value)
    lines = []
    for axes_text, values in by_axes.items():
        more = f" and {len(values) - _MAX_OPS_NAMED} more" if len(values) > _MAX_OPS_NAMED else ""
        lines.append(f"  axes {axes_text}: {'; '.join(values[:_MAX_OPS_NAMED])}{more}")
    num_more = len(lines) - _MAX_KINDS
    return _section("values crossing borders with permuted axes:", lines[:_MAX_KINDS], num_more, "orders of axes")


def _copy_lines(data: Mapping[str, Any]) -> list[str]:
    """Return a line for each copy between memory domains: the value, its size, and the readers on the other side."""
    copies = items_of(data.get("copies"))
    lines = []
    for item in copies[:_MAX_COPIES]:
        readers = item.get("readers")
        names = list(map(_text, readers)) if isinstance(readers, list) else []
        more = f" and {len(names) - _MAX_OPS_NAMED} more" if len(names) > _MAX_OPS_NAMED else ""
        nbytes = item.get("nbytes")
        size = f"{nbytes:,}" if isinstance(nbytes, int) and 0 <= nbytes <= MAX_FLOPS else _text(nbytes) or "?"
        why = f"for {', '.join(names[:_MAX_OPS_NAMED])}{more}" if names else "without a reader"
        domains = f"{_text(item.get('source')) or '?'} to {_text(item.get('target')) or '?'}"
        lines.append(f"  {_text(item.get('value')) or '?'}, {size} bytes: {domains}, {why}")
    return _section("copies between memory domains:", lines, len(copies) - len(lines), "copies")


def _size_lines(data: Mapping[str, Any]) -> list[str]:
    unknown = [item for item in items_of(data.get("sizes")) if item.get("kind") == "unknown"]
    lines = [f"  {item.get('size', '?')}: {item.get('where', 'unknown origin')}" for item in unknown]
    return _section("sizes not determined by any input:", lines, 0, "sizes")


def _specialised_lines(data: Mapping[str, Any]) -> list[str]:
    """Return a line for each region of a backend with static shapes: compiled sizes, and the handling of others."""
    lines = []
    for item in items_of(data.get("specialised")):
        compiled_sizes = [
            ", ".join(f"{name} = {size}" for name, size in sizes.items()) for sizes in items_of(item.get("sizes"))
        ]
        more = [f"{len(compiled_sizes) - _MAX_SETS} sets more"] if len(compiled_sizes) > _MAX_SETS else []
        handling = _OTHER_SIZES.get(_text(item.get("others")), "")
        parts = [
            *compiled_sizes[:_MAX_SETS],
            *more,
            *([f"{'others ' if compiled_sizes else ''}{handling}"] if handling else []),
        ]
        lines.append(f"  {_text(item.get('region'))} ({_text(item.get('backend'))}): {'; '.join(parts) or 'none'}")
    title = "regions compiled for each set of sizes:"
    return _section(title, lines[:_MAX_REASONS], len(lines) - _MAX_REASONS, "regions")


def _section(title: str, lines: Iterable[str], num_more: int, noun: str) -> list[str]:
    lines = list(lines)
    if num_more > 0:
        lines.append(f"  and {num_more} more {noun}")
    return ["", title, *lines] if lines else []


def _broken(line: str, width: int) -> list[str]:
    """Return a line broken at blanks; the following lines are indented."""
    margin = len(line) - len(line.lstrip()) + 4
    return textwrap.wrap(
        line, max(width, 40), subsequent_indent=" " * margin, break_long_words=False, break_on_hyphens=False
    ) or [""]


def _share(share: object) -> float:
    return share if isinstance(share, int | float) and 0 <= share <= 1 else 0.0


def _text(value: object) -> str:
    """Return a text on one line; empty if the value is no text."""
    return " ".join(value.split()) if isinstance(value, str) else ""


def _left_over(data: Mapping[str, Any], share: object) -> str:
    """Return a clause naming the host's ops if the shares of FLOPs do not show these ops."""
    if not isinstance(share, int | float) or percent(share) != "100.0%":
        return ""
    names = Counter(_text(row.get("op")) or "?" for row in items_of(data.get("ops")) if row.get("outcome") == HOST_NAME)
    kinds = [f"{count} x {name}" if count > 1 else name for name, count in sorted(names.items())]
    more = f" and {len(kinds) - _MAX_KINDS} more kinds" if len(kinds) > _MAX_KINDS else ""
    count = names.total()
    text = f", but {'1 op' if count == 1 else f'{count} ops'} without FLOPs stay{'s' if count == 1 else ''} on the host"
    return f"{text}: {', '.join(kinds[:_MAX_KINDS])}{more}" if count else ""


def flops_count(flops: object, data: Mapping[str, Any]) -> int | None:
    """Return a number of FLOPs; an expression is evaluated at the counted sizes of the report, missing sizes as 1.

    ``None`` if the report gives no number of FLOPs and no expression.
    """
    if isinstance(flops, str):
        counted = data.get("counted_sizes")
        flops = count_expression(flops, counted if isinstance(counted, Mapping) else {})
    return flops if isinstance(flops, int) and 0 <= flops <= MAX_FLOPS else None


def flops_text(flops: object, data: Mapping[str, Any]) -> str:
    """Return a number of FLOPs as readable text, for example ``1.05M``; see :func:`flops_count`."""
    count = flops_count(flops, data)
    if count is None:
        return "?"
    value, unit = float(count), ""
    for larger in ("k", "M", "G", "T", "P", "E"):
        if value < 1000:
            break
        value, unit = value / 1000, larger
    return f"{value:.3g}{unit}" if unit else str(count)
