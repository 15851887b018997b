"""The matcher against brute force: random patterns in random functions.

Brute force tries every op of the function at every op of the pattern, in every order of operands, without memory,
preferences or bounds, and checks each complete assignment against the definition.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from random import Random

import numpy as np
from byoc_core.ir import Binding, Constant, Function, Value, tensor
from byoc_core.ops import FunctionBuilder
from byoc_core.ops.identity import is_identity
from byoc_core.pattern import (
    Alternatives,
    FunctionIndex,
    OpPattern,
    Pattern,
    ValuePattern,
    any_number,
    find_matches,
    is_const,
    is_op,
    is_var,
    wildcard,
)
from hypothesis import event, given, settings
from hypothesis import strategies as st

UNARY = ("tanh", "nn.relu")
BINARY = ("add", "subtract")
COMMUTATIVE = ("add",)
KINDS = (*UNARY, *BINARY, *BINARY, "add", "identity", "identity", "split", "concat")


def random_function(random: Random) -> tuple[Function, FunctionIndex]:
    """Return a function of up to nine ops, including identities, constants, ops of two results and of many operands."""
    builder = FunctionBuilder("main")
    values: list[Value] = [builder.param(name, tensor((4, 4))) for name in "xy"]
    values += [builder.const(np.full((4, 4), number, np.float32)) for number in (0, 1)]
    for _ in range(random.randint(3, 9)):
        kind = random.choice(KINDS)
        first = random.choice(values[-4:])
        same = [value for value in values if value.type == first.type]
        if kind in UNARY:
            values += builder.bind(kind, [first], {}).results
        elif kind in BINARY:
            values += builder.bind(kind, [first, random.choice(same)][:: random.choice((1, -1))], {}).results
        elif kind == "identity":
            identities: dict[str, dict[str, object]] = {"cast": {"dtype": "float32"}, "permute_dims": {"axes": (0, 1)}}
            op = random.choice(list(identities))
            values += builder.bind(op, [first], identities[op]).results
        elif kind == "split":
            square = random.choice([value for value in values if value.type == tensor((4, 4))])
            values += builder.bind("split", [square], {"sections": (2, 2)}).results
        else:
            parts = [random.choice(same) for _ in range(random.randint(2, 3))]
            values += builder.bind("concat", parts, {}).results
    main = builder.finish(values[-1])
    return main, FunctionIndex(main, builder.constants)


def random_pattern(random: Random, pool: Sequence[Pattern], depth: int) -> Pattern:
    """Return a pattern; parts in the pool may be used repeatedly."""
    kind = random.choice(("leaf", "pool") if depth == 0 else ("leaf", "pool", "either", *("op",) * 6))
    if kind == "leaf":
        return random.choice((wildcard, wildcard, wildcard, is_const, is_var))()
    if kind == "pool":
        return random.choice(pool)
    if kind == "either":
        return random_pattern(random, pool, depth - 1) | random_pattern(random, pool, depth - 1)
    return random_op(random, pool, depth)


def random_op(random: Random, pool: Sequence[Pattern], depth: int) -> Pattern:
    def operand() -> Pattern:
        return random_pattern(random, pool, depth - 1)

    kind = random.choice(("unary", "binary", "binary", "binary", "split", "concat", "reading", "bare", "optional"))
    if kind == "unary":
        return is_op(*random.sample(UNARY, random.randint(1, 2)))(operand())
    if kind == "binary":
        return is_op(*random.sample(BINARY, random.randint(1, 2)))(operand(), operand())
    if kind == "split":
        return is_op("split")(operand()).result(random.randint(0, 1))
    if kind == "concat":
        return is_op("concat")(*[operand()] * random.randint(0, 1), any_number(operand(), random.randint(0, 2)))
    if kind == "reading":
        return is_op(*BINARY, "concat").reading(operand())
    if kind == "bare":
        return is_op(*BINARY, *UNARY)
    return operand().optional(is_op(*UNARY))


class Portrait:
    """Patterns drawn from a function, for frequent matches: with leaves, choices and shared parts at random."""

    def __init__(self, random: Random, index: FunctionIndex) -> None:
        self.random = random
        self.index = index
        self.drawn: dict[object, Pattern] = {}
        self.numbers = itertools.count()

    def draw(self, value: Value, depth: int) -> Pattern:
        """Return a pattern for a value, often a pattern drawn before for the same value, identities apart."""
        source = self.index.source(value)
        key = source if isinstance(source, Constant) else id(source)
        if key not in self.drawn or self.random.random() < 0.3:
            self.drawn[key] = self.draw_anew(source, depth)
        return self.drawn[key]

    def draw_anew(self, value: Value, depth: int) -> Pattern:
        found = self.index.producer(value)
        if found is None or depth == 0 or self.random.random() < 0.2:
            leaf = self.random.choice((wildcard(), wildcard().named(f"leaf{next(self.numbers)}"), is_const(), is_var()))
            return leaf if leaf.kind == "any" else leaf | wildcard()
        binding, result_index = found
        operands = [self.draw(operand, depth - 1) for operand in binding.operands]
        if binding.op.name in COMMUTATIVE and self.random.random() < 0.5:
            operands.reverse()
        pattern = is_op(binding.op.name)
        if binding.op.name == "concat" and self.random.random() < 0.8:
            count = self.random.randint(0, 1)
            pattern = pattern(*operands[:count], any_number(self.random.choice(operands[count:])))
        elif self.random.random() < 0.1:
            pattern = pattern.reading(self.random.choice(operands))
        else:
            pattern = pattern(*operands)
        pattern = pattern.result(result_index) if result_index else pattern
        return pattern if self.random.random() < 0.8 else self.random.choice(operands) | pattern


Scope = tuple[tuple[int, int], ...]
"""The enclosing operand in each repetition: the id of the op's pattern, and the number of the operand."""

Instance = tuple[int, Scope]
Picked = dict[Instance, Binding]
Uses = dict[Instance, list[Value]]


class BruteForce:
    """All matches of a pattern at a root, by definition."""

    def __init__(self, pattern: Pattern, root: Binding, main: Function) -> None:
        self.main = main
        self.root = root
        self.producer = {id(result): binding for binding in main.bindings for result in binding.results}
        self.position = {id(binding): position for position, binding in enumerate(main.bindings)}
        self.nodes: dict[int, Pattern] = {}
        self.repetitions: dict[int, set[tuple[int, ...]]] = {}
        self.walk(pattern, ())
        self.found: set[tuple[frozenset[int], frozenset[object]]] = set()
        for result in root.results:
            self.solve([(pattern, (), result)], {}, {})

    def walk(self, pattern: Pattern, repeats: tuple[int, ...]) -> None:
        """Record the repetitions around each use of a pattern object."""
        self.nodes[id(pattern)] = pattern
        self.repetitions.setdefault(id(pattern), set()).add(repeats)
        if isinstance(pattern, Alternatives):
            for choice in pattern.choices:
                self.walk(choice, repeats)
        if isinstance(pattern, OpPattern):
            for operand in (*(pattern.operands or ()), *([pattern.reads] if pattern.reads else [])):
                self.walk(operand, repeats)
            if pattern.rest is not None:
                self.walk(pattern.rest.pattern, (*repeats, id(pattern)))

    def instance(self, pattern: Pattern, scope: Scope) -> Instance:
        """Return the pattern object, copied for each repetition if used only inside the repetition."""
        common = set.intersection(*map(set, self.repetitions[id(pattern)]))
        return id(pattern), tuple(repetition for repetition in scope if repetition[0] in common)

    def solve(self, agenda: list[tuple[Pattern, Scope, Value]], picked: Picked, uses: Uses) -> None:
        if not agenda:
            self.finish(picked, uses)
            return
        (pattern, scope, value), *rest = agenda
        instance = self.instance(pattern, scope)
        is_repeated = instance in uses
        uses = {**uses, instance: [*uses.get(instance, []), value]}
        if is_repeated and instance not in picked:
            if len({self.source(use) for use in uses[instance]}) == 1:
                self.solve(rest, picked, uses)
        elif isinstance(pattern, Alternatives):
            for choice in pattern.choices:
                self.solve([(choice, scope, value), *rest], picked, uses)
        elif isinstance(pattern, ValuePattern):
            self.solve(rest, picked, uses)
        elif isinstance(pattern, OpPattern):
            for binding in [picked[instance]] if is_repeated else self.main.bindings:
                if self.fits(pattern, binding, value):
                    for goals in [[]] if is_repeated else self.goals(pattern, scope, binding):
                        self.solve([*goals, *rest], {**picked, instance: binding}, uses)

    def fits(self, pattern: OpPattern, binding: Binding, value: Value) -> bool:
        return (
            binding.op.name in pattern.ops
            and pattern.result_index < len(binding.results)
            and any(binding.results[pattern.result_index] is link for link in self.chain(value))
        )

    def goals(self, pattern: OpPattern, scope: Scope, binding: Binding) -> Iterator[list[tuple[Pattern, Scope, Value]]]:
        if pattern.reads is not None:
            for position, operand in enumerate(binding.operands):
                other_operands = [o for i, o in enumerate(binding.operands) if i != position]
                yield [
                    (pattern.reads, scope, operand),
                    *((self.other(pattern, i), scope, o) for i, o in enumerate(other_operands)),
                ]
        elif pattern.operands is None:
            yield []
        else:
            count = len(pattern.operands)
            if pattern.rest is None and len(binding.operands) == count:
                for operands in itertools.permutations(binding.operands):
                    if operands == binding.operands or (binding.op.name in COMMUTATIVE and count == 2):
                        yield [(p, scope, o) for p, o in zip(pattern.operands, operands, strict=True)]
            if pattern.rest is not None and len(binding.operands) >= count + pattern.rest.at_least:
                fixed = [(p, scope, o) for p, o in zip(pattern.operands, binding.operands, strict=False)]
                more = enumerate(binding.operands[count:])
                yield [*fixed, *((pattern.rest.pattern, (*scope, (id(pattern), n)), o) for n, o in more)]

    def other(self, pattern: OpPattern, position: int) -> Pattern:
        """Return the leaf for an operand beside the subject of ``reading``."""
        leaf = wildcard()
        self.nodes[id(leaf)] = leaf
        self.repetitions[id(leaf)] = self.repetitions[id(pattern)]
        return leaf

    def chain(self, value: Value) -> list[Value]:
        """Return a value, followed by the value before each identity on its path."""
        links = [value]
        while (binding := self.producer.get(id(links[-1]))) is not None and is_identity(binding):
            links.append(binding.operands[0])
        return links

    def source(self, value: Value) -> object:
        last = self.chain(value)[-1]
        return last if isinstance(last, Constant) else id(last)

    def finish(self, picked: Picked, uses: Uses) -> None:
        inside = {id(binding): binding for binding in picked.values()}
        leaves: list[Value] = []
        captured: list[object] = []
        for instance, values in uses.items():
            pattern = self.nodes[instance[0]]
            target = self.target(pattern, instance, picked, values)
            if target is None:
                return
            for value in values:
                for link in self.chain(value):
                    if link is target or link == target:
                        break
                    inside[id(self.producer[id(link)])] = self.producer[id(link)]
            if isinstance(pattern, ValuePattern):
                leaves.append(target)
            if pattern.name is not None:
                captured.append((pattern.name, target if isinstance(target, Constant) else id(target)))
        if id(self.root) not in {id(binding) for binding in picked.values()}:
            return
        if not any(id(self.producer.get(id(leaf))) in inside for leaf in leaves) and self.is_convex(inside):
            self.found.add((frozenset(inside), frozenset(captured)))

    def target(self, pattern: Pattern, instance: Instance, picked: Picked, values: list[Value]) -> Value | None:
        """Return the target of an instance: the op's result, the constant, or the last common origin of all uses."""
        if isinstance(pattern, OpPattern):
            return picked[instance].results[pattern.result_index]
        links = self.chain(values[0])
        common = [link for link in links if all(link in self.chain(value) for value in values)]
        if isinstance(pattern, ValuePattern) and pattern.kind != "any":
            is_constant = pattern.kind == "const"
            common = [v for v in links if (isinstance(v, Constant) if is_constant else v in self.main.params)]
        return common[0] if common else None

    def is_convex(self, inside: dict[int, Binding]) -> bool:
        """Return whether no path leads out and back in, by a look at all later ops."""
        tainted: set[int] = set()
        for binding in self.main.bindings:
            producers = [self.producer.get(id(operand)) for operand in binding.operands]
            if id(binding) in inside:
                if any(id(producer) in tainted for producer in producers):
                    return False
            elif any(id(producer) in tainted or id(producer) in inside for producer in producers):
                tainted.add(id(binding))
        return True


def check(pattern: Pattern, root: Binding, main: Function, index: FunctionIndex) -> None:
    matches = list(find_matches(pattern, root, index))
    found = {
        (
            frozenset(map(id, match.bindings)),
            frozenset(
                (name, value if isinstance(value, Constant) else id(value))
                for name, values in [*((n, (v,)) for n, v in match.captures.items()), *match.repeated.items()]
                for value in values
            ),
        )
        for match in matches
    }
    through = any(is_identity(binding) for match in matches for binding in match.bindings)
    event(f"{min(len(found), 3)} ways, {'through identities' if through else 'directly'}")
    assert found == BruteForce(pattern, root, main).found


@settings(max_examples=500, deadline=None)
@given(st.randoms(use_true_random=False))
def test_the_matcher_finds_what_brute_force_finds_for_any_pattern(random: Random) -> None:
    main, index = random_function(random)
    leaves = [wildcard(), wildcard().named("leaf"), is_const()]
    pool = [*leaves, is_op("tanh")(leaves[0]), is_op("add")(leaves[0], wildcard()) | is_op("nn.relu")]
    pattern = random_op(random, pool, 3)
    for root in main.bindings:
        check(pattern, root, main, index)


@settings(max_examples=500, deadline=None)
@given(st.randoms(use_true_random=False))
def test_the_matcher_finds_what_brute_force_finds_for_patterns_that_nearly_fit(random: Random) -> None:
    main, index = random_function(random)
    portrait = Portrait(random, index)
    model = random.choice([binding for binding in main.bindings if not is_identity(binding)] or main.bindings)
    pattern = portrait.draw(model.results[0], 3)
    for root in main.bindings:
        check(pattern, root, main, index)


def random_join(random: Random) -> tuple[Function, FunctionIndex]:
    """Return a concat of few kinds of operands, over two params, often matched by a repeated pattern."""
    builder = FunctionBuilder("main")
    leaves: list[Value] = [builder.param(name, tensor((4, 4))) for name in "xy"]
    parts: list[Value] = []
    for _ in range(random.randint(2, 4)):
        first = random.choice(leaves)
        second = first if random.random() < 0.6 else random.choice(leaves)
        inner = builder.bind("tanh", (second,), {}).result
        parts.append(builder.bind(random.choice(BINARY), (first, inner), {}).result)
    joined = builder.bind("concat", parts, {}).result
    main = builder.finish(joined)
    return main, FunctionIndex(main, builder.constants)


def random_repetition(random: Random) -> Pattern:
    """Return a concat's pattern; the repeated operand meets an object twice, perhaps also outside of the repetition."""
    shared = random.choice((wildcard(), wildcard().named("leaf"), is_var()))
    inner = is_op("tanh")(shared)
    repeated = is_op(*BINARY)(random.choice((shared, wildcard())), random.choice((inner, is_op("tanh")(wildcard()))))
    fixed = random.choice(([], [wildcard()], [is_op(*BINARY)(shared, wildcard())], [repeated]))
    joined = is_op("concat")(*fixed, any_number(repeated, random.randint(0, 2)))
    return joined | is_op("nn.relu")(shared) if random.random() < 0.35 else joined


@settings(max_examples=500, deadline=None)
@given(st.randoms(use_true_random=False))
def test_each_repeated_operand_is_a_scope_of_its_own_unless_the_object_stands_outside(random: Random) -> None:
    main, index = random_join(random)
    check(random_repetition(random), main.bindings[-1], main, index)
