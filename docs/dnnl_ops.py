"""The page of what ``dnnl`` takes: its table of lowerings, and the reasons why other ops are left to others."""

from __future__ import annotations

from collections.abc import Callable
from inspect import getdoc

from byoc_core.ops import default_ops
from byoc_dnnl.lowerings.functions import FINITE_ONLY
from byoc_dnnl.lowerings.table import LOWERINGS, declines, dtypes_of

__all__ = ["dnnl_ops_page"]

_NOTICE = "<!-- Made by `python -m docs.generate` from the backend's tables: change these, not this page. -->"
_INTRO = """\
`dnnl` makes oneDNN's primitives of ops. An op is taken where oneDNN has a fast implementation for the sizes and the
processor at hand; one whose name begins with `ref` is a refusal. Never taken are tensors without elements, and those of
more than 12 axes. bfloat16 and float16 need a processor with instructions for them.

Some primitives compute what the op means for finite numbers only. They are taken where the operands are proved finite;
where nothing proves that a check stands before them, and where it does not hold the reference kernels compute the
region anew. What oneDNN 3.2 computes too inexactly is computed by functions of the core; such steps are named `byoc`.
`exe.report()` shows the reasons of a model of yours.

`nn.attention` that is float32, not causal, and does not give zeros for a step that sees no key is taken as what it
consists of: two products and a softmax."""


def dnnl_ops_page() -> str:
    """Gives the page: a table of what is taken, then the reasons."""
    lines = ["# What dnnl takes", "", _NOTICE, "", _INTRO, "", "## Taken", "", "| ops | dtypes | what it becomes |"]
    lines.append("|---|---|---|")
    rows: dict[tuple[object, tuple[str, ...], bool], list[str]] = {}
    for op in sorted(LOWERINGS):
        rows.setdefault((LOWERINGS[op], dtypes_of(op), op in FINITE_ONLY), []).append(op)
    for (lowering, dtypes, is_checked), ops in rows.items():
        assert callable(lowering)
        checked = " Operands have to be finite." if is_checked else ""
        lines.append(f"| {_names(ops)} | {', '.join(dtypes)} | {_what(lowering)}{checked} |")
    lines += ["", "## Left to others", "", "| why | ops |", "|---|---|"]
    reasons: dict[str, list[str]] = {}
    for op in sorted(default_ops()):
        reason = declines(op)
        if reason is not None:
            reasons.setdefault(reason, []).append(op)
    lines += [f"| {reason} | {_names(ops)} |" for reason, ops in reasons.items()]
    return "\n".join([*lines, ""])


def _names(ops: list[str]) -> str:
    return ", ".join(f"`{op}`" for op in ops)


def _what(lowering: Callable[..., object]) -> str:
    """Gives the first sentence of a lowering's docstring, and what it does not take."""
    paragraphs = (getdoc(lowering) or "").replace("``", "`").split("\n\n")
    found = [paragraphs[0].removeprefix("Adds "), *(text for text in paragraphs[1:] if text.startswith("Not taken: "))]
    text = " ".join(" ".join(found).split())
    return text[:1].upper() + text[1:]
