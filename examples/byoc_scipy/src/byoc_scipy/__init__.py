"""The byoc backend ``scipy``.

Read in this order: ``engine``, ``patterns``, ``backend``, ``runtime``.

``engine`` and ``runtime`` are the run half, which alone is imported where an artifact runs; ``patterns``, ``options``
and ``backend`` are the compile half. Nothing need be imported by hand: byoc finds both halves by their entry points.
"""
