"""Loading and quarantine: a faulty plugin is named with the reason, and the others go on."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import pytest
from byoc_core.errors import CodegenError, HookError, PluginError
from byoc_core.plugin import Catalog, PluginRecord
from byoc_core.plugin.discovery import discover
from byoc_core.plugin.handle import PluginHandle
from byoc_core.plugin.markers import hookimpl, hookspec

from core.tests.plugin.conftest import Site

pytestmark = [pytest.mark.interpreter, pytest.mark.asks_for_plugins]


def new_specs(*, name_required: bool) -> types.ModuleType:
    """Return specifications of two hooks."""

    @hookspec(since="0.1")
    def byoc_answer(question: str, context: object) -> int:  # type: ignore[empty-body]
        """Answers."""

    @hookspec(since="0.1", required=name_required)
    def byoc_name() -> str:  # type: ignore[empty-body]
        """Names."""

    specs = types.ModuleType("specs")
    vars(specs).update(byoc_answer=byoc_answer, byoc_name=byoc_name)
    return specs


SPECS = new_specs(name_required=False)
RECORD = PluginRecord("npu", "byoc.backends", "npu_plugin", "byoc-npu", "1.0")

IMPORT_FAILURES = {
    "import absent_library": (
        "importing `npu_plugin_0` raised ModuleNotFoundError: No module named 'absent_library'",
        (
            "Install the missing module `absent_library`; "
            "if it is the plugin's own, pip install --force-reinstall byoc-npu."
        ),
    ),
    "raise SystemExit('I give up')": (
        "importing `npu_plugin_1` raised SystemExit: I give up",
        "Report this to the authors of byoc-npu, or pip uninstall byoc-npu.",
    ),
    "1 / 0": (
        "importing `npu_plugin_2` raised ZeroDivisionError: division by zero",
        "Report this to the authors of byoc-npu, or pip uninstall byoc-npu.",
    ),
}


@pytest.mark.parametrize("index", range(len(IMPORT_FAILURES)))
def test_a_plugin_that_cannot_be_imported_is_quarantined(
    site: Site, monkeypatch: pytest.MonkeyPatch, index: int
) -> None:
    code, (reason, remedy) = list(IMPORT_FAILURES.items())[index]
    name = f"npu_plugin_{index}"
    site.install("byoc-npu", f"[byoc.backends]\nnpu = {name}\ngood = good_plugin_{index}\n", {name: code})
    (site.folder / f"good_plugin_{index}.py").write_text("answer = 42")
    monkeypatch.syspath_prepend(str(site.folder))
    catalog = discover("byoc.backends", path=[str(site.folder)])
    with pytest.raises(PluginError) as caught:
        catalog.load("npu")
    assert str(caught.value) == f"plugin `npu` (byoc-npu 1.0): cannot be used (broken): {reason}. {remedy}"
    assert caught.value.__cause__ is not None
    record = catalog.find("npu")
    assert record is not None
    assert (record.state, record.reason, record.remedy) == ("broken", reason, remedy)
    assert catalog.names() == ("good",)
    good: Any = catalog.load("good")
    assert good.answer == 42
    assert catalog.load("good") is good
    with pytest.raises(PluginError, match="cannot be used"):
        catalog.load("npu")


def test_loading_a_name_that_is_not_there() -> None:
    with pytest.raises(PluginError) as caught:
        Catalog("byoc.backends", []).load("npu")
    assert str(caught.value) == "byoc.backends: no plugin `npu` is installed"


def plugin_of(**functions: Callable[..., object]) -> types.SimpleNamespace:
    return types.SimpleNamespace(**functions)


def test_calls_reach_the_hook_with_the_arguments_that_it_names() -> None:
    handle = PluginHandle(RECORD, plugin_of(byoc_answer=hookimpl(lambda question: question.upper())), SPECS)
    assert handle.has("byoc_answer")
    assert not handle.has("byoc_name")
    assert handle.call("byoc_answer", question="why", context=None) == "WHY"
    assert handle.call("byoc_name") is None


def test_two_plugins_never_hear_each_other() -> None:
    one = PluginHandle(RECORD, plugin_of(byoc_name=hookimpl(lambda: "one")), SPECS)
    two = PluginHandle(RECORD, plugin_of(byoc_name=hookimpl(lambda: "two")), SPECS)
    assert (one.call("byoc_name"), two.call("byoc_name")) == ("one", "two")


@pytest.mark.parametrize(
    ("plugin", "text"),
    [
        (
            plugin_of(byoc_anwser=hookimpl(lambda: 1)),
            "there is no hook `byoc_anwser`. Did you mean 'byoc_answer' or 'byoc_name'?",
        ),
        (plugin_of(zzz=hookimpl(lambda: 1)), "there is no hook `zzz`. The hooks are byoc_answer, byoc_name."),
        (plugin_of(), "the plugin implements no hook. The entry point may refer to the wrong object."),
        (
            plugin_of(byoc_name=lambda: "x"),
            "the function `byoc_name` is not marked as a hook. Decorate it with `@hookimpl`.",
        ),
        (
            plugin_of(byoc_answer=hookimpl(lambda: 1)),
            "the plugin does not implement the hook `byoc_name`. The hook is required in this group.",
        ),
        (
            plugin_of(byoc_name=hookimpl(lambda colour: "x")),
            "the hook `byoc_name` cannot have an argument `colour`. The hook takes no arguments.",
        ),
        (
            plugin_of(byoc_answer=hookimpl(lambda qestion, context: "x")),
            "the hook `byoc_answer` cannot have an argument `qestion`. Did you mean 'question'?",
        ),
        (
            plugin_of(byoc_answer=hookimpl(lambda colour: "x")),
            "the hook `byoc_answer` cannot have an argument `colour`. The possible arguments are question, context.",
        ),
        (
            plugin_of(byoc_name=hookimpl(wrapper=True)(lambda: "x")),
            (
                "Declared as wrapper=True or hookwrapper=True but function is not a generator function. "
                "Compare the hook with its specification."
            ),
        ),
    ],
)
def test_wrong_hooks_are_refused_at_registration(plugin: object, text: str) -> None:
    with pytest.raises(PluginError) as caught:
        PluginHandle(RECORD, plugin, new_specs(name_required=True))
    assert str(caught.value) == f"plugin `npu` (byoc-npu 1.0): {text}"


def test_a_hook_of_a_newer_core_may_be_optional() -> None:
    newer = hookimpl(optionalhook=True)(lambda: 1)
    assert PluginHandle(RECORD, plugin_of(byoc_future=newer, byoc_name=hookimpl(lambda: "x")), SPECS).has("byoc_name")


def test_a_failure_names_plugin_distribution_version_and_hook() -> None:
    def fail(question: str) -> int:
        raise KeyError(question)

    handle = PluginHandle(RECORD, plugin_of(byoc_answer=hookimpl(fail)), SPECS)
    with pytest.raises(HookError) as caught:
        handle.call("byoc_answer", question="why", context=None)
    assert str(caught.value) == (
        "plugin `npu` (byoc-npu 1.0), hook `byoc_answer`: raised KeyError: 'why'. "
        "This is a fault of byoc-npu, not of byoc-core."
    )
    assert isinstance(caught.value.__cause__, KeyError)


def test_an_error_in_our_own_terms_keeps_its_class_and_gains_a_note() -> None:
    def fail() -> str:
        raise CodegenError("function `f`", "is too large for the NPU")

    handle = PluginHandle(RECORD, plugin_of(byoc_name=hookimpl(fail)), SPECS)
    with pytest.raises(CodegenError) as caught:
        handle.call("byoc_name")
    assert str(caught.value) == "function `f`: is too large for the NPU"
    assert caught.value.__notes__ == ["raised by plugin `npu` (byoc-npu 1.0), hook `byoc_name`"]


def test_a_result_of_the_wrong_type_names_the_hook() -> None:
    handle = PluginHandle(RECORD, plugin_of(byoc_name=hookimpl(lambda: 3)), SPECS)
    with pytest.raises(HookError) as caught:
        handle.check("byoc_name", handle.call("byoc_name"), str)
    assert str(caught.value) == (
        "plugin `npu` (byoc-npu 1.0), hook `byoc_name`: returned a value of the wrong type; got int, expected str"
    )


def test_a_misspelt_hook_is_quarantined_by_the_catalogue(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "from byoc_core.plugin.markers import hookimpl\n@hookimpl\ndef byoc_nam(): return 'x'\n"
    site.install("byoc-npu", "[byoc.backends]\nnpu = misspelt_plugin\n", {"misspelt_plugin": code})
    monkeypatch.syspath_prepend(str(site.folder))
    catalog = discover("byoc.backends", path=[str(site.folder)])
    with pytest.raises(PluginError) as caught:
        catalog.open("npu", SPECS)
    assert str(caught.value) == (
        "plugin `npu` (byoc-npu 1.0): cannot be used (broken): there is no hook `byoc_nam`. "
        "Did you mean 'byoc_name' or 'byoc_answer'?"
    )
    assert catalog.names() == ()
