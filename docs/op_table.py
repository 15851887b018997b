"""The page of the ops compiled by ``ccompiler``: answers to the canonical cases of all ops, dtype by dtype."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import byoc_ccompiler.backend as ccompiler
from byoc_ccompiler.options import CCompilerOptions
from byoc_core.authoring.csource import C_TYPES
from byoc_core.backend.hooks import CompileContext, Rejection
from byoc_core.dtypes import all_dtypes
from byoc_core.ops import default_ops
from byoc_core.ops.cases import OpCase, canonical_cases, dtypes_of, new_function

__all__ = ["answers", "op_table_page"]

_CONTEXT = CompileContext("ccompiler", CCompilerOptions.model_validate({}))
_NOTICE = "<!-- Made by `python -m docs.generate` from the backend's answers: change the backend, not this page. -->"
_INTRO = """\
This page is for users: the ops compiled to C by `ccompiler`, and the reasons for all others. The tables hold the
answers to the canonical cases of every op (`byoc_core.ops.cases`): **yes**, all cases are compiled; **some**, the other
cases are declined; **no**, all cases are declined; an empty cell, the op does not accept the dtype. Arithmetic on
float16 and bfloat16 is done in float32, and each op's result is rounded once; ops without arithmetic copy the elements
unchanged.

Always declined are operands of unknown rank, sizes of results not given by any operand, and the dtypes without a type
in generated C: {missing}. Constants of `int4` and `uint4` are compiled as dequantised weights of a product.
`exe.report()` shows the reasons for your model."""


def answers(op: str) -> Mapping[str, list[tuple[OpCase, Rejection | None]]]:
    """Return the cases of an op with the backend's answers (``None`` for yes), for each dtype with a type in C."""
    found: dict[str, list[tuple[OpCase, Rejection | None]]] = {}
    for case in canonical_cases(default_ops()).get(op, ()):
        for dtype in dtypes_of(case, default_ops()[op]):
            if dtype in C_TYPES:
                _, binding = new_function(default_ops()[op], case.types(dtype), case.attrs)
                answer = ccompiler.byoc_supports(binding, _CONTEXT)
                found.setdefault(dtype, []).append((case, answer if isinstance(answer, Rejection) else None))
    return found


def op_table_page() -> str:
    """Return the page: a table of ops and dtypes, then the reasons."""
    dtypes = [dtype for dtype in all_dtypes() if dtype in C_TYPES]
    table = {op: answers(op) for op in sorted(canonical_cases(default_ops()))}
    missing = ", ".join(f"`{dtype}`" for dtype in all_dtypes() if dtype not in C_TYPES)
    lines = ["# What ccompiler compiles", "", _NOTICE, "", _INTRO.format(missing=missing), "", "## Ops and dtypes", ""]
    lines += [f"| op | {' | '.join(dtypes)} |", f"|---|{'---|' * len(dtypes)}"]
    for op, found in table.items():
        cells = [_cell([answer for _, answer in found.get(dtype, [])]) for dtype in dtypes]
        lines.append(f"| `{op}` | {' | '.join(cells)} |")
    lines += ["", "## Reasons", "", "| op | dtypes | reason for declining |", "|---|---|---|"]
    lines += [f"| `{op}` | {where} | {reason} |" for op, found in table.items() for where, reason in _reasons(found)]
    lines += ["", "Ops containing or calling functions have no cases, and are left to the host.", ""]
    return "\n".join(lines)


def _cell(found: list[Rejection | None]) -> str:
    if not found:
        return ""
    if not any(found):
        return "yes"
    return "no" if all(found) else "some"


def _reasons(found: Mapping[str, list[tuple[OpCase, Rejection | None]]]) -> Iterator[tuple[str, str]]:
    """Yield the dtypes of each reason, and the reason."""
    dtypes: dict[str, list[str]] = {}
    for dtype, cases in found.items():
        for text in dict.fromkeys(answer.text for _, answer in cases if answer is not None):
            dtypes.setdefault(text, []).append(dtype)
    for text, names in dtypes.items():
        yield ("all" if len(names) == len(found) else ", ".join(names)), text
