"""The choice of states kept from call to call: an option of ``byoc compile``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from byoc_core.errors import OptionsError

if TYPE_CHECKING:
    from byoc_core.vm.state_summary import StateSummary

__all__ = ["StatesOption", "parse_states", "states_text"]

StatesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--states",
        metavar="INPUT=OUTPUT",
        help="Keep an output as an input of the next call, such as the cache of a decoder; repeat for several, or give "
        "`detect` for all pairs named like past and present values.",
        show_default=False,
    ),
]


def parse_states(texts: Sequence[str] | None) -> str | tuple[tuple[str, str], ...]:
    """Return the pairs of an input and an output, or ``"detect"``.

    Raises:
        OptionsError: a text is neither a pair nor the only text ``detect``.
    """
    if texts and list(texts) == ["detect"]:
        return "detect"
    pairs = []
    for text in texts or ():
        source, equals, target = text.partition("=")
        if not (source and equals and target):
            raise OptionsError("--states", "is malformed", got=repr(text), expected="INPUT=OUTPUT, or `detect` alone")
        pairs.append((source, target))
    return tuple(pairs)


def states_text(states: Mapping[str, Sequence[StateSummary]]) -> str:
    """Return the states of all functions as text, a line for each; empty without states."""
    lines = []
    for name, summaries in states.items():
        lines += [f"\nstates of `{name}`:", *(f"  {summary}" for summary in summaries)]
    return "\n".join(lines)
