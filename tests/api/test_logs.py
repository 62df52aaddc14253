"""Records taken out: the export as JSON lines, more filters of lists, and `brig logs`."""
import json
import os
import signal
import socket
import sqlite3
import subprocess
import threading
import time

import pytest

from brigtest import BRIG, KEYS, SHELL, resident, wait_for
from fake_provider import Wait, calls, error, shell, text
from test_cli import brig
from test_records import ask, exact, record


def export(client, **query):
    answer = client.get("/generations/export" + "".join("%s%s=%s" % ("&" if i else "?", k, v)
                                                        for i, (k, v) in enumerate(query.items())))
    assert answer.status == 200, answer
    assert answer.headers["content-type"] == "application/x-ndjson"
    assert answer.body == b"" or answer.body.endswith(b"\n")
    return [exact(line) for line in answer.body.splitlines()]


@pytest.fixture(scope="module")
def made(server, provider):
    """Five requests of a session of their own: three turns, one refusal, one exec."""
    client = server.client()
    plain = ask(client, provider.model(text("hello")), session_id="logs", user="jo", input="find-me-not")[1]
    ran = ask(client, provider.model(calls(shell("echo out; printf '\\033[31mred'; exit 3")), text("done")),
              tools=[SHELL], session_id="logs", input="needle")[1]
    failed = ask(client, provider.model(error(400, {"error": {"message": "too odd"}})), session_id="logs")[1]
    executed = client.post("/containers/logs-exec/exec", {"commands": ["echo direct"]}).headers["x-generation-id"]
    chat = client.post("/chat/completions", {"model": provider.model(text("hi")).name, "session_id": "logs",
                                             "messages": [{"role": "user", "content": "go"}]})
    return [plain, ran, failed, executed, chat.headers["x-generation-id"]]


# ---- export ----

def test_an_export_has_every_record_whole(client, made):
    lines = {line["id"]: line for line in export(client)}
    assert set(made) <= set(lines)
    for generation in made:
        line = lines[generation]
        one = record(client, generation)
        runs = exact(client.get("/generations/%s/tool_runs" % generation).body)["data"]
        for run in runs:
            for command in run["commands"]:
                command.update(command=None, stdout=None, stderr=None)
        assert {k: v for k, v in line.items() if k != "tool_runs"} == one
        assert line["tool_runs"] == runs and "input" not in line


def test_an_export_with_content(client, made):
    lines = {line["id"]: line for line in export(client, content="true", session_id="logs")}
    assert set(lines) == set(made) - {made[3]}
    for generation, line in lines.items():
        content = client.get("/generation/content?id=" + generation).json["data"]
        assert (line["input"], line["output"]) == (content["input"], content["output"])
        assert line["tool_runs"] == exact(client.get("/generations/%s/tool_runs" % generation).body)["data"]
    assert lines[made[1]]["tool_runs"][0]["commands"][0]["stdout"] == "out\n\x1b[31mred"


@pytest.mark.parametrize("query, expected", [
    ({"session_id": "logs"}, [4, 2, 1, 0]),
    ({"session_id": "logs", "status": "4"}, [2]),
    ({"session_id": "logs", "api_type": "chat"}, [4]),
    ({"container_id": "logs-exec"}, [3]),
    ({"session_id": "logs", "q": "needle"}, [1]),
    ({"session_id": "logs", "user": "jo"}, [0]),
    ({"session_id": "logs", "ledger_status": "settled"}, [4, 2, 1, 0]),
    ({"session_id": "logs", "ledger_status": "open"}, []),
    ({"session_id": "logs", "guardrail_hit": "any"}, []),
    ({"session_id": "logs", "ended_from_ms": "1"}, [4, 2, 1, 0]),
    ({"session_id": "logs", "ended_from_ms": "9000000000000"}, []),
    ({"session_id": "logs", "until_ms": "1"}, []),
])
def test_lists_and_exports_have_the_same_filters(client, made, query, expected):
    wanted = [made[i] for i in expected]
    listed = client.get("/generations?limit=1000&" + "&".join("%s=%s" % q for q in query.items())).json["data"]
    assert [row["id"] for row in listed] == wanted
    assert [line["id"] for line in export(client, **query)] == wanted
    at = client.get("/generations/export?after=%s&" % made[4] + "&".join("%s=%s" % q for q in query.items())).body
    assert [json.loads(line)["id"] for line in at.splitlines()] == [w for w in wanted if w != made[4]]


@pytest.mark.parametrize("query", ["from_ms=x", "status=1000", "ledger_status=odd", "guardrail_hit=odd",
                                   "ended_from_ms=-1", "after=gen-none"])
def test_a_bad_filter_is_refused(client, query):
    assert client.get("/generations?" + query).status == 400
    assert client.get("/generations/export?" + query).status == 400


def test_others_export_nothing_of_ours(server, client, made):
    for key in ("two", "far"):
        assert not set(made) & {line["id"] for line in export(server.client(key))}
    assert client.request("GET", "/api/v1/generations/export", headers={"Authorization": "Bearer no"}).status == 401
    assert client.request("HEAD", "/api/v1/generations/export").status == 200


def fill(server, n, size):
    """Rows put straight into the store, which is what hundreds of thousands of requests leave there."""
    db = sqlite3.connect(server.data / "gateway" / "brig.db", timeout=30)
    columns = [row[1] for row in db.execute("PRAGMA table_info(records)")]
    row = dict.fromkeys(columns, 0)
    row.update(account="acme", workspace="two", holder="x", state=1, api="chat", model="m", status=200, store_content=1,
               request=json.dumps({"text": "y" * size}), answer="{}")
    row.pop("n", None)
    now = int(time.time() * 1000)  # retention takes what is old
    with db:
        db.executemany("INSERT INTO records (%s) VALUES (%s)" % (", ".join(row), ", ".join(["?"] * len(row))),
                       (tuple(dict(row, id="gen-fill-%d-%d" % (size, i), begin_ms=now + i, end_ms=now + i).values())
                        for i in range(n)))
    db.close()


def test_a_long_export_takes_no_memory_and_ends_with_its_reader(server, client):
    """100 MB of records, to a reader that takes its time and then goes."""
    fill(server, 1000, 100_000)
    (gateway,) = server.gateways()
    before = resident(gateway)
    sock = socket.create_connection((server.host, server.port))
    sock.sendall(b"GET /api/v1/generations/export?content=true HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n" %
                 KEYS["two"].encode())
    got = b""
    while len(got) < 3_000_000:
        got += sock.recv(65536)
    assert client.get("/tools").status == 200
    assert resident(gateway) - before < 24 << 20
    sock.close()
    lines = export(server.client("two"), content="true")
    assert [line["id"] for line in lines] == ["gen-fill-100000-%d" % i for i in range(999, -1, -1)]
    assert resident(gateway) - before < 32 << 20


# ---- brig logs ----

def test_logs_lists_the_newest_first(server, made):
    done = brig("logs", "--session", "logs", server=server)
    lines = done.stdout.decode().splitlines()
    assert done.returncode == 0 and lines[0].startswith("BEGAN (UTC)")
    assert [line.split()[2] for line in lines[1:]] == [made[i] for i in (4, 2, 1, 0)]
    assert "0.003" in lines[3]
    rows = json.loads(brig("logs", "--json", "--limit", "3", "--session=logs", server=server).stdout)
    assert [row["id"] for row in rows] == [made[4], made[2], made[1]]
    assert [row["id"] for row in json.loads(brig("logs", "--json", "--search", "needle", server=server).stdout)] == [made[1]]
    none = brig("logs", "--model", "no/such model&x=1", server=server)
    assert none.returncode == 0 and none.stdout == b"no requests\n"
    assert brig("logs", "--status", "9999", server=server).returncode == 1
    assert json.loads(brig("logs", "--json", "--since", "1h", "--session", "logs", server=server).stdout) != []


def test_logs_shows_one(server, made):
    done = brig("logs", made[1], server=server)
    shown = done.stdout.decode()
    assert done.returncode == 0
    for what in (made[1], "settled", "openrouter:shell", "echo out;", "    out\n", "[exit 3", "0.003"):
        assert what in shown, what
    assert "\x1b" not in shown and "?[31mred" in shown
    one = json.loads(brig("logs", "--json", made[1], server=server).stdout)
    assert one["generation"]["id"] == made[1] and len(one["tool_runs"]) == 1
    none = brig("logs", "gen-none", server=server)
    assert none.returncode == 1 and b"HTTP 404" in none.stderr


def test_logs_exports(server, made):
    done = brig("logs", "--export", "--session", "logs", server=server)
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == [made[i] for i in (4, 2, 1, 0)]
    done = brig("logs", "--export", "--content", "--session", "logs", "--api", "chat", server=server)
    assert json.loads(done.stdout)["output"]["completion"] == "hi"


def test_logs_follows(server, client, provider):
    process = subprocess.Popen([BRIG, "logs", "--follow", "--json", "--since", "1h", "--session", "followed"], stdout=subprocess.PIPE,
                               # What is freed is no longer what it was.
                               env=dict(os.environ, BRIG_URL=server.url, BRIG_KEY=KEYS["one"], MALLOC_PERTURB_="165"))
    found = []
    reader = threading.Thread(target=lambda: found.extend(json.loads(line)["id"] for line in process.stdout))
    reader.start()
    released = threading.Event()
    try:
        held = text("ok")
        held.steps.insert(1, Wait(released))
        slow = client.begin(provider.model(held), session_id="followed")
        quick = [ask(client, provider.model(text("x")), session_id="followed")[1] for _ in range(3)]
        wait_for(lambda: len(found) == 3)
        released.set()
        slow.rest()
        wait_for(lambda: len(found) == 4)
        last = ask(client, provider.model(text("x")), session_id="followed")[1]
        wait_for(lambda: len(found) == 5)
        assert found == quick + [slow.response_headers["x-generation-id"], last]
    finally:
        released.set()
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
        reader.join()
