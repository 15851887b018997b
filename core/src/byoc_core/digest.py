"""The digest used to cite constant tensors in the IR, in payloads and in artifacts."""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt

from byoc_core.dtypes import dtype_name

__all__ = ["digest_of"]


def digest_of(array: npt.NDArray[np.generic]) -> str:
    """Return the hexadecimal SHA-256 of dtype, shape and bytes (C order), 64 characters.

    Arrays with equal bytes but another dtype or shape have another digest; NaN payloads and signed zeros count.
    """
    header = f"{dtype_name(array.dtype)}{list(array.shape)}".encode()
    digest = hashlib.sha256(header)
    digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
