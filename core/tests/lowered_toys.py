"""A backend lowering functions by a Python function, C functions to call, and functions to lower."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from byoc_core import script as R
from byoc_core.backend.hooks import BackendInfo, LoweringBuilder, Rejection, Support, hookimpl
from byoc_core.ir import Binding, Function

__all__ = ["SOURCE", "LoweringToy", "builder_of", "region_of"]

SOURCE = """
static void toy_add(const float *x, const float *y, float *out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = x[i] + y[i];
}
static void toy_scale(const float *x, float *out, int64_t n, double factor) {
  for (int64_t i = 0; i < n; ++i) out[i] = (float)factor * x[i];
}
static void toy_accumulate(const float *x, float *out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] += x[i];
}
static void toy_fill(float *out, int64_t n, double value) {
  for (int64_t i = 0; i < n; ++i) out[i] = (float)value;
}
static int toy_refuse_large(const float *x, float *out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = x[i];
  return n > 3 ? 7 : 0;
}
"""

Lowering = Callable[[Function, LoweringBuilder], object]


class LoweringToy:
    """A backend without codegen: takes single ops, and lowers a function by a given function.

    Args:
        lower: adds statements to the builder; the result is the result of the hook.
        name: the backend's name.
        ops: the ops taken.
        dynamic_shapes: whether symbolic sizes are supported.
    """

    def __init__(
        self,
        lower: Lowering,
        name: str = "toy",
        *,
        ops: Collection[str] = ("add", "nn.relu", "negative"),
        dynamic_shapes: bool = True,
    ) -> None:
        self.name = name
        self.lowered: list[str] = []
        self._lower = lower
        self._ops = ops
        self._dynamic_shapes = dynamic_shapes

    @hookimpl
    def byoc_backend_info(self) -> BackendInfo:
        return BackendInfo(self.name, dynamic_shapes=self._dynamic_shapes, native=True)

    @hookimpl
    def byoc_supports(self, binding: Binding) -> Support | Rejection:
        is_ours = binding.op.name in self._ops
        return Support() if is_ours else Rejection("op", f"no code for `{binding.op.name}`")

    @hookimpl
    def byoc_lower(self, function: Function, builder: LoweringBuilder) -> Any:
        self.lowered.append(function.name)
        builder.add_source(SOURCE)
        return self._lower(function, builder)


def region_of(text: str) -> Function:
    """Return a function to lower: the function of the text, as annotated for the backend ``toy``."""
    (function,) = R.parse(text).functions.values()
    return function.with_attrs(Codegen="toy", global_symbol=function.name)


def builder_of(text: str) -> LoweringBuilder:
    """Return a builder with the C functions of :data:`SOURCE`."""
    builder = LoweringBuilder(region_of(text))
    builder.add_source(SOURCE)
    return builder
