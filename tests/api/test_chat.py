"""The Chat Completions API for models that are served in another dialect, where it is translated. (test_relay.py: the same one.)"""
import contextlib
import json

import pytest

import brigtest
from dialects import PNG, SERVED, Fail, Say, event
from fake_provider import Cut, Pause, Reply

OTHERS = [name for name in SERVED if name != "chat"]
SIGNATURE = "c2lnbmF0dXJlIG9mIGEgdGhvdWdodA=="
WEATHER = {"type": "function", "function": {"name": "weather", "description": "of a city", "strict": True, "parameters": {
    "type": "object", "properties": {"zebra": {"type": "string"}, "apple": {"type": "number"}}, "required": ["zebra", "apple"],
    "additionalProperties": False}}}


@pytest.fixture(scope="module")
def server(upstream):
    import conftest
    yield from conftest.run(brigtest.Server(None, config={
        "sandbox": False, "providers": upstream.config(), "limits": {"keepalive": "300ms"}}))


def ask(server, model, messages="hi", base="/v1", **fields):
    if isinstance(messages, str):
        messages = [{"role": "user", "content": messages}]
    return server.client(base=base).post("/chat/completions", dict({
        "model": getattr(model, "asked", model), "messages": messages}, **fields))


def events(body):
    """The data of a stream's events, "[DONE]" as it is. Frames are exactly as OpenAI writes them."""
    assert body.endswith(b"\n\n"), body[-200:]
    out = []
    for frame in body[:-2].split(b"\n\n"):
        while frame.startswith(b": ping\n"):
            frame = frame[len(b": ping\n"):]
        assert frame.startswith(b"data: ") and b"\n" not in frame, frame
        out.append("[DONE]" if frame == b"data: [DONE]" else json.loads(frame[6:]))
    return out


def stream(server, model, messages="hi", base="/v1", **fields):
    answer = ask(server, model, messages, base, stream=True, **fields)
    assert answer.status == 200, answer
    assert answer.headers["content-type"].startswith("text/event-stream")
    chunks = events(answer.body)
    good = [c for c in chunks if c != "[DONE]"]
    assert len({c["id"] for c in good}) == 1 and good[0]["id"].startswith("gen-")
    assert {c["object"] for c in good} == {"chat.completion.chunk"}
    assert good[0]["choices"][0]["delta"]["role"] == "assistant"
    assert all("role" not in c["choices"][0]["delta"] for c in good[1:] if c["choices"])
    return chunks


def joined(chunks, key):
    return "".join(c["choices"][0]["delta"].get(key) or "" for c in chunks if c != "[DONE]" and c["choices"])


# ---- answers ----

@pytest.mark.parametrize("served", OTHERS)
def test_whole(server, upstream, served):
    model = upstream.says(served, Say("Hello there.", usage=(11, 7)))
    answer = ask(server, model)
    assert answer.status == 200, answer
    body = answer.json
    assert body["object"] == "chat.completion" and body["id"] == answer.headers["x-generation-id"]
    assert body["model"] == model.asked and body["provider"] == "up-" + served
    assert body["choices"] == [{"index": 0, "message": {"role": "assistant", "content": "Hello there.", "refusal": None},
                                "finish_reason": "stop", "logprobs": None}]
    usage = body["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (11, 7, 18)
    assert usage["prompt_tokens_details"]["cached_tokens"] == 0


@pytest.mark.parametrize("served", OTHERS)
def test_streamed(server, upstream, served):
    model = upstream.says(served, Say("Hello there."))
    chunks = stream(server, model)
    assert chunks[-1] == "[DONE]" and joined(chunks, "content") == "Hello there."
    assert [c["choices"][0]["finish_reason"] for c in chunks[:-1]] == [None] * (len(chunks) - 2) + ["stop"]
    assert not any("usage" in c for c in chunks[:-1])


@pytest.mark.parametrize("served", OTHERS)
def test_usage_comes_where_it_was_asked_for(server, upstream, served):
    model = upstream.says(served, Say("Hello there.", usage=(11, 7)))
    chunks = stream(server, model, stream_options={"include_usage": True})
    assert chunks[-1] == "[DONE]" and chunks[-2]["choices"] == []
    assert chunks[-2]["usage"]["prompt_tokens"] == 11 and chunks[-2]["usage"]["completion_tokens"] == 7
    assert all(c["usage"] is None for c in chunks[:-2])


@pytest.mark.parametrize("served", OTHERS)
def test_calls(server, upstream, served):
    say = Say("Both.", calls=[("weather", {"zebra": "Rome", "apple": 1.5}), ("weather", {"zebra": "\u00e9", "apple": 2})])
    model = upstream.says(served, say, say, Say("Done."))
    whole = ask(server, model, tools=[WEATHER]).json["choices"][0]
    assert whole["finish_reason"] == "tool_calls" and whole["message"]["content"] == "Both."
    calls = whole["message"]["tool_calls"]
    assert [(c["type"], c["function"]["name"], json.loads(c["function"]["arguments"])) for c in calls] == [
        ("function", n, a) for n, a in say.calls]
    chunks = stream(server, model, tools=[WEATHER])
    assert chunks[-2]["choices"][0]["finish_reason"] == "tool_calls"
    parts = [t for c in chunks[:-1] for t in c["choices"][0]["delta"].get("tool_calls", ())]
    for index in (0, 1):
        mine = [t for t in parts if t["index"] == index]
        assert mine[0]["id"] and mine[0]["type"] == "function" and mine[0]["function"]["name"] == "weather"
        assert all(set(t) == {"index", "function"} and set(t["function"]) == {"arguments"} for t in mine[1:])
        assert json.loads("".join(t["function"]["arguments"] for t in mine)) == say.calls[index][1]
    answer = ask(server, model, [{"role": "user", "content": "hi"}, whole["message"]] + [
        {"role": "tool", "tool_call_id": c["id"], "content": "result %d" % i} for i, c in enumerate(calls)], tools=[WEATHER])
    assert answer.json["choices"][0]["message"]["content"] == "Done."
    seen = SERVED[served].seen(model.requests[2])
    assert [s for s in seen if s[0] == "result"] == [("result", "result 0"), ("result", "result 1")]


@pytest.mark.parametrize("served", OTHERS)
def test_schemas_keep_their_order(server, upstream, served):
    model = upstream.says(served, Say("{}"))
    assert ask(server, model, tools=[WEATHER]).status == 200
    sent = model.requests[0].body
    assert sent.index(b'"zebra"') < sent.index(b'"apple"')


# ---- reasoning ----

@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_reasoning_and_its_state(server, upstream, streamed):
    model = upstream.says("messages", Say("So.", thinking="Let me see.", signature=SIGNATURE), Say("Done."))
    question = [{"role": "user", "content": "hi"}]
    if streamed:
        chunks = stream(server, model, question)
        assert joined(chunks, "reasoning") == "Let me see." and joined(chunks, "content") == "So."
        details = [d for c in chunks[:-1] for d in c["choices"][0]["delta"].get("reasoning_details", ())]
        assert {d["index"] for d in details} == {0}
        message = {"role": "assistant", "content": "So.", "reasoning_details": details}
    else:
        message = ask(server, model, question).json["choices"][0]["message"]
        assert message["reasoning"] == "Let me see."
    details = message["reasoning_details"]
    assert "".join(d.get("text", "") + d.get("summary", "") for d in details) == "Let me see."
    assert [d.get("signature") or d.get("data") for d in details if "signature" in d or "data" in d][0].startswith("brig1.")
    assert ask(server, model, question + [message, {"role": "user", "content": "go on"}]).status == 200
    assert ("thinking", "Let me see.", SIGNATURE) in SERVED["messages"].seen(model.requests[1])


def test_reasoning_can_be_left_out(server, upstream):
    say = Say("So.", thinking="Let me see.", signature=SIGNATURE)
    model = upstream.says("messages", say, say)
    message = ask(server, model, reasoning={"exclude": True}).json["choices"][0]["message"]
    assert "reasoning" not in message and not any("text" in d for d in message.get("reasoning_details", ()))
    assert joined(stream(server, model, reasoning={"exclude": True}), "reasoning") == ""


def test_effort(server, upstream):
    model = upstream.says("responses", Say("a"), Say("b"))
    assert ask(server, model, reasoning_effort="low").status == 200
    assert model.requests[0].json["reasoning"]["effort"] == "low"
    assert ask(server, model, reasoning={"effort": "high"}).status == 200
    assert model.requests[1].json["reasoning"]["effort"] == "high"


# ---- requests ----

def test_messages_of_all_kinds(server, upstream):
    model = upstream.says("messages", Say("ok"))
    answer = ask(server, model, [
        {"role": "system", "content": "one"}, {"role": "developer", "content": [{"type": "text", "text": "two"}]},
        {"role": "user", "name": "bob", "content": [
            {"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64," + PNG}},
            {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0="}}]},
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"zebra":"x"}'}}]},
        {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "sunny"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "It is sunny."}], "refusal": None},
        {"role": "user", "content": "thanks"}], tools=[WEATHER])
    assert answer.status == 200, answer
    sent = model.requests[0]
    document = sent.json["messages"][0]["content"].pop(2)
    assert document["type"] == "document" and document["source"]["data"] == "JVBERi0="
    sent.body = json.dumps(sent.json | {"messages": [dict(m, content=[b for b in m["content"] if b["type"] != "document"])
                                                     if isinstance(m["content"], list) else m
                                                     for m in sent.json["messages"]]}).encode()
    seen = SERVED["messages"].seen(sent)
    assert ("system", "one") in seen and ("system", "two") in seen
    assert [s for s in seen if s[0] not in ("system", "other")][:2] == [("user", "look"), ("image", "image/png", PNG)]
    assert ("call", "weather", {"zebra": "x"}, None) in seen and ("result", "sunny") in seen
    assert seen[-2:] == [("text", "It is sunny."), ("user", "thanks")]


def test_old_functions(server, upstream):
    say = Say(calls=[("weather", {"zebra": "Rome"})])
    model = upstream.says("responses", say, say, Say("Done."))
    functions = [WEATHER["function"]]
    choice = ask(server, model, functions=functions, function_call="auto").json["choices"][0]
    assert choice["finish_reason"] == "function_call" and "tool_calls" not in choice["message"]
    call = choice["message"]["function_call"]
    assert call["name"] == "weather" and json.loads(call["arguments"]) == {"zebra": "Rome"}
    chunks = stream(server, model, functions=functions)
    parts = [c["choices"][0]["delta"]["function_call"] for c in chunks[:-1] if "function_call" in c["choices"][0]["delta"]]
    assert parts[0]["name"] == "weather" and json.loads("".join(p["arguments"] for p in parts)) == {"zebra": "Rome"}
    assert chunks[-2]["choices"][0]["finish_reason"] == "function_call"
    answer = ask(server, model, [{"role": "user", "content": "hi"}, choice["message"],
                                 {"role": "function", "name": "weather", "content": "sunny"}], functions=functions)
    assert answer.json["choices"][0]["message"]["content"] == "Done."
    assert ("result", "sunny") in SERVED["responses"].seen(model.requests[2])


def test_settings(server, upstream):
    model = upstream.says("responses", Say("{}"))
    schema = {"type": "object", "properties": {"zebra": {"type": "string"}, "apple": {"type": "string"}},
              "required": ["zebra", "apple"], "additionalProperties": False}
    answer = ask(server, model, max_tokens=7, temperature=1.0, top_p=0.5, parallel_tool_calls=False, tools=[WEATHER],
                 tool_choice={"type": "function", "function": {"name": "weather"}}, response_format={
                     "type": "json_schema", "json_schema": {"name": "n", "strict": True, "schema": schema}})
    assert answer.status == 200, answer
    body = model.requests[0].json
    assert body["max_output_tokens"] == 7 and body["temperature"] == 1.0 and body["top_p"] == 0.5
    assert body["parallel_tool_calls"] is False
    assert body["tool_choice"] == {"type": "function", "name": "weather"}
    assert body["text"]["format"] == {"type": "json_schema", "name": "n", "strict": True, "schema": schema}
    assert b'"temperature":1.0' in model.requests[0].body


@pytest.mark.parametrize("given, counts", [({"max_completion_tokens": 5, "max_tokens": 9}, 5), ({"max_tokens": 9}, 9)])
def test_token_limits(server, upstream, given, counts):
    model = upstream.says("messages", Say("a"))
    assert ask(server, model, **given).status == 200
    assert model.requests[0].json["max_tokens"] == counts


# ---- what is refused ----

@pytest.mark.parametrize("base", ["/api/v1", "/v1"])
@pytest.mark.parametrize("type", ["openrouter:shell", "brig:shell", "shell", "local_shell"])
def test_shells_are_for_other_apis(server, upstream, type, base):
    answer = ask(server, "up-chat/none", base=base, tools=[{"type": type}])
    assert answer.status == 400
    error = answer.error
    assert error["message"] == ("The tool type '%s' is not supported on the Chat Completions API. Use it on the Responses API "
                                "(POST /responses) or the Messages API (POST /messages)." % type)
    assert error["param"] == "tools[0].type" and error["type"] == "invalid_request_error"
    assert error["code"] == (400 if base == "/api/v1" else "unsupported_value")


@pytest.mark.parametrize("type", ["openrouter:bash", "brig:bash", "bash_20250124", "bash"])
def test_bash_is_for_messages(server, upstream, type):
    answer = ask(server, "up-chat/none", tools=[WEATHER, {"type": type, "name": "bash"}])
    assert answer.status == 400 and answer.error["param"] == "tools[1].type"
    assert answer.error["message"] == ("The tool type '%s' is not supported on the Chat Completions API. Use it on the Messages "
                                       "API (POST /messages)." % type)


CALL = {"role": "assistant", "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}


@pytest.mark.parametrize("fields, param", [
    ({"messages": None}, "messages"), ({"messages": []}, "messages"), ({"messages": [1]}, "messages[0]"),
    ({"messages": [{"content": "x"}]}, "messages[0].role"), ({"messages": [{"role": "me", "content": "x"}]}, "messages[0].role"),
    ({"messages": [{"role": "user"}]}, "messages[0].content"), ({"messages": [{"role": "user", "content": 1}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]}, "messages[0].content[0].image_url.url"),
    ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].tool_call_id"),
    ({"messages": [CALL, {"role": "tool", "tool_call_id": "other", "content": "x"}]}, "messages[1].tool_call_id"),
    ({"messages": [{"role": "function", "name": "f", "content": "x"}]}, "messages[0].role"),
    ({"messages": [{"role": "assistant", "tool_calls": [{"id": "", "function": {"name": "f"}}]}]}, "messages[0].tool_calls[0].id"),
    ({"messages": [{"role": "assistant", "tool_calls": [{"id": "c", "function": {}}]}]}, "messages[0].tool_calls[0].function.name"),
    ({"temperature": "hot"}, "temperature"), ({"stream": "yes"}, "stream"), ({"stop": [1]}, "stop"),
    ({"tools": [{"type": "function"}]}, "tools[0].function"), ({"tools": [WEATHER, WEATHER]}, "tools[1].function.name"),
    ({"tools": [WEATHER], "tool_choice": "always"}, "tool_choice"),
    ({"tools": [WEATHER], "tool_choice": {"type": "function", "function": {"name": "no"}}}, "tool_choice.function.name"),
    ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
])
def test_mistakes_are_named(server, upstream, fields, param):
    answer = ask(server, "up-messages/none", **fields)
    assert answer.status == 400, answer
    assert answer.error["param"] == param and answer.error["message"]


@pytest.mark.parametrize("fields, param", [
    ({"n": 2}, "n"), ({"logprobs": True}, "logprobs"), ({"modalities": ["text", "audio"]}, "modalities"),
    ({"logit_bias": {"5": 1}}, "logit_bias"), ({"web_search_options": {"search_context_size": "low"}}, "web_search_options"),
    ({"tools": [{"type": "custom", "custom": {"name": "x"}}]}, "tools[0].type"),
    ({"messages": [{"role": "user", "content": [{"type": "video_url", "video_url": {"url": "x"}}]}]}, "messages[0].content[0].type"),
])
def test_only_chat_providers_do_this(server, upstream, fields, param):
    model = upstream.says("messages", Say("never"))
    answer = ask(server, model, **fields)
    assert answer.status == 400 and answer.error["param"] == param, answer
    assert not model.requests
    chat = upstream.says("chat", Say("hello"))
    assert ask(server, chat, **fields).status == 200  # the client's own bytes


def test_what_one_target_cannot_another_may(server, upstream):
    cannot, can = upstream.says("messages", Say("never")), upstream.says("chat", Say("hello"))
    answer = ask(server, cannot, n=2, models=[can.asked])
    assert answer.status == 200 and answer.json["model"] == can.asked, answer
    assert not cannot.requests and can.requests[0].json["n"] == 2


@pytest.mark.parametrize("served", OTHERS)
def test_a_refusal_of_the_provider(server, upstream, served):
    model = upstream.says(served, Fail(400, "too much"))
    answer = ask(server, model, stream=True)
    assert answer.status == 400 and "too much" in answer.error["message"] and answer.error["type"] == "invalid_request_error"


@pytest.mark.parametrize("served", OTHERS)
def test_a_cut_stream(server, upstream, served):
    model = upstream.says(served, Say("Half of it", cut=True))
    answer = ask(server, model, stream=True)
    assert answer.status == 200
    chunks = events(answer.body)
    assert "[DONE]" not in chunks and "Half of it".startswith(joined(chunks, "content"))
    assert chunks[-1]["error"]["message"] and chunks[-1]["choices"][0]["finish_reason"] == "error"
    assert not any("error" in c for c in chunks[:-1])


def test_the_token_limit(server, upstream):
    body = {"id": "m", "type": "message", "role": "assistant", "model": "up", "content": [{"type": "text", "text": "cut"}],
            "stop_reason": "max_tokens", "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1}}
    model = upstream.model(Reply([json.dumps(body)], framing="length", content_type="application/json"))
    model.asked = "up-messages/" + model.upstream_name
    choice = ask(server, model).json["choices"][0]
    assert choice["finish_reason"] == "length" and choice["message"]["content"] == "cut"


def test_keepalive(server, upstream):
    say = SERVED["messages"].stream(Say("Hello"))
    model = upstream.model(Reply(say.steps[:2] + [Pause(1.0)] + say.steps[2:]))
    model.asked = "up-messages/" + model.upstream_name
    answer = ask(server, model, stream=True)
    assert b": ping\n" in answer.body and b": ping\n\n" not in answer.body
    assert joined(events(answer.body), "content") == "Hello"


def test_large_texts(server, upstream):
    text = "\u00e9\"\\\n" * 200000
    model = upstream.says("messages", Say(text), Say(text))
    assert ask(server, model).json["choices"][0]["message"]["content"] == text
    assert joined(stream(server, model), "content") == text


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_the_script(server, upstream, streamed):
    if streamed:
        assert "brig/script" in joined(stream(server, "brig/script"), "content")
    else:
        assert "brig/script" in ask(server, "brig/script").json["choices"][0]["message"]["content"]


def test_shapes_of_errors(server, upstream):
    answer = server.client(base="/v1").post("/chat/completions", b"{")
    assert answer.status == 400 and set(answer.json["error"]) == {"message", "type", "param", "code"}
    answer = ask(server, "nowhere/none")
    assert answer.status == 404 and answer.error["code"] == "model_not_found"
    assert server.client(key="no such key", base="/v1").post("/chat/completions", {}).status == 401
