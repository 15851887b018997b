"""Unfolding: the computation of a function as value numbers shared by two modules.

A value's number stands for the producing op, the attributes, the types of the results and the numbers of the operands.
The contents of a composite, or of a function made by partition, count as standing at the place of the composite or the
call. Equal numbers mean equal computations. Nothing here recurses: nesting may be deep.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from byoc_core.ir import CALL, CALL_PACKED, COMPOSITE, Binding, Constant, Function, IRModule, Trait, Value, Var

__all__ = ["ClaimOf", "Occurrence", "Unfolded", "Unfolder", "impure_functions", "walk"]

Occurrence = tuple[int, str | None, int]
"""A run of an op: the op's number, the backend taking the op, and the number of impure ops before it in the body."""

ClaimOf = Callable[[Binding, Function | None], str | None]
"""Returns the backend of a binding, or of the body entered by the binding; ``None`` without a backend."""


@dataclass(frozen=True, slots=True)
class Unfolded:
    """A function or a body of ``if`` or ``loop``, unfolded.

    Attributes:
        results: numbers of the results.
        impure: numbers of the impure ops, in order.
        ops: all ops, in order.
        bindings: the bindings for ``ops``, in the same order.
    """

    results: list[int] = field(default_factory=list)
    impure: list[int] = field(default_factory=list)
    ops: list[Occurrence] = field(default_factory=list)
    bindings: list[Binding] = field(default_factory=list)


@dataclass(slots=True)
class _Frame:
    """A body in the course of unfolding, and the outside values for the results."""

    function: Function
    pending: Iterator[Binding]
    values: dict[int, int]
    outer: Sequence[Var] = ()
    claim: str | None = None


class Unfolder:
    """The unfolding of the functions of one module.

    Args:
        module: valid; the functions of ``entered`` contain no ``call``, ``if`` or ``loop``.
        numbers: shared by the unfolders of the compared modules.
        entered: names of functions with calls standing for the contained ops.
        claim_of: returns the taking backend.
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
        """Return the body of an ``if`` or ``loop``, unfolded."""
        return self._bodies[id(region)]

    def unfold(self, function: Function) -> Unfolded:
        """Return a function unfolded. Cost: linear in the contained and entered ops."""
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
        """Return the number of attributes, by content; each object is read once, because copies of an op share it."""
        number = self._attributes.get(id(binding.attrs))
        if number is None:
            text = repr(sorted(binding.attrs.items(), key=lambda item: item[0]))
            number = self._attributes[id(binding.attrs)] = self._number(text)
        return number

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
        """Return a key for the computation of a body from its own parameters, and for the claims in the body."""
        inner = self._bodies[id(region)]
        types = tuple(param.type for param in region.params)
        return (types, tuple(inner.results), tuple(inner.impure), frozenset(Counter(inner.ops).items()))

    def _has_effect(self, binding: Binding) -> bool:
        if binding.op is CALL:
            return binding.attrs["callee"] in self._impure_functions
        return _is_effect(binding) or any(self._bodies[id(region)].impure for region in binding.regions)


def walk(*functions: Function) -> Iterator[Binding]:
    """Yield all bindings of functions, including nested bodies and composites, in no particular order."""
    pending = list(functions)
    while pending:
        for binding in pending.pop().bindings:
            pending.extend(binding.regions)
            yield binding


def impure_functions(module: IRModule) -> set[str]:
    """Return the names of the functions running an op with an effect, directly or through a call.

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
    """Return whether an op alone has an effect, regardless of callees and bodies."""
    if binding.op is CALL_PACKED:
        return not binding.attrs["pure"]
    return Trait.PURE not in binding.op.traits


def _bodies(module: IRModule) -> Iterator[Function]:
    """Yield the bodies of ``if`` and ``loop``, each before its nested bodies."""
    pending = list(module.functions.values())
    while pending:
        for binding in pending.pop().bindings:
            pending.extend(binding.regions)
            if binding.op is not COMPOSITE:
                yield from binding.regions
