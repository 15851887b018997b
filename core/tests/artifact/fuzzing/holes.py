"""Past attacks as artifacts: each must be refused, or terminate."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from typing import Any

from byoc_core.dims import Dim, parse_dim, symbol
from byoc_core.runtime.module import TensorSpec
from byoc_core.vm.instructions import Instruction
from byoc_core.vm.program import PlannedTensor, VMFunction

from core.tests.artifact.fuzzing.corpus import Seed
from core.tests.artifact.fuzzing.members import Members, packed, program_of, taken_apart, with_program

__all__ = ["holes"]


def holes(seed: Seed) -> Mapping[str, bytes]:
    """Return the attacks applicable to an artifact, by name."""
    members = taken_apart(seed.content)
    found = {}
    for name, attack in _ATTACKS.items():
        made = attack(members)
        if made is not None:
            found[name] = packed(made)
    return found


def _windowed(members: Members, ops: tuple[str, ...], change: Callable[[Any], None]) -> Members | None:
    """Return members with the first node of some ops changed; ``None`` without such a node."""
    head, brace, rest = members.get("modules/0/payload", b"").partition(b"{")
    try:
        data = json.loads(brace + rest)
    except ValueError:
        return None
    node = next((n for f in data["functions"] for n in f.get("nodes", ()) if n["op"].startswith(ops)), None)
    if node is None:
        return None
    change(node)
    return {**members, "modules/0/payload": head + json.dumps(data).encode()}


def _dilated(by: int) -> Callable[[Any], None]:
    """Return a change to a negative dilation: the windows would lie before the image."""

    def change(node: dict[str, Any]) -> None:
        node["attrs"]["dilation"] = [by] * len(node["attrs"]["dilation"])

    return change


def _wide_pool(node: dict[str, Any]) -> None:
    """Build a window too large for a loop over the elements."""
    node["attrs"]["pool_size"][-1] = 2**62


def _product_of_sums(members: Members) -> Members:
    """Return members with a tensor whose number of elements has a million terms."""
    letters = [(f"a{i}", f"b{i}") for i in range(20)]
    function = program_of(members).functions[0]
    sums = tuple(symbol(a) + symbol(b) for a, b in letters)
    names = tuple(symbol(name) for pair in letters for name in pair)
    made = _with_params(function, (TensorSpec("zz", "float32", names),))
    storages = (*made.storages, 0)
    tensor = PlannedTensor(len(function.storages), 0, "float32", sums)
    return _with_function(members, dataclasses.replace(made, storages=storages, tensors=(*made.tensors, tensor)))


def _nested_choices(members: Members) -> Members:
    """Return members with a storage of deeply nested size."""
    text = "n"
    for index in range(60):
        text = f"max({text},n//{index + 2})" if index % 2 else f"min({text}+{index},2*n)"
    function = program_of(members).functions[0]
    return _with_function(members, dataclasses.replace(function, storages=(*function.storages, parse_dim(text))))


def _params_of_sums(members: Members) -> Members:
    """Return members with inputs with products of sums as bytes."""
    names = tuple(symbol(f"{letter}{i}") for i in range(8) for letter in "ab")
    sums = tuple[Dim, ...](symbol(f"a{i}") + symbol(f"b{i}") for i in range(8))
    params = [TensorSpec("s", "float32", names)]
    params += [TensorSpec(f"p{j}", "float32", tuple(size + j for size in sums)) for j in range(4)]
    return _with_function(members, _with_params(program_of(members).functions[0], tuple(params)))


def _with_params(function: VMFunction, params: tuple[TensorSpec, ...]) -> VMFunction:
    """Return a function with more params; the later registers are renumbered."""
    first = len(function.params)

    def moved(register: int) -> int:
        return register + len(params) if register >= first else register

    def with_moved(item: Instruction) -> Instruction:
        named = [name for name in ("args", "results", "values") if hasattr(item, name)]
        changes: dict[str, Any] = {name: tuple(map(moved, getattr(item, name))) for name in named}
        return dataclasses.replace(item, **changes)

    code = tuple(map(with_moved, function.code))
    views = tuple(dataclasses.replace(view, base=moved(view.base)) for view in function.views)
    return dataclasses.replace(function, params=(*function.params, *params), code=code, views=views)


def _with_function(members: Members, function: VMFunction) -> Members:
    program = program_of(members)
    return with_program(members, dataclasses.replace(program, functions=(function, *program.functions[1:])))


_POOLS = ("nn.max_pool", "nn.avg_pool")
_ATTACKS: Mapping[str, Callable[[Members], Members | None]] = {
    "pool-leak": lambda m: _windowed(m, _POOLS, _dilated(-64)),
    "pool-crash": lambda m: _windowed(m, _POOLS, _dilated(-(10**9))),
    "conv-leak": lambda m: _windowed(m, ("nn.conv",), _dilated(-64)),
    "conv-crash": lambda m: _windowed(m, ("nn.conv",), _dilated(-(10**9))),
    "pool-hang": lambda m: _windowed(m, _POOLS, _wide_pool),
    "product-of-sums": _product_of_sums,
    "nested-choices": _nested_choices,
    "params-of-sums": _params_of_sums,
}
