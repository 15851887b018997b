"""The commands of byoc itself, as a table; only the command named on the command line is imported.

A new command is a module in :mod:`byoc_core.cli.commands` and a row of the table.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from importlib import import_module
from typing import Any, Final, NamedTuple

import typer

__all__ = ["CONTEXT", "MARKUP", "OwnCommands", "print_examples"]

MARKUP: Final = "rich"
"""The markup of help texts."""
CONTEXT = {"help_option_names": ["-h", "--help"]}
"""Settings of every command."""


class _Home(NamedTuple):
    """The home of a command: the module below ``byoc_core.cli.commands``, the function, and examples of use."""

    module: str
    function: str
    examples: tuple[str, ...]


_HOMES = {
    "backends": _Home("backends", "list_backends", ("byoc backends",)),
    "doctor": _Home("doctor", "examine", ("byoc doctor",)),
    "demo": _Home(
        "demo",
        "run_demo",
        (
            "byoc demo",
            "byoc demo --backend NAME",
        ),
    ),
    "compile": _Home(
        "compile",
        "compile_model",
        (
            "byoc compile model.onnx -o model.byoc",
            "byoc compile model.onnx -o model.byoc --backend FIRST --backend SECOND",
            "byoc compile model.onnx -o model.byoc --backend NAME --option NAME.opt_level=3 --fallback error",
            "byoc compile model.onnx -o model.byoc --force 'conv_*=NAME' --force softmax_0=host --min-ops 3",
            "byoc compile model.onnx -o model.byoc --require-offload 0.9",
            "byoc compile model.onnx -o model.byoc --config build.toml --fallback error",
            "byoc compile model.onnx -o model.byoc --timing --print-after Simplify",
            "byoc compile encode=encoder.onnx decode=decoder.onnx -o both.byoc",
        ),
    ),
    "config": _Home(
        "config",
        "print_config",
        (
            "byoc config --backend NAME --policy cost > build.toml",
            "byoc compile model.onnx -o model.byoc --config build.toml",
            "byoc config --schema > build.schema.json",
        ),
    ),
    "run": _Home(
        "run",
        "run_model",
        (
            "byoc run model.byoc --input x=photo.npy --input mask=arrays.npz -o outputs.npz",
            "byoc run model.byoc --input x=photo.npy --random mask",
            "byoc run model.onnx --random-inputs --dim n=8 --seed 1",
        ),
    ),
    "export": _Home(
        "export",
        "export_model",
        (
            "byoc export model.onnx --backend NAME -o model_c && make -C model_c check",
            "byoc export model.byoc --format c --max n=128 --name encoder",
            "byoc export model.byoc --format c-archive -o libmodel.a",
            "byoc export model.byoc --format wheel -o dist",
        ),
    ),
    "explain": _Home(
        "explain",
        "explain_offload",
        (
            "byoc explain model.onnx --backend NAME",
            "byoc explain model.onnx --backend FIRST --backend SECOND --policy cost",
            "byoc explain model.onnx --stop-at pool_3 --allow NAME=add,'nn.*'",
            "byoc explain model.byoc --only-host",
            "byoc explain model.onnx --dim n=8 --require-offload 90%",
            "byoc explain model.onnx --ir > partitioned.py",
            "byoc explain model.onnx --json > report.json",
        ),
    ),
    "plan": _Home(
        "plan",
        "plan_memory",
        (
            "byoc plan model.byoc",
            "byoc plan model.onnx --backend NAME -o plan.svg",
            "byoc plan model.byoc --dim n=8 --json > plan.json",
        ),
    ),
    "debug": _Home(
        "debug",
        "debug",
        (
            "byoc debug model.onnx --backend NAME",
            "byoc debug model.onnx --input x=photo.npy --dim n=8 --save failures",
            "byoc debug model.onnx --accumulate --json > report.json",
        ),
    ),
    "profile": _Home(
        "profile",
        "profile_model",
        (
            "byoc profile model.byoc",
            "byoc profile model.onnx --backend NAME --threads 1 --dim n=8",
            "byoc profile model.byoc --trace trace.json --html profile.html",
            "byoc profile model.byoc --input x=photo.npy --json > profile.json",
        ),
    ),
    "bench": _Home(
        "bench",
        "bench_model",
        (
            "byoc bench model.onnx",
            "byoc bench model.onnx --against onnxruntime,openvino --threads 1,2 --dim n=1,8",
            "byoc bench model.byoc --model model.onnx --against onnxruntime --json > bench.json",
            "byoc bench model.byoc --input x=photo.npy --threads 1 --seconds 10",
        ),
    ),
    "tune": _Home(
        "tune",
        "tune_model",
        (
            "byoc tune model.onnx -o model.lock",
            "byoc compile model.onnx --placement model.lock -o model.byoc",
            "byoc tune model.onnx --threads 1 --dim n=8 --seconds 600",
        ),
    ),
    "calibrate": _Home(
        "calibrate",
        "calibrate_machine",
        (
            "byoc calibrate",
            "byoc calibrate --backend NAME --threads 2 --seconds 30",
        ),
    ),
    "measurements": _Home(
        "measurements",
        "manage_measurements",
        (
            "byoc measurements show",
            "byoc measurements export measurements.json",
            "byoc measurements merge measurements.json",
            "byoc measurements clear",
        ),
    ),
    "cache": _Home(
        "cache",
        "manage_cache",
        (
            "byoc cache",
            "byoc cache verify",
            "byoc cache clear --unused-days 30",
        ),
    ),
    "weights": _Home(
        "weights",
        "manage_weights",
        (
            "byoc weights show prefill.byoc decode.byoc",
            "byoc weights share prefill.byoc decode.byoc -o release",
            "byoc weights join release/decode.byoc -o decode.byoc",
            "byoc weights list model.byoc                names, types, swappable or not",
            "byoc weights swap model.byoc finetuned.safetensors -o finetuned.byoc",
            "byoc weights merge-adapter model.byoc adapter_model.safetensors -o adapted.byoc",
        ),
    ),
    "inspect": _Home(
        "inspect",
        "inspect_file",
        (
            "byoc inspect model.onnx                    what is inside, and what is missing",
            "byoc inspect model.onnx --dim n=8 --top 20",
            "byoc inspect model.onnx --json > model.json",
            "byoc inspect model.byoc",
            "byoc inspect model.byoc --program",
        ),
    ),
    "verify": _Home("verify", "verify_artifact", ("byoc verify model.byoc",)),
    "lint-backend": _Home(
        "lint_backend",
        "lint_installed_backend",
        (
            "byoc lint-backend NAME",
            "byoc lint-backend NAME --compile --strict      before a release",
            "byoc lint-backend NAME --json > findings.json",
        ),
    ),
    "new-backend": _Home(
        "new_backend",
        "write_new_backend",
        (
            "byoc new-backend mynpu                     your kernels run one by one",
            "byoc new-backend mychip --kind engine      your library compiles whole graphs",
            "byoc new-backend mydsp --kind csource      you print C",
            "byoc new-backend myblas --kind lowering    you call a library of C functions",
            "byoc new-backend mynpu --output npu        into the folder npu",
        ),
    ),
}


class OwnCommands(MutableMapping[str, Any]):
    """Click commands by name, in the order of help; each is imported and built on first request."""

    def __init__(self) -> None:
        self._commands: dict[str, Any] = dict.fromkeys(_HOMES)

    def __getitem__(self, name: str) -> Any:
        command = self._commands[name]
        if command is None:
            command = self._commands[name] = _make(name, _HOMES[name])
        return command

    def __setitem__(self, name: str, command: Any) -> None:
        self._commands[name] = command

    def __delitem__(self, name: str) -> None:
        del self._commands[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._commands)

    def __len__(self) -> int:
        return len(self._commands)

    def __contains__(self, name: object) -> bool:
        return name in self._commands


def print_examples(*lines: str) -> str:
    """Return the text below a command's help."""
    return "\n\n".join(["Examples:", *lines])


def _make(name: str, home: _Home) -> Any:
    function = getattr(import_module(f"byoc_core.cli.commands.{home.module}"), home.function)
    single = typer.Typer(add_completion=False, rich_markup_mode=MARKUP, context_settings=CONTEXT)
    single.command(name, epilog=print_examples(*home.examples))(function)
    return typer.main.get_command(single)
