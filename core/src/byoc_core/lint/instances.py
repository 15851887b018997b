"""Instances of a pattern: small matching functions, in several dtypes, ranks, and with symbolic sizes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from byoc_core.dims import Dim, symbol
from byoc_core.dtypes import computing_dtypes, to_numpy
from byoc_core.errors import IRTypeError
from byoc_core.ir import Binding, Constant, ConstantStore, IRModule, OpDef, OpRegistry, TensorType, Value, Var
from byoc_core.lint.selections import Selection, describe, op_name, select, walk
from byoc_core.lint.synthesis import Draft, Synthesis
from byoc_core.ops.cases import array_of, infer_case
from byoc_core.pattern import FunctionIndex, Match, Pattern, find_matches
from byoc_core.pattern.language import OpPattern

__all__ = ["Instance", "Instances", "find_instances"]

_MAX_ROTATIONS = 12
_COMMON_DTYPES = ("float16", "bfloat16", "int8", "uint8")
_FIRST_DTYPES = ("float32", "bool", "int32", "int8", "uint8")
_MAX_DRAFTS = 16


@dataclass(frozen=True, eq=False, slots=True)
class Instance:
    """A function ``main`` whose last op is matched by a pattern.

    Attributes:
        module: holds the function.
        match: the match.
        reading: the pattern's reading, as an expression.
        kind: ``"static"``, ``"symbolic"``, or ``"constants"``: all operands but the first are constants.
    """

    module: IRModule
    match: Match
    reading: str
    kind: str

    @property
    def dtype(self) -> str:
        """The dtype of the first input tensor, or of the first result if there is no input."""
        values = (*self.match.inputs, *self.match.root.results)
        return next((value.type.dtype for value in values if isinstance(value.type, TensorType)), "")

    def __str__(self) -> str:
        operands = ", ".join(str(value.type) for value in self.match.inputs)
        return f"{self.reading} on {operands}" if operands else self.reading


@dataclass(frozen=True, slots=True)
class Instances:
    """The instances found for a pattern.

    Attributes:
        found: the instances, in a fixed order.
        failures: the cause of failure for each reading without an instance; readings are expressions.
    """

    found: tuple[Instance, ...] = ()
    failures: Mapping[str, str] = field(default_factory=dict)


def find_instances(pattern: Pattern, ops: OpRegistry) -> Instances:
    """Find functions matched by a pattern: every alternative and every op of a set at least once.

    The same pattern gives the same instances in every process.

    Args:
        pattern: the pattern to match.
        ops: the ops by name.

    Cost: bounded: at most 64 readings, of each a few dozen instances, each found within 400 trials of type rules.
    """
    found: list[Instance] = []
    failures: dict[str, str] = {}
    for selection in select(pattern):
        new = list(_instances_of(pattern, selection, ops, failures))
        found += new
        if new:
            failures.pop(describe(pattern, selection), None)
    return Instances(tuple(found), failures)


def _instances_of(
    pattern: Pattern, selection: Selection, ops: OpRegistry, failures: dict[str, str]
) -> Iterator[Instance]:
    reading = describe(pattern, selection)
    seen: set[object] = set()
    names = [op_name(node, selection) for node in walk(pattern, selection) if isinstance(node, OpPattern)]
    for rotation in _rotations([ops[name] for name in names if name in ops]):
        for dtype in _FIRST_DTYPES:
            constants = ConstantStore()
            search = Synthesis(pattern, ops, selection, dtype, rotation, constants)
            first = next(_matching(pattern, search, constants), None)
            if first is None:
                failures.setdefault(
                    reading, search.failure or "the type rules accept the ops, but the pattern does not match"
                )
                continue
            draft, match = first
            if _key(draft) not in seen:
                seen.add(_key(draft))
                yield _instance(match, constants, reading, "static")
                yield from _variants(pattern, draft, constants, reading, with_dtypes=rotation == 0)
            break
        else:
            if not seen:
                return


def _rotations(ops: Sequence[OpDef]) -> list[int]:
    """Return the cases to begin with, no more than are tried: cases with new ranks of operands are chosen first."""
    cases = max((op.canonical_cases for op in ops), key=len, default=())
    ranks = [tuple(len(operand.shape) for operand in case.operands) for case in cases]
    order = sorted(range(len(ranks)), key=lambda index: ranks.index(ranks[index]) != index)
    return sorted(order[:_MAX_ROTATIONS]) or [0]


def _matching(pattern: Pattern, search: Synthesis, constants: ConstantStore) -> Iterator[tuple[Draft, Match]]:
    for draft in itertools.islice(search.solve(), _MAX_DRAFTS):
        match = _match(pattern, draft, constants)
        if match is not None:
            yield draft, match


def _match(pattern: Pattern, draft: Draft, constants: ConstantStore) -> Match | None:
    """Return the match at the root with all ops but the readers behind the root."""
    if draft.root is None:
        return None
    for is_root_result in (True, False):
        function = draft.function(is_root_result=is_root_result)
        found = itertools.islice(find_matches(pattern, draft.root, FunctionIndex(function, constants)), 8)
        required = {id(binding) for binding in draft.bindings} - {id(binding) for binding in draft.readers}
        match = next((match for match in found if required == {id(binding) for binding in match.bindings}), None)
        if match is not None or not draft.readers:
            return match
    return None


def _instance(match: Match, constants: ConstantStore, reading: str, kind: str) -> Instance:
    return Instance(IRModule({"main": match.index.function}, constants), match, reading, kind)


def _key(draft: Draft) -> object:
    ops = tuple((b.op.name, tuple(b.attrs.items()), tuple(o.type for o in b.operands)) for b in draft.bindings)
    return ops, tuple(leaf.type for leaf in draft.leaves)


def _variants(
    pattern: Pattern, draft: Draft, constants: ConstantStore, reading: str, *, with_dtypes: bool
) -> Iterator[Instance]:
    """Yield the same ops with other leaves: other dtypes, symbols for sizes, constants."""
    leaf_variants: list[tuple[str, tuple[Value, ...]]] = []
    present = dict.fromkeys(leaf.type.dtype for leaf in draft.leaves if isinstance(leaf.type, TensorType))
    for before in present:
        for after in computing_dtypes() if with_dtypes else ():
            if after not in present:
                retyped = _retyped(draft.leaves, before, after, constants)
                leaf_variants.append(("static", retyped))
                if after in _COMMON_DTYPES:
                    leaf_variants.append(("constants", _constant(retyped, constants)))
    leaf_variants += [("symbolic", _symbolic(draft.leaves, everywhere=everywhere)) for everywhere in (False, True)]
    fixed = _constant(draft.leaves, constants)
    leaf_variants.append(("constants", fixed))
    leaf_variants += [("symbolic", leaves) for leaves in [_symbolic(fixed, everywhere=False)] if leaves != fixed]
    for kind, leaves in leaf_variants:
        if all(old is new for old, new in zip(draft.leaves, leaves, strict=True)):
            continue
        changed = _rebuilt(draft, leaves)
        match = None if changed is None else _match(pattern, changed, constants)
        if match is not None:
            yield _instance(match, constants, reading, kind)


def _rebuilt(draft: Draft, leaves: tuple[Value, ...]) -> Draft | None:
    """Return a draft with the same ops on other leaves, or ``None`` if a type rule refuses the leaves."""
    new: dict[int, Value] = {id(old): leaf for old, leaf in zip(draft.leaves, leaves, strict=True)}
    bindings: dict[int, Binding] = {}
    for binding in draft.bindings:
        operands = tuple(new[id(operand)] for operand in binding.operands)
        try:
            types = infer_case(binding.op, operands, binding.attrs)
        except IRTypeError:
            return None
        if len(types) != len(binding.results):
            return None
        results = tuple(Var(old.name, type_) for old, type_ in zip(binding.results, types, strict=True))
        new.update((id(old), result) for old, result in zip(binding.results, results, strict=True))
        bindings[id(binding)] = Binding(results, binding.op, operands, binding.attrs)
    root = None if draft.root is None else bindings[id(draft.root)]
    readers = tuple(bindings[id(reader)] for reader in draft.readers)
    return Draft({}, {}, tuple(bindings.values()), leaves, root, readers)


def _retyped(leaves: Sequence[Value], before: str, dtype: str, constants: ConstantStore) -> tuple[Value, ...]:
    def changed(leaf: Value) -> Value:
        if not isinstance(leaf.type, TensorType) or leaf.type.dtype != before:
            return leaf
        type_ = TensorType(leaf.type.shape, dtype)
        if isinstance(leaf, Constant):
            with np.errstate(all="ignore"):
                return constants.add(constants[leaf.digest].astype(to_numpy(dtype)))
        return Var(leaf.name, type_)

    return tuple(map(changed, leaves))


def _symbolic(leaves: Sequence[Value], *, everywhere: bool) -> tuple[Value, ...]:
    """Replace the first size of the first leaf, or all sizes, by symbols; sizes of constants stay."""
    shapes = [leaf.type.shape or () for leaf in leaves if isinstance(leaf, Var) and isinstance(leaf.type, TensorType)]
    fixed = {dim for leaf in leaves if isinstance(leaf, Constant) for dim in leaf.type.shape or ()}
    sizes = [size for shape in (shapes if everywhere else shapes[:1]) for size in (shape if everywhere else shape[:1])]
    names: dict[Dim, Dim] = {}
    for size in sizes:
        if isinstance(size, int) and size > 1 and size not in fixed:
            names[size] = symbol(f"s{size}" if everywhere else "n")

    def changed(leaf: Value) -> Value:
        if isinstance(leaf, Constant) or not isinstance(leaf.type, TensorType):
            return leaf
        shape = tuple(names.get(dim, dim) for dim in leaf.type.shape or ())
        return leaf if shape == leaf.type.shape else Var(leaf.name, TensorType(shape, leaf.type.dtype))

    return tuple(map(changed, leaves))


def _constant(leaves: Sequence[Value], constants: ConstantStore) -> tuple[Value, ...]:
    """Replace all leaves but the first by constants."""

    def changed(leaf: Value) -> Value:
        if isinstance(leaf, Constant) or not isinstance(leaf.type, TensorType):
            return leaf
        return constants.add(array_of(leaf.type, np.random.default_rng(1)))

    return (*leaves[:1], *map(changed, leaves[1:]))
