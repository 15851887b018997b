"""Targets of the printer: dialects of C, as data."""

from __future__ import annotations

from dataclasses import dataclass, replace

__all__ = ["C11", "C11_KERNELS", "C11_VECTORS", "CUDA", "OPENCL", "TARGETS", "Target"]


@dataclass(frozen=True, slots=True)
class Target:
    """A dialect of C.

    Attributes:
        name: the name for users.
        doc: the purpose.
        has_vectors: whether vectors have a type; else :func:`~byoc_core.authoring.c.scalarise` replaces vectors by
            loops.
        has_threads: whether a parallel loop may call ``byoc_parallel_for``; else its rounds run in order.
        restrict: the qualifier of a pointer to memory reached by no other pointer.
        definition: the text before the type of a function called only in its own source.
        unroll: the line before an unrolled loop; empty for none.
        roll: the line before a loop not to unroll; empty for none.
        independent: the line before a loop with independent rounds; empty for none.
        compound: the text of a compound literal, with ``{type}`` and ``{values}``.
        contracted: the attribute of a function with contracted products and sums, rounded once together; empty for
            none.
        contract: the first line of such a function; empty for none.
        align: the text before a variable with alignment of ``{nbytes}`` bytes.
        kernel: the text before the type of a function with its parallel loop shared by the threads of a grid; empty for
            a target without grids. :func:`~byoc_core.authoring.c.map_to_grid` makes such functions.
        thread: the number of a thread of a grid.
        num_threads: the number of all threads.
        memory: the qualifier of pointers to the memory of a grid; empty if all pointers have the same type. With a
            qualifier, functions called by kernels only take pointers to arrays of the thread.
        keywords: words forbidden as names, in addition to C keywords.
    """

    name: str
    doc: str
    has_vectors: bool = False
    has_threads: bool = False
    restrict: str = "restrict"
    definition: str = "static"
    unroll: str = ""
    roll: str = ""
    independent: str = ""
    compound: str = "({type}){{{values}}}"
    contracted: str = ""
    contract: str = ""
    align: str = "_Alignas({nbytes})"
    kernel: str = ""
    thread: str = ""
    num_threads: str = ""
    memory: str = ""
    keywords: frozenset[str] = frozenset()


_CPP_KEYWORDS = frozenset(
    (
        *("alignas", "alignof", "and", "and_eq", "bitand", "bitor", "bool", "catch"),
        *("char8_t", "char16_t", "char32_t", "class", "co_await", "co_return", "co_yield", "compl"),
        *("concept", "const_cast", "consteval", "constexpr", "constinit", "decltype", "delete", "dynamic_cast"),
        *("explicit", "export", "false", "friend", "mutable", "namespace", "new", "noexcept"),
        *("not", "not_eq", "nullptr", "operator", "or", "or_eq", "private", "protected"),
        *("public", "reinterpret_cast", "requires", "static_assert", "static_cast", "template", "this", "thread_local"),
        *("throw", "true", "try", "typeid", "typename", "using", "virtual", "wchar_t"),
        *("xor", "xor_eq", "blockDim", "blockIdx", "gridDim", "threadIdx", "warpSize"),
    )
)

C11_VECTORS = Target(
    "c11-vectors",
    "C11 with the vector types of gcc and clang, and the pragmas of byoc_scalar.h",
    has_vectors=True,
    has_threads=True,
    unroll="BYOC_UNROLL",
    roll="BYOC_ROLL",
    independent="BYOC_INDEPENDENT_ROUNDS",
    contracted="BYOC_CONTRACTED",
    contract="BYOC_CONTRACT",
)
"""C for gcc and clang: vector types, threads, pragmas."""

C11_KERNELS = replace(C11_VECTORS, definition="BYOC_KERNEL")
"""C for gcc and clang, for kernels callable from other translation units of their source."""

C11 = Target("c11", "C11 without any extension")
"""Plain C11: accepted with ``-std=c11 -pedantic-errors``."""

CUDA = Target(
    "cuda",
    "CUDA C++",
    restrict="__restrict__",
    definition="static __device__",
    unroll="#pragma unroll",
    compound="{type}{{{values}}}",
    align="alignas({nbytes})",
    kernel='extern "C" __global__',
    thread="(int64_t)blockIdx.x * blockDim.x + threadIdx.x",
    num_threads="(int64_t)gridDim.x * blockDim.x",
    keywords=_CPP_KEYWORDS,
)
"""CUDA C++, as compiled by NVRTC and nvcc with ``--fmad=false``; a source includes ``byoc_cuda.h``."""

_OPENCL_KEYWORDS = frozenset(
    (
        *("__global", "__local", "__constant", "__private", "__kernel", "global", "local", "constant", "private"),
        *("kernel", "read_only", "write_only", "read_write", "bool", "true", "false", "half", "event_t", "sampler_t"),
        *("uchar", "ushort", "uint", "ulong", "vec_step", "pipe", "uniform"),
        *(f"{name}{lanes}" for name in ("char", "uchar", "short", "ushort") for lanes in (2, 3, 4, 8, 16)),
        *(f"{name}{lanes}" for name in ("int", "uint", "long", "ulong") for lanes in (2, 3, 4, 8, 16)),
        *(f"{name}{lanes}" for name in ("half", "float", "double") for lanes in (2, 3, 4, 8, 16)),
    )
)

OPENCL = Target(
    "opencl",
    "OpenCL C 1.2",
    definition="static",
    align="__attribute__((aligned({nbytes})))",
    kernel="__kernel",
    thread="(int64_t)get_global_id(0)",
    num_threads="(int64_t)get_global_size(0)",
    memory="__global",
    keywords=_OPENCL_KEYWORDS,
)
"""OpenCL C 1.2, compiled without options of fast arithmetic; a source includes ``byoc_cl.h``."""

TARGETS = {target.name: target for target in (C11_VECTORS, C11, CUDA, OPENCL)}
"""The targets by name."""
