"""``byoc lint-backend``: faults in a backend's declaration, patterns and rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from byoc_core.lint import Finding

__all__ = ["lint_installed_backend"]


def lint_installed_backend(
    name: Annotated[str, typer.Argument(metavar="NAME", help="An installed backend.", show_default=False)],
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
    compile_claims: Annotated[
        bool,
        typer.Option(
            "--compile",
            help="Also compile every case claimed by the backend; needs the backend's tools, takes a minute or so.",
        ),
    ] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 on warnings too.")] = False,
) -> None:
    """Try a backend's patterns and rules on small cases of all ops, and report faults.

    An error is a certain fault: a pattern never matching or never winning, a check raising an exception.
    A warning may be intended: a pattern accepting every dtype.
    Exits with 1 if there is an error.
    """
    from byoc_core.cli.console import print_text
    from byoc_core.lint import lint_backend

    findings = lint_backend(name, compile_claims=compile_claims)
    if as_json:
        import json

        found = {"backend": name, "findings": [finding.as_dict() for finding in findings]}
        print_text(json.dumps(found, indent=2) + "\n")
    else:
        _print(name, findings)
    if any(strict or finding.severity == "error" for finding in findings):
        raise typer.Exit(1)


def _print(name: str, findings: Sequence[Finding]) -> None:
    from byoc_core.cli.console import open_console

    console = open_console()
    styles = {"error": "bold red", "warning": "yellow"}
    for finding in findings:
        console.print(f"{finding.severity:<7}  ", style=styles[finding.severity], end="")
        console.print(f"{finding.where}: {finding.text} [{finding.code}]", soft_wrap=True)
        if finding.hint:
            console.print(f"         {finding.hint}", soft_wrap=True)
    counts = {kind: sum(finding.severity == kind for finding in findings) for kind in styles}
    numbers = [f"{count} {kind}{'' if count == 1 else 's'}" for kind, count in counts.items() if count]
    found = f"{' and '.join(numbers)} found." if numbers else f"Backend `{name}`: nothing found."
    console.print(f"\n{found}" if findings else found)
