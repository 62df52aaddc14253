"""A client that reads slowly costs little: what it does not take waits where it comes from."""
import time


import brigtest
from brigtest import BRIG_SHELL, SHELL, Stream, Story, loop_seconds, outputs_of, parse_sse, resident, text_of, wait_for
from fake_provider import Reply, calls, chunk, shell, text

MIB = 1 << 20
SETTINGS = {"limits": {"call_output": "64m", "turn_output": "128m", "client_stall": "120s", "upstream_idle": "100s"}}
# The address sanitizer keeps what was freed and puts room around all else: then figures mean nothing.
ASAN = b"__asan_init" in open(brigtest.BRIG, "rb").read()


def settled(read, seconds=0.5, timeout=60):
    """Waits until a number stands still."""
    last, since, end = read(), time.monotonic(), time.monotonic() + timeout
    while time.monotonic() - since < seconds:
        assert time.monotonic() < end, "it never stood still"
        time.sleep(0.05)
        now = read()
        if now != last:
            last, since = now, time.monotonic()
    return last


class Flood:
    """A stream of 100 MB, and how much of it was taken."""

    def __init__(self, size=100 * MIB, piece=16384):
        self.sent = 0
        self.size, self.piece = size, piece

    def __call__(self):
        said = chunk({"content": "x" * self.piece})
        while self.sent < self.size:
            yield said
            self.sent += len(said)


def test_a_stream_of_100_mb_waits_for_a_client_that_does_not_read(server, client, provider):
    flood = Flood()
    model = provider.model(Reply([flood]))
    (gateway,) = server.gateways()
    client.ask(provider.model(text("warm up")))
    before = resident(gateway)
    body = {"model": model.name, "input": "x", "stream": True}
    stream = Stream(client, "POST", "/api/v1/responses", body, receive_buffer=8192)
    model.wait()
    settled(lambda: flood.sent)
    # What the kernel's own buffers hold on both sides, and no more.
    assert flood.sent < 16 * MIB, "%d MiB were taken from the upstream" % (flood.sent / MIB)
    if not ASAN:
        # The reply itself is kept, as far as it was read: it goes into the answer's last event. As much again may be what
        # its buffer has outgrown.
        assert resident(gateway) - before < 2 * flood.sent + 2 * MIB, "%d KiB" % ((resident(gateway) - before) / 1024)
    # It goes on where it stood, byte for byte, as the client reads.
    taken = flood.sent
    got = 0
    while got < 4 * MIB:
        got += len(stream.piece())
    wait_for(lambda: flood.sent > taken)
    events, _ = parse_sse(stream.text[:stream.text.rindex(b"\n\n") + 2])
    assert [e["sequence_number"] for _, e in events] == list(range(len(events)))
    stream.close()
    assert model.requests[0].closed.wait(60)


def test_others_are_served_meanwhile(server, client, provider):
    slow = [Stream(client, "POST", "/api/v1/responses", {"model": provider.model(Reply([Flood()])).name, "input": "x",
                                                         "stream": True}, receive_buffer=8192) for _ in range(5)]
    (gateway,) = server.gateways()
    before = loop_seconds(gateway)
    for _ in range(20):
        assert client.request("GET", "/healthz").status == 200
    assert loop_seconds(gateway) - before < 1
    assert text_of(client.ask(provider.model(text("served")))) == "served"
    for stream in slow:
        stream.close()


def test_an_event_of_13_mb_arrives_whole(server, client, provider):
    (gateway,) = server.gateways()
    model = provider.model(calls(shell(*["head -c 65536 /dev/zero | tr '\\0' o; head -c 65536 /dev/zero | tr '\\0' e >&2"]
                                       * 100, max_output_length=65536)), text("ok"))
    before = resident(gateway)
    body = {"model": model.name, "input": "x", "stream": True, "tools": [SHELL]}
    stream = Stream(client, "POST", "/api/v1/responses", body, receive_buffer=65536, timeout=120)
    stream.until("output_item.done")
    # The event is on its way; its client stops reading for a while.
    settled(lambda: resident(gateway))
    peak = resident(gateway)
    computed = loop_seconds(gateway)
    for _ in range(5):
        assert client.request("GET", "/healthz").status == 200
    assert loop_seconds(gateway) - computed < 0.5
    story = Story(stream.rest())
    outputs = outputs_of(story.response)
    assert len(outputs) == 100
    assert all(o["stdout"] == "o" * 65536 and o["stderr"] == "e" * 65536 for o in outputs)
    assert len(story.data) > 26000000  # once in the item's event, once in the last snapshot
    if not ASAN:
        assert peak - before < 60 * MIB, "%d MiB" % ((peak - before) / MIB)


def test_a_command_waits_for_a_client_that_does_not_read(server, client):
    (gateway,) = server.gateways()
    client.run("loud", "true")
    before = resident(gateway)
    stream = Stream(client, "POST", "/api/v1/containers/loud/exec",
                    {"commands": ["head -c 16000000 /dev/zero | tr '\\0' x; echo end"], "stream": True},
                    receive_buffer=65536)
    stream.until("exec.output")
    settled(lambda: resident(gateway))
    if not ASAN:
        assert resident(gateway) - before < 8 * MIB, "%d KiB" % ((resident(gateway) - before) / 1024)
    assert server.guests("tr"), "the command went on without its reader"
    total = 0
    events, _ = parse_sse(stream.rest())
    for name, event in events:
        if name == "exec.output":
            assert event["offset"] == total
            total += len(event["text"])
    assert total == 16000004
    assert events[-1][1]["output"][0]["outcome"] == {"type": "exit", "exit_code": 0}


def test_a_client_that_takes_nothing_is_gone(make_server, provider):
    server = make_server(config={"sandbox": False, "limits": {"client_stall": "500ms"}}).start()
    client = server.client()
    model = provider.model(Reply([Flood()]))
    stream = Stream(client, "POST", "/api/v1/responses", {"model": model.name, "input": "x", "stream": True},
                    receive_buffer=8192)
    assert model.wait().closed.wait(60), "the upstream is still read for a client that takes nothing"
    stream.close()


def test_live_output_waits_for_its_client(server, client, provider):
    """brig:shell streams output as it comes; a slow client holds the command, not the gateway's memory."""
    (gateway,) = server.gateways()
    model = provider.model(calls(shell("head -c 3000000 /dev/zero | tr '\\0' x", max_output_length=65536)), text("ok"))
    stream = Stream(client, "POST", "/api/v1/responses", {"model": model.name, "input": "x", "stream": True,
                                                          "tools": [BRIG_SHELL]}, receive_buffer=8192)
    story = Story(stream.rest())
    (output,) = outputs_of(story.response)
    assert output["stdout_length"] == 3000000 and len(output["stdout"]) <= 65536
