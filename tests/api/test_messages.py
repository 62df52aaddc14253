"""POST /messages, as Anthropic's clients use it: text, thinking, tools of the client, errors."""
import pytest

from fake_provider import call, calls, chunk, ending, error, error_in_stream, shell, text, thinking
from messagestest import SHELL, BRIG_SHELL, Messages, blocks, outputs, shape, texts, tool

SETTINGS = {"limits": {"keepalive": "200ms", "upstream_retries": 0, "upstream_failures": 0}}


@pytest.fixture
def api(client):
    return Messages(client)


def test_text(api, provider):
    whole, streamed = api.both(lambda: provider.model(text("Hello there.", pieces=3)))
    assert texts(whole) == "Hello there." and whole["stop_reason"] == "end_turn"
    assert whole["usage"]["input_tokens"] == 10 and whole["usage"]["output_tokens"] == 5
    assert shape(whole) == shape(streamed)


def test_one_shell_call(api, provider):
    whole, streamed = api.both(lambda: provider.model(calls(shell("echo hi; exit 3")), text("ok")), tools=[SHELL])
    made, result, said = whole["content"]
    assert made["name"] == "openrouter:shell" and made["input"] == {"commands": ["echo hi; exit 3"]}
    assert result["type"] == "openrouter_shell_tool_result"
    assert outputs(whole) == [{"stdout": "hi\n", "stderr": "", "outcome": {"type": "exit", "exit_code": 3}}]
    assert said["text"] == "ok" and whole["container"] is None
    assert shape(whole) == shape(streamed)


def test_script(api):
    whole = api.create("brig/script", "```\necho $((6 * 7))\n```", tools=[SHELL])
    assert outputs(whole)[0]["stdout"] == "42\n"
    story = api.stream("brig/script", "```\necho $((6 * 7))\n```", tools=[BRIG_SHELL])
    assert blocks(story.message, "bash_code_execution_tool_result")[0]["content"]["stdout"] == "42\n"
