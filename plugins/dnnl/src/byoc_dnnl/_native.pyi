# Types of the C extension (sources and texts: csrc). The extension may be missing: ask byoc_dnnl.native.

from collections.abc import Callable
from typing import Self, TypeAlias

# Address of the description (0 if no primitive needs a description), kind, value: see Location in csrc/objects.h.
_Location: TypeAlias = tuple[int, int, int]
# EXECUTE, address of the primitive, arguments: number (DNNL_ARG_*) and location; CHECK, location, number of
# elements, bytes of an element, bits of the limit; COMPUTE, address of the function, two locations, rows, columns;
# POOL, two locations, whether bytes are signed, images, channels, numbers of both axes; QUANTISE, two locations,
# whether bytes are signed, images, channels, pixels, scale, zero point; or MULTIPLY, locations of rows, words, scales,
# zero points and result, rows, depth, columns, size of a block, bits of a weight, the most floats of a vector,
# whether there are zero points.
_Step: TypeAlias = tuple[float | tuple[int, ...] | tuple[tuple[int, int], ...], ...]

# Kinds of locations.
ARGUMENT: int
CONSTANT: int
ARENA: int

# Operations.
EXECUTE: int
CHECK: int
COMPUTE: int
POOL: int
QUANTISE: int
MULTIPLY: int

# Columns of a panel of packed weights.
PANEL_COLUMNS: int

# Numbers of a memory description (csrc/python/objects.h): kind, dtype, sizes, padded sizes, strides, offset, sizes and
# axes of blocks.
_Numbers: TypeAlias = tuple[
    int, int, tuple[int, ...], tuple[int, ...], tuple[int, ...], int, tuple[int, ...], tuple[int, ...]
]

# The owner frees the object when collected.
def own(pointer: int, destroy: int, /) -> object: ...
def stop_freeing() -> None: ...
def describe(query: int, get_size: int, desc: int, /) -> _Numbers: ...

class Program:
    def __new__(
        cls,
        functions: tuple[int, ...],
        engine: int,
        num_tensors: int,
        arena_nbytes: int,
        locations: tuple[_Location, ...],
        steps: tuple[_Step, ...],
        owner: object,
        error: Callable[[int, int, int], Exception],
    ) -> Self: ...
    @property
    def num_frames(self) -> int: ...
    def run(self, *addresses: int) -> bool: ...
    def report_parts(self, marker: int, parts: tuple[tuple[str, str], ...], /) -> None: ...

class Region:
    def __new__(
        cls,
        max_threads: int,
        ranks: tuple[int, ...],
        max_programs: int,
        find: Callable[[int, tuple[tuple[int, ...], ...]], Program | None],
        compute: Callable[[tuple[int, ...], tuple[tuple[int, ...], ...]], object],
        store_exception: Callable[[BaseException], object],
    ) -> Self: ...
    @property
    def function(self) -> int: ...
    @property
    def context(self) -> int: ...
    def tick(self) -> int: ...
    def last_use(self, program: Program, /) -> int: ...
    def drop(self, program: Program, /) -> None: ...

class Queue:
    def __new__(
        cls, create: int, destroy: int, set_num_threads: int, num_threads: int, max_creating: int, owner: object
    ) -> Self: ...
    def add(self, address: int, desc: object, /) -> None: ...
    # The address and status of each.
    def finish(self, is_canceled: bool = False, /) -> list[tuple[int, int]]: ...
