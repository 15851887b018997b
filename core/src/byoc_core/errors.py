"""Every error raised by byoc, as a tree.

::

    ByocError                       something a person must fix; carries where / problem / got / expected / hint
    ├── IRError                     the IR is malformed
    │   ├── IRTypeError             an op's type rule refuses the operands or attributes
    │   ├── VerifyError             a module breaks an IR law (SSA order, types, names)
    │   └── ScriptError             script text does not parse
    ├── PatternError                a pattern is ill-formed, or a pattern's check raised
    │   └── MissingCaptureError     a match has no capture of this name
    ├── PartitionError              a request to the partitioner cannot be met
    ├── CodegenError                a backend cannot compile a function annotated for this backend
    ├── FrontendError               a model file cannot be imported
    │   └── UnsupportedOpsError     the model has ops unknown to the front end; lists all of these ops
    ├── PluginError                 a plugin is missing, quarantined or faulty
    │   ├── BackendNotFoundError    no installed backend has this name
    │   ├── RuntimeNotFoundError    no installed runtime has this type key
    │   └── HookError               a plugin's hook raised or returned the wrong kind of value
    │       └── ForeignNameError    a backend returned a pattern without the backend's name as a prefix
    ├── OptionsError                an option is unknown or has a bad value
    ├── PassError                   a pass given by the user raised, or broke a law of the IR
    ├── ToolchainError              no C compiler, or the C compiler failed
    │   └── UndefinedSymbolError    C code calls symbols defined by no object and no library; has the names
    ├── ArtifactError               an artifact is damaged, too new, or not an artifact
    │   └── UntrustedCodeError      the artifact holds native code, and nobody allowed native code
    ├── WeightsError                a value cannot take the place of a weight
    ├── ProgramError                VM bytecode is malformed
    ├── LinkError                   a program's external symbols or constants cannot be resolved
    ├── MemoryLimitError            buffers exceed the memory of a target
    ├── CallError                   a call's arguments do not fit the function's signature
    ├── ExecutionError              a function failed while running
    └── InternalError               a law guaranteed by byoc itself is broken: our bug

Constructors take fields; the text is made here and nowhere else:
``where: problem; got X, expected Y. hint``. Characters unsafe for a terminal are replaced in the text, not in the
fields.
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
    "ForeignNameError",
    "FrontendError",
    "HookError",
    "IRError",
    "IRTypeError",
    "InternalError",
    "LinkError",
    "MemoryLimitError",
    "MissingCaptureError",
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
    "WeightsError",
    "near_names",
    "type_name",
]


class ByocError(Exception):
    """An error with separate fields for the place, the cause and the next step.

    Args:
        where: the object at fault: a file, a function, an argument, a hook.
        problem: the fault, as a clause without a final full stop.
        got: the value found, already printable.
        expected: the right value, already printable.
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
    """An op's type rule refuses the operands or attributes."""


class VerifyError(IRError):
    """A module breaks an IR law."""


class ScriptError(IRError):
    """Script text does not parse."""


class PatternError(ByocError):
    """A pattern is ill-formed, or a pattern's check raised."""


class MissingCaptureError(PatternError):
    """A match has no capture of this name."""


class PartitionError(ByocError):
    """A request to the partitioner cannot be met."""


class CodegenError(ByocError):
    """A backend cannot compile a function annotated for this backend."""


class FrontendError(ByocError):
    """A model file cannot be imported."""


class UnsupportedOpsError(FrontendError):
    """The model has ops unknown to the front end."""


class PluginError(ByocError):
    """A plugin is missing, quarantined or faulty."""


class BackendNotFoundError(PluginError):
    """No installed backend has this name."""


class RuntimeNotFoundError(PluginError):
    """No installed runtime has this type key."""


class HookError(PluginError):
    """A plugin's hook raised or returned the wrong kind of value."""


class ForeignNameError(HookError):
    """A backend returned a pattern without the backend's name as a prefix."""


class OptionsError(ByocError):
    """An option is unknown or has a bad value."""


class PassError(ByocError):
    """A pass given by the user raised, or broke a law of the IR."""


class ToolchainError(ByocError):
    """No C compiler, or the C compiler failed."""


class UndefinedSymbolError(ToolchainError):
    """C code calls symbols defined by no object and no library.

    Attributes:
        symbols: the undefined names.
    """

    symbols: tuple[str, ...] = ()

    def of(self, symbols: Iterable[str]) -> UndefinedSymbolError:
        """Return the error with these symbols set."""
        self.symbols = tuple(symbols)
        return self


class ArtifactError(ByocError):
    """An artifact is damaged, too new, or not an artifact."""


class UntrustedCodeError(ArtifactError):
    """The artifact holds native code, and nobody allowed native code."""


class WeightsError(ByocError):
    """A value cannot take the place of a weight of a compiled model."""


class ProgramError(ByocError):
    """VM bytecode is malformed."""


class LinkError(ByocError):
    """A program's external symbols or constants cannot be resolved."""


class MemoryLimitError(ByocError):
    """Buffers exceed the memory of a target."""


class CallError(ByocError):
    """A call's arguments do not fit the function's signature."""


class ExecutionError(ByocError):
    """A function failed while running."""


class InternalError(ByocError):
    """A law guaranteed by byoc itself is broken: a bug in byoc."""


def type_name(value: object) -> str:
    """Return the name of a value's type, with the module unless the type is built in."""
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _tell_apart(got: object, expected: object) -> tuple[str, str]:
    """Return the texts of two values; if both print alike, add the difference.

    The difference shown is the first of: the types of the values, the ``repr`` texts, the types of all contents of the
    values.
    """
    texts = str(got), str(expected)
    if texts[0] != texts[1]:
        return texts
    for describe in (type_name, repr, _type_tree):
        first, second = describe(got), describe(expected)
        if first != second:
            return f"{texts[0]} ({first})", f"{texts[1]} ({second})"
    return texts[0], "another value with the same text"


_MAX_TYPE_DEPTH = 4
_MAX_TYPE_ITEMS = 16


def _type_tree(value: object, depth: int = 0) -> str:
    """Return the types of a value and of the value's contents, a few levels deep."""
    name = type_name(value)
    if isinstance(value, str | bytes) or depth == _MAX_TYPE_DEPTH:
        return name
    if isinstance(value, dict):
        contents = [(str(key), item) for key, item in value.items()]
    elif isinstance(value, tuple | list | set | frozenset):
        contents = [("", item) for item in value]
    else:
        fields = getattr(type(value), "__dataclass_fields__", {})
        contents = [(field, getattr(value, field, None)) for field in fields]
    inner = [
        f"{key}: {_type_tree(item, depth + 1)}" if key else _type_tree(item, depth + 1)
        for key, item in contents[:_MAX_TYPE_ITEMS]
    ]
    return f"{name}[{', '.join(inner)}]" if inner else name


def near_names(name: str, known: Iterable[str], *, limit: int = 3) -> str:
    """Return ``Did you mean 'a' or 'b'?`` for a misspelt name, or ``""`` if no known name is near."""
    names = sorted(known)
    near = [other for other in names if other.casefold() == name.casefold()]
    if not near:
        import difflib  # only programs with an error pay for this import

    near = near[:limit] or difflib.get_close_matches(name, names, n=limit, cutoff=0.6)
    return f"Did you mean {' or '.join(repr(n) for n in near)}?" if near else ""
