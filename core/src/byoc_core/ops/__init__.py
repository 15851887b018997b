"""The registry of byoc's own ops, the builder of functions of these ops, and facts about ops as a whole."""

from byoc_core.ir.builder import FunctionBuilder
from byoc_core.ir.op_registry import default_ops

__all__ = ["FunctionBuilder", "default_ops"]
