"""Port 80: each request's Host is the name that was dialled, whatever stands around it."""

from http.client import HTTPConnection
import socket
import threading
import time

import pytest

from egresstest import ask, connect, http, read_all, read_response, web

A = "a.example.com"
GET = b"GET / HTTP/1.1\r\nHost: a.example.com\r\n\r\n"


def inside(sandbox, request, name=A):
    return sandbox.run(lambda: http(name, request))


def denied(answer, status=520):
    return answer.startswith(b"HTTP/1.1 %d " % status) and b"Connection: close" in answer


def test_allowed(clean, egress, sandbox):
    answer = inside(sandbox, b"GET /close HTTP/1.0\r\nHost: a.example.com\r\n\r\n")
    assert answer.endswith(b"until the end")
    record = egress.wait_record(port=80, allowed=True)
    assert record["name"] == A and record["address"] == "93.184.216.34" and record["label"] == "ws/container"
    assert record["bytes_in"] == len(answer) and record["bytes_out"] == 44 and record["reason"] == "allowed"


SAME = ["a.example.com", "A.EXAMPLE.com", "a.example.com:80", "a.example.com.", " a.example.com\t"]


@pytest.mark.parametrize("host", SAME)
def test_same_name(clean, sandbox, host):
    answer = inside(sandbox, b"GET /close HTTP/1.1\r\nHost: %s\r\n\r\n" % host.encode())
    assert answer.startswith(b"HTTP/1.1 200")


# request, status
BAD = {
    "other host": (b"GET / HTTP/1.1\r\nHost: b.example.com\r\n\r\n", 520),
    "subdomain that is allowed too": (b"GET / HTTP/1.1\r\nHost: deep.a.example.com\r\n\r\n", 520),
    "address": (b"GET / HTTP/1.1\r\nHost: 93.184.216.34\r\n\r\n", 520),
    "other port": (b"GET / HTTP/1.1\r\nHost: a.example.com:443\r\n\r\n", 400),
    "empty port": (b"GET / HTTP/1.1\r\nHost: a.example.com:\r\n\r\n", 400),
    "port twice": (b"GET / HTTP/1.1\r\nHost: a.example.com:80:80\r\n\r\n", 400),
    "user": (b"GET / HTTP/1.1\r\nHost: a.example.com@b.example.com\r\n\r\n", 400),
    "host empty": (b"GET / HTTP/1.1\r\nHost:\r\n\r\n", 400),
    "host missing": (b"GET / HTTP/1.1\r\nAccept: *\r\n\r\n", 520),
    "1.0 without host": (b"GET / HTTP/1.0\r\n\r\n", 520),
    "host doubled": (b"GET / HTTP/1.1\r\nHost: a.example.com\r\nHost: b.example.com\r\n\r\n", 400),
    "host doubled, the same": (b"GET / HTTP/1.1\r\nHost: a.example.com\r\nHost: a.example.com\r\n\r\n", 400),
    "host list": (b"GET / HTTP/1.1\r\nHost: a.example.com, b.example.com\r\n\r\n", 400),
    "host with a space before its colon": (b"GET / HTTP/1.1\r\nHost : a.example.com\r\n\r\n", 400),
    "host folded": (b"GET / HTTP/1.1\r\nHost: a.example.com\r\n b.example.com\r\n\r\n", 400),
    "host with a path": (b"GET / HTTP/1.1\r\nHost: a.example.com/b\r\n\r\n", 400),
    "bare line feeds": (b"GET / HTTP/1.1\nHost: a.example.com\n\n", 400),
    "bare carriage return": (b"GET / HTTP/1.1\r\nHost: a.example.com\rX: y\r\n\r\n", 400),
    "NUL": (b"GET / HTTP/1.1\r\nHost: a.example.com\r\nX: \0\r\n\r\n", 400),
    "absolute, other": (b"GET http://b.example.com/ HTTP/1.1\r\nHost: a.example.com\r\n\r\n", 400),
    "absolute, other host": (b"GET http://a.example.com/ HTTP/1.1\r\nHost: b.example.com\r\n\r\n", 400),
    "absolute, both other": (b"GET http://b.example.com/ HTTP/1.1\r\nHost: b.example.com\r\n\r\n", 520),
    "absolute with a user": (b"GET http://u@a.example.com/ HTTP/1.1\r\nHost: a.example.com\r\n\r\n", 400),
    "absolute https": (b"GET https://a.example.com/ HTTP/1.1\r\nHost: a.example.com\r\n\r\n", 400),
    "target without a slash": (b"GET b.example.com HTTP/1.1\r\nHost: a.example.com\r\n\r\n", 400),
    "CONNECT": (b"CONNECT a.example.com:443 HTTP/1.1\r\nHost: a.example.com:443\r\n\r\n", 520),
    "CONNECT lower case": (b"connect a.example.com:80 HTTP/1.1\r\nHost: a.example.com\r\n\r\n", 520),
    "CONNECT an address": (b"CONNECT 10.0.0.1:80 HTTP/1.1\r\nHost: a.example.com\r\n\r\n", 520),
    "h2c for another host": (b"GET / HTTP/1.1\r\nHost: b.example.com\r\nConnection: Upgrade, HTTP2-Settings\r\n"
                             b"Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n", 520),
    "h2c doubled": (b"GET / HTTP/1.1\r\nHost: a.example.com\r\nUpgrade: h2c\r\nUpgrade: h2c\r\n\r\n", 520),
    "settings of HTTP/2 alone": (b"GET / HTTP/1.1\r\nHost: a.example.com\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n", 520),
    "h2c beside websocket": (b"GET / HTTP/1.1\r\nHost: a.example.com\r\nUpgrade: websocket, h2c\r\n\r\n", 520),
    "h2 preface": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 520),
    "HTTP/1.2": (b"GET / HTTP/1.2\r\nHost: a.example.com\r\n\r\n", 400),
    "HTTP/0.9": (b"GET /\r\n\r\n", 400),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
    "both lengths": (b"POST / HTTP/1.1\r\nHost: a.example.com\r\nContent-Length: 4\r\nTransfer-Encoding: chunked"
                     b"\r\n\r\n0\r\n\r\n", 400),
    "length doubled": (b"POST / HTTP/1.1\r\nHost: a.example.com\r\nContent-Length: 4\r\nContent-Length: 40\r\n\r\nabcd", 400),
    "length list": (b"POST / HTTP/1.1\r\nHost: a.example.com\r\nContent-Length: 4, 4\r\n\r\nabcd", 400),
    "length with a sign": (b"POST / HTTP/1.1\r\nHost: a.example.com\r\nContent-Length: +4\r\n\r\nabcd", 400),
    "length too large": (b"POST / HTTP/1.1\r\nHost: a.example.com\r\nContent-Length: 18446744073709551617\r\n\r\na", 400),
    "coding list": (b"POST / HTTP/1.1\r\nHost: a.example.com\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 400),
    "coding unknown": (b"POST / HTTP/1.1\r\nHost: a.example.com\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", 400),
    "coding in 1.0": (b"POST / HTTP/1.0\r\nHost: a.example.com\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    "coding doubled": (b"POST / HTTP/1.1\r\nHost: a.example.com\r\nTransfer-Encoding: chunked\r\n"
                       b"Transfer-Encoding: identity\r\n\r\n0\r\n\r\n", 400),
    "head too large": (b"GET / HTTP/1.1\r\nHost: a.example.com\r\n" + b"X: %s\r\n" % (b"y" * 1000) * 70 + b"\r\n", 400),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_first(clean, egress, sandbox, what):
    request, status = BAD[what]
    answer = inside(sandbox, request)
    assert denied(answer, status), answer
    assert not clean.web.seen, "and no server was dialled"
    assert egress.wait_record(port=80)["allowed"] is False


@pytest.mark.parametrize("what", BAD)
def test_bad_later(clean, sandbox, what):
    """The same as a second request that is pipelined: the first gets its answer, the second none of the server's."""
    request, status = BAD[what]
    answer = inside(sandbox, GET + request)
    first = b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nhello a.example.com\n"
    assert answer.startswith(first)
    assert denied(answer[len(first):], status), answer
    assert len(clean.requests) == 1


CHUNKED = b"POST /x HTTP/1.1\r\nHost: a.example.com\r\nTransfer-Encoding: chunked\r\n\r\n"
SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: b.example.com\r\n\r\n"
CHUNKS = {
    "extension": b"4;x=y\r\nabcd\r\n0\r\n\r\n",
    "extension that ends in a line feed": b"4;\nabcd\r\n0\r\n\r\n",
    "bare line feed": b"4\nabcd\n0\n\n",
    "0x": b"0x4\r\nabcd\r\n0\r\n\r\n",
    "space": b"4 \r\nabcd\r\n0\r\n\r\n",
    "sign": b"+4\r\nabcd\r\n0\r\n\r\n",
    "empty size": b"\r\nabcd\r\n0\r\n\r\n",
    "too many digits": b"00000000000000004\r\nabcd\r\n0\r\n\r\n",
    "data too long": b"4\r\nabcdef\r\n0\r\n\r\n",
    "trailer malformed": b"0\r\nA b\r\n\r\n",
    "trailer folded": b"0\r\nA: b\r\n c\r\n\r\n",
}


@pytest.mark.parametrize("what", CHUNKS)
def test_bad_chunks(clean, sandbox, what):
    answer = inside(sandbox, CHUNKED + CHUNKS[what] + SMUGGLED)
    assert denied(answer, 400) or answer in (b"", b"<reset>"), answer
    assert not [r for r in clean.requests if r[0] != A]


@pytest.mark.parametrize("cut", [1, 3, 1000])
def test_bodies_end_where_they_say(clean, sandbox, cut):
    """What looks like a request inside of a body is body; what follows the body is a request."""
    length = b"POST /x HTTP/1.1\r\nHost: a.example.com\r\nContent-Length: %d\r\n\r\n" % len(SMUGGLED) + SMUGGLED
    chunks = CHUNKED + b"%x\r\n%s\r\n0\r\nTrailer: x\r\n\r\n" % (len(SMUGGLED), SMUGGLED)

    def send():
        with connect(A, 80) as s:
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            data = length + chunks + GET + SMUGGLED
            for i in range(0, len(data), cut):
                s.sendall(data[i:i + cut])
            return read_all(s)
    answer = sandbox.run(send)
    assert answer.count(b"HTTP/1.1 200") == 3 and b"HTTP/1.1 520" in answer, answer
    assert [r[2] for r in clean.requests] == [SMUGGLED, SMUGGLED, b""]
    assert {r[0] for r in clean.requests} == {A}


def test_kept_alive(clean, egress, sandbox):
    def talk():
        c = HTTPConnection(ask(A)[1][0], timeout=30)
        got = []
        for path in ("/", "/chunked-plain", "/chunked-plain", "/empty", "/"):
            c.request("GET", path, headers={"Host": A})
            got.append(c.getresponse().read())
        c.request("HEAD", "/", headers={"Host": A})
        got.append(c.getresponse().read())
        c.request("POST", "/x", body=iter([b"one", b"two"]), headers={"Host": A}, encode_chunked=True)
        got.append(c.getresponse().read())
        c.request("POST", "/x", body=b"z" * 300000, headers={"Host": A})
        got.append(len(c.getresponse().read()))
        c.request("GET", "/", headers={"Host": "b.example.com"})
        r = c.getresponse()
        return got, r.status, r.read().decode()
    got, status, text = sandbox.run(talk)
    hello = b"hello a.example.com\n"
    assert got == [hello, b"firstsecond", b"firstsecond", b"", hello, b"", b"onetwo", 300000]
    assert status == 520 and "reason: Host" in text and "b.example.com" in text
    assert len(clean.web.seen) == 1, "one connection for all"
    assert egress.wait_record(port=80)["reason"] == "Host"


def test_answer_with_extensions_then_close(clean, sandbox):
    """An answer that we do not follow passes, and no request goes behind it."""
    def talk():
        with connect(A, 80) as s:
            s.sendall(GET.replace(b"GET /", b"GET /chunked"))
            data = b""
            while not data.endswith(b"A: b\r\n\r\n"):
                data += s.recv(1000)
            s.sendall(SMUGGLED)
            s.settimeout(1)
            try:
                return data, s.recv(1000)
            except TimeoutError:
                return data, b""
    data, after = sandbox.run(talk)
    assert b"6;x=y\r\nsecond" in data and not after
    assert len(clean.requests) == 1


def test_continue_and_early_answer(clean, sandbox):
    def talk():
        with connect(A, 80) as s:
            f = s.makefile("rb")
            s.sendall(b"POST /x HTTP/1.1\r\nHost: a.example.com\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n")
            first = read_response(f)[0]
            s.sendall(b"hello")
            second = read_response(f)
            s.sendall(b"POST /early HTTP/1.1\r\nHost: a.example.com\r\nContent-Length: 5\r\n\r\n")
            third = read_response(f)[0]
            s.sendall(b"hello" + GET)
            return first, second[2], third, read_response(f)[0]
    assert sandbox.run(talk) == (100, b"hello", 413, 200)


def test_websocket(clean, egress, sandbox):
    upgrade = (b"GET /ws HTTP/1.1\r\nHost: a.example.com\r\nConnection: Upgrade\r\nUpgrade: WebSocket\r\n"
               b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n")

    def talk():
        with connect(A, 80) as s:
            s.sendall(upgrade)
            f = s.makefile("rb")
            assert read_response(f)[0] == 101
            got = []
            for data in (b"abc", b"\x82\x01\x00", b"GET / HTTP/1.1\r\n\r\n"):
                s.sendall(data)
                got.append(f.read(len(data)))
            s.shutdown(socket.SHUT_WR)
            return got, f.read()
    assert sandbox.run(talk) == ([b"cba", b"\x00\x01\x82", b"\n\r\n\r1.1/PTTH / TEG"], b"")
    assert egress.wait_record(port=80)["allowed"]


def test_upgrade_that_is_not_taken(clean, sandbox):
    """The server goes on in HTTP, and so do we."""
    request = b"GET / HTTP/1.1\r\nHost: a.example.com\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    answer = inside(sandbox, request + SMUGGLED)
    assert answer.count(b"HTTP/1.1 200") == 1 and b"HTTP/1.1 520" in answer


H2C = (b"GET / HTTP/1.1\r\nHost: a.example.com\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
       b"HTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n")


def test_h2c_is_never_offered(clean, sandbox):
    """The server hears of a plain request, and the next one on the connection is judged as ever."""
    answer = inside(sandbox, H2C + SMUGGLED)
    assert answer.count(b"HTTP/1.1 200") == 1 and b"HTTP/1.1 520" in answer
    assert [r[1] for r in clean.requests] == ["GET / HTTP/1.1"] and web.fields == {"host": A}
    clean.requests.clear()
    # One that takes up what it was not offered.
    answer = inside(sandbox, H2C.replace(b"GET /", b"GET /unasked") + SMUGGLED)
    assert answer in (b"<reset>", b"") and len(clean.requests) == 1


def test_unasked_upgrade(clean, sandbox):
    answer = inside(sandbox, GET.replace(b"GET /", b"GET /unasked") + SMUGGLED)
    assert answer in (b"<reset>", b"")
    assert len(clean.requests) == 1


def test_half_close(clean, sandbox):
    def talk():
        with connect(A, 80) as s:
            s.sendall(GET + GET)
            s.shutdown(socket.SHUT_WR)
            return read_all(s)
    assert sandbox.run(talk).count(b"hello a.example.com") == 2


def test_big_and_slow(clean, egress, sandbox):
    """64 MiB arrive whole, also at a reader that waits: then memory does not grow."""
    size = 64 << 20

    def talk():
        with connect(A, 80) as s:
            s.sendall(b"GET /big%d HTTP/1.1\r\nHost: a.example.com\r\nConnection: close\r\n\r\n" % size)
            time.sleep(1)
            with open(f"/proc/{egress.process.pid}/statm") as f:
                pages = int(f.read().split()[1])
            f = s.makefile("rb")
            body = read_response(f)[2]
            return len(body), body == bytes(range(256)) * (size // 256), pages * 4096
    length, same, resident = sandbox.run(talk)
    assert length == size and same and resident < 40 << 20
    assert egress.wait_record(port=80)["bytes_in"] > size


def test_many_at_once(clean, sandbox):
    def talk():
        address = ask(A)[1][0]
        results = []

        def one():
            with socket.create_connection((address, 80), 60) as s:
                s.sendall(b"GET /big300000 HTTP/1.1\r\nHost: a.example.com\r\n\r\n")
                results.append(len(read_response(s.makefile("rb"))[2]))
        sandbox_threads = [threading.Thread(target=lambda: (sandbox.enter(), one())) for _ in range(100)]
        for t in sandbox_threads:
            t.start()
        for t in sandbox_threads:
            t.join(60)
        return results
    assert sandbox.run(talk) == [300000] * 100
