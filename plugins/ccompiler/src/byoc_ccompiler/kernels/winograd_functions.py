"""C functions that transform one tile of Winograd's minimal filtering: its pixels, and its products back."""

from __future__ import annotations

from byoc_core.authoring.csource import c_suffix, c_type

from byoc_ccompiler.kernels.winograd_plan import WinogradPlan
from byoc_ccompiler.kernels.winograd_transforms import map_inputs, map_products

__all__ = ["input_function", "output_function"]


def input_function(plan: WinogradPlan) -> str:
    """Gives a C function that transforms one tile: ``(at, to)``, addresses of its pixels and of the first point."""
    dtype, num, channels = plan.geometry.dtype, plan.algorithm.num_inputs, plan.geometry.channels
    suffix, ctype = c_suffix(dtype), c_type(dtype)
    target = f"*(vec_{suffix}u *)(to + (i * {num} + {{}}) * {plan.point_step} + c)"
    down = map_inputs(plan.algorithm.inputs, "d[{}]".format, "part[{}][j]".format, dtype)
    right = map_inputs(plan.algorithm.inputs, "part[i][{}]".format, target.format, dtype)
    lines = [
        "/* Transforms one tile, each pixel's channels lying at an address of their own. The last vector of channels",
        " * may begin inside the one before. */",
        f"static BYOC_CONTRACTED void {{name}}(const {ctype} *const *at, {ctype} *restrict to) {{",
        "  BYOC_CONTRACT",
        f"  for (int64_t c0 = 0; c0 < {channels}; c0 += {plan.lanes}) {{",
        f"    const int64_t c = byoc_min(c0, {channels - plan.lanes});",
        f"    vec_{suffix} part[{num}][{num}], even, odd;",
        "    BYOC_UNROLL",
        f"    for (int j = 0; j < {num}; ++j) {{",
        f"      vec_{suffix} d[{num}];",
        "      BYOC_UNROLL",
        f"      for (int i = 0; i < {num}; ++i) d[i] = *(const vec_{suffix}u *)(at[i * {num} + j] + c);",
        *(f"      {line}" for line in down),
        "    }",
        "    BYOC_UNROLL",
        f"    for (int i = 0; i < {num}; ++i) {{",
        *(f"      {line}" for line in right),
        "    }",
        "  }",
        "}",
        "",
    ]
    return "\n".join(lines)


def output_function(plan: WinogradPlan, point_step: int) -> str:
    """Gives a C function that transforms the products of one tile back: ``(products, pixels)``.

    The products of one point lie ``point_step`` elements behind those of the point before.
    """
    dtype, num, size = plan.geometry.dtype, plan.algorithm.num_inputs, plan.algorithm.num_outputs
    suffix, ctype = c_suffix(dtype), c_type(dtype)
    pairs = (num - 2) // 2
    target = f"*(vec_{suffix} *)(pixels + (i * {size} + {{}}) * {plan.width} + v)"
    down = map_products(plan.algorithm.outputs, "m[{}]".format, "part[{}][j]".format, dtype)
    right = map_products(plan.algorithm.outputs, "part[i][{}]".format, target.format, dtype)
    lines = [
        "/* Transforms the products of one tile into its pixels. */",
        f"static BYOC_CONTRACTED void {{name}}(const {ctype} *products, {ctype} *restrict pixels) {{",
        "  BYOC_CONTRACT",
        f"  for (int64_t v = 0; v < {plan.width}; v += {plan.lanes}) {{",
        f"    vec_{suffix} part[{size}][{num}], plus[{pairs}], minus[{pairs}];",
        "    BYOC_UNROLL",
        f"    for (int j = 0; j < {num}; ++j) {{",
        f"      vec_{suffix} m[{num}];",
        "      BYOC_UNROLL",
        f"      for (int i = 0; i < {num}; ++i) {{",
        f"        m[i] = *(const vec_{suffix} *)(products + (i * {num} + j) * {point_step} + v);",
        "      }",
        *(f"      {line}" for line in down),
        "    }",
        "    BYOC_UNROLL",
        f"    for (int i = 0; i < {size}; ++i) {{",
        *(f"      {line}" for line in right),
        "    }",
        "  }",
        "}",
        "",
    ]
    return "\n".join(lines)
