"""``--config`` of the compiling commands, and ``byoc config``."""

from __future__ import annotations

import json
from pathlib import Path

import byoc_core
import pytest
from byoc_core.driver import CompileRequest
from byoc_core.partitioning import ByCost, PartitionOptions

from core.tests.cli.conftest import RunByoc

CONFIG = """
backends = ["host"]
fallback = "warn"
policy = {name = "cost", sizes = {n = 8}}
max_fold_cost = 1000

[partition]
min_ops = 2
force = {"*" = "host"}

[passes]
after_partition = ["byoc_core.transform:Simplify"]
"""
REQUEST = CompileRequest(
    backends=("host",),
    fallback="warn",
    policy=ByCost({"n": 8}),
    partition_options=PartitionOptions(min_ops=2, force={"*": "host"}),
    max_fold_cost=1000,
)


@pytest.fixture
def config(byoc: RunByoc) -> Path:
    """A file in the command's folder."""
    path = Path("build.toml")
    path.write_text(CONFIG, encoding="utf-8")
    return path


def test_a_file_says_what_is_compiled(byoc: RunByoc, model: Path, config: Path) -> None:
    done = byoc("compile", model, "-o", "m.byoc", "--config", config, "--timing", "-q")
    assert done.code == 0
    assert [line.split()[0] for line in done.err.splitlines() if "Simplify" in line] == ["Simplify"] * 2
    said = byoc_core.inspect("m.byoc").request_data
    assert said == {**REQUEST.to_record(), "passes": {"after_partition": ["byoc_core.transform:Simplify"]}} | {
        "specialize": False
    }
    shown = byoc("inspect", "m.byoc").out
    assert "Request" in shown
    assert '{"name": "cost", "sizes": {"n": 8}}' in shown


def test_options_go_before_the_file(byoc: RunByoc, config: Path) -> None:
    flags = ("--fallback", "error", "--policy", "greedy", "--force", "a=host", "--min-ops", "0", "--option", "host.x=1")
    done = byoc("config", "--config", config, *flags, "--json")
    assert done.code == 0
    Path("out.json").write_text(done.out, encoding="utf-8")
    found = CompileRequest.from_file("out.json")
    assert (found.fallback, found.backends, found.max_fold_cost) == ("error", ("host",), 1000)
    assert found.partition_options == PartitionOptions(force={"*": "host", "a": "host"})
    assert found.options == {"host": {"x": "1"}}
    assert found.policy == byoc_core.partitioning.GreedyByOrder()


def test_what_config_prints_is_a_config(byoc: RunByoc, config: Path) -> None:
    printed = byoc("config", "--config", config).out
    Path("again.toml").write_text(printed, encoding="utf-8")
    assert byoc("config", "--config", "again.toml").out == printed
    assert byoc("config").out.startswith('backends = ["auto"]\nfallback = "allow"\n')


def test_the_schema(byoc: RunByoc) -> None:
    schema = json.loads(byoc("config", "--schema").out)
    assert schema == CompileRequest.schema_data()


@pytest.mark.parametrize("command", ["compile -o m.byoc", "explain", "debug", "run --random-inputs", "config"])
@pytest.mark.parametrize(
    ("text", "error"),
    [
        ('[partition]\nmin_ops = "x"', 'bad.toml: partition.min_ops: is not an integer; got "x"'),
        ("backends = [", "bad.toml: is malformed TOML: Invalid value (at end of document)"),
    ],
)
def test_each_command_tells_what_is_wrong_in_a_file(
    byoc: RunByoc, model: Path, command: str, text: str, error: str
) -> None:
    Path("bad.toml").write_text(text, encoding="utf-8")
    name, *more = command.split()
    done = byoc(name, *([] if name == "config" else [model]), *more, "--config", "bad.toml")
    assert (done.code, done.out, done.err) == (1, "", f"error: {error}\n")


def test_a_file_that_is_missing(byoc: RunByoc, model: Path) -> None:
    done = byoc("compile", model, "-o", "m.byoc", "--config", "absent.toml")
    assert (done.code, done.err) == (1, "error: absent.toml: No such file or directory\n")


@pytest.mark.parametrize("command", ["explain", "run"])
def test_an_artifact_takes_no_file(byoc: RunByoc, artifact: Path, config: Path, command: str) -> None:
    done = byoc(command, artifact, "--config", config)
    assert (done.code, done.err) == (1, f"error: --config: does not apply to the compiled model `{artifact}`\n")


def test_an_explanation_by_a_file(byoc: RunByoc, model: Path, config: Path) -> None:
    done = byoc("explain", model, "--config", config, "--json")
    assert done.code == 0
    assert {row["outcome"] for row in json.loads(done.out)["ops"]} == {"host"}
