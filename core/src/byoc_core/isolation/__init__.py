"""Work in a process of its own, so that what crashes or hangs there is an answer like any other."""

from byoc_core.isolation.serving import serve
from byoc_core.isolation.waiting import wait_for
from byoc_core.isolation.worker import Ended, Worker

__all__ = ["Ended", "Worker", "serve", "wait_for"]
