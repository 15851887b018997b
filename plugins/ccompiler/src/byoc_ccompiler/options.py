"""The options of the backend."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from byoc_core.dtypes import float_limits
from pydantic import BaseModel, ConfigDict, Field, model_validator

__all__ = ["CCompilerOptions"]


class CCompilerOptions(BaseModel):
    """Options of generating and compiling C.

    Attributes:
        opt_level: the C compiler's optimisation level.
        march: ``native`` for this machine's instruction sets (recorded in the artifact, refused elsewhere), ``generic``
            for any machine of the processor family, or a name known to the compiler.
        fuse: whether ops share loops; if not, every op has a separate kernel.
        winograd: whether convolutions with constant filters of 3 by 3 are computed with fewer products, in tiles of
            outputs, if faster by estimate: ``off``; ``f2``, tiles of 2 by 2; ``auto``, tiles of 4 by 4 too. Measured in
            float32, the largest error is 1e-6 (2 by 2) and 4e-6 (4 by 4) of the largest output. A NaN or an infinity in
            the image makes all outputs of each tile reading it NaN.
        precision: the precision of the factors of matrix products and convolutions: ``float32``, or ``bfloat16`` to
            round float32 and float16 factors to bfloat16, each by 2**-8 of itself at most. Sums and all else stay
            float32, but subnormal factors and sums may count as zero. Not rounded are the factors of attention, of
            grouped convolutions, of non-constant filters, and of products with few rows or columns, read once.
            Winograd's algorithm is not used with ``bfloat16``. The option is fast on processors with bfloat16 matrix
            multiplication, and correct on all.
        tutorial: one kernel per op and one buffer per intermediate, elementwise ops only: C to read, not to race.
        portable: C11 for any compiler: no vector types, no compiler extensions, no intrinsics. The C is the same on all
            machines, runs on a single thread, and keeps large arrays in scratch memory: frames are below 4 KiB, on
            32-bit machines too. Loops are written for the vectoriser of the C compiler. Winograd's
            algorithm is not used. Not with another ``march`` than ``native`` or ``generic``, ``bfloat16``, or
            ``tutorial``.
        extra_flags: further flags for the C compiler.
        target: the target triple as named by ``zig cc`` (``aarch64-linux-gnu``); empty for this machine. The artifact
            records the machine, and is refused on others. Needs zig (``byoc-ccompiler[zig]``).
        keep_source: a folder for the generated C, named after its first function, with the included files and a build
            script.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    opt_level: int = Field(3, ge=0, le=3, description="the C compiler's optimisation level")
    march: str = Field(
        "native", pattern=r"^[A-Za-z0-9._+-]+$", description="native, generic, or a name known to the compiler"
    )
    fuse: bool = Field(default=True, description="whether ops share kernels")
    winograd: Literal["off", "f2", "auto"] = Field(
        "auto",
        description="Winograd's algorithm for 3x3 convolutions if faster: off, f2 (errors of 1e-6 of the largest "
        "output), auto (4e-6)",
    )
    precision: Literal["float32", "bfloat16"] = Field(
        "float32",
        description="factors of matrix products and convolutions: float32, or rounded to bfloat16 (sums stay float32)",
    )
    tutorial: bool = Field(default=False, description="plain C, one kernel per op; elementwise ops only")
    portable: bool = Field(
        default=False, description="C11 for any compiler: no vector types, no compiler extensions, no intrinsics"
    )
    extra_flags: tuple[str, ...] = Field((), description="further flags for the C compiler")
    target: str = Field(
        "",
        pattern=r"^([a-z0-9_]+(-[a-z0-9_.]+){1,3})?$",
        description="target triple of zig, such as aarch64-linux-gnu; empty for this machine",
    )
    keep_source: Path | None = Field(None, description="folder for the generated C and a build script")

    @model_validator(mode="after")
    def _check_portable(self) -> CCompilerOptions:
        """Check that portable C is asked for nothing depending on a machine."""
        if self.portable and self.march not in ("native", "generic"):
            raise ValueError(f"`march` is {self.march}, but portable C depends on no processor: leave `march` out")
        if self.portable and self.tutorial:
            raise ValueError("`tutorial` and `portable` exclude each other: only fused kernels have a portable form")
        if self.portable and self.precision != "float32":
            raise ValueError(f"`precision` is {self.precision}, but portable C has float32 products only")
        return self

    @property
    def unit_roundoff(self) -> Mapping[str, float]:
        """The unit roundoffs made coarser by the options, by dtype, for judging the results."""
        if self.precision == "float32":
            return {}
        return dict.fromkeys(("float16", "float32"), float_limits("bfloat16").unit_roundoff)
