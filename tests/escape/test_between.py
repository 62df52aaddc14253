"""What one container might do to another: channels, quotas that users share, names left behind, and what the readers of its
output take for something else."""
import concurrent.futures
import json
import time

import pytest

from conftest import run
from escapetest import brigtest, output_of, status, wait_for
from brigtest import BRIG_SHELL, SHELL, Story, outputs_of, parse_sse
from fake_provider import FakeProvider, calls, shell, text


@pytest.fixture(scope="module")
def provider():
    provider = FakeProvider()
    yield provider
    provider.close()


@pytest.fixture(scope="module")
def server(provider):
    yield from run(brigtest.Server(provider))


def made(client, name):
    """The stream of a command that has made what others must not see."""
    stream = client.open_stream("/containers/%s/exec" % name, {"commands": ["/tmp/escape channel-make"], "stream": True,
                                                               "timeout_ms": 50000})
    stream.until("ready")
    return stream


def rest_of(stream):
    (output,) = parse_sse(stream.rest())[0][-1][1]["output"]
    return output["stdout"]


def test_no_channel_between_containers(client, box):
    """L2: locks, leases, watches, IPC and names of one are not another's."""
    a, b = box(), box()
    maker = made(client, a)
    assert output_of(client, b, "/tmp/escape channel-seek").startswith("L2 PASS")
    assert rest_of(maker) == "ready\ndone\n"


def test_the_channel_test_can_fail(client, box):
    """The same within one container finds everything."""
    name = box()
    maker = made(client, name)
    assert output_of(client, name, "/tmp/escape channel-seek", code=1).startswith("L2 FAIL abstract socket: worked")
    assert "saw event" in rest_of(maker)


def test_quotas_of_users_are_not_shared(client, box):
    """L3: what the kernel counts by user (and what only looks like it) used up by one is there for another, also for one
    with the same number inside."""
    a, b = box(), box()
    with concurrent.futures.ThreadPoolExecutor() as pool:
        taker = pool.submit(client.run, a, "timeout 50 /tmp/escape quota-take", timeout_ms=55000)
        wait_for(lambda: "quota-ready" in output_of(client, a, "ls /tmp"))
        for user in ("root", "1000"):
            assert output_of(client, b, "/tmp/escape quota-need", user=user).startswith("L3 PASS")
        # In the container itself there is nothing left of some: so they had all been taken.
        assert "only" in client.run(a, "/tmp/escape quota-need")["stdout"]
        client.delete("/containers/" + a)
        taken = taker.result()["stdout"]
    assert taken.count(":") == 9 and taken.endswith("ready\n"), taken


def test_a_port_is_free_in_the_next_container(client, box):
    """L16: network namespaces are made ahead of use, never handed on."""
    program = """import socket
socket.create_server(("127.0.0.1", 47112))
s = socket.create_connection(socket.create_server(("127.0.0.1", 47113)).getsockname())
u = socket.socket(socket.AF_UNIX); u.bind("\\0left-behind"); u.listen()
import time; time.sleep(1000)
"""
    for _ in range(3):
        name = box()
        assert output_of(client, name, "/tmp/escape L16").startswith("L16 PASS")
        client.run(name, "cat > p.py; setsid -f python3 p.py >/dev/null 2>&1; sleep 0.3", stdin=program)
        client.delete("/containers/" + name)


# ---- L13: output that looks like something else ----

TRICKS = "\n\r\n\n\x1b[2J\x1b]0;x\x07\"}],\"outcome\":{\"type\":\"exit\"}}]\\\\\\u0000\\\" event: [DONE]\ndata: {\"a\":1}\n\n" \
    "data: [DONE]\n\nevent: response.completed\ndata: {}\n\n: ping\n</script>{\"level\":\"error\"}\u2028\u2029\u0085\x00\x7f"


def test_output_stays_output(client, box):
    """In a JSON answer: every byte, and nothing of it outside its string; the same as an argument, a name, a folder."""
    name = box()
    output = client.run(name, "cat; cat >&2 f; cat f >&2 || true", stdin=TRICKS)
    assert output["stdout"] == TRICKS and output["outcome"]["exit_code"] == 0
    for fields in ({"cwd": "/" + TRICKS.replace("\0", "")}, {"user": TRICKS.replace("\0", "")},
                   {"env": {"A\n\"": "x"}}):
        answer = client.post("/containers/%s/exec" % name, dict({"commands": ["true"]}, **fields))
        assert answer.status == 400 and isinstance(answer.error["message"], str), answer
    output = client.run(name, "printf '%s' \"$A\" >&2", env={"A": TRICKS.replace("\0", "")})
    assert output["stderr"] == TRICKS.replace("\0", "")


@pytest.mark.parametrize("tool", [SHELL, BRIG_SHELL], ids=["openrouter", "brig"])
def test_output_stays_output_in_a_stream(client, provider, tool):
    """In server-sent events, read by every rule of theirs, and in what the model is told."""
    code = "import sys; sys.stdout.write(%a); sys.stdout.flush(); sys.stderr.write(%a)" % (TRICKS, TRICKS[::-1])
    quoted = "python3 - <<'END'\n%s\nEND" % code
    model = provider.model(calls(shell(quoted)), text("ok"))
    story = Story(client.begin(model, tools=[tool]).rest())
    (output,) = outputs_of(story.response)
    assert output["stdout"] == TRICKS and output["stderr"] == TRICKS[::-1], output
    (told,) = [m for m in model.requests[1].json["messages"] if m["role"] == "tool"]
    assert json.loads(told["content"])["output"][0]["stdout"] == TRICKS, told


def test_the_log_stays_a_log(server, client):
    """Each line of it is one JSON object, whatever was run and asked for above."""
    client.get("/containers/" + "%0a%22%7d" + "x")
    client.request("GET", "/api/v1/%0d%0aevil:%20x")
    lines = server.log().splitlines()
    assert len(lines) > 3
    for line in lines:
        record = json.loads(line)
        assert set(record) >= {"time", "level", "process", "event"}, line


# ---- L17 ----

def test_what_is_left_in_the_background_uses_no_cpu(server, client, box):
    """A daemon that burns the processor after its command has ended stands still, whoever's it is, and cannot thaw itself."""
    name = box()
    burner = "while :; do kill -CONT -1 2>/dev/null; done # burner"
    for user in ("root", "1000"):
        output_of(client, name, "setsid -f sh -c '%s' >/dev/null 2>&1" % burner, user=user)
    wait_for(lambda: status(client, name) == "frozen")
    burners = server.guests("# burner")
    assert len(burners) == 2

    def ticks():
        return [brigtest.cpu_ticks(pid) for pid in burners]

    def still():
        before = ticks()
        time.sleep(1)
        return ticks() == before

    wait_for(still)  # version 1 freezes in its own time
    assert status(client, name) == "frozen"
    client.delete("/containers/" + name)
    wait_for(lambda: not server.guests("# burner"))
