"""Artifacts of regions compiled for sets of sizes, and changed payloads."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import byoc_core
import numpy as np
import pytest
from byoc_core.errors import (
    ArtifactError,
    ByocError,
    CallError,
    ExecutionError,
    OptionsError,
    PartitionError,
    UntrustedCodeError,
)
from byoc_core.runtime.arguments import concrete_shape
from byoc_core.runtime.hooks import LoadContext
from byoc_core.runtime.specialised import SpecialisedModule
from byoc_core.runtime.specialised_plugin import byoc_load_module, byoc_save_module

from core.tests.specialised_toys import MODULE, Toy, check, host_lines, inputs_of, shares


@pytest.mark.parametrize("fallback", ["allow", "error"])
def test_an_artifact_holds_the_sizes_given_and_the_host_form(
    tmp_path: Path, fallback: Literal["allow", "error"], caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "model.byoc"
    sets = [{"n": 2, "m": 3}, {"n": 4, "m": 1}]
    executable = byoc_core.build(MODULE, [Toy()], specialize=sets, fallback=fallback)
    main = byoc_core.VirtualMachine(executable)["main"]
    before = executable.to_bytes()
    check(main, 5, 5)
    assert executable.to_bytes() == before  # what calls brought is not saved
    executable.save(path)
    for compiler in (None, byoc_core.compiler()):
        main = byoc_core.VirtualMachine(byoc_core.load(path, compiler=compiler))["main"]
        check(main, 2, 3)
        check(main, 4, 1)
        assert host_lines(caplog) == []
        if fallback == "allow":
            check(main, 2, 4)
            check(main, 2, 4)
            (text,) = host_lines(caplog)
            assert " runs on the host for m = 4, n = 2: " in text
        else:
            with pytest.raises(ExecutionError) as caught:
                main(*inputs_of(2, 4))
            assert isinstance(caught.value.__cause__, CallError)
            text = str(caught.value.__cause__)
        assert "of backend `toy` (static shapes only): is not compiled for these sizes; got " in text
        assert "expected one of: m = 3, n = 2; m = 1, n = 4" in text
        assert text.endswith("Pass these sizes to `build(specialize=...)`.")
    again = byoc_core.load(path)
    assert again.to_bytes() == path.read_bytes()
    (row,) = again.report_data["specialised"]
    assert row["others"] == {"allow": "host", "error": "error"}[fallback]
    ending = {"allow": "others on the host", "error": "others are an error"}[fallback]
    assert f"(toy): m = 3, n = 2; m = 1, n = 4; {ending}" in again.report()
    again.require_offload(1.0)


def test_an_artifact_without_sizes_runs_on_the_host_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "model.byoc"
    for sets in ([], [{"n": 2}]):
        executable = byoc_core.build(MODULE, [Toy()], specialize=sets)
        executable.require_offload(1.0)
        executable.save(path, respecializable=True)
        executable.as_saved().save(path)
        assert host_lines(caplog) == []
        executable.save(path)
        (line,) = host_lines(caplog)
        assert line.startswith(f"artifact `{path}`: the host runs ")
        assert "Give sets of sizes to `build(specialize=...)`, or save with `respecializable=True`." in line
        loaded = byoc_core.load(path)
        check(byoc_core.VirtualMachine(loaded)["main"], 3, 2)
        (line,) = host_lines(caplog)
        assert " runs on the host for m = 2, n = 3: " in line
        assert shares(loaded)["exp"] == "toy"
        assert {shares(loaded)[op] for op in ("add", "nn.relu", "matmul")} == {"host"}
        with pytest.raises(PartitionError, match="the artifact contains no compiled sizes of the region"):
            loaded.require_offload(0.9)
        assert loaded.report_data == executable.as_saved().report_data == loaded.as_saved().report_data
        # The figures are those of a build in which the host has these ops.
        host = byoc_core.build(MODULE, [Toy()], specialize=False).report_data
        for key in ("offloaded_share", "total_flops", "counted_sizes"):
            assert loaded.report_data[key] == host[key]
        for item, expected in zip(loaded.report_data["backends"], host["backends"], strict=True):
            assert {**item, "regions": 0} == {**expected, "regions": 0}
        (reason,) = loaded.report_data["summary"]
        assert (reason["backend"], reason["code"], reason["ops"]) == ("toy", "dynamic-shape", 3)


@pytest.mark.parametrize("sets", [[], [{"n": 2}], [{"n": 2, "m": 3}]])
@pytest.mark.parametrize("refused", ["", "exp", "matmul", "reshape"])
def test_an_artifact_loaded_with_a_compiler_has_the_report_of_the_build(
    tmp_path: Path, sets: list[dict[str, int]], refused: str
) -> None:
    path = tmp_path / "model.byoc"
    toy = Toy(lambda binding: "not this op" if binding.op.name == refused else None)
    executable = byoc_core.build(MODULE, [toy], specialize=sets)
    executable.save(path, respecializable=True)
    without = byoc_core.load(path)
    loaded = byoc_core.load(path, compiler=byoc_core.compiler())
    assert loaded.report() == executable.report()
    assert json.loads(json.dumps(loaded.report_data)) == json.loads(json.dumps(executable.report_data))
    assert loaded.as_saved(respecializable=True).report_data == without.report_data
    if sets == []:
        assert without.report_data["offloaded_share"] < loaded.report_data["offloaded_share"]


def test_a_compiler_changes_no_report_without_a_recipe(tmp_path: Path) -> None:
    path = tmp_path / "model.byoc"
    byoc_core.build(MODULE, [Toy()], specialize=[{"n": 2}]).as_saved().save(path)
    loaded = byoc_core.load(path, compiler=byoc_core.compiler())
    assert loaded.report_data == byoc_core.load(path).report_data
    assert {shares(loaded)[op] for op in ("add", "nn.relu", "matmul")} == {"host"}


def test_an_artifact_that_could_never_run_is_not_written(tmp_path: Path) -> None:
    executable = byoc_core.build(MODULE, [Toy()], fallback="error")
    check(byoc_core.VirtualMachine(executable)["main"], 3, 2)
    with pytest.raises(OptionsError) as caught:
        executable.save(tmp_path / "model.byoc")
    assert "is compiled for no sizes: an artifact could not run the function" in str(caught.value)
    assert "Pass sets of sizes with m, n to `build(specialize=...)`" in str(caught.value)
    assert not (tmp_path / "model.byoc").exists()


def test_a_recipe_without_a_compiler_says_what_to_do(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "model.byoc"
    byoc_core.build(MODULE, [Toy()], specialize=[{"n": 2, "m": 3}]).save(path, respecializable=True)
    loaded = byoc_core.load(path)
    assert "others at first use if the artifact is loaded with a compiler, else on the host" in loaded.report()
    main = byoc_core.VirtualMachine(loaded)["main"]
    check(main, 2, 3)
    check(main, 3, 3)
    (line,) = host_lines(caplog)
    assert line.endswith("Load the artifact with `load(path, compiler=byoc_core.compiler())`.")
    # Nobody knows a backend `toy` by its name: that is the host's work too.
    main = byoc_core.VirtualMachine(byoc_core.load(path, compiler=byoc_core.compiler()))["main"]
    check(main, 3, 3)
    (line,) = host_lines(caplog)
    assert "cannot be compiled: " in line
    assert "`toy`" in line


def test_saving_keeps_who_compiled_it() -> None:
    executable = byoc_core.build(MODULE, [Toy()])
    assert executable.is_own
    assert executable.as_saved().is_own
    assert executable.as_saved(respecializable=True).is_own


def recipe() -> dict[str, Any]:
    """Return a payload with a recipe, by a backend known to a compiler by name."""
    executable = byoc_core.build(MODULE, [Toy()], specialize=[{"n": 2, "m": 3}])
    (module,) = (module for module in executable.modules if isinstance(module, SpecialisedModule))
    data: dict[str, Any] = json.loads(byoc_save_module(module))
    return {**data, "backend": "host"}


def call_at(data: dict[str, Any], n: int, m: int) -> None:
    """Load a payload with a compiler, and call the function of symbolic sizes."""
    module = byoc_load_module(json.dumps(data).encode(), LoadContext(compiler=byoc_core.compiler()))
    (name,) = (item["name"] for item in data["functions"] if len(item["inputs"]) == 2)
    signature = module.get_function(name).signature
    assert signature is not None
    shapes = [concrete_shape(spec, {"n": n, "m": m}, "here") for spec in (*signature.inputs, *signature.outputs)]
    module.get_function(name)(*(np.zeros(shape, np.float32) for shape in shapes))


def test_a_recipe_is_compiled_for_more_sizes(caplog: pytest.LogCaptureFixture) -> None:
    call_at(recipe(), 3, 3)
    assert host_lines(caplog) == []


def _rename(data: dict[str, Any]) -> None:
    name = next(item["name"] for item in data["functions"] if len(item["inputs"]) == 2)
    data["recipe"]["text"] = data["recipe"]["text"].replace(f'"global_symbol": "{name}"', '"global_symbol": "other"')


def _symbol_is_code(data: dict[str, Any]) -> None:
    name = next(item["name"] for item in data["functions"] if len(item["inputs"]) == 2)
    data["variants"] = []
    del data["host"]
    for item in data["functions"]:
        if item["name"] == name:
            item["name"] = "f() { abort(); } int g"
    data["recipe"]["text"] = data["recipe"]["text"].replace(
        f'"global_symbol": "{name}"', '"global_symbol": "f() { abort(); } int g"'
    )


def _change(old: str, new: str) -> Callable[[dict[str, Any]], None]:
    def change(data: dict[str, Any]) -> None:
        assert old in data["recipe"]["text"]
        data["recipe"]["text"] = data["recipe"]["text"].replace(old, new)

    return change


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (_rename, "has no function"),
        (_symbol_is_code, "has a function symbol other than a C identifier"),
        (_change("R.matmul(", "R.missing("), "missing"),
        (_change("R.matmul(", "R.add("), "cannot be compiled: "),
        (_change("float32", "float64"), "has another signature than the function for these sizes"),
    ],
)
def test_a_recipe_that_somebody_changed_is_not_compiled(
    change: Callable[[dict[str, Any]], None], text: str, caplog: pytest.LogCaptureFixture
) -> None:
    data = recipe()
    change(data)
    if "host" in data:
        call_at(data, 3, 3)
        (line,) = host_lines(caplog)
        assert text in line
    else:
        with pytest.raises(ExecutionError, match=text):
            call_at(data, 3, 3)


def test_options_of_strangers_reach_no_compiler(tmp_path: Path) -> None:
    executable = byoc_core.build(MODULE, [Toy()], specialize=[{"n": 2, "m": 3}])
    (module,) = (module for module in executable.modules if isinstance(module, SpecialisedModule))
    data = json.loads(byoc_save_module(module))
    data["recipe"]["options"] = {"extra_flags": ["-fplugin=evil.so"]}
    changed = json.dumps(data).encode()
    compiler = byoc_core.compiler()
    with pytest.raises(UntrustedCodeError, match="holds options of backend `toy`"):
        byoc_load_module(changed, LoadContext(compiler=compiler))
    for context in (LoadContext(), LoadContext(allow_native=True, compiler=compiler)):
        assert byoc_load_module(changed, context).function_names == module.function_names
    data["recipe"]["options"] = {}
    byoc_load_module(json.dumps(data).encode(), LoadContext(compiler=compiler))


def payload() -> dict[str, Any]:
    executable = byoc_core.build(MODULE, [Toy()], specialize=[{"n": 2, "m": 3}])
    (module,) = (module for module in executable.modules if isinstance(module, SpecialisedModule))
    data: dict[str, Any] = json.loads(byoc_save_module(module.saved_with_recipe(keep=False)))
    return data


def _second_function(data: dict[str, Any]) -> None:
    data["functions"].append(data["functions"][0])


def _widen_result(data: dict[str, Any]) -> None:
    function = next(item for item in data["functions"] if item["name"] == data["variants"][0]["function"])
    function["outputs"][0]["dtype"] = "float64"


def _hide_a_size(data: dict[str, Any]) -> None:
    for spec in data["functions"][0]["inputs"]:
        spec["shape"] = [f"{dim}*k" if isinstance(dim, str) else dim for dim in spec["shape"]]


def _swap_host(data: dict[str, Any]) -> None:
    """Put the variant in the host's place: a module with the same function names, and the types of a set of sizes."""
    variant = data["variants"][0]
    data["host"] = {key: variant[key] for key in ("runtime", "format", "payload")}


CHANGES: dict[str, Callable[[dict[str, Any]], object]] = {
    "version": lambda d: d.update(version=2),
    "field": lambda d: d.update(more=1),
    "two functions": _second_function,
    "undeclared": lambda d: d["variants"][0].update(function="other"),
    "nested": lambda d: d["variants"][0].update(runtime="specialised"),
    "format": lambda d: d["variants"][0].update(format=77),
    "base64": lambda d: d["variants"][0].update(payload="%%%"),
    "payload": lambda d: d["variants"][0].update(payload="AAAA"),
    "sizes": lambda d: d["variants"][0].update(sizes={"n": 3, "m": 3}),
    "no sizes": lambda d: d["variants"][0].update(sizes={}),
    "negative": lambda d: d["variants"][0].update(sizes={"n": -3, "m": 3}),
    "type": _widen_result,
    "other sizes": lambda d: d["variants"][0]["sizes"].update(k=3),
    "twice": lambda d: d["variants"].append(d["variants"][0]),
    "unknown size": _hide_a_size,
    "host format": lambda d: d["host"].update(format=77),
    "host nested": lambda d: d["host"].update(runtime="specialised"),
    "host of others": _swap_host,
    "host payload": lambda d: d["host"].update(payload="AAAA"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=list(CHANGES))
def test_a_changed_payload_is_refused(change: Callable[[dict[str, Any]], object]) -> None:
    data = payload()
    byoc_load_module(json.dumps(data).encode(), LoadContext())
    change(data)
    with pytest.raises(ArtifactError):
        byoc_load_module(json.dumps(data).encode(), LoadContext())


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b"\xff", b'{"version": 1}'])
def test_what_is_no_payload_is_refused(data: bytes) -> None:
    with pytest.raises(ByocError):
        byoc_load_module(data, LoadContext())
