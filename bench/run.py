#!/usr/bin/python3
"""Measures brig and prints one table: each figure beside its baseline from the same run and its budget.

    bench/run.py [--build DIR] [--image FILE] [--only sandbox|files|egress|guard|records|broadcast|gateway|streams|loop|dialects] [-n TIMES]

Needs root, and what `scripts/setup bench` installs. Starts servers of its own on free loopback ports with data
folders of their own, and ends them. Machines are noisy: read ratios and medians, and run it twice.
"""
import argparse
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request

import broadcast
import egress
import files
import gateways
import records
import sandbox
from harness import Bench, Latency, Server, row, section, status_kib

HERE = os.path.dirname(os.path.abspath(__file__))


def wrk(b, server, port, path, conns, body):
    lua = os.path.join(b.dir, "post.lua")
    with open(lua, "w") as f:
        f.write(f'wrk.method = "POST"\nwrk.body = [==[{body}]==]\n'
                f'wrk.headers["Content-Type"] = "application/json"\n'
                f'wrk.headers["Authorization"] = "Bearer {server.key}"\n')
    out = subprocess.run(["wrk", "-t1", f"-c{conns}", f"-d{b.args.seconds}s", "--latency", "-s", lua,
                          f"http://127.0.0.1:{port}{path}"], check=True, stdout=subprocess.PIPE, text=True).stdout
    unit = {"us": 1e-3, "ms": 1.0, "s": 1e3}

    def pct(p):
        m = re.search(rf"^\s+{p}%\s+([\d.]+)(us|ms|s)$", out, re.M)
        return float(m.group(1)) * unit[m.group(2)]

    bad = re.search(r"Non-2xx or 3xx responses: (\d+)", out)
    return {"p50": pct(50), "p99": pct(99), "rps": float(re.search(r"Requests/sec:\s+([\d.]+)", out).group(1)),
            "bad": int(bad.group(1)) if bad else 0}


def cpu_s(pid):
    """Processor time that a process has used: what a rate per core is made of, whoever else runs."""
    f = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(f[11]) + int(f[12])) / os.sysconf("SC_CLK_TCK")


def gateway(b, server):
    section("Gateway (1 KB body, Responses → Chat Completions, upstream answers at once, wrk with one thread)")
    text = "x" * 900
    direct = json.dumps({"model": "m", "messages": [{"role": "user", "content": text}], "stream": True})
    through = json.dumps({"model": "text/m", "input": text})
    for conns in (1, 32, 256):
        d = wrk(b, server, b.port, "/text/v1/chat/completions", conns, direct)
        cpu = cpu_s(server.gateway)
        g = wrk(b, server, server.port, "/v1/responses", conns, through)
        cpu = cpu_s(server.gateway) - cpu
        row(f"{conns} connections", f"p50 {g['p50']:.2f} p99 {g['p99']:.2f} ms, {g['rps']:.0f}/s"
            + (f", {g['bad']} FAILED" if g["bad"] else ""),
            f"direct p50 {d['p50']:.2f} p99 {d['p99']:.2f} ms, {d['rps']:.0f}/s")
        if conns == 32:
            row("  processor time of one request", f"{cpu / (g['rps'] * b.args.seconds) * 1e6:.0f} us",
                f"{g['rps'] * b.args.seconds / cpu:.0f}/s a core", "10,000/s a core")
        if conns > 1:
            row("  resident memory of the gateway afterwards", f"{status_kib(server.gateway) / 1024:.1f} MB "
                f"(peak {status_kib(server.gateway, 'VmHWM') / 1024:.1f})", "", "15 MB" if conns == 32 else "")
        if conns == 1:
            row("  added at one connection", f"p50 +{g['p50'] - d['p50']:.2f} p99 +{g['p99'] - d['p99']:.2f} ms", "",
                "p50 +0.25, p99 +1 ms at 1,000/s")


def streams(b, server):
    n = b.args.streams
    section(f"{n} idle open streams (each with an upstream stream of its own)")
    before = status_kib(server.gateway)
    body = json.dumps({"model": "idle/m", "input": "hi", "stream": True}).encode()
    head = (f"POST /v1/responses HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {server.key}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n").encode()
    socks = []
    for i in range(n):
        s = socket.create_connection((server.host, int(server.port)))
        s.sendall(head + body)
        socks.append(s)
        if i % 50 == 49:
            for t in socks[-50:]:
                t.settimeout(30)
                data = b""
                while b"Hello" not in data:
                    data += t.recv(65536)
    after = status_kib(server.gateway)
    row("memory of one idle stream", f"{(after - before) / n:.1f} kB", f"{before / 1024:.1f} MB with none", "20 kB")
    t = time.perf_counter()
    server.request("GET", "/v1/models")
    row("  GET /models meanwhile", f"{(time.perf_counter() - t) * 1e3:.2f} ms")
    for s in socks:
        s.close()


def loop(b, server):
    section("The loop: last byte of an upstream tool call → first byte of the next upstream request, `true`")
    url = f"http://127.0.0.1:{b.port}/stats"

    def turn(session):
        """The times of one turn's calls, the first one first."""
        urllib.request.urlopen(url).read()
        answer = server.request("POST", "/v1/responses", {"model": "loop/m", "input": "hi", "session_id": session,
                                                          "tools": [{"type": "openrouter:shell"}]})
        if answer["status"] != "completed":
            sys.exit(f"the loop failed: {answer}")
        return [int(x) / 1e3 for x in urllib.request.urlopen(url).read().split()]

    live, first = [], []
    for i in range(b.args.times):
        times = turn(f"loop{i}")
        first.append(times[0])
        live += times[1:]
        server.request("DELETE", f"/v1/containers/sess_loop{i}")
    row(f"in a live container, n={len(live)}", str(Latency(live)), "", "5 ms")
    row(f"the first call of a turn, n={len(first)}, "
        f"{sum(x.get('pooled', 0) for x in server.events('sandbox_ready'))} of the server's from the pool",
        str(Latency(first)), "", "8 ms")


def guard(b):
    """The scan of guardrails, all built-ins at once."""
    section("guardrails: one scan with all built-ins, median")
    out = subprocess.run([os.path.join(b.args.build, "bench", "bench_guard")], check=True, stdout=subprocess.PIPE, text=True).stdout
    for line in out.splitlines():
        size, kind, us = line.split()
        what = "compiling the rules" if size == "0" else "%s bytes, %s" % (size, kind)
        row(what, "%.2f ms" % (float(us) / 1000))


SLUGS = ("regex-prompt-injection", "email", "phone", "ssn", "credit-card", "ip-address", "secrets", "person-name", "address")
PROSE = "The tide table for the harbour says that boats with a draught of two metres leave before noon, and that others wait. "


def guarded_requests(b):
    """A request of 1 KB, with all built-ins and with none, in turns."""
    section("guardrails: a request of 1 KB, p50 and p99")
    rules = json.dumps([{"name": "all", "content_filter_builtins": [{"slug": s, "action": "redact"} for s in SLUGS]}])
    servers = [Server(b, name, "sandbox: off # pool: 0\n" + more) for name, more in (("none", ""), ("all", "guardrails: %s\n" % rules))]
    body = json.dumps({"model": "text/m", "messages": [{"role": "user", "content": (PROSE * 9)[:930]}]})
    got = [Latency(), Latency()]
    for _ in range(4):
        for i, server in enumerate(servers):
            got[i] += server.http(b.args.times, "POST", "/v1/chat/completions", body)
    row("all nine built-ins, %d requests" % (4 * b.args.times), str(got[1]), str(got[0]))
    for server in servers:
        server.stop()


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--build", default=os.path.join(HERE, "..", "build"))
    ap.add_argument("--image", default=os.environ.get("BRIG_TEST_IMAGE", "/var/lib/brig/images/base.erofs"))
    ap.add_argument("--only", action="append", choices=["sandbox", "files", "egress", "guard", "records", "broadcast", "gateway", "streams", "loop", "dialects"])
    ap.add_argument("-n", "--times", type=int, default=200)
    ap.add_argument("--seconds", type=int, default=5)
    ap.add_argument("--streams", type=int, default=5000)
    args = ap.parse_args()
    only = args.only or ["sandbox", "files", "egress", "guard", "records", "broadcast", "loop", "gateway", "dialects", "streams"]
    b = Bench(args)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with open("/proc/loadavg") as f:
        print(f"{os.cpu_count()} processors, load {f.read().split()[0]}, kernel {os.uname().release}")
    try:
        b.start_upstream()
        if "sandbox" in only:
            sandbox.measure(b)
        if "files" in only:
            files.measure(b)
        if "egress" in only:
            egress.measure(b)
        if "guard" in only:
            guard(b)
            guarded_requests(b)
        if "records" in only:
            records.measure(b)
        if "broadcast" in only:
            broadcast.measure(b)
        if set(only) - {"sandbox", "files", "egress", "guard", "records", "broadcast"}:
            server = Server(b, "data", "")
        for name, part in (("loop", loop), ("gateway", gateway), ("dialects", gateways.measure), ("streams", streams)):
            if name in only:
                part(b, server)
    finally:
        b.stop()


if __name__ == "__main__":
    main()
