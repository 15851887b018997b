"""A small backend keeping every promise, and able to break any single promise: see :mod:`fakenpu.faults`."""
