"""The report of a partitioned module: form, borders, texts, and the printed IR with comments."""

from __future__ import annotations

import itertools
import json
import random
import re
from collections.abc import Mapping
from typing import Any

import byoc_core
import pytest
from byoc_core import script as R
from byoc_core.backend import Support
from byoc_core.errors import OptionsError, PartitionError
from byoc_core.ir import IRModule
from byoc_core.ops import FunctionBuilder
from byoc_core.partitioning import REASONS, PartitionLog, PartitionOptions, build_report, partition
from byoc_core.partitioning.reporting import borders as borders_module
from byoc_core.partitioning.reporting.borders import find_borders
from byoc_core.pattern import CompositePattern, Match, Rejection, is_op, wildcard
from byoc_core.reporting.page import render_page

from core.tests.conftest import FakeBackend

MODULE = R.parse("""
def main(x: R.Tensor(("n", 4)), w: R.Tensor((3, 4))):
    a = R.nn.dense(x, w)
    b = R.nn.relu(a)
    c = R.tanh(b)
    d = R.add(b, c)
    e = R.call_packed("log", (d,), out_types=[R.Tensor(("n", 3))])
    f = R.nn.relu(e)
    g = R.add(f, d)
    return g
""")
DENSE_RELU = CompositePattern("aone.dense_relu", is_op("nn.relu")(is_op("nn.dense")(wildcard(), wildcard())))

REPORT = """
92.3% of 39 FLOPs offloaded, counting n = 1
  aone   92.3%         36 FLOPs  5 ops in 3 regions
  host    7.7%          3 FLOPs  1 op in 1 region

why ops stayed on the host:
    7.7%      1 x tanh: aone: no `tanh` here [op]

separate regions of the same backend:
  aone_main_0 and aone_main_1 stay apart: a merged region would depend on itself through `c`
  aone_main_1 and aone_main_2 stay apart: ops with effects lie between the regions: `e`
"""

SCRIPT = """
    @R.function
    def host_main_0(b: R.Tensor(("n", 3), "float32")) -> R.Tensor(("n", 3), "float32"):
        R.func_attr({"Codegen": "host", "global_symbol": "host_main_0", "source": "main"})
        c = R.tanh(b)  # host 7.7%: aone: no `tanh` here [op]
        return c

    @R.function
    def aone_main_0(x: R.Tensor(("n", 4), "float32"), w: R.Tensor((3, 4), "float32")) -> R.Tensor(("n", 3), "float32"):
        R.func_attr({"Codegen": "aone", "global_symbol": "aone_main_0", "source": "main"})
        @R.region
        def dense_relu(x: R.Tensor(("n", 4), "float32"), w: R.Tensor((3, 4), "float32")) -> R.Tensor(("n", 3), "float32"):
            a = R.nn.dense(x, w)  # aone 61.5%
            b = R.nn.relu(a)  # aone 7.7%
            return b
        b = R.composite("aone.dense_relu", (x, w), pattern="nn.dense_nn.relu_", regions=[dense_relu])  # aone 69.2%: 2 ops
        return b

    @R.function
    def aone_main_1(b: R.Tensor(("n", 3), "float32"), c: R.Tensor(("n", 3), "float32")) -> R.Tensor(("n", 3), "float32"):
        R.func_attr({"Codegen": "aone", "global_symbol": "aone_main_1", "source": "main"})
        d = R.add(b, c)  # aone 7.7%
        return d

    @R.function
    def aone_main_2(e: R.Tensor(("n", 3), "float32"), d: R.Tensor(("n", 3), "float32")) -> R.Tensor(("n", 3), "float32"):
        R.func_attr({"Codegen": "aone", "global_symbol": "aone_main_2", "source": "main"})
        f = R.nn.relu(e)  # aone 7.7%
        g = R.add(f, d)  # aone 7.7%
        return g

    @R.function
    def main(x: R.Tensor(("n", 4), "float32"), w: R.Tensor((3, 4), "float32")) -> R.Tensor(("n", 3), "float32"):
        b = aone_main_0(x, w)  # aone 69.2%: 2 ops
        c = host_main_0(b)  # host 7.7%: 1 op
        d = aone_main_1(b, c)  # aone 7.7%: 1 op
        e = R.call_packed("log", (d,), out_types=[R.Tensor(("n", 3), "float32")])
        g = aone_main_2(e, d)  # aone 15.4%: 2 ops
        return g
"""  # noqa: E501 - what is printed


@pytest.fixture
def explained(fake_backend: type[FakeBackend]) -> byoc_core.Explanation:
    """``MODULE`` for a backend claiming ``nn.dense`` only together with ``nn.relu``, and no ``tanh``."""
    return byoc_core.explain(MODULE, [fake_backend("aone", ["nn.relu", "add"], [DENSE_RELU])])


def test_the_report_as_text(explained: byoc_core.Explanation) -> None:
    assert explained.report() == REPORT.strip()


def test_the_printed_module_has_comments_and_parses_back(explained: byoc_core.Explanation) -> None:
    script = explained.to_script()
    assert script.split("class Module:\n\n")[1].rstrip() == SCRIPT.strip("\n").rstrip()
    assert R.parse(script) == explained.module


def test_build_reports_what_explain_says(fake_backend: type[FakeBackend], explained: byoc_core.Explanation) -> None:
    built = byoc_core.build(MODULE, [fake_backend("aone", ["nn.relu", "add"], [DENSE_RELU])])
    assert built.report_data == explained.report_data


TEXT, NAMES, NUMBER, FLOPS = (str,), [str], (int, float), (int, str)
REASON = {"backend": TEXT, "code": TEXT, "text": TEXT}
OP = {
    **dict.fromkeys(("function", "op", "name", "outcome", "code", "text"), TEXT),
    "region": (str, type(None)),
    "flops": FLOPS,
    "share": NUMBER,
    "inputs": NAMES,
}
FORM: dict[str, dict[str, Any]] = {
    "backends": {"name": TEXT, "regions": (int,), "ops": (int,), "flops": FLOPS, "share": NUMBER},
    "summary": {"backend": TEXT, "code": TEXT, "ops": (int,), "flops": FLOPS, "share": NUMBER, "text": TEXT},
    "regions": {
        **dict.fromkeys(("name", "backend", "function"), TEXT),
        "ops": (int,),
        "flops": FLOPS,
        "share": NUMBER,
        "inputs": NAMES,
        "outputs": NAMES,
    },
    "borders": {"before": TEXT, "after": TEXT, "code": TEXT, "ops": NAMES, "text": TEXT},
    "layouts": {"value": TEXT, "axes": [int], "producer": TEXT, "readers": NAMES},
    "links": {"function": TEXT, "name": TEXT, "reads": NAMES},
    "ops": OP,
    "sizes": dict.fromkeys(("function", "size", "kind", "where"), TEXT),
}
OPTIONAL: dict[str, dict[str, Any]] = {
    "ops": {
        "composite": TEXT,
        "outputs": NAMES,
        "reasons": [dict],
        "location": TEXT,
        "nbytes_read": FLOPS,
        "nbytes_written": FLOPS,
    },
    "regions": {"refused_by": NAMES},
    "reasons": {"pattern": TEXT, "ops": NAMES},
}


def check_item(item: Mapping[str, Any], form: Mapping[str, Any], optional: Mapping[str, Any]) -> None:
    """Check the keys and the types of an object of a report."""
    assert form.keys() <= item.keys() <= form.keys() | optional.keys()
    for key, value in item.items():
        kind = form.get(key, optional.get(key))
        if isinstance(kind, list):
            assert isinstance(value, list), key
            assert all(isinstance(part, kind[0]) for part in value), key
        else:
            assert isinstance(value, kind), key


def check_form(data: Mapping[str, Any]) -> None:
    """Check a report against the documented form."""
    assert data.keys() == {"schema", "total_flops", "offloaded_share", "counted_sizes", "num_passed_over", *FORM}
    assert data["schema"] == 2
    assert type(data["num_passed_over"]) is int
    for key, form in FORM.items():
        for item in data[key]:
            check_item(item, form, OPTIONAL.get(key, {}))
            for reason in item.get("reasons", ()):
                check_item(reason, REASON, OPTIONAL["reasons"])
    assert json.loads(json.dumps(data, allow_nan=False)) == data


def refuse_wide(match: Match) -> Rejection:
    return Rejection("wide", "is too wide")


def test_the_form_of_the_data(fake_backend: type[FakeBackend]) -> None:
    refused = CompositePattern("aone.dense_relu", DENSE_RELU.pattern, refuse_wide)
    first = fake_backend("aone", ["add", "split"], [refused], rejects={"aone_main_0": Rejection("size", "is too big")})
    module = R.parse("""
def main(x: R.Tensor(("n", 4)), w: R.Tensor((4, 4))):
    a = R.nn.dense(x, w)
    b = R.nn.relu(a)
    l, r = R.split(b, sections=(2, 2), axis=1)
    c = R.add(l, r)
    d = R.tanh(c)
    e = R.add(d, c)
    return e
""")
    data = byoc_core.explain(module, [first, fake_backend("btwo", ["split", "add"])]).report_data
    check_form(data)
    rows = {row["name"]: row for row in data["ops"]}
    assert rows["b"]["reasons"] == [
        {"backend": "aone", "code": "wide", "text": "is too wide", "pattern": "aone.dense_relu"},
        {"backend": "aone", "code": "op", "text": "no `nn.relu` here"},
        {"backend": "btwo", "code": "op", "text": "no `nn.relu` here"},
    ]
    assert (rows["l"]["outcome"], rows["l"]["outputs"], rows["l"]["inputs"]) == ("btwo", ["l", "r"], ["b"])
    assert rows["c"]["reasons"] == [{"backend": "aone", "code": "size", "text": "is too big"}]
    regions = {region["name"]: region for region in data["regions"]}
    assert regions["aone_main_0"] == {
        "name": "aone_main_0",
        "backend": "btwo",
        "function": "main",
        "ops": 2,
        "flops": "2*n",
        "share": regions["aone_main_0"]["share"],
        "inputs": ["b"],
        "outputs": ["c"],
        "refused_by": ["aone"],
    }
    assert [row["name"] for row in data["ops"]] == ["a", "b", "l", "c", "d", "e"]
    assert data["borders"] == []


def test_the_summary_counts_an_op_once_for_each_backend(fake_backend: type[FakeBackend]) -> None:
    first, second = fake_backend("aone", ["add"]), fake_backend("btwo", ["add"], dynamic_shapes=False)
    data = byoc_core.explain(MODULE, [first, second], specialize=False).report_data
    shares = {"ops": 4, "flops": "33*n", "share": 0.846154}
    texts = ("no `nn.relu` here, and 2 similar reasons", "backend `btwo` takes static shapes only")
    assert data["summary"] == [
        {"backend": "aone", "code": "op", **shares, "text": texts[0]},
        {"backend": "btwo", "code": "dynamic-shape", **shares, "text": texts[1]},
    ]


def borders(module: str, *backends: object) -> list[dict[str, Any]]:
    """Return the borders of ``main`` with four floats ``x``."""
    return list(byoc_core.explain(R.parse(module), backends).report_data["borders"])


def border(before: int, after: int, code: str, ops: list[str], text: str) -> dict[str, Any]:
    names = {"before": f"aone_main_{before}", "after": f"aone_main_{after}"}
    return {**names, "code": code, "ops": ops, "text": text}


def test_a_cycle_through_another_backend_names_the_op_by_which_it_leaves(fake_backend: type[FakeBackend]) -> None:
    module = """
def main(x: R.Tensor((4,))):
    a = R.nn.relu(x)
    b = R.tanh(a)
    c = R.sin(b)
    d = R.exp(c)
    e = R.add(a, d)
    return e
"""
    text = "a merged region would depend on itself through `c`, `d`"
    found = borders(module, fake_backend("aone", ["nn.relu", "add"]), fake_backend("btwo", ["tanh", "sin"]))
    assert found == [border(0, 1, "would-close-cycle", ["c", "d"], text)]


def test_of_a_long_cycle_the_ends_are_named(fake_backend: type[FakeBackend]) -> None:
    steps = "\n".join(f"    t{i + 1} = R.exp(t{i})" for i in range(20))
    module = f"def main(x: R.Tensor((4,))):\n    t0 = R.nn.relu(x)\n{steps}\n    c = R.add(t0, t20)\n    return c"
    (found,) = borders(module, fake_backend("aone", ["nn.relu", "add"]))
    assert found["ops"] == ["t1", "t2", "t3", "t4", "t17", "t18", "t19", "t20"]


def test_an_op_whose_size_only_the_data_tells_stays_alone(fake_backend: type[FakeBackend]) -> None:
    module = """
def main(x: R.Tensor((4,))):
    i = R.nonzero(x, out_types=[R.Tensor((1, "m"), "int64")])
    j = R.negative(i)
    return j
"""
    (found,) = borders(module, fake_backend_taking_data(fake_backend))
    assert found == border(0, 1, "data-dependent-size", ["i"], "the result sizes of `i` depend on data")


def fake_backend_taking_data(fake_backend: type[FakeBackend]) -> Any:
    """A fake backend claiming everything, data-dependent sizes included."""
    from dataclasses import replace

    backend = fake_backend("aone", supports=lambda binding: Support())
    backend._info = replace(backend._info, data_dependent_sizes=True)
    return backend


def test_borders_inside_a_body(fake_backend: type[FakeBackend]) -> None:
    module = """
def main(p: R.Tensor((), "bool"), x: R.Tensor((4,))):
    @R.region
    def then(y: R.Tensor((4,))):
        a = R.nn.relu(y)
        b = R.tanh(a)
        c = R.add(a, b)
        return c
    @R.region
    def other(y: R.Tensor((4,))):
        return y
    z = R.if_(p, x, regions=[then, other])
    return z
"""
    assert borders(module, fake_backend("aone", ["nn.relu", "add"])) == [
        border(0, 1, "would-close-cycle", ["b"], "a merged region would depend on itself through `b`")
    ]


def test_links_tell_what_control_flow_passes_on(fake_backend: type[FakeBackend]) -> None:
    module = R.parse("""
def main(p: R.Tensor((), "bool"), n: R.Tensor((), "int64"), x: R.Tensor((4,))):
    h = R.exp(x)
    @R.region
    def then(y: R.Tensor((4,))):
        a = R.nn.relu(y)
        return a
    @R.region
    def other(o: R.Tensor((4,))):
        return o
    z = R.if_(p, h, regions=[then, other])
    @R.region
    def body(i: R.Tensor((), "int64"), s: R.Tensor((4,))):
        t = R.tanh(s)
        return R.const(True, "bool"), t
    l = R.loop(n, p, z, regions=[body])
    e = R.abs(l)
    return e
""")
    data = byoc_core.explain(module, [fake_backend("aone", ["nn.relu", "tanh"])]).report_data
    check_form(data)
    assert {link["name"]: link["reads"] for link in data["links"]} == {
        "y": ["h"],
        "o": ["h"],
        "z": ["p", "a", "o"],
        "i": ["n"],
        "s": ["z"],
        "l": ["n", "p", "t"],
    }
    (text,) = re.findall(r'id="data">(.*?)</script>', render_page(data, "m"), re.DOTALL)
    nodes = json.loads(text)["ops"]
    assert {node["name"]: {nodes[source]["name"] for source in node["sources"]} for node in nodes} == {
        "h": set(),
        "a": {"h"},
        "t": {"a", "h"},
        "e": {"t"},
    }


def test_regions_annotated_by_hand_have_no_borders(fake_backend: type[FakeBackend]) -> None:
    module = """
class M:
    def one(x: R.Tensor((4,))):
        R.func_attr({"Codegen": "aone", "global_symbol": "one"})
        y = R.tanh(x)
        return y
    def two(x: R.Tensor((4,))):
        R.func_attr({"Codegen": "aone", "global_symbol": "two"})
        y = R.tanh(x)
        return y
    def main(x: R.Tensor((4,))):
        y = one(x)
        z = two(y)
        return z
"""
    data = byoc_core.explain(R.parse(module), [fake_backend("aone", None)]).report_data
    assert data["borders"] == []
    assert [(region["name"], region["function"]) for region in data["regions"]] == [("one", "one"), ("two", "two")]


def random_module(num_ops: int) -> IRModule:
    """Return a module of random elementwise ops, every second claimed."""
    builder, rng = FunctionBuilder("main"), random.Random(0)
    values = [builder.param("x", byoc_core.ir.tensor((4,)))]
    for _ in range(num_ops):
        left, right = (values[-1 - rng.randrange(min(len(values), 12))] for _ in range(2))
        op, operands = rng.choice([("add", (left, right)), ("exp", (left,))])
        values.append(builder.bind(op, operands, {}).results[0])
    return IRModule({"main": builder.finish(values[-1])}, builder.constants)


def test_searches_are_bounded_over_all(fake_backend: type[FakeBackend], monkeypatch: pytest.MonkeyPatch) -> None:
    module = partition(random_module(2_000), [fake_backend("aone", ["add"])])
    unbounded = find_borders(module, host="host")
    assert len(unbounded) > 50
    assert {item["code"] for item in unbounded} == {"would-close-cycle"}
    monkeypatch.setattr(borders_module, "_VISITS_PER_BINDING", 0)
    unknown = find_borders(module, host="host")
    assert {item["code"] for item in unknown} == {"search-limit"}
    assert [item["after"] for item in unknown] == [item["after"] for item in unbounded]


def test_what_a_border_names_closes_the_cycle(fake_backend: type[FakeBackend]) -> None:
    """Each named path leads, value by value, from one region to the other."""
    log = PartitionLog()
    module = partition(random_module(600), [fake_backend("aone", ["add"])], log=log)
    data = build_report(partition(module, ["host"], log=log), log, host="host", backends=["aone"])
    rows = {row["name"]: row for row in data["ops"]}
    assert data["borders"]
    for item in data["borders"]:
        before, path = item["before"], list(map(str, item["ops"]))
        assert all(rows[name]["region"] not in (item["before"], item["after"]) for name in path)
        if len(path) < 8 and all(rows[name]["outcome"] == "host" for name in path):
            assert any(rows[source]["region"] == before for source in rows[path[0]]["inputs"])
            assert all(first in rows[then]["inputs"] for first, then in itertools.pairwise(path))
            reading = [row for row in rows.values() if row["region"] == item["after"]]
            assert any(path[-1] in row["inputs"] for row in reading)


def test_shares_with_other_sizes(fake_backend: type[FakeBackend]) -> None:
    module = R.parse("""
def main(x: R.Tensor(("n", "m")), y: R.Tensor((4,))):
    a = R.tanh(x)
    b = R.exp(y)
    return a, b
""")
    explained = byoc_core.explain(module, [fake_backend("aone", ["tanh"])])
    assert explained.report_data["counted_sizes"] == {"m": 1, "n": 1}
    assert explained.report_data["offloaded_share"] == 0.2
    larger = explained.with_sizes(n=6, m=2)
    assert larger.report_data["offloaded_share"] == 0.75
    assert larger.report().splitlines()[0] == "75.0% of 16 FLOPs offloaded, counting m = 2, n = 6"
    assert larger.report_data["summary"][0]["share"] == 0.25
    assert [region["share"] for region in larger.report_data["regions"]] == [0.75, 0.25]
    check_form(larger.report_data)
    with pytest.raises(OptionsError) as caught:
        explained.with_sizes(batch=3)
    assert str(caught.value) == "size `batch`: no op's FLOPs depend on this size; expected m, n"


def test_a_required_share(explained: byoc_core.Explanation) -> None:
    explained.require_offload(0.9)
    with pytest.raises(PartitionError) as caught:
        explained.require_offload(0.95)
    assert str(caught.value) == (
        "offload: the offloaded share of the FLOPs is too small, counting n = 1; got 92.3%, expected at least 95%\n"
        "why ops stayed on the host:\n"
        "    7.7%      1 x tanh: aone: no `tanh` here [op]"
    )
    with pytest.raises(OptionsError) as wrong:
        explained.require_offload(90)
    assert str(wrong.value) == "required offload: is not a share; got 90, expected a number from 0 to 1"


def test_where_no_op_counts_flops_it_is_all_or_nothing(fake_backend: type[FakeBackend]) -> None:
    module = R.parse("def main(x: R.Tensor((4, 2))):\n    y = R.flip(x, axis=0)\n    return y")
    byoc_core.explain(module, [fake_backend("aone", None)]).require_offload(1)
    with pytest.raises(PartitionError, match=r"got 0.0%, expected at least 1%"):
        byoc_core.explain(module, [fake_backend("aone", [])]).require_offload(0.01)


VIEWED = """
def main(x: R.Tensor((2, 8)), y: R.Tensor((4,))):
    a = R.reshape(x, shape=(16,))
    b = R.exp(a)
    c, d = R.split(b, sections=(4, 12))
    e = R.tanh(c)
    f = R.add(e, y)
    g = R.reshape(f, shape=(2, 2))
    return d, g
"""


def test_views_belong_to_no_backend(fake_backend: type[FakeBackend]) -> None:
    explained = byoc_core.explain(R.parse(VIEWED), [fake_backend("aone", ["exp", "reshape", "split", "add"])])
    data = explained.report_data
    check_form(data)
    rows = {row["name"]: row for row in data["ops"]}
    assert list(rows) == ["a", "b", "c", "e", "f", "g"]
    assert {name: row["outcome"] for name, row in rows.items()} == {
        "a": "(view)", "b": "aone", "c": "(view)", "e": "host", "f": "aone", "g": "(view)"
    }  # fmt: skip
    view = rows["a"]
    assert (view["region"], view["code"], view["text"], view["share"]) == (None, "view", REASONS["view"], 0)
    assert rows["c"]["outputs"] == ["c", "d"]
    assert [(r["name"], r["ops"], r["inputs"], r["outputs"]) for r in data["regions"]] == [
        ("aone_main_0", 1, ["a"], ["b"]),
        ("host_main_0", 1, ["c"], ["e"]),
        ("aone_main_1", 1, ["e", "y"], ["f"]),
    ]
    assert {b["name"]: (b["ops"], b["regions"]) for b in data["backends"]} == {
        "aone": (2, 2), "host": (1, 1), "(view)": (3, 0)
    }  # fmt: skip
    assert [reason["ops"] for reason in data["summary"]] == [1]
    assert "  (view)    0.0%          0 FLOPs  3 ops" in explained.report()
    assert f"a = R.reshape(x, shape=(16,))  # (view): {REASONS['view']}" in explained.to_script()
    assert R.parse(explained.to_script()) == explained.module


def test_views_are_no_fallback_and_borders_see_through_them(fake_backend: type[FakeBackend]) -> None:
    module = R.parse("""
def main(x: R.Tensor((4,))):
    a = R.nn.relu(x)
    v = R.reshape(a, shape=(2, 2))
    t = R.tanh(v)
    c = R.add(v, t)
    return c
""")
    plain = byoc_core.explain(module, [fake_backend("aone", ["nn.relu", "reshape", "add"])])
    (border,) = plain.report_data["borders"]
    assert (border["before"], border["after"], border["ops"]) == ("aone_main_0", "aone_main_1", ["t"])
    assert next(row for row in plain.report_data["ops"] if row["name"] == "v")["outcome"] == "(view)"
    only = R.parse("def main(x: R.Tensor((4,))):\n    y = R.reshape(x, shape=(2, 2))\n    return y")
    byoc_core.explain(only, [fake_backend("aone", [])]).require_offload(1)
    byoc_core.build(only, [fake_backend("aone", [])], fallback="error")


def test_a_view_of_a_constant_is_a_constant(fake_backend: type[FakeBackend]) -> None:
    module = R.parse("""
def main(x: R.Tensor((4,))):
    w = R.reshape(R.const([[1.0, 2.0], [3.0, 4.0]], "float32"), shape=(4,))
    y = R.add(x, w)
    return y
""")
    assert [row["name"] for row in byoc_core.explain(module, [fake_backend("aone", None)]).report_data["ops"]] == ["y"]


def test_an_op_that_the_user_placed_stays_there(fake_backend: type[FakeBackend]) -> None:
    placed = PartitionOptions(force={"a": "aone", "g": "host"})
    explained = byoc_core.explain(R.parse(VIEWED), [fake_backend("aone", None)], partition_options=placed)
    outcomes = {row["name"]: row["outcome"] for row in explained.report_data["ops"]}
    assert (outcomes["a"], outcomes["g"]) == ("aone", "host")
