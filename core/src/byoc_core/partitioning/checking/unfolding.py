"""Unfolding: what a function computes, as value numbers that two modules share.

A value's number stands for the op that makes it, its attributes, the types of its results and the numbers of its
operands; what stands in a composite, or in a function that partitioning made, counts as standing at the place of the
composite or the call. Equal numbers mean equal computations. Nothing here recurses, so nesting may be deep.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from byoc_core.ir import CALL, CALL_PACKED, COMPOSITE, Binding, Constant, Function, IRModule, Trait, Value, Var

__all__ = ["ClaimOf", "Occurrence", "Unfolded", "Unfolder", "impure_functions", "walk"]

Occurrence = tuple[int, str | None, int]
"""An op that runs: its number, the backend that takes it, and how many impure ops run before it in its body."""

ClaimOf = Callable[[Binding, Function | None], str | None]
"""Gives who takes a binding, or what stands in the body that it enters; ``None`` for nobody."""


@dataclass(frozen=True, slots=True)
class Unfolded:
    """A function or a body of ``if`` or ``loop``, unfolded.

    Attributes:
        results: numbers of its results.
        impure: numbers of its impure ops, in order.
        ops: all its ops, in order.
        bindings: those that ``ops`` stands for, in the same order.
    """

    results: list[int] = field(default_factory=list)
    impure: list[int] = field(default_factory=list)
    ops: list[Occurrence] = field(default_factory=list)
    bindings: list[Binding] = field(default_factory=list)


@dataclass(slots=True)
class _Frame:
    """A body on its way to be unfolded, and the values that its results stand for outside."""

    function: Function
    pending: Iterator[Binding]
    values: dict[int, int]
    outer: Sequence[Var] = ()
    claim: str | None = None


class Unfolder:
    """Unfolds the functions of one module.

    Args:
        module: valid; the functions of ``entered`` hold no ``call``, ``if`` or ``loop``.
        numbers: shared by the unfolders of modules that are compared.
        entered: names of the functions whose calls stand for their ops.
        claim_of: who takes what.
    """

    def __init__(
        self, module: IRModule, numbers: dict[object, int], entered: Collection[str], claim_of: ClaimOf
    ) -> None:
        self._module = module
        self._numbers = numbers
        self._entered = entered
        self._claim_of = claim_of
        self._impure_functions = impure_functions(module)
        self._attributes: dict[int, int] = {}
        self._bodies: dict[int, Unfolded] = {}
        for body in reversed(list(_bodies(module))):
            self._bodies[id(body)] = self.unfold(body)

    def body(self, region: Function) -> Unfolded:
        """Gives the body of an ``if`` or ``loop``, unfolded."""
        return self._bodies[id(region)]

    def unfold(self, function: Function) -> Unfolded:
        """Gives a function unfolded. Cost: linear in the ops that it holds and enters."""
        found = Unfolded()
        params = {id(param): self._number(("param", index)) for index, param in enumerate(function.params)}
        frames = [_Frame(function, iter(function.bindings), params)]
        while True:
            frame = frames[-1]
            binding = next(frame.pending, None)
            if binding is None:
                frames.pop()
                results = self._operands(frame.function.results, frame.values)
                if not frames:
                    found.results.extend(results)
                    return found
                frames[-1].values.update(zip(map(id, frame.outer), results, strict=True))
                continue
            operands = self._operands(binding.operands, frame.values)
            body = self._entered_body(binding)
            claim = frame.claim or self._claim_of(binding, body)
            if body is not None:
                values = dict(zip(map(id, body.params), operands, strict=True))
                frames.append(_Frame(body, iter(body.bindings), values, binding.results, claim))
            else:
                self._run(binding, operands, claim, frame, found)

    def _run(
        self, binding: Binding, operands: Sequence[int], claim: str | None, frame: _Frame, found: Unfolded
    ) -> None:
        types = tuple([result.type for result in binding.results])
        bodies = tuple([self._body_key(region) for region in binding.regions])
        number = self._number((binding.op.name, self._attributes_number(binding), tuple(operands), types, bodies))
        found.ops.append((number, claim, len(found.impure)))
        found.bindings.append(binding)
        if self._has_effect(binding):
            found.impure.append(number)
            number = self._number((number, "run", len(found.impure)))
        for index, result in enumerate(binding.results):
            frame.values[id(result)] = self._number((number, index))

    def _number(self, key: object) -> int:
        return self._numbers.setdefault(key, len(self._numbers))

    def _attributes_number(self, binding: Binding) -> int:
        """Numbers attributes by what they say; the same object is read once, as copies of an op share it."""
        known = self._attributes.get(id(binding.attrs))
        if known is None:
            text = repr(sorted(binding.attrs.items(), key=lambda item: item[0]))
            known = self._attributes[id(binding.attrs)] = self._number(text)
        return known

    def _operands(self, values: Iterable[Value], numbers: dict[int, int]) -> list[int]:
        return [
            self._number(("constant", value.digest, value.type)) if isinstance(value, Constant) else numbers[id(value)]
            for value in values
        ]

    def _entered_body(self, binding: Binding) -> Function | None:
        if binding.op is COMPOSITE:
            return binding.regions[0]
        if binding.op is CALL and binding.attrs["callee"] in self._entered:
            return self._module[str(binding.attrs["callee"])]
        return None

    def _body_key(self, region: Function) -> tuple[object, ...]:
        """Stands for what a body computes from its own parameters, and who takes what in it."""
        inner = self._bodies[id(region)]
        types = tuple(param.type for param in region.params)
        return (types, tuple(inner.results), tuple(inner.impure), frozenset(Counter(inner.ops).items()))

    def _has_effect(self, binding: Binding) -> bool:
        if binding.op is CALL:
            return binding.attrs["callee"] in self._impure_functions
        return _is_effect(binding) or any(self._bodies[id(region)].impure for region in binding.regions)


def walk(*functions: Function) -> Iterator[Binding]:
    """Yields all bindings of functions, those of nested bodies and composites included, in no particular order."""
    pending = list(functions)
    while pending:
        for binding in pending.pop().bindings:
            pending.extend(binding.regions)
            yield binding


def impure_functions(module: IRModule) -> set[str]:
    """Gives the names of the functions that run an op with an effect, directly or through a call.

    Cost: linear in ops.
    """
    callers: dict[str, list[str]] = {}
    pending: list[str] = []
    for name, function in module.functions.items():
        for binding in walk(function):
            if binding.op is CALL:
                callers.setdefault(str(binding.attrs["callee"]), []).append(name)
            elif _is_effect(binding):
                pending.append(name)
    found: set[str] = set()
    while pending:
        name = pending.pop()
        if name not in found:
            found.add(name)
            pending.extend(callers.get(name, ()))
    return found


def _is_effect(binding: Binding) -> bool:
    """Tells whether an op by itself has an effect, whatever it calls or holds."""
    if binding.op is CALL_PACKED:
        return not binding.attrs["pure"]
    return Trait.PURE not in binding.op.traits


def _bodies(module: IRModule) -> Iterator[Function]:
    """Yields the bodies of ``if`` and ``loop``, each before those inside it."""
    pending = list(module.functions.values())
    while pending:
        for binding in pending.pop().bindings:
            pending.extend(binding.regions)
            if binding.op is not COMPOSITE:
                yield from binding.regions
