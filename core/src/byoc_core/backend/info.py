"""What the core and a backend say to each other: capabilities, answers, context, result."""

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
    from byoc_core.ir.module import IRModule

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
    """Tells whether a backend may have this name: one lower-case word."""
    return _NAME.fullmatch(name) is not None


@dataclass(frozen=True, slots=True)
class BackendInfo:
    """What a backend says of itself.

    Attributes:
        name: equal to the entry point's name; one lower-case word.
        dynamic_shapes: whether it compiles functions with symbolic sizes; if not, it is asked for static ones only, and
            a build has it compile a region for each set of sizes.
        data_dependent_sizes: whether it compiles ops whose results have sizes that only the data tells; the functions
            of its modules return such results instead of filling buffers. Such sizes are symbolic, so
            it says nothing without ``dynamic_shapes``.
        deterministic: whether equal functions give equal modules, and equal inputs equal outputs, bit for bit.
        native: whether its modules may hold native code. The conformance kit alone reads it, and holds it against the
            modules: an artifact asks its user's permission where a module says that it holds native code
            (:attr:`byoc_core.runtime.module.RuntimeModule.is_native`).
        options: pydantic model of its options, every field with a default; ``None`` where it has no options. Where
            options make its arithmetic coarser, a property ``unit_roundoff`` of the model tells, in the form of the one
            below.
        constants: ``"embedded"``: constants reach it as ``Constant`` operands; ``"lifted"``: as parameters.
        preferred_layouts: deprecated since 0.2 and ignored: no pass plans layouts by it.
        unit_roundoff: by the name of a floating-point dtype, the unit roundoff with which it computes on that dtype,
            where that is coarser than the dtype's own (``{"float32": 2**-11}`` for TF32). By the names of an op and a
            dtype (``{"exp:float32": 2**-12}``), the unit roundoff of that op alone. The debugger and the conformance
            kit judge its numbers by it.
        strided: whether functions of its modules mostly take strided views and write into them, so that ops which make
            such views cost nothing outside its regions. What a function permits in the end its module says
            (:attr:`byoc_core.runtime.module.CallTraits.strided`).
        finite_only: whether it computes on finite numbers only: its results mean nothing where an input, a result or a
            value between them is NaN or infinite. The debugger and the conformance kit judge no numbers then.
        min_region_flops: the least floating-point operations of a region that are worth a call. Smaller regions stay
            on the host; a region whose operations are not known, or depend on symbols, is taken.
        quantised: whether it computes on quantised constants: ``dequantize`` of a constant is left in the module for
            it, and not computed when the module is prepared.
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
                "leave it out, no pass reads it.",
                DeprecationWarning,
                stacklevel=3,
            )


def stated_roundoff(stated: Mapping[str, float], dtype: str, op: str = "") -> float:
    """Return the unit roundoff that a backend states for an op on a dtype, in general where none is named; 0 if none.

    Args:
        stated: see ``unit_roundoff`` of :class:`BackendInfo`.
        dtype: of what is rounded.
        op: the op's name.
    """
    return max(stated.get(dtype, 0.0), stated.get(f"{op}:{dtype}", 0.0))


def coarsest_roundoff(infos: Iterable[BackendInfo]) -> Mapping[str, float]:
    """Return the coarsest unit roundoff that any of several backends states, by dtype and by op and dtype."""
    coarsest: dict[str, float] = {}
    for info in infos:
        for dtype, stated in info.unit_roundoff.items():
            coarsest[dtype] = max(stated, coarsest.get(dtype, 0.0))
    return coarsest


@dataclass(frozen=True, slots=True)
class CompileContext:
    """What a backend may ask for while it compiles.

    Attributes:
        backend: its name.
        options: its validated options; ``None`` where it has no options model.
        constants: arrays by digest.
        module: the module being compiled, where there is one.
    """

    backend: str
    options: BaseModel | None = None
    constants: Mapping[str, NDArray] = field(default_factory=lambda: MappingProxyType({}))
    module: IRModule | None = None

    def constant(self, constant: Constant) -> NDArray:
        """Gives the read-only array that a ``Constant`` operand stands for.

        Raises:
            CodegenError: the constant is not in the module's store.
        """
        array = self.constants.get(constant.digest)
        if array is None:
            raise CodegenError(
                f"backend `{self.backend}`", "asks for a constant that is not there", got=constant.digest
            )
        return array


@dataclass(frozen=True, slots=True)
class CodegenResult:
    """What a backend made of the functions it was given.

    Attributes:
        module: has one function per compiled IR function, named by its ``global_symbol``, that takes the parameters
            and then the results, in order; ``None`` where all were rejected.
        constants: arrays by digest that the module cites and the IR module's store does not hold yet.
        rejections: for each function that it cannot compile after all, by function name, the reason.
    """

    module: RuntimeModule | None
    constants: Mapping[str, NDArray] = field(default_factory=lambda: MappingProxyType({}))
    rejections: Mapping[str, Rejection] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a backend expects a function to cost.

    The two last fields speak of the border between the backend's device and the host; where the estimates of one
    backend differ there, the costlier border counts.

    Attributes:
        seconds: of running it once, its inputs being on the device; without the call.
        call_seconds: of entering the device, whatever goes in.
        bytes_per_second: of moving data to the device and back; 0 where both work on the same memory.
    """

    seconds: float
    call_seconds: float = 0.0
    bytes_per_second: float = 0.0
