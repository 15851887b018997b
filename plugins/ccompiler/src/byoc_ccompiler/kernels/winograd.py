"""Convolution with a filter of 3 by 3 by Winograd's minimal filtering, channels last.

The image is cut into tiles that overlap by 2 pixels. Each is transformed, vectors running along the channels, into 16
(``F(2, 3)``) or 36 (``F(4, 3)``) matrices of tiles by channels, which are multiplied by the filter's. The products of
one block of tiles and one panel of output channels are transformed back on the stack, and meet what follows the
convolution there. The filter is transformed in float64 when the code is generated, and rounded once.

Errors: with the matrices of :mod:`~byoc_ccompiler.kernels.winograd_transforms` and ``C`` input channels, an output is
off by at most ``gamma_n |A^T| [(|G| |g| |G^T|) * (|B^T| |d| |B|)] |A|``, summed over the channels, where ``n`` is
``C`` and the roundings of the three transforms (:data:`TRANSFORM_ROUNDINGS`). Measured with normal data in float32,
64 to 512 channels: ``F(2, 3)`` 1e-6, ``F(4, 3)`` 4e-6 of the largest output. All outputs of a tile depend on all of its
inputs, so NaN and infinities become NaN in the whole tile.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from byoc_core.ir import Constant

from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.convolution_geometry import ConvolutionGeometry
from byoc_ccompiler.kernels.image_pixels import ImagePixels
from byoc_ccompiler.kernels.winograd_loops import WinogradLoops
from byoc_ccompiler.kernels.winograd_plan import WinogradPlan, choose_plan
from byoc_ccompiler.steps import Step

__all__ = ["TRANSFORM_ROUNDINGS", "is_suited", "write"]

TRANSFORM_ROUNDINGS = {2: 7, 4: 15}
"""By the outputs of a tile along an axis: roundings that an output meets beside those of its sum over channels.

One of the filter; along each axis 1 or 3 of the inputs and 2 or 4 of the outputs, even where nothing is contracted.
"""


def is_suited(step: Step, kernel: Kernel) -> bool:
    """Return whether a convolution has the form, is permitted by the option ``winograd``, and is expected to gain."""
    geometry = ConvolutionGeometry.of_step(step)
    has_form = (
        geometry.layout == "NHWC"
        and (geometry.filter_height, geometry.filter_width) == (3, 3)
        and geometry.strides == (1, 1)
        and geometry.dilation == (1, 1)
        and geometry.groups == 1
    )
    has_rows = kernel.strides(step.operands[0])[-1] == 1
    is_constant = isinstance(step.operands[1], Constant)
    return (
        has_form
        and has_rows
        and is_constant
        and choose_plan(geometry, kernel.unit, kernel.options.winograd) is not None
    )


def write(kernel: Kernel) -> None:
    """Write the kernel of a convolution that :func:`is_suited`, and of what follows it elementwise."""
    anchor = kernel.group.steps[0]
    plan = choose_plan(ConvolutionGeometry.of_step(anchor), kernel.unit, kernel.options.winograd)
    assert plan is not None
    write_plan(kernel, plan)


def write_plan(kernel: Kernel, plan: WinogradPlan) -> None:
    """Write the kernel as planned."""
    weight = kernel.group.steps[0].operands[1]
    assert isinstance(weight, Constant)
    packed = _pack_filter(plan, kernel.scope.constants.array(weight, kernel.scope.where))
    image, weights = ImagePixels.of(kernel), kernel.source(kernel.scope.constants.derive(packed), "weights")
    kernel.finish_block(WinogradLoops(kernel, plan, image, weights).block())


def _pack_filter(plan: WinogradPlan, weight: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the transformed filter: panels of points of input channels of output channels."""
    factors = plan.algorithm.transform_filter(plan.geometry.ordered_filter(weight))
    padded = np.zeros((*factors.shape[:2], plan.num_panels * plan.width))
    padded[..., : factors.shape[2]] = factors
    panels = padded.reshape(*factors.shape[:2], plan.num_panels, plan.width).transpose(2, 0, 1, 3)
    return np.ascontiguousarray(panels, dtype=weight.dtype)
