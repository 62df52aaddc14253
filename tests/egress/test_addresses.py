"""Which addresses are dialled: after resolving, and the very one that was judged."""

import errno
import ipaddress
import socket
import subprocess

import pytest

from egresstest import Sandbox, ask, connect, http, read_all
from test_tls import alert_of, handshake, hello, server_name

A = "a.example.com"
GET = b"GET /close HTTP/1.1\r\nHost: a.example.com\r\n\r\n"

INSIDE = {
    "127.0.0.1": "loopback address", "127.255.0.1": "loopback address", "10.1.2.3": "private address",
    "172.16.0.1": "private address", "172.31.255.255": "private address", "192.168.1.1": "private address",
    "100.64.0.1": "carrier address", "100.100.100.200": "carrier address", "169.254.169.254": "link-local address",
    "168.63.129.16": "metadata address", "0.0.0.0": "unspecified address", "0.1.2.3": "unspecified address",
    "192.0.0.192": "reserved address", "192.0.2.1": "documentation address", "198.18.0.1": "reserved address",
    "198.51.100.7": "documentation address", "203.0.113.7": "documentation address", "224.0.0.1": "multicast address",
    "255.255.255.255": "reserved address", "240.0.0.1": "reserved address", "::": "unspecified address",
    "::1": "loopback address", "::ffff:10.0.0.1": "IPv4-mapped address", "::ffff:93.184.216.34": "IPv4-mapped address",
    "fd00::1": "private address", "fc00::1": "private address", "fe80::1": "link-local address",
    "fec0::1": "site-local address", "ff02::1": "multicast address", "2001:db8::1": "documentation address",
    "64:ff9b::10.0.0.1": "private address", "64:ff9b::169.254.169.254": "link-local address",
    "64:ff9b:1::1": "reserved address", "2002:0a00:0001::1": "private address", "2002:7f00:0001::": "loopback address",
    "2001::1": "reserved address", "fd00:ec2::254": "metadata address", "::10.0.0.1": "reserved address",
    "4000::1": "reserved address",
}
OPENED = ("private address", "loopback address", "documentation address")
NEVER = [a for a, why in INSIDE.items() if why not in OPENED or a.startswith(("2002", "64"))]


@pytest.mark.parametrize("address", INSIDE)
def test_rebinding(clean, egress, sandbox, address):
    clean.names.table[A] = [address]
    try:
        answer = sandbox.run(lambda: http(A, GET))
        assert answer.startswith(b"HTTP/1.1 520") and INSIDE[address].encode() in answer
        assert alert_of(sandbox.run(lambda: talk_tls())) == 49
    finally:
        clean.names.table[A] = ["93.184.216.34"]
    assert not clean.web.seen and not clean.tls.seen
    record = egress.wait_record(port=80)
    assert record["reason"] == INSIDE[address] and record["name"] == A and not record["allowed"]
    assert ipaddress.ip_address(record["address"]) == ipaddress.ip_address(address)


def talk_tls():
    with connect(A, 443) as s:
        s.sendall(hello(server_name(A.encode())))
        return read_all(s)


def test_second_answer(clean, sandbox):
    """Public first, then inside: each connection is judged by the answer that it dials."""
    clean.names.table[A] = lambda n: ["93.184.216.34"] if n == 1 else ["10.0.0.1"]
    try:
        first, second = sandbox.run(lambda: (http(A, GET), http(A, GET)))
    finally:
        clean.names.table[A] = ["93.184.216.34"]
    assert b"200 OK" in first and b"520" in second and b"private address" in second
    assert clean.web.seen == ["93.184.216.34"]


def test_alias_to_the_inside(clean, sandbox):
    clean.names.table[A] = ("cname", "inside.corp.test", ["10.0.0.1"])
    try:
        assert b"private address" in sandbox.run(lambda: http(A, GET))
    finally:
        clean.names.table[A] = ["93.184.216.34"]
    assert not clean.web.seen


def test_mixed_answer(clean, sandbox):
    """What is inside is passed over, the rest is dialled, IPv6 too."""
    clean.names.table[A] = ["10.0.0.1", "169.254.169.254", "93.184.216.35", "fd00::1"]
    clean.names.table["deep.a.example.com"] = ["fd00::1", "2606:4700::1111"]
    try:
        assert b"200 OK" in sandbox.run(lambda: http(A, GET))
        assert b"200 OK" in sandbox.run(lambda: http("deep.a.example.com", GET.replace(b": a", b": deep.a")))
    finally:
        clean.names.table[A] = clean.names.table["deep.a.example.com"] = ["93.184.216.34"]
    assert clean.web.seen == ["93.184.216.35", "2606:4700::1111"]


def test_own_addresses(clean, egress, sandbox):
    """Addresses of this machine, also public ones and such as it gets later."""
    subprocess.run(["ip", "address", "add", "81.2.3.4/32", "dev", "lo"], check=True)
    subprocess.run(["ip", "address", "add", "2a00:1::1/128", "dev", "lo"], check=True)
    try:
        for address in ("81.2.3.4", "2a00:1::1"):
            clean.names.table[A] = [address]
            assert b"own address" in sandbox.run(lambda: http(A, GET))
    finally:
        clean.names.table[A] = ["93.184.216.34"]
        subprocess.run(["ip", "address", "del", "81.2.3.4/32", "dev", "lo"], check=True)
        subprocess.run(["ip", "address", "del", "2a00:1::1/128", "dev", "lo"], check=True)
    assert not clean.web.seen


def test_private_allowed(clean, egress_with):
    """What the operator opens: private and loopback. Never the rest, nor brig's own listeners."""
    egress = egress_with("own=443", "connections_per_s=1000", "questions_per_s=1000")
    sandbox = Sandbox()
    egress.add(sandbox, "private", "allow a.example.com")
    try:
        for address in ("10.1.2.3", "127.0.0.1", "192.168.1.1", "fd00::1"):
            clean.names.table[A] = [address]
            assert b"200 OK" in sandbox.run(lambda: http(A, GET)), address
        assert clean.web.seen == ["10.1.2.3", "127.0.0.1", "192.168.1.1", "fd00::1"]
        for address in NEVER:
            clean.names.table[A] = [address]
            assert b"520" in sandbox.run(lambda: http(A, GET)), address
        subprocess.run(["ip", "address", "add", "81.2.3.4/32", "dev", "lo"], check=True)
        try:
            clean.names.table[A] = ["81.2.3.4"]
            assert b"own address" in sandbox.run(lambda: http(A, GET))
        finally:
            subprocess.run(["ip", "address", "del", "81.2.3.4/32", "dev", "lo"], check=True)
        assert len(clean.web.seen) == 4
        clean.names.table[A] = ["127.0.0.1"]
        assert alert_of(sandbox.run(talk_tls)) == 49 and not clean.tls.seen
        assert egress.wait_record(port=443)["reason"] == "brig's own port"
    finally:
        clean.names.table[A] = ["93.184.216.34"]
        sandbox.close()


LITERALS = ["93.184.216.34", "10.0.0.1", "127.1", "0x7f.0.0.1", "2130706433", "0177.0.0.1", "169.254.169.254",
            "198.18.16.0", "198.19.255.255", "0.0.0.0"]


@pytest.mark.parametrize("address", LITERALS)
def test_literal(clean, sandbox, address):
    """Without a name: no route, or an address that stands for none. Loopback is the container's own."""
    def talk():
        try:
            return http(socket.inet_ntoa(socket.inet_aton(address)), GET)
        except OSError as e:
            return e.errno
    answer = sandbox.run(talk)
    assert answer in (errno.ENETUNREACH, errno.EHOSTUNREACH) or answer.startswith(b"HTTP/1.1 520")
    assert not clean.web.seen


def test_everything(clean, egress, sandbox_with):
    """`["*"]`: any name, and addresses without one; private ones still not, and deny still wins."""
    sandbox = sandbox_with("all", "deny b.example.com", "deny *.secret.test", everything=True)
    clean.names.table["any.where.test"] = ["93.184.216.36"]
    assert b"200 OK" in sandbox.run(lambda: http("any.where.test", GET.replace(A.encode(), b"any.where.test")))
    assert b"200 OK" in sandbox.run(lambda: http("93.184.216.37", GET.replace(A.encode(), b"93.184.216.37")))
    assert b"200 OK" in sandbox.run(lambda: http("93.184.216.38", GET))
    assert clean.web.seen == ["93.184.216.36", "93.184.216.37", "93.184.216.38"]
    assert b"200 OK" in handshake(sandbox, clean, to="93.184.216.37")
    clean.web.seen.clear(), clean.tls.seen.clear()
    denied = sandbox.run(lambda: http("93.184.216.38", GET.replace(A.encode(), b"b.example.com")))
    assert b"520" in denied and b"denied by the rule: b.example.com" in denied
    assert b"520" in sandbox.run(lambda: http("93.184.216.38", GET.replace(A.encode(), b"93.184.216.39")))
    assert alert_of(sandbox.run(lambda: literal_tls("93.184.216.38", b"x.secret.test"))) == 112
    assert sandbox.run(lambda: ask("b.example.com")) == (3, [])
    for address in ("10.0.0.1", "127.0.0.1", "169.254.169.254", "100.64.1.1", "198.19.9.9", "192.168.0.1"):
        answer = sandbox.run(lambda: http(address, GET))
        assert b"520" in answer, (address, answer)
        assert alert_of(sandbox.run(lambda: literal_tls(address, A.encode()))) == 49
    assert not clean.web.seen and not clean.tls.seen


def literal_tls(address, name):
    with connect(address, 443) as s:
        s.sendall(hello(server_name(name)))
        return read_all(s)


def test_nothing_else(clean, egress, sandbox):
    """Other ports, UDP, ICMP, IPv6, the outside's loopback and abstract sockets: no way."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind("\0brig-test-outside")
    listener.listen()

    def talk():
        address = ask(A)[1][0]
        for port in (22, 25, 8080, 8484, 853, 8443):
            with pytest.raises(OSError):
                socket.create_connection((address, port), 5)
        for port in (443, 123, 5353):
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
                s.settimeout(0.3)
                s.connect((address, port))
                s.send(b"\xc0" + b"q" * 1199)
                with pytest.raises(OSError):
                    s.recv(100)
        with pytest.raises(OSError):
            socket.create_connection(("2606:4700::1111", 443), 5)
        with pytest.raises(OSError):
            socket.create_connection(("127.0.0.53", 5353), 5)
        ping = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
        with pytest.raises(OSError):
            ping.sendto(b"\x08\0\xf7\xff\0\0\0\0", ("93.184.216.34", 0))
        ping.close()
        with pytest.raises(OSError):  # an abstract name is of its namespace
            socket.socket(socket.AF_UNIX).connect("\0brig-test-outside")
        return True
    assert sandbox.run(talk)
    listener.close()
    assert not clean.web.seen and not clean.tls.seen and not clean.names.asked
