"""oneDNN as a byoc backend. Read in this order: ``library``, ``capi``, ``handles``, ``planner``, ``program``.

``backend`` is the compile half, ``runtime`` the run half. ``runtime`` never imports ``backend``.
"""
