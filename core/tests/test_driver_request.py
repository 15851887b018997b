"""Requests: read from files and printed back, errors located by path, recorded in artifacts."""

from __future__ import annotations

import inspect
import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import byoc_core
import pytest
from byoc_core import script as R
from byoc_core.backend import BackendHandle, Backends
from byoc_core.backend.options import path_options
from byoc_core.driver import INSERTION_POINTS, Compiler, CompileRequest, RequestFields, gather_request
from byoc_core.driver.lock import Lock
from byoc_core.driver.references import PassReference
from byoc_core.errors import OptionsError
from byoc_core.ir import IRModule
from byoc_core.partitioning import ByCost, GreedyByOrder, MachineModel, PartitionOptions
from byoc_core.partitioning.policies import PlacedOps
from byoc_core.transform import FoldConstants
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, FilePath

from core.tests.conftest import FakeBackend

MODULE = R.parse("""
def main(x: R.Tensor((2, 4))):
    a = R.nn.relu(x)
    b = R.tanh(a)
    return b
""")
NAMED = "byoc_core.transform:FoldConstants"

# TOML and JSON hold any text that has a UTF-8 form; names of ops must not be empty.
TEXTS = st.text(st.characters(codec="utf-8"), max_size=6)
NAMES = st.lists(st.text(st.characters(codec="utf-8"), min_size=1, max_size=6), max_size=2)
SIZES = st.dictionaries(TEXTS, st.integers(0, 9), max_size=2)
VALUES = st.recursive(
    st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXTS, inner, max_size=2),
    max_leaves=4,
)
MACHINES = st.builds(MachineModel, st.floats(1, 1e12), st.floats(1, 1e12), st.floats(0, 1))
CONSTRAINTS = st.builds(
    PartitionOptions,
    force=st.dictionaries(TEXTS, TEXTS, max_size=2),
    stop_at=NAMES,
    devices=st.dictionaries(TEXTS, st.integers(0, 9), max_size=2),
    devices_from=st.dictionaries(TEXTS, st.integers(0, 9), max_size=2),
    allow=st.dictionaries(TEXTS, NAMES, max_size=2),
    min_ops=st.integers(0, 5),
    min_bytes=st.integers(0, 5),
    sideways=st.booleans(),
    backend_limits=st.booleans(),
)
POLICIES = st.one_of(
    st.none(),
    st.just(GreedyByOrder()),
    st.builds(
        ByCost,
        sizes=SIZES,
        machines=st.dictionaries(TEXTS, MACHINES, max_size=2),
        measured=st.dictionaries(TEXTS, st.dictionaries(TEXTS, st.floats(0, 1), max_size=2), max_size=2),
        border_seconds=st.tuples(st.floats(0, 1), st.floats(0, 1)),
    ),
    st.builds(PlacedOps, st.dictionaries(TEXTS, TEXTS, max_size=3)),
)
PLACEMENTS = st.none() | st.just(Path("some/model.lock"))
WAYS_TO_PLACE = st.tuples(POLICIES, st.none()) | st.tuples(st.none(), PLACEMENTS)
REQUESTS = st.builds(
    lambda way, **fields: CompileRequest(policy=way[0], placement=way[1], **fields),
    way=WAYS_TO_PLACE,
    backends=st.lists(TEXTS, max_size=3),
    options=st.dictionaries(TEXTS, st.dictionaries(TEXTS, VALUES, max_size=2), max_size=2),
    fallback=st.sampled_from(["allow", "warn", "error"]),
    strict=st.booleans(),
    partition_options=CONSTRAINTS,
    max_fold_cost=st.none() | st.integers(0, 1 << 40),
    specialize=st.booleans() | st.lists(SIZES, max_size=2),
    passes=st.dictionaries(
        st.sampled_from(INSERTION_POINTS), st.lists(st.just(PassReference.load(NAMED, "")), max_size=2), max_size=3
    ),
    dump=st.none() | st.just(Path("some/folder")),
)


@given(form=st.sampled_from(["toml", "json"]), request_=REQUESTS)
def test_what_is_printed_reads_back_as_an_equal_request(
    tmp_path_factory: pytest.TempPathFactory, form: str, request_: CompileRequest
) -> None:
    path = tmp_path_factory.mktemp("requests") / f"build.{form}"
    path.write_bytes((request_.to_toml() if form == "toml" else request_.to_json()).encode())
    assert CompileRequest.from_file(path) == request_


def read(tmp_path: Path, text: str, name: str = "build.toml") -> CompileRequest:
    (tmp_path / name).write_text(text, encoding="utf-8")
    return CompileRequest.from_file(tmp_path / name)


def test_a_file_says_what_keywords_say(tmp_path: Path) -> None:
    text = """
backends = ["first", "second"]
fallback = "error"
policy = {name = "cost", sizes = {n = 8}, machines = {host = {flops_per_second = 1e9, bytes_per_second = 2e9}}}
specialize = [{n = 1}, {n = 8}]
dump = "passes"

[options.first]
opt_level = 3

[partition]
min_ops = 2
allow = {second = ["add", "nn.*"]}

[passes]
after_partition = ["byoc_core.transform:FoldConstants"]
"""
    found = read(tmp_path, text)
    (transform,) = found.passes["after_partition"]
    assert isinstance(transform, PassReference)
    assert transform.transform == FoldConstants()
    assert found == CompileRequest(
        backends=("first", "second"),
        options={"first": {"opt_level": 3}},
        fallback="error",
        policy=ByCost({"n": 8}, {"host": MachineModel(1e9, 2e9)}),
        partition_options=PartitionOptions(min_ops=2, allow={"second": ("add", "nn.*")}),
        specialize=({"n": 1}, {"n": 8}),
        passes={"after_partition": [transform]},
        dump=Path("passes"),
    )


ERRORS = {
    '[partition]\nmin_ops = "x"': 'partition.min_ops: is not an integer; got "x"',
    "[partition]\nmin_ops = true": "partition.min_ops: is not an integer; got True",
    "[partition]\nmin_ops = -1": "partition.min_ops: is not a valid limit; got -1, expected an integer of 0 or more",
    "[partition]\nmin_opz = 1": "partition.min_opz: is unknown; expected force, stop_at, devices, "
    "devices_from, allow, min_ops, min_flops, "
    "min_bytes, sideways, backend_limits. Did you mean 'min_ops' or 'min_flops'?",
    '[partition]\nallow = {a = "x"}': 'partition.allow.a: is not a list; got "x"',
    "[partition]\nforce = {a = 3}": "partition.force.a: is not a string; got 3",
    "partition = 3": "partition: is not a table; got 3",
    'backend = ["x"]': "backend: is unknown; expected backends, options, fallback, strict, policy, placement, "
    "partition, max_fold_cost, specialize, passes, dump. Did you mean 'backends'?",
    'backends = "x"': "backends: is a single string; got 'x', expected ['x']",
    "backends = [3]": "backends[0]: is not a backend name; got 3",
    "options.first = 3": "options.first: is not a table; got 3",
    'fallback = "never"': "fallback: has an unknown value; got 'never', expected allow or warn or error",
    'strict = "yes"': 'strict: is not a bool; got "yes"',
    'policy = "costs"': "policy: is not a policy; got 'costs', expected greedy or cost or placed. Did you mean 'cost'?",
    'policy = {name = "cots"}': (
        "policy.name: is not a policy; got 'cots', expected greedy or cost or placed. Did you mean 'cost'?"
    ),
    'policy = {name = "cost", sizez = {}}': "policy.sizez: is unknown; expected sizes, machines, "
    "measured, border_seconds, margin, measurements, num_threads. Did you mean 'sizes'?",
    'policy = {name = "cost", measured = {a = {"main/b" = -1.0}}}': "policy, ByCost: has a bad number of seconds; "
    "expected finite numbers, 0 or more",
    'policy = {name = "cost", border_seconds = [1.0]}': "policy.border_seconds[1]: is missing",
    'policy = {name = "placed", ops = {"main/a" = 3}}': "policy.ops.main/a: is not a string; got 3",
    'policy = {name = "placed", ops = 3}': "policy.ops: is not a table; got 3",
    "placement = 3": "placement: is neither a lock nor the path of a lock; got 3",
    'placement = "a.lock"\npolicy = "cost"': "placement: is given beside `policy`; expected a single way to place ops",
    'policy = {name = "cost", sizes = {n = "x"}}': 'policy.sizes.n: is not an integer; got "x"',
    'policy = {name = "cost", machines = {host = {flops_per_second = 1}}}': "policy.machines.host.bytes_per_second: "
    "is missing",
    'policy = {name = "cost", sizes = {n = -1}}': "policy, ByCost, size `n`: has a bad value; got -1, expected an int, "
    "0 or more",
    "max_fold_cost = -1": "max_fold_cost: is negative; got -1",
    'max_fold_cost = "3"': 'max_fold_cost: is not an integer; got "3"',
    "specialize = 3": 'specialize: is not a list of sets of sizes; got 3, expected [{"n": 1}, {"n": 8}]',
    "dump = 3": "dump: is not a path; got 3",
    "passes = 3": "passes: is not a mapping from stages; got 3, expected {'after_partition': [...]}",
    "passes.after = []": "passes.after: is not a stage; expected before_partition, after_partition, after_codegen",
    'passes.after_codegen = "x"': "passes.after_codegen: is not a list of passes; got 'x'",
    'passes.after_codegen = ["x"]': "passes.after_codegen[0]: is not a reference to a pass; got 'x', "
    "expected package.module:NAME",
    'passes.after_codegen = ["x.y:z"]': "passes.after_codegen[0]: cannot be imported: ModuleNotFoundError: No module "
    "named 'x'; got 'x.y:z'",
    'passes.after_codegen = ["math:pi"]': "passes.after_codegen[0]: is not a pass; got 'math:pi', expected a callable "
    "from module to module",
    "x =": "is malformed TOML: Invalid value (at end of document)",
}


@pytest.mark.parametrize("text", ERRORS)
def test_what_is_wrong_in_a_file_is_told_with_its_path(tmp_path: Path, text: str) -> None:
    with pytest.raises(OptionsError) as caught:
        read(tmp_path, text)
    assert str(caught.value).removeprefix(f"{tmp_path}/") == f"build.toml: {ERRORS[text]}"


def test_malformed_json_is_told(tmp_path: Path) -> None:
    with pytest.raises(OptionsError, match=r"build\.json: is malformed JSON: Expecting property name"):
        read(tmp_path, "{", "build.json")


def nothing(module: IRModule) -> IRModule:
    return module


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (
            CompileRequest(backends=["host", FakeBackend("aone")]),
            "backends[1]: is an object; files hold only names and plain values; got core.tests.conftest:FakeBackend",
        ),
        (
            CompileRequest(policy=lambda module, request: module),
            "policy: is an object; files hold only names and plain values; got core.tests.test_driver_request:<lambda>",
        ),
        (
            CompileRequest(passes={"after_codegen": [nothing]}),
            (
                "passes.after_codegen[0]: is an object; files hold only names and plain values; got "
                "core.tests.test_driver_request:nothing"
            ),
        ),
        (
            CompileRequest(placement=Lock(["a"], {})),
            "placement: is an object; files hold only names and plain values; got byoc_core.driver.lock:Lock",
        ),
        (CompileRequest(options={"a": {"b": object}}), "options.a.b: cannot be written as TOML; got <class 'object'>"),
    ],
)
def test_objects_are_not_printed(request_: CompileRequest, text: str) -> None:
    with pytest.raises(OptionsError) as caught:
        request_.to_toml()
    assert str(caught.value) == text


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"passes": {"after_codegen": [FoldConstants]}}, "is a class; got FoldConstants, expected an instance: "),
        ({"passes": {"after_codegen": ["a:b"]}}, "is not a pass; got 'a:b', expected a callable from module to module"),
        ({"policy": "cost"}, "policy: is not a policy; got 'cost', expected a callable, such as ByCost()"),
        ({"placement": 3}, "placement: is neither a lock nor the path of a lock; got 3"),
        ({"placement": "a.lock", "policy": GreedyByOrder()}, "placement: is given beside `policy`"),
        ({"max_fold_cost": 1.5}, "max_fold_cost: is not an integer; got 1.5"),
        ({"partition_options": 3}, "Input should be an instance of PartitionOptions."),
    ],
)
def test_what_keywords_get_wrong_is_told(values: dict[str, Any], text: str) -> None:
    with pytest.raises(OptionsError) as caught:
        CompileRequest(**values)
    assert text in str(caught.value)


def test_a_request_is_frozen() -> None:
    request = CompileRequest()
    with pytest.raises(ValueError, match="frozen"):
        request.strict = True


def test_keywords_are_the_fields_of_a_request() -> None:
    assert list(RequestFields.__annotations__) == [name for name in CompileRequest.model_fields if name != "backends"]
    functions: list[Any] = [byoc_core.build, byoc_core.explain, byoc_core.debug_model]
    for function in functions:
        shown = inspect.signature(function).parameters
        assert set(RequestFields.__annotations__) < set(shown)
        assert (shown["fallback"].default, shown["strict"].default) == ("allow", False)
        with pytest.raises(TypeError, match="unexpected keyword argument 'optoins'; expected options, fallback"):
            function(MODULE, *([[], []] if "inputs" in shown else [[]]), optoins={})


def test_what_is_given_by_itself_goes_before_the_request() -> None:
    request = CompileRequest(backends=["host"], strict=True, partition_options=PartitionOptions(min_ops=3))
    gathered = gather_request(request, ["other"], {"fallback": "warn", "partition_options": None})
    assert gathered == CompileRequest(
        backends=["other"], strict=True, fallback="warn", partition_options=PartitionOptions(min_ops=3)
    )
    assert gather_request(request, None) is request
    assert gather_request(request, []).backends == ()
    assert gather_request(None, None).backends == ("auto",)


def test_a_request_builds_as_its_keywords_do() -> None:
    backend = FakeBackend("aone", ["tanh"])
    built = byoc_core.build(MODULE, request=CompileRequest(backends=[backend]))
    assert built.report_data == byoc_core.build(MODULE, [backend]).report_data
    assert built.report_data == Compiler(request=CompileRequest(backends=[backend])).build(MODULE).report_data
    explained = byoc_core.explain(MODULE, request=CompileRequest(backends=[backend], fallback="error"))
    assert explained.report_data == built.report_data


def test_the_schema_describes_every_field() -> None:
    schema = CompileRequest.schema_data()
    assert list(schema["properties"]) == [
        {"partition_options": "partition"}.get(name, name) for name in CompileRequest.model_fields
    ]
    constraints = schema["$defs"]["PartitionOptions"]["properties"]
    assert list(constraints) == [field.name for field in fields(PartitionOptions)]
    for properties in (schema["properties"], constraints):
        assert all(len(described["description"]) > 20 for described in properties.values())
    assert json.loads(json.dumps(schema)) == schema
    names = [form.get("properties", {}).get("name") for form in schema["properties"]["policy"]["anyOf"]]
    assert names == [None, {"const": "greedy"}, {"const": "cost"}, {"const": "placed"}, None]
    assert list(schema["properties"]["passes"]["properties"]) == [point.value for point in INSERTION_POINTS]


def test_an_artifact_records_the_request(tmp_path: Path) -> None:
    request = CompileRequest(
        backends=[],
        policy=ByCost({"n": 2}),
        partition_options=PartitionOptions(force={"a": "host"}),
        passes={"after_partition": [nothing]},
        dump=tmp_path / "dump",
    )
    built = byoc_core.build(MODULE, request=request)
    built.save(tmp_path / "m.byoc")
    said = byoc_core.inspect(tmp_path / "m.byoc")
    assert said.request_data == built.request_data == byoc_core.load(tmp_path / "m.byoc").request_data
    assert said.request_data == {
        "backends": [],
        "options": {},
        "fallback": "allow",
        "strict": False,
        "policy": {"name": "cost", "sizes": {"n": 2}},
        "partition": {
            "force": {"a": "host"},
            "stop_at": [],
            "devices": {},
            "devices_from": {},
            "allow": {},
            "min_ops": 0,
            "min_flops": 0,
            "min_bytes": 0,
            "sideways": False,
            "backend_limits": True,
        },
        "max_fold_cost": None,
        "specialize": True,
        "passes": {"after_partition": ["core.tests.test_driver_request:nothing"]},
    }
    assert "request" not in said.report_data
    elsewhere = request.updated(dump=tmp_path / "other")
    assert byoc_core.build(MODULE, request=elsewhere).to_bytes() == built.to_bytes()
    plain = {key: value for key, value in said.request_data.items() if key != "passes"}
    assert CompileRequest.from_data(plain) == request.updated(passes={}, dump=None)


def test_options_that_json_cannot_hold_are_recorded_by_name() -> None:
    request = CompileRequest(options={"a": {"b": [Path], "c": float("nan"), "d": (1, None)}})
    assert request.to_record()["options"] == {"a": {"b": ["pathlib:Path"], "c": "nan", "d": [1, None]}}


def test_an_artifact_without_a_record_has_an_empty_one() -> None:
    built = byoc_core.build(MODULE, [])
    older = byoc_core.Executable(built.program, built.modules, built.constants, built.report_data)
    assert older.request_data == {}
    assert "request" not in older.report_data


def test_the_compiler_takes_backends_from_its_registry() -> None:
    class Only(Backends):
        """A registry with a single name for an object."""

        def get(self, backend: str | object) -> BackendHandle:
            return super().get(FakeBackend("aone", ["tanh"]) if backend == "elsewhere" else backend)

    registry = Only(byoc_core.backends.catalog)
    built = Compiler(registry).build(MODULE, CompileRequest(backends=["elsewhere"]))
    assert [row["name"] for row in built.report_data["backends"]] == ["aone", "host"]


def test_paths_among_the_options_are_no_part_of_the_record() -> None:
    class Options(BaseModel):
        folder: Path | None = None
        files: tuple[FilePath, ...] = ()
        level: int = 0

    assert path_options(Options) == {"folder", "files"}
    assert path_options(None) == frozenset()
    options: dict[str, dict[str, object]] = {"a": {"folder": "/here", "level": 2}, "b": {"folder": "/here"}}
    paths = dict.fromkeys(options, path_options(Options))
    assert CompileRequest(options=options).to_record(paths)["options"] == {"a": {"level": 2}}
