"""The rewrites of regions, in order.

Later rewrites rely on earlier rewrites: ops are recognised after common subexpressions are eliminated; convolutions of
bytes exist with channels last only, and their weights are found while ``dequantize`` is not folded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy.typing as npt
from byoc_core.ir import Constant, ConstantStore, Function, IRModule, TensorType
from byoc_core.transform import (
    EliminateCommonSubexpressions,
    FoldConstants,
    RecogniseComposites,
    RemoveDeadCode,
    Simplify,
    inline_composites,
)

from byoc_ccompiler.byte_ops import BYTE_CONVOLUTION, BYTE_PRODUCT
from byoc_ccompiler.family import KernelFamily
from byoc_ccompiler.quantised_weights import QUANTISED_DENSE
from byoc_ccompiler.regions.byte_products import use_byte_products
from byoc_ccompiler.regions.channels_last import channels_last
from byoc_ccompiler.regions.few_results import multiply_pixels
from byoc_ccompiler.regions.padded_windows import skip_padding
from byoc_ccompiler.regions.quantised_products import use_quantised_products
from byoc_ccompiler.regions.repeated_channels import repeat_channels
from byoc_ccompiler.regions.single_indices import slice_single_indices
from byoc_ccompiler.regions.transposed_convolutions import convolve_transposed
from byoc_ccompiler.regions.volume_convolutions import convolve_slices
from byoc_ccompiler.regions.widen_halves import widen_halves

__all__ = ["prepare_regions"]


def prepare_regions(
    functions: Iterable[Function], constants: Mapping[str, npt.NDArray[Any]], families: Mapping[str, KernelFamily]
) -> IRModule:
    """Return a module of equivalent functions in the form expected by kernels.

    Composites are taken apart, because the division into loops is decided later and anew. Normalisations, activations
    and attention in many ops become one op each. 16-bit floats are computed in float32; convolutions get their channels
    last; products of quantised tensors are computed on the integers; a single index of an axis becomes a slice.

    Args:
        functions: the regions; parameters, results and attributes except ``Codegen`` are kept.
        constants: arrays by digest.
        families: the family of each op.
    """
    inlined = {function.name: _inline(function) for function in functions}
    store = ConstantStore()
    for function in inlined.values():
        for constant in _constants_of(function):
            store.adopt(constant, constants[constant.digest])
    module = IRModule(inlined, store)
    module = replace(module, ops=module.ops.extended((BYTE_PRODUCT, BYTE_CONVOLUTION, QUANTISED_DENSE)))
    composites = tuple(name for name in _RECOGNISED if name in families)
    module = _run(module, EliminateCommonSubexpressions(), RecogniseComposites(composites), RemoveDeadCode())
    module = widen_halves(module, families)
    # Constants of 16-bit floats are cast now; quantised constants stay until their readers are known.
    fold = FoldConstants(kept=("dequantize",))
    convolved = _run(module, fold, convolve_transposed, multiply_pixels, convolve_slices, skip_padding, repeat_channels)
    module = _run(convolved, lambda module: channels_last(module, families), Simplify())
    module = slice_single_indices(module)
    module = _run(
        module, use_byte_products, RemoveDeadCode(), use_quantised_products, RemoveDeadCode(), FoldConstants()
    )
    return _convolve_late(module, families)


def _convolve_late(module: IRModule, families: Mapping[str, KernelFamily]) -> IRModule:
    """Return the module with the rewrites of convolutions also for filters dequantised by the last folding."""
    convolved = _run(module, convolve_transposed, convolve_slices)
    if convolved.functions == module.functions:
        return module
    turned = _run(convolved, skip_padding, repeat_channels, lambda module: channels_last(module, families))
    return _run(turned, Simplify(), FoldConstants())


_RECOGNISED = ("nn.layer_norm", "nn.softmax", "nn.gelu", "nn.rms_norm", "nn.swish", "nn.hard_swish", "nn.attention")
"""The ops recognised in decomposed form, if a family has a kernel."""


def _run(module: IRModule, *transforms: Callable[[IRModule], IRModule]) -> IRModule:
    for transform in transforms:
        module = transform(module)
    return module


def _inline(function: Function) -> Function:
    """Return the function without composites, and open to passes: the function now belongs to this backend."""
    attrs = {name: value for name, value in function.attrs.items() if name != "Codegen"}
    function = replace(function, attrs=attrs)
    while any(binding.op.name == "composite" for binding in function.bindings):
        function = inline_composites(function)
    return function


def _constants_of(function: Function) -> Iterable[Constant]:
    values = [operand for binding in function.bindings for operand in binding.operands]
    for value in (*values, *function.results):
        if isinstance(value, Constant):
            assert isinstance(value.type, TensorType)
            yield value
