"""Entries of brig's own that a provider's hosted shell serves: openrouter:shell, brig:shell and brigShell."""
import json

import pytest

import brigtest
import fake_provider
from brigtest import items_of, outputs_of, text_of
from conftest import run
from fake_responses import message, native_shell, shell, shell_items, stream, text, with_native_shell
from messagestest import Messages, blocks, texts

CONTAINER = "cntr_" + "0a" * 24
SENT = {"type": "shell", "environment": {"type": "container_auto"}}
NATIVE = shell_items("ls", "pwd")
DOWN = {"error": {"message": "down"}}
ENTRIES = ["openrouter:shell", "brig:shell"]


@pytest.fixture(scope="module")
def upstream(responses_upstream):
    return responses_upstream


@pytest.fixture(scope="module")
def chat(provider):
    return provider


@pytest.fixture(scope="module")
def server(upstream, chat):
    yield from run(brigtest.Server(config={"providers": with_native_shell(upstream, chat)}))


@pytest.fixture
def api(client):
    return Messages(client)


def named(model, provider):
    return provider + "/" + model.upstream_name


def types(items):
    return [i["type"] for i in items]


def entry(kind, environment=None, **parameters):
    if environment:
        parameters["environment"] = environment
    return {"type": kind, "parameters": parameters} if parameters else {"type": kind}


def check_told(told, commands=("ls", "pwd")):
    """The shell's two items as they go back to the provider."""
    made, out = told
    assert made["type"] == "shell_call" and out["type"] == "shell_call_output"
    assert made["call_id"] == out["call_id"] == NATIVE[0]["call_id"]
    assert made["action"] == {"commands": list(commands), "timeout_ms": None, "max_output_length": None}
    assert made["environment"] == {"type": "container_reference", "container_id": CONTAINER}
    assert out["output"] == NATIVE[1]["output"]


def check_costs(usage):
    assert "sandbox_seconds" not in json.dumps(usage)


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("kind", ENTRIES)
def test_responses(client, upstream, chat, kind, streamed):
    model = upstream.model(native_shell(NATIVE, "Done."), text("again"), text("else"))
    asks = (lambda *a, **k: client.stream(*a, **k).response) if streamed else client.ask
    answer = asks(named(model, "native"), tools=[entry(kind)])
    assert len(model.requests) == 1 and model.requests[0].json["tools"] == [SENT]
    assert text_of(answer) == "Done." and answer["tools"] == [entry(kind)]
    check_costs(answer["usage"])
    if kind == "brig:shell":
        made, out, _ = answer["output"]
        assert types(answer["output"]) == ["shell_call", "shell_call_output", "message"]
        assert made["action"]["commands"] == ["ls", "pwd"] and made["status"] == "completed"
        assert made["environment"]["container_id"] == CONTAINER
    else:
        out, _ = answer["output"]
        assert out["type"] == "openrouter:shell" and out["status"] == "completed"
        assert out["action"]["commands"] == ["ls", "pwd"]
    assert out["container_id"] == CONTAINER
    assert [o["stdout"] for o in out["output"]] == ["ran ls\n", "ran pwd\n"]
    assert out["output"][0]["outcome"] == {"type": "exit", "exit_code": 0}
    history = [{"role": "user", "content": "go"}] + answer["output"] + [{"role": "user", "content": "more"}]
    # Back to that provider as its own, to another as a call and its result.
    client.ask(named(model, "native"), history, tools=[entry(kind)], tool_choice={"type": kind})
    told = model.requests[1].json
    check_told(told["input"][1:3])
    assert told["tools"] == [SENT] and told["tool_choice"] == {"type": "shell"}
    client.ask(named(model, "fake"), history, tools=[entry(kind)])
    told = model.requests[2].json["input"]
    assert types(told) == ["message", "function_call", "function_call_output", "message", "message"]
    assert json.loads(told[1]["arguments"]) == {"commands": ["ls", "pwd"]}
    assert json.loads(told[2]["output"])["output"][1]["stdout"] == "ran pwd\n"
    other = chat.model(fake_provider.text("ok"))
    client.ask(named(other, "chat"), history, tools=[entry(kind)])
    assert [m["role"] for m in other.requests[0].messages] == ["user", "assistant", "tool", "assistant", "user"]


@pytest.mark.parametrize("kind", ENTRIES)
def test_it_is_streamed(client, upstream, kind):
    model = upstream.model(native_shell(NATIVE, "Done."))
    story = client.stream(named(model, "native"), tools=[entry(kind)], store=False)
    shown = story.types
    assert ("response.shell_call_command.delta" in shown) == (kind == "brig:shell")
    assert ("response.shell_call_output_content.delta" in shown) == (kind == "brig:shell")
    assert shown.index("response.output_item.added") < shown.index("response.output_text.delta")


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("kind", ENTRIES)
def test_messages(api, upstream, chat, kind, streamed):
    model = upstream.model(native_shell(NATIVE, "Done."), text("again"), text("else"))
    asks = (lambda *a, **k: api.stream(*a, **k).message) if streamed else api.create
    said = asks(named(model, "native"), tools=[entry(kind)])
    assert model.requests[0].json["tools"] == [SENT] and len(model.requests) == 1
    (made,) = blocks(said, "server_tool_use")
    result = said["content"][1]
    assert texts(said) == "Done." and said["stop_reason"] == "end_turn" and said["container"] is None
    assert result["tool_use_id"] == made["id"] and result["container_id"] == CONTAINER
    if kind == "brig:shell":
        assert made["name"] == "bash_code_execution" and result["type"] == "bash_code_execution_tool_result"
        assert result["content"]["stdout"] == "ran ls\nran pwd\n" and result["content"]["return_code"] == 0
    else:
        assert made["name"] == "openrouter:shell" and made["input"] == {"commands": ["ls", "pwd"]}
        assert [o["stdout"] for o in result["content"]["output"]] == ["ran ls\n", "ran pwd\n"]
    check_costs(said["usage"])
    history = [{"role": "user", "content": "go"}, {"role": "assistant", "content": said["content"]},
               {"role": "user", "content": "more"}]
    api.create(named(model, "native"), history, tools=[entry(kind)])
    told = model.requests[1].json
    check_told(told["input"][1:3])
    assert told["tools"] == [SENT]
    api.create(named(model, "fake"), history, tools=[entry(kind)])
    assert types(model.requests[2].json["input"]) == ["message", "function_call", "function_call_output", "message",
                                                      "message"]
    other = chat.model(fake_provider.text("ok"))
    api.create(named(other, "chat"), history, tools=[entry(kind)])
    assert [m["role"] for m in other.requests[0].messages] == ["user", "assistant", "tool", "assistant", "user"]


def test_gemini(server, upstream):
    model = upstream.model(native_shell(NATIVE, "Done."), text("again"))
    path, tools = "/models/%s:generateContent" % named(model, "native"), [{"brigShell": {}}]
    go = {"role": "user", "parts": [{"text": "go"}]}
    answer = server.client(base="/v1beta").post(path, {"contents": [go], "tools": tools})
    assert answer.status == 200, answer
    assert model.requests[0].json["tools"] == [SENT]
    parts = answer.json["candidates"][0]["content"]["parts"]
    results = [p["codeExecutionResult"]["output"] for p in parts if "codeExecutionResult" in p]
    assert "".join(results) == "ran ls\nran pwd\n" and any("executableCode" in p for p in parts)
    again = server.client(base="/v1beta").post(path, {
        "contents": [go, answer.json["candidates"][0]["content"], go], "tools": tools})
    assert again.status == 200, again
    check_told(model.requests[1].json["input"][1:3])
    assert model.requests[1].json["tools"] == [SENT]


@pytest.mark.parametrize("why", [
    {"session_id": "abc"}, {"headers": {"x-session-id": "abc"}}, {"engine": "openrouter"}, {"timeout_ms": 60000},
    {"max_output_length": 5000}, {"environment": {"type": "container_reference", "container_id": "native-box"}},
    {"environment": {"type": "container_auto", "network_policy": {
        "type": "allowlist", "allowed_domains": ["*.brig.example"]}}}])
def test_what_wants_our_sandbox_gets_it(client, upstream, why):
    of_request = {k: v for k, v in why.items() if k in ("session_id", "headers")}
    of_entry = {k: v for k, v in why.items() if k not in of_request}
    model = upstream.model(stream(shell("echo ours")), text("ok"))
    answer = client.ask(named(model, "native"), tools=[entry("openrouter:shell", **of_entry)], **of_request)
    assert outputs_of(answer)[0]["stdout"] == "ours\n"
    assert model.requests[0].json["tools"][0]["type"] == "function"


def test_a_bash_session_beside_it(api, upstream):
    model = upstream.model(text("ok"))
    api.create(named(model, "native"), tools=[entry("brig:shell"), entry("brig:bash", engine="openrouter")])
    assert {t["type"] for t in model.requests[0].json["tools"]} == {"function"}


def test_network_policy_goes_along(client, upstream):
    policy = {"type": "allowlist", "allowed_domains": ["files.brig.example"]}
    model = upstream.model(text("ok"), text("ok"))
    for given in (policy, {"type": "disabled"}):
        environment = {"type": "container_auto", "network_policy": given}
        client.ask(named(model, "native"), tools=[entry("brig:shell", environment)])
        assert model.requests[-1].json["tools"] == [{"type": "shell", "environment": environment}]


def test_its_container_by_reference(client, api, upstream, chat):
    environment = {"type": "container_reference", "container_id": CONTAINER}
    model, other = upstream.model(text("ok"), text("ok")), chat.model(fake_provider.text("no"))
    client.ask(named(model, "native"), tools=[entry("openrouter:shell", environment)])
    api.create(named(model, "native"), tools=[entry("openrouter:shell", environment)])
    for request in model.requests:
        assert request.json["tools"] == [{"type": "shell", "environment": environment}]
    error = client.ask(named(other, "chat"), tools=[entry("openrouter:shell", environment)], expect=400).error
    assert error["param"] == "tools[0].parameters.environment.container_id" and "'chat'" in error["message"]
    assert not other.requests


@pytest.mark.parametrize("kind", ENTRIES)
def test_engine_native(client, api, upstream, chat, kind):
    native = entry(kind, engine="native")
    model = upstream.model(native_shell(NATIVE, "Done."), native_shell(NATIVE, "Done."))
    other = chat.model(fake_provider.text("no"))
    # The session is no reason for our sandbox then.
    assert text_of(client.ask(named(model, "native"), tools=[native], session_id="abc")) == "Done."
    assert texts(api.create(named(model, "native"), tools=[native])) == "Done."
    assert [r.json["tools"] for r in model.requests] == [[SENT], [SENT]]
    for where in ("fake", "chat"):
        name = named(other if where == "chat" else model, where)
        error = client.ask(name, tools=[native], expect=400).error
        assert error["param"] == "tools[0].parameters.engine" and "'%s'" % where in error["message"]
        assert "'%s'" % where in api.create(name, tools=[native], expect=400)["message"]
    for bad in ({"timeout_ms": 5}, {"environment": {"type": "container_reference", "container_id": "box"}}):
        client.ask(named(model, "native"), tools=[entry(kind, engine="native", **bad)], expect=400)
    client.ask("brig/script", tools=[native], expect=400)
    assert not other.requests and len(model.requests) == 2


@pytest.mark.parametrize("kind", ENTRIES)
def test_fallback_chooses_again(client, api, upstream, chat, kind):
    """Each provider is asked in its own way: the first with its shell, the second with ours."""
    for asks in (client.ask, api.create):
        model = upstream.model(fake_provider.error(500, DOWN))
        other = chat.model(fake_provider.calls(fake_provider.shell("echo ours")), fake_provider.text("ok"))
        answer = asks(named(model, "native"), models=[named(other, "chat")], tools=[entry(kind)])
        assert model.requests[0].json["tools"] == [SENT]
        assert other.requests[0].json["tools"][0]["function"]["name"] == "shell" and len(other.requests) == 2
        assert "ours\\n" in json.dumps(answer) and CONTAINER not in json.dumps(answer)


def test_fallback_to_a_provider_that_has_one(client, upstream, chat):
    first = chat.model(fake_provider.error(500, DOWN))
    model = upstream.model(native_shell(NATIVE, "Done."))
    native = entry("openrouter:shell", engine="native")
    answer = client.ask(named(first, "chat"), models=[named(model, "native")], tools=[native])
    assert text_of(answer) == "Done." and not first.requests


def test_in_the_next_turn_our_sandbox(client, upstream):
    """A provider's container is none of ours, whatever its id looks like."""
    model = upstream.model(native_shell(shell_items("id", container="cntr_short"), "Done."), text("native"),
                           stream(shell("echo ours")), text("ok"))
    answer = client.ask(named(model, "native"), tools=[entry("brig:shell")])
    history = [{"role": "user", "content": "go"}] + answer["output"] + [{"role": "user", "content": "more"}]
    client.ask(named(model, "native"), history, tools=[entry("brig:shell")])
    assert model.requests[1].json["tools"] == [SENT]
    ours = client.ask(named(model, "fake"), history, tools=[entry("brig:shell")])
    assert outputs_of(ours)[0]["stdout"] == "ours\n"
    assert items_of(ours, "shell_call")[0]["environment"]["container_id"] != "cntr_short"


def test_a_timeout_and_a_failure(client, upstream):
    made, out = shell_items("sleep 9", "exit 3")
    out["output"][0]["outcome"] = {"type": "timeout"}
    out["output"][1]["outcome"] = {"type": "exit", "exit_code": 3}
    model = upstream.model(native_shell([made, out], "Done."), text("ok"))
    answer = client.stream(named(model, "native"), tools=[entry("openrouter:shell")]).response
    assert [o["outcome"]["type"] for o in answer["output"][0]["output"]] == ["timeout", "exit"]
    client.ask(named(model, "native"), [{"role": "user", "content": "go"}] + answer["output"] +
               [{"role": "user", "content": "more"}], tools=[entry("openrouter:shell")])
    assert [o["outcome"] for o in model.requests[1].json["input"][2]["output"]] == [
        {"type": "timeout"}, {"type": "exit", "exit_code": 3}]


@pytest.mark.parametrize("kind", ENTRIES)
def test_a_call_without_a_result(client, api, upstream, kind):
    model = upstream.model(stream(NATIVE[0], message("Well.")), stream(NATIVE[0], message("Well.")), text("ok"))
    answer = client.stream(named(model, "native"), tools=[entry(kind)]).response
    (last,) = [i for i in answer["output"] if i["type"] in ("openrouter:shell", "shell_call_output")]
    assert last["status"] in ("incomplete", "failed") and text_of(answer) == "Well."
    assert "server_tool_use" in types(api.create(named(model, "native"), tools=[entry(kind)])["content"])
    client.ask(named(model, "native"), [{"role": "user", "content": "go"}] + answer["output"] +
               [{"role": "user", "content": "more"}], tools=[entry(kind)])
    assert types(model.requests[2].json["input"])[1:4] == ["function_call", "message", "function_call_output"]


def test_it_counts_as_a_tool_call(client, api, upstream):
    model = upstream.model(native_shell(NATIVE, "Done."), native_shell(NATIVE, "Done."))
    answer = client.ask(named(model, "native"), tools=[entry("openrouter:shell")])
    said = api.create(named(model, "native"), tools=[entry("openrouter:shell")])
    for usage in (answer["usage"], said["usage"]):
        text = json.dumps(usage)
        assert '"tool_calls_requested": 1' in text and '"tool_calls_executed": 1' in text
