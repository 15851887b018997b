"""Winograd and depthwise convolution on one thread, beside the contestants of :mod:`benchmarks.convolutions`.

All contestants of a convolution run in turn, each with separate weights: large filters come from beyond the
second-level cache, as in a network.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.calls import NO_PEER, has_peer
from benchmarks.convolutions import Convolution, list_calls
from benchmarks.peak import peak_contestant
from benchmarks.products import compare

__all__ = ["run_depthwise", "run_winograd"]

WINOGRAD = tuple(
    Convolution(size, channels, out_channels, 3, 1, 1)
    for size, channels, out_channels in (
        *((224, 64, 64), (56, 64, 64), (28, 128, 128), (14, 256, 256), (7, 512, 512)),
        *((55, 16, 64), (27, 32, 128), (13, 48, 192), (13, 64, 256), (56, 128, 32), (28, 128, 32), (14, 128, 32)),
    )
)
"""Convolutions of VGG-19, ResNet-50, SqueezeNet, DenseNet-121."""

DEPTHWISE = tuple(
    Convolution(size, channels, channels, window, stride, window // 2, channels)
    for size, channels, stride, window in (
        *((112, 32, 1, 3), (112, 96, 2, 3), (56, 144, 1, 3), (56, 144, 2, 3), (28, 192, 1, 3), (28, 192, 2, 3)),
        *((14, 384, 1, 3), (14, 576, 1, 3), (14, 576, 2, 3), (7, 960, 1, 3), (28, 240, 1, 5), (7, 1152, 1, 5)),
    )
)
"""Convolutions of MobileNetV2, and two of EfficientNet-B0."""


def run_winograd(num_rounds: int) -> dict[str, Any]:
    """Return the times of 3x3 convolutions by contestant, and ratios; byoc with each value of ``winograd``."""
    return _run(WINOGRAD, ("f2", "off"), num_rounds)


def run_depthwise(num_rounds: int) -> dict[str, Any]:
    """Return the times of depthwise convolutions by contestant, and ratios."""
    return _run(DEPTHWISE, (), num_rounds)


def _run(convolutions: Sequence[Convolution], further_options: Sequence[str], num_rounds: int) -> dict[str, Any]:
    if not has_peer():
        print(f"  {NO_PEER}")
    peak = peak_contestant("float32")
    found = {}
    for convolution in convolutions:
        calls = list_calls(convolution, "auto", further_options)
        found[str(convolution)] = compare(str(convolution), calls, convolution.num_operations, peak, num_rounds)
    return found
