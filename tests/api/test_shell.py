"""The tool: its two entries, their items and events, its parameters, and what a command meets."""
import json

import pytest

from brigtest import BRIG_SHELL, SHELL, Story, items_of, outputs_of, text_of
from fake_provider import call, calls, shell, text

SETTINGS = {"limits": {"keepalive": "200ms"}}


def run(client, provider, *commands, tool=SHELL, timeout=60, fields=None, **arguments):
    """The outputs of one call."""
    model = provider.model(calls(shell(*commands, **arguments)), text("ok"))
    return outputs_of(client.ask(model, tools=[tool], timeout=timeout, **(fields or {})))


def one(client, provider, command, **more):
    (output,) = run(client, provider, command, **more)
    return output


# ---- openrouter:shell ----

def test_openrouter_shell_is_one_item(client, provider):
    model = provider.model(calls(shell("echo hi", id="call_7", timeout_ms=5000)), text("ok"))
    response = client.ask(model, tools=[SHELL])
    item = response["output"][0]
    assert set(item) == {"id", "type", "status", "action", "output", "container_id", "call_id", "arguments"}
    assert item["id"].startswith("st_tmp_") and item["status"] == "completed"
    assert item["action"] == {"commands": ["echo hi"], "timeout_ms": 5000, "max_output_length": None}
    assert json.loads(item["arguments"]) == {"commands": ["echo hi"], "timeout_ms": 5000}
    assert item["call_id"].endswith("_call_7") and item["container_id"].startswith("gen_")
    assert len(item["container_id"]) == 16
    assert response["tools"] == [SHELL]


def test_openrouter_shell_streams_added_pings_done(client, provider):
    model = provider.model(calls(shell("sleep 0.7; echo hi")), text("ok"))
    story = client.stream(model, tools=[SHELL])
    assert story.types[:4] == ["response.created", "response.in_progress", "response.output_item.added",
                               "response.output_item.done"]
    added, done = story.events[2][1]["item"], story.events[3][1]["item"]
    assert added["type"] == "openrouter:shell" and added["status"] == "in_progress" and "output" not in added
    assert done["output"][0]["stdout"] == "hi\n"
    at = story.data.index(b"event: response.output_item.added")
    assert story.data[at:story.data.index(b"event: response.output_item.done")].count(b": ping\n") >= 2
    assert set(story.comments) == {": ping"}


def test_a_call_is_shown_before_its_commands_have_ended(client, provider):
    model = provider.model(calls(shell("until [ -e go ]; do sleep 0.01; done; echo went")), text("ok"))
    stream = client.begin(model, tools=[SHELL], session_id="shown-early")
    stream.until("response.output_item.added")
    assert b"output_item.done" not in stream.text
    client.run("sess_shown-early", "touch go")
    story = Story(stream.rest())
    assert outputs_of(story.response)[0]["stdout"] == "went\n"


# ---- brig:shell ----

def test_brig_shell_is_two_items(client, provider):
    model = provider.model(calls(shell("echo hi", "echo ho >&2", id="call_7", max_output_length=500)), text("ok"))
    response = client.ask(model, tools=[BRIG_SHELL])
    called, output, message = response["output"]
    assert (called["type"], output["type"], message["type"]) == ("shell_call", "shell_call_output", "message")
    assert called["id"].startswith("sh_") and output["id"].startswith("sho_")
    assert called["call_id"] == output["call_id"]
    assert called["status"] == output["status"] == "completed"
    assert called["action"] == {"commands": ["echo hi", "echo ho >&2"], "timeout_ms": None, "max_output_length": 500}
    assert called["environment"] == {"type": "container_reference", "container_id": output["container_id"]}
    assert output["max_output_length"] == 500
    assert output["output"] == [{"stdout": "hi\n", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}},
                                {"stdout": "", "stderr": "ho\n", "outcome": {"type": "exit", "exit_code": 0}}]


def test_brig_shell_streams_commands_and_output(client, provider):
    model = provider.model(calls(shell("echo hi", "echo ho >&2; exit 4")), text("ok"))
    story = client.stream(model, tools=[BRIG_SHELL])
    types = [t for t in story.types if "shell" in t]
    assert types[:types.index("response.shell_call_output_content.delta")] == [
        "response.shell_call_command.added", "response.shell_call_command.delta", "response.shell_call_command.done"] * 2
    assert types.count("response.shell_call_output_content.done") == 2
    dones = story.of("response.shell_call_output_content.done")
    assert dones[1]["output"] == [{"stdout": "", "stderr": "ho\n", "outcome": {"type": "exit", "exit_code": 4}}]
    assert [c["item"]["status"] for c in story.of("response.output_item.added")][:2] == ["in_progress", "in_progress"]


def test_brig_shell_output_comes_while_the_command_runs(client, provider):
    model = provider.model(calls(shell("echo first; until [ -e go ]; do sleep 0.01; done; echo second")), text("ok"))
    stream = client.begin(model, tools=[BRIG_SHELL], session_id="live-output")
    stream.until('"stdout":"first\\n"')
    client.run("sess_live-output", "touch go")
    story = Story(stream.rest())
    assert outputs_of(story.response)[0]["stdout"] == "first\nsecond\n"


def test_a_call_that_is_not_run_has_brig_shell_items_too(client, provider):
    model = provider.model(calls(call("shell", "{broken", id="bad")), text("ok"))
    story = client.stream(model, tools=[BRIG_SHELL])
    called, output = story.response["output"][:2]
    assert called["type"] == "shell_call" and called["arguments"] == "{broken"
    assert output["type"] == "shell_call_output" and output["output"] == [] and "JSON" in output["error"]


# ---- outcomes ----

@pytest.mark.parametrize("command, code", [("true", 0), ("exit 7", 7), ("exit 255", 255), ("no-such-command", 127),
                                           ("/etc/passwd", 126)])
def test_exit_codes(client, provider, command, code):
    assert one(client, provider, command)["outcome"] == {"type": "exit", "exit_code": code}


@pytest.mark.parametrize("signal, number", [("TERM", 15), ("KILL", 9), ("SEGV", 11)])
def test_a_signal_is_named(client, provider, signal, number):
    outcome = one(client, provider, "echo before; kill -%s $$" % signal)["outcome"]
    assert outcome == {"type": "exit", "exit_code": 128 + number, "signal": "SIG" + signal}


def test_a_timeout_keeps_what_was_printed_before(client, provider):
    output = one(client, provider, "echo before; echo err >&2; sleep 600; echo after", timeout_ms=1500)
    assert output == {"stdout": "before\n", "stderr": "err\n", "outcome": {"type": "timeout"}}


def test_a_timeout_kills_the_whole_tree_and_the_next_command_runs(client, provider, server):
    outputs = run(client, provider, "setsid -f sleep 70707; (trap '' TERM HUP; sleep 70708) & sleep 70709", "echo next",
                  timeout_ms=1500)
    assert outputs[0]["outcome"] == {"type": "timeout"} and outputs[1]["stdout"] == "next\n"
    assert not server.guests("sleep 7070")


def test_memory_over_the_limit_is_named(client, provider):
    outputs = run(client, provider, "python3 -c 'b = bytearray(600 << 20); print(len(b))'", "echo alive")
    outcome = outputs[0]["outcome"]
    assert outcome["type"] == "exit" and outcome["exit_code"] == 137 and outcome["reason"] == "memory", outputs[0]
    assert outcome["signal"] == "SIGKILL" and outputs[0]["stdout"] == ""
    assert outputs[1]["stdout"] == "alive\n"


def test_too_many_processes_fail_inside_and_nowhere_else(client, provider):
    outputs = run(client, provider, "for i in $(seq 400); do sleep 30 & done 2>&1 | tail -1", "echo alive",
                  timeout_ms=3000)
    assert outputs[1]["stdout"] == "alive\n"


def test_a_background_child_neither_delays_nor_dies(client, provider):
    outputs = run(client, provider, "(until [ -e go ]; do sleep 0.05; done; echo late > late) & echo now",
                  "touch go; until [ -s late ]; do sleep 0.05; done; cat late")
    assert outputs[0]["stdout"] == "now\n" and outputs[0]["outcome"]["exit_code"] == 0
    assert outputs[1]["stdout"] == "late\n"


def test_a_background_child_that_holds_the_pipes_does_not_delay(client, provider):
    outputs = run(client, provider, "(while echo noise; do sleep 0.05; done) & echo now", "echo next")
    assert outputs[0]["stdout"].startswith(("now\n", "noise\n")) and outputs[1]["stdout"] == "next\n"
    assert [o["outcome"] for o in outputs] == [{"type": "exit", "exit_code": 0}] * 2


def test_stdin_is_at_its_end(client, provider):
    output = one(client, provider, "cat; read x; echo $?; python3 -c 'import sys; print(repr(sys.stdin.read()))'")
    assert output["stdout"] == "1\n''\n"


def test_the_environment_is_small_and_known(client, provider):
    output = one(client, provider, "env -0 | tr '\\0' '\\n' | sort | grep -v '^_='")
    names = {line.split("=")[0] for line in output["stdout"].splitlines()}
    assert names == {"PATH", "HOME", "USER", "LANG", "TERM", "PWD", "SHLVL"}
    output = one(client, provider, "echo $HOME $USER $LANG $TERM; pwd; id -u; tty; hostname")
    lines = output["stdout"].splitlines()
    assert lines[0].split() == ["/workspace/home", "root", "C.UTF-8", "dumb"]
    assert lines[1:4] == ["/workspace/home", "0", "not a tty"]


def test_the_image_has_what_it_promises(client, provider):
    tools = "bash python3 pip3 git curl wget jq ps file unzip xz"
    output = one(client, provider, "for t in %s; do command -v $t >/dev/null || echo no $t; done; . /etc/os-release; "
                                   "echo $ID $VERSION_ID; python3 -m venv v && v/bin/python -c 'print(6*7)'" % tools)
    assert output["stdout"] == "debian 12\n42\n", output


def test_a_name_without_a_policy_is_refused_at_once(client, provider):
    output = one(client, provider, "timeout 50 curl -s -o /dev/null -w '%{http_code}' http://example.com/")
    assert output["stdout"] == "000" and output["outcome"]["exit_code"] not in (0, 124)


def test_an_address_without_a_policy_is_refused_at_once(client, provider):
    output = one(client, provider, "timeout 20 curl -s -o /dev/null -w '%{http_code}' http://1.1.1.1/; echo \" $?\"; "
                                   "timeout 20 curl -s http://169.254.169.254/; echo $?")
    assert output["stdout"] == "000 7\n7\n", "refused, and not waited for"


# ---- output ----

def test_output_is_kept_byte_for_byte(client, provider):
    output = one(client, provider, r"printf 'no newline'; printf 'tab\t\001\033[0m\\\"\n\n' >&2")
    assert output["stdout"] == "no newline" and output["stderr"] == 'tab\t\x01\x1b[0m\\"\n\n'


def test_bytes_that_are_no_text_become_replacement_characters(client, provider):
    output = one(client, provider, r"printf 'a\xe4\xb8b\xff\xed\xa0\xbdc'")
    assert output["stdout"].startswith("a\ufffd") and output["stdout"].endswith("c")
    assert set(output["stdout"]) == {"a", "b", "c", "\ufffd"}


def test_long_output_keeps_its_first_and_last_half(client, provider):
    output = one(client, provider, "seq 1 10000", max_output_length=1000)
    kept = output["stdout"]
    assert len(kept) <= 1000 and kept.startswith("1\n2\n3\n") and kept.endswith("9999\n10000\n")
    assert output["stdout_truncated"] is True and output["stdout_length"] == 48894
    assert "stderr_truncated" not in output
    missing = 48894 - len(kept)
    assert any(c.isdigit() for c in kept) and "characters" in kept, missing


def test_the_default_limit_is_16384_characters_each(client, provider):
    output = one(client, provider, "(yes | head -c 50000) 2>/dev/null; head -c 16384 /dev/zero | tr \\\\0 x >&2")
    assert len(output["stdout"]) <= 16384 and output["stdout_length"] == 50000
    assert len(output["stderr"]) == 16384 and "stderr_truncated" not in output


def test_more_than_the_maximum_counts_as_the_maximum(client, provider):
    output = one(client, provider, "yes | head -c 200000", max_output_length=10 ** 9)
    assert 60000 < len(output["stdout"]) <= 65536


def test_a_cut_never_splits_a_character(client, provider):
    output = one(client, provider, "python3 -c 'print(\"\\u00e4\\u4e2d\\U0001f600\" * 3000)'", max_output_length=999)
    assert "\ufffd" not in output["stdout"] and len(output["stdout"]) <= 999
    assert output["stdout_length"] == 9001


# ---- limits of a call ----

def test_100_commands_run_and_101_do_not(client, provider):
    model = provider.model(calls(shell(*["echo %d" % i for i in range(100)])),
                           calls(shell(*["touch never"] * 101)), text("ok"))
    response = client.ask(model, tools=[SHELL], session_id="hundred")
    good, bad = items_of(response, "openrouter:shell")
    assert [o["stdout"] for o in good["output"]] == ["%d\n" % i for i in range(100)]
    assert bad["status"] == "failed" and "100" in bad["error"] and "101" in bad["error"]
    assert client.run("sess_hundred", "ls")["stdout"] == ""


def test_the_requests_own_timeout_is_default_and_ceiling(client, provider):
    tool = {"type": "openrouter:shell", "parameters": {"timeout_ms": 300}}
    outputs = run(client, provider, "sleep 50", tool=tool) + run(client, provider, "sleep 50", tool=tool,
                                                                timeout_ms=60000)
    assert [o["outcome"]["type"] for o in outputs] == ["timeout", "timeout"]


def test_the_requests_own_output_limit_is_default_and_ceiling(client, provider):
    tool = {"type": "brig:shell", "parameters": {"max_output_length": 100}}
    outputs = run(client, provider, "seq 1000", tool=tool) + run(client, provider, "seq 1000", tool=tool,
                                                                 max_output_length=5000)
    assert all(len(o["stdout"]) <= 100 for o in outputs)


# ---- parameters ----

@pytest.mark.parametrize("tool", [
    {"type": "openrouter:shell", "parameters": None},
    {"type": "openrouter:shell", "parameters": {}},
    {"type": "openrouter:shell", "parameters": {"engine": "auto"}},
    {"type": "brig:shell", "parameters": {"engine": "openrouter", "sleep_after_seconds": 900}},
    {"type": "openrouter:shell", "parameters": {"environment": {"type": "container_auto"}}},
    {"type": "openrouter:shell", "parameters": {"environment": {"type": "container_auto",
                                                                "network_policy": {"type": "disabled"}}}},
    {"type": "brig:shell", "parameters": {"environment": {"type": "container_reference", "container_id": "x-y_Z9"}}},
])
def test_parameters_that_are_taken(client, provider, tool):
    model = provider.model(calls(shell("echo ran")), text("ok"))
    response = client.ask(model, tools=[tool])
    assert outputs_of(response)[0]["stdout"] == "ran\n" and response["tools"] == [tool]


@pytest.mark.parametrize("parameters, param", [
    ({"engine": "native"}, "tools[0].parameters.engine"),
    ({"timeout_ms": 0}, "tools[0].parameters.timeout_ms"),
    ({"timeout_ms": "5"}, "tools[0].parameters.timeout_ms"),
    ({"max_output_length": -1}, "tools[0].parameters.max_output_length"),
    ({"memory": "1g"}, "tools[0].parameters.memory"),
    ({"file_ids": ["or_file_1"]}, "tools[0].parameters.file_ids"),
    ({"environment": "container_auto"}, "tools[0].parameters.environment"),
    ({"environment": {"type": "local"}}, "tools[0].parameters.environment.type"),
    ({"environment": {"type": "container_auto", "container_id": "x"}}, "tools[0].parameters.environment.container_id"),
    ({"environment": {"type": "container_reference"}}, "tools[0].parameters.environment.container_id"),
    ({"environment": {"type": "container_reference", "container_id": "a/b"}},
     "tools[0].parameters.environment.container_id"),
    ({"environment": {"type": "container_reference", "container_id": "a" * 41}},
     "tools[0].parameters.environment.container_id"),
    ({"environment": {"type": "container_reference", "container_id": ""}},
     "tools[0].parameters.environment.container_id"),
    ({"environment": {"type": "container_auto", "file_ids": ["f"]}}, "tools[0].parameters.environment.file_ids[0]"),
    ({"environment": {"type": "container_auto", "keep_running": True}},
     "tools[0].parameters.environment.keep_running"),
    ({"environment": {"type": "container_auto", "network_policy": {"type": "allowlist",
                                                                   "allowed_domains": ["example.com."]}}},
     "tools[0].parameters.environment.network_policy.allowed_domains[0]"),
    ({"environment": {"type": "container_auto", "network_policy": {"type": "open"}}},
     "tools[0].parameters.environment.network_policy.type"),
    ({"environment": {"type": "container_auto", "skills": []}}, "tools[0].parameters.environment.skills"),
])
@pytest.mark.parametrize("type", ["openrouter:shell", "brig:shell"])
def test_parameters_that_are_refused(client, provider, type, parameters, param):
    model = provider.model()
    error = client.ask(model, tools=[{"type": type, "parameters": parameters}], expect=400).error
    assert error["param"] == param and not model.requests


@pytest.mark.parametrize("tools", [
    [SHELL, SHELL], [SHELL, BRIG_SHELL], [{"type": "shell_of_nobody"}], [{"type": "openrouter:bash"}],
    [{"type": "bash_20250124", "name": "bash"}], [{}], ["shell"], [None], [dict(SHELL, more=1)],
    [dict(SHELL, environment={"type": "container_auto"})],
])
def test_tools_that_are_refused(client, provider, tools):
    model = provider.model()
    error = client.ask(model, tools=tools, expect=400).error
    assert error["param"].startswith("tools[") and not model.requests


# ---- one body, three models ----

SUM = "Add up.\n\n```bash\npython3 -c 'print(sum(range(1, 101)))'\n```\n"


def test_one_body_with_only_model_changed(client, provider):
    """Two providers and brig/script run the same and answer in the same shape."""
    command = "python3 -c 'print(sum(range(1, 101)))'"
    model = provider.model(calls(shell(command)), text("5050"), calls(shell(command)), text("5050"))
    kinds = set()
    for name in (model.name, model.name.replace("fake/", "other/"), "brig/script"):
        response = client.ask(name, SUM, tools=[SHELL])
        (item,) = items_of(response, "openrouter:shell")
        assert item["output"] == [{"stdout": "5050\n", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]
        assert "5050" in text_of(response)
        kinds.add((tuple(i["type"] for i in response["output"]), tuple(sorted(item)), tuple(sorted(response))))
    assert len(kinds) == 1
    assert [r.path for r in model.requests] == ["/v1/chat/completions"] * 2 + ["/other/v1/chat/completions"] * 2


# ---- brig/script ----

def test_script_runs_blocks_in_one_call_and_calls_divided_by_a_line(client):
    story = client.stream("brig/script", "```sh\necho a > f\n```\n```\ncat f\n```\n---\n```bash timeout_ms=300\n"
                                         "sleep 9\n```\n```python\nprint('not run')\n```", tools=[SHELL])
    first, second = items_of(story.response, "openrouter:shell")
    assert [o["stdout"] for o in first["output"]] == ["", "a\n"]
    assert second["action"]["timeout_ms"] == 300 and second["output"][0]["outcome"]["type"] == "timeout"
    assert "not run" not in str(first) + str(second)
    assert story.response["usage"]["input_tokens"] == 0


def test_script_says_first_that_it_is_no_model(client):
    for tools in ([], [SHELL]):
        first = text_of(client.ask("brig/script", "hello", tools=tools)).splitlines()[0]
        assert "no model" in first.lower() or "not a model" in first.lower(), first


def test_script_without_a_tool_runs_nothing(client):
    response = client.ask("brig/script", "```sh\ntouch x\n```")
    assert [i["type"] for i in response["output"]] == ["message"]


def test_script_obeys_tool_choice_none(client):
    response = client.ask("brig/script", "```sh\ntouch x\n```", tools=[SHELL], tool_choice="none")
    assert [i["type"] for i in response["output"]] == ["message"]


def test_script_is_never_a_fallback(client, provider):
    client.ask(provider.model(), models=["brig/script"], expect=400)
