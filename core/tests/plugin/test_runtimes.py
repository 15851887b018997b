"""The registry of runtimes: requests, checks, and messages about missing parts."""

from __future__ import annotations

import threading
import time
import types
from collections.abc import Callable
from typing import Literal

import numpy as np
import pytest
from byoc_core.errors import ArtifactError, HookError, PluginError, RuntimeNotFoundError
from byoc_core.plugin import Catalog, PluginRecord, describe_absence
from byoc_core.plugin.discovery import discover
from byoc_core.plugin.handle import PluginHandle
from byoc_core.runtime import hooks
from byoc_core.runtime.devices import MemoryDomain, find_device, label_of
from byoc_core.runtime.hooks import LoadContext, RuntimeInfo, hookimpl
from byoc_core.runtime.module import PackedFunction, RuntimeModule
from byoc_core.runtime.protected_device import ProtectedDevice
from byoc_core.runtime.registry import RuntimeHandle, Runtimes
from byoc_core.runtime.serial import SerialModule
from byoc_core.runtime.status import Status
from byoc_core.runtime.threads.fork_guard import UnforkedModule

from core.tests.plugin.conftest import Site

pytestmark = [pytest.mark.interpreter, pytest.mark.asks_for_plugins]


RECORD = PluginRecord("npu", "byoc.runtimes", "npu_run", "byoc-npu", "1.0")
WHERE = "plugin `npu` (byoc-npu 1.0)"
CONTEXT = LoadContext()


class NpuModule(RuntimeModule):
    """A module counting the threads inside."""

    type_key = "npu"
    function_names = ("f",)

    def __init__(self) -> None:
        self.inside = 0
        self.most_inside = 0

    def find_function(self, name: str) -> PackedFunction:
        def run(*arrays: object) -> None:
            self.inside += 1
            self.most_inside = max(self.most_inside, self.inside)
            time.sleep(0.01)
            self.inside -= 1

        return PackedFunction(name, run)


def handle_of(info: RuntimeInfo | None = None, **functions: Callable[..., object]) -> RuntimeHandle:
    plugin = types.SimpleNamespace(
        byoc_runtime_info=hookimpl(lambda: info or RuntimeInfo("npu")),
        **{name: hookimpl(function) for name, function in functions.items()},
    )
    return RuntimeHandle(PluginHandle(RECORD, plugin, hooks))


def test_hooks_get_what_they_name_and_results_come_back() -> None:
    seen: list[object] = []

    def load(type_key: str, payload: bytes, context: LoadContext) -> NpuModule:
        seen.extend([type_key, payload, context])
        return NpuModule()

    handle = handle_of(
        byoc_runtime_status=lambda: Status(ok=False, reason="no device", remedy="Plug one in."),
        byoc_save_module=lambda module: b"saved",
        byoc_load_module=load,
        byoc_load_file=lambda data: NpuModule(),
    )
    assert handle.type_key == "npu"
    assert handle.status() == Status(ok=False, reason="no device", remedy="Plug one in.")
    assert handle.save(NpuModule()) == b"saved"
    assert isinstance(handle.load(b"x", CONTEXT), NpuModule)
    assert seen == ["npu", b"x", CONTEXT]
    assert isinstance(handle.load_file(b"x", "npu", CONTEXT), NpuModule)


def test_what_a_runtime_leaves_out_is_said() -> None:
    handle = handle_of()
    assert handle.status() == Status(ok=True)
    with pytest.raises(PluginError) as caught:
        handle.save(NpuModule())
    assert (
        str(caught.value)
        == f"{WHERE}: cannot save modules. The runtime does not implement the hook `byoc_save_module`."
    )
    with pytest.raises(PluginError, match="cannot load modules"):
        handle.load(b"", CONTEXT)
    with pytest.raises(PluginError, match="cannot load files"):
        handle.load_file(b"", "npu", CONTEXT)


def test_wrong_results_are_errors_that_name_the_hook() -> None:
    handle = handle_of(
        byoc_save_module=lambda module: "text",
        byoc_load_module=lambda: None,
        byoc_runtime_status=lambda: Status(ok=False),
    )
    with pytest.raises(HookError) as caught:
        handle.save(NpuModule())
    assert str(caught.value) == (
        f"{WHERE}, hook `byoc_save_module`: returned a value of the wrong type; got str, expected bytes"
    )
    with pytest.raises(HookError) as caught:
        handle.load(b"", CONTEXT)
    assert str(caught.value) == (
        f"{WHERE}, hook `byoc_load_module`: returned a value of the wrong type; got NoneType, expected RuntimeModule"
    )
    with pytest.raises(HookError) as caught:
        handle.status()
    assert str(caught.value) == f"{WHERE}, hook `byoc_runtime_status`: returned a refusal without a reason"
    with pytest.raises(HookError) as caught:
        handle_of(RuntimeInfo("npu", formats=()))
    assert str(caught.value) == (f"{WHERE}, hook `byoc_runtime_info`: names no payload format; expected formats=(1,)")
    with pytest.raises(HookError) as caught:
        handle_of(RuntimeInfo("gpu"))
    assert str(caught.value) == (
        f"{WHERE}, hook `byoc_runtime_info`: returned a type key different from the entry point's name; "
        "got 'gpu', expected 'npu'"
    )


@pytest.mark.parametrize(("concurrency", "most"), [("reentrant", 4), ("serial", 1)])
def test_a_serial_runtime_gets_one_thread_at_a_time(concurrency: Literal["reentrant", "serial"], most: int) -> None:
    inner = NpuModule()
    handle = handle_of(
        RuntimeInfo("npu", concurrency=concurrency),
        byoc_load_module=lambda: inner,
        byoc_save_module=lambda module: repr(module is inner).encode(),
    )
    module = handle.load(b"", CONTEXT)
    assert isinstance(module, SerialModule) == (concurrency == "serial")
    assert handle.guard(module) is module
    assert handle.save(module) == b"True"
    assert (module.type_key, module.function_names, dict(module.constants)) == ("npu", ("f",), {})
    assert not module.get_source()
    function = module.get_function("f")
    threads = [threading.Thread(target=function) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert inner.most_inside == 1 if most == 1 else inner.most_inside > 1


@pytest.mark.parametrize("concurrency", ["reentrant", "serial"])
def test_a_runtime_that_is_not_fork_safe_gets_a_guard(concurrency: Literal["reentrant", "serial"]) -> None:
    inner = NpuModule()
    handle = handle_of(
        RuntimeInfo("npu", concurrency=concurrency, fork_safe=False),
        byoc_load_module=lambda: inner,
        byoc_save_module=lambda module: repr(module is inner).encode(),
    )
    module = handle.load(b"", CONTEXT)
    guard = module.inner if isinstance(module, SerialModule) else module
    assert isinstance(guard, UnforkedModule)
    assert guard.inner is inner
    assert handle.guard(module) is module
    assert handle.save(module) == b"True"


def test_a_freshly_compiled_module_is_guarded_too() -> None:
    fresh = NpuModule()
    registry = Runtimes(Catalog("byoc.runtimes", []))
    assert registry.guard(fresh) is fresh
    registry = Runtimes(Catalog("byoc.runtimes", [RECORD]))
    registry._handles["npu"] = handle_of(RuntimeInfo("npu", concurrency="serial"))
    assert isinstance(registry.guard(fresh), SerialModule)
    # A runtime that turns out to be broken does not get in the way of its compiler.
    broken = Runtimes(Catalog("byoc.runtimes", [RECORD]))
    assert broken.guard(fresh) is fresh
    assert broken.names() == ()


def test_devices_are_listed_once() -> None:
    calls = []

    def byoc_devices() -> list[ProtectedDevice]:
        calls.append(1)
        return [ProtectedDevice("npu", 0), ProtectedDevice("npu", 1), ProtectedDevice("npu.sram", 0)]

    handle = handle_of(byoc_devices=byoc_devices)
    assert [label_of(device) for device in handle.devices()] == ["npu:0", "npu:1", "npu.sram:0"]
    assert handle.devices() is handle.devices()
    assert calls == [1]
    assert find_device(handle.devices(), MemoryDomain("npu"), 1) is handle.devices()[1]
    assert find_device(handle.devices(), MemoryDomain("npu"), 2) is None
    assert find_device(handle.devices(), MemoryDomain("npu", 128), 1) is None
    assert handle_of().devices() == ()


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (7, "returned a value of the wrong type; got int, expected Sequence"),
        ([7], "returned a value of the wrong type; got int, expected Device"),
        ([ProtectedDevice("npu", 1), ProtectedDevice("npu", 1)], "returned two devices `npu:1`"),
    ],
)
def test_anything_but_devices_is_refused(returned: object, message: str) -> None:
    with pytest.raises(HookError) as caught:
        handle_of(byoc_devices=lambda: returned).devices()
    assert str(caught.value) == f"{WHERE}, hook `byoc_devices`: {message}"


def test_a_constant_that_is_not_there() -> None:
    array = np.zeros(2)
    context = LoadContext({"d": array}, source="m.byoc, module 0")
    assert context.constant("d") is array
    with pytest.raises(ArtifactError) as caught:
        context.constant("e")
    assert str(caught.value) == "m.byoc, module 0: cites a missing constant; got e"


def test_a_missing_runtime_names_what_to_install() -> None:
    registry = Runtimes(Catalog("byoc.runtimes", [RECORD]))
    with pytest.raises(RuntimeNotFoundError) as caught:
        registry.get("npx")
    assert str(caught.value) == ("byoc.runtimes: runtime `npx` is not installed; installed: npu. Did you mean 'npu'?")
    with pytest.raises(RuntimeNotFoundError) as caught:
        Runtimes(Catalog("byoc.runtimes", [])).get("gpu", source="artifact `m.byoc`", distribution="acme-gpu")
    assert str(caught.value) == (
        "byoc.runtimes: runtime `gpu` is not installed; installed: none. `pip install acme-gpu` provides "
        "the plugin, according to artifact `m.byoc`. Anybody can write any name into a file: check the publisher of "
        "the "
        "distribution first."
    )


HOSTILE_NAMES = [
    "numpy --index-url http://evil",
    "x; rm -rf ~",
    "-r/tmp/evil.txt",
    "git+https://evil/x",
    "x\ny",
    "x" * 101,
    "",
]


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_what_no_distribution_is_called_stands_in_no_command(name: str) -> None:
    with pytest.raises(RuntimeNotFoundError) as caught:
        Runtimes(Catalog("byoc.runtimes", [])).get("gpu", source="artifact `m.byoc`", distribution=name)
    assert str(caught.value) == (
        f"byoc.runtimes: runtime `gpu` is not installed; installed: none. Distribution {name!r} "
        "is named by artifact `m.byoc`; no distribution can have this name."
    )


def test_no_distribution_is_guessed_for_the_name_of_a_runtime_in_a_file() -> None:
    with pytest.raises(RuntimeNotFoundError) as caught:
        Runtimes(Catalog("byoc.runtimes", [])).get("gpu", source="artifact `m.byoc`")
    assert str(caught.value) == "byoc.runtimes: runtime `gpu` is not installed; installed: none"


GOOD = """
from byoc_core.runtime.hooks import RuntimeInfo, hookimpl

@hookimpl
def byoc_runtime_info():
    return RuntimeInfo("npu", file_formats=("npu", "npux"))
"""


def test_installed_runtimes_are_opened_on_demand(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.install("byoc-npu", "[byoc.runtimes]\nnpu = npu_run_good\n", {"npu_run_good": GOOD})
    site.install("byoc-gpu", "[byoc.runtimes]\ngpu = gpu_run_bad\n", {"gpu_run_bad": GOOD})
    monkeypatch.syspath_prepend(str(site.folder))
    registry = Runtimes(discover("byoc.runtimes", path=[str(site.folder)]))
    assert registry.names() == ("gpu", "npu")
    assert [record.version for record in registry.list()] == ["1.0", "1.0"]
    assert registry.get("npu") is registry.get("npu")
    assert registry.for_file_format("npux").type_key == "npu"
    # On the way it met the one that calls itself by another name: that is quarantined, and nothing else suffers.
    assert registry.names() == ("npu",)
    with pytest.raises(PluginError) as caught:
        registry.get("gpu")
    assert str(caught.value) == (
        "plugin `gpu` (byoc-gpu 1.0): cannot be used (broken): hook `byoc_runtime_info`: "
        "returned a type key different from the entry point's name; got 'npu', expected 'gpu'. "
        "Report this to the authors of byoc-gpu."
    )
    with pytest.raises(RuntimeNotFoundError) as caught:
        registry.for_file_format("npuy")
    assert str(caught.value) == (
        "byoc.runtimes: no installed runtime loads files of the format `npuy`; known formats: npu, npux. "
        "Did you mean 'npu' or 'npux'?"
    )


def test_names_of_absent_plugins_are_doubted_and_no_unknown_distribution_is_advised() -> None:
    known = ["dnnl", "host"]
    names = ("dnll", "DNNL", "tensorrt", "dnnl,host", "a b", "ccompiler", "ccompilr")
    said = {name: describe_absence("backend", name, known) for name in names}
    start = "is not installed; installed: dnnl, host"
    doubt = "Check the name: `byoc doctor` lists the installed plugins. byoc knows no distribution with this backend."
    assert said == {
        "dnll": (f"backend `dnll` {start}", "Did you mean 'dnnl'?"),
        "DNNL": (f"backend `DNNL` {start}", "Did you mean 'dnnl'?"),
        "tensorrt": (f"backend `tensorrt` {start}", doubt),
        "dnnl,host": (f"backend `dnnl,host` {start}", "Pass each name separately: 'dnnl', 'host'."),
        "a b": (f"backend `a b` {start}", doubt),
        "ccompiler": (f"backend `ccompiler` {start}; pip install byoc-ccompiler", None),
        "ccompilr": (f"backend `ccompilr` {start}", "Did you mean 'ccompiler'?"),
    }
    assert describe_absence("runtime", "ccompiler", known, is_claim=True) == (
        f"runtime `ccompiler` {start}",
        None,
    )
