"""Which provider serves a request: names, fallback before the first byte, retries, and providers that are left alone.

Each test takes providers of its own ("p7"), all of which are the same scripted upstream: what one test makes of a
provider must not be what another one finds. Where nobody listens they are called "dead", where nobody speaks "mute"."""
import concurrent.futures
import contextlib
import email.utils
import http.client
import itertools
import json
import os
import signal
import socket
import time

import pytest

import brigtest
from brigtest import SHELL, check_error, outputs_of, text_of, wait_for
from fake_provider import (REPEAT, Cut, Hold, Reply, Reset, Sink, calls, chunk, error, error_in_stream, rate_limited,
                           shell, text, thinking, whole)

PROVIDERS = 60
numbers = itertools.count(1)
BUSY = {"error": {"message": "engine is busy", "type": "server_error"}}


def providers_of(provider, sink):
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    here = [{"name": "p%d" % i, "dialect": "openai-chat", "base_url": provider.base_url()} for i in range(1, PROVIDERS + 1)]
    return here + [
        {"name": "dead", "dialect": "openai-chat", "base_url": "http://127.0.0.1:%d/v1" % port},
        {"name": "mute", "dialect": "openai-chat", "base_url": "http://127.0.0.1:%d/v1" % sink.port}]


def serve(provider, workers=1, **limits):
    sink = Sink()
    server = brigtest.Server(provider, workers=workers, config={
        "providers": providers_of(provider, sink),
        "limits": dict({"upstream_connect": "2s", "upstream_first_byte": "3s"}, **limits)})
    from conftest import run
    try:
        yield from run(server)
    finally:
        sink.close()


@pytest.fixture(scope="module")
def patient(provider):
    """Asks again, and never leaves a provider alone."""
    yield from serve(provider, upstream_retries=2, upstream_retry_wait="4s", upstream_failures=0)


@pytest.fixture(scope="module", params=[1, 3], ids=["workers1", "workers3"])
def quick(request, provider):
    """Asks once, and leaves a provider alone after three failures, for three seconds."""
    yield from serve(provider, request.param, upstream_retries=0, upstream_failures=3, upstream_rest="3s")


@pytest.fixture
def client(patient):
    return patient.client()


def at(model):
    """The model, at a provider that no other test of this server has."""
    return "p%d/%s" % (next(numbers) % PROVIDERS + 1, model.upstream_name)


def post(client, *names, expect=200, stream=False, **fields):
    body = dict({"model": names[0], "models": list(names[1:]), "input": "go", "stream": stream}, **fields)
    answer = client.post("/responses", body)
    assert answer.status == expect, answer
    if expect != 200:
        check_error(answer, client.base)
    return answer


# ---- fallback ----

FAILURES = {
    "500": lambda: error(500, BUSY), "502 html": lambda: error(502, b"<html>bad gateway</html>"),
    "503": lambda: error(503, BUSY), "529": lambda: error(529, BUSY), "429": lambda: rate_limited(3600),
    "401": lambda: error(401, BUSY), "402": lambda: error(402, BUSY),
    "no such model": lambda: error(404, {"error": {"message": "no", "code": "model_not_found"}}),
    "too long": lambda: error(400, {"error": {"message": "context length", "code": "context_length_exceeded"}}),
    "reset": lambda: Reply([Reset()], framing="raw"), "cut": lambda: Reply([Cut()]),
    "error in the stream": lambda: error_in_stream(), "not HTTP": lambda: Reply([b"hello\r\n\r\n"], framing="raw"),
    "nothing": lambda: Reply([b""], framing="length"), "silence": lambda: Reply([Hold()], framing="raw"),
}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES.keys())
def test_the_next_one_is_asked_before_the_first_byte(client, provider, failure, stream):
    first, second = provider.model(failure(), REPEAT), provider.model(text("from the second"))
    names = [at(first), at(second)] if not stream else ["p1/" + first.upstream_name, "p2/" + second.upstream_name]
    if stream:
        story = client.stream(names[0], models=names[1:])
        response = story.response
    else:
        response = post(client, *names).json
    assert text_of(response) == "from the second"
    assert response["model"] == names[1]
    # A kept connection that breaks before the answer is taken for a stale one: that request is sent a second time.
    assert len(first.requests) <= (2 if failure is FAILURES["reset"] else 1), "it was asked again before the next"
    assert len(second.requests) == 1


def test_nobody_listens_and_nobody_speaks(client, provider):
    model = provider.model(text("at last"))
    answer = post(client, "dead/a", "mute/b", at(model))
    assert text_of(answer.json) == "at last"
    assert answer.json["model"].endswith(model.upstream_name)


def test_the_answer_says_who_served_it(client, provider):
    first, second = provider.model(error(500, BUSY)), provider.model(text("x"), text("x"))
    names = [at(first), at(second)]
    headers = post(client, *names).headers
    assert headers["x-brig-model"] == names[1]
    assert headers["x-brig-provider"] == names[1].split("/")[0]
    with contextlib.closing(client.begin(names[1])) as stream:
        assert stream.response_headers["x-brig-model"] == names[1]
        stream.rest()


@pytest.mark.parametrize("refusal", [
    error(400, {"error": {"message": "bad temperature", "type": "invalid_request_error"}}),
    error(422, {"detail": "no"}), error(413, b"")], ids=["400", "422", "413"])
def test_what_is_wrong_with_the_request_is_the_answer(client, provider, refusal):
    first, second = provider.model(refusal), provider.model(text("never"))
    post(client, at(first), at(second), expect=refusal.status)
    assert not second.requests


def test_not_after_the_first_byte(client, provider):
    first, second = provider.model(Reply([chunk({"content": "begun"}), Cut()])), provider.model(text("never"))
    story = client.stream(at(first), models=[at(second)])
    assert story.types[-2] == "response.failed", story.types
    assert not second.requests and len(first.requests) == 1


def test_an_alias_is_an_ordered_list(provider):
    bad, good = provider.model(error(500, BUSY), REPEAT), provider.model(text("from the alias"), REPEAT)
    server = brigtest.Server(provider, config={
        "providers": [{"name": n, "dialect": "openai-chat", "base_url": provider.base_url()} for n in ("a", "b")],
        "models": [{"name": "fast", "route": ["a/" + bad.upstream_name, "b/" + good.upstream_name]}]})
    with server.running():
        response = server.client().ask("fast")
        assert text_of(response) == "from the alias" and response["model"] == "b/" + good.upstream_name


def test_a_turn_stays_with_who_answered_first(client, provider):
    first = provider.model(error(500, BUSY), text("not me"))
    second = provider.model(calls(shell("echo 1")), calls(shell("echo 2", id="call_2")), text("done"))
    response = client.ask(at(first), models=[at(second)], tools=[SHELL])
    assert text_of(response) == "done"
    assert len(first.requests) == 1 and len(second.requests) == 3


def test_each_call_of_a_turn_may_fall_back(client, provider):
    """The one that served it dies in the middle: the other one goes on, and no command runs twice."""
    first = provider.model(calls(shell("echo ran >> log; wc -l < log")), error(500, BUSY), REPEAT)
    second = provider.model(text("finished by the second"))
    response = client.ask(at(first), models=[at(second)], tools=[SHELL])
    assert text_of(response) == "finished by the second"
    assert [o["stdout"].strip() for o in outputs_of(response)] == ["1"]
    assert "ran" not in second.requests[0].json["messages"][-1]["content"]
    assert second.requests[0].json["messages"][-1]["role"] == "tool"


def test_all_fail(client, provider):
    """What the client hears is what the last one said, and when to come again."""
    models = [provider.model(error(500, BUSY), REPEAT), provider.model(rate_limited(3600), REPEAT)]
    answer = post(client, *[at(m) for m in models], expect=502)
    assert len(models[0].requests) == 3 and len(models[1].requests) == 1
    answer = post(client, at(models[1]), expect=429)
    assert answer.headers["retry-after"] == "3600" and answer.json["error_type"] == "rate_limit_exceeded"


# ---- retries ----

@pytest.mark.parametrize("failure", ["500", "503", "cut", "error in the stream", "nothing"])
def test_one_that_recovers_is_asked_again(client, provider, failure):
    model = provider.model(FAILURES[failure](), FAILURES[failure](), text("recovered"))
    assert text_of(client.ask(at(model))) == "recovered"
    times = [r.at for r in model.requests]
    assert len(times) == 3
    assert times[1] - times[0] >= 0.37 and times[2] - times[1] >= 0.74, "without a pause that grows"


def test_retries_have_an_end(client, provider):
    model = provider.model(error(500, BUSY), REPEAT)
    post(client, at(model), expect=502)
    assert len(model.requests) == 3


@pytest.mark.parametrize("failure", ["401", "402", "silence", "too long", "no such model"])
def test_what_will_not_change_is_not_asked_again(client, provider, failure):
    model = provider.model(FAILURES[failure](), REPEAT)
    answer = client.post("/responses", {"model": at(model), "input": "x"})
    assert answer.status >= 400 and len(model.requests) == 1, answer


def in_two_seconds():
    return email.utils.formatdate(time.time() + 2.9, usegmt=True)


def in_milliseconds():
    return error(429, BUSY, {"Retry-After-Ms": "2000", "Retry-After": "60"})


@pytest.mark.parametrize("reply", [lambda: rate_limited(2), lambda: rate_limited(in_two_seconds()), in_milliseconds],
                         ids=["seconds", "date", "milliseconds"])
def test_retry_after_is_heeded(client, provider, reply):
    model = provider.model(lambda r: reply() if len(model.requests) == 1 else text("let in"))
    assert text_of(client.ask(at(model))) == "let in"
    waited = model.requests[1].at - model.requests[0].at
    assert 1.9 <= waited, waited


def test_retry_after_is_bounded(client, provider):
    model = provider.model(rate_limited(30), REPEAT)
    begun = time.monotonic()
    answer = post(client, at(model), expect=429)
    assert answer.headers["retry-after"] == "30"
    assert len(model.requests) == 1 and time.monotonic() - begun < 25


def test_all_waits_together_are_bounded(client, provider):
    model = provider.model(rate_limited(3), REPEAT)
    answer = post(client, at(model), expect=429)
    assert len(model.requests) == 2, "4 s are all that may be waited, and the second wait would be 3 more"
    assert answer.headers["retry-after"] == "3"


def test_who_comes_first_is_asked_while_another_waits(client, provider):
    later = provider.model(rate_limited(3600), REPEAT)
    sooner = provider.model(error(503, BUSY), text("sooner"))
    assert text_of(client.ask(at(later), models=[at(sooner)])) == "sooner"
    assert len(later.requests) == 1 and len(sooner.requests) == 2


def test_a_client_that_leaves_ends_the_waiting(client, provider):
    model = provider.model(rate_limited(2), text("nobody is there"))
    stream = client.begin(at(model))
    model.wait()
    time.sleep(0.2)
    stream.close()
    time.sleep(2.5)
    assert len(model.requests) == 1


def test_a_turn_in_progress_asks_again_and_runs_nothing_twice(client, provider):
    model = provider.model(calls(shell("echo ran >> log; wc -l < log")), error(503, BUSY), text("done"))
    response = client.ask(at(model), tools=[SHELL])
    assert [o["stdout"].strip() for o in outputs_of(response)] == ["1"] and text_of(response) == "done"
    assert model.requests[1].json["messages"] == model.requests[2].json["messages"]


# ---- a provider that is left alone ----

def test_a_dead_provider_is_left_alone_by_all_gateways(quick, provider):
    client = quick.client()
    model = provider.model(*[error(503, BUSY)] * 3, text("back"), REPEAT)
    name = at(model)
    for _ in range(8):
        answer = post(client, name, expect=503)
    assert len(model.requests) == 3
    assert answer.json["error_type"] == "provider_unavailable"
    assert 1 <= int(answer.headers["retry-after"]) <= 3
    time.sleep(3.1)
    assert text_of(post(client, name).json) == "back"
    for _ in range(6):
        post(client, name)
    assert len(model.requests) == 10


def test_one_probe_at_a_time(quick, provider):
    client = quick.client()
    model = provider.model(error(503, BUSY), REPEAT)
    name = at(model)
    for _ in range(3):
        post(client, name, expect=503)
    time.sleep(3.1)
    model.repeated = Reply([Hold()])
    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda _: client.post("/responses", {"model": name, "input": "x"}), range(8)))
    assert len(model.requests) == 4, "one of the eight may try it"
    assert sorted(a.status for a in answers) == [503] * 7 + [504]
    post(client, name, expect=503)
    assert len(model.requests) == 4, "the probe failed, so it rests again"


def test_the_next_one_is_asked_at_once(quick, provider):
    client = quick.client()
    bad, good = provider.model(error(503, BUSY), REPEAT), provider.model(text("good"), REPEAT)
    names = at(bad), at(good)
    for _ in range(8):
        assert text_of(post(client, *names).json) == "good"
    assert len(bad.requests) == 3


@pytest.mark.parametrize("failure, status", [("cut", 502), ("silence", 504), ("502 html", 502), ("529", 503)])
def test_what_says_that_it_is_dead(quick, provider, failure, status):
    client = quick.client()
    model = provider.model(FAILURES[failure](), REPEAT)
    name = at(model)
    for _ in range(3):
        post(client, name, expect=status)
    assert post(client, name, expect=503).json["error_type"] == "provider_unavailable"
    assert len(model.requests) == 3


@pytest.mark.parametrize("failure", ["500", "429", "401", "no such model", "too long", "error in the stream"])
def test_what_does_not(quick, provider, failure):
    client = quick.client()
    model = provider.model(*[FAILURES[failure]() for _ in range(5)], text("alive"))
    name = at(model)
    for _ in range(5):
        assert client.post("/responses", {"model": name, "input": "x"}).status >= 400
    assert text_of(post(client, name).json) == "alive"


def test_an_answer_between_failures_counts(quick, provider):
    client = quick.client()
    model = provider.model(*([error(503, BUSY), error(503, BUSY), text("alive")] * 3))
    name = at(model)
    for i in range(9):
        post(client, name, expect=200 if i % 3 == 2 else 503)


def test_a_gateway_that_dies_keeps_nothing_shut(quick, provider):
    """The probe's gateway dies with it: the next probe comes a rest later."""
    client = quick.client()
    model = provider.model(error(503, BUSY), REPEAT)
    name = at(model)
    for _ in range(3):
        post(client, name, expect=503)
    before = quick.gateways()
    for pid in before:
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: len(quick.gateways()) == len(before) and not set(before) & set(quick.gateways()))
    model.repeated = text("back")
    wait_for(lambda: ask_quietly(client, name) == 200, every=0.3)
    assert text_of(post(client, name).json) == "back"


def ask_quietly(client, name):
    with contextlib.suppress(OSError, http.client.HTTPException):
        return client.post("/responses", {"model": name, "input": "x"}).status


# ---- bare names ----

def listing(*ids, **more):
    return Reply([json.dumps({"object": "list", "data": [{"id": i, "object": "model"} for i in ids], **more})],
                 framing="length", content_type="application/json")


@contextlib.contextmanager
def bare(provider, lists, **config):
    """A server whose providers list these: {name: what GET /models answers}."""
    here = []
    for name, reply in lists.items():
        here.append({"name": name, "dialect": "openai-chat", "base_url": provider.base_url("/" + name),
                     "api_key": "key-of-" + name})
        if reply is not None:
            provider.lists["/%s/v1/models" % name] = reply
    server = brigtest.Server(provider, config=dict({"providers": here}, **config))
    with server.running():
        yield server
    for name in lists:
        provider.lists.pop("/%s/v1/models" % name, None)


def asked(provider, name):
    return [r for r in provider.list_requests if r.path == "/%s/v1/models" % name]


def test_a_bare_name_goes_to_who_lists_it(provider):
    model = provider.model(text("hello"), REPEAT)
    with bare(provider, {"l1": listing("x", "y"), "l2": listing("z", model.upstream_name, "vendor/slash")}) as server:
        client = server.client()
        response = client.ask(model.upstream_name)
        assert response["model"] == "l2/" + model.upstream_name
        for _ in range(5):
            client.ask(model.upstream_name)
        assert len(asked(provider, "l1")) == len(asked(provider, "l2")) == 1
        assert asked(provider, "l2")[0].headers["authorization"] == "Bearer key-of-l2"
        # Nobody lists it: it goes to the first that speaks the dialect, as the whole name.
        answer = client.post("/responses", {"model": "unheard-of", "input": "x"})
        assert answer.status == 404 and "provider does not know" in answer.error["message"]
        # A name with a slash is listed, or unknown.
        answer = client.post("/responses", {"model": "vendor/slash", "input": "x"})
        assert answer.status == 404 and "provider does not know" in answer.error["message"]
        answer = client.post("/responses", {"model": "vendor/slosh", "input": "x"})
        assert answer.status == 404 and "near it: l2/vendor/slash" in answer.error["message"]


def test_what_a_list_is_not_asked_for(provider):
    model = provider.model(text("hello"), REPEAT)
    with bare(provider, {"n1": listing("x")}, models=[{"name": "al", "route": ["n1/" + model.upstream_name]}]) as server:
        for name in ("n1/" + model.upstream_name, "al", "brig/script"):
            server.client().ask(name)
        assert not asked(provider, "n1")


@pytest.mark.parametrize("reply", [
    error(500, BUSY), error(404, b"<html>"), listing(), Reply([b"[]"], framing="length"), Reply([b'{"data": 7}'], framing="length"),
    Reply([b'{"data": [1, null, {}, {"id": 5}, {"id": ""}, {"id": "a b"}, {"id": "\\u0000"}]}'], framing="length"),
    Reply([b"{" * 1000], framing="length"), Reply([Cut()]), Reply([lambda: itertools.repeat(b"x" * 65536, 200)]),
    Reply([b'{"data": [' + b'{"id": "m"},' * 30000 + b'{"id": "m"}]}'], framing="length")],
    ids=["500", "html", "empty", "array", "number", "odd names", "broken", "cut", "endless", "many"])
def test_a_list_that_is_none_is_nobody_s_loss(provider, reply):
    model = provider.model(text("hello"))
    with bare(provider, {"o1": reply}) as server:
        assert server.client().ask(model.upstream_name)["model"] == "o1/" + model.upstream_name
        assert len(asked(provider, "o1")) >= 1


def test_a_list_that_never_comes_is_waited_for_once(provider):
    model = provider.model(text("hello"), REPEAT)
    with bare(provider, {"w1": Reply([Hold()], framing="raw"), "w2": listing(model.upstream_name)}) as server:
        client = server.client()
        begun = time.monotonic()
        assert client.ask(model.upstream_name)["model"] == "w2/" + model.upstream_name
        assert time.monotonic() - begun >= 2.5, "the list of w1 could still have come"


def test_who_waits_for_a_list_may_leave(provider):
    with bare(provider, {"v1": Reply([Hold()], framing="raw")}) as server:
        client = server.client()
        stream = client.begin("some-model")
        wait_for(lambda: asked(provider, "v1"))
        stream.close()
        client.ask("brig/script")
        assert server.gateways()


def test_a_list_of_many_pages(provider):
    """Anthropic's and Google's lists come in pages."""
    pages = {
        "/q1/v1/models?limit=1000": {"data": [{"type": "model", "id": "claude-a"}], "has_more": True, "last_id": "claude a/b"},
        "/q1/v1/models?limit=1000&after_id=claude%20a%2Fb": {"data": [{"type": "model", "id": "claude-b"}],
                                                               "has_more": False, "last_id": "claude-b"}}
    for path, page in pages.items():
        provider.lists[path] = Reply([json.dumps(page)], framing="length", content_type="application/json")
    server = brigtest.Server(provider, config={"providers": [
        {"name": "q1", "dialect": "anthropic", "base_url": provider.base_url("/q1"), "api_key": "secret"}]})
    with server.running():
        ids = [m["id"] for m in server.client().get("/models").json["data"]]
        assert "q1/claude-a" in ids and "q1/claude-b" in ids
    first = [r for r in provider.list_requests if r.path.startswith("/q1/")]
    assert len(first) == 2 and all(r.headers["x-api-key"] == "secret" for r in first)
    assert all(r.headers["anthropic-version"] for r in first)


# ---- preferences ----

def test_preferences(client, provider):
    """OpenRouter's `provider`: names of ours, in the order to try, the only ones, or not these."""
    models = [provider.model(text("%d" % i), REPEAT) for i in range(3)]
    names = ["p%d/%s" % (i + 1, m.upstream_name) for i, m in enumerate(models)]

    def served(**wishes):
        answer = post(client, *names, provider=wishes)
        return answer.headers["x-brig-provider"]

    assert served() == "p1"
    assert served(order=["p3", "nobody"]) == "p3"
    assert served(only=["p2", "p3"]) == "p2"
    assert served(ignore=["p1"], sort="price", data_collection="deny") == "p2"
    post(client, *names, provider={"only": ["p9"]}, expect=404)
    bad = provider.model(error(500, BUSY), REPEAT)
    post(client, "p1/" + bad.upstream_name, names[1], provider={"allow_fallbacks": False}, expect=502)
    for wrong in ("p1", {"order": "p1"}, {"only": [1]}, {"ignore": ["x"] * 100}, {"allow_fallbacks": "no"}):
        answer = post(client, names[0], provider=wrong, expect=400)
        assert answer.error["param"].startswith("provider"), answer


# ---- state that belongs to one provider ----

SECRET = [{"type": "reasoning.encrypted", "data": "SECRET-OF-ONE", "index": 0}]


def thoughts_of(request):
    return [d for m in request.json["messages"] for d in m.get("reasoning_details") or []]


def replay(response, more="and then?"):
    return [{"role": "user", "content": "go"}] + response["output"] + [{"role": "user", "content": more}]


def test_state_brings_its_provider_to_the_front(client, provider):
    """The first failed and the second thought: the second is asked first from then on, by whoever holds its thoughts."""
    first = provider.model(error(500, BUSY), text("from the first"))
    second = provider.model(thinking("hm", "from the second", details=SECRET), text("again from the second"))
    names = ["p1/" + first.upstream_name, "p2/" + second.upstream_name]
    response = client.ask(names[0], models=names[1:])
    assert any(i["type"] == "reasoning" and i["encrypted_content"].startswith("brig1.") for i in response["output"])
    again = client.ask(names[0], models=names[1:], input=replay(response))
    assert text_of(again) == "again from the second" and again["model"] == names[1]
    assert len(first.requests) == 1
    assert thoughts_of(second.requests[1])[0]["data"] == "SECRET-OF-ONE"


def test_another_provider_gets_the_conversation_without_it(client, provider):
    second = provider.model(thinking("hm", "I thought", details=SECRET), error(500, BUSY), REPEAT)
    first = provider.model(text("from the first"))
    names = ["p1/" + first.upstream_name, "p2/" + second.upstream_name]
    response = client.ask(names[1])
    again = client.ask(names[0], models=names[1:], input=replay(response))
    assert text_of(again) == "from the first"
    assert len(second.requests) == 2, "its provider was asked first"
    sent = first.requests[0].body.decode()
    assert "SECRET" not in sent and "brig1." not in sent and "hm" not in sent and "I thought" in sent


def test_broken_state_pins_nobody(client, provider):
    first, second = provider.model(text("from the first"), REPEAT), provider.model(text("never"), REPEAT)
    names = ["p1/" + first.upstream_name, "p2/" + second.upstream_name]
    for sealed in ("brig1.", "brig1.AAAA", "brig1." + "A" * 4000, "gAAAA"):
        items = [{"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": sealed},
                 {"role": "user", "content": "x"}]
        assert text_of(client.ask(names[0], models=names[1:], input=items)) == "from the first"
        assert sealed not in first.requests[-1].body.decode() or sealed == "brig1."


# ---- the other apis ----

MESSAGE = [{"role": "user", "content": "go"}]
APIS = {
    "responses": lambda name, rest: ("/api/v1/responses", {"model": name, "models": rest, "input": "go"}),
    "messages": lambda name, rest: ("/v1/messages", {"model": name, "models": rest, "max_tokens": 50, "messages": MESSAGE}),
    "chat": lambda name, rest: ("/v1/chat/completions", {"model": name, "models": rest, "messages": MESSAGE}),
    "gemini": lambda name, rest: ("/v1beta/models/%s:generateContent" % name,
                                  {"contents": [{"role": "user", "parts": [{"text": "go"}]}]}),
}


@pytest.mark.parametrize("api", ["responses", "messages", "chat"])
@pytest.mark.parametrize("failure", ["500", "429", "cut", "error in the stream", "no such model"])
def test_fallback_in_each_api(client, provider, api, failure):
    first, second = provider.model(FAILURES[failure](), REPEAT), provider.model(whole("from the second"), REPEAT)
    names = ["p1/" + first.upstream_name, "p2/" + second.upstream_name]
    path, body = APIS[api](names[0], names[1:])
    answer = client.request("POST", path, body)
    assert answer.status == 200 and "from the second" in answer.text, answer
    assert answer.headers["x-brig-model"] == names[1]
    assert len(first.requests) == 1


@pytest.mark.parametrize("api", APIS)
def test_retries_in_each_api(client, provider, api):
    model = provider.model(error(500, BUSY), whole("recovered"), REPEAT)
    path, body = APIS[api]("p1/" + model.upstream_name, [])
    answer = client.request("POST", path, body)
    assert answer.status == 200 and "recovered" in answer.text, answer
    assert answer.headers["x-brig-provider"] == "p1" and len(model.requests) == 2


@pytest.mark.parametrize("api", ["messages", "chat"])
def test_a_stream_falls_back_in_each_api(client, provider, api):
    first, second = provider.model(Reply([Reset()], framing="raw"), REPEAT), provider.model(text("from the second"))
    names = ["p1/" + first.upstream_name, "p2/" + second.upstream_name]
    path, body = APIS[api](names[0], names[1:])
    answer = client.request("POST", path, dict(body, stream=True))
    assert answer.status == 200 and answer.headers["content-type"].startswith("text/event-stream")
    assert "from the second" in answer.text.replace('"}}\n', ""), answer
    assert answer.headers["x-brig-model"] == names[1]


def test_counting_goes_where_the_answer_would(provider):
    """A bare name that a chat provider lists is counted for that one: by an estimate, and nobody else is asked."""
    provider.lists["/c2/v1/models"] = listing("counted")
    server = brigtest.Server(provider, config={"providers": [
        {"name": "c1", "dialect": "anthropic", "base_url": provider.base_url("/c1"), "api_key": "k"},
        {"name": "c2", "dialect": "openai-chat", "base_url": provider.base_url("/c2")}]})
    with server.running():
        strangers = len(provider.strangers)
        client = server.client(base="/v1")
        answer = client.post("/messages/count_tokens", {"model": "counted", "messages": MESSAGE})
        assert answer.status == 200 and answer.json["estimated"] is True, answer
        large = [{"role": "user", "content": "word " * 40000}]
        answer = client.post("/messages/count_tokens", {"model": "counted", "messages": large})
        assert answer.status == 200 and answer.json["input_tokens"] > 10000, answer
        assert len(provider.strangers) == strangers
        assert client.post("/messages/count_tokens", {"model": "x/nobody", "messages": MESSAGE}).status == 404
        stream = client.open_stream("/messages/count_tokens", {"model": "counted", "messages": large})
        stream.close()
        assert client.post("/messages/count_tokens", {"model": "c2/any", "messages": MESSAGE}).status == 200
