"""``byoc tune``: the fastest placement of a model's ops on this machine, measured and kept in a lock file."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from byoc_core.cli.bounds import MaxNodesOption
from byoc_core.cli.request import RequestFlags, takes_request
from byoc_core.cli.selection import DimOption, FunctionOption, InputOption, SeedOption, check_output, import_model

if TYPE_CHECKING:
    from byoc_core.tuning import Tuning

__all__ = ["tune_model"]

_FLAGS = ("config", "backend", "option", "strict", "max_fold_cost")
_SHOWN_TASKS = 20
_MAX_BUILDERS = 4


@takes_request(*_FLAGS)
def tune_model(
    model: Annotated[Path, typer.Argument(readable=False, metavar="MODEL", help="An ONNX model.", show_default=False)],
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="FILE.lock", readable=False, help="The lock to write."),
    ] = Path("model.lock"),
    input_files: InputOption = None,
    function: FunctionOption = "main",
    seed: SeedOption = 0,
    dim: DimOption = None,
    threads: Annotated[
        int | None,
        typer.Option("--threads", min=1, help="Threads of a call; by default all processors.", show_default=False),
    ] = None,
    seconds: Annotated[float, typer.Option("--seconds", min=0.0, help="The budget of the search.")] = 120.0,
    scheduler: Annotated[
        str | None,
        typer.Option(
            "--scheduler",
            metavar="dask://HOST:PORT",
            help="Measure on the workers of a Dask cluster: machines like this, with the same backends. Needs the "
            "extra [distributed].",
            show_default=False,
        ),
    ] = None,
    processes: Annotated[
        int | None,
        typer.Option("--processes", min=1, help="Measure in this many processes of this machine.", show_default=False),
    ] = None,
    builders: Annotated[
        int | None,
        typer.Option(
            "--builders",
            min=1,
            help="Compile for --processes or --scheduler in this many other processes of this machine; by default up "
            "to 4, one for each processor.",
            show_default=False,
        ),
    ] = None,
    keep: Annotated[
        bool,
        typer.Option("--keep/--no-measurements", help="Whether the database of measured ops keeps the times of ops."),
    ] = True,
    *,
    flags: RequestFlags,
    max_nodes: MaxNodesOption = None,
) -> None:
    """Find the fastest placement of a model's ops among backends, by measured calls on this machine.

    The lock holds the backend of each op. `byoc compile MODEL --placement FILE.lock` compiles the model in this
    placement, without measuring. Inputs left out are drawn at random. Ctrl-C ends the search and keeps the best.
    """
    from byoc_core.cli.console import print_text
    from byoc_core.cli.inputs import complete_inputs, parse_sizes, read_inputs
    from byoc_core.debugging import signature_of
    from byoc_core.measurements import USER_DATABASE
    from byoc_core.tuning import tune

    sizes = parse_sizes(dim)
    check_output(output, model)
    request = flags.to_request()
    module = import_model(model, max_nodes)
    signature = signature_of(module[function])
    inputs, drawn_sizes = complete_inputs(signature, read_inputs(input_files, signature), sizes, seed)
    with _executors(scheduler, processes, builders) as (runners, compiling):
        found = tune(
            module,
            None,
            inputs,
            sizes={**sizes, **drawn_sizes},
            function=function,
            num_threads=threads,
            seconds=seconds,
            request=request,
            executor=runners,
            builders=compiling,
            measurements=USER_DATABASE if keep else None,
            progress=lambda line: print_text(f"{line}\n"),
        )
    found.lock.save(output)
    print_text(_summary(found, output))


@contextmanager
def _executors(
    scheduler: str | None, processes: int | None, builders: int | None
) -> Iterator[tuple[Executor | None, Executor | None]]:
    """Yield the executor of the trials and the executor of their builds, ``None`` for this process."""
    from byoc_core.errors import OptionsError
    from byoc_core.native.processors import count_cpus
    from byoc_core.tuning import LocalProcesses
    from byoc_core.tuning.workers import open_scheduler

    if scheduler is not None and processes is not None:
        raise OptionsError("--processes", "is given beside --scheduler", expected="one of both")
    if scheduler is None and processes is None:
        if builders is not None:
            raise OptionsError("--builders", "is given without --processes or --scheduler")
        yield None, None
        return
    with ExitStack() as stack:
        if scheduler is not None:
            runners, close = open_scheduler(scheduler)
            stack.callback(close)
        else:
            runners = stack.enter_context(LocalProcesses(processes or 1))
        num_builders = builders or min(_MAX_BUILDERS, count_cpus())
        yield runners, stack.enter_context(LocalProcesses(num_builders))


def _summary(found: Tuning, output: Path) -> str:
    from byoc_core.printable import to_printable_lines

    placed: dict[str, int] = {}
    for backend in found.lock.ops.values():
        placed[backend] = placed.get(backend, 0) + 1
    head = f"{'task':<44}  {'backend':<10}  {'MFLOPs':>9}  {'weight':>6}  {'us':>9}  {'GFLOP/s':>8}  {'of peak':>7}"
    lines = [
        "",
        f"{head} trials  schedule".rstrip(),
    ]
    for task in found.tasks[:_SHOWN_TASKS]:
        rate = task.flops / task.seconds / 1e9 if task.seconds else 0.0
        name = task.name if len(task.name) <= 44 else task.name[:43] + "\u2026"
        lines.append(
            f"{name:<44}  {task.backend:<10}  {task.flops / 1e6:>9.3f}  {task.weight:>6g}  {task.seconds * 1e6:>9.2f}  "
            f"{rate:>8.1f}  {task.peak_share:>7.1%} {task.trials:>6}  {task.schedule}".rstrip()
        )
    end = "" if found.is_complete else " (the search ended before trying everything)"
    ops = ", ".join(f"{count} ops on {backend}" for backend, count in sorted(placed.items()))
    lines += [
        "",
        f"{len(found.trials)} placements measured{end}; the fastest: {found.lock.seconds * 1e3:.3f} ms, {ops}",
    ]
    return to_printable_lines("\n".join([*lines, f"wrote {output}"])) + "\n"
