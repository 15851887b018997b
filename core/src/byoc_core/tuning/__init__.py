"""Tuning: the placement of ops measured on this machine, kept in a lock file and replayed without measurement.

:func:`tune` builds a model in several placements and lets the machines race (:mod:`~byoc_core.tuning.race`). Times of
single ops, from profiles of each backend alone, lead to new placements (:mod:`~byoc_core.tuning.proposals`). The winner
of the search (:mod:`~byoc_core.tuning.search`) is a :class:`Lock` (:mod:`byoc_core.driver.lock`), the argument
``placement`` of :func:`byoc_core.build`. :func:`calibrate` measures layers of all families of ops, for placements by
cost (:mod:`byoc_core.measurements`).
"""

from byoc_core.driver.lock import Lock
from byoc_core.tuning.calibrate import CalibrationResult, calibrate
from byoc_core.tuning.local_processes import LocalProcesses
from byoc_core.tuning.result import Tuning
from byoc_core.tuning.tune import tune

__all__ = ["CalibrationResult", "LocalProcesses", "Lock", "Tuning", "calibrate", "tune"]
