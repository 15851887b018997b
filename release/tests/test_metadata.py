"""The metadata of all packages agree with ``version.py``, with ``[tool.byoc]``, and among the packages."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from byoc_core.version import __version__
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from release.metadata import find_differences, main, render
from release.project import PACKAGES, ROOT, Settings, read_settings, read_version

SETTINGS = Settings(
    pythons=("3.11", "3.12"),
    index="",
    urls={"Repository": "https://forge.example/byoc", "Issues": "", "Changelog": "https://forge.example/{folder}/C.md"},
)


def read_project(folder: str) -> dict[str, Any]:
    """Return the table ``[project]`` of a package."""
    project: dict[str, Any] = tomllib.loads((ROOT / folder / "pyproject.toml").read_text("utf-8"))["project"]
    return project


def test_the_files_are_as_the_command_writes_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert (main(["--check"]), capsys.readouterr().out) == (0, "")
    assert find_differences() == {}


@pytest.mark.parametrize("folder", PACKAGES)
def test_a_new_version_reaches_every_place(folder: str) -> None:
    text = (ROOT / folder / "pyproject.toml").read_text("utf-8")
    rendered = render(text, folder, "7.8.9", SETTINGS)
    project = tomllib.loads(rendered)["project"]
    assert __version__ not in rendered
    assert project.get("version", "7.8.9") == "7.8.9"
    assert project["urls"] == {
        "Repository": "https://forge.example/byoc",
        "Changelog": f"https://forge.example/{folder}/C.md",
    }
    named = [line.rpartition(" ")[2] for line in project["classifiers"] if "Python :: 3." in line]
    assert named == ["3.11", "3.12"]
    assert {
        str(needed.specifier) for needed in map(Requirement, project["dependencies"]) if needed.name == "byoc-core"
    } == (set() if folder in ("core", "rt") else {"<8,>=7.8"})
    assert render(rendered, folder, "7.8.9", SETTINGS) == rendered
    assert render(rendered, folder, read_version(), read_settings()) == text


def test_the_version_stands_in_one_place() -> None:
    assert read_version() == __version__
    assert [folder for folder in PACKAGES if "version" in read_project(folder)["dynamic"]] == ["core"]


def test_a_file_without_a_version_is_refused() -> None:
    with pytest.raises(ValueError, match="there is no line __version__ = "):
        read_version("version = 1")


@pytest.mark.parametrize("key", ["requires-python", "license", "license-files"])
def test_packages_say_the_same(key: str) -> None:
    assert len({str(read_project(folder)[key]) for folder in PACKAGES}) == 1


def test_a_dependency_of_several_packages_has_one_range() -> None:
    ranges: dict[str, set[str]] = {}
    for folder in PACKAGES:
        project = read_project(folder)
        extras = project.get("optional-dependencies", {}).values()
        for line in (*project["dependencies"], *(line for lines in extras for line in lines)):
            needed = Requirement(line)
            ranges.setdefault(canonicalize_name(needed.name), set()).add(str(needed.specifier))
    assert {name: found for name, found in ranges.items() if len(found) > 1} == {}


def test_the_oldest_python_is_the_one_that_packages_require() -> None:
    assert read_project("core")["requires-python"] == f">={read_settings().pythons[0]}"


@pytest.mark.parametrize("folder", PACKAGES)
def test_an_index_shows_the_changelog(folder: str) -> None:
    readme = tomllib.loads((ROOT / folder / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]["dynamic"][
        "readme"
    ]
    assert readme["file"] == ["README.md", "CHANGELOG.md"]
    assert [name for name in readme["file"] if not (ROOT / folder / name).is_file()] == []


def test_tests_are_left_out_of_sdists() -> None:
    assert {
        folder for folder in PACKAGES if "prune tests\n" in (ROOT / folder / "MANIFEST.in").read_text("utf-8")
    } == set(PACKAGES)
