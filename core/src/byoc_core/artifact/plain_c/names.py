"""Names in exported C: one allocator for all identifiers of a file, and the names of functions and members.

The order of allocation decides which name stays and which gets a number: names of the whole model, names of ``main``,
of other functions, and at last names inside the C, invisible to users.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Literal

from byoc_core.dims import Dim, shape_symbols, substitute, symbol
from byoc_core.native.c_text import c_dim, c_identifier
from byoc_core.vm.program import VMFunction

__all__ = ["FunctionNames", "Identifiers", "Side", "is_free_name", "name_functions", "unique_names"]

Side = Literal["input", "output"]
"""The two kinds of arguments of a function."""

_RESERVED = ("workspace", "status", "inputs", "outputs", "pools", "state", "unused", "info")
"""Variables of public functions, and the end of the names of arrays beside functions named after members."""
_CPP_KEYWORDS = frozenset(
    [
        *("alignas", "alignof", "and", "and_eq", "bitand", "bitor", "bool", "catch", "char16_t", "char32_t", "char8_t"),
        *("class", "co_await", "co_return", "co_yield", "compl", "concept", "const_cast", "consteval", "constexpr"),
        *("constinit", "decltype", "delete", "dynamic_cast", "explicit", "export", "false", "friend", "mutable"),
        *("namespace", "new", "noexcept", "not", "not_eq", "nullptr", "operator", "or", "or_eq", "private"),
        *("protected", "public", "reinterpret_cast", "requires", "static_assert", "static_cast", "template", "this"),
        *("thread_local", "throw", "true", "try", "typeid", "typename", "using", "virtual", "wchar_t", "xor", "xor_eq"),
    ]
)
_FOREIGN = re.compile(
    r"(u?int(8|16|32|64|ptr|max|_fast\d+|_least\d+)|s?size|ptrdiff|max_align)_t|byoc_\w+|dim_\w+"
    r"|BYOC_\w+|U?INT(8|16|32|64|MAX|PTR|_LEAST\d+|_FAST\d+)_(MIN|MAX|C|WIDTH)"
    r"|(SIZE|PTRDIFF|SIG_ATOMIC|WCHAR|WINT|RAND)_(MIN|MAX)|HUGE_VAL[FL]?|(MATH|FP|SEEK|EXIT|CLOCKS|CLOCK|TIME)_\w+"
    r"|M_(E|PI|LN|LOG|SQRT|[12]_)\w*|L_tmpnam|TMP_MAX|(FOPEN|FILENAME)_MAX|BUFSIZ|EOF|_IO[FLN]BF|MB_CUR_MAX"
    r"|math_errhandling|errno|std(in|out|err)|offsetof|assert|linux|unix|i386|__\w+__"
)
"""Types and macros of the headers included by exported C, macros of compilers, and names of variables."""


def is_free_name(text: str) -> bool:
    """Return whether a C identifier is no type, macro or keyword of C and C++, and no name used by exported C."""
    return text not in _CPP_KEYWORDS and text not in _RESERVED and not _FOREIGN.fullmatch(text)


class Identifiers:
    """The identifiers of a C file: none is allocated twice.

    Args:
        reserved: identifiers in use.
    """

    def __init__(self, reserved: Iterable[str] = ()) -> None:
        self._reserved = set(reserved)

    def allocate(self, hint: str, forms: Callable[[str], Iterable[str]] = lambda name: (name,)) -> str:
        """Return a name: the hint, or the hint with the least number with free forms. Take these forms.

        Args:
            hint: the name.
            forms: the identifiers made from a name; by default the name.
        """
        for number in itertools.count(1):
            name = hint if number == 1 else f"{hint}_{number}"
            identifiers = set(forms(name))
            if self._reserved.isdisjoint(identifiers):
                self._reserved |= identifiers
                return name
        raise AssertionError  # the loop has no end


def unique_names(
    hints: Iterable[str], reserved: Iterable[str] = (), is_free: Callable[[str], bool] = is_free_name
) -> tuple[str, ...]:
    """Return C identifiers for names, in order; equal identifiers get a number, reserved identifiers a ``_`` or ``x_``.

    Args:
        hints: the names.
        reserved: further reserved identifiers.
        is_free: whether an identifier is permitted; holds for any identifier beginning with ``x_``.
    """
    identifiers = Identifiers(reserved)
    found = []
    for hint in hints:
        base = c_identifier(hint)
        if not is_free(base):
            base = next(name for name in (f"{base}_", f"x_{base}") if is_free(name))
        found.append(identifiers.allocate(base))
    return tuple(found)


class FunctionNames:
    """The C names of a function.

    Args:
        prefix: the model's name.
        function: the function.
        pools: the names of the pools of the workspace.
        suffix: ``""``, or ``_`` and the function's part of the names; by default ``""`` for ``main``, else from the
            function's name.

    Attributes:
        run: the public function: ``<prefix>_run`` for ``main``, else ``<prefix>_run_<function>``.
        body: the function behind the public function.
        check: the function checking sizes.
        workspace_size: the function returning the bytes of the workspace.
        input_structure: the structure of pointers to the inputs, and of sizes.
        output_structure: the structure of pointers to the outputs.
        suffix: ``""`` for ``main``, else ``_<function>``.
        inputs: members of the structure of inputs, in order.
        outputs: members of the structure of outputs, in order.
        states: members of the structure of states, in order; empty for a function without states.
        capacities: members of the structure of states with the elements of a buffer, in order of the states; ``None``
            for a state of known size, an array in the structure.
        lengths: members of the structure of states with the rows of moving lengths, by symbol.
        decided: members of the structure of states with the sizes decided by the first run, by symbol.
        state_structure: the structure of the values kept from call to call.
        init_state: the function setting the values before the first call.
        sizes: members of the structure of inputs for symbolic sizes, by symbol, sorted; moving lengths have names
            here too, but no members.
    """

    def __init__(
        self, prefix: str, function: VMFunction, pools: Sequence[str] = ("workspace",), suffix: str | None = None
    ) -> None:
        self.pools = tuple(pools)
        self.suffix = suffix if suffix is not None else _suffix(function)
        self.run = f"{prefix}_run{self.suffix}"
        self.body = f"{prefix}_body{self.suffix}"
        self.check = f"{prefix}_check{self.suffix}"
        self._stem = f"{prefix}{self.suffix}"
        self.workspace_size = f"{self._stem}_workspace_size"
        self.input_structure = f"{self._stem}_inputs"
        self.output_structure = f"{self._stem}_outputs"
        self._shape_stem = f"{prefix}_shape{self.suffix}"
        symbols = sorted(function.input_symbols)
        capitals = f"{prefix.upper()}_"

        def is_free(text: str) -> bool:
            return is_free_name(text) and not text.startswith(capitals)

        names = unique_names([*(spec.name for spec in function.inputs), *symbols], (), is_free)
        self.inputs = names[: len(function.inputs)]
        self.sizes: Mapping[str, str] = MappingProxyType(dict(zip(symbols, names[len(function.inputs) :], strict=True)))
        self.outputs = unique_names((spec.name for spec in function.outputs), (), is_free)
        specs = [function.params[state.param] for state in function.states]
        moving = [
            str(spec.shape[slot.axis])
            for slot, spec in zip(function.states, specs, strict=True)
            if slot.axis is not None
        ]
        moving = list(dict.fromkeys(moving))
        fixed = sorted(shape_symbols(dim for spec in specs for dim in spec.shape) - set(moving))
        buffers = [index for index, spec in enumerate(specs) if shape_symbols(spec.shape)]
        hints = [
            *(spec.name for spec in specs),
            *(f"{specs[index].name}_capacity" for index in buffers),
            *moving,
            *fixed,
        ]
        members = iter(unique_names(hints, (), is_free))
        self.states = tuple(itertools.islice(members, len(specs)))
        capacities = dict(zip(buffers, members, strict=False))
        self.capacities = tuple(capacities.get(index) for index in range(len(specs)))
        self.lengths: Mapping[str, str] = MappingProxyType(dict(zip(moving, members, strict=False)))
        self.decided: Mapping[str, str] = MappingProxyType(dict(zip(fixed, members, strict=False)))
        self.state_structure = f"{self._stem}_state"
        self.init_state = f"{prefix}_init_state{self.suffix}"
        capital_names = Identifiers(map(self.bytes_macro, pools))
        self._largest_macros = {
            name: capital_names.allocate(f"{self._stem}_MAX_{self.sizes[name]}".upper()) for name in symbols
        }
        self._capacity_macros = {
            member: capital_names.allocate(f"{self._stem}_STATE_{member}_SIZE".upper())
            for member, own in zip(self.states, self.capacities, strict=True)
            if own is not None
        }
        self._symbols: dict[str, Dim] = {name: symbol(member) for name, member in self.sizes.items()}

    def info(self, side: Side) -> str:
        """Return the array with names, dtypes and shapes."""
        return f"{self._stem}_{side}_info"

    def shape(self, side: Side, number: int) -> str:
        """Return the array with the shape of an argument."""
        return f"{self._shape_stem}_{side}_{number}"

    def accessor(self, side: Side, member: str) -> str:
        """Return the function returning the address of an argument in the workspace."""
        return f"{self._stem}_{side}_{member}"

    def count_macro(self, side: Side) -> str:
        """Return the macro of the number of arguments."""
        return f"{self._stem.upper()}_NUM_{side.upper()}S"

    def bytes_macro(self, pool: str) -> str:
        """Return the macro of the bytes of a pool."""
        return f"{self._stem.upper()}_{pool.upper()}_SIZE"

    def capacity_macro(self, member: str) -> str:
        """Return the macro of the elements of a state's buffer at the largest sizes."""
        return self._capacity_macros[member]

    @property
    def input_sizes(self) -> Mapping[str, str]:
        """The symbolic sizes passed by the caller, without moving lengths."""
        return {name: member for name, member in self.sizes.items() if name not in self.lengths}

    def size_source(self, name: str) -> str:
        """Return the member holding a symbolic size in public functions."""
        return f"state->{self.lengths[name]}" if name in self.lengths else f"inputs->{self.sizes[name]}"

    def largest_macro(self, name: str) -> str:
        """Return the macro of the largest size of a symbol."""
        return self._largest_macros[name]

    @property
    def identifiers(self) -> frozenset[str]:
        """All identifiers at file scope: functions, structures, arrays and macros."""
        sides: tuple[tuple[Side, Sequence[str]], ...] = (("input", self.inputs), ("output", self.outputs))
        return frozenset(
            [
                *(self.run, self.body, self.check, self.workspace_size, self.input_structure, self.output_structure),
                *(name for side, _ in sides for name in (self.info(side), self.count_macro(side))),
                *(self.accessor(side, member) for side, members in sides for member in members),
                *(self.shape(side, number) for side, members in sides for number in range(len(members))),
                *((self.state_structure, self.init_state) if self.states else ()),
                *self._capacity_macros.values(),
                *map(self.bytes_macro, self.pools),
                *map(self.largest_macro, self.sizes),
            ]
        )

    def size_variable(self, name: str) -> str:
        """Return the C variable of a symbolic size inside functions."""
        return c_dim(self._symbols[name])

    def size_text(self, dim: Dim) -> str:
        """Return a size as a C expression over the variables of the symbols."""
        return c_dim(dim if isinstance(dim, int) else substitute(dim, self._symbols))


def name_functions(
    prefix: str, functions: Sequence[VMFunction], identifiers: Identifiers, pools: Sequence[str] = ("workspace",)
) -> dict[str, FunctionNames]:
    """Return the C names of all functions of a model, by name, with ``main`` first in the choice of names."""
    found: dict[str, FunctionNames] = {}
    for function in sorted(functions, key=lambda function: function.name != "main"):

        def forms(suffix: str, function: VMFunction = function) -> frozenset[str]:
            return FunctionNames(prefix, function, pools, suffix).identifiers

        suffix = identifiers.allocate(_suffix(function), forms)
        found[function.name] = FunctionNames(prefix, function, pools, suffix)
    return {function.name: found[function.name] for function in functions}


def _suffix(function: VMFunction) -> str:
    return "" if function.name == "main" else f"_{c_identifier(function.name)}"
