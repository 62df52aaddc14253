"""Limits, records, control messages, and what happens when the process ends in the middle."""

import os
import re
import signal
import socket
import struct
import subprocess
import time

import pytest

from egresstest import ADD, HEADER, REMOVE, SINK, Egress, Sandbox, ask, connect, http, question, read_all, read_response

A = "a.example.com"
GET = b"GET /close HTTP/1.1\r\nHost: a.example.com\r\n\r\n"


@pytest.fixture
def limited(clean, egress_with):
    """An egress with these limits, and a sandbox that may reach a.example.com."""
    made = []

    def make(*args, lines=("allow a.example.com",)):
        e, s = egress_with(*args), Sandbox()
        made.append(s)
        e.add(s, *lines)
        return e, s
    yield make
    for s in made:
        s.close()


def ends(sock, timeout=30):
    """How the other side ended: what came, and whether by a reset."""
    sock.settimeout(timeout)
    return read_all(sock)


def arrive(address):
    """A connection, or None where it was reset before this thread was told that there is one."""
    try:
        return socket.create_connection((address, 80), 10)
    except ConnectionResetError:
        return None


def test_connections_at_once(limited):
    egress, sandbox = limited("connections=3")

    def talk():
        address = ask(A)[1][0]
        held = [socket.create_connection((address, 80), 10) for _ in range(3)]
        for s in held:
            s.sendall(b"GET / HTTP/1.1\r\nHost: a.example.com\r\n\r\n")
            assert read_response(s.makefile("rb"))[0] == 200
        with socket.create_connection((address, 80), 10) as s:
            over = ends(s)
        with socket.create_connection((address, 443), 10) as s:
            alert = ends(s)
        # Of many that want to be told, the last are not.
        crowd = [arrive(address) for _ in range(40)]
        told = [ends(s)[:12] if s else b"<reset>" for s in crowd]
        for s in filter(None, crowd):
            s.close()
        held.pop().close()
        for _ in range(600):  # until that one's end was noticed
            after = http(A, GET)
            if b"200 OK" in after:
                break
            time.sleep(0.1)
        return over, alert, told, after
    over, alert, told, after = sandbox.run(talk)
    assert over.startswith(b"HTTP/1.1 429 Too Many Requests\r\n") and b"reason: too many connections" in over
    assert alert[:3] == b"\x15\x03\x01" and alert[5:] == b"\x02\x31", "a fatal alert: access denied"
    assert set(told) == {b"HTTP/1.1 429", b"<reset>"} and told.count(b"HTTP/1.1 429") <= 16
    assert b"200 OK" in after
    assert egress.wait_record(reason="too many connections")["port"] == 80


def test_connections_a_second(limited):
    egress, sandbox = limited("connections_per_s=5")

    def talk():
        address, got, said = ask(A)[1][0], [], []
        while not said and len(got) < 300:
            try:
                with socket.create_connection((address, 80), 10) as s:
                    s.sendall(GET)
                    answer = ends(s)
                    got.append(b"200 OK" in answer)
                    said += [answer] if b" 429 " in answer else []
            except OSError:
                got.append(False)
        time.sleep(2)
        return got, said, http(A, GET)
    got, said, after = sandbox.run(talk)
    assert got[:10] == [True] * 10 and False in got and b"200 OK" in after
    assert said and b"reason: connections too fast" in said[0]
    assert egress.wait_record(reason="connections too fast")


def test_questions_a_second(limited):
    egress, sandbox = limited("questions_per_s=5")
    codes = sandbox.run(lambda: [ask(A)[0] for _ in range(11)])
    assert codes[:10] == [0] * 10 and codes[10] in (0, 5)
    sandbox.run(lambda: [ask(A, timeout=30) for _ in range(5)])


def test_time_for_a_head(limited):
    egress, sandbox = limited("head_ms=2000")

    def talk():
        with connect(A, 80) as s:
            s.sendall(b"GET / HTTP/1.1\r\nHos")
            first = ends(s)
        with connect(A, 443) as s:
            return first, ends(s)
    assert sandbox.run(talk) == (b"<reset>", b"<reset>")
    assert egress.wait_record(port=80)["reason"] == "no request in time"


def test_idle(limited):
    """At rest it is closed in good order; a server that says nothing is given up, and the guest is told."""
    egress, sandbox = limited("idle_ms=2000")

    def talk(path):
        with connect(A, 80) as s:
            s.sendall(b"GET " + path + b" HTTP/1.1\r\nHost: a.example.com\r\n\r\n")
            return ends(s)
    assert sandbox.run(lambda: talk(b"/")).endswith(b"hello a.example.com\n")
    assert egress.wait_record(port=80)["reason"] == "idle too long"
    said = sandbox.run(lambda: talk(b"/silent"))
    assert said.startswith(b"HTTP/1.1 504 ") and b"reason: idle too long" in said
    assert egress.wait_record(port=80)["allowed"]


def test_whole_life(limited):
    egress, sandbox = limited("total_ms=3000")

    def talk():
        with connect(A, 80) as s:
            f, n = s.makefile("rb"), 0
            try:
                while True:
                    s.sendall(b"GET / HTTP/1.1\r\nHost: a.example.com\r\n\r\n")
                    if read_response(f) is None:
                        return n
                    n += 1
                    time.sleep(0.05)
            except OSError:
                return n
    assert sandbox.run(talk) > 1
    assert egress.wait_record(port=80)["reason"] == "open too long"


def test_bytes(limited):
    egress, sandbox = limited("bytes=1000000")

    def talk():
        with connect(A, 80) as s:
            s.sendall(b"GET /big5000000 HTTP/1.1\r\nHost: a.example.com\r\n\r\n")
            return ends(s)
    answer = sandbox.run(talk)
    assert answer.endswith(b"<reset>") and len(answer) < 1100000
    assert egress.wait_record(port=80)["reason"] == "too many bytes"

    def send():
        with connect(A, 80) as s:
            s.sendall(b"POST / HTTP/1.1\r\nHost: a.example.com\r\nContent-Length: 1500000\r\n\r\n" + bytes(1100000))
            return ends(s)
    said = sandbox.run(send)
    assert said.startswith(b"HTTP/1.1 413 ") and b"reason: too many bytes" in said


def test_no_server(limited, clean):
    """Allowed and still no connection: said so, by status."""
    egress, sandbox = limited("connect_ms=4000", "attempt_ms=1000", lines=("allow *.example.com",))
    assert b"HTTP/1.1 502" in sandbox.run(lambda: http("none.example.com", GET.replace(b"a.ex", b"none.ex")))
    assert egress.wait_record(port=80)["reason"] == "name not resolved"
    clean.names.silent.add("silent.example.com")
    assert b"HTTP/1.1 504" in sandbox.run(lambda: http("silent.example.com", GET.replace(b"a.ex", b"silent.ex")))
    record = egress.wait_record(port=80)
    assert record["reason"] == "name not resolved in time" and record["allowed"]
    assert egress.process.poll() is None


def test_guest_leaves_while_resolving(limited, clean):
    egress, sandbox = limited("connect_ms=20000", lines=("allow *.example.com",))
    clean.names.silent.add("silent.example.com")

    def talk():
        for i in range(20):
            s = connect("silent.example.com", 80)
            s.sendall(GET.replace(b"a.ex", b"silent.ex"))
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            s.close()
    sandbox.run(talk)
    egress.remove(sandbox)
    time.sleep(0.3)
    egress.add_again(sandbox)
    assert b"200 OK" in sandbox.run(lambda: http(A, GET))


def test_records_of_a_flood(limited):
    """Told within bounds, the rest counted; a gateway that does not read holds nobody up."""
    egress, sandbox = limited("questions_per_s=100000", "connections_per_s=100000")

    def flood():
        for i in range(1500):
            ask(f"n{i}.evil.test")
    sandbox.run(flood)
    first = egress.read_records(0.5)
    assert len(first) <= 100 + 20 * 60
    time.sleep(1)
    sandbox.run(lambda: ask("last.evil.test"))
    last = egress.wait_record(name="last.evil.test")
    assert last["more"] + sum(r["more"] for r in egress.records) + len(egress.records) + 1 == 1501
    assert b"200 OK" in sandbox.run(lambda: http(A, GET))


def test_sinks(limited):
    """A gateway that ended is forgotten; the next one gets the record."""
    egress, sandbox = limited()
    first, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    egress.send(HEADER.pack(SINK, HEADER.size, 0), [theirs.fileno()])
    theirs.close()
    egress.sink.close()
    sandbox.run(lambda: ask("b.example.com"))
    egress.sink = first
    assert egress.wait_record(name="b.example.com")["label"] == "ws/container"


BAD_CONTROL = {
    "short": b"\0\0", "unknown": HEADER.pack(99, HEADER.size, 0), "size": HEADER.pack(REMOVE, 99, 0) + b"\0" * 8,
    "add without descriptors": HEADER.pack(ADD, 16, 0) + b"\0" * 8, "sink without one": HEADER.pack(SINK, 8, 0),
    "long": HEADER.pack(REMOVE, 16, 0) + b"\0" * 5000,
}


@pytest.mark.parametrize("what", BAD_CONTROL)
def test_bad_control(clean, what):
    egress = Egress("uid=65534")
    egress.send(BAD_CONTROL[what])
    assert egress.process.wait(60) == 1
    egress.log.seek(0)
    assert b"control socket" in egress.log.read()
    egress.stop()


def test_bad_policies(limited):
    """A policy comes from a gateway: one that cannot be read allows nothing, and harms nobody else."""
    egress, sandbox = limited()
    for i, text in enumerate(["", "label x\n\n", "allow *\n", "label x\nallow a/b\n", "x" * 600000, "label x\0\nall\n"]):
        other = Sandbox()
        other.id, other.label = 1000 + i, "x"
        egress.add_again(other, text)
        assert other.run(lambda: ask(A)) == (3, [])
        other.close()
    assert b"200 OK" in sandbox.run(lambda: http(A, GET))


def test_policies_apart(clean, egress, sandbox_with):
    """What stands for a name in one container means nothing in another."""
    one, two = sandbox_with("allow a.example.com"), sandbox_with("allow b.example.com")
    address = one.run(lambda: ask(A))[1][0]
    answer = two.run(lambda: http(address, GET))
    assert b"520" in answer and b"address of no name" in answer
    two.run(lambda: ask("b.example.com"))
    answer = two.run(lambda: http(address, GET))
    assert b"520" in answer and not clean.web.seen


def test_removed(limited):
    """A container that is live no more: its connections end at once."""
    egress, sandbox = limited()

    def talk():
        with connect(A, 80) as s:
            s.sendall(b"GET / HTTP/1.1\r\nHost: a.example.com\r\n\r\n")
            read_response(s.makefile("rb"))
            egress.remove(sandbox)
            return ends(s)
    assert sandbox.run(talk) == b"<reset>"
    assert egress.wait_record(port=80)["reason"] == "container ended"


def test_killed_in_the_middle(clean, egress_with):
    """Connections end; new ones wait in the listeners, which are never free; the next process serves them."""
    egress, sandbox = egress_with(), Sandbox()
    egress.add(sandbox, "allow a.example.com")

    def talk():
        s = connect(A, 80)
        s.sendall(b"GET /big100000000 HTTP/1.1\r\nHost: a.example.com\r\n\r\n")
        assert s.recv(1000)
        address = s.getpeername()[0]
        egress.process.send_signal(signal.SIGKILL)
        egress.process.wait()
        data = ends(s)
        s.close()
        for port in (80, 443):
            with socket.socket() as taken, pytest.raises(OSError):
                taken.bind(("0.0.0.0", port))
        waiting = socket.create_connection((address, 80), 30)
        waiting.sendall(GET)
        asked = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        asked.connect(("198.18.0.1", 53))
        asked.settimeout(30)
        asked.send(question(A))
        return len(data), waiting, asked
    length, waiting, asked = sandbox.run(talk)
    egress.start()
    egress.add_again(sandbox)
    assert asked.recv(4096)[3] & 15 == 0
    waited, after = ends(waiting), sandbox.run(lambda: http(A, GET))
    waiting.close()
    asked.close()
    assert length < 100000000
    # The address stands for the name again or, asked for too early, for none: never for another one.
    assert b"200 OK" in waited or b"address of no name" in waited, waited
    assert b"200 OK" in after
    sandbox.close()


def test_confined(limited):
    """Another user, no capabilities, no new privileges, a filter, no core, nobody's ptrace."""
    egress, sandbox = limited()
    sandbox.run(lambda: http(A, GET))
    with open(f"/proc/{egress.process.pid}/status") as f:
        status = dict(line.rstrip("\n").split(":\t", 1) for line in f if ":\t" in line)
    assert status["Uid"].split() == ["65534"] * 4 and status["Groups"].strip() == ""
    assert int(status["CapEff"], 16) == int(status["CapPrm"], 16) == 0
    assert status["NoNewPrivs"] == "1" and status["Seccomp"] == "2" and status["Threads"] == "1"
    with open(f"/proc/{egress.process.pid}/limits") as f:
        text = f.read()
    assert re.search(r"Max core file size +0 ", text) and re.search(r"Max processes +0 ", text)
    assert os.stat(f"/proc/{egress.process.pid}/mem").st_uid == 0, "not dumpable"
    assert subprocess.run(["ls", f"/proc/{egress.process.pid}/fd"], capture_output=True, text=True).stdout.split()


def test_no_descriptor_stays(limited):
    egress, sandbox = limited("connections_per_s=10000", "questions_per_s=10000")
    folder = f"/proc/{egress.process.pid}/fd"
    sandbox.run(lambda: http(A, GET))
    time.sleep(0.3)
    before = len(os.listdir(folder))

    def talk():
        for request in (GET, GET.replace(b"Host: a", b"Host: b"), b"\0", b"GET /unasked HTTP/1.1\r\nHost: a.example.com\r\n\r\n"):
            for _ in range(20):
                http(A, request)
    sandbox.run(talk)
    end = time.monotonic() + 60
    while len(os.listdir(folder)) > before and time.monotonic() < end:
        time.sleep(0.1)
    assert len(os.listdir(folder)) <= before
