"""Ops that put elements in order: sort, argsort, topk. The lower index first among equals; a NaN is the largest."""

from __future__ import annotations

from collections.abc import Callable

from byoc_core.authoring.csource import FunctionScope, c_dim

from byoc_ccompiler.attributes import axis_of, dim_of, flag_of
from byoc_ccompiler.family import KernelFamily
from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.axis_view import line_loop, view_along
from byoc_ccompiler.kernels.copies import reserve_locals
from byoc_ccompiler.rejections import reject_nothing
from byoc_ccompiler.steps import Step, dtype_of, shape_of

__all__ = ["FAMILY"]

_COMPARISON_PS = 5_000
"""Estimated picoseconds of one comparison and what follows from it."""

_DEPTH = 16
"""How often an element is compared, about, in an axis of tens of thousands."""

_MERGE = """\
/* Puts the numbers of a line's elements in order, merging runs of doubling length; gives which array holds them. */
static const int64_t *{name}_order(const CTYPE *keys, int64_t apart, int64_t size, int64_t *from, int64_t *to) {
  for (int64_t k = 0; k < size; ++k) from[k] = k;
  for (int64_t run = 1; run < size; run *= 2) {
    for (int64_t begin = 0; begin < size; begin += 2 * run) {
      const int64_t middle = byoc_min(begin + run, size), end = byoc_min(begin + 2 * run, size);
      int64_t left = begin, right = middle;
      for (int64_t k = begin; k < end; ++k) {
        const int is_left = left < middle && (right >= end ||
            !{name}_before(keys[from[right] * apart], keys[from[left] * apart]));
        to[k] = is_left ? from[left++] : from[right++];
      }
    }
    int64_t *const merged = to;
    to = from;
    from = merged;
  }
  return from;
}
"""

_SELECT = """\
/* Whether element `a` of a line is taken before element `b`. */
static inline int {name}_better(const CTYPE *keys, int64_t apart, int64_t a, int64_t b) {
  return {name}_before(keys[a * apart], keys[b * apart]) ||
      (a < b && !{name}_before(keys[b * apart], keys[a * apart]));
}
/* Lets the number on top of a heap sink, of which no one is better than those below it. */
static void {name}_sink(const CTYPE *keys, int64_t apart, int64_t *heap, int64_t top, int64_t size) {
  for (int64_t child = 2 * top + 1; child < size; child = 2 * top + 1) {
    if (child + 1 < size && {name}_better(keys, apart, heap[child], heap[child + 1])) ++child;
    if (!{name}_better(keys, apart, heap[top], heap[child])) return;
    const int64_t moved = heap[top];
    heap[top] = heap[child];
    heap[child] = moved;
    top = child;
  }
}
/* Gives the numbers of the first `count` elements of a line, as a heap with the last of them on top. */
static void {name}_select(const CTYPE *keys, int64_t apart, int64_t size, int64_t count, int64_t *heap) {
  for (int64_t k = 0; k < count; ++k) heap[k] = k;
  for (int64_t k = count / 2 - 1; k >= 0; --k) {name}_sink(keys, apart, heap, k, count);
  for (int64_t k = count; k < size && count > 0; ++k) {
    if ({name}_before(keys[k * apart], keys[heap[0] * apart])) {
      heap[0] = k;
      {name}_sink(keys, apart, heap, 0, count);
    }
  }
}
"""


def _before(kernel: Kernel, step: Step, *, descending: bool) -> str:
    """Gives the C function that says whether one element stands before another that differs from it."""
    x = step.operands[0]
    less, first, second = (">", "a", "b") if descending else ("<", "b", "a")
    nan = f" || ({first} != {first} && {second} == {second})" if dtype_of(x).startswith("float") else ""
    ctype = kernel.ctype(x)
    return f"static inline int {{name}}_before({ctype} a, {ctype} b) {{ return a {less} b{nan}; }}\n"


def _sort(kernel: Kernel, step: Step) -> None:
    (x,) = step.operands
    view = view_along(shape_of(x), axis_of(step.binding, len(shape_of(x))))
    size, inner = c_dim(view.size), c_dim(view.inner)
    source, out = kernel.input(x), kernel.output(step.result)
    element = f"keys[order[k] * {inner}]" if step.op == "sort" else "order[k]"
    start = f"line / {inner} * {c_dim(view.size * view.inner)} + line % {inner}"
    lines = [
        f"const {kernel.ctype(x)} *const keys = {source} + {start};",
        f"{kernel.ctype(step.result)} *const to = {out} + {start};",
        f"const int64_t *const order = {{name}}_order(keys, {inner}, {size}, mine, mine + {size});",
        f"for (int64_t k = 0; k < {size}; ++k) to[k * {inner}] = {element};",
    ]
    helpers = _before(kernel, step, descending=flag_of(step.binding, "descending")) + _MERGE
    line_ps = view.size * (_COMPARISON_PS * _DEPTH)
    loop = line_loop(kernel, lines, view.outer * view.inner, line_ps, scratch=2 * view.size, dtype="int64")
    kernel.finish([loop], helpers.replace("CTYPE", kernel.ctype(x)))


def _topk(kernel: Kernel, step: Step) -> None:
    (x,) = step.operands
    view = view_along(shape_of(x), axis_of(step.binding, len(shape_of(x))))
    count = dim_of(step.binding, "k")
    size, inner, most = c_dim(view.size), c_dim(view.inner), c_dim(count)
    source = kernel.input(x)
    values, numbers = step.binding.results
    stores = []
    if values in kernel.stored:
        stores.append(f"{kernel.output(values)}[at] = keys[found * {inner}];")
    if numbers in kernel.stored:
        stores.append(f"{kernel.output(numbers)}[at] = found;")
    place = f"(line / {inner} * {most} + k) * {inner} + line % {inner}"
    store = [f"  const int64_t at = {place};", *(f"  {line}" for line in stores)]
    start = f"line / {inner} * {c_dim(view.size * view.inner)} + line % {inner}"
    lines = [
        f"const {kernel.ctype(x)} *const keys = {source} + {start};",
        f"{{name}}_select(keys, {inner}, {size}, {most}, mine);",
    ]
    if flag_of(step.binding, "sorted"):
        lines += [
            f"for (int64_t k = {most} - 1; k >= 0; --k) {{",
            "  const int64_t found = mine[0];",
            "  mine[0] = mine[k];",
            f"  {{name}}_sink(keys, {inner}, mine, 0, k);",
            *store,
            "}",
        ]
    else:
        lines += [
            "int64_t k = 0;",
            f"for (int64_t found = 0; found < {size} && k < {most}; ++found) {{",
            f"  if (found != mine[0] && !{{name}}_better(keys, {inner}, found, mine[0])) continue;",
            *store,
            "  ++k;",
            "}",
        ]
    helpers = _before(kernel, step, descending=flag_of(step.binding, "largest")) + _SELECT
    loop = line_loop(kernel, lines, view.outer * view.inner, view.size * _COMPARISON_PS, scratch=count, dtype="int64")
    kernel.finish([loop], helpers.replace("CTYPE", kernel.ctype(x)))


_WRITERS: dict[str, Callable[[Kernel, Step], None]] = {"sort": _sort, "argsort": _sort, "topk": _topk}


def _write(kernel: Kernel) -> None:
    """Writes the kernel of an op that puts elements in order."""
    (step,) = kernel.group.steps
    reserve_locals(kernel, "worker", "mine", "line", "keys", "order", "found", "at")
    _WRITERS[step.op](kernel, step)


def _require(scope: FunctionScope, step: Step) -> None:
    """Has the axis checked to have as many elements as ``topk`` takes."""
    if step.op == "topk":
        shape = shape_of(step.operands[0])
        axis = axis_of(step.binding, len(shape))
        least = [dim_of(step.binding, "k") if place == axis else 0 for place in range(len(shape))]
        scope.require_at_least(step.op, "operand `x`", shape, least)


FAMILY = KernelFamily(frozenset(_WRITERS), reject_nothing, _write, require=_require)
"""Ops that put elements in order."""
