"""What /metrics says is what was asked: of one gateway and of three, also after one was killed."""
import contextlib
import decimal
import json
import os
import pathlib
import re
import signal
import socket
import sqlite3
import threading
import time

import pytest

import brigtest
import exposition
from brigtest import KEYS, SHELL, Reader, connect, wait_for
from dialects import SPOKEN
from fake_provider import Hold, Model, Reply, calls, chunk, error, shell, text

ROOT = pathlib.Path(__file__).resolve().parents[2]
SETTINGS = {
    "guardrails": [{"name": "g", "workspace": "two", "content_filters": [
        {"pattern": "FLAG[0-9]", "label": "f", "action": "flag"}, {"pattern": "BLOCK[0-9]", "label": "b", "action": "block"}]}],
}


def scrape(client):
    answer = client.request("GET", "/metrics", headers={"Authorization": ""})
    assert answer.status == 200, answer
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return exposition.parse(answer.body)


class Since:
    """How much more than at first; rows of refused requests are written after their answer."""

    def __init__(self, client):
        self.client, self.before = client, scrape(client)

    def of(self, name, **labels):
        return self.now.value(name, **labels) - self.before.value(name, **labels)

    def wait(self, expected):
        def look():
            self.now = scrape(self.client)
            found = {key: self.of(key[0], **dict(key[1:])) for key in expected}
            self.wrong = {k: (found[k], v) for k, v in expected.items() if found[k] != v}
            return not self.wrong
        try:
            wait_for(look, every=0.05)
        except AssertionError:
            raise AssertionError("counted, and to be counted: %s" % self.wrong) from None


def key(name, **labels):
    return (name, *sorted(labels.items()))


def test_what_was_asked_is_counted(servers_1_and_3, provider):
    server, client = servers_1_and_3, servers_1_and_3.client()
    since = Since(client)
    provider.models["priced"] = Model(provider, "priced", [text("hello", usage=(1000, 7))] * 3)
    for _ in range(3):
        assert client.post("/responses", {"model": "fake/priced", "input": "x"}).status == 200
    for spoken in ("messages", "gemini", "chat"):
        s, model = SPOKEN[spoken], provider.model(text("ok", usage=(20, 3)))
        body = s.body(model.name, s.start("go"), stream=True)
        assert client.request("POST", s.path(model.name, True), body, headers=s.headers()).status == 200
    run = provider.model(calls(shell("true", "exit 3", "sleep 300", timeout_ms=2000)), text("done"))
    assert client.post("/responses", {"model": run.name, "input": "x", "tools": [SHELL]}).status == 200
    assert client.post("/responses", {"model": "nobody/has-this", "input": "x"}).status == 404
    assert client.post("/messages", b"{", headers={"Content-Type": "application/json"}).status == 400
    assert client.ask(provider.model(error(500)).name, expect=502)
    assert client.run("counted", "kill -9 $$")["outcome"]["exit_code"] == 137
    two = server.client("two")
    assert two.post("/responses", {"model": provider.model(text("ok")).name, "input": "FLAG1 FLAG2"}).status == 200
    assert two.post("/chat/completions", {"model": "fake/x", "messages": [{"role": "user", "content": "BLOCK1"}]}).status == 403
    held = provider.model(Reply([chunk({"content": "a"}), Hold()]))
    stream = client.begin(held)
    stream.until(b"output_text.delta")
    wait_for(lambda: scrape(client).value("brig_turns_running") == 1)
    stream.reset()
    turns = "brig_turns_total"
    since.wait({
        key(turns, api="responses", provider="fake", outcome="completed"): 5, key(turns, api="messages", outcome="completed"): 1,
        key(turns, api="gemini", outcome="completed"): 1, key(turns, api="chat", outcome="completed"): 1,
        key(turns, api="responses", provider="_none", outcome="refused"): 1, key(turns, api="messages", outcome="refused"): 1,
        key(turns, outcome="failed"): 1, key(turns, outcome="cancelled"): 1, key(turns, outcome="blocked"): 1, key(turns): 13,
        key("brig_turn_duration_seconds_count"): 13, key("brig_turns_running"): 0,
        key("brig_upstream_attempts_total", provider="fake"): 11,
        key("brig_upstream_failures_total", provider="fake", reason="5xx"): 1, key("brig_upstream_failures_total"): 1,
        key("brig_model_cost_dollars_total", kind="input"): decimal.Decimal("0.0075"),
        key("brig_model_cost_dollars_total", kind="output"): decimal.Decimal("0.00021"),
        key("brig_tool_runs_total", tool="shell", outcome="completed"): 1, key("brig_tool_runs_total"): 1,
        key("brig_commands_total", outcome="zero"): 1, key("brig_commands_total", outcome="nonzero"): 1,
        key("brig_commands_total", outcome="timeout"): 1, key("brig_commands_total", outcome="signal"): 1,
        key("brig_command_duration_seconds_count"): 4, key("brig_execs_total", outcome="completed"): 1,
        key("brig_sandbox_claims_total", start="created"): 2, key("brig_sandbox_claim_seconds_count", start="created"): 2,
        key("brig_sandbox_cost_dollars_total"): decimal.Decimal("0.006"), key("brig_sandbox_billed_seconds_total"): 60,
        key("brig_guardrail_hits_total", action="flag"): 2, key("brig_guardrail_hits_total", action="block"): 1,
        key("brig_turns_estimated_total"): 1})
    assert since.of("brig_tokens_total", kind="input") >= 3 * 1000 + 3 * 20 + 20
    assert since.of("brig_http_requests_total", status="5xx") == 1 and since.of("brig_http_requests_total", status="4xx") == 3
    assert since.now.value("brig_gateways") == since.now.value("brig_gateway_starts_total") == server.config["workers"]
    assert since.now.value("brig_command_duration_seconds_sum") >= decimal.Decimal("0.4")
    # A moment later the supervisor has said so.
    wait_for(lambda: sum(scrape(client).value("brig_sandboxes", state=s) for s in ("running", "frozen")) >= 2)


def test_a_line_of_the_log_for_each_request(servers_1_and_3, provider):
    server, client = servers_1_and_3, servers_1_and_3.client()
    model = provider.model(calls(shell("echo WORD-OF-A-COMMAND")), text("WORD-OF-A-MODEL"))
    answer = client.post("/responses", {"model": model.name, "input": "WORD-OF-A-CLIENT", "tools": [SHELL], "user": "WORD-OF-A-USER",
                                        "metadata": {"a": "WORD-OF-METADATA"}})
    refused = client.get("/containers/WORD-OF-A-PATH/nothing?key=WORD-OF-A-QUERY")
    assert answer.status == 200 and refused.status == 404

    def lines():
        rows = [json.loads(line) for line in server.log().splitlines() if line.startswith("{")]
        return [r for r in rows if r["event"] == "request"], rows
    of = wait_for(lambda: [r for r in lines()[0] if r["id"] == answer.headers["x-generation-id"]])
    assert len(of) == 1 and (of[0]["method"], of[0]["route"], of[0]["status"], of[0]["end"]) == ("POST", "/responses", 200, "done")
    assert of[0]["duration_ms"] >= 0
    (turn,) = wait_for(lambda: [r for r in lines()[1] if r["event"] == "turn" and r["id"] == of[0]["id"]])
    assert turn["input_tokens"] == 20 and turn["tool_calls"] == 1
    wait_for(lambda: [r for r in lines()[0] if r["status"] == 404 and r["route"] == ""])
    for word in re.findall(r"WORD-[A-Z-]+", pathlib.Path(__file__).read_text()):
        assert word not in server.log(), "content in the log"
    probes = len(lines()[0])
    for path in ("/healthz", "/readyz", "/metrics"):
        client.request("GET", path)
    assert client.get("/models").status == 200
    wait_for(lambda: len(lines()[0]) > probes)
    assert [r["route"] for r in lines()[0][probes:]] == ["/models"]


def test_a_killed_gateway_takes_no_figures_along(servers_1_and_3, provider):
    server, client = servers_1_and_3, servers_1_and_3.client()
    before = scrape(client)
    victim = server.gateways()[0]
    os.kill(victim, signal.SIGKILL)

    def back():
        try:
            found = scrape(client)
        except (OSError, AssertionError):
            return None
        started = found.value("brig_gateway_starts_total") > before.value("brig_gateway_starts_total")
        return found if started and found.value("brig_supervisor_up") else None
    after = wait_for(back, every=0.05)
    for family in before.values():
        if family.type == "counter":
            for name, labels, value in family.samples:
                assert after.value(name, **labels) >= value, (name, labels)
    assert after.value("brig_turns_total") == before.value("brig_turns_total")
    wait_for(lambda: scrape(client).value("brig_gateways") == server.config["workers"], every=0.1)


def test_names_from_outside_are_no_labels(server, client, provider):
    client.get("/models")
    before = scrape(client)
    hostile = ['a"b', "x\ny", "}{", "\\", "ü" * 50, "brig_turns_total 7"]
    for i in range(40):
        name = "%s%d" % (hostile[i % len(hostile)], i)
        client.post("/responses", {"model": name, "input": "x", "user": name, "metadata": {"k": name}})
        client.request("GET", "/v1/nothing%d" % i)
        client.request("PATCH" if i % 2 else "FROB%d" % i, "/v1/models")
    run = provider.model(calls(shell("true", name="no_such_tool_%s" % hostile[0])), text("done"))
    client.post("/responses", {"model": run.name, "input": "x", "tools": [SHELL]}, headers={"X-Session-Id": hostile[5]})
    after = wait_for(lambda: (lambda m: m if m.value("brig_turns_total") >= before.value("brig_turns_total") + 41 else None)(scrape(client)))
    assert after.rows() <= before.rows() + 60  # a histogram of one provider, a few outcomes
    text_now = client.request("GET", "/metrics").text
    for name in hostile[3:]:
        assert name + "1" not in text_now and name + "3" not in text_now


def raw(server, head):
    with connect(server, 10) as sock:
        sock.sendall(head.encode())
        return Reader(sock).answer().status


def test_who_may_read_it(server, client):
    host = "%s:%d" % (server.host, server.port)
    ask = "GET /metrics HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n%s\r\n"
    assert raw(server, ask % (host, "")) == raw(server, ask % ("localhost", "")) == raw(server, ask % ("[::1]:1", "")) == 200
    for line in ("X-Forwarded-For: 127.0.0.1", "Forwarded: for=127.0.0.1", "Via: 1.1 x", "X-Real-IP: ::1"):
        assert raw(server, ask % (host, line + "\r\n")) == 401
        assert raw(server, ask % (host, line + "\r\nAuthorization: Bearer %s\r\n" % KEYS["one"])) == 401
        assert raw(server, ask % (host, line + "\r\nAuthorization: Bearer %s\r\n" % KEYS["admin"])) == 200
    for name in ("evil.example", "127.0.0.1.evil.example", "localhost.evil.example"):
        assert raw(server, ask % (name, "")) == 401
    answer = client.request("GET", "/metrics", headers={"Via": "x"})
    assert answer.status == 401 and answer.headers["www-authenticate"] == "Bearer" and "admin" in answer.error["message"]
    address = own_address()
    if address:  # else this machine has no address but the loopback's
        assert b"brig_" not in from_outside(address)


def own_address():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            return None
        return sock.getsockname()[0]


def from_outside(address):
    """A server on every address, asked from this machine's own outer one."""
    server = brigtest.Server(None, config=dict(SETTINGS, sandbox=False, listen="0.0.0.0:0"))
    with server.running():
        with socket.create_connection((address, server.port), 10) as sock:
            sock.sendall(b"GET /metrics HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n" % address.encode())
            answer = Reader(sock).answer()
    assert answer.status == 401
    return answer.body


def test_methods_and_heads(server, client):
    for path in ("/healthz", "/readyz", "/metrics"):
        assert client.request("HEAD", path).status == 200 and client.request("HEAD", path).body == b""
        answer = client.request("POST", path, b"{}")
        assert answer.status == 405 and answer.headers["allow"] == "GET, HEAD"
    assert client.request("GET", "/healthz").text == client.request("GET", "/readyz").text == "ok\n"
    # A body that does not end is no reason to wait, nor to fall over.
    with connect(server, 10) as sock:
        sock.sendall(b"GET /readyz HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nab")
        assert Reader(sock).answer().status in (200, 400, 413)
    assert client.request("GET", "/healthz").status == 200


def test_readiness_is_looked_at(make_server, provider):
    server = make_server(config={"grace": "20s"})
    server.start()
    client = server.client()

    def ready(status, words=""):
        answer = client.request("GET", "/readyz")
        return answer.status == status and words in answer.text
    assert ready(200)
    # A store that another holds for longer than it is waited for.
    time.sleep(1.1)  # the last look at it is remembered for a second
    with contextlib.closing(sqlite3.connect(server.data / "gateway/brig.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        waits = threading.Thread(target=ready, args=(503,))  # the one that tries, and waits for the lock
        waits.start()
        wait_for(lambda: ready(503, "the store cannot be written"), every=0.1)
        other.execute("ROLLBACK")
        waits.join(60)
    wait_for(lambda: ready(200), every=0.2)
    # The supervisor stands still: after a while nobody is sent here.
    os.kill(server.supervisor(), signal.SIGSTOP)
    try:
        wait_for(lambda: ready(503, "supervisor"), every=0.2)
        assert client.request("GET", "/healthz").status == 200
        assert scrape(client).value("brig_supervisor_up") == 0
    finally:
        os.kill(server.supervisor(), signal.SIGCONT)
    wait_for(lambda: ready(200), every=0.1)
    # A stream keeps a server that is to end alive; who has a connection is told.
    held = provider.model(Reply([chunk({"content": "a"}), Hold()]))
    stream = client.begin(held)
    held.wait()
    with connect(server, 20) as sock:
        sock.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\nGET /readyz HTTP/1.1\r\n")
        reader = Reader(sock)
        assert reader.answer().status == 200
        os.kill(server.process.pid, signal.SIGTERM)
        wait_for(lambda: "draining" in server.log())
        time.sleep(0.2)
        sock.sendall(b"Host: x\r\n\r\n")
        answer = reader.answer()
        assert (answer.status, answer.text) == (503, "draining\n")
    stream.reset()


def test_the_dashboard_and_the_alerts_name_what_there_is(server, client):
    there = scrape(client)
    dashboard = json.loads((ROOT / "deploy/grafana/brig.json").read_text())
    asked = [t["expr"] for p in dashboard["panels"] for t in p.get("targets", [])]
    asked += re.findall(r"expr: (.*)", (ROOT / "deploy/prometheus/brig.rules.yaml").read_text())
    assert len(asked) > 20
    for expr in asked:
        names = re.findall(r"\bbrig_[a-z0-9_]+", expr)
        assert names, expr
        for name in names:
            base = re.sub(r"_(bucket|sum|count)\Z", "", name)
            family = there.get(name) or there.get(base)
            assert family, "%s asks for %s, which is not in /metrics" % (expr, name)
            assert (family.type == "histogram") == (name != base or name not in there), expr
            if family.type == "counter":
                assert re.search(r"(rate|increase)\(%s\b" % name, expr), "a counter needs rate(): " + expr
            labels = {label for _, have, _ in family.samples for label in have}
            for label in re.findall(r"by \(([a-z_, ]+)\)", expr):
                if family.samples:
                    assert set(label.replace(" ", "").split(",")) <= labels | {"le", "job", "instance"}, expr
    ids = [p["id"] for p in dashboard["panels"]]
    assert len(ids) == len(set(ids))
    documented = (ROOT / "docs/metrics.md").read_text()
    for name in there:
        assert "`%s`" % name in documented, "docs/metrics.md does not say what %s is" % name
