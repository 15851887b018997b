"""Ops by name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from byoc_core.errors import IRError, IRTypeError, near_names
from byoc_core.opset.delegated import delegated_op, is_delegated
from byoc_core.opset.opdef import OpDef

__all__ = ["OpRegistry"]


class OpRegistry(Mapping[str, OpDef]):
    """Ops by name. Filled once, then frozen and passed to parsers and builders of IR.

    Every registry knows the delegated ops, without listing them.
    """

    def __init__(self, ops: Iterable[OpDef] = ()) -> None:
        self._ops: dict[str, OpDef] = {}
        for op in ops:
            if op.name in self._ops:
                raise IRError(f"op `{op.name}`", "is defined twice")
            self._ops[op.name] = op

    def find(self, name: str) -> OpDef:
        """Return the op of this name.

        Raises:
            IRTypeError: there is none; near names are listed.
        """
        op = self.get(name)
        if op is None:
            raise IRTypeError(f"op `{name}`", "is not known", hint=near_names(name, self._ops) or None)
        return op

    def extended(self, ops: Iterable[OpDef]) -> OpRegistry:
        """Return a registry extended by ``ops``."""
        return OpRegistry([*self._ops.values(), *ops])

    def __getitem__(self, name: str) -> OpDef:
        op = self._ops.get(name)
        if op is None and is_delegated(name):
            return delegated_op(name)
        return self._ops[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._ops)

    def __len__(self) -> int:
        return len(self._ops)
