"""The kit: every promise of a byoc backend, tried in processes separate from pytest's."""

from byoc_conformance import BackendSuite


class TestScipy(BackendSuite):
    """All promises, for this backend. Promises broken so far go into ``xfail``, with a reason; see the kit's README."""

    backend = "scipy"
