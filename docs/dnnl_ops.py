"""The page of the ops taken by ``dnnl``: the table of lowerings, and the reasons for declining other ops."""

from __future__ import annotations

from collections.abc import Callable
from inspect import getdoc

from byoc_core.ops import default_ops
from byoc_dnnl.lowerings.functions import FINITE_ONLY
from byoc_dnnl.lowerings.table import LOWERINGS, declines, dtypes_of

__all__ = ["dnnl_ops_page"]

_NOTICE = "<!-- Made by `python -m docs.generate` from the backend's tables: change the tables, not this page. -->"
_INTRO = """\
This page is for users: the ops run by `dnnl` as oneDNN primitives, and the reasons for all others. An op is taken if
oneDNN has a fast implementation for the sizes and the processor; implementations with a name beginning with `ref` are
refused. Tensors without elements and tensors with more than 12 axes are never taken. bfloat16 and float16 need a
processor with instructions for the dtype.

Some primitives are right for finite numbers only. These primitives are taken if the operands are proved finite. Without
a proof, a check stands before the primitive; if the check fails, the reference kernels compute the region again. Ops
computed too inexactly by oneDNN 3.2 are computed by functions of the core, in steps named `byoc`. `exe.report()` shows
the reasons for a model.

`nn.attention` in float32 is taken as two products and a softmax, if not causal, and without zeros for steps without a
key."""


def dnnl_ops_page() -> str:
    """Return the page: a table of the taken ops, then the reasons for all others."""
    lines = ["# Ops taken by dnnl", "", _NOTICE, "", _INTRO, "", "## Taken", "", "| ops | dtypes | primitive |"]
    lines.append("|---|---|---|")
    rows: dict[tuple[object, tuple[str, ...], bool], list[str]] = {}
    for op in sorted(LOWERINGS):
        rows.setdefault((LOWERINGS[op], dtypes_of(op), op in FINITE_ONLY), []).append(op)
    for (lowering, dtypes, is_checked), ops in rows.items():
        assert callable(lowering)
        checked = " Operands have to be finite." if is_checked else ""
        lines.append(f"| {_names(ops)} | {', '.join(dtypes)} | {_summary(lowering)}{checked} |")
    lines += ["", "## Ops left to other backends", "", "| reason | ops |", "|---|---|"]
    reasons: dict[str, list[str]] = {}
    for op in sorted(default_ops()):
        reason = declines(op)
        if reason is not None:
            reasons.setdefault(reason, []).append(op)
    lines += [f"| {reason} | {_names(ops)} |" for reason, ops in reasons.items()]
    return "\n".join([*lines, ""])


def _names(ops: list[str]) -> str:
    return ", ".join(f"`{op}`" for op in ops)


def _summary(lowering: Callable[..., object]) -> str:
    """Return the first sentence of a lowering's docstring, followed by the paragraphs on declined cases."""
    paragraphs = (getdoc(lowering) or "").replace("``", "`").split("\n\n")
    found = [paragraphs[0].removeprefix("Add "), *(text for text in paragraphs[1:] if text.startswith("Not taken: "))]
    text = " ".join(" ".join(found).split())
    return text[:1].upper() + text[1:]
