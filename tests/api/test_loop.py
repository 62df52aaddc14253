"""The loop: model call, shell calls, model call, … answer. Who runs what, in which order, and when it stops."""
import json

import pytest

from brigtest import SHELL, function, items_of, outputs_of, text_of
from fake_provider import Reply, call, calls, chunk, ending, error, shell, text


def told(request):
    """What the model was told about its calls, by call id."""
    return {m["tool_call_id"]: json.loads(m["content"]) for m in request.messages if m["role"] == "tool"}


def shells(response):
    return items_of(response, "openrouter:shell")


def test_a_call_is_run_and_its_result_told(client, provider):
    model = provider.model(calls(shell("echo 42; echo oops >&2; exit 3", id="call_a")), text("I saw 42"))
    response = client.ask(model, "do it", tools=[SHELL])
    (item,) = shells(response)
    assert item["status"] == "completed"
    assert item["output"] == [{"stdout": "42\n", "stderr": "oops\n", "outcome": {"type": "exit", "exit_code": 3}}]
    assert text_of(response) == "I saw 42" and response["status"] == "completed"
    assert told(model.requests[1]) == {"call_a": {"output": item["output"]}}


def test_the_model_is_offered_a_shell(client, provider):
    model = provider.model(text("no need"))
    response = client.ask(model, tools=[SHELL])
    (tool,) = model.requests[0].json["tools"]
    assert tool["type"] == "function" and tool["function"]["name"] == "shell"
    assert set(tool["function"]["parameters"]["properties"]) == {"commands", "timeout_ms", "max_output_length"}
    assert "server_tool_cost" not in response["usage"]["cost_details"]
    assert "server_tool_use_details" not in response["usage"] or (
        response["usage"]["server_tool_use_details"]["tool_calls_executed"] == 0)


def test_several_commands_run_in_order_each_in_its_own_bash(client, provider):
    model = provider.model(calls(shell("cd /tmp; X=1; echo first > order; echo $X", "pwd; echo [$X]",
                                       "cat /tmp/order")), text("ok"))
    outputs = outputs_of(client.ask(model, tools=[SHELL]))
    assert [o["stdout"] for o in outputs] == ["1\n", "/workspace/home\n[]\n", "first\n"]


def test_a_failed_command_does_not_stop_the_next(client, provider):
    model = provider.model(calls(shell("false", "echo on")), text("ok"))
    outputs = outputs_of(client.ask(model, tools=[SHELL]))
    assert [o["outcome"]["exit_code"] for o in outputs] == [1, 0]


def test_several_calls_of_one_reply_run_in_order(client, provider):
    model = provider.model(calls(shell("echo a >> log", id="c1"), shell("echo b >> log", id="c2"),
                                 shell("echo c >> log; cat log", id="c3")), text("ok"))
    response = client.ask(model, tools=[SHELL])
    items = shells(response)
    assert [i["call_id"].split("_", 1)[1] for i in items] == ["c1", "c2", "c3"]
    assert items[2]["output"][0]["stdout"] == "a\nb\nc\n"
    assert len({i["container_id"] for i in items}) == 1
    (assistant,) = [m for m in model.requests[1].messages if m["role"] == "assistant"]
    assert [c["id"] for c in assistant["tool_calls"]] == ["c1", "c2", "c3"]
    assert [m["tool_call_id"] for m in model.requests[1].messages if m["role"] == "tool"] == ["c1", "c2", "c3"]


def test_calls_of_several_replies_share_files_and_add_up(client, provider):
    model = provider.model(calls(shell("echo one > f"), usage=(10, 1)), calls(shell("cat f"), usage=(20, 2)),
                           text("ok", usage=(30, 3)))
    response = client.ask(model, tools=[SHELL])
    assert shells(response)[1]["output"][0]["stdout"] == "one\n"
    usage = response["usage"]
    assert (usage["input_tokens"], usage["output_tokens"], usage["total_tokens"]) == (60, 6, 66)
    assert usage["server_tool_use_details"] == {"tool_calls_requested": 2, "tool_calls_executed": 2}
    assert len({i["id"] for i in response["output"]}) == 3


def test_usage_counts_also_when_the_turn_fails(client, provider):
    model = provider.model(calls(shell("true"), usage=(10, 1)), calls(shell("true"), usage=(20, 2)),
                           error(500, {"error": {"message": "boom"}}))
    story = client.stream(model, tools=[SHELL])
    assert story.response["status"] == "failed"
    assert story.response["usage"]["input_tokens"] == 30 and story.response["usage"]["output_tokens"] == 3


def test_the_price_of_the_sandbox_is_exact(client, provider):
    model = provider.model(calls(shell("true")), text("ok"))
    answer = client.post("/responses", {"model": model.name, "input": "x", "tools": [SHELL]})
    assert b'"server_tool_cost":0.003' in answer.body and b'"cost":0.003' in answer.body


def test_a_warm_container_costs_only_its_time(client, provider):
    ask = lambda: client.ask(provider.model(calls(shell("sleep 0.2")), text("ok")), tools=[SHELL],
                             session_id="warm-price")["usage"]
    assert ask()["cost_details"]["server_tool_cost"] == 0.003
    assert 0 < ask()["cost_details"]["server_tool_cost"] < 0.003


def test_text_before_a_call_comes_before_it(client, provider):
    model = provider.model(calls(shell("echo hi"), content="Let me look."), text("Done."))
    story = client.stream(model, tools=[SHELL])
    assert [i["type"] for i in story.response["output"]] == ["message", "openrouter:shell", "message"]
    assert [p["text"] for i in items_of(story.response, "message") for p in i["content"]] == ["Let me look.", "Done."]


# ---- what is not run ----

@pytest.mark.parametrize("arguments, says", [
    ('{"commands": ["touch never"', "JSON"),
    ("", "JSON"),
    ('["touch never"]', "object"),
    ('{"cmds": ["touch never"]}', "commands"),
    ('{"commands": []}', "empty"),
    ('{"commands": [1]}', "strings"),
    ('{"commands": ["touch never"], "timeout_ms": "soon"}', "timeout_ms"),
    ('{"commands": ["touch never"], "commands": ["touch never"]}', "JSON"),
    ('{"commands": ["touch never\\u0000"]}', "NUL"),
])
def test_broken_arguments_are_never_run_and_the_model_is_told(client, provider, arguments, says):
    model = provider.model(calls(call("shell", arguments, id="bad")), calls(shell("ls", id="good")), text("ok"))
    response = client.ask(model, tools=[SHELL])
    bad, good = shells(response)
    assert bad["status"] == "failed" and "output" not in bad and bad["arguments"] == arguments
    assert says in bad["error"]
    assert good["output"][0]["stdout"] == ""
    assert says in told(model.requests[1])["bad"]["error"]


def test_an_unknown_name_is_never_run_and_the_model_is_told(client, provider):
    model = provider.model(calls(call("python", '{"code": "1"}', id="bad")), text("ok"))
    response = client.ask(model, tools=[SHELL])
    (item,) = response["output"][:1]
    assert item["type"] == "openrouter:shell" and item["status"] == "failed" and "python" in item["error"]
    assert "python" in told(model.requests[1])["bad"]["error"]


def test_a_call_cut_by_the_token_limit_is_never_run(client, provider):
    model = provider.model(calls(shell("touch never"), finish="length"), calls(shell("ls")), text("ok"))
    response = client.ask(model, tools=[SHELL])
    assert "touch never" in shells(response)[0]["arguments"]
    assert shells(response)[0]["status"] == "failed"
    assert not any(o["stdout"] for i in shells(response)[1:] for o in i.get("output", []))


def test_calls_of_a_reply_that_breaks_off_are_never_run(client, provider):
    from fake_provider import Cut
    model = provider.model(Reply([chunk({"tool_calls": [shell("touch never")]}), Cut()]))
    story = client.stream(model, tools=[SHELL], session_id="broke-off")
    assert story.response["status"] == "failed"
    assert client.run("sess_broke-off", "ls")["stdout"] == ""


def test_tool_choice_none_is_enforced(client, provider):
    model = provider.model(calls(shell("touch never")), text("ok"))
    response = client.ask(model, tools=[SHELL], tool_choice="none")
    assert model.requests[0].json["tool_choice"] == "none"
    (item,) = shells(response)
    assert item["status"] == "failed" and "tool_choice" in item["error"]


def test_a_model_that_never_makes_a_good_call_is_stopped(client, provider):
    from fake_provider import REPEAT
    model = provider.model(calls(call("python", "{}")), REPEAT)
    response = client.ask(model, tools=[SHELL])
    assert len(model.requests) <= 12
    assert model.requests[-1].json["tool_choice"] == "none"
    assert response["status"] in ("completed", "incomplete")


# ---- tool_choice over the loop ----

@pytest.mark.parametrize("choice", ["required", {"type": "shell"}, {"type": "openrouter:shell"}])
def test_a_forced_first_call_falls_back_to_auto(client, provider, choice):
    model = provider.model(calls(shell("true")), calls(shell("true")), text("ok"))
    response = client.ask(model, tools=[SHELL], tool_choice=choice)
    assert model.requests[0].json["tool_choice"] in ("required", {"type": "function", "function": {"name": "shell"}})
    assert [r.json.get("tool_choice", "auto") for r in model.requests[1:]] == ["auto", "auto"]
    assert response["tool_choice"] == choice


# ---- limits ----

def always(request):
    """A model that calls whenever it may."""
    sent = request.json
    if sent.get("tool_choice") == "none" or "tools" not in sent:
        return text("the end")
    return calls(shell("echo again"))


@pytest.mark.parametrize("limit", [1, 2])
def test_max_tool_calls_stops_the_loop_with_one_last_call(client, provider, limit):
    model = provider.model(always)
    response = client.ask(model, tools=[SHELL], max_tool_calls=limit)
    assert len(shells(response)) == limit and text_of(response) == "the end"
    assert len(model.requests) == limit + 1
    assert [r.json.get("tool_choice", "auto") for r in model.requests] == ["auto"] * limit + ["none"]
    assert model.requests[-1].json["tools"], "tools stay declared: they are the front of the cached prompt"


@pytest.mark.parametrize("fields", [{}, {"max_tool_calls": 30}, {"max_tool_calls": 31}, {"max_tool_calls": 10 ** 15}])
def test_the_limit_is_30(client, provider, fields):
    model = provider.model(always)
    response = client.ask(model, tools=[SHELL], **fields)
    assert len(shells(response)) == 30 and len(model.requests) == 31
    assert response["usage"]["server_tool_use_details"]["tool_calls_executed"] == 30


@pytest.mark.parametrize("value", [0, -1, "3", 1.5, True])
def test_a_wrong_max_tool_calls_is_refused(client, provider, value):
    model = provider.model()
    assert client.ask(model, tools=[SHELL], max_tool_calls=value, expect=400).error["param"] == "max_tool_calls"
    assert not model.requests


def test_calls_past_the_limit_of_one_reply_are_answered_with_an_error(client, provider):
    model = provider.model(calls(*[shell("echo %d >> log" % i, id="c%d" % i) for i in range(4)]), text("ok"))
    response = client.ask(model, tools=[SHELL], max_tool_calls=2, session_id="past-limit")
    items = shells(response)
    assert [i["status"] for i in items] == ["completed", "completed", "failed", "failed"]
    assert "2" in items[2]["error"]
    results = told(model.requests[1])
    assert "output" in results["c1"] and "error" in results["c2"] and "error" in results["c3"]
    assert model.requests[1].json["tool_choice"] == "none"
    assert client.run("sess_past-limit", "cat log")["stdout"] == "0\n1\n"
    usage = response["usage"]["server_tool_use_details"]
    assert usage == {"tool_calls_requested": 4, "tool_calls_executed": 2}


def test_the_last_call_cannot_call(client, provider):
    model = provider.model(calls(shell("echo one >> log")), calls(shell("echo two >> log"), content="Still, "))
    response = client.ask(model, tools=[SHELL], max_tool_calls=1, session_id="last-call")
    assert len(model.requests) == 2
    assert client.run("sess_last-call", "cat log")["stdout"] == "one\n"
    assert text_of(response) == "Still, "


def test_stop_server_tools_when_counts_steps(client, provider):
    model = provider.model(always)
    response = client.ask(model, tools=[SHELL], stop_server_tools_when=[{"type": "step_count_is", "step_count": 2}])
    assert len(shells(response)) == 2


# ---- functions of the client beside the shell ----

def test_a_client_call_beside_a_shell_call_is_returned_and_ours_run(client, provider):
    model = provider.model(calls(shell("echo ours", id="a"), call("theirs", '{"x":1}', id="b")))
    response = client.ask(model, tools=[SHELL, function("theirs")])
    ours, theirs = response["output"]
    assert ours["output"][0]["stdout"] == "ours\n"
    assert theirs["type"] == "function_call" and theirs["name"] == "theirs" and theirs["arguments"] == '{"x":1}'
    assert len(model.requests) == 1 and response["status"] == "completed"


def test_nothing_of_a_mixed_reply_is_lost_on_the_next_request(client, provider):
    model = provider.model(calls(call("theirs", '{"x":1}', id="b"), shell("echo ours", id="a"),
                                 call("theirs", '{"x":2}', id="c"), content="Both."))
    tools = [SHELL, function("theirs")]
    first = client.ask(model, "go", tools=tools)
    theirs = items_of(first, "function_call")
    model.replies += [text("all there")]
    client.ask(model, [{"role": "user", "content": "go"}] + first["output"] +
               [{"type": "function_call_output", "call_id": t["call_id"], "output": "r%d" % i}
                for i, t in enumerate(theirs)], tools=tools)
    messages = model.requests[1].messages
    assert [m["role"] for m in messages] == ["user", "assistant", "tool", "tool", "tool"]
    assert [c["id"] for c in messages[1]["tool_calls"]] == ["b", "a", "c"]
    assert messages[1]["content"] == "Both."
    assert [(m["tool_call_id"], m["content"]) for m in messages[2:]] == [
        ("b", "r0"), ("a", json.dumps({"output": [{"stdout": "ours\n", "stderr": "", "outcome": {
            "type": "exit", "exit_code": 0}}]}, separators=(",", ":"))), ("c", "r1")]


def test_a_client_call_alone_ends_the_turn(client, provider):
    model = provider.model(calls(call("theirs", "{}")))
    response = client.ask(model, tools=[SHELL, function("theirs")])
    assert len(model.requests) == 1 and response["status"] == "completed"


# ---- how upstreams number and cut their calls ----

def two_calls(first, second, **more):
    return Reply([chunk({"role": "assistant"})] + [chunk({"tool_calls": [p]}) for p in first + second] +
                 ending("tool_calls"), **more)


def piece(arguments, index=0, **more):
    return dict({"index": index, "function": {"arguments": arguments}}, **more)


def both(client, model):
    response = client.ask(model, tools=[SHELL])
    assert [o["stdout"] for o in outputs_of(response)] == ["1\n", "2\n"], response["output"]


def test_argument_pieces_without_an_id_belong_to_their_index(client, provider):
    a, b = shell("echo 1", id="a"), shell("echo 2", id="b")
    one, two = a["function"]["arguments"], b["function"]["arguments"]
    a["function"]["arguments"], b["function"]["arguments"] = one[:5], two[:3]
    b["index"] = 1
    both(client, provider.model(two_calls([a, piece(one[5:9]), piece(one[9:])], [b, piece(two[3:], 1)]), text("ok")))


def test_interleaved_pieces_are_kept_apart(client, provider):
    a, b = shell("echo 1", id="a"), dict(shell("echo 2", id="b"), index=1)
    one, two = a["function"]["arguments"], b["function"]["arguments"]
    a["function"]["arguments"], b["function"]["arguments"] = one[:5], two[:5]
    both(client, provider.model(two_calls([a, b], [piece(one[5:10]), piece(two[5:10], 1), piece(one[10:]),
                                                   piece(two[10:], 1)]), text("ok")))


def test_calls_that_all_have_index_0_are_kept_apart(client, provider):
    both(client, provider.model(two_calls([shell("echo 1", id="a")], [shell("echo 2", id="b")]), text("ok")))


def test_calls_without_ids_are_kept_apart(client, provider):
    a, b = shell("echo 1"), shell("echo 2")
    del a["id"], b["id"]
    both(client, provider.model(two_calls([a], [b]), text("ok")))


def test_calls_without_an_index_are_kept_apart(client, provider):
    a, b = shell("echo 1", id="a"), shell("echo 2", id="b")
    del a["index"], b["index"]
    both(client, provider.model(two_calls([a], [b]), text("ok")))


def test_calls_with_one_id_twice_are_kept_apart(client, provider):
    a, b = shell("echo 1", id="same"), dict(shell("echo 2", id="same"), index=1)
    both(client, provider.model(two_calls([a], [b]), text("ok")))


def test_empty_text_between_the_pieces_of_a_call_changes_nothing(client, provider):
    a = shell("echo 1; echo 2 >&2", id="a")
    one = a["function"]["arguments"]
    a["function"]["arguments"] = one[:4]
    model = provider.model(Reply([chunk({"tool_calls": [a]}), chunk({"content": ""}),
                                  chunk({"tool_calls": [piece(one[4:])]})] + ending("stop")), text("ok"))
    (output,) = outputs_of(client.ask(model, tools=[SHELL]))
    assert output["stdout"] == "1\n" and output["stderr"] == "2\n"


def test_finish_reason_stop_with_calls_still_runs_them(client, provider):
    model = provider.model(calls(shell("echo ran"), finish="stop"), text("ok"))
    (output,) = outputs_of(client.ask(model, tools=[SHELL]))
    assert output["stdout"] == "ran\n"


def test_a_whole_answer_of_an_upstream_that_cannot_stream_is_read(client, provider):
    whole = {"id": "x", "object": "chat.completion", "created": 1, "model": "up", "choices": [{
        "index": 0, "finish_reason": "tool_calls",
        "message": {"role": "assistant", "content": None, "tool_calls": [shell("echo whole")]}}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}}
    model = provider.model(Reply([json.dumps(whole)], framing="length", content_type="application/json"), text("ok"))
    response = client.ask(model, tools=[SHELL])
    assert outputs_of(response)[0]["stdout"] == "whole\n" and text_of(response) == "ok"


def test_long_call_ids_are_kept_short_for_the_client_and_whole_for_the_model(client, provider):
    long = "call_" + "x" * 200 + "/odd id"
    model = provider.model(calls(shell("echo 1", id=long)), text("ok"), text("ok"))
    first = client.ask(model, "go", tools=[SHELL])
    (item,) = shells(first)
    assert len(item["call_id"]) <= 40
    assert [m["tool_call_id"] for m in model.requests[1].messages if m["role"] == "tool"] == [long]
    client.ask(model, [{"role": "user", "content": "go"}] + first["output"] + [{"role": "user", "content": "more"}],
               tools=[SHELL])
    assert [m["tool_call_id"] for m in model.requests[2].messages if m["role"] == "tool"] == [long]


# ---- the bounds of a turn ----

def test_a_turn_that_is_out_of_time_ends_its_command_and_answers(make_server, provider):
    server = make_server(config={"limits": {"turn": "3s", "turn_unstreamed": "3s"}}).start()
    client = server.client()
    model = provider.model(calls(shell("echo begun; sleep 60", "echo never")), text("it took too long"))
    story = client.stream(model, tools=[SHELL])
    (item,) = shells(story.response)
    assert item["output"][0]["outcome"]["type"] == "timeout" and item["output"][0]["stdout"] == "begun\n"
    assert len(item["output"]) == 1
    assert text_of(story.response) == "it took too long"
    assert model.requests[1].json["tool_choice"] == "none"
    # Not streamed it ends with what it has.
    model = provider.model(calls(shell("echo begun; sleep 60")), text("never said"))
    response = client.ask(model, tools=[SHELL])
    assert response["status"] == "incomplete"
    assert shells(response)[0]["output"][0]["outcome"]["type"] == "timeout"


def test_output_of_a_turn_is_bounded(make_server, provider):
    server = make_server(config={"limits": {"call_output": "8k", "turn_output": "20k"}}).start()
    loud = calls(shell("yes | head -c 30000", "yes | head -c 30000", max_output_length=65536))
    model = provider.model(loud, loud, loud, loud, text("ok"))
    response = server.client().ask(model, tools=[SHELL])
    sizes = [sum(len(o["stdout"]) for o in i.get("output", [])) for i in shells(response)]
    assert all(s <= 8192 for s in sizes) and sum(sizes) <= 20480
    assert shells(response)[0]["output"][0]["stdout_truncated"] is True
    assert shells(response)[0]["output"][0]["stdout_length"] == 30000
