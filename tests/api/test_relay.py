"""
Same dialect on both sides: the provider gets the client's own bytes with the model's name (and what is for brig alone)
edited, and the client gets the provider's own bytes with the model's name edited. Nothing else changes.
"""
import contextlib
import json
import pathlib
import re
import threading
import time

import pytest

from brigtest import wait_for
from fake_provider import Cut, DONE, FakeProvider, Hold, Pause, Reply, Reset, chunk, error, rate_limited, text, text_deltas

SETTINGS = {"sandbox": False}  # and nothing stands between bytes that come as they come
PINGS = {"sandbox": False, "limits": {"keepalive": "300ms"}}

# What a parser would lose: order of keys, numbers, escapes, members and values that nobody knows.
ODD = (b'"zebra":1.0,"seed":12345678901234567890,"temperature":1.0E+0,"apple":{"b":[1,2.50,{"a":null}],"a":"\\u00e9\\/"},'
       b'"future":["\\ud83d\\ude00", true ] ')


def body_of(model, extra=b"", stream=False, messages=b'[{"role":"user","content":"hi \\u0041"}]'):
    return (b'{ "stream" : %s, %s%s"model" : "%s",\n "messages":%s , ' % (
        b"true" if stream else b"false", extra, b"" if not extra else b", ", model.name.encode(), messages)) + ODD + b"}\n"


def ask(client, model, **more):
    return client.post("/chat/completions", body_of(model, **more))


@pytest.fixture(scope="module")
def pinged(provider):
    """A server that says often that it is still there."""
    from brigtest import Server
    from conftest import run
    yield from run(Server(provider, config=PINGS))


def stream_of(client, body):
    with contextlib.closing(client.open_stream("/chat/completions", body)) as stream:
        assert stream.status == 200, stream.body()
        assert stream.response_headers["content-type"].startswith("text/event-stream")
        return stream.rest()


def edited(data, model, name="up"):
    """The provider's bytes as the client should see them."""
    return data.replace(b'"model":"%s"' % name.encode(), b'"model":"%s"' % model.name.encode()).replace(
        b'"model": "%s"' % name.encode(), b'"model": "%s"' % model.name.encode())


WHOLE = (b'{"id":"x","object":"chat.completion","created":1e3,"model":"up","choices":[{"index":0,"message":{"role":"assistant",'
         b'"content":"hello \\u00e9\\/ \\"model\\":\\"up\\"","audio":null,"model":"inner"},"logprobs":{"content":[1.0]},'
         b'"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7},"dup":1,"dup":2,'
         b'"x_unknown":[12345678901234567890, 1.00]}\n')

STREAM = [b': OPENROUTER PROCESSING\n\n',
          b'data: {"id":"x","model":"up","object":"chat.completion.chunk","created":1,"choices":[{"index":0,'
          b'"delta":{"role":"assistant","content":""},"finish_reason":null}],"n":1.0}\n\n',
          b'event: strange\nid: 7\ndata: {"model" : "up","choices":[{"index":0,"delta":{"content":"h\\u00e9\xc3\xa9"}}]}\n\n',
          b'data:{"choices":[{"index":1,"delta":{"content":"other"},"x":12345678901234567890}],"model":"up"}\r\n\r\n',
          b'data: not json at all\n\n',
          b'data: {"model":"up","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n',
          b'data: {"model":"up","choices":[],"usage":{"prompt_tokens":5,"completion_tokens":6}}\n\n',
          DONE]


# ---- requests ----

@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_request_goes_on_as_it_is(client, provider, stream):
    model = provider.model(text("hello") if stream else Reply([WHOLE], framing="length", content_type="application/json"))
    answer = ask(client, model, stream=stream)
    assert answer.status == 200, answer
    sent = body_of(model, stream=stream)
    assert model.requests[0].body == sent.replace(model.name.encode(), model.upstream_name.encode())
    head = model.requests[0].headers
    assert head["authorization"].startswith("Bearer sk-upstream")
    assert head["accept"] == ("text/event-stream" if stream else "application/json")


def test_what_is_for_brig_is_left_out(client, provider):
    model = provider.model(text("hello"))
    answer = client.post("/chat/completions", (
        b'{"session_id":"s1" , "provider":{"order":["a,b"]},"messages":[{"role":"user","content":"hi"}],\n'
        b'"plugins":[],"x":1.0, "models":["%s"],"trace":{"a":1}}' % model.name.encode()))
    assert answer.status == 200, answer
    assert model.requests[0].body == (
        b'{"messages":[{"role":"user","content":"hi"}],"x":1.0,"model":"%s"}' % model.upstream_name.encode())


def test_a_sealed_state_is_not_passed_on(client, provider):
    model = provider.model(text("hello"))
    body = {"model": model.name, "messages": [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b", "reasoning_details": [
            {"type": "reasoning.text", "text": "hm", "signature": "brig1.AAAA"}]},
        {"role": "user", "content": "c"}]}
    assert client.post("/chat/completions", body).status == 200
    assert b"brig1" not in model.requests[0].body
    assert [m["content"] for m in model.requests[0].messages] == ["a", "b", "c"]


# ---- answers ----

def test_whole_answer_comes_back_as_it_is(client, provider):
    model = provider.model(Reply([WHOLE], framing="length", content_type="application/json"))
    answer = ask(client, model)
    assert answer.status == 200
    assert answer.body == WHOLE.replace(b'"model":"up","choices"', b'"model":"%s","choices"' % model.name.encode())
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-generation-id"].startswith("gen-")


@pytest.mark.parametrize("split", [0, 1, 7], ids=["at once", "bytewise", "in sevens"])
def test_stream_comes_back_as_it_is(client, provider, split):
    model = provider.model(Reply(STREAM, split=split))
    got = stream_of(client, body_of(model, stream=True))
    want = b"".join(STREAM).replace(b'"up"', b'"%s"' % model.name.encode())
    assert got == want


@pytest.mark.parametrize("newline", [b"\r\n", b"\r"], ids=["crlf", "cr"])
def test_line_ends_stay(client, provider, newline):
    steps = [s.replace(b"\r\n", b"\n").replace(b"\n", newline) for s in STREAM]
    model = provider.model(Reply(steps, split=1))
    assert stream_of(client, body_of(model, stream=True)) == b"".join(steps).replace(
        b'"up"', b'"%s"' % model.name.encode())


def test_event_comes_as_soon_as_it_is_whole(pinged, provider):
    go = threading.Event()

    def steps():
        yield STREAM[1] + STREAM[5][:10]
        from fake_provider import Wait
        yield Wait(go)
        yield STREAM[5][10:] + DONE

    model = provider.model(Reply([steps]))
    with contextlib.closing(pinged.client().open_stream("/chat/completions", body_of(model, stream=True))) as stream:
        stream.until(b"\n\n")
        assert stream.text == edited(STREAM[1], model)
        # Nothing may come between the halves of an event, and half of one is not shown.
        time.sleep(1)
        go.set()
        assert b": ping" not in stream.rest()
        assert stream.text == edited(STREAM[1] + STREAM[5], model) + DONE


def test_keepalive_between_events(pinged, provider):
    model = provider.model(Reply([STREAM[1], Pause(1.2), STREAM[5], DONE]))
    got = stream_of(pinged.client(), body_of(model, stream=True))
    assert b": ping\n" in got
    assert got.replace(b": ping\n", b"") == edited(STREAM[1] + STREAM[5], model) + DONE


def test_large_events_and_bodies(client, provider):
    big = b"\\u00e9" + b"x" * 3000000
    event = b'data: {"choices":[{"index":0,"delta":{"content":"%s"}}],"model":"up"}\n\n' % big
    model = provider.model(Reply([STREAM[1], event, STREAM[5], DONE]),
                           Reply([b'{"choices":[{"index":0,"message":{"content":"%s"},"finish_reason":"stop"}],"model":"up"}'
                                  % big], framing="length", content_type="application/json"))
    assert stream_of(client, body_of(model, stream=True)) == edited(STREAM[1] + event + STREAM[5], model) + DONE
    answer = ask(client, model)
    assert answer.json["model"] == model.name and answer.json["choices"][0]["message"]["content"] == "\u00e9" + "x" * 3000000


def test_bytes_after_the_end_come_too(client, provider):
    after = b'data: {"after":"the end"}\n\n'
    model = provider.model(Reply([STREAM[1], STREAM[5], DONE, Pause(0.05), after]))
    assert stream_of(client, body_of(model, stream=True)) == edited(STREAM[1] + STREAM[5], model) + DONE + after


def test_a_server_that_never_closes(client, provider):
    model = provider.model(Reply([STREAM[1], STREAM[5], DONE, Hold()]))
    assert stream_of(client, body_of(model, stream=True)).replace(b": ping\n", b"") == edited(
        STREAM[1] + STREAM[5], model) + DONE
    assert model.requests[0].closed.wait(60)


def test_usage_is_known(server, client, provider):
    model = provider.model(Reply(STREAM))
    with contextlib.closing(client.open_stream("/chat/completions", body_of(model, stream=True))) as stream:
        stream.rest()
        id = stream.response_headers["x-generation-id"]
    def line():
        return [l for l in server.log_path.read_text().splitlines() if id in l and '"turn"' in l or id in l and "turn" in l]
    found = wait_for(line)
    assert re.search(r'input_tokens"?[=:]\s*5\b', found[-1]) and re.search(r'output_tokens"?[=:]\s*6\b', found[-1]), found


# ---- what fails ----

@pytest.mark.parametrize("cut", [Cut(), Reset()], ids=["closed", "reset"])
def test_a_cut_stream_ends_with_an_error(client, provider, cut):
    model = provider.model(Reply([STREAM[1], STREAM[2], STREAM[5][:30], Pause(0.1), cut]))
    got = stream_of(client, body_of(model, stream=True))
    good = (STREAM[1] + STREAM[2]).replace(b'"up"', b'"%s"' % model.name.encode())
    assert got.startswith(good)
    last = got[len(good):]
    assert last.startswith(b"data: ") and last.endswith(b"\n\n") and last.count(b"data:") == 1
    chunk = json.loads(last[6:])
    assert "cut off" in chunk["error"]["message"] and chunk["error"]["code"] == 502
    assert b"[DONE]" not in got


def test_an_end_without_a_reason_is_an_error(client, provider):
    model = provider.model(Reply([STREAM[1], STREAM[2]]))
    got = stream_of(client, body_of(model, stream=True))
    assert json.loads(got.rstrip().rpartition(b"data: ")[2])["error"]["message"]


def test_the_providers_own_error_is_passed_on(client, provider):
    own = b'data: {"error":{"message":"engine is dead","code":1.0}}\n\n'
    model = provider.model(Reply([STREAM[1], own]))
    assert stream_of(client, body_of(model, stream=True)) == edited(STREAM[1], model) + own


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("first", [error(500, {"error": {"message": "no"}}), Reply([Reset()], framing="raw"),
                                   Reply([b'data: {"error":{"message":"dead","code":500}}\n\n'])],
                         ids=["500", "reset", "error first"])
def test_another_target_before_the_first_byte(client, provider, first, stream):
    bad = provider.model(first)
    good = provider.model(Reply(STREAM) if stream else Reply([WHOLE], framing="length", content_type="application/json"))
    body = body_of(bad, stream=stream, extra=b'"models":["%s"]' % good.name.encode())
    answer = client.post("/chat/completions", body)
    assert answer.status == 200, answer
    want = b"".join(STREAM).replace(b'"up"', b'"%s"' % good.name.encode()) if stream else WHOLE.replace(
        b'"model":"up","choices"', b'"model":"%s","choices"' % good.name.encode())
    assert answer.body == want
    assert b"models" not in good.requests[0].body


def test_a_refusal_has_its_status(client, provider):
    model = provider.model(rate_limited(3))
    answer = ask(client, model, stream=True)
    assert answer.status == 429 and answer.headers["retry-after"] == "3"
    assert "Rate limit" in answer.error["message"]


def test_a_cut_whole_answer_is_no_answer(client, provider):
    half = (b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(WHOLE)) + WHOLE[:80]
    model = provider.model(Reply([half, Pause(0.1), Cut()], framing="raw"))
    answer = ask(client, model)
    assert answer.status == 502 and answer.error["message"], answer


# ---- servers that do not do as they are told ----

def test_a_stream_that_comes_as_one_text_is_translated(client, provider):
    model = provider.model(Reply([WHOLE.replace(b'"dup":2,', b"")], framing="length", content_type="application/json"))
    got = stream_of(client, body_of(model, stream=True))
    assert got.endswith(DONE) and b'"object":"chat.completion.chunk"' in got and b"hello" in got


def test_a_whole_answer_that_comes_as_a_stream_is_translated(client, provider):
    model = provider.model(text("hello", pieces=2))
    answer = ask(client, model)
    assert answer.status == 200 and answer.json["choices"][0]["message"]["content"] == "hello"


# ---- the client ----

@pytest.mark.parametrize("begun", [False, True], ids=["before", "midway"])
def test_a_client_that_goes_closes_the_provider(client, provider, begun):
    times = []
    while len(times) < 20 and (not times or min(times) >= 0.5):
        model = provider.model(Reply(([STREAM[1]] if begun else []) + [Hold()]))
        stream = client.open_stream("/chat/completions", body_of(model, stream=True))
        request = model.wait()
        if begun:
            stream.until(b"\n\n")
        started = time.monotonic()
        stream.close()
        assert request.closed.wait(60), "the provider was left open"
        times.append(request.closed_at - started)
    assert min(times) < 0.5, times


def test_a_slow_client_stops_the_provider(server, client, provider):
    """100 MB are on offer; what the client does not take is not fetched."""
    sent = [0]

    def steps():
        yield STREAM[1]
        event = b'data: {"model":"up","choices":[{"index":0,"delta":{"content":"%s"}}]}\n\n' % (b"y" * 20000)
        for _ in range(5000):
            sent[0] += len(event)
            yield event

    model = provider.model(Reply([steps]))
    stream = client.open_stream("/chat/completions", body_of(model, stream=True))
    stream.until(b"\n\n")
    last = -1
    while sent[0] != last:
        last = sent[0]
        time.sleep(0.5)
    assert last < 40 << 20, last
    stream.close()
    assert model.requests[0].closed.wait(60)


# ---- the other dialects ----

class Dialect:
    """How one dialect asks, and what it answers: whole, and as events."""

    def __init__(self, path, ask, whole, events, usage, key="model", broken=None):
        self.path, self.ask, self.whole, self.events, self.usage = path, ask, whole, events, usage
        self.key, self.broken = key, broken

    def body(self, model, stream):
        return self.ask.replace(b"NAME", model).replace(b"STREAM", b"true" if stream else b"false")


def ev(name, data):
    return b"event: %s\ndata: %s\n\n" % (name, data)


DIALECTS = {
    "responses": Dialect(
        "/v1/responses",
        b'{"store":false , "model":"NAME","input":[{"role":"user","content":"hi \\u0041"}],"temperature":1.0,"stream":STREAM,'
        b'"metadata":{"b":"1","a":"2"}}',
        b'{"id":"resp_up","object":"response","created_at":1.0,"status":"completed","model":"up","output":[{"id":"msg_1",'
        b'"type":"message","role":"assistant","status":"completed","content":[{"type":"output_text","text":"h\\u00e9",'
        b'"annotations":[],"x":1.00}]}],"usage":{"input_tokens":3,"output_tokens":4,"total_tokens":7},"error":null,"new":{"z":1,"a":2}}',
        [ev(b"response.created", b'{"type":"response.created","sequence_number":0,"response":{"id":"resp_up","object":"response",'
            b'"model":"up","status":"in_progress","output":[],"z":1.0,"a":"model"}}'),
         ev(b"response.output_item.added", b'{"type":"response.output_item.added","sequence_number":1,"output_index":0,"item":'
            b'{"id":"msg_1","type":"message","role":"assistant","status":"in_progress","content":[]},"model":"kept"}'),
         ev(b"response.content_part.added", b'{"type":"response.content_part.added","sequence_number":2,"item_id":"msg_1",'
            b'"output_index":0,"content_index":0,"part":{"type":"output_text","text":"","annotations":[]}}'),
         ev(b"response.from_the_future", b'{"type":"response.from_the_future","sequence_number":3,"number":12345678901234567890}'),
         ev(b"response.output_text.delta", b'{"type":"response.output_text.delta","sequence_number":4,"item_id":"msg_1",'
            b'"output_index":0,"content_index":0,"delta":"h\\u00e9\\/","obfuscation":"xx"}'),
         ev(b"response.completed", b'{"type":"response.completed","sequence_number":5,"response":{"id":"resp_up","object":"response",'
            b'"status":"completed","model":"up","output":[{"id":"msg_1","type":"message","role":"assistant","status":"completed",'
            b'"content":[{"type":"output_text","text":"h\\u00e9/","annotations":[]}]}],"usage":{"input_tokens":3,"output_tokens":4,'
            b'"total_tokens":7}}}'),
         DONE], (3, 4)),
    "messages": Dialect(
        "/v1/messages",
        b'{"max_tokens":10,"model":"NAME" ,"messages":[{"role":"user","content":"hi \\u0041"}],"temperature":1.0,"stream":STREAM,'
        b'"stop_sequences":["\\u0041"],"thinking":{"type":"disabled"}}',
        b'{"id":"msg_up","type":"message","role":"assistant","model":"up","content":[{"type":"text","text":"h\\u00e9","new":1.0}],'
        b'"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":3,"output_tokens":4},"z":1,"a":12345678901234567890}',
        [ev(b"message_start", b'{"type":"message_start","message":{"id":"msg_up","type":"message","role":"assistant","content":[],'
            b'"model":"up","stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":3,"output_tokens":1},"z":1.0}}'),
         ev(b"content_block_start", b'{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}'),
         ev(b"ping", b'{"type": "ping"}'),
         ev(b"content_block_delta", b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"h\\u00e9\\/"}}'),
         ev(b"from_the_future", b'{"type":"from_the_future","model":"up","number":1.00}'),
         ev(b"content_block_stop", b'{"type":"content_block_stop","index":0}'),
         ev(b"message_delta", b'{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":4}}'),
         ev(b"message_stop", b'{"type":"message_stop"}')], (3, 4)),
    "gemini": Dialect(
        "/v1beta/models/NAME",
        b'{"contents":[{"role":"user","parts":[{"text":"hi \\u0041"}]}],"generationConfig":{"temperature":1.0,"topK":40}}',
        b'{"candidates":[{"content":{"parts":[{"text":"h\\u00e9","new":1.0}],"role":"model"},"finishReason":"STOP","index":0}],'
        b'"usageMetadata":{"promptTokenCount":3,"candidatesTokenCount":4,"totalTokenCount":7},"modelVersion":"up","z":1,"a":2}',
        [event.replace(b"\n\n", b"\r\n\r\n") for event in (
            b'data: {"candidates": [{"content": {"parts": [{"text": "h\\u00e9\\/","thoughtSignature": "AbC="}],"role": "model"},'
            b'"index": 0}],"modelVersion": "up","responseId": "r","n": 1.00}\n\n',
            b'data: {"promptFeedbackOfTheFuture":[1.0],"modelVersion":"up"}\n\n',
            b'data: {"candidates":[{"content":{"parts":[{"text":""}],"role":"model"},"finishReason":"STOP","index":0}],'
            b'"usageMetadata":{"promptTokenCount":3,"candidatesTokenCount":4,"totalTokenCount":7},"modelVersion":"up"}\n\n')],
        (3, 4), key="modelVersion"),
}
NAMES = {"responses": "openai-responses", "messages": "anthropic", "gemini": "gemini"}


class AnyProvider(FakeProvider):
    """The model's name is in the body, or in the path."""

    def find(self, request):
        match = re.search(r"/models/([^/:]+):", request.path)
        if match:
            return self.models.get(match.group(1))
        return super().find(request)


@pytest.fixture(scope="module")
def upstream():
    provider = AnyProvider()
    yield provider
    provider.close()


def serve_many(upstream, settings):
    import brigtest
    import conftest
    config = {**settings, "providers": [
        {"name": name, "dialect": dialect, "api_key": "sk-upstream-0123456789abcdef",
         "base_url": upstream.base_url() if name != "gemini" else "http://127.0.0.1:%d/v1beta" % upstream.port}
        for name, dialect in [*NAMES.items(), ("chat", "openai-chat")]]}
    yield from conftest.run(brigtest.Server(upstream, config=config))


@pytest.fixture(scope="module")
def many(upstream):
    yield from serve_many(upstream, SETTINGS)


@pytest.fixture(scope="module")
def many_pinged(upstream):
    yield from serve_many(upstream, PINGS)


def post(many, name, dialect, model, stream):
    path = dialect.path.replace("NAME", "%s/%s" % (name, model.upstream_name))
    if name == "gemini":
        path += ":streamGenerateContent?alt=sse" if stream else ":generateContent"
    return many.client().request("POST", path, dialect.body(("%s/%s" % (name, model.upstream_name)).encode(), stream))


def shown(name, dialect, model, data, inner):
    """The provider's bytes with the one member edited that says the model."""
    new = b"%s/%s" % (name.encode(), model.upstream_name.encode())
    if name == "responses" and inner:
        return re.sub(rb'("response":\{[^\n]*?"model":)"up"', rb'\1"%s"' % new, data)
    if name == "messages" and inner:
        return data.replace(b'"content":[],"model":"up"', b'"content":[],"model":"%s"' % new)
    return re.sub(rb'("%s": ?)"up"' % dialect.key.encode(), rb'\1"%s"' % new, data)


@pytest.mark.parametrize("name", DIALECTS)
def test_dialect_whole(many, upstream, name):
    dialect = DIALECTS[name]
    model = upstream.model(Reply([dialect.whole], framing="length", content_type="application/json"))
    answer = post(many, name, dialect, model, False)
    assert answer.status == 200, answer
    assert answer.body == shown(name, dialect, model, dialect.whole, False)
    assert model.requests[0].body == dialect.body(model.upstream_name.encode(), False)
    if name == "gemini":
        assert model.requests[0].path == "/v1beta/models/%s:generateContent" % model.upstream_name
        assert model.requests[0].headers["x-goog-api-key"]
    if name == "messages":
        assert model.requests[0].headers["anthropic-version"] and model.requests[0].headers["x-api-key"]


@pytest.mark.parametrize("split", [0, 1], ids=["at once", "bytewise"])
@pytest.mark.parametrize("name", DIALECTS)
def test_dialect_streamed(many, upstream, name, split):
    dialect = DIALECTS[name]
    model = upstream.model(Reply(dialect.events, split=split))
    answer = post(many, name, dialect, model, True)
    assert answer.status == 200, answer
    assert answer.body == shown(name, dialect, model, b"".join(dialect.events), True)
    assert model.requests[0].body == dialect.body(model.upstream_name.encode(), True)
    if name == "gemini":
        assert model.requests[0].path == "/v1beta/models/%s:streamGenerateContent?alt=sse" % model.upstream_name


def usage_line(many, answer):
    id = answer.headers["x-generation-id"]
    return wait_for(lambda: [l for l in many.log_path.read_text().splitlines() if id in l and '"turn"' in l])[-1]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("name", DIALECTS)
def test_dialect_usage(many, upstream, name, stream):
    dialect = DIALECTS[name]
    model = upstream.model(Reply(dialect.events) if stream else
                           Reply([dialect.whole], framing="length", content_type="application/json"))
    line = usage_line(many, post(many, name, dialect, model, stream))
    assert '"input_tokens":%d,"output_tokens":%d' % dialect.usage in line and '"error":""' in line


@pytest.mark.parametrize("name", DIALECTS)
def test_dialect_cut(many, upstream, name):
    """Whole events, then the dialect's own error."""
    dialect = DIALECTS[name]
    model = upstream.model(Reply(dialect.events[:2] + [dialect.events[2][:25], Pause(0.1), Cut()]))
    answer = post(many, name, dialect, model, True)
    good = shown(name, dialect, model, b"".join(dialect.events[:2]), True)
    assert answer.status == 200 and answer.body.startswith(good)
    last = answer.body[len(good):].decode()
    events = [dict(line.split(": ", 1) for line in e.split("\n")) for e in last.strip().split("\n\n")]
    if name == "messages":
        assert [e["event"] for e in events] == ["error"]
        body = json.loads(events[0]["data"])
        assert body["type"] == "error" and body["error"]["type"] and "cut off" in body["error"]["message"]
    elif name == "gemini":
        body = json.loads(events[0]["data"])
        assert len(events) == 1 and body["error"]["code"] >= 500 and body["error"]["status"]
    else:
        assert [e.get("event") for e in events] == ["error", "response.failed", None]
        first, second = json.loads(events[0]["data"]), json.loads(events[1]["data"])
        assert (first["sequence_number"], second["sequence_number"]) == (2, 3)
        assert first["code"] and first["message"] and first["error"]["message"]
        assert second["response"]["id"] == "resp_up" and second["response"]["status"] == "failed"
        assert second["response"]["error"]["code"] and events[2]["data"] == "[DONE]"


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("name", [n for n in DIALECTS if n != "gemini"])
def test_dialect_falls_back_to_another(many, upstream, name, stream):
    """The first target is of the same dialect and fails; the second is not, and is translated."""
    dialect = DIALECTS[name]
    bad, good = upstream.model(error(503, {"error": {"message": "no"}})), upstream.model(text("hello"))
    body = dialect.body(("%s/%s" % (name, bad.upstream_name)).encode(), stream)
    body = body[:-1] + b',"models":["chat/%s"]}' % good.upstream_name.encode()
    answer = many.client().request("POST", dialect.path, body)
    assert answer.status == 200, answer
    assert b"hello" in answer.body and b"models" not in bad.requests[0].body
    assert good.requests[0].messages[-1] == {"role": "user", "content": "hi A"}


@pytest.mark.parametrize("name", DIALECTS)
def test_dialect_keepalive(many_pinged, upstream, name):
    dialect = DIALECTS[name]
    model = upstream.model(Reply([dialect.events[0], Pause(1.0)] + dialect.events[1:]))
    answer = post(many_pinged, name, dialect, model, True)
    ping = {"messages": b'event: ping\ndata: {"type":"ping"}\n\n', "gemini": b": ping\n\n"}.get(name, b": ping\n")
    assert ping in answer.body
    assert answer.body.replace(ping, b"") == shown(name, dialect, model, b"".join(dialect.events), True)


# ---- every stream that the providers' parsers know ----

CASES = [(name, path) for name, folder in (("chat", "chat"), ("responses", "responses-stream"), ("messages", "anthropic"),
                                           ("gemini", "gemini"))
         for path in sorted((pathlib.Path(__file__).resolve().parents[1] / "cases" / folder).glob("*.sse"))
         if ".cut." not in path.name and path.read_bytes().strip()]
CHAT = Dialect("/v1/chat/completions", b'{"model":"NAME","messages":[{"role":"user","content":"hi"}],"stream":STREAM}', b"", [], ())


def masked(data):
    return re.sub(rb'("(?:model|modelVersion)"\s*:\s*)"(?:[^"\\]|\\.)*"', rb'\1"*"', data)


@pytest.mark.parametrize("split", [0, 3], ids=["at once", "in threes"])
@pytest.mark.parametrize("name, path", CASES, ids=["%s-%s" % (n, p.name) for n, p in CASES])
def test_streams_of_the_cases(many, upstream, name, path, split):
    """What reaches the client is what the provider said; where that came to no end, an error follows."""
    said = path.read_bytes()
    model = upstream.model(Reply([said], split=split))
    answer = post(many, name, DIALECTS.get(name, CHAT), model, True)
    if answer.status != 200:
        assert json.loads(answer.body)["error"]["message"]  # its first word was an error
        return
    got, want = masked(answer.body), masked(said)
    if got == want:
        return
    if said.lstrip(b"\xef\xbb\xbf \r\n")[:1] in b"{[":  # no stream: it was translated
        assert b"data: {" in got
        return
    whole = re.match(rb"(?s).*(?:\n\n|\r\r|\r\n\r\n)", want)
    whole = whole.group() if whole else b""
    assert got.startswith(whole), (got, whole)
    assert b'"error"' in got[len(whole):], got[len(whole):]


def test_time_is_up(make_server, provider):
    """A whole answer of which a part has gone out may not look whole; before that it is an answer like any other."""
    server = make_server(config={"sandbox": False, "limits": {"turn_unstreamed": "3s"}}).start()
    start = b'{"model":"up","choices":[{"index":0,"message":{"content":"'
    model = provider.model(Reply([start + b"x" * 200000, Hold()], content_type="application/json"))
    with contextlib.closing(server.client().open_stream("/chat/completions", body_of(model))) as stream:
        assert stream.status == 200
        with pytest.raises((EOFError, ConnectionError)):
            stream.rest()
        assert stream.text.startswith(start.replace(b'"up"', b'"%s"' % model.name.encode()))
    assert model.requests[0].closed.wait(60)


def test_a_slow_client_gets_the_last_bytes(client, provider):
    """While nobody listens to the provider its time does not run out."""
    big = b'data: {"model":"up","choices":[{"index":0,"delta":{"content":"%s"}}]}\n\n' % (b"z" * 3000)
    end = STREAM[5] + DONE
    after = b": and that was all\n\n"
    model = provider.model(Reply([big] * 3000 + [end] + [after] * 300))
    stream = client.open_stream("/chat/completions", body_of(model, stream=True))
    assert stream.status == 200
    time.sleep(2.5)
    want = edited(big * 3000 + end, model) + after * 300
    assert stream.rest() == want
    stream.close()
