"""Servers and containers for the hostile guest."""
import os

import pytest

import escapetest
from escapetest import brigtest


def pytest_configure(config):
    if os.geteuid() != 0:
        pytest.exit("these tests make sandboxes: run them as root", returncode=77)


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter):
    for user, lines in escapetest.TRIED.items():
        held = [line for line in lines if line.split()[1] == "PASS"]
        terminalreporter.write_line("escape: %d cases tried as %s, %d held" % (len(lines), user, len(held)))


@pytest.fixture(scope="session")
def escape(tmp_path_factory):
    return escapetest.build(tmp_path_factory.mktemp("escape"))


def run(server):
    with server.running():
        yield server


@pytest.fixture(scope="module")
def server(request):
    """For the module; its SETTINGS go into the configuration."""
    yield from run(brigtest.Server(None, config=getattr(request.module, "SETTINGS", {})))


@pytest.fixture
def client(server):
    return server.client()


@pytest.fixture
def box(client, escape):
    """Makes new containers with the program in them."""
    made = []

    def make(**fields):
        made.append(escapetest.new_box(client, escape, **fields))
        return made[-1]

    yield make
    for name in made:
        client.delete("/containers/" + name)


@pytest.fixture
def canary(tmp_path):
    # Where every user of the machine gets to: a wall that only a mode of a folder makes is none.
    canary = escapetest.Canary("/var/tmp")
    yield canary
    os.close(canary.fd)
    for path in [canary.folder / "in"]:
        path.rmdir()
    for path in canary.folder.iterdir():
        path.unlink()
    canary.folder.rmdir()
