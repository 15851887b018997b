"""Writes new backends: complete packages to change, not to fill in.

``scaffold.package`` writes them; ``scaffold.kind`` says which kinds there are, and is all that ``--help`` needs.
"""
