"""Printing of IR as Python script, to be parsed by :mod:`byoc_core.ir.parser`.

Printing is deterministic: names are made valid and unique in order of definition. Small and finite constants are
written out; other constants are cited by digest in a table at the head of the class.
"""

from __future__ import annotations

import keyword
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from byoc_core.dims import DimExpr
from byoc_core.dtypes import to_numpy
from byoc_core.ir.constants import Constant, ConstantStore
from byoc_core.ir.module import Binding, Function, IRModule, Value, Var
from byoc_core.ir.states import initial_constants
from byoc_core.ir.structural import CALL
from byoc_core.ir.weights import weight_constants
from byoc_core.opset.attributes import REQUIRED
from byoc_core.opset.types import Type, quoted

__all__ = [
    "EXTERNAL_FUNCTIONS",
    "EXTERNAL_MODULES",
    "OP_ALIASES",
    "UNPRINTED_ATTRS",
    "binding_window",
    "print_function",
    "print_module",
]

EXTERNAL_MODULES = "external_mods"
"""The module attribute for runtime modules; printed as comments, not parsed."""

EXTERNAL_FUNCTIONS = "external_functions"
"""The module attribute for the compiled functions of runtime modules by symbol, for reports."""

UNPRINTED_ATTRS = frozenset({EXTERNAL_FUNCTIONS, EXTERNAL_MODULES})
"""Attributes of a module neither printed as attributes, nor parsed, nor compared."""

OP_ALIASES = {"if": "if_"}
"""The script spellings of ops named like Python keywords."""

_MAX_INLINE_ELEMENTS = 4
_RESERVED = frozenset({"R", "self", "__debug__"})


class _Names:
    """Valid, unique Python names for values, in order of first use, disjoint from ``reserved``."""

    def __init__(self, reserved: Collection[str] = ()) -> None:
        self._reserved = reserved
        self._used_names: set[str] = set()
        self._next_number: dict[str, int] = {}
        self._names: dict[int, str] = {}
        self._owners: list[object] = []

    def of(self, owner: object, hint: str) -> str:
        name = self._names.get(id(owner))
        if name is None:
            name = self._unique(_identifier(hint))
            self._names[id(owner)] = name
            self._owners.append(owner)
        return name

    def _unique(self, base: str) -> str:
        name, number = base, self._next_number.get(base, 1)
        while name in self._used_names or name in self._reserved:
            name = f"{base}_{number}"
            number += 1
        self._next_number[base] = number
        self._used_names.add(name)
        return name


def _identifier(hint: str) -> str:
    name = re.sub(r"\W", "_", hint, flags=re.ASCII) or "v"
    if name[0].isdigit():
        name = f"v{name}"
    return f"{name}_" if keyword.iskeyword(name) or name in _RESERVED else name


class _Printer:
    """A printer of functions with a shared constant table; the table's names are fixed before the first line."""

    def __init__(
        self, functions: Collection[Function], store: ConstantStore | None, comments: Mapping[int, str] | None = None
    ) -> None:
        self._comments = comments or {}
        self._constants: dict[Constant, str] = {}
        self.table: dict[Constant, str] = {}
        # States and weights cite constants by digest, and only the table brings an array into a parsed module's store.
        for constant in (constant for function in functions for constant in _cited_by_attrs(function, store)):
            if constant not in self._constants:
                self._constants[constant] = self.table[constant] = f"const{len(self.table)}"
        for constant in (constant for function in functions for constant in _cited(function)):
            if constant not in self._constants:
                text = _inline_constant(constant, store)
                if text is None:
                    text = self.table[constant] = f"const{len(self.table)}"
                self._constants[constant] = text
        self._reserved = frozenset((*self.table.values(), *(function.name for function in functions)))
        self.lines: list[str] = []
        self.line_of: dict[int, int] = {}

    def value(self, value: Value, names: _Names) -> str:
        return names.of(value, value.name) if isinstance(value, Var) else self._constants[value]

    def function(self, function: Function, indent: str, decorator: str, name: str | None = None) -> None:
        names = _Names(self._reserved)
        params = ", ".join(f"{names.of(p, p.name)}: {p.type}" for p in function.params)
        self.lines.append(f"{indent}@{decorator}")
        self.lines.append(f"{indent}def {name or function.name}({params}){_returns(function.result_types)}:")
        body = indent + "    "
        if function.attrs:
            self.lines.append(f"{body}R.func_attr({_literal_dict(function.attrs)})")
        for binding in function.bindings:
            self._binding(binding, names, body)
        results = ", ".join(self.value(result, names) for result in function.results)
        self.lines.append(f"{body}return {results}".rstrip())

    def _binding(self, binding: Binding, names: _Names, indent: str) -> None:
        regions = []
        for region in binding.regions:
            name = names.of(region, region.name)
            self.function(region, indent, "R.region", name)
            regions.append(name)
        targets = ", ".join(names.of(result, result.name) for result in binding.results)
        self.line_of[id(binding)] = len(self.lines)
        comment = self._comments.get(id(binding))
        suffix = f"  {_comment(comment)}" if comment else ""
        self.lines.append(f"{indent}{targets} = {self._expression(binding, names, regions)}{suffix}")

    def _expression(self, binding: Binding, names: _Names, regions: Sequence[str]) -> str:
        operands = [self.value(operand, names) for operand in binding.operands]
        op, attrs = binding.op, dict(binding.attrs)
        keywords: list[str] = []
        if regions:
            keywords.append(f"regions=[{', '.join(regions)}]")
        if op.declares_results:
            keywords.append(f"out_types=[{', '.join(str(r.type) for r in binding.results)}]")
        if binding.codegen is not None:
            keywords.append(f"codegen={quoted(binding.codegen)}")
        if binding.schedule is not None:
            keywords.append(f"schedule={quoted(binding.schedule)}")
        if op is CALL:
            callee = attrs.pop("callee")
            return f"{callee}({', '.join([*operands, *keywords])})"
        positional = operands
        if op.leading_attr is not None:
            symbol = attrs.pop(op.leading_attr)
            positional = [quoted(str(symbol)), f"({', '.join(operands)}{',' if len(operands) == 1 else ''})"]
        defaults = {spec.name: spec.default for spec in op.attrs}
        shown = [
            f"{key}={_literal(value, typed=True)}"
            for key, value in attrs.items()
            if defaults.get(key, REQUIRED) is REQUIRED or not _same_literal(value, defaults[key])
        ]
        return f"R.{OP_ALIASES.get(op.name, op.name)}({', '.join([*positional, *shown, *keywords])})"


def print_module(module: IRModule, *, name: str | None = None, comments: Mapping[int, str] | None = None) -> str:
    """Return a module as script.

    Args:
        module: the module to print.
        name: the class's name; by default the module's.
        comments: text to append to bindings, by ``id(binding)``.
    """
    printer = _Printer(module.functions.values(), module.constants, comments)
    for function in module.functions.values():
        printer.lines.append("")
        printer.function(function, "    ", "R.function")
    head = ["from byoc_core import script as R", "", "", "@R.ir_module", f"class {_identifier(name or module.name)}:"]
    attrs = {key: value for key, value in module.attrs.items() if key not in UNPRINTED_ATTRS}
    if attrs:
        head.append(f"    R.module_attrs({_literal_dict(attrs)})")
    head.extend("    " + _comment(f"external module {item!r}") for item in module.attrs.get(EXTERNAL_MODULES, ()))
    head.extend(_constant_table(printer, "    "))
    if not module.functions and not attrs:
        head.append("    pass")
    return "\n".join([*head, *printer.lines]) + "\n"


def print_function(function: Function, constants: ConstantStore | None = None) -> str:
    """Return a function as script, preceded by the cited constants."""
    printer = _Printer((function,), constants)
    printer.function(function, "", "R.function")
    return "\n".join([*_constant_table(printer, ""), *printer.lines]) + "\n"


def binding_window(
    function: Function, binding: Binding | None, constants: ConstantStore | None = None, *, context: int = 3
) -> str:
    """Return the script lines of a function around a binding, with the faulty line marked by ``>``.

    Without a binding the head of the function is shown.
    """
    printer = _Printer((function,), constants)
    printer.function(function, "", "R.function")
    faulty_line = 1 if binding is None else printer.line_of.get(id(binding), 1)
    first, last = max(0, faulty_line - context), min(len(printer.lines), faulty_line + context + 1)
    window = [f"{'>' if number == faulty_line else ' '} {printer.lines[number]}" for number in range(first, last)]
    if first > 1:
        window.insert(0, f"  {printer.lines[1]}\n      ...")
    return "\n".join(window)


def _returns(types: Sequence[Type]) -> str:
    if not types:
        return ""
    return f" -> {types[0]}" if len(types) == 1 else f" -> ({', '.join(map(str, types))})"


def _constant_table(printer: _Printer, indent: str) -> list[str]:
    return [
        f'{indent}{name} = R.constant("{constant.digest}", {constant.type})' for constant, name in printer.table.items()
    ]


def _cited_by_attrs(function: Function, store: ConstantStore | None) -> Iterator[Constant]:
    """Yield the constants cited by attributes of a function, by digest."""
    yield from initial_constants(function, store)
    yield from weight_constants(function, store)


def _cited(function: Function) -> Iterator[Constant]:
    """Yield the constants of a function and its regions, in printing order."""
    for binding in function.bindings:
        for region in binding.regions:
            yield from _cited(region)
        yield from (operand for operand in binding.operands if isinstance(operand, Constant))
    yield from (result for result in function.results if isinstance(result, Constant))


def _comment(text: str) -> str:
    return f"# {' '.join(text.split())}"


def _inline_constant(constant: Constant, store: ConstantStore | None) -> str | None:
    array = None if store is None else store.get(constant.digest)
    if array is None or array.size > _MAX_INLINE_ELEMENTS or array.ndim > 1 or array.size == 0:
        return None
    values = array.tolist()
    if not all(isinstance(v, bool | int | float) and math.isfinite(v) for v in (values if array.ndim else [values])):
        return None
    restored = np.array(values, dtype=to_numpy(constant.type.dtype))
    if restored.tobytes() != array.tobytes():
        return None
    return f'R.const({values!r}, "{constant.type.dtype}")'


def _literal(value: Any, *, typed: bool = False) -> str:
    """Return a value as script text; if ``typed`` by an op's schema, a dimension needs only its text."""
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, DimExpr):
        return f'"{value}"' if typed else f'R.dim("{value}")'
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    if isinstance(value, tuple | list):
        items = [_literal(item, typed=typed) for item in value]
        return f"({', '.join(items)}{',' if len(items) == 1 else ''})"
    if isinstance(value, Mapping):
        return _literal_dict(value)
    return repr(value)


def _literal_dict(values: Mapping[str, Any]) -> str:
    return "{" + ", ".join(f"{quoted(key)}: {_literal(value)}" for key, value in values.items()) + "}"


def _same_literal(left: object, right: object) -> bool:
    return type(left) is type(right) and _literal(left) == _literal(right)
