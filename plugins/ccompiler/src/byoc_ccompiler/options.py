"""The options of the backend."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["CCompilerOptions"]


class CCompilerOptions(BaseModel):
    """How C is generated and compiled.

    Attributes:
        opt_level: the C compiler's optimisation level.
        march: ``native`` for this machine's instruction sets (the artifact says which, and is refused elsewhere),
            ``generic`` for any machine of the processor family, or a name that the compiler knows.
        fuse: whether ops share loops; without it every op has a kernel of its own.
        tutorial: one kernel per op and one buffer per intermediate, elementwise ops only: C to read, not to race.
        extra_flags: further flags for the C compiler.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    opt_level: int = Field(3, ge=0, le=3, description="the C compiler's optimisation level")
    march: str = Field(
        "native", pattern=r"^[A-Za-z0-9._+-]+$", description="native, generic, or a name of the compiler"
    )
    fuse: bool = Field(default=True, description="whether ops share kernels")
    tutorial: bool = Field(default=False, description="plain C, one kernel per op; elementwise ops only")
    extra_flags: tuple[str, ...] = Field((), description="further flags for the C compiler")
