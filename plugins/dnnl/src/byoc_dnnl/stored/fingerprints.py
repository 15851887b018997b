"""Fingerprints of layouts: equal numbers mean equal layouts.

The native half computes the same numbers (``csrc/layout.c``).
"""

from __future__ import annotations

from collections.abc import Iterable

from byoc_dnnl.capi import FORMAT_KIND_BLOCKED, Api, DataType
from byoc_dnnl.desc_facts import query_facts

__all__ = ["fingerprint"]

_OFFSET, _PRIME, _MASK = 0xCBF29CE484222325, 0x100000001B3, 2**64 - 1


def fingerprint(api: Api, pointer: int | None) -> int:
    """Return a number of 63 bits for a description of oneDNN: FNV-1a over the facts; ``None`` describes no tensor."""
    return (_hash(_numbers(api, pointer)) & _MASK) >> 1


def _numbers(api: Api, pointer: int | None) -> Iterable[int]:
    if not pointer:
        return (0, 0, 0, 0)
    facts = query_facts(api, pointer)
    if not facts.sizes:
        return (facts.kind, 0, 0, 0)
    nbytes = int(api.ask("dnnl_memory_desc_get_size", pointer))
    numbers = [facts.kind, len(facts.sizes), DataType[facts.dtype], nbytes, *facts.sizes]
    if facts.kind == FORMAT_KIND_BLOCKED:
        numbers += [*facts.padded_sizes, *facts.strides, facts.offset, len(facts.blocks)]
        numbers += [*facts.blocks, *facts.block_axes]
    return numbers


def _hash(numbers: Iterable[int]) -> int:
    value = _OFFSET
    for number in numbers:
        value = (value ^ (number & _MASK)) * _PRIME & _MASK
    return value
