"""The HTTP front of the real server: framing, limits, codings, pipelining, keys that stay secret."""
import gzip
import json
import select
import shutil
import socket
import subprocess
import threading
import time

import pytest

import brigtest
from brigtest import KEYS, Reader, check_error, connect, resident, text_of, wait_for
from fake_provider import Hold, Reply, chunk, text, text_deltas

SETTINGS = {"sandbox": False, "limits": {"body": "1m", "connections": 4096}}
KEY = "Authorization: Bearer %s\r\n" % KEYS["one"]
ASAN = b"__asan_init" in open(brigtest.BRIG, "rb").read()


def raw(server, data, timeout=60):
    """What the server answers to these bytes, and whether it closed the connection after that."""
    sock = connect(server, timeout)
    sock.sendall(data)
    reader = Reader(sock)
    answer = reader.answer()
    sock.settimeout(60 if answer.headers.get("connection") == "close" else 1)
    try:
        answer.closed = sock.recv(1) == b""
    except socket.timeout:
        answer.closed = False
    except OSError:
        answer.closed = True
    sock.close()
    return answer


def head(*lines, first="POST /api/v1/responses HTTP/1.1", host="Host: x"):
    return "\r\n".join([first] + ([host] if host else []) + [KEY.strip()] + list(lines)).encode("latin-1") + b"\r\n\r\n"


GOOD = b'{"model":"brig/script","input":"x"}'
LENGTH = "Content-Length: %d" % len(GOOD)

# Requests whose framing is wrong or doubtful: each is refused and the connection closed, so that nobody in front of us
# or behind us can read it otherwise.
FRAMING = {
    "bare LF after the request line": b"GET /healthz HTTP/1.1\nHost: x\r\n\r\n",
    "bare LF after a header": b"GET /healthz HTTP/1.1\r\nHost: x\nA: b\r\n\r\n",
    "bare CR in a value": b"GET /healthz HTTP/1.1\r\nHost: x\r\nA: b\rc\r\n\r\n",
    "space before the colon": b"GET /healthz HTTP/1.1\r\nHost : x\r\n\r\n",
    "obs-fold": b"GET /healthz HTTP/1.1\r\nHost: x\r\nA: b\r\n c\r\n\r\n",
    "space at the first header's start": b"GET /healthz HTTP/1.1\r\n Host: x\r\n\r\n",
    "header without a colon": b"GET /healthz HTTP/1.1\r\nHost: x\r\nabc\r\n\r\n",
    "header with an empty name": b"GET /healthz HTTP/1.1\r\nHost: x\r\n: b\r\n\r\n",
    "control byte in a name": b"GET /healthz HTTP/1.1\r\nHost: x\r\nA\x01: b\r\n\r\n",
    "NUL in a value": b"GET /healthz HTTP/1.1\r\nHost: x\r\nA: b\0\r\n\r\n",
    "no host": b"GET /healthz HTTP/1.1\r\n\r\n",
    "two hosts": b"GET /healthz HTTP/1.1\r\nHost: x\r\nHost: x\r\n\r\n",
    "bad host": b"GET /healthz HTTP/1.1\r\nHost: a b\r\n\r\n",
    "length and chunked": head(LENGTH, "Transfer-Encoding: chunked") + b"0\r\n\r\n",
    "two lengths that differ": head("Content-Length: 3", "Content-Length: 4") + b"abcd",
    "a list of lengths that differ": head("Content-Length: 3, 4") + b"abcd",
    "negative length": head("Content-Length: -1"),
    "length with a plus": head("Content-Length: +5") + b"abcde",
    "length in hex": head("Content-Length: 0x5") + b"abcde",
    "length with a space inside": head("Content-Length: 1 0") + b"abcdefghij",
    "empty length": head("Content-Length: "),
    "chunked twice": head("Transfer-Encoding: chunked", "Transfer-Encoding: chunked") + b"0\r\n\r\n",
    "chunked, chunked": head("Transfer-Encoding: chunked, chunked") + b"0\r\n\r\n",
    "chunked not last": head("Transfer-Encoding: chunked, gzip") + b"0\r\n\r\n",
    "xchunked": head("Transfer-Encoding: xchunked") + b"0\r\n\r\n",
    "vertical tab before chunked": head("Transfer-Encoding: \x0bchunked") + b"0\r\n\r\n",
    "chunked over 1.0": head("Transfer-Encoding: chunked", first="POST /api/v1/responses HTTP/1.0") + b"0\r\n\r\n",
    "bad chunk size": head("Transfer-Encoding: chunked") + b"zz\r\nabc\r\n0\r\n\r\n",
    "negative chunk size": head("Transfer-Encoding: chunked") + b"-3\r\nabc\r\n0\r\n\r\n",
    "chunk size in 0x": head("Transfer-Encoding: chunked") + b"0x3\r\nabc\r\n0\r\n\r\n",
    "chunk size beyond 64 bits": head("Transfer-Encoding: chunked") + b"ffffffffffffffffff3\r\nabc\r\n0\r\n\r\n",
    "chunk longer than said": head("Transfer-Encoding: chunked") + b"2\r\nabc\r\n0\r\n\r\n",
    "chunk size ended by LF": head("Transfer-Encoding: chunked") + b"3\nabc\r\n0\r\n\r\n",
    "chunk data ended by LF": head("Transfer-Encoding: chunked") + b"3\r\nabc\n0\r\n\r\n",
    "space before a chunk size": head("Transfer-Encoding: chunked") + b" 3\r\nabc\r\n0\r\n\r\n",
    "endless chunk extension": head("Transfer-Encoding: chunked") + b"3;" + b"x" * 70000 + b"\r\nabc\r\n0\r\n\r\n",
    "bad trailer": head("Transfer-Encoding: chunked") + b"0\r\nbad trailer\r\n\r\n",
    "HTTP/0.9": b"GET /healthz\r\n\r\n",
    "HTTP/2.0": b"GET /healthz HTTP/2.0\r\nHost: x\r\n\r\n",
    "the preface of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "http/1.1 in small letters": b"GET /healthz http/1.1\r\nHost: x\r\n\r\n",
    "two spaces": b"GET  /healthz HTTP/1.1\r\nHost: x\r\n\r\n",
    "tab in the request line": b"GET\t/healthz HTTP/1.1\r\nHost: x\r\n\r\n",
    "space in the target": b"GET /health z HTTP/1.1\r\nHost: x\r\n\r\n",
    "control byte in the target": b"GET /health\x01z HTTP/1.1\r\nHost: x\r\n\r\n",
    "high byte in the target": b"GET /health\xffz HTTP/1.1\r\nHost: x\r\n\r\n",
    "bad method": b"G(T /healthz HTTP/1.1\r\nHost: x\r\n\r\n",
    "target without a slash": b"GET healthz HTTP/1.1\r\nHost: x\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\xaa" * 100 + b"\r\n\r\n",
}


@pytest.mark.parametrize("name", FRAMING)
def test_bad_framing_is_refused_and_the_connection_closed(server, client, name):
    # A second request behind it: it must never be answered.
    answer = raw(server, FRAMING[name] + b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
    assert answer.status in (400, 501, 505), answer
    assert answer.closed and answer.headers.get("connection") == "close"
    assert answer.headers["content-type"] == "application/json"
    assert answer.json["error"]["message"]
    assert client.request("GET", "/healthz").status == 200


def test_two_equal_lengths_are_one_or_refused(server):
    answer = raw(server, head(LENGTH, LENGTH) + GOOD)
    assert answer.status in (200, 400)


# ---- sizes ----

def test_a_head_too_large_is_431(server):
    for lines in (["A: " + "x" * 70000], ["A%d: b" % i for i in range(300)]):
        answer = raw(server, head(*lines, LENGTH) + GOOD)
        assert answer.status == 431 and answer.closed
        check_error(answer, "/api/v1")


def test_a_target_too_long_is_refused(server):
    assert raw(server, b"GET /" + b"x" * 70000 + b" HTTP/1.1\r\nHost: x\r\n\r\n").status in (414, 431)


def test_a_body_too_large_is_413_at_once(server):
    answer = raw(server, head("Content-Length: 2000000"))  # before a byte of it was sent
    assert answer.status == 413
    assert check_error(answer, "/api/v1")["code"] == 413
    answer = raw(server, head("Content-Length: 2000000", first="POST /v1/responses HTTP/1.1"))
    assert check_error(answer, "/v1")["code"] == "request_too_large"


def test_a_body_of_exactly_the_limit_is_read(client):
    body = b'{"model":"brig/script","input":"' + b"x" * ((1 << 20) - 34) + b'"}'
    assert len(body) == 1 << 20
    assert client.post("/responses", body).status == 200
    assert client.post("/responses", body + b" ").status == 413


def test_a_chunked_body_is_counted_while_it_is_read(server):
    sock = connect(server)
    sock.sendall(head("Transfer-Encoding: chunked"))
    piece = b"10000\r\n" + b"x" * 65536 + b"\r\n"
    sent = 0
    while not select.select([sock], [], [], 0.001)[0]:
        sock.sendall(piece)
        sent += 65536
        assert sent < 64 << 20, "it is not counted"
    assert Reader(sock).answer().status == 413
    assert sent < 16 << 20
    sock.close()


def test_an_upload_of_65_mib_is_413_under_the_default_limit(make_server):
    server = make_server(config={"sandbox": False}).start()
    answer = raw(server, head("Content-Length: %d" % (65 << 20)))
    assert answer.status == 413
    body = b'{"model":"brig/script","input":"' + b"x" * (12 << 20) + b'"}'
    assert server.client().post("/responses", body).status == 200


# ---- codings of the body ----

@pytest.mark.parametrize("pack", [gzip.compress], ids=["gzip"])
def test_a_packed_body_is_read(client, pack):
    answer = client.post("/responses", pack(GOOD), headers={"Content-Encoding": "gzip"})
    assert answer.status == 200, answer


def zstd(data):
    tool = shutil.which("zstd")
    if tool:
        return subprocess.run([tool, "-q", "-c"], input=data, capture_output=True, check=True).stdout
    # One frame of one raw block: magic, a single segment with its size, the block's header, the bytes.
    assert len(data) < 256
    return b"\x28\xb5\x2f\xfd\x20" + bytes([len(data)]) + (len(data) << 3 | 1).to_bytes(3, "little") + data


def test_a_body_in_zstd_is_read(client):
    assert client.post("/responses", zstd(GOOD), headers={"Content-Encoding": "zstd"}).status == 200


@pytest.mark.parametrize("coding", ["br", "deflate", "compress", "gzip, gzip", "x"])
def test_another_coding_is_415(client, coding):
    answer = client.post("/responses", GOOD, headers={"Content-Encoding": coding})
    assert answer.status == 415, answer
    check_error(answer, client.base)


def test_a_bomb_is_413_and_costs_no_memory(server, client):
    (gateway,) = server.gateways()
    before = resident(gateway)
    bomb = gzip.compress(b" " * (200 << 20))
    answer = client.post("/responses", bomb, headers={"Content-Encoding": "gzip"})
    assert answer.status == 413
    assert resident(gateway) - before < 32 << 20


@pytest.mark.parametrize("body", [b"not gzip", gzip.compress(GOOD)[:-6], gzip.compress(GOOD)[:10], b"",
                                  gzip.compress(GOOD) + b"junk"], ids=["junk", "cut", "head only", "empty", "more"])
def test_a_broken_packing_is_a_400(client, body):
    answer = client.post("/responses", body, headers={"Content-Encoding": "gzip"})
    assert answer.status == 400, answer
    check_error(answer, client.base)


# ---- manners ----

def test_expect_is_answered_before_the_body(server):
    sock = connect(server, 5)
    sock.sendall(head(LENGTH, "Expect: 100-continue"))
    reader = Reader(sock)
    assert reader.head()[0] == 100
    sock.sendall(GOOD)
    assert reader.answer().status == 200
    sock.close()


def test_expect_is_refused_where_the_body_is_not_wanted(server):
    for data, status in ((b"POST /api/v1/responses HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n"
                          b"Expect: 100-continue\r\n\r\n", 401),
                         (head("Content-Length: 9000000", "Expect: 100-continue"), 413),
                         (head(LENGTH, "Expect: something"), 417)):
        answer = raw(server, data)
        assert answer.status == status, answer


def test_head_has_no_body(server):
    sock = connect(server, 5)
    sock.sendall(head(first="HEAD /api/v1/models HTTP/1.1") + b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
    reader = Reader(sock)
    answer = reader.answer(head_only=True)
    assert answer.status == 200 and int(answer.headers["content-length"]) > 10
    assert reader.answer().body == b"ok\n"
    sock.close()


def test_pipelined_requests_are_answered_in_order(server, client, provider):
    models = [provider.model(text("answer %d" % i)) for i in range(5)]
    gate = threading.Event()
    from fake_provider import Wait
    models[0].replies = [Reply([Wait(gate)] + text_deltas("answer 0") + [chunk(finish="stop")])]
    sock = connect(server)
    for model in models:
        body = json.dumps({"model": model.name, "input": "x"}).encode()
        sock.sendall(head("Content-Length: %d" % len(body)) + body)
    models[0].wait()
    time.sleep(0.05)
    assert not models[1].requests, "the second was begun before the first was answered"
    gate.set()
    reader = Reader(sock)
    assert [text_of(reader.answer().json) for _ in models] == ["answer %d" % i for i in range(5)]
    sock.close()


def test_a_connection_is_kept_and_closed_on_wish(server):
    sock = connect(server, 5)
    reader = Reader(sock)
    for _ in range(3):
        sock.sendall(head(LENGTH) + GOOD)
        assert reader.answer().status == 200
    sock.sendall(head(LENGTH, "Connection: close") + GOOD)
    assert reader.answer().headers["connection"] == "close"
    assert sock.recv(1) == b""
    sock.close()


def test_a_head_that_never_ends_is_408_also_where_bytes_drip(server):
    sock = connect(server, 30)
    started = time.monotonic()
    sock.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nA: ")
    while not select.select([sock], [], [], 0.2)[0]:
        sock.sendall(b"b")
        assert time.monotonic() - started < 60
    answer = Reader(sock).answer()
    assert answer.status == 408 and time.monotonic() - started > 5
    check_error(answer, "/api/v1")
    sock.close()


def test_a_request_one_byte_at_a_time_is_read(server):
    sock = connect(server, 20)
    data = head("Transfer-Encoding: chunked") + b"".join(b"1;x=y\r\n%c\r\n" % c for c in GOOD) + b"0\r\nA: b\r\n\r\n"
    for byte in data:
        sock.sendall(bytes([byte]))
    assert Reader(sock).answer().status == 200
    sock.close()


def test_health_and_readiness(client):
    assert client.request("GET", "/healthz").body == b"ok\n"
    assert client.request("GET", "/readyz").status == 200


@pytest.mark.parametrize("path", ["/nothing", "/api/v1", "/api/v1/", "/api/v1/nothing", "/api/v2/responses",
                                  "/v1/responses/", "//v1/responses", "/v1/completions", "/api/v1/responses/x/y/z",
                                  "/api/v1/%72esponses", "/api/v1/../v1/responses"])
def test_what_is_not_there_is_a_404_in_json(client, path):
    answer = client.request("POST", path, {})
    assert answer.status == 404, answer
    check_error(answer, "/v1" if path.startswith("/v1/") else "/api/v1")


def test_a_wrong_method_is_405(client):
    for method, path in (("GET", "/responses"), ("PUT", "/containers"), ("PATCH", "/models")):
        assert client.request(method, client.base + path).status == 405
    answer = client.request("POST", "/", {})  # the page
    assert answer.status == 405 and answer.headers["allow"] == "GET, HEAD", answer


# ---- keys ----

@pytest.mark.parametrize("headers", [
    {"Authorization": "Bearer " + KEYS["one"]}, {"Authorization": "bearer " + KEYS["one"]},
    {"x-api-key": KEYS["one"]}, {"x-goog-api-key": KEYS["one"]}])
def test_a_key_is_taken_from_each_header(server, headers):
    client = server.client(key="")
    assert client.get("/models", headers=headers).status == 200


def test_a_key_in_the_query_works_and_is_never_logged(server):
    client = server.client(key="")
    assert client.get("/models?key=" + KEYS["one"]).status == 200
    assert client.get("/models?a=b&key=%62" + KEYS["one"][1:]).status == 200
    wrong = "brig-a-wrong-key-in-a-query-0123456789"
    assert client.get("/models?key=" + wrong).status == 401
    assert client.get("/nothing?key=" + wrong).status == 404
    assert raw(server, b"GET /api/v1/models?key=" + wrong.encode() + b" HTTP/1.1\r\nHost: x\r\nA : b\r\n\r\n").status == 400
    assert client.post("/responses?key=" + KEYS["one"], {"model": "brig/script", "input": "x"}).status == 200
    log = server.log()
    assert KEYS["one"] not in log and wrong not in log


@pytest.mark.parametrize("headers", [
    {}, {"Authorization": ""}, {"Authorization": "Bearer"}, {"Authorization": "Bearer "},
    {"Authorization": "Bearer wrong-key-wrong-key"}, {"Authorization": "Basic " + KEYS["one"]},
    {"Authorization": "Bearer " + KEYS["one"][:-1]}, {"Authorization": "Bearer " + KEYS["one"] + "x"},
    {"x-api-key": "wrong"}, {"Authorization": "Bearer " + "x" * 5000}])
def test_a_wrong_key_is_401(server, headers):
    for base in ("/api/v1", "/v1"):
        answer = server.client(key="", base=base).get("/models", headers=headers)
        assert answer.status == 401, answer
        error = check_error(answer, base)
        assert error["code"] == (401 if base == "/api/v1" else "invalid_api_key")


def test_a_stranger_s_body_is_not_read(server):
    answer = raw(server, b"POST /api/v1/responses HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n")
    assert answer.status == 401


# ---- many ----

def test_a_thousand_idle_streams_cost_little(server, client, provider):
    model = provider.model(*[Reply([chunk({"content": "x"}), Hold()])] * 1000)
    (gateway,) = server.gateways()
    text_of(client.ask(provider.model(text("warm up"))))
    before = resident(gateway)
    streams = [client.begin(model) for _ in range(1000)]
    for stream in streams:
        stream.until("output_text.delta")
    if not ASAN:
        each = (resident(gateway) - before) / 1000
        assert each < 64 * 1024, "%d bytes each" % each
    assert text_of(client.ask(provider.model(text("served")))) == "served"
    for stream in streams:
        stream.close()
    wait_for(lambda: all(r.closed.is_set() for r in model.requests))


def test_connections_over_the_limit_wait_or_are_refused(make_server):
    server = make_server(config={"sandbox": False, "limits": {"connections": 20}}).start()
    idle = [connect(server) for _ in range(60)]
    time.sleep(0.2)
    for sock in idle:
        sock.close()
    wait_for(lambda: server.client().request("GET", "/healthz").status == 200)
