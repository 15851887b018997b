"""A byoc backend for OpenCL devices. Regions are compiled to OpenCL C and run in memory of the device.

The compile half is ``backend``, ``codegen`` and ``kernels``; the run half is ``runtime``, ``module``, ``device``,
``drivers``, ``source`` and ``program``. The run half never imports the compile half.
"""
