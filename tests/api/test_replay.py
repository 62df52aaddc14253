"""
A replayed conversation is the same bytes to the model: what the next turn's first upstream request says begins with
what the last turn's last one said. Prompt caches hit by it, and signatures verify.
"""
import json

import pytest

from brigtest import BRIG_SHELL, SHELL, function, items_of, raw_list
from fake_provider import Reply, call, calls, chunk, ending, shell, text, text_deltas


def messages_bytes(request):
    return raw_list(request, "messages").decode()


def result(id, output):
    return {"type": "function_call_output", "call_id": id, "output": output}


def replay(client, model, tools, stream, answers=(), session=None, drop=()):
    """One turn, then the next with all of it; returns the two requests' messages and the second response."""
    fields = {"session_id": session} if session else {}
    ask = (lambda *a, **k: client.stream(*a, **k).response) if stream else client.ask
    before = len(model.requests)
    first = ask(model, "go", tools=tools, instructions="Be good.", **fields)
    last = messages_bytes(model.requests[-1])
    assert len(model.requests) > before
    model.replies.append(text("the second answer"))
    items = [{k: v for k, v in i.items() if k not in drop} for i in first["output"]]
    results = [result(i["call_id"], a) for i, a in zip(items_of(first, "function_call"), answers)]
    second = ask(model, [{"role": "user", "content": "go"}] + items + results + [
        {"role": "user", "content": "and now?"}], tools=tools, instructions="Be good.", **fields)
    return last, messages_bytes(model.requests[-1]), second


KINDS = {
    "text": lambda: [text("just text")],
    "one call": lambda: [calls(shell("echo hi", id="call_1")), text("it says hi")],
    "text and call": lambda: [calls(shell("echo hi"), content="Let me look. "), text("ok")],
    "parallel calls": lambda: [calls(shell("echo 1", id="a"), shell("echo 2", "false", id="b"), shell("echo 3", id="c"),
                                     content="Three."), text("ok")],
    "several replies": lambda: [calls(shell("echo 1", id="same")), calls(shell("echo 2", id="same"), content="again"),
                                calls(shell("echo 3", id="same")), text("ok")],
    "limits given": lambda: [calls(shell("echo hi", timeout_ms=5000, max_output_length=100)), text("ok")],
    "timeout": lambda: [calls(shell("echo begun; sleep 30", "echo two", timeout_ms=1000)), text("ok")],
    "signal": lambda: [calls(shell("kill -SEGV $$")), text("ok")],
    "cut output": lambda: [calls(shell("seq 10000", max_output_length=200)), text("ok")],
    "odd bytes": lambda: [calls(shell(r"printf '\xff\xe4\x01\"\\ \u00e4</script>\u2028'")), text("ok")],
    "broken arguments": lambda: [calls(call("shell", '{"commands": ["echo', id="bad")), text("oh")],
    "no arguments": lambda: [calls(call("shell", "", id="bad")), text("oh")],
    "unknown name": lambda: [calls(call("python", '{"code": 1}', id="bad")), text("oh")],
    "bad and good": lambda: [calls(call("shell", '{"commands": 7}', id="bad"), shell("echo good", id="good")), text("ok")],
    "past the limit": lambda: [calls(*[shell("echo %d" % i, id="c%d" % i) for i in range(32)]), text("ok")],
    "long id": lambda: [calls(shell("echo hi", id="toolu_" + "01AbC" * 30)), text("ok")],
    "odd id": lambda: [calls(shell("echo hi", id="call/with:odd chars=\u00e9")), text("ok")],
    "no id": lambda: [calls({k: v for k, v in shell("echo hi").items() if k != "id"}), text("ok")],
}

# What the shell_call item of brig:shell cannot carry is the model's own spelling of the arguments.
SPELLING = [calls(call("shell", '{ "commands" : ["echo hi"],  "why":"because" }', id="x")), text("ok")]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("tool", [SHELL, BRIG_SHELL], ids=["openrouter", "brig"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_next_turn_begins_with_the_last(client, provider, kind, tool, stream):
    last, first, second = replay(client, provider.model(*KINDS[kind]()), [tool], stream)
    assert first.startswith(last + ","), "\n%s\n%s" % (last, first)
    assert second["status"] == "completed"


def test_the_models_own_spelling_is_kept(client, provider):
    last, first, _ = replay(client, provider.model(*SPELLING), [SHELL], False)
    assert first.startswith(last + ",")
    assert r'{ \"commands\" : [\"echo hi\"],  \"why\":\"because\" }' in first


def test_brig_shell_keeps_what_was_told_at_once(client, provider):
    """The item has no place for the spelling, so the first turn itself says it in our form."""
    last, first, _ = replay(client, provider.model(*SPELLING), [BRIG_SHELL], False)
    assert first.startswith(last + ",")


@pytest.mark.parametrize("spelling", ["reasoning_content", "reasoning"])
@pytest.mark.parametrize("tool", [SHELL, BRIG_SHELL], ids=["openrouter", "brig"])
def test_reasoning_goes_back_as_it_came(client, provider, tool, spelling):
    model = provider.model(calls(shell("echo hi"), reasoning="I should look.", spelling=spelling),
                           Reply([chunk({spelling: "So it says hi."})] + text_deltas("hi") + ending("stop")))
    last, first, _ = replay(client, model, [tool], True)
    assert '"%s":"I should look."' % spelling in last
    assert first.startswith(last + ",")
    assert '"%s":"So it says hi."' % spelling in first


def test_reasoning_details_go_back_as_they_came(client, provider):
    details = [{"type": "reasoning.text", "text": "I should", "signature": "c2lnbmF0dXJl", "index": 0}]
    model = provider.model(Reply([chunk({"reasoning": "I should", "reasoning_details": details}),
                                  chunk({"tool_calls": [shell("echo hi")]})] + ending("tool_calls")), text("ok"))
    last, first, _ = replay(client, model, [SHELL], True)
    assert "c2lnbmF0dXJl" in last
    assert first.startswith(last + ",")


def test_a_thought_signature_goes_back_with_its_call(client, provider):
    signed = dict(shell("echo hi", id="g1"), extra_content={"google": {"thought_signature": "dGhvdWdodA=="}})
    last, first, _ = replay(client, provider.model(calls(signed), text("ok")), [SHELL], True)
    assert "dGhvdWdodA==" in last


def test_sealed_reasoning_of_another_account_is_not_forwarded(server, client, provider):
    model = provider.model(calls(shell("echo hi"), reasoning="secret thought"), text("ok"), text("ok"))
    first = client.ask(model, "go", tools=[SHELL])
    sealed = [i for i in first["output"] if i["type"] == "reasoning"][0]
    assert sealed["encrypted_content"].startswith("brig1.") and "secret" not in sealed["encrypted_content"]
    server.client("far").ask(model, [{"role": "user", "content": "go"}] + first["output"] +
                             [{"role": "user", "content": "x"}], tools=[SHELL])
    assert "reasoning_content" not in model.requests[-1].body.decode()
    # A damaged one is dropped too.
    broken = [dict(i, encrypted_content=i["encrypted_content"][:-4] + "AAAA") if i["type"] == "reasoning" else i
              for i in first["output"]]
    model.replies.append(text("ok"))
    client.ask(model, [{"role": "user", "content": "go"}] + broken + [{"role": "user", "content": "x"}], tools=[SHELL])
    assert "reasoning_content" not in model.requests[-1].body.decode()


@pytest.mark.parametrize("tool", [SHELL, BRIG_SHELL], ids=["openrouter", "brig"])
def test_a_mixed_reply_keeps_its_calls_in_one_message(client, provider, tool):
    model = provider.model(calls(shell("echo ours", id="a"), call("theirs", '{"n": 1}', id="b"),
                                 shell("echo more", id="c"), content="All at once."))
    tools = [tool, function("theirs")]
    last, first, _ = replay(client, model, tools, False, answers=["their result"])
    assert first.startswith(last + ",")
    said = json.loads("[" + first + "]")
    assert [m["role"] for m in said] == ["system", "user", "assistant", "tool", "tool", "tool", "user"]
    assert [c["id"] for c in said[2]["tool_calls"]] == ["a", "b", "c"]


def test_three_turns_each_begin_with_the_one_before(client, provider):
    model = provider.model(calls(shell("echo 1", id="call_1")), text("one"), calls(shell("echo 2", id="call_1")),
                           text("two"), calls(shell("echo 3", id="call_1"), call("theirs", "{}", id="f")), text("three"))
    tools = [SHELL, function("theirs")]
    history, last = [], ""
    for n in range(3):
        history.append({"role": "user", "content": "turn %d" % n})
        before = len(model.requests)
        response = client.ask(model, history, tools=tools)
        assert messages_bytes(model.requests[before]).startswith(last)
        last = messages_bytes(model.requests[-1]) + ","
        history += response["output"]
        history += [result(i["call_id"], "r") for i in items_of(response, "function_call")]
    client.ask(model, history, tools=tools)
    assert messages_bytes(model.requests[-1]).startswith(last)


def test_ids_of_items_may_be_dropped(client, provider):
    last, first, _ = replay(client, provider.model(*KINDS["parallel calls"]()), [SHELL], False,
                            drop=("id", "status", "created_by"))
    assert first.startswith(last + ",")


def test_a_call_whose_result_was_lost_gets_an_error_result(client, provider):
    model = provider.model(text("ok"))
    client.ask(model, [{"role": "user", "content": "go"},
                       {"type": "openrouter:shell", "id": "st_1", "status": "in_progress", "call_id": "s0_c",
                        "arguments": '{"commands":["sleep 99"]}'},
                       {"role": "user", "content": "well?"}], tools=[SHELL])
    messages = model.requests[0].messages
    assert [m["role"] for m in messages] == ["user", "assistant", "tool", "user"]
    assert "error" in json.loads(messages[2]["content"])


def test_a_history_of_many_replies_is_cut_back_into_them(client, provider):
    model = provider.model(*[calls(shell("echo %d" % i, id="call_%d" % (i % 3))) for i in range(12)], text("done"))
    last, first, _ = replay(client, model, [SHELL], True)
    assert first.startswith(last + ",")
    assert sum(m["role"] == "assistant" for m in json.loads("[" + first + "]")) == 13
