"""The entry-point group ``byoc.commands``: commands of other distributions, good and faulty."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from byoc_core.version import __version__

from core.tests.cli.conftest import RunByoc
from core.tests.plugin.conftest import Site

pytestmark = [pytest.mark.interpreter, pytest.mark.asks_for_plugins]

GOOD = """
import typer

app = typer.Typer()

@app.command()
def greet(name: str, loud: bool = False) -> None:
    \"\"\"Greets someone.\"\"\"
    if name == "nobody":
        raise LookupError("nobody is here")
    if name == "done":
        raise typer.Exit(3)
    print("HELLO" if loud else "hello", name)
"""


@pytest.fixture
def install_command(byoc: RunByoc, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., None]:
    """Return a function installing a module as the command with a given name."""
    site = Site(tmp_path / "site")
    site.folder.mkdir()
    monkeypatch.syspath_prepend(str(site.folder))

    def install(name: str, source: str, requires: tuple[str, ...] = ("byoc-core>=0.1,<1",)) -> None:
        module = f"command_of_{tmp_path.name}_{name}"
        site.install(f"byoc-{name}", f"[byoc.commands]\n{name} = {module}:app\n", {module: source}, requires=requires)

    return install


def test_a_command_of_another_distribution_works(byoc: RunByoc, install_command: Callable[..., None]) -> None:
    install_command("greet", GOOD)
    done = byoc("greet", "you", "--loud")
    assert (done.code, done.out, done.err) == (0, "HELLO you\n", "")
    assert "Greets someone." in byoc("--help").out
    assert "Usage: byoc greet " in byoc("greet", "--help").out
    assert byoc("greet").code == 2
    assert byoc("greet", "done").code == 3
    assert byoc("doctor").code == 0


def test_what_it_raises_is_told_as_its_own_fault(byoc: RunByoc, install_command: Callable[..., None]) -> None:
    install_command("greet", GOOD)
    done = byoc("greet", "nobody")
    assert (done.code, done.out) == (1, "")
    assert done.err == (
        "error: plugin `greet` (byoc-greet 1.0): raised LookupError: nobody is here. "
        "Report this to the authors of byoc-greet.\n"
    )


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("import a_library_that_is_absent", "raised ModuleNotFoundError: No module named 'a_library_that_is_absent'"),
        ("raise SystemExit(4)", "raised SystemExit: 4"),
        ("app = 7", "is of type `int`, not `typer.Typer`"),
        ("import typer\napp = typer.Typer()", "is not usable as a command: RuntimeError: "),
    ],
)
def test_a_broken_command_disturbs_no_other(
    byoc: RunByoc, install_command: Callable[..., None], source: str, reason: str
) -> None:
    install_command("broken", source)
    install_command("greet", GOOD)
    shown = byoc("--help")
    assert (shown.code, shown.err) == (0, "")
    assert sum(line.strip(" │").startswith("broken ") for line in shown.out.splitlines()) == 1
    assert byoc("greet", "you").out == "hello you\n"
    done = byoc("broken", "--anything", "you")
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("error: plugin `broken` (byoc-broken 1.0): cannot be used (broken): ")
    assert reason in done.err
    assert "Traceback" not in done.err
    found = byoc("doctor")
    assert found.code == 1
    assert "fault  command `broken` (byoc-broken 1.0): broken: " in found.out
    assert found.out.endswith("\n1 fault found.\n")


def test_a_command_for_another_version_of_core_is_not_imported(
    byoc: RunByoc, install_command: Callable[..., None]
) -> None:
    install_command("late", "raise AssertionError('imported')", requires=("byoc-core>=9",))
    done = byoc("late")
    assert done.code == 1
    assert done.err == (
        "error: plugin `late` (byoc-late 1.0): cannot be used (incompatible): the plugin needs byoc-core>=9, and "
        f"{__version__} is installed. Install versions that fit: pip install --upgrade byoc-late byoc-core.\n"
    )


def test_a_name_of_byoc_cannot_be_taken(byoc: RunByoc, install_command: Callable[..., None]) -> None:
    install_command("verify", "raise AssertionError('imported')")
    assert "Usage: byoc verify " in byoc("verify", "--help").out
    found = byoc("doctor")
    assert found.code == 1
    assert "fault  command `verify` (byoc-verify 1.0): clash: the name belongs to byoc-core" in found.out


def test_no_command_is_imported_for_another(byoc: RunByoc, install_command: Callable[..., None]) -> None:
    install_command("broken", "import pathlib\npathlib.Path('imported').touch()")
    assert byoc("verify", "absent").code == 1
    assert not Path("imported").exists()
    byoc("--help")
    assert Path("imported").exists()


def test_a_known_command_that_is_not_installed_names_its_distribution(
    byoc: RunByoc, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("byoc_core.cli.installed_commands.COMMANDS_GROUP", "byoc.absent")
    done = byoc("conformance", "mynpu", "--report", "out")
    assert (done.code, done.out) == (1, "")
    assert done.err == "error: command `conformance`: is not installed. pip install byoc-conformance\n"
    assert " conformance " not in byoc("--help").out
