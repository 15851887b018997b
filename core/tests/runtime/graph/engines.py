"""An engine for tests of the interface between modules and engines, and functions for the engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from byoc_core.dims import parse_dim
from byoc_core.errors import ArtifactError
from byoc_core.runtime.graph import FunctionRefused, GraphEngine
from byoc_core.runtime.graph.document import GraphDocument, GraphFunction, GraphNode, GraphTensor
from byoc_core.runtime.module import NDArray, TensorSpec

__all__ = ["DOCUMENT", "DOUBLE", "DoublingEngine", "Program", "tensor"]


def tensor(*shape: int | str, dtype: str = "float32") -> GraphTensor:
    return GraphTensor(dtype, tuple(parse_dim(dim) for dim in shape))


DOUBLE = GraphFunction(
    "double",
    (TensorSpec("x", "float32", tensor("n").shape),),
    (),
    (GraphNode("add", (0, 0), (tensor("n"),)),),
    (("y", 1),),
)
DOCUMENT = GraphDocument({"double": DOUBLE})


@dataclass(frozen=True)
class Program:
    """A prepared program: the text of a function, and whether the function came from a payload."""

    text: str
    is_restored: bool


class DoublingEngine(GraphEngine):
    """An engine for `add` of a value and itself, times a factor from the settings."""

    def __init__(self, factor: int = 1) -> None:
        self.factor = factor
        self.asked: list[tuple[str, tuple[str, ...], tuple[str, ...]]] = []

    @property
    def type_key(self) -> str:
        return "doubling"

    @property
    def state(self) -> Mapping[str, Any]:
        return {"factor": self.factor} if self.factor != 1 else {}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        factor = state.get("factor", 1)
        if type(factor) is not int:
            raise ArtifactError("engine state, factor", "is no integer", got=repr(factor))
        return cls(factor)

    def check_node(self, node: GraphNode, operands: Sequence[GraphTensor] = ()) -> str | None:
        self.asked.append((node.op, tuple(map(str, operands)), tuple(map(str, node.outputs))))
        return None if node.op in ("add", "toy.twice") else "is no addition"

    def prepare(
        self, function: GraphFunction, constants: Mapping[str, NDArray], saved: bytes | None = None
    ) -> Program | FunctionRefused:
        if len(function.nodes) > 1:
            return FunctionRefused("has more than one node")
        return Program(function.name if saved is None else saved.decode(), is_restored=saved is not None)

    def save_prepared(self, prepared: Program) -> bytes:
        return prepared.text.encode()

    def check_saved(self, function: GraphFunction, saved: bytes) -> str | None:
        return None if saved == function.name.encode() else "is another program"

    def build(
        self, function: GraphFunction, constants: Mapping[str, NDArray], prepared: object = None
    ) -> Callable[..., object]:
        assert isinstance(prepared, Program)
        return lambda x, y: np.multiply(x, 2 * self.factor, out=y)
