"""What to compile, and for whom: models, backends and options as the command line names them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from byoc_core.errors import ArtifactError, OptionsError, PluginError

if TYPE_CHECKING:
    from byoc_core.artifact import Executable
    from byoc_core.cli.passes import PassObserver
    from byoc_core.partitioning import PartitionOptions

__all__ = [
    "AllowOption",
    "BackendOption",
    "Fallback",
    "ForceOption",
    "MinBytesOption",
    "MinFlopsOption",
    "MinOpsOption",
    "OptionOption",
    "SidewaysOption",
    "StopAtOption",
    "build_model",
    "check_output",
    "choose_backends",
    "is_artifact",
    "parse_constraints",
    "parse_options",
]

Fallback = Literal["allow", "warn", "error"]

BackendOption = Annotated[
    list[str] | None,
    typer.Option(
        "--backend",
        "-b",
        metavar="NAME",
        help="A backend to use; repeat for several, the first to be asked first. Without it, all that are installed "
        "and can compile here, by name; what nobody takes runs on the host.",
    ),
]
OptionOption = Annotated[
    list[str] | None,
    typer.Option(
        "--option", metavar="BACKEND.NAME=VALUE", help="An option of a backend; repeat for several.", show_default=False
    ),
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
    int,
    typer.Option(
        metavar="N",
        help="Give regions of fewer ops back: the next backend is asked for them, and the host takes the rest.",
        show_default=False,
    ),
]
MinFlopsOption = Annotated[
    int,
    typer.Option(
        metavar="N",
        help="The same for fewer floating-point operations, dynamic sizes counted as 1.",
        show_default=False,
    ),
]
MinBytesOption = Annotated[
    int,
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


def is_artifact(path: Path) -> bool:
    """Tells whether a file begins as an artifact does (and other zip archives do).

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        return file.read(4) == b"PK\x03\x04"


def check_output(path: Path, source: Path) -> None:
    """Makes sure, before long work begins, that a result has a place and replaces nothing but an older result.

    Raises:
        OptionsError: its folder does not exist, or in its place is the source, a folder, a device or a pipe.
    """
    if not path.parent.is_dir():
        raise OptionsError("--output", f"the folder `{path.parent}` does not exist")
    if path.is_dir():
        raise OptionsError("--output", f"`{path}` is a folder")
    if path.exists() and not path.is_file():
        raise OptionsError("--output", f"`{path}` is not a regular file, and is not replaced by one")
    if path.exists() and source.exists() and path.samefile(source):
        raise OptionsError("--output", f"`{path}` is the model itself")


def choose_backends(given: Sequence[str] | None) -> list[str]:
    """Gives the backends that the user names, or else all that are installed and can compile here."""
    from byoc_core.backend.registry import HOST_NAME, backends

    if given:
        return list(given)
    usable = []
    for name in backends().names():
        try:
            if name != HOST_NAME and backends().get(name).compile_status().ok:
                usable.append(name)
        except PluginError:
            continue  # not asked for by name, so it need not work; `byoc backends` says why
    return usable


def parse_options(given: Sequence[str] | None) -> dict[str, dict[str, object]]:
    """Gives options by backend from ``backend.name=value`` texts.

    A value that begins as a JSON list or object is read as JSON; other values are text, which a backend's options
    model converts.

    Raises:
        OptionsError: a text has another form, or its JSON is malformed.
    """
    import json

    options: dict[str, dict[str, object]] = {}
    for text in given or ():
        key, equals, value = text.partition("=")
        backend, dot, name = key.partition(".")
        if not (equals and dot and backend and name):
            raise OptionsError("--option", "is malformed", got=repr(text), expected="BACKEND.NAME=VALUE")
        try:
            options.setdefault(backend, {})[name] = json.loads(value) if value[:1] in ("[", "{") else value
        except ValueError as error:
            raise OptionsError(f"--option {key}", f"is malformed JSON: {error}", got=repr(value)) from error
    return options


def parse_constraints(
    force: Sequence[str] | None = None,
    stop_at: Sequence[str] | None = None,
    allow: Sequence[str] | None = None,
    *,
    min_ops: int = 0,
    min_flops: int = 0,
    min_bytes: int = 0,
    sideways: bool = False,
) -> PartitionOptions:
    """Gives the constraints that flags put on a partition.

    Raises:
        OptionsError: a text is malformed, a name stands twice, or a limit is negative.
    """
    from byoc_core.partitioning import PartitionOptions

    allowed = {backend: ops.split(",") for backend, ops in _split("--allow", allow, "BACKEND=OP,OP")}
    places = dict(_split("--force", force, "NAME=BACKEND"))
    return PartitionOptions(places, tuple(stop_at or ()), allowed, min_ops, min_flops, min_bytes, sideways)


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


def _describe_zip(path: Path) -> str:
    from byoc_core.artifact import inspect

    try:
        inspect(path)
    except ArtifactError:
        return "is a zip archive"
    return "is compiled already"


def build_model(
    path: Path,
    given_backends: Sequence[str] | None,
    given_options: Sequence[str] | None,
    fallback: Fallback,
    observer: PassObserver | None = None,
    constraints: PartitionOptions | None = None,
) -> Executable:
    """Imports an ONNX model and compiles it, showing its progress or, in its place, what an observer prints.

    Raises:
        OSError: the file cannot be read.
        ByocError: it is no model, or cannot be compiled as wished.
    """
    from byoc_core.cli.console import show_stages
    from byoc_core.driver import build
    from byoc_core.frontend.onnx import from_onnx

    if is_artifact(path):
        raise ArtifactError(f"file `{path}`", _describe_zip(path), expected="an ONNX model")
    options = parse_options(given_options)
    chosen = choose_backends(given_backends)
    with show_stages(path.name, quiet=observer is not None) as show:
        show("import")
        module = from_onnx(path)
        return build(
            module,
            chosen,
            options=options,
            fallback=fallback,
            progress=show,
            on_pass=observer,
            partition_options=constraints,
        )
