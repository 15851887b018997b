"""Groups of ops computed by a single kernel, for policies choosing between backends.

The division into kernels is decided when a region is compiled, independently of matches. But a policy weighing backends
(:class:`byoc_core.partitioning.ByCost`) sees a composite as a single op without memory traffic between the parts, and
thus sees the saving.
"""

from __future__ import annotations

from byoc_core.ir import Binding
from byoc_core.pattern import CompositePattern, Match, Pattern, Rejection, is_const, is_op, wildcard

from byoc_ccompiler.quantised_weights import QUANTISED_DENSE, depth_axis_of, reject_weights
from byoc_ccompiler.rejections import operand_type
from byoc_ccompiler.support import reject_step

__all__ = ["is_supported_whole", "patterns"]

_ANCHORS = {"conv2d": "nn.conv2d", "dense": "nn.dense", "matmul": "matmul"}
_PRODUCTS = ("nn.dense", "matmul")


def _check(match: Match) -> Rejection | None:
    """Reject a match containing an op rejected alone by this backend."""
    for binding in match.bindings:
        rejection = reject_step(binding, tutorial=False)
        if rejection is not None:
            return rejection
    return None


def _check_weights(match: Match) -> Rejection | None:
    """Reject a product by weights not computed by the kernel of :data:`QUANTISED_DENSE`."""
    product, dequantize = match.root, match.binding("weights")
    if operand_type(product, 0).dtype != "float32":
        return Rejection("dtype", f"the factors are {operand_type(product, 0).dtype}, not float32")
    moves = [binding for binding in match.bindings if binding.op.name == "permute_dims"]
    depth_axis = depth_axis_of(product, moves)
    rejection = reject_weights(dequantize, depth_axis, match.array("scale"))
    return rejection or reject_step(product, tutorial=False)


def is_supported_whole(binding: Binding) -> bool:
    """Return whether an op is a composite compiled as a whole, although its ops may not be compiled alone."""
    return binding.op.name == "composite" and binding.attrs["name"] == QUANTISED_DENSE.name


def patterns() -> list[CompositePattern]:
    """Return convolution and matrix products with bias (``nn.bias_add`` or ``add``) and ReLU, longest first.

    Products by dequantised weights go before: with weights of 4 bits, the ops are not compiled alone.
    """
    weights = is_op("dequantize")(is_const(), is_const().named("scale"), is_const()).named("weights")
    factor = weights | is_op("permute_dims")(weights)
    quantised = is_op(*_PRODUCTS)(wildcard(), factor)
    found = [CompositePattern(QUANTISED_DENSE.name, quantised, _check_weights, priority=1)]
    for name, op in _ANCHORS.items():
        anchor = is_op(op)(wildcard(), wildcard())
        bias: Pattern = is_op("nn.bias_add", "add")(anchor, wildcard())
        found += [
            CompositePattern(f"ccompiler.{name}_bias_relu", is_op("nn.relu")(bias), _check),
            CompositePattern(f"ccompiler.{name}_relu", is_op("nn.relu")(anchor), _check),
            CompositePattern(f"ccompiler.{name}_bias", bias, _check),
        ]
    return found
