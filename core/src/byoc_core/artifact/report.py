"""The offload report as text: who took which share of the work, and why the rest stayed on the host.

The report's data is plain JSON, made by whoever compiled the model::

    {"backends": [{"name", "regions", "ops", "flops", "share"}], "total_flops": int or expression,
     "offloaded_share": share of FLOPs that are not the host's,
     "ops": [{"function", "op", "name", "outcome": backend or "host", "region": str or null, "code", "text", "flops",
              "share"}],
     "sizes": [{"function", "size", "kind": "input", "expression" or "unknown", "where"}]}

An artifact may carry any JSON here, so what does not fit is left out rather than trusted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeGuard

__all__ = ["render_report"]

_MAX_OPS_NAMED = 4
_MAX_FLOPS = 10**30
_HOST = "host"


def render_report(data: Mapping[str, Any]) -> str:
    """Gives the report for people to read.

    A header line for each backend with its share of FLOPs, then a table of the reasons why ops stayed on the host, the
    most expensive first, then the dynamic sizes that no input determines. Shares count every symbolic size as 1.
    """
    backends = [item for item in _items(data, "backends") if isinstance(item.get("name"), str)]
    ops = _items(data, "ops")
    if not backends and not ops:
        return "no offload report"
    total = data.get("total_flops")
    lines = [f"{_share_text(data.get('offloaded_share'))} of {_flops_text(total)} FLOPs offloaded"]
    width = max((len(item["name"]) for item in backends), default=0)
    for item in backends:
        regions = item.get("regions", 0)
        num_ops = item.get("ops", 0)
        ops_text = f"{num_ops} op{'' if num_ops == 1 else 's'}"
        region_text = f" in {regions} region{'' if regions == 1 else 's'}" if regions else ""
        share = _percent(item.get("share"))
        lines.append(
            f"  {item['name']:<{width}}  {share:>6}  {_flops_text(item.get('flops')):>9} FLOPs  {ops_text}{region_text}"
        )
    reasons = _group(ops)
    if reasons:
        lines += ["", "why ops stayed on the host:"]
        for reason in reasons:
            lines.append(f"  {_percent(reason.share):>6}  {reason.count:>5} x {reason.ops_text()}: {reason.text}")
    unknown = [item for item in _items(data, "sizes") if item.get("kind") == "unknown"]
    if unknown:
        lines += ["", "sizes that no input determines:"]
        lines += [f"  {item.get('size', '?')}: {item.get('where', 'nobody knows where')}" for item in unknown]
    return "\n".join(lines)


@dataclass
class _Reason:
    text: str
    count: int = 0
    share: float = 0.0
    ops: Counter[str] = field(default_factory=Counter)

    def add(self, op: Mapping[str, Any]) -> None:
        self.count += 1
        share = op.get("share")
        self.share += share if _is_share(share) else 0.0
        self.ops[str(op.get("op", "?"))] += 1

    def ops_text(self) -> str:
        names = sorted(self.ops, key=lambda name: (-self.ops[name], name))
        more = f" and {len(names) - _MAX_OPS_NAMED} more" if len(names) > _MAX_OPS_NAMED else ""
        return ", ".join(names[:_MAX_OPS_NAMED]) + more


def _group(ops: list[Mapping[str, Any]]) -> list[_Reason]:
    """Groups the ops of the host by the reason's code and text; the most FLOPs first, then the most ops."""
    groups: dict[tuple[str, str], _Reason] = {}
    for op in ops:
        if op.get("outcome") != _HOST:
            continue
        code, text = str(op.get("code") or ""), str(op.get("text") or "")
        reason = f"{text} [{code}]" if text and code else text or code or "no reason was given"
        groups.setdefault((code, text), _Reason(reason)).add(op)
    return sorted(groups.values(), key=lambda reason: (-reason.share, -reason.count, reason.text))


def _items(data: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    value = data.get(key)
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def _is_share(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and 0 <= value <= 1


def _share_text(share: object) -> str:
    return f"{share:.1%}" if _is_share(share) else "an unknown share"


def _percent(share: object) -> str:
    return f"{share:.1%}" if isinstance(share, int | float) and 0 <= share <= 1 + 1e-9 else "?"


def _flops_text(flops: object) -> str:
    if not isinstance(flops, int) or not 0 <= flops <= _MAX_FLOPS:
        return str(flops) if isinstance(flops, str) else "?"
    value, unit = float(flops), ""
    for larger in ("k", "M", "G", "T", "P", "E"):
        if value < 1000:
            break
        value, unit = value / 1000, larger
    return f"{value:.3g}{unit}" if unit else str(flops)
