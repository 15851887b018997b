"""The registry of backends: names and objects, order, options, and checks of the results of hooks."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import fields, replace

import numpy as np
import pytest
from byoc_core.backend import BackendInfo, Backends, CodegenResult, CompileContext, Rejection, Status, Support
from byoc_core.backend.hooks import hookimpl
from byoc_core.errors import BackendNotFoundError, CodegenError, HookError, OptionsError, PluginError
from byoc_core.ir.constants import ConstantStore
from byoc_core.ir.module import Binding, Function, IRModule, Var
from byoc_core.opset.opdef import OpDef, OperandSpec
from byoc_core.opset.types import tensor
from byoc_core.pattern import CompositePattern, is_op, wildcard
from byoc_core.plugin import Catalog, PluginRecord
from byoc_core.runtime.module import PackedFunction, RuntimeModule
from pydantic import BaseModel, ConfigDict, Field, model_validator

pytestmark = pytest.mark.asks_for_plugins

RELU = OpDef("nn.relu", (OperandSpec("x"),), infer=lambda context: (context.operands[0],))
EMPTY = Backends(Catalog("byoc.backends", []))


class Options(BaseModel):
    """Options without a ban on extra keys."""

    model_config = ConfigDict(extra="allow")
    opt_level: int = Field(2, ge=0, le=3)
    fast: bool = False
    threads: int = 1

    @model_validator(mode="after")
    def agree(self) -> Options:
        if self.fast and self.opt_level == 0:
            raise ValueError("fast needs opt_level above 0")
        return self


class Module(RuntimeModule):
    """A module with functions of given names."""

    type_key = "npu"

    def __init__(self, *names: str) -> None:
        self._names = names

    @property
    def function_names(self) -> tuple[str, ...]:
        return self._names

    def find_function(self, name: str) -> PackedFunction:
        return PackedFunction(name, lambda *arrays: None)


def plugin_of(
    name: str = "npu", options: type[BaseModel] | None = None, **functions: Callable[..., object]
) -> types.SimpleNamespace:
    functions = {
        "byoc_backend_info": lambda: BackendInfo(name, options=options),
        "byoc_codegen": lambda functions: CodegenResult(None),
        **functions,
    }
    return types.SimpleNamespace(**{key: hookimpl(function) for key, function in functions.items()})


def relu_function(name: str) -> Function:
    x, y = Var("x", tensor((2,))), Var("y", tensor((2,)))
    attrs = {"Codegen": "npu", "global_symbol": f"{name}_lib"}
    return Function(name, (x,), (Binding((y,), RELU, (x,)),), (y,), attrs)


WHERE = "plugin `npu`, hook"
UNANSWERED = "neither compiled nor rejected function `f`"


def test_layouts_that_no_pass_reads_are_deprecated() -> None:
    with pytest.warns(DeprecationWarning, match=r"`BackendInfo\(preferred_layouts=...\)` is deprecated") as told:
        info = BackendInfo("npu", preferred_layouts=("NHWC",))
    assert [warning.filename for warning in told] == [__file__]
    assert info == BackendInfo("npu") == replace(info)
    assert "preferred_layouts" not in {field.name for field in fields(info)}


def test_a_plugin_object_works_like_an_installed_one() -> None:
    handle = EMPTY.get(plugin_of())
    assert (handle.name, handle.info().constants, handle.record.distribution) == ("npu", "embedded", "")
    assert EMPTY.get(handle) is handle
    assert handle.compile_status() == Status(ok=True)
    assert handle.patterns() == ()
    assert handle.ops() == ()
    assert handle.options() is None
    module = IRModule()
    assert handle.prepare(module, handle.context(module)) is module
    binding = relu_function("f").bindings[0]
    assert handle.supports(binding, handle.context()) == Rejection("no-rule", "backend `npu` takes no single ops")
    assert repr(handle) == "<backend npu>"


def test_hooks_that_are_there_are_used() -> None:
    pattern = CompositePattern("npu.relu", is_op("nn.relu")(wildcard()))
    other = IRModule(attrs={"prepared": True})
    handle = EMPTY.get(
        plugin_of(
            byoc_compile_status=lambda context: Status(ok=False, reason=f"no {context.backend}"),
            byoc_patterns=lambda: [pattern],
            byoc_ops=lambda: iter([RELU]),
            byoc_prepare=lambda module, context: other,
            byoc_supports=lambda binding: Support(),
            byoc_codegen=lambda functions: CodegenResult(
                Module("f_lib"), rejections={"g": Rejection("size", "too large")}
            ),
        )
    )
    context = handle.context()
    assert handle.compile_status().reason == "no npu"
    assert handle.patterns() == (pattern,)
    assert handle.ops() == (RELU,)
    assert EMPTY.ops([handle, handle]) == (RELU, RELU)
    assert handle.prepare(IRModule(), context) is other
    f, g = relu_function("f"), relu_function("g")
    assert handle.supports(f.bindings[0], context) == Support()
    assert handle.codegen([f, g], context).rejections["g"].text == "too large"


def message_of(error: type[Exception], call: Callable[[], object]) -> str:
    with pytest.raises(error) as caught:
        call()
    return str(caught.value)


def test_wrong_results_are_errors_that_name_the_hook() -> None:
    stranger = CompositePattern("gpu.relu", is_op("nn.relu")(wildcard()))
    handle = EMPTY.get(
        plugin_of(
            byoc_compile_status=lambda: Status(ok=False),
            byoc_patterns=lambda: [stranger],
            byoc_ops=lambda: ["relu"],
            byoc_prepare=lambda: None,
            byoc_supports=lambda: True,
            byoc_codegen=lambda: "module",
        )
    )
    context = handle.context()
    binding = relu_function("f").bindings[0]
    wrong = "returned a value of the wrong type"
    assert message_of(HookError, handle.compile_status) == (
        f"{WHERE} `byoc_compile_status`: returned a refusal without a reason"
    )
    assert message_of(HookError, handle.patterns) == (
        f"{WHERE} `byoc_patterns`: returned a pattern without the backend's name as a prefix; "
        "got `gpu.relu`, expected `npu.<what>`"
    )
    assert message_of(HookError, handle.ops) == (
        f"{WHERE} `byoc_ops`: returned among other values a value of the wrong type; got str, expected OpDef"
    )
    assert message_of(HookError, lambda: handle.prepare(IRModule(), context)) == (
        f"{WHERE} `byoc_prepare`: {wrong}; got NoneType, expected IRModule"
    )
    assert message_of(HookError, lambda: handle.supports(binding, context)) == (
        f"{WHERE} `byoc_supports`: {wrong} for op `nn.relu`; got bool, expected Support or Rejection"
    )
    assert message_of(HookError, lambda: handle.codegen([], context)) == (
        f"{WHERE} `byoc_codegen`: {wrong}; got str, expected CodegenResult"
    )
    assert message_of(HookError, lambda: EMPTY.get(plugin_of(byoc_backend_info=lambda: {"name": "npu"}))) == (
        f"plugin `SimpleNamespace`, hook `byoc_backend_info`: {wrong}; got dict, expected BackendInfo"
    )


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (
            CodegenResult(None),
            f"{UNANSWERED}; got no compiled function, expected a function named by the symbol `f_lib`",
        ),
        (
            CodegenResult(Module("f", "g")),
            f"{UNANSWERED}; got a module with f, g, expected a function named by the symbol `f_lib`",
        ),
        (
            CodegenResult({}),  # type: ignore[arg-type]
            "returned as `module` a value of the wrong type; got dict, expected RuntimeModule",
        ),
        (
            CodegenResult(None, rejections={"f": "too large"}),  # type: ignore[dict-item]
            "returned for function `f` a value of the wrong type; got str, expected Rejection",
        ),
    ],
)
def test_p29_codegen_answers_for_every_function(result: CodegenResult, text: str) -> None:
    handle = EMPTY.get(plugin_of(byoc_codegen=lambda: result))
    call = lambda: handle.codegen([relu_function("f")], handle.context())  # noqa: E731
    assert message_of(HookError, call) == f"{WHERE} `byoc_codegen`: {text}"


def test_an_object_without_the_required_hooks_is_refused() -> None:
    half = types.SimpleNamespace(byoc_backend_info=hookimpl(lambda: BackendInfo("npu")))
    assert message_of(PluginError, lambda: EMPTY.get(half)) == (
        "plugin `SimpleNamespace`: the plugin does not implement the hook `byoc_codegen`. "
        "The hook is required in this group, or `byoc_lower` in place of it."
    )


def test_s002_4_an_unknown_backend_names_what_to_install() -> None:
    registry = Backends(
        Catalog("byoc.backends", [PluginRecord(n, "byoc.backends", n, n, "1") for n in ("host", "npu")])
    )
    assert message_of(BackendNotFoundError, lambda: registry.get("ccompiler")) == (
        "byoc.backends: backend `ccompiler` is not installed; installed: host, npu; pip install byoc-ccompiler"
    )
    assert message_of(BackendNotFoundError, lambda: registry.get("nqu")).endswith(
        "installed: host, npu. Did you mean 'npu'?"
    )


def test_the_order_is_as_listed_and_the_host_comes_last() -> None:
    registry = Backends(Catalog("byoc.backends", []))
    a, b, host = (registry.get(plugin_of(name)) for name in ("a", "b", "host"))
    registry._handles["host"] = host
    assert registry.order([host, b, a]) == (b, a, host)
    assert registry.order([a, a, b.plugin])[0] is a
    assert [handle.name for handle in registry.order([a, b.plugin])] == ["a", "b", "host"]
    assert registry.order() == (host,)
    assert message_of(PluginError, lambda: registry.order([a, plugin_of("a")])) == (
        "backend `a`: is listed twice, for different plugins"
    )


def test_options_are_validated_and_converted() -> None:
    handle = EMPTY.get(plugin_of(options=Options))
    assert handle.options() == Options.model_validate({})
    assert handle.options({"opt_level": "3", "fast": "true"}) == Options.model_validate({"opt_level": 3, "fast": True})
    context = handle.context(options={"opt_level": 1})
    assert context.options == Options.model_validate({"opt_level": 1})
    assert handle.context(options=context.options).options is context.options


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (
            {"opt_levl": 3},
            "options.npu.opt_levl: is unknown; expected opt_level, fast, threads. Did you mean 'opt_level'?",
        ),
        (
            {"opt_level": 9},
            "options.npu.opt_level: has a bad value; got 9. Input should be less than or equal to 3.",
        ),
        (
            {"fast": True, "opt_level": 0},
            "options.npu: do not fit together. Value error, fast needs opt_level above 0.",
        ),
    ],
)
def test_bad_options_are_errors(given: Mapping[str, object], text: str) -> None:
    assert message_of(OptionsError, lambda: EMPTY.get(plugin_of(options=Options)).options(given)) == text


def test_a_backend_without_options_takes_none() -> None:
    assert message_of(OptionsError, lambda: EMPTY.get(plugin_of()).options({"x": 1})) == (
        "options.npu.x: is unknown; expected no option"
    )


def test_the_context_gives_constants() -> None:
    store = ConstantStore()
    constant = store.add(np.arange(3, dtype="float32"))
    context = EMPTY.get(plugin_of()).context(IRModule(constants=store))
    assert context.constant(constant) is store[constant.digest]
    assert message_of(CodegenError, lambda: CompileContext("npu").constant(constant)) == (
        f"backend `npu`: requests a constant absent from the module; got {constant.digest}"
    )
