"""Anthropic as the provider, through the Responses API and real sockets."""
import json

import pytest

import brigtest
from brigtest import BRIG_SHELL, SHELL, UPSTREAM_KEY, function, items_of, outputs_of, raw_list, text_of
from conftest import run
from fake_anthropic import (MODEL, AnthropicProvider, block, call_block, ending, event, redacted_block, refused, shell_block,
                            start, stream, text, text_block, thinking_block, whole)
from fake_provider import Hold, Pause, Reply
from messagestest import Messages


@pytest.fixture(scope="module")
def anthropic():
    provider = AnthropicProvider()
    yield provider
    provider.close()


@pytest.fixture(scope="module")
def server(anthropic):
    yield from run(brigtest.Server(config={"limits": {"upstream_idle": "3s"}, "providers": [
        {"name": "fake", "dialect": "anthropic", "base_url": anthropic.base_url(), "api_key": UPSTREAM_KEY}]}))


def messages(request):
    return request.json["messages"]


def result(id, output):
    return {"type": "function_call_output", "call_id": id, "output": output}


def go_on(client, model, response, tools=(), more=(), **fields):
    history = [{"role": "user", "content": "go"}] + response["output"] + list(more)
    return client.ask(model, history + [{"role": "user", "content": "thanks"}], tools=tools, **fields)


# ---- text ----

def test_text_streamed_and_whole(client, anthropic):
    usage = {"input_tokens": 10, "cache_read_input_tokens": 4, "cache_creation_input_tokens": 3}
    model = anthropic.model(text("Hello, wörld 😀", usage=usage).bytewise())
    story = client.stream(model, "Hi", instructions="Be kind.")
    assert text_of(story.response) == "Hello, wörld 😀" and story.response["status"] == "completed"
    usage = story.response["usage"]
    assert (usage["input_tokens"], usage["output_tokens"]) == (17, 5)
    assert usage["input_tokens_details"]["cached_tokens"] == 4
    request = model.requests[0]
    assert request.path == "/v1/messages"
    assert request.headers["x-api-key"] == UPSTREAM_KEY and "authorization" not in request.headers
    assert request.headers["anthropic-version"] == "2023-06-01" and "anthropic-beta" not in request.headers
    assert request.json == {"model": model.upstream_name, "system": "Be kind.", "max_tokens": 8192, "stream": True,
                            "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]}
    model = anthropic.model(text("whole"))
    assert text_of(client.ask(model)) == "whole"


def test_an_upstream_that_does_not_stream(client, anthropic):
    model = anthropic.model(whole([{"type": "thinking", "thinking": "Hm.", "signature": "c2ln"},
                                   {"type": "tool_use", "id": "toolu_1", "name": "shell",
                                    "input": {"commands": ["echo 42"]}}], "tool_use"),
                            whole([{"type": "text", "text": "It is 42."}]))
    response = client.ask(model, tools=[SHELL])
    assert outputs_of(response)[0]["stdout"] == "42\n" and text_of(response) == "It is 42."


# ---- the loop ----

@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("tool", [SHELL, BRIG_SHELL], ids=["openrouter", "brig"])
def test_a_shell_loop_with_thinking_and_the_next_turn(client, anthropic, tool, streamed):
    first = stream(thinking_block("Let me see.", "c2lnLWE="), redacted_block("cmVkYWN0ZWQ="),
                   text_block("I will run it."), shell_block("echo 42", id="toolu_a"), usage={"input_tokens": 10})
    answer = stream(thinking_block("So it is.", "c2lnLWI="), text_block("It is 42."), usage={"input_tokens": 20}, output=6)
    model = anthropic.model(first, answer, text("Bye"), prefix=MODEL)
    ask = (lambda *a, **k: client.stream(*a, **k).response) if streamed else client.ask
    response = ask(model, "go", tools=[tool], reasoning={"effort": "high"})
    assert text_of(response).endswith("It is 42.")
    assert (response["usage"]["input_tokens"], response["usage"]["output_tokens"]) == (30, 11)
    sealed = [i["encrypted_content"] for i in items_of(response, "reasoning")]
    assert len(sealed) == 3 and all(s.startswith("brig1.") for s in sealed)
    asked, told = model.requests[0], model.requests[1]
    assert asked.json["thinking"] == {"type": "enabled", "budget_tokens": 16384}
    assert asked.json["max_tokens"] == 32000
    assert messages(told)[:1] == [{"role": "user", "content": [{"type": "text", "text": "go"}]}]
    assert messages(told)[1] == {"role": "assistant", "content": [
        {"type": "thinking", "thinking": "Let me see.", "signature": "c2lnLWE="},
        {"type": "redacted_thinking", "data": "cmVkYWN0ZWQ="},
        {"type": "text", "text": "I will run it."},
        {"type": "tool_use", "id": "toolu_a", "name": "shell", "input": {"commands": ["echo 42"]}}]}
    (block,) = messages(told)[2]["content"]
    assert (block["type"], block["tool_use_id"]) == ("tool_result", "toolu_a")
    assert json.loads(block["content"])["output"][0]["stdout"] == "42\n"
    assert told.json["thinking"] == asked.json["thinking"]

    go_on(client, model, response, [tool], reasoning={"effort": "high"})
    again = model.requests[2]
    assert raw_list(again, "messages").startswith(raw_list(told, "messages") + b",")
    assert messages(again)[3] == {"role": "assistant", "content": [
        {"type": "thinking", "thinking": "So it is.", "signature": "c2lnLWI="}, {"type": "text", "text": "It is 42."}]}


KINDS = {
    "parallel": lambda: [stream(text_block("Three."), shell_block("echo 1", id="a"), shell_block("echo 2", "false", id="b"),
                                shell_block("echo 3", id="c")), text("ok")],
    "several replies": lambda: [stream(shell_block("echo 1", id="x")), stream(text_block("again"), shell_block("echo 2", id="y")),
                                stream(shell_block("echo 3", id="z")), text("ok")],
    "one id": lambda: [stream(shell_block("echo 1", id="same")), stream(shell_block("echo 2", id="same")), text("ok")],
    "odd id": lambda: [stream(shell_block("echo 1", id="call/with:odd é")), text("ok")],
    "long id": lambda: [stream(shell_block("echo 1", id="toolu_" + "01AbC" * 30)), text("ok")],
    "broken arguments": lambda: [stream(call_block("shell", '{"commands": ["echo', "bad")), text("oh")],
    "no arguments": lambda: [stream(call_block("shell", "", "bad")), text("oh")],
    "unknown name": lambda: [stream(call_block("python", {"code": 1}, "bad")), text("oh")],
    "spelling": lambda: [stream(call_block("shell", '{ "commands" : ["echo \\u00e4"],  "why":1.0 }', "x")), text("ok")],
    "timeout": lambda: [stream(shell_block("echo begun; sleep 30", "echo two", timeout_ms=1000)), text("ok")],
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_next_turn_begins_with_the_last(client, anthropic, kind):
    model = anthropic.model(*KINDS[kind](), text("the second answer"))
    response = client.ask(model, "go", tools=[SHELL], instructions="Be good.")
    last = model.requests[-1]
    second = go_on(client, model, response, [SHELL], instructions="Be good.")
    assert text_of(second) == "the second answer"
    assert raw_list(model.requests[-1], "messages").startswith(raw_list(last, "messages") + b",")
    check_rules(messages(model.requests[-1]))


def check_rules(said):
    """What the API refuses."""
    ids = []
    for before, m in zip([None] + said, said):
        assert before is None or m["role"] != before["role"], said
        assert m["content"], said
        calls = [b["id"] for b in m["content"] if b["type"] == "tool_use"]
        ids += calls
        for b in m["content"]:
            assert b["type"] != "text" or b["text"].strip(), said
        if m["role"] == "assistant":
            assert m["content"][-1]["type"] not in ("thinking", "redacted_thinking"), said
        results = [b["tool_use_id"] for b in m["content"] if b["type"] == "tool_result"]
        assert results == [b["id"] for b in (before or {"content": []})["content"] if b["type"] == "tool_use"], said
        assert [b["type"] for b in m["content"]][:len(results)] == ["tool_result"] * len(results), said
    assert len(set(ids)) == len(ids), said
    assert all(i.replace("-", "_").replace("_", "").isalnum() and i.isascii() for i in ids), ids


def test_a_mixed_reply_keeps_its_calls_in_one_message(client, anthropic):
    model = anthropic.model(stream(thinking_block("Both.", "c2ln"), text_block("All at once."), shell_block("echo ours", id="a"),
                                   call_block("theirs", {"n": 1}, "b"), shell_block("echo more", id="c")), text("ok"))
    tools = [SHELL, function("theirs")]
    response = client.ask(model, "go", tools=tools)
    (theirs,) = items_of(response, "function_call")
    go_on(client, model, response, tools, [result(theirs["call_id"], "their result")])
    said = messages(model.requests[-1])
    check_rules(said)
    assert [m["role"] for m in said] == ["user", "assistant", "user"]
    assert [b["type"] for b in said[1]["content"]] == ["thinking", "text", "tool_use", "tool_use", "tool_use"]
    assert [b.get("tool_use_id") for b in said[2]["content"]] == ["a", "b", "c", None]
    assert said[2]["content"][1]["content"] == [{"type": "text", "text": "their result"}]


def test_interleaved_thinking_stays_interleaved(client, anthropic):
    """Twelve thoughts between twelve calls in one reply go back as one message, in their order."""
    blocks = [b for i in range(12) for b in (thinking_block("t%d" % i, "c2ln%d" % i), shell_block("echo %d" % i, id="c%d" % i))]
    model = anthropic.model(stream(*blocks), text("ok"), text("ok"))
    response = client.ask(model, "go", tools=[SHELL])
    go_on(client, model, response, [SHELL])
    for request in model.requests[1:]:
        content = messages(request)[1]["content"]
        assert [b["type"] for b in content] == ["thinking", "tool_use"] * 12
        assert [b["signature"] for b in content[::2]] == ["c2ln%d" % i for i in range(12)]
        check_rules(messages(request))


def test_a_clients_call_and_an_image_as_its_result(client, anthropic):
    png = "data:image/png;base64,iVBORw0KGgo="
    model = anthropic.model(stream(call_block("look", {"at": "x"}, "toolu_9")), text("A cat."))
    response = client.ask(model, "go", tools=[function("look")])
    (call,) = items_of(response, "function_call")
    assert (call["name"], json.loads(call["arguments"]), call["call_id"]) == ("look", {"at": "x"}, "toolu_9")
    output = [{"type": "input_text", "text": "see"}, {"type": "input_image", "image_url": png}]
    go_on(client, model, response, [function("look")], [result("toolu_9", output)])
    assert messages(model.requests[1])[2]["content"] == [
        {"type": "tool_result", "tool_use_id": "toolu_9", "content": [
            {"type": "text", "text": "see"},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}]},
        {"type": "text", "text": "thanks"}]


def test_state_of_another_account_is_not_forwarded(server, client, anthropic):
    model = anthropic.model(stream(thinking_block("secret thought", "c2ln"), shell_block("echo hi")), text("ok"), text("ok"),
                            text("ok"))
    response = client.ask(model, "go", tools=[SHELL])
    go_on(server.client("far"), model, response, [SHELL])
    assert b"thinking" not in model.requests[-1].body and b"c2ln" not in model.requests[-1].body
    for item in items_of(response, "reasoning"):
        item["encrypted_content"] = item["encrypted_content"][:-4] + "AAAA"
    go_on(client, model, response, [SHELL])
    assert b"thinking" not in model.requests[-1].body
    check_rules(messages(model.requests[-1]))


def test_the_last_call_has_tools_off(client, anthropic):
    model = anthropic.model(stream(shell_block("echo 1", id="a")), text("enough"))
    response = client.ask(model, "go", tools=[SHELL], max_tool_calls=1)
    assert text_of(response) == "enough"
    assert model.requests[1].json["tool_choice"] == {"type": "none"} and model.requests[1].json["tools"]


def test_a_forced_call_is_forced_once(client, anthropic):
    model = anthropic.model(stream(shell_block("echo 1", id="a")), text("done"), prefix=MODEL)
    client.ask(model, "go", tools=[SHELL], tool_choice="required", parallel_tool_calls=False, reasoning={"effort": "low"})
    assert model.requests[0].json["tool_choice"] == {"type": "any", "disable_parallel_tool_use": True}
    assert "thinking" not in model.requests[0].json
    assert model.requests[1].json["tool_choice"] == {"type": "auto", "disable_parallel_tool_use": True}
    assert "thinking" not in model.requests[1].json  # the loop began without


# ---- settings and refusals ----

def test_settings_reach_the_provider(client, anthropic):
    schema = {"type": "object", "properties": {"z": {"type": "string"}, "a": {"type": "string"}}, "required": ["z", "a"],
              "additionalProperties": False}
    model = anthropic.model(text("{}"), prefix=MODEL)
    client.ask(model, max_output_tokens=77, temperature=1.5, top_p=0.5, safety_identifier="who",
               text={"format": {"type": "json_schema", "name": "n", "schema": schema, "strict": True}})
    body = model.requests[0].json
    assert (body["max_tokens"], body["temperature"], body["metadata"]) == (77, 1, {"user_id": "who"})
    assert "top_p" not in body  # these models take one of the two
    assert json.dumps(body["output_config"]) == json.dumps({"format": {"type": "json_schema", "schema": schema}})


@pytest.mark.parametrize("fields, word", [
    (dict(text={"format": {"type": "json_object"}}), "json_schema"),
    (dict(input=[{"role": "user", "content": [{"type": "input_image", "image_url": "data:image/svg+xml;base64,AAAA"}]}]),
     "image/png"),
    (dict(input=[{"role": "user", "content": [{"type": "input_file", "filename": "a.zip",
                                               "file_data": "data:application/zip;base64,UEs="}]}]), "PDF"),
], ids=["json_object", "svg", "zip"])
def test_what_cannot_be_said_is_an_error(client, anthropic, fields, word):
    model = anthropic.model(text("no"))
    answer = client.ask(model, **dict({"input": "x"}, **fields), expect=400)
    assert word in answer.error["message"] and not model.requests


# ---- errors ----

@pytest.mark.parametrize("status, type, message, expect", [
    (400, "invalid_request_error", "max_tokens: too many", 400),
    (400, "invalid_request_error", "prompt is too long: 9 tokens > 8 maximum", 400),
    (400, "invalid_request_error", "Your credit balance is too low", 502),
    (401, "authentication_error", "invalid x-api-key", 502),
    (404, "not_found_error", "model: nope", 404),
    (413, "request_too_large", "Request exceeds the maximum size", 413),
    (429, "rate_limit_error", "slow down", 429),
    (500, "api_error", "Internal server error", 502),
    (529, "overloaded_error", "Overloaded", 503),
])
def test_refusals_by_status(client, anthropic, status, type, message, expect):
    model = anthropic.model(lambda request: refused(status, type, message))
    model.repeated = model.replies[-1]
    answer = client.ask(model, expect=expect)
    if expect == status:
        assert message in answer.error["message"] or "context" in answer.error["message"]
    assert UPSTREAM_KEY not in answer.text


def test_an_error_in_the_stream(client, anthropic):
    def overloaded(request):
        return Reply([start(), b"".join(text_block("Half an ans")(0)[:-1]),
                      event("error", error={"type": "overloaded_error", "message": "Overloaded"})])

    story = client.stream(anthropic.model(overloaded))
    assert story.response["status"] == "failed" and "overloaded" in story.response["error"]["message"]
    assert story.response["usage"]["input_tokens"] == 10


def test_a_cut_stream_runs_nothing(client, anthropic):
    model = anthropic.model(stream(shell_block("touch ran"), cut=True), stream(shell_block("ls -A"), ), text("ok"))
    story = client.stream(model, tools=[SHELL], session_id="cut-anthropic")
    assert story.response["status"] == "failed"
    response = client.ask(model, tools=[SHELL], session_id="cut-anthropic")
    assert "ran" not in outputs_of(response)[0]["stdout"]


def test_a_stream_that_stalls_ends_as_an_error(client, anthropic):
    model = anthropic.model(Reply([start(), b"".join(text_block("Half")(0)[:-1]), Hold()]))
    story = client.stream(model, timeout=60)
    assert story.response["status"] == "failed"


def test_max_tokens_in_a_call_runs_nothing(client, anthropic):
    model = anthropic.model(stream(shell_block("touch ran"), reason="max_tokens"))
    response = client.ask(model, tools=[SHELL])
    assert response["status"] == "incomplete"
    assert response["incomplete_details"]["reason"] == "max_output_tokens"


def test_a_refusal_is_a_filter(client, anthropic):
    response = client.ask(anthropic.model(stream(text_block("I "), reason="refusal")))
    assert response["status"] == "incomplete"
    assert response["incomplete_details"]["reason"] == "content_filter"


def test_a_reply_that_pauses_goes_on(client, anthropic):
    model = anthropic.model(stream(text_block("First half,"), reason="pause_turn"), text(" second half."))
    response = client.ask(model)
    assert text_of(response) == "First half, second half."
    assert messages(model.requests[1])[1:] == [{"role": "assistant", "content": [{"type": "text", "text": "First half,"}]}]


# ---- the same dialect on both sides, with a tool of ours in between ----

CITED = {"type": "web_search_result_location", "url": "https://example.org", "title": "W", "encrypted_index": "eA==",
         "cited_text": "it is"}
SEARCHED = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [
    {"type": "web_search_result", "url": "https://example.org", "title": "Wé", "encrypted_content": "abc", "page_age": None}]}


def cited_block(text):
    return lambda i: block(i, {"type": "text", "text": "", "citations": []}, {"type": "text_delta", "text": text},
                           {"type": "citations_delta", "citation": CITED})


def search_blocks():
    return [lambda i: block(i, {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}},
                            {"type": "input_json_delta", "partial_json": '{"query": "w'},
                            {"type": "input_json_delta", "partial_json": 'eather"}'}),
            lambda i: block(i, SEARCHED)]


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_what_only_the_dialect_knows_survives_a_loop_of_ours(client, anthropic, streamed):
    api = Messages(client)
    api.headers["anthropic-beta"] = "a-2026-01-01,b-2026-01-01"
    model = anthropic.model(
        stream(thinking_block("Hm.", "c2ln"), redacted_block("cmVk"), *search_blocks(), cited_block("It is."),
               shell_block("echo 42", id="toolu_a")),
        stream(thinking_block("So.", "c2ln2"), text_block("42.")), text("Bye"), prefix=MODEL)
    more = {"tools": [{"type": "openrouter:shell"}, {"type": "web_search_20260209", "name": "web_search", "max_uses": 3},
                      {"name": "theirs", "input_schema": {"type": "object"}, "cache_control": {"type": "ephemeral"}}],
            "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
            "thinking": {"type": "enabled", "budget_tokens": 2000}, "max_tokens": 4000, "context_management": {"edits": []}}
    question = {"role": "user", "content": [{"type": "text", "text": "go", "cache_control": {"type": "ephemeral"}}]}
    ask = (lambda *a, **k: api.stream(*a, **k).message) if streamed else api.create
    message = ask(model, [question], **more)
    told = model.requests[1]
    assert told.headers["anthropic-beta"] == "a-2026-01-01,b-2026-01-01"
    body = told.json
    assert (body["thinking"], body["context_management"], body["max_tokens"]) == (more["thinking"], {"edits": []}, 4000)
    assert body["system"] == more["system"] and messages(told)[0] == question
    assert [t["name"] for t in body["tools"]] == ["shell", "web_search", "theirs"]
    assert body["tools"][1:] == more["tools"][1:]
    assert messages(told)[1]["content"] == [
        {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}, {"type": "redacted_thinking", "data": "cmVk"},
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "weather"}}, SEARCHED,
        {"type": "text", "text": "It is.", "citations": [CITED]},
        {"type": "tool_use", "id": "toolu_a", "name": "shell", "input": {"commands": ["echo 42"]}}]
    assert [b["type"] for b in message["content"]] == ["thinking", "redacted_thinking", "server_tool_use", "web_search_tool_result",
                                                       "text", "server_tool_use", "openrouter_shell_tool_result", "thinking", "text"]
    assert message["content"][0]["signature"] == "c2ln" and message["content"][4]["citations"] == [CITED]
    ask(model, [question, {"role": "assistant", "content": message["content"]}, {"role": "user", "content": "thanks"}], **more)
    again = model.requests[2]
    assert raw_list(again, "messages").startswith(raw_list(told, "messages") + b",")
    check_rules(messages(again))
    assert messages(again)[3]["content"][0] == {"type": "thinking", "thinking": "So.", "signature": "c2ln2"}


def test_a_native_tool_of_another_dialect_is_refused_by_name(client, anthropic):
    model = anthropic.model(text("no"))
    answer = client.ask(model, tools=[{"type": "code_interpreter", "container": {"type": "auto"}}], expect=400)
    assert "code_interpreter" in answer.error["message"] and not model.requests


def test_names_that_the_api_refuses_come_back_as_they_were(client, anthropic):
    """Gemini's clients may name a function with dots."""
    model = anthropic.model(lambda request: stream(call_block(request.json["tools"][0]["name"], {"a": 1})))
    answer = client.request("POST", "/v1beta/models/%s:generateContent" % model.name, {
        "contents": [{"role": "user", "parts": [{"text": "go"}]}],
        "tools": [{"functionDeclarations": [{"name": "files.read:all", "parameters": {"type": "OBJECT", "properties": {}}}]}]},
        {"x-goog-api-key": client.key})
    assert answer.status == 200, answer
    (part,) = answer.json["candidates"][0]["content"]["parts"]
    assert part["functionCall"]["name"] == "files.read:all" and part["functionCall"]["args"] == {"a": 1}
    (sent,) = model.requests[0].json["tools"]
    assert sent["name"].replace("_", "").isalnum() and sent["input_schema"]["type"] == "object"


@pytest.mark.parametrize("entry", [{"type": "openrouter:bash"}, {"type": "bash_20250124", "name": "bash"}], ids=["auto", "anthropic"])
def test_a_bash_of_the_clients_is_the_providers_own_type(client, anthropic, entry):
    model = anthropic.model(stream(call_block("bash", {"command": "ls"}, "toolu_b")))
    message = Messages(client).create(model, tools=[entry, {"type": "openrouter:shell"}])
    assert model.requests[0].json["tools"][0] == {"type": "bash_20250124", "name": "bash"}
    (made,) = [b for b in message["content"] if b["type"] == "tool_use"]
    assert (made["name"], made["input"]) == ("bash", {"command": "ls"})


def test_a_bash_of_ours_is_a_function(client, anthropic):
    model = anthropic.model(stream(call_block("bash", {"command": "x=4; cd /tmp"}, "toolu_1")),
                            stream(call_block("bash", {"command": "echo $x $PWD; exit 2"}, "toolu_2")), text("ok"))
    Messages(client).create(model, tools=[{"type": "openrouter:bash", "parameters": {"engine": "openrouter"}}])
    (sent,) = model.requests[0].json["tools"]
    assert sent["name"] == "bash" and "command" in sent["input_schema"]["properties"] and "type" not in sent
    (block,) = messages(model.requests[2])[-1]["content"]
    assert json.loads(block["content"]) == {"stdout": "4 /tmp\n", "stderr": "", "exitCode": 2}


def test_pings_keep_a_long_thought_alive(client, anthropic):
    """Thoughts that are not shown come as pings only, for longer than upstream_idle."""
    ping = [step for _ in range(10) for step in (event("ping"), Pause(0.5))]
    thought = thinking_block("", "c2ln")(0)
    model = anthropic.model(Reply([start(), thought[0]] + ping + [b"".join(thought[1:]), b"".join(text_block("done")(1))] + ending()))
    story = client.stream(model, timeout=60)
    assert text_of(story.response) == "done" and story.response["status"] == "completed"
