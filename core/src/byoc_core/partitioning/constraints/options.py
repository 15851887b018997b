"""The user's options for a partition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from byoc_core.errors import OptionsError
from byoc_core.opset.device_numbers import MAX_DEVICE_NUMBER

__all__ = ["PartitionOptions"]

_MAX_SHOWN_BITS = 64


@dataclass(frozen=True)
class PartitionOptions:
    """Constraints on a partition, valid for every policy and every backend.

    An op is named by one of its values, as printed by ``explain``, with or without a ``%`` in front; ``encoder/x`` is
    the ``x`` of function ``encoder``. A name may be a glob (``conv_*``, ``encoder/*``). Ops in bodies of ``if`` and
    ``loop`` are named like others, and the name of an ``if`` or ``loop`` stands for all ops in the bodies.

    Attributes:
        force: by name, the backend required for an op, or ``"host"`` for no backend. If the backend does not take the
            op, the partition fails. An exact name takes precedence over a glob, and ``force`` over everything below.
        stop_at: names of the last ops to be offloaded on a path: ops depending on the results stay on the host. A
            ``call``, ``if`` or ``loop`` depends on the operands, and so does everything run inside; if the named op
            runs inside, the readers of the results depend on the named op. Inside a loop a single round counts: ops
            before the named op may be offloaded.
        devices: by name, the number of the device of an op, among the devices of the memory of the backend taking the
            op; 0 by default, and at most 2**31 - 1. Ops on different devices are in different regions. A composite
            runs on the device of its last op. A number has no meaning for ops in the host's memory.
        devices_from: by name, the number of the device of an op and of all ops depending on the op; of several entries
            the last counts. ``devices`` takes precedence.
        allow: by backend, globs of the permitted ops (``{"mynpu": ["nn.*", "add"]}``); a backend not listed may take
            all ops.
        min_ops: a region of fewer ops (ops in composites counted singly) is given back, and the next backend is asked
            for the ops.
        min_flops: the same for a region of fewer floating-point operations, every symbolic size counted as 1.
        min_bytes: the same for a region with fewer bytes read and written by the ops in total, every symbolic size
            counted as 1. A region with a forced op stays, whatever the size.
        sideways: whether claims of the same backend may share a region without an edge between the claims.
        backend_limits: whether the minimum region sizes stated by backends (``BackendInfo.min_region_flops``) apply; a
            region with unknown or symbolic operations is never below the minimum.
    """

    force: Mapping[str, str] = field(default_factory=dict)
    stop_at: Sequence[str] = ()
    devices: Mapping[str, int] = field(default_factory=dict)
    devices_from: Mapping[str, int] = field(default_factory=dict)
    allow: Mapping[str, Sequence[str]] = field(default_factory=dict)
    min_ops: int = 0
    min_flops: int = 0
    min_bytes: int = 0
    sideways: bool = False
    backend_limits: bool = True

    def __post_init__(self) -> None:
        _check_mapping("force", self.force, "{'conv_1': 'host'}")
        for name, backend in self.force.items():
            if not isinstance(backend, str):
                raise OptionsError(f"force `{name}`", "is not the name of a backend", got=repr(backend))
        _check_names("stop_at", self.stop_at)
        for kind in ("devices", "devices_from"):
            numbers = getattr(self, kind)
            _check_mapping(kind, numbers, "{'conv_1': 1}")
            for name, number in numbers.items():
                if type(number) is not int or not 0 <= number <= MAX_DEVICE_NUMBER:
                    raise OptionsError(
                        f"{kind} `{name}`",
                        "is not the number of a device",
                        got=_describe_number(number),
                        expected=f"0 to {MAX_DEVICE_NUMBER}",
                    )
        _check_mapping("allow", self.allow, "{'mynpu': ['nn.*']}")
        for backend, globs in self.allow.items():
            _check_names(f"allow `{backend}`", globs)
        object.__setattr__(self, "stop_at", tuple(self.stop_at))
        object.__setattr__(self, "allow", {backend: tuple(globs) for backend, globs in self.allow.items()})
        for name in ("min_ops", "min_flops", "min_bytes"):
            limit = getattr(self, name)
            if not isinstance(limit, int) or isinstance(limit, bool) or limit < 0:
                raise OptionsError(name, "is not a valid limit", got=repr(limit), expected="an integer of 0 or more")
        for name in ("backend_limits", "sideways"):
            if not isinstance(getattr(self, name), bool):
                raise OptionsError(name, "is not a bool", got=repr(getattr(self, name)))


def _describe_number(number: object) -> str:
    """Return the text of a number; Python writes no numbers of many thousand digits."""
    if isinstance(number, int) and number.bit_length() > _MAX_SHOWN_BITS:
        return f"a number of {number.bit_length()} bits"
    return repr(number)


def _check_mapping(where: str, value: object, example: str) -> None:
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise OptionsError(
            where, "is not a mapping with names as keys", got=repr(value), expected=f"a mapping such as {example}"
        )


def _check_names(where: str, value: object) -> None:
    if isinstance(value, str):
        raise OptionsError(where, "is a single string", got=repr(value), expected=f"[{value!r}]")
    if not isinstance(value, Sequence) or not all(isinstance(name, str) for name in value):
        raise OptionsError(where, "is not a list of names", got=repr(value))
