"""What the parts of bench/run.py share: the table, latencies, servers."""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request


def row(what, figure, baseline="", budget=""):
    print(f"{what:<58} {figure:<34} {baseline:<38} {budget}", flush=True)


def section(title):
    print(f"\n{title}\n{'what':<58} {'brig':<34} {'baseline, same run':<38} budget", flush=True)


class Latency:
    """Samples in milliseconds; those of several runs can be added."""

    def __init__(self, ms=()):
        self.ms = sorted(ms)

    def __add__(self, other):
        return Latency(self.ms + other.ms)

    def at(self, percent):
        return self.ms[min(len(self.ms) * percent // 100, len(self.ms) - 1)]

    @property
    def p50(self):
        return self.at(50)

    @property
    def p99(self):
        return self.at(99)

    def __str__(self):
        return f"p50 {self.p50:.2f} p99 {self.p99:.2f} ms" if self.ms else "none"


class Missing(Exception):
    """Something cannot be measured here; the text says why."""


DIALECTS = {"responses": "openai-responses", "messages": "anthropic", "gemini": "gemini", "chat": "openai-chat"}


def providers(port):
    """brig.yaml's providers: each dialect with one piece of text, and with many."""
    out = []
    for kind in ("text", "many"):
        for d, dialect in DIALECTS.items():
            root = f"http://127.0.0.1:{port}/{kind}/v1" + ("beta" if d == "gemini" else "")
            out.append({"name": f"{kind}-{d}", "dialect": dialect, "base_url": root, "api_key": "k"})
    out.append({"name": "paced-chat", "dialect": "openai-chat", "base_url": f"http://127.0.0.1:{port}/paced/v1"})
    return out


class Server:
    """A brig of its own: its data folder, its free port, its configuration (brig.yaml after the providers)."""

    def __init__(self, bench, name, config):
        self.bench, self.name = bench, name
        data = os.path.join(bench.dir, name)
        os.makedirs(os.path.join(data, "images"), 0o700, exist_ok=True)
        os.chmod(data, 0o711)
        image = os.path.join(data, "images", "base.erofs")
        if os.path.exists(image):  # started before, on the same data
            pass
        elif os.stat(bench.args.image).st_dev == os.stat(data).st_dev:
            os.link(bench.args.image, image)
        else:
            shutil.copy(bench.args.image, image)
        file = os.path.join(bench.dir, name + ".yaml")
        with open(file, "w") as f:
            f.write("providers:\n")
            for provider in ("text", "idle", "loop"):
                f.write(f"  - name: {provider}\n    dialect: openai-chat\n"
                        f"    base_url: http://127.0.0.1:{bench.port}/{provider}/v1\n")
            for provider in providers(bench.port):
                f.write(f"  - {json.dumps(provider)}\n")
            f.write("limits:\n  connections: 16384\n" + config)
        self.log = open(os.path.join(bench.dir, name + ".log"), "w")
        self.process = bench.spawn(os.path.join(bench.args.build, "brig"), "serve", "--config", file, "--data", data,
                                   "--listen", "127.0.0.1:0", stdout=subprocess.PIPE, stderr=self.log, text=True)
        line = self.process.stdout.readline()
        if not line.startswith("ready http://"):
            sys.exit("brig did not start: " + open(self.log.name).read())
        self.host, self.port = line.split("//")[1].strip().split(":")
        self.key = open(os.path.join(data, "key")).read().strip()
        self.gateway = next(p for p in self.children() if "brig: gateway" in cmdline(p))
        if "pool: 0" not in config:
            self.wait_for_pool()

    def children(self):
        return [int(p) for p in os.listdir("/proc") if p.isdigit() and parent(p) == self.process.pid]

    def inits(self):
        return [p for p in self.children() if cmdline(p).startswith("brig: init")]

    def wait_for_pool(self):
        """Until the number of sandboxes that wait stands still: as many as there will be."""
        before, end = -1, time.time() + 10
        while time.time() < end:
            now = len(self.inits())
            if now == before and now > 0:
                return
            before = now
            time.sleep(0.3)

    def http(self, n, method, path, body, *after):
        return self.bench.latency("http", n, self.host, self.port, self.key, method, path, body, *after)

    def request(self, method, path, body=None):
        """One request, its answer as JSON."""
        r = urllib.request.Request(f"http://{self.host}:{self.port}{path}", None if body is None else json.dumps(body).encode(),
                                   {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"}, method=method)
        return json.load(urllib.request.urlopen(r))

    def events(self, name):
        self.log.flush()
        return [json.loads(line) for line in open(self.log.name) if f'"{name}"' in line]

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(40)
        self.bench.procs.remove(self.process)


def cmdline(pid):
    try:
        return open(f"/proc/{pid}/cmdline", "rb").read().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def parent(pid):
    try:
        return int(open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[1])
    except (OSError, IndexError):
        return 0


def status_kib(pid, field="VmRSS"):
    return int(re.search(field + r":\s+(\d+)", open(f"/proc/{pid}/status").read()).group(1))


class Bench:
    def __init__(self, args):
        self.args = args
        self.dir = tempfile.mkdtemp(prefix="brig-bench-")
        os.chmod(self.dir, 0o711)
        self.procs, self.mounts = [], []

    def tool(self, name):
        return os.path.join(self.args.build, "bench", name)

    def spawn(self, *argv, **kw):
        p = subprocess.Popen(argv, **kw)
        self.procs.append(p)
        return p

    def latency(self, *argv, before=(), env=None, limit=120):
        """Runs bench_latency, below `before` if given. Raises Missing where it fails."""
        try:
            r = subprocess.run([*before, self.tool("bench_latency"), *map(str, argv)], env=env, timeout=limit,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        except subprocess.TimeoutExpired:
            raise Missing(f"did not end in {limit} s")
        if r.returncode != 0:
            raise Missing(" ".join(r.stderr.split())[-160:] or f"status {r.returncode}")
        return Latency(float(x) / 1e3 for x in r.stdout.split())

    def start_upstream(self):
        port_file = os.path.join(self.dir, "port")
        self.upstream = self.spawn(self.tool("bench_upstream"), port_file)
        while not os.path.exists(port_file) or not open(port_file).read().endswith("\n"):
            time.sleep(0.01)
        self.port = int(open(port_file).read())

    def stop(self):
        for p in reversed(self.procs):
            if p.poll() is None:
                p.send_signal(signal.SIGTERM)
                try:
                    p.wait(40)
                except subprocess.TimeoutExpired:
                    p.kill()
        for m in self.mounts:
            subprocess.run(["umount", "-l", m])
        shutil.rmtree(self.dir, ignore_errors=True)
