"""Differential debugging: each region on its backend and on the reference kernels, with the same inputs.

:func:`debug_model` checks the regions of a model, for ``byoc debug``. The conformance kit judges backends by the same
calls, references and tolerances (:func:`call_region`, :class:`References`, :func:`compare_outputs`).
"""

from byoc_core.debugging.calling import CallOutcome, call_region
from byoc_core.debugging.checking import check_region
from byoc_core.debugging.comparing import References, Tolerance, compare_outputs
from byoc_core.debugging.compiling import CompiledRegion
from byoc_core.debugging.findings import REGION_FINDING_CODES, OutputError, RegionCheck, RegionFinding
from byoc_core.debugging.narrowing import Guilt
from byoc_core.debugging.report import DebugReport, FailingCase, RegionReport
from byoc_core.debugging.reproducing import save_reproducers
from byoc_core.debugging.session import debug_model, signature_of
from byoc_core.renamed import deprecated_name
from byoc_core.runtime.array_files import load_arrays, save_arrays

__all__ = [
    "REGION_FINDING_CODES",
    "CallOutcome",
    "CompiledRegion",
    "DebugReport",
    "FailingCase",
    "Guilt",
    "OutputError",
    "References",
    "RegionCheck",
    "RegionFinding",
    "RegionReport",
    "Tolerance",
    "call_region",
    "check_region",
    "compare_outputs",
    "debug_model",
    "load_arrays",
    "save_arrays",
    "save_reproducers",
    "signature_of",
]

_NEW_NAMES = {"CODES": "REGION_FINDING_CODES", "Finding": "RegionFinding"}


def __getattr__(name: str) -> object:
    if name not in _NEW_NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    deprecated_name(f"{__name__}.{name}", f"{__name__}.{_NEW_NAMES[name]}")
    return globals()[_NEW_NAMES[name]]
