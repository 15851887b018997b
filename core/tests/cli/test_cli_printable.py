"""Names from strangers do not reach the terminal as commands, neither of the terminal nor of rich."""

from __future__ import annotations

import io
import json
import sys
import traceback
from pathlib import Path

import pytest
from byoc_core.artifact.archive import read_archive, write_archive
from byoc_core.cli.console import new_table, open_console, print_error, show_stages
from byoc_core.errors import ByocError
from byoc_core.printable import to_printable, to_printable_lines
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from core.tests.cli.conftest import RunByoc

pytestmark = pytest.mark.lowest

HOSTILE = "\x1b]0;title\x07\x1b[2J\x1b[31mRED\x9b5m\u202egnp.exe\u2066\u2028\u200b\x7f\r[bold red]b[/] [link=file:///x]l[/link]"
PLAIN = "Größe_größe_Ω_漢字_שלום_नमस्ते"
# Surrogates and NUL cannot be in the names of a model, which are UTF-8.
names = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0\n"), min_size=1, max_size=12
) | st.sampled_from(
    [HOSTILE, "[red]", "[/]", "[link=file:///etc/passwd]x[/link]", "\x1b[31m", "\u202e", "\x9b2J", ":smile:"]
)


def check_printable(text: str) -> None:
    assert all(line.isprintable() for line in text.split("\n")), [c for c in text if not c.isprintable() and c != "\n"]


def save_model(path: str, name: str, op: str = "CumSum") -> None:
    """Save a model with this name for everything nameable."""
    nodes = [
        helper.make_node("Relu", [name], [name + "h"], name=name),
        helper.make_node(
            op, [name + "h", "axis"], [name + "y"], name=name + "2", domain="" if op == "CumSum" else name
        ),
    ]
    axis = helper.make_tensor("axis", TensorProto.INT64, [], [0])
    x, y = (helper.make_tensor_value_info(name + end, TensorProto.FLOAT, [name, 4]) for end in ("", "y"))
    graph = helper.make_graph(nodes, name, [x], [y], [axis], doc_string=name)
    opsets = [helper.make_opsetid("", 17), *([helper.make_opsetid(name, 1)] if op != "CumSum" else [])]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9, producer_name=name)
    Path(path).write_bytes(model.SerializeToString())


@settings(
    max_examples=settings().max_examples // 6,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    deadline=None,
)
@given(name=names)
@example(name=HOSTILE)
def test_no_command_prints_what_a_terminal_obeys(byoc: RunByoc, name: str) -> None:
    save_model("m.onnx", name)
    commands: list[tuple[object, ...]] = [
        ("compile", "m.onnx", "-o", "m.byoc", "--timing", "--print-after", "all", "--fallback", "warn"),
        ("inspect", "m.byoc", "--program", "--members"),
        ("inspect", "m.byoc", "--json"),
        ("inspect", "m.onnx"),
        ("inspect", "m.onnx", "--json"),
        ("inspect", "m.onnx", f"--dim={name}=3"),
        ("verify", "m.byoc"),
        ("run", "m.byoc"),
        ("run", "m.byoc", "--random-inputs"),
        ("run", "m.byoc", f"--random={name}"),
        ("run", "m.byoc", "--input", f"{name}=nothing.npy"),
        ("run", "m.byoc", "--function", name),
        ("run", "m.byoc", "--random-inputs", f"--dim={name}=3"),
        ("explain", "m.onnx"),
        ("explain", "m.onnx", "--ir"),
        ("explain", "m.byoc", "--json"),
        ("plan", "m.onnx", f"--dim={name}=3", "-o", "m.svg"),
        ("plan", "m.byoc", f"--dim={name}"),
        ("debug", "m.onnx"),
        ("compile", "m.onnx", "-o", "n.byoc", "--backend", name),
        ("compile", "m.onnx", "-o", "n.byoc", f"--force={name}={name}"),
        ("compile", "m.onnx", "-o", "n.byoc", f"--option={name}"),
        ("compile", "m.onnx", "-o", "n.byoc", "--require-offload", "1"),
        ("--debug", "compile", f"{name}.missing", "-o", "n.byoc"),
        (name,),
        ("inspect", "m.byoc", name),
    ]
    for command in commands:
        done = byoc(*command)
        check_printable(done.out + done.err)
    assert byoc("inspect", "m.byoc").code == 0


@settings(
    max_examples=settings().max_examples // 6,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    deadline=None,
)
@given(name=names)
@example(name=HOSTILE)
def test_names_in_errors_are_printable(byoc: RunByoc, name: str) -> None:
    save_model("m.onnx", name, op=name)
    done = byoc("compile", "m.onnx", "-o", "m.byoc")
    assert done.code == 1
    check_printable(done.out + done.err)
    for arguments in ((), ("--json",)):
        done = byoc("inspect", "m.onnx", *arguments)
        assert done.code == 0
        check_printable(done.out + done.err)


@pytest.mark.parametrize("key", ["type_key", "distribution", "version"])
def test_names_in_a_manifest_are_printable(byoc: RunByoc, artifact: Path, key: str) -> None:
    data = memoryview(artifact.read_bytes())
    members = {name: bytes(data[item.offset : item.end]) for name, item in read_archive(data, "m").items()}
    manifest = json.loads(members["manifest.json"])
    assert manifest["runtimes"], "the artifact has to need a runtime"
    for entry in (*manifest["runtimes"], *manifest["modules"]):
        if key in entry:
            entry[key] = HOSTILE
    manifest["core_version"] = HOSTILE
    members["manifest.json"] = json.dumps(manifest, sort_keys=True, separators=(",", ":")).encode()
    file = io.BytesIO()
    write_archive(file, members)
    artifact.write_bytes(file.getvalue())
    for command in ("inspect", "run", "verify"):
        done = byoc(command, artifact)
        check_printable(done.out + done.err)


def test_letters_of_all_languages_are_kept(byoc: RunByoc) -> None:
    save_model("m.onnx", PLAIN)
    assert byoc("compile", "m.onnx", "-o", "m.byoc").code == 0
    assert to_printable(PLAIN) == PLAIN
    text = byoc("inspect", "m.byoc").out
    signature = byoc("run", "m.byoc", "--input", "nobody=x.npy").err
    assert "Größe" in text + signature


@given(st.text())
def test_printable_text_keeps_its_lines_and_what_is_printable(text: str) -> None:
    lines = to_printable_lines(text)
    check_printable(lines)
    assert lines.count("\n") == text.count("\n")
    assert to_printable_lines(lines) == lines
    assert [c for c in to_printable(text) if c != "\ufffd"] == [c for c in text if c.isprintable() and c != "\ufffd"]


@given(st.text())
@example(HOSTILE)
def test_consoles_print_neither_escapes_nor_markup(text: str) -> None:
    stream = io.StringIO()
    console = open_console(stream)
    console.print(text, soft_wrap=True)
    table = new_table(text, text)
    table.add_row(text)
    console.print(table)
    check_printable(stream.getvalue())


def test_markup_in_names_is_text() -> None:
    stream = io.StringIO()
    open_console(stream).print("[red]a[/red] [link=file:///x]b[/link] :smile:", soft_wrap=True)
    assert stream.getvalue() == "[red]a[/red] [link=file:///x]b[/link] :smile:\n"


class Terminal(io.StringIO):
    """A stream claiming to be a terminal."""

    def isatty(self) -> bool:
        return True


def test_on_a_terminal_only_own_styles_are_escapes(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    with show_stages(HOSTILE) as show:
        show(HOSTILE)
        show("[red]stage[/red]")
    print_error(HOSTILE)
    text = stream.getvalue()
    assert "\x1b[1;31merror: " in text, "rich styles what is ours"
    assert not [mark for mark in ("\x1b]0;", "\x1b[2J", "\x1b[31m", "\x9b", "\u202e", "\x07") if mark in text]
    assert "[link=file:///x]l[/link]" in text
    assert "[red]stage[/red]" in text


@given(where=st.text(), problem=st.text(), detail=st.text())
def test_errors_are_printable_wherever_they_are_printed(where: str, problem: str, detail: str) -> None:
    error = ByocError(where, problem, got=detail, hint=detail, detail=detail)
    check_printable(str(error))
    assert error.where == where
    try:
        raise error
    except ByocError:
        check_printable(traceback.format_exc().split("ByocError: ", 1)[1])


def test_it_would_notice(byoc: RunByoc, monkeypatch: pytest.MonkeyPatch) -> None:
    save_model("m.onnx", HOSTILE)
    assert byoc("compile", "m.onnx", "-o", "m.byoc").code == 0
    for module in [name for name in sys.modules if name.startswith("byoc_core.")]:
        for function in ("to_printable", "to_printable_lines"):
            if hasattr(sys.modules[module], function):
                monkeypatch.setattr(sys.modules[module], function, str)
    with pytest.raises(AssertionError):
        check_printable(byoc("inspect", "m.byoc", "--program").out)
