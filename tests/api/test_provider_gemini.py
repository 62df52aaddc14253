"""Gemini as the provider, through the Responses API and real sockets."""
import json

import pytest

import brigtest
from brigtest import SHELL, UPSTREAM_KEY, function, items_of, outputs_of, text_of
from conftest import run
from fake_gemini import (GeminiProvider, array, blocked, call, calls, cut, frame, refused, response, shell, stream, text,
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


def raw_contents(request):
    """The bytes of `contents`, without its last bracket."""
    at = request.body.index(b'"contents":') + len(b'"contents":')
    depth, i, in_string = 0, at, False
    while True:
        c = request.body[i:i + 1]
        if in_string:
            if c == b"\\":
                i += 1
            elif c == b'"':
                in_string = False
        elif c == b'"':
            in_string = True
        elif c in b"[{":
            depth += 1
        elif c in b"]}":
            depth -= 1
            if depth == 0:
                return request.body[at:i]
        i += 1


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
    assert raw_contents(again).startswith(raw_contents(model.requests[1]))
    assert contents(again)[3] == {"role": "model", "parts": [{"text": "It is 42."},
                                                             {"text": "", "thoughtSignature": "c2lnLWI="}]}
