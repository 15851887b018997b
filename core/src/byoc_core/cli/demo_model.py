"""The network compiled by ``byoc demo``."""

from __future__ import annotations

from typing import Any

import numpy as np

from byoc_core.ir import FunctionBuilder, IRModule, Value, Var, tensor

__all__ = ["make_demo_image", "make_demo_model"]

_SEED = 0
_SHAPE = (1, 1, 12, 12)


def make_demo_image() -> np.ndarray[Any, np.dtype[np.float32]]:
    """Return an input for the network: noise."""
    return np.random.default_rng(_SEED).standard_normal(_SHAPE).astype(np.float32)


def make_demo_model() -> IRModule:
    """Return a small convolutional classifier with He-scaled weights: 12x12 images, ten classes."""
    generator = np.random.default_rng(_SEED)
    builder = FunctionBuilder()

    def weights(*shape: int) -> Value:
        scale = np.sqrt(2 / np.prod(shape[1:]))
        return builder.const((generator.standard_normal(shape) * scale).astype(np.float32))

    def emit(op: str, *operands: Value, **attrs: Any) -> Var:
        result = builder.emit(op, *operands, **attrs)
        assert isinstance(result, Var)
        return result

    image = builder.param("image", tensor(_SHAPE))
    brightness = builder.const(np.full(_SHAPE, 0.1, np.float32))
    contrast = builder.const(np.full(_SHAPE, 0.9, np.float32))
    value = emit("multiply", emit("subtract", image, brightness), contrast)
    value = emit("nn.relu", emit("nn.conv2d", value, weights(8, 1, 3, 3), padding=(1, 1, 1, 1)))
    value = emit("nn.max_pool2d", value, pool_size=(2, 2), strides=(2, 2))
    value = emit("nn.relu", emit("nn.conv2d", value, weights(16, 8, 3, 3), padding=(1, 1, 1, 1)))
    value = emit("reshape", emit("nn.max_pool2d", value, pool_size=(2, 2), strides=(2, 2)), shape=(1, 144))
    value = emit("nn.bias_add", emit("nn.dense", value, weights(10, 144)), builder.const(np.zeros(10, np.float32)))
    function = builder.finish(emit("nn.softmax", value)).with_attrs(output_names=("probabilities",))
    return IRModule({"main": function}, builder.constants)
