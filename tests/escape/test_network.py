"""The hostile guest in containers that may reach something: the walls are the same, and the way out is egress's alone."""
import contextlib
import os
import socket
import threading

import pytest

import escapetest
from conftest import run
from escapetest import brigtest, output_of, USERS

SETTINGS = {"egress": {"allow_private": True}}
LOOPBACK = "127.78.%d.%d" % (1 + os.getpid() % 200, 1 + os.getpid() // 200 % 200)
POLICIES = [["allowed.test"], ["*"]]


@pytest.fixture(scope="module")
def server():
    yield from run(brigtest.Server(None, config=SETTINGS))


@pytest.fixture(scope="module")
def canaries():
    """Servers of this machine that no guest must reach: {(address, port)}, and what came to them."""
    seen, made = [], []
    for address, port in ((LOOPBACK, 80), (LOOPBACK, 443), (LOOPBACK, 0)):
        made.append(socket.create_server((address, port)))

    def accept(listener):
        with contextlib.suppress(OSError):
            while True:
                seen.append(listener.accept()[1])
    for s in made:
        threading.Thread(target=accept, args=(s,), daemon=True).start()
    yield [s.getsockname() for s in made], seen
    for s in made:
        s.shutdown(socket.SHUT_RDWR)
        s.close()


def policy(names):
    return {"network_policy": {"type": "allowlist", "allowed_domains": names}}


@pytest.mark.parametrize("names", POLICIES, ids=["one", "all"])
def test_cases_with_a_network(client, box, names):
    """Every case but L16, which looks for a network where there is none."""
    name = box(**policy(names))
    cases = [c for c in output_of(client, name, "/tmp/escape list").split() if c != "L16"]
    for user in USERS:
        output = client.run(name, "/tmp/escape " + " ".join(cases), user=user, timeout_ms=120000)
        lines = output["stdout"].splitlines()
        assert [line.split()[0] for line in lines] == cases
        escapetest.TRIED.setdefault(user, []).extend(lines)
        assert not [line for line in lines if line.split()[1] != "PASS"], output


def own_addresses():
    """Of this machine, and those that clouds answer on."""
    found = {"127.0.0.1", "169.254.169.254", "0.0.0.0", "198.18.0.1", "198.18.77.77", "100.64.0.1", "224.0.0.1", "::1",
             "fe80::1", "::ffff:127.0.0.1"}
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.connect(("192.0.2.1", 9))  # sends nothing
        found.add(s.getsockname()[0])
    return sorted(found)


@pytest.mark.parametrize("names", POLICIES, ids=["one", "all"])
@pytest.mark.parametrize("user", USERS)
def test_the_ports_stay_egress(server, client, box, canaries, names, user):
    targets, seen = canaries
    targets = list(targets) + [(server.host, server.port)] + [(a, p) for a in own_addresses() for p in (80, 443, 22)]
    words = " ".join("%s %d" % t for t in targets)
    said = client.run(box(**policy(names)), "/tmp/escape attack network " + words, user=user, timeout_ms=120000)
    assert said["stdout"].startswith("N PASS "), said
    assert not seen


def test_the_network_test_can_fail(client, box):
    """Without egress the ports are anybody's."""
    said = client.run(box(), "/tmp/escape attack network")
    assert said["outcome"]["exit_code"] == 1 and said["stdout"].startswith("N bound "), said
