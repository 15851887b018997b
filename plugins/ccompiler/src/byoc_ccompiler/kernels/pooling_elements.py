"""Pooling, channels first, in any number of axes: one window after another."""

from __future__ import annotations

from byoc_core.authoring.csource import END_ITEM, FIRST_ITEM, ParallelLoop, c_dim, c_type
from byoc_core.dims import product

from byoc_ccompiler.kernel import Kernel, compact_strides
from byoc_ccompiler.kernels.pooling_windows import Pooling, needed_lines

__all__ = ["write"]

_TAP_PS = 1000
"""Estimated picoseconds of one tap of one window."""

_LOCALS = ("plane", "total", "part", "to", "from", "line")


def write(kernel: Kernel) -> None:
    """Writes the kernel of a pooling op whose layout has the channels first.

    Sums are added up row by row first.
    """
    (step,) = kernel.group.steps
    pooling = Pooling.of_step(step)
    kernel.names.reserve([*_LOCALS, *pooling.locals])
    image, out = kernel.input(step.operands[0], "x"), kernel.output(step.result)
    ctype, names, axes = c_type(pooling.dtype), pooling.names, pooling.axes
    steps = compact_strides([axis.size for axis in axes])
    out_steps = compact_strides([axis.out_size for axis in axes])
    plane = c_dim(product([axis.size for axis in axes]))
    out_plane = c_dim(product([axis.out_size for axis in axes]))
    places = [f"(first_{name} + k_{name} * {axis.dilation})" for name, axis in zip(names, axes, strict=True)]
    *outer, last = names
    row = [f"{place} * {c_dim(step)}" for place, step in zip(places[:-1], steps[:-1], strict=True)]
    target = "part" if pooling.is_sum else "total"
    index = " + ".join(f"o_{name} * {c_dim(step)}" for name, step in zip(names, out_steps, strict=True))
    window = [
        f"      {ctype} total = {pooling.start};",
        *(f"      for (int64_t k_{name} = 0; k_{name} < count_{name}; ++k_{name}) {{" for name in outer),
        f"        const {ctype} *const line = from{''.join(f' + {term}' for term in row)};",
        *([f"        {ctype} part = 0;"] if pooling.is_sum else []),
        f"        for (int64_t k_{last} = 0; k_{last} < count_{last}; ++k_{last}) {{",
        f"          {target} = {pooling.combine(target, f'line[{places[-1]}]')};",
        "        }",
        *(["        total += part;"] if pooling.is_sum else []),
        *("      }" for _ in outer),
        f"      to[{index}] = {pooling.finish('total')};",
    ]
    lines = (
        f"  for (int64_t plane = {FIRST_ITEM}; plane < {END_ITEM}; ++plane) {{",
        f"    const {ctype} *const from = {image} + plane * {plane};",
        f"    {ctype} *const to = {out} + plane * {out_plane};",
        *(
            f"    for (int64_t o_{name} = 0; o_{name} < {c_dim(axis.out_size)}; ++o_{name}) {{"
            for name, axis in zip(names, axes, strict=True)
        ),
        *(f"      {line}" for line in needed_lines(pooling.axis_lines([f"o_{name}" for name in names]), window)),
        *window,
        *("    }" for _ in names),
        "  }",
    )
    taps = product([axis.window or (axis.size + (axis.out_size - 1)) // axis.out_size for axis in axes])
    item_ps = product([axis.out_size for axis in axes]) * taps * _TAP_PS
    kernel.finish([ParallelLoop(lines, pooling.batch * pooling.channels, item_ps)])
