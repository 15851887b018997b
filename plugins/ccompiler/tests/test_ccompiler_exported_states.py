"""Exported C with states: a structure of the caller holds the values kept from call to call."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path
from typing import Any

import byoc_core
import numpy as np
import numpy.typing as npt
import pytest
from byoc_core import FunctionBuilder, VirtualMachine, parse
from byoc_core.artifact import Executable
from byoc_core.artifact.plain_c.plain_model import plain_model
from byoc_core.errors import CodegenError, OptionsError
from byoc_core.ir import IRModule, StateVariable, Value, declare_states, tensor
from byoc_core.native.static_build import build_shared
from byoc_core.runtime.module import TensorSpec
from byoc_core.vm import VMFunction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="libraries are loaded as on Linux")

NDArray = npt.NDArray[Any]
OK, BAD_ARGUMENT, BAD_CONSTANTS = 0, -3, -4
AVERAGE = """
@R.function
def main(x: R.Tensor(("n", 8)), h: R.Tensor((1, 8)), count: R.Tensor((), "int64")):
    R.func_attr({"input_names": ("x", "h", "count"), "output_names": ("y", "g", "next_count"),
                 "states": (("h", "g"), ("count", "next_count"))})
    total = R.sum(x, axis=(0,), keepdims=True)
    a = R.multiply(total, R.const(0.25, "float32"))
    b = R.multiply(h, R.const(0.75, "float32"))
    g = R.add(a, b)
    y = R.add(x, g)
    next_count = R.add(count, R.const(1, "int64"))
    return y, g, next_count
"""


def pointer_to(array: NDArray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


class Exported:
    """An exported model of one function, loaded in this process.

    Args:
        executable: the model.
        folder: holds the library.
        constants: the form of the constants.
    """

    def __init__(self, executable: Executable, folder: Path, constants: str = "array") -> None:
        (self.function,) = executable.program.functions
        model = plain_model(executable, "model", None, constants)
        path = folder / f"model_{constants}_{len(list(folder.iterdir()))}.so"
        path.write_bytes(build_shared(model.files, model.options))
        self.library = ctypes.CDLL(str(path))
        self.library.model_workspace_size.restype = ctypes.c_int64
        self.names = model.names[self.function.name]
        self.constants: tuple[Any, ...] = ()
        if constants == "file":
            data = model.files[model.constants.file_name]
            memory = np.zeros(len(data) + 64, np.uint8)
            start = -memory.ctypes.data % 64
            memory[start : start + len(data)] = np.frombuffer(data, np.uint8)
            self.constants = (pointer_to(memory[start:]),)
            self._memory = memory
        fields = [(f"s{k}", _array_type(self.function.params[s.param])) for k, s in enumerate(self.function.states)]
        self.structure: Any = type("State", (ctypes.Structure,), {"_fields_": fields})

    def new_state(self) -> Any:
        """Return a structure with the values before the first call."""
        state = self.structure.from_buffer(bytearray(b"\xa5" * ctypes.sizeof(self.structure)))
        assert self.library.model_init_state(ctypes.byref(state), *self.constants) == OK
        return state

    def values(self, state: Any) -> list[NDArray]:
        """Return copies of the values of a structure."""
        specs = [self.function.params[slot.param] for slot in self.function.states]
        arrays = (np.ctypeslib.as_array(getattr(state, f"s{k}")) for k in range(len(specs)))
        return [array.reshape(_sizes(spec)).copy() for array, spec in zip(arrays, specs, strict=True)]

    def run(self, state: Any, inputs: list[NDArray], outputs: list[NDArray], sizes: tuple[int, ...] = ()) -> int:
        """Run the function, and return the status."""
        nbytes = self.library.model_workspace_size(*map(ctypes.c_int64, sizes))
        memory = np.full(nbytes + 64, 0xFF, np.uint8)
        workspace = pointer_to(memory[-memory.ctypes.data % 64 :])
        pointers = [array.ctypes.data for array in inputs]
        given_inputs = (ctypes.c_int64 * (len(pointers) + len(sizes) + 1))(*pointers, *sizes)
        given_outputs = (ctypes.c_int64 * (len(outputs) + 1))(*(array.ctypes.data for array in outputs))
        state_pointer = None if state is None else ctypes.byref(state)
        found: int = self.library.model_run(given_inputs, given_outputs, state_pointer, workspace, *self.constants)
        return found


def _array_type(spec: TensorSpec) -> Any:
    kind: Any = {"float32": ctypes.c_float, "int64": ctypes.c_int64}[spec.dtype]
    return kind * int(np.prod(_sizes(spec), dtype=int))


def _sizes(spec: TensorSpec) -> tuple[int, ...]:
    return tuple(int(str(dim)) for dim in spec.shape)


def outputs_for(function: VMFunction, sizes: dict[str, int]) -> list[NDArray]:
    shapes = [[dim if isinstance(dim, int) else sizes[str(dim)] for dim in spec.shape] for spec in function.outputs]
    return [np.zeros(shape, spec.dtype) for shape, spec in zip(shapes, function.outputs, strict=True)]


def test_two_sequences_of_one_model_equal_the_machine(tmp_path: Path) -> None:
    executable = byoc_core.build(parse(AVERAGE), ["ccompiler"], fallback="error")
    exported, machine = Exported(executable, tmp_path), VirtualMachine(executable)
    states = exported.new_state(), exported.new_state()
    kept = machine.new_state("main"), machine.new_state("main")
    rng = np.random.default_rng(1)
    for step in range(6):
        which, n = step % 2, 1 + step
        x = rng.standard_normal((n, 8)).astype(np.float32)
        outputs = outputs_for(exported.function, {"n": n})
        assert exported.run(states[which], [x], outputs, (n,)) == OK
        np.testing.assert_array_equal(outputs[0], machine.run("main", {"x": x}, state=kept[which]))
        for state, twin in zip(states, kept, strict=True):
            if step:
                h, count = exported.values(state)
                np.testing.assert_array_equal(h, twin["h"])
                assert count == twin["count"]


def exchange(initial: NDArray) -> IRModule:
    """Return a function whose two states change places: one new value is made elsewhere, and copied."""
    fb = FunctionBuilder("main")
    x, a, b = (fb.param(name, tensor((2, 3))) for name in "xab")
    (total,) = fb.bind("add", [b, x], {}).results
    (product,) = fb.bind("multiply", [a, x], {}).results
    (new_b,) = fb.bind("negative", [a], {}).results
    digest = fb.constants.add(initial).digest
    module = IRModule({"main": fb.finish(product, total, new_b)}, fb.constants)
    named = module["main"].with_attrs(input_names=("x", "a", "b"), output_names=("y", "next_a", "next_b"))
    states = [StateVariable("a", "next_a", digest), StateVariable("b", "next_b")]
    return module.with_function(declare_states(named, states))


@pytest.mark.parametrize("constants", ["array", "object", "file"])
def test_initial_values_and_states_changing_places(constants: str, tmp_path: Path) -> None:
    initial = np.arange(6, dtype=np.float32).reshape(2, 3)
    executable = byoc_core.build(exchange(initial), ["ccompiler"], fallback="error")
    exported, machine = Exported(executable, tmp_path, constants), VirtualMachine(executable)
    state = exported.new_state()
    np.testing.assert_array_equal(exported.values(state)[0], initial)
    assert not exported.values(state)[1].any()
    for step in range(4):
        x = np.full((2, 3), step + 0.5, np.float32)
        outputs = outputs_for(exported.function, {})
        assert exported.run(state, [x], outputs) == OK
        np.testing.assert_array_equal(outputs[0], machine["main"](x))
        for name, value in zip("ab", exported.values(state), strict=True):
            np.testing.assert_array_equal(value, machine.state("main")[name])
    assert exported.run(None, [x], outputs) == BAD_ARGUMENT
    assert exported.library.model_init_state(None, *exported.constants) == BAD_ARGUMENT
    if constants == "file":
        exported._memory[:] = 0
        assert exported.library.model_init_state(ctypes.byref(state), *exported.constants) == BAD_CONSTANTS


@settings(
    max_examples=max(5, settings().max_examples // 20), suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_random_functions_of_states_equal_the_machine(data: st.DataObject, tmp_path: Path) -> None:
    fb = FunctionBuilder("main")
    type_ = tensor((3, 5))
    values: list[Value] = [fb.param(name, type_) for name in ("x", "a", "b")]
    for _ in range(data.draw(st.integers(2, 7))):
        op = data.draw(st.sampled_from(("add", "subtract", "maximum", "negative", "nn.relu")))
        count = 2 if op in ("add", "subtract", "maximum") else 1
        values += fb.bind(op, [data.draw(st.sampled_from(values)) for _ in range(count)], {}).results
    results = [data.draw(st.sampled_from(values[3:])) for _ in range(3)]
    module = IRModule({"main": fb.finish(*results)}, fb.constants)
    named = module["main"].with_attrs(input_names=("x", "a", "b"), output_names=("y", "c", "d"))
    states = [StateVariable("a", "c"), StateVariable("b", "d")]
    kept = module.with_function(declare_states(named, states))
    executable = byoc_core.build(kept, ["ccompiler"])
    if {found.type_key for found in executable.modules} != {"csource"}:
        return  # a result without any op
    exported, machine = Exported(executable, tmp_path), VirtualMachine(executable)
    state = exported.new_state()
    for step in range(3):
        x = np.random.default_rng(step).integers(-3, 4, (3, 5)).astype(np.float32)
        outputs = outputs_for(exported.function, {})
        assert exported.run(state, [x], outputs) == OK
        np.testing.assert_array_equal(outputs[0], machine["main"](x))
        for name, value in zip("ab", exported.values(state), strict=True):
            np.testing.assert_array_equal(value, machine.state("main")[name])


@pytest.mark.parametrize("constants", ["auto", "file"])
def test_the_test_program_sets_the_state(constants: str, tmp_path: Path) -> None:
    initial = np.arange(6, dtype=np.float32).reshape(2, 3) + 1
    byoc_core.build(exchange(initial), ["ccompiler"]).export_c(tmp_path / "model", constants=constants)
    command = ["make", "-C", str(tmp_path / "model"), "-s", "check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "y: 6 elements, largest error 0" in done.stdout
    assert "right" in done.stdout


def test_refusals(tmp_path: Path) -> None:
    executable = byoc_core.build(exchange(np.zeros((2, 3), np.float32)), ["ccompiler"])
    with pytest.raises(OptionsError) as caught:
        executable.export_c(tmp_path, places_arguments=True)
    assert str(caught.value) == (
        "option `places_arguments`: places no states. States lie in a structure of the caller."
    )
    with pytest.raises(CodegenError) as refused:
        executable.export_wheel(tmp_path, name="model", version="1")
    assert str(refused.value) == (
        "function `main`: keeps values from call to call; a wheel has functions of arrays. Export C, or call an "
        "artifact by a session."
    )
