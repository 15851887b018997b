"""The command ``python -m byoc_rt``, and the search for native halves."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import byoc_rt
import pytest
from byoc_rt.__main__ import main

pytestmark = pytest.mark.interpreter

LIBRARY = byoc_rt.library_path()
INSTALLED = byoc_rt.find_native_runtimes()
"""The native halves of this environment."""


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Return the printed output of a successful run."""
    assert main(arguments) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    return printed.out


def test_flags_of_the_compiler_share_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(LIBRARY.parent)
    libs = ["-L" + folder, "-lbyoc_rt", "-Wl,-rpath," + folder]
    cflags = [f"-I{byoc_rt.include_directory()}"]
    assert shlex.split(run(capsys, "--cflags")) == cflags
    assert shlex.split(run(capsys, "--libs")) == libs
    printed = run(capsys, "--libs", "--cflags")
    assert printed.count("\n") == 1
    assert shlex.split(printed) == [*cflags, *libs]


def test_paths_have_lines(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "--path") == f"{LIBRARY}\n"
    assert LIBRARY.is_file()
    assert (byoc_rt.include_directory() / "byoc_rt.h").is_file()
    assert run(capsys, "--path", "--runtimes") == f"{LIBRARY}\n{os.pathsep.join(map(str, INSTALLED.values()))}\n"


def test_without_options_the_help_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    printed = run(capsys)
    for text in ("--cflags", "--libs", "--path", "--runtimes", "cc program.c $(python -m byoc_rt", "BYOC_RT_RUNTIMES="):
        assert text in printed


def install(folder: Path, name: str, entries: str, module: str = "") -> None:
    """Install a distribution with entry points, and a module ``<name>_native``."""
    info = folder / f"byoc_{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: byoc-{name}\nVersion: 1.0\n", "utf-8")
    (info / "entry_points.txt").write_text(f"[byoc.native_runtimes]\n{entries}\n", "utf-8")
    (folder / f"{name}_native.py").write_text(module, "utf-8")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder searched for distributions."""
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_native_halves_are_listed_by_type_key(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (site / "librt_b.so").touch()
    install(site, "rt_b", "zeta = rt_b_native:find", f"def find():\n    return {str(site / 'librt_b.so')!r}\n")
    (site / "librt_a.so").touch()
    install(site, "rt_a", "alpha = rt_a_native:Files.find", "class Files:\n    @staticmethod\n    def find():\n"
            f"        import pathlib\n        return pathlib.Path({str(site)!r}) / 'librt_a.so'\n")  # fmt: skip
    found = {**INSTALLED, "alpha": site / "librt_a.so", "zeta": site / "librt_b.so"}
    expected = {name: found[name] for name in sorted(found)}
    assert list(byoc_rt.find_native_runtimes().items()) == list(expected.items())
    assert run(capsys, "--runtimes") == f"{os.pathsep.join(map(str, expected.values()))}\n"


@pytest.mark.parametrize(
    ("name", "module", "reason"),
    [
        ("rt_c", "def find():\n    raise OSError('no device')\n", "`rt_c_native:find` raised OSError: no device"),
        (
            "rt_d",
            "",
            "`rt_d_native:find` raised AttributeError: module 'rt_d_native' has no attribute 'find'",
        ),
        (
            "rt_e",
            "def find():\n    return '/nowhere.so'\n",
            "`rt_e_native:find` returned '/nowhere.so', which is no file",
        ),
        (
            "rt_f",
            "def find():\n    return 3\n",
            "`rt_f_native:find` raised TypeError: expected str, bytes or os.PathLike object, not int",
        ),
    ],
)
def test_a_faulty_declaration_names_the_distribution(
    site: Path, capsys: pytest.CaptureFixture[str], name: str, module: str, reason: str
) -> None:
    install(site, name, f"mynpu = {name}_native:find", module)
    text = f"native runtime `mynpu` of byoc-{name}: {reason}"
    with pytest.raises(byoc_rt.NativeRuntimeError) as caught:
        byoc_rt.find_native_runtimes()
    assert str(caught.value) == text
    assert main(["--runtimes"]) == 1
    assert capsys.readouterr() == ("", f"error: {text}\n")


def test_a_distribution_built_without_its_library_has_no_half(site: Path) -> None:
    install(site, "rt_i", "mynpu = rt_i_native:find", "def find():\n    return None\n")
    assert byoc_rt.find_native_runtimes() == INSTALLED


def test_two_halves_of_a_runtime_are_an_error(site: Path) -> None:
    (site / "librt.so").touch()
    module = f"def find():\n    return {str(site / 'librt.so')!r}\n"
    for name in ("rt_g", "rt_h"):
        install(site, name, f"mynpu = {name}_native:find", module)
    with pytest.raises(byoc_rt.NativeRuntimeError) as caught:
        byoc_rt.find_native_runtimes()
    names = ("byoc-rt_g and byoc-rt_h", "byoc-rt_h and byoc-rt_g")
    texts = [f"native runtime `mynpu`: is declared by {pair}. Uninstall either." for pair in names]
    assert str(caught.value) in texts


def test_a_library_that_is_not_built_has_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("byoc_rt.files._PACKAGE", tmp_path)
    assert main(["--libs"]) == 1
    path = tmp_path / "lib" / LIBRARY.name
    remedy = "is not built. Install the package, or in a checkout: pip install -e rt"
    assert capsys.readouterr() == ("", f"error: {path}: {remedy}\n")
