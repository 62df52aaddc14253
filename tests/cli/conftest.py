"""The command line is tested with the same servers as the API."""
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "api"))

import brigtest  # noqa: E402
import pytest  # noqa: E402


def pytest_configure(config):
    if os.geteuid() != 0:
        pytest.exit("these tests make sandboxes: run them as root", returncode=77)


@pytest.fixture(scope="module")
def server():
    """One without keys of its own, so that the data folder's first key is what counts."""
    with brigtest.Server(config={"keys": None}).running() as server:
        yield server
