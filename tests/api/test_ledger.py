"""The ledger: rows before anything costs, settled at the end, and found by whoever comes after a crash."""
import http.client
import os
import signal
import threading
from decimal import Decimal

import pytest

from brigtest import SHELL, wait_for
from fake_provider import Reply, Wait, calls, chunk, shell, text
from test_lifecycle import owner_of, try_run
from test_records import ask, exact, priced, record


def rows(client, **query):
    answer = client.get("/generations?limit=1000" + "".join("&%s=%s" % q for q in query.items()))
    assert answer.status == 200, answer
    return exact(answer.body)["data"]


def test_the_row_is_there_before_the_upstream_is_asked(server, client, provider):
    asked = threading.Event()
    model = provider.model(Reply([Wait(asked), chunk({"content": "late"})] + [b"data: [DONE]\n\n"]))
    stream = client.begin(model, session_id="row-first")
    wait_for(lambda: model.requests)
    (row,) = rows(client, session_id="row-first")
    assert row["ledger_status"] == "open" and row["total_cost"] == 0
    asked.set()
    stream.rest()
    (row,) = rows(client, session_id="row-first")
    assert row["ledger_status"] == "settled"


def test_a_client_that_goes_away_pays_for_the_sandbox(client, provider):
    model = provider.model(calls(shell("sleep 60")), text("never"))
    stream = client.begin(model, tools=[SHELL], session_id="goes-away")
    stream.until("response.output_item.added")
    generation = stream.response_headers["x-generation-id"]
    wait_for(lambda: record(client, generation)["sandbox_ms"] > 0)
    stream.sock.close()
    wait_for(lambda: record(client, generation)["ledger_status"] == "settled")
    row = record(client, generation)
    assert row["cancelled"] and row["server_tool_cost"] == Decimal("0.003")
    (run,) = client.get("/generations/%s/tool_runs" % generation).json["data"]
    assert run["status"] in ("incomplete", "failed")


def test_a_client_that_goes_away_pays_for_the_tokens_it_saw(client, provider):
    more = threading.Event()
    model = priced(provider, Reply([chunk({"role": "assistant", "content": "x" * 400}), Wait(more)]))
    stream = client.begin(model, session_id="tokens-seen")
    stream.until("response.output_text.delta")
    generation = stream.response_headers["x-generation-id"]
    stream.sock.close()
    wait_for(lambda: record(client, generation)["ledger_status"] == "settled")
    more.set()
    row = record(client, generation)
    assert row["cancelled"] and row["usage_is_estimated"]
    assert row["tokens_completion"] == 100 and row["tokens_prompt"] > 0
    assert row["total_cost"] == (row["tokens_prompt"] * Decimal("2.5") + 100 * 10) / 1000000


def test_exec_is_priced_alike(client, provider):
    answer = client.post("/containers/ledger-exec/exec", {"commands": ["echo one", "exit 4"]})
    assert answer.status == 200
    row = record(client, answer.headers["x-generation-id"])
    assert row["api_type"] == "exec" and row["ledger_status"] == "settled" and row["container_id"] == "ledger-exec"
    assert row["total_cost"] == row["server_tool_cost"] == Decimal("0.003") and row["sandbox_ms"] == 30000
    (run,) = client.get("/generations/%s/tool_runs" % row["id"]).json["data"]
    assert [c["command"] for c in run["commands"]] == ["echo one", "exit 4"]
    assert run["commands"][0]["stdout"] == "one\n" and run["commands"][1]["outcome"]["exit_code"] == 4
    # The container is live now: only its time is paid.
    again = client.post("/containers/ledger-exec/exec", {"argv": ["true"]})
    row = record(client, again.headers["x-generation-id"])
    assert 0 < row["sandbox_ms"] < 30000
    assert row["total_cost"] == Decimal("0.0001") * row["sandbox_ms"] / 1000


def test_a_sandbox_that_does_not_start_costs_nothing(make_server, provider):
    server = make_server(config={"container": {"live": 1, "pool": 0}})
    server.start()
    client = server.client()
    client.post("/containers/full/exec", {"commands": ["sleep 300"], "detach": True})
    model = provider.model(calls(shell("true")), text("ok"))
    answer, generation = ask(client, model, tools=[SHELL])
    row = record(client, generation)
    assert row["server_tool_cost"] == 0 and row["sandbox_ms"] == 0
    (run,) = client.get("/generations/%s/tool_runs" % generation).json["data"]
    assert run["status"] == "failed" and run["error"] and not run["commands"]
    failed = client.post("/containers/other/exec", {"commands": ["true"]})
    assert failed.status == 429
    assert record(client, failed.headers["x-generation-id"])["total_cost"] == 0
    client.delete("/containers/full")


@pytest.mark.parametrize("whom", ["gateway", "supervisor"])
def test_after_a_crash_open_rows_are_settled_and_marked(make_server, provider, whom):
    server = make_server()
    server.start()
    client = server.client()
    model = provider.model(calls(shell("sleep 60")), text("never"))
    stream = client.begin(model, tools=[SHELL], session_id="crash")
    stream.until("response.output_item.added")
    (row,) = rows(client, session_id="crash")
    wait_for(lambda: rows(client, session_id="crash")[0]["sandbox_ms"] > 0)
    if whom == "gateway":
        old = server.gateways()
        os.kill(old[0], signal.SIGKILL)
        wait_for(lambda: server.gateways() and server.gateways() != old)
    else:
        # A supervisor's sockets close before the kernel kills its gateways for its death: one that sees the first in time
        # settles what it has, which is right too. One that stands still cannot, as where the power goes.
        for pid in server.gateways():
            os.kill(pid, signal.SIGSTOP)
        server.kill()
        wait_for(lambda: not server.own())
        server.start()
        client = server.client()

    def found():
        try:
            return [row for row in rows(client, session_id="crash") if row["ledger_status"] != "open"]
        except OSError:
            return None
    (row,) = wait_for(found)
    assert row["ledger_status"] == "recovered"
    assert row["server_tool_cost"] == row["total_cost"] == Decimal("0.003")
    assert row["generation_time"] is not None


def test_totals_are_the_sums_of_the_rows(client, provider):
    ask(client, priced(provider, text("x", usage=(100, 10))))
    totals = exact(client.get("/generations/totals").body)["data"]
    found = rows(client)
    for field in ("total_cost", "server_tool_cost", "sandbox_ms", "tokens_prompt"):
        assert sum(t[field] for t in totals) == sum(r[field] for r in found)
    assert sum(t["requests"] for t in totals) == len(found)
    assert "fake/priced" in [t["model"] for t in totals]
    assert client.get("/generations/totals?until_ms=1").json["data"] == []


def test_answers_and_ledger_agree_to_the_row(servers_1_and_3, provider):
    """Turns of all kinds at once: each answer has one settled row of the same price, and no row is left open."""
    server = servers_1_and_3
    seen, lock = {}, threading.Lock()

    def work(n):
        client = server.client()
        for i in range(4):
            kind = (n + i) % 3
            if kind == 0:
                answer, generation = ask(client, provider.model(text("a")), session_id="soak-%d" % n)
                cost = exact(answer.body)["usage"]["cost"]
            elif kind == 1:
                model = provider.model(calls(shell("echo x")), text("b"))
                answer, generation = ask(client, model, tools=[SHELL], session_id="soak-%d" % n)
                cost = exact(answer.body)["usage"]["cost"]
            else:
                answer = client.post("/containers/soak-%d/exec" % n, {"commands": ["true"]})
                generation, cost = answer.headers["x-generation-id"], None
            assert answer.status == 200, answer
            with lock:
                assert generation not in seen
                seen[generation] = cost

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 24
    found = {row["id"]: row for row in rows(server.client())}
    for generation, cost in seen.items():
        row = found[generation]
        assert row["ledger_status"] == "settled"
        assert cost is None or row["total_cost"] == cost
        assert row["total_cost"] == (row["upstream_inference_input_cost"] + row["upstream_inference_output_cost"] +
                                     row["server_tool_cost"])
    assert not [row for row in found.values() if row["ledger_status"] == "open"]


def test_a_gateway_of_three_dies_and_only_its_rows_are_recovered(make_server, provider):
    """Turns and detached execs are open everywhere: those of the dead one are settled at what they had, the others go on."""
    server = make_server(workers=3)
    server.start()
    client = server.client()
    streams, execs, held = [], {}, "until [ -e go ]; do sleep 0.1; done"
    for i in range(6):
        model = provider.model(calls(shell(held)), text("never"))
        streams.append(client.begin(model, tools=[SHELL], session_id="three-%d" % i))
        answer = client.post("/containers/three-exec-%d/exec" % i, {"commands": [held], "detach": True})
        execs[answer.headers["x-generation-id"]] = answer.json["exec_id"]
    ids = [stream.response_headers["x-generation-id"] for stream in streams] + list(execs)

    def states():
        try:
            found = {row["id"]: row for row in rows(server.client()) if row["id"] in ids}
        except (OSError, http.client.HTTPException):
            return {}
        return found if len(found) == len(ids) else {}
    wait_for(lambda: states() and all(row["sandbox_ms"] > 0 for row in states().values()))
    os.kill(owner_of(server, server.gateways(), streams[0].sock.getsockname()[1]), signal.SIGKILL)
    wait_for(lambda: any(row["ledger_status"] == "recovered" for row in states().values()))
    recovered = {g for g, row in states().items() if row["ledger_status"] == "recovered"}
    assert recovered != set(ids), "connections are spread over three gateways"
    for name in ["sess_three-%d" % i for i in range(6)] + ["three-exec-%d" % i for i in range(6)]:
        wait_for(lambda: try_run(client, name, "touch go; echo gone") == "gone\n")
    for stream in streams:
        if stream.response_headers["x-generation-id"] in recovered:
            stream.sock.close()
        else:
            stream.rest()
    wait_for(lambda: states() and not [r for r in states().values() if r["ledger_status"] == "open"])
    found = states()
    assert {g for g, row in found.items() if row["ledger_status"] == "recovered"} == recovered
    for row in found.values():
        assert row["total_cost"] == row["server_tool_cost"] == Decimal("0.0001") * row["sandbox_ms"] / 1000
        assert row["sandbox_ms"] >= 30000 and row["generation_time"] is not None
    totals = exact(client.get("/generations/totals").body)["data"]
    assert sum(t["total_cost"] for t in totals) == sum(row["total_cost"] for row in rows(client))
