"""Generates new backends: complete packages, ready to be changed.

``scaffold.package`` writes the packages; ``scaffold.kind`` lists the kinds, and suffices for ``--help``.
"""
