"""Resizing by interpolation: one pass over the tensor along each axis, by a table of neighbours and weights.

Tables are filled in float64 when the kernel runs, so that one library serves all sizes; a pass reads and writes whole
rows where the axis is not the last.
"""

from __future__ import annotations

from typing import NamedTuple

from byoc_core.authoring.csource import END_ITEM, FIRST_ITEM, ParallelLoop, c_dim, c_literal
from byoc_core.dims import Dim, product
from byoc_core.dtypes import dtype_info

from byoc_ccompiler.attributes import dims_of, flag_of, float_of, ints_of
from byoc_ccompiler.family import KernelFamily
from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.axis_view import AxisView, view_along
from byoc_ccompiler.kernels.copies import BYTE_PS, copy_axes, copy_parts, reserve_locals
from byoc_ccompiler.rejections import reject_nothing
from byoc_ccompiler.steps import Step, dtype_of, shape_of

__all__ = ["FAMILY"]

_WIDTHS = {"nearest": 1, "linear": 2, "cubic": 5}
"""Numbers in the table for each index of the result: a neighbour; and a part; or the weights of four."""

_TAPS = {"nearest": 1, "linear": 2, "cubic": 4}

_ROUNDINGS = {
    "floor": "floor(place)",
    "ceil": "ceil(place)",
    "half_down": "ceil(place - 0.5)",
    "half_up": "floor(place + 0.5)",
}

_LINE = 64


class _Pass(NamedTuple):
    """One axis that gets another size.

    Attributes:
        view: the sizes around the axis, as the pass finds them.
        size: the new size.
        scale: the factor by which places are computed; ``None``: the new size over the old one.
        number: which pass it is.
    """

    view: AxisView
    size: Dim
    scale: float | None
    number: int


def _passes(step: Step) -> list[_Pass]:
    shape = list(shape_of(step.operands[0]))
    scales = step.binding.attrs["scales"]
    passes: list[_Pass] = []
    for position, (axis, size) in enumerate(
        zip(ints_of(step.binding, "axes"), dims_of(step.binding, "sizes"), strict=True)
    ):
        scale = float(str(scales[position])) if isinstance(scales, tuple) else None
        if size != shape[axis] or scale not in (None, 1.0):
            passes.append(_Pass(view_along(shape, axis), size, scale, len(passes)))
        shape[axis] = size
    return passes


def _place(step: Step, of: _Pass) -> str:
    """Gives the C expression of the place in the operand that index ``k`` of the result samples."""
    size, length = c_dim(of.size), c_dim(of.view.size)
    scale = f"((double){size} / (double){length})" if of.scale is None else c_literal(of.scale, "float64")
    coordinates = step.binding.attrs["coordinates"]
    if coordinates == "asymmetric":
        return f"(double)k / {scale}"
    if coordinates == "align_corners":
        return f"(double)k * (double)({length} - 1) / (double)byoc_max({size} - 1, 1)"
    if coordinates == "half_pixel_for_nearest":
        return f"((double)k + 0.5) / {scale}"
    place = f"((double)k + 0.5) / {scale} - 0.5"
    if coordinates == "half_pixel_or_first":
        return f"{size} == 1 ? 0.0 : {place}"
    if coordinates == "half_pixel_symmetric":
        return f"{place} + ((double){length} - (double){size} / {scale}) / 2.0"
    return place


def _table(step: Step, of: _Pass) -> list[str]:
    """Gives the lines that fill the table of a pass."""
    method, last = str(step.binding.attrs["method"]), f"(double)({c_dim(of.view.size)} - 1)"
    table = f"table{of.number}"
    lines = [f"  for (int64_t k = 0; k < {c_dim(of.size)}; ++k) {{", f"    const double place = {_place(step, of)};"]
    if method == "cubic":
        lines += _cubic_entry(step, of, table)
    else:
        found = _ROUNDINGS[str(step.binding.attrs["rounding"])] if method == "nearest" else "place"
        lines += [
            f"    const double found = {found};",
            f"    const double inside = found < 0.0 ? 0.0 : found > {last} ? {last} : found;",
        ]
        if method == "nearest":
            lines.append(f"    {table}[k] = inside;")
        else:
            lines += [f"    {table}[2 * k] = floor(inside);", f"    {table}[2 * k + 1] = inside - floor(inside);"]
    return [*lines, "  }"]


def _cubic_entry(step: Step, of: _Pass, table: str) -> list[str]:
    """Gives the lines that weigh four neighbours. Source: R. G. Keys, Cubic convolution interpolation (1981)."""
    slope = float_of(step.binding, "cubic_coefficient")
    two, three, one, four = (c_literal(value, "float64") for value in (slope + 2, slope + 3, slope, 4 * slope))
    lines = [
        f"    double *const entry = {table} + 5 * k;",
        "    entry[0] = floor(place) - 1.0;",
        "    double total = 0.0;",
        "    for (int64_t tap = 0; tap < 4; ++tap) {",
        "      const double at = entry[0] + (double)tap, far = fabs(place - at);",
        f"      double weight = far <= 1.0 ? ({two} * far - {three}) * (far * far) + 1.0",
        f"                                 : ((far - 5.0) * far + 8.0) * far * {one} - {four};",
    ]
    if flag_of(step.binding, "exclude_outside"):
        lines.append(f"      if (at < 0.0 || at >= (double){c_dim(of.view.size)}) weight = 0.0;")
    lines += ["      entry[tap + 1] = weight;", "      total += weight;", "    }"]
    if flag_of(step.binding, "exclude_outside"):
        lines.append("    for (int64_t tap = 0; tap < 4; ++tap) entry[tap + 1] /= total;")
    else:
        lines.append("    (void)total;")
    return lines


def _loop(kernel: Kernel, step: Step, of: _Pass, source: str, target: str) -> ParallelLoop:
    """Gives the loop of a pass from one tensor to another."""
    method, ctype = str(step.binding.attrs["method"]), kernel.ctype(step.result)
    (outer, length, inner), size = of.view, of.size
    along = inner == 1  # the axis is the last: its places are the columns of a row
    count, run = (outer, size) if along else (outer * size, inner)
    index = "k" if along else f"row % {c_dim(size)}"
    block = "row" if along else f"row / {c_dim(size)}"
    lines = [
        f"  for (int64_t row = {FIRST_ITEM}; row < {END_ITEM}; ++row) {{",
        f"    const {ctype} *const from = {source} + {block} * {c_dim(length * inner)};",
        f"    {ctype} *const to = {target} + row * {c_dim(run)};",
    ]
    if of.scale in (None, 1.0) and not (isinstance(size, int) and isinstance(length, int)):
        begin = "from" if along else f"from + {index} * {c_dim(inner)}"
        lines += [
            f"    if ({c_dim(size)} == {c_dim(length)}) {{",
            f"      memcpy(to, {begin}, (size_t){c_dim(run)} * sizeof(*to));",
            "      continue;",
            "    }",
        ]
    entry = f"const double *const entry = table{of.number} + {_WIDTHS[method]} * ({index});"
    taps = [f"const int64_t tap0 = (int64_t)entry[0]{'' if along else f' * {c_dim(inner)}'};"]
    if method != "nearest":
        last = f"{c_dim(length)} - 1"
        taps = [
            f"const int64_t tap{tap} = byoc_min(byoc_max((int64_t)entry[0] + {tap}, 0), {last}) * {c_dim(inner)};"
            for tap in range(_TAPS[method])
        ]
    weights = {
        "nearest": [],
        "linear": [f"({ctype})(1.0 - entry[1])", f"({ctype})entry[1]"],
        "cubic": [f"({ctype})entry[{tap + 1}]" for tap in range(4)],
    }[method]
    taps += [f"const {ctype} weight{tap} = {weight};" for tap, weight in enumerate(weights)]
    place = "" if along else " + k"
    terms = [f"from[tap{tap}{place}] * weight{tap}" for tap in range(len(weights))] or [f"from[tap0{place}]"]
    head = f"for (int64_t k = 0; k < {c_dim(run)}; ++k)"
    if along:
        lines += [
            f"    {head} {{",
            *(f"      {line}" for line in (entry, *taps)),
            f"      to[k] = {' + '.join(terms)};",
        ]
        lines.append("    }")
    elif method == "nearest":
        lines += [*(f"    {line}" for line in (entry, *taps)), "    memcpy(to, from + tap0, "]
        lines[-1] += f"(size_t){c_dim(run)} * sizeof(*to));"
    else:
        lines += [*(f"    {line}" for line in (entry, *taps)), f"    {head} to[k] = {' + '.join(terms)};"]
    element_ps = dtype_info(dtype_of(step.result)).itemsize * BYTE_PS * (_TAPS[method] + (10 if along else 0))
    return ParallelLoop((*lines, "  }"), count, run * element_ps)


def _write(kernel: Kernel) -> None:
    """Writes the kernel of ``nn.resize``: tables, then one pass after another, what lies between them in scratch."""
    (step,) = kernel.group.steps
    passes = _passes(step)
    locals_ = ("row", "place", "found", "inside", "entry", "total", "weight", "tap", "at", "far")
    numbered = (f"{name}{number}" for name in ("table", "between", "tap", "weight") for number in range(8))
    reserve_locals(kernel, *locals_, *numbered)
    (x,) = step.operands
    source, out, ctype = kernel.input(x), kernel.output(step.result), kernel.ctype(x)
    if not passes:
        kernel.finish(copy_parts(kernel, x, copy_axes([product(shape_of(x))], [1], [1]), out, source))
        return
    count = product(shape_of(x))
    nothing = f"  memset({out}, 0, (size_t){c_dim(product(shape_of(step.result)))} * sizeof(*{out}));"
    if count == 0:
        kernel.finish([nothing])
        return
    body: list[str | ParallelLoop] = []
    if not isinstance(count, int):
        body += [f"  if ({c_dim(count)} == 0) {{", f"  {nothing}", "    return;", "  }"]
    used: Dim = 0
    variables: list[str] = []
    fills: list[str] = []
    width, nbytes = _WIDTHS[str(step.binding.attrs["method"])], dtype_info(dtype_of(x)).itemsize
    buffers = [source]
    for of in passes:
        fills.append(f"  double *const table{of.number} = (double *)(void *)(scratch + {c_dim(used)});")
        fills += _table(step, of)
        variables.append(f"const double *table{of.number}")
        used = used + (of.size * width * 8 + _LINE - 1) // _LINE * _LINE
    for of in passes[:-1]:
        name = f"between{of.number}"
        fills.append(f"  {ctype} *const {name} = ({ctype} *)(void *)(scratch + {c_dim(used)});")
        variables.append(f"{ctype} *{name}")
        buffers.append(name)
        used = used + (of.view.outer * of.size * of.view.inner * nbytes + _LINE - 1) // _LINE * _LINE
    kernel.scratch, kernel.scratch_dtype = used, "uint8"
    buffers.append(out)
    loops = [_loop(kernel, step, of, buffers[of.number], buffers[of.number + 1]) for of in passes]
    kernel.finish([*body, *fills, *loops], variables=variables)


FAMILY = KernelFamily(frozenset({"nn.resize"}), reject_nothing, _write)
"""Resizing."""
