"""Sessions with buckets of sizes, and checks of inputs without a run."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import byoc_core
import numpy as np
import pytest
from byoc_core import Session
from byoc_core.errors import CallError, OptionsError
from byoc_core.session.buckets import relative_difference
from hypothesis import given
from hypothesis import strategies as st

from core.tests.session.conftest import Write

SHIFT = np.array([1, -2, 3], np.float32)

MEAN_OF_VISIBLE = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[batch, length, 2] x, int64[batch, length] mask) => (float[batch, 2] mean, float[batch, length, 2] shown) {
    floats = Cast<to = 1>(mask)
    last = Constant<value = int64[1] {2}>()
    column = Unsqueeze(floats, last)
    shown = Mul(x, column)
    one = Constant<value = int64[1] {1}>()
    total = ReduceSum<keepdims = 0>(shown, one)
    count = ReduceSum<keepdims = 0>(column, one)
    mean = Div(total, count)
}
"""


class WatchedCall:
    """A function of a machine that keeps the shapes of its inputs."""

    def __init__(self, call: Any) -> None:
        self.call = call
        self.shapes: list[dict[str, tuple[int, ...]]] = []

    def run(self, feeds: Any, out: Any = None, state: Any = None) -> Any:
        self.shapes.append({name: array.shape for name, array in feeds.items()})
        return self.call.run(feeds, out, state)


def watch(session: Session) -> WatchedCall:
    watched = WatchedCall(session.__dict__["_call"])
    session.__dict__["_call"] = watched
    return watched


@pytest.fixture(scope="module")
def affine() -> tuple[Session, Session]:
    """Return sessions of one row-wise model, without and with buckets."""
    module = byoc_core.parse("""
@R.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", 3), "float32"), shift: R.Tensor((3,), "float32")):
        y = R.add(x, shift)
        total = R.sum(y, axis=(1,))
        return y, total
""")
    return Session(module, []), Session(module, [], buckets={"n": [8, 2, 5]})


@given(st.integers(0, 12))
def test_rows_are_those_of_the_exact_size(affine: tuple[Session, Session], n: int) -> None:
    x = np.random.default_rng(n).standard_normal((n, 3)).astype(np.float32)
    plain, bucketed = affine
    for exact, found in zip(plain.run(None, {"x": x, "shift": SHIFT}), bucketed(x, SHIFT).values(), strict=True):
        assert found.flags.c_contiguous
        np.testing.assert_array_equal(found, exact)


def test_the_machine_gets_sizes_of_buckets_only(affine: tuple[Session, Session]) -> None:
    session = pickle.loads(pickle.dumps(affine[1]))
    watched = watch(session)
    for n in range(10):
        session.run(None, {"x": np.ones((n, 3), np.float32), "shift": SHIFT})
    assert [shapes["x"][0] for shapes in watched.shapes] == [0, 2, 2, 5, 5, 5, 8, 8, 8, 9]


def test_results_go_into_given_buffers(affine: tuple[Session, Session]) -> None:
    session = affine[1]
    feeds = {"x": np.ones((3, 3), np.float32), "shift": SHIFT}
    y = np.empty((3, 3), np.float32)
    found = session.run(None, feeds, out={session.outputs[0].name: y})
    assert found[0] is y
    np.testing.assert_array_equal(y, feeds["x"] + SHIFT)
    with pytest.raises(CallError, match="wrong shape"):
        session.run(None, feeds, out={session.outputs[0].name: np.empty((5, 3), np.float32)})
    with pytest.raises(CallError, match="no output `nothing`"):
        session.run(None, feeds, out={"nothing": y})


@pytest.mark.parametrize(("padding", "is_right"), [({}, True), ({"mask": 1}, False), ({"mask": "edge"}, False)])
def test_hidden_steps_have_no_effect(write: Write, padding: dict[str, Any], *, is_right: bool) -> None:
    model = write(MEAN_OF_VISIBLE)
    generator = np.random.default_rng(0)
    feeds = {"x": generator.standard_normal((3, 5, 2)).astype(np.float32), "mask": np.ones((3, 5), np.int64)}
    session = Session(model, [], buckets={"length": [8], "batch": [4]}, padding={"x": "edge", **padding})
    (mean, shown), expected = session.run(None, feeds), Session(model, []).run(None, feeds)
    assert (mean.shape, shown.shape) == ((3, 2), (3, 5, 2))
    np.testing.assert_array_equal(shown, expected[1])
    differences = session.compare_buckets(feeds)
    assert differences["shown"] == 0
    assert np.allclose(mean, expected[0]) == (differences["mean"] < 1e-5) == is_right


def test_warming_up_prepares_the_buckets(write: Write) -> None:
    session = Session(write(MEAN_OF_VISIBLE), [], buckets={"length": [4, 8], "batch": [1, 2]})
    watched = watch(session)
    session.warm_up()
    assert [shapes["mask"] for shapes in watched.shapes] == [(1, 4), (2, 4), (1, 8), (2, 8)]
    watched.shapes.clear()
    session.warm_up({"mask": np.ones((2, 7), np.int64)})
    session.warm_up(length=3)
    assert [shapes["mask"] for shapes in watched.shapes] == [(2, 8), (1, 4), (2, 4)]


def test_sizes_computed_from_symbols_are_padded() -> None:
    module = byoc_core.parse("""
@R.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n",), "float32"), y: R.Tensor(("2*n",), "float32"), z: R.Tensor(("9 - n",), "float32")):
        a = R.nn.relu(y)
        b = R.nn.relu(x)
        c = R.nn.relu(z)
        return a, b, c
""")
    feeds = {"x": np.ones(3, np.float32), "y": np.ones(6, np.float32), "z": np.ones(6, np.float32)}
    assert [found.shape for found in Session(module, [], buckets={"n": [3]}).run(None, feeds)] == [(6,), (3,), (6,)]
    with pytest.raises(CallError, match=r"input 2 `z`.*a size falls as the size of a symbol rises"):
        Session(module, [], buckets={"n": [4]}).run(None, feeds)


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"buckets": {"lenght": [8]}}, "`lenght` is no size of the inputs.*length"),
        ({"buckets": {"length": []}}, "buckets of `length`.*are empty"),
        ({"buckets": {"length": [4, 0]}}, "buckets of `length`.*hold no size.*0"),
        ({"buckets": {"length": "8"}}, "hold no size.*'8'"),
        ({"buckets": [8]}, "not given by symbol"),
        ({"buckets": []}, "not given by symbol"),
        ({"buckets": {"length": [8]}, "padding": {"x": 1e40}}, "padding of `x`.*no number of float32.*1e"),
        ({"buckets": {"length": [8]}, "padding": {"x": 1j}}, "padding of `x`.*no number of float32"),
        ({"padding": {"mask": 1}}, "padding.*needs buckets"),
        ({"buckets": {"length": [8]}, "padding": {"mosk": 1}}, "`mosk` is no input.*mask"),
        ({"buckets": {"length": [8]}, "padding": {"mask": 0.5}}, "padding of `mask`.*no number of int64.*0.5"),
        ({"buckets": {"length": [8]}, "padding": {"mask": [1, 2]}}, "padding of `mask`.*no number of int64"),
        ({"buckets": {"length": [8]}, "padding": {"mask": "mirror"}}, "padding of `mask`.*'mirror'.*'edge'"),
        ({"buckets": {"length": [8]}, "padding": [1]}, "padding.*not given by input"),
    ],
)
def test_wrong_choices_are_named(write: Write, choices: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionsError, match=f"(?s){message}"):
        Session(write(MEAN_OF_VISIBLE), [], **choices)


def test_results_that_cannot_be_cut_are_named(write: Write, tmp_path: Path) -> None:
    positions = '<ir_version: 8, opset_import: ["" : 17]> g (float[n] x) => (int64[1, k] y) { y = NonZero(x) }'
    with pytest.raises(OptionsError, match="output `y` cannot be cut"):
        Session(write(positions), [], buckets={"n": [8]})
    with pytest.raises(OptionsError, match="not chosen for this session"):
        Session(write(positions, "second.onnx"), []).compare_buckets({"x": np.ones(3, np.float32)})


def test_states_are_not_padded(write: Write) -> None:
    counter = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[n] x, float[1] past) => (float[1] present) { total = ReduceSum<keepdims = 1>(x) present = Add(past, total) }
"""
    with pytest.raises(OptionsError, match="are not for models with states"):
        Session(write(counter), [], states=[("past", "present")], buckets={"n": [8]})
    session = Session(write(counter), [], states=[("past", "present")])
    session.run(None, {"x": np.ones(3, np.float32)})
    session.warm_up(n=[1, 5])  # on a state of its own
    assert session.state["past"] == 3


def test_strings_are_not_padded(write: Write) -> None:
    identity = '<ir_version: 8, opset_import: ["" : 17]> g (string[n] x) => (string[n] y) { y = Identity(x) }'
    with pytest.raises(OptionsError, match="`x` is no tensor, and cannot be padded"):
        Session(write(identity), [], buckets={"n": [8]})


def test_inputs_are_checked_without_a_run(write: Write) -> None:
    session = Session(write(MEAN_OF_VISIBLE), [])
    watched = watch(session)
    x, mask = np.ones((2, 5, 2), np.float32), np.ones((2, 5), np.int64)
    assert session.check({"x": x, "mask": mask}) == {"batch": 2, "length": 5}
    for feeds, message in (
        ({"x": x}, "`mask` is missing"),
        ({"x": x, "mosk": mask}, "no input `mosk`"),
        ({"x": x, "mask": mask[:, :4]}, "input 1 `mask`.*wrong size"),
        ({"x": x.astype(np.float64), "mask": mask}, "input 0 `x`.*dtype"),
    ):
        with pytest.raises(CallError, match=message):
            session.check(feeds)
    assert not watched.shapes


@pytest.mark.parametrize(
    ("found", "expected", "difference"),
    [
        ([1.0, 2.0], [1.0, 2.0], 0.0),
        ([1.0, 3.0], [1.0, 4.0], 0.25),
        ([np.nan, np.inf], [np.nan, np.inf], 0.0),
        ([np.nan, 1.0], [1.0, 1.0], np.inf),
        ([1.0], [np.inf], np.inf),
        ([np.inf, 1.0], [np.inf, 1.5], 1 / 3),
        ([-np.inf], [np.inf], np.inf),
        ([1.0], [0.0], np.inf),
        ([], [], 0.0),
    ],
)
def test_differences_of_results(found: list[float], expected: list[float], difference: float) -> None:
    assert relative_difference(np.array(found), np.array(expected)) == difference
