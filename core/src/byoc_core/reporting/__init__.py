"""Offload reports: shares of the FLOPs, the report as text and as a page, and the gate for builds that must offload.

The data of a report is plain JSON, which compiling makes and an artifact stores. Loading and running an artifact never
reads it, and imports nothing of this package.
"""
