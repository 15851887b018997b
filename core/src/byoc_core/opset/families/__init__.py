"""The families of ops, one module each: definitions with kernels and canonical cases.

Families load when one of their ops is asked for: a process that runs one host region needs a few kernels, and a check
of a graph document from a file needs the type rules of a few ops.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from byoc_core.kernels.numpy_kernel import NumpyKernel
    from byoc_core.opset.opdef import OpDef

__all__ = ["FAMILIES", "KERNELS", "find_op", "ops_of"]

FAMILIES = (
    "elementwise",
    "functions",
    "activations",
    "linear",
    "convolution",
    "pooling",
    "unit_axes",
    "normalisation",
    "shape",
    "slices",
    "indexing",
    "scatter",
    "creation",
    "reduction",
    "resize",
    "recurrence",
    "einsum",
    "quantisation",
    "attention",
    "ordering",
    "cumulative",
    "arrangement",
    "border",
    "data_dependent",
)
"""The modules that define ops, in the order of the registry."""


@cache
def ops_of(family: str) -> dict[str, OpDef]:
    """Return the ops of a family, by name."""
    return {op.name: op for op in import_module(f"byoc_core.opset.families.{family}").OPS}


@cache
def find_op(name: str) -> OpDef | None:
    """Return the core's op of that name, ``None`` where there is none.

    Cost: imports the families up to the op's own, all of them where there is no such op.
    """
    return next((ops_of(family)[name] for family in FAMILIES if name in ops_of(family)), None)


class _Kernels(Mapping[str, "NumpyKernel"]):
    def __getitem__(self, name: str) -> NumpyKernel:
        op = find_op(name)
        if op is None or op.kernel is None:
            raise KeyError(name)
        return op.kernel  # type: ignore[return-value]  # the core's kernels are all of that class; tested

    def __contains__(self, name: object) -> bool:
        op = find_op(name) if isinstance(name, str) else None
        return op is not None and op.kernel is not None

    def __iter__(self) -> Iterator[str]:
        return (name for family in FAMILIES for name, op in ops_of(family).items() if op.kernel is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)


KERNELS: Mapping[str, NumpyKernel] = _Kernels()
"""The reference kernel of every op of the core that computes, by op name."""
