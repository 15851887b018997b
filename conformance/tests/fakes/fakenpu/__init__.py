"""A small backend that keeps every promise, and can be made to break any one: see :mod:`fakenpu.faults`."""
