"""A scripted upstream: says exactly the bytes it is told to, and remembers what it was asked.

One FakeProvider listens on a loopback port. A test makes a model of its own with replies in order:

    model = provider.model(text("hello"))          # one reply
    model = provider.model(calls(shell("id")), text("done"))
    ... ask brig for model.name ("fake/m7") ...
    model.requests[0].json["messages"]

A reply is a Reply, or a function of the request that returns one (as the last: for all further requests). A model that
is asked more often than it has replies answers 599, which no test expects. What a Reply writes is a list of steps:
bytes, Pause, Wait, Hold, Reset, Cut, or a function that yields such steps.
Everything runs in daemon threads; nothing here knows brig.
"""
import gzip
import json
import select
import socket
import struct
import threading
import time


# ---- steps ----

class Pause:
    """Says nothing for so many seconds (ends early where the peer closes)."""

    def __init__(self, seconds):
        self.seconds = seconds


class Wait:
    """Says nothing until the event is set or the peer has closed."""

    def __init__(self, event):
        self.event = event


class Hold:
    """Says nothing until the peer closes."""


class Reset:
    """Cuts the connection with a TCP reset."""


class Cut:
    """Closes the connection in the middle of what was promised."""


class Reply:
    """
    status, headers: as sent. steps: what the body consists of. framing: "chunked", "length" (all steps must be bytes),
    "close", or "raw": then the steps are the whole answer, status line and all. split: bytes a write (0: as the steps
    are).
    """

    def __init__(self, steps=(), status=200, headers=(), content_type="text/event-stream", framing="chunked",
                 split=0):
        self.steps = [s.encode() if isinstance(s, str) else s for s in steps]
        self.status = status
        self.headers = list(headers.items() if isinstance(headers, dict) else headers)
        self.content_type = content_type
        self.framing = framing
        self.split = split

    def bytewise(self):
        self.split = 1
        return self

    def but(self, function):
        """The same reply with its bytes passed through a function."""
        self.steps = [function(s) if isinstance(s, bytes) else s for s in self.steps]
        return self


# ---- what chat servers say ----

def event(data):
    return b"data: " + (data if isinstance(data, bytes) else json.dumps(data).encode()) + b"\n\n"


DONE = b"data: [DONE]\n\n"


def chunk(delta=None, finish=None, usage=None, **more):
    body = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "up",
            "choices": [{"index": 0, "delta": delta or {}, "finish_reason": finish}]}
    if usage is not None:
        body["usage"] = usage_of(usage)
    body.update(more)
    return event(body)


def usage_of(usage):
    """(prompt, completion[, cached[, reasoning]])"""
    if isinstance(usage, dict):
        return usage
    prompt, completion, cached, reasoning = (tuple(usage) + (0, 0))[:4]
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion,
            "prompt_tokens_details": {"cached_tokens": cached},
            "completion_tokens_details": {"reasoning_tokens": reasoning}}


def usage_chunk(usage):
    return event({"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "up", "choices": [],
                  "usage": usage_of(usage)})


def ending(finish, usage=(10, 5)):
    steps = [chunk(finish=finish)]
    if usage is not None:
        steps.append(usage_chunk(usage))
    return steps + [DONE]


def text_deltas(text, pieces=1):
    size = max(1, -(-len(text) // pieces))
    return [chunk({"content": text[i:i + size]}) for i in range(0, len(text), size)]


def text(content, pieces=1, usage=(10, 5), finish="stop", **reply):
    return Reply([chunk({"role": "assistant", "content": ""})] + text_deltas(content, pieces) +
                 ending(finish, usage), **reply)


def call(name, arguments, id="call_1", index=0):
    return {"index": index, "id": id, "type": "function",
            "function": {"name": name,
                         "arguments": arguments if isinstance(arguments, str) else json.dumps(arguments)}}


def shell(*commands, id="call_1", name="shell", **arguments):
    """A call of the server's shell, as a model makes it."""
    return call(name, dict(commands=list(commands), **arguments), id)


def calls(*each, content=None, reasoning=None, usage=(10, 5), finish="tool_calls", spelling="reasoning_content",
          **reply):
    """One reply that makes these calls."""
    steps = [chunk({"role": "assistant"})]
    if reasoning is not None:
        steps.append(chunk({spelling: reasoning}))
    if content is not None:
        steps.append(chunk({"content": content}))
    for i, c in enumerate(each):
        steps.append(chunk({"tool_calls": [dict(c, index=i)]}))
    return Reply(steps + ending(finish, usage), **reply)


def crlf(reply):
    """The same stream with CRLF at the end of each line."""
    return reply.but(lambda b: b.replace(b"\n", b"\r\n"))


def cut_after(reply, n):
    """Only the first n bytes of the stream, then the connection breaks."""
    return Reply([joined(reply)[:n], Cut()])


def joined(reply):
    return b"".join(s for s in reply.steps if isinstance(s, bytes))


def gzipped(reply):
    """A server that compresses although nobody asked it to."""
    reply.steps = [gzip.compress(joined(reply), mtime=0)]
    reply.headers.append(("Content-Encoding", "gzip"))
    return reply


def whole(message, finish="stop", usage=(10, 5)):
    """A server that ignores `stream`: one JSON object. message: its text, or a whole message object."""
    message = {"role": "assistant", "content": message} if isinstance(message, str) else message
    body = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "up",
            "choices": [{"index": 0, "message": message, "finish_reason": finish}], "usage": usage_of(usage)}
    return Reply([json.dumps(body)], framing="length", content_type="application/json")


def thinking(reasoning, content, spelling="reasoning_content", details=None, usage=(10, 5)):
    """Reasoning (spelled reasoning_content, reasoning, or thinking as Mistral does), then text."""
    if spelling == "thinking":
        first = {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": reasoning}]}]}
    else:
        first = {spelling: reasoning}
    if details is not None:
        first["reasoning_details"] = details
    return Reply([chunk(dict(first, role="assistant")), chunk({"content": content})] + ending("stop", usage))


def error_in_stream(message="engine is dead", code=500, after=""):
    """Status 200, perhaps some text, and then an error object."""
    steps = [chunk({"role": "assistant", "content": after})] if after else []
    return Reply(steps + [event({"error": {"message": message, "code": code}})])


def bad_gateway():
    return error(502, b"<html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>")


def rate_limited(retry_after=2):
    return error(429, {"error": {"message": "Rate limit reached", "type": "requests", "code": "rate_limit_exceeded"}},
                 [("Retry-After", str(retry_after))])


def error(status, body=None, headers=()):
    body = json.dumps(body).encode() if isinstance(body, (dict, list)) else (body or b"")
    return Reply([body], status=status, headers=headers, framing="length",
                 content_type="text/html" if body.lstrip()[:1] == b"<" else "application/json")


# ---- the server ----

class Request:
    def __init__(self, method, path, headers, body):
        self.method, self.path, self.headers, self.body = method, path, headers, body
        self.head = b""  # request line and headers as they came
        self.at = time.monotonic()
        self.closed = threading.Event()  # the peer closed before its answer was whole
        self.closed_at = None
        self.answered = threading.Event()
        self.connection = None  # number of the connection

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def messages(self):
        return self.json["messages"]


REPEAT = object()  # as the last reply: the one before it goes on for ever


class Model:
    def __init__(self, provider, name, replies):
        self.provider, self.upstream_name = provider, name
        self.replies = list(replies)
        self.repeated = None
        if self.replies and self.replies[-1] is REPEAT:
            self.replies.pop()
            self.repeated = self.replies[-1]
        elif self.replies and callable(self.replies[-1]):
            self.repeated = self.replies[-1]
        self.requests = []
        self.changed = threading.Condition()

    @property
    def name(self):
        return "fake/" + self.upstream_name

    def take(self, request):
        with self.changed:
            n = len(self.requests)
            self.requests.append(request)
            self.changed.notify_all()
        if n < len(self.replies):
            reply = self.replies[n]
        else:
            reply = self.repeated
        if callable(reply):
            reply = reply(request)
        return reply or Reply([b'{"error":{"message":"the test has no more replies"}}'], status=599, framing="length",
                              content_type="application/json")

    def wait(self, n=1, timeout=60):
        """Waits for request number n (from 1) and returns it."""
        with self.changed:
            if not self.changed.wait_for(lambda: len(self.requests) >= n, timeout):
                raise AssertionError("the upstream got %d requests, not %d" % (len(self.requests), n))
            return self.requests[n - 1]


class Connection:
    def __init__(self, sock, number):
        self.sock, self.number = sock, number
        self.buffer = b""
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def fill(self):
        data = self.sock.recv(65536)
        if not data:
            raise EOFError
        self.buffer += data

    def line(self):
        while b"\r\n" not in self.buffer:
            self.fill()
        line, self.buffer = self.buffer.split(b"\r\n", 1)
        return line

    def exactly(self, n):
        while len(self.buffer) < n:
            self.fill()
        data, self.buffer = self.buffer[:n], self.buffer[n:]
        return data

    def request(self):
        raw = [self.line()]
        method, path, _ = raw[0].decode("latin-1").split(" ")
        headers = {}
        while True:
            raw.append(self.line())
            line = raw[-1].decode("latin-1")
            if not line:
                break
            name, value = line.split(":", 1)
            headers[name.lower()] = value.strip()
        if headers.get("expect", "").lower() == "100-continue":
            self.sock.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        if headers.get("transfer-encoding", "").lower() == "chunked":
            body = b""
            while True:
                n = int(self.line().split(b";")[0], 16)
                body += self.exactly(n)
                self.line()
                if n == 0:
                    break
        else:
            body = self.exactly(int(headers.get("content-length", 0)))
        request = Request(method, path, headers, body)
        request.head = b"\r\n".join(raw) + b"\r\n"
        return request

    def peer_closed(self, timeout=0):
        poll = select.poll()
        poll.register(self.sock, select.POLLIN)
        if not poll.poll(timeout):
            return False
        try:
            return self.sock.recv(1, socket.MSG_PEEK) == b""
        except OSError:
            return True

    def wait(self, until):
        """Waits until until() or the peer has gone."""
        while not until():
            if self.peer_closed():
                raise EOFError
            time.sleep(0.002)

    def say(self, reply, request):
        if reply.framing == "raw":
            encode, end = (lambda b: b), b""
        else:
            head = "HTTP/1.1 %d Whatever\r\nContent-Type: %s\r\n" % (reply.status, reply.content_type)
            for name, value in reply.headers:
                head += "%s: %s\r\n" % (name, value)
            encode, end = (lambda b: b), b""
            if reply.framing == "chunked":
                head += "Transfer-Encoding: chunked\r\n"
                encode, end = (lambda b: b"%x\r\n%s\r\n" % (len(b), b) if b else b""), b"0\r\n\r\n"
            elif reply.framing == "length":
                head += "Content-Length: %d\r\n" % sum(len(s) for s in reply.steps)
            else:
                head += "Connection: close\r\n"
            self.sock.sendall(head.encode("latin-1") + b"\r\n")
        # The body's end travels with its last bytes, as it does where a server flushes once: a client that
        # goes on at the last event has then read the end too, and the connection is free for its next request.
        last = reply.steps[-1] if reply.steps and isinstance(reply.steps[-1], bytes) and not reply.split else b""
        for step in reply.steps[:-1] if last else reply.steps:
            self.step(step, encode, reply.split)
        if last or end:
            self.sock.sendall(encode(last) + end)
        return reply.framing in ("chunked", "length")

    def step(self, step, encode, split):
        if isinstance(step, bytes):
            size = split or max(1, len(step))
            for i in range(0, len(step), size):
                self.sock.sendall(encode(step[i:i + size]))
        elif isinstance(step, Pause):
            end = time.monotonic() + step.seconds
            self.wait(lambda: time.monotonic() >= end)
        elif isinstance(step, Wait):
            self.wait(step.event.is_set)
        elif isinstance(step, Hold):
            while not self.peer_closed(None):
                time.sleep(0.01)  # it sent something
            raise EOFError
        elif isinstance(step, Reset):
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.sock.close()
            raise ConnectionAbortedError
        elif isinstance(step, Cut):
            raise ConnectionAbortedError
        elif callable(step):
            for more in step():  # a generator of steps, for streams too large to keep
                self.step(more, encode, split)
        else:
            raise TypeError(step)


class FakeProvider:
    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.port = self.listener.getsockname()[1]
        self.models = {}
        self.strangers = []  # requests that named no model of ours
        self.lists = {}  # path and query of a GET: a Reply, or a function of the request; else 404
        self.list_requests = []
        self.connections = 0
        self.lock = threading.Lock()
        threading.Thread(target=self.accept, daemon=True).start()

    def base_url(self, prefix=""):
        return "http://127.0.0.1:%d%s/v1" % (self.port, prefix)

    def model(self, *replies):
        with self.lock:
            name = "m%d" % (len(self.models) + 1)
            self.models[name] = Model(self, name, replies)
            return self.models[name]

    def accept(self):
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self.serve, args=(Connection(sock, self.connections),), daemon=True).start()

    def answer(self, request):
        if request.method == "GET":
            self.list_requests.append(request)
            reply = self.lists.get(request.path)
            return (reply(request) if callable(reply) else reply) or error(404, {"error": {"message": "no such path"}})
        model = self.find(request)
        return model.take(request) if model else error(404, {"error": {"message": "no such model",
                                                                        "code": "model_not_found"}})

    def find(self, request):
        try:
            model = self.models.get(request.json.get("model"))
        except ValueError:
            model = None
        if model is None:
            self.strangers.append(request)
        return model

    def serve(self, connection):
        request = None
        try:
            while True:
                request = None
                request = connection.request()
                request.connection = connection.number
                keep = connection.say(self.answer(request), request)
                request.answered.set()
                if not keep:
                    break
        except ConnectionAbortedError:
            pass
        except (EOFError, OSError):
            if request is not None and not request.answered.is_set():
                request.closed_at = time.monotonic()
                request.closed.set()
        except ValueError:
            pass
        finally:
            connection.sock.close()

    def close(self):
        self.listener.close()


class Sink:
    """A port that takes connections, or does not even answer the handshake, and never says a word."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=16)
        self.port = self.listener.getsockname()[1]

    def close(self):
        self.listener.close()
