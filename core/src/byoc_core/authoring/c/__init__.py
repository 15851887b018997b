"""Generated C as data: build functions of loops and expressions, change them by passes, verify them, print them.

A kernel is a :class:`Function`: frozen statements over buffers and variables. Passes are functions from function to
function. :func:`verify` checks the laws, :func:`interpret` runs the function over numpy arrays for tests, and
:func:`print_definitions` prints the function for a target. The interpreter is imported on first use, because
interpreting needs the reference kernels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from byoc_core.authoring.c.callee import Callee
from byoc_core.authoring.c.collecting import Uses, uses_of
from byoc_core.authoring.c.estimate import Estimate, KnownCalls, estimate
from byoc_core.authoring.c.expression_printer import has_c_form
from byoc_core.authoring.c.expressions import (
    Address,
    Binary,
    Buffer,
    Call,
    Cast,
    Element,
    Expression,
    Literal,
    Load,
    MemoryAccess,
    PointerArray,
    Raw,
    Select,
    Size,
    Unary,
    Variable,
    variables,
)
from byoc_core.authoring.c.grid import Grid, Launch, map_to_grid
from byoc_core.authoring.c.hoist import hoist
from byoc_core.authoring.c.indices import index_max, index_min, index_mod, unravelled
from byoc_core.authoring.c.linear_maps import linear_map
from byoc_core.authoring.c.loop_tree import describe_loops
from byoc_core.authoring.c.loops import as_copy, change_loop, peeled, smaller, split, unrolled
from byoc_core.authoring.c.named_sizes import name_sizes
from byoc_core.authoring.c.naming import Names
from byoc_core.authoring.c.nest import Accumulator, Axis, Nest, fuse_into_load, fuse_into_store, merge_nests
from byoc_core.authoring.c.outline import ParallelWork, outline, parallel_works, serialise
from byoc_core.authoring.c.printer import (
    BlockPrinter,
    anonymous_text,
    print_definitions,
    print_function,
    print_prototype,
    vector_typedefs,
)
from byoc_core.authoring.c.scalarise import scalarise
from byoc_core.authoring.c.schedule import Schedule, lower_nest
from byoc_core.authoring.c.simplify import simplify
from byoc_core.authoring.c.statements import (
    Alias,
    Assign,
    Block,
    Clear,
    Comment,
    Copy,
    Declare,
    Dispatch,
    Evaluate,
    Fail,
    For,
    Function,
    If,
    Let,
    LocalArray,
    LoopKind,
    RawStatement,
    Return,
    Statement,
    Store,
    While,
)
from byoc_core.authoring.c.strides import stride_of
from byoc_core.authoring.c.targets import C11, C11_KERNELS, C11_VECTORS, CUDA, OPENCL, TARGETS, Target
from byoc_core.authoring.c.traversal import statements_in, substitute, symbols_in, variables_in, with_blocks
from byoc_core.authoring.c.types import BOOL, INDEX, CType
from byoc_core.authoring.c.unused import drop_unused
from byoc_core.authoring.c.vectorise import vectorised
from byoc_core.authoring.c.vectors import Broadcast, Lane, Shuffle
from byoc_core.authoring.c.verifier import problems_of, verify
from byoc_core.lazy_names import lazy_names

if TYPE_CHECKING:
    from byoc_core.authoring.c.interpreter import interpret

__all__ = [
    "BOOL",
    "C11",
    "C11_KERNELS",
    "C11_VECTORS",
    "CUDA",
    "INDEX",
    "OPENCL",
    "TARGETS",
    "Accumulator",
    "Address",
    "Alias",
    "Assign",
    "Axis",
    "Binary",
    "Block",
    "BlockPrinter",
    "Broadcast",
    "Buffer",
    "CType",
    "Call",
    "Callee",
    "Cast",
    "Clear",
    "Comment",
    "Copy",
    "Declare",
    "Dispatch",
    "Element",
    "Estimate",
    "Evaluate",
    "Expression",
    "Fail",
    "For",
    "Function",
    "Grid",
    "If",
    "KnownCalls",
    "Lane",
    "Launch",
    "Let",
    "Literal",
    "Load",
    "LocalArray",
    "LoopKind",
    "MemoryAccess",
    "Names",
    "Nest",
    "ParallelWork",
    "PointerArray",
    "Raw",
    "RawStatement",
    "Return",
    "Schedule",
    "Select",
    "Shuffle",
    "Size",
    "Statement",
    "Store",
    "Target",
    "Unary",
    "Uses",
    "Variable",
    "While",
    "anonymous_text",
    "as_copy",
    "change_loop",
    "describe_loops",
    "drop_unused",
    "estimate",
    "fuse_into_load",
    "fuse_into_store",
    "has_c_form",
    "hoist",
    "index_max",
    "index_min",
    "index_mod",
    "interpret",
    "linear_map",
    "lower_nest",
    "map_to_grid",
    "merge_nests",
    "name_sizes",
    "outline",
    "parallel_works",
    "peeled",
    "print_definitions",
    "print_function",
    "print_prototype",
    "problems_of",
    "scalarise",
    "serialise",
    "simplify",
    "smaller",
    "split",
    "statements_in",
    "stride_of",
    "substitute",
    "symbols_in",
    "unravelled",
    "unrolled",
    "uses_of",
    "variables",
    "variables_in",
    "vector_typedefs",
    "vectorised",
    "verify",
    "with_blocks",
]

__getattr__ = lazy_names(__name__, {"interpreter": ("interpret",)})
