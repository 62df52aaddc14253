"""
Mixed turns, and then the question whether all accounts of them agree: the ledger's rows, GET /generations and its totals,
the export, /metrics, the log and the traces, with each other and with what the clients saw, to the row and to the last digit. Then
the same with gateways and the whole server killed in the middle: nothing that a client was told is lost, what was cut
off is settled and marked.

BRIG_SOAK_SECONDS (60) is the time of both together. Each request carries a number of its own in its User-Agent, so that
rows are found whatever the client got to see.
"""
import collections
import decimal
import http.client
import json
import os
import pathlib
import random
import signal
import sys
import threading
import time

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "api"))

import brigtest  # noqa: E402
import exposition  # noqa: E402
from brigtest import wait_for  # noqa: E402
from dialects import SERVED, SPOKEN, Fail, Say, Upstream, agent, sse  # noqa: E402
from fake_provider import Model  # noqa: E402
from receivers import Receiver, generation  # noqa: E402

SECONDS = float(os.environ.get("BRIG_SOAK_SECONDS") or 60)
THREADS = 6
Decimal = decimal.Decimal
PRICES = {"input": "2.5", "output": "10", "cached": "0.25"}
CONFIG = {
    "container": {"memory": "64m", "home": "32m", "scratch": "32m", "processes": 64, "live": 40},
    "guardrails": [{"name": "g", "content_filters": [
        {"pattern": "FLAG[0-9]", "label": "f", "action": "flag"}, {"pattern": "SECRET[0-9]", "label": "r", "action": "redact"},
        {"pattern": "BLOCK[0-9]", "label": "b", "action": "block"}]}]}
SUMS = ("tokens_prompt", "tokens_completion", "total_cost", "server_tool_cost", "sandbox_ms")


def exact(body):
    return json.loads(body, parse_float=Decimal, parse_int=Decimal)


class Seen:
    """What one client saw of one request."""

    def __init__(self, number, kind):
        self.number, self.kind = number, kind
        self.status = self.generation = self.usage = None
        self.whole = False    # the answer came to its end
        self.left = False     # the client went first
        self.outputs = None   # of an exec
        self.tail = None      # of the answer, for who looks into a failure


# ---- the upstream: the same few models in every dialect, for ever ----

def make_upstream():
    upstream, providers = Upstream(), []
    for served in SERVED:
        prefix = served + "-"

        def add(name, reply, prefix=prefix):
            upstream.models[prefix + name] = Model(upstream, prefix + name, [reply])

        def says(say, served=served):
            def reply(request):
                made = SERVED[served].reply(say() if callable(say) else say)
                return made(request) if callable(made) else made
            return reply
        add("plain", says(lambda: Say("Hello there.", usage=(random.randrange(1, 5000), random.randrange(1, 500)))))
        add("agent", agent(served, collections.defaultdict(lambda: {"commands": ["echo hi", "echo no >&2; exit 3"]})))
        add("broken", says(Fail(500, "engine is dead")))
        add("refuses", says(Fail(400, "no such thing")))
        add("cut", says(Say("Half of a word", cut=True)))
    for provider in upstream.config():
        served = provider["name"][len("up-"):]
        provider["prices"] = {served + "-" + n: PRICES for n in ("plain", "agent", "cut")}
        providers.append(provider)
    return upstream, providers


# ---- the clients ----

def usage_of(spoken, body, streamed):
    """The last usage object that an answer holds, numbers as they are written; None: it has none."""
    if not streamed:
        values = [exact(body)]
    else:
        values = [exact(p) for _, p in sse(body, SPOKEN[spoken].name in ("responses", "messages")) if p != "[DONE]"]
    usage = {}
    for value in values:
        for holder in (value, value.get("response"), value.get("message")):
            for member in ("usage", "usageMetadata"):
                if isinstance(holder, dict) and isinstance(holder.get(member), dict):
                    usage.update(holder[member])
    return usage or None


def ended(spoken, body):
    """Did the stream come to the end that its dialect has?"""
    if spoken == "responses":  # what is relayed need not say [DONE]
        return any(b"event: response.%s\n" % end in body for end in (b"completed", b"incomplete", b"failed"))
    return {"messages": b"event: message_stop", "chat": b"data: [DONE]", "gemini": b'"finishReason"'}[spoken] in body


class Clients:
    def __init__(self, server, seconds):
        self.server, self.until = server, time.monotonic() + seconds
        self.seen, self.lock, self.number = [], threading.Lock(), 0
        self.errors = []

    def new(self, kind):
        with self.lock:
            self.number += 1
            seen = Seen(self.number, kind)
            self.seen.append(seen)
            return seen

    def run(self):
        threads = [threading.Thread(target=self.loop, args=(i,), daemon=True) for i in range(THREADS)]
        for thread in threads:
            thread.start()
        return threads

    def loop(self, which):
        rng = random.Random(which)
        while time.monotonic() < self.until:
            time.sleep(rng.random() * SECONDS / 6000)  # some ten thousands of rows, however long it takes
            try:
                self.one(rng, which)
            except (OSError, http.client.HTTPException):
                time.sleep(0.05)  # a server that was killed: what was seen until then is noted
            except Exception as e:  # whatever it is, it is a failure of this test
                self.errors.append(repr(e))

    def one(self, rng, which):
        kind = rng.choices(["plain", "agent", "exec", "broken", "refuses", "cut", "leaves", "flag", "block", "wrong"],
                           [30, 14, 10, 6, 4, 5, 8, 6, 5, 6])[0]
        if kind == "exec":
            self.execute(which)
            return
        spoken, served, streamed = rng.choice(list(SPOKEN)), rng.choice(list(SERVED)), rng.random() < 0.5
        if kind == "agent" and spoken == "chat":
            kind = "plain"  # has no shell
        self.turn(kind, spoken, served, streamed, which)

    def turn(self, kind, spoken, served, streamed, which):
        s, seen = SPOKEN[spoken], self.new(kind)
        model = "up-%s/%s-%s" % (served, served, kind if kind in ("agent", "broken", "refuses", "cut") else "plain")
        model = "nobody/has-this" if kind == "wrong" else model
        text = {"flag": "FLAG1 and SECRET2", "block": "BLOCK3"}.get(kind, "What now?")
        body = s.body(model, s.start(text), stream=streamed, shell=kind == "agent")
        if kind in ("flag", "block", "plain"):
            body.pop("thinking", None)
        headers = {"User-Agent": "soak/%d" % seen.number, "X-Session-Id": "soak-%d" % which, **s.headers()}
        with self.connection(seen, "POST", s.path(model, streamed), body, headers) as answer:
            if kind == "leaves":
                seen.left = True
                answer.read1(random.randrange(1, 600))
                return
            raw = answer.read()
        seen.whole = seen.status != 200 or not streamed or ended(spoken, raw)
        seen.tail = "%s on %s: %r" % (spoken, served, raw[-300:])
        if seen.status == 200:
            seen.usage = usage_of(spoken, raw, streamed)

    def execute(self, which):
        seen = self.new("exec")
        body = {"commands": ["echo one", "exit 4"]}
        with self.connection(seen, "POST", "/v1/containers/soak-exec-%d/exec" % which, body, {"User-Agent": "soak/%d" % seen.number}) as answer:
            seen.tail = answer.read()
            seen.outputs = json.loads(seen.tail).get("output")
        seen.whole = True

    def connection(self, seen, method, path, body, headers):
        return Asked(self.server, seen, method, path, body, headers)


class Asked:
    def __init__(self, server, seen, method, path, body, headers):
        self.connection = http.client.HTTPConnection(server.host, server.port, timeout=60)
        headers = dict(headers, **{"Authorization": "Bearer " + brigtest.KEYS["one"], "Content-Type": "application/json"})
        self.connection.request(method, path, json.dumps(body).encode(), headers)
        self.answer = self.connection.getresponse()
        seen.status, seen.generation = self.answer.status, self.answer.getheader("x-generation-id")

    def __enter__(self):
        return self.answer

    def __exit__(self, *_):
        self.connection.close()


# ---- the accounts ----

def rows_of(client):
    """All rows of GET /generations, page by page."""
    rows, after = [], ""
    while True:
        answer = client.get("/generations?limit=200" + after)
        assert answer.status == 200, answer
        page = exact(answer.body)
        rows += page["data"]
        if not page.get("has_more"):
            return rows
        after = "&after=" + page["data"][-1]["id"]


def settled(client, clients):
    """The rows by their request's number, once none is open and all whose client knows of one are there."""
    def look():
        rows = rows_of(client)
        found = {row["user_agent"]: row for row in rows if (row["user_agent"] or "").startswith("soak/")}
        wanted = ["soak/%d" % s.number for s in clients.seen if s.generation and s.kind != "exec"]
        done = all(row["ledger_status"] != "open" for row in rows) and all(w in found for w in wanted)
        return rows if done else None
    return wait_for(look, timeout=120, every=0.3, message="rows stay open, or are missing")


def check_rows(rows, clients, killed):
    by_id = {row["id"]: row for row in rows}
    assert len(by_id) == len(rows), "a row twice"
    by_number = collections.Counter(row["user_agent"] for row in rows if row["user_agent"])
    assert not by_number or max(by_number.values()) == 1, "two rows of one request"
    agreed = collections.Counter()
    for seen in clients.seen:
        if seen.generation is None:
            assert killed or seen.left, "%s got no generation: %s" % (seen.kind, seen.status)
            continue
        row = by_id.get(seen.generation)
        if row is None:  # an exec that ended with its server before its row was made: nothing ran
            assert killed and seen.kind == "exec" and (not seen.whole or seen.status >= 500), "no row of %s %s: %s %s" % (seen.kind, seen.generation, seen.status, seen.tail)
            continue
        if seen.kind == "exec":
            check_exec(seen, row, killed)
        elif seen.whole:
            check_turn(seen, row)
        elif not killed:
            assert seen.left or seen.kind == "cut", (seen.kind, seen.status, seen.tail)
        agreed[seen.kind] += 1
        if seen.whole:
            assert row["ledger_status"] == "settled", "a client was told the end of what is %s" % row["ledger_status"]
    return agreed


def check_exec(seen, row, killed):
    assert row["api_type"] == "exec"
    if seen.whole and seen.status == 200 and not killed:
        assert [o["outcome"] for o in seen.outputs] == [{"type": "exit", "exit_code": c} for c in (0, 4)], seen.outputs
        assert row["sandbox_ms"] > 0


def check_turn(seen, row):
    assert row["user_agent"] == "soak/%d" % seen.number
    assert row["status"] == seen.status, (seen.kind, row["status"], seen.status, row["error"])
    if not seen.usage:
        return
    usage, cost = seen.usage, seen.usage.get("cost")
    if "promptTokenCount" in usage:
        tokens = usage["promptTokenCount"], usage.get("candidatesTokenCount", 0) + usage.get("thoughtsTokenCount", 0)
    elif "prompt_tokens" in usage:
        tokens = usage["prompt_tokens"], usage["completion_tokens"]
    else:
        tokens = (usage["input_tokens"] + (usage.get("cache_read_input_tokens") or 0) +
                  (usage.get("cache_creation_input_tokens") or 0), usage["output_tokens"])
    assert (row["tokens_prompt"], row["tokens_completion"]) == tokens, (seen.kind, row, usage)
    if cost is not None:
        assert row["total_cost"] == cost, (seen.kind, row["total_cost"], usage)
    tool = (usage.get("cost_details") or {}).get("server_tool_cost")
    if tool is not None:
        assert row["server_tool_cost"] == tool, (seen.kind, row, usage)


def total(rows, member):
    return sum((row[member] for row in rows), Decimal(0))


def check_totals(client, rows):
    """GET /generations/totals, and the export where there is one."""
    totals = exact(client.get("/generations/totals").body)["data"]
    for ours, theirs in (("total_cost", "total_cost"), ("sandbox_ms", "sandbox_ms"), ("tokens_prompt", "tokens_prompt"),
                         ("tokens_completion", "tokens_completion")):
        assert total(totals, theirs) == total(rows, ours), (ours, total(totals, theirs), total(rows, ours))
    assert total(totals, "requests") == len(rows)
    export = client.get("/generations/export")
    if export.status == 404:
        return False
    lines = [exact(line) for line in export.body.splitlines()]
    assert {r["id"] for r in lines} == {r["id"] for r in rows} and len(lines) == len(rows)
    for member in SUMS:
        assert total(lines, member) == total(rows, member), member
    return True


def scrape(client):
    return exposition.parse(client.request("GET", "/metrics").body)


def check_metrics(client, rows):
    """Everything was counted since the server's start, once: what is in a row is in a counter."""
    turns, execs = [r for r in rows if r["api_type"] != "exec"], [r for r in rows if r["api_type"] == "exec"]
    # A row is seen a moment before it is counted.
    wait_for(lambda: scrape(client).value("brig_turns_total") + scrape(client).value("brig_execs_total") >= len(rows), every=0.1)
    there = scrape(client)
    wanted = {
        "brig_turns_total": len(turns), "brig_execs_total": len(execs), "brig_turn_duration_seconds_count": len(turns),
        "brig_sandbox_cost_dollars_total": total(rows, "server_tool_cost"),
        "brig_sandbox_billed_seconds_total": total(rows, "sandbox_ms") / 1000,
        "brig_model_cost_dollars_total": total(rows, "total_cost") - total(rows, "server_tool_cost"),
        "brig_turns_estimated_total": sum(r["usage_is_estimated"] for r in rows)}
    assert {name: there.value(name) for name in wanted} == wanted
    assert there.value("brig_tokens_total", kind="input") == total(rows, "tokens_prompt")
    assert there.value("brig_tokens_total", kind="output") == total(rows, "tokens_completion")
    assert there.value("brig_turns_total", outcome="cancelled") == sum(r["cancelled"] for r in turns)
    for api in SPOKEN:
        assert there.value("brig_turns_total", api=api) == sum(r["api_type"] == api for r in turns), api
    runs = hits = commands = attempts = 0
    for row in rows:
        whole = client.get("/generation?id=" + row["id"]).json["data"]
        attempts, hits = attempts + len(whole["provider_responses"]), hits + len(whole["guardrail_hits"])
        if not whole["num_tool_runs"]:
            continue
        of = client.get("/generations/%s/tool_runs" % row["id"]).json["data"]
        commands += sum(len(r["commands"]) for r in of)
        runs += len(of) if row["api_type"] != "exec" else 0
    assert there.value("brig_tool_runs_total") == runs and there.value("brig_commands_total") == commands
    assert there.value("brig_upstream_attempts_total") == attempts
    assert there.value("brig_guardrail_hits_total") == hits


def check_log(server, clients):
    """A line for each request, with its generation and the status that the client saw."""
    lines = collections.defaultdict(list)
    for line in server.log().splitlines():
        value = json.loads(line) if line.startswith("{") else {}
        if value.get("event") == "request" and value["id"]:
            lines[value["id"]].append(value)
    for seen in clients.seen:
        if seen.generation and seen.whole:
            (line,) = lines[seen.generation]
            assert line["status"] == seen.status and line["end"] in ("done", "client_left"), line


def check_traces(receiver, rows):
    """Each row has one request span, however often it was sent, and no request span is of no row."""
    by_id = {row["id"]: row for row in rows}
    receiver.wait_for(by_id, 120)
    roots = list(receiver.roots().values())
    assert len(roots) == len(rows) and {generation(root) for root in roots} == set(by_id)
    for root in roots:
        has, row = root["attributes"], by_id[generation(root)]
        assert has["brig.ledger.status"] == row["ledger_status"], (has, row)
        assert root["start"] // 10**6 >= 1 and has["brig.api"] == row["api_type"], (has, row)
        assert (has.get("brig.usage.input_tokens", 0), has.get("brig.usage.output_tokens", 0)) == \
            (row["tokens_prompt"], row["tokens_completion"]), (has, row)


def say(request, text):
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        print("\n" + text, flush=True)


def run(request, workers, seconds, during=None):
    upstream, providers = make_upstream()
    receiver = Receiver()
    server = brigtest.Server(None, workers=workers, config=dict(CONFIG, providers=providers, broadcast=[
        {"type": "otel-collector", "name": "soak", "privacy_mode": True, "config": {"endpoint": receiver.url}}]))
    good = False
    try:
        server.start()
        clients = Clients(server, seconds)
        threads = clients.run()
        if during:
            during(server, clients)
        for thread in threads:
            thread.join(seconds + 120)
        assert not any(t.is_alive() for t in threads) and not clients.errors, clients.errors[:5]
        client = server.client()
        rows = settled(client, clients)
        agreed = check_rows(rows, clients, during is not None)
        exported = check_totals(client, rows)
        check_traces(receiver, rows)
        assert all(row["total_cost"] >= 0 for row in rows)
        kinds = collections.Counter(row["ledger_status"] for row in rows)
        say(request, "%d requests, %d rows (%s), %s dollars, export %s; agreed: %s" % (
            len(clients.seen), len(rows), dict(kinds), total(rows, "total_cost"), "too" if exported else "not there",
            ", ".join("%s %d" % k for k in sorted(agreed.items()))))
        yield server, client, clients, rows
        server.stop()
        good = True
    finally:
        if server.process is not None:
            server.kill()
        upstream.close()
        receiver.close()
        if good:
            server.remove()
        else:
            say(request, "the server's log: %s" % server.log_path)


@pytest.mark.parametrize("workers", [1, 3])
def test_all_accounts_agree(request, workers):
    for server, client, clients, rows in run(request, workers, SECONDS / 4):
        assert {s.kind for s in clients.seen} >= {"plain", "agent", "exec", "broken", "cut", "leaves", "flag", "block", "wrong"}
        assert all(row["ledger_status"] == "settled" for row in rows)
        check_metrics(client, rows)
        check_log(server, clients)


def age(pid):
    """Seconds since its start."""
    up = float(pathlib.Path("/proc/uptime").read_text().split()[0])
    return up - (brigtest.start_time(pid) or 0) / os.sysconf("SC_CLK_TCK")


def test_nothing_is_lost_where_gateways_and_server_are_killed(request):
    """Gateways one after another, and once, halfway, the supervisor, after which the server is started again."""
    def kills(server, clients):
        half, done, quick = time.monotonic() + SECONDS / 4, False, 0
        while time.monotonic() < clients.until:
            time.sleep(min(2.0, SECONDS / 20) * (0.5 + random.random()))
            if not done and time.monotonic() >= half:
                done, quick = True, 0
                port = server.port
                server.kill()
                wait_for(lambda: not server.own(), every=0.05)
                server.config["listen"] = "127.0.0.1:%d" % port
                server.start()
            else:
                # Five quick deaths of one gateway in a row would end the server: after four only old ones die.
                gateways = [pid for pid in server.gateways() if quick < 4 or age(pid) > 11]
                if gateways:
                    victim = random.choice(gateways)
                    quick += age(victim) <= 11
                    os.kill(victim, signal.SIGKILL)
                    wait_for(lambda: len(server.gateways()) == 3, every=0.05)
        wait_for(lambda: len(server.gateways()) == 3, every=0.05)

    for server, client, clients, rows in run(request, 3, SECONDS / 2, kills):
        recovered = [row for row in rows if row["ledger_status"] == "recovered"]
        assert recovered, "no row was cut off: the kills hit nothing"
        for row in recovered:
            runs = client.get("/generations/%s/tool_runs" % row["id"]).json["data"]
            if any(r["started_container"] for r in runs):
                assert row["server_tool_cost"] >= Decimal("0.003"), row
        told = {s.generation for s in clients.seen if s.whole}
        assert not told & {row["id"] for row in recovered}
        assert scrape(client).value("brig_gateways") == 3
