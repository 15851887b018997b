"""A digest of a backend's estimates.

Measurements correct estimates by factors, measured over estimated seconds. A factor is true of the estimates at the
time of the measurement only. Estimates change with the tables of a backend, also under an unchanged version, while a
backend is developed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import astuple, replace

from byoc_core.backend import BackendHandle
from byoc_core.errors import HookError
from byoc_core.script import parse

__all__ = ["estimates_digest"]

_PROBES = """
@R.ir_module
class Probes:
    @R.function
    def product(x: R.Tensor((96, 256), "float32"), w: R.Tensor((256, 384), "float32")):
        y = R.matmul(x, w)
        return y

    @R.function
    def vector_product(x: R.Tensor((1, 1024), "float32"), w: R.Tensor((1024, 512), "float32")):
        y = R.matmul(x, w)
        return y

    @R.function
    def convolution(x: R.Tensor((1, 32, 28, 28), "float32"), w: R.Tensor((64, 32, 3, 3), "float32")):
        y = R.nn.conv2d(x, w, padding=(1, 1))
        return y

    @R.function
    def depthwise_convolution(x: R.Tensor((1, 64, 56, 56), "float32"), w: R.Tensor((64, 1, 3, 3), "float32")):
        y = R.nn.conv2d(x, w, padding=(1, 1), groups=64)
        return y

    @R.function
    def pooling(x: R.Tensor((1, 64, 56, 56), "float32")):
        y = R.nn.max_pool2d(x, pool_size=(2, 2), strides=(2, 2))
        return y

    @R.function
    def probabilities(x: R.Tensor((64, 512), "float32")):
        y = R.nn.softmax(x, axis=-1)
        return y

    @R.function
    def total(x: R.Tensor((64, 4096), "float32"), y: R.Tensor((64, 4096), "float32")):
        z = R.add(x, y)
        return z
"""
"""Functions of a single op each, for kernels of different kinds."""


def estimates_digest(handle: BackendHandle, options: Mapping[str, object], num_threads: int) -> str:
    """Return a digest of the estimates of a backend for some ops; empty without estimates of these ops.

    Args:
        handle: the backend.
        options: as given by the user.
        num_threads: of a call.

    Raises:
        OptionsError: an option is unknown or has a bad value.
    """
    context = replace(handle.context(None, options), num_threads=num_threads)
    answers: list[tuple[float, ...] | None] = []
    for function in parse(_PROBES).functions.values():
        try:
            answer = handle.estimate(replace(function, attrs={"Codegen": handle.name}), context)
        except HookError:  # the report of a placement has the error
            answer = None
        answers.append(None if answer is None else astuple(answer))
    if not any(answers):
        return ""
    return hashlib.sha256(repr(answers).encode()).hexdigest()[:8]
