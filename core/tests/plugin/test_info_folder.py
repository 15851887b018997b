"""Reading metadata without ``importlib.metadata``, used here as the oracle."""

from __future__ import annotations

import sys
import zipfile
from importlib.metadata import Distribution, PathDistribution
from pathlib import Path
from typing import Any

import pytest
from byoc_core.plugin.discovery import discover
from byoc_core.plugin.info_folder import InfoFolder
from byoc_core.plugin.metadata import Declaration, normalise, read_metadata

from core.tests.plugin.conftest import Site

pytestmark = [pytest.mark.interpreter, pytest.mark.asks_for_plugins]

ENTRY = "[byoc.backends]\nnpu = npu_plugin\n"


@pytest.fixture
def light(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let discovery find ``importlib.metadata`` not imported, as in a process only running artifacts."""
    monkeypatch.delitem(sys.modules, "importlib.metadata")


def assert_same(folder: Path, oracle: Distribution) -> None:
    info = InfoFolder(str(folder))
    assert (info.metadata["Name"], info.version) == (oracle.metadata["Name"], oracle.version)
    assert list(info.requires) == list(oracle.requires or ())
    assert [tuple(e) for e in info.entry_points] == [(e.name, e.value, e.group) for e in oracle.entry_points]


def test_every_installed_distribution_reads_as_the_standard_library_reads_it() -> None:
    folders = [
        child
        for entry in sys.path
        if Path(entry).is_dir()
        for child in Path(entry).iterdir()
        if child.suffix in (".dist-info", ".egg-info") and child.is_dir()
    ]
    assert len(folders) > 5
    for folder in folders:
        assert_same(folder, PathDistribution(folder))


METADATA = {
    "folded": "Name: byoc-npu\nVersion: 1\nRequires-Dist: byoc-core\n  >=0.1\nSummary: a\n\tb: c\n\nName: no\n",
    "any case": "name: byoc-npu\nVERSION: 1\nrequires-dist: byoc-core>=0.1\n",
    "a line that is no field": "Name: byoc-npu\nVersion: 1\nnonsense\nRequires-Dist: byoc-core\n",
    "carriage returns": "Name: byoc-npu\r\nVersion: 1\r\nRequires-Dist: byoc-core\r\n\r\ntext\r\n",
}


@pytest.mark.parametrize("text", METADATA.values(), ids=METADATA)
def test_forms_of_metadata(tmp_path: Path, text: str) -> None:
    folder = tmp_path / "byoc_npu-1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(text, newline="")
    (folder / "entry_points.txt").write_text(f"# a comment\n\n{ENTRY}[ byoc.x ]\na=b:c [extra]\n")
    if text != METADATA["folded"]:
        assert_same(folder, PathDistribution(folder))
    # How a folded requirement is put together again differs, in blanks alone.
    expected = ["".join(line.split()) for line in PathDistribution(folder).requires or ()]
    assert ["".join(line.split()) for line in InfoFolder(str(folder)).requires] == expected


@pytest.mark.usefixtures("light")
def test_what_older_setuptools_left(tmp_path: Path) -> None:
    folder = tmp_path / "byoc_npu.egg-info"
    folder.mkdir()
    (folder / "PKG-INFO").write_text("Name: byoc-npu\nVersion: 1\n")
    (folder / "requires.txt").write_text("byoc-core>=0.1\n\n[more]\nnumpy\n")
    (folder / "entry_points.txt").write_text(ENTRY)
    assert_same(folder, PathDistribution(folder))
    assert discover("byoc.backends", path=[str(tmp_path)]).names() == ("npu",)


@pytest.mark.usefixtures("light")
def test_an_archive_on_the_path(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "byoc_npu-1-py3-none-any.whl", "w") as archive:
        archive.writestr("byoc_npu-1.dist-info/METADATA", "Name: byoc-npu\nVersion: 1\n")
        archive.writestr("byoc_npu-1.dist-info/entry_points.txt", ENTRY)
    (record,) = discover("byoc.backends", path=[str(tmp_path / "byoc_npu-1-py3-none-any.whl")]).records
    assert (record.name, record.distribution, record.version) == ("npu", "byoc-npu", "1")


@pytest.mark.usefixtures("light")
def test_a_finder_of_its_own(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.install("byoc-npu", ENTRY)

    class Finder:
        """A finder of distributions outside of all folders of ``sys.path``, like the finders of some installers."""

        @staticmethod
        def find_distributions(context: object = None) -> Any:
            return map(PathDistribution, site.folder.glob("*.dist-info"))

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder])
    assert "byoc-npu" in {normalise(found.distribution) for found in read_metadata().declarations}


@pytest.mark.usefixtures("light")
def test_a_folder_that_is_not_there_holds_nothing(tmp_path: Path) -> None:
    assert read_metadata([str(tmp_path / "absent")]).declarations == ()
    assert "importlib.metadata" not in sys.modules


@pytest.mark.usefixtures("light")
@pytest.mark.parametrize("entry", ["a\0b", "\ud800", None, 5], ids=["null", "surrogate", "none", "number"])
def test_what_is_no_path_holds_nothing(site: Site, entry: Any) -> None:
    site.install("byoc-npu", ENTRY)
    assert len(read_metadata([entry, str(site.folder)]).declarations) == 1


@pytest.mark.usefixtures("light")
def test_a_path_may_be_bytes(site: Site) -> None:
    site.install("byoc-npu", ENTRY)
    path: Any = [str(site.folder).encode()]
    assert [found.distribution for found in read_metadata(path).declarations] == ["byoc-npu"]


@pytest.mark.parametrize("imported", [False, True])
def test_metadata_that_is_no_text_is_a_problem_and_no_crash(
    site: Site, monkeypatch: pytest.MonkeyPatch, imported: bool
) -> None:
    site.install("byoc-npu", ENTRY)
    (metadata,) = site.folder.glob("*.dist-info/METADATA")
    metadata.write_bytes(b"Name: byoc-npu\xff\nVersion: 1\n")
    if not imported:
        monkeypatch.delitem(sys.modules, "importlib.metadata")
    found = read_metadata([str(site.folder)])
    assert found.declarations == ()
    assert [problem.partition("` has ")[2] for problem in found.problems] == [
        "unreadable metadata: 'utf-8' codec can't decode byte 0xff in position 14: invalid start byte"
    ]
    assert str(metadata.parent) in found.problems[0]


@pytest.mark.parametrize("imported", [False, True])
def test_both_ways_find_the_same(site: Site, monkeypatch: pytest.MonkeyPatch, imported: bool) -> None:
    site.install("byoc-npu", ENTRY + "gpu = npu_plugin:part.of [extra]\n", version="1.2")
    site.install("wrecked", "[byoc.backends]\nthis line has no equals sign\n")
    site.install("other", "[console_scripts]\nother = other:main\n")
    if not imported:
        monkeypatch.delitem(sys.modules, "importlib.metadata")
    found = read_metadata([str(site.folder)])
    assert ("importlib.metadata" in sys.modules) is imported
    assert found.declarations == (
        Declaration(
            "byoc-npu",
            "1.2",
            ("byoc-core>=0.1,<1",),
            (("byoc.backends", "gpu", "npu_plugin:part.of [extra]"), ("byoc.backends", "npu", "npu_plugin")),
        ),
    )
    assert [problem.partition(":")[0] for problem in found.problems] == [
        "distribution `wrecked` has unreadable metadata"
    ]
