"""Contents of requests to other processes: models and artifacts, each travelling once to each worker.

A request names contents by digest. A worker without a content answers :class:`MissingContentError`, and gets the
request again with the content.
"""

from __future__ import annotations

import hashlib
import io
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, Self, TypeVar

import numpy as np

from byoc_core.driver import Compiler
from byoc_core.dtypes import dtype_name, to_numpy
from byoc_core.ir import IRModule
from byoc_core.runtime.module import NDArray
from byoc_core.script import parse

__all__ = ["ContentStore", "MissingContentError", "PackedModel"]

Content = TypeVar("Content")


class MissingContentError(LookupError):
    """The worker does not have a content of a request: send the request again with all contents."""


class ContentStore(Generic[Content]):
    """The latest contents of a worker's requests, by digest.

    Args:
        capacity: the number of kept contents; by default enough for the artifacts of one trial.
    """

    def __init__(self, capacity: int = 2) -> None:
        self._capacity = capacity
        self._contents: OrderedDict[str, Content] = OrderedDict()

    def get(self, digest: str, make: Callable[[], Content] | None) -> Content:
        """Return a content.

        Args:
            digest: of the content.
            make: returns the content, brought by the request; ``None`` if the request does not bring the content.

        Raises:
            MissingContentError: the content is unknown, and the request does not bring it.
        """
        if digest not in self._contents:
            if make is None:
                raise MissingContentError(digest)
            self._contents[digest] = make()
            while len(self._contents) > self._capacity:
                self._contents.popitem(last=False)
        self._contents.move_to_end(digest)
        return self._contents[digest]


@dataclass(frozen=True)
class PackedModel:
    """A module as text and bytes.

    Attributes:
        text: the functions as script, constants by digest.
        constants: dtype and ``.npy`` bytes by digest.
        backends: the names of the backends whose ops the module may hold.
    """

    text: str
    constants: Mapping[str, tuple[str, bytes]]
    backends: tuple[str, ...]

    @classmethod
    def of(cls, module: IRModule, backends: tuple[str, ...]) -> Self:
        """Pack a module."""
        constants = {digest: (dtype_name(array.dtype), _to_bytes(array)) for digest, array in module.constants.items()}
        return cls(str(module), constants, backends)

    @property
    def digest(self) -> str:
        """The SHA-256 of text and names: digests of constants stand in the text."""
        return hashlib.sha256(repr((self.text, self.backends)).encode()).hexdigest()

    def unpack(self) -> IRModule:
        """Return the module.

        Raises:
            ByocError: a backend or an op is missing here.
        """
        constants = {digest: _from_bytes(*pair) for digest, pair in self.constants.items()}
        return parse(self.text, constants=constants, ops=Compiler().ops_for(self.backends))


def _to_bytes(array: NDArray) -> bytes:
    content = io.BytesIO()
    np.save(content, np.ascontiguousarray(array).reshape(array.shape).view(f"V{array.dtype.itemsize}"))
    return content.getvalue()


def _from_bytes(dtype: str, content: bytes) -> NDArray:
    array: NDArray = np.load(io.BytesIO(content), allow_pickle=False).view(to_numpy(dtype))
    return array
