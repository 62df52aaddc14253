"""Random requests and random answers, from a fixed seed: whatever a client or an upstream says, brig goes on, answers in
its client's dialect, tells nobody its keys, and keeps nothing.

A case starts from a valid request of one dialect and a valid answer of another (or of the same), and breaks one of the
two in a few places. It is known by its number: BRIG_RANDOM_CASE=17 runs number 17 alone. BRIG_RANDOM_SECONDS=600
BRIG_RANDOM_SEED=2 soaks.
"""
import collections
import concurrent.futures
import contextlib
import gzip
import itertools
import json
import os
import random
import re
import socket
import sys
import threading
import time
import traceback

import pytest

import brigtest
import messagestest
from brigtest import BRIG, UPSTREAM_KEY, resident
from dialects import PNG, SERVED, SPOKEN, Answer, Say, Upstream, sse
from fake_provider import Cut, Reply, Reset, error

with open(BRIG, "rb") as binary:
    ASAN = b"__asan_init" in binary.read()

SECONDS = float(os.environ.get("BRIG_RANDOM_SECONDS", 10))
SEED = int(os.environ.get("BRIG_RANDOM_SEED", 1))
ONLY = os.environ.get("BRIG_RANDOM_CASE")
SHOW = os.environ.get("BRIG_RANDOM_SHOW")
SLOW = float(os.environ.get("BRIG_RANDOM_SLOW", 30))  # seconds; then an answer is a hang

sys.setrecursionlimit(20000)  # for what is nested deeply

# Written by name, as no JSON writer makes them.
RAW = {
    "@deep-list": b"[" * 3000 + b"]" * 3000,
    "@deep-object": b'{"a":' * 1500 + b"1" + b"}" * 1500,
    "@deep-enough": b"[" * 60 + b"]" * 60,
    "@huge-number": b"1" + b"0" * 400,
    "@exponent": b"-1e-99999999999",
    "@half-surrogate": b'"\\ud83d"',
    "@surrogates-swapped": b'"\\ude00\\ud83d"',
    "@nul": b'"a\\u0000b"',
    "@no-utf8": b'"\xff\xfe"',
    "@overlong": b'"\xc0\xaf"',
    "@nan": b"NaN",
    "@not-closed": b'"abc',
}
ODD = [None, True, False, 0, -1, 1, 2 ** 31, 2 ** 63, 2 ** 64, -2 ** 63, 1.5, 1e308, "", " ", "x", "0", "-1", "null", [],
       {}, [[]], [None], [{}], {"type": "text"}, {"": ""}, "\n", 'q"uo\\te', "line\nbreak\r\n\r\ndata: {}\n\n", "é" * 300,
       "😀", "\u202e\ufeff\u2028", "../../etc/passwd", "%00%2e", "brig1.AAAA", "brig1." + "A" * 400, "y" * 5000,
       "data:image/png;base64,@@@", "data:;base64,", "http://127.0.0.1:1/x", ["a"] * 400, [{"type": "text", "text": "x"}]]
WORDS = ["text", "thinking", "tool_use", "tool_result", "image", "document", "function_call", "function_call_output",
         "reasoning", "message", "assistant", "user", "system", "developer", "tool", "model", "output_text", "input_text",
         "refusal", "redacted_thinking", "server_tool_use", "shell_call", "item_reference", "compaction",
         "custom_tool_call", "openrouter:shell", "openrouter_shell_tool_result", "stop", "length", "tool_calls",
         "STOP", "MAX_TOKENS", "SAFETY", "end_turn", "max_tokens", "pause_turn", "auto", "none", "any", "required",
         "weather", "shell", "bash", "call_1", "toolu_1", "msg_1", "fc_1", "response.completed",
         "response.output_text.delta", "content_block_delta", "error", "ping", "input_json_delta", "signature_delta"]
ODD += WORDS + list(RAW)
EXTRA = {"previous_response_id": "resp_x", "store": True, "metadata": {"a": "b"}, "stop": ["\n"], "n": 2, "seed": 7,
         "tool_choice": "required", "parallel_tool_calls": False, "max_tool_calls": 1, "response_format": {},
         "text": {"format": {"type": "json_schema", "name": "x", "schema": {}}}, "stop_sequences": ["a", ""],
         "background": True, "truncation": "auto", "service_tier": "flex", "cachedContent": "x", "safetySettings": [],
         "generationConfig": {"candidateCount": 2, "responseSchema": {"type": "OBJECT"}}, "logprobs": True,
         "context_management": {"edits": []}, "mcp_servers": [], "container": "c", "models": ["up-chat/none"],
         "modalities": ["audio"], "thinking": {"type": "adaptive"}, "cache_control": {"type": "ephemeral"}}


# ---- breaking JSON ----

def places(value):
    """[(parent, key)] of all values in it."""
    found, new, seen = [], [value], set()
    while new:
        at = new.pop()
        if id(at) in seen:  # what is replayed is there more than once
            continue
        seen.add(id(at))
        for key in (list(at) if isinstance(at, dict) else range(len(at))):
            found.append((at, key))
            if isinstance(at[key], (dict, list)):
                new.append(at[key])
    return found


def copy(value):
    return json.loads(json.dumps(value))


def break_value(rng, value):
    """One change somewhere in a JSON value."""
    found = places(value)
    if not found:
        return
    parent, key = rng.choice(found)
    what = rng.randrange(12)
    if what < 4:
        parent[key] = copy(rng.choice(ODD))
    elif what == 4:
        del parent[key]
    elif what == 5 and isinstance(parent, list):
        parent[key:key] = [copy(parent[key]) for _ in range(rng.choice([1, 1, 2, 40]))]
    elif what == 6:
        other, k = rng.choice(found)
        with contextlib.suppress(KeyError, IndexError):
            parent[key], other[k] = copy(other[k]), copy(parent[key])
    elif what == 7 and isinstance(parent, dict):
        parent[rng.choice([key.upper(), "", key + "s", "type", "id", "content"])] = parent.pop(key)
    elif what == 8:
        parent[key] = [parent[key]] if rng.randrange(2) else {"type": parent[key]}
    elif what == 9 and isinstance(parent[key], str):
        text = parent[key]
        at = rng.randrange(len(text) + 1)
        parent[key] = rng.choice([text[:at], text[:at] + rng.choice(["\n", '"', "\\", "\0", "€", " "]) + text[at:],
                                  text * 2, text.upper()])
    elif what == 10 and isinstance(parent[key], dict):
        parent[key][rng.choice(["x", "type", "id", "index", "name", "content"])] = copy(rng.choice(ODD))
    else:
        parent[key] = rng.choice(WORDS)


def write(value):
    data = json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")
    for name, raw in RAW.items():
        data = data.replace(b'"%s"' % name.encode(), raw)
    return data


def break_bytes(rng, data):
    """One change of the bytes themselves."""
    at = rng.randrange(len(data) + 1)
    what = rng.randrange(7)
    if what == 0:
        return data[:at]
    if what == 1:
        return data[:at] + bytes([rng.randrange(256)]) + data[at + 1:]
    if what == 2:
        return data[:at] + data[at + rng.choice([1, 2, 10]):]
    if what == 3:
        return data[:at] + rng.choice([b"\n", b"\r", b"\n\n", b" " * 3000, b"\0", b"{", b"}", b'"', b",", b"\xf0\x9f"]) + \
            data[at:]
    if what == 4:
        return data + rng.choice([b"}", b"{}", b" ", b"\0", b"x", data])
    members = list(re.finditer(rb'"[a-z_A-Z]+": ?("[^"\\]*"|[0-9]+|true|false|null)', data))
    if not members:
        return data
    member = rng.choice(members)
    if what == 5:  # twice
        return data[:member.start()] + member.group() + b", " + data[member.start():]
    key, _, value = member.group().partition(b":")
    return data[:member.start()] + key + b": " + write(copy(rng.choice(ODD))) + b", " + data[member.start():]


# ---- requests ----

TEXTS = ["", "Hello.", "Grüße 😀", "a\nb", "x" * 300, "\\u0041\"", "data: [DONE]\n\n", "</s>"]
ARGS = [{"city": "Rome"}, {}, {"city": {"a": [1, None, 1.0]}}, {"commands": ["true"]}]
SIGNATURES = ["c2lnbmF0dXJl", "x" * 3000, "not base64 \n"]


def some_say(rng):
    say = Say(rng.choice(TEXTS + [None]), calls=[(rng.choice(["weather", "news", "shell"]), rng.choice(ARGS))
                                                for _ in range(rng.choice([0, 0, 1, 1, 2, 5]))])
    if rng.randrange(2):
        say.thinking, say.signature = rng.choice(TEXTS) or "hm", rng.choice(SIGNATURES)
    if not (say.text or say.calls or say.thinking):
        say.text = "Yes."
    return say


def said(spoken, say):
    """What a client of the dialect replays of a reply, and the results it gives."""
    answer = Answer()
    if spoken == "responses":
        answer.replay = SERVED["responses"].items(say)
        ids = ["call_%d" % (i + 1) for i in range(len(say.calls))]
    elif spoken == "messages":
        answer.replay = SERVED["messages"].blocks(say)
        ids = ["toolu_%d" % (i + 1) for i in range(len(say.calls))]
    elif spoken == "gemini":
        answer.replay = SERVED["gemini"].parts(say)
        ids = ["fc%d" % (i + 1) for i in range(len(say.calls))]
    else:
        details, calls, _ = SERVED["chat"].parts(say)
        answer.replay = {"role": "assistant", "content": say.text}
        if calls:
            answer.replay["tool_calls"] = calls
        if details:
            answer.replay["reasoning_details"] = details
        ids = [c["id"] for c in calls]
    answer.calls = [(i,) + c for i, c in zip(ids, say.calls)]
    return SPOKEN[spoken].results(answer, {"weather": "sunny", "news": "none", "shell": "5050"})


def some_request(rng, spoken, model, stream):
    speaker = SPOKEN[spoken]
    history = speaker.start(rng.choice(TEXTS) or "Go.", image=rng.randrange(4) == 0)
    for _ in range(rng.choice([0, 0, 1, 2])):
        history = history + said(spoken, some_say(rng)) + speaker.start("And now?")
    body = speaker.body(model, history, functions=rng.choice([(), ("weather",), ("weather", "news")]), stream=stream,
                        shell=rng.randrange(8) == 0 and spoken != "chat")
    return copy(body)


# ---- answers ----

def joined(steps):
    return b"".join(s for s in steps if isinstance(s, bytes))


def break_event(rng, step):
    """An event with its JSON changed."""
    at = step.find(b"data: ")
    end = step.find(b"\n", at)
    if at < 0:
        return step
    try:
        value = json.loads(step[at + 6:end])
    except ValueError:
        return step
    if isinstance(value, (dict, list)):
        for _ in range(rng.choice([1, 1, 2])):
            break_value(rng, value)
    return step[:at + 6] + write(value) + step[end:]


def strange_event(rng):
    name = rng.choice(WORDS)
    value = {"type": name, "index": rng.choice([0, 1, -1, 2 ** 63]), "delta": rng.choice(ODD), "output_index": 2 ** 63,
             "item_id": rng.choice(ODD), "item": rng.choice(ODD), "choices": rng.choice(ODD),
             "candidates": rng.choice(ODD), "error": rng.choice(ODD)}
    for key in list(value):
        if key != "type" and rng.randrange(2):
            del value[key]
    return rng.choice([b"", b"event: %s\n" % name.encode()]) + b"data: " + write(value) + b"\n\n"


def break_steps(rng, steps):
    """One change of a stream."""
    at = rng.randrange(len(steps))
    what = rng.randrange(14)
    step = steps[at]
    if not isinstance(step, bytes):
        return
    if what < 4:
        steps[at] = break_event(rng, step)
    elif what == 4:
        del steps[at]
    elif what == 5:
        steps[at:at] = [step] * rng.choice([1, 1, 2, 300])
    elif what == 6:
        other = rng.randrange(len(steps))
        steps[at], steps[other] = steps[other], steps[at]
    elif what == 7:
        steps.insert(at, strange_event(rng))
    elif what == 8:
        steps[at] = break_bytes(rng, step)
    elif what == 9:
        steps.insert(at, rng.choice([b": x\n\n" * 400, b"\n" * 5000, b" " * 70000, b"data:\n\n", b"data: [DONE]\n\n",
                                     b"data: {}\n\n", b"event: error\ndata: {}\n\n", b"id: 1\nretry: 1\n\n", b"\xef\xbb\xbf",
                                     b'data: {"error":"x"}\n\n', b'data: {"error":{"message":{}}}\n\n',
                                     b'event: error\ndata: {"type":"error","error":[1]}\n\n', b"<html></html>"]))
    elif what == 10:
        served = rng.choice(list(SERVED))  # a piece of another dialect
        steps[at:at] = SERVED[served].stream(some_say(rng)).steps[:rng.choice([1, 3])]
    elif what == 11:
        steps[at + 1:] = [rng.choice([Cut(), Reset()])]
    elif what == 12:
        steps.reverse()
    else:
        steps[at:at + 1] = [step[i:i + 3] for i in range(0, len(step), 3)]


def strange_answer(rng):
    """Something that is no answer of a model at all."""
    value = copy(rng.choice(ODD))
    failure = rng.choice([{"error": value}, value, {"error": {"message": value, "code": copy(rng.choice(ODD)),
                                                               "type": copy(rng.choice(ODD)), "status": value}},
                          [{"error": {"message": "in a list"}}], {"detail": [{"msg": "x"}]}, {"message": value}])
    return rng.choice([
        lambda: error(rng.choice([400, 401, 403, 404, 408, 413, 422, 429, 500, 502, 503, 529, 418, 599]),
                      write(failure), [("Retry-After", rng.choice(["0", "-1", "x", "9" * 40]))]),
        lambda: Reply([write(failure)], framing="length", content_type="application/json"),
        lambda: Reply([b"<html>hello</html>"], framing="length", content_type="text/html"),
        lambda: Reply([b""], framing="length", status=rng.choice([200, 204, 304])),
        lambda: Reply([b"x"], status=rng.choice([301, 302, 307, 308]), framing="length",
                      headers=[("Location", rng.choice(["http://127.0.0.1:1/", "/v1/models", "file:///etc/passwd"]))]),
        lambda: Reply([b"HTTP/1.1 102 Processing\r\n\r\n" * 3 + b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"],
                      framing="raw"),
        lambda: Reply([b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n{}", Cut()], framing="raw"),
        lambda: Reply([b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}", Cut()], framing="raw"),
        lambda: Reply([b"HTTP/1.1 200 OK\r\nX: " + b"y" * 300000 + b"\r\n\r\n", Cut()], framing="raw"),
        lambda: Reply([b"\x16\x03\x01\x02"], framing="raw"),
        lambda: Reply([Reset()], framing="raw"),
        lambda: Reply([b" " * 1000000], framing="chunked"),
        lambda: Reply([gzip.compress(b"{" * 1000000)], headers=[("Content-Encoding", "gzip")]),
    ])()


def whole_of(rng, value):
    """A whole answer of a changed value."""
    if isinstance(value, (dict, list)):
        for _ in range(rng.choice([1, 1, 2, 4])):
            break_value(rng, value)
    data = write(value)
    if rng.randrange(5) == 0:
        data = break_bytes(rng, data)
    return Reply([data], framing="length", content_type="application/json")


def broken_answer(rng, served, stream):
    if rng.randrange(6) == 0:
        return strange_answer(rng)
    say = some_say(rng)
    if stream == (rng.randrange(12) == 0):  # now and then in the form that was not asked for
        return whole_of(rng, json.loads(joined(SERVED[served].object(say).steps)))
    steps = list(SERVED[served].stream(say).steps)
    for _ in range(rng.choice([1, 1, 2, 3])):
        if steps:
            break_steps(rng, steps)
    reply = Reply(steps, split=rng.choice([0, 0, 0, 7, 100]), framing=rng.choice(["chunked", "chunked", "close"]))
    if rng.randrange(15) == 0:
        reply = Reply([gzip.compress(joined(steps))], headers=[("Content-Encoding", "gzip")])
    return reply


# ---- what every answer must be ----

STATUSES = {400, 401, 402, 403, 404, 408, 409, 413, 415, 422, 429, 502, 503, 504, 529}


def check_error(spoken, answer):
    assert answer.headers["content-type"].startswith("application/json"), answer
    body = answer.json
    assert isinstance(body["error"], dict) and isinstance(body["error"]["message"], str), answer
    assert body["error"]["message"], answer
    if spoken == "messages":
        assert body["type"] == "error" and isinstance(body["error"]["type"], str)
    elif spoken == "gemini":
        assert isinstance(body["error"]["status"], str) and body["error"]["code"] == answer.status
    else:
        assert isinstance(body["error"]["type"], str)


def check_candidates(body):
    for candidate in body.get("candidates", ()):
        for part in candidate.get("content", {}).get("parts", ()):
            assert isinstance(part, dict) and part, body
            if "functionCall" in part:
                assert part["functionCall"]["name"] and isinstance(part["functionCall"].get("args", {}), dict)
    assert "candidates" in body or "error" in body or "promptFeedback" in body or "usageMetadata" in body


def check_whole(spoken, body):
    if spoken == "responses":
        brigtest.check_object(body)
    elif spoken == "messages":
        messagestest.check_message(body)
    elif spoken == "gemini":
        check_candidates(body)
    else:
        (choice,) = body["choices"]
        assert choice["message"]["role"] == "assistant" and choice["finish_reason"]
        for c in choice["message"].get("tool_calls", ()):
            assert c["id"] and c["function"]["name"] and isinstance(c["function"]["arguments"], str)


def check_stream(spoken, body):
    if spoken == "responses":
        brigtest.Story(body)
    elif spoken == "messages":
        messagestest.Story(body)
    elif spoken == "gemini":
        events = sse(body, False)
        assert events
        for _, payload in events:
            check_candidates(json.loads(payload))
    else:
        events = [p for _, p in sse(body, False)]
        assert events
        last = events.pop()
        assert last == "[DONE]" or "error" in json.loads(last), last
        ids = {}
        for payload in events:
            chunk = json.loads(payload)
            for choice in chunk.get("choices", ()):
                for c in choice["delta"].get("tool_calls", ()):
                    ids.setdefault(c["index"], c.get("id"))
        assert all(ids.values()), ids


# ---- the cases ----

def read_input(text):
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {}


@pytest.fixture(autouse=True)
def what_models_say(monkeypatch):
    """A provider's own ids are streamed as they are, and what a model wrote as arguments too."""
    monkeypatch.setattr(messagestest, "IDS", ("",))
    monkeypatch.setattr(messagestest, "read_input", read_input)
    monkeypatch.setattr(messagestest, "STOPS_WITH_TOOLS", {"tool_use", "max_tokens", "refusal"})


@pytest.fixture(scope="module")
def upstream():
    upstream = Upstream()
    upstream.replies = {}
    yield upstream
    upstream.close()


@pytest.fixture
def server(make_server, upstream):
    server = make_server(config={
        "providers": [dict(p, api_key=UPSTREAM_KEY) for p in upstream.config()], "sandbox": False,
        "limits": {"upstream_retries": 0, "upstream_failures": 0, "upstream_first_byte": "5s", "upstream_idle": "5s"}})
    return server.start()


class Case:
    def __init__(self, number):
        self.rng = rng = random.Random("%d/%d" % (SEED, number))
        self.spoken, self.served = rng.choice(list(SPOKEN)), rng.choice(list(SERVED))
        self.stream = rng.randrange(2) == 1
        self.break_request = rng.randrange(5) < 2
        self.next = rng.choice(list(SERVED)) if self.spoken != "gemini" and rng.randrange(6) == 0 else None

    def __repr__(self):
        return "%s on %s, %s, a broken %s" % (self.spoken, self.served, "streamed" if self.stream else "whole",
                                             "request" if self.break_request else "answer")

    def prepare(self, upstream):
        rng = self.rng
        model = upstream.model()
        name = "up-%s/%s" % (self.served, model.upstream_name)
        body = some_request(rng, self.spoken, name, self.stream)
        if self.next:
            second = upstream.model()
            second.repeated = SERVED[self.next].reply(some_say(rng))
            body["models"] = ["up-%s/%s" % (self.next, second.upstream_name)]
        path = SPOKEN[self.spoken].path(name, self.stream)
        if self.break_request:
            model.repeated = SERVED[self.served].reply(some_say(rng))
            if rng.randrange(3) == 0:
                key = rng.choice(list(EXTRA))
                body[key] = copy(EXTRA[key])
            for _ in range(rng.choice([0, 1, 1, 2, 3, 8])):
                break_value(rng, body)
            data = write(body)
            if rng.randrange(3) == 0:
                data = break_bytes(rng, data)
            if self.spoken == "gemini" and rng.randrange(6) == 0:
                path = path.replace("/m", rng.choice(["/%22m", "/m%0a", "/m%2F", "/%ff", "/..%2f", "/m%00"]), 2)
        else:
            model.repeated = lambda request: broken
            broken = broken_answer(rng, self.served, self.stream)
            data = write(body)
        return model, path, data

    def run(self, server, upstream):
        model, path, data = self.prepare(upstream)
        started = time.monotonic()
        try:
            answer = server.client().request("POST", path, data, headers=SPOKEN[self.spoken].headers(), timeout=SLOW)
        except socket.timeout:
            raise AssertionError("no answer in %s s" % SLOW)
        except Exception as e:
            if self.spoken not in (self.served, self.next) or self.break_request:
                raise AssertionError("no HTTP: %r" % e)
            return None  # what is relayed is cut where its upstream cut it
        finally:
            upstream.models[model.upstream_name] = None
        assert time.monotonic() - started < SLOW, "slow"
        if ONLY:
            for request in model.requests:
                print("asked:", request.body.decode("utf-8", "replace"))
            if not self.break_request:
                print("said:", *model.repeated(None).steps, sep="\n  ")
            print("request:", data, "answer:", answer.status, answer.body.decode(), sep="\n")
        self.check(answer, upstream)
        return answer

    def check(self, answer, upstream):
        assert UPSTREAM_KEY.encode() not in answer.body, "a key was told"
        assert b":%d" % upstream.port not in answer.body, "an address was told"
        if answer.status != 200:
            ok = STATUSES if self.break_request else STATUSES | {500, 418, 599}
            assert answer.status in ok, answer
            check_error(self.spoken, answer)
            return
        if self.spoken in (self.served, self.next):
            return  # the upstream's own bytes
        if answer.headers["content-type"].startswith("text/event-stream"):
            check_stream(self.spoken, answer.body)
        else:
            check_whole(self.spoken, answer.json)


def descriptors(pid):
    return len(os.listdir("/proc/%d/fd" % pid))


def test_random(server, upstream):
    (gateway,) = server.gateways()
    numbers, failed, statuses = itertools.count(int(ONLY or 0)), [], collections.Counter()
    end, began = time.monotonic() + SECONDS, threading.Event()
    before = []

    def work(_):
        while time.monotonic() < end and len(failed) < 20 and not (ONLY and began.is_set()):
            number = next(numbers)
            began.set()
            case, answer, started = Case(number), None, time.monotonic()
            try:
                answer = case.run(server, upstream)
            except Exception as e:
                where = "; ".join("%s:%d %s" % (f.name, f.lineno, f.line) for f in
                                  traceback.extract_tb(e.__traceback__)[-3:])
                failed.append("case %d of seed %d: %r: %s at %s: %s" % (number, SEED, case, type(e).__name__, where,
                                                                       str(e)[:1500]))
            statuses[answer.status if answer else "none"] += 1
            if SHOW:
                print(number, case, answer and answer.status, "%.2f s" % (time.monotonic() - started), flush=True)
            if number == 300:
                before.append((descriptors(gateway), resident(gateway)))

    with concurrent.futures.ThreadPoolExecutor(1 if ONLY else 6) as pool:
        list(pool.map(work, range(1 if ONLY else 6)))
    print("%d cases: %s" % (sum(statuses.values()), dict(statuses)))
    assert server.gateways() == [gateway], "the gateway ended:\n" + "\n".join(failed)
    assert not failed, "\n".join(failed)
    for fds, memory in before:
        print("descriptors %d, memory %d KiB; after 300 cases %d, %d KiB" % (
            descriptors(gateway), resident(gateway) >> 10, fds, memory >> 10))
        assert descriptors(gateway) <= fds + 30
        if not ASAN:
            assert resident(gateway) - memory < 64 << 20
