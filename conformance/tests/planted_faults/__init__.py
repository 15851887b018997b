"""Faults planted in the lowerings of real backends, one at a time, to find the catching promise of the kit."""

from __future__ import annotations

from conformance.tests.planted_faults.fault import PlantedFault
from conformance.tests.planted_faults.faults_of_ccompiler_loops import FAULTS_OF_CCOMPILER_LOOPS
from conformance.tests.planted_faults.faults_of_ccompiler_sums import FAULTS_OF_CCOMPILER_SUMS
from conformance.tests.planted_faults.faults_of_dnnl import FAULTS_OF_DNNL

__all__ = ["FAULTS", "PlantedFault"]

FAULTS: tuple[PlantedFault, ...] = (*FAULTS_OF_CCOMPILER_LOOPS, *FAULTS_OF_CCOMPILER_SUMS, *FAULTS_OF_DNNL)
"""All faults, grouped by plugin."""
