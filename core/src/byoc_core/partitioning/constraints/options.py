"""What a user may wish of a partition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from byoc_core.errors import OptionsError

__all__ = ["PartitionOptions"]


@dataclass(frozen=True)
class PartitionOptions:
    """Constraints on a partition, which hold whatever the policy, and whatever a backend says.

    An op is named by a value that it gives, as ``explain`` prints it, with or without a ``%`` in front; ``encoder/x``
    is the ``x`` of function ``encoder``. A name may be a glob (``conv_*``, ``encoder/*``). Ops in bodies of ``if``
    and ``loop`` are named like others, and the name of an ``if`` or ``loop`` stands for all ops in its bodies.

    Attributes:
        force: by name, the backend that must take an op, or ``"host"``: nobody may. Where the backend does not take
            it, the partition fails. An exact name goes before a glob, and ``force`` before everything below.
        stop_at: names of ops that are the last to be offloaded on their way: what depends on their results stays on
            the host. A ``call``, ``if`` or ``loop`` depends on what it reads, with everything that it runs; where it
            runs the named op, what reads its results depends on that op. Inside a loop one round counts: what stands
            before the named op may be offloaded.
        allow: by backend, globs of the ops that it may take (``{"mynpu": ["nn.*", "add"]}``); a backend that is not
            listed may take all.
        min_ops: a region of fewer ops (those in composites counted singly) is given back, and the next backend is
            asked for its ops.
        min_flops: the same for a region of fewer floating-point operations, every symbolic size counted as 1.
        min_bytes: the same for a region whose ops read and write fewer bytes, added up, every symbolic size counted
            as 1. A region with a forced op stays, whatever its size.
        sideways: whether claims of one backend that no edge joins may share a region.
        backend_limits: whether the least regions hold which backends state (``BackendInfo.min_region_flops``); a region
            whose operations are not known, or depend on symbols, is never below them.
    """

    force: Mapping[str, str] = field(default_factory=dict)
    stop_at: Sequence[str] = ()
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
                raise OptionsError(f"force `{name}`", "is no name of a backend", got=repr(backend))
        _check_names("stop_at", self.stop_at)
        _check_mapping("allow", self.allow, "{'mynpu': ['nn.*']}")
        for backend, globs in self.allow.items():
            _check_names(f"allow `{backend}`", globs)
        object.__setattr__(self, "stop_at", tuple(self.stop_at))
        object.__setattr__(self, "allow", {backend: tuple(globs) for backend, globs in self.allow.items()})
        for name in ("min_ops", "min_flops", "min_bytes"):
            limit = getattr(self, name)
            if not isinstance(limit, int) or isinstance(limit, bool) or limit < 0:
                raise OptionsError(name, "is no limit", got=repr(limit), expected="an integer of 0 or more")
        for name in ("backend_limits", "sideways"):
            if not isinstance(getattr(self, name), bool):
                raise OptionsError(name, "is no bool", got=repr(getattr(self, name)))


def _check_mapping(where: str, value: object, example: str) -> None:
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise OptionsError(where, "is no mapping from names", got=repr(value), expected=f"one like {example}")


def _check_names(where: str, value: object) -> None:
    if isinstance(value, str):
        raise OptionsError(where, "is a single string", got=repr(value), expected=f"[{value!r}]")
    if not isinstance(value, Sequence) or not all(isinstance(name, str) for name in value):
        raise OptionsError(where, "is no list of names", got=repr(value))
