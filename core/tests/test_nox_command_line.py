"""The default sessions run two at a time; sessions selected by options run one by one, with their output at once."""

from __future__ import annotations

import pytest

from sessions.command_line import runs_defaults


@pytest.mark.parametrize("line", ["", "--reuse-venv=no", "-r --no-color", "-- -s", "-x -- -k dims --list"])
def test_all_default_sessions_run(line: str) -> None:
    assert runs_defaults(line.split(), {"NOXSESSION": ""})


@pytest.mark.parametrize(
    "line",
    [
        "-s lint",
        "-slint",
        "--session lint",
        "-x --sessions=lint",
        "-t matrix",
        "-k docs",
        "-l",
        "--list",
        "-e a",
        "-p 3.13",
        "--python 3.13",
    ],
)
def test_sessions_are_selected_or_listed(line: str) -> None:
    assert not runs_defaults(line.split(), {})


@pytest.mark.parametrize("variable", ["NOXSESSION", "NOXPYTHON"])
def test_sessions_are_selected_by_variables(variable: str) -> None:
    assert not runs_defaults([], {variable: "lint"})
