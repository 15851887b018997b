"""The options of the backend."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["CblasOptions"]


class CblasOptions(BaseModel):
    """Options for the choice of the library, and for the compilation of the C around its calls.

    Attributes:
        library: ``"auto"`` (the first usable library), ``"scipy-openblas"`` (of the wheel ``scipy-openblas32``),
            ``"openblas"``, ``"mkl"``, or the path of a shared library: ``/opt/blis/lib/libblis.so``.
        opt_level: the C compiler's optimisation level, for patches of convolutions and loops around calls.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    library: str = Field("auto", description="the BLAS: auto, scipy-openblas, openblas, mkl, or a path")
    opt_level: int = Field(3, ge=0, le=3, description="the C compiler's optimisation level")
