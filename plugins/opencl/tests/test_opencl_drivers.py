"""The search for drivers: the folder of the system, an unchanged environment, machines without a driver."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from byoc_opencl import drivers

_STATUS = """
import os
before = dict(os.environ)
from byoc_opencl.drivers import status
found = status()
print(found.ok, found.reason, found.remedy, sep="|")
assert dict(os.environ) == before
"""


def status_in(**variables: str) -> list[str]:
    """Return the status found by a fresh process with these variables: whether usable, reason, remedy."""
    environment = {**os.environ, **variables}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", _STATUS], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip().split("|")


def test_without_a_driver_the_status_names_the_remedy(tmp_path: Path) -> None:
    is_usable, reason, remedy = status_in(OCL_ICD_VENDORS=str(tmp_path))
    assert (is_usable, reason) == ("False", "no OpenCL driver was found")
    assert remedy == "Install the driver of the device; for the processor: apt install pocl-opencl-icd."


def test_without_a_driver_the_command_line_shows_reason_and_remedy(tmp_path: Path) -> None:
    code = "from byoc_core.cli.main import main; main()"
    environment = {**os.environ, "OCL_ICD_VENDORS": str(tmp_path), "COLUMNS": "200"}
    done = subprocess.run(
        [sys.executable, "-c", code, "doctor"], env=environment, capture_output=True, text=True, check=False
    )
    assert "no OpenCL driver was found" in done.stdout
    assert "apt install pocl-opencl-icd" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.usefixtures("needs_device")
def test_with_a_driver_the_status_names_the_devices_and_leaves_the_environment() -> None:
    is_usable, reason, _ = status_in()
    assert is_usable == "True"
    assert "(" in reason  # the platform


def test_the_package_is_found_without_an_import() -> None:
    package = drivers.find_package()
    assert package is not None
    assert (package / "__init__.py").is_file()
