"""The work of ``byoc conformance``: running and printing; results to stdout, progress to stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from byoc_core.cli.console import new_table, open_console

from byoc_conformance.choices import choose_items, parse_levels, parse_options
from byoc_conformance.environment import check_installed
from byoc_conformance.overrides import Overrides, read_overrides
from byoc_conformance.promise import Item, Level, Promise
from byoc_conformance.promises import all_items
from byoc_conformance.report import Report, compare_reports, new_report, read_report, write_report
from byoc_conformance.report.tables import count_tests, format_headline, group_alike, level_table, to_plain
from byoc_conformance.report.writing import prepare_folder, render_json
from byoc_conformance.run_items import run_items
from byoc_conformance.subject import SubjectSpec
from byoc_conformance.verdict import Judgement, judge

__all__ = ["Choices", "print_comparison", "print_promises", "run"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """The arguments of the command line."""

    backend: str
    options: Sequence[str]
    companions: Sequence[str]
    levels: Sequence[str]
    patterns: Sequence[str]
    exceptions: Sequence[str]
    num_parallel: int
    examples: int
    seed: int
    patience: float
    overrides: Path | None
    folder: Path | None
    as_json: bool


def run(choices: Choices) -> bool:
    """Run the kit, print the outcome, and write the report; after Ctrl-C, the report of all tests done so far.

    Returns:
        Whether the report is red.

    Raises:
        ByocError: the backend is not installed, or a choice makes no sense.
        OSError: a file cannot be read or written.
    """
    options, of_companions = parse_options(choices.options, choices.companions)
    spec = SubjectSpec(
        choices.backend,
        options,
        tuple(choices.companions),
        of_companions,
        examples=choices.examples,
        seed=choices.seed,
    )
    check_installed(spec)
    items = choose_items(all_items(), parse_levels(choices.levels), choices.patterns, choices.exceptions)
    ids = [item.id for item in all_items()]
    reasons = {} if choices.overrides is None else read_overrides(choices.overrides)
    overrides = Overrides(reasons, ids, where=f"{choices.overrides}")
    if choices.folder is not None:
        prepare_folder(choices.folder)
    started = datetime.now(UTC)
    judgements: list[Judgement] = []
    try:
        results = run_items(spec, items, patience=choices.patience, num_parallel=choices.num_parallel)
        with closing(results), _show_progress(items) as show:
            for result in results:
                judgements.append(judge(result, overrides.reason(result.item.id)))
                show(result.item, judgements[-1])
    finally:
        report = new_report(spec, judgements, started)
        _finish(report, choices)
    return report.is_red


def _finish(report: Report, choices: Choices) -> None:
    """Write and print a report; print the report even if writing fails."""
    written = None
    try:
        if choices.folder is not None:
            write_report(report, choices.folder)
            written = choices.folder
    finally:
        if choices.as_json:
            print(render_json(report), end="", flush=True)
        else:
            _print_report(report, written)


def _print_report(report: Report, folder: Path | None) -> None:
    console = open_console()
    for names, item in group_alike(report.red_items):
        console.print(f"{names}: {item.status}", style="bold red", soft_wrap=True)
        console.print(_indent(item.text), soft_wrap=True)
    for names, item in group_alike(report.xfailed_items):
        console.print(f"{names}: {item.status}", style="yellow", soft_wrap=True)
        console.print(_indent(f"why: {item.xfail}\n{item.text}"), soft_wrap=True)
    columns, rows = level_table(report)
    table = new_table(f"Conformance of {report.settings.backend}", *columns, right=columns[2:])
    for row in rows:
        table.add_row(*row)
    console.print(table)
    console.print(format_headline(report), style="bold red" if report.is_red else "bold", soft_wrap=True)
    if folder is not None:
        console.print(f"report: {folder / 'conformance.html'}", soft_wrap=True)


def _indent(text: str) -> str:
    return "\n".join(f"    {line}" for line in to_plain(text).splitlines())


@contextmanager
def _show_progress(items: Sequence[Item]) -> Iterator[Callable[[Item, Judgement], None]]:
    """Show a bar on stderr if stderr is a terminal, else a line for each level and each red test."""
    if sys.stderr.isatty():
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=open_console(sys.stderr), transient=True) as progress:
            task = progress.add_task("", total=len(items))
            yield lambda item, _judgement: progress.update(task, advance=1, description=item.id)
        return
    left = {level: sum(item.promise.level is level for item in items) for level in Level}
    totals = dict(left)

    def show(item: Item, judgement: Judgement) -> None:
        level = item.promise.level
        left[level] -= 1
        if judgement.verdict.is_red:
            print(f"{item.id}: {judgement.verdict}", file=sys.stderr, flush=True)
        if not left[level]:
            print(f"{level}: {count_tests(totals[level])} done", file=sys.stderr, flush=True)

    yield show


def print_promises(
    levels: Sequence[str] = (), patterns: Sequence[str] = (), exceptions: Sequence[str] = (), *, as_json: bool
) -> None:
    """Print promises with their texts, level by level.

    Args:
        levels: names of levels; all levels if empty.
        patterns: of ids of tests. Only promises with such a test are printed, each with these tests.
        exceptions: patterns of ids of tests to leave out.
        as_json: whether to print JSON.

    Raises:
        OptionsError: there is no such level, or a pattern matches no test.
    """
    items = choose_items(all_items(), parse_levels(levels), patterns, exceptions)
    tests: dict[Promise, list[str]] = {}
    for item in items:
        tests.setdefault(item.promise, []).append(item.id)
    if as_json:
        rows = [
            {"level": promise.level.value, "name": promise.name, "text": promise.text, "tests": names}
            for promise, names in tests.items()
        ]
        print(json.dumps({"promises": rows}, indent=2))
        return
    console = open_console()
    for level in Level:
        of_level = {promise: names for promise, names in tests.items() if promise.level is level}
        if of_level:
            console.print(f"{level} {level.topic}", style="bold", soft_wrap=True)
        for promise, names in of_level.items():
            number = len(promise.items)
            part = f"{len(names)} of " if len(names) < number else ""
            counts = f" ({part}{count_tests(number)})" if number > 1 else ""
            console.print(f"  {level}-{promise.name}{counts}: {promise.text}", soft_wrap=True)
            if patterns and number > 1:
                console.print("".join(f"    {name}\n" for name in names), end="", soft_wrap=True)
    number = len(tests)
    console.print(f"\n{number} promise{'' if number == 1 else 's'}, {count_tests(len(items))}.")


def print_comparison(before: Path, after: Path, *, as_json: bool) -> bool:
    """Print the changes from one report to another.

    Returns:
        Whether anything got worse.

    Raises:
        OptionsError: a file is no report.
        OSError: a file cannot be read.
    """
    comparison = compare_reports(read_report(before), read_report(after))
    if as_json:
        print(json.dumps(comparison.to_json(), indent=2))
        return comparison.is_worse
    console = open_console()
    for change in comparison.tested_with:
        text = f"{change.name}: {change.before or 'none'} -> {change.after or 'none'}"
        console.print(to_plain(text), soft_wrap=True)
    styles = {"worse": "bold red", "better": "green", "appeared": "", "vanished": "yellow"}
    for topic, changes in (("tests", comparison.tests), ("coverage", comparison.coverage)):
        for kind, style in styles.items():
            found = getattr(changes, kind)
            if found:
                console.print(f"{topic}, {kind} ({len(found)})", style=style)
            for change in found:
                transition = " -> ".join(filter(None, (change.before, change.after)))
                console.print(to_plain(f"  {change.name}: {transition}"), soft_wrap=True)
    console.print("Something got worse." if comparison.is_worse else "Nothing got worse.")
    return comparison.is_worse
