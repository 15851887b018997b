"""Decorated classes in all places of typing: notebooks, prompts, the command line, `exec`, odd places in files."""

from __future__ import annotations

import code
import linecache
import os
import pty
import select
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from types import ModuleType

import pytest
from byoc_core import script as R
from byoc_core.errors import ScriptError
from byoc_core.ir import IRModule
from hypothesis import given
from hypothesis import strategies as st

pytestmark = pytest.mark.interpreter

IMPORT = "from byoc_core import script as R\n"
DEADLINE_S = 120


def class_text(op: str, name: str = "Typed") -> str:
    """Return a module class, with text hard to cut out."""
    return (
        f"@R.ir_module\nclass {name}:\n"
        "    @R.function\n"
        '    def main(x: R.Tensor(("n", 2), "float32")):\n'
        f"        y = R.{op}(x)\n"
        "        return y\n"
    )


def expected(op: str) -> IRModule:
    return R.parse(class_text(op))


SHOWN = {op: str(expected(op)) for op in ("exp", "tanh", "abs")}
NO_SOURCE = (
    "class `Typed`: the source cannot be found. Python keeps no source of a program from a pipe, nor of a text "
    "passed to `exec`. Define the class in a file or in a notebook's cell, or parse the text with "
    "`byoc_core.parse(text)`."
)


def run_python(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # type: ignore[call-overload,no-any-return]
        [sys.executable, *arguments], capture_output=True, text=True, timeout=DEADLINE_S, check=False, **options
    )


# -- notebooks ---------------------------------------------------------------------------------------------------------


def test_cells_of_a_real_kernel() -> None:
    client = pytest.importorskip("jupyter_client")
    pytest.importorskip("ipykernel")
    printed: list[str] = []

    def record(message: dict[str, object]) -> None:
        content = message["content"]
        assert isinstance(content, dict)
        if message["msg_type"] == "stream":
            printed.append(str(content["text"]))
        elif message["msg_type"] == "error":
            printed.append(str(content["evalue"]))

    manager, kernel = client.manager.start_new_kernel(kernel_name="python3", startup_timeout=DEADLINE_S)
    try:
        for cell in (
            IMPORT + class_text("exp") + "print(Typed)",
            class_text("tanh") + "print(Typed)",
            "x = 1\n\n\n" + class_text("exp") + "print(Typed)",
            "%%time\n" + class_text("abs") + "print(Typed)",
            f"exec({class_text('tanh')!r})\nprint(Typed)",
            class_text("no_such_op"),
        ):
            printed.append("\n==\n")
            kernel.execute_interactive(cell, output_hook=record, timeout=DEADLINE_S)
    finally:
        kernel.stop_channels()
        manager.shutdown_kernel(now=True)
    cells = "".join(printed).split("\n==\n")[1:]
    assert [next((op for op, text in SHOWN.items() if cell.startswith(text)), cell) for cell in cells[:5]] == [
        "exp",
        "tanh",
        "exp",
        "abs",
        "tanh",
    ]
    assert "op `no_such_op`: is not known" in cells[5]
    assert "y = R.no_such_op(x)" in cells[5]  # the guilty line of the cell


def test_cells_of_ipython() -> None:
    pytest.importorskip("IPython")
    cells = [
        IMPORT + class_text("exp") + "print(Typed)",
        class_text("tanh") + "print(Typed)",
        "%%time\n" + class_text("abs") + "print(Typed)",
        "def make():\n" + textwrap.indent(class_text("exp"), "    ") + "    return Typed\nprint(make())",
    ]
    program = (
        "from IPython.core.interactiveshell import InteractiveShell\n"
        "shell = InteractiveShell.instance(colors='nocolor')\n"
        f"for cell in {cells!r}:\n    shell.run_cell(cell, store_history=True).raise_error()\n    print('==')\n"
    )
    done = run_python("-c", program)
    assert done.returncode == 0, done.stderr + done.stdout
    shown = done.stdout.split("==\n")
    for text, op in zip(shown, ("exp", "tanh", "abs", "exp"), strict=False):
        assert text.startswith(SHOWN[op])


# -- prompts -----------------------------------------------------------------------------------------------------------


def type_at_prompt(text: str) -> str:
    """Type a text, line by line, at the prompt of a fresh Python in a terminal, and return the terminal's output."""
    master, slave = pty.openpty()
    environment = os.environ | {"TERM": "dumb", "PYTHON_BASIC_REPL": "1", "PYTHON_HISTORY": os.devnull}
    process = subprocess.Popen(
        [sys.executable, "-q", "-i"], stdin=slave, stdout=slave, stderr=slave, env=environment, start_new_session=True
    )
    os.close(slave)
    shown = b""
    end = time.monotonic() + DEADLINE_S
    pending = [*text.splitlines(), "exit()"]
    try:
        prompts = 0
        while time.monotonic() < end:
            if not select.select([master], [], [], 1)[0]:
                if process.poll() is not None:
                    break
                continue
            try:
                shown += os.read(master, 65536)
            except OSError:  # the terminal is closed with the process
                break
            if shown.count(b">>> ") + shown.count(b"... ") > prompts and pending:
                prompts = shown.count(b">>> ") + shown.count(b"... ")
                os.write(master, pending.pop(0).encode() + b"\n")
        process.wait(timeout=DEADLINE_S)
    finally:
        process.kill()
        os.close(master)
    return shown.decode().replace("\r\n", "\n")


def test_classes_typed_at_a_prompt() -> None:
    lines = (
        IMPORT
        + class_text("exp")
        + "\nprint(Typed['main'].bindings[0].op.name, 'first')\n"
        + class_text("tanh")
        + "\nprint(Typed['main'].bindings[0].op.name, 'second')\n"
        + "def make():\n"
        + textwrap.indent(class_text("abs"), "    ")
        + "    return Typed\n\n"
        + "print(make()['main'].bindings[0].op.name, 'third')\n"
    )
    shown = type_at_prompt(lines)
    for answer in ("exp first", "tanh second", "abs third"):
        assert f"\n{answer}\n" in shown, shown


def test_a_console_of_the_standard_library() -> None:
    console = code.InteractiveConsole()
    for line in (IMPORT + class_text("tanh") + "\n").splitlines():
        console.push(line)
    assert console.locals["Typed"] == expected("tanh")


# -- the command line --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flags", [("-c",), ("-Wd", "-c"), ("-Xutf8", "-Bc")])
def test_a_program_on_the_command_line(flags: tuple[str, ...]) -> None:
    done = run_python(*flags, IMPORT + class_text("exp") + class_text("tanh") + "print(Typed)")
    assert (done.stderr, done.stdout) == ("", SHOWN["tanh"] + "\n")


def test_exec_in_a_program_on_the_command_line() -> None:
    program = (
        f"{IMPORT}{class_text('exp')}"  # the same class at the same lines of a file of the same name, `<string>`
        f"exec({IMPORT + class_text('tanh')!r})\nprint(Typed)"
    )
    done = run_python("-c", program)
    assert (done.stderr, done.stdout) == ("", SHOWN["tanh"] + "\n")


def test_a_program_from_a_file_on_standard_input(tmp_path: Path) -> None:
    path = tmp_path / "program.txt"
    path.write_text(IMPORT + class_text("exp") + "print(Typed)")
    with path.open() as file:
        done = run_python("-", stdin=file)
    assert (done.stderr, done.stdout) == ("", SHOWN["exp"] + "\n")


def test_a_program_from_a_pipe_is_told_what_to_do() -> None:
    text = "try:\n" + textwrap.indent(class_text("exp"), "    ") + "except Exception as error:\n    print(error)\n"
    done = run_python("-", input=IMPORT + text)
    assert (done.stderr, done.stdout) == ("", NO_SOURCE + "\n")


# -- exec --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("filename", ["<string>", "<generated>", "/no/such/file.py", __file__])
def test_exec_of_a_text_that_is_held(filename: str) -> None:
    names: dict[str, object] = {}
    text = IMPORT + class_text("tanh")
    exec(compile(text, filename, "exec"), names)
    assert names["Typed"] == expected("tanh")


def test_exec_of_a_literal() -> None:
    names: dict[str, object] = {"R": R}
    exec(
        """
@R.ir_module
class Typed:
    @R.function
    def main(x: R.Tensor(("n", 2), "float32")):
        y = R.exp(x)
        return y
""",
        names,
    )
    assert names["Typed"] == expected("exp")


def test_exec_takes_no_text_that_is_only_alike() -> None:
    names: dict[str, object] = {}
    template = IMPORT + class_text("exp")  # held by this frame, and of the same class at the same lines
    with pytest.raises(ScriptError) as caught:
        exec(template.replace("R.exp", "R.tanh"), names)
    assert str(caught.value) == NO_SOURCE


def test_exec_of_a_text_in_linecache() -> None:
    name = "<kept by a tool>"
    text = IMPORT + class_text("abs")
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    compiled = compile(text, name, "exec")
    del text
    names: dict[str, object] = {}
    try:
        exec(compiled, names)
        with pytest.raises(ScriptError) as caught:
            exec(compile(IMPORT + class_text("no_such_op"), name + "2", "exec"), names)
    finally:
        del linecache.cache[name]
    assert names["Typed"] == expected("abs")
    assert str(caught.value) == NO_SOURCE


# -- files -------------------------------------------------------------------------------------------------------------


def import_text(text: str, folder: Path, name: str) -> ModuleType:
    from importlib.util import module_from_spec, spec_from_file_location

    path = folder / f"{name}.py"
    path.write_text(text)
    spec = spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


LEVELS = st.lists(st.sampled_from(["if True:", "for _ in '1':", "with nullcontext():", "def make():", "class Outer:"]))
FILLERS = st.lists(st.sampled_from(["", "pass", "# class Typed:", '"""\n@R.ir_module\nclass Typed:\n    pass\n"""']))


@given(levels=LEVELS, fillers=FILLERS, ops=st.lists(st.sampled_from(sorted(SHOWN)), min_size=1, max_size=3))
def test_a_class_is_cut_out_of_any_place(
    tmp_path_factory: pytest.TempPathFactory, levels: list[str], fillers: list[str], ops: list[str]
) -> None:
    text = IMPORT + "from contextlib import nullcontext\nfound = []\n"
    for op in ops:  # the same class name again and again, in blocks of any depth
        for depth, level in enumerate(levels):
            text += "    " * depth + level + "\n"
        inside = "    " * len(levels)
        for filler in fillers:
            text += inside + filler + "\n"
        body = class_text(op).replace("        return y", "# a comment of less indentation\n        return y")
        text += textwrap.indent(body, inside, lambda line: not line.startswith("#"))
        text += inside + "found.append(Typed)\n"
        for depth in reversed(range(len(levels))):
            if levels[depth].startswith("def"):
                text += "    " * depth + "make()\n"
    module = import_text(text, tmp_path_factory.mktemp("placed"), "placed")
    assert module.found == [expected(op) for op in ops]


def test_an_empty_class_and_what_is_no_class() -> None:
    @R.ir_module
    class Empty:
        """Nothing."""

    assert Empty == IRModule()
    with pytest.raises(ScriptError) as caught:
        R.ir_module(lambda x: x)  # type: ignore[arg-type]
    assert str(caught.value) == "R.ir_module: does not decorate a class; got function, expected a class of functions"


def test_the_line_of_a_mistake_in_an_indented_class(tmp_path: Path) -> None:
    wrong = class_text("exp").replace("return y", "return z")
    text = IMPORT + "\ndef make():\n" + textwrap.indent(wrong, "    ") + "\nmake()\n"
    with pytest.raises(ScriptError) as caught:
        import_text(text, tmp_path, "mistaken")
    assert str(caught.value).splitlines()[0] == f"{tmp_path / 'mistaken.py'}, line 9: `z` is not defined"
