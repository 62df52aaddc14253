"""POST /responses as an API: its fields, its object, its stream, and functions of the client's own."""
import json

import pytest

from brigtest import BRIG_SHELL, SHELL, function, items_of, text_of
from fake_provider import call, calls, chunk, Reply, ending, error, shell, text, text_deltas


def test_answers_with_every_field_of_the_object(client, provider):
    model = provider.model(text("hello there"))
    response = client.ask(model, "hi")
    assert response["status"] == "completed" and response["error"] is None
    assert text_of(response) == "hello there"
    assert response["model"] == model.name
    assert response["usage"]["input_tokens"] == 10 and response["usage"]["output_tokens"] == 5
    assert response["metadata"] == {} and response["tools"] == [] and response["tool_choice"] == "auto"


def test_is_the_same_under_v1(v1, provider):
    assert text_of(v1.ask(provider.model(text("ok")))) == "ok"


def test_every_answer_names_its_generation(client, provider):
    answer = client.post("/responses", {"model": provider.model(text("ok")).name, "input": "x"})
    assert answer.headers["x-generation-id"].startswith("gen-")
    assert answer.headers["x-request-id"]
    refused = client.post("/responses", {"model": "nobody/nothing", "input": "x"})
    assert refused.headers["x-generation-id"].startswith("gen-")


def test_streams_text_in_the_documented_order(client, provider):
    story = client.stream(provider.model(text("hello world", pieces=3)))
    assert story.types == ["response.created", "response.in_progress", "response.output_item.added",
                           "response.content_part.added", "response.output_text.delta", "response.output_text.delta",
                           "response.output_text.delta", "response.output_text.done", "response.content_part.done",
                           "response.output_item.done", "response.completed", "[DONE]"]
    assert text_of(story.response) == "hello world"


def test_a_stream_says_what_it_is(client, provider):
    stream = client.begin(provider.model(text("x")))
    assert stream.status == 200
    assert stream.response_headers["content-type"].startswith("text/event-stream")
    assert stream.response_headers["cache-control"] == "no-cache"
    assert stream.response_headers["x-generation-id"].startswith("gen-")
    stream.close()


def test_streamed_and_whole_answers_say_the_same(client, provider):
    make = lambda: calls(shell("echo hi"), content="Let me see.", reasoning="hm")
    whole = client.ask(provider.model(make(), text("done")), tools=[SHELL])
    streamed = client.stream(provider.model(make(), text("done")), tools=[SHELL]).response
    for response in (whole, streamed):
        for key in ("id", "created_at", "completed_at", "model"):
            del response[key]
        for item in response["output"]:
            del item["id"]
            item.pop("container_id", None)
            item.pop("encrypted_content", None)
        cost = response["usage"]
        cost.pop("cost"), cost.pop("cost_details")
    assert whole == streamed


def test_sends_the_input_string_as_one_user_message(client, provider):
    model = provider.model(text("ok"))
    client.ask(model, "what is up?")
    (request,) = model.requests
    assert request.path == "/v1/chat/completions" and request.method == "POST"
    assert request.messages == [{"role": "user", "content": "what is up?"}]
    assert request.json["model"] == model.upstream_name


def test_the_provider_gets_its_own_key_and_not_the_clients(client, provider):
    from brigtest import KEYS, UPSTREAM_KEY
    model = provider.model(text("ok"))
    client.ask(model)
    assert model.requests[0].headers["authorization"] == "Bearer " + UPSTREAM_KEY
    assert KEYS["one"] not in str(model.requests[0].headers)


def test_instructions_come_first(client, provider):
    model = provider.model(text("ok"))
    response = client.ask(model, "hi", instructions="Be brief.")
    assert model.requests[0].messages[0] in ({"role": "system", "content": "Be brief."},
                                             {"role": "developer", "content": "Be brief."})
    assert response["instructions"] == "Be brief."


def test_items_of_every_role_and_form_reach_the_model(client, provider):
    model = provider.model(text("ok"))
    client.ask(model, [
        {"role": "system", "content": "one"},
        {"role": "user", "content": [{"type": "input_text", "text": "two"}]},
        {"type": "message", "role": "assistant", "id": "msg_1", "status": "completed",
         "content": [{"type": "output_text", "text": "three", "annotations": []}]},
        {"type": "message", "role": "user", "content": "four"},
    ])
    assert [(m["role"], m["content"]) for m in model.requests[0].messages] == [
        ("system", "one"), ("user", "two"), ("assistant", "three"), ("user", "four")]


def test_an_image_reaches_the_model(client, provider):
    model = provider.model(text("ok"))
    url = "data:image/png;base64,iVBORw0KGgo="
    client.ask(model, [{"role": "user", "content": [{"type": "input_text", "text": "see"},
                                                    {"type": "input_image", "image_url": url, "detail": "low"}]}])
    assert model.requests[0].messages[0]["content"][1] == {"type": "image_url", "image_url": {"url": url,
                                                                                             "detail": "low"}}


SAMPLING = {"temperature": 0.5, "top_p": 0.25, "presence_penalty": 1, "frequency_penalty": -1, "top_logprobs": 2}


def test_sampling_fields_reach_the_model_and_are_echoed(client, provider):
    model = provider.model(text("ok"))
    response = client.ask(model, **SAMPLING)
    sent = model.requests[0].json
    for name, value in SAMPLING.items():
        assert response[name] == value
        if name != "top_logprobs":
            assert sent[name] == value


def test_numbers_reach_the_model_as_they_were_written(client, provider):
    model = provider.model(text("ok"))
    body = '{"model":"%s","input":"x","temperature":1.0,"seed":12345678901234567890}' % model.name
    answer = client.post("/responses", body.encode())
    assert answer.status == 200, answer
    assert b'"temperature":1.0' in model.requests[0].body
    assert b'12345678901234567890' in model.requests[0].body
    assert b'"temperature":1.0' in answer.body


def test_max_output_tokens_reaches_the_model_and_is_echoed(client, provider):
    model = provider.model(text("ok"))
    response = client.ask(model, max_output_tokens=77)
    sent = model.requests[0].json
    assert sent.get("max_tokens", sent.get("max_completion_tokens")) == 77
    assert response["max_output_tokens"] == 77


def test_an_answer_cut_by_the_token_limit_is_incomplete(client, provider):
    story = client.stream(provider.model(text("half an ans", finish="length")))
    assert story.types[-2] == "response.incomplete"
    assert story.response["incomplete_details"] == {"reason": "max_output_tokens"}
    assert story.response["output"][-1]["status"] == "incomplete"
    assert text_of(story.response) == "half an ans"


def test_an_answer_cut_by_a_filter_is_incomplete(client, provider):
    response = client.ask(provider.model(text("I wi", finish="content_filter")))
    assert response["status"] == "incomplete" and response["incomplete_details"]["reason"] == "content_filter"


@pytest.mark.parametrize("fields", [
    {"metadata": {"a": "1", "zebra": "z", "apple": "a"}},
    {"parallel_tool_calls": False},
    {"user": "u-1"}, {"safety_identifier": "s-1"}, {"prompt_cache_key": "key 1"},
    {"truncation": "disabled"}, {"service_tier": "flex"}, {"max_tool_calls": 3},
    {"text": {"format": {"type": "json_object"}, "verbosity": "low"}},
])
def test_fields_are_echoed(client, provider, fields):
    response = client.ask(provider.model(text("{}")), **fields)
    for name, value in fields.items():
        assert response[name] == value
        if isinstance(value, dict):
            assert list(response[name]) == list(value)


def test_reasoning_is_echoed_and_asked_for(client, provider):
    model = provider.model(text("ok"))
    response = client.ask(model, reasoning={"effort": "low"})
    assert response["reasoning"] == {"effort": "low", "summary": None}
    assert model.requests[0].json["reasoning_effort"] == "low"


def test_a_json_schema_keeps_the_order_of_its_keys(client, provider):
    model = provider.model(text("{}"))
    schema = {"type": "object", "properties": {"zebra": {"type": "string"}, "apple": {"type": "string"},
                                               "mango": {"type": "string"}}}
    client.ask(model, text={"format": {"type": "json_schema", "name": "n", "schema": schema, "strict": True}})
    sent = model.requests[0].json["response_format"]
    assert sent["json_schema"]["schema"] == schema
    body = model.requests[0].body.decode()
    assert body.index("zebra") < body.index("apple") < body.index("mango")


def test_fields_without_meaning_here_are_let_through(client, provider):
    client.ask(provider.model(text("ok")), include=[], stream_options={"include_obfuscation": False},
               provider={"order": ["x"]}, plugins=[], trace={"trace_id": "t"}, usage={"include": True},
               background=False, store=False, previous_response_id=None)


def test_null_is_the_same_as_absent(client, provider):
    response = client.ask(provider.model(text("ok")), temperature=None, tools=[], tool_choice=None, metadata=None,
                          instructions=None, max_output_tokens=None, stream=False, session_id=None, store=None)
    assert response["temperature"] == 1 and response["store"] is True


@pytest.mark.parametrize("fields, param", [
    ({"store": 1}, "store"),
    ({"previous_response_id": "resp_1"}, "previous_response_id"),
    ({"conversation": "conv_1"}, "conversation"),
    ({"background": True, "store": False}, "background"),
])
def test_what_would_need_stored_responses_is_refused(client, provider, fields, param):
    model = provider.model()
    error = client.ask(model, expect=400, **fields).error
    assert error["param"] == param and not model.requests


# ---- functions of the client ----

def test_a_call_of_a_function_goes_to_the_client(client, provider):
    model = provider.model(calls(call("weather", '{"city": "Bern"}', id="call_w")))
    story = client.stream(model, tools=[function("weather")])
    (item,) = items_of(story.response, "function_call")
    assert item["name"] == "weather" and item["arguments"] == '{"city": "Bern"}' and item["call_id"] == "call_w"
    assert story.response["status"] == "completed"
    sent = model.requests[0].json["tools"]
    assert sent == [{"type": "function", "function": {
        "name": "weather", "description": "a test's own", "parameters": {"type": "object", "properties": {}}}}]


def test_the_result_of_a_function_reaches_the_model(client, provider):
    model = provider.model(text("sunny"))
    client.ask(model, [{"role": "user", "content": "weather?"},
                       {"type": "function_call", "call_id": "call_w", "name": "weather", "arguments": "{}"},
                       {"type": "function_call_output", "call_id": "call_w", "output": "sun"}],
               tools=[function("weather")])
    assert model.requests[0].messages[1:] == [
        {"role": "assistant", "content": None,
         "tool_calls": [{"id": "call_w", "type": "function", "function": {"name": "weather", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "call_w", "content": "sun"}]


def test_a_result_without_its_call_is_refused(client, provider):
    model = provider.model()
    error = client.ask(model, [{"type": "function_call_output", "call_id": "call_x", "output": "?"}],
                       expect=400).error
    assert error["param"].startswith("input") and not model.requests


def test_arguments_in_pieces_are_joined(client, provider):
    pieces = [chunk({"tool_calls": [dict(call("f", '{"a"', id="call_1"), index=0)]})]
    pieces += [chunk({"tool_calls": [{"index": 0, "function": {"arguments": p}}]}) for p in (": ", '"b', '"}')]
    story = client.stream(provider.model(Reply(pieces + ending("tool_calls"))), tools=[function("f")])
    (item,) = story.response["output"]
    assert item["arguments"] == '{"a": "b"}'


def test_parallel_calls_keep_their_order_and_ids(client, provider):
    model = provider.model(calls(call("f", '{"n":1}', id="a"), call("g", '{"n":2}', id="b"),
                                 call("f", '{"n":3}', id="c")))
    response = client.ask(model, tools=[function("f"), function("g")])
    assert [(i["name"], i["arguments"], i["call_id"]) for i in response["output"]] == [
        ("f", '{"n":1}', "a"), ("g", '{"n":2}', "b"), ("f", '{"n":3}', "c")]


def test_parallel_tool_calls_reaches_the_model(client, provider):
    model = provider.model(text("ok"), text("ok"))
    client.ask(model, tools=[function("f")], parallel_tool_calls=False)
    client.ask(model, tools=[function("f")])
    assert model.requests[0].json["parallel_tool_calls"] is False
    assert "parallel_tool_calls" not in model.requests[1].json


# ---- tool_choice ----

def sent_choice(client, provider, choice, tools, expect=200):
    model = provider.model(text("ok"))
    client.ask(model, tools=tools, tool_choice=choice, expect=expect)
    return model.requests[0].json.get("tool_choice") if model.requests else None


def test_tool_choice_words_reach_the_model(client, provider):
    tools = [function("f")]
    assert sent_choice(client, provider, "auto", tools) in (None, "auto")
    assert sent_choice(client, provider, "none", tools) == "none"
    assert sent_choice(client, provider, "required", tools) == "required"


def test_tool_choice_of_a_function_reaches_the_model(client, provider):
    assert sent_choice(client, provider, {"type": "function", "name": "f"}, [function("f")]) == {
        "type": "function", "function": {"name": "f"}}


@pytest.mark.parametrize("type, entry", [("shell", SHELL), ("openrouter:shell", SHELL), ("brig:shell", BRIG_SHELL),
                                         ("shell", BRIG_SHELL)])
def test_tool_choice_of_the_shell_reaches_the_model(client, provider, type, entry):
    assert sent_choice(client, provider, {"type": type}, [entry, function("f")]) == {
        "type": "function", "function": {"name": "shell"}}


@pytest.mark.parametrize("choice", [
    {"type": "function", "name": "nobody"}, {"type": "function"}, {"type": "shell"}, "sometimes", 7, {"type": "mcp"},
    {"type": "allowed_tools", "mode": "auto", "tools": []},
    {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "nobody"}]},
    {"type": "allowed_tools", "mode": "perhaps", "tools": [{"type": "function", "name": "f"}]},
])
def test_a_wrong_tool_choice_is_refused(client, provider, choice):
    model = provider.model()
    error = client.ask(model, tools=[function("f")], tool_choice=choice, expect=400).error
    assert error["param"].startswith("tool_choice") and not model.requests


def test_required_without_tools_is_refused(client, provider):
    client.ask(provider.model(), tool_choice="required", expect=400)


def test_allowed_tools_is_enforced_for_the_shell(client, provider):
    model = provider.model(calls(shell("touch /workspace/home/never")), text("so be it"))
    response = client.ask(model, tools=[SHELL, function("f")], tool_choice={
        "type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]})
    (item,) = items_of(response, "openrouter:shell")
    assert item["status"] == "failed" and "tool_choice" in item["error"] and "output" not in item
    told = json.loads(model.requests[1].messages[-1]["content"])
    assert "tool_choice" in told["error"]


def test_allowed_tools_is_enforced_for_functions(client, provider):
    model = provider.model(calls(call("g", "{}")), text("so be it"))
    response = client.ask(model, tools=[SHELL, function("f"), function("g")], tool_choice={
        "type": "allowed_tools", "mode": "auto", "tools": [{"type": "shell"}, {"type": "function", "name": "f"}]})
    assert not items_of(response, "function_call")
    assert "tool_choice" in model.requests[1].messages[-1]["content"]


def test_allowed_tools_lets_the_allowed_through(client, provider):
    model = provider.model(calls(shell("echo yes")), text("ok"))
    response = client.ask(model, tools=[SHELL, function("f")], tool_choice={
        "type": "allowed_tools", "mode": "required", "tools": [{"type": "openrouter:shell"}]})
    (item,) = items_of(response, "openrouter:shell")
    assert item["output"][0]["stdout"] == "yes\n"
    assert model.requests[0].json["tool_choice"] == "required"
    assert model.requests[1].json.get("tool_choice") in (None, "auto")


def test_the_shell_takes_another_name_where_a_function_has_it(client, provider):
    model = provider.model(calls(shell("echo ours", name="brig_shell", id="a"), call("shell", "{}", id="b")))
    response = client.ask(model, tools=[SHELL, function("shell")])
    assert {t["function"]["name"] for t in model.requests[0].json["tools"]} == {"brig_shell", "shell"}
    (ours,) = items_of(response, "openrouter:shell")
    (theirs,) = items_of(response, "function_call")
    assert ours["output"][0]["stdout"] == "ours\n" and theirs["name"] == "shell"


# ---- reasoning ----

@pytest.mark.parametrize("spelling", ["reasoning_content", "reasoning"])
def test_reasoning_of_both_spellings_is_shown(client, provider, spelling):
    model = provider.model(Reply([chunk({"role": "assistant"}), chunk({spelling: "let me "}), chunk({spelling: "see"})] +
                                 text_deltas("42") + ending("stop", (10, 5, 0, 3))))
    story = client.stream(model)
    reasoning, message = story.response["output"]
    assert reasoning["type"] == "reasoning" and message["content"][0]["text"] == "42"
    parts = reasoning.get("content") or reasoning["summary"]
    assert "".join(p["text"] for p in parts) == "let me see"
    assert story.response["usage"]["output_tokens_details"]["reasoning_tokens"] == 3


# ---- models ----

def test_a_model_that_nobody_serves_is_a_404(client, v1):
    error = client.ask("fakee/m1", expect=404).error
    assert error["code"] == 404 and error["param"] == "model" and "fakee/m1" in error["message"]
    assert v1.ask("fakee/m1", expect=404).error["code"] == "model_not_found"


def test_near_names_are_offered(client):
    assert "fake/priced" in client.ask("fake2/priced", expect=404).error["message"]


def test_models_lists_what_can_be_named(client):
    data = client.get("/models").json["data"]
    ids = {m["id"]: m for m in data}
    assert "fake/priced" in ids and "brig/script" in ids
    assert "no" in ids["brig/script"]["description"].lower()
    assert client.get("/models/brig/script").json["id"] == "brig/script"
    assert client.get("/models/none/such").status == 404


def test_falls_back_along_models(client, provider):
    from fake_provider import error
    broken = provider.model(error(500, {"error": {"message": "boom"}}))
    good = provider.model(text("from the second"))
    response = client.ask(broken, models=[good.name])
    assert text_of(response) == "from the second"


# ---- prices ----

def priced_model(provider, *replies):
    """The one model that the configuration has a price for."""
    model = provider.model(*replies)
    provider.models["priced"] = provider.models.pop(model.upstream_name)
    model.upstream_name = "priced"
    return model


def test_cost_follows_the_configured_prices(server, client, provider):
    model = priced_model(provider, text("ok", usage=(1000, 100, 400)))
    usage = client.ask(model)["usage"]
    # 600 at 2.5, 400 cached at 0.25, 100 at 10 dollars a million
    assert usage["input_tokens_details"]["cached_tokens"] == 400
    assert abs(usage["cost"] - 0.0026) < 1e-12
    assert "server_tool_cost" not in usage["cost_details"]


@pytest.mark.parametrize("stream", [False, True])
def test_who_answers_in_place_of_another_is_named_and_paid(client, provider, stream):
    first, priced = provider.model(error(503)), priced_model(provider, text("ok", usage=(1000, 100, 0)))
    ask = (lambda *a, **k: client.stream(*a, **k).response) if stream else client.ask
    response = ask(first, models=[priced.name])
    assert response["model"] == "fake/priced"
    # 1000 at 2.5, 100 at 10 dollars a million
    assert abs(response["usage"]["cost"] - 0.0035) < 1e-12
    assert response["usage"]["cost_details"]["upstream_inference_cost"] == response["usage"]["cost"]


def test_each_is_paid_for_its_own_tokens(client, provider):
    """The second reply comes from another provider: the first one's tokens keep their price."""
    priced = priced_model(provider, calls(shell("true"), usage=(1000, 100)), error(503))
    second = provider.model(text("ok", usage=(5000, 500)))
    response = client.ask(priced, models=[second.name], tools=[SHELL])
    assert response["model"] == second.name and response["usage"]["input_tokens"] == 6000
    details = response["usage"]["cost_details"]
    assert abs(details["upstream_inference_input_cost"] - 0.0025) < 1e-12
    assert details["upstream_inference_cost"] is None  # the second one's price is not known
