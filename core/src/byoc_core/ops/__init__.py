"""The registry of byoc's own ops, the builder of functions of these ops, and facts about ops as a whole."""

from byoc_core.ops.builder import FunctionBuilder
from byoc_core.ops.registry import default_ops

__all__ = ["FunctionBuilder", "default_ops"]
