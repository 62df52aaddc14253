"""Fixtures: a fake provider, servers that are shared by a module, and clients of them."""
import os

import pytest

import brigtest
from dialects import Upstream
from fake_provider import FakeProvider
from fake_responses import ResponsesProvider


def pytest_configure(config):
    if os.geteuid() != 0:
        pytest.exit("these tests make sandboxes: run them as root", returncode=77)
    if not os.access(brigtest.BRIG, os.X_OK):
        pytest.exit("%s is missing: build it, or set BRIG" % brigtest.BRIG, returncode=2)


servers = []


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """A failed test shows what the server said."""
    report = (yield).get_result()
    if report.failed:
        for server in servers[-2:]:
            report.sections.append(("log of %s" % server.folder, server.log_tail()[-4000:]))


@pytest.fixture(scope="session")
def provider():
    """The fake provider; tests make models of their own in it, so that all share it."""
    provider = FakeProvider()
    yield provider
    provider.close()


@pytest.fixture(scope="module")
def upstream():
    """Providers of every dialect, for modules that ask for no other kind of upstream."""
    upstream = Upstream()
    yield upstream
    upstream.close()


@pytest.fixture(scope="module")
def responses_upstream():
    """A server of the Responses API."""
    upstream = ResponsesProvider()
    yield upstream
    upstream.close()


def settings_of(request):
    """A module's own SETTINGS go into the configuration of its shared server."""
    return dict(getattr(request.module, "SETTINGS", {}))


def run(server):
    servers.append(server)
    with server.running():
        yield server


@pytest.fixture(scope="module")
def server(request, provider):
    """One server for the module, with one gateway."""
    yield from run(brigtest.Server(provider, config=settings_of(request)))


@pytest.fixture(scope="module", params=[1, 3], ids=["workers1", "workers3"])
def servers_1_and_3(request, provider):
    """The same with one and with three gateways."""
    yield from run(brigtest.Server(provider, workers=request.param, config=settings_of(request)))


@pytest.fixture(scope="module")
def four(upstream):
    """One whose providers speak all four dialects."""
    yield from run(brigtest.Server(None, config={"providers": upstream.config()}))


@pytest.fixture
def make_server(provider):
    """Makes servers of the test's own. They are stopped and looked after at its end."""
    made = []

    def make(**more):
        server = brigtest.Server(provider, **more)
        made.append(server)
        servers.append(server)
        return server

    yield make
    problems = []
    for server in made:
        try:
            server.stop()
        except AssertionError as e:
            problems.append(str(e))
        finally:
            if server.process is not None:
                server.kill()
            server.remove()
    assert not problems, "\n".join(problems)


@pytest.fixture
def client(server):
    return server.client()


@pytest.fixture
def v1(server):
    return server.client(base="/v1")


@pytest.fixture
def admin(server):
    return server.client("admin")
