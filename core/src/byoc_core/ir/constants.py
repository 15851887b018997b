"""The content-addressed store of constant tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from byoc_core.digest import digest_of
from byoc_core.dtypes import dtype_name
from byoc_core.errors import IRError
from byoc_core.opset.types import TensorType

__all__ = ["Constant", "ConstantStore", "digest_of"]


@dataclass(frozen=True, slots=True)
class Constant:
    """A reference to an array of the module's constant store.

    Attributes:
        digest: the result of :func:`digest_of` for the array.
        type: the array's dtype and (static) shape.
    """

    digest: str
    type: TensorType


def _is_frozen(array: npt.NDArray[np.generic]) -> bool:
    """Return whether the array and all its base arrays are read-only."""
    owner: Any = array
    while isinstance(owner, np.ndarray):
        if owner.flags.writeable:
            return False
        owner = owner.base
    if owner is None:
        return True
    try:
        return memoryview(owner).readonly
    except TypeError:
        return False


def _frozen_view(array: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    """Return the array without write permission, irrevocably if the array is contiguous."""
    if array.size and array.flags.c_contiguous:
        memory = array.reshape(-1).view(np.uint8).data.toreadonly()
        return np.frombuffer(memory, array.dtype).reshape(array.shape)
    view = array.view()
    view.flags.writeable = False
    return view


class ConstantStore(Mapping[str, npt.NDArray[np.generic]]):
    """Arrays by digest: equal arrays are stored once, different arrays never merge.

    A store only grows, and an entry never changes, so derived modules share a store.
    Arrays are read-only, and possibly memory-mapped.
    """

    def __init__(self) -> None:
        self._arrays: dict[str, npt.NDArray[np.generic]] = {}
        self._nbytes = 0

    @property
    def nbytes(self) -> int:
        """The bytes of all arrays, with equal arrays counted once. Cost: ``O(1)``."""
        return self._nbytes

    def add(self, array: npt.ArrayLike) -> Constant:
        """Store an array and return a reference.

        The array is copied unless contiguous and read-only for everybody, like a read-only memory map.
        """
        data = np.asarray(array)
        digest = digest_of(data)
        if digest not in self._arrays:
            if not (data.flags.c_contiguous and _is_frozen(data)):
                data = _frozen_view(np.array(data, order="C", copy=True))
            self._arrays[digest] = data
            self._nbytes += data.nbytes
        stored = self._arrays[digest]
        return Constant(digest, TensorType(tuple(stored.shape), dtype_name(stored.dtype)))

    def adopt(self, constant: Constant, array: npt.NDArray[np.generic]) -> None:
        """Store an array under a known digest (no hashing); dtype and shape are checked."""
        if tuple(array.shape) != constant.type.shape or dtype_name(array.dtype) != constant.type.dtype:
            raise IRError(
                "constant",
                "the array does not have the constant's type",
                got=f"{array.dtype}{list(array.shape)}",
                expected=constant.type,
            )
        if array.flags.writeable:
            array = _frozen_view(array)
        if constant.digest not in self._arrays:
            self._arrays[constant.digest] = array
            self._nbytes += array.nbytes

    def __getitem__(self, digest: str) -> npt.NDArray[np.generic]:
        return self._arrays[digest]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)
