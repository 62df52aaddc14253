"""DNS: our own answers, for allowed names only, and no question ever leaves for a guest's sake."""

import os
import random
import socket
import struct
import time

import pytest

from egresstest import RESOLVER, Names, ask, connect, http, question, read_all, read_answer

A, B = "a.example.com", "b.example.com"
OK, FORMERR, NXDOMAIN, NOTIMP, REFUSED = 0, 1, 3, 4, 5


def test_allowed(clean, sandbox):
    code, addresses = sandbox.run(lambda: ask(A))
    assert code == OK and addresses[0].startswith("198.1") and addresses[0] != RESOLVER
    again = sandbox.run(lambda: [ask(n)[1] for n in (A, "A.EXAMPLE.com", "a.example.com.", "x.a.example.com", A)])
    assert again[0] == again[1] == again[2] == again[4] == addresses and again[3] != addresses
    assert clean.names.asked == []


@pytest.mark.parametrize("qtype", [28, 64, 65])
def test_empty(clean, sandbox, qtype):
    assert sandbox.run(lambda: ask(A, qtype)) == (OK, [])


@pytest.mark.parametrize("qtype", [2, 5, 6, 10, 12, 15, 16, 33, 41, 251, 252, 255, 0, 65535])
def test_other_types(clean, sandbox, qtype):
    """Of an allowed name refused, of another name unknown; neither leaves."""
    assert sandbox.run(lambda: ask(A, qtype)) == (REFUSED, [])
    assert sandbox.run(lambda: ask("b.example.com", qtype)) == (NXDOMAIN, [])
    assert clean.names.asked == []


DENIED = ["b.example.com", "example.com", "com", "aa.example.com", "evil-a.example.com", "a.example.com.evil.test",
          "1.2.3.4", "0x7f.1", "localhost", "a..example.com", "a.example.com\0", "*.a.example.com", "-.test",
          "x" * 63 + ".evil.test", ".".join(["x" * 60] * 4), "4.3.2.1.in-addr.arpa"]


@pytest.mark.parametrize("name", DENIED)
def test_denied(clean, egress, sandbox, name):
    def talk():
        labels = [b"a.", b"example", b"com"] if name == "a..example.com" else name.encode().split(b".")
        raw = struct.pack("!HHHHHH", 7, 0x100, 1, 0, 0, 0) + b"".join(bytes([len(x)]) + x for x in labels) + b"\0\0\1\0\1"
        return ask(name, raw=raw)
    assert sandbox.run(talk) == (NXDOMAIN, [])
    assert egress.wait_record(port=53)["allowed"] is False
    assert clean.names.asked == []


HOSTILE = {
    "empty": (b"", None),
    "short": (b"\0" * 11, None),
    "an answer": (question(A, flags=0x8180), None),
    "no question": (struct.pack("!HHHHHH", 7, 0x100, 0, 0, 0, 0), FORMERR),
    "two questions": (struct.pack("!HHHHHH", 7, 0x100, 2, 0, 0, 0) + question(A)[12:] * 2, FORMERR),
    "65535 questions": (struct.pack("!HHHHHH", 7, 0x100, 65535, 0, 0, 0) + question(A)[12:], FORMERR),
    "cut": (question(A)[:-3], FORMERR),
    "cut in a label": (question(A)[:16], FORMERR),
    "pointer to itself": (struct.pack("!HHHHHH", 7, 0x100, 1, 0, 0, 0) + b"\xc0\x0c\0\1\0\1", FORMERR),
    "pointer behind a label": (struct.pack("!HHHHHH", 7, 0x100, 1, 0, 0, 0) + b"\1a\xc0\x0c\0\1\0\1", FORMERR),
    "label of 64": (struct.pack("!HHHHHH", 7, 0x100, 1, 0, 0, 0) + b"\x40" + b"a" * 64 + b"\0\0\1\0\1", FORMERR),
    "name of 300": (struct.pack("!HHHHHH", 7, 0x100, 1, 0, 0, 0) + (b"\x3b" + b"a" * 59) * 5 + b"\0\0\1\0\1", FORMERR),
    "update": (question(A, flags=0x2800), NOTIMP),
    "another class": (question(A)[:-2] + b"\0\3", REFUSED),
    "root": (struct.pack("!HHHHHH", 7, 0x100, 1, 0, 0, 0) + b"\0\0\1\0\1", NXDOMAIN),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile(clean, sandbox, what):
    raw, code = HOSTILE[what]

    def talk():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.connect((RESOLVER, 53))
            s.settimeout(10)
            s.send(raw)
            last = question(A, qid=0xbeef)
            s.send(last)
            answers = [s.recv(4096)]
            if code is not None:
                answers.append(s.recv(4096))
            assert read_answer(answers[-1], last)[0] == OK, "it goes on"
            return answers[0][3] & 15 if code is not None else None
    assert sandbox.run(talk) == code


def test_random_bytes(clean, egress, sandbox):
    """2,000 random and mutated messages: whatever comes back, the process lives."""
    rng = random.Random(1)

    def talk():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.connect((RESOLVER, 53))
            for _ in range(2000):
                m = bytearray(question(A, edns=True))
                for _ in range(rng.randrange(4)):
                    m[rng.randrange(len(m))] = rng.randrange(256)
                s.send(bytes(m[:rng.randrange(len(m) + 1)]) if rng.random() < .5 else os.urandom(rng.randrange(1400)))
    sandbox.run(talk)
    assert egress.process.poll() is None and clean.names.asked == []


def test_edns_case_and_address(clean, sandbox):
    def talk():
        raw = question("A.eXaMpLe.CoM", edns=True)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.settimeout(10)
            s.sendto(raw, ("198.18.7.7", 53))  # any resolver's address works, and answers from there
            answer, peer = s.recvfrom(4096)
        assert answer[-11:-8] == b"\0\0\x29" and answer[10:12] == b"\0\1"
        return peer[0], read_answer(answer, raw)[0]
    assert sandbox.run(talk) == ("198.18.7.7", OK)


def test_over_tcp(clean, sandbox):
    def talk():
        with socket.create_connection((RESOLVER, 53), 10) as s:
            names = [A, "b.example.com", A]
            messages = [question(n) for n in names]
            data = b"".join(struct.pack("!H", len(m)) + m for m in messages)
            for i in range(len(data)):
                s.sendall(data[i:i + 1])
            f, codes = s.makefile("rb"), []
            for m in messages:
                codes.append(read_answer(f.read(struct.unpack("!H", f.read(2))[0]), m)[0])
            s.sendall(b"\xff\xff" + b"x" * 100)
            try:
                return codes, f.read()
            except ConnectionResetError:
                return codes, b""
    assert sandbox.run(talk) == ([OK, NXDOMAIN, OK], b"")


def test_tunnel(clean, egress_with, sandbox_with, egress):
    """Names that carry secrets, fast: refused after a while, recorded within bounds, none leaves."""
    sandbox = sandbox_with("allow a.example.com")

    def talk():
        codes = []
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.settimeout(1)
            s.connect((RESOLVER, 53))
            for i in range(3000):
                s.send(question(f"{os.urandom(20).hex()}.{i}.evil.test", random.choice([1, 16, 10])))
            try:
                while True:
                    codes.append(s.recv(4096)[3] & 15)
            except TimeoutError:
                return codes
    codes = sandbox.run(talk)
    assert set(codes) <= {NXDOMAIN, REFUSED}
    assert clean.names.asked == []
    records = [r for r in egress.read_records(1) if r["port"] == 53]
    assert 0 < len(records) < 300
    sandbox.run(lambda: ask("last.evil.test", timeout=30))


def test_4096_names(clean, egress_with):
    """The table is bounded; what a connection holds stays what it is."""
    from egresstest import Sandbox
    egress = egress_with("questions_per_s=100000")
    sandbox = Sandbox()
    egress.add(sandbox, "allow *.a.example.com", "allow a.example.com")

    def talk():
        with connect(A, 80) as s:
            first = ask("n0.a.example.com")[1][0]
            seen = {first}
            for i in range(1, 4300):
                code, addresses = ask(f"n{i}.a.example.com")
                assert code == OK and addresses[0] not in seen
                seen.add(addresses[0])
            gone = http(first, b"GET / HTTP/1.1\r\nHost: n0.a.example.com\r\n\r\n")
            s.sendall(b"GET /close HTTP/1.1\r\nHost: a.example.com\r\n\r\n")
            return gone, s.recv(1000), ask(A)[1][0] == s.getpeername()[0], ask("n0.a.example.com")[1][0] != first
    gone, kept, same, moved = sandbox.run(talk)
    assert b"520" in gone and b"address of no name" in gone
    assert b"200 OK" in kept and same and moved
    sandbox.close()


def test_policy_language(clean, sandbox_with):
    """`*` is any run of characters anywhere, deny wins, an exact name does not cover what is under it."""
    sandbox = sandbox_with("allow google.*.com", "allow *example.org", "allow cdn-*.net", "deny secret*.example.org",
                           "deny google.evil.com")
    expect = {"google.x.com": OK, "google.a.b.com": OK, "google.com": NXDOMAIN, "google..com": None,
              "example.org": OK, "evilexample.org": OK, "a.example.org": OK, "secret.example.org": NXDOMAIN,
              "secret-7.x.example.org": NXDOMAIN, "google.evil.com": NXDOMAIN, "cdn-1.net": OK, "cdn-.net": OK,
              "cdn.net": NXDOMAIN, "GOOGLE.X.COM": OK}
    got = sandbox.run(lambda: {n: ask(n)[0] for n, code in expect.items() if code is not None})
    assert got == {n: code for n, code in expect.items() if code is not None}


# ---- what names are resolved by ----

def get(name):
    return http(name, b"GET /close HTTP/1.1\r\nHost: %s\r\n\r\n" % name.encode())


def test_an_answer_that_is_too_long(clean, egress, sandbox):
    """The name server cuts it off: it is asked again over TCP, where it comes byte by byte."""
    clean.names.table[A] = ("cname", "alias." + "x" * 50 + ".test", ["93.184.216.%d" % n for n in range(100, 160)])
    clean.names.cut.add(A)
    try:
        assert b"200 OK" in sandbox.run(lambda: get(A))
    finally:
        clean.names.table[A] = ["93.184.216.34"]
    assert clean.web.seen == ["93.184.216.100"] and set(clean.names.over_tcp) == {A}


SPOILT = {
    "none": lambda a: b"", "half": lambda a: a[:len(a) // 2], "another id": lambda a: a[:2] + b"\0\0" + a[4:],
    "a question": lambda a: a[:4] + b"\x01" + a[5:], "cut off again": lambda a: a[:4] + b"\x83" + a[5:],
    "an error": lambda a: a[:5] + b"\x82" + a[6:], "another name": lambda a: a.replace(b"\x01a\x07", b"\x01b\x07"),
    "more records than there are": lambda a: a[:8] + b"\xff\xff" + a[10:], "a record too long": lambda a: a[:-6] + b"\xff\xff" + a[-4:],
    "nothing in it": lambda a: b"\0\0", "too short": lambda a: b"\0\x0c" + a[2:14],
}


@pytest.mark.parametrize("how", SPOILT)
def test_an_answer_that_is_too_long_and_bad(clean, egress, sandbox, how):
    """Said so, and not taken for a name without addresses."""
    clean.names.cut.add(A)
    clean.names.spoil = SPOILT[how]
    answer = sandbox.run(lambda: get(A))
    assert answer.startswith(b"HTTP/1.1 502") and b"reason: name's answer is too long" in answer
    assert egress.wait_record(port=80)["reason"] == "name's answer is too long"
    clean.names.spoil = None
    assert b"200 OK" in sandbox.run(lambda: get(A))


def test_hosts_that_change(clean, egress, sandbox):
    egress.sources(hosts=f"127.0.0.1 localhost\n93.184.216.99\tother.test {A.upper()} # {B}\n2606:2800::1 {A}\nno address\n")
    assert b"200 OK" in sandbox.run(lambda: get(A))
    assert clean.web.seen == ["93.184.216.99"] and not clean.names.asked
    egress.sources(hosts="")
    assert b"200 OK" in sandbox.run(lambda: get(A))
    assert clean.web.seen[1:] == ["93.184.216.34"] and clean.names.asked


def test_name_servers_that_change(clean, egress, sandbox):
    """Also while questions are under way; and what names no server is not taken."""
    second = Names("127.0.0.54")
    second.table[A] = ["93.184.216.77"]
    clean.names.silent.add(A)

    def first():
        with connect(A, 80) as s:
            s.sendall(b"GET /close HTTP/1.1\r\nHost: a.example.com\r\n\r\n")
            for _ in range(1200):
                if clean.names.asked:
                    break
                time.sleep(0.05)
            egress.sources(resolv="# nothing\n")
            egress.sources(resolv="search corp.test\nnameserver 127.0.0.54\n")
            return read_all(s)
    assert b"200 OK" in sandbox.run(first)
    asked = len(clean.names.asked)
    assert b"200 OK" in sandbox.run(lambda: get(A))
    assert clean.web.seen == ["93.184.216.77"] * 2 and len(clean.names.asked) == asked
    assert {n for n, _ in second.asked} == {A}, "no search domain is tried"


def test_one_kind_of_address_that_is_never_answered(clean, sandbox):
    """IPv4 is there; who waits for IPv6 does so for a moment only."""
    clean.names.mute.add((A, 28))
    began = time.monotonic()
    assert b"200 OK" in sandbox.run(lambda: get(A))
    assert time.monotonic() - began < 8
    clean.names.mute.add((A, 1))
    clean.names.mute.discard((A, 28))
    clean.names.table[A] = ["93.184.216.34", "2606:2800::1"]
    try:
        assert b"200 OK" in sandbox.run(lambda: get(A))
    finally:
        clean.names.table[A] = ["93.184.216.34"]
    assert clean.web.seen == ["93.184.216.34", "2606:2800::1"]
