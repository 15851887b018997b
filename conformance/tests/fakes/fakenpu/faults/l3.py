"""Faults that tests of level 3 catch."""

from __future__ import annotations

from collections.abc import Mapping

from fakenpu.faults.fault import Fault

FAULTS: Mapping[str, Fault] = {}
