"""What upstreams do to a gateway: refuse, stall, break off, speak odd bytes. Each becomes an answer, or a proper error."""
import email.utils
import gzip
import json
import socket
import time

import pytest

from brigtest import SHELL, Server, check_error, outputs_of, text_of
from fake_provider import (DONE, Cut, Hold, Pause, Reply, Reset, calls, chunk, ending, error, event, shell, text,
                           text_deltas, usage_chunk)

SETTINGS = {"limits": {"upstream_connect": "2s", "upstream_first_byte": "2s", "upstream_idle": "1500ms"}}


def fails(client, model, status, expect=None, stream=False, **fields):
    """Asks; the answer must be an HTTP error of this status. Returns its error and headers."""
    body = dict({"model": getattr(model, "name", model), "input": "x", "stream": stream}, **fields)
    answer = client.post("/responses", body)
    assert answer.status == status, answer
    found = check_error(answer, client.base)
    if expect:
        assert expect in answer.json["error_type"] or expect in found["message"], answer
    assert "127.0.0.1" not in answer.text and "sk-upstream" not in answer.text
    return answer


def breaks(client, model, **fields):
    """Asks for a stream that began and must end in response.failed."""
    story = client.stream(model, **fields)
    assert story.types[-2] == "response.failed", story.types
    return story


def answers(client, model, expect, **fields):
    story = client.stream(model, **fields)
    assert story.response["status"] == "completed", story.response
    assert text_of(story.response) == expect
    return story


# ---- refusals ----

@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("reply, status, says", [
    (error(500, {"error": {"message": "boom", "type": "server_error"}}), 502, "boom"),
    (error(502, b"<html><body><h1>502 Bad Gateway</h1></body></html>"), 502, "provider_unavailable"),
    (error(500), 502, "provider_unavailable"),
    (error(503, {"error": "loading model"}), 503, "overloaded"),
    (error(529, {"error": {"message": "Overloaded"}}), 503, "overloaded"),
    (error(401, {"error": {"message": "Incorrect API key provided: sk-upstr...cdef"}}), 502, "key"),
    (error(403, {"error": {"message": "no"}}), 502, "key"),
    (error(402, {"error": {"message": "no credit"}}), 502, "payment"),
    (error(404, {"error": {"message": "The model m does not exist", "code": "model_not_found"}}), 404, "not_found"),
    (error(404, b"<!DOCTYPE html><title>404</title>"), 502, "provider_unavailable"),
    (error(400, {"error": {"message": "bad temperature", "type": "invalid_request_error"}}), 400, "bad temperature"),
    (error(400, {"error": {"message": "This model's maximum context length is 10 tokens",
                           "code": "context_length_exceeded"}}), 400, "context_length_exceeded"),
    (error(400, {"object": "error", "message": "vllm says no", "code": 400}), 400, "vllm says no"),
    (error(422, {"detail": [{"msg": "field required"}]}), 422, "field required"),
    (error(429, {"error": {"message": "slow down"}}), 429, "rate_limit_exceeded"),
    (error(408, b"slow"), 504, "timeout"),
    (error(413, b""), 413, "payload_too_large"),
    (error(302, b"", headers={"Location": "http://127.0.0.1:1/"}), 502, "provider_unavailable"),
    (error(204, b""), 502, "provider_unavailable"),
    (Reply([b"<html>Welcome</html>"], content_type="text/html", framing="length"), 502, ""),
    (Reply([b'{"hello": "world"}'], content_type="application/json", framing="length"), 502, ""),
    (Reply([b"not json"], content_type="application/json", framing="length"), 502, ""),
    (Reply([b""], framing="length"), 502, ""),
    (Reply([b"junk\r\n\r\n"], framing="raw"), 502, ""),
    (Reply([b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef"], framing="raw"), 502, ""),
    (Reply([b'{"error": {"message": "in a 200", "code": 429}}'], content_type="application/json", framing="length"),
     429, "in a 200"),
    (Reply([event({"error": {"message": "in a stream", "code": 400}})]), 400, "in a stream"),
    (Reply([Reset()], framing="raw"), 502, ""),
    (Reply([Cut()], framing="raw"), 502, ""),
], ids=lambda v: None)
def test_a_refusal_is_an_error_of_our_own(client, v1, provider, reply, status, says, stream):
    fails(client, provider.model(reply), status, says, stream)
    fails(v1, provider.model(reply), status, says, stream)


def test_retry_after_is_passed_on(client, provider):
    begun = time.time()
    late = email.utils.formatdate(begun + 20, usegmt=True)
    for value, low, high in (("2", 2, 2), ("0.5", 1, 1), (late, 18, 20)):
        answer = fails(client, provider.model(error(429, {"error": {"message": "slow"}}, {"Retry-After": value})), 429)
        assert low - (time.time() - begun if value == late else 0) <= int(answer.headers["retry-after"]) <= high
    for value in ("soon", "-1", "9" * 40):
        answer = fails(client, provider.model(error(429, {"error": {"message": "slow"}}, {"Retry-After": value})), 429)
        assert int(answer.headers.get("retry-after", 0)) <= 3600


def test_a_huge_refusal_is_bounded(client, provider):
    fails(client, provider.model(error(500, b'{"error":{"message":"' + b"x" * 3000000 + b'"}}')), 502)


def test_what_a_provider_says_is_quoted_without_secrets(client, provider):
    message = "Upstream http://10.0.0.7:8000/v1 said no to sk-abcdefghijklmnopqrstuvwxyz0123456789 at db-3.internal:5432"
    answer = fails(client, provider.model(error(500, {"error": {"message": message}})), 502, "said no")
    for secret in ("10.0.0.7", "sk-abc", "db-3"):
        assert secret not in answer.text


# ---- not there, or silent ----

@pytest.fixture(scope="module")
def odd_server(request, provider):
    """A server whose providers are not there, do not accept, or never say a word."""
    from conftest import run
    from brigtest import Server
    closed = socket.socket()  # bound, so that nobody else gets the port, and not listening
    closed.bind(("127.0.0.1", 0))
    refused = closed.getsockname()[1]
    full = socket.create_server(("127.0.0.1", 0), backlog=0)
    fillers = []
    for _ in range(3):  # then the handshake of the next is not answered
        filler = socket.socket()
        filler.setblocking(False)
        filler.connect_ex(("127.0.0.1", full.getsockname()[1]))
        fillers.append(filler)
    mute = socket.create_server(("127.0.0.1", 0), backlog=64)
    providers = [{"name": name, "dialect": "openai-chat", "base_url": "http://%s/v1" % address} for name, address in (
        ("refused", "127.0.0.1:%d" % refused), ("unanswered", "127.0.0.1:%d" % full.getsockname()[1]),
        ("mute", "127.0.0.1:%d" % mute.getsockname()[1]), ("nameless", "no-such-name.invalid"),
        ("fake", "127.0.0.1:%d" % provider.port))]
    providers.append({"name": "tls", "dialect": "openai-chat", "base_url": "https://127.0.0.1:%d/v1" % provider.port})
    yield from run(Server(provider, config={"providers": providers, "sandbox": False, **SETTINGS}))
    for s in fillers + [closed, full, mute]:
        s.close()


@pytest.mark.parametrize("name, statuses", [
    ("refused", (502, 503)), ("unanswered", (502, 504)), ("mute", (504,)), ("nameless", (502, 503, 504)), ("tls", (502, 504))])
def test_a_provider_that_is_not_there(odd_server, name, statuses):
    answer = odd_server.client().post("/responses", {"model": name + "/m", "input": "x"})
    assert answer.status in statuses, answer
    check_error(answer, "/api/v1")
    assert "127.0.0.1" not in answer.text


@pytest.mark.parametrize("name", ["refused", "unanswered", "mute"])
def test_falls_over_to_the_next_model(odd_server, provider, name):
    model = provider.model(text("from the next"))
    assert text_of(odd_server.client().ask(name + "/m", models=[model.name])) == "from the next"


def test_no_falling_over_for_what_no_other_can_help(client, provider):
    second = provider.model(text("no"))
    first = provider.model(error(400, {"error": {"message": "bad"}}))
    fails(client, first, 400, models=[second.name])
    assert not second.requests


def test_no_falling_over_once_something_was_said(client, provider):
    second = provider.model(text("no"))
    breaks(client, provider.model(Reply([chunk({"content": "begun"}), Cut()])), models=[second.name])
    assert not second.requests


def test_headers_and_then_silence_is_a_timeout(client, provider):
    model = provider.model(Reply([Hold()]))
    answer = client.post("/responses", {"model": model.name, "input": "x"})
    assert answer.status == 504, answer
    assert model.requests[0].closed.wait(60)


# ---- broken off ----

@pytest.mark.parametrize("end", [
    [Cut()], [Reset()], [Hold()], [DONE], [], [chunk(finish=None), DONE],
    [event({"error": {"message": "mid-stream", "code": 500}})], [event({"error": "mid-stream"})],
], ids=["cut", "reset", "stall", "done without a finish_reason", "end", "null finish_reason", "error", "error text"])
@pytest.mark.parametrize("framing", ["chunked", "close"])
def test_a_stream_that_breaks_off_ends_in_response_failed(client, provider, end, framing):
    reply = lambda: Reply([chunk({"role": "assistant"})] + text_deltas("half of", 3) + end, framing=framing)
    story = breaks(client, provider.model(reply()))
    assert text_of(dict(story.response)) == "half of"
    assert story.response["output"][0]["status"] == "incomplete"
    # Not streamed: an HTTP error with what there is of the answer.
    answer = client.post("/responses", {"model": provider.model(reply()).name, "input": "x"})
    assert answer.status in (500, 502, 504), answer
    check_error(answer, client.base)


@pytest.mark.parametrize("break_", [Reply([chunk({"content": "so"}), Cut()]),
                                    error(500, {"error": {"message": "boom"}})], ids=["cut", "refused"])
def test_what_fails_after_commands_ran_is_not_to_be_sent_again(client, v1, provider, break_):
    body = lambda: {"model": provider.model(calls(shell("echo ran")), break_).name, "input": "x", "tools": [SHELL]}
    # OpenAI's SDKs obey the header.
    answer = v1.post("/responses", body())
    assert answer.status == 502 and answer.headers["x-should-retry"] == "false", answer
    assert b"ran" in answer.body  # what commands printed is not lost
    # OpenRouter's sends again after any 5xx, so there it is a response that failed.
    answer = client.post("/responses", body())
    assert answer.status == 200 and answer.json["status"] == "failed" and answer.json["error"]["message"], answer
    assert outputs_of(answer.json)[0]["stdout"] == "ran\n"


def test_a_refusal_before_any_command_may_be_sent_again(client, provider):
    refused = client.post("/responses", {"model": provider.model(error(500)).name, "input": "x", "tools": [SHELL]})
    assert "x-should-retry" not in refused.headers


# ---- odd but right ----

STREAM = [chunk({"role": "assistant", "content": ""}), chunk({"content": "gr\u00fc\u00df "}),
          chunk({"content": "\u4e2d\u6587 \U0001f600"})] + ending("stop")
# With the characters themselves, not escapes.
PLAIN = [json.dumps(json.loads(s[6:]), ensure_ascii=False).encode().join((b"data: ", b"\n\n"))
         if s != DONE else s for s in STREAM]
SAID = "gr\u00fc\u00df \u4e2d\u6587 \U0001f600"


def test_one_byte_a_write(client, provider):
    answers(client, provider.model(Reply(PLAIN).bytewise()), SAID)


def test_one_byte_a_write_with_a_call(client, provider):
    model = provider.model(calls(shell("echo gr\u00fc\u00df")).bytewise(), text("ok").bytewise())
    story = answers(client, model, "ok", tools=[SHELL])
    assert outputs_of(story.response)[0]["stdout"] == "gr\u00fc\u00df\n"


@pytest.mark.parametrize("split", [0, 1, 2, 3, 7])
@pytest.mark.parametrize("ending", [b"\r\n", b"\r"], ids=["CRLF", "CR"])
def test_other_line_ends(client, provider, ending, split):
    answers(client, provider.model(Reply(PLAIN, split=split).but(lambda b: b.replace(b"\n", ending))), SAID)


def test_mixed_line_ends(client, provider):
    steps = [s.replace(b"\n", (b"\n", b"\r\n", b"\r")[i % 3]) for i, s in enumerate(PLAIN)]
    answers(client, provider.model(Reply(steps)), SAID)


@pytest.mark.parametrize("coding, pack", [("gzip", gzip.compress)])
def test_a_coded_answer_is_decoded(client, provider, coding, pack):
    model = provider.model(Reply([pack(b"".join(PLAIN))], headers={"Content-Encoding": coding}))
    answers(client, model, SAID)
    assert model.requests[0].headers.get("accept-encoding", "identity") == "identity"


def test_comments_and_other_fields_are_ignored(client, provider):
    steps = [b": OPENROUTER PROCESSING\n\n", b"id: 7\nevent: message\nretry: 10\n" + PLAIN[0], b":\n\n\n\n"] + PLAIN[1:]
    story = answers(client, provider.model(Reply(steps)), SAID)
    assert "PROCESSING" not in str(story.data)


def test_a_byte_order_mark_and_no_space_after_the_colon(client, provider):
    steps = [b"\xef\xbb\xbf" + PLAIN[0].replace(b"data: ", b"data:")] + [s.replace(b"data: ", b"data:") for s in PLAIN[1:]]
    answers(client, provider.model(Reply(steps)), SAID)


def test_data_over_several_lines_is_joined(client, provider):
    steps = [b'data: {"choices":[{"index":0,\ndata: "delta":{"content":"joined"}}]}\n\n'] + ending("stop")
    answers(client, provider.model(Reply(steps)), "joined")


def test_one_bad_line_is_skipped(client, provider):
    steps = text_deltas("0123456789", 10)
    steps.insert(5, b"data: {this is no json\n\n")
    answers(client, provider.model(Reply(steps + ending("stop"))), "0123456789")


def test_a_bad_line_inside_a_call_makes_it_unrunnable(client, provider):
    whole = shell("echo hi; touch never")
    arguments = whole["function"]["arguments"]
    whole["function"]["arguments"] = arguments[:20]
    rest = chunk({"tool_calls": [{"index": 0, "function": {"arguments": arguments[20:]}}]})
    model = provider.model(Reply([chunk({"tool_calls": [whole]}), b"data: {bad\n\n", rest] + ending("tool_calls")), text("ok"))
    story = client.stream(model, tools=[SHELL])
    assert story.response["output"][0]["status"] == "failed" and not outputs_of(story.response)


def test_nothing_but_bad_lines_is_a_failure(client, provider):
    fails(client, provider.model(Reply([b"data: {bad\n\n"] * 5 + [DONE])), 502)


def test_no_done_after_a_finish_reason_is_an_end(client, provider):
    answers(client, provider.model(Reply(PLAIN[:-1])), SAID)
    answers(client, provider.model(Reply(PLAIN[:-1], framing="close")), SAID)


def test_an_upstream_that_never_closes_after_done_does_not_hold_the_answer(client, provider):
    answers(client, provider.model(Reply(PLAIN + [Hold()])), SAID)


def test_keep_alive_comments_are_no_sign_of_life(client, provider):
    def forever():
        while True:
            yield b": keep-alive\n\n"
            yield Pause(0.1)
    answer = client.post("/responses", {"model": provider.model(Reply([forever])).name, "input": "x"})
    assert answer.status == 504, answer


def test_slow_but_alive_is_no_stall(client, provider):
    steps = []
    for piece in text_deltas("slowly but surely", 4):
        steps += [piece, Pause(0.8)]
    answers(client, provider.model(Reply(steps + ending("stop"))), "slowly but surely")


def test_content_in_parts_is_read(client, provider):
    steps = [chunk({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]}),
             chunk({"content": [{"type": "text", "text": "said"}]})]
    story = answers(client, provider.model(Reply(steps + ending("stop"))), "said")
    assert story.response["output"][0]["type"] == "reasoning"


def test_finish_in_the_last_delta_and_an_odd_role(client, provider):
    answers(client, provider.model(Reply([chunk({"role": "", "content": "one"}),
                                          chunk({"content": " two"}, finish="stop"), DONE])), "one two")


def test_an_empty_first_chunk_is_no_trouble(client, provider):
    first = event({"id": "", "choices": [], "prompt_filter_results": []})
    answers(client, provider.model(Reply([first] + PLAIN)), SAID)


# ---- usage ----

def test_usage_is_asked_for(client, provider):
    model = provider.model(text("ok"))
    client.ask(model)
    assert model.requests[0].json["stream_options"] == {"include_usage": True}
    assert model.requests[0].json["stream"] is True


def test_usage_in_any_chunk_the_last_value_counts(client, provider):
    steps = [chunk({"content": "a"}, usage=(5, 1)), chunk({"content": "b"}, usage=(5, 2)), usage_chunk((5, 3)),
             chunk(finish="stop"), DONE]
    usage = answers(client, provider.model(Reply(steps)), "ab").response["usage"]
    assert (usage["input_tokens"], usage["output_tokens"]) == (5, 3)


def test_no_usage_is_zero(client, provider):
    usage = client.ask(provider.model(text("ok", usage=None)))["usage"]
    assert usage["total_tokens"] == 0


def test_cached_tokens_are_part_of_the_input(client, provider):
    usage = client.ask(provider.model(text("ok", usage=(869, 10, 11))))["usage"]
    assert usage["input_tokens"] == 869 and usage["input_tokens_details"]["cached_tokens"] == 11


def test_nonsense_usage_is_survived(client, provider):
    for usage in ({"prompt_tokens": -5, "completion_tokens": "many"}, {"prompt_tokens": 1e300}, {}, {"prompt_tokens": None}):
        client.ask(provider.model(text("ok", usage=usage)))


# ---- connections ----

def test_connections_are_used_again(client, provider):
    model = provider.model(*[text("ok %d" % i) for i in range(6)])
    for _ in range(6):
        client.ask(model)
    assert len({r.connection for r in model.requests}) <= 2, [r.connection for r in model.requests]


def test_the_calls_of_one_turn_use_one_connection(client, provider):
    model = provider.model(calls(shell("true")), calls(shell("true")), calls(shell("true")), text("ok"))
    client.ask(model, tools=[SHELL])
    assert len({r.connection for r in model.requests}) == 1


def test_a_kept_connection_that_the_upstream_has_closed_is_no_failure(client, provider):
    def closing(request):
        return Reply([b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"] +
                     [b"%x\r\n%s\r\n" % (len(s), s) for s in PLAIN] + [b"0\r\n\r\n"], framing="raw")
    model = provider.model(closing)
    for _ in range(4):
        answers(client, model, SAID)  # "raw" closes after each


# ---- sizes ----

@pytest.fixture(scope="module")
def patient(provider):
    """A client of a server that gives the upstream time: what is large may come slowly on a busy machine."""
    server = Server(provider)
    with server.running():
        yield server.client()


def test_a_large_answer_arrives_whole(patient, provider):
    big = "x" * (4 << 20)
    assert len(text_of(patient.ask(provider.model(text(big, pieces=64))))) == len(big)


def test_an_event_over_its_bound_is_a_failure_and_not_a_flood(patient, provider):
    def flood():
        yield b"data: "
        for _ in range(400):
            yield b"x" * (1 << 16)
    answer = patient.post("/responses", {"model": provider.model(Reply([flood])).name, "input": "x"})
    assert answer.status == 502, answer
    check_error(answer, patient.base)


def test_endless_arguments_are_a_failure(patient, provider):
    def endless():
        yield chunk({"tool_calls": [dict(shell("x"), function={"name": "shell", "arguments": '{"commands":["'})]})
        while True:
            yield chunk({"tool_calls": [{"index": 0, "function": {"arguments": "x" * 65536}}]})
    story = breaks(patient, provider.model(Reply([endless])), tools=[SHELL])
    assert not outputs_of(story.response)


# ---- DNS ----

def test_a_name_that_hangs_while_the_turn_is_cancelled(make_server, provider, tmp_path):
    """The resolver waits for an answer that never comes; clients leave; the loop goes on within 10 ms, which one of
    three sees also on a machine that others use."""
    silent = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    silent.bind(("127.0.0.77", 53))
    resolv = tmp_path / "resolv.conf"
    resolv.write_text("nameserver 127.0.0.77\noptions timeout:30 attempts:3\n")
    server = make_server(config={"sandbox": False, "grace": "1s", "providers": [
        {"name": "hangs", "dialect": "openai-chat", "base_url": "http://a-name-that-hangs.example/v1"},
        {"name": "fake", "dialect": "openai-chat", "base_url": provider.base_url()}],
        "limits": {"upstream_connect": "60s"}})
    server.prefix = ["unshare", "--mount", "--propagation", "private", "sh", "-c",
                     'mount --bind "$0" /etc/resolv.conf && exec "$@"', str(resolv)]
    server.start()
    client = server.client()
    streams = [client.begin("hangs/m") for _ in range(3)]
    silent.settimeout(60)
    silent.recv(512)  # it asks for the name
    fastest, begun = 60, time.monotonic()
    for stream in streams:
        stream.close()
        started = time.monotonic()
        assert client.request("GET", "/healthz").status == 200
        fastest = min(fastest, time.monotonic() - started)
    assert fastest < 0.05 and time.monotonic() - begun < 25
    # Others are served meanwhile, and the end does not wait for the resolver either.
    for _ in range(3):
        assert text_of(client.ask(provider.model(text("served")))) == "served"
    started = time.monotonic()
    server.stop()
    assert time.monotonic() - started < 25, "of the resolver's 90"
    silent.close()


def test_a_name_that_hangs_is_a_timeout(make_server, provider, tmp_path):
    silent = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    silent.bind(("127.0.0.77", 53))
    resolv = tmp_path / "resolv.conf"
    resolv.write_text("nameserver 127.0.0.77\noptions timeout:30 attempts:3\n")
    server = make_server(config={"sandbox": False, "grace": "1s", "providers": [
        {"name": "hangs", "dialect": "openai-chat", "base_url": "http://a-name-that-hangs.example/v1"}],
        "limits": {"upstream_connect": "500ms"}})
    server.prefix = ["unshare", "--mount", "--propagation", "private", "sh", "-c",
                     'mount --bind "$0" /etc/resolv.conf && exec "$@"', str(resolv)]
    server.start()
    started = time.monotonic()
    answer = server.client().post("/responses", {"model": "hangs/m", "input": "x"})
    assert answer.status in (502, 504) and time.monotonic() - started < 25, answer
    silent.close()
