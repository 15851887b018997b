"""Random functions for the laws of every pass, their inputs, and the comparison of results bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from byoc_core.ir import Function, IRModule, TensorType, Value, Var, tensor
from byoc_core.ops import FunctionBuilder
from byoc_core.transform import evaluate_function
from hypothesis import strategies as st

Draw = Callable[[st.SearchStrategy[Any]], Any]

SPECIAL = (0.0, -0.0, -0.0, -0.0, 1.0, -1.0, 0.5, 3.25, -7.0, float("inf"), float("-inf"), float("nan"))


def check_same_bits(before: IRModule, after: IRModule, inputs: Sequence[Any], *, exact: bool = False) -> None:
    """Check results for equality with their NaN, infinities and signs of zeros."""
    wanted = evaluate_function(before, "main", inputs, exact=exact)
    for have, want in zip(evaluate_function(after, "main", inputs, exact=exact), wanted, strict=True):
        assert have.dtype == want.dtype
        np.testing.assert_array_equal(have, want)
        if want.dtype.kind == "f":
            number = ~np.isnan(want)
            np.testing.assert_array_equal(np.signbit(have)[number], np.signbit(want)[number])


class _Maker:
    """A strategy for a function of ops relevant to passes, on an image and a matrix."""

    def __init__(self, draw: Draw) -> None:
        self.draw = draw

    def module(self) -> IRModule:
        fb = FunctionBuilder("main")
        flag = fb.param("flag", tensor((), "bool"))
        values: list[Value] = [fb.param("image", tensor((1, 2, 4, 4))), fb.param("matrix", tensor(("n", 3)))]
        self.fill(fb, values, self.draw(st.integers(0, 14)))
        if self.draw(st.booleans()):
            values += self.branch(fb, flag, self.choose(values))
            self.fill(fb, values, self.draw(st.integers(0, 4)))
        results = self.draw(st.lists(st.sampled_from(values), max_size=2))
        return IRModule({"main": fb.finish(values[-1], *results)}, fb.constants)

    def choose(self, values: Sequence[Value]) -> Value:
        value: Value = values[-1] if self.draw(st.booleans()) else self.draw(st.sampled_from(values))
        return value

    def branch(self, fb: FunctionBuilder, flag: Value, operand: Value) -> tuple[Var, ...]:
        regions: list[Function] = []
        for name in ("then_region", "else_region"):
            inner = FunctionBuilder(name, constants=fb.constants)
            values: list[Value] = [inner.param("x", operand.type)]
            self.fill(inner, values, self.draw(st.integers(0, 6)))
            fitting = [value for value in values if value.type == operand.type]
            regions.append(inner.finish(self.draw(st.sampled_from(fitting))))
        return fb.bind("if", (flag, operand), {}, regions=regions).results

    def fill(self, fb: FunctionBuilder, values: list[Value], count: int) -> None:
        for _ in range(count):
            value = self.choose(values)
            makers = [*[self.with_number] * 3, self.unary, self.view, *[self.with_other] * 2]
            if isinstance(value.type, TensorType) and value.type.rank == 4:
                makers += [self.window] * 2
            self.draw(st.sampled_from(makers))(fb, values, value)

    def with_number(self, fb: FunctionBuilder, values: list[Value], value: Value) -> None:
        op = self.draw(
            st.sampled_from(("add", "add", "subtract", "subtract", "multiply", "divide", "power", "minimum"))
        )
        number = fb.const(np.array(self.draw(st.sampled_from((0.0, -0.0, 1.0, 2.0))), np.float32))
        self.keep(values, fb.emit(op, *self.draw(st.sampled_from(((value, number), (number, value))))))

    def unary(self, fb: FunctionBuilder, values: list[Value], value: Value) -> None:
        self.keep(values, fb.emit(self.draw(st.sampled_from(("negative", "abs", "nn.relu", "tanh"))), value))

    def with_other(self, fb: FunctionBuilder, values: list[Value], value: Value) -> None:
        other = self.draw(st.sampled_from([v for v in values if v.type == value.type]))
        if self.draw(st.booleans()):
            self.keep(values, fb.emit("where", fb.emit("less", value, other), value, other))  # type: ignore[arg-type]
        else:
            op = self.draw(st.sampled_from(("add", "subtract", "multiply", "maximum")))
            self.keep(values, fb.emit(op, value, other))

    def view(self, fb: FunctionBuilder, values: list[Value], value: Value) -> None:
        assert isinstance(value.type, TensorType)
        shape = value.type.shape or ()
        axes = self.draw(st.permutations(range(len(shape))))
        kind = self.draw(st.sampled_from(("reshape", "flat", "permute", "cast", "concat", "slice", "broadcast")))
        if kind == "reshape":
            self.keep(values, fb.emit("reshape", fb.emit("reshape", value, shape=(-1,)), shape=shape))  # type: ignore[arg-type]
        elif kind == "flat" and len(shape) > 2:
            self.keep(values, fb.emit("reshape", value, shape=(*shape[:-2], -1)))
        elif kind == "permute":
            self.keep(values, fb.emit("permute_dims", value, axes=axes))
        elif kind == "cast":
            wide = fb.emit("cast", value, dtype=self.draw(st.sampled_from(("float64", "float32", "float16"))))
            self.keep(values, fb.emit("cast", wide, dtype="float32"))  # type: ignore[arg-type]
        elif kind == "concat":
            self.keep(values, fb.emit("concat", value, axis=0))
        elif kind == "slice":
            begin = self.draw(st.sampled_from((0, -(1 << 62))))
            end = 1 << 62
            self.keep(values, fb.emit("strided_slice", value, axes=(-1,), begin=(begin,), end=(end,), strides=(1,)))
        else:
            self.keep(values, fb.emit("broadcast_to", value, shape=shape))

    def window(self, fb: FunctionBuilder, values: list[Value], value: Value) -> None:
        widths = tuple(self.draw(st.integers(0, 1)) for _ in range(4))
        pad_value = self.draw(st.sampled_from((0.0, -0.0, 1.0)))
        padded: Any = fb.emit("nn.pad", value, pad_width=(0, 0, 0, 0, *widths), pad_value=pad_value)
        if self.draw(st.booleans()):
            padded = fb.emit("nn.pad", padded, pad_width=(0, 0, 0, 0, 1, 0, 0, 1), pad_value=0.0)
        if self.draw(st.booleans()):
            filters = fb.const(np.array([0.5, -1.0, 2.0, 0.25] * 4, np.float32).reshape(1, 1, 4, 4)[:, :, :2, :2])
            channels = padded.type.shape[1]
            weight = fb.emit("broadcast_to", filters, shape=(2, channels, 2, 2))
            padding = self.draw(st.sampled_from(((0, 0, 0, 0), (1, 0, 0, 1))))
            self.keep(values, fb.emit("nn.conv2d", padded, weight, padding=padding))  # type: ignore[arg-type]
        else:
            attrs = {
                "padding": self.draw(st.sampled_from(((0, 0, 0, 0), (1, 0, 0, 1)))),
                "ceil_mode": self.draw(st.booleans()),
                "count_include_pad": self.draw(st.booleans()),
            }
            self.keep(values, fb.emit("nn.avg_pool2d", padded, pool_size=(2, 3), strides=(1, 1), **attrs))

    @staticmethod
    def keep(values: list[Value], result: Any) -> None:
        """Keep only small values, so windows always find a fitting image."""
        shape = result.type.shape
        sizes = [size for size in shape if isinstance(size, int)]
        fits_window = len(shape) != 4 or min(shape[2:]) >= 3
        if result.type.dtype == "float32" and max(sizes, default=1) <= 64 and fits_window:
            values.append(result)


@st.composite
def random_modules(draw: Draw) -> IRModule:
    return _Maker(draw).module()


@st.composite
def random_inputs(draw: Draw) -> list[Any]:
    """Draw a flag, an image and a matrix of ordinary numbers among special values."""
    seed = draw(st.integers(0, 2**32 - 1))
    generator = np.random.default_rng(seed)

    def array(*shape: int) -> Any:
        ordinary = generator.normal(size=shape)
        special = generator.choice(SPECIAL, size=shape)
        return np.where(generator.random(shape) < 0.3, special, ordinary).astype(np.float32)

    return [np.array(bool(seed % 2)), array(1, 2, 4, 4), array(draw(st.integers(0, 3)), 3)]
