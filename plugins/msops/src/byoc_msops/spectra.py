"""Importers of Fourier transforms of real signals (Rfft) and of their inverses (Irfft), over the last axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from byoc_core.frontend.onnx import Imported, NodeContext, NodeImporter
from byoc_core.ir import Value

__all__ = ["IMPORTERS"]


def _read_signal_rank(node: NodeContext, num_outer: int) -> int:
    """Return the number of axes of the signal.

    Args:
        node: the node.
        num_outer: the number of axes behind the signal.

    Raises:
        FrontendError: a variant is not supported.
    """
    for name, only in (("onesided", 1), ("normalized", 0)):
        if node.attr_int(name, only) != only:
            raise node.error(f"attribute `{name}` has an unsupported value", got=node.attr_int(name), expected=only)
    rank = node.attr_int("signal_ndim", 1)
    if not 1 <= rank <= min(3, len(node.shape(0)) - num_outer):
        raise node.error("attribute `signal_ndim` is unsupported", got=rank, expected="1 to 3, with an axis for each")
    return rank


def _import_rfft(node: NodeContext) -> Sequence[Imported]:
    """Import the spectrum of a signal ``(..., n)`` as ``(..., n // 2 + 1, 2)``, of the last axis first."""
    rank, shape = _read_signal_rank(node, 0), node.shape(0)
    last = len(shape) - 1
    result: Value = node.emit("dft", node.reshape(node.value(0), (*shape, 1)), axis=last, onesided=True)
    for axis in range(last - 1, last - rank, -1):
        result = node.emit("dft", result, axis=axis)
    return (result,)


def _import_irfft(node: NodeContext) -> Sequence[Imported]:
    """Import the signal ``(..., 2 * (m - 1))`` of a spectrum ``(..., m, 2)``, of the last axis last."""
    rank, shape = _read_signal_rank(node, 1), node.shape(0)
    last = len(shape) - 2
    x: Value = node.value(0)
    for axis in range(last - rank + 1, last):
        x = node.emit("dft", x, axis=axis, inverse=True)
    result = node.emit("dft", x, axis=last, inverse=True, onesided=True, length=(shape[last] - 1) * 2)
    return (node.reshape(result, node.shape_of(result)[:-1]),)


IMPORTERS: Mapping[str, NodeImporter] = {"Irfft": _import_irfft, "Rfft": _import_rfft}
"""The module's importers, by operator."""
