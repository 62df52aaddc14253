"""What clients get wrong, by mistake or on purpose: each a specific error, nothing executed, and the server goes on."""
import json
import os
import threading
import time

import pytest

import brigtest
from brigtest import SHELL, check_error, cpu_ticks, loop_seconds, resident
from fake_provider import calls, shell, text

ASAN = b"__asan_init" in open(brigtest.BRIG, "rb").read()
MIB = 1 << 20


def refuse(server, body, status=400, path="/responses", method="POST", **more):
    """Both APIs refuse it; returns the error of /v1. Nothing went upstream, and the server serves on."""
    strangers = len(server.provider.strangers)
    asked = sum(len(m.requests) for m in server.provider.models.values())
    for base in ("/api/v1", "/v1"):
        client = server.client(base=base)
        answer = client.request(method, base + path, body, **more)
        assert answer.status == status, answer
        error = check_error(answer, base)
    assert len(server.provider.strangers) == strangers
    assert sum(len(m.requests) for m in server.provider.models.values()) == asked
    assert client.request("GET", "/healthz").status == 200
    return error


BODY = {"model": "fake/m", "input": "x"}

BROKEN = {
    "empty": b"", "not JSON": b"hello", "cut": b'{"model": "fake/m", "input": "x"', "two values": b'{}{}',
    "trailing comma": b'{"model": "fake/m", "input": "x",}', "single quotes": b"{'model': 'fake/m'}",
    "comment": b'{"model": "fake/m", /* x */ "input": "x"}', "NaN": b'{"model": "fake/m", "input": "x", "temperature": NaN}',
    "leading zero": b'{"model": "fake/m", "input": "x", "temperature": 01}', "bare word": b'{model: "fake/m"}',
    "a key twice": b'{"model": "fake/m", "input": "x", "model": "fake/n"}',
    "a key twice, escaped": b'{"model": "fake/m", "input": "x", "mod\\u0065l": "fake/n"}',
    "a key twice, inside": b'{"model": "fake/m", "input": "x", "metadata": {"a": "1", "a": "2"}}',
    "NUL in a key": b'{"model": "fake/m", "input": "x", "a\\u0000b": 1}',
    "control byte in a string": b'{"model": "fake/m", "input": "x\n"}',
    "bad escape": b'{"model": "fake/m", "input": "\\x41"}', "cut escape": b'{"model": "fake/m", "input": "\\u12"}',
    "not UTF-8": b'{"model": "fake/m", "input": "\xff\xfe"}', "overlong UTF-8": b'{"model": "fake/m", "input": "\xc0\xaf"}',
    "surrogate in UTF-8": b'{"model": "fake/m", "input": "\xed\xa0\x80"}',
    "UTF-16": '{"model": "fake/m"}'.encode("utf-16"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_json_is_refused(server, name):
    refuse(server, BROKEN[name])


@pytest.mark.parametrize("body", [[], "x", 1, None, True])
def test_a_body_that_is_no_object_is_refused(server, body):
    refuse(server, json.dumps(body).encode())


def test_a_million_brackets_are_refused_at_once(server):
    (gateway,) = server.gateways()
    before, ticks = resident(gateway), cpu_ticks(gateway)
    refuse(server, b"[" * 1000000)
    refuse(server, b'{"input":' + b"[" * 1000000 + b"]" * 1000000 + b"}")
    refuse(server, b'{"a":' * 1000000)
    assert (cpu_ticks(gateway) - ticks) / os.sysconf("SC_CLK_TCK") < 5
    if not ASAN:
        assert resident(gateway) - before < 64 * MIB


def longest_stall(client, gateway, done):
    """The most that the loop computed while a request waited for its answer."""
    longest = 0
    while not done.is_set():
        started = loop_seconds(gateway)
        assert client.request("GET", "/healthz").status == 200
        longest = max(longest, loop_seconds(gateway) - started)
        time.sleep(0.002)
    return longest


def test_64_mib_of_ones_are_bounded_and_never_stall_the_loop(server):
    (gateway,) = server.gateways()
    client = server.client()
    before = resident(gateway)
    body = b'{"model":"fake/m","input":[' + b"1," * ((64 * MIB - 64) // 2) + b"1]}"
    assert len(body) <= 64 * MIB
    done, answers = threading.Event(), []

    def send():
        answers.append(client.post("/responses", body, timeout=120))
        done.set()

    thread = threading.Thread(target=send)
    peak = [0]

    def watch():
        while not done.is_set():
            peak[0] = max(peak[0], resident(gateway))
            time.sleep(0.02)

    watcher = threading.Thread(target=watch)
    thread.start()
    watcher.start()
    longest = longest_stall(client, gateway, done)
    thread.join()
    watcher.join()
    assert answers[0].status in (400, 413), answers[0]  # more values than are read
    check_error(answers[0], client.base)
    if not ASAN:
        assert longest < 0.25, "%d ms" % (longest * 1000)
        assert peak[0] - before < 250 * MIB, "%d MiB" % ((peak[0] - before) / MIB)


def test_a_large_good_body_is_read_beside_others(server, provider):
    client = server.client()
    model = provider.model(text("ok"))
    body = json.dumps({"model": model.name, "input": [{"role": "user", "content": "x" * 1000} for _ in range(20000)]})
    assert client.post("/responses", body.encode()).status == 200
    assert len(model.requests[0].messages) == 20000


@pytest.mark.parametrize("fields, param", [
    ({"model": None}, "model"), ({"model": ""}, "model"), ({"model": 7}, "model"), ({"model": ["fake/m"]}, "model"),
    ({"model": "fake/" + "m" * 1000}, "model"), ({"model": "fake/a b"}, "model"), ({"models": "fake/m"}, "models"),
    ({"models": [7]}, "models[0]"),
    ({"input": None}, "input"), ({"input": 7}, "input"), ({"input": {}}, "input"), ({"input": [7]}, "input[0]"),
    ({"input": []}, "input"),
    ({"input": [{}]}, "input[0]"), ({"input": [{"type": "message"}]}, "input[0].role"),
    ({"input": [{"role": "user"}]}, "input[0].content"), ({"input": [{"role": "king", "content": "x"}]}, "input[0].role"),
    ({"input": [{"role": "user", "content": 7}]}, "input[0].content"),
    ({"input": [{"role": "user", "content": [{"type": "input_text"}]}]}, "input[0].content[0].text"),
    ({"input": [{"role": "user", "content": [{"type": "hologram"}]}]}, "input[0].content[0].type"),
    ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "file:///etc/passwd"}]}]},
     "input[0].content[0].image_url"),
    ({"input": [{"type": "mystery"}]}, "input[0].type"),
    ({"input": [{"type": "function_call", "name": "f", "arguments": "{}"}]}, "input[0].call_id"),
    ({"input": [{"type": "function_call", "call_id": "c" * 65, "name": "f", "arguments": "{}"}]}, "input[0].call_id"),
    ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "input[0]"),
    ({"instructions": 7}, "instructions"), ({"stream": "yes"}, "stream"), ({"temperature": 3}, "temperature"),
    ({"temperature": "hot"}, "temperature"), ({"top_p": -0.1}, "top_p"), ({"max_output_tokens": 0}, "max_output_tokens"),
    ({"max_output_tokens": 1.5}, "max_output_tokens"), ({"max_output_tokens": 10 ** 30}, "max_output_tokens"),
    ({"metadata": []}, "metadata"), ({"metadata": {"a": 1}}, "metadata.a"),
    ({"metadata": {str(i): "x" for i in range(17)}}, "metadata"), ({"metadata": {"k" * 65: "v"}}, "metadata"),
    ({"metadata": {"k": "v" * 513}}, "metadata.k"),
    ({"parallel_tool_calls": 1}, "parallel_tool_calls"), ({"session_id": 7}, "session_id"),
    ({"tools": {}}, "tools"), ({"tools": [{"type": "function"}]}, "tools[0].name"),
    ({"tools": [{"type": "function", "name": "a b"}]}, "tools[0].name"),
    ({"tools": [{"type": "function", "name": "n" * 65}]}, "tools[0].name"),
    ({"tools": [{"type": "function", "name": "f", "parameters": []}]}, "tools[0].parameters"),
    ({"tools": [{"type": "function", "name": "f"}, {"type": "function", "name": "f"}]}, "tools[1].name"),
    ({"tools": [{"type": "web_search"}]}, "tools[0].type"), ({"tools": [{"type": "code_interpreter"}]}, "tools[0].type"),
    ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools[0].name"),
    ({"text": "json"}, "text"), ({"text": {"format": {"type": "yaml"}}}, "text.format.type"),
    ({"reasoning": "much"}, "reasoning"), ({"reasoning": {"effort": "heroic"}}, "reasoning.effort"),
    ({"stop_server_tools_when": []}, "stop_server_tools_when"),
    ({"nonsense": 1}, "nonsense"), ({"max_tokens": 5}, "max_tokens"),
])
def test_wrong_values_are_refused_and_named(server, fields, param):
    error = refuse(server, dict(BODY, **fields))
    assert error["param"] and error["param"].startswith(param), error


def test_unknown_parameters_say_so(server):
    assert refuse(server, dict(BODY, nonsense=1))["code"] == "unknown_parameter"


def test_names_that_are_no_text_do_not_break_the_answer(server):
    for name in ("\u2028", "\x07", "\U0001f600", "a" * 5000, "<script>", "%s%n", "../x"):
        refuse(server, dict(BODY, **{name: 1}))


def test_a_call_of_101_commands_is_told_and_nothing_runs(client, provider):
    model = provider.model(calls(shell(*["touch x"] * 101)), text("ok"))
    response = client.ask(model, tools=[SHELL], session_id="hundred-one")
    assert response["output"][0]["status"] == "failed"
    assert client.run("sess_hundred-one", "ls")["stdout"] == ""


@pytest.mark.parametrize("id", ["a%2Fb", "a%2fb", "..%2f..%2fetc", "%2e%2e", "a%00b", "a%20b", "a\u00fc".encode().decode("latin-1"),
                                "x" * 41, "a.b", "a:b", "..", "."])
def test_a_container_id_with_odd_characters_names_nothing(server, id):
    id = "".join(c if ord(c) < 128 else "%%%02x" % ord(c) for c in id)
    for method, path, body in (("GET", "/containers/%s", None), ("DELETE", "/containers/%s", None),
                               ("POST", "/containers/%s/exec", {"commands": ["touch /workspace/home/never"]}),
                               ("GET", "/containers/%s/exec/e", None)):
        for base in ("/api/v1", "/v1"):
            answer = server.client(base=base).request(method, base + path % id, body)
            assert answer.status in (400, 404), answer
            check_error(answer, base)


def test_a_container_id_with_a_slash_names_nothing(server):
    for id in ("a/b", "../x", "a//b"):
        answer = server.client().post("/containers/%s/exec" % id, {"commands": ["true"]})
        assert answer.status == 404, answer
    tool = {"type": "openrouter:shell", "parameters": {"environment": {"type": "container_reference",
                                                                       "container_id": "../../etc"}}}
    assert refuse(server, dict(BODY, tools=[tool]))["param"].endswith("container_id")


def test_a_container_that_does_not_exist_is_a_404(server):
    refuse(server, None, 404, "/containers/nobody", "GET")
    refuse(server, None, 404, "/containers/nobody", "DELETE")
    refuse(server, None, 404, "/containers/nobody/exec/none", "GET")
    refuse(server, None, 404, "/containers/nobody/exec/none", "DELETE")


def test_an_upstream_that_answers_html_is_an_error(client, v1, provider):
    from fake_provider import error
    page = b"<!DOCTYPE html><html><head><title>Just a moment...</title></head><body>challenge</body></html>"
    for c in (client, v1):
        for status in (200, 403, 503):
            answer = c.post("/responses", {"model": provider.model(error(status, page)).name, "input": "x"})
            assert 500 <= answer.status < 600, answer
            check_error(answer, c.base)
            assert b"<" not in answer.body


def test_a_failing_stream_is_refused_with_json_too(client, provider):
    answer = client.post("/responses", {"model": "fake/m", "input": "x", "stream": True, "temperature": 9})
    assert answer.status == 400 and check_error(answer, client.base)["param"] == "temperature"


@pytest.mark.parametrize("body, param", [
    ({}, "commands"), ({"commands": []}, "commands"), ({"commands": "ls"}, "commands"), ({"commands": [1]}, "commands"),
    ({"argv": []}, "argv"), ({"argv": ["ls"], "commands": ["ls"]}, ""), ({"commands": ["ls"] * 101}, "commands"),
    ({"commands": ["ls"], "cwd": 7}, "cwd"), ({"commands": ["ls"], "env": []}, "env"),
    ({"commands": ["ls"], "env": {"a=b": "c"}}, "env"), ({"commands": ["ls"], "env": {"1a": "c"}}, "env"),
    ({"commands": ["ls"], "env": {"A": 1}}, "env"), ({"commands": ["ls"], "timeout_ms": -1}, "timeout_ms"),
    ({"commands": ["ls"], "timeout_ms": 86400001}, "timeout_ms"), ({"commands": ["ls"], "stream": 1}, "stream"),
    ({"commands": ["ls"], "exec_id": "a/b"}, "exec_id"), ({"commands": ["ls"], "exec_id": ""}, "exec_id"),
    ({"commands": ["ls"], "exec_id": "x" * 65}, "exec_id"), ({"commands": ["ls"], "detach": True, "stream": True}, "detach"),
    ({"commands": ["ls"], "nonsense": 1}, "nonsense"), ({"commands": ["ls"], "encoding": "rot13"}, "encoding"),
    ({"commands": ["ls"], "stdin": 5}, "stdin"), ({"commands": ["ls"], "max_output_length": 0}, "max_output_length"),
    ({"commands": ["a\0b"]}, "commands"), ({"argv": ["a\0b"]}, "argv"), ({"commands": ["ls"], "cwd": "a\0b"}, "cwd"),
    ({"commands": ["ls"], "user": "a\0b"}, "user"), ({"commands": ["ls"], "env": {"A": "b\0c"}}, "env"),
    ([], ""), ("x", ""),
])
def test_wrong_execs_are_refused(server, body, param):
    error = refuse(server, body, path="/containers/bad-exec/exec")
    assert (error["param"] or "").startswith(param), error


@pytest.mark.parametrize("body, param", [
    ({"name": 7}, "name"), ({"nonsense": 1}, "nonsense"), ({"memory": "lots"}, "memory"), ({"memory": "64g"}, "memory"),
    ({"memory": 5}, "memory"), ({"cpus": 64}, "cpus"), ({"cpus": 0}, "cpus"), ({"cpus": "1"}, "cpus"),
    ({"image": "other"}, "image"), ({"network_policy": {"type": "allowlist", "allowed_domains": ["a.b/"]}}, "network_policy.allowed_domains[0]"),
    ({"file_ids": ["f"]}, "file_ids"), ({"keep_running": "x"}, "keep_running"), ({"env": {"A": 1}}, "env"),
    ({"metadata": "x"}, "metadata"), ({"name": "n" * 300}, "name"),
    ([], ""),
])
def test_wrong_containers_are_refused(server, body, param):
    error = refuse(server, body, path="/containers")
    assert (error["param"] or "").startswith(param), error


@pytest.mark.parametrize("query", ["limit=0", "limit=101", "limit=x", "order=up"])
def test_wrong_lists_are_refused(server, query):
    refuse(server, None, path="/containers?" + query, method="GET")
