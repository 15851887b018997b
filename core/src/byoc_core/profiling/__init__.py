"""Profiles: the time of each region, kernel and op in calls of a compiled model, beside the limits of the machine.

:func:`profile` runs a model and measures (:mod:`~byoc_core.profiling.measuring`), and returns a :class:`Profile`
(:mod:`~byoc_core.profiling.results`), printed as a table, a trace or a page. A backend adds the parts of its calls by
:mod:`byoc_core.runtime.parts`.
"""

from byoc_core.profiling.measuring import profile
from byoc_core.profiling.peaks import Peaks, measure_peaks
from byoc_core.profiling.results import OpName, PartProfile, Profile, RegionProfile

__all__ = ["OpName", "PartProfile", "Peaks", "Profile", "RegionProfile", "measure_peaks", "profile"]
