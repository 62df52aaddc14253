"""Fixtures: a server on the control groups that the machine has, and one on version 1 alone."""
import contextlib
import os
import sys

import pytest

import sandboxtest  # noqa: F401  it says where the next two are
import brigtest
from fake_provider import FakeProvider

servers = []


def pytest_configure(config):
    if os.geteuid() != 0:
        pytest.exit("these tests make sandboxes: run them as root", returncode=77)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """A failed test shows what the server said."""
    report = (yield).get_result()
    if report.failed:
        for server in servers[-1:]:
            report.sections.append(("log of %s" % server.folder, server.log_tail()[-4000:]))


def running(server):
    servers.append(server)
    return server.running()


@pytest.fixture(scope="session")
def provider():
    provider = FakeProvider()
    yield provider
    provider.close()


def pytest_generate_tests(metafunc):
    """A module's CGROUPS are what its server runs on."""
    if "server" in metafunc.fixturenames:
        metafunc.parametrize("server", getattr(metafunc.module, "CGROUPS", ["auto", "v1"]), indirect=True, scope="module")


@pytest.fixture(scope="module")
def server(request, provider):
    """One for the module; its SETTINGS go into the configuration."""
    config = dict(getattr(request.module, "SETTINGS", {}), cgroups=request.param)
    with running(brigtest.Server(provider, config=config)) as server:
        yield server


@pytest.fixture
def client(server):
    return server.client()


@pytest.fixture
def make_server(provider):
    """Makes servers of the test's own, which are stopped and looked after at its end."""
    with contextlib.ExitStack() as stack:
        yield lambda **more: stack.enter_context(running(brigtest.Server(provider, **more)))


@pytest.fixture
def say(capsys):
    """Prints a figure, whatever pytest does with output."""
    def print_it(text):
        with capsys.disabled():
            sys.stdout.write("\n# %s\n" % text)
    return print_it
