"""The smallest honest byoc backend. Read in this order: ``graph``, ``backend``, ``runtime``.

``graph`` is the format, shared by both halves. ``backend`` compiles and is never imported on a machine only for
running models; ``runtime`` runs and never imports ``backend``.
"""
