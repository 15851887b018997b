"""Random graphs for exported C, each drawn from a seed: layers, special values, control flow, all ops, products."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import count
from types import MappingProxyType
from typing import Any

import byoc_ccompiler.backend as ccompiler
import numpy as np
import numpy.typing as npt
from byoc_ccompiler.options import CCompilerOptions
from byoc_core.backend.hooks import CompileContext, Rejection
from byoc_core.dims import evaluate
from byoc_core.dtypes import dtype_name, is_float, to_numpy
from byoc_core.errors import ByocError, IRTypeError
from byoc_core.ir import Binding, FunctionBuilder, IRModule, TensorType, Trait, Value
from byoc_core.ops import default_ops
from byoc_core.ops.cases import OpCase, canonical_cases, dtypes_of, new_function
from byoc_core.transform import evaluate_function
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from core.tests.lower.test_control_flow_property import Maker
from core.tests.transform.random_modules import random_inputs, random_modules
from plugins.ccompiler.tests.random_products import grow
from plugins.dnnl.tests.drawn_graphs import DrawnGraph

__all__ = ["KINDS", "ExportedGraph", "draw_graph"]

NDArray = npt.NDArray[Any]
_EXAMPLES = 6
"""Examples of hypothesis for a graph: the largest is taken, because most are small."""
_NEXT_ATTEMPT = 1 << 24
_ROWS = (0, 1, 4, 9)
_ZERO_SIGNS = ((1.0,), (-1.0,), (1.0, -1.0, -1.0), (-1.0, 1.0, 1.0))
"""Patterns of signs on the zeros of ops such as ``maximum``: of two zeros, either is right."""
_CAST_DTYPES = ("float32", "float64", "float16", "bfloat16")


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
    def options(self) -> dict[str, str]:
        """The options of ccompiler: now and then C for any processor, or Winograd's algorithm with exact numbers."""
        march = "generic" if self.seed // len(KINDS) % 3 == 0 else "native"
        return {"march": march, **({"winograd": "f2"} if self.kind == "products" else {})}

    @property
    def function(self) -> str:
        """The name of the function."""
        (name,) = self.module.functions
        return name


def draw_graph(number: int) -> ExportedGraph:
    """Return the graph of a seed: the first drawn graph with a lawful call."""
    kind = tuple(KINDS)[number % len(KINDS)]
    for attempt in count():
        module, calls = KINDS[kind](number + attempt * _NEXT_ATTEMPT)
        (name,) = module.functions
        lawful = [call for call in calls if _is_lawful(module, name, call)]
        if lawful:
            return ExportedGraph(number, kind, module, lawful)
    raise AssertionError("unreachable")


def _is_lawful(module: IRModule, name: str, inputs: Sequence[NDArray]) -> bool:
    """Return whether a graph accepts inputs, and the results do not depend on open signs of zeros.

    A graph drawn for one symbolic size may fit no other size.
    """
    try:
        with np.errstate(all="ignore"):
            first, *others = [
                evaluate_function(module, name, inputs, on_results=on_results)
                for on_results in (None, *(partial(_with_zeros, signs=signs) for signs in _ZERO_SIGNS))
            ]
    except (ByocError, ValueError):
        return False
    return all(_are_equal(a, b) for results in others for a, b in zip(first, results, strict=True))


def _with_zeros(
    binding: Binding,
    _operands: Sequence[NDArray],
    results: Sequence[NDArray],
    _sizes: Mapping[str, int],
    *,
    signs: Sequence[float],
) -> tuple[NDArray, ...]:
    """Return results with signs in turn on all zeros of an op returning zeros of either sign."""
    if not binding.op.has_trait(Trait.EITHER_ZERO):
        return tuple(results)
    return tuple(
        np.where(array == 0, np.copysign(array, np.resize(signs, array.shape)), array).astype(array.dtype)
        if is_float(dtype_name(array.dtype))
        else array
        for array in results
    )


def _are_equal(first: NDArray, second: NDArray) -> bool:
    """Return whether arrays are equal, NaN included, except for signs of zeros."""
    return bool(np.all((first == second) | ((first != first) & (second != second))))


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
        return _StaticMaker(data.draw, is_growing=False).module(), []

    module, _ = _largest_example(number, draw)
    generator = np.random.default_rng(number)
    calls = []
    for index, rows in enumerate(generator.permutation(_ROWS)[:3].tolist()):
        flag, trips = np.array(bool(index % 2)), np.array(generator.integers(0, 4), np.int64)
        row = generator.integers(-3, 4, 3).astype(np.float32)
        calls.append([flag, trips, row, generator.integers(-3, 4, (rows, 3)).astype(np.float32)])
    return module, calls


def _draw_op_cases(number: int) -> tuple[IRModule, list[list[NDArray]]]:
    """Draw canonical cases of several ops accepted by ccompiler, each in a drawn dtype, and a cast of each result."""
    generator = np.random.default_rng(number)
    ops, builder = default_ops(), FunctionBuilder("main", ops=default_ops())
    calls: list[list[NDArray]] = [[], []]
    results: list[Value] = []
    for _ in range(int(generator.integers(2, 7))):
        case, dtype = _draw_case(generator)
        params = [builder.param(f"x{len(calls[0]) + k}", type_) for k, type_ in enumerate(case.types(dtype))]
        found = builder.bind(case.op, params, ops[case.op].normalise_attrs(case.attrs)).results
        for call in calls:
            call += case.arrays(generator, dtype)
        results += found
        if _dtype(found[0]) in _CAST_DTYPES and generator.random() < 0.5:
            results += builder.bind("cast", [found[0]], {"dtype": str(generator.choice(_CAST_DTYPES))}).results
    return IRModule({"main": builder.finish(*results)}, builder.constants), calls


def _draw_case(generator: np.random.Generator) -> tuple[OpCase, str]:
    names, by_op = _accepted_cases()
    cases = by_op[names[int(generator.integers(len(names)))]]
    return cases[int(generator.integers(len(cases)))]


@cache
def _accepted_cases() -> tuple[tuple[str, ...], Mapping[str, Sequence[tuple[OpCase, str]]]]:
    """Return the ops accepted by ccompiler, and the accepted cases and dtypes of each op."""
    context = CompileContext("ccompiler", CCompilerOptions.model_validate({}))
    found: dict[str, list[tuple[OpCase, str]]] = {}
    for name, cases in canonical_cases(default_ops()).items():
        for case in cases:
            for dtype in dtypes_of(case, default_ops()[name]):
                _, binding = new_function(default_ops()[name], case.types(dtype), case.attrs)
                sizes = {name for value in binding.results for name in _symbols(value)}
                if not sizes and not isinstance(ccompiler.byoc_supports(binding, context), Rejection):
                    found.setdefault(name, []).append((replace(case, op=name), dtype))
    return tuple(found), found


def _symbols(value: Value) -> frozenset[str]:
    return frozenset(value.type.symbols) if isinstance(value.type, TensorType) else frozenset()


def _dtype(value: Value) -> str:
    return value.type.dtype if isinstance(value.type, TensorType) else ""


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


def _draw_products(number: int) -> tuple[IRModule, list[list[NDArray]]]:
    """Draw products and convolutions of whole numbers of symbolic sizes, among views and broadcast operands."""
    rng = random.Random(number)
    while True:
        builder = FunctionBuilder("main")
        try:
            case, results = grow(rng, builder)
        except IRTypeError:
            continue
        break
    function = builder.finish(*results)
    generator = np.random.default_rng(number)
    types = [param.type for param in function.params if isinstance(param.type, TensorType)]
    calls = []
    for sizes in (case.sizes() for _ in range(3)):
        shapes = [tuple(evaluate(dim, sizes) for dim in type_.shape or ()) for type_ in types]
        if all(size >= 0 for shape in shapes for size in shape):
            pairs = zip(shapes, types, strict=True)
            calls.append([generator.integers(-3, 4, shape).astype(to_numpy(type_.dtype)) for shape, type_ in pairs])
    return IRModule({"main": function}, builder.constants), calls


KINDS: Mapping[str, Callable[[int], tuple[IRModule, list[list[NDArray]]]]] = MappingProxyType(
    {
        "layers": _draw_layers,
        "special values": _draw_special_values,
        "control flow": _draw_control_flow,
        "op cases": _draw_op_cases,
        "products": _draw_products,
    }
)
"""The generators by name; seeds take turns."""
