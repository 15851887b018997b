"""Work in a separate process: a crash or hang there becomes an ordinary answer."""

from byoc_core.isolation.fork_server import ForkedProcess, ForkServer
from byoc_core.isolation.serving import serve
from byoc_core.isolation.waiting import wait_for
from byoc_core.isolation.worker import Ended, Worker

__all__ = ["Ended", "ForkServer", "ForkedProcess", "Worker", "serve", "wait_for"]
