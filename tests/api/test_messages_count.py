"""POST /messages/count_tokens: the provider's own count where it has one, else an estimate that says so."""
import json

import pytest

import brigtest
import fake_provider
from dialects import PNG
from messagestest import SHELL, Messages, tool


@pytest.fixture(scope="module")
def server(four):
    return four


@pytest.fixture
def api(server):
    return Messages(server.client())


def counts(n):
    return fake_provider.Reply([json.dumps({"input_tokens": n}).encode()], framing="length",
                               content_type="application/json")


def count(api, model, messages="go", expect=200, **fields):
    body = api.body(model, messages, **fields)
    body.pop("max_tokens")
    answer = api.post("/messages/count_tokens?beta=true", body, **{"anthropic-beta": "one-2026-01-01"})
    assert answer.status == expect, answer
    return answer.json


@pytest.mark.parametrize("base", ["/v1", "/api/v1"])
def test_the_provider_counts(server, upstream, base):
    api = Messages(server.client(base=base))
    model = upstream.model(counts(1234))
    answer = count(api, "up-messages/" + model.upstream_name, system="Be good.", tools=[tool("weather"), SHELL],
                   thinking={"type": "enabled", "budget_tokens": 2000}, metadata={"user_id": "u"})
    assert answer == {"input_tokens": 1234}
    asked = model.requests[0]
    assert asked.path == "/v1/messages/count_tokens" and asked.headers["anthropic-beta"] == "one-2026-01-01"
    assert set(asked.json) == {"model", "system", "messages", "tools", "thinking"}
    assert asked.json["model"] == model.upstream_name
    assert [t["name"] for t in asked.json["tools"]] == ["weather", "shell"]


def test_a_server_that_has_no_count(api, upstream):
    model = upstream.model(fake_provider.error(404, {"error": {"message": "nothing here"}}))
    assert count(api, "up-messages/" + model.upstream_name, "word " * 100)["estimated"] is True


def test_what_the_provider_refuses(api, upstream):
    model = upstream.model(fake_provider.error(400, {"type": "error", "error": {"type": "invalid_request_error",
                                                                                "message": "too many cats"}}))
    answer = count(api, "up-messages/" + model.upstream_name, expect=400)
    assert answer["type"] == "error" and "too many cats" in answer["error"]["message"]
    gone = upstream.model(fake_provider.Reply([fake_provider.Reset()]))
    assert count(api, "up-messages/" + gone.upstream_name, expect=502)["error"]["type"] == "api_error"


def test_an_estimate(api, upstream):
    """About right for English, and images do not count by their bytes."""
    model = upstream.says("chat")
    small = count(api, model.asked, "word " * 1000)
    assert small["estimated"] is True and 1000 <= small["input_tokens"] <= 1500
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG * 1000}}
    assert 1400 < count(api, model.asked, [{"role": "user", "content": [image]}])["input_tokens"] < 1700
    with_tools = count(api, model.asked, "word " * 1000, tools=[SHELL, tool("weather")])
    assert with_tools["input_tokens"] > small["input_tokens"] + 50
    assert not model.requests


def test_the_script_is_no_model(api):
    assert count(api, "brig/script") == {"input_tokens": 0}


def test_bad_requests(api):
    assert count(api, "m", [], expect=400)["error"]["message"] == "messages: at least one message is required"
    assert count(api, "nobody/knows", expect=404)["error"]["type"] == "not_found_error"


def test_a_large_request(api, upstream):
    model = upstream.says("chat")
    assert count(api, model.asked, "word " * 200000)["input_tokens"] > 200000


def test_a_client_that_goes(server, api, upstream):
    model = upstream.model(fake_provider.Reply([fake_provider.Hold()]))
    body = api.body("up-messages/" + model.upstream_name)
    stream = brigtest.Stream(server.client(), "POST", "/v1/messages/count_tokens", body, {})
    request = model.wait()
    stream.reset()
    assert request.closed.wait(60)
