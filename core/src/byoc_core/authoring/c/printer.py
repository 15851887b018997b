"""The printer: functions and statements as C text.

Expressions are printed by :mod:`byoc_core.authoring.c.expression_printer`. The text around functions (wrappers, packed
exports, constants) is written by the ``csource_*`` modules.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from byoc_core.authoring.c.collecting import Uses, uses_of, vector_types_of
from byoc_core.authoring.c.expression_printer import ExpressionPrinter, type_name
from byoc_core.authoring.c.expressions import Binary, Buffer, Load, MemoryAccess, PointerArray, Size, Variable
from byoc_core.authoring.c.naming import Names, NumberedNames
from byoc_core.authoring.c.statements import (
    Alias,
    Assign,
    Block,
    Clear,
    Comment,
    Copy,
    Declare,
    Dispatch,
    Evaluate,
    Fail,
    For,
    Function,
    If,
    Let,
    LocalArray,
    LoopKind,
    RawStatement,
    Return,
    Statement,
    Store,
    While,
)
from byoc_core.authoring.c.targets import C11_VECTORS, Target
from byoc_core.authoring.c.traversal import free_in, statements_in, symbols_in
from byoc_core.authoring.c.types import CType
from byoc_core.authoring.csource_parallel import OutlinedLoop
from byoc_core.authoring.csource_types import c_type
from byoc_core.errors import InternalError
from byoc_core.native.c_text import c_string, c_symbol

__all__ = [
    "BlockPrinter",
    "anonymous_text",
    "names_of",
    "print_definitions",
    "print_function",
    "print_prototype",
    "vector_typedefs",
]

_AUGMENTED = ("+", "-", "*", "|", "&", "^")
_WIDTH = 110
_SIMPLE = (Store, Assign, Evaluate, Copy, Clear)


def print_function(function: Function, target: Target = C11_VECTORS, uses: Uses | None = None) -> str:
    """Return the C definition of a function, behind the definitions of its outlined loops.

    Args:
        function: the function.
        target: the dialect.
        uses: the function's dependencies, if already known.
    """
    uses = uses or uses_of(function)
    return "\n".join(_definition(function, target, names_of(function, target, uses), uses))


def print_prototype(function: Function, target: Target = C11_VECTORS, uses: Uses | None = None) -> str:
    """Return the C declaration of a function, matching the definition of :func:`print_function`.

    Args:
        function: the function.
        target: the dialect.
        uses: the function's dependencies, if already known.
    """
    uses = uses or uses_of(function)
    names = names_of(function, target, uses)
    return f"{_head(function, target, names, uses)};"


def anonymous_text(function: Function, target: Target = C11_VECTORS, uses: Uses | None = None) -> str:
    """Return a text common to functions with no difference but names and comments.

    Args:
        function: the function.
        target: the dialect.
        uses: the function's dependencies, if already known.
    """
    anonymous = replace(function, name="", comments=())
    return "\n".join(_definition(anonymous, target, NumberedNames(), uses or uses_of(function)))


def names_of(function: Function, target: Target, uses: Uses | None = None) -> Names:
    """Return the names of a function's variables and buffers, before any declaration."""
    uses = uses or uses_of(function)
    reserved = {function.name, *(callee.name for callee in uses.callees), *uses.words, *target.keywords}
    return Names(reserved, (f"{function.name}_",))


def print_definitions(functions: Iterable[Function], target: Target = C11_VECTORS) -> str:
    """Return a C source of functions: headers, vector types, called functions, and then the functions themselves."""
    functions = tuple(functions)
    headers: dict[str, None] = {}
    helpers: dict[str, None] = {}
    called: list[Function] = []

    def collect(function: Function) -> None:
        for callee in uses_of(function).callees:
            if callee.header:
                headers[f'#include "{callee.header}"'] = None
            if callee.function is not None:
                collect(callee.function)
                called.append(callee.function)
                helpers[print_function(replace(callee.function, name=callee.name), target)] = None
            elif callee.definition:
                helpers[callee.definition.replace("{name}", callee.name)] = None

    for function in functions:
        collect(function)
    vectors = vector_typedefs(vector_types_of((*called, *functions)))
    if vectors and not target.has_vectors:
        raise InternalError("printer", "the target has no vectors", got=target.name, hint="Call scalarise.")
    return "\n".join([*headers, *vectors, *helpers, *(print_function(item, target) for item in functions)]) + "\n"


def vector_typedefs(types: Iterable[CType]) -> list[str]:
    """Return the definitions of vector types, sorted; types ending with ``u`` have the alignment of an element."""
    lines = []
    for found in sorted(types, key=lambda item: (item.dtype, item.lanes)):
        name, element = type_name(found), c_type(found.dtype)
        itemsize = found.nbytes // found.lanes
        size = f"vector_size({found.nbytes})"
        lines.append(f"typedef {element} {name} __attribute__(({size}));")
        lines.append(f"typedef {element} {name}u __attribute__(({size}, aligned({itemsize}), may_alias));")
    return lines


def _definition(function: Function, target: Target, names: Names, uses: Uses) -> list[str]:
    """Return the lines of a function, behind the lines of its outlined loops."""
    head = _head(function, target, names, uses)
    unused = [f"  (void){names[item]};" for item in function.parameters if item not in uses.items]
    shared = [item for item in function.parameters if isinstance(item, Buffer) and _is_kernel(function, target)]
    printer = BlockPrinter(target, names, function.name, shared)
    body = printer.lines(function.body, "  ")
    first = [f"  {target.contract}"] if function.is_contracted and target.contracted and target.contract else []
    return [*printer.before, *function.comments, f"{head} {{", *first, *unused, *body, "}"]


def _head(function: Function, target: Target, names: Names, uses: Uses) -> str:
    """Return the text before the body of a function, and declare the parameters."""
    parameters = []
    is_kernel = _is_kernel(function, target)
    memory = f"{target.memory} " if target.memory and is_kernel else ""
    for item in function.parameters:
        names.declare(item)
        parameters.append((memory if isinstance(item, Buffer) else "") + _declaration(item, target, names))
    parameters += [f"int64_t {c_symbol(name)}" for name in sorted(uses.symbols)]
    result = "void" if function.result is None else type_name(function.result)
    definition = target.kernel if is_kernel else target.definition
    if function.is_inline:
        definition += " inline"
    words = [definition, *([target.contracted] if function.is_contracted and target.contracted else []), result]
    return f"{' '.join(words)} {function.name}({', '.join(parameters) or 'void'})"


def _declaration(item: Buffer | Variable, target: Target, names: Names) -> str:
    """Return the C declaration of a parameter with a known name."""
    if isinstance(item, Variable):
        return f"{type_name(item.type)} {names[item]}"
    restrict = f"{target.restrict} " if item.access is MemoryAccess.WRITE else ""
    return f"{_element_type(item)}*{restrict}{names[item]}"


def _is_kernel(function: Function, target: Target) -> bool:
    """Return whether the threads of a grid share the rounds of the function's only parallel loop."""
    loops = [item for item in statements_in(function.body) if isinstance(item, For) and item.kind is LoopKind.PARALLEL]
    if not target.kernel or not loops:
        return False
    if len(loops) > 1 or all(statement is not loops[0] for statement in function.body):
        where = f"C function `{function.name}`"
        raise InternalError(where, "has parallel loops outside kernels", hint="Call map_to_grid.")
    return True


class BlockPrinter:
    """A printer of statements.

    Args:
        target: the dialect.
        names: the known names.
        name: the prefix of the names of outlined loops.
        shared: the buffers in the memory of the grid.

    Attributes:
        before: the lines of the outlined loops so far, to be placed before the function.
    """

    def __init__(self, target: Target, names: Names, name: str = "", shared: Iterable[Buffer] = ()) -> None:
        self._target = target
        self._names = names
        self._name = name
        self._vector_arrays: dict[object, int] = {}
        self._expressions = ExpressionPrinter(target, names, self._vector_arrays)
        self._num_loops = 0
        self._shared = set(shared)
        self.before: list[str] = []

    def lines(self, block: Block, indent: str = "") -> list[str]:
        """Return the lines of a block, each behind an indent."""
        self._names.enter()
        lines = [line for statement in block for line in self._statement(statement, indent)]
        self._names.leave()
        return lines

    def _statement(self, statement: Statement, indent: str) -> list[str]:
        match statement:
            case For():
                return self._loop(statement, indent)
            case While(condition, body):
                head = f"{indent}while ({self._expressions.text(condition)}) {{"
                return [head, *self.lines(body, indent + "  "), f"{indent}}}"]
            case If():
                return self._branch(statement, indent)
            case Dispatch():
                return [indent + line for line in self._dispatch(statement)]
            case RawStatement():
                return [indent + line for line in self._raw(statement)]
            case LocalArray():
                return [indent + self._array(statement)]
        return [indent + self._simple(statement)]

    def _simple(self, statement: Statement) -> str:
        text = self._expressions.text
        match statement:
            case Let(variable, value):
                shown = text(value)
                return f"const {type_name(variable.type)} {self._names.declare(variable)} = {shown};"
            case Declare(variable, value):
                shown = text(value)
                return f"{type_name(variable.type)} {self._names.declare(variable)} = {shown};"
            case Assign(variable, value):
                if isinstance(value, Binary) and value.operator in _AUGMENTED and value.left is variable:
                    return f"{self._names[variable]} {value.operator}= {text(value.right)};"
                return f"{self._names[variable]} = {text(value)};"
            case Alias(buffer, _, _):
                return self._alias(statement)
            case Store(buffer, index, value):
                element = self._expressions.element_text(buffer, index, value.type, is_store=True)
                loaded = Load(buffer, index, value.type.lanes)
                if isinstance(value, Binary) and value.operator in _AUGMENTED and value.left == loaded:
                    return f"{element} {value.operator}= {text(value.right)};"
                return f"{element} = {text(value)};"
            case Copy():
                return self._copy(statement)
            case Clear():
                return self._clear(statement)
            case Fail():
                return self._fail(statement)
            case Evaluate(call):
                return f"{text(call)};"
            case Return(value):
                return "return;" if value is None else f"return {text(value)};"
            case Comment(line):
                return _comment(line)
        raise InternalError("printer", "unknown statement", got=repr(statement))

    def _alias(self, statement: Alias) -> str:
        buffer = statement.buffer
        pointer = self._expressions.offset(statement.source, statement.offset)
        name, element = self._names.declare(buffer), _element_type(buffer)
        if statement.reads_pointer:
            pointer = f"{self._names[statement.source]}[{self._expressions.text(statement.offset)}]"
        if statement.condition is not None and statement.otherwise is not None:
            condition = self._expressions.text(statement.condition, 4)
            pointer = f"{condition} ? {pointer} : {self._names[statement.otherwise]}"
        memory = self._memory_of(statement)
        if buffer.dtype != statement.source.dtype:
            pointer = f"({memory}{element}*)({memory}void *)({pointer})"
        return f"{memory}{element}*{name} = {pointer};"

    def _memory_of(self, alias: Alias) -> str:
        """Return the qualifier of the memory of an alias, with a blank behind."""
        are_shared = {source in self._shared for source in alias.sources}
        if are_shared != {True}:
            if len(are_shared) > 1 and self._target.memory:
                where = f"pointer `{alias.buffer.name}`"
                raise InternalError(where, "points to the memory of the grid or of a thread", got=self._target.name)
            return ""
        self._shared.add(alias.buffer)
        return f"{self._target.memory} " if self._target.memory else ""

    def _copy(self, statement: Copy) -> str:
        target = self._expressions.offset(statement.target, statement.target_index)
        source = self._expressions.offset(statement.source, statement.source_index)
        count = self._expressions.atom(statement.count)
        return f"memcpy({target}, {source}, (size_t){count} * sizeof({c_type(statement.target.dtype)}));"

    def _clear(self, statement: Clear) -> str:
        address = self._expressions.offset(statement.target, statement.index)
        count = self._expressions.atom(statement.count)
        return f"memset({address}, 0, (size_t){count} * sizeof({c_type(statement.target.dtype)}));"

    def _fail(self, statement: Fail) -> str:
        formats = ["%llu" if value.type.dtype.startswith("uint") else "%lld" for value in statement.values]
        words = ("unsigned long long" if text == "%llu" else "long long" for text in formats)
        values = (
            f", ({word}){self._expressions.text(value, 15)}"
            for word, value in zip(words, statement.values, strict=True)
        )
        # The text is a format of printf: escape percent signs.
        message = statement.message.replace("%", "%%").format(*formats)
        return f"return byoc_fail({c_string(statement.kind)}, {c_string(message)}{''.join(values)});"

    def _array(self, statement: LocalArray) -> str:
        buffer = statement.buffer
        if not isinstance(buffer.size, int) or buffer.size % statement.lanes:
            raise InternalError(f"array `{buffer.name}`", "has no known size", got=str(buffer.size))
        type_, count = _element_type(buffer), buffer.size
        if statement.lanes > 1:
            type_, count = f"{type_name(CType(buffer.dtype, statement.lanes))} ", buffer.size // statement.lanes
            self._vector_arrays[buffer] = statement.lanes
        align = "" if statement.alignment is None else f"{self._target.align.format(nbytes=statement.alignment)} "
        zeros, static = " = {0}" if statement.is_zeroed else "", "" if buffer.is_writable else "static "
        return f"{static}{align}{type_}{self._names.declare(buffer)}[{count}]{zeros};"

    def _loop(self, statement: For, indent: str) -> list[str]:
        start, stop = self._expressions.text(statement.start), self._expressions.text(statement.stop, 11)
        self._names.enter()
        index = self._names.declare(statement.index)
        step = f"++{index}" if statement.step == 1 else f"{index} += {statement.step}"
        if statement.kind is LoopKind.PARALLEL and self._target.kernel:
            factor = "" if statement.step == 1 else f"{statement.step} * "
            thread = f"{factor}({self._target.thread})" if factor else self._target.thread
            start = thread if statement.start == Size(0) else f"{start} + {thread}"
            step = f"{index} += {factor}{self._target.num_threads}"
        type_ = type_name(statement.index.type)
        head = f"{indent}for ({type_} {index} = {start}; {index} < {stop}; {step})"
        target = self._target
        pragma = {LoopKind.UNROLLED: target.unroll, LoopKind.ROLLED: target.roll, LoopKind.VECTOR: target.independent}
        lines = [indent + line for line in [pragma.get(statement.kind, "")] if line]
        body = statement.body
        inner = self.lines(body, indent + "  ")
        self._names.leave()
        if len(body) == 1 and isinstance(body[0], _SIMPLE) and len(head) + len(inner[0]) < _WIDTH:
            return [*lines, f"{head} {inner[0].strip()}"]
        return [*lines, f"{head} {{", *inner, f"{indent}}}"]

    def _branch(self, statement: If, indent: str) -> list[str]:
        head = f"{indent}if ({self._expressions.text(statement.condition)})"
        then = self.lines(statement.then, indent + "  ")
        if not statement.otherwise:
            is_simple = len(then) == 1 and isinstance(statement.then[0], (*_SIMPLE, Return, Fail))
            if is_simple and len(head) + len(then[0]) < _WIDTH:
                return [f"{head} {then[0].strip()}"]
            return [f"{head} {{", *then, f"{indent}}}"]
        return [
            f"{head} {{",
            *then,
            f"{indent}}} else {{",
            *self.lines(statement.otherwise, indent + "  "),
            f"{indent}}}",
        ]

    def _raw(self, statement: RawStatement) -> list[str]:
        reads = [self._expressions.atom(item) for item in statement.reads]
        writes = {f"w{number}": self._names[item] for number, item in enumerate(statement.writes)}
        declares = {f"d{number}": self._names.declare(item) for number, item in enumerate(statement.declares)}
        return [line.format(*reads, **writes, **declares) for line in statement.lines]

    def _dispatch(self, statement: Dispatch) -> Sequence[str]:
        name = f"{self._name}_loop{self._num_loops}"
        self._num_loops += 1
        outside = free_in(statement.body)
        captured = [item for item in self._names if item in outside]
        symbols = list(map(c_symbol, sorted(symbols_in(statement.body))))
        fields = [(self._names[item], _declaration(item, self._target, self._names)) for item in captured]
        fields += [(symbol, f"int64_t {symbol}") for symbol in symbols]
        self._names.enter()
        first, end = self._names.declare(statement.first), self._names.declare(statement.end)
        lines = self.lines(statement.body, "  ")
        self._names.leave()
        if not self._target.has_threads:
            raise InternalError("printer", "the target has no threads", got=self._target.name)
        loop = OutlinedLoop(name, tuple(fields), (first, end))
        self.before += loop.definitions(lines)
        return loop.calls(statement.count, statement.grain, statement.work_ps)


def _element_type(buffer: Buffer) -> str:
    """Return the C type of a buffer's elements, up to the star or the name behind it."""
    if isinstance(buffer, PointerArray):
        return f"const {c_type(buffer.dtype)} *{'' if buffer.is_writable else 'const '}"
    return f"{'' if buffer.is_writable else 'const '}{c_type(buffer.dtype)} "


def _comment(text: str) -> str:
    """Return a comment of a single line, without a line continuation at the end."""
    line = " ".join(text.split())
    return f"// {line}." if line.endswith(("\\", "??/")) else f"// {line}"
