"""Gemini as the provider, through the Responses API and real sockets."""
import json

import pytest

import brigtest
from brigtest import SHELL, UPSTREAM_KEY, function, items_of, outputs_of, raw_list, text_of
from conftest import run
from fake_gemini import (GeminiProvider, array, blocked, call, calls, counted, cut, frame, refused, response, shell, stream, text,
                         thought)
from fake_provider import Reply


@pytest.fixture(scope="module")
def gemini():
    provider = GeminiProvider()
    yield provider
    provider.close()


@pytest.fixture(scope="module")
def server(gemini):
    yield from run(brigtest.Server(config={"providers": [
        {"name": "fake", "dialect": "gemini", "base_url": gemini.base_url(), "api_key": UPSTREAM_KEY}]}))


def contents(request):
    return request.json["contents"]


def test_text_streamed_and_whole(client, gemini):
    model = gemini.model(text("Hello, wörld 😀", pieces=3, usage=(10, 5, 4, 2)).bytewise())
    story = client.stream(model, "Hi", instructions="Be kind.")
    assert text_of(story.response) == "Hello, wörld 😀" and story.response["status"] == "completed"
    usage = story.response["usage"]
    assert (usage["input_tokens"], usage["output_tokens"]) == (10, 7)
    assert usage["input_tokens_details"]["cached_tokens"] == 4
    assert usage["output_tokens_details"]["reasoning_tokens"] == 2
    request = model.requests[0]
    assert request.headers["x-goog-api-key"] == UPSTREAM_KEY and "authorization" not in request.headers
    assert request.json == {"systemInstruction": {"parts": [{"text": "Be kind."}]},
                            "contents": [{"role": "user", "parts": [{"text": "Hi"}]}]}
    model = gemini.model(text("whole"))
    assert text_of(client.ask(model)) == "whole"


def test_a_shell_loop_with_signatures_and_the_next_turn(client, gemini):
    first = stream([thought("Let me see.")], [shell("echo 42", id="fc1", signature="c2lnLWE=")], usage=(10, 5))
    answer = stream([{"text": "It is 42."}], [{"text": "", "thoughtSignature": "c2lnLWI="}], usage=(20, 6))
    model = gemini.model(first, answer, text("Bye"))
    response = client.ask(model, "run it", tools=[SHELL], reasoning={"summary": "auto"})
    assert outputs_of(response)[0]["stdout"] == "42\n" and text_of(response) == "It is 42."
    asked, told = contents(model.requests[0]), contents(model.requests[1])
    assert asked == [{"role": "user", "parts": [{"text": "run it"}]}]
    assert told[1] == {"role": "model", "parts": [shell("echo 42", id="fc1", signature="c2lnLWE=")]}
    (part,) = told[2]["parts"]
    assert told[2]["role"] == "user" and part["functionResponse"]["id"] == "fc1"
    assert part["functionResponse"]["response"]["output"][0]["stdout"] == "42\n"
    assert model.requests[0].json["generationConfig"] == {"thinkingConfig": {"includeThoughts": True}}
    assert response["usage"]["input_tokens"] == 30

    history = [{"role": "user", "content": "run it"}] + response["output"] + [{"role": "user", "content": "thanks"}]
    client.ask(model, history, tools=[SHELL])
    again = model.requests[2]
    assert raw_list(again, "contents").startswith(raw_list(model.requests[1], "contents"))
    assert contents(again)[3] == {"role": "model", "parts": [{"text": "It is 42."},
                                                             {"text": "", "thoughtSignature": "c2lnLWI="}]}


# ---- what else a reply may be ----

def test_parallel_calls_without_ids(client, gemini):
    model = gemini.model(calls(call("weather", {"city": "Rome"}, signature="c2ln"), call("weather", {"city": "Oslo"})),
                         text("Both."))
    tools = [function("weather")]
    response = client.ask(model, "go", tools=tools)
    made = items_of(response, "function_call")
    assert [json.loads(i["arguments"])["city"] for i in made] == ["Rome", "Oslo"]
    assert len({i["call_id"] for i in made}) == 2
    answers = [{"type": "function_call_output", "call_id": i["call_id"], "output": "sun %d" % n}
               for n, i in reversed(list(enumerate(made)))]
    client.ask(model, [{"role": "user", "content": "go"}] + made + answers, tools=tools)
    _, said, told = contents(model.requests[1])
    assert said == {"role": "model", "parts": [call("weather", {"city": "Rome"}, signature="c2ln"),
                                               call("weather", {"city": "Oslo"})]}
    assert told == {"role": "user", "parts": [
        {"functionResponse": {"name": "weather", "response": {"output": "sun %d" % n}}} for n in range(2)]}


def test_shell_calls_in_parallel_beside_the_clients_own(client, gemini):
    model = gemini.model(calls(shell("echo one", signature="c2ln"), shell("echo two"), call("weather", {})), text("ok"))
    tools = [SHELL, function("weather")]
    response = client.ask(model, "go", tools=tools)
    assert [i["type"] for i in response["output"]] == ["openrouter:shell", "openrouter:shell", "function_call"]
    answer = {"type": "function_call_output", "call_id": response["output"][2]["call_id"], "output": '{"sun": 1}'}
    client.ask(model, [{"role": "user", "content": "go"}] + response["output"] + [answer], tools=tools)
    _, said, told = contents(model.requests[1])
    assert said["parts"] == [shell("echo one", signature="c2ln"), shell("echo two"), call("weather", {})]
    assert [p["functionResponse"]["name"] for p in told["parts"]] == ["shell", "shell", "weather"]
    assert told["parts"][1]["functionResponse"]["response"]["output"][0]["stdout"] == "two\n"
    assert told["parts"][2]["functionResponse"]["response"] == {"sun": 1}


def test_a_history_of_another_model_gets_the_word_for_no_signature(client, gemini):
    model = gemini.model(text("ok"))
    client.ask(model, [{"role": "user", "content": "go"},
                       {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{}"},
                       {"type": "function_call_output", "call_id": "c1", "output": "sun"}], tools=[function("weather")])
    (part,) = contents(model.requests[0])[1]["parts"]
    assert part["thoughtSignature"] == "skip_thought_signature_validator"


def test_a_signature_on_text_comes_back(client, gemini):
    model = gemini.model(stream([{"text": "Hel"}], [{"text": "lo.", "thoughtSignature": "c2lnLXQ="}]), text("ok"))
    story = client.stream(model, "go")
    assert text_of(story.response) == "Hello."
    client.ask(model, [{"role": "user", "content": "go"}] + story.response["output"] + [
        {"role": "user", "content": "on"}])
    assert contents(model.requests[1])[1]["parts"] == [{"text": "Hello."}, {"text": "", "thoughtSignature": "c2lnLXQ="}]


def test_thoughts_are_shown_as_a_summary(client, gemini):
    story = client.stream(gemini.model(stream([thought("Hm, ")], [thought("yes.")], [{"text": "Yes."}])),
                          reasoning={"effort": "low", "summary": "auto"})
    (item,) = items_of(story.response, "reasoning")
    assert [s["text"] for s in item["summary"]] == ["Hm, yes."]


def test_a_server_without_event_streams(client, gemini):
    model = gemini.model(array([{"text": "Hel"}], [{"text": "lo"}]))
    assert text_of(client.ask(model)) == "Hello"


def test_length_filter_and_blocked_prompt(client, gemini):
    for reply, reason in ((text("cut", finish="MAX_TOKENS"), "max_output_tokens"),
                          (text("no", finish="SAFETY"), "content_filter"), (blocked(), "content_filter")):
        response = client.ask(gemini.model(reply))
        assert response["status"] == "incomplete" and response["incomplete_details"]["reason"] == reason


# ---- what goes wrong ----

@pytest.mark.parametrize("reply, status, says", [
    (refused(400, "INVALID_ARGUMENT", "Unable to process input image."), 400, "input image"),
    (refused(404, "NOT_FOUND", "models/x is not found"), 404, "not found"),
    (refused(429, "RESOURCE_EXHAUSTED", "Quota exceeded", [{"retryDelay": "0.2s"}]), 429, "Quota"),
    (refused(403, "PERMISSION_DENIED", "Your key AIzaSyD-x123 is bad"), 502, "key"),
    (refused(400, "INVALID_ARGUMENT", "API key not valid", [{"reason": "API_KEY_INVALID"}]), 502, "key"),
    (refused(503, "UNAVAILABLE", "The model is overloaded."), 503, "overloaded"),
    (Reply([frame({"error": {"code": 429, "message": "Slow down", "status": "RESOURCE_EXHAUSTED"}})]), 429, "Slow"),
    (Reply([frame(response(None, "MALFORMED_FUNCTION_CALL", (5, 0)))]), 502, "MALFORMED_FUNCTION_CALL"),
    (Reply([b"<html>nginx</html>"], content_type="text/html"), 502, "web page"),
    (Reply([]), 502, "nothing"),
])
def test_refusals(client, gemini, reply, status, says):
    model = gemini.model(reply, lambda request: reply)
    answer = client.ask(model, expect=status)
    assert says in answer.error["message"], answer
    assert "AIza" not in answer.text and "nginx" not in answer.text


def test_a_cut_stream(client, gemini):
    story = client.stream(gemini.model(cut([{"text": "Half"}])))
    assert story.response["status"] == "failed" and text_of(story.response) == "Half"
    model = gemini.model(calls(shell("true"), usage=(10, 1)), cut([{"text": "Half"}]))
    story = client.stream(model, tools=[SHELL])
    assert story.response["status"] == "failed" and story.response["usage"]["input_tokens"] == 10


def test_a_native_tool_of_another_provider_is_named(client, gemini):
    model = gemini.model()
    answer = client.ask(model, tools=[{"type": "code_interpreter", "container": {"type": "auto"}}], expect=400)
    assert "code_interpreter" in answer.error["message"]
    assert not model.requests


def test_a_models_name_leads_nowhere_else(client, gemini):
    before = len(gemini.strangers)
    assert client.ask("fake/../../files", expect=404)
    client.ask("fake/x?key=y#z", expect=404)
    (stranger,) = gemini.strangers[before:]
    assert stranger.path == "/v1beta/models/x%3Fkey%3Dy%23z:streamGenerateContent?alt=sse"


# ---- clients of the same dialect ----

def generate(server, model, contents, method="generateContent", **fields):
    answer = server.client(base="/v1beta").post("/models/%s:%s" % (model.name, method),
                                                dict({"contents": contents}, **fields))
    assert answer.status == 200, answer
    return answer.json


def test_a_shell_between_googles_own_client_and_model(server, gemini):
    native = [{"executableCode": {"language": "PYTHON", "code": "1"}, "thoughtSignature": "bmF0"},
              {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}}]
    model = gemini.model(stream([thought("Hm.")], native, [shell("echo 42", id="fc1", signature="c2ln+/=="),
                                                           shell("echo 43", id="fc2")]),
                         stream([{"text": "Don"}], [{"text": "e.", "thoughtSignature": "ZW5k"}]), text("Bye."))
    tools = [{"brigShell": {}}, {"codeExecution": {}}]
    safety = [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "OFF"}]
    asked = [{"role": "user", "parts": [{"text": "go"}]}]
    answer = generate(server, model, asked, tools=tools, safetySettings=safety)
    parts = answer["candidates"][0]["content"]["parts"]
    first = model.requests[0].json
    assert first["safetySettings"] == safety and first["tools"][1] == {"codeExecution": {}}
    assert first["toolConfig"] == {"includeServerSideToolInvocations": True}
    assert [k for p in parts for k in p if k in ("text", "executableCode", "codeExecutionResult")] == [
        "text", "executableCode", "codeExecutionResult", "executableCode", "codeExecutionResult",
        "executableCode", "codeExecutionResult", "text", "text"]
    assert parts[1:3] == native and parts[3]["thoughtSignature"] == "c2ln+/=="
    said = contents(model.requests[1])[1]["parts"]
    assert said == [thought("Hm.")] + native + [shell("echo 42", id="fc1", signature="c2ln+/=="),
                                                shell("echo 43", id="fc2")]
    # A client that writes base64 the other way.
    parts = json.loads(json.dumps(parts).replace("c2ln+/==", "c2ln-_=="))
    generate(server, model, asked + [{"role": "model", "parts": parts}] + asked, tools=tools, safetySettings=safety)
    again = model.requests[2]
    assert raw_list(again, "contents").startswith(raw_list(model.requests[1], "contents"))
    assert contents(again)[3] == {"role": "model", "parts": [{"text": "Don"}, {"text": "e.", "thoughtSignature": "ZW5k"}]}


def test_the_provider_counts(server, gemini):
    model = gemini.model(counted(42))
    assert generate(server, model, [{"parts": [{"text": "hi"}]}], "countTokens",
                    systemInstruction={"parts": [{"text": "x"}]}) == {"totalTokens": 42}
    (request,) = model.requests
    assert request.path.endswith(":countTokens")
    assert request.json == {"generateContentRequest": {
        "model": "models/" + model.upstream_name, "systemInstruction": {"parts": [{"text": "x"}]},
        "contents": [{"role": "user", "parts": [{"text": "hi"}]}]}}
