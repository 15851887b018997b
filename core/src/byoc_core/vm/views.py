"""The views of a function as numpy arrays: made once per size for memory of the frame, else in every call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from byoc_core.dims import Dim, evaluate
from byoc_core.dtypes import to_numpy
from byoc_core.errors import CallError, IRTypeError
from byoc_core.runtime.arguments import concrete_shape
from byoc_core.runtime.devices import DeviceTensor
from byoc_core.runtime.module import NDArray, TensorSpec
from byoc_core.vm.program import Program, RegisterKind, View, VMFunction

__all__ = ["ConcreteView", "ViewMaker"]


@dataclass(frozen=True, slots=True)
class ConcreteView:
    """A view for known sizes.

    Attributes:
        register: the number of the view's register.
        base: the number of the register owning the memory.
        offset: bytes from the base's first element.
        shape: the sizes of the view.
        strides: in bytes; ``None``: the strides of a C-contiguous array.
    """

    register: int
    base: int
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    dtype: np.dtype[Any]

    def of(self, base: NDArray | DeviceTensor) -> NDArray | DeviceTensor:
        """Return the view as an array over a C-contiguous base, or as a tensor on the device of its base."""
        if isinstance(base, DeviceTensor):
            return base.part(self.offset, self.shape)
        if 0 in self.shape:
            return np.empty(self.shape, self.dtype)
        if self.strides is None and base.nbytes == base.itemsize * int(np.prod(self.shape)):
            return base.reshape(self.shape)
        view: NDArray = np.ndarray(self.shape, self.dtype, base.reshape(-1).view(np.uint8), self.offset, self.strides)
        return view


class ViewMaker:
    """A maker of the views of a function.

    Args:
        program: the whole program, verified.
        function: the function of the program.
    """

    def __init__(self, program: Program, function: VMFunction) -> None:
        registers = program.registers(function)
        self._function = function
        per_call = (RegisterKind.PARAM, RegisterKind.RESULT)
        self._is_per_call = [registers[view.base].kind in per_call for view in function.views]
        self._has_call_views = any(self._is_per_call)

    def concrete(self, sizes: dict[str, int]) -> list[ConcreteView]:
        """Return the views for known sizes.

        Raises:
            CallError: a size comes out negative or cannot be computed.
        """
        return [self._concrete(index, view, sizes) for index, view in enumerate(self._function.views)]

    def prepare(self, registers: list[Any], views: Sequence[ConcreteView]) -> Callable[[list[Any]], None] | None:
        """Put the views of constants and tensors into a frame's registers; return a function to fill in the others."""
        call_views = []
        for view, is_per_call in zip(views, self._is_per_call, strict=True):
            if is_per_call:
                call_views.append(view)
            else:
                registers[view.register] = view.of(registers[view.base])
        return partial(_fill, call_views) if call_views else None

    def clear(self, registers: list[Any]) -> None:
        """Drop the views belonging to a finished call."""
        if self._has_call_views:
            for number, is_per_call in enumerate(self._is_per_call, start=self._function.first_view):
                if is_per_call:
                    registers[number] = None

    def _concrete(self, index: int, view: View, sizes: dict[str, int]) -> ConcreteView:
        where = f"function `{self._function.name}`, register w{index}"
        dtype = to_numpy(view.dtype)
        shape = concrete_shape(TensorSpec(f"w{index}", view.dtype, view.shape), sizes, where)
        strides = None
        if not view.is_compact:
            strides = tuple(_size(stride, sizes, where) * dtype.itemsize for stride in view.strides or ())
        number = self._function.first_view + index
        return ConcreteView(number, view.base, _size(view.offset, sizes, where), shape, strides, dtype)


def _fill(views: list[ConcreteView], registers: list[Any]) -> None:
    for view in views:
        registers[view.register] = view.of(registers[view.base])


def _size(dim: Dim, sizes: dict[str, int], where: str) -> int:
    try:
        return evaluate(dim, sizes)
    except IRTypeError as error:
        raise CallError(where, f"size {dim} cannot be computed: {error.problem}") from error
