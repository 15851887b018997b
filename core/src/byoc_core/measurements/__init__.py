"""Measured ops: a database of times on this machine, and estimates corrected by these times.

``byoc calibrate`` and ``byoc tune`` add to the database; :class:`byoc_core.partitioning.ByCost` reads the database.
"""

from byoc_core.measurements.calibration import Calibration
from byoc_core.measurements.database import USER_DATABASE, Measurements
from byoc_core.measurements.measurement import Measurement, merged

__all__ = ["USER_DATABASE", "Calibration", "Measurement", "Measurements", "merged"]
