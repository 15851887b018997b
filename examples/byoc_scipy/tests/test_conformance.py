"""The kit: every promise that a byoc backend makes, tried in processes apart from pytest's."""

from byoc_conformance import BackendSuite


class TestScipy(BackendSuite):
    """All of it, for this backend. What it cannot keep yet goes into ``xfail``, with a reason; see the kit's README."""

    backend = "scipy"
