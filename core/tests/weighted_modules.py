"""Random functions with swappable weights, and the law of a swap: the same bytes as a fresh build."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import byoc_core
import numpy as np
from byoc_core.artifact import list_weights, swap_weights, verify
from byoc_core.ir import Function, IRModule, TensorType, Value, Var, declare_weights, tensor
from byoc_core.ops import FunctionBuilder
from byoc_core.transform import BindParams
from byoc_core.vm import VirtualMachine
from hypothesis import strategies as st

Draw = Callable[[st.SearchStrategy[Any]], Any]
Arrays = Mapping[str, np.ndarray]

IMAGE, MATRIX = (1, 3, 6, 6), (4, 5)


@dataclass(frozen=True)
class WeightedModule:
    """A function with weights as parameters.

    Attributes:
        module: the function ``main`` of ``image``, ``matrix``, ``flag`` and the weights.
        shapes: the shape of each weight, by name.
    """

    module: IRModule
    shapes: Mapping[str, tuple[int, ...]]

    def values(self, seed: int) -> dict[str, np.ndarray]:
        """Return values of all weights."""
        generator = np.random.default_rng(seed)
        return {
            name: (generator.uniform(0.5, 1.5, shape) * generator.choice([-1, 1])).astype(np.float32)
            for name, shape in self.shapes.items()
        }

    def swappable(self, values: Arrays) -> IRModule:
        """Return the module with swappable weights of these values."""
        return declare_weights(self.module, values)

    def plain(self, values: Arrays) -> IRModule:
        """Return the module with constants in place of the weights."""
        return BindParams(dict(values))(self.module)


def inputs(seed: int = 3) -> dict[str, np.ndarray]:
    """Return inputs of a :class:`WeightedModule`."""
    generator = np.random.default_rng(seed)
    return {
        "flag": np.array(seed % 2 == 0),
        "image": generator.standard_normal(IMAGE).astype(np.float32),
        "matrix": generator.standard_normal(MATRIX).astype(np.float32),
    }


def run(executable: byoc_core.Executable) -> Sequence[np.ndarray]:
    """Return the outputs for :func:`inputs`."""
    machine = VirtualMachine(executable)
    names = [spec.name for spec in executable.functions["main"].inputs]
    found = machine.run("main", {name: value for name, value in inputs().items() if name in names})
    assert isinstance(found, tuple)
    return found


def check_swap(drawn: WeightedModule, backends: Sequence[str], folder: Path) -> None:
    """Check a swap against a fresh build with the new weights: the same bytes, and the same numbers."""
    first, second = drawn.values(1), drawn.values(2)
    before, fresh = (byoc_core.build(drawn.swappable(values), backends=backends) for values in (first, second))
    before.save(folder / "before.byoc")
    fresh.save(folder / "fresh.byoc")
    names = {weight.name for weight in list_weights(folder / "before.byoc").weights}
    assert names == set(drawn.shapes)
    swap_weights(folder / "before.byoc", second, folder / "swapped.byoc")
    verify(folder / "swapped.byoc")
    assert (folder / "swapped.byoc").read_bytes() == (folder / "fresh.byoc").read_bytes()
    assert before.with_weights(second).to_bytes() == fresh.to_bytes()
    numbers = run(byoc_core.load(folder / "swapped.byoc", allow_native=True))
    for have, want in zip(numbers, run(fresh), strict=True):
        np.testing.assert_array_equal(have, want)
    swap_weights(folder / "before.byoc", first, folder / "same.byoc")
    assert (folder / "same.byoc").read_bytes() == (folder / "before.byoc").read_bytes()


def emit(fb: FunctionBuilder, op: str, *operands: Value, **attrs: Any) -> Var:
    """Emit an op with a single result."""
    result = fb.emit(op, *operands, **attrs)
    assert isinstance(result, Var)
    return result


class _Maker:
    """A strategy for a function of ops on activations, and ops on weights alone."""

    def __init__(self, draw: Draw) -> None:
        self.draw = draw
        self.fb = FunctionBuilder("main")
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.params: list[Value] = []

    def module(self) -> WeightedModule:
        flag = self.fb.param("flag", tensor((), "bool"))
        image: Value = self.fb.param("image", tensor(IMAGE))
        matrix: Value = self.fb.param("matrix", tensor(MATRIX))
        for kind in self.draw(st.lists(st.sampled_from(("conv", "scale", "pool", "norm")), max_size=3)):
            image = getattr(self, f"_{kind}")(image)
        for kind in self.draw(st.lists(st.sampled_from(("dense", "matmul", "bias", "derived", "shared")), max_size=4)):
            matrix = getattr(self, f"_{kind}")(matrix)
        if self.draw(st.booleans()):
            matrix = self._branch(flag, matrix)
        results = [image, matrix]
        if not self.shapes or self.draw(st.booleans()):
            results.append(self._weight(2, 3))  # a weight as a result
        return WeightedModule(IRModule({"main": self.fb.finish(*results)}, self.fb.constants), self.shapes)

    def _weight(self, *shape: int) -> Value:
        known = [v for v in self.params if isinstance(v.type, TensorType) and v.type.shape == shape]
        if known and self.draw(st.booleans()):
            return known[0]  # two readers of one weight
        name = f"w{len(self.shapes)}"
        self.shapes[name] = shape
        value: Value = self.fb.param(name, tensor(shape))
        self.params.append(value)
        if self.draw(st.booleans()):
            return value
        op = self.draw(st.sampled_from(("negative", "abs", "tanh")))  # a computation of a weight alone
        return emit(self.fb, op, value)

    def _conv(self, image: Value) -> Value:
        made = emit(self.fb, "nn.conv2d", image, self._weight(3, 3, 3, 3), padding=(1, 1))
        return emit(self.fb, "nn.relu", emit(self.fb, "nn.bias_add", made, self._weight(3), axis=1))

    def _scale(self, image: Value) -> Value:
        return emit(self.fb, "multiply", image, self._weight(3, 1, 1))

    def _pool(self, image: Value) -> Value:
        return emit(self.fb, "nn.relu", image)

    def _norm(self, image: Value) -> Value:
        variance = emit(self.fb, "abs", self._weight(3))
        operands = (self._weight(3), self._weight(3), self._weight(3), variance)
        return emit(self.fb, "nn.batch_norm", image, *operands, axis=1)

    def _dense(self, matrix: Value) -> Value:
        return emit(self.fb, "nn.dense", matrix, self._weight(5, 5))

    def _matmul(self, matrix: Value) -> Value:
        weight = emit(self.fb, "permute_dims", self._weight(5, 5), axes=(1, 0))
        return emit(self.fb, "tanh", emit(self.fb, "matmul", matrix, weight))

    def _bias(self, matrix: Value) -> Value:
        return emit(self.fb, "add", matrix, self._weight(5))

    def _derived(self, matrix: Value) -> Value:
        both = emit(self.fb, "concat", self._weight(2, 5), self._weight(3, 5), axis=0)
        half = emit(self.fb, "multiply", both, self.fb.const(np.float32(0.5)))
        return emit(self.fb, "add", emit(self.fb, "matmul", matrix, half), emit(self.fb, "sum", both, axis=(0,)))

    def _shared(self, matrix: Value) -> Value:
        weight = self._weight(5, 5)
        return emit(self.fb, "matmul", emit(self.fb, "matmul", matrix, weight), emit(self.fb, "matmul", weight, weight))

    def _branch(self, flag: Value, matrix: Value) -> Value:
        weight = self._weight(5)
        regions: list[Function] = []
        for name, op in (("then_region", "add"), ("else_region", "multiply")):
            inner = FunctionBuilder(name, constants=self.fb.constants)
            x, w = inner.param("x", matrix.type), inner.param("w", weight.type)
            regions.append(inner.finish(emit(inner, op, x, w)))
        return self.fb.bind("if", (flag, matrix, weight), {}, regions=regions).results[0]


@st.composite
def weighted_modules(draw: Draw) -> WeightedModule:
    """Return a function with swappable weights."""
    return _Maker(draw).module()
