"""Exported C with states of moving length, and of sizes decided by the first run: buffers of the caller."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import byoc_core
import numpy as np
import numpy.typing as npt
import pytest
from byoc_core import VirtualMachine, parse
from byoc_core.artifact import Executable
from byoc_core.artifact.plain_c.plain_model import plain_model
from byoc_core.dims import evaluate
from byoc_core.errors import CodegenError, OptionsError
from byoc_core.native.static_build import build_shared
from byoc_core.transform import KeepStates
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="libraries are loaded as on Linux")

NDArray = npt.NDArray[Any]
OK, FAILED, BAD_SIZE, BAD_ARGUMENT, STATE_FULL = 0, -1, -2, -3, -5

DECODER = """
def main(x: R.Tensor((1, "n", 4)), past: R.Tensor((1, "p", 4)), count: R.Tensor((), "int64")):
    present = R.concat(past, x, axis=1)
    turned = R.permute_dims(present, axes=(0, 2, 1))
    scores = R.matmul(x, turned)
    weights = R.nn.softmax(scores)
    y = R.matmul(weights, present)
    next_count = R.add(count, R.const(1, "int64"))
    return y, present, next_count
"""
BATCHES = """
def main(x: R.Tensor(("n", "b", 3)), past: R.Tensor(("p", "b", 3)), total: R.Tensor(("b", 3))):
    scaled = R.multiply(x, R.const(0.5, "float32"))
    present = R.concat(past, scaled, axis=0)
    rows = R.sum(x, axis=(0,))
    new_total = R.add(total, rows)
    everything = R.sum(present, axis=(0,))
    y = R.add(everything, new_total)
    return y, present, new_total
"""
TWO = """
def main(x: R.Tensor(("n", 4)), keys: R.Tensor(("p", 4)), values: R.Tensor(("q", 4))):
    k = R.multiply(x, R.const(2, "float32"))
    v = R.negative(x)
    new_keys = R.concat(keys, k, axis=0)
    new_values = R.concat(values, v, x, axis=0)
    a = R.sum(new_keys, axis=(0,))
    b = R.max(new_values, axis=(0,))
    y = R.add(a, b)
    return y, new_keys, new_values
"""
MODELS: dict[str, tuple[str, tuple[tuple[str, str], ...]]] = {
    "decoder": (DECODER, (("past", "output1"), ("count", "output2"))),
    "batches": (BATCHES, (("past", "output1"), ("total", "output2"))),
    "two lengths": (TWO, (("keys", "output1"), ("values", "output2"))),
}
LARGEST = {"n": 6, "p": 40, "q": 80, "b": 3}


def executable_of(name: str) -> Executable:
    text, pairs = MODELS[name]
    return byoc_core.build(KeepStates(pairs)(parse(text)), ["ccompiler"], fallback="error")


class Sequence:
    """The structure of a sequence with its buffers, grown when a run says so."""

    def __init__(self, model: Exported, capacity: int) -> None:
        self.model = model
        self.structure = model.structure.from_buffer(bytearray(b"\xa5" * ctypes.sizeof(model.structure)))
        assert model.library.model_init_state(ctypes.byref(self.structure)) == OK
        self.buffers: dict[str, NDArray] = {}
        for member, spec in model.buffers.items():
            self.place(member, np.full(capacity, -1, spec.dtype))

    def place(self, member: str, buffer: NDArray) -> None:
        self.buffers[member] = buffer
        setattr(self.structure, member, buffer.ctypes.data)
        setattr(self.structure, self.model.capacities[member], buffer.size)

    def fork(self) -> Sequence:
        twin = Sequence(self.model, 1)
        ctypes.memmove(ctypes.byref(twin.structure), ctypes.byref(self.structure), ctypes.sizeof(self.structure))
        for member, buffer in self.buffers.items():
            twin.place(member, buffer.copy())
        return twin

    def lengths(self) -> dict[str, int]:
        return {name: getattr(self.structure, member) for name, member in self.model.names.lengths.items()}

    def run(self, x: NDArray, sizes: Mapping[str, int], *, grows: bool = True) -> tuple[int, NDArray]:
        """Run the function; with ``grows``, buffers are replaced by larger buffers as often as necessary."""
        model = self.model
        known = {**sizes, **self.lengths()}
        (spec,) = model.function.outputs
        y = np.full([evaluate(dim, known) for dim in spec.shape], np.nan, np.float32)
        nbytes = model.library.model_workspace_size(*(ctypes.c_int64(known[name]) for name in model.names.sizes))
        memory = np.full(max(nbytes, 1) + 64, 0xFF, np.uint8)
        workspace = ctypes.c_void_p(memory[-memory.ctypes.data % 64 :].ctypes.data)
        inputs = (ctypes.c_int64 * 4)(x.ctypes.data, *(sizes[name] for name in model.names.input_sizes))
        outputs = (ctypes.c_int64 * 1)(y.ctypes.data)
        while True:
            before = bytes(self.structure), [buffer.tobytes() for buffer in self.buffers.values()]
            status = int(model.library.model_run(inputs, outputs, ctypes.byref(self.structure), workspace))
            if status in (STATE_FULL, BAD_SIZE, BAD_ARGUMENT):  # nothing has run
                assert before == (bytes(self.structure), [buffer.tobytes() for buffer in self.buffers.values()])
            if status != STATE_FULL or not grows:
                return status, y
            for member, buffer in self.buffers.items():
                larger = np.full(2 * buffer.size + 1, -1, buffer.dtype)
                larger[: buffer.size] = buffer
                self.place(member, larger)

    def values(self) -> list[NDArray]:
        """Return copies of the values."""
        found, names = [], self.model.names
        decided = {name: getattr(self.structure, member) for name, member in names.decided.items()}
        known = {**self.lengths(), **decided}
        for slot, member in zip(self.model.function.states, names.states, strict=True):
            spec = self.model.function.params[slot.param]
            shape = [evaluate(dim, known) for dim in spec.shape]
            own = self.buffers.get(member)
            flat = np.frombuffer(getattr(self.structure, member), spec.dtype) if own is None else own
            found.append(flat[: int(np.prod(shape, dtype=int))].reshape(shape).copy())
        return found


class Exported:
    """An exported model of one function, loaded in this process."""

    def __init__(self, executable: Executable, folder: Path, max_sizes: Mapping[str, int] | None = None) -> None:
        (self.function,) = executable.program.functions
        if max_sizes is not None:
            max_sizes = {name: max_sizes[name] for name in self.function.input_symbols}
        model = plain_model(executable, "model", max_sizes)
        self.header = model.files["model.h"].decode()
        path = folder / f"model_{len(list(folder.iterdir()))}.so"
        path.write_bytes(build_shared(model.files, model.options))
        self.library = ctypes.CDLL(str(path))
        self.library.model_workspace_size.restype = ctypes.c_int64
        names = self.names = model.names[self.function.name]
        specs = [self.function.params[slot.param] for slot in self.function.states]
        rows = list(zip(names.states, names.capacities, specs, strict=True))
        self.buffers = {member: spec for member, capacity, spec in rows if capacity is not None}
        self.capacities = {member: str(capacity) for member, capacity, _ in rows}
        fields: list[tuple[str, Any]] = []
        for member, capacity, spec in rows:
            if capacity is None:
                nbytes = np.dtype(spec.dtype).itemsize * int(np.prod([int(str(dim)) for dim in spec.shape], dtype=int))
                fields.append((member, ctypes.c_int64 * (nbytes // 8)))
            else:
                fields += [(member, ctypes.c_void_p), (capacity, ctypes.c_int64)]
        fields += [(member, ctypes.c_int64) for member in (*names.lengths.values(), *names.decided.values())]
        self.structure: Any = type("State", (ctypes.Structure,), {"_fields_": fields})


def draw(step: int, shape: tuple[int, ...]) -> NDArray:
    return np.random.default_rng(step).integers(-3, 4, shape).astype(np.float32) / 4


SHAPES: dict[str, tuple[int | str, ...]] = {"decoder": (1, "n", 4), "batches": ("n", "b", 3), "two lengths": ("n", 4)}


def x_for(name: str, step: int, sizes: Mapping[str, int]) -> NDArray:
    return draw(step, tuple(sizes[dim] if isinstance(dim, str) else dim for dim in SHAPES[name]))


@pytest.fixture(scope="module")
def exports(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, bool], tuple[Exported, VirtualMachine]]:
    found = {}
    for name in MODELS:
        executable = executable_of(name)
        for is_bounded in (False, True):
            folder = tmp_path_factory.mktemp("exported")
            exported = Exported(executable, folder, LARGEST if is_bounded else None)
            found[name, is_bounded] = exported, VirtualMachine(executable)
    return found


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_random_sequences_of_runs_equal_the_machine(
    data: st.DataObject, exports: dict[tuple[str, bool], tuple[Exported, VirtualMachine]]
) -> None:
    name, is_bounded = data.draw(st.sampled_from(sorted(exports)))
    exported, machine = exports[name, is_bounded]
    batch = data.draw(st.integers(1, 3))
    pairs = [(Sequence(exported, data.draw(st.integers(1, 40))), machine.new_state("main"))]
    for step in range(data.draw(st.integers(1, 8))):
        sequence, state = data.draw(st.sampled_from(pairs))
        action = data.draw(st.sampled_from(("run", "run", "run", "new", "fork", "reset")))
        if action == "new":
            pairs.append((Sequence(exported, 1), machine.new_state("main")))
        elif action == "fork":
            pairs.append((sequence.fork(), state.fork()))
        elif action == "reset":
            assert exported.library.model_init_state(ctypes.byref(sequence.structure)) == OK
            state.reset()
        else:
            sizes = {"n": data.draw(st.integers(1, 5)), "b": batch}
            x = x_for(name, step, sizes)
            status, y = sequence.run(x, sizes)
            assert status == OK
            np.testing.assert_array_equal(y, machine.run("main", {"x": x}, state=state))
            for have, key in zip(sequence.values(), state.names, strict=True):
                np.testing.assert_array_equal(have, state[key])


def test_lengths_beyond_the_largest_size_and_full_buffers_change_nothing(
    exports: dict[tuple[str, bool], tuple[Exported, VirtualMachine]],
) -> None:
    exported, _ = exports["decoder", True]
    sequence = Sequence(exported, 8)
    statuses = []
    for step in range(9):
        sizes = {"n": 6 if step else 2}
        statuses.append(sequence.run(x_for("decoder", step, sizes), sizes, grows=step > 1)[0])
    # 8 elements are two rows; then rows 2 + 7 * 6 = 44 exceed the largest length of 40.
    assert statuses == [OK, STATE_FULL, *[OK] * 7]
    assert sequence.lengths() == {"p": 44}
    assert sequence.run(x_for("decoder", 0, {"n": 1}), {"n": 1})[0] == BAD_SIZE
    assert sequence.run(x_for("decoder", 0, {"n": 7}), {"n": 7})[0] == BAD_SIZE
    assert "#define MODEL_STATE_PAST_SIZE 184\n" in exported.header  # 40 + 6 rows of four elements
    for damaged in (-1, 2**62):
        sequence.structure.p = damaged
        y = (ctypes.c_int64 * 1)(sequence.buffers["past"].ctypes.data)
        inputs = (ctypes.c_int64 * 2)(sequence.buffers["past"].ctypes.data, 1)
        workspace = ctypes.c_void_p(np.zeros(4096, np.uint8).ctypes.data // 64 * 64)
        assert exported.library.model_run(inputs, y, ctypes.byref(sequence.structure), workspace) == BAD_SIZE


def test_the_first_run_decides_sizes(exports: dict[tuple[str, bool], tuple[Exported, VirtualMachine]]) -> None:
    exported, _ = exports["batches", False]
    sequence = Sequence(exported, 64)
    assert sequence.structure.b == -1
    assert sequence.run(x_for("batches", 0, {"n": 2, "b": 2}), {"n": 2, "b": 2})[0] == OK
    assert (sequence.structure.b, sequence.structure.p) == (2, 2)
    assert sequence.run(x_for("batches", 0, {"n": 2, "b": 3}), {"n": 2, "b": 3})[0] == BAD_SIZE
    assert sequence.run(x_for("batches", 0, {"n": 1, "b": 2}), {"n": 1, "b": 2})[0] == OK
    setattr(sequence.structure, "past", None)  # noqa: B010 - a field of ctypes
    assert sequence.run(x_for("batches", 0, {"n": 1, "b": 2}), {"n": 1, "b": 2})[0] == BAD_ARGUMENT


@pytest.mark.parametrize("name", MODELS)
def test_the_test_program_runs_from_the_first_values(name: str, tmp_path: Path) -> None:
    executable = executable_of(name)
    (function,) = executable.program.functions
    largest = {symbol: LARGEST[symbol] for symbol in function.input_symbols}
    for folder, sizes in (("bounded", largest), ("free", None)):
        executable.export_c(tmp_path / folder, max_sizes=sizes)
        command = ["make", "-C", str(tmp_path / folder), "-s", "check"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        assert "right" in done.stdout
        timed = subprocess.run([tmp_path / folder / "model_test", "50"], capture_output=True, text=True, check=False)
        assert timed.returncode == 0


def test_refusals(tmp_path: Path) -> None:
    executable = executable_of("decoder")
    with pytest.raises(OptionsError, match="no maximum for p"):
        executable.export_c(tmp_path, max_sizes={"n": 4})
    with pytest.raises(CodegenError, match="keeps values from call to call"):
        executable.export_wheel(tmp_path, name="model", version="1")
