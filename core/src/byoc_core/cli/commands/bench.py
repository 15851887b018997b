"""``byoc bench``: the time of a call, beside other inference engines."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from byoc_core.cli.bounds import MaxNodesOption
from byoc_core.cli.console import print_text
from byoc_core.cli.request import EXPLAIN_FLAGS, RequestFlags, takes_request
from byoc_core.cli.selection import (
    AllowNativeOption,
    FunctionOption,
    InputOption,
    RandomInputsOption,
    RandomOption,
    SeedOption,
    is_artifact,
)

if TYPE_CHECKING:
    from byoc_core.artifact import Executable
    from byoc_core.benchmarking import Benchmark
    from byoc_core.ir import IRModule
    from byoc_core.runtime.module import NDArray, Signature

__all__ = ["bench_model"]

_EXIT_INCOMPARABLE = 1


@takes_request(*EXPLAIN_FLAGS)
def bench_model(
    model: Annotated[
        Path,
        typer.Argument(
            readable=False, metavar="MODEL", help="An artifact, or an ONNX model to compile first.", show_default=False
        ),
    ],
    against: Annotated[
        list[str] | None,
        typer.Option(
            "--against",
            metavar="ENGINE",
            help="Measure this engine too: onnxruntime or openvino, if installed; repeat for several, or give A,B.",
            show_default=False,
        ),
    ] = None,
    onnx_file: Annotated[
        Path | None,
        typer.Option(
            "--model",
            metavar="FILE.onnx",
            readable=False,
            help="The ONNX model of an artifact, for --against.",
            show_default=False,
        ),
    ] = None,
    threads: Annotated[
        list[str] | None,
        typer.Option(
            "--threads",
            metavar="NUMBER",
            help="Threads of a call; repeat for several numbers, or give 1,2; by default all processors.",
            show_default=False,
        ),
    ] = None,
    dim: Annotated[
        list[str] | None,
        typer.Option(
            "--dim",
            metavar="NAME=SIZE,...",
            help="Sizes of a symbolic dimension in random inputs, each measured; 1 by default; repeat for several "
            "names.",
            show_default=False,
        ),
    ] = None,
    input_files: InputOption = None,
    random: RandomOption = None,
    random_inputs: RandomInputsOption = False,
    function: FunctionOption = "main",
    seed: SeedOption = 0,
    allow_native: AllowNativeOption = False,
    seconds: Annotated[
        float, typer.Option("--seconds", min=0.0, help="Seconds of measured calls for each row of the table.")
    ] = 2.0,
    starts: Annotated[
        int, typer.Option("--starts", min=1, help="Fresh processes for each row; the measured calls are shared.")
    ] = 3,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
    *,
    flags: RequestFlags,
    max_nodes: MaxNodesOption = None,
) -> None:
    """Measure calls of a model on this machine, beside other inference engines on the same inputs.

    Without --input, --random and --random-inputs, all inputs are drawn at random. Each engine runs in fresh processes:
    load, first call, warm-up, then calls in turn with the other engines. An ONNX model is compiled for the measured
    sizes on backends restricted to static shapes.

    The column `time / byoc` is the ratio to byoc's time: above 1, byoc is faster. Ratios nearer to 1 than 1.03 prove
    nothing. Engines with other outputs than byoc have no ratio.

    Exit status 1: outputs differ, or an engine failed; the other figures are printed.
    """
    from byoc_core.benchmarking import bench
    from byoc_core.benchmarking.peers import choose_peers
    from byoc_core.cli.console import show_stages
    from byoc_core.cli.inputs import check_missing, complete_inputs, parse_sets_of_sizes, read_inputs

    names = _split(against)
    choose_peers(names, where="--against")
    numbers = _parse_threads(threads)
    sets_of_sizes = parse_sets_of_sizes(dim, "--dim") or [{}]
    peer_file = _peer_file(model, onnx_file, names)
    opened = _Opened(model, flags, max_nodes, function, allow_native=allow_native)
    signature = opened.signature
    file_inputs = read_inputs(input_files, signature)
    check_missing(signature, file_inputs, random, draws_all=random_inputs or not (input_files or random))
    first_sizes = opened.first_sizes
    inputs = [complete_inputs(signature, file_inputs, {**first_sizes, **sizes}, seed)[0] for sizes in sets_of_sizes]
    executable = opened.compile(inputs)
    with show_stages(model.name) as show:
        found = bench(
            executable,
            inputs,
            against=names,
            model=peer_file,
            module=opened.module,
            function=function,
            num_threads=numbers,
            seconds=seconds,
            num_starts=starts,
            progress=show,
        )
    if as_json:
        print_text(json.dumps(found.to_data(), indent=2, allow_nan=False) + "\n")
    else:
        _print(found)
    if not (found.agrees and found.is_complete):
        raise typer.Exit(_EXIT_INCOMPARABLE)


class _Opened:
    """The model of the command: an artifact, or an ONNX model compiled once the sizes are known.

    Attributes:
        module: the imported ONNX model; ``None`` for an artifact.
        signature: of the function.
        first_sizes: sizes of inputs known before a first call of a function with states.
    """

    def __init__(
        self, model: Path, flags: RequestFlags, max_nodes: int | None, function: str, *, allow_native: bool
    ) -> None:
        from byoc_core.cli.inputs import first_call_sizes
        from byoc_core.cli.selection import import_model, open_executable
        from byoc_core.debugging import signature_of

        self._model = model
        self._flags = flags
        self._executable: Executable | None = None
        self.module: IRModule | None = None
        self.first_sizes: dict[str, int] = {}
        if is_artifact(model):
            self._executable = open_executable(model, flags, max_nodes, allow_native=allow_native)
            self.signature: Signature = self._executable.signature(function)
            self.first_sizes = first_call_sizes(self._executable, function)
        else:
            self.module = import_model(model, max_nodes)
            self.signature = signature_of(self.module[function])

    def compile(self, inputs: Sequence[Mapping[str, NDArray]]) -> Executable:
        """Return the executable; backends of static shapes compile for the sizes of the inputs by default."""
        from byoc_core.cli.console import show_stages
        from byoc_core.driver import Compiler
        from byoc_core.runtime.arguments import bind_symbols

        if self._executable is not None:
            return self._executable
        assert self.module is not None
        request = self._flags.to_request()
        specs = self.signature.inputs
        sizes = [bind_symbols(specs, [arrays[spec.name] for spec in specs]) for arrays in inputs]
        if "specialize" not in request.model_fields_set and any(sizes):
            request = request.updated(specialize=sizes)
        with show_stages(self._model.name) as show:
            return Compiler().build(self.module, request, progress=show)


def _split(texts: Sequence[str] | None) -> list[str]:
    """Return the parts between commas of texts."""
    return [part.strip() for text in texts or () for part in text.split(",")]


def _parse_threads(texts: Sequence[str] | None) -> list[int] | None:
    from byoc_core.errors import OptionsError
    from byoc_core.runtime.threads import check_num_threads

    numbers = []
    for part in _split(texts):
        if not (part.isascii() and part.isdigit()):
            raise OptionsError("--threads", "is malformed", got=repr(part), expected="NUMBER or NUMBER,NUMBER")
        numbers.append(check_num_threads(int(part), "--threads"))
    return numbers or None


def _peer_file(model: Path, onnx_file: Path | None, names: Sequence[str]) -> Path | None:
    """Return the ONNX file for peers; ``None`` without peers."""
    from byoc_core.errors import OptionsError

    if onnx_file is not None and not is_artifact(model):
        raise OptionsError("--model", f"is given beside the ONNX model `{model}`")
    if onnx_file is not None and not names:
        raise OptionsError("--model", "is given without --against", hint="Name an engine to measure beside byoc.")
    if names and onnx_file is None and is_artifact(model):
        raise OptionsError(
            "--against",
            f"needs the ONNX model of the artifact `{model}`",
            hint="Give the model by --model FILE.onnx.",
        )
    return (onnx_file or model) if names else None


def _print(found: Benchmark) -> None:
    from byoc_core.benchmarking.text import HEADS, LEFT, headline, notes, row_texts
    from byoc_core.cli.console import new_table, open_console

    console = open_console()
    table = new_table(headline(found), *HEADS, right=tuple(head for head in HEADS if head not in LEFT))
    for row in found.rows:
        table.add_row(*row_texts(row))
    console.print(table)
    for line in notes(found):
        console.print(line, soft_wrap=True)
