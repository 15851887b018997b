"""The offload report as one self-contained page: the graph coloured by backend, and the reason for each op."""

from byoc_core.reporting.page.page import render_page

__all__ = ["render_page"]
