"""Transposes moved through ops until adjacent transposes cancel."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from byoc_core.dims import Dim, is_nonnegative
from byoc_core.ir import (
    Binding,
    Constant,
    Function,
    IRModule,
    OpDef,
    TensorType,
    Value,
    Var,
    infer_results,
)
from byoc_core.opset.permutation import Order, Permutable, inverse
from byoc_core.pattern import FunctionIndex
from byoc_core.transform.pass_ import Pass
from byoc_core.transform.permuted_ops import as_permutable, store
from byoc_core.transform.rewrite import map_functions, map_regions, remap, with_bindings
from byoc_core.transform.rewriter import RewriteGraph, Rules, is_open, rewrite_module
from byoc_core.transform.tensors import permutation_of, rank_of, shape_of
from byoc_core.transform.transposes_of_reshapes import join_around_reshape, transpose_before_reshape

__all__ = ["MoveTransposes"]


@dataclass(frozen=True)
class MoveTransposes(Pass):
    """Motion of ``permute_dims`` through ops independent of axis order, if fewer transposes or bytes remain.

    Such ops are elementwise ops, ``nn.bias_add``, ``nn.batch_norm``, ``quantize`` and ``dequantize`` (not by blocks),
    ``concat``, ``split``, ``strided_slice``, ``nn.pad``, ``broadcast_to``, ``argmin`` and ``argmax``, and reductions of
    integers. Connected ops of this kind form a group. A group computes as a whole on operands stored in another order,
    or stays unchanged. A group changes only if either the number of transposes or the bytes moved by transposes falls
    and neither grows. Both are counted per group, and groups sharing a transpose change one after the other. Constants
    are stored in the new order.

    A transpose in front of a reshape and one behind cancel, if the reshape keeps the transposed axes apart: tokens
    viewed as an image with channels last, for example.

    Attributes:
        keep_bits: ``False`` also moves transposes through reductions of floats and the softmax family, with sums then
            rounded in another order, and replaces ``matmul`` of a transposed matrix by ``nn.dense`` and vice versa.
    """

    keep_bits: bool = True

    def __call__(self, module: IRModule) -> IRModule:
        """Return the module with transposes moved.

        Cost: linear in ops for each round. A round at least halves a chain of transposes. If groups gain only after a
        change of another group, each takes a round.
        """
        module = module if self.keep_bits else rewrite_module(module, _PRODUCTS)

        def move(function: Function) -> Function:
            return self._move(function, module) if is_open(function) else function

        if _TRANSPOSE not in module.ops:
            return module
        moved = map_functions(module, move)
        while (reshaped := rewrite_module(moved, _RESHAPED)) is not moved:
            moved = map_functions(reshaped, move)
        return moved

    def _move(self, function: Function, module: IRModule) -> Function:
        inner = tuple(map_regions(function.bindings, lambda region: self._move(region, module)))
        moved = with_bindings(function, inner)
        # Transposes or their bytes fall in each round. With a wrong measure, the limit still ends the rounds.
        for _ in range(len(moved.bindings) + 1):
            groups = _accepted(_find_groups(moved, module, exact=self.keep_bits))
            if not groups:
                break
            moved = _Writer(moved, groups, module).run()
        return moved


def _nbytes(value: Value) -> Dim | None:
    return value.type.nbytes if isinstance(value.type, TensorType) else None


def _is_all_ones(value: Value) -> bool:
    return set(shape_of(value) or ()) == {1}


_TRANSPOSE = "permute_dims"


def _is_transpose(binding: Binding, op: OpDef) -> bool:
    return binding.op is op and binding.codegen is None


@dataclass(eq=False)
class _Group:
    """Connected permutable ops, and a candidate axis order for the group."""

    index: FunctionIndex
    op: OpDef  # of transposes
    members: list[tuple[Binding, Permutable]]
    order: Order = ()
    transposes: set[int] = field(default_factory=set)
    count: int = 0
    nbytes: Dim = 0
    is_known: bool = True

    def orders(self) -> list[Order]:
        """Return up to two orders able to remove transposes at the border, the order removing most transposes first."""
        found: Counter[Order] = Counter()
        for binding, permutable in self.members:
            for position in permutable.operands:
                producer = self.index.producer(binding.operands[position])
                if producer is not None and _is_transpose(producer[0], self.op):
                    found[permutation_of(producer[0])] += 1
            for result in binding.results if not permutable.dropped else ():
                for user in self.index.users(result):
                    if id(user) not in self._inside and _is_transpose(user, self.op):
                        found[inverse(permutation_of(user))] += 1
        return [order for order, _ in found.most_common(2) if len(order) == self.members[0][1].rank]

    def measured(self, order: Order) -> _Group:
        """Return the group with an order, and the changes in transposes and in bytes moved by transposes."""
        group = replace(self, order=order, transposes=set())
        stored = {id(r): kind.result_order(order) for binding, kind in self.members for r in binding.results}
        read = {
            id(value): value
            for binding, kind in self.members
            for value in map(binding.operands.__getitem__, kind.operands)
        }
        for value in read.values():
            group._measure_read(value, stored)
        for binding, _ in self.members:
            for result in binding.results:
                group._measure_result(result, stored[id(result)])
        for transpose in group._adjacent(read.values()):
            group._measure_transpose(transpose, stored, read)
        return group

    def _add(self, value: Value, change: int) -> None:
        nbytes = _nbytes(value)
        self.count += change
        self.is_known = self.is_known and nbytes is not None
        self.nbytes = self.nbytes + (nbytes or 0) * change

    def _adjacent(self, read: Iterable[Value]) -> list[Binding]:
        """Return the transposes producing an operand of members, or reading a result of members."""
        makers = [producer[0] for value in read if (producer := self.index.producer(value)) is not None]
        users = [user for binding, _ in self.members for r in binding.results for user in self.index.users(r)]
        found = {id(binding): binding for binding in (*makers, *users) if _is_transpose(binding, self.op)}
        self.transposes.update(found)
        return list(found.values())

    def _measure_read(self, value: Value, stored: Mapping[int, Order]) -> None:
        """Count the transpose of an operand neither stored in the order nor produced by a transpose."""
        producer = self.index.producer(value)
        is_transposed = producer is not None and _is_transpose(producer[0], self.op)
        is_free = isinstance(value, Constant) or _is_all_ones(value) or is_transposed
        if not is_free and stored.get(id(value)) != self.order:
            self._add(value, 1)

    def _measure_result(self, value: Value, order: Order) -> None:
        """Count the transpose of a result read in the axis order of the program."""
        if order != tuple(range(len(order))) and self._is_read_in_program(value):
            self._add(value, 1)

    def _measure_transpose(self, binding: Binding, stored: Mapping[int, Order], read: Mapping[int, Value]) -> None:
        """Count the transposes replacing an old one: for readers in the program, for readers in the order, or none."""
        (value,), own = binding.results, permutation_of(binding)
        unchanged = tuple(range(len(own)))
        axes = _composed(stored.get(id(binding.operands[0]), unchanged), own)
        is_read = id(value) in read and not _is_all_ones(value)
        in_order = is_read and _composed(axes, inverse(self.order)) != unchanged
        is_needed = self._is_read_in_program(value, by_transposes=True) or (id(value) in read and not is_read)
        # A transpose changing nothing is only left out if its operand is stored by the group.
        is_kept = axes != unchanged or id(binding.operands[0]) not in stored
        in_program = is_needed and is_kept
        self._add(value, in_order + in_program - 1)

    def _is_read_in_program(self, value: Value, *, by_transposes: bool = False) -> bool:
        """Return whether any reader needs a value in the axis order of the program.

        Such readers are the results of the function, operands of members with unchanged axes, and ops outside of the
        group. Transposes outside count only if ``by_transposes``.
        """
        return (
            self.index.is_result(value)
            or id(value) in self._unchanged
            or any(
                id(user) not in self._inside and (by_transposes or not _is_transpose(user, self.op))
                for user in self.index.users(value)
            )
        )

    @cached_property
    def _inside(self) -> set[int]:
        return {id(binding) for binding, _ in self.members}

    @cached_property
    def _unchanged(self) -> set[int]:
        """The ``id`` of each value read by a member with axes in the order of the program."""
        found: set[int] = set()
        for binding, kind in self.members:
            changed = set(kind.operands)
            found.update(id(o) for position, o in enumerate(binding.operands) if position not in changed)
        return found

    @property
    def is_gain(self) -> bool:
        """Whether at least one of the two measures falls and none grows, for all sizes."""
        falls = self.count < 0 or self.nbytes != 0
        return self.is_known and falls and self.count <= 0 and is_nonnegative(self.nbytes * -1)


def _composed(first: Order, second: Order) -> Order:
    """Return the order of ``permute_dims(permute_dims(x, first), second)``."""
    return tuple(first[axis] for axis in second)


def _find_groups(function: Function, module: IRModule, *, exact: bool) -> list[_Group]:
    """Return the groups of permutable ops; ops reading the same transpose belong to the same group."""
    index, op = FunctionIndex(function), module.ops[_TRANSPOSE]
    members: dict[int, tuple[Binding, Permutable]] = {}
    for binding in function.bindings:
        if binding.codegen is None and not binding.regions and module.knows(binding.op):
            permutable = as_permutable(binding, exact=exact)
            if permutable is not None and permutable.operands:
                members[id(binding)] = (binding, permutable)
    parents = {key: key for key in members}

    def find(key: int) -> int:
        while parents[key] != key:
            parents[key] = key = parents[parents[key]]
        return key

    first_reader: dict[int, int] = {}
    for key, (binding, permutable) in members.items():
        for position in permutable.operands:
            producer = index.producer(binding.operands[position])
            if producer is None:
                continue
            source, _ = producer
            if _is_transpose(source, op):  # readers of a transpose change together, to remove the transpose
                shared = first_reader.setdefault(id(source), key)
                parents[find(key)] = find(shared)
            elif id(source) in members and not members[id(source)][1].dropped:
                parents[find(key)] = find(id(source))
    groups: dict[int, _Group] = {}
    for key, member in members.items():
        groups.setdefault(find(key), _Group(index, op, [])).members.append(member)
    return list(groups.values())


def _accepted(groups: Iterable[_Group]) -> list[_Group]:
    """Return the groups gaining by an order, with the first such order; of groups sharing a transpose, the first."""
    used_transposes: set[int] = set()
    accepted = []
    for group in groups:
        for order in group.orders():
            measured = group.measured(order)
            if measured.is_gain and not measured.transposes & used_transposes:
                used_transposes |= measured.transposes
                accepted.append(measured)
                break
    return accepted


class _Writer:
    """A rewriter of a function, with some groups computing in their orders."""

    def __init__(self, function: Function, groups: Sequence[_Group], module: IRModule) -> None:
        self._function = function
        self._constants = module.constants
        self._op = module.ops[_TRANSPOSE]
        self._index = groups[0].index
        self._groups = {id(binding): (group.order, kind) for group in groups for binding, kind in group.members}
        self._mapping: dict[int, Value] = {}
        self._stored: dict[tuple[int, Order], Value] = {}
        self._program: dict[int, tuple[Value, Order]] = {}
        self._written: list[Binding] = []

    def run(self) -> Function:
        for binding in self._function.bindings:
            if id(binding) in self._groups:
                self._write_member(binding, *self._groups[id(binding)])
            elif _is_transpose(binding, self._op) and id(binding.operands[0]) in self._program:
                self._write_transpose(binding)
            else:
                operands = tuple(map(self._in_program, binding.operands))
                same = all(map(operator.is_, operands, binding.operands))
                self._written.append(binding if same else replace(binding, operands=operands))
        results = tuple(map(self._in_program, self._function.results))
        bindings = _without_unread_transposes(self._written, results, self._op)
        return replace(self._function, bindings=bindings, results=results)

    def _write_member(self, binding: Binding, order: Order, kind: Permutable) -> None:
        changed = set(kind.operands)
        operands = [
            self._in_order(operand, order) if position in changed else self._in_program(operand)
            for position, operand in enumerate(binding.operands)
        ]
        attrs = binding.op.normalise_attrs(kind.attrs(order))
        types = infer_results(binding.op, operands, attrs)
        results = tuple(Var(old.name, type_) for old, type_ in zip(binding.results, types, strict=True))
        self._written.append(replace(binding, operands=tuple(operands), attrs=attrs, results=results))
        for old, new in zip(binding.results, results, strict=True):
            self._program[id(old)] = (new, kind.result_order(order))

    def _write_transpose(self, binding: Binding) -> None:
        """Write a transpose of a value already stored in an order."""
        stored, order = self._program[id(binding.operands[0])]
        axes = _composed(order, permutation_of(binding))
        self._mapping[id(binding.results[0])] = self._transposed(stored, axes, binding.results[0].name)

    def _in_program(self, value: Value) -> Value:
        """Return the replacement of a value, with axes in the order of the program."""
        if id(value) in self._program and id(value) not in self._mapping:
            stored, order = self._program[id(value)]
            self._mapping[id(value)] = self._transposed(stored, order, _name(value))
        return remap(value, self._mapping)

    def _in_order(self, value: Value, order: Order) -> Value:
        """Return the replacement of a value, with axes stored in an order."""
        if isinstance(value, Constant):
            array = self._constants[value.digest]
            return value if array.size == 1 else self._constants.add(store(array, order))
        if id(value) in self._program:
            stored, own = self._program[id(value)]
            if own == order:
                return stored
        if _is_all_ones(value):
            return self._in_program(value)
        key = (id(value), order)
        if key not in self._stored:
            source, axes = self._source(value)
            self._stored[key] = self._transposed(source, _composed(axes, inverse(order)), _name(value))
        return self._stored[key]

    def _source(self, value: Value) -> tuple[Value, Order]:
        """Return the untransposed source of a value, with the axes, looking through the transpose producing it."""
        producer = self._index.producer(value)
        if id(value) not in self._program and producer is not None and _is_transpose(producer[0], self._op):
            source, axes = self._source_in_program(producer[0].operands[0])
            return source, _composed(axes, permutation_of(producer[0]))
        return self._source_in_program(value)

    def _source_in_program(self, value: Value) -> tuple[Value, Order]:
        if id(value) in self._program:
            return self._program[id(value)]
        return self._in_program(value), tuple(range(rank_of(value) or 0))

    def _transposed(self, value: Value, axes: Order, name: str) -> Value:
        if axes == tuple(range(len(axes))):
            return value
        attrs = self._op.normalise_attrs({"axes": axes})
        result = Var(name, infer_results(self._op, (value,), attrs)[0])
        self._written.append(Binding((result,), self._op, (value,), attrs))
        return result


def _name(value: Value) -> str:
    return value.name if isinstance(value, Var) else ""


def _without_unread_transposes(bindings: Sequence[Binding], results: Iterable[Value], op: OpDef) -> tuple[Binding, ...]:
    read = {id(value) for value in results}
    remaining = []
    for binding in reversed(bindings):
        if not _is_transpose(binding, op) or id(binding.results[0]) in read:
            read.update(map(id, binding.operands))
            remaining.append(binding)
    return tuple(reversed(remaining))


def _swapped(value: Value, graph: RewriteGraph) -> Value | None:
    """Return the matrix under the transpose producing a value, if the transpose has no other readers."""
    transpose = graph.maker(value, "permute_dims")
    if transpose is None or graph.num_uses(value) != 1 or permutation_of(transpose) != (1, 0):
        return None
    return transpose.operands[0]


def _as_dense(binding: Binding, graph: RewriteGraph) -> Sequence[Value] | None:
    weight = _swapped(binding.operands[1], graph)
    return None if weight is None else (graph.emit("nn.dense", (binding.operands[0], weight)),)


def _as_matmul(binding: Binding, graph: RewriteGraph) -> Sequence[Value] | None:
    matrix = _swapped(binding.operands[1], graph)
    return None if matrix is None else (graph.emit("matmul", (binding.operands[0], matrix)),)


_RESHAPED: Rules = {_TRANSPOSE: (join_around_reshape, transpose_before_reshape)}
_PRODUCTS: Rules = {"matmul": (_as_dense,), "nn.dense": (_as_matmul,)}
