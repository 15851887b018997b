"""Reads IR from script text. The text is parsed as Python syntax and never executed."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from byoc_core.dims import parse_dim
from byoc_core.dtypes import dtype_info, to_numpy
from byoc_core.errors import ByocError, IRError, ScriptError, near_names
from byoc_core.ir.constants import Constant, ConstantStore
from byoc_core.ir.infer import infer_results
from byoc_core.ir.module import Binding, Function, IRModule, Location, Value, Var
from byoc_core.ir.opdef import AttrValue, OpDef, OpRegistry
from byoc_core.ir.printer import OP_ALIASES, SYMBOL_FIRST
from byoc_core.ir.structural import CALL
from byoc_core.ir.types import ObjectType, TensorType, Type

__all__ = ["parse_function", "parse_module"]

_OP_OF_ALIAS = {alias: op for op, alias in OP_ALIASES.items()}
_BINDING_KEYWORDS = ("regions", "out_types", "codegen")


def parse_module(
    text: str,
    ops: OpRegistry,
    *,
    constants: Mapping[str, npt.NDArray[np.generic]] | None = None,
    source: str = "<script>",
) -> IRModule:
    """Reads a module: a class of functions, or functions without a class around them.

    Args:
        text: the script.
        ops: where op names are looked up.
        constants: arrays by digest, for constants that the text cites by digest.
        source: name of the text in messages and locations.

    Raises:
        ScriptError: the text is not script; the message shows the line.
        IRTypeError: an op's operands or attributes do not fit; shows the line.
    """
    parser = _Parser(text, ops, constants or {}, source)
    return parser.guard(parser.module)


def parse_function(
    text: str, ops: OpRegistry, *, constants: Mapping[str, npt.NDArray[np.generic]] | None = None
) -> Function:
    """Reads a module's text that holds one function and gives that function.

    Raises:
        ScriptError: the text is not script, or holds another number of functions.
    """
    functions = parse_module(text, ops, constants=constants).functions
    if len(functions) != 1:
        raise ScriptError("<script>", "does not hold one function", got=", ".join(functions) or "none", expected=1)
    return next(iter(functions.values()))


@dataclass
class _Scope:
    """What names mean inside one function."""

    values: dict[str, Value] = field(default_factory=dict)
    regions: dict[str, Function] = field(default_factory=dict)


class _Parser:
    def __init__(
        self, text: str, ops: OpRegistry, constants: Mapping[str, npt.NDArray[np.generic]], source: str
    ) -> None:
        self._text = text
        self._lines = text.splitlines()
        self._ops = ops
        self._given = constants
        self._source = source
        self._store = ConstantStore()
        self._table: dict[str, Constant] = {}
        self._pending: dict[str, ast.FunctionDef] = {}
        self._functions: dict[str, Function] = {}
        self._active: list[str] = []
        self._node: ast.AST | None = None

    # -- errors ------------------------------------------------------------------------------------------------

    def guard(self, parse: Callable[[], IRModule]) -> IRModule:
        """Runs the parser; IR errors get the guilty line of the script."""
        try:
            return parse()
        except ScriptError:
            raise
        except IRError as error:
            if error.detail is None:
                error.detail = self._window(self._node)
            raise
        except RecursionError:
            raise ScriptError(self._source, "is nested too deeply") from None

    def fail(self, node: ast.AST | None, problem: str, *, expected: object = None, hint: str | None = None) -> NoReturn:
        line = getattr(node, "lineno", None)
        where = f"{self._source}, line {line}" if line else self._source
        raise ScriptError(where, problem, expected=expected, hint=hint, detail=self._window(node))

    def _window(self, node: ast.AST | None) -> str | None:
        line = getattr(node, "lineno", None)
        if line is None or not 0 < line <= len(self._lines):
            return None
        first = max(1, line - 2)
        last = min(len(self._lines), line + 2)
        return "\n".join(f"{'>' if n == line else ' '} {n:4} | {self._lines[n - 1]}" for n in range(first, last + 1))

    # -- modules and functions ---------------------------------------------------------------------------------

    def module(self) -> IRModule:
        try:
            tree = ast.parse(self._text)
        except (SyntaxError, ValueError, MemoryError) as error:
            line = getattr(error, "lineno", None)
            node = ast.Pass(lineno=line, col_offset=0) if isinstance(line, int) else None
            reason = error.msg if isinstance(error, SyntaxError) else str(error)
            self.fail(node, f"is not Python syntax: {reason}")
        attrs: dict[str, Any] = {}
        for statement in self._top_level(tree):
            match statement:
                case ast.FunctionDef(name=name):
                    if name in self._pending:
                        self.fail(statement, f"function `{name}` is defined twice")
                    self._pending[name] = statement
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as call) if (
                    _r_name(call.func) == "constant"
                ):
                    self._table[name] = self._cited_constant(call)
                case ast.Expr(value=ast.Call(args=[literal]) as call) if _r_name(call.func) == "module_attrs":
                    attrs = self._attr_dict(literal)
                case ast.Pass() | ast.Expr(value=ast.Constant(value=str())):
                    pass
                case _:
                    self.fail(statement, "is not a function, a constant or `R.module_attrs`")
        for name in self._pending:
            self._function_named(name)
        ordered = {name: self._functions[name] for name in self._pending}
        return IRModule(ordered, self._store, attrs)

    def _top_level(self, tree: ast.Module) -> list[ast.stmt]:
        body = [s for s in tree.body if not isinstance(s, ast.Import | ast.ImportFrom)]
        classes = [s for s in body if isinstance(s, ast.ClassDef)]
        if not classes:
            return body
        if len(classes) > 1:
            self.fail(classes[1], "is a second module class", expected="one class")
        return [s for s in body if s is not classes[0]] + classes[0].body

    def _function_named(self, name: str) -> Function:
        if name not in self._functions:
            node = self._pending[name]
            if name in self._active:
                self.fail(node, f"function `{name}` calls itself")
            self._active.append(name)
            self._functions[name] = self._function(node)
            self._active.pop()
        return self._functions[name]

    def _function(self, node: ast.FunctionDef) -> Function:
        arguments = node.args
        if arguments.vararg or arguments.kwarg or arguments.kwonlyargs or arguments.posonlyargs or arguments.defaults:
            self.fail(node, "has parameters other than plain positional ones")
        scope = _Scope(dict(self._table))
        params = []
        for argument in arguments.args:
            if argument.annotation is None:
                self.fail(argument, f"parameter `{argument.arg}` has no type")
            params.append(Var(argument.arg, self._type(argument.annotation)))
            scope.values[argument.arg] = params[-1]
        attrs: dict[str, AttrValue] = {}
        bindings: list[Binding] = []
        results = self._body(node.body, scope, bindings, attrs)
        if results is None:
            self.fail(node, f"function `{node.name}` has no return")
        function = Function(node.name, tuple(params), tuple(bindings), results, attrs)
        if node.returns is not None:
            self._check_returns(node.returns, function)
        return function

    def _check_returns(self, annotation: ast.expr, function: Function) -> None:
        nodes = annotation.elts if isinstance(annotation, ast.Tuple) else [annotation]
        declared = tuple(self._type(node) for node in nodes)
        if declared != function.result_types:
            shown = ", ".join(map(str, function.result_types))
            self.fail(
                annotation, f"function `{function.name}` does not return what its annotation says; it returns {shown}"
            )

    def _body(
        self, statements: list[ast.stmt], scope: _Scope, bindings: list[Binding], attrs: dict[str, AttrValue]
    ) -> tuple[Value, ...] | None:
        results: tuple[Value, ...] | None = None
        for statement in statements:
            if results is not None:
                self.fail(statement, "stands after the return")
            self._node = statement
            match statement:
                case ast.Return(value=value):
                    results = self._returned(value, scope)
                case ast.Assign(targets=[target], value=ast.Call() as call):
                    self._assign(target, call, scope, bindings)
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Name() as alias):
                    scope.values[name] = self._value(alias, scope)
                case ast.AnnAssign(target=ast.Name() as target, annotation=annotation, value=ast.Call() as call):
                    self._assign(target, call, scope, bindings)
                    self._check_annotation(annotation, scope.values[target.id])
                case ast.FunctionDef(name=name):
                    scope.regions[name] = self._function(statement)
                case ast.With(items=[ast.withitem(context_expr=ast.Call() as call)], body=inner) if (
                    _r_name(call.func) == "dataflow"
                ):
                    results = self._body(inner, scope, bindings, attrs)
                case ast.Expr(value=ast.Call(args=[literal]) as call) if _r_name(call.func) == "func_attr":
                    attrs.update(self._attr_dict(literal))
                case ast.Expr(value=ast.Call() as call) if _r_name(call.func) == "output":
                    for argument in call.args:
                        self._value(argument, scope)
                case ast.Pass() | ast.Expr(value=ast.Constant(value=str())):
                    pass
                case _:
                    self.fail(statement, "is not a binding, a region or a return")
        return results

    def _returned(self, node: ast.expr | None, scope: _Scope) -> tuple[Value, ...]:
        if node is None:
            return ()
        nodes = node.elts if isinstance(node, ast.Tuple | ast.List) else [node]
        return tuple(self._value(item, scope) for item in nodes)

    # -- bindings ----------------------------------------------------------------------------------------------

    def _assign(self, target: ast.expr, call: ast.Call, scope: _Scope, bindings: list[Binding]) -> None:
        targets = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
        names = [node.id for node in targets if isinstance(node, ast.Name)]
        if len(names) != len(targets):
            self.fail(target, "is not a name or a tuple of names")
        if _r_name(call.func) == "const":
            scope.values[names[0]] = self._literal_constant(call)
            return
        op, operands, attrs = self._call(call, scope)
        regions, declared, codegen = self._binding_keywords(call, scope)
        normal = op.normalise_attrs(attrs)
        types = infer_results(op, operands, normal, regions=regions, declared=declared, functions=self._functions)
        if len(types) != len(names):
            self.fail(target, f"binds {len(names)} names, but `{op.name}` has {len(types)} results")
        results = tuple(Var(name, type_) for name, type_ in zip(names, types, strict=True))
        location = Location(self._source, f"line {call.lineno}")
        bindings.append(Binding(results, op, operands, normal, regions, codegen, location))
        scope.values.update(zip(names, results, strict=True))

    def _check_annotation(self, annotation: ast.expr, value: Value) -> None:
        declared = self._type(annotation)
        if declared != value.type:
            self.fail(annotation, f"the annotation is not the value's type, {value.type}", expected=None)

    def _call(self, call: ast.Call, scope: _Scope) -> tuple[OpDef, tuple[Value, ...], dict[str, object]]:
        attrs = {k.arg: self._literal(k.value) for k in call.keywords if k.arg and k.arg not in _BINDING_KEYWORDS}
        if any(k.arg is None for k in call.keywords):
            self.fail(call, "has `**` arguments")
        name = _r_name(call.func)
        if name is None:
            if not isinstance(call.func, ast.Name):
                self.fail(call, "calls something that is neither an op `R.<name>` nor a function of the module")
            callee = call.func.id
            if callee not in self._pending:
                hint = near_names(callee, self._pending)
                self.fail(call, f"function `{callee}` is not in the module", hint=hint or None)
            self._function_named(callee)
            self._node = call
            return CALL, self._operands(call.args, scope), {"callee": callee, **attrs}
        op = self._ops.find(_OP_OF_ALIAS.get(name, name))
        arguments = list(call.args)
        if op.name in SYMBOL_FIRST:
            attrs[SYMBOL_FIRST[op.name]] = self._leading_symbol(call, arguments)
            arguments = arguments[1:2] if op.declares_results else arguments[1:]
        return op, self._operands(arguments, scope), attrs

    def _leading_symbol(self, call: ast.Call, arguments: list[ast.expr]) -> str:
        match arguments:
            case [ast.Constant(value=str(symbol)), *_]:
                return symbol
            case [ast.Call(args=[ast.Constant(value=str(symbol))]) as inner, *_] if _r_name(inner.func) == "extern":
                return symbol
        self.fail(call, "has no symbol as its first argument", expected="a string")

    def _operands(self, nodes: list[ast.expr], scope: _Scope) -> tuple[Value, ...]:
        values: list[Value] = []
        for node in nodes:
            items = node.elts if isinstance(node, ast.Tuple | ast.List) else [node]
            values.extend(self._value(item, scope) for item in items)
        return tuple(values)

    def _binding_keywords(
        self, call: ast.Call, scope: _Scope
    ) -> tuple[tuple[Function, ...], tuple[Type, ...] | None, str | None]:
        regions: tuple[Function, ...] = ()
        declared: tuple[Type, ...] | None = None
        codegen: str | None = None
        name = _r_name(call.func)
        if name in SYMBOL_FIRST and name != "composite" and len(call.args) > 2:
            declared = self._types(call.args[2])
        for keyword in call.keywords:
            if keyword.arg == "regions":
                regions = self._regions(keyword.value, scope)
            elif keyword.arg == "out_types":
                declared = self._types(keyword.value)
            elif keyword.arg == "codegen":
                codegen = str(self._literal(keyword.value))
        return regions, declared, codegen

    def _regions(self, node: ast.expr, scope: _Scope) -> tuple[Function, ...]:
        found = []
        for item in node.elts if isinstance(node, ast.List | ast.Tuple) else [node]:
            if not isinstance(item, ast.Name) or item.id not in scope.regions:
                self.fail(item, "is not a region defined above")
            found.append(scope.regions[item.id])
        return tuple(found)

    # -- values, types, literals -------------------------------------------------------------------------------

    def _value(self, node: ast.expr, scope: _Scope) -> Value:
        match node:
            case ast.Name(id=name):
                if name not in scope.values:
                    self.fail(node, f"`{name}` is not defined", hint=near_names(name, scope.values) or None)
                return scope.values[name]
            case ast.Call(func=func) if _r_name(func) == "const":
                return self._literal_constant(node)
            case ast.Call(func=func) if _r_name(func) == "constant":
                return self._cited_constant(node)
        self.fail(node, "is not a value", expected="a name, `R.const` or `R.constant`")

    def _literal_constant(self, call: ast.Call) -> Constant:
        arguments = [self._literal(argument) for argument in call.args]
        dtypes = [self._literal(k.value) for k in call.keywords if k.arg == "dtype"]
        if not arguments or len(arguments) + len(dtypes) > 2:
            self.fail(call, "is not a constant", expected='R.const(values, "dtype")')
        dtype = (*arguments[1:], *dtypes, "float32")[0]
        try:
            array = np.array(arguments[0], dtype=to_numpy(str(dtype)))
        except (ValueError, TypeError, OverflowError) as error:
            self.fail(call, f"is not a constant of dtype {dtype}: {error}")
        return self._store.add(array)

    def _cited_constant(self, call: ast.Call) -> Constant:
        match call.args:
            case [ast.Constant(value=str(digest)), type_node]:
                type_ = self._type(type_node)
                array = self._given.get(digest)
                if not isinstance(type_, TensorType):
                    self.fail(call, "is not of a tensor type")
                if array is None:
                    self.fail(call, f"constant {digest[:16]}... is not given", hint="Pass its array in `constants=`.")
                constant = Constant(digest, type_)
                self._store.adopt(constant, array)
                return constant
        self.fail(call, "is not a constant", expected='R.constant("digest", R.Tensor(...))')

    def _types(self, node: ast.expr) -> tuple[Type, ...]:
        nodes = node.elts if isinstance(node, ast.List | ast.Tuple) else [node]
        return tuple(self._type(item) for item in nodes)

    def _type(self, node: ast.expr) -> Type:
        if not isinstance(node, ast.Call):
            self.fail(node, "is not a type", expected='R.Tensor((2, "n"), "float32") or R.Object("kind")')
        name = _r_name(node.func)
        arguments = [self._literal(argument) for argument in node.args]
        keywords = {k.arg: self._literal(k.value) for k in node.keywords}
        if name == "Object" and len(arguments) == 1:
            return ObjectType(str(arguments[0]))
        if name == "Tensor" and 1 <= len(arguments) + ("shape" in keywords) <= 2:
            shape = keywords.get("shape", arguments[0] if arguments else None)
            dtype = keywords.get("dtype", arguments[1] if len(arguments) > 1 else "float32")
            return self._tensor_type(node, shape, dtype)
        self.fail(node, "is not a type", expected='R.Tensor((2, "n"), "float32") or R.Object("kind")')

    def _tensor_type(self, node: ast.expr, shape: object, dtype: object) -> TensorType:
        if not isinstance(dtype, str):
            self.fail(node, "has a dtype that is not a string")
        try:
            dtype_info(dtype)
            if shape is None:
                return TensorType(None, dtype)
            if not isinstance(shape, tuple):
                self.fail(node, "has a shape that is not a tuple")
            return TensorType(tuple(parse_dim(dim) for dim in shape), dtype)
        except ScriptError:
            raise
        except ByocError as error:
            self.fail(node, f"is not a type: {error}")

    def _attr_dict(self, node: ast.expr) -> dict[str, Any]:
        value = self._literal(node)
        if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
            self.fail(node, "is not a dict of attributes")
        return value

    def _literal(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=None | bool() | int() | float() | str() as value):
                return value
            case ast.Tuple(elts=items) | ast.List(elts=items):
                return tuple(self._literal(item) for item in items)
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
                return -value
            case ast.Dict(keys=keys, values=values) if all(keys):
                return {self._literal(k): self._literal(v) for k, v in zip(keys, values, strict=True) if k is not None}
            case ast.Call(func=ast.Name(id="float"), args=[ast.Constant(value="nan" | "inf" | "-inf" as text)]):
                return float(text)
        self.fail(node, "is not a literal")


def _r_name(node: ast.expr) -> str | None:
    """Gives ``"nn.conv2d"`` for the syntax ``R.nn.conv2d``, else ``None``."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if isinstance(node, ast.Name) and node.id == "R" and parts:
        return ".".join(reversed(parts))
    return None
