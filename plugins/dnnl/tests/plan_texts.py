"""Whole plans as text: everything that decides what a program of the plan computes, and where."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from byoc_dnnl.capi import DimsArray
from byoc_dnnl.handles import Engine, MemoryDesc, PrimitiveDesc
from byoc_dnnl.plan import Buffer, Kind, Plan
from byoc_dnnl.post_ops import PostOp
from byoc_dnnl.primitives import PrimitiveFactory

__all__ = ["plan_texts"]


@contextmanager
def plan_texts() -> Iterator[Callable[[Plan], str]]:
    """Yield a function from a plan made within the context to the plan's text.

    oneDNN does not tell the contents of a primitive descriptor. The text of a descriptor is therefore the request: the
    function of the C API, all arguments, the post-ops, the scales, and the number of threads.
    """
    requests: dict[int, tuple[PrimitiveDesc, str]] = {}
    make = PrimitiveFactory._make

    def make_and_note(
        self: PrimitiveFactory,
        name: str,
        arguments: Sequence[object],
        post_ops: Sequence[PostOp] = (),
        scaling: object = None,
        number: int = 0,
    ) -> PrimitiveDesc | None:
        found = make(self, name, arguments, post_ops, scaling, number)  # type: ignore[arg-type]
        if found is not None:
            described = _Text({})
            parts = [*arguments, *post_ops, scaling, number, self.engine.num_threads]
            text = " ".join([name, *map(described.of, parts), found.implementation])
            requests[id(found)] = found, text  # held, so the address stays unique
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PrimitiveFactory, "_make", make_and_note)
        yield lambda plan: _text_of(plan, {key: text for key, (_, text) in requests.items()})


def _text_of(plan: Plan, requests: Mapping[int, str]) -> str:
    text = _Text(requests)
    numbers, storage = plan.lay_out()
    lines = [
        *map(text.of, plan.packings),
        *map(text.of, plan.steps),
        f"constants {sorted(plan.constants)}",
        f"ops {plan.ops()}",
        f"arena {[(text.of(buffer), number) for buffer, number in numbers.items()]} {storage}",
    ]
    result = "\n".join(lines)
    assert " object at 0x" not in result  # an address tells nothing about an object
    return result


class _Text:
    """The text of objects of a plan; buffers are numbered in the order of their first use.

    Args:
        requests: the texts of primitive descriptors, by address.
    """

    def __init__(self, requests: Mapping[int, str]) -> None:
        self._requests = requests
        self._buffers: dict[Buffer, int] = {}

    def of(self, value: Any) -> str:
        if isinstance(value, MemoryDesc):
            return f"[{tuple(value.facts)} {value.nbytes} bytes]"
        if isinstance(value, PrimitiveDesc):
            return f"<{self._requests[id(value)]}>"
        if isinstance(value, PostOp):
            return f"({' '.join(self.of(getattr(value, name)) for name in PostOp.__slots__)})"
        if isinstance(value, Engine):
            return "engine"
        if isinstance(value, DimsArray):
            return str(value.numbers)
        if isinstance(value, Buffer):
            number = self._buffers.setdefault(value, len(self._buffers))
            return f"{number}={self._fields(value)}"
        if dataclasses.is_dataclass(value):
            return self._fields(value)
        if isinstance(value, Mapping):
            return f"{{{', '.join(f'{key}: {self.of(item)}' for key, item in value.items())}}}"
        if isinstance(value, tuple | list):
            return f"({', '.join(map(self.of, value))})"
        return value.name if isinstance(value, Kind) else repr(value)

    def _fields(self, value: Any) -> str:
        texts = [f"{field.name}={self.of(getattr(value, field.name))}" for field in dataclasses.fields(value)]
        return f"{type(value).__name__}({', '.join(texts)})"
