"""Every hook documents caller, time, frequency, use of the result and errors; examples run."""

from __future__ import annotations

import ast
import textwrap
import types
from collections.abc import Callable
from types import ModuleType
from typing import Any

import byoc_core
import numpy as np
import pytest
from byoc_core import script as R
from byoc_core.backend import AxisOrders, backends, hook_specs
from byoc_core.backend import hooks as backend_hooks
from byoc_core.backend.hooks import BackendInfo, CodegenResult, Rejection, Support, hookimpl
from byoc_core.errors import ArtifactError
from byoc_core.frontend import hooks as importer_hooks
from byoc_core.frontend.importers import ImporterPlugin
from byoc_core.ir import IRModule
from byoc_core.ops import default_ops
from byoc_core.plugin import PluginRecord
from byoc_core.plugin.handle import PluginHandle
from byoc_core.plugin.specification import QUESTIONS, HookSpec
from byoc_core.runtime import LoadContext, RuntimeInfo
from byoc_core.runtime import hooks as runtime_hooks
from byoc_core.runtime.devices import DeviceTensor, MemoryDomain
from byoc_core.runtime.registry import RuntimeHandle

pytestmark = pytest.mark.asks_for_plugins

HOOKS = {hook.name: hook for hook in hook_specs()}
MODULE = R.parse("""
def main(x: R.Tensor((2, 3)), w: R.Tensor((2, 3))):
    s = R.add(x, w)
    p = R.multiply(s, x)
    t = R.tanh(p)
    return t
""")


def exported(module: ModuleType) -> set[str]:
    return {name for name in module.__all__ if name.startswith("byoc_")}


def test_all_hooks_are_listed() -> None:
    assert set(HOOKS) == exported(backend_hooks) | exported(runtime_hooks) | exported(importer_hooks)
    assert len(HOOKS) == len(hook_specs())
    assert [name for name, hook in HOOKS.items() if hook.required] == [
        "byoc_backend_info",
        "byoc_codegen",
        "byoc_runtime_info",
        "byoc_onnx_importers",
    ]


@pytest.mark.parametrize("hook", HOOKS.values(), ids=list(HOOKS))
def test_a_hook_answers_every_question(hook: HookSpec) -> None:
    assert tuple(hook.answers) == QUESTIONS
    assert all(answer.endswith((".", "``.")) for answer in hook.answers.values())
    assert ("Required." in hook.summary) is hook.required
    assert ("Optional" in hook.summary) is not hook.required


@pytest.mark.parametrize("hook", HOOKS.values(), ids=list(HOOKS))
def test_an_example_implements_its_hook_and_no_other(hook: HookSpec) -> None:
    defined = [node for node in ast.parse(hook.example).body if isinstance(node, ast.FunctionDef)]
    assert [function.name for function in defined] == [hook.name]
    assert {argument.arg for argument in defined[0].args.args} <= {argument.name for argument in hook.arguments}


def example_of(name: str) -> dict[str, Any]:
    """Return the names defined by a hook's example."""
    names: dict[str, Any] = {}
    exec(HOOKS[name].example, names)
    return names


def backend_of(**functions: Callable[..., object]) -> Any:
    """Return a backend `mynpu` made of hook functions; missing hooks are as small as possible."""
    plain = {
        "byoc_backend_info": hookimpl(lambda: BackendInfo("mynpu")),
        "byoc_codegen": hookimpl(lambda functions: CodegenResult(None)),
    }
    return types.SimpleNamespace(**(plain | functions))


def runtime_of(**functions: Callable[..., object]) -> RuntimeHandle:
    plain = {"byoc_runtime_info": hookimpl(lambda: RuntimeInfo("mynpu"))}
    record = PluginRecord("mynpu", "byoc.runtimes", "mynpu", "byoc-mynpu", "1.0")
    return RuntimeHandle(PluginHandle(record, types.SimpleNamespace(**(plain | functions)), runtime_hooks))


def claimed_ops(backend: object) -> list[str]:
    partitioned = byoc_core.partition(MODULE, [backend])
    regions = [f for f in partitioned.functions.values() if f.attrs.get("Codegen") == "mynpu"]
    return [binding.op.name for region in regions for binding in region.walk()]


def try_backend_info(hook: Callable[..., object]) -> None:
    handle = backends().get(backend_of(byoc_backend_info=hook))
    assert handle.info().constants == "lifted"
    assert handle.options({"opt_level": 3}) is not None


def try_compile_status(hook: Callable[..., object]) -> None:
    status = backends().get(backend_of(byoc_compile_status=hook)).compile_status()
    assert status.ok or "npucc" in status.reason


def try_prepare(hook: Callable[..., object]) -> None:
    handle = backends().get(backend_of(byoc_prepare=hook))
    text = "def main():\n    s = R.add(R.const(1.0), R.const(2.0))\n    return s\n"
    module = R.parse(text)
    assert len(handle.prepare(module, handle.context(module))["main"].bindings) < len(module["main"].bindings)


def try_after_partition(hook: Callable[..., object]) -> None:
    handle = backends().get(backend_of(byoc_after_partition=hook))
    module = R.parse("""
class M:
    def part(x: R.Tensor((2,))):
        R.func_attr({"Codegen": "mynpu", "global_symbol": "part"})
        a = R.tanh(x)
        b = R.tanh(x)
        c = R.add(a, b)
        return c
    def main(x: R.Tensor((2,))):
        y = part(x)
        a = R.tanh(y)
        b = R.tanh(y)
        c = R.add(a, b)
        return c
""")
    changed = handle.rewrite("byoc_after_partition", module, handle.context(module))
    assert [len(function.bindings) for function in changed.functions.values()] == [2, 4]


def try_after_codegen(hook: Callable[..., object]) -> None:
    fast = types.SimpleNamespace(type_key="mynpu", function_names=("part",))
    external = types.SimpleNamespace(type_key="mynpu", function_names=("part",), optimised=lambda: fast)
    compiled = {"part": MODULE["main"].with_attrs(Codegen="mynpu", global_symbol="part")}
    module = IRModule(attrs={"external_mods": (external,), "external_functions": compiled})
    handle = backends().get(backend_of(byoc_after_codegen=hook))
    changed = handle.rewrite("byoc_after_codegen", module, handle.context(module))
    assert changed.attrs["external_mods"] == (fast,)


def try_patterns(hook: Callable[..., object]) -> None:
    (pattern,) = backends().get(backend_of(byoc_patterns=hook)).patterns()
    assert str(pattern.pattern) == "nn.relu(nn.conv2d(*, *))"


def try_supports(hook: Callable[..., object]) -> None:
    assert claimed_ops(backend_of(byoc_supports=hook)) == ["add", "multiply"]


def try_partition(hook: Callable[..., object]) -> None:
    assert claimed_ops(backend_of(byoc_partition=hook)) == ["add", "multiply"]


def try_estimate(hook: Callable[..., object]) -> None:
    handle = backends().get(backend_of(byoc_estimate=hook))
    estimate = handle.estimate(MODULE["main"], handle.context(MODULE))
    assert estimate is not None
    assert estimate.seconds > 0


def try_layouts(hook: Callable[..., object]) -> None:
    handle = backends().get(backend_of(byoc_layouts=hook))
    other = "def main(x: R.Tensor((1, 3, 8, 8))):\n    y = R.nn.relu(x)\n    return y\n"
    assert handle.layouts(R.parse(other)["main"], handle.context(MODULE)) is None
    text = "def main(x: R.Tensor((1, 3, 8, 8)), w: R.Tensor((4, 3, 1, 1))):\n    y = R.nn.conv2d(x, w)\n    return y\n"
    last = (0, 2, 3, 1)
    assert handle.layouts(R.parse(text)["main"], handle.context(MODULE)) == (AxisOrders((last, None), (last,)),)


def try_schedules(hook: Callable[..., object]) -> None:
    handle = backends().get(backend_of(byoc_schedules=hook))
    assert handle.schedules(MODULE["main"], handle.context(MODULE)) == {}
    text = "def main(x: R.Tensor((2, 3)), w: R.Tensor((3, 4))):\n    y = R.matmul(x, w)\n    return y\n"
    assert handle.schedules(R.parse(text)["main"], handle.context(MODULE)) == {"y": ("tile=8", "tile=16")}


def try_generated_kernels(hook: Callable[..., object]) -> None:
    handle = backends().get(backend_of(byoc_generated_kernels=hook))
    function = MODULE["main"].with_attrs(global_symbol="part")
    (kernel,) = handle.generated_kernels([function], handle.context(MODULE))
    assert (kernel.function, kernel.ops) == ("part", ("add", "multiply", "tanh"))


def try_codegen(hook: Callable[..., object]) -> None:
    backend = backend_of(byoc_codegen=hook, byoc_partition=example_of("byoc_partition")["byoc_partition"])
    executable = byoc_core.build(MODULE, [backend])
    x, w = np.ones((2, 2, 3), np.float32)
    assert np.allclose(byoc_core.VirtualMachine(executable)["main"](x, w), np.tanh(2), rtol=1e-6)


def try_lower(hook: Callable[..., object]) -> None:
    backend = types.SimpleNamespace(
        byoc_backend_info=hookimpl(lambda: BackendInfo("mynpu", native=True)),
        byoc_supports=hookimpl(lambda binding: Support() if binding.op.name == "add" else Rejection("op", "no code")),
        byoc_lower=hook,
    )
    executable = byoc_core.build(MODULE, [backend], strict=True)
    assert [module.type_key for module in executable.modules].count("csource") == 1  # it was offloaded
    x, w = np.ones((2, 2, 3), np.float32)
    assert np.allclose(byoc_core.VirtualMachine(executable)["main"](x, w), np.tanh(2), rtol=1e-6)


def try_ops(hook: Callable[..., object]) -> None:
    registry = default_ops().extended(backends().get(backend_of(byoc_ops=hook)).ops())
    text = "def main(x: R.Tensor((2, 3))):\n    s = R.mynpu.swish(x)\n    return s\n"
    module = R.parse(text, ops=registry)
    assert str(module["main"].results[0].type) == str(MODULE["main"].results[0].type)
    x = np.linspace(-3, 3, 6, dtype=np.float32).reshape(2, 3)
    main = byoc_core.VirtualMachine(byoc_core.build(module, []))["main"]
    assert np.array_equal(main(x), x / (1 + np.exp(-x)))


def try_kernels(hook: Callable[..., object]) -> None:
    kernel: Any = runtime_of(byoc_kernels=hook).kernels()["mynpu.swish"]
    assert kernel(np.float32(0)) == 0


def try_runtime_info(hook: Callable[..., object]) -> None:
    assert runtime_of(byoc_runtime_info=hook).info().concurrency == "serial"


def try_runtime_status(hook: Callable[..., object]) -> None:
    status = runtime_of(byoc_runtime_status=hook).status()
    assert status.ok or "libnpu" in status.reason


def try_save_module(hook: Callable[..., object]) -> None:
    module = types.SimpleNamespace(get_source=lambda: "text")
    assert runtime_of(byoc_save_module=hook).save(module) == b"text"  # type: ignore[arg-type]


def try_load_module(hook: Callable[..., object]) -> None:
    runtime = runtime_of(byoc_load_module=hook)
    out = np.zeros(2)
    runtime.load(b'{"f": 3}', LoadContext()).get_function("f")(np.ones(2), out)
    assert out.tolist() == [3.0, 3.0]
    with pytest.raises(ArtifactError, match="is no payload of mynpu"):
        runtime.load(b"[1]", LoadContext())


def try_check_payload(hook: Callable[..., object]) -> None:
    runtime = runtime_of(byoc_check_payload=hook)
    assert runtime.check_payload(b"[1]", LoadContext())
    with pytest.raises(ArtifactError, match="is no payload of mynpu"):
        runtime.check_payload(b"[1", LoadContext())
    assert not runtime_of().check_payload(b"", LoadContext())


def try_load_file(hook: Callable[..., object]) -> None:
    runtime = runtime_of(byoc_load_file=hook)
    out = np.zeros(2)
    runtime.load_file(b"f = 3", "mynpu", LoadContext()).get_function("f")(out)
    assert out.tolist() == [3.0, 3.0]
    with pytest.raises(ArtifactError, match="line 2"):
        runtime.load_file(b"f = 3\ng", "mynpu", LoadContext())


def try_devices(hook: Callable[..., object]) -> None:
    (device,) = runtime_of(byoc_devices=hook).devices()
    assert (device.domain, device.index) == (MemoryDomain("mynpu", alignment=256), 0)
    x, out = np.arange(3, dtype=np.float32), np.zeros(3, np.float32)
    first, second = (DeviceTensor(device.allocate(64), offset, "float32", (3,)) for offset in (0, 16))
    stream = device.new_stream()
    device.copy_in(x, first, stream)
    device.copy_within(first, second, stream)
    device.copy_out(second, out, stream)
    device.wait(device.record(stream))
    assert out.tolist() == x.tolist()


def try_onnx_importers(hook: Callable[..., object]) -> None:
    record = PluginRecord("example", "byoc.importers", "example", "byoc-example", "1.0")
    plugin = ImporterPlugin(PluginHandle(record, types.SimpleNamespace(byoc_onnx_importers=hook), importer_hooks))
    assert plugin.operators == {("com.example", "Scale"), ("com.example", "CubeRoot")}
    assert [op.unstated for op in plugin.ops] == [()]


TRIALS: dict[str, Callable[[Any], None]] = {
    name.replace("try_", "byoc_"): trial for name, trial in list(globals().items()) if name.startswith("try_")
}


@pytest.mark.parametrize("name", HOOKS)
def test_an_example_does_what_the_core_asks_of_it(name: str) -> None:
    TRIALS[name](example_of(name)[name])


@pytest.mark.parametrize("module", [backend_hooks, runtime_hooks, importer_hooks])
def test_the_smallest_plugin_of_the_module_text_is_python(module: ModuleType) -> None:
    example = textwrap.dedent((module.__doc__ or "").rpartition("::\n")[2])
    compile(example, module.__name__, "exec")
