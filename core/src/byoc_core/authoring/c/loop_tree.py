"""The loops of a function as an indented outline for people: ranges, kinds, reads and writes of each loop."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from byoc_core.authoring.c.expression_printer import ExpressionPrinter
from byoc_core.authoring.c.expressions import Address, Buffer, Call, Expression, Load, PointerArray, Variable
from byoc_core.authoring.c.operands import operands_of
from byoc_core.authoring.c.printer import names_of
from byoc_core.authoring.c.statements import (
    Alias,
    Block,
    Clear,
    Copy,
    Dispatch,
    For,
    Function,
    If,
    LoopKind,
    RawStatement,
    Statement,
    Store,
    While,
)
from byoc_core.authoring.c.targets import C11_VECTORS, Target
from byoc_core.authoring.c.traversal import declared_by, expressions_of
from byoc_core.native.c_text import c_dim

__all__ = ["describe_loops"]

_SUM = 12
"""The precedence of sums in C: bounds of lower precedence have parentheses."""


def describe_loops(function: Function, target: Target = C11_VECTORS) -> tuple[str, ...]:
    """Return the loops of a function, a line each, inner loops indented by two blanks, with the names of the printed C.

    A line has the index, the range, the kind, and the reads, writes and calls of the loop's statements outside deeper
    loops. A pointer into a buffer, or in an array of pointers, counts as the buffer.

    Args:
        function: the function; an outlined parallel loop is shown with the range of a part.
        target: the dialect for printing bounds.
    """
    tree = _LoopTree(function, target)
    uses = _Uses()
    lines = tree.block(function.body, "", uses)
    return (*([f"outside loops: {uses}"] if str(uses) else []), *lines)


@dataclass(slots=True)
class _Uses:
    """Names read, written and called by statements, in order."""

    reads: dict[str, None] = field(default_factory=dict)
    writes: dict[str, None] = field(default_factory=dict)
    calls: dict[str, None] = field(default_factory=dict)
    lanes: dict[str, None] = field(default_factory=dict)

    def __str__(self) -> str:
        """Return a clause for each non-empty group."""
        groups = {"reads": self.reads, "writes": self.writes, "calls": self.calls, "lanes": self.lanes}
        return "; ".join(f"{verb} {', '.join(names)}" for verb, names in groups.items() if names)


class _LoopTree:
    """A traversal of statements in the printer's order, to give all items the same names as in the printed C."""

    def __init__(self, function: Function, target: Target) -> None:
        self._names = names_of(function, target)
        self._expressions = ExpressionPrinter(target, self._names, {})
        self._roots: dict[Buffer, tuple[str, ...]] = {}
        for parameter in function.parameters:
            self._names.declare(parameter)

    def block(self, block: Block, indent: str, uses: _Uses) -> list[str]:
        """Return the lines of a block's loops, and add the uses of the other statements."""
        self._names.enter()
        lines = [line for statement in block for line in self._statement(statement, indent, uses)]
        self._names.leave()
        return lines

    def _statement(self, statement: Statement, indent: str, uses: _Uses) -> list[str]:
        text = self._expressions.text
        match statement:
            case For(index, start, stop, body):
                step = f" step {statement.step}" if statement.step != 1 else ""
                kind = "" if statement.kind is LoopKind.SERIAL else f" ({statement.kind.value})"
                bounds = f"in {text(start, _SUM)}..{text(stop, _SUM)}{step}{kind}"
                return self._loop((index,), bounds, body, indent)
            case Dispatch(first, end, body):
                grain = "" if statement.grain == 1 else f" by {c_dim(statement.grain)}"
                return self._loop((first, end), f"in 0..{c_dim(statement.count)}{grain} (parallel)", body, indent)
            case While(condition, body):
                return self._loop((), text(condition), body, indent)
            case If(condition, then, otherwise):
                self._use(statement, uses)
                head = f"{indent}if {text(condition)}:"
                lines = self.block(then, indent + "  ", uses)
                else_lines = self.block(otherwise, indent + "  ", uses)
                first_lines = [head, *lines] if lines or else_lines else []
                return [*first_lines, *([f"{indent}else:", *else_lines] if else_lines else [])]
        self._use(statement, uses)
        if isinstance(statement, Alias):
            roots = [name for source in statement.sources for name in self._root(source)]
            self._roots[statement.buffer] = tuple(dict.fromkeys(roots))
        for item in declared_by(statement):
            self._names.declare(item)
        return []

    def _loop(self, indices: Sequence[Variable], bounds: str, body: Block, indent: str) -> list[str]:
        """Return the lines of a loop: ``for`` indices and bounds, without indices ``while`` a condition."""
        uses = _Uses()
        self._names.enter()
        head = f"for {'..'.join(map(self._names.declare, indices))}" if indices else "while"
        lines = self.block(body, indent + "  ", uses)
        self._names.leave()
        return [f"{indent}{head} {bounds}{f': {uses}' if str(uses) else ''}", *lines]

    def _root(self, buffer: Buffer) -> tuple[str, ...]:
        """Return the name of a buffer, or the names of the buffers pointed into."""
        return self._roots.get(buffer) or (self._names[buffer],)

    def _use(self, statement: Statement, uses: _Uses) -> None:
        """Add the reads, writes and calls of a statement itself."""
        for expression in (part for operand in expressions_of(statement) for part in _parts(operand)):
            match expression:
                case Load(buffer, _, lanes):
                    uses.reads.update(dict.fromkeys(self._root(buffer)))
                    if lanes > 1:
                        uses.lanes[str(lanes)] = None
                case Call(callee, arguments):
                    uses.calls[callee.name] = None
                    for number, argument in enumerate(arguments):
                        if isinstance(argument, Address):
                            group = uses.writes if number in callee.writes else uses.reads
                            group.update(dict.fromkeys(self._root(argument.buffer)))
        match statement:
            case Store(PointerArray() as pointers, _, value):
                uses.writes[self._names[pointers]] = None
                pointees = [part.buffer for part in _parts(value) if isinstance(part, Address)]
                names = [name for pointee in pointees for name in self._root(pointee)]
                self._roots[pointers] = tuple(dict.fromkeys((*self._roots.get(pointers, ()), *names)))
            case Store(buffer, _, value):
                uses.writes.update(dict.fromkeys(self._root(buffer)))
                if value.type.lanes > 1:
                    uses.lanes[str(value.type.lanes)] = None
            case Copy(target, _, source):
                uses.writes.update(dict.fromkeys(self._root(target)))
                uses.reads.update(dict.fromkeys(self._root(source)))
            case Clear(target):
                uses.writes.update(dict.fromkeys(self._root(target)))
            case RawStatement():
                buffers = [item for item in statement.writes if isinstance(item, Buffer)]
                uses.writes.update(dict.fromkeys(name for item in buffers for name in self._root(item)))


def _parts(expression: Expression) -> Iterator[Expression]:
    """Yield an expression and all expressions below."""
    yield expression
    for operand in operands_of(expression):
        yield from _parts(operand)
