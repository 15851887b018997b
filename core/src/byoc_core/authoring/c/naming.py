"""Names of variables and buffers in printed C, by scope."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from byoc_core.authoring.c.expressions import Buffer, Variable
from byoc_core.authoring.csource_types import C_LIBRARY_NAMES
from byoc_core.native.c_text import c_identifier

__all__ = ["Names", "NumberedNames"]

_PREFIXES = ("byoc_", "BYOC_", "dim_", "vec_", "__")
"""Prefixes of names used by headers, sizes, types and compilers."""


class Names:
    """The names known at a place of a function. A name is free again at the end of its block.

    Args:
        reserved: names not given to variables: the names of functions called by the text.
        prefixes: prefixes of names not given to variables.
    """

    def __init__(self, reserved: Iterable[str] = (), prefixes: tuple[str, ...] = ()) -> None:
        self._prefixes = (*_PREFIXES, *prefixes)
        self._reserved = {*C_LIBRARY_NAMES, *reserved}
        self._names: dict[Buffer | Variable, str] = {}
        self._blocks: list[list[Buffer | Variable]] = [[]]
        self._used_names: set[str] = set()

    def __getitem__(self, item: Buffer | Variable) -> str:
        """Return the name of a variable or a buffer.

        Raises:
            KeyError: the item is not known here.
        """
        return self._names[item]

    def __contains__(self, item: object) -> bool:
        return item in self._names

    def __iter__(self) -> Iterator[Buffer | Variable]:
        """Yield the known variables and buffers, in the order of the declarations."""
        return iter(self._names)

    def declare(self, item: Buffer | Variable) -> str:
        """Return a new name for a variable or a buffer, different from all known names."""
        name = self.new_name(item.name)
        self._names[item] = name
        self._blocks[-1].append(item)
        return name

    def new_name(self, hint: str) -> str:
        """Return the hint as a C identifier, with a number appended if the identifier is taken."""
        base = c_identifier(hint)
        if base.startswith(self._prefixes):
            base = f"v_{base}"
        name, number = base, 0
        while name in self._used_names or name in self._reserved:
            number += 1
            name = f"{base}_{number}"
        self._used_names.add(name)
        return name

    def enter(self) -> None:
        """Begin a block."""
        self._blocks.append([])

    def leave(self) -> None:
        """End the block begun last, and forget the block's names."""
        for item in self._blocks.pop():
            self._used_names.discard(self._names.pop(item))


class NumberedNames(Names):
    """Names derived only from the order of the declarations: functions of equal statements get equal names."""

    def __init__(self) -> None:
        super().__init__()
        self._number = 0

    def new_name(self, hint: str) -> str:
        """Return a new name; the hint is ignored."""
        self._number += 1
        return f"v{self._number}"
