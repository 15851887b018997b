"""The cases of the suite that cannot pass, each with the reason."""

from __future__ import annotations

import re

__all__ = ["EXCEPTIONS", "reason_of"]

EXCEPTIONS: dict[str, str] = {
    r"test_bernoulli\w*": (
        "compares with a draw of another generator; the specification calls the operator non-deterministic"
    ),
    r"test_resize_downsample_scales_(linear|cubic)_align_corners": (
        "divides by a fractional output width; the text of the specification and ONNX Runtime use the whole number"
    ),
    r"test_loop16_seq_none": "the suite's own comparison cannot compare a sequence with a scalar",
    r"test_affine_grid_3d_align_corners_expanded": (
        "branches of ranks 0 and 1 with a condition computed at run time; a rank is static"
    ),
}
"""The reason, by a pattern of the names of cases."""


def reason_of(case: str) -> str | None:
    """Return the reason why a case cannot pass, or ``None``."""
    return next((reason for pattern, reason in EXCEPTIONS.items() if re.fullmatch(pattern, case)), None)
