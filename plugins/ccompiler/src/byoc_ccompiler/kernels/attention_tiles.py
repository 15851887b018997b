"""Attention as one tiled kernel: scores, scale, mask, softmax and values of a few queries at a time.

Keys and values are packed into panels first, once for all queries. Then each block of queries goes along the keys block
by block: a tile of scores, their exponentials under the largest score so far, and their product with the values, which
is scaled whenever the largest score grows. No tensor of scores exists. Source of the running softmax: Milakov and
Gimelshein 2018, "Online normalizer calculation for softmax"; of its use in attention: Dao et al. 2022,
"FlashAttention".
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from byoc_core.authoring.csource import END_ITEM, FIRST_ITEM, ParallelLoop, c_dim, c_literal, c_suffix, c_type
from byoc_core.dims import Dim

from byoc_ccompiler.attributes import dim_of, flag_of, float_of
from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.tiles import panel_function
from byoc_ccompiler.rejections import FLOATS
from byoc_ccompiler.steps import Step, dtype_of, shape_of
from byoc_ccompiler.vector_unit import VectorUnit, multiply_add_ps

__all__ = ["is_suited", "write_attention"]

_VECTORS = 2
_MAX_ROWS = 8
_KEY_BLOCK = 256
"""Keys whose scores are at hand at once."""

_MAX_SIZE = 512
"""The largest size of a head: a block of queries and of results lies on the stack."""

_EXP_PS = 600
"""Estimated picoseconds of one score's softmax."""

_PACK_PS = 400
"""Estimated picoseconds to pack one element."""

_LOCALS = ("q", "k", "v", "to", "item", "pair", "block", "b", "g", "h", "s", "keys", "values", "added")


def is_suited(step: Step) -> bool:
    """Tells whether this kernel computes an ``nn.attention``: one result, floats, known heads of moderate size."""
    query, key, value = (shape_of(operand) for operand in step.operands[:3])
    sizes = (query[1], query[3], key[1], value[3])
    if step.binding.attrs["scores"] is not None or dtype_of(step.operands[0]) not in FLOATS:
        return False
    return all(isinstance(size, int) and 0 < size <= _MAX_SIZE for size in sizes) and query[1] % key[1] == 0


@dataclass(frozen=True, slots=True)
class _Shape:
    """The sizes of one attention: as of ``(B, H, S, D), (B, G, T, D), (B, G, T, E)``."""

    batch: Dim
    heads: int
    groups: int
    steps: Dim
    length: Dim
    size: int
    width: int
    rows: int
    columns: int

    @classmethod
    def of_step(cls, step: Step, unit: VectorUnit) -> _Shape:
        query, key, value = (shape_of(operand) for operand in step.operands[:3])
        rows = min(_MAX_ROWS, unit.rows_for(_VECTORS))
        heads, groups, size, width = (int(str(dim)) for dim in (query[1], key[1], query[3], value[3]))
        columns = _VECTORS * unit.lanes(dtype_of(step.operands[0]))
        return cls(query[0], heads, groups, query[2], key[2], size, width, rows, columns)

    @property
    def key_panels(self) -> Dim:
        """Elements of the packed keys of one head."""
        return (self.length + (self.columns - 1)) // self.columns * (self.columns * self.size)

    @property
    def value_panels(self) -> Dim:
        """Elements of the packed values of one head."""
        return -(-self.width // self.columns) * self.columns * self.length


def write_attention(kernel: Kernel) -> None:
    """Writes the kernel of an ``nn.attention`` for which :func:`is_suited` holds."""
    (step,) = kernel.group.steps
    shape = _Shape.of_step(step, kernel.unit)
    dtype = dtype_of(step.operands[0])
    ctype = c_type(dtype)
    kernel.names.reserve(_LOCALS)
    roles = ("query", "key", "value", "mask")
    names = [kernel.input(operand, role) for operand, role in zip(step.operands, roles, strict=False)]
    out = kernel.output(step.result)
    pairs = shape.batch * shape.groups
    packed = pairs * (shape.key_panels + shape.value_panels)
    kernel.scratch = packed if packed != 0 else 1
    pack = kernel.helper("pack_panels", _pack_text(ctype, shape.columns))
    text, sizes = _rows_text(kernel, step, shape, dtype)
    rows = kernel.helper("attention_rows", text)
    strides = [kernel.strides(operand) for operand in (*step.operands, step.result)]
    panels = f"scratch + pair * {c_dim(shape.key_panels + shape.value_panels)}"
    key, value = (
        f"{names[k]} + b * {c_dim(strides[k][0])} + g * {c_dim(strides[k][1])}, "
        + ", ".join(c_dim(strides[k][axis]) for axis in axes)
        for k, axes in ((1, (3, 2)), (2, (2, 3)))
    )
    length = c_dim(shape.length)
    packing = (
        f"  for (int64_t pair = {FIRST_ITEM}; pair < {END_ITEM}; ++pair) {{",
        f"    const int64_t b = pair / {shape.groups}, g = pair % {shape.groups};",
        f"    {ctype} *to = {panels};",
        f"    {pack}({key}, {shape.size}, {length}, to);",
        f"    {pack}({value}, {length}, {shape.width}, to + {c_dim(shape.key_panels)});",
        "  }",
    )
    blocks = (shape.steps + (shape.rows - 1)) // shape.rows
    per_head = c_dim(blocks) if blocks != 0 else "1"
    at_query, at_out = (
        f"b * {c_dim(strides[k][0])} + h * {c_dim(strides[k][1])} + s * {c_dim(strides[k][2])}" for k in (0, -1)
    )
    added = f"{names[3]} + {_mask_offset(kernel, step)}" if len(names) > 3 else ""
    causal = flag_of(step.binding, "causal")
    arguments = [
        f"{names[0]} + {at_query}",
        "keys",
        f"keys + {c_dim(shape.key_panels)}",
        *([added] if added else []),
        f"{out} + {at_out}",
        f"byoc_min({shape.rows}, {c_dim(shape.steps)} - s)",
        *(["s"] if causal else []),
        *sizes,
    ]
    computing = (
        f"  for (int64_t item = {FIRST_ITEM}; item < {END_ITEM}; ++item) {{",
        f"    const int64_t block = item / {per_head}, s = item % {per_head} * {shape.rows};",
        f"    const int64_t b = block / {shape.heads}, h = block % {shape.heads};",
        f"    const int64_t pair = b * {shape.groups} + h / {shape.heads // shape.groups};",
        f"    const {ctype} *keys = {panels};",
        f"    {rows}({', '.join(arguments)});",
        "  }",
    )
    pair_ps = (shape.key_panels + shape.value_panels) * _PACK_PS
    scores = shape.length * shape.rows
    products = scores * (shape.size + shape.width) * multiply_add_ps(kernel.unit, dtype) + scores * _EXP_PS
    kernel.finish(
        [
            ParallelLoop(packing, pairs, pair_ps),
            ParallelLoop(computing, shape.batch * shape.heads * blocks, products),
        ]
    )


def _mask_strides(kernel: Kernel, step: Step) -> list[str]:
    """Gives how far apart the mask's elements are along each axis of the scores: 0 where it is spread."""
    mask = step.operands[3]
    dims, strides = shape_of(mask), kernel.strides(mask)
    missing = 4 - len(dims)
    (batch, heads, steps, _), length = shape_of(step.operands[0]), shape_of(step.operands[1])[2]
    found = ["0"] * missing
    for dim, stride, size in zip(dims, strides, (batch, heads, steps, length)[missing:], strict=True):
        # A symbolic size that is not that of the scores may turn out to be 1: then it is spread.
        found.append(
            "0" if dim == 1 else c_dim(stride) if dim == size else f"({c_dim(dim)} == 1 ? 0 : {c_dim(stride)})"
        )
    return found


def _mask_offset(kernel: Kernel, step: Step) -> str:
    terms = zip("bhs", _mask_strides(kernel, step)[:3], strict=True)
    return " + ".join(f"{index} * {stride}" for index, stride in terms if stride != "0") or "0"


def _pack_text(ctype: str, columns: int) -> str:
    return f"""\
/* Panels of {columns} columns of a matrix of `depth` steps; the columns that the last lacks are zeros. */
static void {{name}}(const {ctype} *from, int64_t step, int64_t column, int64_t depth, int64_t width,
    {ctype} *restrict to) {{
  for (int64_t n = 0; n < width; n += {columns}, to += depth * {columns}) {{
    const int64_t count = byoc_min({columns}, width - n);
    if (column == 1) {{
      for (int64_t k = 0; k < depth; ++k) {{
        const {ctype} *line = from + n + k * step;
        if (count == {columns}) memcpy(to + k * {columns}, line, sizeof({ctype}) * {columns});
        else for (int64_t j = 0; j < {columns}; ++j) to[k * {columns} + j] = j < count ? line[j] : 0;
      }}
      continue;
    }}
    for (int64_t first = 0; first < depth; first += 16) {{
      const int64_t end = byoc_min(depth, first + 16);
      for (int64_t j = 0; j < count; ++j) {{
        for (int64_t k = first; k < end; ++k) to[k * {columns} + j] = from[(n + j) * column + k * step];
      }}
      for (int64_t j = count; j < {columns}; ++j) {{
        for (int64_t k = first; k < end; ++k) to[k * {columns} + j] = 0;
      }}
    }}
  }}
}}
"""


def _rows_text(kernel: Kernel, step: Step, shape: _Shape, dtype: str) -> tuple[str, list[str]]:
    """Gives the function that computes a block of queries, from all packed keys and values of their head.

    Its last parameters are the symbolic sizes that it mentions, whose C names are given too.
    """
    ctype, suffix, lanes = c_type(dtype), c_suffix(dtype), kernel.unit.lanes(dtype)
    rows, columns = shape.rows, shape.columns
    tile = panel_function(kernel, dtype, rows, _VECTORS)
    width = -(-shape.width // columns) * columns
    length = c_dim(shape.length)
    strides = [kernel.strides(value) for value in (step.operands[0], step.result)]
    has_mask = len(step.operands) > 3
    mask = _mask_strides(kernel, step) if has_mask else []
    limit = _limit(step, length)
    body = f"""\
  {ctype} queries[{rows} * {shape.size}], sums[{rows} * {columns}], weights[{rows} * {_KEY_BLOCK}];
  {ctype} totals[{rows}], tops[{rows}], results[{rows} * {width}];
  for (int64_t i = 0; i < {rows}; ++i) {{
    for (int64_t d = 0; d < {shape.size}; ++d) {{
      queries[i * {shape.size} + d] = i < count ? q[i * {c_dim(strides[0][2])} + d * {c_dim(strides[0][3])}] : 0;
    }}
    totals[i] = 0;
    tops[i] = -INFINITY;
    for (int64_t e = 0; e < {width}; ++e) results[i * {width} + e] = 0;
  }}
  const int64_t limit = {limit};
  for (int64_t first = 0; first < limit; first += {_KEY_BLOCK}) {{
    const int64_t block = byoc_min({_KEY_BLOCK}, limit - first);
    for (int64_t t = 0; t < block; t += {columns}) {{
      {tile}(queries, {shape.size}, keys + (first + t) * {shape.size}, {shape.size}, sums);
      const int64_t some = byoc_min({columns}, block - t);
      for (int64_t i = 0; i < count; ++i) {{
        const {ctype} *from = sums + i * {columns};
        {ctype} *to = weights + i * {_KEY_BLOCK} + t;
{_score_lines(step, dtype, columns, mask)}
      }}
    }}
    /* whole vectors: what lies behind the last key weighs nothing */
    const int64_t whole = (block + {lanes - 1}) / {lanes} * {lanes};
    for (int64_t i = 0; i < count; ++i) {{
      {ctype} *line = weights + i * {_KEY_BLOCK}, part[{lanes}];
      for (int64_t t = block; t < whole; ++t) line[t] = -INFINITY;
      for (int l = 0; l < {lanes}; ++l) part[l] = tops[i];
      for (int64_t t = 0; t < whole; t += {lanes}) {{
        for (int l = 0; l < {lanes}; ++l) part[l] = line[t + l] > part[l] ? line[t + l] : part[l];
      }}
      {ctype} top = part[0];
      for (int l = 1; l < {lanes}; ++l) top = part[l] > top ? part[l] : top;
      /* where no key is seen yet, nothing may become NaN for that */
      const {ctype} base = top == -INFINITY ? 0 : top;
      const {ctype} scale = byoc_exp_nonpositive_{suffix}(tops[i] - base);
      for (int l = 0; l < {lanes}; ++l) part[l] = 0;
      for (int64_t t = 0; t < whole; t += {lanes}) {{
        for (int l = 0; l < {lanes}; ++l) {{
          line[t + l] = byoc_exp_nonpositive_{suffix}(line[t + l] - base);
          part[l] += line[t + l];
        }}
      }}
      {ctype} total = 0;
      for (int l = 0; l < {lanes}; ++l) total += part[l];
      totals[i] = totals[i] * scale + total;
      tops[i] = top;
      for (int64_t e = 0; e < {width}; ++e) results[i * {width} + e] *= scale;
    }}
    for (int64_t i = count; i < {rows}; ++i) memset(weights + i * {_KEY_BLOCK}, 0, sizeof(*weights) * (size_t)block);
    for (int64_t e = 0; e < {width}; e += {columns}) {{
      {tile}(weights, {_KEY_BLOCK}, values + e * {length} + first * {columns}, block, sums);
      for (int64_t i = 0; i < count; ++i) {{
        for (int64_t j = 0; j < {columns}; ++j) results[i * {width} + e + j] += sums[i * {columns} + j];
      }}
    }}
  }}
  for (int64_t i = 0; i < count; ++i) {{
    const {ctype} total = {_total(step, length)};
    for (int64_t e = 0; e < {shape.width}; ++e) {{
      out[i * {c_dim(strides[1][2])} + e * {c_dim(strides[1][3])}] = results[i * {width} + e] / total;
    }}
  }}
}}
"""
    sizes = kernel.scope.symbols_in(body)
    parameters = [
        *(f"const {ctype} *{name}" for name in ("q", "keys", "values", *(["added"] if has_mask else []))),
        f"{ctype} *out",
        *(f"int64_t {name}" for name in ("count", *(["s"] if flag_of(step.binding, "causal") else []), *sizes)),
    ]
    comment = f"/* A block of queries: a running softmax over blocks of {_KEY_BLOCK} keys. */"
    return f"{comment}\nstatic void {{name}}({', '.join(parameters)}) {{\n{body}", sizes


def _limit(step: Step, length: str) -> str:
    """Gives how many keys the block's queries see at most."""
    if not flag_of(step.binding, "causal"):
        return length
    return f"byoc_max(0, byoc_min({length}, s + count + {c_dim(dim_of(step.binding, 'offset'))}))"


def _total(step: Step, length: str) -> str:
    # Without a weight: zeros over zero, which is NaN, or over one; without a key always the latter.
    unseen = "totals[i] == 0" if flag_of(step.binding, "zero_unseen") else f"{length} == 0"
    return f"{unseen} ? 1 : totals[i]"


def _score_lines(step: Step, dtype: str, columns: int, mask: list[str]) -> str:
    """Gives the loop from a tile's products to masked scores."""
    given = step.binding.attrs["scale"]
    size = int(str(shape_of(step.operands[0])[3]))
    score = f"from[j] * {c_literal(1 / math.sqrt(size) if given is None else float(str(given)), dtype)}"
    cap = float_of(step.binding, "softcap")
    if cap:
        limit = c_literal(cap, dtype)
        score = f"byoc_tanh_{c_suffix(dtype)}({score} / {limit}) * {limit}"
    if mask:
        rest = "j" if mask[3] == "1" else f"j * {mask[3]}"
        at = " + ".join(
            part for part in (f"i * {mask[2]}", f"(first + t) * {mask[3]}", rest) if not part.endswith("* 0")
        )
        score = f"{score} + added[{at or '0'}]"
    causal = flag_of(step.binding, "causal")
    if causal:
        last = f"s + i + {c_dim(dim_of(step.binding, 'offset'))}"
        score = f"first + t + j > {last} ? ({c_type(dtype)})-INFINITY : {score}"
    lines = [f"if (some == {columns}) {{"]
    lines += [f"  for (int64_t j = 0; j < {columns}; ++j) to[j] = {score};", "} else {"]
    lines += [f"  for (int64_t j = 0; j < some; ++j) to[j] = {score};", "}"]
    return "\n".join(f"        {line}" for line in lines)
