"""The flags shared by commands for compilation requests, and their conversion to a request.

A new flag is a field of :class:`RequestFlags`, a line in :meth:`RequestFlags.to_request`, and a name in the tuple of
each command with the flag. ``ALL_FLAGS`` (compile, config) follows the fields by itself.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_type_hints

import typer

from byoc_core.cli.constraints import (
    AllowOption,
    DeviceFromOption,
    DeviceOption,
    ForceOption,
    MinBytesOption,
    MinFlopsOption,
    MinOpsOption,
    SidewaysOption,
    StopAtOption,
    parse_constraints,
)
from byoc_core.errors import OptionsError

if TYPE_CHECKING:
    from byoc_core.driver import CompileRequest

__all__ = [
    "ALL_FLAGS",
    "CONSTRAINT_FLAGS",
    "DEBUG_FLAGS",
    "EXPLAIN_FLAGS",
    "RUN_FLAGS",
    "BackendOption",
    "PolicyName",
    "RequestFlags",
    "StrictOption",
    "choose_backends",
    "parse_options",
    "takes_request",
]

Fallback = Literal["allow", "warn", "error"]
PolicyName = Literal["greedy", "cost"]

ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        readable=False,
        help="A request in TOML or JSON, as printed by `byoc config`; other options override the values of the file.",
        show_default=False,
    ),
]
BackendOption = Annotated[
    list[str] | None,
    typer.Option(
        "--backend",
        "-b",
        metavar="NAME",
        help="A backend to use; repeat for several, or give A,B; backends are asked in this order. Default: `auto`, "
        "all installed backends able to compile here, placed by expected time. Ops not taken by any backend run on the "
        "host.",
    ),
]
OptionOption = Annotated[
    list[str] | None,
    typer.Option(
        "--option", metavar="BACKEND.NAME=VALUE", help="An option of a backend; repeat for several.", show_default=False
    ),
]
FallbackOption = Annotated[
    Fallback | None,
    typer.Option(
        help="For ops on the host: stay silent (allow, the default), warn, or stop with an error.",
        show_default=False,
    ),
]
PolicyOption = Annotated[
    PolicyName | None,
    typer.Option(
        "--policy",
        help="The assignment of ops: each backend, in order, takes all possible ops (greedy, the default), or the "
        "cheapest assignment is chosen, transfers included (cost).",
        show_default=False,
    ),
]
PlacementOption = Annotated[
    Path | None,
    typer.Option(
        "--placement",
        metavar="FILE",
        readable=False,
        help="A lock from `byoc tune`: each op goes to the backend of the lock. Default backends: the lock's.",
        show_default=False,
    ),
]
StrictOption = Annotated[
    bool,
    typer.Option(
        "--strict",
        help="Stop with an error if a hook of a backend raises; otherwise others take over.",
    ),
]
MaxFoldCostOption = Annotated[
    int | None,
    typer.Option(
        "--max-fold-cost",
        min=0,
        metavar="COUNT",
        help="The limit of bytes and FLOPs for computing constants. Default: 512 Mi and 16 for each byte of the "
        "model's constants.",
        show_default=False,
    ),
]
SpecializeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--specialize",
        metavar="NAME=SIZE,...",
        help="On backends restricted to static shapes, compile for these sizes of a symbol; repeat for several names.",
        show_default=False,
    ),
]


@dataclass(frozen=True, kw_only=True)
class RequestFlags:
    """The command line's contribution to a request. A command may have only some of the flags."""

    config: ConfigOption = None
    backend: BackendOption = None
    option: OptionOption = None
    fallback: FallbackOption = None
    strict: StrictOption = False
    policy: PolicyOption = None
    placement: PlacementOption = None
    force: ForceOption = None
    stop_at: StopAtOption = None
    device: DeviceOption = None
    device_from: DeviceFromOption = None
    allow: AllowOption = None
    min_ops: MinOpsOption = None
    min_flops: MinFlopsOption = None
    min_bytes: MinBytesOption = None
    sideways: SidewaysOption = False
    max_fold_cost: MaxFoldCostOption = None
    specialize: SpecializeOption = None

    def names_given(self, *names: str) -> bool:
        """Return whether any of these flags is given."""
        return any(getattr(self, name) not in (None, False) for name in names)

    def to_request(self) -> CompileRequest:
        """Return the request from the file, overridden by flags.

        Raises:
            OSError: the file cannot be read.
            OptionsError: the file or a flag is malformed.
        """
        from byoc_core.cli.inputs import parse_sets_of_sizes
        from byoc_core.driver import CompileRequest
        from byoc_core.partitioning.policies import POLICIES

        base = CompileRequest() if self.config is None else CompileRequest.from_file(self.config)
        overrides: dict[str, Any] = {
            "options": _merge_options(base.options, parse_options(self.option)),
            "partition_options": parse_constraints(
                base.partition_options,
                self.force,
                self.stop_at,
                self.allow,
                device=self.device,
                device_from=self.device_from,
                min_ops=self.min_ops,
                min_flops=self.min_flops,
                min_bytes=self.min_bytes,
                sideways=self.sideways,
            ),
            "fallback": self.fallback,
            "strict": self.strict or None,
            "policy": None if self.policy is None else POLICIES[self.policy](),
            "placement": self.placement,
            "max_fold_cost": self.max_fold_cost,
            "specialize": parse_sets_of_sizes(self.specialize),
        }
        if self.backend:
            overrides["backends"] = choose_backends(self.backend)
        return base.updated(**{name: value for name, value in overrides.items() if value is not None})


CONSTRAINT_FLAGS = (
    "force",
    "stop_at",
    "device",
    "device_from",
    "allow",
    "min_ops",
    "min_flops",
    "min_bytes",
    "sideways",
)
RUN_FLAGS = ("config", "backend", "option", "strict", "placement", "max_fold_cost")
DEBUG_FLAGS = ("config", "backend", "option", "policy", "placement", *CONSTRAINT_FLAGS, "max_fold_cost")
EXPLAIN_FLAGS = (
    "config",
    "backend",
    "option",
    "strict",
    "policy",
    "placement",
    *CONSTRAINT_FLAGS,
    "max_fold_cost",
    "specialize",
)
ALL_FLAGS = tuple(field.name for field in fields(RequestFlags))


def takes_request(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator replacing a command's keyword-only parameter ``flags`` by command-line flags.

    Args:
        names: the fields of :class:`RequestFlags` available as flags of the command; others keep their defaults.
    """
    hints = get_type_hints(RequestFlags, include_extras=True)
    kind = inspect.Parameter.KEYWORD_ONLY
    flags = [
        inspect.Parameter(field.name, kind, default=field.default, annotation=hints[field.name])
        for field in fields(RequestFlags)
        if field.name in names
    ]

    def expand(command: Callable[..., None]) -> Callable[..., None]:
        def run(**arguments: Any) -> None:
            picked = {name: arguments.pop(name) for name in names}
            command(flags=RequestFlags(**picked), **arguments)

        own = inspect.signature(command, eval_str=True)
        parameters = [p for o in own.parameters.values() for p in (flags if o.name == "flags" else [o])]
        run.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in parameters}
        run.__name__, run.__doc__, run.__module__ = command.__name__, command.__doc__, command.__module__
        return run

    return expand


def choose_backends(texts: Sequence[str] | None) -> list[str]:
    """Return the backends named by the user, or else all installed backends able to compile here."""
    from byoc_core.backend.registry import find_registry
    from byoc_core.driver.automatic import able_backends

    if texts:
        return [name.strip() for text in texts for name in text.split(",") if name.strip()] or list(texts)
    return [handle.name for handle in able_backends(find_registry())]


def parse_options(texts: Sequence[str] | None) -> dict[str, dict[str, object]]:
    """Return options by backend from ``backend.name=value`` texts.

    A value starting like a JSON list or object is read as JSON. Other values are text, converted by a backend's options
    model.

    Raises:
        OptionsError: a text has another form, or its JSON is malformed.
    """
    options: dict[str, dict[str, object]] = {}
    for text in texts or ():
        key, equals, value = text.partition("=")
        backend, dot, name = key.partition(".")
        if not (equals and dot and backend and name):
            raise OptionsError("--option", "is malformed", got=repr(text), expected="BACKEND.NAME=VALUE")
        try:
            options.setdefault(backend, {})[name] = json.loads(value) if value[:1] in ("[", "{") else value
        except ValueError as error:
            raise OptionsError(f"--option {key}", f"is malformed JSON: {error}", got=repr(value)) from error
    return options


def _merge_options(
    base: Mapping[str, Mapping[str, object]], overrides: Mapping[str, Mapping[str, object]]
) -> dict[str, dict[str, object]]:
    return {name: {**base.get(name, {}), **overrides.get(name, {})} for name in dict.fromkeys((*base, *overrides))}
