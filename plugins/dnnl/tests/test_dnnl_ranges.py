"""Bounds: valid for all values of a graph; checks are few, with none superfluous."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, get_args

import byoc_core
import numpy as np
import pytest
from byoc_core.authoring.graph import GraphCodegen
from byoc_core.backend.hooks import CompileContext
from byoc_core.ir import Constant, Value, Var, tensor
from byoc_core.ops import default_ops
from byoc_core.opset.families import KERNELS
from byoc_core.opset.value_bounds import LARGEST
from byoc_core.runtime.graph.document import GraphFunction, GraphNode
from byoc_core.transform import evaluate_function
from byoc_dnnl.engine import Region as BuiltRegion
from byoc_dnnl.engine import open_engine
from byoc_dnnl.planner import Planner
from byoc_dnnl.precision import Precision
from byoc_dnnl.ranges import Ranges
from byoc_dnnl.ranges_constants import ConstantRanges
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.zoo import light
from benchmarks.zoo.accuracy import ALLOWED_FACTOR, LEAST_DIFFERENCE, ROUNDING, judge, open_session, run_peer
from plugins.dnnl.tests.dnnl_region import NDArray, Region, emit

SIZES = (2.0**-100, 1.0, 300.0, 2.0**20, 2.0**40, 2.0**85, LARGEST)
"""Magnitudes of inputs."""

BOUNDED = tuple(name for name, op in default_ops().items() if op.bound is not None)


_PIECES = ("depth_to_space", "dequantize", "space_to_depth", "split", "stack", "strided_slice", "tile")


class Drawn:
    """A random graph of ops with rules, on images of eight channels, with the needed constants."""

    def __init__(self, seed: int) -> None:
        self.generator = np.random.default_rng(seed)
        self.region = Region(seed=seed)
        self.shape = (1, 8, 4, 4)
        names = "xy"
        self.values: list[Value] = [self.region.builder.param(name, tensor(self.shape)) for name in names]
        for _ in range(int(self.generator.integers(1, 12))):
            self.grow()
        self.region.finish(*(value for value in self.values[len(names) :] if isinstance(value, Var)))
        context = CompileContext("dnnl", None, self.region.builder.constants)
        translation = GraphCodegen().translate([self.region.function], context)
        assert not translation.rejections
        (self.graph,) = translation.document.functions.values()
        self.constants = translation.constants

    def constant(self, *shape: int) -> Constant:
        size = 10.0 ** self.generator.integers(-3, 3)
        return self.region.builder.const((self.region.draw(*shape) * size).astype(np.float32))

    def choose(self) -> Value:
        return self.values[int(self.generator.integers(len(self.values)))]

    def grow(self) -> None:
        op = str(self.generator.choice(sorted(BOUNDED)))
        self.values.append(self._step(op, self.choose()))

    def _step(self, op: str, x: Value) -> Value:
        if op.startswith("nn.conv") and op.endswith("transpose"):
            return self._emit("nn.conv2d_transpose", x, self.constant(8, 8, 3, 3), padding=(1,) * 4)
        if op.startswith("nn.conv"):
            groups = int(self.generator.choice([1, 4]))
            given: dict[str, Any] = {"padding": (1,) * 4, "groups": groups}
            if self.generator.random() < 0.3:
                return self._emit("nn.conv2d", x, self.constant(3, 3, 8 // groups, 8), kernel_layout="HWIO", **given)
            return self._emit("nn.conv2d", x, self.constant(8, 8 // groups, 3, 3), **given)
        if op.startswith("nn.adaptive"):
            return self._emit("add", x, self._emit(f"{op[:-2]}2d", x, output_size=(1, 1)))
        if op == "nn.roi_max_pool":
            return self._emit("add", x, self._emit("max", self._regions(x), axis=(0,), keepdims=True))
        if "pool" in op:
            padding = {"padding": (1,) * 4, "pool_size": (3, 3), "strides": (1, 1)}
            return self._emit("nn.max_pool2d" if "max" in op else "nn.avg_pool2d", x, **padding)
        if op in _PIECES:
            return self._rearranged(op, x)
        if op in ("mean", "sum", "max", "min"):
            return self._emit("add", x, self._emit(op, x, axis=(1, 3), keepdims=True))
        if op in ("add", "subtract", "multiply", "maximum", "minimum"):
            other = self.choose() if self.generator.random() < 0.7 else self.constant(8, 1, 1)
            return self._emit(op, x, other)
        return self._emit(op, x, *self._operands(op, x), **self._attrs(op))

    def _rearranged(self, op: str, x: Value) -> Value:
        """Return the result of a shape-changing op, brought to the common shape."""
        emit = self.region.builder.emit
        if op == "split":
            parts = emit("split", x, sections=(3, 5), axis=1)
            assert isinstance(parts, tuple)
            made: Any = emit("concat", *reversed(parts), axis=1)
        elif op == "stack":
            made = emit("max", emit("stack", x, self.choose(), axis=0), axis=(0,))  # type: ignore[arg-type]
        elif op == "dequantize":
            integers = self.region.builder.const(self.generator.integers(-128, 128, self.shape).astype(np.int8))
            made = emit("dequantize", integers, self.constant(), self.region.builder.const(np.int8(3)))
        else:
            wider = emit("depth_to_space", x, block_size=2) if "depth" in op else emit("tile", x, repeats=(1, 1, 2, 1))
            assert isinstance(wider, Var)
            whole: dict[str, Any] = {"axes": (2,), "begin": (2,), "end": (6,), "strides": (1,)}
            made = (
                emit("space_to_depth", wider, block_size=2) if "depth" in op else emit("strided_slice", wider, **whole)
            )
        assert isinstance(made, Var)
        return made

    def _regions(self, x: Value) -> Value:
        """Return the largest elements of bins of three regions, some of them outside the image."""
        corners = self.generator.integers(-2, 6, (3, 4)).astype(np.float32)
        batches = np.zeros(3, np.int64)
        given = [self.region.builder.const(array) for array in (corners, batches)]
        return self._emit("nn.roi_max_pool", x, *given, size=self.shape[2:])

    def _operands(self, op: str, x: Value) -> Sequence[Value]:
        if op == "divide":
            return [self.constant(4)]
        if op == "nn.bias_add":
            return [self.constant(8)]
        if op == "nn.dense":
            return [self.constant(4, 4)]
        if op == "matmul":
            return [self.choose() if self.generator.random() < 0.5 else self.constant(4, 4)]
        if op == "concat":
            return [self.choose()]
        if op == "nn.prelu":
            return [self.constant(8, 1, 1)]
        if op in ("nn.layer_norm", "nn.rms_norm"):
            return [self.constant(4), self.constant(4)][: 1 + (op == "nn.layer_norm")]
        if op in ("nn.group_norm", "nn.instance_norm"):
            return [self.constant(8), self.constant(8)]
        if op == "nn.batch_norm":
            variance = self.region.builder.const(np.abs(self.region.draw(8)))
            return [self.constant(8), self.constant(8), self.constant(8), variance]
        return []

    def _attrs(self, op: str) -> dict[str, Any]:
        number = float(self.generator.standard_normal())
        given: dict[str, dict[str, Any]] = {
            "nn.leaky_relu": {"alpha": 3 * number},
            "nn.elu": {"alpha": abs(number)},
            "nn.swish": {"alpha": number},
            "clip": {"min": number - 1, "max": number} if number < 0 else {"min": 50.0},
            "nn.bias_add": {"axis": 1},
            "nn.softmax": {"axis": 1},
            "nn.lrn": {"size": 3},
            "nn.batch_norm": {"axis": 1},
            "nn.layer_norm": {"axes": (3,)},
            "nn.gelu": {"approximate": "tanh" if number < 0 else "none"},
            "concat": {"axis": 0},
            "permute_dims": {"axes": (0, 1, 3, 2)},
            "reshape": {"shape": self.shape},
            "broadcast_to": {"shape": self.shape},
            "roll": {"shift": (1,), "axis": (2,)},
            "nn.group_norm": {"groups": 2},
            "nn.resize": {"axes": (2, 3), "sizes": (4, 4), "scales": (1.0, 1.0), "method": "linear"},
            "nn.antialias_resize": {"axes": (2, 3), "sizes": (4, 4), "scales": (0.5, 1.5), "coordinates": "asymmetric"},
        }
        return given.get(op, {})

    def _emit(self, op: str, *operands: Value, **attrs: object) -> Value:
        if op == "concat":
            joined = emit(self.region, op, *operands, **attrs)
            op, operands, attrs = "mean", (joined,), {"axis": (0,), "keepdims": True}
        if op in ("squeeze", "expand_dims"):
            wider = emit(self.region, "expand_dims", *operands, axis=(0,))
            op, operands, attrs = "squeeze", (wider,), {"axis": (0,)}
        return emit(self.region, op, *operands, **attrs)

    def evaluate(self, inputs: Sequence[NDArray]) -> list[NDArray]:
        """Return all values by id, computed in the dtype of the inputs."""
        dtype = inputs[0].dtype
        constants = [self.constants[constant.digest] for constant in self.graph.constants]
        found = [*inputs, *(array if array.dtype.kind == "i" else array.astype(dtype) for array in constants)]
        with np.errstate(all="ignore"):
            for node, _ in self.nodes():
                made = KERNELS[node.op](*(found[id_] for id_ in node.inputs), **node.attrs)
                found.extend(map(np.asarray, made) if len(node.outputs) > 1 else [np.asarray(made)])
        return found

    def nodes(self) -> Iterator[tuple[GraphNode, Sequence[int]]]:
        """Yield nodes with the ids of their results."""
        id_ = len(self.graph.inputs) + len(self.graph.constants)
        for node in self.graph.nodes:
            yield node, range(id_, id_ + len(node.outputs))
            id_ += len(node.outputs)


def _inputs(generator: np.random.Generator, sizes: Sequence[float], shape: tuple[int, ...]) -> list[NDArray]:
    """Return inputs reaching the magnitudes."""
    made = [generator.choice([-1.0, -0.7, 0.0, 1e-3, 1.0], shape) * size for size in sizes]
    return [array.astype(np.float32) for array in made]


def _prove(drawn: Drawn, sizes: Sequence[float], precision: Precision = "float32") -> tuple[Ranges, list[int]]:
    """Return bounds from the bounds of the inputs, and the values with bounds."""
    constants = ConstantRanges(drawn.constants)
    found = Planner(open_engine(), drawn.graph, constants, strict=False, precision=precision).ranges
    for id_, size in enumerate(sizes):
        found.set_checked(id_, size)
    return found, [id_ for id_ in range(len(drawn.graph.values)) if found.bound(id_) <= LARGEST]


@given(st.integers(0, 2**32), st.tuples(st.sampled_from(SIZES), st.sampled_from(SIZES)))
@settings(max_examples=150, deadline=None)
def test_bounds_hold_for_all_that_is_computed(seed: int, sizes: tuple[float, float]) -> None:
    drawn = Drawn(seed)
    found, proved = _prove(drawn, sizes)
    for _ in range(3):
        inputs = _inputs(drawn.generator, sizes, drawn.shape)
        for values in (drawn.evaluate(inputs), drawn.evaluate([array.astype(np.float64) for array in inputs])):
            for id_ in proved:
                assert np.isfinite(values[id_]).all(), id_
                assert float(np.abs(values[id_].astype(np.float64)).max()) <= found.bound(id_), id_


@pytest.mark.parametrize("precision", get_args(Precision))
@given(st.integers(0, 2**32), st.tuples(st.sampled_from(SIZES[:5]), st.sampled_from(SIZES[:5])))
@settings(max_examples=12, deadline=None)
def test_bounds_hold_for_what_onednn_computes(precision: Precision, seed: int, sizes: tuple[float, float]) -> None:
    drawn = Drawn(seed)
    found, proved = _prove(drawn, sizes, precision)
    inputs = _inputs(drawn.generator, sizes, drawn.shape)
    values = drawn.evaluate(inputs)
    results = [np.empty_like(values[id_]) for _, id_ in drawn.graph.outputs]
    BuiltRegion(drawn.graph, drawn.constants, precision)(*inputs, *results)
    for (_, id_), array in zip(drawn.graph.outputs, results, strict=True):
        if id_ in proved:
            assert np.isfinite(array).all(), id_
            assert float(np.abs(array.astype(np.float64)).max()) <= found.bound(id_), id_


def test_each_rule_proves_something() -> None:
    seen = set()
    for seed in range(250):
        drawn = Drawn(seed)
        _, proved = _prove(drawn, (1.0, 300.0))
        seen |= {node.op for node, ids in drawn.nodes() if set(ids) <= set(proved)}
    missing = {op.replace("1d", "2d").replace("3d", "2d") for op in BOUNDED} - seen
    assert not missing


def test_bounds_are_near_what_is_reached() -> None:
    # A convolution of weights without a sign reaches its bound.
    region = Region()
    x = region.builder.param("x", tensor((1, 8, 6, 6)))
    weights = abs(region.draw(4, 8, 3, 3))
    result = region.builder.emit("nn.conv2d", x, region.builder.const(weights))
    assert isinstance(result, Var)
    region.finish(result)
    graph = _graph(region)
    found = Planner(open_engine(), graph, ConstantRanges(region.builder.constants), strict=False).ranges
    found.set_checked(0, 3.0)
    (reached,) = region.run(np.full((1, 8, 6, 6), 3.0, np.float32))
    assert reached.max() <= found.bound(2) <= reached.max() * (1 + 1e-3)


def _graph(region: Region) -> GraphFunction:
    context = CompileContext("dnnl", None, region.builder.constants)
    (graph,) = GraphCodegen().translate([region.function], context).document.functions.values()
    return graph


def _chain(length: int, step: Callable[[Region, Var], Any]) -> Region:
    """Return the same step repeated in sequence, with other weights."""
    region = Region()
    value = region.builder.param("x", tensor((1, 16, 5, 5)))
    for _ in range(length):
        value = step(region, value)
    return region.finish(value)


def _layer(region: Region, value: Var) -> Var:
    weights = region.builder.const(region.draw(16, 16, 3, 3) / 8)
    product = region.builder.emit("nn.conv2d", value, weights, padding=(1,) * 4)
    assert isinstance(product, Var)
    result = region.builder.emit("nn.relu", product)
    assert isinstance(result, Var)
    return result


def _residual(region: Region, value: Var) -> Var:
    inner = _layer(region, _layer(region, value))
    total = region.builder.emit("add", inner, value)
    assert isinstance(total, Var)
    result = region.builder.emit("nn.relu", total)
    assert isinstance(result, Var)
    return result


def _checked(region: Region) -> list[str]:
    """Return the checked values."""
    marker = "check for finite numbers  "
    return [line.removeprefix(marker).split(":")[0] for line in region.source.splitlines() if marker in line]


def test_thirty_convolutions_need_two_checks() -> None:
    region = _chain(30, _layer)
    # Weights make an operand 2**4.6 times as large at most, and 87 bits are left from 2**40 to 2**127.
    assert len(_checked(region)) == 2
    assert region.source.count("nn.conv2d + nn.relu") == 30


def test_checks_stand_where_paths_of_a_residual_network_meet() -> None:
    region = _chain(20, _residual)
    graph = _graph(region)
    joined = {
        f"%{id_}"
        for id_, node in enumerate(graph.nodes, len(graph.inputs) + len(graph.constants))
        if node.op == "nn.relu" and any(reader.op == "add" and id_ in reader.inputs for reader in graph.nodes)
    }
    first, *others = _checked(region)
    assert first == "%0"
    assert 1 <= len(others) <= 3
    assert set(others) <= joined


def test_nothing_is_checked_where_nothing_has_to_be_proved() -> None:
    def step(region: Region, value: Var) -> Any:
        weights = region.builder.const(region.draw(16, 16, 3, 3))
        product = region.builder.emit("nn.conv2d", value, weights, padding=(1,) * 4)
        assert isinstance(product, Var)
        return region.builder.emit("tanh", product)

    assert _checked(_chain(5, step)) == []


def test_what_layers_limit_is_checked_once() -> None:
    def step(region: Region, value: Var) -> Any:
        return region.builder.emit("sigmoid", _layer(region, value))

    assert _checked(_chain(200, step)) == ["%0"]


def test_a_mask_is_not_checked() -> None:
    region = Region()
    x, mask = (region.builder.param(name, tensor((4, 4))) for name in ("x", "mask"))
    value: Any = region.builder.emit("multiply", mask, region.builder.const(np.float32(-3.4e38)))
    value = region.builder.emit("nn.softmax", region.builder.emit("add", value, x), axis=1)  # type: ignore[arg-type]
    value = region.builder.emit("nn.dense", value, region.builder.const(region.draw(4, 4)))
    value = region.builder.emit("nn.relu", value)
    region.finish(value)
    (checked,) = _checked(region)
    assert checked not in ("%0", "%1")
    found = np.where(np.eye(4) > 0, np.inf, 0).astype(np.float32)
    assert np.isfinite(region.run(region.draw(4, 4), found)[0]).all()


@pytest.mark.parametrize(("name", "checks"), [("resnet50", 4), ("squeezenet", 1)])
def test_light_models_are_one_region_with_few_checks_and_onednns_relu(name: str, checks: int) -> None:
    model = light.load_light_model(f"light_{name}")
    module = byoc_core.from_onnx(model)
    executable = byoc_core.build(module, ["dnnl"], fallback="error")
    (built,) = executable.modules
    assert len(built.function_names) == 1
    source = built.get_source()
    rectified = [line for line in source.splitlines() if "nn.relu" in line]
    assert len(rectified) == source.count("nn.relu") > 20
    assert all(line.startswith("nn.conv2d + nn.bias_add") for line in rectified)
    assert source.count("check for finite numbers") == checks
    first, second = (light.draw_inputs(model, seed) for seed in (1, 2))
    session = open_session(model.SerializeToString())
    expected, other = (run_peer(session, feeds)[-1:] for feeds in (first, second))
    found = byoc_core.VirtualMachine(executable).run("main", first)
    assert isinstance(found, tuple)
    exact = evaluate_function(module, "main", [*first.values()], exact=True)
    accuracy = judge(found[-1:], expected, other, exact[-1:])
    assert accuracy.difference > LEAST_DIFFERENCE
    assert accuracy.error <= ALLOWED_FACTOR * max(accuracy.peer_error, ROUNDING), str(accuracy)


def test_a_pixel_without_a_number_goes_through_a_light_model_as_through_the_reference() -> None:
    model = light.load_light_model("light_squeezenet")
    executable = byoc_core.build(byoc_core.from_onnx(model), ["dnnl"], fallback="error")
    (built,) = executable.modules
    function = built.get_function(*built.function_names)
    assert isinstance(function.impl, BuiltRegion)
    assert function.signature is not None
    feeds = light.draw_inputs(model, 1)
    (image,) = feeds.values()
    image[0, 0, 100, 100] = np.nan
    shapes = [[int(str(dim)) for dim in spec.shape] for spec in function.signature.outputs]
    found, expected = ([np.empty(shape, np.float32) for shape in shapes] for _ in range(2))
    function(image, *found)
    function.impl.reference(image, *expected)
    for ours, wanted in zip(found, expected, strict=True):
        np.testing.assert_array_equal(ours, wanted)
        assert np.isnan(ours).any()
