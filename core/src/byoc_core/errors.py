"""Every error that byoc raises, as one tree.

::

    ByocError                       something a person must fix; carries where / problem / got / expected / hint
    ├── IRError                     the IR is malformed
    │   ├── IRTypeError             an op's type rule refuses its operands or attributes
    │   ├── VerifyError             a module breaks an IR law (SSA order, types, names)
    │   └── ScriptError             script text does not parse
    ├── PatternError                a pattern is ill-formed, or its check raised
    ├── PartitionError              a request to the partitioner cannot be met
    ├── CodegenError                a backend cannot compile what was annotated for it
    ├── FrontendError               a model file cannot be imported
    │   └── UnsupportedOpsError     the model has ops that the front end does not know; lists all of them
    ├── PluginError                 a plugin is missing, quarantined or faulty
    │   ├── BackendNotFoundError    no installed backend has that name
    │   ├── RuntimeNotFoundError    no installed runtime has that type key
    │   └── HookError               a plugin's hook raised or returned the wrong kind of value
    ├── OptionsError                an option is unknown or has a bad value
    ├── PassError                   a pass that the user gave raised, or broke a law of the IR
    ├── ToolchainError              no C compiler, or the C compiler failed
    │   └── UndefinedSymbolError    C code calls what no object and no library defines; has the names
    ├── ArtifactError               an artifact is damaged, too new, or not an artifact
    │   └── UntrustedCodeError      the artifact holds native code that nobody allowed
    ├── ProgramError                VM bytecode is malformed
    ├── LinkError                   a program's external symbols or constants cannot be resolved
    ├── CallError                   a call's arguments do not fit the function's signature
    ├── ExecutionError              a function failed while it ran
    └── InternalError               a law that byoc itself guarantees is broken: our bug

Constructors take fields; the text is made here and nowhere else:
``where: problem; got X, expected Y. hint``. What no terminal should be sent is replaced in the text, not in the fields.
"""

from __future__ import annotations

from collections.abc import Iterable

from byoc_core.printable import to_printable_lines

__all__ = [
    "ArtifactError",
    "BackendNotFoundError",
    "ByocError",
    "CallError",
    "CodegenError",
    "ExecutionError",
    "FrontendError",
    "HookError",
    "IRError",
    "IRTypeError",
    "InternalError",
    "LinkError",
    "OptionsError",
    "PartitionError",
    "PassError",
    "PatternError",
    "PluginError",
    "ProgramError",
    "RuntimeNotFoundError",
    "ScriptError",
    "ToolchainError",
    "UndefinedSymbolError",
    "UnsupportedOpsError",
    "UntrustedCodeError",
    "VerifyError",
    "near_names",
    "type_name",
]


class ByocError(Exception):
    """An error with its place, its cause and the next step kept apart.

    Args:
        where: the object at fault: a file, a function, an argument, a hook.
        problem: what is wrong, as a clause without a final full stop.
        got: what was found, already printable.
        expected: what would have been right, already printable.
        hint: the next step, as a sentence.
        detail: several lines shown below the sentence (an IR window, a compiler's stderr).
    """

    def __init__(
        self,
        where: str,
        problem: str,
        *,
        got: object = None,
        expected: object = None,
        hint: str | None = None,
        detail: str | None = None,
    ) -> None:
        self.where = where
        self.problem = problem
        self.got = got
        self.expected = expected
        self.hint = hint
        self.detail = detail
        super().__init__(where, problem)

    def __str__(self) -> str:
        text = f"{self.where}: {self.problem}"
        got, expected = self.got, self.expected
        if got is not None and expected is not None:
            got, expected = _tell_apart(got, expected)
        if got is not None:
            text += f"; got {got}"
        if expected is not None:
            text += f"{',' if got is not None else ';'} expected {expected}"
        if self.hint:
            text += f". {self.hint}"
        if self.detail:
            text += f"\n{self.detail}"
        return to_printable_lines(text)


class IRError(ByocError):
    """The IR is malformed."""


class IRTypeError(IRError):
    """An op's type rule refuses its operands or attributes."""


class VerifyError(IRError):
    """A module breaks an IR law."""


class ScriptError(IRError):
    """Script text does not parse."""


class PatternError(ByocError):
    """A pattern is ill-formed, or its check raised."""


class PartitionError(ByocError):
    """A request to the partitioner cannot be met."""


class CodegenError(ByocError):
    """A backend cannot compile what was annotated for it."""


class FrontendError(ByocError):
    """A model file cannot be imported."""


class UnsupportedOpsError(FrontendError):
    """The model has ops that the front end does not know."""


class PluginError(ByocError):
    """A plugin is missing, quarantined or faulty."""


class BackendNotFoundError(PluginError):
    """No installed backend has that name."""


class RuntimeNotFoundError(PluginError):
    """No installed runtime has that type key."""


class HookError(PluginError):
    """A plugin's hook raised or returned the wrong kind of value."""


class OptionsError(ByocError):
    """An option is unknown or has a bad value."""


class PassError(ByocError):
    """A pass that the user gave raised, or broke a law of the IR."""


class ToolchainError(ByocError):
    """No C compiler, or the C compiler failed."""


class UndefinedSymbolError(ToolchainError):
    """C code calls what no object and no library defines.

    Attributes:
        symbols: the names that are not defined.
    """

    symbols: tuple[str, ...] = ()

    def of(self, symbols: Iterable[str]) -> UndefinedSymbolError:
        """Return the error, which now names these symbols."""
        self.symbols = tuple(symbols)
        return self


class ArtifactError(ByocError):
    """An artifact is damaged, too new, or not an artifact."""


class UntrustedCodeError(ArtifactError):
    """The artifact holds native code that nobody allowed."""


class ProgramError(ByocError):
    """VM bytecode is malformed."""


class LinkError(ByocError):
    """A program's external symbols or constants cannot be resolved."""


class CallError(ByocError):
    """A call's arguments do not fit the function's signature."""


class ExecutionError(ByocError):
    """A function failed while it ran."""


class InternalError(ByocError):
    """A law that byoc itself guarantees is broken: a bug in byoc."""


def type_name(value: object) -> str:
    """Gives the name of a value's type, with its module unless it is built in."""
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _tell_apart(got: object, expected: object) -> tuple[str, str]:
    """Gives the texts of two values; where they print alike, with what tells them apart.

    The first of these that differs is shown: the types of the values, what ``repr`` gives, the types of all that the
    values hold.
    """
    texts = str(got), str(expected)
    if texts[0] != texts[1]:
        return texts
    for describe in (type_name, repr, _type_tree):
        first, second = describe(got), describe(expected)
        if first != second:
            return f"{texts[0]} ({first})", f"{texts[1]} ({second})"
    return texts[0], "another value that prints alike"


_MAX_TYPE_DEPTH = 4
_MAX_TYPE_ITEMS = 16


def _type_tree(value: object, depth: int = 0) -> str:
    """Gives the types of a value and of what it holds, a few levels deep."""
    name = type_name(value)
    if isinstance(value, str | bytes) or depth == _MAX_TYPE_DEPTH:
        return name
    if isinstance(value, dict):
        held = [(str(key), item) for key, item in value.items()]
    elif isinstance(value, tuple | list | set | frozenset):
        held = [("", item) for item in value]
    else:
        fields = getattr(type(value), "__dataclass_fields__", {})
        held = [(field, getattr(value, field, None)) for field in fields]
    inner = [
        f"{key}: {_type_tree(item, depth + 1)}" if key else _type_tree(item, depth + 1)
        for key, item in held[:_MAX_TYPE_ITEMS]
    ]
    return f"{name}[{', '.join(inner)}]" if inner else name


def near_names(name: str, known: Iterable[str], *, limit: int = 3) -> str:
    """Gives `` Did you mean 'a' or 'b'?`` text for a misspelt name, or ``""`` where nothing is near."""
    names = sorted(known)
    near = [other for other in names if other.casefold() == name.casefold()]
    if not near:
        import difflib  # an error may take its time; a program without one need not wait for this

    near = near[:limit] or difflib.get_close_matches(name, names, n=limit, cutoff=0.6)
    return f"Did you mean {' or '.join(repr(n) for n in near)}?" if near else ""
