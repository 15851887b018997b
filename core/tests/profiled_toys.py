"""Profiles of small models: a backend with parts, a backend without, and the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import byoc_core
import numpy as np
from byoc_core import script as R
from byoc_core.backend import CompileContext
from byoc_core.ir import Function, IRModule, Location
from byoc_core.profiling import Peaks, Profile
from byoc_core.runtime.module import PackedFunction
from byoc_core.runtime.parts import mark_part, ops_text

from core.tests.conftest import FakeBackend, FakeModule

__all__ = ["MODELS", "PEAKS", "PartsBackend", "profile_of", "with_locations"]

PEAKS = Peaks(1e11, 1e10)

PLAIN = """
def main(x: R.Tensor(("n", 4), "float32")):
    a = R.add(x, x)
    b = R.nn.relu(a)
    c = R.negative(b)
    d = R.tanh(c)
    e = R.sin(d)
    f = R.exp(e)
    g = R.add(f, b)
    return g
"""

LOOP = """
def main(n: R.Tensor((), "int64"), go: R.Tensor((), "bool"), x: R.Tensor(("m", 4), "float32")):
    def body(i: R.Tensor((), "int64"), more: R.Tensor(("m", 4), "float32")):
        a = R.add(more, more)
        b = R.nn.relu(a)
        c = R.tanh(b)
        stay = R.less(i, R.const(100, "int64"))
        return stay, c
    y = R.loop(n, go, x, regions=[body])
    z = R.negative(y)
    return z
"""

Model = tuple[str, Callable[[], tuple[Any, ...]], dict[str, int]]
MODELS: dict[str, Model] = {
    "plain": (PLAIN, lambda: (np.ones((3, 4), np.float32),), {"n": 3}),
    "loop": (LOOP, lambda: (np.array(5), np.array(True), np.ones((2, 4), np.float32)), {"m": 2}),
}
"""Texts, inputs, and the sizes of these inputs."""


class PartsModule(FakeModule):
    """A module with two parts in each call: all ops but the last, and the last; then a part without ops."""

    type_key = "parts"
    is_reporting = False

    def report_parts(self) -> None:
        self.is_reporting = True

    def find_function(self, name: str) -> PackedFunction:
        found, bindings = super().find_function(name), self.functions[name].bindings
        pairs = [(binding.op.name, binding.results[0].name) for binding in bindings]

        def run(*arrays: Any) -> None:
            found(*arrays)
            if self.is_reporting:
                for part, ops in (("first", pairs[:-1]), ("last", pairs[-1:]), ("", [])):
                    mark_part(f"{name}_{part}", ops_text(ops))

        return PackedFunction(name, run, found.signature)


class PartsBackend(FakeBackend):
    """A backend with parts."""

    def _module(self, functions: Sequence[Function], context: CompileContext) -> FakeModule:
        return PartsModule(self.name, functions, context)


def with_locations(module: IRModule) -> IRModule:
    """Return a module with a location for each op of ``main``."""
    main = module["main"]
    bindings = [replace(b, location=Location("net.onnx", f"node_{b.results[0].name}")) for b in main.bindings]
    return module.with_functions({"main": replace(main, bindings=tuple(bindings))})


def profile_of(model: str, backends: Sequence[object] | None = None, num_calls: int = 3) -> Profile:
    """Return the profile of a model of :data:`MODELS`; by default with parts for some of the regions."""
    text, inputs, _ = MODELS[model]
    if backends is None:
        backends = [PartsBackend("parts", ["add", "nn.relu", "negative"]), FakeBackend("whole", ["tanh", "sin"])]
    executable = byoc_core.build(with_locations(R.parse(text)), backends)
    return byoc_core.profile(executable, inputs(), num_calls=num_calls, warm_up=0, peaks=PEAKS, num_threads=1)
