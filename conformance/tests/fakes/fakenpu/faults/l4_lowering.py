"""Lowered functions: permitted, and with C functions accessing arrays otherwise than stated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from byoc_core.backend.hooks import LoweringBuilder, hookimpl
from byoc_core.ir import Function, TensorType

from fakenpu.faults.fault import Change, Fault

_SOURCE = """
static void npu_copy(const float *x, float *out, int64_t n) { for (int64_t i = 0; i < n; ++i) out[i] = x[i]; }
static void npu_add(float *x, const float *y, float *out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = EARLIERx[i] + y[i];
  AFTER
}
"""


def _lowers_additions(earlier: str = "", after: str = "") -> Change:
    """Lower additions of arrays of float32 and the same sizes: a copy to an intermediate, and the addition.

    Args:
        earlier: C text in front of a term of the sum.
        after: C statements after the addition.
    """
    source = _SOURCE.replace("EARLIER", earlier).replace("AFTER", after)

    def byoc_lower(function: Function, builder: LoweringBuilder) -> None:
        (add, *others) = function.bindings
        types = {value.type for value in (*add.operands, *add.results)}
        (type_,) = types if len(types) == 1 else (None,)
        if (
            add.op.name != "add"
            or others
            or function.results != add.results
            or not isinstance(type_, TensorType)
            or type_.dtype != "float32"
        ):
            return
        builder.add_source(source)
        x, y = map(builder.buffer, add.operands)
        moved = builder.allocate(type_, "moved")
        (out,) = builder.outputs
        builder.call_extern("npu_copy", x, moved.written(), moved.size)
        builder.call_extern("npu_add", moved, y, out.written(), out.size)

    def change(names: dict[str, Any]) -> None:
        info: Callable[[], Any] = names["byoc_backend_info"]
        names["byoc_backend_info"] = hookimpl(lambda: replace(info(), native=True))
        names["byoc_lower"] = hookimpl(byoc_lower)

    return change


FAULTS = {
    "lowers-additions": Fault(frozenset(), compile_half=_lowers_additions()),
    "changes-a-read-array": Fault(
        frozenset({"L4-lowered-accesses"}),
        compile_half=_lowers_additions(after="if (n) x[0] = -x[0];"),
    ),
    "reads-a-written-array": Fault(
        frozenset({"L4-lowered-accesses"}),
        compile_half=_lowers_additions(earlier="0 * out[i] + "),
        also=frozenset({"L1-*", "L2-*", "L3-*", "L4-*"}),  # right over zeros, and not over NaN
    ),
}
