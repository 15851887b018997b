"""Equality and hashing of IR up to the names of values.

Equal tokens must mean equal computations: ``==`` of modules and functions and the removal of common subexpressions rely
on the tokens. The core stores no hash in files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

from byoc_core.ir.constants import Constant
from byoc_core.ir.module import Function, IRModule, Value
from byoc_core.ir.printer import UNPRINTED_ATTRS

__all__ = ["attributes_text", "structural_hash", "structurally_equal"]


def structurally_equal(left: IRModule | Function, right: IRModule | Function) -> bool:
    """Return whether two modules, or two functions, are the same program.

    Names of values, locations and external modules do not count; names of functions and of symbols, types, attributes,
    claims, the order of bindings and the digests of constants do.
    """
    return list(_tokens(left)) == list(_tokens(right))


def structural_hash(item: IRModule | Function) -> str:
    """Return a hexadecimal SHA-256, equal for structurally equal items in every process."""
    digest = hashlib.sha256()
    for token in _tokens(item):
        digest.update(token.encode())
        digest.update(b"\0")
    return digest.hexdigest()


def _tokens(item: IRModule | Function) -> Iterator[str]:
    if isinstance(item, Function):
        yield from _function_tokens(item)
        return
    yield attributes_text({key: value for key, value in item.attrs.items() if key not in UNPRINTED_ATTRS})
    for name in sorted(item.functions):
        yield f"function {name!r}"
        yield from _function_tokens(item.functions[name])


def _function_tokens(function: Function) -> Iterator[str]:
    numbers: dict[int, int] = {}

    def define(value: object) -> None:
        numbers[id(value)] = len(numbers)

    def cite(value: Value) -> str:
        if isinstance(value, Constant):
            return f"constant {value.digest} {value.type}"
        return f"value {numbers.get(id(value), f'free {value.name!r}')}"

    yield f"params {len(function.params)}"
    for param in function.params:
        define(param)
        yield str(param.type)
    yield attributes_text(function.attrs)
    for binding in function.bindings:
        suffix = "" if binding.schedule is None else f" schedule {binding.schedule!r}"
        yield f"{binding.op.name} {binding.codegen!r} {len(binding.operands)} {len(binding.results)}{suffix}"
        yield attributes_text(binding.attrs)
        yield from map(cite, binding.operands)
        for region in binding.regions:
            yield "region"
            yield from _function_tokens(region)
        for result in binding.results:
            define(result)
            yield str(result.type)
    yield "return"
    yield from map(cite, function.results)


def attributes_text(attrs: Mapping[str, Any]) -> str:
    """Return text that is equal for equal attributes: types and signs of zeros count, order does not."""
    return repr(sorted((key, _attr_text(value)) for key, value in attrs.items()))


def _attr_text(value: object) -> str:
    if isinstance(value, tuple | list):
        return f"({','.join(map(_attr_text, value))})"
    if isinstance(value, Mapping):
        return attributes_text(value)
    return f"{type(value).__name__}:{value!r}"
