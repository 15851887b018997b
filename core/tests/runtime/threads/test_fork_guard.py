"""Modules unusable in a forked process raise a clear error there."""

from __future__ import annotations

import os
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pytest
from byoc_core.errors import ExecutionError
from byoc_core.runtime import CallTraits, PackedFunction, RuntimeModule
from byoc_core.runtime.hooks import RuntimeInfo
from byoc_core.runtime.serial import SerialModule
from byoc_core.runtime.threads.fork_guard import UnforkedModule

pytestmark = [
    pytest.mark.interpreter,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="a system without fork"),
]


class Doubling(RuntimeModule):
    """A doubling engine counting preparations."""

    prepared = 0

    @property
    def type_key(self) -> str:
        return "npu"

    @property
    def function_names(self) -> tuple[str, ...]:
        return ("double",)

    def prepare(self) -> None:
        self.prepared += 1

    def find_function(self, name: str) -> PackedFunction:
        def double(x: npt.NDArray[np.float32], out: npt.NDArray[np.float32]) -> None:
            np.multiply(x, 2, out=out)

        return PackedFunction(name, double)

    def call_traits(self, name: str) -> CallTraits:
        return CallTraits(strided=True)

    @property
    def constants(self) -> Mapping[str, npt.NDArray[np.float32]]:
        return {}


def in_child(module: RuntimeModule) -> str:
    """Return the result of a call in a forked child, or raise the error."""
    receiver, sender = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            text = str(call(module))
        except ExecutionError as error:
            text = str(error)
        os.write(sender, text.encode())
        os._exit(0)
    os.close(sender)
    with os.fdopen(receiver) as stream:
        text = stream.read()
    os.waitpid(child, 0)
    return text


def call(module: RuntimeModule) -> float:
    out = np.zeros(1, np.float32)
    module.get_function("double")(np.ones(1, np.float32), out)
    return float(out[0])


def test_a_call_in_a_forked_process_is_an_error_and_none_elsewhere() -> None:
    inner = Doubling()
    module = UnforkedModule(inner)
    assert (module.type_key, module.function_names, module.call_traits("double").strided) == ("npu", ("double",), True)
    module.prepare()
    assert (call(module), inner.prepared) == (2.0, 1)
    assert in_child(Doubling()) == "2.0"
    assert in_child(module) == (
        "module of runtime `npu`: cannot be called in a forked process. "
        "Load the artifact in the child, or start processes with the method `spawn` or `forkserver`."
    )
    assert call(module) == 2.0


def test_a_module_made_in_the_child_works_there() -> None:
    receiver, sender = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(sender, str(call(UnforkedModule(Doubling()))).encode())
        os._exit(0)
    os.close(sender)
    with os.fdopen(receiver) as stream:
        assert stream.read() == "2.0"
    os.waitpid(child, 0)


def test_a_module_may_be_neither_re_entrant_nor_fork_safe() -> None:
    assert "cannot be called in a forked process" in in_child(SerialModule(UnforkedModule(Doubling())))
    assert RuntimeInfo("npu").fork_safe
