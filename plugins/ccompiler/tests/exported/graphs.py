"""Random graphs for exported C, each drawn from a seed: layers, special values with branches, nested loops."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
from byoc_core.errors import ByocError
from byoc_core.ir import FunctionBuilder, IRModule, Value
from byoc_core.transform import evaluate_function
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from core.tests.lower.test_control_flow_property import Maker
from core.tests.transform.random_modules import random_inputs, random_modules
from plugins.dnnl.tests.drawn_graphs import DrawnGraph

__all__ = ["KINDS", "ExportedGraph", "draw_graph"]

NDArray = npt.NDArray[Any]
_EXAMPLES = 6
"""Examples of hypothesis for a graph: the largest is taken, because most are small."""
_ROWS = (0, 1, 4, 9)


@dataclass(frozen=True, eq=False)
class ExportedGraph:
    """A graph and the inputs of some calls.

    Attributes:
        seed: the source of all random choices.
        kind: the generator; see :data:`KINDS`.
        module: a module with a single function.
        calls: arrays per parameter, for each call; sizes of symbols differ among calls.
    """

    seed: int
    kind: str
    module: IRModule
    calls: Sequence[Sequence[NDArray]]

    @property
    def function(self) -> str:
        """The name of the function."""
        (name,) = self.module.functions
        return name


def draw_graph(number: int) -> ExportedGraph:
    """Return the graph of a seed."""
    kind = tuple(KINDS)[number % len(KINDS)]
    module, calls = KINDS[kind](number)
    (name,) = module.functions
    return ExportedGraph(number, kind, module, [call for call in calls if _is_lawful(module, name, call)])


def _is_lawful(module: IRModule, name: str, inputs: Sequence[NDArray]) -> bool:
    """Return whether a graph accepts inputs: a graph drawn for one symbolic size may fit no other size."""
    try:
        with np.errstate(all="ignore"):
            evaluate_function(module, name, inputs)
    except (ByocError, ValueError):
        return False
    return True


def _draw_layers(number: int) -> tuple[IRModule, list[list[NDArray]]]:
    """Draw convolutions, products, pooling, residuals and views of moderate numbers."""
    graph = DrawnGraph(np.random.default_rng(number))
    return graph.module, [graph.inputs(), graph.inputs(images=4), graph.inputs(images=1)]


def _draw_special_values(number: int) -> tuple[IRModule, list[list[NDArray]]]:
    """Draw ops on an image and a matrix with infinities, NaN and negative zeros, and now and then a branch."""

    def draw(data: st.DataObject) -> tuple[IRModule, list[list[NDArray]]]:
        return data.draw(random_modules()), [data.draw(random_inputs()) for _ in range(3)]

    return _largest_example(number, draw)


class _StaticMaker(Maker):
    """Branches and loops without sizes depending on data: such sizes have no form in plain C."""

    def select(self, fb: FunctionBuilder, values: list[Value], sizes: list[str], depth: int) -> None:
        self.reduce(fb, values, sizes, depth)


def _draw_control_flow(number: int) -> tuple[IRModule, list[list[NDArray]]]:
    """Draw nested branches and loops on a row and a table."""

    def draw(data: st.DataObject) -> tuple[IRModule, list[list[NDArray]]]:
        return _StaticMaker(data.draw).module(), []

    module, _ = _largest_example(number, draw)
    generator = np.random.default_rng(number)
    calls = []
    for index, rows in enumerate(generator.permutation(_ROWS)[:3].tolist()):
        flag, trips = np.array(bool(index % 2)), np.array(generator.integers(0, 4), np.int64)
        row = generator.integers(-3, 4, 3).astype(np.float32)
        calls.append([flag, trips, row, generator.integers(-3, 4, (rows, 3)).astype(np.float32)])
    return module, calls


def _largest_example(
    number: int, draw: Callable[[st.DataObject], tuple[IRModule, list[list[NDArray]]]]
) -> tuple[IRModule, list[list[NDArray]]]:
    """Return the largest of some examples drawn by hypothesis from a seed, without a database."""
    found: list[tuple[IRModule, list[list[NDArray]]]] = []

    @seed(number)
    @settings(
        max_examples=_EXAMPLES,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def collect(data: st.DataObject) -> None:
        found.append(draw(data))

    collect()
    return max(found, key=lambda example: len(str(example[0])))


KINDS: Mapping[str, Callable[[int], tuple[IRModule, list[list[NDArray]]]]] = MappingProxyType(
    {"layers": _draw_layers, "special values": _draw_special_values, "control flow": _draw_control_flow}
)
"""The generators by name; seeds take turns."""
