"""The options of the backend."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from byoc_core.dtypes import float_limits
from pydantic import BaseModel, ConfigDict, Field

__all__ = ["CCompilerOptions"]


class CCompilerOptions(BaseModel):
    """How C is generated and compiled.

    Attributes:
        opt_level: the C compiler's optimisation level.
        march: ``native`` for this machine's instruction sets (the artifact says which, and is refused elsewhere),
            ``generic`` for any machine of the processor family, or a name that the compiler knows.
        fuse: whether ops share loops; without it every op has a kernel of its own.
        winograd: whether convolutions with filters of 3 by 3 and constant weights are computed with fewer products,
            in tiles of outputs, where that should be faster: ``off``; ``f2``, tiles of 2 by 2; ``auto``, of 4 by 4 too.
            Measured in float32, the largest error is 1e-6 (2 by 2) and 4e-6 (4 by 4) of the largest output. A NaN or
            an infinity makes all outputs of the tiles that read it NaN.
        precision: what the factors of matrix products and convolutions may be: ``float32``, or ``bfloat16``: those of
            float32 and float16 are rounded to it, each by 2**-8 of itself at most. Sums and all else stay float32, but
            subnormal factors and sums may count as zero. The factors of attention, of grouped convolutions, of filters
            that are no constants, and of products with few rows or columns that are read once, are not rounded.
            Winograd's algorithm is not used then. It is fast where the processor multiplies matrices of bfloat16
            numbers, and right everywhere.
        tutorial: one kernel per op and one buffer per intermediate, elementwise ops only: C to read, not to race.
        extra_flags: further flags for the C compiler.
        target: the triple of the machine to compile for, as ``zig cc`` names it (``aarch64-linux-gnu``); empty for this
            one. The artifact says which machine, and is refused on others. It needs zig (``byoc-ccompiler[zig]``).
        keep_source: a folder that gets the generated C, named after its first function, with what it includes and a
            script that builds it.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    opt_level: int = Field(3, ge=0, le=3, description="the C compiler's optimisation level")
    march: str = Field(
        "native", pattern=r"^[A-Za-z0-9._+-]+$", description="native, generic, or a name of the compiler"
    )
    fuse: bool = Field(default=True, description="whether ops share kernels")
    winograd: Literal["off", "f2", "auto"] = Field(
        "auto",
        description="3x3 convolutions by Winograd's algorithm where it gains: off, f2 (errors of 1e-6 of the largest "
        "output), auto (4e-6)",
    )
    precision: Literal["float32", "bfloat16"] = Field(
        "float32",
        description="factors of matrix products and convolutions: float32, or rounded to bfloat16 (sums stay float32)",
    )
    tutorial: bool = Field(default=False, description="plain C, one kernel per op; elementwise ops only")
    extra_flags: tuple[str, ...] = Field((), description="further flags for the C compiler")
    target: str = Field(
        "",
        pattern=r"^([a-z0-9_]+(-[a-z0-9_.]+){1,3})?$",
        description="target triple of zig, such as aarch64-linux-gnu; empty for this machine",
    )
    keep_source: Path | None = Field(None, description="folder that gets the generated C and a script that builds it")

    @property
    def unit_roundoff(self) -> Mapping[str, float]:
        """The unit roundoffs that the options make coarser, by dtype: who judges the numbers goes by them."""
        if self.precision == "float32":
            return {}
        return dict.fromkeys(("float16", "float32"), float_limits("bfloat16").unit_roundoff)
