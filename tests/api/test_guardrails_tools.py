"""Guardrails over what commands print: only where a rule says so, and then before the model or the client sees it."""
import json

import pytest

from brigtest import SHELL, outputs_of
from fake_provider import calls, shell, text

SETTINGS = {"guardrails": [
    {"name": "tools", "workspace": "one", "content_filters": [
        {"pattern": "SECRET[0-9]+", "label": "secret", "action": "redact", "scan_tool_output": True},
        {"pattern": "WORST[0-9]", "label": "worst", "action": "block", "scan_tool_output": True},
        {"pattern": "SEEN[0-9]", "label": "seen", "action": "flag", "scan_tool_output": True},
        {"pattern": "QUIET[0-9]", "label": "quiet", "action": "block"}]},
    {"name": "not tools", "workspace": "two", "content_filters": [{"pattern": "SECRET[0-9]+", "action": "redact"}]}]}

PRINT = "printf 'a SECR'; sleep 0.2; printf 'ET%s QUI%s SE%s b' 77 ET1 EN1; printf 'SEC%s' RET99 >&2"


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_redacted(client, server, provider, stream):
    model = provider.model(calls(shell(PRINT)), text("ok"))
    if stream:
        story = client.stream(model, tools=[SHELL])
        response, seen = story.response, story.data
    else:
        response = client.ask(model, tools=[SHELL])
        seen = json.dumps(response).encode()
    output, = outputs_of(response)
    assert output["stdout"] == "a [REDACTED] QUIET1 SEEN1 b" and output["stderr"] == "[REDACTED]"
    assert b"SECRET77" not in seen and b"SECRET99" not in seen
    got = model.requests[1].body
    assert b"SECRET" not in got and b"[REDACTED] QUIET1 SEEN1" in got
    rules = [json.loads(line)["rule"] for line in server.log().splitlines() if '"guardrail_hit"' in line]
    assert {"secret", "seen"} <= set(rules) and "SECRET77" not in server.log()


def test_blocked(client, provider):
    model = provider.model(calls(shell("echo WOR''ST1; exit 3", "echo next")), text("ok"))
    first, second = outputs_of(client.ask(model, tools=[SHELL]))
    assert "withheld" in first["stdout"] and first["outcome"] == {"type": "exit", "exit_code": 3}
    assert second["stdout"] == "next\n"
    assert b"WORST1" not in model.requests[1].body and b"withheld" in model.requests[1].body


def test_not_without_a_rule(server, provider):
    model = provider.model(calls(shell("echo SECR''ET5")), text("ok"))
    output, = outputs_of(server.client("two").ask(model, tools=[SHELL]))
    assert output["stdout"] == "SECRET5\n"
