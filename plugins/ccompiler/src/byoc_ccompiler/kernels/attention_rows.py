"""Attention of any form: a few query rows at a time.

A block of query rows is worked on as a whole: its scores, in scratch memory, are made, capped, masked, turned to
weights, and then the values weighed; keys and values are read once for the block.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from byoc_core.authoring.csource import FunctionScope, c_dim, c_literal, c_suffix
from byoc_core.dims import Dim, ceildiv

from byoc_ccompiler.attributes import dim_of, flag_of, float_of
from byoc_ccompiler.kernel import Kernel, compact_strides
from byoc_ccompiler.kernels.axis_view import line_loop_text as line_loop
from byoc_ccompiler.kernels.copies import reserve_locals
from byoc_ccompiler.kernels.dots import dot_function
from byoc_ccompiler.size_checks import require_equal_sizes
from byoc_ccompiler.steps import Step, dtype_of, shape_of

__all__ = ["require_attention", "write_rows"]

_ROWS = 8
"""Query rows of a block."""

_PRODUCT_PS = 100
"""Estimated picoseconds of one product and its addition."""

_SCORE_PS = 3_000
"""Estimated picoseconds of turning one score to a weight."""


def write_rows(kernel: Kernel) -> None:
    """Writes the kernel of ``nn.attention``."""
    (step,) = kernel.group.steps
    locals_ = (
        "worker",
        "mine",
        "line",
        "head",
        "group",
        "begin",
        "row",
        "scores",
        "keys",
        "values",
        "top",
        "part",
        "t",
    )
    reserve_locals(kernel, *locals_)
    query, key, value = step.operands[:3]
    batch, heads, steps, size = shape_of(query)
    groups, length = shape_of(key)[1:3]
    width = shape_of(value)[3]
    q, k, v = (kernel.input(operand, role) for operand, role in ((query, "q"), (key, "k"), (value, "v")))
    ctype, dtype = kernel.ctype(query), dtype_of(query)
    blocks = ceildiv(steps, _ROWS)
    count = f"byoc_min({_ROWS}, {c_dim(steps)} - begin)"
    lines = [
        f"const int64_t head = line / {c_dim(blocks)}, begin = line % {c_dim(blocks)} * {_ROWS};",
        (
            f"const int64_t group = head / {c_dim(heads)} * {c_dim(groups)} + head % {c_dim(heads)} / "
            f"({c_dim(heads)} / {c_dim(groups)});"
        ),
        f"const {ctype} *const keys = {k} + group * {c_dim(length * size)};",
        f"const {ctype} *const values = {v} + group * {c_dim(length * width)};",
        f"const {ctype} *const from = {q} + (head * {c_dim(steps)} + begin) * {c_dim(size)};",
        f"for (int64_t t = 0; t < {c_dim(length)}; ++t) {{",
        f"  for (int64_t row = 0; row < {count}; ++row) {{",
        (
            f"    mine[row * {c_dim(length)} + t] = {_factor(step, dtype)} * "
            f"{{name}}_dot(from + row * {c_dim(size)}, keys + t * {c_dim(size)}, {c_dim(size)});"
        ),
        "  }",
        "}",
        f"for (int64_t row = 0; row < {count}; ++row) {{",
        f"  {ctype} *const scores = mine + row * {c_dim(length)};",
        *(f"  {line}" for line in _weights(kernel, step)),
        "}",
    ]
    result = step.binding.results[0]
    if result in kernel.stored:
        to = f"{kernel.output(result)} + (head * {c_dim(steps)} + begin) * {c_dim(width)}"
        lines += [
            f"{ctype} *const to = {to};",
            f"for (int64_t index = 0; index < {count} * {c_dim(width)}; ++index) to[index] = 0;",
            f"for (int64_t t = 0; t < {c_dim(length)}; ++t) {{",
            f"  for (int64_t row = 0; row < {count}; ++row) {{",
            f"    const {ctype} part = mine[row * {c_dim(length)} + t];",
            (
                f"    for (int64_t index = 0; index < {c_dim(width)}; ++index) "
                f"to[row * {c_dim(width)} + index] += part * values[t * {c_dim(width)} + index];"
            ),
            "  }",
            "}",
        ]
    line_ps = length * _ROWS * ((size + width) * _PRODUCT_PS + _SCORE_PS)
    loop = line_loop(kernel, lines, batch * heads * blocks, line_ps, scratch=length * _ROWS, dtype=dtype)
    kernel.finish([loop], dot_function(ctype))


def _factor(step: Step, dtype: str) -> str:
    scale = step.binding.attrs["scale"]
    size = shape_of(step.operands[0])[3]
    if scale is not None:
        return c_literal(float(str(scale)), dtype)
    if isinstance(size, int):
        return c_literal(1 / math.sqrt(max(size, 1)), dtype)
    return f"({'float' if dtype == 'float32' else 'double'})(1.0 / sqrt((double)byoc_max({c_dim(size)}, 1)))"


def _weights(kernel: Kernel, step: Step) -> list[str]:
    """Gives the lines that turn the scaled products of query ``begin + row`` to weights, and store a stage."""
    query, key = step.operands[:2]
    steps, length = shape_of(query)[2], shape_of(key)[2]
    ctype, dtype = kernel.ctype(query), dtype_of(query)
    every = f"for (int64_t t = 0; t < {c_dim(length)}; ++t)"
    stages = {"products": [], "capped": [], "masked": [], "weights": _softmax(kernel, step, every)}
    softcap = float_of(step.binding, "softcap")
    if softcap:
        cap = c_literal(softcap, dtype)
        stages["capped"].append(f"{every} scores[t] = byoc_tanh_{c_suffix(dtype)}(scores[t] / {cap}) * {cap};")
    for mask in step.operands[3:]:
        pointer = kernel.input(mask, "mask")
        stages["masked"].append(f"{every} scores[t] += {pointer}[{_mask_offset(step, shape_of(mask))}];")
    if flag_of(step.binding, "causal"):
        seen = f"begin + row + {c_dim(dim_of(step.binding, 'offset'))}"
        stages["masked"].append(f"{every} scores[t] = t > {seen} ? ({ctype})-INFINITY : scores[t];")
    lines = []
    for name, made in stages.items():
        lines += made
        if step.binding.attrs["scores"] == name and step.binding.results[1] in kernel.stored:
            out = kernel.output(step.binding.results[1])
            place = f"{out} + (head * {c_dim(steps)} + begin + row) * {c_dim(length)}"
            lines.append(f"memcpy({place}, scores, (size_t){c_dim(length)} * sizeof(*scores));")
    return lines


def _softmax(kernel: Kernel, step: Step, every: str) -> list[str]:
    ctype, suffix = kernel.ctype(step.operands[0]), c_suffix(dtype_of(step.operands[0]))
    zero_unseen = flag_of(step.binding, "zero_unseen")
    return [
        f"{ctype} top = -INFINITY, total = 0;",
        f"{every} top = scores[t] > top ? scores[t] : top;",
        *(["if (top == -INFINITY) top = 0;"] if zero_unseen else []),
        f"{every} scores[t] = byoc_exp_nonpositive_{suffix}(scores[t] - top);",
        f"{every} total += scores[t];",
        *(["if (total == 0) total = 1;"] if zero_unseen else []),
        f"{every} scores[t] /= total;",
    ]


def _mask_offset(step: Step, mask: Sequence[Dim]) -> str:
    """Gives the C expression of the place in the mask that belongs to head, ``begin + row`` and ``t``."""
    heads, steps = shape_of(step.operands[0])[1:3]
    length = shape_of(step.operands[1])[2]
    batch = shape_of(step.operands[0])[0]
    places = (f"(head / {c_dim(heads)})", f"(head % {c_dim(heads)})", "(begin + row)", "t")
    terms = []
    first = 4 - len(mask)
    wholes = (batch, heads, steps, length)
    for place, dim, whole, stride in zip(places[first:], mask, wholes[first:], compact_strides(mask), strict=True):
        if dim == whole:
            terms.append(f"{place} * {c_dim(stride)}")
        elif dim != 1:
            terms.append(f"{place} * ({c_dim(dim)} == 1 ? 0 : {c_dim(stride)})")
    return " + ".join(terms) or "0"


def require_attention(scope: FunctionScope, step: Step) -> None:
    """Has sizes checked that symbols hide from the type rules."""
    query, key, value, *masks = (shape_of(operand) for operand in step.operands)
    require_equal_sizes(scope, step, 1, key, (query[0], *key[1:3], query[3]))
    require_equal_sizes(scope, step, 2, value, (query[0], *key[1:3], value[3]))
    names = step.binding.op.operand_names(len(step.operands))
    for name, mask in zip(names[3:], masks, strict=True):
        scope.require_broadcast(step.op, name, mask, (*query[:3], key[2]))
