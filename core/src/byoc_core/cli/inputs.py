"""A function's inputs, from files or random."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from byoc_core.dims import solve_symbol, symbols_of
from byoc_core.dtypes import dtype_info, to_numpy
from byoc_core.errors import CallError, FrontendError, OptionsError, near_names

if TYPE_CHECKING:
    from byoc_core.artifact.executable import Executable
    from byoc_core.runtime.module import NDArray, Signature

__all__ = [
    "check_missing",
    "complete_inputs",
    "describe_drawn",
    "first_call_sizes",
    "parse_sets_of_sizes",
    "parse_sizes",
    "read_inputs",
]


def parse_sizes(texts: Sequence[str] | None, option: str = "--dim") -> dict[str, int]:
    """Return sizes by symbol from ``name=8`` texts.

    Args:
        texts: the texts.
        option: the option with the texts, for errors.

    Raises:
        OptionsError: a text has another form.
    """
    sizes = {}
    for text in texts or ():
        name, equals, value = (part.strip() for part in text.partition("="))
        if not (name and equals and value.isascii() and value.isdigit()):
            raise OptionsError(option, "is malformed", got=repr(text), expected="NAME=SIZE")
        sizes[name] = int(value)
    return sizes


def parse_sets_of_sizes(texts: Sequence[str] | None, option: str = "--specialize") -> list[dict[str, int]] | None:
    """Return sets of sizes from ``name=1,8`` texts: each size of a name with each size of the others.

    ``None`` if nothing is given.

    Args:
        texts: the texts.
        option: the option with the texts, for errors.

    Raises:
        OptionsError: a text has another form, or a name is given twice.
    """
    if texts is None:
        return None
    sets: list[dict[str, int]] = [{}]
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        sizes = [part.strip() for part in value.split(",")]
        if not (name and equals and all(size.isascii() and size.isdigit() for size in sizes)):
            raise OptionsError(option, "is malformed", got=repr(text), expected="NAME=SIZE,SIZE")
        if name in sets[0]:
            raise OptionsError(option, f"gives size `{name}` a second time", expected=f"{name}=SIZE,SIZE")
        sets = [{**combination, name: int(size)} for combination in sets for size in dict.fromkeys(sizes)]
    return sets


def read_inputs(texts: Sequence[str] | None, signature: Signature) -> dict[str, NDArray]:
    """Return arrays by input name from ``name=file`` texts; ``file.npz`` alone gives all inputs named in the file.

    Raises:
        OSError: a file cannot be read.
        CallError: an input is unknown or given twice, or a file lacks the array.
    """
    specs = {spec.name: spec for spec in signature.inputs}
    inputs: dict[str, NDArray] = {}
    for text in texts or ():
        for name, array in _read_input(text, list(specs)).items():
            if name in inputs:
                raise CallError(f"--input {text}", f"gives input `{name}` a second time")
            inputs[name] = _as_declared(array, specs[name].dtype)
    return inputs


def _as_declared(array: NDArray, dtype: str) -> NDArray:
    """Return an array with its declared dtype restored if unknown to numpy: files store bytes without the dtype."""
    declared = to_numpy(dtype)
    is_nameless = array.dtype.kind == "V" and array.dtype.names is None and array.dtype.itemsize == declared.itemsize
    return array.view(declared) if is_nameless and dtype_info(dtype).from_ml_dtypes else array


def _read_input(text: str, input_names: Sequence[str]) -> dict[str, NDArray]:
    """Return the arrays of a single ``--input``, by input name."""
    name, equals, file = text.partition("=")
    if not equals and text.endswith(".npz"):
        arrays = _read_archive(Path(text))
        named = [key for key in input_names if key in arrays]
        if not named:
            names = ", ".join(arrays) or "no array"
            raise CallError(
                f"--input {text}", "names no input of the function", got=names, expected=", ".join(input_names)
            )
        return {key: arrays[key] for key in named}
    if name not in input_names or not file:
        problem = (
            "is malformed"
            if not equals
            else "names no file"
            if name in input_names
            else "names no input of the function"
        )
        raise CallError(
            f"--input {text}",
            problem,
            expected=" or ".join(f"{key}=FILE" for key in input_names) or "no input: the function takes no inputs",
            hint=(near_names(name, input_names) or None) if name not in input_names else None,
        )
    return {name: _read_array(Path(file), name)}


def describe_drawn(signature: Signature, inputs: dict[str, NDArray], file_inputs: Collection[str], seed: int) -> str:
    """Return a sentence about the randomly drawn inputs; empty if all inputs were given."""
    from byoc_core.runtime.drawn_inputs import distribution_of

    drawn = [
        f"{spec.name} ({spec.dtype} {list(inputs[spec.name].shape)}, {distribution_of(spec)})"
        for spec in signature.inputs
        if spec.name not in file_inputs
    ]
    return f"drawn at random with seed {seed}: {', '.join(drawn)}" if drawn else ""


def check_missing(
    signature: Signature, file_inputs: Collection[str], named: Sequence[str] | None, *, draws_all: bool
) -> None:
    """Check that each input is given, or requested to be drawn at random.

    Outputs of a made-up input look like results, so each made-up input must be requested.

    Args:
        signature: the function's signature.
        file_inputs: the known inputs.
        named: the names from ``--random``.
        draws_all: whether all missing inputs may be drawn.

    Raises:
        OptionsError: ``named`` contains an unknown or a given input.
        CallError: an input is neither given nor to be drawn.
    """
    names = [spec.name for spec in signature.inputs]
    for name in named or ():
        if name not in names:
            raise OptionsError(
                f"--random {name}",
                "names no input of the function",
                expected=", ".join(names) or "no input: the function takes no inputs",
                hint=near_names(name, names) or None,
            )
        if name in file_inputs:
            raise OptionsError(f"--random {name}", "names an input also given by --input")
    missing = [name for name in names if name not in file_inputs and name not in (named or ())]
    if missing and not draws_all:
        files = " ".join(f"--input {name}=FILE" for name in missing)
        raise CallError(
            "--input",
            f"lacks {', '.join(f'`{name}`' for name in missing)}",
            expected=files,
            hint="To draw inputs at random: --random NAME for a single input, --random-inputs for all missing inputs.",
        )


def first_call_sizes(executable: Executable, function: str) -> dict[str, int]:
    """Return the sizes of inputs known before a first call: 0 rows of moving lengths."""
    inputs = {name for spec in executable.signature(function).inputs for dim in spec.shape for name in symbols_of(dim)}
    states = executable.states.get(function, ())
    lengths = {str(state.before.shape[state.axis]) for state in states if state.axis is not None}
    return dict.fromkeys(sorted(inputs & lengths), 0)


def complete_inputs(
    signature: Signature, inputs: dict[str, NDArray], sizes: dict[str, int], seed: int
) -> tuple[dict[str, NDArray], dict[str, int]]:
    """Return all inputs, with missing inputs drawn at random: floats are standard normal, integers are 0 or 1.

    A symbol's size is the given size, or else the size implied by the given arrays, or else 1.

    Args:
        signature: the function's signature.
        inputs: the known inputs; none, or some.
        sizes: sizes by symbol.
        seed: the seed of the random numbers.

    Returns:
        The inputs, and the sizes of the symbols of the drawn inputs.

    Raises:
        OptionsError: a size is given for a symbol unknown to the function, or contradicts a given input.
        CallError: an input of these sizes is too large for an array.
    """
    symbols = {name for spec in signature.inputs for dim in spec.shape for name in symbols_of(dim)}
    for name in sizes:
        if name not in symbols:
            raise OptionsError(
                f"--dim {name}",
                "is not a symbolic size of the inputs",
                expected=", ".join(sorted(symbols)) or "no size: all sizes are fixed",
                hint=near_names(name, symbols) or None,
            )
    implied = _implied_sizes(signature, inputs)
    for name, size in sizes.items():
        if implied.get(name, size) != size:
            raise OptionsError(
                f"--dim {name}", "differs from the size of the given inputs", got=size, expected=implied[name]
            )
    all_sizes = {**implied, **sizes}
    from byoc_core.runtime.drawn_inputs import draw_input

    generator = np.random.default_rng(seed)
    used: dict[str, int] = {}
    complete = {}
    for spec in signature.inputs:
        if spec.name in inputs:
            complete[spec.name] = inputs[spec.name]
            continue
        used |= {name: all_sizes.get(name, 1) for dim in spec.shape for name in sorted(symbols_of(dim))}
        complete[spec.name] = draw_input(generator, spec, used)
    return complete, used


def _implied_sizes(signature: Signature, inputs: dict[str, NDArray]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for spec in signature.inputs:
        for dim, size in zip(spec.shape, inputs[spec.name].shape if spec.name in inputs else (), strict=False):
            solved = solve_symbol(dim, size)
            if solved is not None:
                sizes.setdefault(*solved)
    return sizes


def _read_array(file: Path, name: str) -> NDArray:
    if file.suffix == ".npz":
        arrays = _read_archive(file)
        if name not in arrays and len(arrays) != 1:
            raise CallError(
                f"file `{file}`", f"has no array `{name}`", expected=", ".join(arrays) or "at least one array"
            )
        return arrays.get(name, next(iter(arrays.values())))
    if file.suffix == ".pb":
        return _read_protobuf(file)
    try:
        array: NDArray = np.load(file, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise CallError(
            f"file `{file}`",
            "is not an array file, is truncated, or holds Python objects",
            expected="a .npy, .npz or .pb file of numbers",
        ) from error
    return array


def _read_archive(file: Path) -> dict[str, NDArray]:
    from zipfile import BadZipFile

    try:
        with np.load(file, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except (ValueError, EOFError, BadZipFile, AttributeError, TypeError) as error:
        raise CallError(f"file `{file}`", "is not an .npz file of numbers") from error


def _read_protobuf(file: Path) -> NDArray:
    """Return the array of a serialised ONNX ``TensorProto``, the format of test data of ONNX models."""
    data = file.read_bytes()
    try:
        from google.protobuf.message import DecodeError
        from onnx import TensorProto, numpy_helper
    except ModuleNotFoundError as error:
        raise FrontendError(
            f"file `{file}`", "needs the package onnx", hint="pip install 'byoc-core[onnx]'."
        ) from error
    try:
        array: NDArray = numpy_helper.to_array(TensorProto.FromString(data))
    except (DecodeError, ValueError, TypeError) as error:
        raise CallError(f"file `{file}`", "is not an ONNX tensor") from error
    return array
