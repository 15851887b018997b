"""Printed OpenCL C: qualifiers of memory, threads of a grid, headers without files of the system."""

from __future__ import annotations

import re

import pytest
from byoc_core.authoring import c
from byoc_core.dims import symbol
from byoc_core.errors import InternalError
from byoc_core.native.toolchain import include_directory


def kernel_with(alias: c.Alias, *before: c.Statement) -> c.Function:
    """Return a kernel storing the first element of a pointer in each round."""
    n = symbol("n")
    out, i = c.Buffer("out", "float32", c.MemoryAccess.WRITE, n), c.Variable("i")
    loop = c.For(i, c.Size(0), c.Size(n), (c.Store(out, i, alias.buffer[0]),), kind=c.LoopKind.PARALLEL)
    return c.Function("first", (*alias.sources[:1], out) if not before else (out,), (*before, alias, loop))


def test_parameters_and_pointers_into_parameters_are_qualified() -> None:
    x, pointer = c.Buffer("x", "float32"), c.Buffer("pointer", "float32")
    text = c.print_function(kernel_with(c.Alias(pointer, x, c.Size(3))), c.OPENCL)
    assert text.splitlines() == [
        "__kernel void first(__global const float *x, __global float *restrict out, int64_t dim_n) {",
        "  __global const float *pointer = x + 3;",
        "  for (int64_t i = (int64_t)get_global_id(0); i < dim_n; i += (int64_t)get_global_size(0)) {",
        "    out[i] = pointer[0];",
        "  }",
        "}",
    ]


def test_pointers_into_arrays_of_a_thread_are_not_qualified() -> None:
    local, pointer = c.Buffer("local_values", "float32", c.MemoryAccess.WRITE, 4), c.Buffer("pointer", "float32")
    function = kernel_with(c.Alias(pointer, local, c.Size(1)), c.LocalArray(local, is_zeroed=True))
    assert "  const float *pointer = local_values + 1;" in c.print_function(function, c.OPENCL).splitlines()


def test_a_pointer_to_either_memory_is_refused() -> None:
    x, local = c.Buffer("x", "float32"), c.Buffer("zeros", "float32", c.MemoryAccess.WRITE, 4)
    pointer, out = c.Buffer("pointer", "float32"), c.Buffer("out", "float32", c.MemoryAccess.WRITE)
    i = c.Variable("i")
    loop = c.For(i, c.Size(0), c.Size(4), (c.Store(out, i, pointer[0]),), kind=c.LoopKind.PARALLEL)
    condition = c.Size(1).compare("<", c.Size(2))
    alias = c.Alias(pointer, x, c.Size(0), condition, local)
    function = c.Function("f", (x, out), (c.LocalArray(local), alias, loop))
    with pytest.raises(InternalError, match="pointer `pointer`: points to the memory of the grid or of a thread"):
        c.print_function(function, c.OPENCL)


def test_the_header_needs_no_header_of_the_system() -> None:
    """Each header of the system is behind a condition left out for OpenCL."""
    scalars = ("byoc_scalar.h", "byoc_half.h", "byoc_activations.h", "byoc_trigonometry_f32.h")
    for name in ("byoc_cl.h", "byoc_sizes.h", "byoc_floats.h", *scalars):
        text = (include_directory() / name).read_text("utf-8")
        guarded = re.sub(r"#if[^\n]*!defined\(BYOC_CL_H_\)\n(.*?)#endif", "", text, flags=re.DOTALL)
        assert "#include <" not in guarded, name
