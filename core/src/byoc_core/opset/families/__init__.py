"""The families of ops, a module each: definitions with kernels and canonical cases.

A family is imported when an op of the family is first requested. A process running a single host region needs few
kernels, and a check of a graph document from a file needs the type rules of few ops. For this reason the table below
repeats the names of the ops: an op absent from the table is not found.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from byoc_core.kernels.numpy_kernel import NumpyKernel
    from byoc_core.opset.opdef import OpDef

__all__ = ["FAMILIES", "KERNELS", "family_of", "find_op", "ops_of"]

_OPS_OF: Mapping[str, str] = {
    "elementwise": (
        "add subtract multiply divide maximum minimum power equal less less_equal greater "
        "greater_equal logical_and logical_or logical_not negative abs exp log sqrt tanh sigmoid erf "
        "clip cast bitcast where"
    ),
    "math_functions": (
        "floor ceil round reciprocal sin cos tan asin acos atan sinh cosh asinh acosh atanh sign "
        "bitwise_not bitwise_and bitwise_or bitwise_xor left_shift right_shift not_equal logical_xor "
        "mod isnan isinf"
    ),
    "activations": (
        "nn.relu nn.leaky_relu nn.gelu nn.softplus nn.softsign nn.elu nn.selu nn.celu nn.hard_sigmoid "
        "nn.hard_swish nn.swish nn.mish nn.thresholded_relu nn.shrink nn.prelu"
    ),
    "linear": "matmul nn.dense nn.bias_add",
    "convolution": "nn.conv1d nn.conv2d nn.conv3d nn.conv1d_transpose nn.conv2d_transpose nn.conv3d_transpose",
    "pooling": (
        "nn.max_pool1d nn.avg_pool1d nn.lp_pool1d nn.max_pool2d nn.avg_pool2d nn.lp_pool2d "
        "nn.max_pool3d nn.avg_pool3d nn.lp_pool3d nn.adaptive_max_pool1d nn.adaptive_avg_pool1d "
        "nn.adaptive_max_pool2d nn.adaptive_avg_pool2d nn.adaptive_max_pool3d nn.adaptive_avg_pool3d "
        "nn.argmax_pool1d nn.argmax_pool2d nn.argmax_pool3d"
    ),
    "unit_axes": "squeeze expand_dims",
    "normalisation": (
        "nn.batch_norm nn.layer_norm nn.rms_norm nn.group_norm nn.instance_norm nn.lrn nn.log_softmax "
        "nn.softmax nn.stepwise_softmax"
    ),
    "shape": "reshape permute_dims broadcast_to concat split take strided_slice nn.pad",
    "slices": "tile flip roll stack reverse_sequence",
    "indexing": "gather_elements gather_nd one_hot",
    "scatter": "scatter_elements scatter_nd scatter_slice",
    "creation": "arange full shape_of size shape_to_tensor",
    "reduction": "sum mean max min prod all any logsumexp argmin argmax",
    "resize": "nn.resize nn.antialias_resize",
    "recurrence": "nn.rnn nn.gru nn.lstm",
    "einsum": "einsum",
    "quantisation": "quantize dequantize",
    "attention": "nn.attention nn.rotary_embedding",
    "ordering": "topk sort argsort",
    "cumulative": "cumsum cumprod",
    "arrangement": "trilu depth_to_space space_to_depth",
    "border": "nn.border_pad",
    "data_dependent": "nonzero compress unique range as_size ragged_take as_dynamic",
    "detection": "nn.non_max_suppression",
    "strings": (
        "strings.change_case strings.token_spans strings.take_spans strings.key_index ngram_counts strings.ngram_counts"
    ),
    "spectral": "dft",
    "determinant": "det",
    "random_numbers": "random.seed random.uniform random.normal",
    "sampling": "nn.grid_sample nn.roi_align nn.roi_max_pool",
    "columns": "nn.col2im nn.deformable_im2col",
}
"""The ops of each family: a look-up of an op imports only the op's family."""

FAMILIES = tuple(_OPS_OF)
"""The modules with definitions of ops, in the order of the registry."""

_FAMILY_OF = {name: family for family, names in _OPS_OF.items() for name in names.split()}


def family_of(name: str) -> str:
    """Return the family of an op of the core; empty for other ops."""
    return _FAMILY_OF.get(name, "")


@cache
def ops_of(family: str) -> dict[str, OpDef]:
    """Return the ops of a family, by name."""
    return {op.name: op for op in import_module(f"byoc_core.opset.families.{family}").OPS}


def find_op(name: str) -> OpDef | None:
    """Return the core's op of this name; ``None`` if there is none. Delegated ops are made on request.

    Cost: the first call for an op of a family imports the family.
    """
    if name.startswith("onnx."):
        from byoc_core.opset.delegated import delegated_op

        return delegated_op(name)
    family = _FAMILY_OF.get(name)
    return None if family is None else ops_of(family)[name]


class _Kernels(Mapping[str, "NumpyKernel"]):
    def __getitem__(self, name: str) -> NumpyKernel:
        op = find_op(name)
        if op is None:
            raise KeyError(name)
        return op.kernel  # type: ignore[return-value]  # all kernels of the core have this class; tested

    def __contains__(self, name: object) -> bool:
        return name in _FAMILY_OF or (isinstance(name, str) and name.startswith("onnx."))

    def __iter__(self) -> Iterator[str]:
        return iter(_FAMILY_OF)

    def __len__(self) -> int:
        return len(_FAMILY_OF)


KERNELS: Mapping[str, NumpyKernel] = _Kernels()
"""The reference kernel of every op of the families, by op name."""
