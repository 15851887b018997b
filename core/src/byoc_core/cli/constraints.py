"""Constraints on a partition in command-line form: flags shared by several commands."""

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
    "DeviceFromOption",
    "DeviceOption",
    "ForceOption",
    "MinBytesOption",
    "MinFlopsOption",
    "MinOpsOption",
    "SidewaysOption",
    "StopAtOption",
    "parse_constraints",
]

_MAX_SHOWN = 40
"""The maximum number of characters of a malformed number in an error."""

ForceOption = Annotated[
    list[str] | None,
    typer.Option(
        "--force",
        metavar="NAME=BACKEND",
        help="The place of an op: a backend, or 'host' for no backend. NAME is a value as printed by 'byoc explain', "
        "FUNCTION/NAME, or a pattern, for example 'conv_*'; an exact name has precedence over a pattern. Compiling "
        "fails if the backend does not take the op. Repeat for several.",
        show_default=False,
    ),
]
DeviceOption = Annotated[
    list[str] | None,
    typer.Option(
        "--device",
        metavar="NAME=NUMBER",
        help="The number of the device of an op, among the devices of the memory of its backend; 0 by default. NAME as "
        "for --force. Repeat for several.",
        show_default=False,
    ),
]
DeviceFromOption = Annotated[
    list[str] | None,
    typer.Option(
        "--device-from",
        metavar="NAME=NUMBER",
        help="The number of the device of an op, and of all ops depending on this op; the last entry counts. Repeat "
        "for several.",
        show_default=False,
    ),
]
StopAtOption = Annotated[
    list[str] | None,
    typer.Option(
        "--stop-at",
        metavar="NAME",
        help="The last offloaded op of a path: ops depending on the results stay on the host. Repeat for several.",
        show_default=False,
    ),
]
AllowOption = Annotated[
    list[str] | None,
    typer.Option(
        "--allow",
        metavar="BACKEND=OP,OP",
        help="The only ops permitted to a backend, for example NAME=add,'nn.*'. Repeat for several backends.",
        show_default=False,
    ),
]
MinOpsOption = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help="Give back regions with fewer ops: the next backend is asked for these ops, and the host takes the rest.",
        show_default=False,
    ),
]
MinFlopsOption = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help="The same for regions with fewer floating-point operations, dynamic sizes counted as 1.",
        show_default=False,
    ),
]
MinBytesOption = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help="The same for regions with fewer bytes read and written, dynamic sizes counted as 1.",
        show_default=False,
    ),
]
SidewaysOption = Annotated[
    bool,
    typer.Option("--sideways", help="Put independent ops of a backend into the same region too, for fewer regions."),
]


def parse_constraints(
    base: PartitionOptions,
    force: Sequence[str] | None = None,
    stop_at: Sequence[str] | None = None,
    allow: Sequence[str] | None = None,
    *,
    device: Sequence[str] | None = None,
    device_from: Sequence[str] | None = None,
    sideways: bool = False,
    **limits: int | None,
) -> PartitionOptions:
    """Return constraints with existing values overridden or extended by flags.

    Args:
        base: the existing constraints.
        force: names with their backends, added to the existing names.
        stop_at: names, in place of the existing names.
        allow: backends with their ops, added to the existing backends.
        device: names with numbers of devices, added to the existing names.
        device_from: the same, for ops and all their dependents.
        sideways: whether claims not joined by an edge may share a region, also if ``base`` forbids sharing.
        limits: ``min_ops``, ``min_flops``, ``min_bytes``.

    Raises:
        OptionsError: a text is malformed, a name stands twice, or a limit is negative.
    """
    allowed = {backend: ops.split(",") for backend, ops in _split("--allow", allow, "BACKEND=OP,OP")}
    forced = dict(_split("--force", force, "NAME=BACKEND"))
    minimums: dict[str, Any] = {name: limit for name, limit in limits.items() if limit is not None}
    return replace(
        base,
        force={**base.force, **forced},
        stop_at=tuple(stop_at or base.stop_at),
        devices={**base.devices, **_numbers("--device", device)},
        devices_from={**base.devices_from, **_numbers("--device-from", device_from)},
        allow={**base.allow, **allowed},
        sideways=sideways or base.sideways,
        **minimums,
    )


def _numbers(flag: str, texts: Sequence[str] | None) -> dict[str, int]:
    from byoc_core.opset.device_numbers import MAX_DEVICE_NUMBER

    max_digits, found = len(str(MAX_DEVICE_NUMBER)), {}
    for name, number in _split(flag, texts, "NAME=NUMBER"):
        is_number = number.isascii() and number.isdigit() and len(number) <= max_digits
        if not is_number or int(number) > MAX_DEVICE_NUMBER:
            shown = number if len(number) <= _MAX_SHOWN else f"{number[:_MAX_SHOWN]}..."
            raise OptionsError(
                f"{flag} {name}",
                "is not the number of a device",
                got=repr(shown),
                expected=f"0 to {MAX_DEVICE_NUMBER}",
            )
        found[name] = int(number)
    return found


def _split(flag: str, texts: Sequence[str] | None, form: str) -> Iterator[tuple[str, str]]:
    """Yield the two sides of texts with an equals sign.

    Raises:
        OptionsError: a text has another form, or repeats a left side with a different right side.
    """
    values: dict[str, str] = {}
    for text in texts or ():
        left, _, right = text.partition("=")
        if not (left and right):
            raise OptionsError(flag, "is malformed", got=repr(text), expected=form)
        if values.setdefault(left, right) != right:
            raise OptionsError(f"{flag} {left}", "is given twice", got=f"{values[left]!r} and {right!r}")
        yield left, right
