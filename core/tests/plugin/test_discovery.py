"""Results of discovery about installed distributions, from their metadata alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from byoc_core.errors import OptionsError
from byoc_core.plugin import Catalog, PluginRecord, PluginState
from byoc_core.plugin.discovery import discover
from byoc_core.plugin.settings import PluginSettings

from core.tests.plugin.conftest import Site

pytestmark = [pytest.mark.interpreter, pytest.mark.asks_for_plugins]


ENTRY = "[byoc.backends]\nnpu = npu_plugin\n"


def catalog_of(site: Site, **environment: str) -> Catalog:
    return discover("byoc.backends", settings=PluginSettings.from_environment(environment), path=[str(site.folder)])


def state_of(catalog: Catalog) -> list[tuple[str, str, str, str]]:
    return [(r.distribution, str(r.state), r.reason, r.remedy) for r in catalog.records]


def test_a_record_tells_everything_from_metadata(site: Site) -> None:
    site.install("byoc-npu", ENTRY + "[byoc.runtimes]\nnpu = npu_run\n", version="1.2")
    assert catalog_of(site).records == (
        PluginRecord("npu", "byoc.backends", "npu_plugin", "byoc-npu", "1.2", "<1,>=0.1", PluginState.AVAILABLE),
    )
    assert discover("byoc.runtimes", path=[str(site.folder)]).records[0].value == "npu_run"
    assert catalog_of(site).records[0].label == "plugin `npu` (byoc-npu 1.2)"


def test_distributions_without_our_groups_are_passed_over(site: Site) -> None:
    site.install("other", "[console_scripts]\nother = other:main\n")
    assert catalog_of(site).records == ()
    assert catalog_of(site).find("other") is None


@pytest.mark.parametrize(
    ("core", "requirement", "state"),
    [
        ("0.1.0", ">=0.1,<0.2", "available"),
        ("0.1.0", ">=0.2", "incompatible"),
        ("0.2.0rc1", ">=0.2,<0.3", "available"),
        ("0.2.0rc1", ">=0.1,<0.2", "incompatible"),
        ("0.2.0.dev3", ">=0.2", "available"),
        ("0.1.0.post1", ">=0.1.0.post1", "available"),
        ("0.1.0", "", "available"),
    ],
)
def test_the_core_range_is_read_before_any_import(
    site: Site, monkeypatch: pytest.MonkeyPatch, core: str, requirement: str, state: str
) -> None:
    monkeypatch.setattr("byoc_core.plugin.discovery.__version__", core)
    site.install("byoc-npu", ENTRY, requires=("numpy>=1", f"Byoc_Core{requirement}", "byoc-core>=9; extra == 'x'"))
    (record,) = catalog_of(site).records
    assert record.state == state
    if state == "incompatible":
        expected = ",".join(sorted(requirement.split(",")))
        assert record.reason == f"the plugin needs byoc-core{expected}, and {core} is installed"
        assert record.remedy == "Install versions that fit: pip install --upgrade byoc-npu byoc-core."


def test_settings_allow_and_disable(site: Site) -> None:
    site.install("byoc-npu", ENTRY)
    site.install("byoc-gpu", "[byoc.backends]\ngpu = gpu_plugin\n")
    catalog = catalog_of(site, BYOC_BACKENDS="npu, other", BYOC_DISABLE_BACKENDS="npu")
    assert catalog.names() == ()
    assert state_of(catalog) == [
        (
            "byoc-gpu",
            "disabled",
            "the environment variable BYOC_BACKENDS does not name the backend",
            "Add the name to BYOC_BACKENDS.",
        ),
        (
            "byoc-npu",
            "disabled",
            "the environment variable BYOC_DISABLE_BACKENDS names the backend",
            "Remove the name from BYOC_DISABLE_BACKENDS.",
        ),
    ]
    assert catalog_of(site, BYOC_BACKENDS="npu").names() == ("npu",)
    assert catalog_of(site, BYOC_BACKENDS=" , ").names() == ("gpu", "npu")


def test_settings_about_backends_leave_runtimes_alone(site: Site) -> None:
    site.install("byoc-npu", "[byoc.runtimes]\nnpu = npu_run\n")
    settings = PluginSettings.from_environment({"BYOC_BACKENDS": "x", "BYOC_DISABLE_BACKENDS": "npu"})
    assert discover("byoc.runtimes", settings=settings, path=[str(site.folder)]).names() == ("npu",)


def test_p30_two_distributions_with_one_name_both_lose(site: Site) -> None:
    site.install("byoc-npu", ENTRY)
    site.install("rival-npu", ENTRY, version="2.0")
    assert catalog_of(site).names() == ()
    assert state_of(catalog_of(site)) == [
        (
            "byoc-npu",
            "clash",
            "the name is also claimed by rival-npu 2.0",
            "Uninstall a distribution, or choose this distribution with BYOC_PREFER=npu=byoc-npu.",
        ),
        (
            "rival-npu",
            "clash",
            "the name is also claimed by byoc-npu 1.0",
            "Uninstall a distribution, or choose this distribution with BYOC_PREFER=npu=rival-npu.",
        ),
    ]


def test_p30_a_setting_chooses(site: Site) -> None:
    site.install("byoc-npu", ENTRY)
    site.install("rival-npu", ENTRY, version="2.0")
    catalog = catalog_of(site, BYOC_PREFER="other=x, npu = Rival_NPU")
    assert catalog.names() == ("npu",)
    found = catalog.find("npu")
    assert found is not None
    assert found.distribution == "rival-npu"
    assert state_of(catalog)[0] == (
        "byoc-npu",
        "disabled",
        "the environment variable BYOC_PREFER gives the name to rival-npu",
        "Choose this distribution with BYOC_PREFER=npu=byoc-npu.",
    )
    assert catalog_of(site, BYOC_PREFER="npu=nobody").names() == ()


def test_one_distribution_seen_twice_is_no_clash(site: Site, tmp_path: Path) -> None:
    site.install("byoc-npu", ENTRY)
    second = type(site)(tmp_path / "second")
    second.folder.mkdir()
    second.install("byoc-npu", ENTRY, version="0.9")
    records = discover("byoc.backends", path=[str(site.folder), str(second.folder)]).records
    assert [(r.version, r.state) for r in records] == [("1.0", PluginState.AVAILABLE)]


def test_one_distribution_that_declares_a_name_twice(site: Site) -> None:
    site.install("byoc-npu", ENTRY + "npu = npu_plugin\n")
    assert catalog_of(site).names() == ("npu",)
    site.install("byoc-gpu", "[byoc.backends]\ngpu = a\ngpu = b\n")
    assert {r.reason for r in catalog_of(site).records if r.name == "gpu"} == {
        "the distribution declares the name twice, for different objects"
    }


def test_nobody_takes_a_name_from_the_core(site: Site) -> None:
    site.install("byoc-core", "[byoc.backends]\nhost = core_host\n", requires=())
    site.install("evil", "[byoc.backends]\nhost = evil\n")
    catalog = catalog_of(site, BYOC_DISABLE_BACKENDS="host", BYOC_BACKENDS="other")
    assert catalog.names() == ("host",)
    assert state_of(catalog)[0] == ("byoc-core", "available", "", "")
    catalog = catalog_of(site)
    assert state_of(catalog)[1] == (
        "evil",
        "clash",
        "the name belongs to byoc-core",
        "Uninstall the distribution: pip uninstall evil.",
    )


def test_broken_metadata_of_one_distribution_does_not_disturb_the_others(site: Site) -> None:
    site.install("byoc-npu", ENTRY)
    site.install("wrecked", "[byoc.backends]\nthis line has no equals sign\n")
    site.install("unparsable", "[byoc.backends]\nx = y\n", requires=("byoc-core>>1",))
    catalog = catalog_of(site)
    assert catalog.names() == ("npu",)
    assert [problem.split(":")[0] for problem in sorted(catalog.problems)] == [
        "distribution `unparsable` has unreadable metadata",
        "distribution `wrecked` has unreadable metadata",
    ]


def test_a_malformed_preference_is_an_error() -> None:
    with pytest.raises(OptionsError) as caught:
        PluginSettings.from_environment({"BYOC_PREFER": "npu"})
    assert str(caught.value) == (
        "environment variable `BYOC_PREFER`: is malformed; got 'npu', expected name=distribution[,name=distribution...]"
    )


def test_discovery_imports_no_plugin_and_the_environment_works_in_a_fresh_process(site: Site) -> None:
    site.install("byoc-npu", ENTRY, {"npu_plugin": "raise SystemExit('imported')"})
    site.install("byoc-gpu", "[byoc.backends]\ngpu = npu_plugin\n")
    printed = site.run_fresh(
        """
        import sys
        from byoc_core.plugin.discovery import discover
        catalog = discover("byoc.backends")
        print([r.name for r in catalog.records if r.state == "available" and r.name in ("gpu", "npu")])
        assert not {"npu_plugin", "pluggy", "pydantic", "byoc_core.host"} & set(sys.modules)
        """,
        BYOC_DISABLE_BACKENDS="gpu",
    )
    assert printed == "['npu']\n"
