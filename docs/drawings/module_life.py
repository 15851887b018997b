"""The life of a runtime module: the calls of the core to a backend, its runtime and the module, as recorded.

The calls to the installed backend ``examplejson`` are recorded while a function is built, saved, loaded and run.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any
from unittest import mock

import byoc_core
import numpy as np
from byoc_core.plugin.handle import PluginHandle
from byoc_core.runtime.module import RuntimeModule
from byoc_examplejson.runtime import ExampleJsonModule

from docs.drawings.svg import COLOURS, GREY, Box, Canvas

__all__ = ["draw_module_life", "record_calls"]

MODEL = """
def main(x: R.Tensor((4, 4)), y: R.Tensor((4, 4))):
    s = R.add(x, y)
    z = R.multiply(s, y)
    return z
"""
HOOKS = {
    "byoc_codegen": "backend",
    "byoc_save_module": "runtime",
    "byoc_check_payload": "runtime",
    "byoc_load_module": "runtime",
}
"""The recorded hooks, by the half of the plugin."""

METHODS = ("find_signature", "call_traits", "find_function", "prepare")
"""The recorded methods of the module; the functions of the module are recorded as ``function(...)``."""

LANES = {"core": 230, "backend": 430, "module": 570, "runtime": 710}
TITLES = {"core": "byoc-core", "backend": "compile half", "module": "RuntimeModule", "runtime": "run half"}
STEP = 26

Call = tuple[str, str, str]
"""The phase, the called side, and the call."""


def record_calls() -> list[Call]:
    """Return the calls in order of time."""
    calls: list[Call] = []
    phase = ""

    def note(lane: str, call: str) -> None:
        calls.append((phase, lane, call))

    with _recorded(note), tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.byoc"
        phase = "build"
        executable = byoc_core.build(byoc_core.parse(MODEL), ["examplejson"])
        phase = "save"
        executable.save(path)
        phase = "load"
        loaded = byoc_core.load(path)
        phase = "VirtualMachine(...)"
        machine = byoc_core.VirtualMachine(loaded)
        ones = np.ones((4, 4), np.float32)
        phase = "first call"
        machine["main"](ones, ones)
        phase = "second call"
        machine["main"](ones, ones)
    return calls


def draw_module_life() -> str:
    """Return the drawing, as SVG."""
    canvas = Canvas("The life of a module", "The calls of the core to both halves of a plugin and to the module.")
    y = 76.0
    for phase, calls in groupby(record_calls(), key=lambda call: call[0]):
        rows = [(lane, call, len(list(same))) for (_, lane, call), same in groupby(calls)]
        area = Box(12, y - 20, LANES["runtime"] + 70, len(rows) * STEP + 8)
        canvas.rectangle(area, GREY if phase == "load" else "#f6f6f6", stroke="none")
        canvas.text(24, y, (phase,), anchor="start", is_bold=True)
        for lane, call, count in rows:
            canvas.arrow((LANES["core"], y), (LANES[lane], y), colour="#1d6fa5")
            canvas.text(LANES["core"] + 8, y - 8, (call + f"  x{count}" * (count > 1),), anchor="start")
            if call in ("byoc_codegen", "byoc_load_module"):
                canvas.arrow((LANES[lane], y + 8), (LANES["module"], y + 8), is_dashed=True)
            y += STEP
        y += 14
    for lane, x in LANES.items():
        canvas.box(x, 12, (TITLES[lane],), COLOURS[0] if lane == "module" else COLOURS[1], width=130)
        canvas.line((x, 36), (x, y), is_dashed=True)
    canvas.text(
        20, y + 16, ("Dashed arrows make the module. A gray phase mostly runs in another process.",), anchor="start"
    )
    return canvas.to_svg()


@contextlib.contextmanager
def _recorded(note: Callable[[str, str], None]) -> Iterator[None]:
    call_hook = PluginHandle.call

    def call(handle: PluginHandle, hook: str, **arguments: object) -> Any:
        if hook in HOOKS and handle.record.name == "examplejson":
            note(HOOKS[hook], hook)
        return call_hook(handle, hook, **arguments)

    with contextlib.ExitStack() as patches:
        patches.enter_context(mock.patch.object(PluginHandle, "call", call))
        for name in METHODS:
            method = _noting(getattr(ExampleJsonModule, name), name, note)
            patches.enter_context(mock.patch.object(ExampleJsonModule, name, method))
        yield


def _noting(method: Callable[..., Any], name: str, note: Callable[[str, str], None]) -> Callable[..., Any]:
    def noted(module: RuntimeModule, *arguments: Any) -> Any:
        note("module", name)
        found = method(module, *arguments)
        if name == "find_function":
            implementation = found.impl

            def run(*arrays: Any) -> Any:
                note("module", "function(inputs, outputs)")
                return implementation(*arrays)

            found.impl = run
        return found

    return noted
