"""OpenAI's `shell` and `local_shell` on the Responses API: in our sandbox, in the provider's own, and the client's."""
import json

import pytest

import brigtest
import fake_provider
from brigtest import UPSTREAM_KEY, function, items_of, outputs_of, raw_list, text_of
from conftest import run
from fake_provider import Reply
from fake_responses import (call, event, events_of, begin, message, native_shell, reasoning, response,
                            shell, shell_items, stream, text, with_native_shell)

AUTO = {"type": "shell", "environment": {"type": "container_auto"}}
LOCAL = {"type": "shell", "environment": {"type": "local"}}
ONE = {"type": "local_shell"}


@pytest.fixture(scope="module")
def upstream(responses_upstream):
    return responses_upstream


@pytest.fixture(scope="module")
def chat(provider):
    return provider


@pytest.fixture(scope="module")
def server(upstream, chat):
    yield from run(brigtest.Server(config={"providers": with_native_shell(upstream, chat)}))


def named(model, provider):
    return provider + "/" + model.upstream_name


def types(items):
    return [i["type"] for i in items]


@pytest.mark.parametrize("dialect", ["fake", "chat"])
def test_it_runs_in_our_sandbox(client, upstream, chat, dialect):
    if dialect == "fake":
        model = upstream.model(stream(shell("echo 42", "exit 3", timeout_ms=9000)), text("done"), text("again"))
    else:
        model = chat.model(fake_provider.calls(fake_provider.shell("echo 42", "exit 3", timeout_ms=9000)),
                           fake_provider.text("done"), fake_provider.text("again"))
    story = client.stream(named(model, dialect), tools=[AUTO])
    answer = story.response
    assert types(answer["output"]) == ["shell_call", "shell_call_output", "message"]
    made, out, _ = answer["output"]
    assert made["action"] == {"commands": ["echo 42", "exit 3"], "timeout_ms": 9000, "max_output_length": None}
    assert [o["stdout"] for o in out["output"]] == ["42\n", ""]
    assert out["output"][1]["outcome"] == {"type": "exit", "exit_code": 3}
    container = made["environment"]["container_id"]
    # The tool is shown with its container, from the first event on.
    for name, e in story.events[:2] + story.events[-2:-1]:
        assert e["response"]["tools"] == [{"type": "shell", "environment": {
            "type": "container_reference", "container_id": container}}]
    assert "response.shell_call_command.delta" in story.types
    assert "response.shell_call_output_content.delta" in story.types
    again = client.ask(named(model, dialect), [{"role": "user", "content": "go"}] + answer["output"] +
                       [{"role": "user", "content": "more"}], tools=[answer["tools"][0]])
    assert text_of(again) == "again"
    name = "input" if dialect == "fake" else "messages"
    assert raw_list(model.requests[2], name).startswith(raw_list(model.requests[1], name))


def test_the_container_is_found_again_by_reference(client, upstream):
    model = upstream.model(stream(shell("echo kept > file")), text("ok"), stream(shell("cat file")), text("ok"))
    first = client.ask(named(model, "native"), tools=[
        {"type": "shell", "environment": {"type": "container_reference", "container_id": "box-of-shell"}}])
    assert outputs_of(first)[0]["outcome"]["exit_code"] == 0
    again = client.ask(named(model, "native"), tools=[
        {"type": "shell", "environment": {"type": "container_reference", "container_id": "box-of-shell"}}])
    assert outputs_of(again)[0]["stdout"] == "kept\n"


NATIVE = shell_items("ls", "pwd")


def test_a_provider_that_has_a_shell_runs_it(client, upstream):
    """Stored here, so translated: its items are shown as it wrote them."""
    model = upstream.model(native_shell(NATIVE, "Done."), native_shell(shell_items("id", call_id="call_n2"), "More."))
    story = client.stream(named(model, "native"), tools=[AUTO], include=["reasoning.encrypted_content"])
    answer = story.response
    assert answer["output"][:2] == NATIVE and text_of(answer) == "Done."
    assert answer["tools"] == [AUTO]
    assert model.requests[0].json["tools"] == [AUTO] and len(model.requests) == 1
    assert "sandbox_seconds" not in json.dumps(answer["usage"])
    client.ask(named(model, "native"), [{"role": "user", "content": "go"}] + answer["output"] +
               [{"role": "user", "content": "more"}], tools=[AUTO], tool_choice={"type": "shell"})
    told = model.requests[1].json
    assert told["input"][1:3] == NATIVE and told["tool_choice"] == {"type": "shell"}


def test_its_events_pass_where_nothing_is_kept(client, upstream):
    reply = native_shell(NATIVE, "Done.")
    model = upstream.model(reply)
    stream = client.begin(named(model, "native"), tools=[AUTO], store=False)
    assert stream.status == 200
    data = stream.rest()
    for step in reply.steps[2:-1]:
        assert step in data
    assert b'"model": "native/' in data or b'"model":"native/' in data


def test_its_items_are_history_to_any_other_provider(client, upstream, chat):
    model = upstream.model(text("ok"))
    other = chat.model(fake_provider.text("ok"))
    history = [{"role": "user", "content": "go"}] + NATIVE + [message("Done."), {"role": "user", "content": "more"}]
    client.ask(named(model, "fake"), history, tools=[AUTO])
    told = model.requests[0].json["input"]
    assert types(told) == ["message", "function_call", "function_call_output", "message", "message"]
    assert json.loads(told[1]["arguments"]) == {"commands": ["ls", "pwd"]}
    assert json.loads(told[2]["output"])["output"][1]["stdout"] == "ran pwd\n"
    client.ask(named(other, "chat"), history, tools=[AUTO])
    assert [m["role"] for m in other.requests[0].messages] == ["user", "assistant", "tool", "assistant", "user"]


@pytest.mark.parametrize("why", [{"session_id": "abc"}, {"headers": {"x-session-id": "abc"}}, {
    "tools": [{"type": "shell", "environment": {"type": "container_reference", "container_id": "box"}}]}])
def test_what_names_our_container_runs_in_it(client, upstream, why):
    model = upstream.model(stream(shell("echo ours")), text("ok"))
    answer = client.ask(named(model, "native"), **dict({"tools": [AUTO]}, **why))
    assert outputs_of(answer)[0]["stdout"] == "ours\n"
    assert model.requests[0].json["tools"][0]["type"] == "function"


def test_what_only_the_provider_can(client, upstream, chat):
    skills = {"type": "shell", "environment": {"type": "container_auto", "memory_limit": "4g"}}
    model = upstream.model(native_shell(NATIVE, "Done."))
    other = chat.model(fake_provider.text("no"))
    assert text_of(client.ask(named(model, "native"), tools=[skills])) == "Done."
    for name in (named(model, "fake"), named(other, "chat")):
        error = client.ask(name, tools=[skills], expect=400).error
        assert error["param"] == "tools[0].environment.memory_limit"
    assert not other.requests and len(model.requests) == 1


@pytest.mark.parametrize("dialect", ["fake", "chat"])
def test_a_local_shell_is_the_clients(client, upstream, chat, dialect):
    if dialect == "fake":
        model = upstream.model(stream(reasoning("Hm."), shell("ls", "pwd", call_id="call_x", max_output_length=100)),
                               text("done"))
    else:
        model = chat.model(fake_provider.calls(fake_provider.shell("ls", "pwd", id="call_x", max_output_length=100)),
                           fake_provider.text("done"))
    story = client.stream(named(model, dialect), tools=[LOCAL, function("f")])
    (made,) = items_of(story.response, "shell_call")
    assert made["action"] == {"commands": ["ls", "pwd"], "timeout_ms": None, "max_output_length": 100}
    assert made["environment"] == {"type": "local"} and made["status"] == "completed"
    assert made["call_id"] == "call_x" and story.response["status"] == "completed"
    assert story.response["tools"][0] == LOCAL and len(model.requests) == 1
    assert "response.shell_call_command.done" in story.types
    out = {"type": "shell_call_output", "call_id": "call_x", "max_output_length": 100,
           "output": [{"stdout": "a\n", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}},
                      {"stdout": "/", "stderr": "", "outcome": {"type": "timeout"}}]}
    client.ask(named(model, dialect), [{"role": "user", "content": "go"}] + story.response["output"] + [out],
               tools=[LOCAL, function("f")])
    told = json.dumps(model.requests[1].json)
    assert "call_x" in told and "timeout" in told


def test_local_shell_is_the_clients(client, upstream):
    model = upstream.model(stream(call("local_shell", {"command": ["ls", "-l"], "timeout_ms": 5,
                                                       "working_directory": "/tmp"}, "call_l")), text("done"))
    story = client.stream(named(model, "fake"), tools=[ONE])
    (made,) = items_of(story.response, "local_shell_call")
    assert made["action"] == {"type": "exec", "command": ["ls", "-l"], "env": {}, "timeout_ms": 5,
                              "working_directory": "/tmp"}
    assert made["call_id"] == "call_l" and made["status"] == "completed"
    client.ask(named(model, "fake"), [{"role": "user", "content": "go"}, made, {
        "type": "local_shell_call_output", "id": "call_l", "output": "{\"stdout\":\"x\"}"}], tools=[ONE])
    told = model.requests[1].json["input"]
    assert types(told) == ["message", "function_call", "function_call_output"]
    assert told[2]["output"] == "{\"stdout\":\"x\"}"


def test_a_native_local_shell(client, upstream):
    made = {"id": "lsh_1", "type": "local_shell_call", "status": "completed", "call_id": "call_l",
            "action": {"type": "exec", "command": ["ls"], "env": {}}}
    out = {"type": "local_shell_call_output", "call_id": "call_l", "output": "x"}
    model = upstream.model(stream(made), text("done"))
    story = client.stream(named(model, "native"), tools=[ONE])
    assert story.response["output"] == [made] and model.requests[0].json["tools"] == [ONE]
    client.ask(named(model, "native"), [{"role": "user", "content": "go"}, made, out], tools=[ONE])
    assert model.requests[1].json["input"][1:] == [made, out]


def test_arguments_that_are_no_call(client, upstream):
    model = upstream.model(stream(call("shell", "{oops", "call_x")))
    story = client.stream(named(model, "fake"), tools=[LOCAL])
    (made,) = items_of(story.response, "shell_call")
    assert made["status"] == "incomplete" and made["action"]["commands"] == []


# ---- other tools and items of OpenAI's own ----

WEB = {"id": "ws_1", "type": "web_search_call", "status": "completed",
       "action": {"type": "search", "query": "café", "sources": [{"type": "url", "url": "https://a.example/"}]}}
CITED = message("See a.", id="msg_cited", content=[{
    "type": "output_text", "text": "See a.", "logprobs": [],
    "annotations": [{"type": "url_citation", "start_index": 4, "end_index": 5, "url": "https://a.example/", "title": "A"}]}])


def test_web_search_with_citations(client, upstream, chat):
    model = upstream.model(stream(WEB, CITED), text("ok"))
    tools = [{"type": "web_search", "search_context_size": "low"}, AUTO]
    answer = client.stream(named(model, "fake"), tools=tools, tool_choice={"type": "web_search"},
                           include=["web_search_call.action.sources"]).response
    assert answer["output"][0] == WEB and answer["output"][1]["content"] == CITED["content"]
    sent = model.requests[0].json
    assert sent["tools"][0] == tools[0] and sent["tools"][1]["type"] == "function"
    assert sent["tool_choice"] == {"type": "web_search"}
    assert sent["include"] == ["reasoning.encrypted_content", "web_search_call.action.sources"]
    history = [{"role": "user", "content": "go"}] + answer["output"] + [{"role": "user", "content": "more"}]
    client.ask(named(model, "fake"), history, tools=tools)
    told = model.requests[1].json["input"]
    assert told[1] == WEB and told[2]["content"][0]["annotations"] == CITED["content"][0]["annotations"]

    other = chat.model(fake_provider.text("no"))
    error = client.ask(named(other, "chat"), tools=tools, expect=400).error
    assert error["param"] == "tools[0].type" and "web_search" in error["message"]
    error = client.ask(named(other, "chat"), history, expect=400).error
    assert error["param"] == "input[1].type" and "web_search_call" in error["message"]
    assert not other.requests


def test_items_of_its_own_beside_a_loop_of_ours(client, upstream):
    compaction = {"id": "cmp_1", "type": "compaction", "encrypted_content": "XYZ"}
    noted = message("I will look.", phase="commentary")
    model = upstream.model(stream(compaction, reasoning("A"), noted, shell("echo 1")), text("done"), text("bye"))
    answer = client.stream(named(model, "fake"), tools=[AUTO]).response
    assert types(answer["output"]) == ["compaction", "reasoning", "message", "shell_call", "shell_call_output", "message"]
    assert answer["output"][2]["phase"] == "commentary"
    told = model.requests[1].json["input"]
    assert told[1] == compaction and told[3]["phase"] == "commentary"
    client.ask(named(model, "fake"), [{"role": "user", "content": "go"}] + answer["output"] +
               [{"role": "user", "content": "more"}], tools=[AUTO])
    assert model.requests[2].json["input"][:len(told)] == told


def test_a_custom_tool_goes_to_the_client_and_back(client, upstream):
    made = {"id": "ctc_1", "type": "custom_tool_call", "status": "completed", "call_id": "call_c", "name": "sql",
            "input": "select 1"}
    out = {"type": "custom_tool_call_output", "call_id": "call_c", "output": "1"}
    model = upstream.model(stream(made), text("one"))
    tools = [{"type": "custom", "name": "sql", "description": "Runs SQL."}]
    answer = client.ask(named(model, "fake"), tools=tools, tool_choice={"type": "custom", "name": "sql"})
    assert answer["output"] == [made] and answer["status"] == "completed"
    assert model.requests[0].json["tool_choice"] == {"type": "custom", "name": "sql"}
    client.ask(named(model, "fake"), [{"role": "user", "content": "go"}, made, out], tools=tools)
    assert model.requests[1].json["input"][1:] == [made, out]


def test_a_call_with_a_namespace(client, upstream):
    model = upstream.model(stream(call("f", "{}", "call_n", namespace="crm")), text("x"))
    answer = client.stream(named(model, "fake"), tools=[function("f")]).response
    (made,) = answer["output"]
    assert made["namespace"] == "crm"
    client.ask(named(model, "fake"), [{"role": "user", "content": "go"}, made,
                                      {"type": "function_call_output", "call_id": "call_n", "output": "r"}],
               tools=[function("f")])
    assert model.requests[1].json["input"][1]["namespace"] == "crm"
    assert events_of(made, 0) and begin() and event("x") and response()


def test_a_custom_call_beside_a_call_of_ours(client, upstream):
    """Ours runs, theirs goes to the client, and both results are there when it comes back."""
    made = {"id": "ctc_1", "type": "custom_tool_call", "status": "completed", "call_id": "call_c", "name": "sql",
            "input": "select 1"}
    out = {"type": "custom_tool_call_output", "call_id": "call_c", "output": "1"}
    model = upstream.model(stream(shell("echo 1"), made), text("done"))
    tools = [AUTO, {"type": "custom", "name": "sql"}]
    answer = client.stream(named(model, "fake"), tools=tools).response
    assert types(answer["output"]) == ["shell_call", "shell_call_output", "custom_tool_call"] and len(model.requests) == 1
    client.ask(named(model, "fake"), [{"role": "user", "content": "go"}] + answer["output"] + [out], tools=tools)
    assert types(model.requests[1].json["input"])[1:] == ["function_call", "function_call_output", "custom_tool_call",
                                                          "custom_tool_call_output"]


def test_an_item_of_its_own_behind_a_call_of_ours(client, upstream):
    model = upstream.model(stream(shell("echo 1"), WEB, message("Noted."), shell("echo 2", call_id="b", id="fc_b")),
                           text("done"), text("bye"))
    answer = client.stream(named(model, "fake"), tools=[AUTO]).response
    client.ask(named(model, "fake"), [{"role": "user", "content": "go"}] + answer["output"] +
               [{"role": "user", "content": "more"}], tools=[AUTO])
    told, again = (r.json["input"] for r in model.requests[1:])
    assert types(told) == ["message", "function_call", "function_call_output", "web_search_call", "message",
                           "function_call", "function_call_output"]
    assert again[:len(told)] == told


def test_a_tool_of_the_providers_that_takes_its_time(make_server, upstream):
    """Longer than a provider may be silent: what it says meanwhile is a sign of life; silence is none."""
    at_work = begin() + [event("response.output_item.added", output_index=0, item=dict(NATIVE[0], status="in_progress"))]
    for i in range(6):
        at_work += [fake_provider.Pause(0.5), event("keepalive", sequence_number=i)]
    end = [event("response.output_item.done", output_index=0, item=NATIVE[0])] + events_of(message("Done."), 1)
    end.append(event("response.completed", response=response("completed", [], (1, 1))))
    server = make_server(config={"limits": {"upstream_idle": "2s"}, "providers": [
        {"name": "native", "dialect": "openai-responses", "base_url": upstream.base_url(), "api_key": UPSTREAM_KEY,
         "native_tools": ["shell"]}]})
    server.start()
    client = server.client()
    model = upstream.model(Reply(at_work + end))
    assert text_of(client.ask(named(model, "native"), tools=[AUTO])) == "Done."
    model = upstream.model(Reply(at_work + [fake_provider.Hold()]))
    story = client.stream(named(model, "native"), tools=[AUTO])
    assert story.response["status"] == "failed" and "in time" in story.response["error"]["message"]


@pytest.mark.parametrize("streamed", [True, False])
def test_an_item_of_megabytes(client, upstream, streamed):
    made = {"id": "ig_1", "type": "image_generation_call", "status": "completed", "result": "QUJD" * 400000,
            "revised_prompt": "café"}
    model = upstream.model(stream(made, message("There.")), text("ok"))
    asks = (lambda *a, **k: client.stream(*a, **k).response) if streamed else client.ask
    answer = asks(named(model, "fake"), tools=[{"type": "image_generation"}])
    assert answer["output"][0] == made and text_of(answer) == "There."
    client.ask(named(model, "fake"), [{"role": "user", "content": "go"}] + answer["output"] +
               [{"role": "user", "content": "more"}], tools=[{"type": "image_generation"}])
    assert model.requests[1].json["input"][1] == made
