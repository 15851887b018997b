"""Sessions of models with states: order of calls, pickles, forks, and wrong choices."""

from __future__ import annotations

import os
import pickle
from typing import Any

import numpy as np
import pytest
from byoc_core import Session
from byoc_core.errors import CallError, OptionsError

from core.tests.session.conftest import Write

JOURNAL = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[n, 2] x, float[p, 2] past_0) => (float[q, 2] present_0, float[n, 2] y) {
    present_0 = Concat<axis = 0>(past_0, x)
    y = Identity(x)
}
"""


@pytest.fixture
def session(write: Write) -> Session:
    return Session(write(JOURNAL), [], states="detect", num_threads=1)


def rows(*values: float) -> np.ndarray:
    return np.repeat(np.array(values, np.float32)[:, None], 2, axis=1)


def test_calls_in_threads_keep_their_order(session: Session) -> None:
    futures = [session.run_async(None, {"x": rows(value)}) for value in range(50)]
    for future in futures:
        future.result()
    np.testing.assert_array_equal(session.state["past_0"], rows(*range(50)))


def test_pickles_leave_the_state_behind(session: Session) -> None:
    session.run(None, {"x": rows(1, 2)})
    twin = pickle.loads(pickle.dumps(session))
    assert (session.state.length, twin.state.length) == (2, 0)
    with pytest.raises(CallError, match=r"cannot be pickled.*save"):
        pickle.dumps(session.state)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_child_forked_amid_a_call_finds_the_state_spoiled(session: Session) -> None:
    session.run(None, {"x": rows(1, 2)})
    state = session.state
    with state._hold():  # as during a call
        child = os.fork()
        if child == 0:  # pragma: no cover - another process
            try:
                state["past_0"]
            except CallError as error:
                state.reset()
                os._exit(0 if "did not end" in str(error) and state.length == 0 else 1)
            os._exit(2)
        assert os.waitpid(child, 0)[1] == 0
    np.testing.assert_array_equal(state["past_0"], rows(1, 2))


@pytest.mark.parametrize("states", ["detected", ("past_0", "present_0"), [("past_0",)], [1], 5, [("past_0", 1)]])
def test_wrong_choices_are_named(write: Write, states: Any) -> None:
    with pytest.raises(OptionsError, match=r"states: has an unknown value.*pairs of names"):
        Session(write(JOURNAL), [], states=states)
