"""What hostile clients, hostile upstreams and killed processes did to the server once, and no longer do."""
import gzip
import json
import os
import signal
import time

from brigtest import BRIG, KEYS, SHELL, Reader, connect, loop_seconds, resident, text_of, wait_for
from fake_provider import REPEAT, Hold, Reply, calls, joined, shell, text

with open(BRIG, "rb") as binary:
    ASAN = b"__asan_init" in binary.read()


def bare(server, method, path, body=b"", key="one"):
    """A whole request as bytes."""
    head = "%s /v1%s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n" % (method, path, KEYS[key])
    if body or method == "POST":
        head += "Content-Type: application/json\r\nContent-Length: %d\r\n" % len(body)
    return head.encode() + b"\r\n" + body


def reset(sock):
    import socket
    import struct
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def test_a_client_that_resets_before_it_is_accepted_is_gone(server, client):
    """Its request and its reset are told in one event; the request was read, the reset never noticed."""
    client.run("early-reset", "true")
    (gateway,) = server.gateways()
    os.kill(gateway, signal.SIGSTOP)
    try:
        for _ in range(4):
            sock = connect(server)
            sock.sendall(bare(server, "POST", "/containers/early-reset/exec", b'{"commands":["sleep 96001"]}'))
            reset(sock)
    finally:
        os.kill(gateway, signal.SIGCONT)
    assert client.get("/containers/early-reset").status == 200
    time.sleep(0.3)
    wait_for(lambda: not server.guests("sleep 96001"), message="a command runs for a client that has gone")


def test_many_lists_at_once_do_not_end_the_gateway(server, client):
    """A list asks the supervisor about every row: more answers than its socket holds made it end the gateway."""
    before = server.gateways()
    for i in range(100):
        assert client.post("/containers", {"name": "row-%d" % i}).status == 200
    request = bare(server, "GET", "/containers?limit=100")
    socks = [connect(server) for _ in range(200)]
    for sock in socks:
        sock.sendall(request * 2)
    for sock in socks:
        reader = Reader(sock)
        for _ in range(2):
            answer = reader.answer()
            assert answer.status == 200 and len(answer.json["data"]) == 100
        sock.close()
    assert server.gateways() == before, "a gateway was ended"


def test_large_answers_about_an_exec_wait_for_their_readers(server, client):
    """Fifty of them, not read, were two gigabytes and a loop that stood still for ten seconds."""
    (gateway,) = server.gateways()
    loud = "head -c 65000 /dev/zero; head -c 65000 /dev/zero >&2"
    whole = client.execute("large", *[loud] * 40, exec_id="large", max_output_length=65536)
    assert [len(o["stdout"]) for o in whole["output"]] == [65000] * 40
    before = resident(gateway)
    socks = [connect(server, receive_buffer=4096) for _ in range(40)]
    for sock in socks:
        sock.sendall(bare(server, "GET", "/containers/large/exec/large"))
    worst = 0
    end = time.monotonic() + 1
    while time.monotonic() < end:
        started = loop_seconds(gateway)
        assert client.request("GET", "/healthz").status == 200
        worst = max(worst, loop_seconds(gateway) - started)
    assert worst < 1, "%.1f s" % worst
    if not ASAN:
        assert resident(gateway) - before < 200 << 20
    seen = Reader(socks[0]).answer().json  # slowly read, and whole all the same
    assert seen["output"] == whole["output"] and seen["status"] == "done"
    for sock in socks:
        sock.close()


def test_an_exec_that_is_killed_does_not_fall_over_those_that_are_kept(server, client):
    """It ended inside the request that killed it, was the oldest of too many, and was freed before the answer."""
    client.execute("kept-first", "sleep 1", detach=True, exec_id="first", expect=202)
    for i in range(260):
        client.execute("kept", "true", detach=True, exec_id="k%d" % i, expect=202)
    wait_for(lambda: client.get("/containers/kept/exec/k259").json["status"] == "done")
    answer = client.delete("/containers/kept-first/exec/first")
    assert answer.status in (200, 404), answer
    # Killed before it ran: it ends at once.
    client.execute("kept", "true", detach=True, exec_id="last", expect=202)
    assert client.delete("/containers/kept/exec/last").status == 200
    wait_for(lambda: client.get("/containers/kept/exec/last").json["status"] == "done")


def test_a_command_whose_sandbox_ends_has_an_outcome_that_says_so(server, client):
    stream = client.open_stream("/containers/cut/exec", {"commands": ["echo begun; sleep 96002", "echo never"]})
    wait_for(lambda: server.guests("sleep 96002"))
    time.sleep(0.2)
    assert client.delete("/containers/cut").status == 200
    answer = json.loads(stream.body())
    assert stream.status == 200
    (output,) = answer["output"]
    assert output["stdout"] == "begun\n"
    assert output["outcome"] == {"type": "exit", "exit_code": 137, "signal": "SIGKILL", "reason": "init"}
    assert answer["error"] == {"message": "The sandbox ended while the command ran.", "code": "init"}


def pool_seconds(gateway):
    """What all its other threads have computed."""
    total = 0
    for task in os.listdir("/proc/%d/task" % gateway):
        if int(task) != gateway:
            with open("/proc/%d/task/%s/schedstat" % (gateway, task)) as f:
                total += int(f.read().split()[0]) / 1e9
    return total


class Computed:
    """What loop and pool compute meanwhile. The two are compared with each other: machines differ in their speed."""

    def __init__(self, gateway):
        self.gateway, self.loop, self.pool = gateway, loop_seconds(gateway), pool_seconds(gateway)

    def mostly_on_the_pool(self):
        loop, pool = loop_seconds(self.gateway) - self.loop, pool_seconds(self.gateway) - self.pool
        assert loop < pool / 2, "%.0f ms of the loop, %.0f of the pool" % (loop * 1000, pool * 1000)


def test_large_bodies_of_direct_use_are_not_read_on_the_loop(server, client):
    """Two megabytes of small values, or a map of half a million variables, took it a tenth of a second."""
    (gateway,) = server.gateways()
    for path, body in (("/containers/wide/exec", b"[" + b"1," * 990000 + b"1]"),
                       ("/containers", b"[" + b"1," * 990000 + b"1]"),
                       ("/containers/wide/exec",
                        json.dumps({"commands": ["x"], "env": {"k%d" % i: "v" for i in range(400000)}}).encode())):
        computed = Computed(gateway)
        assert client.post(path, body).status == 400
        computed.mostly_on_the_pool()


def test_direct_use_has_its_own_limits_of_a_body(server, client):
    assert client.post("/containers/big/exec", b'{"commands":["' + b"x" * (17 << 20) + b'"]}').status == 413
    assert client.post("/containers", b'{"name":"' + b"x" * (3 << 20) + b'"}').status == 413
    stdin = "\u0001" * 1048576  # the largest there is: six megabytes of escapes
    assert client.run("big", "wc -c", stdin=stdin)["stdout"] == "1048576\n"
    for metadata in ({"k": "x" * 513}, {"k" * 65: "v"}):
        answer = client.post("/containers", {"name": "labels", "metadata": metadata})
        assert answer.status == 400 and answer.error["param"] == "metadata"
    assert client.get("/containers/labels").status == 404


def test_a_large_exec_reaches_its_gateway(make_server):
    """It is read on the pool first, and passed on afterwards."""
    server = make_server(workers=3).start()
    client = server.client()
    for i in range(12):
        body = {"commands": ["true"] * 99 + ["wc -c"], "stdin": "", "exec_id": "big-%d" % i, "env": {"A": "x" * 100000}}
        assert len(client.execute("wide", **body)["output"]) == 100


# ---- hostile upstreams ----

def coded(reply_bytes, coding):
    return Reply([b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Encoding: %s\r\n"
                  b"Connection: close\r\n\r\n" % coding, reply_bytes], framing="raw")


def test_an_answer_compressed_twice_is_refused(server, client, provider):
    """Four kilobytes of it are gigabytes: the loop stood still for seconds."""
    (gateway,) = server.gateways()
    bomb = gzip.compress(gzip.compress(b":\n" * (50 << 20)))
    before = loop_seconds(gateway)
    for coding in (b"gzip, gzip", b"gzip\r\nContent-Encoding: gzip", b"gzip\r\nTransfer-Encoding: gzip"):
        model = provider.model(coded(bomb, coding))
        assert "fake" in client.ask(model, expect=502).error["message"]
    assert loop_seconds(gateway) - before < 0.5


def test_an_answer_that_decodes_to_much_lets_others_live(server, client, provider):
    model = provider.model(coded(gzip.compress(b":\n" * (60 << 20)), b"gzip"))
    (gateway,) = server.gateways()
    stream = client.begin(model)
    worst = 0
    while not model.requests or not model.requests[0].answered.is_set():
        started = loop_seconds(gateway)
        assert client.request("GET", "/healthz").status == 200
        worst = max(worst, loop_seconds(gateway) - started)
    assert worst < 0.5, "%.1f s" % worst
    stream.body()
    stream.close()
    assert text_of(client.ask(provider.model(coded(gzip.compress(joined(text("well"))), b"gzip")))) == "well"


def test_absurd_usage_is_not_counted(client, provider):
    most = 2 ** 63 - 1
    model = provider.model(calls(shell("true"), usage={"prompt_tokens": most, "completion_tokens": most}),
                           text("x", usage={"prompt_tokens": 1e300, "completion_tokens": -5, "total_tokens": most + 1,
                                            "cost": 1e308, "prompt_tokens_details": {"cached_tokens": 2 ** 64}}))
    usage = client.ask(model, tools=[SHELL])["usage"]
    assert usage["input_tokens"] == usage["output_tokens"] == usage["total_tokens"] == 0


# ---- large conversations ----

LARGE = [{"role": "user", "content": "x" * 40}] * 60000  # five megabytes


def test_the_request_of_a_large_conversation_is_not_built_on_the_loop(server, client, provider):
    """Reading it was the pool's work, writing it for the upstream stopped the loop for an eighth of a second."""
    (gateway,) = server.gateways()
    model = provider.model(calls(shell("echo a")), text("large"))
    computed = Computed(gateway)
    assert text_of(client.ask(model, LARGE, tools=[SHELL])) == "large"
    computed.mostly_on_the_pool()
    assert len(model.requests[0].messages) == 60000
    assert model.requests[1].messages[:60000] == model.requests[0].messages


def test_leaving_while_a_large_request_is_built(server, client, provider):
    model = provider.model(text("never read"), REPEAT)
    body = json.dumps({"model": model.name, "input": LARGE}).encode()
    for i in range(25):
        sock = connect(server)
        sock.sendall(bare(server, "POST", "/responses", body))
        time.sleep(0.01 * i)
        reset(sock)
    assert text_of(client.ask(provider.model(text("alive")))) == "alive"


def test_a_turn_whose_time_is_up_while_its_request_is_built(make_server, provider):
    server = make_server(config={"sandbox": False, "limits": {"turn_unstreamed": "1s", "turn": "1s"}}).start()
    model = provider.model(Reply([Hold()]), REPEAT)
    answer = server.client().post("/responses", {"model": model.name, "input": LARGE})
    assert answer.status == 200 and answer.json["status"] == "incomplete", answer


def test_stopping_while_large_requests_are_built(make_server, provider):
    for delay in (0.05, 0.15, 0.3):
        server = make_server(config={"grace": "0s", "sandbox": False}).start()
        model = provider.model(Reply([Hold()]), REPEAT)
        body = json.dumps({"model": model.name, "input": LARGE}).encode()
        socks = [connect(server) for _ in range(3)]
        for sock in socks:
            sock.sendall(bare(server, "POST", "/responses", body))
        time.sleep(delay)
        server.stop()
        for sock in socks:
            sock.close()


# ---- a process without descriptors ----

def test_a_gateway_without_descriptors_fails_what_needs_one_and_lives(make_server, provider):
    server = make_server()
    server.prefix = ["prlimit", "--nofile=230:230"]  # the connections leave room for some channels, not for all
    server.start()
    client, before = server.client(), server.gateways()
    path = "/containers/few/exec"
    for _ in range(6):
        streams = [client.open_stream(path, {"commands": ["sleep 0.1; echo done"]}) for _ in range(150)]
        said = set()
        for stream in streams:
            answer = json.loads(stream.body())
            said.add(answer["error"]["message"] if "error" in answer else answer["output"][0]["stdout"])
            stream.close()
        assert "done\n" in said and said <= {"done\n", "this server has too many files open"}, said
    assert server.gateways() == before, "a gateway was lost"
    assert client.run("few", "echo alive")["stdout"] == "alive\n"
