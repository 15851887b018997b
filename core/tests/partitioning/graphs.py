"""Random modules with random claims: the material of the laws of partition.

A :class:`Plan` is plain drawn data, by hypothesis (with shrinking) or from an integer; :func:`grow` builds the module.
Elements are int64 with wrap-around: numbers stay exact and distinguish computations at any depth.
"""

from __future__ import annotations

import functools
import itertools
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from byoc_core.ir import CALL_PACKED, Binding, ConstantStore, Function, IRModule, OpDef, OperandSpec, Type, Var, tensor
from byoc_core.ir.builder import Operand
from byoc_core.ops import FunctionBuilder
from byoc_core.pattern import CompositePattern, Match, Pattern, Rejection, Support, is_const, is_op, wildcard
from byoc_core.runtime.module import NDArray
from byoc_core.transform import evaluate_function
from byoc_core.transform.rewrite import map_functions
from hypothesis import strategies as st

from core.tests.conftest import FakeBackend

BACKENDS = ("aone", "btwo", "cthree", "dfour")
UNARY = ("nn.relu", "negative", "abs")
BINARY = ("add", "multiply", "subtract", "maximum", "minimum")
KINDS = (
    *UNARY, *BINARY, "add", "nn.relu", "const_add", "const_subtract", "split", "concat", "reshape",
    "effect", "if", "loop", "call", "dead",
)  # fmt: skip
COUNT = "count"
"""A step finding the nonzero elements of a value: the sizes of the following values depend on data."""
FIRST_WITH_COUNTS = 100
"""Seeds below make graphs without these steps, to keep the laws broken by each mutant of the merger."""
SIZES = ((30, 4, 15), (25, 15, 40), (22, 40, 100), (15, 100, 250), (8, 286, 286))
"""Ops of ``main`` in graphs made from a seed: percent of the graphs, least and most. ``side`` and ``inner`` add up to
14, so no graph has more than 300; a step of kind :data:`COUNT` counts once and makes up to seven.
"""

Step = tuple[str, int, int, int]
Pick = tuple[int, str, int, bool]


@dataclass(frozen=True)
class Plan:
    """The source of a case: any numbers make a valid module.

    Attributes:
        steps: of ``main``: kind, two numbers choosing operands, and a number choosing the claim. A step with a body
            takes the body's steps from the steps behind.
        side: steps of ``side``, called by ``main``; ``inner`` is called by both.
        inner: steps of ``inner``.
        picks: of each pattern the backend, name, refusals of the check, and whether leaked values are returned.
        results: the values returned by ``main``, counted from the last; a repetition is a duplicate.
        backends: how many.
        lifted: a bit for each backend requesting constants as parameters.
        symbolic: sizes are ``m`` and ``n``.
    """

    steps: tuple[Step, ...]
    side: tuple[Step, ...] = ()
    inner: tuple[Step, ...] = ()
    picks: tuple[Pick, ...] = ()
    results: tuple[int, ...] = (0,)
    backends: int = 2
    lifted: int = 0
    symbolic: bool = False


@dataclass(frozen=True)
class Case:
    """A module, and the claims on its ops.

    Attributes:
        module: functions ``main``, ``side`` and ``inner``; each value has a unique name.
        claims: backend by name of the op's first result.
        patterns: of all backends.
        backends: names, in the order of asking.
        lifted: the backends requesting constants as parameters.
        inputs: arguments of ``main``.
    """

    module: IRModule
    claims: Mapping[str, str]
    patterns: tuple[CompositePattern, ...]
    backends: tuple[str, ...]
    lifted: frozenset[str]
    inputs: tuple[npt.NDArray[Any], ...] = field(repr=False)

    def claimed(self) -> IRModule:
        """The module with the claims set on the bindings."""
        return map_functions(self.module, self._claim)

    def _claim(self, function: Function) -> Function:
        bindings = tuple(
            replace(b, codegen=self.claims.get(b.results[0].name), regions=tuple(map(self._claim, b.regions)))
            for b in function.bindings
        )
        return replace(function, bindings=bindings)

    def with_claims_by_kind(self) -> Case:
        """The case with claims that do not depend on names: the claim of the first op counts for all ops of its kind.

        Policies asking about distinct ops only, such as ``ByCost``, need such backends.
        """
        bindings = [binding for function in self.module.functions.values() for binding in function.walk()]
        kinds: dict[str, str] = {}
        for binding in bindings:
            kinds.setdefault(binding.op.name, self.claims.get(binding.results[0].name, ""))
        claims = {binding.results[0].name: kinds[binding.op.name] for binding in bindings if kinds[binding.op.name]}
        return replace(self, claims=claims)

    def plugins(self, fake_backend: type[FakeBackend], **more: Any) -> list[Any]:
        """Backends as described by the case: with their patterns, and the ops of their claims; ``more`` for each."""
        return [
            fake_backend(
                name,
                patterns=[pattern for pattern in self.patterns if pattern.backend == name],
                supports=functools.partial(self._supports, name),
                data_dependent_sizes=True,
                constants="lifted" if name in self.lifted else "embedded",
                **more,
            )
            for name in self.backends
        ]

    def _supports(self, backend: str, binding: Binding) -> Support | Rejection:
        claiming = self.claims.get(binding.results[0].name)
        return Support() if claiming == backend else Rejection("drawn", f"is for {claiming}")

    def evaluate(
        self, module: IRModule, inputs: Sequence[npt.NDArray[Any]] | None = None
    ) -> tuple[list[Any], list[Any]]:
        """The results of ``main``, and the effects in order: symbol and argument."""
        effects: list[tuple[str, list[int]]] = []
        recording = map_functions(module, with_effects(effects))
        results = evaluate_function(recording, "main", self.inputs if inputs is None else inputs)
        return list(results), effects

    def count(self) -> Counter[str]:
        """The number of ops of each kind in the module, bodies included."""
        return Counter(binding.op.name for f in self.module.functions.values() for binding in f.walk())


def with_effects(effects: list[tuple[str, list[int]]]) -> Callable[[Function], Function]:
    """Add a recording kernel to impure calls."""

    def kernel(x: NDArray, *, symbol: str, pure: bool) -> Any:
        effects.append((symbol, x.ravel().tolist()))
        return x + 1

    recorded = OpDef("recorded", (OperandSpec("x"),), CALL_PACKED.infer, CALL_PACKED.attrs, kernel=kernel)

    def change(function: Function) -> Function:
        if not any(binding.regions or binding.op is CALL_PACKED for binding in function.bindings):
            return function
        bindings = [
            replace(b, op=recorded if b.op is CALL_PACKED else b.op, regions=tuple(map(change, b.regions)))
            for b in function.bindings
        ]
        return replace(function, bindings=tuple(bindings))

    return change


class _Grower:
    """A builder of functions; values have the shapes (4,), (2,) and (1,), or (m, n), (2*m, n) and (m*n,)."""

    def __init__(self, plan: Plan) -> None:
        self.store = ConstantStore()
        self.claims: dict[str, str] = {}
        self.functions: dict[str, Function] = {}
        self._names = (f"v{i}" for i in itertools.count())
        self._plan = plan
        base = ("m", "n") if plan.symbolic else (4,)
        self._base = tensor(base, "int64")
        self._wide = tensor(("2*m", "n"), "int64") if plan.symbolic else self._base
        self._flat = tensor(("m*n",), "int64")

    def grow(self, name: str, steps: Sequence[Step]) -> Function:
        """Grow a function of the module."""
        builder = FunctionBuilder(name, constants=self.store, functions=self.functions)
        flag = tensor((), "bool")
        flags = (self._param(builder, flag), self._param(builder, flag))
        num_inputs = 2 if name == "main" else 1
        pool = [self._param(builder, self._base) for _ in range(num_inputs)]
        self._fill(builder, pool, flags, list(steps), 0)
        if name == "main":
            return builder.finish(*(pool[-1 - index % len(pool)] for index in self._plan.results))
        return builder.finish(self._last(pool, self._base, 0), self._last(pool, self._base, 1))

    def _param(self, builder: FunctionBuilder, type_: Type) -> Var:
        return builder.param(next(self._names), type_)

    @staticmethod
    def _last(pool: Sequence[Var], type_: Type, index: int) -> Var:
        alike = [value for value in pool if value.type == type_]
        return alike[-1 - index % len(alike)]

    def _fill(
        self, builder: FunctionBuilder, pool: list[Var], flags: tuple[Var, Var], steps: list[Step], depth: int
    ) -> None:
        while steps:
            pool += self._step(builder, pool, flags, steps.pop(0), steps, depth)

    def _body(self, name: str, operands: Sequence[Var], steps: list[Step], depth: int, *, count: int) -> Function:
        """Grow the body of an ``if`` (with one or two results) or of a ``loop`` (two carried values)."""
        builder = FunctionBuilder(name, constants=self.store, functions=self.functions)
        is_loop = name == "body"
        if is_loop:
            self._param(builder, tensor((), "int64"))
        first, second, *pool = (self._param(builder, operand.type) for operand in operands)
        self._fill(builder, pool, (first, second), steps, depth)
        results = [self._last(pool, operands[2].type, index) for index in range(count)]
        return builder.finish(*((builder.const(np.array(True)), first, second) if is_loop else ()), *results)

    def _emit(
        self,
        builder: FunctionBuilder,
        op: str,
        *operands: Operand,
        count: int = 1,
        backend: str | None = None,
        **more: Any,
    ) -> tuple[Var, ...]:
        names = [next(self._names) for _ in range(count)]
        if backend is not None:
            self.claims[names[0]] = backend
        return builder.bind(op, operands, more.pop("attrs", {}), names=names, **more).results

    def _backend(self, claim: int, operand: Var) -> str | None:
        """Return the claiming backend: nobody for 0, a backend below 6, or else the backend claiming the operand."""
        if claim > 5:
            return self.claims.get(operand.name)
        return BACKENDS[(claim - 1) % self._plan.backends] if claim else None

    def _step(
        self,
        builder: FunctionBuilder,
        pool: list[Var],
        flags: tuple[Var, Var],
        step: Step,
        rest: list[Step],
        depth: int,
    ) -> tuple[Var, ...]:
        kind, i, j, claim = step
        x = pool[-1 - i % len(pool)]
        y = self._last(pool, x.type, j)
        if kind in ("if", "loop") and depth < 2:
            return self._nest(builder, kind, (*flags, x, y), step, rest, depth)
        if kind == COUNT:
            return self._count(builder, x, j, claim)
        if kind == "effect":
            return self._emit(builder, "call_packed", x, attrs={"symbol": f"log{j % 2}"}, out_types=[x.type])
        callees = list(self.functions)
        if kind == "call" and callees and x.type in (self._base, self._wide):
            return self._emit(builder, "call", *flags, x, count=2, attrs={"callee": callees[j % len(callees)]})
        results = self._plain(functools.partial(self._emit, builder, backend=self._backend(claim, x)), kind, x, y, j)
        return () if kind == "dead" else results

    def _count(self, builder: FunctionBuilder, x: Var, j: int, claim: int) -> tuple[Var, ...]:
        """Add to a value sums over the nonzero positions; some of these read no value of the new size."""
        emit = functools.partial(self._emit, builder)
        size = f"k{next(self._names)}"
        shape: Any = x.type.shape  # type: ignore[union-attr]
        positions_type = tensor((len(shape), size), "int64")
        (found,) = emit("nonzero", x, out_types=[positions_type], backend=self._backend(claim, x))
        sums: list[Var] = []
        if j % 3:
            (value,) = emit(UNARY[j % 3], found, backend=self._backend(j % 8, found))
            sums += emit("sum", value, backend=self._backend(claim, x))
        if j % 3 < 2:
            (value,) = emit("broadcast_to", np.array(j), attrs={"shape": (size,)}, backend=self._backend(claim, x))
            sums += emit("sum", value, backend=self._backend(j % 7, value))
        for value in sums:
            (x,) = emit("add", x, value, backend=self._backend(claim, x))
        return (x,)

    def _plain(self, emit: Callable[..., tuple[Var, ...]], kind: str, x: Var, y: Var, j: int) -> tuple[Var, ...]:
        shape: Any = x.type.shape  # type: ignore[union-attr]
        if kind in UNARY:
            return emit(kind, x)
        if kind in BINARY:
            return emit(kind, x, y)
        if kind in ("const_add", "const_subtract"):
            weight = np.array(j % 3) if self._plan.symbolic else np.full(shape, j % 3)
            return emit("add", x, weight) if kind == "const_add" else emit("subtract", weight, x)
        if kind == "split" and self._plan.symbolic and x.type == self._wide:
            return emit("split", x, count=2, attrs={"sections": ("m", "m")})
        if kind == "split" and not self._plan.symbolic and shape[0] > 1:
            sections = (1, 1, 2) if shape == (4,) and j % 3 == 0 else (shape[0] // 2, shape[0] // 2)
            return emit("split", x, count=len(sections), attrs={"sections": sections})
        if kind == "concat" and (x.type == self._base if self._plan.symbolic else shape[0] < 4):
            return emit("concat", x, y)
        if kind == "reshape" and self._plan.symbolic and x.type in (self._base, self._flat):
            new = ("m*n",) if x.type == self._base else ("m", "n")
            return emit("reshape", x, attrs={"shape": new})
        return emit(UNARY[j % 3], x)

    def _nest(
        self,
        builder: FunctionBuilder,
        kind: str,
        operands: tuple[Var, ...],
        step: Step,
        rest: list[Step],
        depth: int,
    ) -> tuple[Var, ...]:
        _, i, j, _ = step
        if kind == "loop":
            body = self._body("body", operands, _take(rest, 1 + i % 7), depth + 1, count=2)
            head = (np.array(j % 3), np.array(True))
            return self._emit(builder, "loop", *head, *operands, count=4, regions=[body])[2:]
        count = 1 + j % 2
        sizes = (("yes", 1 + i % 7), ("no", j % 5))
        branches = [self._body(name, operands, _take(rest, n), depth + 1, count=count) for name, n in sizes]
        condition = operands[i % 2]
        return self._emit(builder, "if", condition, *operands, count=count, regions=branches)


def _take(steps: list[Step], count: int) -> list[Step]:
    prefix = steps[:count]
    del steps[:count]
    return prefix


def _patterns() -> dict[str, Pattern]:
    shared = wildcard()
    pair = is_op(*BINARY)(wildcard(), wildcard())
    return {
        "relu_add": is_op("nn.relu")(is_op("add")(wildcard(), wildcard())),
        "add_const": is_op("add")(wildcard(), is_const()).optional(is_op("nn.relu")),
        "subtract_from_const": is_op("subtract")(is_const(), wildcard()),
        "diamond": is_op("add", "maximum")(is_op("nn.relu")(shared), is_op("negative", "abs")(shared)),
        "halves": is_op("concat")(is_op("split")(shared), wildcard()),
        "tree": is_op(*BINARY)(pair, is_op(*BINARY)(wildcard(), wildcard())),
        "residual": is_op("add")(is_op("multiply")(wildcard(), wildcard()), wildcard()),
    }


PATTERNS = _patterns()


def _composite_pattern(backend: str, pattern_name: str, refused: int, returns: bool) -> CompositePattern:
    def check(match: Match) -> Rejection | None:
        name = match.root.results[0].name
        return Rejection("unlucky", f"{name} is unlucky") if int(name[1:]) % 5 == refused else None

    leaked: Any = "return" if returns else "decline"
    return CompositePattern(f"{backend}.{pattern_name}", PATTERNS[pattern_name], check, refused % 2, leaked)


def grow(plan: Plan) -> Case:
    """Build the case of a plan."""
    grower = _Grower(plan)
    for name, steps in (("inner", plan.inner), ("side", plan.side), ("main", plan.steps)):
        grower.functions[name] = grower.grow(name, steps)
    names = BACKENDS[: plan.backends]
    patterns = tuple(_composite_pattern(names[b % len(names)], *pick) for b, *pick in plan.picks)  # type: ignore[arg-type]
    shape = (3, 2) if plan.symbolic else (4,)
    rng = np.random.default_rng(1)
    inputs = (np.array(True), np.array(False), *(rng.integers(-99, 99, shape) for _ in range(2)))
    lifted = frozenset(name for bit, name in enumerate(names) if plan.lifted >> bit & 1)
    return Case(IRModule(grower.functions, grower.store), grower.claims, patterns, names, lifted, inputs)


def plan_of_seed(seed: int) -> Plan:
    """Return the plan of a seed: sizes as in :data:`SIZES`, one to four backends, a quarter with symbolic sizes.

    From :data:`FIRST_WITH_COUNTS` on, a fifth has data-dependent sizes.
    """
    rng = random.Random(seed)
    # Bodies and barriers make many small graphs of one; half of the graphs do without the one, half without the other.
    left_out = [kind for kinds in (("effect", "call"), ("if", "loop")) if rng.random() < 0.5 for kind in kinds]
    kinds = [kind for kind in KINDS if kind not in left_out]
    # The values that a step may read: short reaches make chains, long ones make graphs with many ways.
    reach = rng.choice((4, 20, 60, 300))

    def steps(count: int) -> tuple[Step, ...]:
        return tuple(
            (rng.choice(kinds), rng.randrange(reach), rng.randrange(reach), rng.randrange(8)) for _ in range(count)
        )

    def with_counts(drawn: tuple[Step, ...]) -> tuple[Step, ...]:
        """Insert some steps of kind COUNT."""
        mixed = list(drawn)
        for _ in range(1 + rng.randrange(4)):
            count = (COUNT, rng.randrange(reach), rng.randrange(reach), rng.randrange(8))
            mixed.insert(rng.randrange(len(mixed) + 1), count)
        return tuple(mixed)

    ((_, low, high),) = rng.choices(SIZES, weights=[percent for percent, _, _ in SIZES])
    patterns = list(PATTERNS)
    plan = Plan(
        steps=steps(rng.randint(low, high)),
        side=steps(rng.randrange(9)),
        inner=steps(rng.randrange(7)),
        picks=tuple(
            (rng.randrange(4), rng.choice(patterns), rng.randrange(7), rng.random() < 0.5)
            for _ in range(rng.randrange(5))
        ),
        results=tuple(rng.randrange(reach) for _ in range(1 + rng.randrange(4))),
        backends=1 + rng.randrange(4),
        lifted=rng.randrange(16),
        symbolic=rng.random() < 0.25,
    )
    if seed < FIRST_WITH_COUNTS or rng.random() < 0.8:
        return plan
    return replace(plan, steps=with_counts(plan.steps))


def plans(max_size: int = 60, *, symbolic: bool = True) -> st.SearchStrategy[Plan]:
    """Plans drawn by hypothesis, of up to ``max_size`` steps in ``main``; with ``symbolic``, half of symbolic sizes."""
    number = st.integers(0, 60)
    steps = st.tuples(st.sampled_from(KINDS), number, number, st.integers(0, 7))
    picks = st.tuples(st.integers(0, 3), st.sampled_from(tuple(PATTERNS)), st.integers(0, 6), st.booleans())

    def up_to(size: int, least: int = 0) -> st.SearchStrategy[tuple[Step, ...]]:
        return st.lists(steps, min_size=least, max_size=size).map(tuple)

    return st.builds(
        Plan,
        steps=st.one_of(up_to(12, 1), up_to(max_size // 2, 12), up_to(max_size, max_size // 2)),
        side=up_to(6),
        inner=up_to(4),
        picks=st.lists(picks, max_size=4).map(tuple),
        results=st.lists(number, min_size=1, max_size=4).map(tuple),
        backends=st.integers(1, 4),
        lifted=st.integers(0, 15),
        symbolic=st.booleans() if symbolic else st.just(value=False),
    )
