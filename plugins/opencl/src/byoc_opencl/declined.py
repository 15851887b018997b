"""The ops of the core without a kernel for devices, with reasons.

An op neither here nor among the kernels is rejected as new, without a reason of this backend.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

__all__ = ["DECLINED"]

_DATA = ("data-dependent", "the size of the result of {} is known only after running")
_CONTROL = ("control-flow", "{} is control flow, executed outside of regions")
_CALL = ("call", "{} calls a function unknown to the backend")
_HOST = ("host", "{} computes sizes or numbers used by the host")
_RANDOM = ("random", "{} draws numbers, with a generator of the host alone")
_INDEX = ("index", "a kernel of {} cannot report a wrong index")
_SERIAL = ("op", "{} has no kernel: the elements of the result depend on each other")
_TEXT = ("op", "{} counts and looks up keys, on the host alone")
_RARE = ("op", "{} has no kernel for OpenCL devices yet")

DECLINED: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        op: (code, text.format(op))
        for (code, text), ops in {
            _DATA: (
                *("compress", "nonzero", "range", "unique", "nn.non_max_suppression", "ragged_take"),
                *("strings.change_case", "strings.take_spans", "strings.token_spans"),
            ),
            _TEXT: ("ngram_counts", "strings.key_index", "strings.ngram_counts"),
            _CONTROL: ("if", "loop"),
            _CALL: ("call", "call_dps_packed", "call_packed", "composite"),
            _HOST: (
                "arange",
                "as_dynamic",
                "as_size",
                "full",
                "shape_of",
                "shape_to_tensor",
                "size",
                "random.normal",
                "random.seed",
                "random.uniform",
            ),
            _INDEX: ("gather_elements", "gather_nd", "scatter_elements", "scatter_nd", "scatter_slice"),
            _RARE: (
                *("bitcast", "dequantize", "dft", "einsum", "nn.border_pad", "nn.col2im", "nn.deformable_im2col"),
                *("nn.antialias_resize", "nn.grid_sample", "nn.lrn", "nn.resize", "nn.roi_align", "nn.roi_max_pool"),
                *("nn.rotary_embedding", "nn.stepwise_softmax", "one_hot", "quantize", "reverse_sequence"),
                *(f"nn.{kind}_pool{rank}d" for kind in ("argmax", "lp") for rank in (1, 2, 3)),
            ),
            _SERIAL: ("argsort", "cumprod", "cumsum", "det", "nn.gru", "nn.lstm", "nn.rnn", "sort", "topk"),
        }.items()
        for op in ops
    }
)
"""The code and the text of the reason, by op."""
