"""Passes at named stages of a compilation: the user's, and the plugins'."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import byoc_core
import numpy as np
import pytest
from byoc_core import script as R
from byoc_core.backend.hooks import hookimpl
from byoc_core.driver import CompileRequest, carve_regions, pass_names
from byoc_core.errors import CodegenError, HookError, PassError
from byoc_core.ir import Function, IRModule
from byoc_core.runtime.module import RuntimeModule
from byoc_core.transform import PassRun

from core.tests.conftest import FakeBackend

MODULE = R.parse("""
def main(x: R.Tensor((2, 4))):
    a = R.nn.relu(x)
    b = R.add(a, a)
    c = R.tanh(b)
    d = R.multiply(c, c)
    return d
""")
X = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)
EXPECTED = np.tanh(2 * np.maximum(X, 0)) ** 2
Rewrite = Callable[[IRModule], IRModule]


def outcomes(executable: byoc_core.Executable) -> dict[str, str]:
    return {row["op"]: row["outcome"] for row in executable.report_data["ops"]}


def check_numbers(executable: byoc_core.Executable) -> None:
    np.testing.assert_allclose(byoc_core.VirtualMachine(executable)["main"](X), EXPECTED, rtol=1e-6)


def with_regions(module: IRModule, backend: str, change: Callable[[Function], Function]) -> IRModule:
    own = {name: change(f) for name, f in module.functions.items() if f.attrs.get("Codegen") == backend}
    return module.with_functions({**module.functions, **own})


class Watcher:
    """A pass recording modules."""

    def __init__(self, name: str) -> None:
        self.__name__ = name
        self.seen: list[IRModule] = []

    def __call__(self, module: IRModule) -> IRModule:
        self.seen.append(module)
        return module


class RewritingBackend(FakeBackend):
    """A backend with hooks rewriting modules.

    Args:
        name: the backend's name.
        rewrites: the action of each hook.
        options: see :class:`FakeBackend`.
    """

    def __init__(self, name: str, rewrites: Mapping[str, Rewrite], **options: Any) -> None:
        super().__init__(name, **options)
        self._rewrites = rewrites

    @hookimpl
    def byoc_after_partition(self, module: IRModule) -> IRModule:
        return self._rewrites["byoc_after_partition"](module) if "byoc_after_partition" in self._rewrites else module

    @hookimpl
    def byoc_after_codegen(self, module: IRModule) -> IRModule:
        return self._rewrites["byoc_after_codegen"](module) if "byoc_after_codegen" in self._rewrites else module


def test_each_stage_has_its_passes_in_order(tmp_path: Path) -> None:
    points = ("before_partition", "after_partition", "after_codegen")
    watchers = {point: [Watcher(f"{point}_{n}") for n in (1, 2)] for point in points}
    backends = [RewritingBackend("aone", {}, ops=["add", "tanh"]), FakeBackend("btwo", ["multiply"])]
    request = CompileRequest(backends=backends, passes=watchers, dump=tmp_path)
    runs: list[PassRun] = []
    check_numbers(byoc_core.build(MODULE, request=request, on_pass=runs.append))
    names = [run.name for run in runs]
    assert names == list(pass_names(backends, request))
    assert names[names.index("prepare_aone") :] == [
        *("prepare_aone", "prepare_btwo", "before_partition_1", "before_partition_2", "UniqueNames"),
        *("partition", "after_partition_aone", "after_partition_1", "after_partition_2"),
        *("partition_host", "PlanLayouts", "PeelViews", "RunCodegen"),
        *("after_codegen_aone", "after_codegen_1", "after_codegen_2"),
    ]
    before, after, compiled = (watchers[point][0].seen[0] for point in points)
    assert list(before.functions) == ["main"]
    assert {f.attrs.get("Codegen") for f in after.functions.values()} == {"aone", "btwo", None}
    assert {b.op.name for b in after["main"].bindings} == {"nn.relu", "call"}
    assert {b.op.name for b in compiled["main"].bindings} == {"call_dps_packed"}
    assert len(compiled.attrs["external_mods"]) == 3
    for folder, file in {
        "prepare": "before_partition_2",
        "after_partition": "03_after_partition_2",
        "after_codegen": "02_after_codegen_1",
    }.items():
        assert [path.name for path in (tmp_path / folder).glob(f"*{file}.py")]


def test_a_pass_may_give_a_region_to_the_host() -> None:
    def small_regions_to_the_host(module: IRModule) -> IRModule:
        small = {n: f.with_attrs(Codegen="host") for n, f in module.functions.items() if len(f.bindings) == 1}
        return module.with_functions({**module.functions, **small})

    backend = FakeBackend("aone", ["add", "multiply"])
    executable = byoc_core.build(MODULE, [backend], passes={"after_partition": [small_regions_to_the_host]})
    assert set(outcomes(executable).values()) == {"host"}
    check_numbers(executable)


def test_a_pass_may_give_a_region_to_a_backend_that_was_not_asked() -> None:
    def other(module: IRModule) -> IRModule:
        return with_regions(module, "aone", lambda function: function.with_attrs(Codegen="host"))

    backend = FakeBackend("aone", None)
    built = byoc_core.build(MODULE, [backend], passes={"after_partition": [other]})
    assert set(outcomes(built).values()) == {"host"}

    def nobody(module: IRModule) -> IRModule:
        return with_regions(module, "aone", lambda function: function.with_attrs(Codegen="absent"))

    with pytest.raises(byoc_core.errors.BackendNotFoundError, match="backend `absent` is not installed"):
        byoc_core.build(MODULE, [backend], passes={"after_partition": [nobody]})


def test_what_a_pass_leaves_in_no_region_is_the_hosts() -> None:
    tail = R.parse("def main(x: R.Tensor((2, 4))):\n    y = R.nn.relu(x)\n    return y\n")["main"].bindings[0]

    def add_relu(module: IRModule) -> IRModule:
        main = module["main"]
        relu = replace(tail, operands=(main.results[0],))
        return module.with_function(replace(main, bindings=(*main.bindings, relu), results=relu.results))

    executable = byoc_core.build(MODULE, [FakeBackend("aone", None)], passes={"after_partition": [add_relu]})
    rows = [(row["op"], row["outcome"]) for row in executable.report_data["ops"]]
    assert rows.count(("nn.relu", "host")) == 1
    assert rows.count(("nn.relu", "aone")) == 1
    check_numbers(executable)


def test_debugging_sees_what_a_pass_made_of_regions() -> None:
    watcher = Watcher("watch")
    carved = carve_regions(MODULE, [FakeBackend("aone", None)], passes={"after_partition": [watcher]})
    assert list(carved.functions) == list(watcher.seen[0].functions)


def drop_bindings(module: IRModule) -> IRModule:
    return module.with_function(replace(module["main"], bindings=()))


def spoil(module: IRModule) -> IRModule:
    object.__setattr__(module["main"], "results", ())
    return module


def stumble(module: IRModule) -> IRModule:
    raise KeyError("gone")


@pytest.mark.parametrize("point", ["before_partition", "after_partition", "after_codegen"])
@pytest.mark.parametrize(
    ("transform", "problem"),
    [
        (drop_bindings, "returned an invalid module: function `main`"),
        (spoil, "changed a module in place. IR is frozen: a pass must return new objects."),
        (stumble, "raised KeyError: 'gone'"),
        (lambda module: None, "did not return a module; got NoneType, expected IRModule"),
    ],
)
def test_a_fault_of_a_users_pass_is_the_users(point: str, transform: Callable[..., Any], problem: str) -> None:
    module = R.parse(str(MODULE))
    with pytest.raises(PassError) as caught:
        byoc_core.build(module, [FakeBackend("aone", ["tanh"])], passes={point: [transform]})
    assert str(caught.value).startswith(f"pass `{transform.__name__}` (passes.{point}[0]): {problem}")


def test_an_error_of_byoc_passes_through_a_users_pass() -> None:
    def refuse(module: IRModule) -> IRModule:
        raise CodegenError("here", "is not wanted")

    with pytest.raises(CodegenError, match="here: is not wanted"):
        byoc_core.build(MODULE, [], passes={"after_partition": [refuse]})


def rename(backend: str) -> Rewrite:
    return lambda module: with_regions(module, backend, lambda f: f.with_attrs(global_symbol=f"{f.name}_new"))


def drop_main_op(module: IRModule) -> IRModule:
    main = module["main"]
    return module.with_function(replace(main, bindings=tuple(replace(b) for b in main.bindings)))


def other_results(module: IRModule) -> IRModule:
    return with_regions(module, "aone", lambda f: replace(f, results=(*f.results, *f.results)))


def one_more(module: IRModule) -> IRModule:
    first = next(iter(module.functions.values()))
    return module.with_functions({**module.functions, "more": replace(first, name="more", attrs={})})


LAWS: list[tuple[str, Rewrite, str | None]] = [
    ("byoc_after_partition", drop_bindings, "changed function `main`, not annotated for the backend"),
    ("byoc_after_codegen", stumble, "raised KeyError: 'gone'"),
    ("byoc_after_partition", one_more, "added, removed or reordered functions"),
    ("byoc_after_partition", drop_main_op, "changed function `main`, not annotated for the backend"),
    ("byoc_after_partition", rename("btwo"), "changed function `btwo_main_0`, not annotated for the backend"),
    ("byoc_after_partition", rename("aone"), "changed the annotations of function `aone_main_0`"),
    ("byoc_after_partition", other_results, "changed the parameters or results of function `aone_main_0`"),
    ("byoc_after_codegen", drop_main_op, None),
    ("byoc_after_codegen", one_more, "changed functions"),
    (
        "byoc_after_codegen",
        lambda module: module.with_attrs(external_functions={}),
        "changed the record of compiled functions",
    ),
    ("byoc_after_codegen", lambda module: module.with_attrs(extra=1), "added or removed attributes of the module"),
    (
        "byoc_after_codegen",
        lambda module: module.with_attrs(external_mods=module.attrs["external_mods"][:1]),
        "added or removed compiled functions",
    ),
]


def backends(hook: str, rewrite: Rewrite) -> list[FakeBackend]:
    return [RewritingBackend("aone", {hook: rewrite}, ops=["add", "nn.relu"]), FakeBackend("btwo", ["multiply"])]


@pytest.mark.parametrize(("hook", "rewrite", "fault"), LAWS)
def test_a_plugins_pass_keeps_to_what_is_its_own(hook: str, rewrite: Rewrite, fault: str | None) -> None:
    if fault is None:  # equal functions are no change
        check_numbers(byoc_core.build(MODULE, backends(hook, rewrite), strict=True))
        return
    with pytest.raises(HookError) as caught:
        byoc_core.build(MODULE, backends(hook, rewrite), strict=True)
    assert str(caught.value).startswith(f"plugin `aone`, hook `{hook}`: {fault}")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        executable = byoc_core.build(MODULE, backends(hook, rewrite))
    check_numbers(executable)
    assert f"hook `{hook}`: {fault}" in str(told[0].message)
    (failure,) = executable.report_data["hook_failures"]
    assert (failure["backend"], failure["hook"]) == ("aone", hook)
    assert set(outcomes(executable).values()) == {"aone", "btwo", "host"}, "without the hook's change"


def test_another_backends_module_is_not_replaced() -> None:
    def swap(module: IRModule) -> IRModule:
        first, *rest = module.attrs["external_mods"]
        return module.with_attrs(external_mods=(first, *(_Copy(other) for other in rest)))

    class _Copy:
        def __init__(self, inner: RuntimeModule) -> None:
            self.function_names = inner.function_names

    with pytest.raises(HookError, match="replaced a module with a function of another backend, `btwo_main_0`"):
        byoc_core.build(MODULE, backends("byoc_after_codegen", swap), strict=True)


def test_a_plugin_may_rewrite_its_regions_and_replace_its_modules() -> None:
    exp = R.parse("def f(x: R.Tensor((2, 4))):\n    y = R.exp(x)\n    return y\n")["f"].bindings[0].op

    def to_exp(module: IRModule) -> IRModule:
        def change(function: Function) -> Function:
            bindings = [replace(b, op=exp) if b.op.name == "nn.relu" else b for b in function.bindings]
            return replace(function, bindings=tuple(bindings))

        return with_regions(module, "aone", change)

    executable = byoc_core.build(
        MODULE, [RewritingBackend("aone", {"byoc_after_partition": to_exp}, ops=["nn.relu", "exp"])], strict=True
    )
    assert outcomes(executable)["exp"] == "aone"
    found = byoc_core.VirtualMachine(executable)["main"](X)
    np.testing.assert_allclose(found, np.tanh(2 * np.exp(X)) ** 2, rtol=1e-6)

    def again(module: IRModule) -> IRModule:
        return module.with_attrs(external_mods=tuple(map(_marked, module.attrs["external_mods"])))

    def _marked(module: Any) -> Any:
        if getattr(module, "backend", "") != "aone":
            return module
        made = type(module)(module.backend, list(module.functions.values()), module._context)
        made.mark = "replaced"
        return made

    replaced = byoc_core.build(
        MODULE, [RewritingBackend("aone", {"byoc_after_codegen": again}, ops=["nn.relu"])], strict=True
    )
    assert [getattr(module, "mark", None) for module in replaced.modules] == [None, "replaced"]
    check_numbers(replaced)


def test_a_plugin_that_changes_regions_in_place_is_named() -> None:
    def spoil_region(module: IRModule) -> IRModule:
        object.__setattr__(module["aone_main_0"], "results", ())
        return module

    with pytest.raises(byoc_core.errors.PluginError, match=r"`byoc_after_partition`: changed a module in place"):
        byoc_core.build(R.parse(str(MODULE)), backends("byoc_after_partition", spoil_region))
