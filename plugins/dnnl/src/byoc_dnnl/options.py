"""The options of the backend."""

from __future__ import annotations

from collections.abc import Mapping

from byoc_core.dtypes import float_limits
from pydantic import BaseModel, ConfigDict, Field, PositiveInt

from byoc_dnnl.precision import Precision

__all__ = ["DnnlOptions"]


class DnnlOptions(BaseModel):
    """Options for the computation of regions.

    Attributes:
        precision: the precision of float32 computations: ``float32`` or ``bfloat16``. ``bfloat16`` rounds the factors
            of matrix products and convolutions, with a relative error of at most 2**-8, and also values passed between
            products and convolutions. Sums, computations of a primitive before the result is written, softmax and layer
            normalisation stay in float32; subnormal numbers may count as zero. Needs a processor with bfloat16
            instructions.
        stored_plans: the sizes of calls planned in advance, for programs without Python, each with the sizes by
            symbol. Regions without symbols need an entry without sizes, ``[{}]``; any entry serves them. The plans are
            for this machine's oneDNN and instructions, and for the current number of threads.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    precision: Precision = Field(
        "float32",
        description="precision of float32 computations: float32, or bfloat16 between products and convolutions (sums "
        "stay float32)",
    )

    stored_plans: tuple[Mapping[str, PositiveInt], ...] = Field(
        (),
        description="sizes of calls planned in advance, by symbol, for programs without Python: "
        '[{"batch": 1}, {"batch": 8}]; [{}] if all sizes are fixed',
    )

    @property
    def unit_roundoff(self) -> Mapping[str, float]:
        """The unit roundoffs coarsened by the options, by dtype, for judging the numbers.

        The core reads this property by name.
        """
        return {} if self.precision == "float32" else {"float32": float_limits("bfloat16").unit_roundoff}
