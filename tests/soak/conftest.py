import os
import sys

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "api"))


def pytest_configure(config):
    if os.geteuid() != 0:
        pytest.exit("these tests make sandboxes: run them as root", returncode=77)
