"""Shared libraries declared by installed distributions: found when an artifact is loaded, or named with the reason."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from byoc_core.native.toolchain import Toolchain

from core.tests.authoring.test_csource_libraries import Author, Codegen, executable_of, module_of
from core.tests.plugin.conftest import Site

pytestmark = [
    pytest.mark.interpreter,
    pytest.mark.skipif(not Toolchain.status().ok, reason="no C compiler"),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the library is built as on Linux"),
]

ENTRY = "[byoc.libraries]\nlibmylib.so.1 = {module}:find\n"
MISSING = (
    "library `f`: needs library `libmylib.so.1`, but the library is not found. Install the library, or add the folder "
    "to $BYOC_LIBRARY_PATH: artifacts do not contain shared libraries."
)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    (tmp_path / "site-packages").mkdir()
    return Site(tmp_path / "site-packages")


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """Return the library's file, and leave an artifact needing the library in the folder."""
    author = Author(tmp_path / "author")
    author.build("shared", own_name=True)
    executable_of(Codegen(author.options("library")).generate(module_of(f="exp"))).save(tmp_path / "model.byoc")
    return (author.folder / "libmylib.so").rename(tmp_path / "renamed")


def load_and_run(site: Site, folder: Path, **environment: str) -> str:
    """Return the last element of the result, or the text of the error, in a fresh process."""
    return site.run(
        f"""
        import byoc_core, numpy as np, sys
        executable = byoc_core.load({str(folder / "model.byoc")!r}, allow_native=True)
        try:
            print(byoc_core.VirtualMachine(executable)["call_f"](np.arange(8, dtype=np.float32))[7])
        except byoc_core.errors.ArtifactError as error:
            print(error)
        """,
        **environment,
    ).strip()


def test_a_declared_library_is_found(site: Site, library: Path, tmp_path: Path) -> None:
    assert load_and_run(site, tmp_path) == MISSING
    module = f"def find():\n    return {str(library)!r}\n"
    site.install("byoc-fast", ENTRY.format(module="fast"), {"fast": module})
    assert load_and_run(site, tmp_path) == "21.0"


def test_a_setting_goes_before_the_declaration(site: Site, library: Path, tmp_path: Path) -> None:
    site.install("byoc-fast", ENTRY.format(module="fast"), {"fast": "def find():\n    raise SystemExit('asked')\n"})
    library.rename(tmp_path / "libmylib.so.1")
    assert load_and_run(site, tmp_path, BYOC_LIBRARY_PATH=str(tmp_path)) == "21.0"


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        ("def find():\n    return None\n", ""),
        ("def find():\n    return '/no/such/file'\n", ""),
        (
            "def find():\n    raise ValueError('no luck')\n",
            "(broken): `fast:find` raised ValueError: no luck. Report this to the authors of byoc-fast.",
        ),
        (
            "import missing_module\n",
            (
                "(broken): importing `fast:find` raised ModuleNotFoundError: No module named 'missing_module'. "
                "Install the missing module `missing_module`; if it is the plugin's own, "
                "pip install --force-reinstall byoc-fast."
            ),
        ),
        (
            "find = 3\n",
            (
                "(broken): `fast:find` raised TypeError: a function is expected, got int. "
                "Report this to the authors of byoc-fast."
            ),
        ),
    ],
)
def test_a_faulty_declaration_is_told_with_the_missing_library(
    site: Site, library: Path, tmp_path: Path, module: str, reason: str
) -> None:
    site.install("byoc-fast", ENTRY.format(module="fast"), {"fast": module})
    told = f" The declaration by plugin `libmylib.so.1` (byoc-fast 1.0) is unusable {reason}" if reason else ""
    assert load_and_run(site, tmp_path) == MISSING + told


def test_two_declarations_of_a_name_need_a_choice(site: Site, library: Path, tmp_path: Path) -> None:
    for name in ("fast", "slow"):
        found = library if name == "fast" else tmp_path / "gone"
        module = f"def find():\n    return {str(found)!r}\n"
        site.install(f"byoc-{name}", ENTRY.format(module=name), {name: module})
    printed = load_and_run(site, tmp_path)
    assert printed.startswith(
        f"{MISSING} The declaration by plugin `libmylib.so.1` (byoc-fast 1.0) is unusable (clash)"
    )
    assert load_and_run(site, tmp_path, BYOC_PREFER="libmylib.so.1=byoc-fast") == "21.0"


def test_doctor_lists_declarations(site: Site) -> None:
    site.install("byoc-fast", ENTRY.format(module="fast"), {"fast": "def find():\n    return None\n"})
    printed = site.run(
        """
        from byoc_core.cli.commands.doctor import _find
        print([(f.level, f.subject, f.text) for f in _find() if "libmylib" in f.subject])
        """
    )
    assert printed.strip() == "[('fine', 'library `libmylib.so.1` (byoc-fast 1.0)', 'is declared')]"
