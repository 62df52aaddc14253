"""The part `files` of bench/run.py: waking with many files, saving a small change, content up and down, memory of those asleep."""
import json
import os
import socket
import sqlite3
import subprocess
import time

from harness import Latency, Server, row, section, status_kib

TRUE = '{"commands":["true"]}'
SIZE = 256 << 20  # of the file that goes up and down
MANY = r"""
import os
for i in range(%d):
    if i %% 1000 == 0: os.mkdir("d%%d" %% (i // 1000))
    with open("d%%d/f%%d" %% (i // 1000, i), "w") as f: f.write("x" * 100)
"""


def make_files(server, name, n):
    answer = server.request("POST", f"/v1/containers/{name}/exec",
                            {"argv": ["python3", "-c", MANY % n], "timeout_ms": 120000})
    if answer["output"][0]["outcome"] != {"type": "exit", "exit_code": 0}:
        raise RuntimeError(json.dumps(answer)[:300])


def wake(b):
    section("Waking a container (its files only), and a first `true` in it")
    server = Server(b, "wakefiles", "container: {sleep_after: 20ms, pool: 4}\n")
    times = max(10, b.args.times // 8)
    for n in (1, 1000, 100000):
        name = f"files{n}"
        make_files(server, name, n)
        time.sleep(1)
        got = server.http(f"{times}:200", "POST", f"/v1/containers/{name}/exec", TRUE)
        row(f"{n:,} files, n={times}", str(got), "", "p50 20 ms")
    server.stop()


# ---- saving ----

FILE = "d3/f3003"
COMMANDS = {"plain": "echo %d > /tmp/f", "synced": f"echo %d > {FILE}; sync -f .", "change": f"echo %d > {FILE}"}


def cpu_ms(pids):
    """Processor time of these and of the children that they have waited for."""
    total = 0
    for pid in pids:
        f = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
        total += sum(int(x) for x in f[11:15])
    return total * 1000 / os.sysconf("SC_CLK_TCK")


def saving(b):
    section("A command that changes one small file among 10,000, its saving included")
    servers = {}
    for mode in ("image", "blob"):
        servers[mode] = Server(b, "save" + mode, f"container: {{saving: {mode}}}\n")
        make_files(servers[mode], "box", 10000)
    time.sleep(3)  # what changed in the last two seconds before a save goes out again
    got = {("image", "plain"): Latency(), ("image", "synced"): Latency(), ("image", "change"): Latency(),
           ("blob", "change"): Latency()}
    used = 0
    for _ in range(4):  # in turns
        n = max(5, b.args.times // 20)
        for mode, what in got:
            server = servers[mode]
            pids = [server.process.pid, server.gateway]
            before = cpu_ms(pids)
            got[mode, what] += server.http(n, "POST", "/v1/containers/box/exec", json.dumps({"commands": [COMMANDS[what]]}))
            if mode == "blob":
                used += cpu_ms(pids) - before
    plain = got["image", "plain"]
    row("the same, to a file that is not saved (baseline)", str(plain))
    row("saving: image", str(got["image", "change"]), f"+{got['image', 'change'].p50 - plain.p50:.2f} ms", "+5 ms")
    synced = got["image", "synced"]
    row("saving: image, and the command says sync -f (baseline)", str(synced))
    row("saving: blob", str(got["blob", "change"]), f"+{got['blob', 'change'].p50 - synced.p50:.2f} ms to the one that syncs",
        "+30 ms of own work")
    row("  processor time of the gateway and what it waited for, each", f"{used / len(got['blob', 'change'].ms):.1f} ms")
    for server in servers.values():
        server.stop()


# ---- content ----

NGINX = """daemon off; worker_processes 1; pid {dir}/nginx.pid; error_log {dir}/error.log; user root;
events {{ worker_connections 64; }}
http {{ access_log off; sendfile on; client_max_body_size 2g; client_body_temp_path {dir}/body;
  proxy_temp_path {dir}/t1; fastcgi_temp_path {dir}/t2; uwsgi_temp_path {dir}/t3; scgi_temp_path {dir}/t4;
  server {{ listen 127.0.0.1:{port}; root {dir}/www; location / {{ {dav} }} }} }}
"""


def start_nginx(b, port):
    folder = os.path.join(b.dir, "nginx")
    os.makedirs(os.path.join(folder, "www"))
    dav = "dav_methods PUT;" if "http_dav_module" in subprocess.run(
        ["nginx", "-V"], stderr=subprocess.PIPE, text=True, check=True).stderr else ""
    file = os.path.join(folder, "nginx.conf")
    open(file, "w").write(NGINX.format(dir=folder, port=port, dav=dav))
    b.spawn("nginx", "-p", folder, "-c", file)
    time.sleep(1)
    return os.path.join(folder, "www"), bool(dav)


def curl(*argv):
    """Bytes a second of one transfer."""
    out = subprocess.run(["curl", "-sS", "-o", "/dev/null", "-w", "%{http_code} %{time_total}", *argv], check=True,
                         stdout=subprocess.PIPE, text=True).stdout.split()
    if out[0] not in ("200", "201", "204"):
        raise RuntimeError(f"curl: {out}")
    return float(out[1])


def rate(seconds):
    return f"{SIZE / sorted(seconds)[len(seconds) // 2] / 1e6:.0f} MB/s"


def content(b):
    section(f"Content of one file of {SIZE >> 20} MiB over loopback, medians of 5, in turns (curl; page cache warm)")
    # The configuration goes on below `limits`.
    server = Server(b, "content", "  file: 600m\ncontainer: {pool: 1, home: 2g}\n")
    server.request("POST", "/v1/containers/box/exec", json.loads(TRUE))
    big = os.path.join(b.dir, "big")
    with open(big, "wb") as f:
        for _ in range(SIZE >> 20):
            f.write(os.urandom(1 << 20))
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    www, dav = start_nginx(b, port)
    subprocess.run(["cp", big, os.path.join(www, "big")], check=True)
    url = f"http://{server.host}:{server.port}/v1/containers/box/files"
    key = ["-H", f"Authorization: Bearer {server.key}"]
    out = {k: [] for k in ("up", "down", "nginx up", "nginx down", "cp")}
    for _ in range(5):
        out["up"].append(curl(*key, "-F", f"file=@{big};filename=big", url))
        file = server.request("GET", "/v1/containers/box/files")["data"][0]["id"]
        out["down"].append(curl(*key, f"{url}/{file}/content"))
        out["nginx down"].append(curl(f"http://127.0.0.1:{port}/big"))
        if dav:
            out["nginx up"].append(curl("-T", big, f"http://127.0.0.1:{port}/put"))
        t = time.perf_counter()
        subprocess.run(["cp", big, big + ".copy"], check=True)
        out["cp"].append(time.perf_counter() - t)
    row("upload (multipart, into the home's image)", rate(out["up"]),
        f"cp {rate(out['cp'])}, nginx PUT {rate(out['nginx up']) if dav else 'not there'}")
    row("download", rate(out["down"]), f"nginx {rate(out['nginx down'])}")
    row("  most memory of the gateway", f"{status_kib(server.gateway, 'VmHWM') / 1024:.1f} MB")
    server.stop()


# ---- asleep ----

def asleep(b):
    section("Memory of containers that are asleep: growth of supervisor and gateway")
    n, rows = 1000, 100000
    server = Server(b, "asleep", "container: {sleep_after: 20ms, pool: 2, home: 64m}\n")
    for i in range(20):
        server.request("POST", f"/v1/containers/first{i}/exec", json.loads(TRUE))
    time.sleep(2)
    before = status_kib(server.process.pid) + status_kib(server.gateway)
    server.http(n, "POST", "/v1/containers/a%d/exec", TRUE)
    time.sleep(3)
    after = status_kib(server.process.pid) + status_kib(server.gateway)
    row(f"{n:,} real homes, {len(server.inits())} processes left", f"{(after - before) / n:.2f} KiB each", "", "4 KiB, no process")
    server.stop()
    data = os.path.join(b.dir, "asleep", "gateway")
    file = next(os.path.join(data, f) for f in os.listdir(data) if f.endswith(".db"))
    with sqlite3.connect(file) as db:
        columns = [c[1] for c in db.execute("PRAGMA table_info(containers)") if c[1] not in ("id", "name")]
        names = ", ".join(columns)
        db.execute(f"INSERT INTO containers (id, name, {names}) WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c "
                   f"WHERE i < {rows}) SELECT 'row' || i, 'row' || i, {names} FROM c, (SELECT * FROM containers LIMIT 1)")
    db.close()
    server = Server(b, "asleep", "container: {sleep_after: 20ms, pool: 2, home: 64m}\n")
    time.sleep(12)  # a round of the keeper
    for i in range(20):
        server.request("GET", "/v1/containers?limit=100&after=row%d" % (i * 4000 + 1))
        server.request("POST", f"/v1/containers/first{i}/exec", json.loads(TRUE))
    time.sleep(2)
    with_rows = status_kib(server.process.pid) + status_kib(server.gateway)
    row(f"{rows:,} rows and {n:,} homes, started anew and used", f"{(with_rows - before) / (rows + n):.2f} KiB each",
        f"{before / 1024:.1f} → {with_rows / 1024:.1f} MB in all", "4 KiB, no process")
    server.stop()


def measure(b):
    for part in (wake, saving, content, asleep):
        part(b)
