"""Products by weights of 4 bits on one thread: byoc and ONNX Runtime, each beside its product by float32 weights.

The weights are those of ONNX Runtime's ``MatMulNBits`` with blocks of 32 and zero points, and the same weights behind
``DequantizeLinear`` for byoc. With ``accuracy_level`` 4, ONNX Runtime rounds the activations to 8 bits. The time is
processor time of the process, as in :mod:`benchmarks.products`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import byoc_core
import ml_dtypes
import numpy as np
import onnx
from byoc_core.runtime.module import NDArray
from onnx import TensorProto, helper, numpy_helper

from benchmarks.calls import NO_PEER, OUTPUT, has_peer
from benchmarks.pairing import measure, paired_ratio
from benchmarks.products import session_call, time_processor

__all__ = ["run"]

BLOCK = 32
"""Weights sharing a scale."""
ROWS = (1, 4, 8, 32)
SIZES = (2048, 4096)
"""The length of the sums, and the number of columns."""
LEVELS = (0, 4)
"""The levels of accuracy of ONNX Runtime: float32, and activations of 8 bits."""
FLOATS = "ccompiler, float32"
"""The contestant of all ratios."""


@dataclass(frozen=True)
class QuantisedMatrix:
    """A square matrix of numbers of 4 bits, with scales and zero points for each block of rows.

    Attributes:
        integers: ``(K, N)``, 0 to 15.
        scale: ``(K / BLOCK, N)``, float32.
        zero: as ``scale``, 0 to 15.
    """

    integers: NDArray
    scale: NDArray
    zero: NDArray

    @classmethod
    def draw(cls, size: int) -> QuantisedMatrix:
        """Return a seeded matrix."""
        rng, shape = np.random.default_rng(0), (size // BLOCK, size)
        integers, zero = (rng.integers(0, 16, sizes).astype(np.uint8) for sizes in ((size, size), shape))
        return cls(integers, rng.uniform(0.01, 0.03, shape).astype(np.float32), zero)

    @property
    def floats(self) -> NDArray:
        """The weights in float32."""
        block = np.arange(len(self.integers)) // BLOCK
        steps = self.integers.astype(np.float32) - self.zero[block]
        floats: NDArray = steps * self.scale[block]
        return floats

    def to_dequantized(self, rows: int) -> bytes:
        """Return the model with ``DequantizeLinear`` before the product."""
        stored = [
            helper.make_tensor(name, TensorProto.UINT4, array.shape, array.astype(ml_dtypes.uint4).reshape(-1))
            for name, array in (("w", self.integers), ("z", self.zero))
        ]
        nodes = [
            helper.make_node("DequantizeLinear", ["w", "s", "z"], ["v"], axis=0, block_size=BLOCK),
            helper.make_node("MatMul", ["x", "v"], [OUTPUT]),
        ]
        return self._model(nodes, [*stored, numpy_helper.from_array(self.scale, "s")], rows)

    def to_bits(self, rows: int, level: int) -> bytes:
        """Return the model with ONNX Runtime's own op: columns first, two numbers in a byte."""
        size = len(self.integers)
        columns = self.integers.T.reshape(size, size // BLOCK, BLOCK)
        arrays = {"w": _pairs(columns), "s": np.ascontiguousarray(self.scale.T), "z": _pairs(self.zero.T)}
        attrs: dict[str, Any] = {"K": size, "N": size, "bits": 4, "block_size": BLOCK, "accuracy_level": level}
        node = helper.make_node("MatMulNBits", ["x", *arrays], [OUTPUT], domain="com.microsoft", **attrs)
        return self._model([node], [numpy_helper.from_array(array, name) for name, array in arrays.items()], rows)

    def to_floats(self, rows: int) -> bytes:
        """Return the model with weights in float32."""
        node = helper.make_node("MatMul", ["x", "w"], [OUTPUT])
        return self._model([node], [numpy_helper.from_array(self.floats, "w")], rows)

    def _model(self, nodes: Sequence[onnx.NodeProto], stored: Sequence[onnx.TensorProto], rows: int) -> bytes:
        shape = (rows, len(self.integers))
        x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("x", OUTPUT))
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
        graph = helper.make_graph(nodes, "product", [x], [y], stored)
        data: bytes = helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
        return data


def _pairs(array: NDArray) -> NDArray:
    """Return numbers of 4 bits in bytes, the first of two in the low bits."""
    pairs: NDArray = np.ascontiguousarray(array[..., ::2] | array[..., 1::2] << 4)
    return pairs


def run(num_rounds: int) -> dict[str, Any]:
    """Return the times of each product by contestant, and the ratios to the product by float32 weights."""
    if not has_peer():
        print(f"  {NO_PEER}")
    times: dict[str, Any] = {}
    all_ratios: dict[str, Any] = {}
    for size in SIZES:
        matrix = QuantisedMatrix.draw(size)
        for rows in ROWS:
            name = f"{rows}x{size}x{size}"
            seconds = measure(_contestants(matrix, rows), num_rounds=num_rounds)
            ratios = {other: paired_ratio(s, seconds[FLOATS]) for other, s in seconds.items() if other != FLOATS}
            summary = ", ".join(f"{other} {ratio.median:.3f}" for other, ratio in ratios.items())
            print(f"  {name:16} {seconds[FLOATS].median * 1e6:8.1f} us with float32; {summary}", flush=True)
            times[name] = {other: samples.to_json() for other, samples in seconds.items()}
            all_ratios[name] = {other: ratio.to_json() for other, ratio in ratios.items()}
    return {"rows_are": "product", "unit": "s", "time": times, "ratios": all_ratios}


def _contestants(matrix: QuantisedMatrix, rows: int) -> Mapping[str, Callable[[], float]]:
    """Return the contestants of a product.

    Raises:
        ValueError: a result differs from numpy's.
        RuntimeError: the product was not offloaded.
    """
    x = np.random.default_rng(1).standard_normal((rows, len(matrix.integers)), np.float32)
    expected = x @ matrix.floats
    results: dict[str, NDArray] = {}
    calls: dict[str, Callable[[], object]] = {}
    for backend, form in product(("ccompiler", "dnnl"), ("4 bits", "float32")):
        name = f"{backend}, {form}"
        data = matrix.to_floats(rows) if form == "float32" else matrix.to_dequantized(rows)
        executable = byoc_core.build(byoc_core.from_onnx(data), [backend])
        if executable.report_data["offloaded_share"] != 1.0:
            raise RuntimeError(f"{name}: not offloaded")
        results[name] = np.empty_like(expected)
        machine = byoc_core.VirtualMachine(executable, num_threads=1)
        calls[name] = machine.bind("main", {"x": x}, out={OUTPUT: results[name]})
    if has_peer():
        peers = {f"ONNX Runtime, 4 bits, level {level}": matrix.to_bits(rows, level) for level in LEVELS}
        for name, data in {**peers, "ONNX Runtime, float32": matrix.to_floats(rows)}.items():
            results[name] = np.empty_like(expected)
            calls[name] = session_call(data, {"x": x}, results[name])
    for name, call in calls.items():
        call()
        # Activations of 8 bits have errors of a hundredth.
        bound = (0.02 if "level 4" in name else 1e-5) * np.abs(expected).max()
        if not np.allclose(results[name], expected, atol=bound, rtol=0):
            raise ValueError(f"{rows} rows, {name}: another result")
    return {name: time_processor(call) for name, call in calls.items()}
