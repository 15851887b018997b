"""Test scripts in forked children of a process with imported packages of others: a child imports byoc only.

No module of byoc is imported before the fork, so a script finds plugins, reads settings and imports byoc as in a fresh
process. Without ``os.fork``, each script runs in a fresh process. A server of ``byoc_core.isolation`` cannot be used
instead: the server itself imports byoc.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from byoc_core.isolation.fork_server import variables_read_at_start

__all__ = ["run_script"]

_PACKAGES = ("numpy", "onnx", "ml_dtypes", "pluggy", "pydantic")
_ENVIRONMENT = dict(os.environ)
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
        environment: all environment variables; by default the variables of this process. A forked child cannot have
            other values of variables read at the start of Python, or by numpy's import, than this process at the import
            of this module. ``PYTHONPATH`` may differ, and acts on child processes of the script only.

    Raises:
        ValueError: such a variable differs.
        RuntimeError: the process forked for each script has ended.
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
        status = _start_server().run(request)
        return subprocess.CompletedProcess(["python", "-c", script], status, stdout.read(), stderr.read())


class _Server:
    """A process forked for each script."""

    def __init__(self) -> None:
        command = [sys.executable, "-W", "error", "-c", _SERVER, *_PACKAGES]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=_ENVIRONMENT, text=True
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests, self._replies = self._process.stdin, self._process.stdout

    def run(self, request: Mapping[str, Any]) -> int:
        """Run the script of a request in a forked process; return the exit status.

        Raises:
            ValueError: the environment cannot be that of a forked process.
            RuntimeError: the server has ended.
        """
        differing = {name for name, _ in _at_start(_ENVIRONMENT).items() ^ _at_start(request["environment"]).items()}
        if differing:
            names = ", ".join(sorted(differing))
            raise ValueError(f"a forked process cannot have other values of {names}: start a fresh process")
        try:
            self._requests.write(json.dumps(request) + "\n")
            self._requests.flush()
            status = self._replies.readline()
        except BrokenPipeError:
            status = ""
        if not status:
            raise RuntimeError(f"the process forked for each script ended with status {self._process.wait()}")
        return int(status)

    def end(self) -> None:
        """End the server: the processor time of a process without end would be missing from the times of the tests."""
        with contextlib.suppress(BrokenPipeError):  # an unread request
            self._requests.close()
        self._process.wait()
        self._replies.close()


@cache
def _start_server() -> _Server:
    server = _Server()
    atexit.register(server.end)
    return server


def _at_start(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables read at the start, except settings of Intel's OpenMP: imported packages set these."""
    found = variables_read_at_start(environment)
    return {k: v for k, v in found.items() if k != "PYTHONPATH" and not k.startswith("KMP_")}
