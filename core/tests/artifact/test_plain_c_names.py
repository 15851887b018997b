"""Odd names in exported C: keywords, macros, equal identifiers, foreign letters; every name gets a working C name."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from byoc_core.artifact import load_module
from byoc_core.artifact.plain_c.names import Identifiers, unique_names
from byoc_core.artifact.plain_c.plain_model import plain_model
from byoc_core.errors import OptionsError
from byoc_core.native.toolchain import Toolchain
from byoc_core.runtime.module import TensorSpec
from byoc_core.runtime.pools import Pool
from byoc_core.vm import Builtin, Call, Ret, VMFunction
from byoc_core.vm.program import StateSlot

from core.tests.artifact.exported_model import (
    OK,
    ExportedModel,
    builtin,
    copies,
    executable_of,
    extern,
    shift,
    tensor,
)
from core.tests.artifact.test_plain_c_sizes import floats, two_steps

COMPILERS = [
    pytest.param(name, marks=pytest.mark.skipif(shutil.which(name) is None, reason=f"{name} is not installed"))
    for name in ("gcc", "clang")
]
CPP_COMPILERS = [
    pytest.param(name, marks=pytest.mark.skipif(shutil.which(name) is None, reason=f"{name} is not installed"))
    for name in ("g++", "clang++")
]
WARNINGS = ("-Wall", "-Wextra", "-Werror", "-pedantic")
NAMES = [
    *("int", "for", "main", "NULL", "NAN", "INFINITY", "class", "new", "this", "template", "bool", "true", "operator"),
    *("int64_t", "size_t", "uint8_t", "INT64_MAX", "EOF", "HUGE_VAL", "stdin", "errno", "offsetof", "memmove", "exp"),
    *("workspace", "inputs", "outputs", "status", "unused", "info", "pools", "model", "model_run", "MODEL_OK"),
    *("MODEL_NUM_INPUTS", "byoc_max", "BYOC_EXPORT", "dim_n", "dim_", "t0", "p0", "o0", "w0", "i0", "label_1"),
    *(
        "a b",
        "a-b",
        "a.b",
        "a_b",
        "a_b_2",
        "0",
        "1",
        "_1",
        " ",
        "é",
        "è",
        "数",
        "x/y:0",
        "*/",
        "/*",
        "\n",
        '"',
        "\\",
    ),
    *("linux", "unix", "assert", "nan", "x", "X", "x_out", "y_out", "lambda", "in", "None", "np", "n", "m"),
]


def hostile() -> list[str]:
    """Return the names, in order, each once."""
    return list(dict.fromkeys(NAMES))


def functions(names: Sequence[str]) -> tuple[TensorSpec, ...]:
    return tuple(tensor(name, 2, "n", dtype="int32") for name in names)


def make(folder: Path, compiler: str) -> str:
    flags = " ".join(("-std=c11", "-O0", *WARNINGS))
    command = ["make", "-s", "-j2", "check", f"CC={compiler}", f"CFLAGS={flags}"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("compiler", COMPILERS)
def test_inputs_and_outputs_have_any_names(tmp_path: Path, compiler: str) -> None:
    names = hostile()
    specs = functions(names)
    executable = executable_of((copies("main", specs, specs),))
    executable.export_c(tmp_path)
    assert make(tmp_path, compiler).count(": right") == len(names)


@pytest.mark.parametrize("compiler", COMPILERS)
def test_arguments_in_the_workspace_have_any_names(tmp_path: Path, compiler: str) -> None:
    specs = tuple(tensor(name, 2, dtype="int32") for name in hostile())
    executable_of((copies("main", specs, specs),)).export_c(tmp_path, places_arguments=True)
    assert make(tmp_path, compiler).count(": right") == len(specs)


@pytest.mark.parametrize("compiler", COMPILERS)
def test_sizes_have_any_names(tmp_path: Path, compiler: str) -> None:
    symbols = [
        "int64_t",
        "n",
        "N",
        "dim_n",
        "byoc_max",
        "inputs",
        "class_",
        "é",
        "è",
        "t0",
        "model_check",
        "INT64_MAX",
    ]
    specs = tuple(TensorSpec(name, "int8", tensor("x", name).shape) for name in symbols)
    executable = executable_of((copies("main", specs, specs),))
    executable.export_c(tmp_path / "symbolic")
    assert make(tmp_path / "symbolic", compiler).count(": right") == len(symbols)
    largest = {name: 2 + number for number, name in enumerate(symbols)}
    executable.export_c(tmp_path / "bounded", max_sizes=largest)
    assert make(tmp_path / "bounded", compiler).count(": right") == len(symbols)
    header = (tmp_path / "bounded" / "model.h").read_text()
    macros = [line.split()[1] for line in header.splitlines() if line.startswith("#define MODEL_MAX_")]
    assert len({*macros}) == len(symbols)


@pytest.mark.parametrize("compiler", COMPILERS)
def test_states_of_moving_length_have_any_names(tmp_path: Path, compiler: str) -> None:
    states = dict.fromkeys([*hostile(), "past", "Past", "PAST", "past_size"])
    specs = [tensor("rows", "n"), *(tensor(name, f"p{number}") for number, name in enumerate(states))]
    slots = tuple(StateSlot(number, number, axis=0) for number in range(1, len(specs)))
    main = replace(copies("main", specs, specs), states=slots)
    largest = {"n": 2, **{f"p{number}": 3 + number for number in range(len(states))}}
    executable_of((main,)).export_c(tmp_path, max_sizes=largest)
    make(tmp_path, compiler)
    header = (tmp_path / "model.h").read_text()
    macros = [line.split() for line in header.splitlines() if line.startswith("#define MODEL_STATE_")]
    sizes = {name: int(size) for _, name, size in macros if name != "MODEL_STATE_FULL"}
    assert [*sizes.values()] == list(range(3, 3 + len(states)))


@pytest.mark.parametrize("compiler", COMPILERS)
def test_functions_have_any_names(tmp_path: Path, compiler: str) -> None:
    names = ["main", "my-model", "my_model", "MY_MODEL", "int", "input", "run", "body", "x_sizes", "x", "é", "*/"]
    spec = [tensor("x", "n")]
    executable_of([copies(name, spec, [tensor("y", "n")]) for name in names]).export_c(tmp_path)
    assert make(tmp_path, compiler).count(": right") == 1
    header = (tmp_path / "model.h").read_text()
    assert sum(line.startswith("int32_t model_run") for line in header.splitlines()) == len(names)


@pytest.mark.parametrize("compiler", CPP_COMPILERS)
@pytest.mark.parametrize("places", [False, True])
def test_the_header_is_cpp_too(tmp_path: Path, compiler: str, places: bool) -> None:
    specs = tuple(tensor(name, 2, dtype="float16") for name in hostile())
    executable_of((copies("main", specs, specs),)).export_c(tmp_path, places_arguments=places)
    text = (
        '#include <cerrno>\n#include <cmath>\n#include <cstdio>\n#include "model.h"\nint main() { return MODEL_OK; }\n'
    )
    (tmp_path / "caller.cpp").write_text(text)
    for standard in ("c++11", "gnu++17", "c++20"):
        command = [compiler, f"-std={standard}", *WARNINGS, "-c", "caller.cpp"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


@pytest.mark.skipif(not Toolchain.status().ok, reason="no C compiler: apt-get install gcc")
def test_names_do_not_change_the_order_of_arguments(tmp_path: Path) -> None:
    names = hostile()
    executable = executable_of((copies("main", functions(names), functions(names)),))
    model = ExportedModel(executable, tmp_path)
    inputs = [np.full((2, 3), number, "int32") for number in range(len(names))]
    status, outputs = model.call(inputs, {"n": 3})
    assert status == OK
    assert [int(output[0, 0]) for output in outputs] == list(range(len(names)))


def test_usual_names_stay() -> None:
    names = ("x", "X", "input_ids", "past_key_values_0_key", "hidden_t", "W_0", "y1", "input", "output", "data", "_x")
    assert unique_names(names) == names
    assert unique_names(["x", "x", "x_2", "a.b", "a_b"]) == ("x", "x_2", "x_2_2", "a_b", "a_b_2")


@pytest.mark.parametrize(
    "name",
    [
        "",
        "1x",
        "my-model",
        "int",
        "main",
        "_x",
        "byoc",
        "byoc_x",
        "dim",
        "dim_x",
        "é",
        "math",
        "stdint",
        "test",
        "all",
        "a b",
    ],
)
def test_impossible_prefixes_are_refused(tmp_path: Path, name: str) -> None:
    executable = executable_of((two_steps(),), [shift("one", 1)])
    expected = f"option `name`: is not usable as prefix of C names; got {name!r}, expected such as 'model'"
    with pytest.raises(OptionsError) as caught:
        executable.export_c(tmp_path / "c", name=name)
    assert str(caught.value) == expected
    with pytest.raises(OptionsError) as caught:
        executable.export_archive(tmp_path / "libm.a", name=name)
    assert str(caught.value) == expected
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "name",
    [
        *("t0", "p12", "memmove", "int64_t", "dim_n", "inputs", "EOF", "class", "a b", "é"),
        *("model_x", "MODEL_X", "bad"),
    ],
)
def test_impossible_names_of_memories_are_refused(name: str) -> None:
    executable = executable_of((two_steps(),), [shift("one", 1)])
    with pytest.raises(OptionsError) as caught:
        plain_model(executable, "model", {"n": 4}, pools=[Pool(name)])
    assert str(caught.value) == f"pool `{name}`: has a name unusable in C; expected such as 'sram'"


def test_memories_differ_in_more_than_capital_letters() -> None:
    executable = executable_of((two_steps(),), [shift("one", 1)])
    with pytest.raises(OptionsError) as caught:
        plain_model(executable, "model", {"n": 4}, pools=[Pool("sram"), Pool("SRAM")])
    assert str(caught.value) == "pool `SRAM`: differs from the pool `sram` in capital letters alone"


def test_a_region_may_be_called_like_anything(tmp_path: Path) -> None:
    for name in ("model", "run", "x", "main", "body"):
        main = two_steps()
        executable = executable_of((main,), [shift(name, 1)])
        model = ExportedModel(executable, tmp_path, name="model")
        assert model.call([floats(3)], {"n": 3})[1][0].tolist() == [2, 3, 4]


def test_identifiers_are_allocated_once_in_all_forms() -> None:
    identifiers = Identifiers(["x", "y_size"])
    assert [identifiers.allocate(hint) for hint in ("x", "x", "z", "x_2")] == ["x_2", "x_3", "z", "x_2_2"]
    assert identifiers.allocate("y", lambda name: (name, f"{name}_size")) == "y_2"
    assert [identifiers.allocate(hint) for hint in ("y", "y_2_size", "y_2")] == ["y", "y_2_size_2", "y_2_2"]


CLASHES = {
    "a generated function like a public function": (("main", "one_"), ("x",), "run_one", ()),
    "a generated function like the address of an input": (("main",), ("one_",), "input_one", ()),
    "a generated function like a member": (("main",), ("one_", "x", "one_sizes_"), "one", ()),
    "a generated function like a structure": (("main", "one"), ("x",), "one_inputs", ()),
    "a size of a function like the address of an input": (
        ("main", "input_x"),
        ("x_workspace_size", "x_inputs", "x_input_info"),
        "one",
        (),
    ),
    "shapes like members": (("main", "input", "shape_input"), ("info", "info_0", "info_1", "0", "_0"), "one", ()),
    "the bytes of a memory like a largest size": (("main",), ("x",), "one", ("max_n", "max")),
    "memories like parts of names": (
        ("main", "run", "body"),
        ("x",),
        "one",
        ("run", "argc", "body", "check_float", "output_0"),
    ),
    "functions like memories": (("main", "sram", "dram_size", "workspace"), ("x",), "one", ("sram", "dram")),
    "macros of functions in capital letters": (("main", "f", "F", "num", "max", "max_n"), ("x", "X"), "one", ()),
}


@pytest.mark.skipif(not Toolchain.status().ok, reason="no C compiler: apt-get install gcc")
@pytest.mark.parametrize("clash", CLASHES)
def test_names_that_would_clash_get_numbers(tmp_path: Path, clash: str) -> None:
    functions, members, symbol, memories = CLASHES[clash]
    specs = [tensor(member, "n") for member in members]
    results = [tensor(f"y{number}", "n") for number in range(len(members))]
    copies_code: list[Call | Ret] = [builtin(Builtin.COPY, (k,), len(members) + k) for k in range(1, len(members))]
    ret = Ret(tuple(range(len(members), 2 * len(members))))
    code = (extern(0, (0,), (len(members),)), *copies_code, ret)
    executable = executable_of(
        [VMFunction(name, tuple(specs), tuple(results), (), (), (), (), code) for name in functions],
        [shift(symbol, 1)],
    )
    largest = {"n": 3}
    pools = [Pool(name) for name in memories]
    for places in (False, True):
        folder = tmp_path / str(places)
        executable.export_c(folder, max_sizes=largest, pools=pools, places_arguments=places)
        assert make(folder, "cc").count(": right") == len(members)
        heads = [line for line in (folder / "model.h").read_text().splitlines() if line.startswith("int32_t model_run")]
        assert len({*heads}) == len(functions)
        assert sum(line.startswith("int32_t model_run(") for line in heads) == 1


def test_functions_of_several_sources_never_share_a_name(tmp_path: Path) -> None:
    """The check of the sizes of `one` would be called like the function `one_sizes` of another source."""
    modules = [shift("one", 1), shift("one_sizes", 10)]
    code = (extern(0, (0,), (1,)), Ret((1,)))
    x, y = (tensor("x", "n"),), (tensor("y", "n"),)
    other = (extern(1, (0,), (1,)), Ret((1,)))
    functions = (VMFunction("main", x, y, (), (), (), (), code), VMFunction("other", x, y, (), (), (), (), other))
    model = ExportedModel(executable_of(functions, modules), tmp_path)
    for function, by in (("main", 1), ("other", 10)):
        assert model.call([floats(2)], {"n": 2}, function)[1][0].tolist() == [by, by + 1]


def test_odd_names_in_a_shared_library(tmp_path: Path) -> None:
    names = hostile()
    specs = functions(names)
    executable_of((copies("main", specs, specs),)).export_library(tmp_path / "model.so")
    arrays = [np.full((2, 3), number, "int32") for number in range(len(names))]
    outputs = [np.zeros_like(array) for array in arrays]
    load_module(tmp_path / "model.so").get_function("main")(*arrays, *outputs)
    assert [int(output[0, 0]) for output in outputs] == list(range(len(names)))
