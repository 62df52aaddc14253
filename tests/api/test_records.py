"""What was recorded of requests: each one is found, says what it cost, and agrees with its answer to the last digit."""
import decimal
import json
import threading

import pytest

from brigtest import SHELL, wait_for
from fake_provider import Model, Reply, Wait, call, calls, error, shell, text


def exact(body):
    return json.loads(body, parse_float=decimal.Decimal, parse_int=decimal.Decimal)


def priced(provider, *replies):
    """A model that the configuration has a price for."""
    provider.models["priced"] = Model(provider, "priced", replies)
    return provider.models["priced"]


def record(client, generation):
    answer = client.get("/generation?id=" + generation)
    assert answer.status == 200, answer
    return exact(answer.body)["data"]


def ask(client, model, **fields):
    answer = client.post("/responses", dict({"model": model.name, "input": "go"}, **fields))
    return answer, answer.headers["x-generation-id"]


def test_a_turn_is_recorded_with_its_price(client, provider):
    model = priced(provider, text("hello", usage=(1000, 7)))
    answer, generation = ask(client, model, session_id="records-1", user="jo", metadata={"a": "b"})
    usage = exact(answer.body)["usage"]
    row = record(client, generation)
    assert row["id"] == generation and row["ledger_status"] == "settled" and row["api_type"] == "responses"
    assert row["total_cost"] == usage["cost"] and row["tokens_prompt"] == usage["input_tokens"]
    assert row["tokens_completion"] == usage["output_tokens"]
    assert row["session_id"] == "records-1" and row["user"] == "jo" and row["metadata"] == {"a": "b"}
    assert row["status"] == 200 and row["finish_reason"] == "stop" and not row["cancelled"]
    assert [a["provider_name"] for a in row["provider_responses"]] == ["fake"]
    assert row["requested_model"] == model.name


IDS = "0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331"


@pytest.mark.parametrize("header, kept", [
    ("00-" + IDS + "-01", "00-" + IDS + "-01"),
    ("cc-" + IDS + "-00-of-a-later-version", "00-" + IDS + "-00"),
    ("ff-" + IDS + "-01", None),
    ("00-" + IDS.upper() + "-01", None),
    ("00-" + IDS + "-01, 00-" + IDS + "-01", None),
], ids=["good", "later", "none", "capitals", "two"])
def test_the_caller_s_span_is_kept(client, provider, header, kept):
    headers = {"traceparent": header, "x-session-id": "records-of-the-header"}
    answer = client.post("/responses", {"model": provider.model(text("hi")).name, "input": "go",
                                        "trace": {"trace_name": "n", "x": 1}}, headers=headers)
    row = record(client, answer.headers["x-generation-id"])
    assert row["traceparent"] == kept and row["session_id"] == "records-of-the-header"
    assert row["trace"] == {"trace_name": "n", "x": 1}


def test_the_caller_s_span_of_an_exec_is_kept(client):
    headers = {"traceparent": "00-" + IDS + "-01", "x-session-id": "s", "User-Agent": "records/1"}
    answer = client.post("/containers/records-traceparent/exec", {"commands": ["true"]}, headers=headers)
    row = record(client, answer.headers["x-generation-id"])
    assert row["traceparent"] == headers["traceparent"]
    assert (row["session_id"], row["user_agent"]) == ("s", "records/1")


def test_a_short_run_in_a_new_container_costs_three_tenths_of_a_cent(client, provider):
    model = provider.model(calls(shell("echo hi; echo no >&2; exit 3")), text("done"))
    answer, generation = ask(client, model, tools=[SHELL])
    body = exact(answer.body)
    row = record(client, generation)
    assert str(body["usage"]["cost_details"]["server_tool_cost"]) == "0.003"
    assert row["server_tool_cost"] == decimal.Decimal("0.003") and row["sandbox_ms"] == 30000
    assert row["total_cost"] == body["usage"]["cost"]
    (run,) = client.get("/generations/%s/tool_runs" % generation).json["data"]
    assert run["tool"] == "openrouter:shell" and run["status"] == "completed" and run["started_container"]
    (command,) = run["commands"]
    assert command["command"] == "echo hi; echo no >&2; exit 3"
    assert command["stdout"] == "hi\n" and command["stderr"] == "no\n"
    assert command["outcome"] == {"type": "exit", "exit_code": 3}
    assert command["duration_ms"] <= run["duration_ms"]
    assert len(row["provider_responses"]) == 2
    assert [a["finish_reason"] for a in row["provider_responses"]] == ["tool_calls", "stop"]


def test_a_call_that_was_not_run_is_a_run_that_failed(client, provider):
    model = provider.model(calls(call("shell", "{not json")), text("done"))
    _, generation = ask(client, model, tools=[SHELL])
    (run,) = client.get("/generations/%s/tool_runs" % generation).json["data"]
    assert run["status"] == "failed" and run["error"] and run["commands"] == []
    assert record(client, generation)["server_tool_cost"] == 0


def test_a_refusal_is_recorded(client, provider):
    answer = client.post("/responses", {"model": "nobody/has-this", "input": "go"})
    assert answer.status == 404
    row = wait_for(lambda: client.get("/generation?id=" + answer.headers["x-generation-id"]).json.get("data"))
    assert row["status"] == 404 and row["error"] and row["requested_model"] == "nobody/has-this"
    assert row["total_cost"] == 0 and row["provider_responses"] == []


def test_an_upstream_error_is_recorded(client, provider):
    model = provider.model(error(400, {"error": {"message": "too odd"}}))
    answer, generation = ask(client, model)
    assert answer.status == 400
    row = record(client, generation)
    assert row["status"] == 400 and "too odd" in row["error"]
    assert row["provider_responses"][0]["status"] == 400 and "too odd" in row["provider_responses"][0]["error"]


@pytest.mark.parametrize("path,body", [
    ("/chat/completions", {"messages": [{"role": "user", "content": "go"}]}),
    ("/messages", {"messages": [{"role": "user", "content": "go"}], "max_tokens": 100}),
])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_other_apis_are_recorded(client, provider, path, body, stream):
    model = provider.model(text("hello"))
    answer = client.post(path, dict(body, model=model.name, stream=stream))
    assert answer.status == 200
    row = wait_for(lambda: client.get("/generation?id=" + answer.headers["x-generation-id"]).json.get("data"))
    wait_for(lambda: record(client, answer.headers["x-generation-id"])["ledger_status"] == "settled")
    row = record(client, answer.headers["x-generation-id"])
    assert row["api_type"] == {"/chat/completions": "chat", "/messages": "messages"}[path]
    assert row["streamed"] == stream and row["status"] == 200


def test_a_streamed_turn_is_settled_when_its_last_event_is_there(client, provider):
    asked = threading.Event()
    model = provider.model(Reply([Wait(asked)] + calls(shell("true")).steps), text("ok"))
    stream = client.begin(model, tools=[SHELL])
    generation = stream.response_headers["x-generation-id"]
    assert record(client, generation)["ledger_status"] == "open"
    asked.set()
    stream.until("response.completed")
    assert record(client, generation)["ledger_status"] == "settled"
    stream.sock.close()


def test_content(client, provider):
    model = provider.model(text("the answer"))
    _, generation = ask(client, model, input="the question")
    data = client.get("/generation/content?id=" + generation).json["data"]
    assert data["input"]["input"] == "the question"
    assert data["output"]["completion"] == "the answer" and data["error"] is None
    assert client.delete("/generation/content?id=" + generation).status == 200
    assert client.get("/generation/content?id=" + generation).status == 404
    assert record(client, generation)["content_stored"] is False


def test_others_find_nothing(server, client, provider):
    model = provider.model(text("mine"))
    _, generation = ask(client, model)
    for key in ("two", "far"):
        other = server.client(key)
        for path in ("/generation?id=", "/generation/content?id="):
            assert other.get(path + generation).status == 404
        assert other.get("/generations/%s/tool_runs" % generation).status == 404
        assert generation not in [g["id"] for g in other.get("/generations?limit=1000").json["data"]]
        assert other.delete("/generation/content?id=" + generation).status == 404
    assert client.get("/generation?id=gen-none").status == 404
    assert client.get("/generation").status == 400


def test_lists_are_paged_and_filtered(client, provider):
    model = provider.model(*[text("number %d" % i) for i in range(5)])
    made = [ask(client, model, session_id="paged", input="needle%d" % i)[1] for i in range(5)]
    found, after = [], ""
    while True:
        page = client.get("/generations?session_id=paged&limit=2" + after).json
        found += [g["id"] for g in page["data"]]
        if not page["has_more"]:
            break
        after = "&after=" + page["last_id"]
    assert found == made[::-1]
    assert [g["id"] for g in client.get("/generations?q=needle3").json["data"]] == [made[3]]
    assert client.get("/generations?session_id=paged&provider=nobody").json["data"] == []
    assert len(client.get("/generations?session_id=paged&status=2").json["data"]) == 5
    assert client.get("/generations?session_id=paged&status=404").json["data"] == []
    assert client.get("/generations?limit=0").status == 400
    assert client.get("/generations?after=gen-none").status == 400


def test_content_off_leaves_nothing_on_disk(make_server, provider):
    server = make_server(config={"logging": {"store_content": False}})
    server.start()
    client = server.client()
    model = provider.model(calls(shell("echo out-$((40+2))-secret # command-secret")), text("answer-secret"))
    _, generation = ask(client, model, tools=[SHELL], input="question-secret", session_id="off")
    assert client.get("/generation/content?id=" + generation).status == 404
    (run,) = client.get("/generations/%s/tool_runs" % generation).json["data"]
    assert run["commands"][0]["stdout"] is None and run["commands"][0]["command"] is None
    assert run["commands"][0]["outcome"]["exit_code"] == 0
    server.process.send_signal(15)
    server.process.wait(60)
    for path in server.data.rglob("*"):
        if path.is_file() and path.stat().st_size < 64 << 20 and "images" not in path.parts:
            data = path.read_bytes()
            for secret in (b"question-secret", b"answer-secret", b"command-secret", b"out-42-secret"):
                assert secret not in data, "%s in %s" % (secret, path)


def test_content_off_by_header(client, provider):
    model = provider.model(text("hello"))
    answer = client.post("/responses", {"model": model.name, "input": "go"}, headers={"x-brig-store-content": "false"})
    assert client.get("/generation/content?id=" + answer.headers["x-generation-id"]).status == 404


def test_content_off_by_header_leaves_nothing_on_disk(make_server, provider):
    """Neither as a record nor as a stored response or an idempotent answer."""
    server = make_server()
    server.start()
    client = server.client()
    off = {"x-brig-store-content": "false", "Idempotency-Key": "off-by-header"}
    model = provider.model(calls(shell("echo out-$((40+2))-secret # command-secret")), text("answer-secret"),
                           error(400, {"error": {"message": "no"}}))
    asked = {"model": model.name, "input": "question-secret", "tools": [SHELL], "session_id": "off-header"}
    answer = client.post("/responses", asked, headers=off)
    assert answer.status == 200 and "answer-secret" in answer.body.decode()
    assert client.get("/responses/" + answer.json["id"]).status == 404
    client.post("/responses", asked, headers=off)
    failed = client.post("/responses", dict(asked, input="other-secret"), headers={"x-brig-store-content": "0"})
    assert failed.status == 400
    for path, body in (("/chat/completions", {"messages": [{"role": "user", "content": "chat-secret"}]}),
                       ("/messages", {"messages": [{"role": "user", "content": "chat-secret"}], "max_tokens": 9})):
        assert client.post(path, dict(body, model=provider.model(text("chat-answer-secret")).name),
                           headers=dict(off, **{"Idempotency-Key": path})).status == 200
    executed = client.post("/containers/off-header/exec", {"commands": ["echo $((40+2))-exec-secret"]},
                           headers=dict(off, **{"Idempotency-Key": "exec"}))
    assert executed.status == 200
    server.process.send_signal(15)
    server.process.wait(60)
    secrets = (b"question-secret", b"answer-secret", b"command-secret", b"out-42-secret", b"other-secret", b"chat-secret",
               b"chat-answer-secret", b"exec-secret")
    for path in server.data.rglob("*"):
        if path.is_file() and path.stat().st_size < 64 << 20 and "images" not in path.parts:
            data = path.read_bytes()
            assert not [s for s in secrets if s in data], path
