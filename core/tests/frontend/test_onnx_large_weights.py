"""Models over 2 GiB: external data is mapped, and a build copies no constant."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from core.tests.fresh_process import answer_of

WIDTH = 768
ROWS = (2 << 30) // (4 * WIDTH) + 1000

BUILD_AND_RUN = """
import json, sys
from pathlib import Path
import numpy as np
import byoc_core

def anonymous_kib():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))

rows = int(sys.argv[2])
before = anonymous_kib()
executable = byoc_core.build(byoc_core.from_onnx(sys.argv[1]), [])
y = byoc_core.VirtualMachine(executable)["main"](np.array([rows - 1, 0]))
print(json.dumps([y[:, :3].tolist(), anonymous_kib() - before]))
"""


@pytest.mark.skipif(not Path("/proc/self/status").is_file(), reason="reads the memory of a process of Linux")
def test_a_table_over_two_gibibytes_is_mapped(tmp_path: Path) -> None:
    nbytes = 4 * ROWS * WIDTH
    assert nbytes > 2 << 30
    last_row = onnx.numpy_helper.to_array(onnx.helper.make_tensor("row", onnx.TensorProto.FLOAT, [WIDTH], range(WIDTH)))
    with (tmp_path / "w.bin").open("wb") as file:
        file.seek(nbytes - 4 * WIDTH)  # a hole in the file
        file.write(last_row.tobytes())
    table = onnx.TensorProto(name="w", data_type=onnx.TensorProto.FLOAT, dims=[ROWS, WIDTH])
    table.data_location = onnx.TensorProto.EXTERNAL
    table.external_data.add(key="location", value="w.bin")
    graph = onnx.parser.parse_graph(f"g (int64[n] i) => (float[n, {WIDTH}] y) {{ y = Gather(w, i) }}")
    graph.initializer.append(table)
    path = tmp_path / "model.onnx"
    onnx.save_model(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8), path)
    rows, growth_kib = answer_of(BUILD_AND_RUN, str(path), str(ROWS))
    assert rows == [[0, 1, 2], [0, 0, 0]]
    assert growth_kib < 200 * 1024  # the code of the compiler, not the table
