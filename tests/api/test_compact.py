"""POST /responses/compact: the provider's own where it has it, else a summary of brig's making, in all dialects."""
import json

import pytest

import fake_provider
from brigtest import function
from dialects import PNG, SERVED, Fail, Say

SUMMARY = "The user wants a blue boat 🚤, 12 m long."
LEAD = "This is a summary of what was said and done before:\n\n"


@pytest.fixture(scope="module")
def server(four):
    return four


def compact(client, model, input=None, expect=200, headers=None, **fields):
    body = dict({"model": model}, **fields)
    if input is not None:
        body["input"] = input
    answer = client.post("/responses/compact", body, headers=headers)
    assert answer.status == expect, answer
    return answer.json if expect == 200 else answer.json["error"]


def said(role, text):
    return {"type": "message", "role": role, "content": text}


TALK = [said("user", "I want a boat."), said("assistant", "Which colour?"), said("user", "Blue."),
        {"type": "function_call", "call_id": "c1", "name": "measure", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "12 m"}, said("assistant", "It is 12 m.")]


def no_path(served):
    """A Responses provider that lacks the path is asked there once, and then for a summary."""
    return [fake_provider.error(404, {"error": {"message": "no such path"}})] if served == "responses" else []


def summarizes(upstream, served, *more):
    says = [SERVED[served].reply(s) for s in (Say(SUMMARY, thinking="hm", signature="c2ln"),) + more]
    model = upstream.model(*no_path(served), *says)
    model.asked = "up-%s/%s" % (served, model.upstream_name)
    return model


def check(answer):
    assert set(answer) == {"id", "object", "created_at", "output", "usage"}
    assert answer["object"] == "response.compaction" and answer["id"].startswith("resp_")
    assert isinstance(answer["created_at"], int)
    assert len({i["id"] for i in answer["output"]}) == len(answer["output"])
    last = answer["output"][-1]
    assert set(last) == {"id", "type", "encrypted_content"} and last["type"] == "compaction"
    assert last["encrypted_content"].startswith("brig1.") and last["id"].startswith("cmp_")
    return last


def texts(answer):
    return [(i["role"], i["content"][0]["text"]) for i in answer["output"][:-1]]


@pytest.mark.parametrize("base", ["/v1", "/api/v1"])
@pytest.mark.parametrize("served", list(SERVED))
def test_a_summary(server, upstream, served, base):
    client = server.client(base=base)
    model = summarizes(upstream, served, Say("Here it is."))
    answer = compact(client, model.asked, TALK, instructions="Sell boats.")
    check(answer)
    assert texts(answer) == [("user", "I want a boat."), ("user", "Blue.")]
    assert (answer["usage"]["input_tokens"], answer["usage"]["output_tokens"]) == (10, 5)
    assert SUMMARY not in json.dumps(answer, ensure_ascii=False)

    asked = model.requests[-1]
    seen = SERVED[served].seen(asked)
    assert [s[1] for s in seen if s[0] in ("system", "user")][:1] == ["Sell boats."]
    assert ("result", "12 m") in seen and seen[-1][0] == "user" and "Summarize the conversation" in seen[-1][1]
    if served == "messages":  # whose API wants to know the tools of calls that were made
        assert [t["name"] for t in asked.json["tools"]] == ["measure"] and asked.json["tool_choice"] == {"type": "none"}
    else:
        assert not any("tool" in key.lower() for key in asked.json)
    assert "8192" in asked.body.decode()

    # The window is gone on from.
    window = answer["output"] + [said("user", "Show it.")]
    client.ask(model.asked, window)
    seen = SERVED[served].seen(model.requests[-1])
    users = "\n".join(s[1] for s in seen if s[0] == "user")
    assert users.index("Blue.") < users.index(LEAD + SUMMARY) < users.index("Show it.")
    assert "brig1." not in model.requests[-1].body.decode() and "Summarize" not in users


@pytest.mark.parametrize("store", [True, False], ids=["stored", "not stored"])
@pytest.mark.parametrize("to", list(SERVED))
def test_every_provider_gets_the_summary(client, upstream, to, store):
    item = check(compact(client, summarizes(upstream, "chat").asked, TALK))
    other = upstream.says(to, Say("ok"))
    client.ask(other.asked, [dict(item, status="completed", created_by="me"), said("user", "go on")], store=store)
    assert any(LEAD + SUMMARY in s[1] for s in SERVED[to].seen(other.requests[0]) if s[0] == "user")


def test_a_summary_is_summarized(client, upstream):
    first = compact(client, summarizes(upstream, "messages").asked, TALK)
    model = summarizes(upstream, "chat")
    second = compact(client, model.asked, first["output"] + [said("assistant", "Hm."), said("user", "And a sail.")])
    assert texts(second) == [("user", "I want a boat."), ("user", "Blue."), ("user", "And a sail.")]
    assert any(LEAD + SUMMARY in s[1] for s in SERVED["chat"].seen(model.requests[0]))
    check(second)


def test_what_stays(client, upstream):
    """The latest messages of the client's side, up to a bound, with their images."""
    image = {"type": "input_image", "image_url": "data:image/png;base64," + PNG}
    talk = [said("developer", "Be short."), said("user", "x" * 70000), said("developer", "Be kind."),
            said("user", [{"type": "input_text", "text": "look"}, image])]
    answer = compact(client, summarizes(upstream, "chat").asked, talk)
    check(answer)
    assert texts(answer) == [("developer", "Be kind."), ("user", "look")]
    assert answer["output"][1]["content"][1] == dict(image, detail="auto")
    assert texts(compact(client, summarizes(upstream, "chat").asked, "only a text")) == [("user", "only a text")]


def test_after_a_stored_response(client, upstream):
    model = upstream.says("chat", Say("Which colour?"), Say(SUMMARY), Say("ok"))
    first = client.ask(model.asked, "I want a boat.")
    answer = compact(client, model.asked, previous_response_id=first["id"])
    check(answer)
    assert texts(answer) == [("user", "I want a boat.")]
    assert ("text", "Which colour?") in SERVED["chat"].seen(model.requests[1])
    assert client.get("/responses/" + answer["id"]).status == 404  # it is not kept
    # … and what went on from it is kept with it
    second = client.ask(model.asked, answer["output"] + [said("user", "Blue.")])
    third = upstream.says("gemini", Say("ok"))
    client.ask(third.asked, "more", previous_response_id=second["id"])
    assert any(SUMMARY in s[1] for s in SERVED["gemini"].seen(third.requests[0]) if s[0] == "user")
    assert "not found" in compact(client, model.asked, previous_response_id="resp_none", expect=400)["message"]


OWN = {"id": "resp_up", "object": "response.compaction", "created_at": 5, "new": [1.50],
       "output": [{"id": "msg_u", "type": "message", "role": "user", "status": "completed",
                   "content": [{"type": "input_text", "text": "I want a boat."}]},
                  {"id": "cmp_up", "type": "compaction", "encrypted_content": "gAAAA-up"}],
       "usage": {"input_tokens": 7, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 3,
                 "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 10}}


def as_json(value):
    return fake_provider.Reply([json.dumps(value).encode()], framing="length", content_type="application/json")


def test_the_providers_own(client, upstream):
    model = upstream.model(as_json(OWN), SERVED["responses"].reply(Say("Here.")))
    name = "up-responses/" + model.upstream_name
    assert compact(client, name, TALK, prompt_cache_key="k", instructions="Sell.") == OWN
    asked = model.requests[0]
    assert asked.path == "/v1/responses/compact"
    assert asked.json == {"model": model.upstream_name, "input": TALK, "prompt_cache_key": "k", "instructions": "Sell."}
    # Its item goes back as it is, and to nobody else.
    window = OWN["output"] + [said("user", "Show it.")]
    client.ask(name, window)
    assert OWN["output"][1] in model.requests[1].json["input"]
    other = upstream.says("messages", Say("no"))
    refusal = client.ask(other.asked, window, expect=400).json["error"]
    assert "'compaction'" in refusal["message"] and refusal["param"] == "input[1].type"
    assert compact(client, other.asked, window, expect=400)["param"] == "input[1].type"
    assert not other.requests


def test_what_the_provider_refuses(client, upstream):
    model = upstream.model(fake_provider.error(400, {"error": {"message": "too many boats", "param": None, "code": None,
                                                               "type": "invalid_request_error"}}))
    error = compact(client, "up-responses/" + model.upstream_name, TALK, expect=400)
    assert "too many boats" in error["message"] and len(model.requests) == 1
    other = upstream.says("chat", Fail(400, "no boats"))
    assert "no boats" in compact(client, other.asked, TALK, expect=400)["message"]


@pytest.mark.parametrize("base", ["/v1", "/api/v1"])
def test_bad_requests(server, upstream, base):
    client = server.client(base=base)
    model = upstream.says("chat", Say("no"))
    for body, param in (({"input": "x"}, "model"), ({"model": model.asked}, "input"),
                        ({"model": model.asked, "input": []}, "input"),
                        ({"model": model.asked, "input": "x", "nonsense": 1}, "nonsense"),
                        ({"model": model.asked, "input": "x", "stream": True}, "stream"),
                        ({"model": model.asked, "input": "x", "background": True}, "background")):
        answer = client.post("/responses/compact", body)
        assert answer.status == 400 and answer.json["error"]["param"] == param, answer
    assert client.get("/responses/compact").status == 404
    assert not model.requests


def test_the_script_is_no_model(client):
    error = compact(client, "brig/script", "```sh\ntrue\n```", expect=400)
    assert "cannot summarize" in error["message"]


def test_what_does_not_open(server, client, upstream):
    item = check(compact(client, summarizes(upstream, "chat").asked, TALK))
    model = upstream.says("chat", Say("no"))
    sealed = item["encrypted_content"]
    flipped = sealed[:-6] + ("A" if sealed[-6] != "A" else "B") + sealed[-5:]
    for bad in (flipped, "brig1.", "brig1.!!", sealed[:40]):
        for path in ("/responses", "/responses/compact", "/responses/input_tokens"):
            answer = client.post(path, {"model": model.asked, "input": [dict(item, encrypted_content=bad)]})
            assert answer.status == 400 and "was not made here" in answer.json["error"]["message"], answer
            assert answer.json["error"]["param"] == "input[0].encrypted_content"
    far = server.client(key="far").ask(model.asked, [item], expect=400)
    assert "not for this account" in far.json["error"]["message"]
    counted = client.post("/responses/input_tokens", {"model": model.asked, "input": [item]})
    assert counted.status == 200 and counted.json["input_tokens"] > 10
    assert not model.requests


def test_a_summary_that_is_too_long(client, upstream):
    model = upstream.model(fake_provider.text("Half a summ", finish="length"), fake_provider.text("x" * 300000))
    model.asked = "up-chat/" + model.upstream_name
    assert "max_output_tokens" in compact(client, model.asked, TALK, expect=502)["message"]
    assert "too long" in compact(client, model.asked, TALK, expect=502)["message"]


def test_the_next_target(client, upstream):
    """A provider that fails is stepped in for, whether by its own compaction or by a summary."""
    dead = upstream.model(*[fake_provider.error(500, {"error": {"message": "no"}})] * 3)
    lives = summarizes(upstream, "responses")
    answer = compact(client, "up-gemini/" + dead.upstream_name, TALK, models=[lives.asked])
    check(answer)
    assert [r.path for r in lives.requests] == ["/v1/responses/compact", "/v1/responses"]


@pytest.mark.parametrize("served", list(SERVED))
def test_no_summary(client, upstream, served):
    def fails(say, text):
        model = upstream.model(*no_path(served), SERVED[served].reply(say))
        assert text in compact(client, "up-%s/%s" % (served, model.upstream_name), TALK, expect=502)["message"]
    fails(Say("  "), "no summary")
    fails(Say(None, calls=[("measure", {})]), "no summary")
    fails(Say("A summary that bre", cut=True), "")


def test_once(client, upstream):
    model = summarizes(upstream, "chat")
    first = compact(client, model.asked, TALK, headers={"Idempotency-Key": "boat"})
    assert compact(client, model.asked, TALK, headers={"Idempotency-Key": "boat"}) == first
    assert len(model.requests) == 1


def test_tools_are_left_aside(client, upstream):
    """Clients send what they send with every request."""
    model = summarizes(upstream, "gemini")
    check(compact(client, model.asked, TALK, tools=[function("measure")], parallel_tool_calls=True, store=False,
                  text={"verbosity": "low"}, truncation="auto", reasoning={"effort": "low"}, temperature=1))
    assert not model.requests[0].json.get("tools")
