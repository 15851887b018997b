"""``build()`` and ``explain()`` under constraints: constraints hold to the end, whatever codegen refuses."""

from __future__ import annotations

from typing import Any

import byoc_core
import numpy as np
import pytest
from byoc_core import script as R
from byoc_core.backend import Rejection, Status
from byoc_core.errors import OptionsError, PartitionError
from byoc_core.partitioning import PartitionOptions

from core.tests.conftest import FakeBackend

pytestmark = pytest.mark.asks_for_plugins

MODULE = R.parse("""
def main(x: R.Tensor((4,))):
    a = R.tanh(x)
    b = R.exp(a)
    c = R.nn.relu(b)
    return c
""")
TOO_LARGE = {"*": Rejection("too-large", "does not fit")}


def places(result: byoc_core.Executable | byoc_core.Explanation) -> dict[str, str]:
    return {row["name"]: row["outcome"] for row in result.report_data["ops"]}


def run(executable: byoc_core.Executable) -> Any:
    return byoc_core.VirtualMachine(executable)["main"](np.linspace(-1, 1, 4, dtype=np.float32))


EXPECTED = np.exp(np.tanh(np.linspace(-1, 1, 4, dtype=np.float32)))


def test_build_and_explain_keep_to_constraints(fake_backend: type[FakeBackend]) -> None:
    two = [fake_backend("aone", None), fake_backend("btwo", None)]
    options = PartitionOptions(force={"b": "btwo"}, allow={"aone": ["tanh"]})
    executable = byoc_core.build(MODULE, two, partition_options=options)
    assert places(executable) == {"a": "aone", "b": "btwo", "c": "btwo"}
    assert places(byoc_core.explain(MODULE, two, partition_options=options)) == places(executable)
    np.testing.assert_allclose(run(executable), EXPECTED, rtol=1e-6)


def test_what_the_user_keeps_on_the_host_is_no_fallback(fake_backend: type[FakeBackend]) -> None:
    one = [fake_backend("aone", None)]
    forced = PartitionOptions(force={"c": "host"})
    assert places(byoc_core.build(MODULE, one, fallback="error", partition_options=forced))["c"] == "host"
    stopped = PartitionOptions(stop_at=["a"])
    executable = byoc_core.build(MODULE, one, fallback="error", partition_options=stopped)
    assert places(executable) == {"a": "aone", "b": "host", "c": "host"}
    with pytest.raises(PartitionError) as caught:
        byoc_core.build(
            MODULE, one, fallback="error", partition_options=PartitionOptions(allow={"aone": ["t*", "exp"]})
        )
    assert caught.value.problem == "1 ops with 33.3% of the FLOPs stay on the host"


def test_a_refused_region_is_not_handed_to_a_backend_that_the_user_excludes(fake_backend: type[FakeBackend]) -> None:
    refusing, other, third = (
        fake_backend("aone", None, rejects=TOO_LARGE),
        fake_backend("btwo", None),
        fake_backend("cthree", None),
    )
    for options in (PartitionOptions(allow={"btwo": ["add"]}), PartitionOptions(allow={"btwo": []})):
        executable = byoc_core.build(MODULE, [refusing, other, third], partition_options=options)
        assert set(places(executable).values()) == {"cthree"}
        executable = byoc_core.build(MODULE, [refusing, other], partition_options=options)
        assert set(places(executable).values()) == {"host"}
        np.testing.assert_allclose(run(executable), EXPECTED, rtol=1e-6)


def test_a_forced_op_that_codegen_refuses_is_an_error(fake_backend: type[FakeBackend]) -> None:
    backends = [fake_backend("aone", None, rejects=TOO_LARGE), fake_backend("btwo", None)]
    with pytest.raises(PartitionError) as caught:
        byoc_core.build(MODULE, backends, partition_options=PartitionOptions(force={"b": "aone"}))
    problem = "is forced to `aone`, but the backend refuses the op (too-large): does not fit"
    assert str(caught.value) == f"op `exp` at `b` of function `main`: {problem}"


def test_an_op_forced_to_a_backend_that_cannot_compile_here_is_an_error(fake_backend: type[FakeBackend]) -> None:
    missing = fake_backend("aone", None, status=Status(False, "npucc is missing", "Install npucc."))
    for others in ([], [fake_backend("btwo", None)]):
        with pytest.raises(PartitionError) as caught, pytest.warns(UserWarning, match="npucc is missing"):
            byoc_core.build(MODULE, [missing, *others], partition_options=PartitionOptions(force={"b": "aone"}))
        assert str(caught.value) == (
            "op `exp` at `b` of function `main`: is forced to `aone`, but the backend refuses the op (unavailable): "
            "cannot compile here: npucc is missing. Install npucc"
        )


def test_ops_forced_away_from_a_backend_that_cannot_compile_here_say_so(fake_backend: type[FakeBackend]) -> None:
    missing = fake_backend("aone", None, status=Status(False, "npucc is missing"))
    with pytest.warns(UserWarning, match="npucc is missing"):
        executable = byoc_core.build(MODULE, [missing], partition_options=PartitionOptions(force={"b": "host"}))
    texts = {row["name"]: row["text"] for row in executable.report_data["ops"]}
    assert texts["a"] == "aone: cannot compile here: npucc is missing"
    assert texts["b"] == "aone: the user forces the op to `host`"


def test_wishes_are_checked_even_where_nothing_is_offloaded() -> None:
    with pytest.raises(OptionsError) as caught:
        byoc_core.build(MODULE, [], partition_options=PartitionOptions(force={"b": "aone"}))
    assert str(caught.value) == "force `b`: no backend `aone` takes part; expected host"
    with pytest.raises(OptionsError) as caught:
        byoc_core.build(MODULE, [], partition_options=PartitionOptions(stop_at=["zz"]))
    assert str(caught.value) == "stop_at `zz`: matches no op. `byoc explain` prints the names."
    byoc_core.build(MODULE, [], partition_options=PartitionOptions(force={"b": "host"}, min_ops=9))


def test_independent_claims_share_a_region_by_option(fake_backend: type[FakeBackend]) -> None:
    module = R.parse("""
def main(x: R.Tensor((4,))):
    a = R.tanh(x)
    b = R.sin(x)
    c = R.exp(a)
    d = R.exp(b)
    return c, d
""")
    for sideways, count in ((False, 2), (True, 1)):
        options = PartitionOptions(sideways=sideways)
        executable = byoc_core.build(module, [fake_backend("aone", ["exp"])], partition_options=options)
        assert len({row["region"] for row in executable.report_data["ops"] if row["outcome"] == "aone"}) == count
