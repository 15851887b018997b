"""The page of all ops: operands, attributes, dtypes and meaning, generated from the definitions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module

from byoc_core.dtypes import all_dtypes, dtype_info
from byoc_core.errors import IRTypeError
from byoc_core.ir import (
    CALL,
    CALL_DPS_PACKED,
    CALL_PACKED,
    COMPOSITE,
    REQUIRED,
    STRUCTURAL_OPS,
    AttrSpec,
    OpDef,
    TensorType,
    Var,
)
from byoc_core.ir.printer import OP_ALIASES
from byoc_core.ops import default_ops
from byoc_core.ops.cases import OpCase, canonical_cases, infer_case
from byoc_core.opset.families import FAMILIES, ops_of

from docs.markdown import table, to_markdown

__all__ = ["op_reference_page", "taken_dtypes"]

_NOTICE = (
    "<!-- Made by `python -m docs.generate` from the definitions of the ops: change the definitions, not this page. -->"
)
_INTRO = """\
This page is for users and authors of backends: the operands, attributes, dtypes and meaning of all {count} ops, by the
name in script after `R.`. Operands are positional, attributes are named. An operand `x...` stands for any number of
values. A backend reads the same definitions: `byoc_core.ops.default_ops()["add"]` has operands, attributes, traits and
the type rule.

- **Types of attributes**: `ints`, `floats`, `strs` and `dims` are tuples; `dim` is an integer or a symbolic size
  (`"2*n"`); `dtype` is the name of a dtype.
- **Dtypes** are the dtypes accepted by the type rule in the canonical cases of the op (`byoc_core.ops.cases`).
  Operands listed together have a common dtype.
  "floats" are {floats}; "signed" are {signed}; "unsigned" are {unsigned}.
- **Traits** are assumptions open to passes and backends: {traits}.

A backend may take an op on some dtypes, or not at all: [ccompiler](ccompiler-ops.md), [dnnl](dnnl-ops.md).
A package may add ops ([`byoc_ops`](hooks/byoc_ops.md))."""
_TRAITS = {
    "pure": "same inputs, same outputs, no effect",
    "elementwise": "each element of the result depends on the elements of the operands at the same index",
    "commutative": "two operands may be swapped",
    "either-zero": "a zero in the result may have either sign",
    "reshaping": "the same elements in the same row-major order",
    "selecting": "each element of a result is an element of an operand, chosen by position or as the largest",
    "reduction": "combines elements along axes",
    "data-dependent": "the operands' elements decide sizes of the results",
}
_KINDS = {"float": "floats", "int": "signed", "uint": "unsigned", "bool": "bool"}
_PRINTED_ELSEWISE = (CALL, CALL_DPS_PACKED, CALL_PACKED, COMPOSITE)
_STRUCTURE = "Structure: calls, branches, loops, and groups of ops compiled by a backend as one op."


def op_reference_page() -> str:
    """Return the page: a table of contents, then a section for each family of ops."""
    sections = [
        (import_module(f"byoc_core.opset.families.{name}").__doc__ or "", list(ops_of(name).values()))
        for name in FAMILIES
    ]
    sections.append((_STRUCTURE, list(STRUCTURAL_OPS)))
    kinds = {text: _names(kind) for kind, text in _KINDS.items()}
    traits = "; ".join(f"*{name}*, {text}" for name, text in _TRAITS.items())
    lines = ["# Ops", "", _NOTICE, "", _INTRO.format(count=len(default_ops()), traits=traits, **kinds), ""]
    for doc, ops in sections:
        heading, _, more = to_markdown(doc.strip().partition("\n")[0]).rstrip(".").partition(":")
        lines += [f"## {heading}", "", *([f"{more.strip().capitalize()}.", ""] if more else [])]
        for op in ops:
            lines += _section(op)
    return "\n".join(lines)


def _names(kind: str) -> str:
    return ", ".join(f"`{name}`" for name in all_dtypes() if dtype_info(name).kind == kind)


def _section(op: OpDef) -> list[str]:
    """Return the lines of an op."""
    operands = [f"{spec.name}..." if spec.variadic else spec.name for spec in op.operands]
    attrs = [spec.name if spec.default is REQUIRED else f"{spec.name}={spec.default!r}" for spec in op.attrs]
    facts = [f"Dtypes: {'; '.join(_dtypes_text(op)) or 'any'}."]
    facts += [f"Traits: {', '.join(sorted(trait.value for trait in op.traits)) or 'none: it may have effects'}."]
    name = OP_ALIASES.get(op.name, op.name)
    lines = [
        f"### `{op.name}`",
        "",
        *([] if op in _PRINTED_ELSEWISE else [f"    R.{name}({', '.join([*operands, *attrs])})", ""]),
    ]
    for paragraph in op.doc.strip().split("\n\n"):
        lines += [to_markdown(" ".join(paragraph.split())), ""]
    documented = [spec for spec in op.operands if spec.doc]
    if documented:
        lines += [*table(("operand", "meaning"), [(f"`{spec.name}`", spec.doc) for spec in documented]), ""]
    if op.attrs:
        columns = ("attribute", "type", "default", "meaning")
        lines += [*table(columns, [_attr_row(spec) for spec in op.attrs]), ""]
    return [*lines, " ".join(facts), ""]


def _attr_row(spec: AttrSpec) -> tuple[str, str, str, str]:
    default = "required" if spec.default is REQUIRED else f"`{spec.default!r}`"
    choices = f" One of {', '.join(f'`{choice!r}`' for choice in spec.choices)}." if spec.choices else ""
    return f"`{spec.name}`", spec.kind.value, default, f"{spec.doc}{choices}"


def _dtypes_text(op: OpDef) -> Iterator[str]:
    """Yield the dtypes of each group of operands with a common dtype, or of the results if the op has no operands."""
    for operands, dtypes in taken_dtypes(op).items():
        names = f"{', '.join(f'`{name}`' for name in operands)}: " if operands else ""
        yield f"{names}{_compressed(dtypes)}"


def _compressed(dtypes: Sequence[str]) -> str:
    """Return dtypes as text, a word for all dtypes of a kind."""
    if set(dtypes) == set(all_dtypes()):
        return "all"
    parts = []
    for kind, word in _KINDS.items():
        mine = [name for name in all_dtypes() if dtype_info(name).kind == kind]
        accepted = [name for name in mine if name in dtypes]
        if accepted == mine:
            parts.append(word if kind != "bool" else "`bool`")
        else:
            parts += [f"`{name}`" for name in accepted]
    return ", ".join(parts)


def taken_dtypes(op: OpDef) -> dict[tuple[str, ...], tuple[str, ...]]:
    """Return the dtypes accepted by an op in its cases, by the names of the operands with a common dtype.

    Operands with a separate dtype in a case (indices, lengths) are tried alone.
    """
    accepted: dict[tuple[str, ...], set[str]] = {}
    for case in canonical_cases(default_ops()).get(op.name, ()):
        names = [name.partition("[")[0] for name in op.operand_names(len(case.operands))]
        free = [index for index, operand in enumerate(case.operands) if operand.dtype is None]
        groups = [free, *([index] for index in range(len(names)) if index not in free)]
        for group in groups:
            key = tuple(dict.fromkeys(names[index] for index in group))
            if key or not names:
                accepted.setdefault(key, set()).update(_taken_by(op, case, group))
    largest_groups = {key: found for key, found in accepted.items() if found and not _is_part(key, accepted)}
    return {key: tuple(name for name in all_dtypes() if name in found) for key, found in largest_groups.items()}


def _is_part(key: tuple[str, ...], accepted: Mapping[tuple[str, ...], set[str]]) -> bool:
    """Return whether another case has these operands and more in one group, with the same dtypes."""
    return any(set(key) < set(other) and accepted[other] == accepted[key] for other in accepted)


def _taken_by(op: OpDef, case: OpCase, group: Sequence[int]) -> Iterator[str]:
    types = case.types()
    for dtype in all_dtypes():
        changed = [TensorType(t.shape, dtype) if index in group else t for index, t in enumerate(types)]
        try:
            operands = [Var(f"x{index}", type_) for index, type_ in enumerate(changed)]
            infer_case(op, operands, op.normalise_attrs(case.attrs))
        except IRTypeError:
            continue
        yield dtype
