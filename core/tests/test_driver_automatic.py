"""The backends ``"auto"``: all able backends, placed by cost."""

from __future__ import annotations

import json

import pytest
from byoc_core.driver import CompileRequest

from core.tests.plugin.conftest import Site
from core.tests.tuning.conftest import site as _site

pytestmark = [pytest.mark.interpreter, pytest.mark.asks_for_plugins]

site = _site

BACKEND = """
from byoc_core.authoring.graph import GraphCodegen
from byoc_core.backend import BackendInfo, Estimate, Rejection, Status, Support
from byoc_core.backend.hooks import hookimpl

@hookimpl
def byoc_backend_info():
    return BackendInfo({name!r}, dynamic_shapes=True)

@hookimpl
def byoc_supports(binding):
    return Support()

@hookimpl
def byoc_compile_status():
    return Status({able}, "no chip", "buy a chip")

@hookimpl
def byoc_codegen(functions, context):
    return GraphCodegen().compile(functions, context)
"""
ESTIMATE = """
@hookimpl
def byoc_estimate(function):
    (binding,) = function.bindings
    return Estimate({seconds}[binding.op.name], 1e-9)
"""
MODEL = """
from byoc_core import script as R

@R.function
def main(x: R.Tensor((8, 8), "float32")):
    y = R.exp(x)
    z = R.tanh(y)
    return z
"""
BUILD = """
import json
import byoc_core
from byoc_core.partitioning import GreedyByOrder

found = {}
for name, fields in (("cost", {}), ("greedy", {"policy": GreedyByOrder()})):
    executable = byoc_core.build(byoc_core.parse(MODEL), **fields)
    found[name] = {row["op"]: row["outcome"] for row in executable.report_data["ops"]}
print(json.dumps([found, executable.request_data["backends"]]))
"""
BUILD = f"MODEL = {MODEL!r}\n{BUILD}"


def install(site: Site, name: str, seconds: dict[str, float] | None = None, *, able: bool = True) -> None:
    text = BACKEND.format(name=name, able=able) + (ESTIMATE.format(seconds=seconds) if seconds else "")
    site.install(f"byoc-{name}", f"[byoc.backends]\n{name} = byoc_{name}\n", {f"byoc_{name}": text})


def test_all_able_backends_share_the_ops_by_cost(site: Site) -> None:
    install(site, "alpha", {"exp": 1e-8, "tanh": 1e-3})
    install(site, "beta", {"exp": 1e-3, "tanh": 1e-8})
    install(site, "broken", {"exp": 1e-12, "tanh": 1e-12}, able=False)
    found, names = json.loads(site.run(BUILD, BYOC_BACKENDS="alpha,beta,broken").splitlines()[-1])
    assert found["cost"] == {"exp": "alpha", "tanh": "beta"}
    assert found["greedy"] == {"exp": "alpha", "tanh": "alpha"}
    assert names == ["alpha", "beta"]


def test_a_backend_without_estimates_does_not_win_by_silence(site: Site) -> None:
    install(site, "alpha")
    install(site, "beta", {"exp": 1e-8, "tanh": 1e-8})
    found, _ = json.loads(site.run(BUILD, BYOC_BACKENDS="alpha,beta,broken").splitlines()[-1])
    assert set(found["cost"].values()) == {"beta"}


def test_auto_is_a_request() -> None:
    request = CompileRequest(backends="auto")
    assert request.to_data()["backends"] == ["auto"]
    assert CompileRequest.from_data({"backends": ["auto"]}) == request


@pytest.mark.parametrize("chosen", ["auto", None])
def test_nobody_able_is_a_warning(site: Site, chosen: str | None) -> None:
    install(site, "broken", {"exp": 1e-12, "tanh": 1e-12}, able=False)
    script = f"""
import json, warnings
import byoc_core
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    executable = byoc_core.build(byoc_core.parse({MODEL!r}), backends={chosen!r})
print(json.dumps([sorted({{row["outcome"] for row in executable.report_data["ops"]}}), [str(w.message) for w in seen]]))
"""
    outcomes, warned = json.loads(site.run(script, BYOC_BACKENDS="broken").splitlines()[-1])
    assert outcomes == ["host"]
    assert warned == ["no installed backend can compile here, so the host takes all ops: see `byoc doctor`."]
    assert json.loads(site.run(script, BYOC_BACKENDS="none").splitlines()[-1]) == [["host"], []]
