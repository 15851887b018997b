"""The options of a user: ``build(..., options={"scipy": {"single_ops": False}})``."""

from __future__ import annotations

from byoc_core.backend.hooks import CompileContext
from pydantic import BaseModel, ConfigDict, Field

__all__ = ["Options", "options_of"]


class Options(BaseModel):
    """The options, each with a default; a wrong value is an error before the start of compilation."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    single_ops: bool = Field(default=True, description="take single ops too, not only whole patterns")


def options_of(context: CompileContext) -> Options:
    """Return the options of a compilation."""
    return context.options if isinstance(context.options, Options) else Options()
