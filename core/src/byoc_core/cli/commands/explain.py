"""``byoc explain``: who takes each op, and why not somebody else."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from byoc_core.cli.selection import BackendOption, OptionOption, PolicyName, PolicyOption

__all__ = ["explain_model"]


def explain_model(
    model: Annotated[
        Path, typer.Argument(readable=False, metavar="MODEL", help="An ONNX model, or an artifact.", show_default=False)
    ],
    backend: BackendOption = None,
    option: OptionOption = None,
    policy: PolicyOption = None,
    only_host: Annotated[bool, typer.Option("--only-host", help="Only the ops that stay on the host.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Shows which backend takes each op, or why it stays on the host, and where each dynamic size comes from.

    An artifact tells what was decided when it was compiled; a model is compiled now, and nothing is written.
    """
    from byoc_core.cli.console import open_console

    report, summary = _read(model, backend, option, policy)
    if as_json:
        import json

        rows = [row for row in report.get("ops", ()) if not only_host or row.get("outcome") == "host"]
        typer.echo(json.dumps({**report, "ops": rows}, indent=2))
        return
    console = open_console()
    console.print(_new_table(report, only_host=only_host))
    if report.get("sizes") and not only_host:
        console.print(_new_size_table(report))
    console.print(summary, soft_wrap=True)


def _read(
    model: Path, backend: list[str] | None, option: list[str] | None, policy: PolicyName | None
) -> tuple[Mapping[str, Any], str]:
    from byoc_core.artifact import inspect
    from byoc_core.cli.selection import build_model, is_artifact
    from byoc_core.errors import OptionsError

    if not is_artifact(model):
        executable = build_model(model, backend, option, "allow", policy=policy)
        return executable.report_data, executable.report()
    if backend or option:
        raise OptionsError("--backend and --option", f"do not apply to `{model}`, which is compiled already")
    if policy is not None:
        raise OptionsError("--policy", f"does not apply to `{model}`, which is compiled already")
    made = inspect(model)
    return made.report_data, made.report()


def _new_table(report: Mapping[str, Any], *, only_host: bool) -> Any:
    from byoc_core.cli.console import new_table

    table = new_table(
        "Ops", "function", "value", "op", "FLOPs", "taken by", "region", "why not another", right=("FLOPs",)
    )
    for row in report.get("ops", ()):
        if not only_host or row.get("outcome") == "host":
            flops = row.get("flops", "")
            table.add_row(
                str(row.get("function", "")),
                str(row.get("name", "")),
                str(row.get("op", "")),
                f"{flops:,}" if isinstance(flops, int) else str(flops),
                str(row.get("outcome", "")),
                str(row.get("region") or ""),
                str(row.get("text", "")),
            )
    return table


def _new_size_table(report: Mapping[str, Any]) -> Any:
    from byoc_core.cli.console import new_table

    columns = ("size", "kind", "function", "where")
    table = new_table("Dynamic sizes", *columns)
    for row in report.get("sizes", ()):
        table.add_row(*(str(row.get(column, "")) for column in columns))
    return table
