"""Builds and trials in other processes: contents travel once, lost requests cost themselves, doubts win nothing."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future
from importlib.util import find_spec
from typing import Any

import byoc_core
import pytest
from byoc_core.errors import OptionsError
from byoc_core.tuning.building import BuiltPlacement, PlacementBuild
from byoc_core.tuning.contents import ContentStore, MissingContentError, PackedModel
from byoc_core.tuning.trial import Trial, TrialOutcome
from byoc_core.tuning.workers import Workers, open_scheduler

from core.tests.plugin.conftest import Site

pytestmark = pytest.mark.interpreter

MODEL = """
from byoc_core import script as R

@R.function
def main(x: R.Tensor(("n", 8), "float32")):
    y = R.add(x, R.const([1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0], "float32"))
    z = R.exp(y)
    return z
"""


class Answers(Executor):
    """An executor with planned answers: a value, an exception, or nothing at all."""

    def __init__(self, *answers: object) -> None:
        self.answers = list(answers)
        self.received: list[Any] = []

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        (request,) = args
        self.received.append(request)
        answer = self.answers.pop(0)
        future: Future[Any] = Future()
        if isinstance(answer, BrokenExecutor):
            raise answer
        if isinstance(answer, Exception):
            future.set_exception(answer)
        elif answer is not None:
            future.set_result(answer)
        return future


ARTIFACTS = {"best": b"1", "one": b"2", "two": b"3"}


def outcome(ratio: float, *, agrees: bool = True) -> TrialOutcome:
    return TrialOutcome(ratio, agrees)


def model() -> PackedModel:
    return PackedModel.of(byoc_core.parse(MODEL), ())


def trial(name: str) -> Trial:
    return Trial(name, "best", name, "main", {}, 1, artifacts={name: ARTIFACTS[name]})


def build(name: str) -> PlacementBuild:
    return PlacementBuild(name, model().digest, {}, "greedy")


def workers(*answers: object, built: Sequence[object] = ()) -> tuple[Workers, Answers, Answers, list[str]]:
    runners, builders, lines = Answers(*answers), Answers(*built), list[str]()
    return Workers(runners, builders, model(), 0.05, lines.append), runners, builders, lines


def test_packed_models_are_the_same_models() -> None:
    module = byoc_core.parse(MODEL)
    packed = PackedModel.of(module, ())
    assert str(packed.unpack()) == str(module)
    assert packed.digest == PackedModel.of(packed.unpack(), ()).digest
    half = byoc_core.parse(MODEL.replace("float32", "bfloat16"))
    again = PackedModel.of(half, ()).unpack()
    assert {d: a.tobytes() for d, a in again.constants.items()} == {d: a.tobytes() for d, a in half.constants.items()}


def test_contents_travel_to_workers_without_them() -> None:
    found, runners, builders, _ = workers(
        MissingContentError("x"), outcome(0.5), outcome(0.7), built=[MissingContentError("x"), BUILT]
    )
    # The first trial is sent again behind the second.
    assert found.run([trial("one"), trial("two")], ARTIFACTS) == {"two": outcome(0.5), "one": outcome(0.7)}
    assert [set(sent.artifacts) for sent in runners.received] == [{"one"}, {"two"}, {"best", "one"}]
    assert found.build([build("one")]) == {"one": BUILT}
    assert [sent.model is not None for sent in builders.received] == [False, True]


def test_a_store_keeps_the_latest_contents() -> None:
    store: ContentStore[str] = ContentStore()
    with pytest.raises(MissingContentError, match="a"):
        store.get("a", None)
    for digest in ("a", "b", "a", "c"):
        assert store.get(digest, digest.upper) == digest.upper()
    assert store.get("a", None) == "A"
    with pytest.raises(MissingContentError, match="b"):
        store.get("b", None)


BUILT = BuiltPlacement(b"1", {"main/y": "a"})

FAILURES = [
    (ValueError("no luck"), "one: the trial is lost: ValueError: no luck"),
    (None, "one: the trial is lost: TimeoutError: no answer after 0 s"),
    (BrokenExecutor("gone"), "one: the trial is lost: BrokenExecutor: gone"),
    (42, "one: the trial is lost: the answer makes no sense"),
]


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        *FAILURES,
        (outcome(-1.0), "one: the trial is lost: the answer makes no sense"),
        (outcome(float("nan")), "one: the trial is lost: the answer makes no sense"),
        (outcome(0.1, agrees=False), "one: the results differ; the placement is left out"),
    ],
    ids=["raises", "hangs", "dies", "nonsense", "negative", "nan", "differs"],
)
def test_a_lost_trial_costs_itself_only(answer: object, text: str) -> None:
    found, _, _, lines = workers(answer, outcome(0.5))
    assert found.run([trial("one"), trial("two")], ARTIFACTS) == {"two": outcome(0.5)}
    assert lines == [text]
    assert found.is_broken == isinstance(answer, BrokenExecutor)


@pytest.mark.parametrize(("answer", "text"), FAILURES, ids=["raises", "hangs", "dies", "nonsense"])
def test_a_lost_build_costs_itself_only(answer: object, text: str) -> None:
    found, _, _, lines = workers(built=[answer, BUILT])
    assert found.build([build("one"), build("two")]) == {"two": BUILT}
    assert lines == [text]
    assert found.is_broken == isinstance(answer, BrokenExecutor)


def test_a_second_trial_confirms() -> None:
    found, _, _, _ = workers(outcome(1.2), outcome(0.9), ValueError("no luck"))
    assert not found.confirms(trial("one"), ARTIFACTS, 0.985)  # the first answer came from a disturbed machine
    assert found.confirms(trial("one"), ARTIFACTS, 0.985)
    assert not found.confirms(trial("one"), ARTIFACTS, 0.985)


def test_addresses_of_schedulers() -> None:
    for address in ("tcp://host:1", "dask://", "host:8786"):
        with pytest.raises(OptionsError, match="is no address"):
            open_scheduler(address)


BACKEND = """
import multiprocessing
import os

from byoc_core.authoring.graph import GraphCodegen
from byoc_core.backend import BackendInfo, Rejection, Support
from byoc_core.backend.hooks import hookimpl

OPS = {ops!r}

@hookimpl
def byoc_backend_info():
    return BackendInfo({name!r}, dynamic_shapes=True)

@hookimpl
def byoc_supports(binding):
    return Support() if binding.op.name in OPS else Rejection("op", "not mine")

@hookimpl
def byoc_codegen(functions, context):
    if {deadly} and multiprocessing.parent_process() is not None:
        os._exit(3)
    return GraphCodegen().compile(functions, context)
"""

SPLIT = """
from byoc_core import script as R

@R.function
def main(x: R.Tensor(("n", 8), "float32")):
    y = R.negative(x)
    z = R.exp(y)
    host = R.tanh(z)
    u = R.negative(host)
    v = R.exp(u)
    return v
"""
"""The host's op in between makes two regions: a move of a single region is a placement of no order of backends."""

TUNE = """
import json
import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import byoc_core
import numpy as np
from byoc_core.tuning import LocalProcesses, search

search._may_win = lambda *_: False  # the host is as fast as the backends
MODEL = '''@MODEL@'''

def tune(executor, builders=None):
    lines = []
    found = byoc_core.tune(
        byoc_core.parse(MODEL), ["alpha", "beta"], sizes={"n": 3}, num_threads=1, seconds=@SECONDS@,
        executor=executor, builders=builders, progress=lines.append,
    )
    x = np.ones((3, 8), np.float32)
    result = byoc_core.VirtualMachine(byoc_core.build(byoc_core.parse(MODEL), placement=found.lock))["main"](x)
    assert np.allclose(result, np.exp(-np.tanh(np.exp(-x))), rtol=1e-6)
    lost = [line for line in lines if "lost" in line or "differ" in line]
    print(json.dumps({"trials": [name for name, _ in found.trials], "lost": lost, "ops": dict(found.lock.ops)}))

if __name__ == "__main__":
@RUN@
"""

POOL = """
with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as executor:
    tune(executor)
"""

PROCESSES = """
with LocalProcesses(2) as runners, LocalProcesses(2) as builders:
    tune(runners, builders)
"""

CLUSTER = """
from distributed import LocalCluster
from byoc_core.tuning.workers import open_scheduler
with LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0") as cluster:
    executor, close = open_scheduler(cluster.scheduler_address.replace("tcp://", "dask://"))
    with LocalProcesses(1) as builders:
        tune(executor, builders)
    close()
"""


def tune_by_processes(site: Site, run: str, *, deadly: bool = False) -> Any:
    """Return the outcome of a search among two backends by other processes; a deadly backend dies while compiling."""
    for name, ops in (("alpha", ("negative", "exp")), ("beta", ("exp",))):
        entry_points = f"[byoc.backends]\n{name} = byoc_{name}\n"
        text = BACKEND.format(name=name, ops=ops, deadly=deadly)
        site.install(f"byoc-{name}", entry_points, {f"byoc_{name}": text})
    script = site.folder / "tune_model.py"
    script.write_text(
        TUNE.replace("@MODEL@", SPLIT)
        .replace("@SECONDS@", "10" if deadly else "60")
        .replace("@RUN@", textwrap.indent(run.strip(), "    "))
    )
    output = site.run(f"import runpy; runpy.run_path({str(script)!r}, run_name='__main__')")
    found = json.loads(output.splitlines()[-1])
    assert {"alpha alone", "beta alone"} <= set(found["trials"])
    assert set(found["ops"]) == {f"main/{name}" for name in ("y", "z", "host", "u", "v")}
    return found


@pytest.mark.parametrize(
    "run",
    [
        pytest.param(POOL, id="pool"),
        pytest.param(PROCESSES, id="processes"),
        pytest.param(
            CLUSTER,
            id="cluster",
            marks=pytest.mark.skipif(find_spec("distributed") is None, reason="distributed is not installed"),
        ),
    ],
)
def test_tuning_by_other_processes(site: Site, run: str) -> None:
    found = tune_by_processes(site, run)
    assert found["lost"] == []
    assert any(name.startswith("measured ops") or " to " in name for name in found["trials"]), found["trials"]


def test_builders_that_die_cost_their_trials_only(site: Site) -> None:
    found = tune_by_processes(site, PROCESSES, deadly=True)
    assert found["lost"]
    assert all("the process died with exit code 3" in line for line in found["lost"]), found["lost"]
    assert not any(" to " in name for name in found["trials"])
