"""Deliberate faults: the fuzzer must find each."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from byoc_core.artifact import loading
from byoc_core.errors import IRTypeError
from byoc_core.opset.families import convolution_kernels, pooling_kernels
from byoc_core.runtime.graph import encoding as graph_encoding
from byoc_core.runtime.module import NDArray
from numpy.lib.stride_tricks import as_strided

__all__ = ["SABOTAGES"]


def _put(owner: object, **values: object) -> None:
    for name, value in values.items():
        setattr(owner, name, value)


def _window_view(
    image: NDArray, window: Sequence[int], strides: Sequence[int], dilation: Sequence[int], out_size: Sequence[int]
) -> Any:
    steps = image.strides[2:]
    taps = [step * apart for step, apart in zip(steps, dilation, strict=True)]
    windows = [step * stride for step, stride in zip(steps, strides, strict=True)]
    shape, all_strides = (*image.shape[:2], *window, *out_size), (*image.strides[:2], *taps, *windows)
    return as_strided(image, shape, all_strides, writeable=False)


def _num_windows(size: int, window: int, stride: int, dilation: int, begin: int, end: int, **_: object) -> int:
    return (size + begin + end - dilation * (window - 1) - 1) // stride + 1


def windows_out_of_bounds() -> None:
    """Let kernels address memory by any attributes of a document."""
    _put(graph_encoding, check_document_types=lambda *_: None)
    for module in (pooling_kernels, convolution_kernels):
        _put(module, window_view=_window_view, num_windows=_num_windows)


def _replace_reading(raised: Callable[[], None]) -> None:
    """Replace loading for half of the artifacts."""
    read = loading.OpenedArtifact.read_program

    def read_program(self: Any) -> Any:
        if int(self.digest, 16) % 2:
            raised()
        return read(self)

    _put(loading.OpenedArtifact, read_program=read_program)


def wrong_error() -> None:
    """Let loading raise an undocumented error."""

    def raise_other() -> None:
        raise IRTypeError("artifact", "is not what it seems")

    _replace_reading(raise_other)


def endless_loop() -> None:
    """Let loading never end."""

    def loop() -> None:
        end = time.monotonic() + 3600
        while time.monotonic() < end:
            pass

    _replace_reading(loop)


def much_memory() -> None:
    """Let loading take all available memory."""

    def take() -> None:
        bytearray(1 << 33)

    _replace_reading(take)


SABOTAGES: Mapping[str, Callable[[], None]] = {
    function.__name__: function for function in (windows_out_of_bounds, wrong_error, endless_loop, much_memory)
}
"""Ways to break byoc, by name."""
