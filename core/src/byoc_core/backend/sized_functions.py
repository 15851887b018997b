"""Functions, ops and matches with concrete sizes, for questions to a backend of static shapes.

Without sizes named by the user, the answer for a single set of probes decides a claim for all sizes. Before later
sizes are compiled, the rules are asked again (:mod:`byoc_core.backend.first_use`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from byoc_core.backend.info import Rejection
from byoc_core.errors import IRTypeError
from byoc_core.ir import Binding, Function, TensorType
from byoc_core.ir.infer import infer_results
from byoc_core.pattern import Match
from byoc_core.pattern.index import FunctionIndex
from byoc_core.runtime.sets_of_sizes import MAX_SIZE, Sizes
from byoc_core.transform.specialise import Specialised, specialise, symbols_in

__all__ = ["MAX_SIZE", "SizedFunctions", "function_of"]

_PROBES = (8, 64, 512)
"""Sizes of the first symbol if the user names none.

The other symbols count up, avoiding equal sizes and user-named sizes. The first probe that leaves no size empty or
impossible is taken: for images of 8 pixels, a model may have empty values.
"""


@dataclass(frozen=True, slots=True)
class _SizedContainer:
    """A function containing matches, specialised for some sizes; symbols stay at impossible sizes."""

    specialised: Specialised
    index: FunctionIndex


class SizedFunctions:
    """The concrete sizes shown to a backend of static shapes for functions with symbolic sizes.

    Args:
        sizes: the sets of sizes named by the user.
    """

    def __init__(self, sizes: Sequence[Mapping[str, int]]) -> None:
        self._sizes = [dict(item) for item in sizes] or [{}]
        self._symbols: dict[int, tuple[Function, list[str]]] = {}  # holding the function keeps its id unique
        self._containers: dict[tuple[int, Sizes], _SizedContainer] = {}

    def tried(self, function: Function, container: Function | None = None) -> Iterator[dict[str, int]]:
        """Yield the sizes to ask about: each set named by the user, completed; without any, a single set of probes.

        Args:
            function: a function, or a part of a function.
            container: the function containing the part; the container's symbols get sizes too.
        """
        own = symbols_in(function)
        symbols = sorted(own) if container is None else self._symbols_of(container)
        seen = set()
        for named_sizes in self._sizes:
            sizes = self._completed(function, symbols, named_sizes)
            key = tuple((name, sizes[name]) for name in sorted(own))
            if key not in seen:
                seen.add(key)
                yield sizes

    def alternative(self, function: Function, container: Function | None = None) -> dict[str, int]:
        """Return other probe sizes: a refusal repeated word for word for these sizes does not depend on the sizes.

        The method :meth:`tried` yields the largest probe only if no smaller probe is possible.
        """
        symbols = sorted(symbols_in(function)) if container is None else self._symbols_of(container)
        return {name: _PROBES[-1] + index for index, name in enumerate(symbols)}

    def completions(self, function: Function) -> Iterator[list[dict[str, int]]]:
        """Yield the sizes to try for each set named by the user, sizes without empty values first."""
        symbols = sorted(symbols_in(function))
        for named_sizes in self._sizes:
            yield sorted(_completions(symbols, named_sizes), key=lambda sizes: not self._is_possible(function, sizes))

    def at(self, function: Function, sizes: Mapping[str, int]) -> Function | Rejection:
        """Return a function for sizes, or a refusal if a size is negative or breaks the type rule of an op.

        With symbols, a type rule may leave the comparison of two sizes to the call. With integers, the rules are
        checked again, because a backend may rely on fitting sizes.
        """
        try:
            sized = specialise(function, sizes).function
            for binding in sized.walk():
                _check_types(binding)
        except IRTypeError as error:
            return Rejection("dynamic-shape", f"a size is impossible: {error}")
        return sized

    def match_at(self, match: Match, part: Function, sizes: Mapping[str, int]) -> Match | Rejection:
        """Return a match for sizes, or the refusal of impossible sizes.

        Args:
            match: the match.
            part: a function of the match's bindings alone.
            sizes: of all symbols of the function containing the match.

        Cost: linear in the whole function once for each set of sizes, then in the match.
        """
        own = symbols_in(part)
        possible = self.at(part, {name: size for name, size in sizes.items() if name in own})
        if isinstance(possible, Rejection):
            return possible
        function, constants = match.index.function, match.index._constants
        key = id(function), tuple(sorted(sizes.items()))
        if key not in self._containers:
            self._symbols_of(function)
            specialised = specialise(function, sizes, skip_impossible=True)
            self._containers[key] = _SizedContainer(specialised, FunctionIndex(specialised.function, constants))
        return _at(match, self._containers[key])

    def _symbols_of(self, function: Function) -> list[str]:
        if id(function) not in self._symbols:
            self._symbols[id(function)] = function, sorted(symbols_in(function))
        return self._symbols[id(function)][1]

    def _completed(self, function: Function, symbols: Sequence[str], named_sizes: Mapping[str, int]) -> dict[str, int]:
        tried = _completions(symbols, named_sizes)
        if len(tried) == 1:
            return tried[0]
        return next((sizes for sizes in tried if self._is_possible(function, sizes)), tried[0])

    def _is_possible(self, function: Function, sizes: Mapping[str, int]) -> bool:
        """Return whether a function has no impossible size and no empty value."""
        sized = self.at(function, sizes)
        if isinstance(sized, Rejection):
            return False
        types = [param.type for param in sized.params]
        types += [result.type for binding in sized.walk() for result in binding.results]
        return not any(isinstance(type_, TensorType) and 0 in (type_.shape or ()) for type_ in types)


def function_of(name: str, *bindings: Binding) -> Function:
    """Return a function of bindings; the values read become parameters."""
    produced = {id(result) for binding in bindings for result in binding.results}
    read = {id(o): o for binding in bindings for o in binding.operands if hasattr(o, "name") and id(o) not in produced}
    params: Any = tuple(read.values())
    return Function(name, params, bindings, bindings[-1].results)


def _completions(symbols: Sequence[str], named_sizes: Mapping[str, int]) -> list[dict[str, int]]:
    """Return given sizes completed by counting up from each probe; a single set if all symbols are given."""
    named = {name: size for name, size in named_sizes.items() if name in symbols}
    missing = [name for name in symbols if name not in named]
    if not missing:
        return [named]
    used = set(named.values())
    completed = []
    for first in _PROBES:
        free = (size for size in itertools.count(first) if size not in used)
        completed.append(named | dict(zip(missing, free, strict=False)))
    return completed


def _check_types(binding: Binding) -> None:
    """Check the types of a binding against the rule of the op.

    Raises:
        IRTypeError: the operands do not fit, or the rule gives other types.
    """
    declared = tuple(result.type for result in binding.results)
    types = infer_results(binding.op, binding.operands, binding.attrs, regions=binding.regions, declared=declared)
    if types != declared:
        raise IRTypeError(
            f"op `{binding.op.name}`",
            "the type rule returns other results",
            got=", ".join(map(str, declared)),
            expected=", ".join(map(str, types)),
        )


def _at(match: Match, container: _SizedContainer) -> Match:
    specialised = container.specialised

    def binding(original: Binding) -> Binding:
        return specialised.function.bindings[match.index.position[id(original)]]

    return Match(
        binding(match.root),
        tuple(map(binding, match.bindings)),
        tuple(map(specialised.value, match.inputs)),
        {name: specialised.value(value) for name, value in match.captures.items()},
        container.index,
        {name: tuple(map(specialised.value, values)) for name, values in match.repeated.items()},
    )
