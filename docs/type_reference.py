"""The page of the classes exchanged between plugins and the core, field by field, generated from the docstrings."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field

from byoc_core.backend import AxisOrders, Estimate, Status
from byoc_core.backend.hooks import (
    BackendInfo,
    CodegenResult,
    CompileContext,
    KernelReport,
    Rejection,
    SharedLoop,
    Support,
)
from byoc_core.frontend.hooks import OnnxImporters
from byoc_core.ir import REQUIRED, AttrSpec, OpDef, OperandSpec
from byoc_core.pattern import CompositePattern
from byoc_core.runtime import RuntimeInfo
from byoc_core.runtime.graph import GraphEngine
from byoc_core.runtime.graph.document import GraphConstant, GraphFunction, GraphNode, GraphTensor
from byoc_core.runtime.hooks import LoadContext
from byoc_core.runtime.module import CallTraits, NativeEntry, Signature, TensorSpec

from docs.markdown import table, to_markdown

__all__ = ["TYPES", "field_rows", "type_reference_page"]

TYPES = {
    "The compile half": (
        *(BackendInfo, CompileContext, Status, CompositePattern, Support, Rejection, Estimate, AxisOrders),
        CodegenResult,
        *(KernelReport, SharedLoop),
        *(OpDef, OperandSpec, AttrSpec),
    ),
    "The run half": (RuntimeInfo, LoadContext, TensorSpec, Signature, CallTraits, NativeEntry),
    "Importers of ONNX operators": (OnnxImporters,),
    "Graph documents": (GraphEngine, GraphFunction, GraphNode, GraphTensor, GraphConstant),
}
"""The classes of the page, by heading."""

_NOTICE = "<!-- Made by `python -m docs.generate` from docstrings: change the docstrings, not this page. -->"
_INTRO = """\
This page is for authors of backends: all fields of the classes passed between plugins and the core. The pages of the
[hooks](hooks/README.md) show the calls. New fields have defaults, so existing plugins keep
working ([the rules](api-stability.md#hooks))."""
_FIELD = re.compile(r"^    (\w+): (.*(?:\n(?:     +.*)?)*)", re.MULTILINE)


def type_reference_page() -> str:
    """Return the page."""
    lines = ["# Types of plugins", "", _NOTICE, "", _INTRO, ""]
    for heading, types in TYPES.items():
        lines += [f"## {heading}", ""]
        for type_ in types:
            lines += _section(type_)
    return "\n".join(lines)


def _section(type_: type) -> list[str]:
    doc = inspect.getdoc(type_) or ""
    text = doc.partition("\nAttributes:")[0].strip()
    lines = [f"### `{type_.__name__}`", ""]
    if home := _home(type_):
        lines += [f"    from {home} import {type_.__name__}", ""]
    for paragraph in text.split("\n\n"):
        lines += [to_markdown(" ".join(paragraph.split())), ""]
    if rows := field_rows(type_):
        lines += [*table(("field", "type", "default", "meaning"), rows), ""]
    if methods := [(f"`{name}{signature}`", meaning) for name, signature, meaning in _methods(type_)]:
        lines += [*table(("method or property", "value"), methods), ""]
    return lines


def _home(type_: type) -> str:
    """Return the module for importing a class, as named to authors."""
    homes = ("byoc_core.backend.hooks", "byoc_core.runtime.hooks", "byoc_core.runtime.graph", "byoc_core.pattern")
    for home in (*homes, "byoc_core.ir", "byoc_core.frontend.hooks", type_.__module__):
        if type_.__name__ in __import__(home, fromlist=["_"]).__all__:
            return home
    raise ValueError(f"{type_} is not exported by any stable module")


def field_rows(type_: type) -> list[tuple[str, str, str, str]]:
    """Return a row for each field of the constructor: name, type, default and meaning (empty if undocumented)."""
    section = (inspect.getdoc(type_) or "").partition("\nAttributes:\n")[2]
    meanings = {name: " ".join(text.split()) for name, text in _FIELD.findall(section)}
    fields = [field for field in _fields_of(type_).values() if field.init]
    return [(f"`{f.name}`", f"`{_type_text(f)}`", _default(f), meanings.get(f.name, "")) for f in fields]


def _fields_of(type_: type) -> Mapping[str, Field[object]]:
    """Return the fields of a dataclass by name; no fields for any other class."""
    return getattr(type_, "__dataclass_fields__", {})


def _type_text(field: Field[object]) -> str:
    text = field.type if isinstance(field.type, str) else getattr(field.type, "__name__", str(field.type))
    return re.sub(r"^InitVar\[(.*)\]$", r"\1", text)


def _default(field: Field[object]) -> str:
    if field.default_factory is not MISSING:
        value = field.default_factory()
        return f"`{dict(value)!r}`" if isinstance(value, Mapping) else f"`{value!r}`"
    if field.default is MISSING:
        return "required"
    if field.default is REQUIRED:
        return "`REQUIRED`"
    if inspect.isfunction(field.default):
        return f"`{field.default.__name__}`"
    members = re.sub(r"<(\w+\.\w+): [^>]+>", r"\1", repr(field.default))
    return f"`{members}`"


def _methods(type_: type) -> Iterator[tuple[str, str, str]]:
    """Yield the public methods and properties of a class with their signatures and first lines."""
    for name, value in vars(type_).items():
        if name.startswith("_") or name in _fields_of(type_):
            continue
        first_line = (inspect.getdoc(value) or "").partition("\n")[0]
        if isinstance(value, property):
            yield name, "", first_line
        elif inspect.isfunction(value):
            parameters = [str(item).replace("'", "") for item in list(inspect.signature(value).parameters.values())[1:]]
            yield name, f"({', '.join(parameters)})", first_line
