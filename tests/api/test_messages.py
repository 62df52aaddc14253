"""POST /messages, as Anthropic's clients use it: text, tools of the client, brig's own tools, limits, errors."""
import json

import pytest

from brigtest import parse_sse  # noqa: F401
from dialects import PNG, SERVED, Say, event
from fake_provider import Model, Reply, call, calls, chunk, ending, error, error_in_stream, shell, text, thinking
from messagestest import BRIG_SHELL, SHELL, Messages, Story, blocks, outputs, parse_events, shape, texts, tool

SETTINGS = {"limits": {"keepalive": "200ms", "upstream_retries": 0, "upstream_failures": 0}}
WEATHER = tool("weather")


@pytest.fixture
def api(client):
    return Messages(client)


# ---- text ----

def test_text(api, provider):
    whole, streamed = api.both(lambda: provider.model(text("Hello there.", pieces=3)))
    assert texts(whole) == "Hello there." and whole["stop_reason"] == "end_turn"
    assert whole["usage"]["input_tokens"] == 10 and whole["usage"]["output_tokens"] == 5
    assert shape(whole) == shape(streamed)


@pytest.mark.parametrize("finish, reason", [("length", "max_tokens"), ("content_filter", "refusal"),
                                            ("stop", "end_turn")])
def test_stop_reasons(api, provider, finish, reason):
    whole, streamed = api.both(lambda: provider.model(text("Half of", finish=finish)))
    assert whole["stop_reason"] == reason and shape(whole) == shape(streamed)
    assert (whole["stop_details"] is not None) == (reason == "refusal")


def test_order_of_events(api, provider):
    story = api.stream(provider.model(calls(shell("echo hi"), content="Look.", reasoning="Hm.")
                                      , text("ok")), tools=[SHELL])
    assert [e["type"] for e in story.events][:2] == ["message_start", "ping"]
    assert story.types == (["message_start"] + ["content_block_start", "content_block_delta", "content_block_delta",
                                                "content_block_stop"] +  # thinking, its signature
                           ["content_block_start", "content_block_delta", "content_block_stop"] * 2 +
                           ["content_block_start", "content_block_stop"] +  # the result, whole
                           ["content_block_start", "content_block_delta", "content_block_stop"] +
                           ["message_delta", "message_stop"])


def test_usage_excludes_what_was_cached(api, provider):
    whole, streamed = api.both(lambda: provider.model(text("ok", usage=(100, 20, 60, 7))))
    for message in (whole, streamed):
        usage = message["usage"]
        assert (usage["input_tokens"], usage["cache_read_input_tokens"], usage["output_tokens"]) == (40, 60, 20)
        assert usage["output_tokens_details"] == {"thinking_tokens": 7}
        assert set(usage["cost_details"]) >= {"upstream_inference_prompt_cost", "upstream_inference_completions_cost"}


def test_the_start_says_how_much_came_in(api, provider):
    """Clients book what message_start says: an estimate, until there is a count."""
    story = api.stream(provider.model(text("ok")), "word " * 400)
    assert 300 < story.started_usage["input_tokens"] < 1000
    assert story.message["usage"]["input_tokens"] == 10


def test_thinking_without_a_signature(api, provider):
    whole, streamed = api.both(lambda: provider.model(thinking("Let me see.", "It is 4.")))
    assert [b["type"] for b in whole["content"]] == ["thinking", "text"]
    assert whole["content"][0]["thinking"] == "Let me see." and shape(whole) == shape(streamed)


# ---- headers and keys ----

@pytest.mark.parametrize("header", ["x-api-key", "bearer"])
@pytest.mark.parametrize("base", ["/v1", "/api/v1"])
@pytest.mark.parametrize("version", ["2023-06-01", "2026-10-21"])
def test_both_keys_paths_and_versions(server, provider, base, header, version):
    api = Messages(server.client(base=base), header, version)
    assert texts(api.create(provider.model(text("ok")))) == "ok"


def test_a_query_changes_nothing(api, provider):
    answer = api.post("/messages?beta=true", api.body(provider.model(text("ok"))))
    assert answer.status == 200 and answer.headers["x-generation-id"].startswith("gen-")
    assert answer.headers["request-id"]


def test_no_key(server):
    answer = server.client(key="nobody").post("/messages", {"model": "m"}, headers={"anthropic-version": "2023-06-01"})
    assert answer.status == 401 and answer.json["error"]["type"] == "authentication_error"


# ---- tools of the client ----

def test_a_clients_tool(api, provider):
    whole, streamed = api.both(lambda: provider.model(
        calls(call("weather", {"city": "Rome", "n": [1, 2.5, None]}), content="Let me ask.")), tools=[WEATHER])
    assert whole["stop_reason"] == "tool_use" and shape(whole) == shape(streamed)
    assert blocks(whole, "tool_use")[0]["input"] == {"city": "Rome", "n": [1, 2.5, None]}


def test_a_call_without_arguments(api, provider):
    whole, streamed = api.both(lambda: provider.model(calls(call("weather", ""))), tools=[WEATHER])
    assert blocks(whole, "tool_use")[0]["input"] == {} and shape(whole) == shape(streamed)


RESULTS = [
    ("sunny", "sunny"),
    ([{"type": "text", "text": "sunny"}, {"type": "text", "text": "warm"}], "sunny\nwarm"),
    ([], ""),
    (None, ""),
    ([{"type": "search_result", "title": "Rome", "source": "http://r", "content": [{"type": "text", "text": "sunny"}]}],
     "Rome\nhttp://r\n\nsunny"),
    ([{"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "sunny"}}], "sunny"),
]


@pytest.mark.parametrize("content, told", RESULTS)
@pytest.mark.parametrize("failed", [False, True])
def test_results_of_every_shape(api, provider, content, told, failed):
    model = provider.model(text("ok"))
    result = {"type": "tool_result", "tool_use_id": "toolu_1"}
    if content is not None:
        result["content"] = content
    if failed:
        result["is_error"] = True
    api.create(model, [{"role": "user", "content": "go"},
                       {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "weather",
                                                          "input": {"city": "Rome"}}]},
                       {"role": "user", "content": [result]}], tools=[WEATHER])
    made, said = model.requests[0].messages[-2:]
    assert made["tool_calls"] == [{"id": "toolu_1", "type": "function",
                                   "function": {"name": "weather", "arguments": '{"city":"Rome"}'}}]
    assert said["role"] == "tool" and said["tool_call_id"] == "toolu_1" and said["content"].endswith(told)


def test_an_image_in_a_result(api, provider):
    model = provider.model(text("ok"))
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
    api.create(model, [{"role": "user", "content": "go"},
                       {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "weather",
                                                          "input": {}}]},
                       {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1",
                                                     "content": [image]}]}], tools=[WEATHER])
    assert model.requests[0].messages[-1]["content"] == [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64," + PNG}}]


def test_tools_of_anthropics_clients(api, provider):
    """Any model can call what a client of Anthropic's runs itself; how it is called goes to the client."""
    for entry, name in (({"type": "bash_20250124", "name": "bash"}, "bash"),
                        ({"type": "openrouter:bash"}, "bash"),
                        ({"type": "brig:bash", "parameters": {"engine": "native"}}, "bash"),
                        ({"type": "text_editor_20250728", "name": "str_replace_based_edit_tool", "max_characters": 100},
                         "str_replace_based_edit_tool"),
                        ({"type": "memory_20250818", "name": "memory"}, "memory")):
        model = provider.model(calls(call(name, {"command": "ls"})))
        message = api.create(model, tools=[entry])
        assert message["stop_reason"] == "tool_use"
        assert blocks(message, "tool_use")[0]["name"] == name
        assert blocks(message, "tool_use")[0]["input"] == {"command": "ls"}
        offered = model.requests[0].json["tools"][0]["function"]
        assert offered["name"] == name and "command" in offered["parameters"]["properties"]


def test_a_providers_own_tool_is_refused_elsewhere(api, provider):
    for kind in ("web_search_20250305", "code_execution_20250825", "computer_20250124"):
        problem = api.create(provider.model(text("no")), tools=[{"type": kind, "name": "it"}], expect=400)
        assert kind in problem["message"] and problem["type"] == "invalid_request_error"


def test_odd_ids_come_back(api, provider):
    """An upstream's id that this API's clients would refuse."""
    model = provider.model(calls(call("weather", {}, id="functions.weather:0")))
    message = api.create(model, tools=[WEATHER])
    made = blocks(message, "tool_use")[0]
    assert made["id"].startswith("toolu_") and set(made["id"]) <= set(
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
    model.replies.append(text("ok"))
    api.create(model, [{"role": "user", "content": "go"}, {"role": "assistant", "content": message["content"]},
                       {"role": "user", "content": [{"type": "tool_result", "tool_use_id": made["id"],
                                                     "content": "x"}]}], tools=[WEATHER])
    assert model.requests[1].messages[-1]["tool_call_id"] == "functions.weather:0"


@pytest.mark.parametrize("choice, told", [
    ({"type": "auto"}, None), ({"type": "any"}, "required"), ({"type": "none"}, "none"),
    ({"type": "tool", "name": "weather"}, {"type": "function", "function": {"name": "weather"}}),
    ({"type": "openrouter:shell"}, {"type": "function", "function": {"name": "shell"}}),
    ({"type": "tool", "name": "openrouter:shell"}, {"type": "function", "function": {"name": "shell"}}),
])
def test_tool_choice(api, provider, choice, told):
    model = provider.model(text("ok"))
    api.create(model, tools=[WEATHER, SHELL], tool_choice=dict(choice, disable_parallel_tool_use=True)
               if choice["type"] in ("auto", "any", "tool") else choice)
    sent = model.requests[0].json
    assert sent.get("tool_choice") in (told, "auto" if told is None else told)
    if choice["type"] in ("auto", "any", "tool"):
        assert sent["parallel_tool_calls"] is False


# ---- brig's own tools ----

def test_one_shell_call(api, provider):
    whole, streamed = api.both(lambda: provider.model(calls(shell("echo hi; exit 3")), text("ok")), tools=[SHELL])
    made, result, said = whole["content"]
    assert made["name"] == "openrouter:shell" and made["input"] == {"commands": ["echo hi; exit 3"]}
    assert set(result) == {"type", "tool_use_id", "content", "container_id"}
    assert outputs(whole) == [{"stdout": "hi\n", "stderr": "", "outcome": {"type": "exit", "exit_code": 3}}]
    assert said["text"] == "ok" and whole["container"] is None and whole["stop_reason"] == "end_turn"
    assert whole["usage"]["cost_details"]["server_tool_cost"] == 0.003
    assert shape(whole) == shape(streamed)


def test_brig_shell_has_anthropics_blocks(api, provider):
    whole, streamed = api.both(lambda: provider.model(calls(shell("echo hi; echo ho >&2; exit 3")), text("ok")),
                               tools=[BRIG_SHELL])
    made, result, _ = whole["content"]
    assert made["name"] == "bash_code_execution" and made["input"] == {"command": "echo hi; echo ho >&2; exit 3"}
    assert result["type"] == "bash_code_execution_tool_result"
    assert result["content"] == {"type": "bash_code_execution_result", "stdout": "hi\n", "stderr": "ho\n",
                                 "return_code": 3, "content": []}
    assert shape(whole) == shape(streamed)


def test_brig_shell_with_several_commands_and_a_timeout(api, provider):
    model = provider.model(calls(shell("echo one", "echo two; sleep 60", timeout_ms=1500)), text("ok"))
    message = api.create(model, tools=[BRIG_SHELL])
    made, result, _ = message["content"]
    assert made["input"] == {"command": "echo one\necho two; sleep 60", "commands": ["echo one", "echo two; sleep 60"],
                             "timeout_ms": 1500}
    assert result["content"]["return_code"] == 124 and result["content"]["stdout"] == "one\ntwo\n"
    assert [o["outcome"] for o in result["content"]["output"]] == [{"type": "exit", "exit_code": 0}, {"type": "timeout"}]


def test_a_call_that_is_not_run(api, provider):
    for entry, kind in ((SHELL, "openrouter_shell_tool_result"), (BRIG_SHELL, "bash_code_execution_tool_result")):
        whole, streamed = api.both(lambda: provider.model(calls(call("shell", '{"commands": ["ec', id="bad")),
                                                          text("oh")), tools=[entry])
        made, result, _ = whole["content"]
        assert made["input"] == {"invalid_arguments": '{"commands": ["ec'}
        assert result["type"] == kind and shape(whole) == shape(streamed)
        if entry == SHELL:
            assert result["content"]["error"].startswith("Not run: ")
        else:
            assert result["content"]["error_code"] == "invalid_tool_input"
            assert result["content"]["error_message"].startswith("Not run: ")


def test_files_that_a_call_made(api, provider):
    message = api.create(provider.model(calls(shell("echo x > made.txt")), text("ok")), tools=[SHELL])
    files = blocks(message, "openrouter_shell_tool_result")[0]["files"]
    assert [f["filename"] for f in files] == ["made.txt"] and files[0]["file_id"].startswith("cfile_")
    message = api.create(provider.model(calls(shell("echo x > made.txt")), text("ok")), tools=[BRIG_SHELL])
    content = blocks(message, "bash_code_execution_tool_result")[0]["content"]["content"]
    assert [c["type"] for c in content] == ["bash_code_execution_output"]


def test_pings_while_a_command_runs(api, provider):
    story = api.stream(provider.model(calls(shell("sleep 1.2; echo hi")), text("ok")), tools=[SHELL])
    assert story.pings >= 3


def test_large_output_comes_whole(api, provider):
    """Events of half a megabyte, written as the client takes them."""
    each = "seq 100000 | head -c 60000"
    model = provider.model(calls(*[shell(*[each] * 8, max_output_length=65536, id="c%d" % i) for i in range(3)]),
                           text("ok"))
    story = api.stream(model, tools=[SHELL])
    assert [len(o["stdout"]) for o in outputs(story.message)] == [60000] * 24
    assert texts(story.message) == "ok"


def test_sessions(api, provider):
    for fields, headers in (({"session_id": "abc-messages"}, None), ({}, {"x-session-id": "abc-messages"})):
        message = api.create(provider.model(calls(shell("echo hi")), text("ok")), tools=[SHELL], headers=headers, **fields)
        assert blocks(message, "openrouter_shell_tool_result")[0]["container_id"] == "sess_abc-messages"


def test_two_server_shells_are_refused(api, provider):
    problem = api.create(provider.model(), tools=[SHELL, BRIG_SHELL], expect=400)
    assert problem["message"].startswith("tools.1.type: ")


def test_script(api):
    whole = api.create("brig/script", "```\necho $((6 * 7))\n```", tools=[SHELL])
    assert outputs(whole)[0]["stdout"] == "42\n"
    story = api.stream("brig/script", "```\necho $((6 * 7))\n```", tools=[BRIG_SHELL])
    assert blocks(story.message, "bash_code_execution_tool_result")[0]["content"]["stdout"] == "42\n"


# ---- limits of the loop ----

def looping(provider, **usage):
    return provider.model(lambda request: text("enough") if request.json.get("tool_choice") == "none"
                          else calls(shell("true", id="c%d" % len(request.messages)), **usage))


@pytest.mark.parametrize("conditions, rounds", [
    ([{"type": "step_count_is", "step_count": 3}], 3),
    ([{"type": "step_count_is", "step_count": 30}, {"type": "step_count_is", "step_count": 2}], 2),
    ([{"type": "has_tool_call", "tool_name": "openrouter:shell"}], 1),
    ([{"type": "max_tokens_used", "max_tokens": 40}], 3),
    ([{"type": "max_cost", "max_cost_in_dollars": 0.003}], 1),
    ([{"type": "finish_reason_is", "reason": "tool_use"}], 1),
])
def test_stop_server_tools_when(api, provider, conditions, rounds):
    message = api.create(looping(provider), tools=[SHELL], stop_server_tools_when=conditions)
    assert len(blocks(message, "server_tool_use")) == rounds
    assert texts(message) == "enough" and message["stop_reason"] == "end_turn"


def test_what_the_model_costs_counts(api, provider):
    """Three rounds of $0.0035, and $0.003 for the sandbox, are above $0.012; two are not."""
    provider.models["priced"] = Model(provider, "priced", looping(provider, usage=(1000, 100)).replies)
    message = api.create("fake/priced", tools=[SHELL], stop_server_tools_when=[
        {"type": "max_cost", "max_cost_in_dollars": 0.012}])
    assert len(blocks(message, "server_tool_use")) == 3 and texts(message) == "enough"
    assert message["usage"]["cost_details"]["server_tool_cost"] == 0.003


def test_max_tool_calls(api, provider):
    message = api.create(looping(provider), tools=[SHELL], max_tool_calls=2)
    assert len(blocks(message, "server_tool_use")) == 2 and texts(message) == "enough"


def test_time_that_is_over_can_be_gone_on_with(make_server, provider):
    server = make_server(config={"limits": {"turn_unstreamed": "3s"}}).start()
    api = Messages(server.client())
    model = provider.model(calls(shell("echo begun; sleep 60")), text("done"))
    message = api.create(model, tools=[SHELL])
    assert message["stop_reason"] == "pause_turn"
    assert outputs(message)[0] == {"stdout": "begun\n", "stderr": "", "outcome": {"type": "timeout"}}
    again = api.create(model, [{"role": "user", "content": "go"}, {"role": "assistant", "content": message["content"]}],
                       tools=[SHELL])
    assert texts(again) == "done" and again["stop_reason"] == "end_turn"


# ---- what other providers are told ----

def told(api, provider, messages, **fields):
    model = provider.model(text("ok"))
    api.create(model, messages, **fields)
    return model.requests[0].json


def test_settings_of_other_dialects(api, provider):
    sent = told(api, provider, "go", system="Be good.", temperature=0.5, top_p=0.9, stop_sequences=["END"],
                output_config={"effort": "high", "format": {"type": "json_schema", "schema": {"type": "object"}}},
                metadata={"user_id": "u1"}, service_tier="standard_only", some_new_member={"x": 1})
    assert sent["temperature"] == 0.5 and sent["top_p"] == 0.9 and sent["stop"] == ["END"]
    assert sent["reasoning_effort"] == "high" and sent["response_format"]["json_schema"]["schema"] == {"type": "object"}
    assert "metadata" not in sent and "some_new_member" not in sent
    assert sent["messages"] == [{"role": "system", "content": "Be good."}, {"role": "user", "content": "go"}]


def test_system_in_blocks_and_in_the_middle(api, provider):
    sent = told(api, provider, [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"},
                                {"role": "system", "content": [{"type": "text", "text": "Be brief."}]},
                                {"role": "user", "content": "three"}],
                system=[{"type": "text", "text": "A.", "cache_control": {"type": "ephemeral"}},
                        {"type": "text", "text": "B."}])
    assert [m["role"] for m in sent["messages"]] == ["system", "user", "assistant", "system", "user"]
    assert "cache_control" not in json.dumps(sent)


def test_images_and_documents(api, provider):
    pdf = "JVBERi0xLjQK"
    sent = told(api, provider, [{"role": "user", "content": [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
        {"type": "image", "source": {"type": "url", "url": "http://x/y.png"}},
        {"type": "document", "title": "a.pdf", "source": {"type": "base64", "media_type": "application/pdf", "data": pdf}},
        {"type": "document", "title": "Notes", "context": "old", "source": {"type": "text", "media_type": "text/plain",
                                                                            "data": "the notes"}},
        {"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": "one"},
                                                                       {"type": "text", "text": "two"}]}},
        {"type": "text", "text": "What is it?"}]}])
    assert sent["messages"][0]["content"] == [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64," + PNG}},
        {"type": "image_url", "image_url": {"url": "http://x/y.png"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64," + pdf}},
        {"type": "text", "text": "Notes\nold\n\nthe notes"},
        {"type": "text", "text": "one\ntwo"},
        {"type": "text", "text": "What is it?"}]


@pytest.mark.parametrize("served", ["chat", "responses", "gemini"])
@pytest.mark.parametrize("block, word", [
    ({"type": "image", "source": {"type": "file", "file_id": "file_1"}}, "messages.0.content.0.source: a stored file"),
    ({"type": "document", "source": {"type": "file", "file_id": "file_1"}}, "messages.0.content.0.source: a stored file"),
    ({"type": "container_upload", "file_id": "file_1"}, "messages.0.content.0: this provider knows no block of type "),
])
def test_what_another_provider_cannot_be_told(four, upstream, served, block, word):
    api = Messages(four.client())
    model = upstream.says(served, Say("ok"))
    problem = api.create(model.asked, [{"role": "user", "content": [block, {"type": "text", "text": "x"}]}], expect=400)
    assert problem["message"].startswith(word) and not model.requests


# ---- what an Anthropic provider is told: the client's own ----

def test_nothing_is_lost_in_the_same_dialect(four, upstream):
    api = Messages(four.client())
    model = upstream.says("messages", Say("ok"))
    system = [{"type": "text", "text": "A.", "cache_control": {"type": "ephemeral", "ttl": "1h"}}]
    content = [
        {"type": "document", "title": "t", "context": "c", "citations": {"enabled": True},
         "source": {"type": "text", "media_type": "text/plain", "data": "notes"}},
        {"type": "image", "source": {"type": "file", "file_id": "file_1"}},
        {"type": "container_upload", "file_id": "file_2"},
        {"type": "text", "text": "What now?", "cache_control": {"type": "ephemeral"}}]
    said = [{"type": "text", "text": "See.", "citations": [{"type": "char_location", "cited_text": "n",
                                                            "document_index": 0, "start_char_index": 0,
                                                            "end_char_index": 1}]},
            {"type": "server_tool_use", "id": "srvtoolu_01A", "name": "web_search", "input": {"query": "x"}},
            {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_01A", "content": []},
            {"type": "tool_use", "id": "toolu_01B", "name": "weather", "input": {"a": 1.50},
             "cache_control": {"type": "ephemeral"}}]
    result = {"type": "tool_result", "tool_use_id": "toolu_01B", "is_error": True, "cache_control": {"type": "ephemeral"},
              "content": [{"type": "text", "text": "no", "cache_control": {"type": "ephemeral"}}]}
    tools = [{"name": "weather", "input_schema": {"type": "object"}, "cache_control": {"type": "ephemeral"}, "strict": True},
             {"type": "web_search_20250305", "name": "web_search", "max_uses": 3},
             {"type": "bash_20250124", "name": "bash"}, SHELL]
    extra = {"metadata": {"user_id": "u"}, "context_management": {"edits": []}, "service_tier": "auto",
             "thinking": {"type": "adaptive", "display": "summarized"}, "output_config": {"effort": "max"},
             "something_new": [1, {"two": 2}]}
    answer = api.create(model.asked, [{"role": "user", "content": content}, {"role": "assistant", "content": said},
                                      {"role": "user", "content": [result]}], system=system, tools=tools,
                        headers={"anthropic-beta": "one-2026-01-01,two-2026-01-01"}, **extra)
    assert texts(answer) == "ok"
    sent = model.requests[0]
    assert sent.headers["anthropic-beta"] == "one-2026-01-01,two-2026-01-01"
    body = sent.json
    assert body["system"] == system and body["messages"][0]["content"] == content
    assert body["messages"][1]["content"] == said and body["messages"][2]["content"] == [result]
    assert body["tools"][:3] == tools[:3] and body["tools"][3]["name"] == "shell"
    for key, value in extra.items():
        assert body[key] == value, key
    assert body["max_tokens"] == 1000


def test_openrouters_bash_is_anthropics_own_there(four, upstream):
    """Its type is OpenRouter's, so such a request is not passed on as it is."""
    model = upstream.says("messages", Say(calls=[("bash", {"command": "ls"})]))
    message = Messages(four.client()).create(model.asked, tools=[{"type": "openrouter:bash"}, WEATHER])
    assert model.requests[0].json["tools"] == [{"type": "bash_20250124", "name": "bash"}, WEATHER]
    assert blocks(message, "tool_use")[0]["input"] == {"command": "ls"} and message["stop_reason"] == "tool_use"


def test_what_brig_acts_upon_is_not_passed_on(four, upstream):
    model = upstream.says("messages", Say("ok"))
    api = Messages(four.client())
    answer = api.post("/messages", api.body(model.asked, models=["up-chat/none"], session_id="s", max_tool_calls=3, user="u",
                                            provider={"ignore": ["x"]}, trace={"a": 1}, prompt_cache_key="k",
                                            stop_server_tools_when=[{"type": "step_count_is", "step_count": 1}]))
    assert answer.status == 200 and answer.json["id"] == "msg_up"  # passed on as it is
    assert set(model.requests[0].json) <= {"model", "max_tokens", "messages", "stream", "tools", "metadata"}


def test_what_only_the_provider_knows_comes_through(four, upstream):
    """Blocks of a provider's own tools, citations, redacted thinking and the sequence that stopped it."""
    steps = [event("message_start", {"message": {"id": "msg_up", "type": "message", "role": "assistant", "model": "up",
                                                 "content": [], "stop_reason": None, "stop_sequence": None,
                                                 "usage": {"input_tokens": 7, "output_tokens": 1,
                                                           "cache_read_input_tokens": 20,
                                                           "cache_creation_input_tokens": 3}}})]
    search = {"type": "server_tool_use", "id": "srvtoolu_01", "name": "web_search", "input": {"query": "x"}}
    found = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_01",
             "content": [{"type": "web_search_result", "url": "http://x", "title": "X", "encrypted_content": "abc",
                          "page_age": None}]}
    citation = {"type": "web_search_result_location", "url": "http://x", "title": "X", "encrypted_index": "i",
                "cited_text": "x"}
    blocks_up = [
        ({"type": "redacted_thinking", "data": "c2VjcmV0"}, []),
        (dict(search, input={}), [{"type": "input_json_delta", "partial_json": '{"query": "x"}'}]),
        (found, []),
        ({"type": "text", "text": "", "citations": []}, [{"type": "text_delta", "text": "It is x."},
                                                         {"type": "citations_delta", "citation": citation}])]
    for i, (block, deltas) in enumerate(blocks_up):
        steps.append(event("content_block_start", {"index": i, "content_block": block}))
        steps += [event("content_block_delta", {"index": i, "delta": d}) for d in deltas]
        steps.append(event("content_block_stop", {"index": i}))
    steps += [event("message_delta", {"delta": {"stop_reason": "stop_sequence", "stop_sequence": "END"},
                                      "usage": {"output_tokens": 9}}), event("message_stop", {})]
    api = Messages(four.client())
    tools = [{"type": "web_search_20250305", "name": "web_search"}, SHELL]
    answers = []
    for ask in (api.create, lambda *a, **k: api.stream(*a, **k).message):
        model = upstream.model(Reply(steps))
        body = api.body("up-messages/" + model.upstream_name, tools=tools, stop_sequences=["END"])
        if ask == api.create:
            answer = api.post("/messages", body).json
        else:
            answer = Loose(api, body).message
        answers.append(answer)
        assert [b["type"] for b in answer["content"]] == ["redacted_thinking", "server_tool_use", "web_search_tool_result",
                                                          "text"]
        assert answer["content"][0]["data"] == "c2VjcmV0" and answer["content"][1] == search
        assert answer["content"][2] == found
        assert answer["content"][3]["text"] == "It is x." and answer["content"][3]["citations"] == [citation]
        assert (answer["stop_reason"], answer["stop_sequence"]) == ("stop_sequence", "END")
        usage = answer["usage"]
        assert (usage["input_tokens"], usage["cache_read_input_tokens"], usage["cache_creation_input_tokens"],
                usage["output_tokens"]) == (7, 20, 3, 9)
        model.replies.append(SERVED["messages"].reply(Say("yes")))
        api.create("up-messages/" + model.upstream_name,
                   [{"role": "user", "content": "go"}, {"role": "assistant", "content": answer["content"]},
                    {"role": "user", "content": "sure?"}], tools=tools)
        assert model.requests[1].messages[1]["content"] == answer["content"]


class Loose:
    """A stream put together as the SDKs do, without the checks of what brig's own blocks look like."""

    def __init__(self, api, body):
        answer = api.post("/messages", dict(body, stream=True))
        self.message, partial = None, ""
        for e in parse_events(answer.body):
            if e["type"] == "message_start":
                self.message = e["message"]
            elif e["type"] == "content_block_start":
                self.message["content"].append(e["content_block"])
                partial = ""
            elif e["type"] == "content_block_delta":
                block, delta = self.message["content"][e["index"]], e["delta"]
                if delta["type"] == "text_delta":
                    block["text"] += delta["text"]
                elif delta["type"] == "citations_delta":
                    block.setdefault("citations", []).append(delta["citation"])
                elif delta["type"] == "input_json_delta":
                    partial += delta["partial_json"]
            elif e["type"] == "content_block_stop" and partial:
                self.message["content"][e["index"]]["input"] = json.loads(partial)
            elif e["type"] == "message_delta":
                self.message.update(e["delta"])
                self.message["usage"].update({k: v for k, v in e["usage"].items() if v is not None})


# ---- errors ----

BAD = [
    ({"messages": None}, "messages: Field required"),
    ({"messages": []}, "messages: at least one message is required"),
    ({"messages": "go"}, "messages: expected an array, but got a string instead."),
    ({"model": None}, "model: Field required"),
    ({"max_tokens": "9"}, "max_tokens: expected an integer, but got a string instead."),
    ({"max_tokens": -1}, "max_tokens: expected an integer of at least 0."),
    ({"stream": 1}, "stream: expected a boolean, but got a number instead."),
    ({"messages": [{"role": "user"}]}, "messages.0.content: Field required"),
    ({"messages": [{"content": "x"}]}, "messages.0.role: Field required"),
    ({"messages": [{"role": "tool", "content": "x"}]}, "messages.0.role: Invalid value: 'tool'."),
    ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages.0.content.0.text: Field required"),
    ({"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}, {"text": "x"}]}]},
     "messages.0.content.1.type: Field required"),
    ({"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "base64", "data": "x"}}]}]},
     "messages.0.content.0.source.media_type: Field required"),
    ({"messages": [{"role": "user", "content": [{"type": "tool_use", "id": "a", "name": "b", "input": {}}]}]},
     "messages.0.content.0: `tool_use` blocks can only be in `assistant` messages"),
    ({"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": [
        {"type": "tool_use", "id": "toolu_1", "name": "b", "input": {}}]}, {"role": "user", "content": "y"}]},
     "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: toolu_1."),
    ({"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "x"}]}]},
     "messages.0: unexpected `tool_use_id` found in `tool_result` blocks: toolu_1."),
    ({"tools": [{"name": "a b", "input_schema": {}}]}, "tools.0.name: String should match pattern"),
    ({"tools": [{"name": "a"}]}, "tools.0.input_schema: Field required"),
    ({"tools": [{"name": "a", "input_schema": {}}] * 2}, "tools: Tool names must be unique."),
    ({"tools": [{"type": "openrouter:nothing"}]}, "tools.0.type: the tool type 'openrouter:nothing' is not offered."),
    ({"tools": [{"type": "function", "function": {"name": "a"}}]}, "tools.0.type: this API's tools have name"),
    ({"tools": [{"type": "openrouter:shell", "parameters": {"environment": {"type": "container_reference"}}}]},
     "tools.0.parameters.environment.container_id: is required"),
    ({"tool_choice": {"type": "tool", "name": "x"}}, "tool_choice: Tool 'x' not found in provided tools"),
    ({"thinking": {"type": "enabled"}}, "thinking.enabled.budget_tokens: Field required"),
    ({"thinking": {"type": "enabled", "budget_tokens": 10}}, "thinking.enabled.budget_tokens: Input should be greater"),
    ({"thinking": {"type": "enabled", "budget_tokens": 2000}, "max_tokens": 1500},
     "`max_tokens` must be greater than `thinking.budget_tokens`."),
    ({"stop_server_tools_when": []}, "stop_server_tools_when: expected 1 to 64 conditions."),
    ({"stop_server_tools_when": [{"type": "step_count_is"}]}, "stop_server_tools_when.0.step_count: Field required"),
    ({"stop_sequences": [1]}, "stop_sequences.0: expected a string, but got a number instead."),
]


@pytest.mark.parametrize("fields, message", BAD, ids=[m[:50] for _, m in BAD])
@pytest.mark.parametrize("stream", [False, True])
def test_bad_requests(api, provider, fields, message, stream):
    model = provider.model(text("no"))
    body = {k: v for k, v in dict(api.body(model), stream=stream, **{}).items()}
    body.update(fields)
    answer = api.post("/messages", {k: v for k, v in body.items() if v is not None})
    assert answer.status == 400 and answer.json["type"] == "error", answer
    assert answer.json["error"]["type"] == "invalid_request_error"
    assert answer.json["error"]["message"].startswith(message), answer.json
    assert not model.requests


def test_no_such_model(api):
    assert api.create("nobody/knows", expect=404)["type"] == "not_found_error"


@pytest.mark.parametrize("status, kind", [(400, "invalid_request_error"), (429, "rate_limit_error"),
                                          (500, "api_error")])
def test_an_upstream_that_refuses(api, provider, status, kind):
    for stream in (False, True):
        model = provider.model(error(status, {"error": {"message": "not like this"}}))
        answer = api.post("/messages", dict(api.body(model), stream=stream))
        assert answer.status == (502 if status == 500 else status), answer
        assert answer.json["error"]["type"] == kind and answer.json["request_id"]


def test_an_error_in_the_stream(api, provider):
    whole = api.post("/messages", api.body(provider.model(error_in_stream("engine is dead"))))
    assert whole.status >= 500 and whole.json["type"] == "error"
    story = api.stream(provider.model(error_in_stream("engine is dead", after="half")))
    assert story.error["type"] == "api_error" and "message_stop" not in story.types


def test_what_ran_is_told_although_the_turn_failed(api, provider):
    def model():
        return provider.model(calls(shell("echo did")), error(500, {"error": {"message": "dead"}}))

    answer = api.post("/messages", api.body(model(), tools=[SHELL]))
    assert answer.status == 502 and answer.headers["x-should-retry"] == "false"
    assert outputs(answer.json["response"])[0]["stdout"] == "did\n"
    story = api.stream(model(), tools=[SHELL])
    assert story.error and outputs(story.message)[0]["stdout"] == "did\n"
