"""``byoc compile``: compilation of a model to an artifact."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Annotated

import typer

from byoc_core.cli.bounds import MaxNodesOption
from byoc_core.cli.passes import PassObserver, PrintAfterOption, TimingOption
from byoc_core.cli.request import ALL_FLAGS, RequestFlags, takes_request
from byoc_core.cli.selection import RequireOffloadOption, SizeOption
from byoc_core.cli.states import StatesOption
from byoc_core.cli.weight_values import SwappableWeightsOption

__all__ = ["compile_model"]


@takes_request(*ALL_FLAGS)
def compile_model(
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL...",
            help="An ONNX model; or several as NAME=MODEL, each a function of this name in one artifact.",
            show_default=False,
        ),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", readable=False, help="The artifact to write.", show_default=False)
    ],
    *,
    flags: RequestFlags,
    max_nodes: MaxNodesOption = None,
    states: StatesOption = None,
    swappable_weights: SwappableWeightsOption = None,
    require_offload: RequireOffloadOption = None,
    dim: SizeOption = None,
    respecializable: Annotated[
        bool, typer.Option("--respecializable", help="Also write the data needed to compile for more sizes.")
    ] = False,
    print_after: PrintAfterOption = None,
    timing: TimingOption = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Do not print the report.")] = False,
) -> None:
    """Compile a model, or several, into an artifact usable without a compiler.

    Several models become one program, with a function for each, and equal weights stored once.
    Prints the ops taken by each backend, and the reasons for ops on the host.
    Native code in the artifact is recorded as trusted for you: others must pass --allow-native to run it.
    """
    from byoc_core.artifact import inspect
    from byoc_core.cli.console import open_console, show_bytes
    from byoc_core.cli.inputs import parse_sizes
    from byoc_core.cli.selection import build_models, check_artifact_output, parse_models, parse_share
    from byoc_core.cli.size_advice import advise_sizes
    from byoc_core.cli.states import parse_states, states_text
    from byoc_core.cli.weight_values import parse_swappable
    from byoc_core.driver import Compiler
    from byoc_core.driver.compilation import resolved_request
    from byoc_core.native.build_cache import cache_directory
    from byoc_core.reporting.gate import check_offload
    from byoc_core.reporting.shares import apportion
    from byoc_core.reporting.text import render_report

    paths = parse_models(models)
    for path in paths.values():
        check_artifact_output(output, path)
    required = parse_share(require_offload)
    sizes = parse_sizes(dim)
    request = resolved_request(flags.to_request(), Compiler().backends)
    if is_static := request.specialize is True:
        # No call follows here: an artifact would run regions for the sizes of calls on the host.
        request = request.updated(specialize=respecializable)
    compiler = Compiler(request=request)
    observer = None
    if print_after or timing:
        observer = PassObserver(print_after or (), timing=timing, names=compiler.pass_names())
    executable = build_models(
        paths, request, observer, max_nodes, parse_states(states), parse_swappable(swappable_weights)
    )
    executable = executable.as_saved(respecializable=respecializable)
    if not quiet and is_static and not respecializable:
        advice = advise_sizes(executable, map(compiler.backends.get, request.backends))
        if advice:
            open_console().print(advice, soft_wrap=True)
    if observer is not None:
        observer.print_timing()
    report = apportion(executable.report_data, sizes) if sizes else executable.report_data
    if required is not None:
        check_offload(report, required)
    with show_bytes(f"write {output.name}") as show:
        executable.save(output, progress=show, respecializable=respecializable)
    artifact = inspect(output)
    if artifact.is_native and not artifact.is_trusted:
        warnings.warn(
            f"the cache folder {cache_directory()} is unusable, so {output} is not recorded as trusted and runs only "
            f"with "
            "--allow-native. Set BYOC_CACHE_DIR to a folder with write access.",
            stacklevel=1,
        )
    if not quiet:
        console = open_console()
        console.print(render_report(report), soft_wrap=True)
        if text := states_text(executable.states):
            console.print(text, soft_wrap=True)
        console.print(f"\nwrote {output} ({artifact.nbytes:,} bytes)", soft_wrap=True)
