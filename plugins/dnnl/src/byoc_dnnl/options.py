"""The options of the backend."""

from __future__ import annotations

from collections.abc import Mapping

from byoc_core.dtypes import float_limits
from pydantic import BaseModel, ConfigDict, Field

from byoc_dnnl.precision import Precision

__all__ = ["DnnlOptions"]


class DnnlOptions(BaseModel):
    """How regions are computed.

    Attributes:
        precision: what float32 is computed with: ``float32``, or ``bfloat16``: the factors of matrix products and
            convolutions are rounded to it, by 2**-8 of themselves at most, and so are values that others read between
            them. Sums, what a primitive computes before it writes its result, softmax and layer normalisation are of
            float32; subnormal numbers may count as zero. It needs a processor that computes with bfloat16 numbers.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    precision: Precision = Field(
        "float32",
        description="what float32 is computed with: float32, or bfloat16 between products and convolutions (sums stay "
        "float32)",
    )

    @property
    def unit_roundoff(self) -> Mapping[str, float]:
        """The unit roundoffs that the options make coarser, by dtype: who judges the numbers goes by them."""
        return {} if self.precision == "float32" else {"float32": float_limits("bfloat16").unit_roundoff}
