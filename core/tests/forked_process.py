"""Test scripts in forked children of a process with imported packages of others: a child imports byoc only.

No module of byoc is imported before the fork, so a script finds plugins, reads settings and imports byoc as in a fresh
process. Without ``os.fork``, each script runs in a fresh process.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

__all__ = ["run_script"]

_PACKAGES = ("numpy", "onnx", "ml_dtypes", "pluggy", "pydantic")
_SERVER = """
import gc, importlib, json, os, sys

def serve():
    for line in sys.stdin:
        child = os.fork()
        if not child:
            return json.loads(line)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    sys.exit()

def prepare(request):
    for descriptor, name in enumerate((os.devnull, request["stdout"], request["stderr"])):
        opened = os.open(name, os.O_RDWR)
        os.dup2(opened, descriptor)
        os.close(opened)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv[:] = [request["file"] or "-c"]
    sys.path[:1] = [os.path.dirname(request["file"]), *request["path"]]

assert not any(name.partition(".")[0].startswith("byoc") for name in sys.modules)
for name in sys.argv[1:]:
    importlib.import_module(name)
gc.collect()
gc.freeze()
request = serve()
prepare(request)
code = compile(request["script"], request["file"] or "<string>", "exec")
if request["file"]:
    __file__ = request["file"]
for variable in set(globals()) - {"__builtins__", "__name__", "__spec__", "__file__", "code"}:
    del globals()[variable]
exec(code)
"""
"""A process with a forked child for each line; the child runs a script, and ends like any other interpreter."""


def run_script(
    script: str,
    *,
    path: Sequence[Path] = (),
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a script with warnings as errors; return the finished process with the output.

    Args:
        script: the Python code of the module ``__main__``.
        path: folders in front of the search path of modules.
        file: the file of the script; the script runs in the file's folder, by default in the folder of this process.
        environment: all environment variables; by default the variables of this process.
    """
    variables = dict(os.environ if environment is None else environment)
    folder = Path.cwd() if file is None else file.parent
    if not hasattr(os, "fork"):
        paths = [*map(str, path), *filter(None, [os.environ.get("PYTHONPATH")])]
        return subprocess.run(
            [sys.executable, "-W", "error", *(("-c", script) if file is None else (str(file),))],
            env={**variables, "PYTHONPATH": os.pathsep.join(paths)},
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
    with tempfile.NamedTemporaryFile("r") as stdout, tempfile.NamedTemporaryFile("r") as stderr:
        request = {
            "script": script,
            "path": [*map(str, path)],
            "file": "" if file is None else str(file),
            "folder": str(folder),
            "environment": variables,
            "stdout": stdout.name,
            "stderr": stderr.name,
        }
        status = _ask(json.dumps(request))
        return subprocess.CompletedProcess(["python", "-c", script], status, stdout.read(), stderr.read())


def _ask(request: str) -> int:
    server = _start_server()
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.write(f"{request}\n")
    server.stdin.flush()
    return int(server.stdout.readline())


@cache
def _start_server() -> subprocess.Popen[str]:
    command = [sys.executable, "-W", "error", "-c", _SERVER, *_PACKAGES]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    atexit.register(_end, server)
    return server


def _end(server: subprocess.Popen[str]) -> None:
    """End the server: the processor time of a process without end would be missing from the times of the tests."""
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.close()
    server.wait()
    server.stdout.close()
