"""The offload report as one self-contained page: the graph coloured by backend or time, and the reason for each op."""

from byoc_core.reporting.page.heat import Heat, TimedOp, TimedRow
from byoc_core.reporting.page.page import render_page

__all__ = ["Heat", "TimedOp", "TimedRow", "render_page"]
