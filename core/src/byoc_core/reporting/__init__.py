"""Offload reports: shares of the FLOPs, the report as text and as a page, and the gate for required offload.

The data of a report is plain JSON, made during compilation and stored in an artifact. Loading and running an artifact
never reads the report, and imports nothing of this package.
"""
