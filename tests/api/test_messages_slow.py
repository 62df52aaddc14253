"""A Messages client that reads slowly, or not at all: what it does not take waits where it comes from."""
import json

from brigtest import Stream, resident, wait_for
from fake_provider import Reply, call, calls, text
from messagestest import SHELL, Messages, Story, outputs, parse_events
from test_backpressure import ASAN, MIB, Flood, settled

SETTINGS = {"limits": {"call_output": "64m", "turn_output": "128m", "client_stall": "120s", "upstream_idle": "100s"}}


def begin(client, body):
    return Stream(client, "POST", "/v1/messages", dict(body, stream=True), {"anthropic-version": "2023-06-01"},
                  receive_buffer=8192)


def test_a_flood_of_text_waits(server, client, provider):
    flood = Flood()
    model = provider.model(Reply([flood]))
    api = Messages(client)
    api.create(provider.model(text("warm up")))
    (gateway,) = server.gateways()
    before = resident(gateway)
    stream = begin(client, api.body(model))
    model.wait()
    settled(lambda: flood.sent)
    assert flood.sent < 16 * MIB
    if not ASAN:
        assert resident(gateway) - before < 2 * flood.sent + 2 * MIB
    taken, got = flood.sent, 0
    while got < 4 * MIB:
        got += len(stream.piece())
    wait_for(lambda: flood.sent > taken)
    events = parse_events(stream.text[:stream.text.rindex(b"\n\n") + 2])
    assert {e["delta"]["type"] for e in events if e["type"] == "content_block_delta"} == {"text_delta"}
    stream.close()
    assert model.requests[0].closed.wait(60)


def test_one_result_of_megabytes_is_written_as_it_is_taken(server, client, provider):
    """All of a result is in one event: it comes whole, and is never held a second time."""
    each = "seq 100000 | head -c 60000"
    arguments = {"commands": [each] * 90, "max_output_length": 65536}
    model = provider.model(calls(call("shell", arguments)), text("ok"))
    api = Messages(client)
    (gateway,) = server.gateways()
    api.create(provider.model(calls(call("shell", {"commands": ["true"]})), text("ok")), tools=[SHELL])
    before = resident(gateway)
    stream = begin(client, api.body(model, tools=[SHELL]))
    stream.until("openrouter_shell_tool_result")
    settled(lambda: resident(gateway))
    if not ASAN:
        assert resident(gateway) - before < 90 * 60000 * 2 + 4 * MIB
    story = Story(stream.rest())
    assert [len(o["stdout"]) for o in outputs(story.message)] == [60000] * 90
    assert json.loads(json.dumps(story.message["content"][0]["input"])) == arguments
