"""GET /responses with Upgrade: websocket: turns over a socket, what they leave behind, and hostile frames."""
import base64
import contextlib
import hashlib
import json
import os
import socket
import struct
import threading

import pytest

from brigtest import KEYS, resident, SHELL
from fake_provider import calls, error, shell, text, Wait

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10
MAGIC = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class Closed(Exception):
    def __init__(self, code):
        super().__init__(code)
        self.code = code


class Socket:
    """A WebSocket client that may also do what none should."""

    def __init__(self, server, path="/v1/responses", key="one", timeout=30, body=b"", **headers):
        self.socket = socket.create_connection((server.host, server.port), timeout)
        self.buffer = b""
        self.pings = 0
        nonce = base64.b64encode(os.urandom(16))
        lines = {"Host": "brig", "Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13",
                 "Sec-WebSocket-Key": nonce.decode()}
        if key:
            lines["Authorization"] = "Bearer " + KEYS.get(key, key)
        lines.update({name.replace("_", "-"): value for name, value in headers.items()})
        head = "GET %s HTTP/1.1\r\n" % path + "".join(
            "%s: %s\r\n" % line for line in lines.items() if line[1] is not None)
        self.socket.sendall(head.encode() + b"\r\n" + body)
        while b"\r\n\r\n" not in self.buffer:
            got = self.socket.recv(65536)
            assert got, self.buffer
            self.buffer += got
        head, _, rest = self.buffer.partition(b"\r\n\r\n")
        self.buffer = bytearray(rest)
        self.status = int(head.split(b" ", 2)[1])
        self.headers = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
        if self.status == 101:
            want = base64.b64encode(hashlib.sha1(nonce + MAGIC).digest())
            assert want in head and self.headers[b"upgrade"] == b"websocket"

    def close(self):
        self.socket.close()

    # -- frames --

    def frame(self, opcode, payload=b"", fin=True, mask=True, rsv=0):
        n = len(payload)
        head = bytes([(0x80 if fin else 0) | rsv << 4 | opcode])
        flag = 0x80 if mask else 0
        head += (bytes([flag | n]) if n < 126 else bytes([flag | 126]) + struct.pack(">H", n) if n < 65536 else
                 bytes([flag | 127]) + struct.pack(">Q", n))
        if mask:
            head += b"\1\2\3\4"
            payload = bytes(b ^ m for b, m in zip(payload, b"\1\2\3\4" * (n // 4 + 1)))
        self.socket.sendall(head + payload)

    def take(self, n):
        while len(self.buffer) < n:
            got = self.socket.recv(65536)
            if not got:
                raise Closed(None)
            self.buffer += got
        taken = bytes(self.buffer[:n])
        del self.buffer[:n]
        return taken

    def next_frame(self):
        first, second = self.take(2)
        assert not first & 0x70 and not second & 0x80, "a server's frames have no reserved bits and no mask"
        n = second & 0x7f
        if n == 126:
            n, = struct.unpack(">H", self.take(2))
        elif n == 127:
            n, = struct.unpack(">Q", self.take(8))
        return first & 0x0f, bool(first & 0x80), self.take(n)

    def message(self):
        """The next text, as JSON; answers pings."""
        whole = bytearray()
        while True:
            opcode, fin, payload = self.next_frame()
            if opcode == PING:
                self.pings += 1
                self.frame(PONG, payload)
            elif opcode == CLOSE:
                raise Closed(struct.unpack(">H", payload[:2])[0] if payload else 1005)
            elif opcode in (TEXT, 0):
                assert (opcode == 0) == bool(whole)
                whole += payload
                if fin:
                    return json.loads(whole.decode())

    # -- turns --

    def send(self, **fields):
        self.frame(TEXT, json.dumps(fields).encode())

    def create(self, model, input="go", **fields):
        self.send(type="response.create", model=getattr(model, "name", model), input=input, **fields)

    def events(self):
        """All events up to the last one of a response, or an error."""
        events = [self.message()]
        while events[-1]["type"] not in ("response.completed", "response.failed", "response.incomplete", "error"):
            events.append(self.message())
        return events

    def turn(self, model, input="go", **fields):
        self.create(model, input, **fields)
        return self.events()[-1]

    def closed(self):
        """The code of the close frame that comes next; None: none came."""
        try:
            while True:
                self.message()
        except Closed as e:
            return e.code
        except ConnectionError:
            return None


@pytest.fixture
def connect(server):
    with contextlib.ExitStack() as stack:
        yield lambda *args, **more: stack.enter_context(contextlib.closing(Socket(server, *args, **more)))


@pytest.fixture
def held(provider):
    """A model whose answer stands still in its middle until its event is set."""
    model = provider.model(text("slow", pieces=2))
    model.go_on = threading.Event()
    model.replies[0].steps.insert(1, Wait(model.go_on))
    yield model
    model.go_on.set()


def said(event):
    assert event["type"] == "response.completed", event
    return "".join(p["text"] for i in event["response"]["output"] if i["type"] == "message" for p in i["content"])


# ---- turns ----

@pytest.mark.parametrize("path", ["/v1/responses", "/api/v1/responses"])
def test_sends_the_events_of_the_stream_one_a_message(connect, client, provider, path):
    ws = connect(path)
    assert ws.status == 101
    ws.create(provider.model(text("hello world", pieces=3)))
    events = ws.events()
    story = client.stream(provider.model(text("hello world", pieces=3)))
    assert [e["type"] for e in events] == story.types[:-1]
    assert [e["sequence_number"] for e in events] == list(range(len(events)))
    assert said(events[-1]) == "hello world"


def test_runs_one_turn_after_the_other(connect, provider):
    ws = connect()
    for answer in ("one", "two", "three"):
        assert said(ws.turn(provider.model(text(answer)))) == answer


def test_runs_commands(connect, provider):
    model = provider.model(calls(shell("echo over-a-socket")), text("done"))
    event = connect().turn(model, tools=[SHELL])
    assert said(event) == "done"
    assert "over-a-socket" in json.dumps(event["response"]["output"])


def test_goes_on_from_a_stored_response_also_on_another_connection(connect, provider):
    first = connect().turn(provider.model(text("blue")), "my colour?")
    model = provider.model(text("still blue"))
    assert said(connect().turn(model, "sure?", previous_response_id=first["response"]["id"])) == "still blue"
    assert [m["content"] for m in model.requests[0].messages] == ["my colour?", "blue", "sure?"]


def test_refuses_what_is_no_response_create_and_goes_on(connect, provider):
    ws = connect()
    for message in (b"", b"{", b"[]", b"7", b'{"type":"session.update"}', b"{}", b'{"type":7}'):
        ws.frame(TEXT, message)
        event = ws.message()
        assert event["type"] == "error" and event["status"] == 400 and event["error"]["message"], event
    assert said(ws.turn(provider.model(text("ok")))) == "ok"


@pytest.mark.parametrize("name", ["stream", "background"])
@pytest.mark.parametrize("value", [True, False])
def test_takes_no_members_of_a_post(connect, provider, name, value):
    event = connect().turn(provider.model(text("no")), **{name: value})
    assert event["type"] == "error" and event["status"] == 400
    assert event["error"]["param"] == name and event["error"]["code"] == "unsupported_parameter"


def test_errors_are_those_of_the_api(connect, provider):
    ws = connect("/api/v1/responses")
    event = ws.turn(provider.model(text("no")), temperature="hot")
    assert event["type"] == "error" and event["status"] == 400 and event["error"]["param"] == "temperature"
    assert ws.turn("nobody/nothing")["type"] == "error"
    assert said(ws.turn(provider.model(text("ok")))) == "ok"


def test_a_provider_that_refuses_is_an_error(connect, provider):
    ws = connect()
    event = ws.turn(provider.model(error(400, {"error": {"message": "no such thing"}})))
    assert event["type"] == "error" and event["status"] == 400, event
    assert said(ws.turn(provider.model(text("ok")))) == "ok"


def test_takes_one_response_at_a_time(connect, provider, held):
    model = held
    ws = connect()
    ws.create(model)
    model.wait()
    ws.create(model)
    event = ws.message()
    while event["type"] != "error":
        event = ws.message()
    assert event["error"]["code"] == "response_in_progress", event
    model.go_on.set()
    assert said(ws.events()[-1]) == "slow"
    assert len(model.requests) == 1
    assert said(ws.turn(provider.model(text("next")))) == "next"


# ---- what is not stored ----

def test_goes_on_from_the_last_response_though_it_is_not_stored(connect, client, provider):
    ws = connect()
    first = ws.turn(provider.model(text("blue")), "my colour?", store=False)["response"]
    second = ws.turn(provider.model(text("yes")), "sure?", store=False, previous_response_id=first["id"])["response"]
    model = provider.model(text("really"))
    third = ws.turn(model, "really?", store=True, previous_response_id=second["id"])
    assert third["response"]["previous_response_id"] == second["id"]
    assert [m["content"] for m in model.requests[0].messages] == ["my colour?", "blue", "sure?", "yes", "really?"]
    assert client.get("/responses/" + second["id"]).status == 404
    # What is stored of it is whole: another connection goes on from it.
    model = provider.model(text("fine"))
    assert said(connect().turn(model, "and?", previous_response_id=third["response"]["id"])) == "fine"
    assert [m["content"] for m in model.requests[0].messages][:3] == ["my colour?", "blue", "sure?"]
    assert len(model.requests[0].messages) == 7


def test_the_last_one_only_and_on_this_connection_only(connect, provider):
    ws = connect()
    first = ws.turn(provider.model(text("1")), store=False)["response"]["id"]
    ws.turn(provider.model(text("2")), store=False)
    for where in (ws, connect()):
        event = where.turn(provider.model(text("no")), store=False, previous_response_id=first)
        assert event["type"] == "error" and event["status"] == 400
        assert event["error"]["code"] == "previous_response_not_found"
        assert event["error"]["param"] == "previous_response_id"


def test_a_reconnected_client_sends_everything_again(connect, provider):
    ws = connect()
    first = ws.turn(provider.model(text("1")), "a", store=False)["response"]["id"]
    ws.close()
    again = connect()
    assert again.turn(provider.model(text("no")), "b", store=False, previous_response_id=first)["type"] == "error"
    history = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "1"}, {"role": "user", "content": "b"}]
    assert said(again.turn(provider.model(text("2")), history, store=False)) == "2"


@pytest.mark.parametrize("bad", [{"temperature": "hot"}, {"stream": True}, {"tools": [{"type": "nonsense"}]}])
def test_a_turn_that_failed_takes_what_it_went_on_from_with_it(connect, provider, bad):
    ws = connect()
    first = ws.turn(provider.model(text("1")), store=False)["response"]["id"]
    assert ws.turn(provider.model(text("no")), store=False, previous_response_id=first, **bad)["type"] == "error"
    event = ws.turn(provider.model(text("no")), store=False, previous_response_id=first)
    assert event["type"] == "error" and event["error"]["code"] == "previous_response_not_found"


def test_a_failed_turn_that_did_not_go_on_from_it_leaves_it(connect, provider):
    ws = connect()
    first = ws.turn(provider.model(text("1")), store=False)["response"]["id"]
    assert ws.turn(provider.model(text("no")), store=False, temperature="hot")["type"] == "error"
    assert said(ws.turn(provider.model(text("2")), store=False, previous_response_id=first)) == "2"


# ---- the handshake ----

@pytest.mark.parametrize("headers, status", [
    ({"key": None}, 401),
    ({"Upgrade": None}, 405),
    ({"Upgrade": "h2c"}, 426),
    ({"Connection": "keep-alive"}, 426),
    ({"Sec_WebSocket_Version": "8"}, 426),
    ({"Sec_WebSocket_Version": None}, 426),
    ({"Sec_WebSocket_Key": None}, 400),
    ({"Sec_WebSocket_Key": "short"}, 400),
    ({"Sec_WebSocket_Key": "AAAAAAAAAAAAAAAAAAAAAB=="}, 400),
    ({"Content_Length": "1", "body": b"x"}, 400),
], ids=str)
def test_refuses_what_is_no_handshake(connect, headers, status):
    ws = connect(**headers)
    assert ws.status == status
    if status == 426:
        assert ws.headers[b"sec-websocket-version"] == b"13"


def test_tokens_of_the_connection_header_and_case_do_not_matter(connect, provider):
    ws = connect(Connection="keep-alive, upgrade", Upgrade="WebSocket")
    assert ws.status == 101
    assert said(ws.turn(provider.model(text("ok")))) == "ok"


# ---- frames ----

def test_reads_messages_in_fragments_with_pings_between(connect, provider):
    ws = connect()
    body = json.dumps({"type": "response.create", "model": provider.model(text("ok")).name, "input": "x"}).encode()
    ws.frame(TEXT, body[:5], fin=False)
    ws.frame(PING, b"are you there")
    assert ws.next_frame() == (PONG, True, b"are you there")
    for i in range(5, len(body) - 1):
        ws.frame(0, body[i:i + 1], fin=False)
    ws.frame(0, body[-1:])
    assert said(ws.events()[-1]) == "ok"


@pytest.mark.parametrize("hostile, code", [
    (lambda ws: ws.frame(TEXT, b"{}", mask=False), 1002),
    (lambda ws: ws.frame(TEXT, b"{}", rsv=4), 1002),
    (lambda ws: ws.frame(3, b"{}"), 1002),
    (lambda ws: ws.frame(0, b"{}"), 1002),
    (lambda ws: ws.frame(PING, b"x", fin=False), 1002),
    (lambda ws: ws.frame(PING, b"x" * 126), 1002),
    (lambda ws: (ws.frame(TEXT, b"{", fin=False), ws.frame(TEXT, b"}")), 1002),
    (lambda ws: ws.frame(BINARY, b"{}"), 1003),
    (lambda ws: ws.frame(TEXT, b"\xff\xfe"), 1007),
    (lambda ws: ws.frame(CLOSE, struct.pack(">H", 999)), 1002),
    (lambda ws: ws.frame(CLOSE, b"\x03"), 1005),  # half a code is answered without one
    (lambda ws: ws.frame(CLOSE, struct.pack(">H", 1000)), 1000),
    (lambda ws: ws.socket.sendall(b"\x81\xff" + struct.pack(">Q", 1 << 62) + b"\1\2\3\4abc"), 1009),
], ids=range(13))
def test_closes_with_the_code_for_what_it_was_sent(connect, hostile, code):
    ws = connect()
    hostile(ws)
    assert ws.closed() == code


def test_a_message_may_not_be_larger_than_a_body(make_server):
    server = make_server(config={"limits": {"body": "1m"}}).start()
    with contextlib.closing(Socket(server)) as ws:
        ws.frame(TEXT, b" " * (600 << 10), fin=False)
        with contextlib.suppress(ConnectionError):
            ws.frame(0, b" " * (600 << 10))
        assert ws.closed() in (1009, None)


def test_large_events_come_whole(connect, provider):
    content = "0123456789abcd\u00e9" * (3 << 16)
    events_model = provider.model(text(content, pieces=100))
    ws = connect()
    assert said(ws.turn(events_model)) == content
    assert said(ws.turn(provider.model(text("ok")))) == "ok"


def test_a_client_that_does_not_read_costs_little(server, connect, provider):
    content = "x" * (16 << 20)
    model = provider.model(text(content, pieces=400), text(content, pieces=400))
    assert len(said(connect().turn(model))) == len(content)  # what the allocator keeps is kept now
    (gateway,) = server.gateways()
    ws = connect()
    ws.create(model)
    request = model.wait(2)
    assert not request.answered.wait(3), "nobody read it"
    stalled = resident(gateway)
    assert len(said(ws.events()[-1])) == len(content)
    assert stalled < resident(gateway) + (8 << 20)


def test_a_flood_of_refused_messages_must_be_read(server, connect, provider):
    ws = connect()
    ws.socket.settimeout(2)
    (gateway,) = server.gateways()
    before = resident(gateway)
    with contextlib.suppress(TimeoutError):
        for _ in range(100):
            ws.socket.sendall(b"\x81\x82\0\0\0\0{}" * 4096)
    assert resident(gateway) < before + (16 << 20)
    ws.close()
    assert said(connect().turn(provider.model(text("ok")))) == "ok"


# ---- ends ----

@pytest.mark.parametrize("goodbye", [False, True])
def test_a_client_that_goes_takes_its_turn_with_it(connect, held, goodbye):
    ws = connect()
    ws.create(held)
    request = held.wait()
    if goodbye:
        ws.frame(CLOSE, struct.pack(">H", 1001))
        assert ws.closed() == 1001
    else:
        ws.close()
    assert request.closed.wait(60)


def test_pings_and_the_limit_of_a_connection(make_server, provider):
    server = make_server(config={"limits": {"websocket": "2s", "keepalive": "100ms"}}).start()
    with contextlib.closing(Socket(server)) as ws:
        event = ws.message()
        assert event["type"] == "error" and event["status"] == 400
        assert event["error"]["code"] == "websocket_connection_limit_reached"
        assert ws.pings > 0
        assert ws.closed() == 1000


def test_a_server_that_stops_says_so(make_server, provider):
    server = make_server().start()
    ws = Socket(server)
    assert said(ws.turn(provider.model(text("ok")))) == "ok"
    server.stop()
    assert ws.closed() == 1001
    ws.close()


def test_many_rude_clients_leave_nothing(server, connect, provider):
    for i in range(50):
        ws = Socket(server)
        ws.frame(TEXT, b'{"type":"response.create"' * i, fin=False)
        ws.close()
    assert said(connect().turn(provider.model(text("ok")))) == "ok"
