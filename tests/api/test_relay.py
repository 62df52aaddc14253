"""
Same dialect on both sides: the provider gets the client's own bytes with the model's name (and what is for brig alone)
edited, and the client gets the provider's own bytes with the model's name edited. Nothing else changes.
"""
import contextlib
import json
import re
import threading
import time

import pytest

from brigtest import wait_for
from fake_provider import Cut, DONE, Hold, Pause, Reply, Reset, chunk, error, rate_limited, text, text_deltas

SETTINGS = {"sandbox": False, "limits": {"keepalive": "300ms"}}

# What a parser would lose: order of keys, numbers, escapes, members and values that nobody knows.
ODD = (b'"zebra":1.0,"seed":12345678901234567890,"temperature":1.0E+0,"apple":{"b":[1,2.50,{"a":null}],"a":"\\u00e9\\/"},'
       b'"future":["\\ud83d\\ude00", true ] ')


def body_of(model, extra=b"", stream=False, messages=b'[{"role":"user","content":"hi \\u0041"}]'):
    return (b'{ "stream" : %s, %s%s"model" : "%s",\n "messages":%s , ' % (
        b"true" if stream else b"false", extra, b"" if not extra else b", ", model.name.encode(), messages)) + ODD + b"}\n"


def ask(client, model, **more):
    return client.post("/chat/completions", body_of(model, **more))


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


def test_event_comes_as_soon_as_it_is_whole(client, provider):
    go = threading.Event()

    def steps():
        yield STREAM[1]
        yield STREAM[5][:10]
        from fake_provider import Wait
        yield Wait(go)
        yield STREAM[5][10:] + DONE

    model = provider.model(Reply([steps]))
    with contextlib.closing(client.open_stream("/chat/completions", body_of(model, stream=True))) as stream:
        stream.until(b"\n\n")
        assert stream.text == edited(STREAM[1], model)
        # Nothing may come between the halves of an event, and half of one is not shown.
        time.sleep(1)
        go.set()
        assert b": ping" not in stream.rest()
        assert stream.text == edited(STREAM[1] + STREAM[5], model) + DONE


def test_keepalive_between_events(client, provider):
    model = provider.model(Reply([STREAM[1], Pause(1.2), STREAM[5], DONE]))
    got = stream_of(client, body_of(model, stream=True))
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
    model = provider.model(Reply([STREAM[1], STREAM[5], DONE, Pause(0.2), after]))
    assert stream_of(client, body_of(model, stream=True)) == edited(STREAM[1] + STREAM[5], model) + DONE + after


def test_a_server_that_never_closes(client, provider):
    model = provider.model(Reply([STREAM[1], STREAM[5], DONE, Hold()]))
    assert stream_of(client, body_of(model, stream=True)).replace(b": ping\n", b"") == edited(
        STREAM[1] + STREAM[5], model) + DONE
    assert model.requests[0].closed.wait(10)


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
    for _ in range(3):
        model = provider.model(Reply(([STREAM[1]] if begun else []) + [Hold()]))
        stream = client.open_stream("/chat/completions", body_of(model, stream=True))
        request = model.wait()
        if begun:
            stream.until(b"\n\n")
        started = time.monotonic()
        stream.close()
        assert request.closed.wait(5), "the provider was left open"
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
    assert model.requests[0].closed.wait(10)
