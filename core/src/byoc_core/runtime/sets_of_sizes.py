"""Sets of sizes: signatures with integers in place of symbols, and sizes as text for people.

Shared by compiling for sizes (:mod:`byoc_core.backend.specialised`) and by the compiled modules
(:mod:`byoc_core.runtime.specialised`). Variants are found by :data:`Sizes`, so names must be in order.
"""

from __future__ import annotations

from collections.abc import Sequence

from byoc_core.dims import bound_symbols, shape_symbols
from byoc_core.errors import CallError
from byoc_core.runtime.arguments import concrete_shape
from byoc_core.runtime.module import PackedFunction, Signature, TensorSpec

__all__ = [
    "MAX_SIZE",
    "Sizes",
    "check_signature",
    "determined_symbols",
    "output_shapes",
    "sets_text",
    "sizes_text",
    "specialised_signature",
]

Sizes = tuple[tuple[str, int], ...]
"""The sizes of all symbols of a function, in order of name."""

MAX_SIZE = 2**62
"""The largest size allowed in artifacts; checked for sizes named by the user and when a payload or report is read."""

_MAX_SIZES_NAMED = 16


def determined_symbols(name: str, signature: Signature) -> frozenset[str]:
    """Return the symbols of a function.

    Raises:
        CallError: the inputs do not determine all symbols.
    """
    symbols = shape_symbols(dim for spec in (*signature.inputs, *signature.outputs) for dim in spec.shape)
    unknown = sorted(symbols - bound_symbols(spec.shape for spec in signature.inputs))
    if unknown:
        raise CallError(f"function `{name}`", f"the inputs do not determine the size {', '.join(unknown)}")
    return symbols


def sizes_text(sizes: Sizes) -> str:
    """Return sizes as text for people: ``m = 2, n = 8``."""
    return ", ".join(f"{name} = {size}" for name, size in sizes)


def sets_text(sets: Sequence[Sizes]) -> str:
    """Return sets of sizes as text for people; a long list is cut short."""
    texts = [sizes_text(sizes) for sizes in sets[:_MAX_SIZES_NAMED]]
    if len(sets) > len(texts):
        texts.append(f"{len(sets) - len(texts)} more")
    return "; ".join(texts) or "none"


def specialised_signature(signature: Signature, sizes: Sizes, where: str) -> Signature:
    """Return a signature for sizes.

    Raises:
        CallError: a computed size is negative, or is not determined.
    """

    def specialised_spec(spec: TensorSpec) -> TensorSpec:
        return TensorSpec(spec.name, spec.dtype, concrete_shape(spec, dict(sizes), where))

    return Signature(tuple(map(specialised_spec, signature.inputs)), tuple(map(specialised_spec, signature.outputs)))


def output_shapes(signature: Signature, sizes: Sizes, where: str) -> tuple[tuple[int, ...], ...]:
    """Return the shapes of a signature's outputs for sizes.

    Raises:
        CallError: a computed size is negative, or is not determined.
    """
    return tuple(concrete_shape(spec, dict(sizes), where) for spec in signature.outputs)


def check_signature(where: str, reference: str, function: PackedFunction, expected: Signature) -> None:
    """Check that a function fills buffers and has the types of a signature, if the function declares types.

    Raises:
        CallError: the function does not.
    """
    actual = function.signature
    if function.returns_results or (actual is not None and _types(actual) != _types(expected)):
        raise CallError(
            where,
            f"has another signature than {reference}",
            got=_signature_text(actual),
            expected=_signature_text(expected),
        )


def _types(signature: Signature) -> list[list[tuple[str, object]]]:
    return [[(s.dtype, s.shape) for s in specs] for specs in (signature.inputs, signature.outputs)]


def _signature_text(signature: Signature | None) -> str:
    if signature is None:
        return "a function returning its results"
    inputs, outputs = (
        ", ".join(f"{s.dtype}[{', '.join(map(str, s.shape))}]" for s in specs)
        for specs in (signature.inputs, signature.outputs)
    )
    return f"({inputs}) -> ({outputs})"
