"""Programs around exported C: statuses, threads, several models, C++, loaded artifacts, other processes."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from byoc_core.dims import dim_max, parse_dim, symbol
from byoc_core.vm import Builtin, PlannedTensor, Ret, VMFunction

from core.tests.artifact.plain_c_caller import (
    FLAGS,
    WARNINGS,
    ExportedC,
    compile_c,
    cubing,
    needs_gcc,
    program,
    run_program,
    scaler,
    scaling,
)
from core.tests.artifact.test_library_program import builtin, tensors
from core.tests.artifact.test_plain_c import branches, strided
from core.tests.fresh_process import answer_of

pytestmark = needs_gcc

N, M = symbol("n"), symbol("m")


def two_sizes() -> VMFunction:
    """Return copies of x (n) and z (m), with scratch memory for the broadcast sizes."""
    broadcast = dim_max(parse_dim("n + 1"), M)
    return VMFunction(
        "main",
        tensors((N,), (M,)),
        tensors((N,), prefix="y"),
        (),
        (4 * broadcast,),
        (PlannedTensor(0, 0, "float32", (N,)),),
        (),
        (builtin(Builtin.COPY, (0,), 3), builtin(Builtin.COPY, (3,), 2), Ret((2,))),
    )


STATUSES = """\
#include <stdio.h>

#include "model.h"

static _Alignas(64) unsigned char workspace[4096];

int main(void) {
  float x[8] = {1}, z[8] = {2}, y[8] = {3};
  const struct model_inputs good = {.x0 = x, .x1 = z, .n = 5, .m = 3};
  const struct model_outputs outputs = {.y0 = y}, no_output = {.y0 = NULL};
  struct model_inputs bad = good;
  bad.x1 = NULL;
  int n = model_run(&good, &outputs, workspace) == MODEL_OK;
  n += model_run(NULL, &outputs, workspace) == MODEL_BAD_ARGUMENT;
  n += model_run(&good, NULL, workspace) == MODEL_BAD_ARGUMENT;
  n += model_run(&good, &outputs, NULL) == MODEL_BAD_ARGUMENT;
  n += model_run(&bad, &outputs, workspace) == MODEL_BAD_ARGUMENT;
  n += model_run(&good, &no_output, workspace) == MODEL_BAD_ARGUMENT;
  n += model_run(&good, &outputs, workspace + 8) == MODEL_BAD_ARGUMENT;
  const int64_t wrong[] = {SIZES};
  for (int i = 0; i < (int)(sizeof wrong / sizeof *wrong); ++i) {
    bad = good;
    bad.n = wrong[i];
    n += model_run(&bad, &outputs, workspace) == MODEL_BAD_SIZE && model_workspace_size(bad.m, bad.n) == -1;
    bad = good;
    bad.m = wrong[i];
    n += model_run(&bad, &outputs, workspace) == MODEL_BAD_SIZE && model_workspace_size(bad.m, bad.n) == -1;
  }
  printf("%d %g %d %s %s %d\\n", n, y[0], MODEL_NUM_INPUTS, model_input_info[1].name, model_input_info[1].dtype,
         (int)model_input_info[1].shape[0]);
  return 0;
}
"""


@pytest.mark.parametrize(
    ("max_sizes", "wrong"),
    [({"n": 8, "m": 6}, (-1, 9, "INT64_MIN", "INT64_MAX")), (None, (-1, "INT64_MIN", "INT64_MAX", "INT64_MAX / 4"))],
)
def test_statuses_of_wrong_pointers_and_sizes(max_sizes: Any, wrong: tuple[Any, ...], tmp_path: Path) -> None:
    exported = ExportedC(program((two_sizes(),)), tmp_path, options={"max_sizes": max_sizes})
    (tmp_path / "statuses.c").write_text(STATUSES.replace("SIZES", ", ".join(map(str, wrong))))
    text = run_program(compile_c(tmp_path, [*exported.sources, "statuses.c"]))
    assert text == f"{7 + 2 * len(wrong)} 1 2 x1 float32 -1\n"
    assert ("#define MODEL_MAX_N 8\n" in exported.header) == (max_sizes is not None)
    assert ("MODEL_WORKSPACE_SIZE" in exported.header) == (max_sizes is not None)


BOTH = """\
#include <pthread.h>
#include <stdio.h>

#include "left.h"
#include "right.h"

struct work {
  _Alignas(64) unsigned char workspace[256];
  float factor;
  int wrong;
};

static void *run(void *argument) {
  struct work *work = argument;
  for (int round = 0; round < 2000; ++round) {
    float x[5], y[5];
    for (int i = 0; i < 5; ++i) x[i] = (float)(round + i);
    const struct left_inputs left = {.x0 = x, .n = 5};
    const struct left_outputs left_outputs = {.y0 = y};
    const struct right_inputs right = {.x0 = x, .n = 5};
    const struct right_outputs right_outputs = {.y0 = y};
    const int32_t status = work->factor == 8 ? left_run(&left, &left_outputs, work->workspace)
                                             : right_run(&right, &right_outputs, work->workspace);
    for (int i = 0; i < 5; ++i) work->wrong += status || y[i] != work->factor * x[i];
  }
  return NULL;
}

int main(void) {
  static struct work works[4] = {{.factor = 8}, {.factor = 27}, {.factor = 8}, {.factor = 27}};
  pthread_t threads[4];
  int wrong = 0;
  for (int i = 0; i < 4; ++i) wrong += pthread_create(&threads[i], NULL, run, &works[i]) != 0;
  for (int i = 0; i < 4; ++i) wrong += pthread_join(threads[i], NULL) != 0;
  for (int i = 0; i < 4; ++i) wrong += works[i].wrong;
  printf("%d wrong\\n", wrong);
  return 0;
}
"""


def test_threads_call_two_models_of_one_program_at_once(tmp_path: Path) -> None:
    sources = []
    for name, factor, form in (("left", 2, "array"), ("right", 3, "object")):
        sources += ExportedC(cubing(factor), tmp_path, name, options={"constants": form}).sources
    (tmp_path / "both.c").write_text(BOTH)
    flags = [flag.replace("address,undefined", "thread") for flag in FLAGS]
    assert run_program(compile_c(tmp_path, [*sources, "both.c", "-lpthread"], flags=flags)) == "0 wrong\n"


CPP = """\
#include <cstdio>

#include "model.h"

alignas(MODEL_WORKSPACE_ALIGNMENT) static unsigned char workspace[MODEL_WORKSPACE_SIZE];

int main() {
  const float x[3] = {1, 2, 3};
  float y[3] = {};
  model_inputs inputs = {};
  inputs.x0 = x;
  inputs.n = 3;
  model_outputs outputs = {};
  outputs.y0 = y;
  const int32_t status = model_run(&inputs, &outputs, workspace);
  std::printf("%d %g %g\\n", int(status), double(y[0]), double(y[2]));
}
"""


@pytest.mark.skipif(shutil.which("g++") is None, reason="`g++` is not on PATH")
@pytest.mark.parametrize("standard", ["c++11", "c++20"])
def test_a_cpp_program_includes_the_header(standard: str, tmp_path: Path) -> None:
    exported = ExportedC(cubing(2), tmp_path, options={"max_sizes": {"n": 4}})
    compile_c(tmp_path, ["-c", exported.sources[0]], "model.o", flags=WARNINGS)
    objects = []
    for source in exported.sources:
        objects.append(source.replace(".c", ".o"))
        command = ["gcc", *WARNINGS, "-I.", "-c", source, "-o", objects[-1]]
        subprocess.run(command, cwd=tmp_path, check=True)
    (tmp_path / "caller.cpp").write_text(CPP)
    flags = [f"-std={standard}", "-Wall", "-Wextra", "-Werror", "-pedantic"]
    subprocess.run(["g++", *flags, "caller.cpp", *objects, "-lm", "-o", "program"], cwd=tmp_path, check=True)
    assert run_program(tmp_path / "program") == "0 8 24\n"


FRESH = """
import hashlib, json, sys
from pathlib import Path
import byoc_core

executable = byoc_core.load(sys.argv[1], allow_native=True)
executable.export_c(sys.argv[2])
files = sorted(Path(sys.argv[2]).iterdir())
wheel = executable.export_wheel(sys.argv[2] + "_wheel")
archive, _ = executable.export_archive(sys.argv[2] + "_archive/lib.a")
files += [wheel, archive]
print(json.dumps({path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}))
"""


def test_a_loaded_artifact_gives_the_same_bytes_in_each_process(tmp_path: Path) -> None:
    functions = (branches(), scaling("main"), strided(), replace(two_sizes(), name="other"))
    executable = program(functions, scaler("twice", 2), scaler("thrice", 3))
    executable.save(tmp_path / "model.byoc")
    digests = [
        answer_of(FRESH, str(tmp_path / "model.byoc"), str(tmp_path / seed), environment={"PYTHONHASHSEED": seed})
        for seed in ("1", "2")
    ]
    assert digests[0] == digests[1]
    written = executable.export_c(tmp_path / "here")
    here = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in written}
    assert here.items() <= digests[0].items(), json.dumps(digests)
