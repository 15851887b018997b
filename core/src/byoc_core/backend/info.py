"""The types exchanged by the core and a backend: capabilities, answers, context, result."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import InitVar, dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from byoc_core.errors import CodegenError
from byoc_core.pattern.verdict import Rejection, Support
from byoc_core.runtime.module import NDArray, RuntimeModule
from byoc_core.runtime.status import Status

if TYPE_CHECKING:
    from pydantic import BaseModel

    from byoc_core.ir.constants import Constant
    from byoc_core.ir.module import Function, IRModule

__all__ = [
    "BackendInfo",
    "CodegenResult",
    "CompileContext",
    "Estimate",
    "Rejection",
    "Status",
    "Support",
    "coarsest_roundoff",
    "is_backend_name",
    "stated_roundoff",
]

_NAME = re.compile(r"[a-z][a-z0-9_]*")


def is_backend_name(name: str) -> bool:
    """Return whether a name is allowed for a backend: one lower-case word."""
    return _NAME.fullmatch(name) is not None


@dataclass(frozen=True, slots=True)
class BackendInfo:
    """The name and capabilities of a backend, as stated by the backend.

    Attributes:
        name: equal to the entry point's name; one lower-case word.
        dynamic_shapes: whether the backend compiles functions with symbolic sizes. If not, only functions with static
            sizes are offered, and a build compiles a region for each set of sizes.
        data_dependent_sizes: whether the backend compiles ops with results of data-dependent sizes. The functions of
            its modules return such results instead of filling buffers. Data-dependent sizes are symbolic, so the field
            has no meaning without ``dynamic_shapes``.
        deterministic: whether equal functions give equal modules, and equal inputs equal outputs, bit for bit.
        native: whether the backend's modules may hold native code. Only the conformance kit reads the field, to compare
            with the modules: an artifact asks its user's permission if a module states that it holds native code
            (:attr:`byoc_core.runtime.module.RuntimeModule.is_native`).
        options: pydantic model of the options, every field with a default; ``None`` for a backend without options. If
            options make the arithmetic coarser, the model states so in a property ``unit_roundoff``, in the form of the
            attribute below.
        constants: ``"embedded"``: constants are passed as ``Constant`` operands; ``"lifted"``: as parameters.
        preferred_layouts: deprecated since 0.2 and ignored: no pass plans layouts by this field.
        unit_roundoff: by the name of a floating-point dtype, the backend's unit roundoff on the dtype, if coarser than
            the dtype's own (``{"float32": 2**-11}`` for TF32). By the names of an op and a dtype
            (``{"exp:float32": 2**-12}``), the unit roundoff of this op alone. The debugger and the conformance kit
            judge the backend's numbers accordingly.
        strided: whether functions of the backend's modules mostly accept strided views as inputs and outputs. View ops
            outside the regions then cost nothing. The module states the final permission of each function
            (:attr:`byoc_core.runtime.module.CallTraits.strided`).
        finite_only: whether the backend computes on finite numbers only: results are meaningless if an input, a result
            or an intermediate value is NaN or infinite. The debugger and the conformance kit then judge no numbers.
        min_region_flops: the least floating-point operations of a region worth a call. Smaller regions stay on the
            host. A region with unknown or symbolic operations is taken.
        quantised: whether the backend computes on quantised constants. ``dequantize`` of a constant then stays in the
            module, and is not computed during preparation.
    """

    name: str
    dynamic_shapes: bool = False
    data_dependent_sizes: bool = False
    deterministic: bool = True
    native: bool = False
    options: type[BaseModel] | None = None
    constants: Literal["embedded", "lifted"] = "embedded"
    preferred_layouts: InitVar[tuple[str, ...] | None] = None
    unit_roundoff: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    strided: bool = False
    quantised: bool = False
    finite_only: bool = False
    min_region_flops: int = 0

    def __post_init__(self, preferred_layouts: tuple[str, ...] | None) -> None:
        if preferred_layouts is not None:
            warnings.warn(
                "`BackendInfo(preferred_layouts=...)` is deprecated since byoc-core 0.2 and will be removed in 0.4: "
                "omit the argument, because no pass reads the field.",
                DeprecationWarning,
                stacklevel=3,
            )


def stated_roundoff(roundoffs: Mapping[str, float], dtype: str, op: str = "") -> float:
    """Return the unit roundoff stated by a backend for a dtype or for an op on the dtype; 0 if none is stated.

    Args:
        roundoffs: see ``unit_roundoff`` of :class:`BackendInfo`.
        dtype: the dtype of the rounded values.
        op: the op's name.
    """
    return max(roundoffs.get(dtype, 0.0), roundoffs.get(f"{op}:{dtype}", 0.0))


def coarsest_roundoff(infos: Iterable[BackendInfo]) -> Mapping[str, float]:
    """Return the coarsest unit roundoff stated by any of several backends, by dtype and by op and dtype."""
    coarsest: dict[str, float] = {}
    for info in infos:
        for dtype, roundoff in info.unit_roundoff.items():
            coarsest[dtype] = max(roundoff, coarsest.get(dtype, 0.0))
    return coarsest


@dataclass(frozen=True, slots=True)
class CompileContext:
    """The information available to a backend during compilation.

    Attributes:
        backend: the backend's name.
        options: the backend's validated options; ``None`` without an options model.
        constants: arrays by digest.
        module: the module being compiled, if any.
        num_threads: the expected number of threads of a call, for estimates. Compiled code runs on any number.
        weights: for ``byoc_codegen`` and ``byoc_generated_kernels``: by function name, the numbers of the parameters
            that get a swappable weight in every call. The values are unknown, but may be rearranged before any call
            (:attr:`CodegenResult.prepared_weights`).
    """

    backend: str
    options: BaseModel | None = None
    constants: Mapping[str, NDArray] = field(default_factory=lambda: MappingProxyType({}))
    module: IRModule | None = None
    num_threads: int = 1
    weights: Mapping[str, frozenset[int]] = field(default_factory=lambda: MappingProxyType({}))

    def constant(self, constant: Constant) -> NDArray:
        """Return the read-only array of a ``Constant`` operand.

        Raises:
            CodegenError: the constant is not in the module's store.
        """
        array = self.constants.get(constant.digest)
        if array is None:
            raise CodegenError(
                f"backend `{self.backend}`", "requests a constant absent from the module", got=constant.digest
            )
        return array


@dataclass(frozen=True, slots=True)
class CodegenResult:
    """A backend's compilation result for the given functions.

    Attributes:
        module: has one function per compiled IR function, named by its ``global_symbol``, with the parameters and then
            the results as arguments, in order; ``None`` if all functions were rejected.
        constants: arrays by digest, cited by the module but not held by the IR module's store yet.
        rejections: the reason for each function rejected after all, by function name.
        lowered: modules made by the core of functions lowered by ``byoc_lower``; a hook leaves the field empty.
        prepared_weights: by function name, and by the number of a parameter in :attr:`CompileContext.weights`: a
            function of the weight alone with a single result of the weight's type, such as a packed form. The compiled
            function gets the result in place of the weight. The result is computed once for each value of the weight.
    """

    module: RuntimeModule | None
    constants: Mapping[str, NDArray] = field(default_factory=lambda: MappingProxyType({}))
    rejections: Mapping[str, Rejection] = field(default_factory=lambda: MappingProxyType({}))
    lowered: tuple[RuntimeModule, ...] = ()
    prepared_weights: Mapping[str, Mapping[int, Function]] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def modules(self) -> tuple[RuntimeModule, ...]:
        """All modules."""
        return (*self.lowered, *(() if self.module is None else (self.module,)))


@dataclass(frozen=True, slots=True)
class Estimate:
    """A backend's expected cost of a function.

    All fields but the first describe the border between the backend's device and the host. If the estimates of one
    backend differ in these fields, the costlier border counts.

    Attributes:
        seconds: time of one run with the inputs on the device; without the call.
        call_seconds: time of entering the device, whatever the inputs.
        bytes_per_second: rate of moving data to the device and back; 0 if both use the same memory.
        layout_bytes_per_second: rate of changing the layout of a value crossing the border in row-major order, although
            ops of the backend prefer another order (``byoc_layouts``); 0 if no layout changes.
        peer_bytes_per_second: rate of moving data directly to another device of the same memory
            (:attr:`~byoc_core.runtime.memory.MemoryDomain.peer_copies`); 0 by way of the host.
    """

    seconds: float
    call_seconds: float = 0.0
    bytes_per_second: float = 0.0
    layout_bytes_per_second: float = 0.0
    peer_bytes_per_second: float = 0.0
