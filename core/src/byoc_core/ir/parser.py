"""Parsing of IR from script text. The text is parsed as Python syntax and never executed."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from byoc_core.errors import IRError, IRTypeError, ScriptError, near_names
from byoc_core.ir.constants import Constant
from byoc_core.ir.infer import infer_results
from byoc_core.ir.module import DEFAULT_NAME, Binding, Function, IRModule, Location, Value, Var
from byoc_core.ir.op_registry import default_ops
from byoc_core.ir.printer import OP_ALIASES
from byoc_core.ir.script_hints import DECORATORS, hint_for, literal_hint, statement_hint
from byoc_core.ir.script_reader import ScriptReader, script_name
from byoc_core.ir.structural import CALL
from byoc_core.opset.attributes import AttrValue
from byoc_core.opset.opdef import OpDef
from byoc_core.opset.registry import OpRegistry
from byoc_core.opset.types import TensorType, Type

__all__ = ["parse_function", "parse_module"]

_OP_OF_ALIAS = {alias: op for op, alias in OP_ALIASES.items()}
_BINDING_KEYWORDS = ("regions", "out_types", "codegen", "schedule")


def parse_module(
    text: str,
    ops: OpRegistry | None = None,
    *,
    constants: Mapping[str, npt.NDArray[np.generic]] | None = None,
    source: str = "<script>",
    first_line: int = 1,
) -> IRModule:
    """Parse a module: a class of functions, or functions without an enclosing class.

    Args:
        text: the script.
        ops: the registry for op names, also the registry of the module; the core's own ops by default.
        constants: arrays by digest, for constants cited by digest in the text. Arrays of a ``ConstantStore`` are
            shared; arrays of another mapping are copied and their digests checked.
        source: name of the text in messages and locations.
        first_line: number of the text's first line in the source.

    Raises:
        ScriptError: the text is not script; the message shows the line.
        IRTypeError: an op's operands or attributes do not fit; shows the line.
    """
    registry = default_ops() if ops is None else ops
    parser = _Parser(text, registry, {} if constants is None else constants, source, first_line)
    return parser.guard(parser.module)


def parse_function(
    text: str, ops: OpRegistry | None = None, *, constants: Mapping[str, npt.NDArray[np.generic]] | None = None
) -> Function:
    """Parse a module's text with a single function and return the function.

    Raises:
        ScriptError: the text is not script, or holds another number of functions.
    """
    functions = parse_module(text, ops, constants=constants).functions
    if len(functions) != 1:
        raise ScriptError("<script>", "does not hold a single function", got=", ".join(functions) or "none", expected=1)
    return next(iter(functions.values()))


@dataclass
class _Scope:
    """The values and regions named inside a function, apart from the constant table."""

    values: dict[str, Value] = field(default_factory=dict)
    regions: dict[str, Function] = field(default_factory=dict)


class _Parser(ScriptReader):
    def __init__(
        self,
        text: str,
        ops: OpRegistry,
        constants: Mapping[str, npt.NDArray[np.generic]],
        source: str,
        first_line: int,
    ) -> None:
        super().__init__(text, constants, source, first_line)
        self._text = text
        self._ops = ops
        self._table: dict[str, Constant] = {}
        self._pending: dict[str, ast.FunctionDef] = {}
        self._functions: dict[str, Function] = {}
        self._node: ast.AST | None = None
        self._name = DEFAULT_NAME

    def guard(self, parse: Callable[[], IRModule]) -> IRModule:
        """Run the parser; IR errors get the faulty line of the script."""
        try:
            return parse()
        except ScriptError:
            raise
        except IRError as error:
            if error.detail is None:
                error.detail = self.window(self._node)
            raise
        except RecursionError:
            raise ScriptError(self._source, "is nested too deeply") from None

    # -- modules and functions ---------------------------------------------------------------------------------

    def module(self) -> IRModule:
        try:
            tree = ast.parse(self._text)
        except (SyntaxError, ValueError, MemoryError) as error:
            line = getattr(error, "lineno", None)
            node = ast.Pass(lineno=line, col_offset=0) if isinstance(line, int) else None
            reason = error.msg if isinstance(error, SyntaxError) else str(error)
            self.fail(node, f"is not Python syntax: {reason or 'nested too deeply'}")
        attrs: dict[str, Any] = {}
        for statement in self._top_level(tree):
            self._node = statement
            match statement:
                case ast.FunctionDef(name=name):
                    if name in self._pending:
                        self.fail(statement, f"function `{name}` is defined twice")
                    self._pending[name] = statement
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as call) if (
                    script_name(call.func) == "constant"
                ):
                    self._table[name] = self.cited_constant(call)
                case ast.Expr(value=ast.Call(args=[literal]) as call) if script_name(call.func) == "module_attrs":
                    attrs = self.attr_dict(literal)
                case ast.Pass() | ast.Expr(value=ast.Constant(value=str())):
                    pass
                case _:
                    self.fail(statement, "is not a function, a constant or `R.module_attrs`")
        for name in self._callees_first():
            self._functions[name] = self._function(self._pending[name])
        ordered = {name: self._functions[name] for name in self._pending}
        return IRModule(ordered, self.store, attrs, self._name, self._ops)

    def _top_level(self, tree: ast.Module) -> list[ast.stmt]:
        body = [s for s in tree.body if not isinstance(s, ast.Import | ast.ImportFrom)]
        classes = [s for s in body if isinstance(s, ast.ClassDef)]
        if not classes:
            return body
        if len(classes) > 1:
            self.fail(classes[1], "is a second module class", expected="a single class")
        self._check_decorators(classes[0])
        self._name = classes[0].name
        return [s for s in body if s is not classes[0]] + classes[0].body

    def _callees_first(self) -> list[str]:
        """Return the names of all functions, callees before callers (without recursion: chains may be long)."""
        order: list[str] = []
        done: set[str] = set()
        for root in self._pending:
            path = {root: self._callees(root)} if root not in done else {}
            while path:
                name, callees = next(reversed(path.items()))
                callee = next(callees, None)
                if callee is None:
                    path.popitem()
                    done.add(name)
                    order.append(name)
                elif callee in path:
                    self.fail(self._pending[callee], f"function `{callee}` calls itself")
                elif callee not in done:
                    path[callee] = self._callees(callee)
        return order

    def _callees(self, name: str) -> Iterator[str]:
        for node in ast.walk(self._pending[name]):
            match node:
                case ast.Call(func=ast.Name(id=callee)) if callee in self._pending:
                    yield callee

    def _check_decorators(self, node: ast.FunctionDef | ast.ClassDef) -> None:
        for decorator in node.decorator_list:
            called = decorator.func if isinstance(decorator, ast.Call) else decorator
            name = script_name(called) or ast.unparse(called).rpartition(".")[2]
            if name not in DECORATORS and (script_name(called) or hint_for(name)):
                hint = hint_for(name, DECORATORS) or None
                self.fail(decorator, f"`{ast.unparse(decorator)}` is not a decorator of script", hint=hint)

    def _function(self, node: ast.FunctionDef) -> Function:
        self._node = node
        self._check_decorators(node)
        arguments = node.args
        if arguments.vararg or arguments.kwarg or arguments.kwonlyargs or arguments.posonlyargs or arguments.defaults:
            self.fail(node, "has parameters other than plain positional parameters")
        scope = _Scope()
        params = []
        for argument in arguments.args:
            if argument.arg in scope.values:
                self.fail(argument, f"parameter `{argument.arg}` is repeated")
            if argument.annotation is None:
                self.fail(argument, f"parameter `{argument.arg}` has no type")
            params.append(Var(argument.arg, self.type(argument.annotation)))
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
        declared = tuple(self.type(node) for node in nodes)
        if declared != function.result_types:
            shown = ", ".join(map(str, function.result_types))
            self.fail(
                annotation,
                f"the result types of function `{function.name}` differ from the annotation; actual types: {shown}",
            )

    def _body(
        self, statements: list[ast.stmt], scope: _Scope, bindings: list[Binding], attrs: dict[str, AttrValue]
    ) -> tuple[Value, ...] | None:
        results: tuple[Value, ...] | None = None
        for statement in statements:
            if results is not None:
                self.fail(statement, "follows the return")
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
                    script_name(call.func) == "dataflow"
                ):
                    results = self._body(inner, scope, bindings, attrs)
                case ast.Expr(value=ast.Call(args=[literal]) as call) if script_name(call.func) == "func_attr":
                    attrs.update(self.attr_dict(literal))
                case ast.Expr(value=ast.Call() as call) if script_name(call.func) == "output":
                    for argument in call.args:
                        self._value(argument, scope)
                case ast.Pass() | ast.Expr(value=ast.Constant(value=str())):
                    pass
                case _:
                    self.fail(statement, "is not a binding, a region or a return", hint=statement_hint(statement))
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
        if script_name(call.func) in ("const", "constant"):
            if len(names) != 1:
                self.fail(target, f"binds {len(names)} names to a single constant")
            scope.values[names[0]] = self._value(call, scope)
            return
        self.check_keywords(call)
        op, operands, attrs = self._call(call, scope)
        regions, declared = self._binding_keywords(call, scope)
        if declared is not None and not op.declares_results:
            self.fail(call, f"`{op.name}` infers the result types", hint="Omit `out_types`.")
        normal = op.attrs_for(attrs, [operand.type for operand in operands])
        types = infer_results(op, operands, normal, regions=regions, declared=declared, functions=self._functions)
        if len(types) != len(names):
            self.fail(target, f"binds {len(names)} names, but `{op.name}` has {len(types)} results")
        results = tuple(Var(name, type_) for name, type_ in zip(names, types, strict=True))
        location = Location(self._source, f"line {self.line(call)}")
        codegen = self._keyword_text(call, "codegen", "is not the name of a backend")
        schedule = self._keyword_text(call, "schedule", "is not the name of a schedule")
        bindings.append(Binding(results, op, operands, normal, regions, codegen, location, schedule))
        scope.values.update(zip(names, results, strict=True))

    def _check_annotation(self, annotation: ast.expr, value: Value) -> None:
        declared = self.type(annotation)
        if declared != value.type:
            self.fail(annotation, f"the annotation differs from the value's type, {value.type}", expected=None)

    def _call(self, call: ast.Call, scope: _Scope) -> tuple[OpDef, tuple[Value, ...], dict[str, object]]:
        attrs = {k.arg: self.literal(k.value) for k in call.keywords if k.arg and k.arg not in _BINDING_KEYWORDS}
        name = script_name(call.func)
        if name is None:
            if not isinstance(call.func, ast.Name):
                problem = "calls neither an op `R.<name>` nor a function of the module"
                self.fail(call, problem, hint=hint_for(ast.unparse(call.func), ops=self._ops) or None)
            callee = call.func.id
            if callee not in self._pending:
                hint = near_names(callee, self._pending)
                self.fail(call, f"function `{callee}` is not in the module", hint=hint or None)
            self._check_not_passed(call, "callee")
            return CALL, self._operands(call.args, scope), {"callee": callee, **attrs}
        op = self._ops.get(_OP_OF_ALIAS.get(name, name)) or self._unknown_op(name)
        arguments = list(call.args)
        if op.leading_attr is None:
            self._check_no_literals(arguments, scope)
        else:
            self._check_not_passed(call, op.leading_attr)
            attrs[op.leading_attr] = self._leading_symbol(call, arguments)
            if len(arguments) > 2 + op.declares_results:
                form = f'("{op.leading_attr}", (operands, ...){", out_types" if op.declares_results else ""})'
                self.fail(call, f"`{op.name}` has {len(arguments)} positional arguments", expected=form)
            arguments = arguments[1:2]
        return op, self._operands(arguments, scope), attrs

    def _unknown_op(self, name: str) -> NoReturn:
        raise IRTypeError(f"op `{name}`", "is not known", hint=hint_for(name, ops=self._ops) or None)

    def _check_no_literals(self, arguments: Sequence[ast.expr], scope: _Scope) -> None:
        for argument in arguments:
            if isinstance(argument, ast.Constant | ast.UnaryOp):
                values = (scope.values.get(other.id) for other in arguments if isinstance(other, ast.Name))
                types = (value.type for value in values if value is not None)
                dtype = next((type_.dtype for type_ in types if isinstance(type_, TensorType)), "float32")
                hint = literal_hint(argument, dtype)
                self.fail(argument, "is not a value", expected="a name, `R.const` or `R.constant`", hint=hint)

    def _check_not_passed(self, call: ast.Call, name: str) -> None:
        if any(keyword.arg == name for keyword in call.keywords):
            self.fail(call, f"passes `{name}` twice")

    def _leading_symbol(self, call: ast.Call, arguments: list[ast.expr]) -> str:
        match arguments:
            case [ast.Constant(value=str(symbol)), *_]:
                return symbol
            case [ast.Call(args=[ast.Constant(value=str(symbol))]) as inner, *_] if script_name(inner.func) == "extern":
                return symbol
        self.fail(call, "has no symbol as the first argument", expected="a string")

    def _operands(self, nodes: list[ast.expr], scope: _Scope) -> tuple[Value, ...]:
        values: list[Value] = []
        for node in nodes:
            items = node.elts if isinstance(node, ast.Tuple | ast.List) else [node]
            values.extend(self._value(item, scope) for item in items)
        return tuple(values)

    def _binding_keywords(self, call: ast.Call, scope: _Scope) -> tuple[tuple[Function, ...], tuple[Type, ...] | None]:
        regions: tuple[Function, ...] = ()
        declared: tuple[Type, ...] | None = None
        op = self._ops.get(script_name(call.func) or "")
        if op is not None and op.leading_attr is not None and len(call.args) > 2:
            declared = self.types(call.args[2])
        for keyword in call.keywords:
            if keyword.arg == "regions":
                regions = self._regions(keyword.value, scope)
            elif keyword.arg == "out_types":
                declared = self.types(keyword.value)
        return regions, declared

    def _keyword_text(self, call: ast.Call, name: str, problem: str) -> str | None:
        """Return the text of a keyword; ``None`` without the keyword."""
        node = next((keyword.value for keyword in call.keywords if keyword.arg == name), None)
        if node is None:
            return None
        text = self.literal(node)
        if not isinstance(text, str):
            self.fail(node, problem, expected="a string")
        return text

    def _regions(self, node: ast.expr, scope: _Scope) -> tuple[Function, ...]:
        found = []
        for item in node.elts if isinstance(node, ast.List | ast.Tuple) else [node]:
            if not isinstance(item, ast.Name) or item.id not in scope.regions:
                self.fail(item, "is not a region defined above")
            found.append(scope.regions[item.id])
        return tuple(found)

    def _value(self, node: ast.expr, scope: _Scope) -> Value:
        match node:
            case ast.Name(id=name):
                value = scope.values.get(name) or self._table.get(name)
                if value is None:
                    hint = near_names(name, [*scope.values, *self._table])
                    self.fail(node, f"`{name}` is not defined", hint=hint or None)
                return value
            case ast.Call(func=func) if script_name(func) == "const":
                return self.literal_constant(node)
            case ast.Call(func=func) if script_name(func) == "constant":
                return self.cited_constant(node)
        self.fail(node, "is not a value", expected="a name, `R.const` or `R.constant`")
