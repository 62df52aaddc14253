#!/usr/bin/python3
"""Measures brig and prints one table: each figure beside its baseline from the same run and its budget.

    bench/run.py [--build DIR] [--image FILE] [--only sandbox|gateway|streams|loop] [-n ROUNDS]

Needs root (for sandboxes), wrk and bwrap. Starts a server of its own on a free loopback port with a data
folder of its own, and ends it. Machines are noisy: read ratios and medians, and run it twice.
"""
import argparse
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
ROWS = []


def row(what, figure, baseline="", budget=""):
    ROWS.append((what, figure, baseline, budget))
    print(f"{what:<58} {figure:<34} {baseline:<38} {budget}", flush=True)


def section(title):
    print(f"\n{title}\n{'what':<58} {'brig':<34} {'baseline, same run':<38} budget", flush=True)


class Latency:
    """One line of bench_latency, in milliseconds."""

    def __init__(self, out):
        n, low, p50, p90, p99, top = (float(x) for x in out.split())
        self.n, self.p50, self.p90, self.p99, self.max = int(n), p50 / 1e3, p90 / 1e3, p99 / 1e3, top / 1e3

    def __str__(self):
        return f"p50 {self.p50:.2f} p99 {self.p99:.2f} ms"


class Bench:
    def __init__(self, args):
        self.args = args
        self.dir = tempfile.mkdtemp(prefix="brig-bench-")
        self.procs = []

    def tool(self, name):
        return os.path.join(self.args.build, "bench", name)

    def spawn(self, *argv, **kw):
        p = subprocess.Popen(argv, **kw)
        self.procs.append(p)
        return p

    def latency(self, *argv):
        return Latency(subprocess.run([self.tool("bench_latency"), *map(str, argv)], check=True,
                                      stdout=subprocess.PIPE, text=True).stdout)

    def start_upstream(self):
        port_file = os.path.join(self.dir, "port")
        self.upstream = self.spawn(self.tool("bench_upstream"), port_file)
        while not os.path.exists(port_file) or not open(port_file).read().endswith("\n"):
            time.sleep(0.01)
        self.port = int(open(port_file).read())

    def start_brig(self, folder="data", container=""):
        """Starts a server with a data folder of its own; `container` is what its configuration says there."""
        data = os.path.join(self.dir, folder)
        os.makedirs(os.path.join(data, "images"), 0o700)
        os.chmod(self.dir, 0o711)
        os.chmod(data, 0o711)
        os.link(self.args.image, os.path.join(data, "images", "base.erofs")) if os.stat(self.args.image).st_dev == \
            os.stat(data).st_dev else shutil.copy(self.args.image, os.path.join(data, "images", "base.erofs"))
        config = os.path.join(self.dir, "brig.yaml")
        with open(config, "w") as f:
            f.write("providers:\n")
            for name in ("text", "idle", "loop"):
                f.write(f"  - name: {name}\n    dialect: openai-chat\n"
                        f"    base_url: http://127.0.0.1:{self.port}/{name}/v1\n")
            f.write("limits:\n  connections: 16384\n")
            f.write(f"container: {{{container}}}\n")
        self.log = open(os.path.join(self.dir, folder + ".log"), "w")
        self.brig = self.spawn(os.path.join(self.args.build, "brig"), "serve", "--config", config, "--data", data,
                               "--listen", "127.0.0.1:0", stdout=subprocess.PIPE, stderr=self.log, text=True)
        line = self.brig.stdout.readline()
        if not line.startswith("ready http://"):
            sys.exit("brig did not start: " + open(self.log.name).read())
        self.host, self.brig_port = line.split("//")[1].strip().split(":")
        self.key = open(os.path.join(data, "key")).read().strip()
        self.gateway = next(int(p) for p in os.listdir("/proc") if p.isdigit() and self.is_gateway(p))

    def is_gateway(self, pid):
        try:
            return b"brig: gateway" in open(f"/proc/{pid}/cmdline", "rb").read() and \
                int(open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[1]) == self.brig.pid
        except OSError:
            return False

    def stop_brig(self):
        self.brig.send_signal(signal.SIGTERM)
        self.brig.wait(40)
        self.procs.remove(self.brig)

    def stop(self):
        for p in reversed(self.procs):
            if p.poll() is None:
                p.send_signal(signal.SIGTERM)
                try:
                    p.wait(40)
                except subprocess.TimeoutExpired:
                    p.kill()
        shutil.rmtree(self.dir, ignore_errors=True)

    def rss_kib(self, field="VmRSS"):
        return int(re.search(field + r":\s+(\d+)", open(f"/proc/{self.gateway}/status").read()).group(1))

    def http(self, n, method, path, body, *after):
        return self.latency("http", n, self.host, self.brig_port, self.key, method, path, body, *after)

    # ---- what is measured ----

    def sandbox(self):
        n = self.args.rounds
        section("Sandbox (over loopback HTTP, one client)")
        spawn = self.latency("spawn", n, "--", "bash", "-c", "true")
        bwrap = self.latency("spawn", n, "--", "bwrap", "--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev",
                             "bash", "-c", "true")
        body = '{"commands":["true"]}'
        live = self.http(n, "POST", "/v1/containers/bench/exec", body)
        row("`true` in a live container", str(live), f"posix_spawn bash -c true: {spawn}", "p50 2 ms, p99 6 ms")
        row("  ratio of the medians to posix_spawn", f"{live.p50 / spawn.p50:.2f}", "1", "1.5")
        row("  ratio to bwrap", f"{live.p50 / bwrap.p50:.2f}", f"bwrap bash -c true: {bwrap}", "")
        rare = self.latency("spawn", f"{n}:60", "--", "bash", "-c", "true")
        idle = self.http(f"{n}:60", "POST", "/v1/containers/bench/exec", body)
        row("`true` in a live container, every 60 ms", str(idle), f"posix_spawn, every 60 ms: {rare}")
        made = self.http(f"{n}:60", "POST", "/v1/containers/new-%d/exec", body, "DELETE", "/v1/containers/new-%d")
        row("  create one and finish its first command, pool", str(made), f"bwrap: {bwrap}", "p50 3 ms, p99 10 ms")
        self.starts()
        self.stop_brig()
        self.start_brig("cold", "pool: 0")
        cold = self.http(f"{n}:60", "POST", "/v1/containers/new-%d/exec", body, "DELETE", "/v1/containers/new-%d")
        row("  the same with nothing prepared", str(cold), f"bwrap: {bwrap}", "p50 12 ms, p99 40 ms")
        self.starts()
        self.stop_brig()
        self.start_brig("wake", "sleep_after: 20ms")
        self.http(1, "POST", "/v1/containers/bench/exec", body)
        woken = self.http(f"{n}:300", "POST", "/v1/containers/bench/exec", body)
        row("  wake one and finish a command, every 300 ms", str(woken), "", "p50 20 ms")
        self.starts()
        self.stop_brig()
        self.start_brig("again")

    def starts(self):
        """Where the time of this server's starts went, as the supervisor saw it."""
        self.log.flush()
        seen = [json.loads(line) for line in open(self.log.name) if "sandbox_ready" in line]
        if not seen:
            return

        def spread(field):
            v = sorted(x[field] / 1e3 for x in seen)
            return f"{v[len(v) // 2]:.2f} {v[len(v) * 99 // 100]:.2f}"

        row(f"  {sum(x.get('pooled', 0) for x in seen)} of {len(seen)} from the pool; p50 and p99 of steps in ms:",
            f"made {spread('prepare_us')}, bound {spread('claim_us')}, init {spread('init_us')}")

    def wrk(self, port, path, conns, body):
        lua = os.path.join(self.dir, "post.lua")
        with open(lua, "w") as f:
            f.write(f'wrk.method = "POST"\nwrk.body = [==[{body}]==]\n'
                    f'wrk.headers["Content-Type"] = "application/json"\n'
                    f'wrk.headers["Authorization"] = "Bearer {self.key}"\n')
        out = subprocess.run(["wrk", "-t1", f"-c{conns}", f"-d{self.args.seconds}s", "--latency", "-s", lua,
                              f"http://127.0.0.1:{port}{path}"], check=True, stdout=subprocess.PIPE, text=True).stdout
        unit = {"us": 1e-3, "ms": 1.0, "s": 1e3}

        def pct(p):
            m = re.search(rf"^\s+{p}%\s+([\d.]+)(us|ms|s)$", out, re.M)
            return float(m.group(1)) * unit[m.group(2)]

        bad = re.search(r"Non-2xx or 3xx responses: (\d+)", out)
        return {"p50": pct(50), "p99": pct(99), "rps": float(re.search(r"Requests/sec:\s+([\d.]+)", out).group(1)),
                "bad": int(bad.group(1)) if bad else 0}

    def cpu_s(self):
        """Processor time that the gateway has used: what a rate per core is made of, whoever else runs."""
        f = open(f"/proc/{self.gateway}/stat").read().rsplit(")", 1)[1].split()
        return (int(f[11]) + int(f[12])) / os.sysconf("SC_CLK_TCK")

    def gateway_overhead(self):
        section("Gateway (1 KB body, Responses → Chat Completions, upstream answers at once, wrk with one thread)")
        text = "x" * 900
        direct = json.dumps({"model": "m", "messages": [{"role": "user", "content": text}], "stream": True})
        through = json.dumps({"model": "text/m", "input": text})
        for conns in (1, 32, 256):
            d = self.wrk(self.port, "/text/v1/chat/completions", conns, direct)
            cpu = self.cpu_s()
            g = self.wrk(self.brig_port, "/v1/responses", conns, through)
            cpu = self.cpu_s() - cpu
            row(f"{conns} connections", f"p50 {g['p50']:.2f} p99 {g['p99']:.2f} ms, {g['rps']:.0f}/s"
                + (f", {g['bad']} FAILED" if g["bad"] else ""),
                f"direct p50 {d['p50']:.2f} p99 {d['p99']:.2f} ms, {d['rps']:.0f}/s")
            if conns == 32:
                row("  processor time of one request", f"{cpu / (g['rps'] * self.args.seconds) * 1e6:.0f} us",
                    f"{g['rps'] * self.args.seconds / cpu:.0f}/s a core", "10,000/s a core")
            if conns > 1:
                row("  resident memory of the gateway afterwards", f"{self.rss_kib() / 1024:.1f} MB "
                    f"(peak {self.rss_kib('VmHWM') / 1024:.1f})", "", "15 MB" if conns == 32 else "")
            if conns == 1:
                row("  added at one connection", f"p50 +{g['p50'] - d['p50']:.2f} p99 +{g['p99'] - d['p99']:.2f} ms", "",
                    "p50 +0.25, p99 +1 ms at 1,000/s")

    def streams(self):
        n = self.args.streams
        section(f"{n} idle open streams (each with an upstream stream of its own)")
        before = self.rss_kib()
        body = json.dumps({"model": "idle/m", "input": "hi", "stream": True}).encode()
        head = (f"POST /v1/responses HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {self.key}\r\n"
                f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n").encode()
        socks = []
        for i in range(n):
            s = socket.create_connection((self.host, int(self.brig_port)))
            s.sendall(head + body)
            socks.append(s)
            if i % 50 == 49:
                for t in socks[-50:]:
                    t.settimeout(30)
                    data = b""
                    while b"Hello" not in data:
                        data += t.recv(65536)
        after = self.rss_kib()
        row("memory of one idle stream", f"{(after - before) / n:.1f} kB", f"{before / 1024:.1f} MB with none", "20 kB")
        t = time.perf_counter()
        with urllib.request.urlopen(urllib.request.Request(
                f"http://{self.host}:{self.brig_port}/v1/models", headers={"Authorization": f"Bearer {self.key}"})) as r:
            r.read()
        row("  GET /models meanwhile", f"{(time.perf_counter() - t) * 1e3:.2f} ms")
        for s in socks:
            s.close()

    def loop(self):
        section("The loop: last byte of an upstream tool call → first byte of the next upstream request, `true`")
        url = f"http://127.0.0.1:{self.port}/stats"
        urllib.request.urlopen(url).read()
        body = '{"model":"loop/m","input":"hi","session_id":"%s","tools":[{"type":"openrouter:shell"}]}'
        for i in range(max(1, self.args.rounds // 20)):
            req = urllib.request.Request(f"http://{self.host}:{self.brig_port}/v1/responses", (body % "loop").encode(),
                                         {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"})
            answer = json.load(urllib.request.urlopen(req))
            if answer["status"] != "completed":
                sys.exit(f"the loop failed: {answer}")
        us = sorted(int(x) for x in urllib.request.urlopen(url).read().split())
        us = us[: len(us) - 1] if len(us) > 20 else us  # the first one started the container
        row(f"in a live container, n={len(us)}", f"p50 {us[len(us) // 2] / 1e3:.2f} p99 {us[len(us) * 99 // 100] / 1e3:.2f} ms", "",
            "5 ms")


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--build", default=os.path.join(HERE, "..", "build"))
    ap.add_argument("--image", default=os.environ.get("BRIG_TEST_IMAGE", "/var/lib/brig/images/base.erofs"))
    ap.add_argument("--only", action="append", choices=["sandbox", "gateway", "streams", "loop"])
    ap.add_argument("-n", "--rounds", type=int, default=300)
    ap.add_argument("--seconds", type=int, default=5)
    ap.add_argument("--streams", type=int, default=5000)
    args = ap.parse_args()
    only = args.only or ["sandbox", "loop", "gateway", "streams"]
    b = Bench(args)
    with open("/proc/loadavg") as f:
        print(f"{os.cpu_count()} processors, load {f.read().split()[0]}, kernel {os.uname().release}")
    try:
        b.start_upstream()
        b.start_brig()
        if "sandbox" in only:
            b.sandbox()
        if "loop" in only:
            b.loop()
        if "gateway" in only:
            b.gateway_overhead()
        if "streams" in only:
            b.streams()
    finally:
        b.stop()


if __name__ == "__main__":
    main()
