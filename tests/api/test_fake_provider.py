"""The scripted provider itself: what it says is exactly what a test asked for."""
import gzip
import http.client
import socket
import threading
import time

import pytest

from fake_provider import (Cut, FakeProvider, Hold, Pause, Reply, Reset, Wait, bad_gateway, calls, crlf, cut_after,
                           error_in_stream, gzipped, joined, rate_limited, shell, text, thinking, whole)


@pytest.fixture(scope="module")
def provider():
    fake = FakeProvider()
    yield fake
    fake.close()


def ask(provider, model, connection=None):
    c = connection or http.client.HTTPConnection("127.0.0.1", provider.port, timeout=10)
    c.request("POST", "/v1/chat/completions", b'{"model":"%s"}' % model.upstream_name.encode(), {"X-Odd": "a  b"})
    return c.getresponse()


def test_bytes_and_record(provider):
    model = provider.model(text("hello", pieces=3), calls(shell("ls")))
    c = http.client.HTTPConnection("127.0.0.1", provider.port, timeout=10)
    before = provider.connections
    first = ask(provider, model, c).read()
    second = ask(provider, model, c).read()
    assert first == joined(text("hello", pieces=3))
    assert b'"tool_calls"' in second
    assert provider.connections == before + 1
    assert [r.connection for r in model.requests] == [model.requests[0].connection] * 2
    assert model.requests[0].body == b'{"model":"%s"}' % model.upstream_name.encode()
    assert b"\r\nX-Odd: a  b\r\n" in model.requests[0].head
    assert model.requests[0].head.startswith(b"POST /v1/chat/completions HTTP/1.1\r\n")
    assert ask(provider, model, c).status == 599  # nothing left to say


def test_one_byte_a_write(provider):
    model = provider.model(text("hi").bytewise())
    answer = ask(provider, model)
    assert answer.read() == joined(text("hi"))
    s = socket.create_connection(("127.0.0.1", provider.port))
    model = provider.model(Reply(["abc"], split=1))
    s.sendall(b'POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n{"model":"%s"}' % (
        12 + len(model.upstream_name), model.upstream_name.encode()))
    data = b""
    while not data.endswith(b"0\r\n\r\n"):
        data += s.recv(4096)
    assert data.endswith(b"\r\n\r\n1\r\na\r\n1\r\nb\r\n1\r\nc\r\n0\r\n\r\n")
    s.close()


def test_line_ends_and_coding(provider):
    model = provider.model(crlf(text("hi")), gzipped(text("hi")))
    assert ask(provider, model).read() == joined(text("hi")).replace(b"\n", b"\r\n")
    answer = ask(provider, model)
    assert answer.getheader("Content-Encoding") == "gzip"
    assert gzip.decompress(answer.read()) == joined(text("hi"))


def test_refusals(provider):
    model = provider.model(bad_gateway(), rate_limited(7), error_in_stream("dead", 500, after="so"), whole("all"))
    answer = ask(provider, model)
    assert (answer.status, answer.getheader("Content-Type")) == (502, "text/html")
    assert answer.read().startswith(b"<html>")
    answer = ask(provider, model)
    assert (answer.status, answer.getheader("Retry-After")) == (429, "7")
    answer.read()
    answer = ask(provider, model)
    body = answer.read()
    assert answer.status == 200 and b'"so"' in body and b'data: {"error"' in body
    answer = ask(provider, model)
    assert answer.getheader("Content-Type") == "application/json" and b'"content": "all"' in answer.read()


def test_cuts(provider):
    model = provider.model(cut_after(text("hello"), 30), Reply(["x", Reset()]), Reply([Cut()]))
    with pytest.raises(http.client.IncompleteRead) as cut:
        ask(provider, model).read()
    assert cut.value.partial == joined(text("hello"))[:30]
    with pytest.raises((ConnectionResetError, http.client.IncompleteRead)):
        ask(provider, model).read()
    with pytest.raises(http.client.IncompleteRead):
        ask(provider, model).read()


def test_waiting_and_cancel(provider):
    go = threading.Event()
    model = provider.model(Reply(["a", Pause(0.1), "b", Wait(go), "c"]), Reply(["a", Hold()]))
    answer = ask(provider, model)
    began = time.monotonic()
    assert answer.read(2) == b"ab"
    assert time.monotonic() - began >= 0.05
    go.set()
    assert answer.read() == b"c"
    c = http.client.HTTPConnection("127.0.0.1", provider.port, timeout=10)
    answer = ask(provider, model, c)
    assert answer.read(1) == b"a"
    request = model.wait(2)
    assert not request.closed.is_set()
    at = time.monotonic()
    answer.close()
    c.close()
    assert request.closed.wait(60)
    assert at - 1 <= request.closed_at <= at + 5


def test_spellings():
    assert b'"reasoning": "t"' in joined(thinking("t", "x", "reasoning"))
    assert b'"thinking": [{"type": "text", "text": "t"}]' in joined(thinking("t", "x", "thinking"))
    assert b'"signature": "s"' in joined(thinking("t", "x", details=[{"type": "reasoning.text", "signature": "s"}]))
