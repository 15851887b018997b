"""Sessions in other processes: pickles, shared constants, and opening without the compiler."""

from __future__ import annotations

import multiprocessing
import pickle
import re
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import byoc_core
import numpy as np
import onnx
import pytest
from byoc_core.errors import ArtifactError
from byoc_core.session import Session, SessionCache

from core.tests.fresh_process import answer_of
from core.tests.session.conftest import AFFINE, Write

pytestmark = [pytest.mark.interpreter]

X, SHIFT = np.ones((2, 3), np.float32), np.zeros(3, np.float32)


def first_row(session: Session) -> Any:
    return session(X, SHIFT)["y"][0].tolist()


def test_a_pickle_holds_the_path_of_an_artifact(write: Write, tmp_path: Path) -> None:
    session = Session(write(), [], num_threads=1, casting="safe")
    data = pickle.dumps(session)
    assert len(data) < 2000
    again = pickle.loads(data)
    assert first_row(again) == [1, 2, 3]
    assert again([[1, 1, 1]], SHIFT)["y"].tolist() == [[1, 2, 3]]
    session.executable.save(tmp_path / "model.byoc")
    saved = pickle.dumps(Session(tmp_path / "model.byoc"))
    assert b"model.byoc" in saved
    assert len(saved) < 1000
    assert first_row(pickle.loads(saved)) == [1, 2, 3]


def test_a_pickle_of_a_model_in_memory_holds_the_artifact(write: Write) -> None:
    session = Session(write().read_bytes(), [])
    assert first_row(pickle.loads(pickle.dumps(session))) == [1, 2, 3]


def test_a_pickle_survives_the_loss_of_its_entry(write: Write) -> None:
    path = write()
    data = pickle.dumps(Session(path, []))
    SessionCache().clear()
    assert first_row(pickle.loads(data)) == [1, 2, 3]
    SessionCache().clear()
    write(AFFINE.replace("{1, 2, 3}", "{5, 5, 5}"))
    with pytest.raises(ArtifactError, match="is gone from the cache, and cannot be made again: the model"):
        pickle.loads(data)


def test_a_pickle_opens_no_other_artifact(write: Write, tmp_path: Path) -> None:
    target = tmp_path / "model.byoc"
    byoc_core.build(byoc_core.from_onnx(write()), []).save(target)
    data = pickle.dumps(Session(target))
    byoc_core.build(byoc_core.from_onnx(write(AFFINE.replace("{1, 2, 3}", "{5, 5, 5}"))), []).save(target)
    with pytest.raises(ArtifactError, match=re.escape("is another artifact than before; got ")):
        pickle.loads(data)
    target.unlink()
    with pytest.raises(FileNotFoundError, match=re.escape("model.byoc")):
        pickle.loads(data)


@pytest.mark.parametrize("method", ["spawn", "fork"])
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_sessions_travel_to_workers(write: Write, method: str) -> None:
    session = Session(write(), [])
    session.run_async(None, {"x": X, "shift": SHIFT}).result()
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context(method)) as pool:
        assert [*pool.map(first_row, [session] * 4)] == [[1, 2, 3]] * 4
        (row,) = pool.map(_first_row_by_future, [session])
    assert row == [1, 2, 3]


def _first_row_by_future(session: Session) -> Any:
    return session.run_async(["y"], {"x": X, "shift": SHIFT}).result()[0][0].tolist()


def test_processes_open_a_new_model_at_once(write: Write) -> None:
    path = write()
    with ProcessPoolExecutor(4, mp_context=multiprocessing.get_context("spawn")) as pool:
        assert [*pool.map(_first_row_of_file, [path] * 8)] == [[1, 2, 3]] * 8
    (entry,) = SessionCache().entries()
    assert Session(path, [])._opened.path == entry.path


def _first_row_of_file(path: Path) -> Any:
    return first_row(Session(path, []))


OPEN = """
import byoc_core, json, sys, numpy as np
session = byoc_core.Session(sys.argv[1], **json.loads(sys.argv[2]))
session.warm_up(n=[1, 4])
found = session(np.ones((2, 3), "float32"), np.zeros(3, "float32"))["y"][0].tolist()
compile_side = [name for name in sys.modules if name.startswith(("byoc_core.ir", "byoc_core.driver", "byoc_core.ops.",
    "byoc_core.frontend", "byoc_core.backend", "onnx", "pydantic", "typer"))]
print(json.dumps([found, compile_side]))
"""


def test_compiled_models_open_without_the_compiler(write: Write, tmp_path: Path) -> None:
    path = write()
    Session(path, [])
    assert answer_of(OPEN, str(path), '{"backends": []}') == [[1, 2, 3], []]
    byoc_core.build(byoc_core.from_onnx(path), []).save(tmp_path / "model.byoc")
    assert answer_of(OPEN, str(tmp_path / "model.byoc"), "{}") == [[1, 2, 3], []]


WITHOUT_COMPILER = """
import sys, json
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.startswith(("byoc_core.driver", "byoc_core.frontend", "byoc_core.ir")):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Blocker())
import byoc_core
try:
    byoc_core.Session(sys.argv[1])
except byoc_core.ByocError as error:
    print(json.dumps(str(error)))
"""


def test_a_missing_compiler_is_explained(write: Write) -> None:
    assert answer_of(WITHOUT_COMPILER, str(write())) == (
        "session: cannot compile a model: this installation of byoc-core has no compiler. Compile the model elsewhere"
        " (`byoc compile`), and open the artifact."
    )


SHARED = """
import byoc_core, json, sys, numpy as np
session = byoc_core.Session(sys.argv[1], [])
session(np.ones((1, 512), "float32"))
def rows(text):
    rows, own = {}, False
    for line in text.splitlines():
        if "-" in line.split(" ")[0] and not line.startswith("Vm"):
            own = "/sessions/" in line
        elif own:
            name, value = line.split(":")
            if value.strip().endswith("kB"):
                rows[name] = rows.get(name, 0) + int(value.split()[0])
    return rows
print(json.dumps(rows(open("/proc/self/smaps").read())))
"""


@pytest.mark.skipif(not Path("/proc/self/smaps").is_file(), reason="reads the mappings of Linux")
def test_processes_share_the_constants_of_an_entry(tmp_path: Path) -> None:
    weights = np.ones((512, 2048), np.float32)
    graph = onnx.parser.parse_graph("g (float[n, 512] x) => (float[n, 2048] y) { y = MatMul(x, w) }")
    graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    path = tmp_path / "large.onnx"
    onnx.save_model(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8), path)
    session = Session(path, [])
    session(np.ones((1, 512), np.float32))
    found = answer_of(SHARED, str(path))
    assert found["Rss"] >= weights.nbytes // 1024  # the weights are read in place
    assert found.get("Private_Dirty", 0) == 0
    assert found["Pss"] < 0.75 * found["Rss"]  # this process maps the same pages
