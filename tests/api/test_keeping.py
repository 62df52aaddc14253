"""keep_running costs: a record of its own for as long as a container is live and kept, and not a second in two of them."""
import os
import signal
import sqlite3
import threading
import time
from decimal import Decimal

import pytest

from brigtest import wait_for
from test_records import exact

SETTINGS = {"container": {"sleep_after": "3s"}}


def kept(client, container):
    """The records of a container's keeping, the oldest first."""
    rows = exact(client.get("/generations?api_type=container&container_id=" + container).body)["data"]
    return rows[::-1]


def settled(client, container, n=1):
    def rows():
        found = kept(client, container)
        return len(found) == n and all(row["ledger_status"] == "settled" for row in found) and found
    try:
        return wait_for(rows)
    except AssertionError:
        raise AssertionError("not settled: %s" % [(r["ledger_status"], r["sandbox_ms"]) for r in kept(client, container)])


def check_price(row):
    assert row["sandbox_ms"] == row["generation_time"] > 0
    assert row["total_cost"] == row["server_tool_cost"] == Decimal("0.0001") * row["sandbox_ms"] / 1000


def keep(client, container, how):
    answer = client.post("/containers", {"name": container, "keep_running": how})
    assert answer.status == 200, answer
    return answer.json


def test_a_live_container_costs_from_the_order_to_its_end(servers_1_and_3):
    client = servers_1_and_3.client()
    client.run("live", "true")
    keep(client, "live", 3600)
    (row,) = kept(client, "live")
    assert row["ledger_status"] == "open" and row["sandbox_ms"] == 0 and row["api_key_hash"] and not row["content_stored"]
    keep(client, "live", True)  # goes on
    assert [r["id"] for r in kept(client, "live")] == [row["id"]]
    client.run("live", "true")  # has a record and a price of its own
    # A heartbeat says what it has come to.
    beaten = wait_for(lambda: kept(client, "live")[0]["sandbox_ms"] > 0 and kept(client, "live")[0])
    assert beaten["ledger_status"] == "open"
    assert beaten["total_cost"] == Decimal("0.0001") * beaten["sandbox_ms"] / 1000
    keep(client, "live", False)
    (row,) = kept(client, "live")  # at once
    assert row["ledger_status"] == "settled" and row["status"] == 200 and row["sandbox_ms"] >= beaten["sandbox_ms"]
    check_price(row)
    rows = exact(client.get("/generations?limit=1000").body)["data"]
    totals = exact(client.get("/generations/totals").body)["data"]
    assert sum(t["server_tool_cost"] for t in totals) == sum(r["server_tool_cost"] for r in rows)
    assert len([r for r in rows if r["api_type"] == "exec"]) == 2


@pytest.mark.parametrize("end", ["sleep", "delete"])
def test_one_that_sleeps_costs_from_its_next_use(servers_1_and_3, end):
    client = servers_1_and_3.client()
    name = "woken-" + end
    keep(client, name, 3600)
    assert kept(client, name) == []
    client.run(name, "true")
    (row,) = wait_for(lambda: kept(client, name))
    assert row["ledger_status"] == "open"

    def ended():
        answer = client.post("/containers/%s/sleep" % name, {}) if end == "sleep" else client.delete("/containers/" + name)
        return answer.status == 200
    wait_for(ended)
    (row,) = settled(client, name)
    check_price(row)
    if end == "sleep":
        client.run(name, "true")  # it is still to be kept
        assert wait_for(lambda: len(kept(client, name)) == 2 and kept(client, name)[1])["ledger_status"] == "open"
        keep(client, name, False)
        first, second = settled(client, name, 2)
        assert first["created_at_ms"] + first["generation_time"] <= second["created_at_ms"]


def test_its_time_runs_out(servers_1_and_3):
    client = servers_1_and_3.client()
    client.run("brief", "true")
    before = time.time()
    keep(client, "brief", 2)
    after = time.time()
    (row,) = settled(client, "brief")
    # From the order, which came a moment after the request, to the stated time.
    assert 0 < row["sandbox_ms"] <= 2000
    assert before - 0.001 <= (row["created_at_ms"] + row["sandbox_ms"]) / 1000 - 2 <= after
    check_price(row)


def test_a_long_one_is_charged_by_the_hour(servers_1_and_3):
    client = servers_1_and_3.client()
    client.run("long", "true")
    keep(client, "long", 7200)
    with sqlite3.connect(next(servers_1_and_3.data.rglob("brig.db")), timeout=30) as db:
        db.execute("UPDATE records SET begin_ms = begin_ms - 3600000 WHERE container_id = 'long' AND api = 'container'")
    db.close()
    first, second = wait_for(lambda: len(kept(client, "long")) == 2 and kept(client, "long"))
    assert first["ledger_status"] == "settled" and first["sandbox_ms"] >= 3600000 and second["ledger_status"] == "open"
    check_price(first)
    assert first["api_key_hash"] == second["api_key_hash"]
    assert 0 <= second["created_at_ms"] - first["created_at_ms"] - first["generation_time"] < 1000
    keep(client, "long", False)
    settled(client, "long", 2)


def test_many_orders_at_once_are_one_record(servers_1_and_3):
    client = servers_1_and_3.client()
    client.run("many", "true")
    clients = [servers_1_and_3.client() for _ in range(12)]
    threads = [threading.Thread(target=keep, args=(c, "many", 3600)) for c in clients]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(kept(client, "many")) == 1
    keep(client, "many", False)
    check_price(settled(client, "many")[0])


def test_a_gateway_dies_and_the_record_goes_on(make_server):
    server = make_server(config=SETTINGS).start()
    client = server.client()
    client.run("on", "true")
    keep(client, "on", 3600)
    (row,) = kept(client, "on")
    old = server.gateways()
    os.kill(old[0], signal.SIGKILL)
    wait_for(lambda: server.gateways() and server.gateways() != old)

    def found():
        try:
            return kept(server.client(), "on")
        except OSError:
            return None
    assert [r["id"] for r in wait_for(found)] == [row["id"]]
    # The next gateway's heartbeats, as soon as the dead one's time is over.
    (row,) = wait_for(lambda: kept(client, "on")[0]["sandbox_ms"] > 0 and kept(client, "on"))
    assert row["ledger_status"] == "open" and client.get("/containers/on").json["status"] == "running"
    keep(client, "on", False)
    check_price(settled(client, "on")[0])


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_the_server_ends(make_server, how):
    server = make_server(config=SETTINGS).start()
    client = server.client()
    client.run("over", "true")
    keep(client, "over", 3600)
    wait_for(lambda: kept(client, "over")[0]["sandbox_ms"] > 0)  # a heartbeat
    (beaten,) = kept(client, "over")
    if how == "stopped":
        server.stop()
    else:
        # All at once, as when the power goes: no gateway is left that sees the containers end.
        os.kill(server.supervisor(), signal.SIGSTOP)
        for pid in server.gateways():
            os.kill(pid, signal.SIGKILL)
        server.kill()
        wait_for(lambda: not server.own())
    server.start()
    client = server.client()
    (row,) = wait_for(lambda: kept(client, "over")[0]["ledger_status"] != "open" and kept(client, "over"))
    assert row["ledger_status"] == {"stopped": "settled", "killed": "recovered"}[how] and row["id"] == beaten["id"]
    assert row["sandbox_ms"] > beaten["sandbox_ms"] or how == "killed"  # then it is settled at its last heartbeat
    check_price(row)
    client.run("over", "true")  # its row says that it is to be kept
    wait_for(lambda: len(kept(client, "over")) == 2)
