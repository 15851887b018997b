"""Skip the tests of devices on a machine without an OpenCL driver."""

from __future__ import annotations

import pytest
from byoc_opencl.drivers import status


@pytest.fixture
def needs_device() -> None:
    found = status()
    if not found.ok:
        pytest.skip(f"no OpenCL device ({found.reason}). {found.remedy}")
