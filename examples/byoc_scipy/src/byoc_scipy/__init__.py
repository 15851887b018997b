"""The byoc backend ``scipy``.

Read in this order: ``engine``, ``patterns``, ``backend``, ``runtime``.

``engine`` and ``runtime`` are the run half, imported alone to run an artifact; ``patterns``, ``options`` and
``backend`` are the compile half. No import by hand is needed: byoc finds both halves by their entry points.
"""
