"""Ops whose result has, along an axis, elements of the operand at places that a rule gives.

Rotation, continuation beyond borders, reversal of sequences, triangles.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from byoc_core.authoring.csource import END_ITEM, FIRST_ITEM, FunctionScope, ParallelLoop, c_dim
from byoc_core.dims import Dim, product
from byoc_core.dtypes import dtype_info

from byoc_ccompiler.attributes import axis_of, dim_of, flag_of, ints_of
from byoc_ccompiler.family import KernelFamily
from byoc_ccompiler.kernel import Kernel, compact_strides
from byoc_ccompiler.kernels.copies import BYTE_PS, INDICES, MOVE_PS, copy_axes, copy_parts, offset_of, reserve_locals
from byoc_ccompiler.kernels.index_checks import range_check
from byoc_ccompiler.rejections import reject_nothing
from byoc_ccompiler.size_checks import require_equal_sizes
from byoc_ccompiler.steps import Step, dtype_of, shape_of

__all__ = ["FAMILY"]

_BORDERS = {
    "edge": "byoc_min(byoc_max({at}, 0), {size} - 1)",
    "wrap": "byoc_mod({at}, {size})",
    "reflect": "byoc_min(byoc_mod({at}, {period}), byoc_mod(-({at}), {period}))",
}


def _roll(kernel: Kernel, step: Step) -> None:
    (x,) = step.operands
    shape = shape_of(x)
    places: dict[int, str] = {}
    for axis, shift in zip(ints_of(step.binding, "axis"), ints_of(step.binding, "shift"), strict=True):
        index = INDICES[axis % len(shape)]
        places[axis % len(shape)] = f"byoc_mod({index} - {c_dim(shift)}, {c_dim(shape[axis])})"
    _mapped(kernel, step, places)


def _border_pad(kernel: Kernel, step: Step) -> None:
    (x,) = step.operands
    widths = ints_of(step.binding, "pad_width")
    rule = _BORDERS[str(step.binding.attrs["mode"])]
    places: dict[int, str] = {}
    for axis, size in enumerate(shape_of(x)):
        if any(widths[2 * axis : 2 * axis + 2]):
            at = INDICES[axis] if widths[2 * axis] == 0 else f"{INDICES[axis]} - {widths[2 * axis]}"
            period = f"byoc_max({c_dim(2 * size - 2)}, 1)"
            places[axis] = rule.format(at=at, size=c_dim(size), period=period)
    _mapped(kernel, step, places)


def _mapped(kernel: Kernel, step: Step, places: dict[int, str]) -> None:
    """Writes a kernel that copies, along some axes from the place that an expression of the loop's index gives.

    What lies behind the last of these axes is copied as a whole.
    """
    (x,) = step.operands
    source, out = kernel.input(x), kernel.output(step.result)
    result, strides = shape_of(step.result), compact_strides(shape_of(x))
    if not places:
        kernel.finish(copy_parts(kernel, x, copy_axes([product(result)], [1], [1]), out, source))
        return
    depth = max(places) + 1
    run = product(result[depth:])
    lines = []
    from_terms = ["0"]
    for axis in range(depth):
        index = INDICES[axis]
        first, end = (FIRST_ITEM, END_ITEM) if axis == 0 else ("0", c_dim(result[axis]))
        lines.append(f"{'  ' * (axis + 1)}for (int64_t {index} = {first}; {index} < {end}; ++{index}) {{")
        if axis in places:
            lines.append(f"{'  ' * (axis + 2)}const int64_t at{axis} = {places[axis]};")
        from_terms.append(f"{f'at{axis}' if axis in places else index} * {c_dim(strides[axis])}")
    target, origin = f"{out} + {offset_of(compact_strides(result)[:depth])}", f"{source} + {' + '.join(from_terms[1:])}"
    indent = "  " * (depth + 1)
    if run == 1:
        lines.append(f"{indent}*({target}) = *({origin});")
        run_ps: Dim = MOVE_PS
    else:
        lines.append(f"{indent}memcpy({target}, {origin}, (size_t){c_dim(run)} * sizeof(*{out}));")
        run_ps = run * (dtype_info(dtype_of(x)).itemsize * BYTE_PS)
    lines += ["  " * level + "}" for level in range(depth, 0, -1)]
    kernel.finish([ParallelLoop(tuple(lines), result[0], product(result[1:depth]) * run_ps)])


def _reverse_sequence(kernel: Kernel, step: Step) -> None:
    x, lengths = step.operands
    shape = shape_of(x)
    batch, sequence = (axis_of(step.binding, len(shape), name) for name in ("batch_axis", "seq_axis"))
    ends = kernel.input(lengths, "lengths")
    problem = f"a length does not fit axis {sequence}"
    checks = range_check(kernel, step.op, problem, ends, lengths, "0", c_dim(shape[sequence]))
    strides, depth = compact_strides(shape), max(batch, sequence) + 1
    source, out, run = kernel.input(x), kernel.output(step.result), product(shape[depth:])
    lines = []
    for axis in range(depth):
        index = INDICES[axis]
        first, end = (FIRST_ITEM, END_ITEM) if axis == 0 else ("0", c_dim(shape[axis]))
        lines.append(f"{'  ' * (axis + 1)}for (int64_t {index} = {first}; {index} < {end}; ++{index}) {{")
    step_index, indent = INDICES[sequence], "  " * (depth + 1)
    here = offset_of(strides[:depth])
    lines += [
        f"{indent}const int64_t end = (int64_t){ends}[{INDICES[batch]}];",
        f"{indent}const int64_t moved = {step_index} < end ? end - 1 - 2 * {step_index} : 0;",
        (
            f"{indent}memcpy({out} + {here}, {source} + {here} + moved * {c_dim(strides[sequence])}, "
            f"(size_t){c_dim(run)} * sizeof(*{out}));"
        ),
        *("  " * level + "}" for level in range(depth, 0, -1)),
    ]
    run_ps = run * (dtype_info(dtype_of(x)).itemsize * BYTE_PS) + MOVE_PS
    kernel.finish([*checks, ParallelLoop(tuple(lines), shape[0], product(shape[1:depth]) * run_ps)])


def _trilu(kernel: Kernel, step: Step) -> None:
    (x,) = step.operands
    shape = shape_of(x)
    rows, columns = shape[-2:]
    source, out = kernel.input(x), kernel.output(step.result)
    upper = flag_of(step.binding, "upper")
    diagonal = dim_of(step.binding, "k")
    edge = c_dim(diagonal if upper else diagonal + 1)
    kept, cleared = ("edge", "0") if upper else ("0", "edge")
    num_kept, num_cleared = ("columns - edge", "edge") if upper else ("edge", "columns - edge")
    lines = (
        f"  for (int64_t row = {FIRST_ITEM}; row < {END_ITEM}; ++row) {{",
        f"    const int64_t columns = {c_dim(columns)};",
        f"    const int64_t edge = byoc_min(byoc_max(row % {c_dim(rows)} + {edge}, 0), columns);",
        (
            f"    memcpy({out} + row * columns + {kept}, {source} + row * columns + {kept}, "
            f"(size_t)({num_kept}) * sizeof(*{out}));"
        ),
        f"    memset({out} + row * columns + {cleared}, 0, (size_t)({num_cleared}) * sizeof(*{out}));",
        "  }",
    )
    row_ps = columns * (dtype_info(dtype_of(x)).itemsize * BYTE_PS)
    kernel.finish([ParallelLoop(lines, product(shape[:-1]), row_ps)])


_WRITERS: dict[str, Callable[[Kernel, Step], None]] = {
    "roll": _roll,
    "nn.border_pad": _border_pad,
    "reverse_sequence": _reverse_sequence,
    "trilu": _trilu,
}


def _write(kernel: Kernel) -> None:
    """Writes the kernel of an op that moves elements by a rule."""
    (step,) = kernel.group.steps
    reserve_locals(kernel, "row", "columns", "edge", "end", "moved", *(f"at{axis}" for axis in range(len(INDICES))))
    _WRITERS[step.op](kernel, step)


def _require(scope: FunctionScope, step: Step) -> None:
    """Has sizes checked that symbols hide from the type rules."""
    shape = shape_of(step.operands[0])
    if step.op == "reverse_sequence":
        batch = axis_of(step.binding, len(shape), "batch_axis")
        require_equal_sizes(scope, step, 1, shape_of(step.operands[1]), shape[batch : batch + 1])
    elif step.op == "nn.border_pad":
        widths: Sequence[int] = ints_of(step.binding, "pad_width")
        least = [int(any(widths[2 * axis : 2 * axis + 2])) for axis in range(len(shape))]
        scope.require_at_least(step.op, "operand `x`", shape, least)


FAMILY = KernelFamily(frozenset(_WRITERS), reject_nothing, _write, takes_halves=True, require=_require)
"""Ops that move elements by a rule along an axis."""
