"""Random modules with random claims: the material of the partition properties."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from byoc_core.ir import (
    CALL_PACKED,
    Binding,
    ConstantStore,
    Function,
    IRModule,
    OpDef,
    OperandSpec,
    Value,
    Var,
    tensor,
)
from byoc_core.ops import FunctionBuilder
from byoc_core.pattern import CompositePattern, Match, Rejection, is_const, is_op, wildcard
from byoc_core.transform import evaluate_function
from byoc_core.transform.rewrite import map_functions
from hypothesis import strategies as st

BACKENDS = ("aone", "btwo", "cthree")
_UNARY = ("nn.relu", "negative", "tanh")
_BINARY = ("add", "multiply", "subtract", "maximum", "minimum")
_KINDS = (*_UNARY, *_BINARY, "const_add", "const_subtract", "split", "concat", "effect", "if", "call", "dead")

Step = tuple[str, int, int, int]


@dataclass(frozen=True)
class Case:
    """A module, and who claims which of its ops.

    Attributes:
        module: functions ``main`` and ``side``.
        claims: backend by name of the op's first result.
        patterns: of all backends.
        backends: names, in the order in which they are asked.
    """

    module: IRModule
    claims: Mapping[str, str]
    patterns: tuple[CompositePattern, ...]
    backends: tuple[str, ...]

    def claimed(self) -> IRModule:
        """The module with the claims set on its bindings."""
        return map_functions(self.module, self._claim)

    def _claim(self, function: Function) -> Function:
        bindings = tuple(
            replace(b, codegen=self.claims.get(b.results[0].name), regions=tuple(map(self._claim, b.regions)))
            for b in function.bindings
        )
        return replace(function, bindings=bindings)

    def evaluate(self, module: IRModule, num_inputs: int = 3) -> tuple[list[Any], list[tuple[str, float]]]:
        """The results of ``main`` for the first of three fixed inputs, and the effects in order."""
        effects: list[tuple[str, float]] = []
        inputs = [np.array(True), np.linspace(-2.0, 2.0, 4), np.array([0.5, -1.0, 3.0, 0.0])]
        with np.errstate(all="ignore"):
            results = evaluate_function(map_functions(module, _with_effects(effects)), "main", inputs[:num_inputs])
        return list(results), effects


def _with_effects(effects: list[tuple[str, float]]) -> Callable[[Function], Function]:
    """Gives impure calls a kernel that records them."""

    def kernel(x: Any, *, symbol: str, pure: bool) -> Any:
        effects.append((symbol, float(x.sum())))
        return x + 1.0

    recorded = OpDef("recorded", (OperandSpec("x"),), CALL_PACKED.infer, CALL_PACKED.attrs, kernel=kernel)

    def change(function: Function) -> Function:
        bindings = [
            replace(b, op=recorded if b.op is CALL_PACKED else b.op, regions=tuple(map(change, b.regions)))
            for b in function.bindings
        ]
        return replace(function, bindings=tuple(bindings))

    return change


class _Grower:
    """Grows functions from a list of steps; every value has one of the shapes (4,), (2,) and (1,)."""

    def __init__(self, backends: int) -> None:
        self.store = ConstantStore()
        self.claims: dict[str, str] = {}
        self.side: Function | None = None
        self._names = (f"v{i}" for i in itertools.count())
        self._backends = BACKENDS[:backends]

    def grow(self, name: str, params: Sequence[Value], steps: list[Step], depth: int, num_results: int) -> Function:
        functions = {} if self.side is None else {"side": self.side}
        builder = FunctionBuilder(name, constants=self.store, functions=functions)
        values = [builder.param(next(self._names), param.type) for param in params]
        flag, pool = (values[0], values[1:]) if depth == 0 and name == "main" else (None, list(values))
        while steps:
            pool += self._step(builder, pool, flag, steps.pop(0), steps, depth)
        results = pool[-num_results:] if depth == 0 else [self._of_type(pool, params[0])]
        return builder.finish(*results, *(pool[:1] if num_results == 3 else ()))

    @staticmethod
    def _of_type(pool: Sequence[Var], wanted: Value) -> Var:
        return next(value for value in reversed(pool) if value.type == wanted.type)

    def _emit(self, builder: FunctionBuilder, claim: int, op: str, *operands: Any, count: int = 1, **more: Any) -> Any:
        names = [next(self._names) for _ in range(count)]
        if 0 < claim <= len(self._backends):
            self.claims[names[0]] = self._backends[claim - 1]
        return builder.emit(op, *operands, names=names, **more)

    def _step(
        self, builder: FunctionBuilder, pool: list[Var], flag: Var | None, step: Step, rest: list[Step], depth: int
    ) -> tuple[Var, ...]:
        kind, i, j, claim = step
        x = pool[-1 - i % len(pool)]
        size: Any = x.type.shape[0]  # type: ignore[union-attr, index]
        alike = [value for value in pool if value.type == x.type]
        y = alike[-1 - j % len(alike)]
        emit = functools.partial(self._emit, builder, claim)
        if kind in _UNARY:
            return (emit(kind, x),)
        if kind in _BINARY:
            return (emit(kind, x, y),)
        if kind == "const_add":
            return (emit("add", x, np.full(size, float(j % 3))),)
        if kind == "const_subtract":
            return (emit("subtract", np.full(size, float(j % 3)), x),)
        if kind == "split" and size > 1:
            parts: tuple[Var, ...] = emit("split", x, sections=(size // 2, size // 2), count=2)
            return parts
        if kind == "concat" and size < 4:
            return (emit("concat", x, y),)
        if kind == "effect":
            out_types = [x.type]
            return (self._emit(builder, 0, "call_packed", x, symbol=f"log{j % 2}", out_types=out_types),)
        if kind == "if" and flag is not None:
            branches = [
                self.grow(f"branch{k}", (x, y), [rest.pop(0) for _ in range(min(len(rest), n))], depth + 1, 1)
                for k, n in enumerate((1 + i % 5, j % 4))
            ]
            return (self._emit(builder, 0, "if", flag, x, y, regions=branches),)
        if kind == "call" and self.side is not None and size == 4:
            return (self._emit(builder, 0, "call", x, callee="side"),)
        if kind == "dead":
            emit("nn.relu", x)
        return (emit("nn.relu", x),)


def _patterns() -> Iterator[tuple[str, Any]]:
    yield "relu_add", is_op("nn.relu")(is_op("add")(wildcard(), wildcard()))
    yield "add_const", is_op("add")(wildcard(), is_const()).optional(is_op("nn.relu"))
    yield "subtract_from_const", is_op("subtract")(is_const(), wildcard())
    shared = wildcard()
    yield "diamond", is_op("add", "maximum")(is_op("nn.relu")(shared), is_op("negative", "tanh")(shared))
    yield "halves", is_op("concat")(is_op("split")(shared), wildcard())
    yield "tree", is_op(*_BINARY)(is_op(*_BINARY)(wildcard(), wildcard()), is_op(*_BINARY)(wildcard(), wildcard()))
    yield "residual", is_op("add")(is_op("multiply")(wildcard(), wildcard()), wildcard())


_PATTERNS = dict(_patterns())


def _composite_pattern(backend: str, what: str, priority: int, refused: int) -> CompositePattern:
    def check(match: Match) -> Rejection | None:
        number = int(match.root.results[0].name[1:])
        return Rejection("unlucky", f"{match.root.results[0].name} is unlucky") if number % 5 == refused else None

    return CompositePattern(f"{backend}.{what}", _PATTERNS[what], check, priority)


def make_case(
    steps: Sequence[Step], side: Sequence[Step], picks: Sequence[tuple[int, str, int]], backends: int
) -> Case:
    """Makes a case of drawn numbers."""
    grower = _Grower(backends)
    x = Var("x", tensor((4,), "float64"))
    grower.side = grower.grow("side", (x,), [s for s in side if s[0] != "concat"], 1, 1)
    main = grower.grow("main", (Var("flag", tensor((), "bool")), x, x), list(steps), 0, 1 + len(steps) % 3)
    patterns = tuple(
        _composite_pattern(BACKENDS[backend % backends], what, refused % 2, refused) for backend, what, refused in picks
    )
    module = IRModule({"side": grower.side, "main": main}, grower.store)
    return Case(module, grower.claims, patterns, BACKENDS[:backends])


def _cases(max_size: int = 100) -> st.SearchStrategy[Case]:
    step = st.tuples(st.sampled_from(_KINDS), st.integers(0, 60), st.integers(0, 60), st.integers(0, 3))
    pick = st.tuples(st.integers(0, 2), st.sampled_from(tuple(_PATTERNS)), st.integers(0, 5))
    return st.builds(
        make_case,
        st.one_of(
            st.lists(step, min_size=4, max_size=12),
            st.lists(step, min_size=12, max_size=max_size // 2),
            st.lists(step, min_size=max_size // 2, max_size=max_size),
        ),
        st.lists(step, min_size=1, max_size=4),
        st.lists(pick, max_size=4),
        st.integers(1, 3),
    )


@pytest.fixture(scope="session")
def cases() -> Callable[..., st.SearchStrategy[Case]]:
    """Modules of 4 to ``max_size`` ops with claims and patterns of 1 to 3 backends."""
    return _cases


@pytest.fixture(scope="session")
def placement() -> Callable[..., Any]:
    """Gives the region of each op of a partitioned module; see :class:`Placement`."""
    return Placement


class Placement:
    """Which region each op of a partitioned module stands in, read off the names of results.

    Args:
        module: partitioned; names are unique within a function of the original.
    """

    def __init__(self, module: IRModule) -> None:
        self.region_of: dict[str, str] = {}
        self.backend_of: dict[str, str] = {}
        for name, function in module.functions.items():
            if "Codegen" in function.attrs:
                self.backend_of[name] = str(function.attrs["Codegen"])
                for binding in _members(function):
                    self.region_of[binding.results[0].name] = name


def _members(function: Function) -> Iterator[Binding]:
    for binding in function.bindings:
        if binding.op.name == "composite":
            yield from _members(binding.regions[0])
        else:
            yield binding
