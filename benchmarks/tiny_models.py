"""Models with calls costing more than the arithmetic: as ONNX for peers, and built with a chosen number of regions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType

import byoc_core
import numpy as np
import onnx
from byoc_core.partitioning import FuseOpsByPattern, PartitionOptions
from byoc_core.pattern import CompositePattern, is_op, wildcard
from byoc_core.runtime.module import NDArray
from onnx import TensorProto, helper

from benchmarks.calls import OUTPUT

__all__ = ["BACKEND", "DYNAMIC", "MODELS", "TinyModel", "cut_model"]

BACKEND = "ccompiler"
OPSET = 17
SIDE = 10
INFIX = MappingProxyType({"Add": "+", "Sub": "-", "Mul": "*"})
Step = tuple[str, str, str, str]
"""An elementwise op: result, op of ONNX, and operands."""


@dataclass(frozen=True)
class TinyModel:
    """Elementwise ops on small float32 matrices, one after the other.

    Attributes:
        steps: the ops; the last op makes the output.
        num_regions: the required number of the backend's regions.
        is_cut: whether each op shall be a separate region.
        on_host: numbers of the ops to be computed by the host.
        num_rows: rows of every matrix; a name if the model takes any number.
    """

    steps: tuple[Step, ...]
    num_regions: int = 1
    is_cut: bool = False
    on_host: tuple[int, ...] = ()
    num_rows: int | str = SIDE

    @property
    def input_names(self) -> tuple[str, ...]:
        """The operands not made by a step, in the order of first use."""
        computed = {result for result, *_ in self.steps}
        return tuple(dict.fromkeys(name for _, _, *operands in self.steps for name in operands if name not in computed))

    @property
    def arithmetic(self) -> str:
        """The model as Python statements on numpy arrays."""
        return "\n".join(f"{result} = {left} {INFIX[op]} {right}" for result, op, left, right in self.steps)

    def draw_inputs(self, num_rows: int = SIDE) -> dict[str, NDArray]:
        """Return seeded inputs by name."""
        rng = np.random.default_rng(0)
        return {name: rng.standard_normal((num_rows, SIDE), np.float32) for name in self.input_names}

    def to_onnx(self) -> bytes:
        """Return the serialised ONNX model."""
        nodes = [helper.make_node(op, operands, [result]) for result, op, *operands in self.steps]
        inputs, outputs = (
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, (self.num_rows, SIDE)) for name in names]
            for names in (self.input_names, (OUTPUT,))
        )
        graph = helper.make_graph(nodes, "tiny", inputs, outputs)
        opsets = [helper.make_opsetid("", OPSET)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=helper.find_min_ir_version_for(opsets))
        onnx.checker.check_model(model)
        data: bytes = model.SerializeToString()
        return data

    def build(self, backend: str = BACKEND, **options: object) -> byoc_core.Executable:
        """Build the model for a backend, with options of this backend.

        Raises:
            RuntimeError: the number of regions differs from the required number.
        """
        module = byoc_core.from_onnx(self.to_onnx())
        if self.is_cut:
            ops = {binding.op.name for binding in module["main"].walk()}
            patterns = [CompositePattern(f"{backend}.{op}", is_op(op)(wildcard(), wildcard())) for op in sorted(ops)]
            module = FuseOpsByPattern(patterns, annotate_codegen=True)(module)
        bindings = module["main"].bindings
        partition_options = PartitionOptions(
            force={bindings[number].results[0].name: "host" for number in self.on_host}
        )
        executable = byoc_core.build(module, [backend], options={backend: options}, partition_options=partition_options)
        found = [len(part.function_names) for part in executable.modules if part.type_key != "graph"]
        if sum(found) != self.num_regions:
            raise RuntimeError(f"{sum(found)} regions of {backend} were built, expected {self.num_regions}")
        return executable


def cut_model(num_ops: int) -> TinyModel:
    """Return a chain of additions, each a separate region."""
    values = ["x", *(f"v{index}" for index in range(1, num_ops)), OUTPUT]
    steps = tuple((result, "Add", value, "b") for value, result in pairwise(values))
    return TinyModel(steps, num_regions=num_ops, is_cut=True)


_CHAIN: tuple[Step, ...] = (("t", "Add", "a", "b"), ("u", "Sub", "t", "c"), (OUTPUT, "Mul", "u", "d"))

MODELS: Mapping[str, TinyModel] = MappingProxyType(
    {
        "add": TinyModel(((OUTPUT, "Add", "a", "b"),)),
        "chain": TinyModel(_CHAIN),
        "mixed": TinyModel(_CHAIN, num_regions=2, on_host=(1,)),
        **{f"regions-{number}": cut_model(number) for number in (2, 5, 10, 50)},
    }
)
"""``a + b``; ``(a + b - c) * d`` in one region, and with the subtraction on the host between two; chains of additions,
each a separate region.
"""
DYNAMIC = TinyModel(_CHAIN, num_rows="n")
"""The model of three ops, for any number of rows."""
