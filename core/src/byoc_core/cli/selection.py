"""What to compile, for whom, and what to run it on: the arguments that commands share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from byoc_core.cli.bounds import Bounds
from byoc_core.errors import ArtifactError, OptionsError, PluginError

if TYPE_CHECKING:
    from byoc_core.artifact import Executable
    from byoc_core.cli.passes import PassObserver
    from byoc_core.driver import Explanation
    from byoc_core.driver.specialising import Specialize
    from byoc_core.ir import IRModule
    from byoc_core.partitioning import PartitionOptions, Policy

__all__ = [
    "BackendOption",
    "DimOption",
    "Fallback",
    "FunctionOption",
    "InputOption",
    "OptionOption",
    "PolicyName",
    "PolicyOption",
    "RandomInputsOption",
    "RandomOption",
    "RequireOffloadOption",
    "SeedOption",
    "SizeOption",
    "SpecializeOption",
    "StrictOption",
    "build_model",
    "check_output",
    "choose_backends",
    "explain_model",
    "import_model",
    "is_artifact",
    "new_policy",
    "parse_options",
    "parse_share",
]

Fallback = Literal["allow", "warn", "error"]
PolicyName = Literal["greedy", "cost"]

BackendOption = Annotated[
    list[str] | None,
    typer.Option(
        "--backend",
        "-b",
        metavar="NAME",
        help="A backend to use; repeat for several, or give A,B; the first is asked first. Without it, all that are "
        "installed and can compile here, by name; what nobody takes runs on the host.",
    ),
]
OptionOption = Annotated[
    list[str] | None,
    typer.Option(
        "--option", metavar="BACKEND.NAME=VALUE", help="An option of a backend; repeat for several.", show_default=False
    ),
]
PolicyOption = Annotated[
    PolicyName | None,
    typer.Option(
        "--policy",
        help="Who takes what: each backend, in order, all it can (greedy, the default), or whoever makes the whole "
        "cheapest, transfers included (cost).",
        show_default=False,
    ),
]
StrictOption = Annotated[
    bool,
    typer.Option(
        "--strict",
        help="Stop with an error if a hook of a backend raises; else others take what it was asked about.",
    ),
]
RequireOffloadOption = Annotated[
    str | None,
    typer.Option(
        "--require-offload",
        metavar="SHARE",
        help="Stop with exit status 1 if less than this share of the FLOPs is offloaded: 0.9, or 90%.",
        show_default=False,
    ),
]

SizeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--dim",
        metavar="NAME=SIZE",
        help="What a symbolic size counts as in shares of FLOPs, else 1.",
        show_default=False,
    ),
]
SpecializeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--specialize",
        metavar="NAME=SIZE,...",
        help="Compile what backends of static shapes take for these sizes of a symbol; repeat for several names.",
        show_default=False,
    ),
]
InputOption = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        "-i",
        metavar="NAME=FILE",
        help="An input from a .npy, .npz or .pb file; repeat for several. FILE.npz alone gives all inputs that it "
        "names.",
    ),
]
RandomOption = Annotated[
    list[str] | None,
    typer.Option("--random", metavar="NAME", help="Draw this input at random; repeat for several.", show_default=False),
]
RandomInputsOption = Annotated[
    bool, typer.Option("--random-inputs", help="Draw all inputs at random that are not given.")
]
FunctionOption = Annotated[str, typer.Option("--function", help="The function to run.")]
SeedOption = Annotated[int, typer.Option("--seed", min=0, help="Seed of the random inputs.")]
DimOption = Annotated[
    list[str] | None,
    typer.Option("--dim", metavar="NAME=SIZE", help="Size of a symbolic dimension in random inputs; 1 without it."),
]


def is_artifact(path: Path) -> bool:
    """Tells whether a file begins as an artifact does (and other zip archives do).

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        return file.read(4) == b"PK\x03\x04"


_MODEL_SUFFIXES = (".onnx", ".pb", ".pbtxt", ".ort", ".tflite", ".pt", ".pth", ".safetensors")


def check_output(path: Path, source: Path, flag: str = "--output") -> None:
    """Makes sure, before long work begins, that a result has a place and replaces nothing but an older result.

    Raises:
        OptionsError: its folder does not exist, or in its place is the source, a folder, a device or a pipe.
    """
    if not path.parent.is_dir():
        raise OptionsError(flag, f"the folder `{path.parent}` does not exist")
    if path.is_dir():
        raise OptionsError(flag, f"`{path}` is a folder")
    if path.exists() and not path.is_file():
        raise OptionsError(flag, f"`{path}` is not a regular file, and is not replaced by one")
    if path.exists() and source.exists() and path.samefile(source):
        raise OptionsError(flag, f"`{path}` is the model itself")
    if path.suffix.lower() in _MODEL_SUFFIXES:
        raise OptionsError(flag, f"`{path}` has the name of a model, which is not what is written")


def check_artifact_output(path: Path, source: Path) -> None:
    """Make sure that an artifact has a place, as :func:`check_output` does, and replaces nothing but an artifact.

    A model's weights may lie in files of any name beside the model. What is called ``.byoc`` counts as an artifact.

    Raises:
        OptionsError: the place is not free.
    """
    check_output(path, source)
    if path.suffix != ".byoc" and path.exists() and path.stat().st_size and not is_artifact(path):
        raise OptionsError(
            "--output", f"`{path}` exists and is no artifact", hint="Remove the file, or choose another name."
        )


def choose_backends(given: Sequence[str] | None) -> list[str]:
    """Gives the backends that the user names, or else all that are installed and can compile here."""
    from byoc_core.backend.registry import HOST_NAME, backends

    if given:
        return [name.strip() for text in given for name in text.split(",") if name.strip()] or list(given)
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


def parse_share(given: str | None) -> float | None:
    """Gives a share from 0 to 1 from text like ``0.9`` or ``90%``; ``None`` where nothing is given.

    Raises:
        OptionsError: the text is no such share.
    """
    if given is None:
        return None
    digits = given.strip()
    scale = 100 if digits.endswith("%") else 1
    try:
        share = float(digits.removesuffix("%")) / scale
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise OptionsError("--require-offload", "is no share", got=repr(given), expected="0 to 1, or 0% to 100%")
    return share


def new_policy(name: PolicyName | None) -> Policy | None:
    """Gives the policy of a name; ``None`` for the default."""
    from byoc_core.partitioning.policies import POLICIES

    return None if name is None else POLICIES[name]()


def _describe_zip(path: Path) -> str:
    from byoc_core.artifact import inspect

    try:
        inspect(path)
    except ArtifactError:
        return "is a zip archive"
    return "is compiled already"


def import_model(path: Path, max_nodes: int | None = None) -> IRModule:
    """Imports an ONNX model.

    Raises:
        OSError: the file cannot be read.
        ArtifactError: it is an artifact, or another zip archive.
        FrontendError: it is no model, or cannot be imported.
    """
    from byoc_core.frontend.onnx import from_onnx

    if is_artifact(path):
        raise ArtifactError(f"file `{path}`", _describe_zip(path), expected="an ONNX model")
    return from_onnx(path, max_nodes=max_nodes)


def build_model(
    path: Path,
    given_backends: Sequence[str] | None,
    given_options: Sequence[str] | None,
    fallback: Fallback,
    observer: PassObserver | None = None,
    constraints: PartitionOptions | None = None,
    policy: PolicyName | None = None,
    bounds: Bounds | None = None,
    *,
    strict: bool = False,
    specialize: Specialize = True,
) -> Executable:
    """Imports an ONNX model and compiles it, showing its progress or, in its place, what an observer prints.

    Raises:
        OSError: the file cannot be read.
        ByocError: it is no model, or cannot be compiled as wished.
    """
    from byoc_core.cli.console import show_stages
    from byoc_core.driver import build

    given = bounds or Bounds()
    options = parse_options(given_options)
    chosen = choose_backends(given_backends)
    with show_stages(path.name, quiet=observer is not None) as show:
        show("import")
        module = import_model(path, given.max_nodes)
        return build(
            module,
            chosen,
            options=options,
            fallback=fallback,
            strict=strict,
            policy=new_policy(policy),
            progress=show,
            on_pass=observer,
            partition_options=constraints,
            max_fold_cost=given.max_fold_cost,
            specialize=specialize,
        )


def explain_model(
    path: Path,
    given_backends: Sequence[str] | None,
    given_options: Sequence[str] | None,
    constraints: PartitionOptions | None = None,
    policy: PolicyName | None = None,
    bounds: Bounds | None = None,
    *,
    strict: bool = False,
    specialize: Specialize = True,
) -> Explanation:
    """Imports an ONNX model and explains who would take what, showing its progress.

    Raises:
        OSError: the file cannot be read.
        ByocError: it is no model, or cannot be compiled as wished.
    """
    from byoc_core.cli.console import show_stages
    from byoc_core.driver import explain

    given = bounds or Bounds()
    options = parse_options(given_options)
    chosen = choose_backends(given_backends)
    with show_stages(path.name) as show:
        show("import")
        module = import_model(path, given.max_nodes)
        return explain(
            module,
            chosen,
            options=options,
            strict=strict,
            policy=new_policy(policy),
            progress=show,
            partition_options=constraints,
            max_fold_cost=given.max_fold_cost,
            specialize=specialize,
        )
