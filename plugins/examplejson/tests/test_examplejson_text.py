"""The format: writing, reading, and messages about mistakes (S002.5, S002.6)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from byoc_core.errors import ArtifactError
from byoc_examplejson.graph import Graph, Node, parse, to_text
from hypothesis import given
from hypothesis import strategies as st

pytestmark = pytest.mark.interpreter

GUIDE = """\
subgraph_0
  input 0 10 10
  input 1 10 10
  input 2 10 10
  input 3 10 10
  add 4 inputs: 0 1 shape: 10 10
  sub 5 inputs: 4 2 shape: 10 10
  mul 6 inputs: 5 3 shape: 10 10
"""


def test_s002_5_the_text_of_the_guide_reads_and_writes_back() -> None:
    graphs = parse(GUIDE.encode(), "guide")
    assert list(graphs) == ["subgraph_0"]
    assert graphs["subgraph_0"].inputs == (0, 1, 2, 3)
    assert graphs["subgraph_0"].outputs == (6,)
    assert to_text(graphs) == GUIDE


def test_s002_5_outputs_that_are_not_just_the_last_op_are_written() -> None:
    text = "f\n  input 0\n  add 1 inputs: 0 0 shape:\n  output 1 0 1\ng\n  input 7 2\n  output 7\n"
    graphs = parse(text.encode(), "text")
    assert [graph.outputs for graph in graphs.values()] == [(1, 0, 1), (7,)]
    assert to_text(graphs) == text


def test_blank_lines_tabs_and_carriage_returns_do_not_matter() -> None:
    assert to_text(parse(GUIDE.replace("\n", "\r\n\r\n").replace("  ", "\t").encode(), "guide")) == GUIDE


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "f.examplejson: holds no subgraph"),
        ("f g\n", "line 1: the name of a subgraph is a single word, and all other lines are indented; got `f g`"),
        ("  input 0\n", "line 1: an indented line stands before the first subgraph's name"),
        ("f\n  input 0\n  output 0\nf\n", "line 4: subgraph `f` is already defined"),
        ("f\n  input 0 10\n", "subgraph `f`: has no output. End the subgraph with `output ID`."),
        ("f\n  div 1 inputs: 0 0 shape: 1\n", "line 2: unknown op `div`; the ops are add, sub, mul"),
        ("f\n  add 1 inputs: 0 shape: 1\n", "line 2: malformed line `add 1 inputs: 0 shape: 1`"),
        ("f\n  output\n", "line 2: malformed line `output`"),
        ("f\n  input\n", "line 2: malformed line `input`"),
        ("f\n  input x 10\n", "line 2: `x` is not a whole number"),
        ("f\n  input 0 -1\n", "line 2: `-1` is not a whole number"),
        ("f\n\n  input 0 1\n  input 0 1\n", "line 4: id 0 is already defined"),
        ("f\n  input 0 1\n  add 1 inputs: 0 2 shape: 1\n", "line 3: value 2 is not defined"),
        ("f\n  input 0 1\n  output 0 2\n", "line 3: value 2 is not defined"),
        ("f\n  input 0 2\n  add 1 inputs: 0 0 shape: 3\n", "line 3: value 0 has the shape [2], and the result [3]"),
        ("f\n  input 0 1\n  output 0\n  input 1 1\n", "line 4: a line follows the `output` line of the subgraph"),
    ],
)
def test_s002_6_a_mistake_is_reported_with_its_line(text: str, message: str) -> None:
    with pytest.raises(ArtifactError) as caught:
        parse(text.encode(), "f.examplejson")
    prefix = "" if message.startswith("f.examplejson") else "f.examplejson, "
    assert str(caught.value) == prefix + message


def test_s002_6_bytes_that_are_no_text() -> None:
    with pytest.raises(ArtifactError, match=r"^f, line 2: 'utf-8' codec can't decode byte 0xff"):
        parse(b"f\n \xff\n", "f")


@given(st.data())
def test_changed_text_gives_a_graph_or_one_of_our_errors(data: st.DataObject) -> None:
    changed = bytearray(GUIDE.encode())
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(changed)))
        changed[start : start + data.draw(st.integers(0, 6))] = data.draw(st.binary(max_size=6))
    try:
        graphs = parse(bytes(changed), "changed")
    except ArtifactError:
        return
    assert parse(to_text(graphs).encode(), "again") == graphs


@given(st.lists(st.tuples(st.sampled_from(["add", "sub", "mul"]), st.integers(0, 9), st.integers(0, 9)), max_size=8))
def test_every_graph_reads_back_as_it_was_written(ops: list[tuple[str, int, int]]) -> None:
    graph = Graph({0: Node("input", (), (2, 3))})
    for op, left, right in ops:
        count = len(graph.nodes)
        graph.nodes[count] = Node(op, (left % count, right % count), (2, 3))
    graph.outputs = (len(ops), 0)
    assert parse(to_text({"f": graph}).encode(), "text") == {"f": graph}


def test_the_readmes_example_runs_as_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = (Path(__file__).parents[1] / "README.md").read_text().split("```")[1::2]
    (text,) = (block for block in blocks if "subgraph_0\n" in block)
    (code,) = (block.removeprefix("python\n") for block in blocks if block.startswith("python\n"))
    (tmp_path / "mine.examplejson").write_text(text.lstrip("\n"))
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(code, names)
    assert set(names["product"].flat) == {4.0}
    assert set(names["total"].flat) == {2.0}
