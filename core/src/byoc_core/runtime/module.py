"""Compiled code as the runtime sees it: modules of functions that fill buffers, or return what nobody can allocate."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from byoc_core.dims import Dim, symbols_of
from byoc_core.errors import CallError, near_names

__all__ = ["CallTraits", "NDArray", "NativeEntry", "PackedFunction", "RuntimeModule", "Signature", "TensorSpec"]

NDArray = npt.NDArray[Any]
"""An array of any dtype and rank."""


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One argument or result.

    Attributes:
        name: as callers know it.
        dtype: the name of its dtype.
        shape: its sizes; the symbols of a signature are shared by all its shapes.
    """

    name: str
    dtype: str
    shape: tuple[Dim, ...]


@dataclass(frozen=True, slots=True)
class Signature:
    """The tensors that a function takes and gives, in order.

    Attributes:
        inputs: what it takes.
        outputs: what it fills, or returns where only running tells their sizes.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]

    @property
    def new_symbols(self) -> frozenset[str]:
        """The symbols of the outputs that stand in no shape of the inputs: only running tells their sizes."""
        given, made = (
            frozenset[str]().union(*(symbols_of(dim) for spec in specs for dim in spec.shape))
            for specs in (self.inputs, self.outputs)
        )
        return made - given


@dataclass(frozen=True, slots=True)
class CallTraits:
    """What a function permits its caller beyond the plain contract; the default is the plain contract.

    Attributes:
        strided: inputs and outputs need not be C-contiguous; they are aligned for their elements, and no two elements
            of an output share memory.
        in_place: pairs of an output's and an input's number that may lie in the same memory, whole upon whole: the
            function reads each element of the input before it writes what lies there.
        workspace_nbytes: bytes of scratch memory that the caller may hand over as one more argument behind the
            outputs: a ``uint8`` tensor of one axis, aligned to 64 bytes, its content undefined. Without it the function
            makes its own.
    """

    strided: bool = False
    in_place: tuple[tuple[int, int], ...] = ()
    workspace_nbytes: Dim = 0


@dataclass(frozen=True, slots=True)
class NativeEntry:
    """How machine code calls a function without Python: ``function(context, args, num_args, result)``.

    That is the safe-call convention of the TVM FFI ABI (see ``native/byoc_ffi.h``): ``args`` are ``num_args`` tensors,
    inputs then outputs, as ``TVMFFIAny`` that hold ``DLTensor*``; 0 is success. It is called without the interpreter
    lock, from any thread, from several at once.

    Attributes:
        function: address of the function.
        context: what it gets as its first argument: the address of data of its own, or 0.
        explain: gives the text of a failure by the status that the function returned; called in the thread it failed
            in, right after it.
        owner: held as long as the entry may be called.
    """

    function: int
    context: int
    explain: Callable[[int], str]
    owner: object = None


class PackedFunction:
    """A function in destination-passing style: ``f(*inputs, *outputs)`` fills the outputs.

    One whose outputs have sizes that only running tells (see :attr:`Signature.new_symbols`) is called ``f(*inputs)``
    instead, and returns its results. A call checks every argument against the signature
    (see :mod:`byoc_core.runtime.arguments`); the VM, which has checked already, calls :attr:`impl`.

    Args:
        name: its symbol.
        impl: the unchecked implementation: C-contiguous numpy arrays, inputs then outputs, and its value is ignored;
            or inputs only, and it gives a tuple of arrays.
        signature: what it takes and gives; ``None`` where the author does not say (then nothing is checked).
        native: the same function for callers that are machine code; ``None`` where there is none.

    Attributes:
        returns_results: whether it returns its results instead of filling buffers.
    """

    __slots__ = ("impl", "name", "native", "returns_results", "signature")

    def __init__(
        self,
        name: str,
        impl: Callable[..., object],
        signature: Signature | None = None,
        native: NativeEntry | None = None,
    ) -> None:
        self.name = name
        self.impl = impl
        self.signature = signature
        self.native = native
        self.returns_results = signature is not None and bool(signature.new_symbols)

    def __call__(self, *arguments: object) -> tuple[NDArray, ...] | None:
        """Checks the arguments and runs the function; gives the results if it returns them.

        Raises:
            CallError: wrong count, dtype, rank or shape, or an output that cannot be written; names the argument.
        """
        from byoc_core.runtime.arguments import call_checked

        return call_checked(self, arguments)

    def __repr__(self) -> str:
        return f"<packed function {self.name}>"


class RuntimeModule(ABC):
    """Named functions compiled by one backend, with what is needed to save them.

    Modules are re-entrant: several threads may call the same function at once. A runtime that cannot promise
    that says so in its ``RuntimeInfo``, and the core serialises the calls.
    """

    @property
    @abstractmethod
    def type_key(self) -> str:
        """The name of the runtime that saves and loads this kind of module."""

    @property
    @abstractmethod
    def function_names(self) -> tuple[str, ...]:
        """The names of all functions, in definition order."""

    @abstractmethod
    def find_function(self, name: str) -> PackedFunction:
        """Gives a function whose name is in :attr:`function_names`."""

    def get_function(self, name: str) -> PackedFunction:
        """Gives the function of that name.

        Raises:
            CallError: there is none; the known names are listed.
        """
        if name not in self.function_names:
            raise CallError(
                f"module `{self.type_key}`",
                f"has no function `{name}`",
                expected=", ".join(self.function_names) or "no function at all",
                hint=near_names(name, self.function_names) or None,
            )
        return self.find_function(name)

    def find_signature(self, name: str) -> Signature | None:
        """Gives what a function of :attr:`function_names` takes and gives; ``None`` where its author does not say.

        A module that need not build or load a function for this overrides it.
        """
        return self.find_function(name).signature

    def call_traits(self, name: str) -> CallTraits:
        """Gives what a function of :attr:`function_names` permits its callers; nothing is built or loaded."""
        return CallTraits()

    def prepare(self) -> None:
        """Does what would otherwise hold up the first call; a machine asks for it when it is made, maybe not the first.

        Around it is a call of the machine, so :func:`byoc_core.runtime.threads.num_threads` tells the number of threads
        of its calls. What it raises ends the making of the machine.
        """

    def get_source(self, format: str = "") -> str:  # noqa: A002 - the field's usual keyword
        """Gives the module's text form (``""`` for the default format); empty where it has none."""
        return ""

    @property
    def constants(self) -> Mapping[str, npt.NDArray[np.generic]]:
        """The constant arrays that the saved payload cites, by digest."""
        return MappingProxyType({})

    @property
    def payload_format(self) -> int | None:
        """The format of the payload that saving gives; ``None`` for the highest that the module's runtime names."""
        return None

    @property
    def needed_runtimes(self) -> tuple[str, ...]:
        """The names of other runtimes whose code the module calls; an artifact names them as needed."""
        return ()

    @property
    def is_native(self) -> bool:
        """Whether the saved payload holds machine code, which a user must permit before it is loaded."""
        return False

    @property
    def uses_threads(self) -> bool:
        """Whether calls may use more threads than the caller's; where not, nobody is told how many there are.

        See :mod:`byoc_core.runtime.threads`.
        """
        return True

    @property
    def workspaces_may_differ(self) -> bool:
        """Whether the same payload may want other workspaces in another process, as by the version of a library.

        A saved program whose workspace is then too small, or not wanted any more, is run without; it is refused where
        this is ``False``.
        """
        return False

    def __repr__(self) -> str:
        return f"<runtime module {self.type_key}: {', '.join(self.function_names)}>"
