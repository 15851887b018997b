"""The neighbours of ops: a backend computes some ops along with others, and the cost depends on the neighbours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from byoc_core.ir import STRUCTURAL_OPS, Binding, Constant, IRModule
from byoc_core.partitioning.op_sites import OpKey, members_of, op_key, walk_bodies

__all__ = ["ALONE", "Neighbours", "Site", "neighbours_of"]


class Neighbours(NamedTuple):
    """The names of the ops beside an op, each if the value between both has a single reader; else empty.

    Attributes:
        maker: the op with the first operand as result.
        reader: the op reading the first result.
    """

    maker: str = ""
    reader: str = ""


ALONE = Neighbours(maker="", reader="")


class Site(NamedTuple):
    """The neighbours of an op, with the names of the first results.

    Attributes:
        neighbours: the names of ops.
        maker: the first result of the maker; empty without a maker.
        reader: the first result of the reader; empty without a reader.
    """

    neighbours: Neighbours = ALONE
    maker: str = ""
    reader: str = ""

    def within(self, labels: Mapping[str, int], label: int) -> Neighbours:
        """Return the neighbours with a label.

        Args:
            labels: the label of each op, by the name of the first result.
            label: the label.
        """
        maker = self.neighbours.maker if labels.get(self.maker) == label else ""
        return Neighbours(maker, self.neighbours.reader if labels.get(self.reader) == label else "")


def neighbours_of(module: IRModule) -> Mapping[OpKey, Site]:
    """Return the neighbours of the ops of a module, without ops of regions.

    Ops with nested functions, and values passed in or out of a function, count as no neighbours.

    Cost: linear in the operands of all ops.
    """
    found: dict[OpKey, Site] = {}
    for function in module.functions.values():
        if "Codegen" in function.attrs:
            continue
        for body in walk_bodies(function):
            ops = [op for binding in body.bindings for op in members_of(binding)]
            readers: dict[str, list[Binding]] = {}
            makers: dict[str, Binding] = {}
            for op in ops:
                for name in {operand.name: None for operand in op.operands if not isinstance(operand, Constant)}:
                    readers.setdefault(name, []).append(op)
                makers.update((result.name, op) for result in op.results)
            returned = {result.name for result in body.results if not isinstance(result, Constant)}
            single = {name: rs[0] for name, rs in readers.items() if len(rs) == 1 and name not in returned}
            for op in ops:
                first = next((operand.name for operand in op.operands if not isinstance(operand, Constant)), "")
                maker = makers.get(first) if first in single else None
                reader = single.get(op.results[0].name)
                neighbours = Neighbours(_name(maker), _name(reader))
                found[op_key(function.name, op)] = Site(neighbours, _result(maker), _result(reader))
    return found


def _name(op: Binding | None) -> str:
    return "" if op is None or op.op in STRUCTURAL_OPS else op.op.name


def _result(op: Binding | None) -> str:
    return "" if op is None else op.results[0].name
