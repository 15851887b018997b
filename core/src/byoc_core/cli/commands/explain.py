"""``byoc explain``: the backend of each op, and the reasons against the others."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from byoc_core.cli.bounds import MaxNodesOption
from byoc_core.cli.console import print_text
from byoc_core.cli.request import EXPLAIN_FLAGS, RequestFlags, takes_request
from byoc_core.cli.selection import AllowNativeOption, RequireOffloadOption, SizeOption
from byoc_core.cli.session_machines import MachineOption, find_machines, machines_to_data, print_machines
from byoc_core.errors import OptionsError

if TYPE_CHECKING:
    from byoc_core.driver import Explanation

__all__ = ["explain_offload"]

_MAX_OPS = 40


@takes_request(*EXPLAIN_FLAGS)
def explain_offload(
    model: Annotated[
        Path, typer.Argument(readable=False, metavar="MODEL", help="An ONNX model, or an artifact.", show_default=False)
    ],
    *,
    flags: RequestFlags,
    max_nodes: MaxNodesOption = None,
    only_host: Annotated[bool, typer.Option("--only-host", help="List only the ops that stay on the host.")] = False,
    list_all: Annotated[
        bool, typer.Option("--all", help=f"List all ops, not only the {_MAX_OPS} with the most FLOPs.")
    ] = False,
    dim: SizeOption = None,
    require_offload: RequireOffloadOption = None,
    as_ir: Annotated[
        bool, typer.Option("--ir", help="Print the partitioned module, with comments on the assignment of each op.")
    ] = False,
    kernels: Annotated[
        bool, typer.Option("--kernels", help="Show the loops, the estimate and the source of each generated kernel.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
    machine: MachineOption = False,
    allow_native: AllowNativeOption = False,
    page: Annotated[
        Path | None,
        typer.Option(
            "--html",
            metavar="FILE",
            readable=False,
            help="Write the report as a page for a browser: the graph coloured by backend; a click shows the reason.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Show the ops taken by each backend, the reasons for ops on the host, and the origin of each dynamic size.

    For an artifact, shows the decisions of its compilation; a model is compiled now, and no artifact is written.
    """
    from byoc_core.cli.selection import check_output, parse_share
    from byoc_core.reporting.gate import check_offload

    required = parse_share(require_offload)
    if page is not None:
        check_output(page, model, "--html")
    if as_ir and as_json:
        raise OptionsError("--ir and --json", "exclude each other")
    if as_ir and kernels:
        raise OptionsError("--ir and --kernels", "exclude each other")
    if machine and (as_ir or kernels):
        raise OptionsError("--machine", "does not go with --ir and --kernels")
    explanation, report = _read(model, flags, dim, max_nodes, as_ir=as_ir, kernels=kernels)
    machines = find_machines(model, flags, max_nodes, allow_native=allow_native) if machine else {}
    if machine:
        report = {**report, "machines": machines_to_data(machines)}
    if as_ir and explanation is not None:
        print_text(explanation.to_script())
    elif as_json:
        _print_json(report, only_host=only_host)
    elif kernels and explanation is not None:
        print_text(explanation.report_kernels() + "\n")
    else:
        _print_tables(report, only_host=only_host, list_all=list_all)
        print_machines(machines)
    if page is not None:
        _write_page(page, report, model.name)
    if required is not None:
        check_offload(report, required)


def _read(
    model: Path, flags: RequestFlags, dim: list[str] | None, max_nodes: int | None, *, as_ir: bool, kernels: bool
) -> tuple[Explanation | None, Mapping[str, Any]]:
    """Return the explanation, ``None`` if only its report is known, and the report."""
    from byoc_core.artifact import inspect
    from byoc_core.cli.inputs import parse_sizes
    from byoc_core.cli.selection import explain_model, is_artifact, refuse_flags, refuse_request
    from byoc_core.reporting.shares import apportion

    sizes = parse_sizes(dim)
    if is_artifact(model):
        refuse_flags(model, {"--ir": as_ir, "--kernels": kernels})
        refuse_request(model, flags, max_nodes)
        report = inspect(model).report_data
        return None, apportion(report, sizes) if sizes else report
    explanation = explain_model(model, flags.to_request(), max_nodes, kernels=kernels)
    explanation = explanation.with_sizes(**sizes) if sizes else explanation
    return explanation, explanation.report_data


def _write_page(page: Path, report: Mapping[str, Any], title: str) -> None:
    from byoc_core.file_replacement import replace_file
    from byoc_core.reporting.page import render_page

    with replace_file(page) as file:
        file.write(render_page(report, title).encode())
    print_text(f"wrote {page}\n", sys.stderr)


def _print_json(report: Mapping[str, Any], *, only_host: bool) -> None:
    import json

    rows = _rows(report)
    if only_host:
        rows = [row for row in rows if row.get("outcome") == "host"]
    print_text(json.dumps({"schema": 1, **report, "ops": rows}, indent=2) + "\n")


def _print_tables(report: Mapping[str, Any], *, only_host: bool, list_all: bool) -> None:
    from byoc_core.cli.console import open_console
    from byoc_core.reporting.text import counting, render_report

    console = open_console()
    console.print(render_report(report, console.width), soft_wrap=True)
    rows = [row for row in _rows(report) if not only_host or row.get("outcome") == "host"]
    if rows:
        shown = rows if list_all else _most_expensive(rows)
        kind = "ops of the host" if only_host else "ops"
        title = f"{len(shown):,} of {len(rows):,} {kind}, by FLOPs (--all lists all)"
        console.print()
        title = title if len(shown) < len(rows) else kind.capitalize()
        console.print(_new_table(shown, f"{title}{counting(report)}", report))
    if report.get("sizes") and not only_host:
        console.print(_new_size_table(report))


def _rows(report: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    from byoc_core.reporting.shares import items_of

    return items_of(report.get("ops"))


def _most_expensive(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the rows with the largest shares, in their original order."""
    order = sorted(range(len(rows)), key=lambda index: (-_share(rows[index]), index))[:_MAX_OPS]
    return [rows[index] for index in sorted(order)]


def _share(row: Mapping[str, Any]) -> float:
    share = row.get("share")
    return share if isinstance(share, int | float) else 0.0


def _new_table(rows: Sequence[Mapping[str, Any]], title: str, report: Mapping[str, Any]) -> Any:
    """Return a table of ops without uninformative columns."""
    from byoc_core.cli.console import new_table

    lines = [_cells(row, report) for row in rows]
    columns = [name for name in lines[0] if any(line[name] for line in lines)]
    if len({line["function"] for line in lines}) == 1 and "function" in columns:
        columns.remove("function")
    table = new_table(title, *columns, right=("FLOPs", "share"))
    for line in lines:
        table.add_row(*(line[name] for name in columns))
    return table


def _cells(row: Mapping[str, Any], report: Mapping[str, Any]) -> dict[str, str]:
    from byoc_core.reporting.text import flops_count, percent

    flops, outcome = flops_count(row.get("flops"), report), str(row.get("outcome", ""))
    return {
        "function": str(row.get("function", "")),
        "value": str(row.get("name", "")),
        "op": str(row.get("op", "")),
        "FLOPs": "?" if flops is None else f"{flops:,}",
        "share": percent(row.get("share")),
        "taken by": outcome,
        "region": str(row.get("region") or "") if outcome != "host" else "",
        "reasons against others": _why(row),
    }


def _why(row: Mapping[str, Any]) -> str:
    """Return why an op stays on the host or is no backend's, else the earlier backends' refusals."""
    from byoc_core.reporting.shares import HOST_NAME, VIEW, decisive_reasons, items_of

    if row.get("outcome") in (HOST_NAME, VIEW):
        return str(row.get("text") or row.get("code") or "")
    refusals = decisive_reasons(
        [item for item in items_of(row.get("reasons")) if item.get("backend") != row.get("outcome")]
    )
    return "; ".join(f"{backend}: {reason.get('text', '')}" for backend, reason in refusals.items())


def _new_size_table(report: Mapping[str, Any]) -> Any:
    from byoc_core.cli.console import new_table
    from byoc_core.reporting.shares import items_of

    columns = ("size", "kind", "function", "where")
    table = new_table("Dynamic sizes", *columns)
    for row in items_of(report.get("sizes")):
        table.add_row(*(str(row.get(column, "")) for column in columns))
    return table
