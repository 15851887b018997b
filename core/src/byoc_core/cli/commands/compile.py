"""``byoc compile``: from a model to an artifact."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Annotated

import typer

from byoc_core.cli.bounds import Bounds, MaxFoldCostOption, MaxNodesOption
from byoc_core.cli.constraints import (
    AllowOption,
    ForceOption,
    MinBytesOption,
    MinFlopsOption,
    MinOpsOption,
    SidewaysOption,
    StopAtOption,
)
from byoc_core.cli.passes import PassObserver, PrintAfterOption, TimingOption
from byoc_core.cli.selection import (
    BackendOption,
    Fallback,
    OptionOption,
    PolicyOption,
    RequireOffloadOption,
    SizeOption,
    SpecializeOption,
    StrictOption,
)

__all__ = ["compile_model"]


def compile_model(
    model: Annotated[Path, typer.Argument(readable=False, metavar="MODEL", help="An ONNX model.", show_default=False)],
    output: Annotated[
        Path, typer.Option("--output", "-o", readable=False, help="The artifact to write.", show_default=False)
    ],
    backend: BackendOption = None,
    option: OptionOption = None,
    fallback: Annotated[
        Fallback, typer.Option(help="When ops stay on the host: say nothing of it, warn, or stop with an error.")
    ] = "allow",
    strict: StrictOption = False,
    policy: PolicyOption = None,
    force: ForceOption = None,
    stop_at: StopAtOption = None,
    allow: AllowOption = None,
    min_ops: MinOpsOption = 0,
    min_flops: MinFlopsOption = 0,
    min_bytes: MinBytesOption = 0,
    sideways: SidewaysOption = False,
    max_nodes: MaxNodesOption = None,
    max_fold_cost: MaxFoldCostOption = None,
    require_offload: RequireOffloadOption = None,
    dim: SizeOption = None,
    specialize: SpecializeOption = None,
    respecializable: Annotated[
        bool, typer.Option("--respecializable", help="Also write what a compiler needs to compile for more sizes.")
    ] = False,
    print_after: PrintAfterOption = None,
    timing: TimingOption = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Do not print the report.")] = False,
) -> None:
    """Compiles a model into an artifact that runs without a compiler.

    Prints which backend took what, and why ops stayed on the host.
    Native code in the artifact is recorded as trusted for you: others must pass --allow-native to run it.
    """
    from byoc_core.artifact import inspect
    from byoc_core.cli.console import open_console, show_bytes
    from byoc_core.cli.constraints import parse_constraints
    from byoc_core.cli.inputs import parse_sets_of_sizes, parse_sizes
    from byoc_core.cli.selection import build_model, check_artifact_output, choose_backends, parse_share
    from byoc_core.cli.size_advice import advise_sizes
    from byoc_core.driver import pass_names
    from byoc_core.native.build_cache import cache_directory
    from byoc_core.reporting.gate import check_offload
    from byoc_core.reporting.shares import apportion
    from byoc_core.reporting.text import render_report

    check_artifact_output(output, model)
    required = parse_share(require_offload)
    sizes = parse_sizes(dim)
    constraints = parse_constraints(
        force, stop_at, allow, min_ops=min_ops, min_flops=min_flops, min_bytes=min_bytes, sideways=sideways
    )
    observer = None
    if print_after or timing:
        observer = PassObserver(print_after or (), timing=timing, names=pass_names(choose_backends(backend)))
    bounds = Bounds(max_nodes, max_fold_cost)
    sets = parse_sets_of_sizes(specialize)
    backend = choose_backends(backend)
    # Nobody calls what is compiled here: regions for sizes that only calls bring would be the host's in the artifact.
    chosen = respecializable if sets is None else sets
    executable = build_model(
        model, backend, option, fallback, observer, constraints, policy, bounds, strict=strict, specialize=chosen
    ).as_saved(respecializable=respecializable)
    if not quiet and chosen is False and (advice := advise_sizes(executable, backend)):
        open_console().print(advice, soft_wrap=True)
    if observer is not None:
        observer.print_timing()
    report = apportion(executable.report_data, sizes) if sizes else executable.report_data
    if required is not None:
        check_offload(report, required)
    with show_bytes(f"write {output.name}") as show:
        executable.save(output, progress=show, respecializable=respecializable)
    made = inspect(output)
    if made.is_native and not made.is_trusted:
        warnings.warn(
            f"the cache folder {cache_directory()} cannot be used, so {output} is not recorded as trusted: running it "
            "needs --allow-native. Set BYOC_CACHE_DIR to a folder of yours.",
            stacklevel=1,
        )
    if not quiet:
        console = open_console()
        console.print(render_report(report), soft_wrap=True)
        console.print(f"\nwrote {output} ({made.nbytes:,} bytes)", soft_wrap=True)
