"""``permute_dims``: rows that stay whole are copied, the others turned in square tiles that fit the vector registers.

A tile is turned as Eklundh does ("A fast computer method for matrix transposing", 1972): in log2(lanes) steps, each of
which swaps halves of ever smaller blocks between pairs of registers. Where a side is no multiple of the tile's, the
last tile lies over the one before.
"""

from __future__ import annotations

import re
from collections.abc import Hashable

from byoc_core.authoring.csource import END_ITEM, FIRST_ITEM, ParallelLoop, c_dim
from byoc_core.backend.hooks import Rejection
from byoc_core.dims import Dim, product
from byoc_core.dtypes import dtype_info
from byoc_core.ir import Binding

from byoc_ccompiler.family import Access, KernelFamily
from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.row_writer import fetch_loop
from byoc_ccompiler.kernels.strided_nest import Layout, StridedNest
from byoc_ccompiler.steps import Step, dtype_of, shape_of
from byoc_ccompiler.vector_unit import VectorUnit

__all__ = ["FAMILY", "turn_definitions"]

_MOVE_PS = 300
"""Estimated picoseconds to move one element to another order."""

_ROWS_AHEAD = 8
"""Rows that what is fetched lies ahead, where rows are copied."""

_FETCHED_NBYTES = (128, 2048)
"""Bytes of rows, from and to, that are fetched ahead: the processor itself does it for longer ones."""

_SOURCE, _RESULT = "source", "result"


def _order(step: Step) -> list[int]:
    axes, rank = step.binding.attrs["axes"], len(shape_of(step.operands[0]))
    return [int(str(axis)) % rank for axis in axes] if isinstance(axes, tuple) else [*range(rank)][::-1]


def _write(kernel: Kernel) -> None:
    """Writes the kernel of ``permute_dims``."""
    (step,) = kernel.group.steps
    source, result = step.operands[0], step.result
    space, strides = shape_of(result), kernel.strides(source)
    layouts: dict[Hashable, Layout] = {
        _SOURCE: Layout(space, tuple(strides[axis] for axis in _order(step))),
        _RESULT: Layout(space, kernel.strides(result)),
    }
    nest = StridedNest(space, layouts, range(len(space)))
    kernel.names.reserve(nest.indices)
    kernel.names.reserve(["tile", "a", "b", "from", "to"])
    turned = _find_turned(kernel, nest)
    if turned is not None:
        _write_tiles(kernel, layouts, nest, turned)
        return
    part = _first_wide(nest)
    text = nest.wrap([_move(kernel, nest)], part=part)
    if _copies_rows(kernel, nest):
        text.insert(len(nest.sizes) - 1, "  " * len(nest.sizes) + _fetch(kernel, nest))
    if part is None:
        kernel.finish(text)
        return
    items, rounds = _split(nest, part)
    kernel.finish([ParallelLoop(tuple(text), items, rounds * _MOVE_PS)])


def _copies_rows(kernel: Kernel, nest: StridedNest) -> bool:
    """Tells whether the innermost loop copies some lines of memory that do not follow those copied before."""
    last = len(nest.sizes) - 1
    if last < 1 or not isinstance(nest.sizes[last], int) or nest.step(_SOURCE, last)[0] != 1:
        return False
    return _FETCHED_NBYTES[0] <= _row_nbytes(kernel, nest) <= _FETCHED_NBYTES[1]


def _row_nbytes(kernel: Kernel, nest: StridedNest) -> int:
    size = nest.sizes[-1]
    return size * dtype_info(dtype_of(kernel.stored[0])).itemsize if isinstance(size, int) else 0


def _fetch(kernel: Kernel, nest: StridedNest) -> str:
    """Gives the statement that fetches a row which is copied some rounds later."""
    ahead = nest.step(_SOURCE, len(nest.sizes) - 2)[0] * _ROWS_AHEAD
    source = kernel.group.steps[0].operands[0]
    return fetch_loop(kernel, source, (nest.offset(_SOURCE, last="0"), c_dim(ahead)), _row_nbytes(kernel, nest))


def _find_turned(kernel: Kernel, nest: StridedNest) -> int | None:
    """Gives the loop along the source's memory, where it and the innermost loop may be turned by vector."""
    dtype = dtype_of(kernel.stored[0])
    lanes, last = kernel.unit.lanes(dtype), len(nest.sizes) - 1
    if dtype_info(dtype).itemsize not in (4, 8) or lanes < 4 or last < 1:
        return None
    if nest.step(_SOURCE, last)[0] == 1 or nest.step(_RESULT, last)[0] != 1:
        return None
    along = [loop for loop in range(last) if nest.step(_SOURCE, loop)[0] == 1]
    sizes = [nest.sizes[loop] for loop in (*along, last)]
    return along[-1] if along and all(not isinstance(size, int) or size >= lanes for size in sizes) else None


def _write_tiles(kernel: Kernel, layouts: dict[Hashable, Layout], nest: StridedNest, turned: int) -> None:
    space, last = shape_of(kernel.stored[0]), len(nest.sizes) - 1
    outer = [axis for loop, axes in enumerate(nest.groups) if loop not in (turned, last) for axis in axes]
    planes = StridedNest(space, layouts, outer, prefix="p")
    kernel.names.reserve(planes.indices)
    lanes = kernel.unit.lanes(dtype_of(kernel.stored[0]))
    from_, to = kernel.input(kernel.group.steps[0].operands[0]), kernel.output(kernel.stored[0])
    height, width = (c_dim(nest.sizes[loop]) for loop in (turned, last))
    from_step, to_step = nest.step(_SOURCE, last)[0], nest.step(_RESULT, turned)[0]
    alone = _first_wide(planes) is None
    ctype, bits = kernel.ctype(kernel.stored[0]), dtype_info(dtype_of(kernel.stored[0])).bits
    # An item that is the last one does what is left over, too, so that no two threads write to one place.
    count: Dim = nest.sizes[turned] // lanes
    first, end = (FIRST_ITEM, END_ITEM) if alone else ("0", c_dim(count))
    rows = f"tile == {c_dim(count)} - 1 ? {height} : (tile + 1) * {lanes}"
    body = [
        f"const {ctype} *const from = {from_} + {planes.offset(_SOURCE)};",
        f"{ctype} *const to = {to} + {planes.offset(_RESULT)};",
        f"for (int64_t tile = {first}; tile < {end}; ++tile) {{",
        f"  const int64_t b_end = {rows};",
        f"  for (int64_t b = tile * {lanes}; b < b_end; b += {lanes}) {{",
        f"    const int64_t b_first = byoc_min(b, {height} - {lanes});",
        f"    for (int64_t a = 0; a < {width}; a += {lanes}) {{",
        f"      const int64_t a_first = byoc_min(a, {width} - {lanes});",
        f"      vec_turn_u{bits}(from + a_first * {c_dim(from_step)} + b_first, {c_dim(from_step)},",
        f"                   to + b_first * {c_dim(to_step)} + a_first, {c_dim(to_step)});",
        "    }",
        "  }",
        "}",
    ]
    part = _first_wide(planes)
    items, rounds = (count, 1) if part is None else _split(planes, part)
    tiles = rounds * nest.sizes[last] * (lanes if part is None else nest.sizes[turned])
    loop = ParallelLoop(tuple(planes.wrap(body, part=part)), items, tiles * _MOVE_PS)
    unknown = [c_dim(nest.sizes[loop]) for loop in (turned, last) if not isinstance(nest.sizes[loop], int)]
    if not unknown:
        kernel.finish([loop])
        return
    narrow = " || ".join(f"{size} < {lanes}" for size in unknown)
    kernel.finish([f"  if ({narrow}) {{", *nest.wrap([_move(kernel, nest)], indent="    "), "    return;", "  }", loop])


def _first_wide(nest: StridedNest) -> int | None:
    """Gives the first loop of more than one round."""
    return next((loop for loop, size in enumerate(nest.sizes) if size != 1), None)


def _split(nest: StridedNest, part: int) -> tuple[Dim, Dim]:
    """Gives the rounds of a loop, and how often each of them reaches the innermost one."""
    return nest.sizes[part], product(nest.sizes[part + 1 :])


def _move(kernel: Kernel, nest: StridedNest) -> str:
    """Gives the statement that moves one element."""
    source = kernel.input(kernel.group.steps[0].operands[0])
    return f"{kernel.output(kernel.stored[0])}[{nest.offset(_RESULT)}] = {source}[{nest.offset(_SOURCE)}];"


def turn_definitions(unit: VectorUnit, text: str) -> str:
    """Gives the C functions that turn tiles, as far as a text calls them.

    C signature: ``(from, from_step, to, to_step)``: the square of as many rows as a register has lanes, rows so many
    elements apart.
    """
    found = sorted(set(re.findall(r"\bvec_turn_u(32|64)\(", text)))
    return "".join(_turn(unit, int(bits)) for bits in found)


def _turn(unit: VectorUnit, bits: int) -> str:
    lanes = unit.lanes(f"uint{bits}")
    lines = []
    old, size = "a", lanes // 2
    while size:
        new = "b" if old == "a" else "a"
        for row in range(lanes):
            if row & size:
                continue
            low = ", ".join(str(lane - size + lanes if lane & size else lane) for lane in range(lanes))
            high = ", ".join(str(lane + lanes if lane & size else lane + size) for lane in range(lanes))
            for target, lanes_of in ((row, low), (row + size, high)):
                lines.append(f"  {new}[{target}] = VEC_SHUFFLE(turned, {old}[{row}], {old}[{row + size}], {lanes_of});")
        old, size = new, size // 2
    moves = "\n".join(lines)
    return f"""
static inline void vec_turn_u{bits}(const void *from, int64_t from_step, void *to, int64_t to_step) {{
  typedef uint{bits}_t turned __attribute__((vector_size({unit.nbytes})));
  typedef uint{bits}_t anywhere __attribute__((vector_size({unit.nbytes}), aligned({bits // 8}), may_alias));
  turned a[{lanes}], b[{lanes}];
  BYOC_UNROLL
  for (int k = 0; k < {lanes}; ++k) a[k] = *(const anywhere *)((const char *)from + k * from_step * {bits // 8});
{moves}
  BYOC_UNROLL
  for (int k = 0; k < {lanes}; ++k) *(anywhere *)((char *)to + k * to_step * {bits // 8}) = {old}[k];
}}
"""


def _rejects_nothing(binding: Binding) -> Rejection | None:
    return None


def _any(step: Step, index: int) -> Access:
    return Access.ANY


FAMILY = KernelFamily(frozenset({"permute_dims"}), _rejects_nothing, _write, takes_halves=True, reads=_any, writes=_any)
"""``permute_dims``."""
