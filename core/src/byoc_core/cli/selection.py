"""Model, backends and inputs on the command line: the arguments shared by commands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from byoc_core.cli.request import CONSTRAINT_FLAGS
from byoc_core.dims import is_name
from byoc_core.errors import ArtifactError, OptionsError

if TYPE_CHECKING:
    from byoc_core.artifact import Executable
    from byoc_core.cli.passes import PassObserver
    from byoc_core.cli.request import RequestFlags
    from byoc_core.driver import CompileRequest, Explanation
    from byoc_core.ir import IRModule

__all__ = [
    "AllowNativeOption",
    "DimOption",
    "FunctionOption",
    "InputOption",
    "RandomInputsOption",
    "RandomOption",
    "RequireOffloadOption",
    "SeedOption",
    "SizeOption",
    "build_model",
    "build_models",
    "check_output",
    "explain_model",
    "import_model",
    "is_artifact",
    "open_executable",
    "parse_models",
    "parse_share",
    "refuse_flags",
    "refuse_request",
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
        help="The value of a symbolic size in shares of FLOPs; 1 by default.",
        show_default=False,
    ),
]
InputOption = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        "-i",
        metavar="NAME=FILE",
        help="An input from a .npy, .npz or .pb file; repeat for several. FILE.npz alone gives all inputs named in the "
        "file.",
    ),
]
RandomOption = Annotated[
    list[str] | None,
    typer.Option("--random", metavar="NAME", help="Draw this input at random; repeat for several.", show_default=False),
]
RandomInputsOption = Annotated[bool, typer.Option("--random-inputs", help="Draw all missing inputs at random.")]
FunctionOption = Annotated[str, typer.Option("--function", help="The function to run.")]
AllowNativeOption = Annotated[
    bool, typer.Option("--allow-native", help="Load native code of an artifact not compiled by you.")
]
SeedOption = Annotated[int, typer.Option("--seed", min=0, help="Seed of the random inputs.")]
DimOption = Annotated[
    list[str] | None,
    typer.Option("--dim", metavar="NAME=SIZE", help="Size of a symbolic dimension in random inputs; 1 by default."),
]


def is_artifact(path: Path) -> bool:
    """Return whether a file begins like an artifact (and other zip archives).

    Raises:
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        return file.read(4) == b"PK\x03\x04"


_MODEL_SUFFIXES = (".onnx", ".pb", ".pbtxt", ".ort", ".tflite", ".pt", ".pth", ".safetensors")


def check_output(path: Path, source: Path, flag: str = "--output") -> None:
    """Check, before long work begins, that a result has a place and replaces nothing but an older result.

    Raises:
        OptionsError: the folder does not exist, or the place is taken by the source, a folder, a device or a pipe.
    """
    if not path.parent.is_dir():
        raise OptionsError(flag, f"the folder `{path.parent}` does not exist")
    if path.is_dir():
        raise OptionsError(flag, f"`{path}` is a folder")
    if path.exists() and not path.is_file():
        raise OptionsError(flag, f"`{path}` exists and is not a regular file")
    if path.exists() and source.exists() and path.samefile(source):
        raise OptionsError(flag, f"`{path}` is the input model")
    if path.suffix.lower() in _MODEL_SUFFIXES:
        raise OptionsError(flag, f"`{path}` has the suffix of a model file")


def check_artifact_output(path: Path, source: Path) -> None:
    """Check that an artifact has a place, with :func:`check_output`, and replaces nothing but an artifact.

    A model's weights may lie in files of any name beside the model. Any file named ``.byoc`` counts as an artifact.

    Raises:
        OptionsError: the place is not free.
    """
    check_output(path, source)
    if path.suffix != ".byoc" and path.exists() and path.stat().st_size and not is_artifact(path):
        raise OptionsError(
            "--output", f"`{path}` exists and is not an artifact", hint="Remove the file, or choose another name."
        )


ONLY_MODEL = ""
"""The name of a model given without a name."""


def parse_models(texts: Sequence[str]) -> dict[str, Path]:
    """Return the models by name: ``NAME=MODEL`` each, or a single model without a name.

    Raises:
        OptionsError: a name is missing, no identifier, or given twice.
    """
    if len(texts) == 1 and ("=" not in texts[0] or Path(texts[0]).exists()):
        return {ONLY_MODEL: Path(texts[0])}
    found: dict[str, Path] = {}
    for text in texts:
        name, equals, path = text.partition("=")
        if not equals or not is_name(name) or not path:
            raise OptionsError(
                "MODEL",
                "has no name",
                got=repr(text),
                expected="an existing file, or NAME=MODEL for each of several models",
            )
        if name in found:
            raise OptionsError("MODEL", f"two models are called `{name}`")
        found[name] = Path(path)
    return found


def parse_share(text: str | None) -> float | None:
    """Return a share from 0 to 1 from text like ``0.9`` or ``90%``; ``None`` if nothing is given.

    Raises:
        OptionsError: the text is not a share in this range.
    """
    if text is None:
        return None
    digits = text.strip()
    scale = 100 if digits.endswith("%") else 1
    try:
        share = float(digits.removesuffix("%")) / scale
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise OptionsError("--require-offload", "is not a share", got=repr(text), expected="0 to 1, or 0% to 100%")
    return share


def _describe_zip(path: Path) -> str:
    from byoc_core.artifact import inspect

    try:
        inspect(path)
    except ArtifactError:
        return "is a zip archive"
    return "is compiled already"


def import_model(
    path: Path,
    max_nodes: int | None = None,
    states: str | Sequence[tuple[str, str]] = (),
    swappable_weights: bool | Sequence[str] = False,
) -> IRModule:
    """Import an ONNX model; the arguments as for :func:`byoc_core.from_onnx`.

    Raises:
        OSError: the file cannot be read.
        ArtifactError: the file is an artifact, or another zip archive.
        FrontendError: the file is no model, or cannot be imported.
    """
    from byoc_core.frontend.onnx import from_onnx

    _refuse_artifact(path)
    return from_onnx(path, max_nodes=max_nodes, states=states, swappable_weights=swappable_weights)


def _refuse_artifact(path: Path) -> None:
    if is_artifact(path):
        raise ArtifactError(f"file `{path}`", _describe_zip(path), expected="an ONNX model")


def refuse_flags(model: Path, flags: Mapping[str, bool]) -> None:
    """Check that no model-only flag is given for an artifact.

    Args:
        model: the artifact.
        flags: whether flags are given, by their names in messages.

    Raises:
        OptionsError: a flag is given.
    """
    for flag in (flag for flag, is_given in flags.items() if is_given):
        verb = "do" if " and " in flag else "does"
        raise OptionsError(flag, f"{verb} not apply to the compiled model `{model}`")


def refuse_request(model: Path, flags: RequestFlags, max_nodes: int | None) -> None:
    """Check that no flag of a compilation is given for an artifact.

    Raises:
        OptionsError: a flag is given.
    """
    model_flags = {
        "--config": flags.names_given("config"),
        "--backend and --option": flags.names_given("backend", "option"),
        "--force, --stop-at, --device, --device-from, --allow, --min-* and --sideways": flags.names_given(
            *CONSTRAINT_FLAGS
        ),
        "--strict": flags.strict,
        "--specialize": flags.names_given("specialize"),
        "--policy": flags.names_given("policy"),
        "--placement": flags.names_given("placement"),
        "--max-nodes and --max-fold-cost": max_nodes is not None or flags.names_given("max_fold_cost"),
    }
    refuse_flags(model, model_flags)


def build_model(
    path: Path,
    request: CompileRequest,
    observer: PassObserver | None = None,
    max_nodes: int | None = None,
    states: str | Sequence[tuple[str, str]] = (),
    swappable_weights: bool | Sequence[str] = False,
) -> Executable:
    """Import an ONNX model and compile the module, showing the progress or, instead, an observer's output.

    Raises:
        OSError: the file cannot be read.
        ByocError: the file is no model, or cannot be compiled as requested.
    """
    from byoc_core.cli.console import show_stages
    from byoc_core.driver import Compiler

    with show_stages(path.name, quiet=observer is not None) as show:
        show("import")
        module = import_model(path, max_nodes, states, swappable_weights)
        return Compiler().build(module, request, progress=show, on_pass=observer)


def build_models(
    paths: Mapping[str, Path],
    request: CompileRequest,
    observer: PassObserver | None = None,
    max_nodes: int | None = None,
    states: str | Sequence[tuple[str, str]] = (),
    swappable_weights: bool | Sequence[str] = False,
) -> Executable:
    """Import ONNX models and compile a program with a function for each; see :func:`build_model`.

    Args:
        paths: the models by the name of the function, from :func:`parse_models`.
        request: the compilation.
        observer: shows the passes.
        max_nodes: as for :func:`byoc_core.from_onnx`.
        states: ``"detect"``, for models with such names; or pairs, for the models with the input of the pair.
        swappable_weights: ``True``, or names and patterns as for :func:`byoc_core.from_onnx`, for the models with such
            weights.

    Raises:
        OSError: a file cannot be read.
        ByocError: a file is no model, or cannot be compiled as requested.
    """
    from byoc_core.cli.console import show_stages
    from byoc_core.driver import Compiler
    from byoc_core.ir import merge_modules

    if list(paths) == [ONLY_MODEL]:
        return build_model(paths[ONLY_MODEL], request, observer, max_nodes, states, swappable_weights)
    choices = _weight_choices(paths, swappable_weights)
    with show_stages(", ".join(paths), quiet=observer is not None) as show:
        modules = {}
        for name, path in paths.items():
            show("import")
            modules[name] = import_model(path, max_nodes, swappable_weights=choices[name])
        if states:
            modules = _with_states(modules, states)
        return Compiler().build(merge_modules(modules), request, progress=show, on_pass=observer)


def _weight_choices(paths: Mapping[str, Path], choice: bool | Sequence[str]) -> dict[str, bool | Sequence[str]]:
    """Return the choice of swappable weights for each model: the names and patterns that fit a weight of the model.

    Raises:
        OSError: a file cannot be read.
        ByocError: a file is no model, or a name fits no weight of any model.
    """
    if isinstance(choice, bool) or not choice:
        return dict.fromkeys(paths, choice)
    from byoc_core.errors import near_names
    from byoc_core.frontend.onnx.model_import import weight_names
    from byoc_core.frontend.onnx.swappable_weights import fitting_names

    for path in paths.values():
        _refuse_artifact(path)
    names = {model: weight_names(path) for model, path in paths.items()}
    choices = {model: [item for item in choice if fitting_names(item, names[model])] for model in paths}
    for item in choice:
        if not any(item in fitting for fitting in choices.values()):
            hint = near_names(item, {name for found in names.values() for name in found})
            raise OptionsError("--swappable-weights", f"no model has a weight `{item}`", hint=hint or None)
    return {**choices}


def _with_states(modules: Mapping[str, IRModule], states: str | Sequence[tuple[str, str]]) -> dict[str, IRModule]:
    """Return models with the states found in each.

    Raises:
        OptionsError: no model has a state, or the input of a pair.
    """
    from byoc_core.errors import IRError
    from byoc_core.transform.keep_states import KeepStates, detect_states

    found: dict[str, IRModule] = {}
    missing = set() if isinstance(states, str) else {source for source, _ in states}
    for name, module in modules.items():
        main = module["main"]
        if isinstance(states, str):
            try:
                pairs = detect_states(main)
            except IRError:
                continue
        else:
            pairs = tuple(pair for pair in states if pair[0] in main.input_names)
        missing -= {source for source, _ in pairs}
        if pairs:
            found[name] = KeepStates(pairs)(module)
    if missing or not found:
        raise OptionsError("--states", f"no model has the input `{min(missing)}`" if missing else "no model has states")
    return {**modules, **found}


def explain_model(
    path: Path, request: CompileRequest, max_nodes: int | None = None, *, kernels: bool = False
) -> Explanation:
    """Import an ONNX model and explain the assignment of ops, with kernels on request, showing the progress.

    Raises:
        OSError: the file cannot be read.
        ByocError: the file is no model, or cannot be compiled as requested.
    """
    from byoc_core.cli.console import show_stages
    from byoc_core.driver import Compiler

    with show_stages(path.name) as show:
        show("import")
        module = import_model(path, max_nodes)
        return Compiler().explain(module, request, progress=show, kernels=kernels)


def open_executable(model: Path, flags: RequestFlags, max_nodes: int | None, *, allow_native: bool) -> Executable:
    """Return the executable of an artifact, or of an ONNX model compiled as requested.

    Raises:
        OptionsError: flags of a compilation are given for an artifact.
        UntrustedCodeError: the artifact holds native code of unknown origin, and ``allow_native`` is false.
        ByocError: the file is neither, or cannot be compiled as requested.
    """
    from byoc_core.artifact import load
    from byoc_core.errors import UntrustedCodeError

    if not is_artifact(model):
        return build_model(model, flags.to_request(), max_nodes=max_nodes)
    refuse_request(model, flags, max_nodes)
    try:
        return load(model, allow_native=allow_native)
    except UntrustedCodeError as error:
        hint = "Pass --allow-native if you trust the origin of the artifact."
        raise UntrustedCodeError(error.where, error.problem, hint=hint) from error
