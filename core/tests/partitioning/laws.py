"""The laws of partition, by brute force over names; shares no code with the merger, nor with the product's checker.

Both modules are read into plain facts: for each op its name, attributes, operands and enclosing body. Parameters of
regions and composites are replaced by the arguments of the call. An op has the name of the first result.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from byoc_core.dims import DimExpr, symbols_of
from byoc_core.ir import Binding, Constant, Function, IRModule, Value, Var

__all__ = ["Facts", "LawBrokenError", "check_laws"]

Origin = tuple[object, ...]
"""A value, seen through regions and composites: ``("value", name)``, or a constant's dtype, shape and digest."""


class LawBrokenError(AssertionError):
    """A law of partition is broken.

    Attributes:
        law: the name, from the list of :func:`check_laws`.
    """

    def __init__(self, law: str, problem: str) -> None:
        super().__init__(f"{law}: {problem}")
        self.law = law


@dataclass(frozen=True)
class Op:
    """The facts of an op.

    Attributes:
        op: name, and attributes as text.
        reads: the operands.
        body: the place: the function, and the ops around the body with the body's index.
        names: of the results.
        is_impure: whether the op runs something with an effect.
        sizes: the symbols cited by the op or nested bodies.
        told: the symbols with sizes learnt from data by the op.
    """

    op: tuple[str, str]
    reads: tuple[Origin, ...]
    body: tuple[object, ...]
    names: tuple[str, ...]
    is_impure: bool
    sizes: frozenset[str] = field(compare=False)
    new_sizes: frozenset[str]


@dataclass
class Facts:
    """The facts of a module, by the names of values.

    Attributes:
        ops: by name, in program order.
        module: the module read.
        original: the module before partition; functions there are no regions.
        region_of: the region of each op inside a region.
        composite_of: the composite of each op inside a composite.
        members: of each composite in use, the ops, and the results.
        backend_of: by region.
        results: of each function of the original and of each body.
        outputs: of each region.
        made: by each region's bindings, in order; of a composite, the results.
        calls: of each region.
        early: values read before their definition.
    """

    module: IRModule
    original: IRModule
    ops: dict[str, Op] = field(default_factory=dict)
    region_of: dict[str, str] = field(default_factory=dict)
    composite_of: dict[str, str] = field(default_factory=dict)
    members: list[tuple[frozenset[str], Sequence[Origin]]] = field(default_factory=list)
    backend_of: dict[str, str] = field(default_factory=dict)
    results: dict[tuple[object, ...], tuple[Origin, ...]] = field(default_factory=dict)
    outputs: dict[str, tuple[Origin, ...]] = field(default_factory=dict)
    defined: dict[str, list[Origin]] = field(default_factory=dict)
    calls: dict[str, Binding] = field(default_factory=dict)
    early: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, module: IRModule, original: IRModule) -> Facts:
        """Read a module; functions missing in ``original`` are regions.

        Raises:
            LawBrokenError: an op or the call of a region stands twice, or a function is gone.
        """
        facts = cls(module, original)
        for name in original.functions:
            if name not in module.functions:
                raise LawBrokenError("one place", f"function {name} is gone")
            facts.results[(name,)] = facts._read_body(module[name], (name,), _own_names(module[name]), None)
        for name in module.functions:
            if name not in original.functions and name not in facts.calls:
                raise LawBrokenError("one place", f"nothing calls region {name}")
        return facts

    def _read_body(
        self, function: Function, path: tuple[object, ...], arguments: Sequence[Origin], region: str | None
    ) -> tuple[Origin, ...]:
        values = dict(zip(map(id, function.params), arguments, strict=True))

        def origin(value: Value) -> Origin:
            if isinstance(value, Constant):
                return ("constant", str(value.type), value.digest)
            if id(value) not in values:
                self.early.append(value.name)
            return values.get(id(value), ("value", value.name))

        for binding in function.bindings:
            results = self._read_binding(binding, path, tuple(map(origin, binding.operands)), region)
            values.update(zip(map(id, binding.results), results, strict=True))
            if region is not None and function is self.module.functions.get(region):
                self.defined.setdefault(region, []).extend(results)
        return tuple(map(origin, function.results))

    def _read_binding(
        self, b: Binding, path: tuple[object, ...], reads: tuple[Origin, ...], region: str | None
    ) -> Sequence[Origin]:
        callee = str(b.attrs["callee"]) if b.op.name == "call" else ""
        if b.op.name == "composite":
            num_before = len(self.ops)
            results = self._read_body(b.regions[0], path, reads, region)
            inside = list(self.ops)[num_before:]
            self.composite_of.update(dict.fromkeys(inside, str(b.attrs["name"])))
            self.members.append((frozenset(inside), results))
            return results
        if callee and callee not in self.original.functions:
            if callee in self.calls:
                raise LawBrokenError("one place", f"region {callee} is called twice")
            self.calls[callee] = b
            self.backend_of[callee] = str(self.module[callee].attrs["Codegen"])
            self.outputs[callee] = self._read_body(self.module[callee], path, reads, callee)
            return self.outputs[callee]
        names = tuple(result.name for result in b.results)
        if names[0] in self.ops:
            raise LawBrokenError("one place", f"{names[0]} stands twice")
        attrs = str(sorted(b.attrs.items()))
        new_sizes = _symbols(b.results) - _symbols(b.operands) if b.op.name in DATA_DEPENDENT else frozenset[str]()
        sizes = _symbols([*b.operands, *b.results]).union(*map(_cited, b.regions))
        self.ops[names[0]] = Op((b.op.name, attrs), reads, path, names, has_effect(b, self.module), sizes, new_sizes)
        if region is not None:
            self.region_of[names[0]] = region
        for index, inner in enumerate(b.regions):
            body = (*path, names[0], index)
            self.results[body] = self._read_body(inner, body, _own_names(inner), None)
        return [("value", name) for name in names]


def _own_names(function: Function) -> list[Origin]:
    return [("value", param.name) for param in function.params]


DATA_DEPENDENT = ("nonzero",)


def has_effect(binding: Binding, module: IRModule) -> bool:
    """Return whether a binding, or anything run by the binding, is an impure external call."""
    if binding.op.name == "call_packed":
        return not binding.attrs["pure"]
    inner = list(binding.regions)
    if binding.op.name == "call":
        inner.append(module[str(binding.attrs["callee"])])
    return any(has_effect(b, module) for function in inner for b in function.bindings)


def check_laws(
    before: IRModule,
    after: IRModule,
    claims: Mapping[str, str] | None = None,
    *,
    maximal: bool = True,
    sideways: bool = False,
) -> Facts:
    """Check every law of partition except the comparisons of runs, and return the facts of the result.

    The laws: ``one place``, ``same program``, ``same results``, ``claims``, ``impure``, ``convex``, ``acyclic``,
    ``maximal``, ``alone`` (of an op with data-dependent sizes), ``order`` (a value is made before being read),
    ``inputs``, ``outputs``, ``composites``.

    Args:
        before: with a unique name for every value.
        after: partitioned.
        claims: the backend claiming an op, by name; the other ops' claims belong to composites.
        maximal: whether mergeable regions must be merged.
        sideways: independent claims are merged too.

    Raises:
        LawBrokenError: the first broken law.
    """
    want, have = Facts.read(before, before), Facts.read(after, before)
    _check_program(want, have)
    if claims is not None:
        _check_claims(have, claims)
    bodies: dict[tuple[object, ...], list[str]] = {}
    for name, op in want.ops.items():
        bodies.setdefault(op.body, []).append(name)
    orders: dict[tuple[object, ...], list[str]] = {}
    for name, op in have.ops.items():
        orders.setdefault(op.body, []).append(name)
    for path, names in bodies.items():
        _Body(want, have, names, orders[path]).check(maximal, sideways)
    if have.early:
        raise LawBrokenError("order", f"read before they are made: {have.early}")
    for name in have.calls:
        _check_inputs(after, have, name)
    _check_outputs(have)
    _check_composites(have)
    return have


def _check_program(want: Facts, have: Facts) -> None:
    if want.ops.keys() != have.ops.keys():
        raise LawBrokenError("one place", f"lost or new: {sorted(want.ops.keys() ^ have.ops.keys())}")
    for name, op in want.ops.items():
        other = have.ops[name]
        # Sizes that a body needs are passed behind the operands, and carried behind the results.
        count, num_results = len(op.reads), len(op.names)
        if op.op[0] not in ("if", "loop"):
            count, num_results = len(other.reads), len(other.names)
        shortened = replace(other, reads=other.reads[:count], names=other.names[:num_results])
        if shortened != op:
            raise LawBrokenError("same program", f"{name} was {op}, is {other}")
    for path, results in want.results.items():
        actual = have.results[path]
        if actual[: len(results)] != results or (len(path) == 1 and len(actual) > len(results)):
            raise LawBrokenError("same results", f"{path} gave {results}, gives {actual}")


def _check_claims(have: Facts, claims: Mapping[str, str]) -> None:
    for name in have.ops:
        backend = have.backend_of.get(have.region_of.get(name, ""))
        composite = have.composite_of.get(name)
        expected = claims.get(name) if composite is None else composite.partition(".")[0]
        if backend != expected:
            raise LawBrokenError("claims", f"{name} is for {expected}, went to {backend}")


class _Body:
    """A body: the groups (regions, and other ops alone) and the paths between groups."""

    def __init__(self, want: Facts, have: Facts, names: Sequence[str], order: Sequence[str]) -> None:
        self._have = have
        self._order = order
        self._members: dict[str, list[str]] = {}
        self._epochs: dict[str, int] = {}
        owner, epoch = {}, 0
        for name in names:
            op = want.ops[name]
            epoch += op.is_impure
            self._epochs[name] = epoch
            epoch += op.is_impure
            group = have.region_of.get(name, name)
            self._members.setdefault(group, []).append(name)
            owner.update(dict.fromkeys(op.names, name))
        teller = {size: name for name in names for size in want.ops[name].new_sizes}
        self._sources = {
            name: [
                *(owner[str(read[1])] for read in want.ops[name].reads if read[0] == "value" and read[1] in owner),
                *sorted({teller[size] for size in want.ops[name].sizes if size in teller} - {name}),
            ]
            for name in names
        }
        self._size_ops = {name for name in names if want.ops[name].new_sizes}
        self._impure = {name for name in names if want.ops[name].is_impure}
        self._group_of = {name: group for group, members in self._members.items() for name in members}

    def check(self, maximal: bool, sideways: bool) -> None:
        self._check_impure()
        self._check_alone()
        self._check_convex()
        ancestors = self._ancestors()
        if maximal:
            self._check_maximal(ancestors, sideways)

    def _check_impure(self) -> None:
        epochs = [self._epochs[name] for name in self._order]
        if epochs != sorted(epochs):
            raise LawBrokenError("impure", f"ops have changed sides of an impure one: {self._order}")
        for group, members in self._members.items():
            if group in self._have.backend_of and not self._impure.isdisjoint(members):
                raise LawBrokenError("impure", f"{group} contains an impure op")
            if len({self._epochs[name] for name in members}) > 1:
                raise LawBrokenError("impure", f"{group} crosses an impure op")

    def _check_alone(self) -> None:
        for group, members in self._members.items():
            if len(members) > 1 and not self._size_ops.isdisjoint(members):
                raise LawBrokenError("alone", f"{group} contains other ops beside an op with data-dependent sizes")

    def _check_convex(self) -> None:
        """No path from a region's op leaves the region and returns: members are ops, paths are single edges."""
        bit = {name: 1 << index for index, name in enumerate(self._sources)}
        for group, members in self._members.items():
            if len(members) == 1:
                continue
            inside = sum(bit[name] for name in members)
            left = 0  # the ops outside that depend on the region
            for name, sources in self._sources.items():
                reads = sum({bit[source] for source in sources})
                if bit[name] & inside and reads & left:
                    raise LawBrokenError("convex", f"a way leads out of {group} and back to {name}")
                if not bit[name] & inside and reads & (inside | left):
                    left |= bit[name]

    def _group_sources(self) -> dict[str, set[str]]:
        return {
            group: {self._group_of[source] for name in members for source in self._sources[name]} - {group}
            for group, members in self._members.items()
        }

    def _ancestors(self) -> dict[str, set[str]]:
        """Return all dependences of each group."""
        sources, done = self._group_sources(), dict[str, set[str]]()
        pending = list(sources)
        while pending:
            rest = [group for group in pending if not sources[group] <= done.keys()]
            if len(rest) == len(pending):
                raise LawBrokenError("acyclic", f"regions depend on one another: {rest}")
            for group in pending:
                if sources[group] <= done.keys():
                    done[group] = sources[group].union(*(done[source] for source in sources[group]))
            pending = [group for group in rest if group not in done]
        return done

    def _check_maximal(self, ancestors: Mapping[str, set[str]], sideways: bool) -> None:
        sources, backends = self._group_sources(), self._have.backend_of
        for after, behind in ancestors.items():
            for before in behind if not sideways else ancestors:
                if before == after or before not in backends or backends[before] != backends.get(after):
                    continue
                if not self._size_ops.isdisjoint((self._members[before][0], self._members[after][0])):
                    continue
                if self._epochs[self._members[before][0]] != self._epochs[self._members[after][0]]:
                    continue
                other_sources = sources[after] - {before}
                is_joined = before in sources[after] or (sideways and after not in ancestors[before])
                if is_joined and not any(before in ancestors[other] for other in other_sources):
                    raise LawBrokenError("maximal", f"{before} and {after} could be one region")


def _check_inputs(after: IRModule, have: Facts, name: str) -> None:
    """Check a region for reads of all inputs, each once, in the order of first use; sizes come last."""
    region, call = after[name], have.calls[name]
    read = dict.fromkeys(id(operand) for b in region.bindings for operand in b.operands if isinstance(operand, Var))
    params = [param for param in region.params if id(param) in read]
    order = [reader for reader in read if reader in set(map(id, params))]
    if [id(param) for param in region.params[: len(params)]] != order:
        raise LawBrokenError("inputs", f"{name} does not take them in the order of their first use")
    sizes = region.params[len(params) :]
    known_symbols = _given_symbols(params)
    for param in sizes:
        new = _given_symbols([param]) - known_symbols
        if not new & _cited(region):
            raise LawBrokenError("inputs", f"{name} does not need {param.name}")
        known_symbols |= new
    operands = [operand for operand in call.operands if isinstance(operand, Var)]
    if len(operands) < len(call.operands) or len(set(map(id, operands))) < len(operands):
        raise LawBrokenError("inputs", f"{name} is given a constant, or one value twice")
    if not re.fullmatch(r"[A-Za-z_]\w*", str(region.attrs["global_symbol"]), re.ASCII):
        raise LawBrokenError("inputs", f"{name} has no plain symbol")


def _given_symbols(values: Iterable[Value]) -> set[str]:
    """Gives the sizes that follow from the shapes of values: axes that cite one symbol."""
    dims = [dim for value in values for dim in getattr(value.type, "shape", None) or () if isinstance(dim, DimExpr)]
    return {symbol for dim in dims if len(symbols_of(dim)) == 1 for symbol in symbols_of(dim)}


def _cited(function: Function) -> frozenset[str]:
    return _symbols(value for binding in _walk(function) for value in (*binding.operands, *binding.results))


def _symbols(values: Iterable[Value]) -> frozenset[str]:
    """Return the symbols in the shapes of values."""
    dims = [dim for value in values for dim in getattr(value.type, "shape", None) or () if isinstance(dim, DimExpr)]
    return frozenset(symbol for dim in dims for symbol in symbols_of(dim))


def _walk(function: Function) -> Iterator[Binding]:
    for binding in function.bindings:
        yield binding
        for region in binding.regions:
            yield from _walk(region)


def _check_outputs(have: Facts) -> None:
    """Check the outputs of a region: each is read outside, or is the only output; in the order of definition.

    A composite's results are in the composite's order.
    """
    readers: dict[Origin, set[str]] = {}
    for name, op in have.ops.items():
        for read in op.reads:
            readers.setdefault(read, set()).add(have.region_of.get(name, ""))
    for results in have.results.values():
        for result in results:
            readers.setdefault(result, set()).add("")
    for name, outputs in have.outputs.items():
        expected = [value for value in have.defined[name] if readers.get(value, set()) - {name}] or list(outputs[:1])
        if list(outputs) != expected or outputs[0] not in have.defined[name]:
            raise LawBrokenError("outputs", f"{name} gives {outputs}, others read {expected}")


def _check_composites(have: Facts) -> None:
    """Check the results of a composite: the results of the root, then, once, other values read outside."""
    readers: dict[Origin, set[str]] = {}
    for name, op in have.ops.items():
        for read in op.reads:
            readers.setdefault(read, set()).add(name)
    returned = {result for results in have.results.values() for result in results}
    for inside, results in have.members:
        (root,) = [have.ops[name] for name in inside if ("value", have.ops[name].names[0]) == results[0]]
        leaked = results[len(root.names) :]
        unread = [value for value in leaked if value not in returned and readers.get(value, set()) <= inside]
        own = [("value", name) for name in root.names]
        if unread or list(results[: len(own)]) != own or len(set(results)) < len(results):
            raise LawBrokenError("composites", f"that of {sorted(inside)} gives {results}, nothing reads {unread}")
