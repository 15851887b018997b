"""``byoc config``: the request used by the other commands for compilation."""

from __future__ import annotations

from typing import Annotated

import typer

from byoc_core.cli.request import ALL_FLAGS, RequestFlags, takes_request

__all__ = ["print_config"]


@takes_request(*ALL_FLAGS)
def print_config(
    *,
    flags: RequestFlags,
    as_json: Annotated[bool, typer.Option("--json", help="Print the request as JSON.")] = False,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON schema of request files instead.")] = False,
) -> None:
    """Print the request given by options, as TOML: a file for --config of compile, explain, debug and run."""
    import json

    from byoc_core.cli.console import print_text
    from byoc_core.driver import CompileRequest

    if schema:
        print_text(json.dumps(CompileRequest.schema_data(), indent=2) + "\n")
        return
    request = flags.to_request()
    print_text(request.to_json() if as_json else request.to_toml())
