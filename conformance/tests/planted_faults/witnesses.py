"""The witnesses of all faults with a witness, by the name of the fault."""

from __future__ import annotations

from collections.abc import Mapping

from conformance.tests.planted_faults.witness import Draw
from conformance.tests.planted_faults.witnesses_of_ccompiler import WITNESSES_OF_CCOMPILER
from conformance.tests.planted_faults.witnesses_of_dnnl import WITNESSES_OF_DNNL

__all__ = ["WITNESSES"]

WITNESSES: Mapping[str, Draw] = {**WITNESSES_OF_CCOMPILER, **WITNESSES_OF_DNNL}
