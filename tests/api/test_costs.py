"""What a turn cost is one number: in the answer's usage of every API, in its record, in the sums, to the last digit."""
import json
from decimal import Decimal

import pytest

from brigtest import SHELL, wait_for
from fake_provider import Model, call, calls, shell, text
from test_records import exact, record

USAGE = (1009, 37, 13, 11)  # input, output, of these cached and reasoning: none divides well
BASH = {"type": "openrouter:bash", "parameters": {"engine": "openrouter"}}


def priced(provider, *replies):
    provider.models["priced"] = Model(provider, "priced", replies)


def events(body):
    """The data of a stream's events, whatever the dialect."""
    data = [line[len(b"data:"):].strip() for line in body.splitlines() if line.startswith(b"data:")]
    return [exact(d) for d in data if d != b"[DONE]"]


def responses(client, stream, tools):
    answer = client.post("/responses", {"model": "priced", "input": "go", "stream": stream, "tools": [SHELL] if tools else []})
    body = [e for e in events(answer.body) if e["type"] == "response.completed"][-1]["response"] if stream else exact(answer.body)
    usage = body["usage"]
    return answer, usage, usage["input_tokens"], usage["output_tokens"]


def messages(client, stream, tools):
    answer = client.post("/messages", {"model": "priced", "max_tokens": 100, "stream": stream, "tools": [BASH] if tools else [],
                                       "messages": [{"role": "user", "content": "go"}]})
    usage = [e for e in events(answer.body) if e["type"] == "message_delta"][-1]["usage"] if stream else exact(answer.body)["usage"]
    return answer, usage, usage["input_tokens"] + usage["cache_read_input_tokens"], usage["output_tokens"]


def gemini(client, stream, tools):
    path = "/v1beta/models/priced:" + ("streamGenerateContent?alt=sse" if stream else "generateContent")
    answer = client.request("POST", path, {"contents": [{"role": "user", "parts": [{"text": "go"}]}],
                                           "tools": [{"brigShell": {}}] if tools else []})
    usage = (events(answer.body)[-1] if stream else exact(answer.body))["usageMetadata"]
    return answer, usage, usage["promptTokenCount"], usage["candidatesTokenCount"] + usage["thoughtsTokenCount"]


def chat(client, stream, tools):
    assert not tools
    body = {"model": "priced", "messages": [{"role": "user", "content": "go"}], "stream": stream, "top_k": 3}
    if stream:
        body["stream_options"] = {"include_usage": True}
    answer = client.post("/chat/completions", body)
    usage = [e for e in events(answer.body) if e.get("usage")][-1]["usage"] if stream else exact(answer.body)["usage"]
    return answer, usage, usage["prompt_tokens"], usage["completion_tokens"]


def sums(client):
    found = [t for t in exact(client.get("/generations/totals").body)["data"] if t["model"] == "fake/priced"]
    return [sum(t[name] for t in found) for name in ("total_cost", "server_tool_cost", "tokens_prompt", "tokens_completion")]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("api, tools", [(responses, False), (responses, True), (messages, False), (messages, True),
                                        (gemini, False), (gemini, True), (chat, False)],
                         ids=lambda v: v.__name__ if callable(v) else "tool" if v else "plain")
def test_all_accounts_agree(client, provider, api, tools, stream):
    n = 2 if tools else 1
    run = call("bash", json.dumps({"command": "echo hi"})) if api is messages else shell("echo hi")
    priced(provider, *([calls(run, usage=USAGE)] if tools else []), text("done", usage=USAGE))
    before = sums(client)
    answer, usage, tokens_in, tokens_out = api(client, stream, tools)
    assert answer.status == 200
    row = wait_for(lambda: record(client, answer.headers["x-generation-id"]))
    model = (Decimal("2.5") * (USAGE[0] - USAGE[2]) + Decimal("0.25") * USAGE[2] + 10 * USAGE[1]) * n / 1000000
    sandbox = Decimal("0.003") if tools else 0
    assert row["ledger_status"] == "settled" and not row["usage_is_estimated"]
    assert (tokens_in, tokens_out) == (USAGE[0] * n, USAGE[1] * n) == (row["tokens_prompt"], row["tokens_completion"])
    assert row["total_cost"] == row["usage"] == model + sandbox
    assert row["upstream_inference_cost"] == model and row["server_tool_cost"] == sandbox
    assert sum(a["cost"] for a in row["provider_responses"]) == model
    relayed = "cost" not in usage  # a relay passes the provider's own usage on as it came
    assert not relayed or api is chat
    if not relayed:
        details = usage["cost_details"]
        assert usage["cost"] == row["total_cost"] and details["upstream_inference_cost"] == model
        assert details.get("server_tool_cost") == (sandbox if tools else None)
        assert usage.get("server_tool_use_details") == (
            {"tool_calls_requested": 1, "tool_calls_executed": 1} if tools else None)
    after = sums(client)
    assert [a - b for a, b in zip(after, before)] == [model + sandbox, sandbox, USAGE[0] * n, USAGE[1] * n]


def test_a_relayed_stream_without_usage_is_estimated(client, provider):
    """A client that does not ask for usage gets none, and the provider is not asked for it."""
    priced(provider, text("x" * 400, usage=None))
    answer = client.post("/chat/completions", {"model": "priced", "stream": True,
                                               "messages": [{"role": "user", "content": "y" * 4000}]})
    assert answer.status == 200
    row = record(client, answer.headers["x-generation-id"])
    assert row["ledger_status"] == "settled" and row["usage_is_estimated"]
    assert row["tokens_completion"] == 100 and 1000 <= row["tokens_prompt"] <= 1050
    assert row["total_cost"] == (row["tokens_prompt"] * Decimal("2.5") + 1000) / 1000000
    assert sum(a["tokens_completion"] for a in row["provider_responses"]) == 100
