"""Records of requests: 100,000 of them listed, filtered, searched, summed and exported, and one more written beside them."""
import os
import random
import sqlite3
import time
import urllib.request

from harness import Server, row, section

ROWS = 100_000
DAY_MS = 86_400_000


def fill(path, account, workspace):
    """As that many requests of 30 days leave them: 8 models, 5 keys, 500 sessions, every third with a tool run."""
    db = sqlite3.connect(path, timeout=60)
    dice, now = random.Random(1), int(time.time() * 1000)
    columns = [c[1] for c in db.execute("PRAGMA table_info(records)")]
    blank = dict.fromkeys((c for c in columns if c != "n"), 0)
    for name in ("provider", "asked", "error", "finish", "native_finish", "user", "request_id", "user_agent", "metadata",
                 "trace", "traceparent", "key_name", "session_id", "container_id"):
        blank[name] = None
    blank.update(account=account, workspace=workspace, holder="bench", state=1, api="responses", status=200,
                 store_content=1)

    def record(i):
        begin = now - 30 * DAY_MS + 3_600_000 + i * (30 * DAY_MS - 7_200_000) // ROWS
        return dict(blank, id="gen-bench-%07d" % i, begin_ms=begin, first_ms=begin + 300, end_ms=begin + 2000,
                    heartbeat_ms=begin + 2000, model="text/model-%d" % dice.randrange(8), provider="text",
                    key_hash="%064x" % dice.randrange(5), session_id="session-%d" % dice.randrange(500),
                    container_id="box-%d" % dice.randrange(200) if i % 3 == 0 else None,
                    status=429 if i % 100 == 0 else 200, input=1000, output=100, total_cost=3_500_000_000,
                    request='{"input":"%s needle%d"}' % ("w" * 1500, i), answer='{"completion":"%s"}' % ("a" * 400))

    begin = time.perf_counter()
    with db:
        db.executemany("INSERT INTO records (%s) VALUES (%s)" % (", ".join(blank), ", ".join(":" + c for c in blank)),
                       (record(i) for i in range(ROWS)))
        db.execute("INSERT INTO record_attempts SELECT n, 0, provider, model, 200, NULL, begin_ms, first_ms, end_ms, 1000, 0, "
                   "0, 100, 0, 1, 0, 'stop', NULL, 0 FROM records WHERE holder = 'bench'")
        db.execute("INSERT INTO record_runs SELECT n, 0, 'call', 'openrouter:shell', container_id, 'completed', NULL, 0, "
                   "begin_ms, end_ms, 0, 0 FROM records WHERE container_id IS NOT NULL AND holder = 'bench'")
        db.execute("INSERT INTO record_commands SELECT n, 0, 0, 'make', 'out', '', 0, 0, 0, 0, NULL, NULL, begin_ms, end_ms "
                   "FROM records WHERE container_id IS NOT NULL AND holder = 'bench'")
    row("put into the store", "%.1f s" % (time.perf_counter() - begin))
    db.close()
    row("  the file", "%.0f MB" % (os.path.getsize(path) / 1e6))


def get(server, path):
    r = urllib.request.Request("http://%s:%s/api/v1%s" % (server.host, server.port, path),
                               headers={"Authorization": "Bearer " + server.key})
    begin, n = time.perf_counter(), 0
    with urllib.request.urlopen(r) as answer:
        while chunk := answer.read(1 << 20):
            n += chunk.count(b"\n")
    return (time.perf_counter() - begin) * 1e3, n


def measure(b):
    section("%d records: time until the answer is there" % ROWS)
    server = Server(b, "records", "")
    turn = server.http(b.args.times, "POST", "/v1/responses", '{"model":"text/m","input":"hi"}')
    path = os.path.join(b.dir, "records", "gateway", "brig.db")
    (account, workspace), = sqlite3.connect(path).execute("SELECT DISTINCT account, workspace FROM records").fetchall()
    fill(path, account, workspace)
    middle = int(time.time() * 1000) - 15 * DAY_MS
    for what, query in (("the newest 50", "?limit=50"), ("  from the middle on", "?limit=50&until_ms=%d" % middle),
                        ("  1,000", "?limit=1000"), ("  of a model", "?model=text/model-3"),
                        ("  of a provider", "?provider=text"), ("  of a key", "?key=%064x" % 3),
                        ("  of a session", "?session_id=session-77"), ("  of a container", "?container_id=box-7"),
                        ("  of a status", "?status=429"), ("  of one that there is not", "?status=503"),
                        ("  of no model", "?model=none"), ("  of no user", "?user=nobody"),
                        ("  with a guardrail's hit: none", "?guardrail_hit=any"), ("  of no api", "?api_type=gemini"),
                        ("  still open: none", "?ledger_status=open"),
                        ("  ended of late", "?ended_from_ms=%d" % (time.time() * 1000 - 60000)),
                        ("  a text of 1 of them", "?q=needle50000"), ("  a text of none", "?q=nowhere-at-all")):
        row(what, "%.1f ms" % min(get(server, "/generations" + query)[0] for _ in range(3)))
    row("sums of 30 days", "%.1f ms" % min(get(server, "/generations/totals")[0] for _ in range(3)))
    for content in ("false", "true"):
        ms, n = get(server, "/generations/export?content=" + content)
        row("export, %d lines%s" % (n, ", with content" if content == "true" else ""), "%.1f s" % (ms / 1e3))
    after = server.http(b.args.times, "POST", "/v1/responses", '{"model":"text/m","input":"hi"}')
    row("a turn beside them", str(after), "%s with none" % turn)
    server.stop()
