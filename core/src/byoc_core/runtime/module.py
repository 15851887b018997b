"""The runtime's view of compiled code: modules of functions with output buffers, or with results of unknown size."""

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
from byoc_core.runtime.memory import MemoryDomain

__all__ = [
    "CallStep",
    "CallSteps",
    "CallTraits",
    "ConstantInput",
    "MemoryDomain",
    "NDArray",
    "NativeEntry",
    "PackedFunction",
    "RuntimeModule",
    "Signature",
    "TensorSpec",
]

NDArray = npt.NDArray[Any]
"""An array of any dtype and rank."""


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One argument or result.

    Attributes:
        name: the name known to callers.
        dtype: the name of the dtype.
        shape: the sizes; all shapes of a signature share symbols.
    """

    name: str
    dtype: str
    shape: tuple[Dim, ...]


@dataclass(frozen=True, slots=True)
class Signature:
    """The input and output tensors of a function, in order.

    Attributes:
        inputs: the input tensors.
        outputs: the tensors filled by the function, or returned if only running determines the sizes.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]

    @property
    def new_symbols(self) -> frozenset[str]:
        """The symbols of the outputs in no shape of the inputs: only running determines their sizes."""
        input_symbols, output_symbols = (
            frozenset[str]().union(*(symbols_of(dim) for spec in specs for dim in spec.shape))
            for specs in (self.inputs, self.outputs)
        )
        return output_symbols - input_symbols


@dataclass(frozen=True, slots=True)
class CallTraits:
    """Permissions of a function for the caller beyond the plain contract; the default is the plain contract.

    Attributes:
        strided: inputs and outputs need not be C-contiguous; all are aligned for the elements, and no two elements of
            an output share memory.
        in_place: pairs of an output's and an input's number. Both tensors may occupy the same memory, whole upon whole:
            the function reads each element of the input before overwriting the element.
        workspace_nbytes: bytes of scratch memory. The caller may pass the memory as an additional argument behind the
            outputs: a ``uint8`` tensor of one axis, aligned to 64 bytes, with undefined content. Without this argument
            the function allocates scratch memory.
        domain: the memory of the function's tensors; ``None`` for the host's arrays. A function with a domain is called
            with a stream of the device, then the tensors (:class:`~byoc_core.runtime.devices.DeviceTensor`, all
            C-contiguous): ``impl(stream, *inputs, *outputs)``. The call enqueues the work on the stream and may return
            before the work is done. All sizes of the outputs are determined by the inputs.
    """

    strided: bool = False
    in_place: tuple[tuple[int, int], ...] = ()
    workspace_nbytes: Dim = 0
    domain: MemoryDomain | None = None


@dataclass(frozen=True, slots=True)
class CallStep:
    """A call inside a function: the called function of the same module, and the numbers of the tensors passed.

    The numbers count the inputs of the surrounding function, its outputs, and the buffers of :class:`CallSteps`. A
    tensor both in ``args`` and in ``results`` is changed in place.

    Attributes:
        symbol: the called function.
        args: the tensors read.
        results: the tensors written.
    """

    symbol: str
    args: tuple[int, ...]
    results: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CallSteps:
    """A function as a sequence of calls of other functions of its module.

    A caller may run these calls in place of the function, and then plans the memory of the buffers itself.

    Attributes:
        buffers: the tensors living between the calls; the shapes use the symbols of the function's signature.
        steps: the calls, in order.
    """

    buffers: tuple[TensorSpec, ...]
    steps: tuple[CallStep, ...]


@dataclass(frozen=True, slots=True)
class ConstantInput:
    """An input with the same array in every call: a constant of the program, such as a swappable weight.

    Attributes:
        digest: the digest of the constant. Nobody has checked the digest of a large constant in a file: equal digests
            are a hint, not a proof, of equal arrays.
        array: the array, read-only.
    """

    digest: str
    array: NDArray


@dataclass(frozen=True, slots=True)
class NativeEntry:
    """The entry point of a function for machine code, without Python: ``function(context, args, num_args, result)``.

    The convention is the safe call of the TVM FFI ABI (see ``native/byoc_ffi.h``): ``args`` are ``num_args`` tensors,
    inputs then outputs, as ``TVMFFIAny`` with ``DLTensor*`` inside; 0 is success. The entry is called without the
    interpreter lock, from any thread, from several at once.

    Attributes:
        function: address of the function.
        context: the first argument: the address of the function's own data, or 0.
        explain: returns the text of a failure for the status returned by the function; called right after the failure,
            in the same thread.
        owner: held as long as the entry may be called.
    """

    function: int
    context: int
    explain: Callable[[int], str]
    owner: object = None


class PackedFunction:
    """A function in destination-passing style: ``f(*inputs, *outputs)`` fills the outputs.

    If only running determines the sizes of outputs (see :attr:`Signature.new_symbols`), the function is called
    ``f(*inputs)`` instead, and returns the results. A call checks every argument against the signature (see
    :mod:`byoc_core.runtime.arguments`); the VM has already checked the arguments and calls :attr:`impl`.

    Args:
        name: the symbol.
        impl: the unchecked implementation. The arguments are C-contiguous numpy arrays: inputs then outputs, with the
            return value ignored; or inputs only, with a tuple of arrays returned. For functions of a device see
            :attr:`CallTraits.domain`.
        signature: the inputs and outputs; ``None`` if the author declares no signature (then nothing is checked).
        native: the same function for callers in machine code; ``None`` if absent.

    Attributes:
        returns_results: whether the function returns its results instead of filling buffers.
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
        """Check the arguments and run the function; return the results, if any are returned.

        Raises:
            CallError: wrong count, dtype, rank or shape, or a read-only output; names the argument.
        """
        from byoc_core.runtime.arguments import call_checked

        return call_checked(self, arguments)

    def __repr__(self) -> str:
        return f"<packed function {self.name}>"


class RuntimeModule(ABC):
    """Named functions compiled by a single backend, with all data needed for saving.

    Modules are re-entrant: several threads may call the same function at once. A runtime without this guarantee
    declares so in ``RuntimeInfo``, and the core serialises the calls.
    """

    @property
    @abstractmethod
    def type_key(self) -> str:
        """The name of the runtime for saving and loading this kind of module."""

    @property
    @abstractmethod
    def function_names(self) -> tuple[str, ...]:
        """The names of all functions, in definition order."""

    @abstractmethod
    def find_function(self, name: str) -> PackedFunction:
        """Return a function whose name is in :attr:`function_names`."""

    def get_function(self, name: str) -> PackedFunction:
        """Return the function of this name for arrays of the host; a function of a device copies all arrays each time.

        Raises:
            CallError: no such function; the known names are listed.
        """
        if name not in self.function_names:
            raise CallError(
                f"module `{self.type_key}`",
                f"has no function `{name}`",
                expected=", ".join(self.function_names) or "no function at all",
                hint=near_names(name, self.function_names) or None,
            )
        if self.call_traits(name).domain is not None:
            from byoc_core.runtime.staged import stage_function

            return stage_function(self, name)
        return self.find_function(name)

    def find_for_constants(self, name: str, constants: Mapping[int, ConstantInput]) -> PackedFunction:
        """Return a function for callers that pass the same arrays for some inputs in every call.

        The signature is that of :meth:`find_function`: the caller still passes all inputs. A module that rearranges
        weights overrides this method, and rearranges these arrays once. Called when a machine is made, before
        :meth:`prepare`, for functions with arrays of the host.

        Args:
            name: a name in :attr:`function_names`.
            constants: the inputs with the same array in every call, by number.
        """
        return self.find_function(name)

    def find_signature(self, name: str) -> Signature | None:
        """Return the signature of a function of :attr:`function_names`; ``None`` if the author declares no signature.

        Modules able to answer without building or loading the function override this method.
        """
        return self.find_function(name).signature

    def call_traits(self, name: str) -> CallTraits:
        """Return the permissions of a function of :attr:`function_names` for callers; build and load nothing."""
        return CallTraits()

    def call_steps(self, name: str) -> CallSteps | None:
        """Return the calls that may replace a call of a function of :attr:`function_names`; ``None`` if there are none.

        Only compilation asks: the steps are not part of the saved payload.
        """
        return None

    def report_parts(self) -> None:
        """Report the parts of calls from now on (see :mod:`byoc_core.runtime.parts`); called before calls are recorded.

        The default does nothing: a profile then shows calls, but no parts of calls.
        """

    def prepare(self) -> None:
        """Do work now to spare the first call a delay; called for each machine made with the module.

        The caller wraps this method in a call of the machine, so :func:`byoc_core.runtime.threads.num_threads` returns
        the number of threads of the machine's calls. An exception ends the creation of the machine.
        """

    def get_source(self, format: str = "") -> str:  # noqa: A002 - the field's usual keyword
        """Return the module's text form (``""`` for the default format); an empty text if absent."""
        return ""

    @property
    def constants(self) -> Mapping[str, npt.NDArray[np.generic]]:
        """The constant arrays cited by the saved payload, by digest."""
        return MappingProxyType({})

    @property
    def payload_format(self) -> int | None:
        """The format of the saved payload; ``None`` for the highest format declared by the module's runtime."""
        return None

    @property
    def needed_runtimes(self) -> tuple[str, ...]:
        """The names of other runtimes whose code the module calls; an artifact lists these runtimes as needed."""
        return ()

    @property
    def is_native(self) -> bool:
        """Whether the saved payload holds machine code; loading then needs the user's permission."""
        return False

    @property
    def uses_threads(self) -> bool:
        """Whether calls may use more threads than the caller's; if not, the number of threads is not announced.

        See :mod:`byoc_core.runtime.threads`.
        """
        return True

    @property
    def workspaces_may_differ(self) -> bool:
        """Whether the same payload may need other workspaces in another process, as with another library version.

        If the workspace of a saved program is then too small, or no longer needed, the program runs without the
        workspace. If this property is ``False``, the program is refused.
        """
        return False

    def __repr__(self) -> str:
        return f"<runtime module {self.type_key}: {', '.join(self.function_names)}>"
