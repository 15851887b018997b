"""Constraints on a partition as the command line names them: flags that several commands share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from byoc_core.errors import OptionsError

if TYPE_CHECKING:
    from byoc_core.partitioning import PartitionOptions

__all__ = [
    "AllowOption",
    "ForceOption",
    "MinBytesOption",
    "MinFlopsOption",
    "MinOpsOption",
    "SidewaysOption",
    "StopAtOption",
    "parse_constraints",
]

ForceOption = Annotated[
    list[str] | None,
    typer.Option(
        "--force",
        metavar="NAME=BACKEND",
        help="Who must take an op: a backend, or 'host' for none. NAME is a value as 'byoc explain' prints it, "
        "FUNCTION/NAME, or a pattern such as 'conv_*'; an exact name goes before a pattern. Compiling fails where the "
        "backend does not take it. Repeat for several.",
        show_default=False,
    ),
]
StopAtOption = Annotated[
    list[str] | None,
    typer.Option(
        "--stop-at",
        metavar="NAME",
        help="The last op to be offloaded on its way: what depends on its results stays on the host. Repeat for "
        "several.",
        show_default=False,
    ),
]
AllowOption = Annotated[
    list[str] | None,
    typer.Option(
        "--allow",
        metavar="BACKEND=OP,OP",
        help="The only ops that a backend may take, such as NAME=add,'nn.*'. Repeat for several backends.",
        show_default=False,
    ),
]
MinOpsOption = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help="Give regions of fewer ops back: the next backend is asked for them, and the host takes the rest.",
        show_default=False,
    ),
]
MinFlopsOption = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help="The same for fewer floating-point operations, dynamic sizes counted as 1.",
        show_default=False,
    ),
]
MinBytesOption = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help="The same for regions whose ops read and write fewer bytes, dynamic sizes counted as 1.",
        show_default=False,
    ),
]
SidewaysOption = Annotated[
    bool,
    typer.Option(
        "--sideways", help="Put ops of one backend that do not depend on each other into one region too: fewer regions."
    ),
]


def parse_constraints(
    base: PartitionOptions,
    force: Sequence[str] | None = None,
    stop_at: Sequence[str] | None = None,
    allow: Sequence[str] | None = None,
    *,
    sideways: bool = False,
    **limits: int | None,
) -> PartitionOptions:
    """Return constraints in which what flags say stands in the place of what is there.

    Args:
        base: what is there.
        force: names with their backends, beside those that are there.
        stop_at: names, in the place of those that are there.
        allow: backends with their ops, beside those that are there.
        sideways: whether claims that no edge joins may share a region, also if ``base`` forbids it.
        limits: ``min_ops``, ``min_flops``, ``min_bytes``.

    Raises:
        OptionsError: a text is malformed, a name stands twice, or a limit is negative.
    """
    allowed = {backend: ops.split(",") for backend, ops in _split("--allow", allow, "BACKEND=OP,OP")}
    places = dict(_split("--force", force, "NAME=BACKEND"))
    given: dict[str, Any] = {name: limit for name, limit in limits.items() if limit is not None}
    return replace(
        base,
        force={**base.force, **places},
        stop_at=tuple(stop_at or base.stop_at),
        allow={**base.allow, **allowed},
        sideways=sideways or base.sideways,
        **given,
    )


def _split(flag: str, given: Sequence[str] | None, form: str) -> Iterator[tuple[str, str]]:
    """Yields the two sides of texts with an equals sign.

    Raises:
        OptionsError: a text has another form, or the same left side as another with something else to the right.
    """
    known: dict[str, str] = {}
    for text in given or ():
        left, _, right = text.partition("=")
        if not (left and right):
            raise OptionsError(flag, "is malformed", got=repr(text), expected=form)
        if known.setdefault(left, right) != right:
            raise OptionsError(f"{flag} {left}", "is given twice", got=f"{known[left]!r} and {right!r}")
        yield left, right
