"""
A conversation that a Messages client replays is the same bytes to the model, though this API's blocks have no ids that
name replies, carry arguments as objects, and are written again by the client's own JSON.
"""
import json

import pytest

from dialects import Say
from fake_provider import call, calls, chunk, ending, shell, text, Reply
from messagestest import BRIG_SHELL, SHELL, Messages, blocks, check_message, texts, tool
from test_replay import KINDS, messages_bytes


MORE = {
    "refused command": lambda: [calls(*[call("shell", {"command": "echo %d" % i}, id="c%d" % i) for i in range(31)]), text("x")],
    "own spelling": lambda: [calls(call("shell", '{ "commands" : ["echo \\u00e4\\/"],  "why":"because", "n": 12 }', id="x")),
                             text("ok")],
}


@pytest.fixture
def api(client):
    return Messages(client)


def answers_of(message, answers):
    return [{"type": "tool_result", "tool_use_id": b["id"], "content": a}
            for b, a in zip(blocks(message, "tool_use"), answers)]


def replay(api, model, tools, stream, answers=(), change=lambda content: content, **fields):
    """One turn, then the next with all of it; returns the two requests' messages and both answers."""
    ask = (lambda *a, **k: api.stream(*a, **k).message) if stream else api.create
    first = ask(model, "go", tools=tools, system="Be good.", **fields)
    last = messages_bytes(model.requests[-1])
    model.replies.append(text("the second answer"))
    second = ask(model, [{"role": "user", "content": "go"},
                         {"role": "assistant", "content": change(json.loads(json.dumps(first["content"])))},
                         {"role": "user", "content": answers_of(first, answers) + [{"type": "text", "text": "and now?"}]}],
                 tools=tools, system="Be good.", **fields)
    return last, messages_bytes(model.requests[-1]), first, second


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("entry", [SHELL, BRIG_SHELL], ids=["openrouter", "brig"])
@pytest.mark.parametrize("kind", list(KINDS) + list(MORE))
def test_the_next_turn_begins_with_the_last(api, provider, kind, entry, stream):
    last, first, _, second = replay(api, provider.model(*(KINDS | MORE)[kind]()), [entry], stream)
    assert first.startswith(last + ","), "\n%s\n%s" % (last, first)
    assert texts(second) == "the second answer"


def test_what_an_sdk_leaves_out_is_not_missed(api, provider):
    """AI SDKs keep the known members of a block alone."""
    known = {"server_tool_use": ("type", "id", "name", "input"),
             "bash_code_execution_tool_result": ("type", "tool_use_id", "content"), "text": ("type", "text")}

    def strip(content):
        out = [{k: v for k, v in b.items() if k in known[b["type"]]} for b in content]
        for b in out:
            if b["type"].endswith("_result"):
                b["content"] = {k: v for k, v in b["content"].items()
                                if k in ("type", "stdout", "stderr", "return_code", "content")}
        return out

    model = provider.model(calls(shell("echo hi >&2; exit 7"), content="Let me see."), text("ok"))
    last, first, _, _ = replay(api, model, [BRIG_SHELL], False, change=strip)
    assert first.startswith(last + ","), "\n%s\n%s" % (last, first)


def test_calls_of_both_kinds_in_one_reply(api, provider):
    model = provider.model(calls(shell("echo hi", id="a"), call("weather", {"city": "Rome"}, id="b"),
                                 content="Both."))
    last, first, answer, _ = replay(api, model, [SHELL, tool("weather")], True, ["sunny"])
    assert answer["stop_reason"] == "tool_use"
    assert first.startswith(last + ",")
    told = json.loads("[" + first + "]")
    assert [m["role"] for m in told] == ["system", "user", "assistant", "tool", "tool", "user"]
    assert [c["id"] for c in told[2]["tool_calls"]] == ["a", "b"]
    assert told[4] == {"role": "tool", "tool_call_id": "b", "content": "sunny"}


def test_a_reply_between_calls_stays_one(api, provider):
    """Text between two calls of one reply is of that reply, and its calls are cut back together."""
    reply = Reply([chunk({"role": "assistant", "content": "One: "}),
                   chunk({"tool_calls": [shell("echo 1", id="a")]}),
                   chunk({"content": "two: "}),
                   chunk({"tool_calls": [dict(shell("echo 2", id="b"), index=1)]})] + ending("tool_calls"))
    last, first, _, _ = replay(api, provider.model(reply, text("ok")), [SHELL], False)
    assert first.startswith(last + ","), "\n%s\n%s" % (last, first)


def test_results_that_the_client_dropped(api, provider):
    model = provider.model(calls(shell("echo hi")), text("ok"))
    _, first, _, _ = replay(api, model, [SHELL], False,
                            change=lambda content: [b for b in content if not b["type"].endswith("_result")])
    told = json.loads("[" + first + "]")
    assert json.loads(told[3]["content"]) == {"error": "The result of this call was not kept."}


def test_the_container_is_used_again(api, provider):
    model = provider.model(calls(shell("echo kept > note")), text("ok"))
    first = api.create(model, tools=[SHELL])
    name = blocks(first, "openrouter_shell_tool_result")[0]["container_id"]
    assert name.startswith("gen_")
    model.replies += [calls(shell("cat note")), text("ok")]
    second = api.create(model, [{"role": "user", "content": "go"}, {"role": "assistant", "content": first["content"]},
                                {"role": "user", "content": "and?"}], tools=[SHELL])
    result = blocks(second, "openrouter_shell_tool_result")[0]
    assert result["container_id"] == name and result["content"]["output"][0]["stdout"] == "kept\n"


def test_the_container_field_of_anthropic(api, provider):
    model = provider.model(calls(shell("echo kept > note")), text("ok"))
    first = api.create(model, tools=[BRIG_SHELL])
    assert set(first["container"]) == {"id", "expires_at"}
    for given in (first["container"]["id"], {"id": first["container"]["id"]}):
        model.replies += [calls(shell("cat note")), text("ok")]
        second = api.stream(model, tools=[BRIG_SHELL], container=given).message
        assert blocks(second, "bash_code_execution_tool_result")[0]["content"]["stdout"] == "kept\n"
        assert second["container"]["id"] == first["container"]["id"]
    assert "container" not in model.requests[-1].json


# ---- an upstream of the same dialect, and what needs its signatures ----

@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("entry", [SHELL, BRIG_SHELL], ids=["openrouter", "brig"])
def test_thinking_in_the_same_dialect(four, upstream, entry, stream):
    """Through a loop and a replay signatures stay with their blocks, and the bytes stay the same."""
    api = Messages(four.client())
    model = upstream.says("messages", Say("Look.", thinking="I must look.", signature="c2lnMQ==",
                                          calls=[("shell", {"commands": ["echo hi"], "timeout_ms": 9000})]),
                          Say("Again.", thinking="Once more.", signature="c2lnMg==",
                              calls=[("shell", {"commands": ["echo 1", "exit 4"]})]),
                          Say("Done.", thinking="That is all.", signature="c2lnMw=="), Say("Yes."))
    fields = {"tools": [entry], "thinking": {"type": "enabled", "budget_tokens": 2000}, "max_tokens": 4000}
    ask = (lambda *a, **k: api.stream(*a, **k).message) if stream else api.create
    first = ask(model.asked, "go", **fields)
    assert [b["signature"] for b in blocks(first, "thinking")] == ["c2lnMQ==", "c2lnMg==", "c2lnMw=="]
    assert "".join(b["thinking"] for b in blocks(first, "thinking")) == "I must look.Once more.That is all."
    last = messages_bytes(model.requests[-1])
    second = ask(model.asked, [{"role": "user", "content": "go"}, {"role": "assistant", "content": first["content"]},
                               {"role": "user", "content": "sure?"}], **fields)
    assert texts(second) == "Yes."
    told = messages_bytes(model.requests[-1])
    assert told.startswith(last + ","), "\n%s\n%s" % (last, told)
    signed = [b["signature"] for m in model.requests[-1].messages for b in m["content"] if b["type"] == "thinking"]
    assert signed == ["c2lnMQ==", "c2lnMg==", "c2lnMw=="]
    assert model.requests[-1].json["thinking"] == fields["thinking"]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("served", ["chat", "responses", "gemini"])
def test_thinking_of_other_dialects_is_sealed(four, upstream, served, stream):
    api = Messages(four.client())
    said = [Say("Look.", thinking="I must look.", signature="c2lnMQ==", calls=[("shell", {"commands": ["echo hi"]})]),
            Say("Done.", thinking="That is all.", signature="c2lnMg=="), Say("Yes.")]
    model = upstream.says(served, *said)
    ask = (lambda *a, **k: api.stream(*a, **k).message) if stream else api.create
    first = ask(model.asked, "go", tools=[SHELL])
    thoughts = blocks(first, "thinking")
    assert [b["thinking"] for b in thoughts] == ["I must look.", "That is all."]
    if served != "gemini":
        assert all(b["signature"].startswith("brig1.") for b in thoughts)
    before = model.requests[1].json
    second = ask(model.asked, [{"role": "user", "content": "go"}, {"role": "assistant", "content": first["content"]},
                               {"role": "user", "content": "sure?"}], tools=[SHELL])
    assert texts(second) == "Yes."
    key = {"chat": "messages", "responses": "input", "gemini": "contents"}[served]
    assert model.requests[2].json[key][:len(before[key])] == before[key]
    assert "brig1." not in model.requests[2].body.decode()


def test_a_signature_of_another_provider_is_dropped(four, upstream):
    api = Messages(four.client())
    model = upstream.says("chat", Say("Look.", thinking="I must look.", signature="c2lnMQ=="))
    first = api.create(model.asked, "go")
    other = upstream.says("messages", Say("Fine."))
    api.create(other.asked, [{"role": "user", "content": "go"}, {"role": "assistant", "content": first["content"]},
                             {"role": "user", "content": "sure?"}])
    assert "brig1." not in other.requests[0].body.decode()
    assert not any(b["type"] == "thinking" for m in other.requests[0].messages for b in m["content"])


def test_shell_and_bash_in_one_shape(api, provider):
    """Both have the blocks of Anthropic's code execution; each call is still cut back into its own."""
    model = provider.model(calls(shell("echo 1", id="a"), call("bash", {"command": "echo 2"}, id="b"),
                                 call("bash", {"commands": ["echo 3", "echo 4"]}, id="c"), shell("echo 5", "echo 6", id="d")),
                           text("ok"))
    tools = [BRIG_SHELL, {"type": "brig:bash", "parameters": {"engine": "openrouter"}}]
    last, first, answer, _ = replay(api, model, tools, True)
    assert first.startswith(last + ","), "\n%s\n%s" % (last, first)
    assert len(blocks(answer, "bash_code_execution_tool_result")) == 4
