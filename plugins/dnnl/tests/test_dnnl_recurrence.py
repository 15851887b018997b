"""Recurrent layers: every cell against float64 with a running error bound, refusals, models in all stages."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import byoc_core
import numpy as np
import onnx
import pytest
from byoc_core.backend.hooks import Rejection, Support
from byoc_core.errors import ArtifactError
from byoc_core.ir import Value, tensor
from byoc_core.runtime.hooks import LoadContext
from byoc_dnnl.engine import DnnlModule, open_engine
from byoc_dnnl.engine import Region as BuiltRegion
from byoc_dnnl.handles import Engine
from byoc_dnnl.plan import Step
from byoc_dnnl.program import Program
from byoc_dnnl.runtime import byoc_load_module, byoc_save_module
from hypothesis import example, given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from plugins.dnnl.tests.dnnl_region import NDArray, Region
from plugins.dnnl.tests.running_error import Bounded, sum_of_products

NUM_GATES = {"nn.rnn": 1, "nn.gru": 3, "nn.lstm": 4}
DIRECTIONS = ("forward", "reverse", "bidirectional")
CELLS: list[tuple[str, dict[str, Any]]] = [
    ("nn.rnn", {}),
    ("nn.gru", {"linear_before_reset": False}),
    ("nn.gru", {"linear_before_reset": True}),
    ("nn.lstm", {}),
]


def evaluate(
    op: str, direction: str, x: Bounded, weights: Sequence[NDArray], states: Sequence[Bounded], **attrs: Any
) -> list[Bounded]:
    """Return the results of a layer."""
    wide = [weight.astype(np.float64) for weight in weights]
    every: list[list[Bounded]] = []
    last: list[list[Bounded]] = []
    for index in range(len(wide[0])):
        state = [Bounded(value.value[index], value.error[index]) for value in states]
        given = wide[0][index], wide[1][index], *np.split(wide[2][index], 2)
        times = range(len(x.value))
        found = {}
        for time in reversed(times) if direction == "reverse" or index == 1 else times:
            state = _step(op, Bounded(x.value[time], x.error[time]), state, *given, **attrs)
            found[time] = state[0]
        every.append([found[time] for time in times])
        last.append(state)
    together = _stack([_stack([of[time] for of in every]) for time in range(len(x.value))])
    return [together, *(_stack([of[number] for of in last]) for number in range(len(states)))]


def _step(
    op: str,
    x: Bounded,
    state: list[Bounded],
    w: NDArray,
    r: NDArray,
    of_input: NDArray,
    of_state: NDArray,
    *,
    linear_before_reset: bool = False,
) -> list[Bounded]:
    """Return the states after a step, by the formulas of ONNX's operators."""
    hidden, size = state[0], r.shape[1]

    def gate(number: int) -> Bounded:
        rows = slice(number * size, (number + 1) * size)
        return sum_of_products([(x, w[rows]), (hidden, r[rows])], [of_input[rows], of_state[rows]])

    if op == "nn.rnn":
        return [gate(0).tanh()]
    if op == "nn.lstm":
        enter, leave, keep = (gate(number).sigmoid() for number in range(3))
        cell = keep * state[1] + enter * gate(3).tanh()
        return [leave * cell.tanh(), cell]
    update, reset, rows = gate(0).sigmoid(), gate(1).sigmoid(), slice(2 * size, 3 * size)
    entered = sum_of_products([(x, w[rows])], [of_input[rows]])
    if linear_before_reset:
        new = (entered + reset * sum_of_products([(hidden, r[rows])], [of_state[rows]])).tanh()
    else:
        new = (entered + sum_of_products([(reset * hidden, r[rows])], [of_state[rows]])).tanh()
    return [update.complement() * new + update * hidden]


def _stack(parts: Sequence[Bounded]) -> Bounded:
    return Bounded(np.stack([part.value for part in parts]), np.stack([part.error for part in parts]))


class Layer:
    """A region of a single recurrent layer with constant weights, and numbers for the region.

    Args:
        op: the op.
        sizes: the sizes ``(T, N, I, H)``.
        direction: the op's.
        kept: the results returned by the region.
        weight_scale: the weights' standard deviation; by default 0.5 over the square root of a state's size.
        attrs: more attributes of the op.
    """

    def __init__(
        self,
        op: str,
        sizes: tuple[int, int, int, int],
        direction: str = "forward",
        kept: Sequence[int] | None = None,
        weight_scale: float | None = None,
        **attrs: object,
    ) -> None:
        steps, batch, inputs, hidden = sizes
        directions, width = 1 + (direction == "bidirectional"), NUM_GATES[op] * hidden
        num_states = 1 + (op == "nn.lstm")
        self.op, self.direction, self.attrs = op, direction, attrs
        self.region = Region(seed=sum(sizes))
        shapes = [(directions, width, inputs), (directions, width, hidden), (directions, 2 * width)]
        scale = np.float32(0.5 * hidden**-0.5 if weight_scale is None else weight_scale)
        self.weights = [self.region.draw(*shape) * scale for shape in shapes]
        state = (directions, batch, hidden)
        self.inputs = [self.region.draw(steps, batch, inputs), *(self.region.draw(*state) for _ in range(num_states))]
        builder = self.region.builder
        x, *states = (builder.param(f"x{index}", tensor(x.shape)) for index, x in enumerate(self.inputs))
        operands: list[Value] = [x, *map(builder.const, self.weights), *states]
        results = builder.bind(op, operands, {"direction": direction, **attrs}).results
        self.kept = range(len(results)) if kept is None else kept
        self.region.finish(*(results[index] for index in self.kept))

    def oracle(self) -> list[Bounded]:
        """Return the expected results of the region."""
        x, *states = map(Bounded.exact, self.inputs)
        results = evaluate(self.op, self.direction, x, self.weights, states, **self.attrs)
        return [results[index] for index in self.kept]

    def check(self) -> None:
        """Check the region against the oracle; the bound must not be vacuous."""
        for found, exact in zip(self.region.run(*self.inputs), self.oracle(), strict=True):
            assert found.shape == exact.value.shape
            assert (np.abs(found - exact.value) <= exact.error).all(), np.abs(found - exact.value).max()
            assert exact.error.max() < 0.01


def test_layers_are_taken() -> None:
    for op, attrs in CELLS:
        region = Layer(op, (3, 2, 5, 4), **attrs).region
        (binding,) = region.function.bindings
        assert isinstance(region.judge(binding), Support)


@settings(max_examples=max(40, settings().max_examples // 2))
@given(
    cell=st.sampled_from(CELLS),
    direction=st.sampled_from(DIRECTIONS),
    sizes=st.tuples(*(st.integers(1, most) for most in (5, 4, 40, 40))),
    results=st.sets(st.integers(0, 2), min_size=1),
)
@example(cell=CELLS[3], direction="bidirectional", sizes=(1, 1, 1, 1), results={0, 1, 2})
@example(cell=CELLS[3], direction="bidirectional", sizes=(3, 2, 20, 130), results={0, 1, 2})
@example(cell=CELLS[0], direction="reverse", sizes=(3, 3, 33, 257), results={0, 1, 2})
def test_any_sizes(
    cell: tuple[str, dict[str, Any]], direction: str, sizes: tuple[int, int, int, int], results: set[int]
) -> None:
    op, attrs = cell
    kept = sorted(results & set(range(3 if op == "nn.lstm" else 2))) or [0]
    Layer(op, sizes, direction, kept, **attrs).check()


@pytest.mark.parametrize(("op", "attrs"), CELLS)
def test_long_sequences(op: str, attrs: dict[str, Any]) -> None:
    """With small weights a step shrinks its input, so errors of many steps do not add up."""
    Layer(op, (300, 1, 24, 48), weight_scale=0.02, **attrs).check()


@pytest.mark.parametrize(("op", "attrs"), CELLS)
@pytest.mark.parametrize("hidden", [20, 260])
@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf, 3e38])
def test_what_is_not_finite_goes_as_far_as_the_op_lets_it(
    op: str, attrs: Mapping[str, Any], hidden: int, number: float
) -> None:
    layer = Layer(op, (4, 2, 5, hidden), "bidirectional", **attrs)
    layer.inputs[0][2, 0, 3] = number
    with np.errstate(all="ignore"):
        exact = layer.oracle()
    for found, wanted in zip(layer.region.run(*layer.inputs), exact, strict=True):
        np.testing.assert_array_equal(np.isnan(found), np.isnan(wanted.value))


def _programs(layer: Layer) -> dict[int, Program]:
    """Return a layer's programs for one and for two threads, with right results."""
    executable = byoc_core.build(layer.region.ir, backends=["dnnl"], fallback="error")
    (name,) = executable.modules[0].function_names
    built = executable.modules[0].get_function(name).impl
    assert isinstance(built, BuiltRegion)
    for number in (1, 2):
        results = byoc_core.VirtualMachine(executable, num_threads=number)["f"](*layer.inputs)
        for found, exact in zip(results, layer.oracle(), strict=True):
            assert (np.abs(found - exact.value) <= exact.error).all()
    return {key[0]: program for key, program in built.programs.items() if isinstance(program, Program)}


def test_weights_are_packed_once_for_all_numbers_of_threads() -> None:
    programs = _programs(Layer("nn.lstm", (6, 2, 16, 160)))
    arrays = [{id(array) for array in program.arrays.values() if array.nbytes > 2**15} for program in programs.values()]
    assert len(arrays) == 2
    assert len(arrays[0]) == 2
    assert arrays[0] == arrays[1]


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_two_threads_take_a_long_sequence_by_blocks(direction: str) -> None:
    if open_engine().openmp is None:
        pytest.skip("no OpenMP")
    programs = _programs(Layer("nn.lstm", (6, 1, 16, 256), direction))
    assert "nn.lstm by products of matrices  ref" in str(programs[1])
    assert "nn.lstm  brgemm" in str(programs[2])


@pytest.mark.parametrize("number", [1, 2])
def test_a_machine_runs_layers_once_which_generate_code_when_they_run_first(number: int) -> None:
    layer = Layer("nn.lstm", (6, 1, 16, 64))
    executable = byoc_core.build(layer.region.ir, backends=["dnnl"], fallback="error")
    machine = byoc_core.VirtualMachine(executable, num_threads=number)
    (name,) = executable.modules[0].function_names
    built = executable.modules[0].get_function(name).impl
    assert isinstance(built, BuiltRegion)
    (program,) = built.programs.values()
    assert isinstance(program, Program)
    assert program.num_frames == 1  # a call's, that waits for the next
    for found, exact in zip(machine["f"](*layer.inputs), layer.oracle(), strict=True):
        assert (np.abs(found - exact.value) <= exact.error).all()


@pytest.mark.parametrize(
    ("implementation", "expected"),
    [
        ("x64:gemm:jit", True),
        ("gemm:jit:f32", True),
        ("x64:gemm_s8u8s32:jit", True),
        ("brgemm:avx512_core", False),
        ("brgconv_1x1:avx512_core", False),
    ],
)
def test_what_generates_code_when_it_runs_first_is_told_by_its_name(implementation: str, expected: bool) -> None:
    desc: Any = SimpleNamespace(implementation=implementation)
    assert Step("it", desc, {}).generates_when_run == expected


def _refusal(region: Region) -> str:
    (binding,) = region.function.bindings
    answer = region.judge(binding)
    assert isinstance(answer, Rejection)
    return answer.text


def test_products_without_generated_code_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Engine, "isa", 0)
    region = Layer("nn.gru", (2, 1, 4, 4), linear_before_reset=False).region
    assert _refusal(region) == "`nn.gru`: oneDNN has only a reference implementation"


def test_relu_is_refused() -> None:
    region = Layer("nn.rnn", (2, 1, 4, 4), activation="relu").region
    assert _refusal(region) == "`nn.rnn`: oneDNN 3.2 gives 0 for NaN"


def _parameters(*more: tuple[tuple[int, ...], str]) -> Region:
    """Return a GRU with weights as inputs."""
    region = Region()
    shapes: list[tuple[tuple[int, ...], str]] = [
        (shape, "float32") for shape in ((2, 3, 5), (1, 12, 5), (1, 12, 4), (1, 24), (1, 3, 4))
    ]
    operands = [region.builder.param(f"x{i}", tensor(*given)) for i, given in enumerate([*shapes, *more])]
    results = region.builder.emit("nn.gru", *operands)
    assert isinstance(results, tuple)
    return region.finish(*results)


def test_weights_that_are_no_constants_are_refused() -> None:
    text = "`nn.gru`: weights other than constants are not reordered for oneDNN"
    assert _refusal(_parameters()) == text


def test_lengths_are_refused() -> None:
    assert _refusal(_parameters(((3,), "int32"))) == "`nn.gru`: oneDNN runs all sequences of a batch to full length"


def test_sizes_that_do_not_fit_are_refused() -> None:
    """The names of symbols permit different sizes; the type rule leaves the decision to a call."""
    region = Region()
    x, state = region.builder.param("x", tensor((3, "n", 5))), region.builder.param("h", tensor((1, "m", 4)))
    weights = [region.builder.const(region.draw(*shape)) for shape in ((1, 12, 5), (1, 12, 4), (1, 24))]
    results = region.builder.emit("nn.gru", x, *weights, state)
    assert isinstance(results, tuple)
    refusal = _refusal(region.finish(*results))
    assert "not all sizes of the symbols are compatible: " in refusal
    assert "operand `initial_h`: axis 1 has size 2; got (1, 2, 4), expected 3 as axis 1 of operand `x`" in refusal


def test_a_constant_of_another_size_is_refused() -> None:
    region = Region()
    x, state = region.builder.param("x", tensor((2, 3, 5))), region.builder.param("h", tensor((1, 3, 4)))
    flat = region.builder.const(region.draw(48))
    recurrence = region.builder.emit("reshape", flat, shape=(1, 12, 4))
    assert not isinstance(recurrence, tuple)
    constants = [region.builder.const(region.draw(*shape)) for shape in ((1, 12, 5), (1, 24))]
    results = region.builder.emit("nn.gru", x, constants[0], recurrence, constants[1], state)
    assert isinstance(results, tuple)
    module = region.finish(*results).module
    document = json.loads(byoc_save_module(module))
    (constant,) = (given for given in document["functions"][0]["constants"] if given["shape"] == [48])
    constant["shape"] = [50]
    digest = constant["digest"]
    constants_of = {**module.constants, digest: np.zeros(50, np.float32)}
    with pytest.raises(ArtifactError) as caught:
        byoc_load_module(json.dumps(document).encode(), LoadContext(constants=constants_of))
    assert "attribute `shape` holds 48 elements, operand `x` has 50" in str(caught.value)


def _model(op_type: str, direction: str, batch: int) -> tuple[onnx.ModelProto, list[list[NDArray]]]:
    """Return two layers in exporters' form, with or without a transposition in between, and the weights."""
    steps, width, hidden = 12, 24, 32
    directions, rows = 1 + (direction == "bidirectional"), NUM_GATES[f"nn.{op_type.lower()}"] * hidden
    region = Region(seed=1)
    nodes, weights, value, inputs = [], [], "x", width
    constants = [numpy_helper.from_array(np.array(a), name) for a, name in (([1], "axes"), ([0, 0, -1], "shape"))]
    for index in range(2):
        shapes = (directions, rows, inputs), (directions, rows, hidden), (directions, 2 * rows)
        weights.append([region.draw(*shape) * np.float32(0.02) for shape in shapes])
        names = [f"{name}{index}" for name in "WRB"]
        constants += map(numpy_helper.from_array, weights[-1], names)
        outputs = [f"every{index}", f"last{index}"]
        nodes.append(helper.make_node(op_type, [value, *names], outputs, hidden_size=hidden, direction=direction))
        inputs, value = directions * hidden, f"y{index}"
        if directions == 1:
            nodes.append(helper.make_node("Squeeze", [outputs[0], "axes"], [value]))
        else:
            nodes.append(helper.make_node("Transpose", [outputs[0]], [f"t{index}"], perm=[0, 2, 1, 3]))
            nodes.append(helper.make_node("Reshape", [f"t{index}", "shape"], [value]))
    declare = functools.partial(helper.make_tensor_value_info, elem_type=onnx.TensorProto.FLOAT)
    results = [declare(value, shape=[steps, batch, inputs]), declare(outputs[1], shape=[directions, batch, hidden])]
    graph = helper.make_graph(nodes, "layers", [declare("x", shape=[steps, batch, width])], results, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), weights


@pytest.mark.parametrize("op_type", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("batch", [1, 3])
def test_stacked_layers_of_a_model_are_one_region(op_type: str, direction: str, batch: int, tmp_path: Path) -> None:
    model, weights = _model(op_type, direction, batch)
    executable = byoc_core.build(byoc_core.from_onnx(model), backends=["dnnl"], fallback="error")
    (module,) = executable.modules
    assert isinstance(module, DnnlModule)
    titles = [line.split("  ")[0] for line in module.get_source().splitlines()[1:] if not line.startswith("pack")]
    op = f"nn.{op_type.lower()}"
    assert [title for title in titles if title != "reorder"] == [f"{op} by products of matrices"] * 2
    x = Region().draw(12, batch, 24)
    value, states = (
        Bounded.exact(x),
        [Bounded.exact(np.zeros((len(weights[0][0]), batch, 32)))] * (1 + (op == "nn.lstm")),
    )
    for of_layer in weights:
        every, last, *_ = evaluate(op, direction, value, of_layer, states)
        value = Bounded(*(part.swapaxes(1, 2).reshape(12, batch, -1) for part in (every.value, every.error)))
    path = tmp_path / "model.byoc"
    executable.save(path)
    for machine in (byoc_core.VirtualMachine(executable), byoc_core.VirtualMachine(byoc_core.load(path))):
        for found, exact in zip(machine["main"](x), (value, last), strict=True):
            assert (np.abs(found - exact.value) <= exact.error).all()
            assert exact.error.max() < 0.01


def test_symbolic_sizes() -> None:
    region = Region()
    x = region.builder.param("x", tensor(("t", "n", 5)))
    state = region.builder.param("h", tensor((1, "n", 4)))
    weights = [region.draw(1, 12, 5), region.draw(1, 12, 4), region.draw(1, 24)]
    results = region.builder.emit("nn.gru", x, *map(region.builder.const, weights), state)
    assert isinstance(results, tuple)
    region.finish(*results)
    executable = byoc_core.build(region.ir, backends=["dnnl"], fallback="error")
    run = byoc_core.VirtualMachine(executable)["f"]
    for steps, batch in ((3, 1), (1, 2), (7, 3)):
        layer = Layer("nn.gru", (steps, batch, 5, 4), linear_before_reset=False)
        layer.weights = weights
        for found, exact in zip(run(*layer.inputs), layer.oracle(), strict=True):
            assert (np.abs(found - exact.value) <= exact.error).all()
