"""Every API on every provider dialect, beside the direct connection and two gateways from npm, in one run.

Peers: @portkey-ai/gateway and @musistudio/llms, at the versions of bench/peers/package.json, on the Node of this
machine. Each is asked for what it can do; what it cannot is not measured.
"""
import json
import os
import shutil
import socket
import subprocess
import time
import urllib.request

from harness import DIALECTS, Latency, Missing, row, section, status_kib

HERE = os.path.dirname(os.path.abspath(__file__))
TEXT = "x" * 900
STREAMS = 1000


def ask(dialect, model, stream):
    """Path and body of a request in a dialect."""
    if dialect == "responses":
        return "/v1/responses", {"model": model, "input": TEXT, "stream": stream, "store": False}
    if dialect == "messages":
        return "/v1/messages", {"model": model, "max_tokens": 100, "stream": stream,
                                "messages": [{"role": "user", "content": TEXT}]}
    if dialect == "gemini":
        method = "streamGenerateContent?alt=sse" if stream else "generateContent"
        return f"/v1beta/models/{model}:{method}", {"contents": [{"role": "user", "parts": [{"text": TEXT}]}]}
    return "/v1/chat/completions", {"model": model, "stream": stream, "messages": [{"role": "user", "content": TEXT}]}


def median(b, host, port, key, path, body, n=None):
    return b.latency("http", n or b.args.times, host, port, key, "POST", path, json.dumps(body)).p50


# ---- peers ----

class Peer:
    def __init__(self, b, name, port, argv, path, body, env=None):
        self.b, self.name, self.port, self.path, self.body = b, name, port, path, body
        self.log = open(os.path.join(b.dir, name.replace("/", "_") + ".log"), "w")
        self.process = b.spawn(*argv, cwd=b.peers, stdout=self.log, stderr=self.log, stdin=subprocess.DEVNULL,
                               env=dict(os.environ, **(env or {})))
        end = time.time() + 20
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                if time.time() > end or self.process.poll() is not None:
                    raise Missing(f"{name} did not start: {open(self.log.name).read()[-200:]}")
                time.sleep(0.1)

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.b.procs.remove(self.process)


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as s:
        return s.getsockname()[1]


def install_peers(b):
    """The two gateways in a folder of the bench's own."""
    b.peers = os.path.join(b.dir, "peers")
    shutil.copytree(os.path.join(HERE, "peers"), b.peers)
    done = subprocess.run(["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"], cwd=b.peers,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise Missing(f"npm ci failed: {done.stdout[-200:]}")


def start_peers(b):
    """Started and asked once: [Peer]."""
    peers = []
    try:
        install_peers(b)
        port = free_port()
        peers.append(Peer(b, "@portkey-ai/gateway, chat → chat", port,
                          ["node", "node_modules/.bin/gateway", "--headless", f"--port={port}"], "/v1/chat/completions",
                          ask("chat", "m", False)[1], {"NODE_ENV": "production"}))
        port = free_port()
        config = {"HOST": "127.0.0.1", "PORT": port, "LOG": False,
                  "providers": [{"name": "fake", "api_base_url": f"http://127.0.0.1:{b.port}/KIND/v1/chat/completions",
                                 "api_key": "k", "models": ["m"]}]}
        for kind in ("text",):
            config["providers"][0]["api_base_url"] = config["providers"][0]["api_base_url"].replace("KIND", kind)
        with open(os.path.join(b.peers, "config.json"), "w") as f:
            json.dump(config, f)
        with open(os.path.join(b.peers, "llms.cjs"), "w") as f:
            f.write("const S = require('@musistudio/llms').default;\n"
                    f"new S({{jsonPath: 'config.json', initialConfig: {json.dumps(config)}, logger: false}}).start();\n")
        peers.append(Peer(b, "@musistudio/llms, messages → chat", port, ["node", "llms.cjs"], "/v1/messages",
                          ask("messages", "fake,m", False)[1]))
    except (Missing, OSError) as e:
        row("a peer is missing", str(e)[:100])
    return peers


def portkey_headers(b, kind):
    return {"x-portkey-provider": "openai", "x-portkey-custom-host": f"http://127.0.0.1:{b.port}/{kind}/v1"}


def wrk(b, port, path, body, conns, headers):
    """Requests per second, median and 99th percentile in ms, of a whole second's worth and more."""
    lua = os.path.join(b.dir, "peer.lua")
    with open(lua, "w") as f:
        f.write(f'wrk.method = "POST"\nwrk.body = [==[{json.dumps(body)}]==]\n')
        for name, value in dict({"Content-Type": "application/json"}, **headers).items():
            f.write(f'wrk.headers["{name}"] = "{value}"\n')
        f.write('done = function(s, l, r)\n io.write(string.format("=%g %g %g %d\\n", s.requests / s.duration * 1e6, '
                'l:percentile(50) / 1e3, l:percentile(99) / 1e3, s.errors.status))\nend\n')
    out = subprocess.run(["wrk", "-t1", f"-c{conns}", f"-d{b.args.seconds}s", "-s", lua,
                          f"http://127.0.0.1:{port}{path}"], check=True, stdout=subprocess.PIPE, text=True).stdout
    rps, p50, p99, bad = out[out.rindex("=") + 1:].split()
    if int(bad):
        return f"{bad} requests FAILED"
    return f"p50 {float(p50):.2f} p99 {float(p99):.2f} ms, {float(rps):.0f}/s"


# ---- what is measured ----

def pairs(b, server):
    section(f"Each API on each provider: added to the direct request, one connection, medians of {b.args.times} (ms)")
    direct = {}
    for d in DIALECTS:
        for kind in ("text", "many"):
            path, body = ask(d, "m", True)
            direct[d, kind] = median(b, "127.0.0.1", b.port, "k", f"/{kind}{path}", body)
    for c in DIALECTS:
        for p in DIALECTS:
            whole = median(b, server.host, server.port, server.key, *ask(c, f"text-{p}/m", False))
            stream = median(b, server.host, server.port, server.key, *ask(c, f"text-{p}/m", True))
            many = median(b, server.host, server.port, server.key, *ask(c, f"many-{p}/m", True))
            event = (many - stream - (direct[p, "many"] - direct[p, "text"])) / 199 * 1e3
            row(f"{c} → {p}", f"whole +{whole - direct[p, 'text']:.3f}, stream +{stream - direct[p, 'text']:.3f}, "
                f"event +{event:.2f} us", f"direct {direct[p, 'text']:.3f}", "+0.25 ms" if c == "responses" else "")
    row("resident memory of the gateway afterwards", f"{status_kib(server.gateway) / 1024:.1f} MB", "", "15 MB")


def peers(b, server):
    section("Beside other gateways: not streamed, upstream answers at once, wrk with one thread")
    running = start_peers(b)
    auth = {"Authorization": f"Bearer {server.key}"}
    headers = dict(portkey_headers(b, "text"), Authorization="Bearer k")
    for conns in (1, 16, 64):
        row(f"direct, {conns} connections", "",
            wrk(b, b.port, "/text/v1/chat/completions", ask("chat", "m", False)[1], conns, {}))
        for c in ("chat", "messages"):
            path, body = ask(c, "text-chat/m", False)
            row(f"  brig, {c} → chat", wrk(b, server.port, path, body, conns, auth))
        for peer in running:
            row(f"  {peer.name}", "", wrk(b, peer.port, peer.path, peer.body, conns, headers))
    row("resident memory afterwards: brig's gateway", f"{status_kib(server.gateway) / 1024:.1f} MB",
        ", ".join(f"{p.name.split(',')[0]} {status_kib(p.process.pid) / 1024:.0f} MB" for p in running))
    return running


def lateness(b, host, port, key, path, body, env=None):
    out = subprocess.run([b.tool("bench_jitter"), str(STREAMS), str(b.args.seconds), host, str(port), key, path,
                          json.dumps(body)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60,
                         env=dict(os.environ, **(env or {})))
    if out.returncode:
        return out.stderr.strip()[-60:]
    late = Latency(float(x) / 1e3 for x in out.stdout.split())
    return f"{late}, {len(late.ms)} pieces"


def chunks(b, server, running):
    section(f"{STREAMS} streams, a piece every 100 ms to each: how late the pieces are")
    path, body = ask("chat", "m", True)
    direct = lateness(b, "127.0.0.1", b.port, "k", "/paced" + path, body)
    for c in DIALECTS:
        path, body = ask(c, "paced-chat/m", True)
        row(f"{c} → chat", lateness(b, server.host, server.port, server.key, path, body), direct if c == "responses" else "")
    for peer in running:
        if "portkey" in peer.name:
            path, body = ask("chat", "m", True)
            extra = f"x-portkey-custom-host: http://127.0.0.1:{b.port}/paced/v1\r\n"
            row(f"  {peer.name}", "", lateness(b, "127.0.0.1", peer.port, "k", path, body, {"JITTER_HEADERS": extra}))
    row("resident memory of the gateway afterwards", f"{status_kib(server.gateway) / 1024:.1f} MB")


def measure(b, server):
    pairs(b, server)
    running = peers(b, server)
    chunks(b, server, running)
    for peer in running:
        peer.stop()
