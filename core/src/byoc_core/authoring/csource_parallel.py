"""Loops of generated C, run on several threads for enough work; see ``native/byoc_parallel.h``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from byoc_core.authoring.csource_types import c_dim
from byoc_core.authoring.size_names import SizeNames
from byoc_core.dims import Dim
from byoc_core.native.c_text import c_real
from byoc_core.native.plain_c import PLAIN_C

__all__ = [
    "COLD_BYTE_PS",
    "END_ITEM",
    "FIRST_ITEM",
    "PARALLEL_HEADER",
    "PARALLEL_WORK_PS",
    "SHARED_WORK_PS",
    "OutlinedLoop",
    "ParallelLoop",
    "ParallelWork",
    "is_enough_work",
    "team_function",
]

PARALLEL_HEADER = "byoc_parallel.h"
"""The header needed by text of :class:`ParallelLoop`."""

PARALLEL_WORK_PS = 20_000_000
"""The least work of a loop to wake threads for, in picoseconds on one thread: 20 microseconds (``docs/threads.md``)."""

SHARED_WORK_PS = 1_500_000
"""The least work of a loop to share in a team already awake, in picoseconds on one thread: 1.5 microseconds."""

COLD_BYTE_PS = 30
"""The time to move a byte between the memory and a processor, in picoseconds on one thread."""

FIRST_ITEM, END_ITEM = "first_item", "end_item"
"""The bounds in the lines of a loop."""


@dataclass(frozen=True, slots=True)
class ParallelWork:
    """The work of a parallel loop.

    Attributes:
        count: the number of rounds.
        work_ps: estimated picoseconds of all rounds on one thread.
    """

    count: Dim
    work_ps: Dim

    @property
    def is_worth_waking(self) -> bool:
        """Whether the work may be enough to wake threads."""
        return is_enough_work(self.count, self.work_ps, PARALLEL_WORK_PS)

    @property
    def is_worth_sharing(self) -> bool:
        """Whether the work may be enough for threads already awake."""
        return is_enough_work(self.count, self.work_ps, SHARED_WORK_PS)


@dataclass(frozen=True, slots=True)
class ParallelLoop:
    """A loop with items independent of each other and of the executing thread: same bits on any number of threads.

    Attributes:
        lines: C that computes the items from ``first_item`` to ``end_item``, the latter excluded.
        count: the number of items.
        item_ps: estimated picoseconds of an item in a single thread.
        grain: parts begin at multiples of this number of items.
    """

    lines: tuple[str, ...]
    count: Dim
    item_ps: Dim
    grain: Dim = 1

    @property
    def work_ps(self) -> Dim:
        """Estimated picoseconds of all items in a single thread."""
        return self.count * self.item_ps

    @property
    def is_worth_waking(self) -> bool:
        """Whether the work may be enough to wake threads; true for symbolic sizes, known only at the call."""
        return is_enough_work(self.count, self.work_ps, PARALLEL_WORK_PS)

    @property
    def is_worth_sharing(self) -> bool:
        """Whether the work may be enough for threads already awake."""
        return is_enough_work(self.count, self.work_ps, SHARED_WORK_PS)

    def serial_lines(self) -> list[str]:
        """Return the loop for a function that computes all items."""
        bounds = {FIRST_ITEM: "0", END_ITEM: c_dim(self.count)}
        pattern = re.compile(rf"\b({FIRST_ITEM}|{END_ITEM})\b")
        return [pattern.sub(lambda match: bounds[match[0]], line) for line in self.lines]

    def functions(self, name: str, parameters: Sequence[str]) -> tuple[str, list[str]]:
        """Return C definitions to place before the function, and the lines to run the loop inside the function.

        Args:
            name: base name of the definitions.
            parameters: C declarations of the variables readable by the lines, in the form of a parameter list.
        """
        words = set(re.findall(r"\w+", "\n".join(self.lines)))
        used = tuple((_name(text), text) for text in parameters if _name(text) in words)
        outlined = OutlinedLoop(name, used)
        calls = outlined.calls(self.count, self.grain, self.work_ps)
        return "\n".join(outlined.definitions(self.lines)) + "\n", [f"  {line}" for line in calls]


@dataclass(frozen=True, slots=True)
class OutlinedLoop:
    """A parallel loop in a separate C function, with the needed parameters.

    Attributes:
        name: base name of the definitions.
        parameters: name and C declaration of each parameter but the bounds.
        bounds: the names of the bounds.
    """

    name: str
    parameters: tuple[tuple[str, str], ...]
    bounds: tuple[str, str] = (FIRST_ITEM, END_ITEM)

    def definitions(self, lines: Sequence[str]) -> list[str]:
        """Return the lines of C to place before the function: the lines of the loop become a function."""
        name, declarations = self.name, [declaration for _, declaration in self.parameters]
        fields = "".join(f" {text.replace('restrict ', '')};" for text in declarations)
        bounds = ", ".join(f"int64_t {bound}" for bound in self.bounds)
        passed = ", ".join([*(f"loop->{field}" for field, _ in self.parameters), FIRST_ITEM, END_ITEM])
        return [
            f"struct {name} {{{fields} }};",
            f"static void {name}_items({', '.join([*declarations, bounds])}) {{",
            *lines,
            "}",
            f"static void {name}_part(int64_t {FIRST_ITEM}, int64_t {END_ITEM}, const void *data) {{",
            f"  const struct {name} *loop = (const struct {name} *)data;",
            f"  {name}_items({passed});",
            "}",
        ]

    def calls(self, count: Dim, grain: Dim, work_ps: Dim) -> list[str]:
        """Return the lines to run the loop, on several threads if the work is enough.

        Args:
            count: the number of rounds.
            grain: parts begin at multiples of this number of rounds.
            work_ps: estimated picoseconds of all rounds on one thread.
        """
        used, rounds = [name for name, _ in self.parameters], c_dim(count)
        data = f"&(const struct {self.name}){{{', '.join(used)}}}"
        arguments = f"({rounds}, {c_dim(grain)}, {self.name}_part, {data});"
        parallel_call, shared_call = f"byoc_parallel_for{arguments}", f"byoc_share_for{arguments}"
        if isinstance(work_ps, int):
            return [parallel_call if is_enough_work(count, work_ps, PARALLEL_WORK_PS) else shared_call]
        return [
            f"if ({c_real(work_ps)} >= {PARALLEL_WORK_PS}) {parallel_call}",
            f"else if ({c_real(work_ps)} >= {SHARED_WORK_PS}) {shared_call}",
            f"else {self.name}_items({', '.join([*used, '0', rounds])});",
        ]


def is_enough_work(count: Dim, work_ps: Dim, least_ps: int) -> bool:
    """Return whether the work of a loop may reach a threshold; true for symbolic sizes, known only at the call.

    Args:
        count: the number of rounds.
        work_ps: estimated picoseconds of all rounds on one thread.
        least_ps: the threshold: :data:`PARALLEL_WORK_PS` or :data:`SHARED_WORK_PS`.
    """
    return count not in (0, 1) and (not isinstance(work_ps, int) or work_ps >= least_ps)


def team_function(
    symbol: str, head: str, parameters: Sequence[str], work_ps: Dim, nbytes: Dim, sizes: SizeNames
) -> list[str]:
    """Return a C function to call ``<symbol>_all`` with the same arguments, in a team kept awake during the call.

    Exported C has no team: there the function calls ``<symbol>_all`` directly.

    Args:
        symbol: base of the names of the definitions.
        head: the function's type, name and parameters.
        parameters: C declarations of the parameters (not empty).
        work_ps: estimated picoseconds of the work in all parallel loops; a call with too little work wakes no thread.
        nbytes: bytes of memory read and written by the call; after a pause, caches hold little of this memory.
        sizes: the C variables for sizes in the function.
    """
    names = [_name(text) for text in parameters]
    fields = "".join(f" {text};" for text in parameters)
    # Parameters are named after values of the model, never like this.
    call, passed = "byoc_call", ", ".join(f"byoc_call->{name}" for name in names)
    cold_work_ps = work_ps + nbytes * COLD_BYTE_PS
    serial_test = [] if isinstance(work_ps, int) else [f"  if ({sizes.real(work_ps)} < {PARALLEL_WORK_PS}) {{"]
    cold_work = sizes.real(cold_work_ps)
    return [
        f"#ifndef {PLAIN_C}",
        f"struct {symbol}_call {{{fields} int32_t status; }};",
        f"static void {symbol}_in_team(void *data) {{",
        f"  struct {symbol}_call *{call} = (struct {symbol}_call *)data;",
        f"  {call}->status = {symbol}_all({passed});",
        "}",
        "#endif",
        f"{head} {{",
        f"#ifdef {PLAIN_C}",
        f"  return {symbol}_all({', '.join(names)});",
        "#else",
        *(f"  {line}" for line in sizes.definitions),
        *serial_test,
        *([f"    return {symbol}_all({', '.join(names)});", "  }"] if serial_test else []),
        f"  struct {symbol}_call {call} = {{{', '.join(names)}, 0}};",
        f"  byoc_with_team({symbol}_in_team, &{call}, {cold_work});",
        f"  return {call}.status;",
        "#endif",
        "}",
    ]


def _name(declaration: str) -> str:
    return str(re.findall(r"\w+", declaration)[-1])
