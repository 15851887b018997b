"""The registry of byoc's own ops, the builder of functions of these ops, and facts about ops as a whole."""

from byoc_core.ops.builder import FunctionBuilder
from byoc_core.ops.registry import default_ops
from byoc_core.opset.shape import is_open_bound
from byoc_core.opset.windows import RANKS, axes_of, axis_letters

__all__ = ["RANKS", "FunctionBuilder", "axes_of", "axis_letters", "default_ops", "is_open_bound"]
