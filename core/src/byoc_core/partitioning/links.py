"""Links: the values behind the parameters and results of control flow, for a connected graph of ops.

The report holds the links; the HTML page of a report draws edges by them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from byoc_core.ir import IF, LOOP, Binding, Constant, IRModule, Value, Var
from byoc_core.partitioning.op_sites import walk_bodies

__all__ = ["find_links"]


def find_links(module: IRModule) -> list[dict[str, Any]]:
    """Return ``function, name, reads`` for each parameter of a body and each result of an ``if`` or a ``loop``.

    A parameter reads the initial operand; the round number of a loop reads the maximum number of rounds. A result reads
    the corresponding result of each body, and the values deciding how often bodies run. ``reads`` are names of values,
    without constants.

    Cost: linear in bindings and operands.
    """
    links = []
    for function in module.functions.values():
        source = str(function.attrs.get("source", function.name))
        for body in walk_bodies(function):
            for binding in body.bindings:
                for value, reads in _pairs(binding):
                    names = list({read.name: None for read in reads if not isinstance(read, Constant)})
                    if names:
                        links.append({"function": source, "name": value.name, "reads": names})
    return links


def _pairs(binding: Binding) -> Iterator[tuple[Var, Sequence[Value]]]:
    if binding.op is IF:
        deciding, initial = binding.operands[:1], binding.operands[1:]
    elif binding.op is LOOP:
        deciding, initial = binding.operands[:2], (binding.operands[0], *binding.operands[2:])
    else:
        return
    for body in binding.regions:
        for param, operand in zip(body.params, initial, strict=True):
            yield param, (operand,)
    num_own = 1 if binding.op is LOOP else 0  # a loop's body gives its condition first
    for index, result in enumerate(binding.results):
        yield result, (*deciding, *(body.results[num_own + index] for body in binding.regions))
