"""The Gemini API as clients speak it: generateContent and streamGenerateContent, on models of other dialects."""
import base64
import contextlib
import json
import os

import pytest

from brigtest import Client, wait_for
from fake_provider import Cut, Pause, Reply, call, calls, chunk, ending, error, shell, text, thinking

SHELL = {"brigShell": {}}
WEATHER = {"functionDeclarations": [{"name": "weather", "description": "Says it.", "parameters": {
    "type": "OBJECT", "properties": {"city": {"type": "STRING"}}, "required": ["city"]}}]}


@pytest.fixture
def google(server):
    return server.client(base="/v1beta")


def user(*parts):
    return {"role": "user", "parts": [{"text": p} if isinstance(p, str) else p for p in parts]}


def ask(google, model, contents="go", expect=200, headers=None, **fields):
    """generateContent. Returns the response, checked."""
    name = getattr(model, "name", model)
    contents = [user(contents)] if isinstance(contents, str) else contents
    answer = google.post("/models/%s:generateContent" % name, dict({"contents": contents}, **fields), headers=headers)
    assert answer.status == expect, answer
    assert answer.headers["content-type"] == "application/json"
    if expect != 200:
        return check_error(answer)
    check_response(answer.json, last=True)
    return answer.json


def check_error(answer):
    body = answer.json
    assert set(body) == {"error"} and body["error"]["code"] == answer.status, body
    assert isinstance(body["error"]["status"], str) and len(body["error"]["message"]) > 5
    return body["error"]


DATA = {"text", "functionCall", "executableCode", "codeExecutionResult", "inlineData", "fileData", "toolCall"}


def check_response(body, last):
    (candidate,) = body["candidates"]
    assert candidate["index"] == 0 and candidate["content"]["role"] == "model"
    for part in candidate["content"]["parts"]:
        assert len(DATA & set(part)) == 1, part
        if "thoughtSignature" in part:
            base64.b64decode(part["thoughtSignature"], validate=True)
    assert body["modelVersion"] and body["responseId"].startswith("gen-")
    assert ("finishReason" in candidate) == last and ("usageMetadata" in body) == last
    if last:
        usage = body["usageMetadata"]
        assert usage["totalTokenCount"] == (usage["promptTokenCount"] + usage["candidatesTokenCount"] +
                                            usage.get("thoughtsTokenCount", 0))


class Told:
    """A whole stream, checked."""

    def __init__(self, bodies):
        self.bodies = bodies
        self.failure = None
        if "error" in bodies[-1]:
            self.failure = bodies[-1]["error"]
            bodies = bodies[:-1]
        for i, body in enumerate(bodies):
            check_response(body, last=self.failure is None and i == len(bodies) - 1)
        self.parts = [p for b in bodies for p in b["candidates"][0]["content"]["parts"]]
        self.last = bodies[-1] if bodies else None

    @property
    def text(self):
        return text_of(self.parts)


def text_of(parts):
    return "".join(p["text"] for p in parts if "text" in p and not p.get("thought"))


def parts_of(response):
    return response["candidates"][0]["content"]["parts"]


def stream(google, model, contents="go", alt="?alt=sse", headers=None, **fields):
    name = getattr(model, "name", model)
    contents = [user(contents)] if isinstance(contents, str) else contents
    with contextlib.closing(google.open_stream("/models/%s:streamGenerateContent%s" % (name, alt),
                                               dict({"contents": contents}, **fields), headers)) as s:
        assert s.status == 200, s.body()
        raw = s.rest()
        if alt:
            assert s.response_headers["content-type"].startswith("text/event-stream")
            bodies = []
            for block in raw.decode().split("\n\n")[:-1]:
                if block.startswith(":"):
                    continue
                assert block.startswith("data: ") and "\n" not in block, block
                bodies.append(json.loads(block[6:]))
            assert raw.endswith(b"\n\n")
        else:
            assert s.response_headers["content-type"] == "application/json"
            bodies = json.loads(raw)
    return Told(bodies)


def shown(parts):
    """Parts without ids and signatures."""
    out = []
    for p in parts:
        p = json.loads(json.dumps(p))
        p.pop("thoughtSignature", None)
        for kind in ("executableCode", "codeExecutionResult", "functionCall"):
            p.get(kind, {}).pop("id", None)
        if p != {"text": ""}:
            out.append(p)
    return out


def code(text):
    return {"executableCode": {"language": "LANGUAGE_UNSPECIFIED", "code": text}}


def ran(output, outcome="OUTCOME_OK"):
    return {"codeExecutionResult": {"outcome": outcome, "output": output}}


# ---- text ----

@pytest.mark.parametrize("alt", ["?alt=sse", ""], ids=["sse", "array"])
def test_text_streamed(google, provider, alt):
    model = provider.model(text("Grüße 😀", pieces=3, usage=(10, 7, 4, 2)))
    told = stream(google, model, alt=alt, systemInstruction={"parts": [{"text": "Be brief."}]})
    assert told.text == "Grüße 😀"
    assert told.last["candidates"][0]["finishReason"] == "STOP"
    assert told.last["usageMetadata"] == {
        "promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 17, "cachedContentTokenCount": 4,
        "thoughtsTokenCount": 2, "cost": 0, "is_byok": False, "cost_details": {
            "upstream_inference_cost": None, "upstream_inference_input_cost": 0, "upstream_inference_output_cost": 0}}
    assert told.last["modelVersion"] == model.name
    assert model.requests[0].messages == [{"role": "system", "content": "Be brief."},
                                          {"role": "user", "content": "go"}]


def test_text_whole(google, provider):
    response = ask(google, provider.model(text("one")))
    assert parts_of(response) == [{"text": "one"}]


@pytest.mark.parametrize("headers", [{"x-goog-api-key": "KEY"}, {"Authorization": "Bearer KEY"}, None])
def test_keys(server, provider, headers):
    client = Client(server)
    key, client.key = client.key, None
    path = "/v1beta/models/%s:generateContent" % provider.model(text("hi")).name
    body = {"contents": user("x")}
    if headers is None:
        answer = client.request("POST", path + "?key=" + key, body)
    else:
        answer = client.request("POST", path, body, {k: v.replace("KEY", key) for k, v in headers.items()})
    assert answer.status == 200, answer
    refused = client.request("POST", path, body)
    assert refused.status in (400, 401) and check_error(refused)


def test_long_text_is_whole(google, provider):
    long = "äöü\"\\\n" * 100000
    model = provider.model(text(long, pieces=7), text(long))
    assert stream(google, model).text == long
    assert text_of(parts_of(ask(google, model))) == long


def test_settings_reach_another_dialect(google, provider):
    model = provider.model(text("ok"))
    ask(google, model, generation_config={
        "temperature": 1.0, "topP": 0.5, "top_k": 7, "maxOutputTokens": 99, "stopSequences": ["END"], "seed": 12345678901,
        "presencePenalty": 0.25, "frequencyPenalty": 0.5, "responseMimeType": "application/json",
        "responseSchema": {"type": "OBJECT", "properties": {"zebra": {"type": "STRING", "minLength": "2"},
                                                            "apple": {"type": "INTEGER"}}},
        "thinkingConfig": {"thinkingLevel": "LOW"}}, safetySettings=[{"category": "X", "threshold": "OFF"}])
    asked = model.requests[0]
    assert b'"temperature":1.0' in asked.body
    body = asked.json
    assert (body["top_p"], body["top_k"], body["max_tokens"], body["stop"], body["seed"]) == (
        0.5, 7, 99, ["END"], 12345678901)
    assert body["reasoning_effort"] == "low" and "safetySettings" not in body
    assert asked.body.index(b"zebra") < asked.body.index(b"apple")
    assert body["response_format"]["json_schema"]["schema"] == {
        "type": "object", "properties": {"zebra": {"type": "string", "minLength": 2}, "apple": {"type": "integer"}}}


def test_images_and_files(google, provider):
    model = provider.model(text("ok"))
    ask(google, model, [user("what?", {"inline_data": {"mime_type": "image/png", "data": "iVBORw=="}},
                             {"inlineData": {"mimeType": "application/pdf", "data": "JVBERi0="}},
                             {"fileData": {"mimeType": "image/jpeg", "fileUri": "https://example.com/a.jpg"}})])
    (message,) = model.requests[0].messages
    assert message["content"] == [
        {"type": "text", "text": "what?"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw=="}},
        {"type": "file", "file": {"filename": "document.pdf", "file_data": "data:application/pdf;base64,JVBERi0="}},
        {"type": "image_url", "image_url": {"url": "https://example.com/a.jpg"}}]


# ---- functions ----

@pytest.mark.parametrize("streamed", [False, True])
def test_parallel_functions_and_their_answers(google, provider, streamed):
    model = provider.model(calls(call("weather", {"city": "Rome"}, id="a"), call("weather", {"city": "Oslo"}, id="b")),
                           text("Both."))
    if streamed:
        parts = stream(google, model, tools=[WEATHER]).parts
    else:
        parts = parts_of(ask(google, model, tools=[WEATHER]))
    called = [p["functionCall"] for p in parts if "functionCall" in p]
    assert called == [{"id": "a", "name": "weather", "args": {"city": "Rome"}},
                      {"id": "b", "name": "weather", "args": {"city": "Oslo"}}]
    assert model.requests[0].json["tools"] == [{"type": "function", "function": {
        "name": "weather", "description": "Says it.", "parameters": {
            "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}]
    answers = [{"functionResponse": {"id": "b", "name": "weather", "response": {"output": "snow"}}},
               {"functionResponse": {"id": "a", "name": "weather", "response": {"deg": 30, "sun": True}}}]
    ask(google, model, [user("go"), {"role": "model", "parts": parts}, user(*answers)], tools=[WEATHER])
    assert [(m["role"], m.get("tool_call_id"), m["content"]) for m in model.requests[1].messages[1:]] == [
        ("assistant", None, None), ("tool", "a", '{"deg": 30, "sun": true}'), ("tool", "b", "snow")]


def test_answers_without_ids_go_by_name_and_order(google, provider):
    model = provider.model(text("ok"))
    made = [{"functionCall": {"name": "weather", "args": {"city": c}}} for c in ("Rome", "Oslo")]
    answers = [{"functionResponse": {"name": "weather", "response": {"result": r}}} for r in ("sun", "snow")]
    ask(google, model, [user("go"), {"role": "model", "parts": made}, {"role": "function", "parts": answers},
                        user("and?")], tools=[WEATHER])
    asked, first, second, more = model.requests[0].messages[1:]
    ids = [c["id"] for c in asked["tool_calls"]]
    assert len(set(ids)) == 2
    assert [(first["tool_call_id"], first["content"]), (second["tool_call_id"], second["content"])] == [
        (ids[0], "sun"), (ids[1], "snow")]
    assert more == {"role": "user", "content": "and?"}


@pytest.mark.parametrize("config, sent", [
    ({"mode": "ANY"}, "required"), ({"mode": "NONE"}, "none"), ({"mode": "AUTO"}, None),
    ({"mode": "ANY", "allowedFunctionNames": ["weather"]}, {"type": "function", "function": {"name": "weather"}}),
])
def test_which_functions_may_be_called(google, provider, config, sent):
    model = provider.model(text("ok"))
    ask(google, model, tools=[WEATHER], toolConfig={"functionCallingConfig": config})
    assert model.requests[0].json.get("tool_choice") == sent


def test_an_answer_to_nothing_is_refused(google, provider):
    model = provider.model()
    answer = {"functionResponse": {"id": "x", "name": "weather", "response": {}}}
    assert "functionResponse" in ask(google, model, [user(answer)], expect=400)["message"]
    lonely = {"role": "model", "parts": [{"functionCall": {"name": "weather", "args": {}}}]}
    assert "weather" in ask(google, model, [user("x"), lonely, user("y")], expect=400)["message"]
    assert not model.requests


def test_a_tool_of_googles_own_needs_a_model_of_googles(google, provider):
    model = provider.model()
    failure = ask(google, model, tools=[{"codeExecution": {}}], expect=400)
    assert "codeExecution" in failure["message"]
    assert not model.requests


# ---- the shell ----

@pytest.mark.parametrize("streamed", [False, True])
def test_a_shell_loop_and_its_replay(google, provider, streamed):
    model = provider.model(calls(shell("echo 42", id="c1"), usage=(10, 1)),
                           calls(shell("echo oops >&2; exit 3", "cat f; echo ok > f", id="c2", timeout_ms=9000)),
                           text("Done."), calls(shell("cat f", id="c3")), text("Bye."))
    if streamed:
        parts = stream(google, model, tools=[SHELL]).parts
    else:
        parts = parts_of(ask(google, model, tools=[SHELL]))
    assert shown(parts) == [
        code("echo 42"), ran("42\n"),
        code("# brig: timeout_ms=9000 commands=21,18\necho oops >&2; exit 3\ncat f; echo ok > f"),
        ran("oops\n[exit code 3; stdout 0 bytes, stderr 5 bytes]", "OUTCOME_FAILED"),
        ran("cat: f: No such file or directory\n[exit code 0; stdout 0 bytes, stderr 34 bytes]"),
        {"text": "Done."}]
    ids = [p[k]["id"] for p in parts for k in ("executableCode", "codeExecutionResult") if k in p]
    assert len(set(ids)) == 2 and ids[0] == ids[1] and ids[2] == ids[3] == ids[4]

    told = stream(google, model, [user("go"), {"role": "model", "parts": parts}, user("more")], tools=[SHELL])
    before, after = model.requests[2].messages, model.requests[3].messages
    assert after[:len(before)] == before
    assert model.requests[3].body.startswith(model.requests[2].body.partition(b'],"tools"')[0])
    # The same container: the file is there.
    assert shown(told.parts)[:2] == [code("cat f"), ran("ok\n")]


def test_a_call_that_is_refused_is_replayed_as_it_was(google, provider):
    model = provider.model(calls(call("shell", '{"commands": [}', id="c1")), text("Sorry."), text("Fine."))
    parts = parts_of(ask(google, model, tools=[SHELL]))
    (made, failed, said) = shown(parts)
    assert made == code('# brig: arguments\n{"commands": [}')
    assert failed["codeExecutionResult"]["outcome"] == "OUTCOME_FAILED"
    assert failed["codeExecutionResult"]["output"].endswith("\n[error]")
    ask(google, model, [user("go"), {"role": "model", "parts": parts}, user("ok")], tools=[SHELL])
    before, after = model.requests[1].messages, model.requests[2].messages
    assert after[:len(before)] == before


def test_clients_that_keep_only_what_they_know(google, provider):
    """Each event a content of its own, no ids, and JSON written anew."""
    model = provider.model(calls(shell("echo a; echo b >&2", id="c1"), content="Look: "), text("So.", pieces=3), text("x"))
    told = stream(google, model, tools=[SHELL])
    contents = [user("go")]
    for part in told.parts:
        part = json.loads(json.dumps(part))
        part.get("executableCode", {}).pop("id", None)
        part.get("codeExecutionResult", {}).pop("id", None)
        contents.append({"parts": [part], "role": "model"})
    ask(google, model, contents + [user("on")], tools=[SHELL])
    last = model.requests[2].messages
    assert [m["role"] for m in last] == ["user", "assistant", "tool", "assistant", "user"]
    assert last[1]["content"] == "Look: " and last[3]["content"] == "So."
    assert last[2]["content"] == model.requests[1].messages[2]["content"]


def test_the_shells_own_settings(google, provider):
    model = provider.model(calls(shell("yes | head -c 5000")), text("ok"))
    parts = parts_of(ask(google, model, tools=[{"brigShell": {
        "maxOutputLength": 100, "environment": {"type": "container_reference", "containerId": "gem-1"}}}]))
    assert parts[0]["executableCode"]["id"].endswith(".gem-1")
    assert len(parts[1]["codeExecutionResult"]["output"]) <= 100
    failure = ask(google, model, tools=[{"brigShell": {"timeoutMs": "x"}}], expect=400)
    assert "timeout_ms" in failure["message"]
    failure = ask(google, model, tools=[SHELL, SHELL], expect=400)
    assert "shell" in failure["message"]


def test_a_session_keeps_its_container(google, provider):
    model = provider.model(calls(shell("echo kept > k")), text("ok"), calls(shell("cat k")), text("ok"))
    ask(google, model, tools=[SHELL], sessionId="gem-session")
    parts = parts_of(ask(google, model, tools=[SHELL], sessionId="gem-session"))
    assert shown(parts)[1] == ran("kept\n")


def test_brig_script(google):
    told = stream(google, "brig/script", "```\necho $((1+1))\n```", tools=[SHELL])
    assert ran("2\n") in shown(told.parts)


# ---- thoughts ----

def test_thoughts_come_back_sealed_and_go_up_again(google, provider):
    details = [{"type": "reasoning.text", "text": "Hm.", "signature": "s1", "index": 0}]
    model = provider.model(thinking("Hm.", "Yes.", details=details), text("ok"))
    told = stream(google, model)
    assert told.parts[0] == {"text": "Hm.", "thought": True}
    assert told.parts[1]["thought"] and told.parts[1]["text"] == "" and told.parts[1]["thoughtSignature"]
    ask(google, model, [user("go"), {"role": "model", "parts": told.parts}, user("on")])
    assert model.requests[1].messages[1]["reasoning_details"] == details


# ---- a quiet model, and clients that go ----

@pytest.mark.parametrize("alt", ["?alt=sse", ""], ids=["sse", "array"])
def test_a_quiet_stream_is_kept_open(make_server, provider, alt):
    google = make_server(config={"limits": {"keepalive": "100ms"}}).start().client(base="/v1beta")
    model = provider.model(Reply([chunk({"role": "assistant"}), chunk({"content": "a"}), Pause(1.5),
                                  chunk({"content": "b"})] + ending("stop")))
    with contextlib.closing(google.open_stream("/models/%s:streamGenerateContent%s" % (model.name, alt),
                                               {"contents": user("x")})) as s:
        raw = s.rest()
    if alt:
        blocks = raw.split(b"\n\n")
        assert blocks.count(b": ping") >= 2 and all(b.startswith(b"data: {") for b in blocks if b not in (b": ping", b""))
    else:
        bodies = json.loads(raw)
        assert b"}\n\n" in raw
        assert "".join(p["text"] for b in bodies for p in parts_of(b)) == "ab"


@pytest.mark.parametrize("method", ["generateContent", "streamGenerateContent?alt=sse"])
def test_a_client_that_goes_ends_the_command(server, google, provider, method):
    mark = "7%d%d" % (os.getpid(), "stream" in method)
    model = provider.model(calls(shell("sleep " + mark)))
    s = google.open_stream("/models/%s:%s" % (model.name, method), {"contents": user("x"), "tools": [SHELL]})
    wait_for(lambda: server.guests("sleep " + mark))
    s.reset()
    wait_for(lambda: not server.guests("sleep " + mark))


# ---- what goes wrong ----

def test_an_upstreams_refusal(google, provider):
    model = provider.model(error(429, {"error": {"message": "slow down"}}, [("Retry-After", "7")]))
    failure = ask(google, model, expect=429)
    assert failure["status"] == "RESOURCE_EXHAUSTED" and "slow down" in failure["message"]


@pytest.mark.parametrize("alt", ["?alt=sse", ""], ids=["sse", "array"])
def test_a_cut_stream_ends_with_an_error(google, provider, alt):
    model = provider.model(Reply([chunk({"role": "assistant"}), chunk({"content": "Half"}), Cut()]))
    told = stream(google, model, alt=alt)
    assert told.text == "Half" and told.failure["code"] in (502, 503, 500), told.failure


def test_length_and_filter(google, provider):
    assert stream(google, provider.model(text("cut", finish="length"))).last["candidates"][0][
        "finishReason"] == "MAX_TOKENS"
    assert ask(google, provider.model(text("no", finish="content_filter")))["candidates"][0]["finishReason"] == "SAFETY"


@pytest.mark.parametrize("body, says", [
    ({}, "contents"), ({"contents": []}, "contents"), ({"contents": 5}, "contents"),
    ({"contents": [{"role": "system", "parts": [{"text": "x"}]}]}, "role"),
    ({"contents": [{"parts": ["x"]}]}, "parts[0]"), ({"contents": [{"parts": [{"text": 5}]}]}, "text"),
    ({"contents": [user("x")], "tools": {}}, "tools"), ({"contents": [user("x")], "tools": [5]}, "tools[0]"),
    ({"contents": [user("x")], "tools": [{"brigShell": {}}, {}]}, "tools[1] names no tool"),
    ({"contents": [user("x")], "tools": [{"type": "openrouter:shell"}]}, "brigShell"),
    ({"contents": [user("x")], "tools": [{"functionDeclarations": [{"name": "a b"}]}]}, "name"),
    ({"contents": [user("x")], "generationConfig": {"temperature": 3}}, "temperature"),
    ({"contents": [user("x")], "generationConfig": {"stopSequences": "x"}}, "stopSequences"),
    ({"contents": [user("x")], "toolConfig": {"functionCallingConfig": {"mode": "SOME"}}}, "SOME"),
    (b"{", "JSON"), (b'{"contents":[],"contents":[]}', "contents"), (b"[]", "object"),
])
def test_bad_requests(google, provider, body, says):
    model = provider.model()
    answer = google.post("/models/%s:generateContent" % model.name, body)
    assert answer.status == 400, answer
    failure = check_error(answer)
    assert failure["status"] == "INVALID_ARGUMENT" and says in failure["message"], failure
    assert not model.requests


def test_unknown_models_and_methods(google):
    assert ask(google, "nobody/nothing", expect=404)["status"] == "NOT_FOUND"
    answer = google.post("/models/fake/x:embedContent", {})
    assert answer.status == 404 and check_error(answer)


# ---- counting ----

def count(google, model, body, expect=200):
    answer = google.post("/models/%s:countTokens" % getattr(model, "name", model), body)
    assert answer.status == expect, answer
    return answer.json if expect == 200 else check_error(answer)


def test_tokens_are_estimated_where_the_provider_cannot_count(google, provider):
    model = provider.model()
    few = count(google, model, {"contents": [user("hi")]})
    many = count(google, model, {"generateContentRequest": {
        "model": "models/x", "systemInstruction": {"parts": [{"text": "word " * 200}]}, "contents": [user("hi")]}})
    assert few["estimated"] is True and 0 < few["totalTokens"] < 50
    assert many["totalTokens"] > few["totalTokens"] + 100
    assert not model.requests
    assert "contents" in count(google, model, {}, expect=400)["message"]
