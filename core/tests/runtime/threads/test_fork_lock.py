"""Locks over a fork: a child calls a function locked by a thread of the parent, and ends."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from byoc_core.native.toolchain import Toolchain

pytestmark = pytest.mark.interpreter

HEAD = """
import os, signal, sys, threading, warnings
import numpy as np
from byoc_core.runtime.csource import CSourceModule
from byoc_core.runtime.module import PackedFunction, RuntimeModule, Signature, TensorSpec
from byoc_core.runtime.serial import SerialModule

warnings.simplefilter("ignore")  # Python 3.12 warns of forks beside threads
entered, leave = threading.Event(), threading.Event()
parent = os.getpid()


def wait():
    if os.getpid() == parent:
        entered.set()
        assert leave.wait(60)


def fork_while(locked, in_child):
    # Prints the value that the child gives, which a signal ends if it hangs; -14 then.
    holder = threading.Thread(target=locked)
    holder.start()
    assert entered.wait(60)
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        found = [in_child()]  # before there is another thread: it may have the number of the lost one
        helper = threading.Thread(target=lambda: found.append(in_child()))
        helper.start()
        helper.join()
        os._exit(found[0] if found == [7, 7] else 99)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    leave.set()
    holder.join()
    print(in_child())
"""

SERIAL = """
class Counting(RuntimeModule):
    type_key = "counting"
    function_names = ("count",)

    def find_function(self, name):
        def count(x, out):
            wait()
            out[...] = x + 1

        return PackedFunction(name, count)


function = SerialModule(Counting()).get_function("count")


def call():
    out = np.zeros((), np.int64)
    function.impl(np.asarray(6), out)
    return int(out)


fork_while(call, call)
"""

CSOURCE = """
from byoc_core.native.toolchain import Toolchain

SOURCE = '''#include "byoc_ffi.h"
BYOC_EXPORT int __tvm_ffi_seven(void *context, const TVMFFIAny *args, int32_t num_args, TVMFFIAny *result) {
  (void)context; (void)num_args; (void)result;
  *(int64_t *)((DLTensor *)args[0].v_ptr)->data = 7;
  return 0;
}
'''
compile_text = Toolchain.compile


def compile_slowly(*arguments):
    wait()
    return compile_text(*arguments)


Toolchain.compile = compile_slowly
module = CSourceModule(SOURCE, {"seven": Signature((), (TensorSpec("out", "int64", ()),))})


def call():
    out = np.zeros((), np.int64)
    module.get_function("seven")(out)
    return int(out)


fork_while(call, call)
"""

VERSION = """
from byoc_core.native import toolchain

run = toolchain.run_compiler


def run_slowly(*arguments):
    wait()
    return run(*arguments)


toolchain.run_compiler = run_slowly
fork_while(lambda: toolchain.find_toolchain().version, lambda: 7 if toolchain.find_toolchain().version else 0)
"""

DOCUMENT = """
from byoc_core.runtime.graph import document as graph_document
from byoc_core.runtime.graph.document import GraphFunction, GraphTensor
from byoc_core.runtime.module import TensorSpec


def wait_and_make(*arguments):
    wait()
    return GraphTensor(*arguments)


graph_document.GraphTensor = wait_and_make
inputs = tuple(TensorSpec(f"x{number}", "float32", ()) for number in range(7))
fork_while(*[lambda: len(GraphFunction("main", inputs, (), (), ()).values)] * 2)
"""

PROCESS = """
from byoc_core.runtime import threads
from byoc_core.runtime.threads import setting

load = setting.load_openmp


def load_slowly():
    wait()
    return load()


setting.load_openmp = load_slowly
fork_while(threads.use_openmp, lambda: threads.set_num_threads(7) or threads.num_threads())
"""

FORKS_ITSELF = """
class Forking(RuntimeModule):
    type_key = "forking"
    function_names = ("fork",)

    def find_function(self, name):
        return PackedFunction(name, lambda *arrays: None if arrays else go_on_in_child())


function = SerialModule(Forking()).get_function("fork")


def go_on_in_child():
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        helper = threading.Thread(target=function.impl, args=(np.ones(1),))
        helper.start()
        helper.join()
        os._exit(7)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


function.impl()
function.impl(np.ones(1))
print(7)
"""

needs_compiler = pytest.mark.skipif(not Toolchain.status().ok, reason="no C compiler")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a system without fork")
@pytest.mark.parametrize(
    "script",
    [
        pytest.param(SERIAL, id="call-of-serial-module"),
        pytest.param(FORKS_ITSELF, id="fork-in-call-of-serial-module"),
        pytest.param(CSOURCE, id="build-of-generated-code", marks=needs_compiler),
        pytest.param(VERSION, id="version-of-compiler", marks=needs_compiler),
        pytest.param(DOCUMENT, id="values-of-graph-function"),
        pytest.param(PROCESS, id="search-for-openmp"),
    ],
)
def test_a_child_takes_what_a_thread_of_its_parent_had_locked(script: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", HEAD + script], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.split() == ["7", "7"]
