"""
Idempotency keys: asked again, a request gets its first answer and runs nothing; for one gateway and for three, over
crashes, and where clients go away.
"""
import json
import re
import threading
import time
import uuid

import pytest

from brigtest import SHELL, Story, outputs_of, text_of, wait_for
from fake_provider import Hold, Reply, Wait, calls, chunk, error, error_in_stream, shell, text

RESPONSES = "/responses"


@pytest.fixture(scope="module")
def server(servers_1_and_3):
    return servers_1_and_3


@pytest.fixture
def key():
    return {"Idempotency-Key": str(uuid.uuid4())}


def body_of(model, **fields):
    return dict({"model": model.name, "input": "go"}, **fields)


def runs(client, container):
    """How often the commands of count() have run."""
    return len(client.run(container, "cat marks 2>/dev/null || true")["stdout"].split())


def count(container, *more):
    """A model's turn that leaves a mark each time it runs, and the request's fields for its container."""
    return [calls(shell("echo x >> marks", *more)), text("done")], {"tools": [SHELL], "session_id": container}


def fresh():
    return uuid.uuid4().hex[:16]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_asked_again_it_gets_the_first_answer(client, provider, key, stream):
    name = fresh()
    replies, fields = count(name)
    model = provider.model(*replies)
    body = body_of(model, stream=stream, **fields)
    first = client.post(RESPONSES, body, headers=key)
    assert first.status == 200 and "idempotent-replayed" not in first.headers
    for _ in range(6):
        again = client.post(RESPONSES, body, headers=key)
        assert again.status == 200 and again.body == first.body
        assert again.headers["idempotent-replayed"] == "true"
        for header in ("content-type", "x-generation-id", "x-request-id"):
            assert again.headers[header] == first.headers[header]
    assert len(model.requests) == 2 and runs(client, "sess_" + name) == 1
    if stream:
        Story(first.body)


APIS = {
    "/messages": lambda m: {"model": m, "max_tokens": 100, "messages": [{"role": "user", "content": "go"}]},
    "/chat/completions": lambda m: {"model": m, "messages": [{"role": "user", "content": "go"}]},
}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("path", APIS)
def test_on_the_other_apis(client, provider, key, path, stream):
    model = provider.model(text("once"))
    body = dict(APIS[path](model.name), stream=stream)
    first = client.post(path, body, headers=key)
    assert first.status == 200, first
    again = client.post(path, body, headers=key)
    assert (again.status, again.body, again.headers["idempotent-replayed"]) == (200, first.body, "true")
    assert len(model.requests) == 1


def test_another_request_with_the_same_key(client, v1, provider, key):
    model = provider.model(text("one"))
    assert client.post(RESPONSES, body_of(model), headers=key).status == 200
    answer = client.post(RESPONSES, body_of(model, temperature=0), headers=key)
    assert answer.status == 422 and answer.error["param"] == "Idempotency-Key"
    answer = v1.post(RESPONSES, body_of(model), headers=key)
    assert answer.status == 422 and answer.error["code"] == "idempotency_key_reused"
    assert client.post(RESPONSES, body_of(model), headers=dict(key, **{"x-session-id": "s"})).status == 422
    assert len(model.requests) == 1


def test_keys_belong_to_a_workspace(server, provider, key):
    models = [provider.model(text(w)) for w in ("one", "two", "far")]
    for name, model in zip(("one", "two", "far"), models):
        answer = server.client(name).post(RESPONSES, body_of(model), headers=key)
        assert text_of(answer.json) == name
    assert [len(m.requests) for m in models] == [1, 1, 1]


@pytest.mark.parametrize("value", ["", "x" * 256, "\u00e4", "tab\there"])
def test_bad_keys(client, provider, value):
    answer = client.post(RESPONSES, body_of(provider.model()), headers={"Idempotency-Key": value.encode("latin1")})
    assert answer.status == 400 and answer.error["param"] == "Idempotency-Key"


def test_while_it_runs(client, provider, key):
    go = threading.Event()
    model = provider.model(Reply([chunk({"content": "so "}), Wait(go)] + text("late").steps))
    body = body_of(model)
    answers = []
    thread = threading.Thread(target=lambda: answers.append(client.post(RESPONSES, body, headers=key)))
    thread.start()
    model.wait()
    for _ in range(4):
        early = client.post(RESPONSES, body, headers=key)
        assert early.status == 409 and early.error["param"] == "Idempotency-Key"
        # A client may well come again for this one.
        assert "x-should-retry" not in early.headers and int(early.headers["retry-after"]) > 0
    go.set()
    thread.join()
    assert client.post(RESPONSES, body, headers=key).body == answers[0].body
    assert len(model.requests) == 1


def test_many_at_once_run_it_once(client, provider, key):
    name = fresh()
    replies, fields = count(name, "sleep 0.3")
    model = provider.model(*replies)
    body, answers = body_of(model, **fields), []

    def one():
        end = time.monotonic() + 60
        while time.monotonic() < end:
            answer = client.post(RESPONSES, body, headers=key)
            if answer.status != 409:
                answers.append(answer)
                return
            time.sleep(0.1)
    threads = [threading.Thread(target=one) for _ in range(12)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(answers) == 12 and len({a.body for a in answers}) == 1 and answers[0].status == 200
    assert sum("idempotent-replayed" not in a.headers for a in answers) == 1
    assert len(model.requests) == 2 and runs(client, "sess_" + name) == 1


# ---- what failed ----

def test_a_failure_that_ran_nothing_may_be_tried_again(client, provider, key):
    model = provider.model(error(400, {"error": {"message": "not now"}}), text("now"))
    body = body_of(model)
    assert client.post(RESPONSES, body, headers=key).status == 400
    answer = client.post(RESPONSES, body, headers=key)
    assert answer.status == 200 and "idempotent-replayed" not in answer.headers
    assert client.post(RESPONSES, body, headers=key).headers["idempotent-replayed"] == "true"


def test_a_stream_that_failed_and_ran_nothing_may_be_tried_again(client, provider, key):
    model = provider.model(error_in_stream(), text("now"))
    body = body_of(model, stream=True)
    first = client.post(RESPONSES, body, headers=key)
    second = client.post(RESPONSES, body, headers=key)
    assert b"response.completed" not in first.body and b"response.completed" in second.body


def test_a_refused_request_may_be_sent_right(client, provider, key):
    model = provider.model(text("ok"))
    assert client.post(RESPONSES, body_of(model, temperature=7), headers=key).status == 400
    assert client.post(RESPONSES, b"no json", headers=key).status == 400
    assert client.post(RESPONSES, body_of(model), headers=key).status == 200


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("base", ["/api/v1", "/v1"])
def test_a_failure_after_commands_is_the_answer(server, provider, key, stream, base):
    client, name = server.client(base=base), fresh()
    replies, fields = count(name)
    model = provider.model(replies[0], error(400, {"error": {"message": "no"}}), text("never"))
    body = body_of(model, stream=stream, **fields)
    first = client.post(RESPONSES, body, headers=key)
    again = client.post(RESPONSES, body, headers=key)
    assert (again.status, again.body) == (first.status, first.body)
    assert again.headers["idempotent-replayed"] == "true"
    if first.status >= 400:
        assert first.headers["x-should-retry"] == again.headers["x-should-retry"] == "false"
    assert len(model.requests) == 2 and runs(server.client(), "sess_" + name) == 1


# ---- clients that go away ----

def test_a_client_that_went_before_any_command(client, provider, key):
    model = provider.model(Reply([chunk({"content": "so"}), Hold()]), text("whole"))
    body = body_of(model, stream=True)
    stream = client.open_stream(RESPONSES, body, headers=key)
    stream.until("output_text.delta")
    stream.close()
    answer = wait_for(lambda: (lambda a: a if a.status != 409 else None)(client.post(RESPONSES, body, headers=key)), every=0.1)
    assert answer.status == 200 and b"whole" in answer.body


def test_a_client_that_went_after_a_command(client, provider, key):
    name = fresh()
    replies, fields = count(name)
    model = provider.model(replies[0], Reply([chunk({"content": "so"}), Hold()]), text("never"))
    body = body_of(model, stream=True, **fields)
    stream = client.open_stream(RESPONSES, body, headers=key)
    stream.until("output_text.delta")
    stream.close()

    def cut():
        answer = client.post(RESPONSES, body, headers=key)
        assert answer.status == 409, answer
        return answer if "broke off" in answer.error["message"] else None
    answer = wait_for(cut, every=0.1)
    assert answer.headers["x-should-retry"] == "false"
    assert len(model.requests) == 2 and runs(client, "sess_" + name) == 1


def test_a_client_that_went_while_a_command_ran(client, provider, key):
    name = fresh()
    model = provider.model(calls(shell("echo x >> marks; sleep 300")), text("never"))
    body = body_of(model, stream=True, tools=[SHELL], session_id=name)
    stream = client.open_stream(RESPONSES, body, headers=key)
    wait_for(lambda: runs(client, "sess_" + name) == 1, every=0.1)
    stream.close()
    wait_for(lambda: "broke off" in client.post(RESPONSES, body, headers=key).error["message"], every=0.1)
    assert runs(client, "sess_" + name) == 1


# ---- direct use ----

def test_exec_runs_once(client, key):
    name = fresh()
    body = {"commands": ["echo x >> marks", "echo done"]}
    path = "/containers/%s/exec" % name
    first = client.post(path, body, headers=key)
    assert first.status == 200
    for _ in range(3):
        again = client.post(path, body, headers=key)
        assert (again.status, again.body, again.headers["idempotent-replayed"]) == (200, first.body, "true")
    assert client.post(path, {"commands": ["true"]}, headers=key).status == 422
    assert client.post("/containers/other/exec", body, headers=key).status == 422
    assert runs(client, name) == 1


def test_a_streamed_and_a_detached_exec(client, key):
    name = fresh()
    body = {"commands": ["echo x >> marks"], "stream": True}
    first = client.post("/containers/%s/exec" % name, body, headers=key)
    assert client.post("/containers/%s/exec" % name, body, headers=key).body == first.body
    key = {"Idempotency-Key": fresh()}
    body = {"commands": ["echo x >> marks"], "detach": True}
    first = client.post("/containers/%s/exec" % name, body, headers=key)
    again = client.post("/containers/%s/exec" % name, body, headers=key)
    assert first.status == 202 and again.json == first.json
    wait_for(lambda: runs(client, name) == 2, every=0.1)
    assert runs(client, name) == 2


# ---- over a server's life, and its limits ----

def restart_after_death(server):
    server.kill()
    wait_for(lambda: not server.own())
    (server.data / "url").unlink(missing_ok=True)
    server.start()


@pytest.mark.parametrize("workers", [1, 3])
def test_over_restarts_and_deaths(make_server, provider, key, workers):
    server = make_server(workers=workers).start()
    client, name = server.client(), fresh()
    replies, fields = count(name)
    model = provider.model(*replies)
    body = body_of(model, **fields)
    first = client.post(RESPONSES, body, headers=key)
    server.stop()
    server.start()
    assert server.client().post(RESPONSES, body, headers=key).body == first.body
    restart_after_death(server)
    assert server.client().post(RESPONSES, body, headers=key).body == first.body
    assert len(model.requests) == 2 and runs(server.client(), "sess_" + name) == 1


@pytest.mark.parametrize("who", ["server", "gateways"])
@pytest.mark.parametrize("workers", [1, 3])
def test_a_death_in_the_middle(make_server, provider, key, workers, who):
    server = make_server(workers=workers).start()
    client, name = server.client(), fresh()
    model = provider.model(calls(shell("echo x >> marks")), Reply([chunk({"content": "so"}), Hold()]), text("never"))
    body = body_of(model, stream=True, tools=[SHELL], session_id=name)
    stream = client.open_stream(RESPONSES, body, headers=key)
    stream.until("output_text.delta")
    plain = provider.model(Reply([chunk({"content": "so"}), Hold()]), text("again"))
    other = client.open_stream(RESPONSES, body_of(plain, stream=True), headers={"Idempotency-Key": "plain"})
    other.until("output_text.delta")
    if who == "server":
        restart_after_death(server)
    else:
        old = server.gateways()
        for pid in old:
            __import__("os").kill(pid, 9)
        wait_for(lambda: len(set(server.gateways()) - set(old)) == workers)
        wait_for(lambda: reachable(server))
    stream.close()
    other.close()
    client = server.client()
    answer = wait_for(lambda: (lambda a: a if a.status == 409 and "broke off" in a.error["message"] else None)(
        client.post(RESPONSES, body, headers=key)), every=0.2)
    assert answer.headers["x-should-retry"] == "false"
    assert len(model.requests) == 2 and runs(client, "sess_" + name) == 1
    # What can run no command is run again.
    again = wait_for(lambda: (lambda a: a if a.status == 200 else None)(
        client.post(RESPONSES, body_of(plain, stream=True), headers={"Idempotency-Key": "plain"})), every=0.2)
    assert b"again" in again.body


def reachable(server):
    try:
        return server.client().get("/models").status == 200
    except OSError:
        return False


def test_an_answer_that_is_too_large(make_server, provider):
    server = make_server(config={"limits": {"idempotent_answer": "64k"}}).start()
    client = server.client()
    for stream in (False, True):
        model = provider.model(text("y" * 200000, pieces=10))
        key = {"Idempotency-Key": "large %s" % stream}
        first = client.post(RESPONSES, body_of(model, stream=stream), headers=key)
        assert first.status == 200 and b"y" * 10000 in first.body
        again = client.post(RESPONSES, body_of(model, stream=stream), headers=key)
        assert again.status == 409 and "too large" in again.error["message"]
        assert again.headers["x-should-retry"] == "false" and len(model.requests) == 1


def test_old_answers_make_room(make_server, provider):
    server = make_server(config={"limits": {"workspace_idempotent": "1m"}}).start()
    client = server.client()
    model = provider.model(lambda request: text("y" * 100000))
    asked = [({"Idempotency-Key": "n%d" % i}, client.post(RESPONSES, body_of(model), headers={"Idempotency-Key": "n%d" % i}))
             for i in range(30)]
    n = len(model.requests)
    again = [client.post(RESPONSES, body_of(model), headers=key) for key, _ in asked]
    assert again[-1].body == asked[-1][1].body
    assert again[0].status == 409 and len(model.requests) == n  # forgotten, and not run again either


def test_a_large_body_and_answer(client, provider, key):
    model = provider.model(text("y" * 3000000, pieces=50))
    body = body_of(model, input="x" * 3000000, stream=True)
    first = client.post(RESPONSES, body, headers=key)
    again = client.post(RESPONSES, body, headers=key)
    assert again.body == first.body and len(first.body) > 3000000
    assert client.post(RESPONSES, body_of(model, input="x" * 2999999 + "y", stream=True), headers=key).status == 422


def test_the_stored_response_is_the_one_that_was_answered(client, provider, key):
    model = provider.model(text("one"), text("two"))
    body = body_of(model)
    first = client.post(RESPONSES, body, headers=key).json
    again = client.post(RESPONSES, body, headers=key).json
    assert client.get("/responses/" + again["id"]).json == first
    # A request that goes on from it may be repeated too, also when what it goes on from has gone since.
    on = body_of(model, input="on", previous_response_id=first["id"])
    second = client.post(RESPONSES, on, headers={"Idempotency-Key": "on " + first["id"]})
    client.delete("/responses/" + first["id"])
    assert client.post(RESPONSES, on, headers={"Idempotency-Key": "on " + first["id"]}).body == second.body


def test_content_that_is_not_to_be_kept(client, provider, key):
    """It is run once all the same."""
    model = provider.model(text("secret"))
    headers = dict(key, **{"x-brig-store-content": "false"})
    assert client.post(RESPONSES, body_of(model), headers=headers).status == 200
    again = client.post(RESPONSES, body_of(model), headers=headers)
    assert again.status == 409 and "not kept" in again.error["message"] or "no more" in again.error["message"]
    assert len(model.requests) == 1


# ---- what may not be sent again ----

@pytest.mark.parametrize("path, base", [(RESPONSES, "/v1"), ("/messages", "/v1"), ("/messages", "/api/v1")])
def test_an_error_after_a_command_says_not_to_try_again(server, provider, path, base):
    """Without a key too: clients of these APIs try again by themselves."""
    client, name = server.client(base=base), fresh()
    model = provider.model(calls(shell("echo x >> marks")), error(500, {"error": {"message": "no"}}), error(500, {}),
                           error(500, {}), error(500, {}))
    body = {"/messages": {"model": model.name, "max_tokens": 100, "messages": [{"role": "user", "content": "go"}]},
            RESPONSES: {"model": model.name, "input": "go"}}[path]
    answer = client.post(path, dict(body, tools=[SHELL], session_id=name), timeout=120)
    assert runs(server.client(), "sess_" + name) == 1
    assert answer.status >= 400 and answer.headers["x-should-retry"] == "false", answer
    # And nothing says so where no command ran.
    model = provider.model(error(400, {"error": {"message": "no"}}))
    answer = client.post(path, dict(body, model=model.name))
    assert answer.status >= 400 and answer.headers.get("x-should-retry") != "false"
