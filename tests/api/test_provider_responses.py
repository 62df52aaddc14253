"""A server of the Responses API as the provider, through real sockets."""
import json

import pytest

import brigtest
from brigtest import BRIG_SHELL, SHELL, UPSTREAM_KEY, function, items_of, outputs_of, raw_list, text_of
from conftest import run
from fake_responses import (begin, call, cut, event, message, reasoning, refused, response, shell,
                            stream, text, whole)


@pytest.fixture(scope="module")
def upstream(responses_upstream):
    return responses_upstream


@pytest.fixture(scope="module")
def server(upstream):
    yield from run(brigtest.Server(config={"providers": [
        {"name": "fake", "dialect": "openai-responses", "base_url": upstream.base_url(), "api_key": UPSTREAM_KEY}]}))


def input_of(request):
    return request.json["input"]


def types(items):
    return [i["type"] for i in items]


def test_text_streamed_and_whole(client, upstream):
    model = upstream.model(text("Hello, wörld 😀", usage=(10, 7, 4, 2)).bytewise())
    story = client.stream(model, "Hi", instructions="Be kind.", temperature=0.5, max_output_tokens=99)
    assert text_of(story.response) == "Hello, wörld 😀" and story.response["status"] == "completed"
    usage = story.response["usage"]
    assert (usage["input_tokens"], usage["output_tokens"]) == (10, 7)
    assert usage["input_tokens_details"]["cached_tokens"] == 4
    assert usage["output_tokens_details"]["reasoning_tokens"] == 2
    request = model.requests[0]
    assert request.headers["authorization"] == "Bearer " + UPSTREAM_KEY
    assert request.json == {"model": model.upstream_name, "instructions": "Be kind.",
                            "input": [{"type": "message", "role": "user", "content": "Hi"}],
                            "temperature": 0.5, "max_output_tokens": 99, "include": ["reasoning.encrypted_content"],
                            "store": False, "stream": True}
    model = upstream.model(text("not streamed to the client"))
    assert text_of(client.ask(model)) == "not streamed to the client"


def test_a_server_that_ignores_stream(client, upstream):
    model = upstream.model(whole(reasoning("Hm."), shell("echo 42")), whole(message("It is 42.")))
    story = client.stream(model, tools=[SHELL])
    assert outputs_of(story.response)[0]["stdout"] == "42\n" and text_of(story.response) == "It is 42."


def test_encrypted_reasoning_through_a_loop_and_into_the_next_turn(client, upstream):
    first = stream(reasoning("Let me see.", encrypted="ENC-1=="), message("I will look."), shell("echo 42"),
                   usage=(10, 5))
    second = stream(reasoning(encrypted="ENC-2==", id="rs_up2"), message("It is 42.", id="msg_up2"), usage=(20, 6))
    model = upstream.model(first, second, text("Bye"))
    answer = client.ask(model, "run it", tools=[SHELL], reasoning={"effort": "low", "summary": "auto"})
    assert outputs_of(answer)[0]["stdout"] == "42\n" and answer["usage"]["input_tokens"] == 30
    assert types(answer["output"]) == ["reasoning", "message", "openrouter:shell", "reasoning", "message"]
    thought = answer["output"][0]
    assert thought["summary"][0]["text"] == "Let me see."
    assert thought["encrypted_content"].startswith("brig1.") and "ENC-1" not in json.dumps(answer)
    asked, told = model.requests[0].json, input_of(model.requests[1])
    assert asked["reasoning"] == {"effort": "low", "summary": "auto"} and asked["tools"][0]["strict"] is False
    assert types(told) == ["message", "reasoning", "message", "function_call", "function_call_output"]
    assert told[1] == {"type": "reasoning", "id": "rs_up1", "encrypted_content": "ENC-1==",
                       "summary": [{"type": "summary_text", "text": "Let me see."}]}
    assert told[3]["call_id"] == told[4]["call_id"] == "call_1"
    assert json.loads(told[4]["output"])["output"][0]["stdout"] == "42\n"

    history = [{"role": "user", "content": "run it"}] + answer["output"] + [{"role": "user", "content": "thanks"}]
    client.ask(model, history, tools=[SHELL])
    again = model.requests[2]
    assert raw_list(again, "input").startswith(raw_list(model.requests[1], "input"))
    assert input_of(again)[5] == {"type": "reasoning", "id": "rs_up2", "encrypted_content": "ENC-2==", "summary": []}


def test_the_bytes_of_brig_shell_are_the_same_again(client, upstream):
    model = upstream.model(stream(reasoning("A"), shell("echo 1", call_id="call_a", id="fc_a", timeout_ms=5000),
                                  shell("echo 2", call_id="call_b", id="fc_b")), text("ok"), text("ok"))
    answer = client.ask(model, "go", tools=[BRIG_SHELL])
    assert types(answer["output"])[1:5] == ["shell_call", "shell_call_output"] * 2
    told = input_of(model.requests[1])
    assert types(told) == ["message", "reasoning", "function_call", "function_call",
                           "function_call_output", "function_call_output"]
    history = [{"role": "user", "content": "go"}] + answer["output"] + [{"role": "user", "content": "more"}]
    client.ask(model, history, tools=[BRIG_SHELL])
    assert raw_list(model.requests[2], "input").startswith(raw_list(model.requests[1], "input"))


def test_reasoning_of_another_model_is_left_out(client, upstream):
    one = upstream.model(stream(reasoning("Secret."), message("A")))
    other = upstream.model(text("B"))
    answer = client.ask(one)
    client.ask(other, [{"role": "user", "content": "go"}] + answer["output"] + [{"role": "user", "content": "more"}])
    assert types(input_of(other.requests[0])) == ["message"] * 3
    assert b"Secret" not in other.requests[0].body and b"encrypted_content\":" not in other.requests[0].body
    torn = dict(answer["output"][0], encrypted_content=answer["output"][0]["encrypted_content"][:-4] + "AAAA")
    again = upstream.model(text("C"))
    client.ask(again, [{"role": "user", "content": "go"}, torn] + answer["output"][1:] +
               [{"role": "user", "content": "more"}])
    assert types(input_of(again.requests[0])) == ["message"] * 3


def test_functions_of_the_client_in_parallel_with_results_of_parts(client, upstream):
    model = upstream.model(stream(call("f", '{"x": 1.0}', "call_a", "fc_a"), call("g", "{}", "call_b", "fc_b")),
                           text("done"))
    tools = [dict(function("f"), strict=True), function("g")]
    story = client.stream(model, "go", tools=tools, tool_choice="required", parallel_tool_calls=True)
    (a, b) = items_of(story.response, "function_call")
    assert (a["call_id"], a["arguments"], b["call_id"]) == ("call_a", '{"x": 1.0}', "call_b")
    sent = model.requests[0].json
    assert sent["tool_choice"] == "required" and sent["parallel_tool_calls"] is True and sent["tools"][0]["strict"] is True
    client.ask(model, [{"role": "user", "content": "go"}, a, b,
                       {"type": "function_call_output", "call_id": "call_b", "output": "two"},
                       {"type": "function_call_output", "call_id": "call_a", "output": [
                           {"type": "input_text", "text": "see"},
                           {"type": "input_image", "image_url": "data:image/png;base64,AA"}]}], tools=tools)
    told = input_of(model.requests[1])
    assert types(told) == ["message"] + ["function_call"] * 2 + ["function_call_output"] * 2
    assert told[3]["call_id"] == "call_a" and [p["type"] for p in told[3]["output"]] == ["input_text", "input_image"]
    assert told[4]["output"] == "two" and told[1]["arguments"] == '{"x": 1.0}'


def test_an_id_that_the_provider_would_refuse(client, upstream):
    """A call that another provider named: at most 64 characters go on, the same for call and result."""
    long = "call_" + "k" * 59
    model = upstream.model(text("x"))
    client.ask(model, [{"role": "user", "content": "go"},
                       {"type": "function_call", "id": "toolu_1", "call_id": long, "name": "f", "arguments": "{}"},
                       {"type": "function_call_output", "call_id": long, "output": "r"}])
    _, made, result = input_of(model.requests[0])
    assert made["call_id"] == result["call_id"] == long and made["id"].startswith("fc_")


@pytest.mark.parametrize("status, answer, expect", [
    (400, {"message": "bad input", "code": "invalid_value"}, 400), (401, {"message": "key sk-abc123"}, 502),
    (404, {"message": "no such model", "code": "model_not_found"}, 404), (429, {"message": "slow down"}, 429),
    (500, {"message": "oops", "type": "server_error"}, 502), (503, {"message": "overloaded"}, 503)])
def test_refusals(client, upstream, status, answer, expect):
    model = upstream.model(refused(status, **answer))
    got = client.ask(model, expect=expect)
    assert "sk-abc" not in got.text


def test_what_fails_before_its_first_item_is_a_status(client, upstream):
    model = upstream.model(stream(status="failed", usage=None, error={"code": "rate_limit_exceeded", "message": "wait"}))
    client.ask(model, expect=429)


@pytest.mark.parametrize("how", ["flat", "nested", "failed"])
def test_errors_in_the_stream(client, upstream, how):
    steps = stream(message("Hel")).steps[:5]
    steps.append({"flat": event("error", code="server_error", message="broke", param=None),
                  "nested": event("error", error={"type": "server_error", "code": "server_error", "message": "broke"}),
                  "failed": event("response.failed", response=response(
                      "failed", usage=(3, 4), error={"code": "server_error", "message": "broke"}))}[how])
    model = upstream.model(stream(message("x")))
    model.replies[0].steps = steps
    story = client.stream(model)
    assert story.response["status"] == "failed" and "broke" in story.response["error"]["message"]
    if how == "failed":
        assert story.response["usage"]["output_tokens"] == 4


@pytest.mark.parametrize("keep", [0, 2, 3, 6, 8])
def test_a_stream_that_is_cut(client, upstream, keep):
    model = upstream.model(cut(stream(message("Hello")), keep))
    if keep <= 2:
        client.ask(model, expect=502)
    else:
        assert client.stream(model).response["status"] == "failed"


def test_a_call_that_is_cut_does_not_run(client, upstream):
    reply = stream(shell("touch ran"))
    model = upstream.model(cut(reply, len(reply.steps) - 1), text("no"))
    story = client.stream(model, tools=[SHELL])
    assert story.response["status"] == "failed" and len(model.requests) == 1
    assert not outputs_of(story.response)


def test_incomplete(client, upstream):
    model = upstream.model(stream(message("cut he", status="incomplete"), status="incomplete",
                                  incomplete_details={"reason": "max_output_tokens"}))
    answer = client.ask(model)
    assert answer["status"] == "incomplete" and answer["incomplete_details"] == {"reason": "max_output_tokens"}
    model = upstream.model(stream(message("x"), status="incomplete", incomplete_details={"reason": "content_filter"}))
    assert client.ask(model)["incomplete_details"] == {"reason": "content_filter"}


def test_usage_is_summed_over_the_loop_also_where_it_fails(client, upstream):
    model = upstream.model(stream(shell("true", call_id="a"), usage=(10, 1)), stream(shell("true", call_id="b"),
                                                                                     usage=(20, 2)),
                           stream(message("x"), usage=(30, 3), status="failed",
                                  error={"code": "server_error", "message": "x"}))
    story = client.stream(model, tools=[SHELL])
    assert story.response["status"] == "failed" and story.response["usage"]["input_tokens"] == 60
    assert len(begin()) == 2


def test_what_fails_right_after_its_response_object_is_tried_elsewhere(client, upstream):
    """Nothing was seen yet. What the first had thought in an earlier turn is not for the second."""
    failing = stream(status="failed", usage=None, error={"code": "server_error", "message": "x"})
    one = upstream.model(stream(reasoning("Secret."), message("A")), lambda request: failing)
    other = upstream.model(text("B"))
    answer = client.ask(one)
    history = [{"role": "user", "content": "go"}] + answer["output"] + [{"role": "user", "content": "more"}]
    story = client.stream(one, history, models=[one.name, other.name])
    assert text_of(story.response) == "B" and story.response["model"] == other.name
    assert len(one.requests) >= 2 and types(input_of(one.requests[1]))[1] == "reasoning"
    assert types(input_of(other.requests[0])) == ["message"] * 3
