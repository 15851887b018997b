"""The rows of the inspection of an ONNX model: plain facts, printed as tables and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from math import prod
from typing import Any

from byoc_core.dims import Dim

__all__ = ["ImportKind", "MemoryEstimate", "NodeWork", "OpWork", "OperatorUse", "TensorRow", "Weight", "plain"]


class ImportKind(Enum):
    """The import of an operator."""

    CORE = "core"
    """By the core, as ops."""
    FUNCTION = "function"
    """By the nodes of a function, of the model or of the standard."""
    PLUGIN = "plugin"
    """By an installed plugin."""
    REGISTERED = "registered"
    """By ``byoc_core.register_op``."""
    DELEGATED = "delegated"
    """As ops evaluated by the package ``onnx``."""
    MISSING = "missing"
    """Not at all."""


@dataclass(frozen=True, slots=True)
class OperatorUse:
    """An operator in a model.

    Attributes:
        operator: domain and operator, joined by a dot.
        nodes: the number of nodes. The nodes of a function of the model count for each call.
        kind: the import of the nodes.
        origin: the plugin or the function; empty for the core.
    """

    operator: str
    nodes: int
    kind: ImportKind
    origin: str

    def to_data(self) -> dict[str, Any]:
        """Return the row as JSON values."""
        return {"operator": self.operator, "nodes": self.nodes, "imported": self.kind.value, "origin": self.origin}


@dataclass(frozen=True, slots=True)
class TensorRow:
    """An input or output.

    Attributes:
        name: the name in the model.
        dtype: the dtype, or another type declared by the model; empty if nothing is declared.
        shape: the sizes; ``None`` for an unknown rank.
    """

    name: str
    dtype: str
    shape: tuple[Dim | str, ...] | None

    def to_data(self) -> dict[str, Any]:
        """Return the row as JSON values."""
        shape = None if self.shape is None else [plain(size) for size in self.shape]
        return {"name": self.name, "dtype": self.dtype, "shape": shape}


@dataclass(frozen=True, slots=True)
class Weight:
    """A tensor stored in a model.

    Attributes:
        name: the name of the initializer, or of the output of a node ``Constant``.
        dtype: the dtype; the name in ONNX for a dtype unknown to byoc.
        shape: the sizes.
        nbytes: the bytes of the elements; the bytes of the text for strings.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int

    @property
    def num_elements(self) -> int:
        """The number of elements."""
        return prod(self.shape)

    def to_data(self) -> dict[str, Any]:
        """Return the row as JSON values."""
        return {"name": self.name, "dtype": self.dtype, "shape": list(self.shape), "nbytes": self.nbytes}


@dataclass(frozen=True, slots=True)
class OpWork:
    """An op of byoc in the imported model.

    Attributes:
        op: the name of the op.
        count: the number of ops.
        flops: the FLOPs of all these ops, with symbolic sizes.
        counted_flops: the FLOPs for the counted sizes.
    """

    op: str
    count: int
    flops: Dim
    counted_flops: int

    def to_data(self, total: int) -> dict[str, Any]:
        """Return the row as JSON values, with the share of all FLOPs."""
        return {
            "op": self.op,
            "count": self.count,
            "flops": plain(self.flops),
            "counted_flops": self.counted_flops,
            "share": self.counted_flops / total if total else 0.0,
        }


@dataclass(frozen=True, slots=True)
class NodeWork:
    """The work of a node.

    Attributes:
        node: the name of the node, behind the names of the calling nodes.
        operator: domain and operator; of the nearest node of the file, for a node of a function of the standard.
        flops: the FLOPs for the counted sizes.
    """

    node: str
    operator: str
    flops: int

    def to_data(self, total: int) -> dict[str, Any]:
        """Return the row as JSON values, with the share of all FLOPs."""
        share = self.flops / total if total else 0.0
        return {"node": self.node, "operator": self.operator, "counted_flops": self.flops, "share": share}


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """Bytes in memory for a call, for the counted sizes.

    Attributes:
        constants_nbytes: the constants.
        arena_nbytes: the values between ops, in a plan with reuse.
        peak_nbytes: the peak of live bytes of these values.
        unshared_nbytes: the values between ops without reuse.
        input_nbytes: the inputs.
        output_nbytes: the outputs.
        peak_node: the node with the most live bytes; empty for an empty arena.
        num_uncounted: values of unknown rank, counted as no bytes.
    """

    constants_nbytes: int
    arena_nbytes: int
    peak_nbytes: int
    unshared_nbytes: int
    input_nbytes: int
    output_nbytes: int
    peak_node: str
    num_uncounted: int

    @property
    def needed_nbytes(self) -> int:
        """The sum of constants, arena, inputs and outputs."""
        return self.constants_nbytes + self.arena_nbytes + self.input_nbytes + self.output_nbytes

    def to_data(self) -> Mapping[str, Any]:
        """Return the estimate as JSON values."""
        return {
            "constants_nbytes": self.constants_nbytes,
            "arena_nbytes": self.arena_nbytes,
            "lower_bound_nbytes": self.peak_nbytes,
            "total_nbytes": self.unshared_nbytes,
            "input_nbytes": self.input_nbytes,
            "output_nbytes": self.output_nbytes,
            "needed_nbytes": self.needed_nbytes,
            "peak_node": self.peak_node,
            "num_uncounted": self.num_uncounted,
        }


def plain(dim: Dim | str) -> int | str:
    """Return a dimension as a JSON value: a number, or an expression."""
    return dim if isinstance(dim, int) else str(dim)
