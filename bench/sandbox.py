"""What a sandbox costs, beside bare processes and the container runtimes of Debian.

Baseline and subject take turns: each is measured in ROUNDS pieces, so that what else the machine does meets all of
them. The runtimes run `true` from the same base image with their own defaults; brig runs it through bash, as it runs
everything, over loopback HTTP.
"""
import base64
import glob
import http.client
import json
import os
import re
import signal
import subprocess
import time

from harness import Latency, Missing, Server, cmdline, parent, row, section, status_kib

ROUNDS = 4
TRUE = '{"commands":["true"]}'
# What a command in a container has; the bare shells get the same.
ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "USER": "root",
               "LANG": "C.UTF-8", "TERM": "dumb"}
# crun refuses a hybrid host, unless it does not see the v2 tree: in a mount namespace of its own.
WITHOUT_V2 = ["unshare", "-m", "sh", "-c", "! mountpoint -q /sys/fs/cgroup/unified || umount /sys/fs/cgroup/unified; "
              'exec "$@"', "sh"]


# ---- subjects: name → what takes one piece of its samples ----

def bundle(b, runtime, root):
    """A folder with the runtime's own default configuration, changed to run `true`."""
    path = os.path.join(b.dir, runtime)
    os.makedirs(path)
    subprocess.run([runtime, "spec"], cwd=path, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    file = os.path.join(path, "config.json")
    c = json.load(open(file))
    c["process"].update(terminal=False, args=["true"])
    c["root"] = {"path": root, "readonly": True}
    json.dump(c, open(file, "w"))
    return path


def mount_image(b):
    root = os.path.join(b.dir, "root")
    os.makedirs(root)
    subprocess.run(["mount", "-t", "erofs", "-o", "ro,loop", b.args.image, root], check=True)
    b.mounts.append(root)
    return root


def programs(b):
    """The bare shells and the other runtimes. Each: (name, function of N:MS:K, the most at once × rounds)."""
    root = mount_image(b)

    def program(*argv, before=(), env=None, limit=120):
        return lambda n: b.latency("spawn", n, "--", *argv, before=before, env=env, limit=limit)

    out = [("posix_spawn sh -c true", program("sh", "-c", "true", env=ENVIRONMENT)),
           ("posix_spawn bash -c true", program("bash", "-c", "true", env=ENVIRONMENT)),
           ("bwrap true", program("bwrap", "--unshare-all", "--ro-bind", root, "/", "--proc", "/proc", "--dev", "/dev",
                                  "true", env=ENVIRONMENT))]
    for runtime, argv, before in (
            ("crun", ["crun", "run", "-b"], WITHOUT_V2),
            ("runc", ["runc", "run", "-b"], ()),
            ("runsc", ["runsc", "--platform=ptrace", "--network=none", "run", "-bundle"], ())):
        name = f"{runtime} true" + (" (ptrace)" if runtime == "runsc" else "")
        try:
            path = bundle(b, runtime, root)
        except (OSError, subprocess.CalledProcessError) as e:
            out.append((name, missing(str(e))))
            continue
        out.append((name, program(*argv, path, f"{os.path.basename(b.dir)}-%d", before=before, env=ENVIRONMENT)))
    out.append(("runsc true (kvm)", runsc_kvm(b) if os.path.exists("/dev/kvm") else missing("no /dev/kvm")))
    return out


def missing(why):
    def take(n):
        raise Missing(why)
    return take


def runsc_kvm(b):
    """One try decides: where kvm is there and of no use, it hangs."""
    path = os.path.join(b.dir, "runsc")
    name = os.path.basename(b.dir) + "-kvm"
    argv = ["runsc", "--platform=kvm", "--network=none", "run", "-bundle", path, name]
    try:
        r = subprocess.run(argv, timeout=5, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                           stderr=subprocess.PIPE, text=True)
    except subprocess.TimeoutExpired:
        for verb in (["kill", name, "KILL"], ["delete", "-force", name]):
            subprocess.run(["runsc", *verb], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=20)
        for group in glob.glob(f"/sys/fs/cgroup/*/{name}"):  # it leaves them
            try:
                os.rmdir(group)
            except OSError:
                pass
        return missing("/dev/kvm is there, but `true` does not end in 5 s")
    except OSError as e:
        return missing(str(e))
    if r.returncode:
        return missing(" ".join(r.stderr.split())[-120:])
    return lambda n: b.latency("spawn", n, "--", *argv[:-1], name + "%d", env=ENVIRONMENT)


def live(server):
    return lambda n: server.http(n, "POST", "/v1/containers/live%w/exec", TRUE)


def fresh(server):
    """Names that no other piece has had."""
    count = [0]

    def take(n):
        count[0] += 1
        name = f"/v1/containers/n{count[0]}x%d"
        return server.http(n, "POST", name + "/exec", TRUE, "DELETE", name)
    return take


def take_turns(subjects, times, pause_ms=0):
    """Samples of each, in pieces; {name: Latency or the text of what is missing}."""
    out = {}
    for _ in range(ROUNDS):
        for name, take in subjects:
            if isinstance(out.get(name), str):
                continue
            try:
                out[name] = out.get(name, Latency()) + take(f"{-(-times // ROUNDS)}:{pause_ms}")
            except Missing as e:
                out[name] = str(e)
    return out


# ---- parts ----

def show(got, name, budget="", baseline=""):
    figure = got[name]
    row(name, f"not measured: {figure}" if isinstance(figure, str) else str(figure), baseline, budget)


def one_at_a_time(b, programs, warm, cold):
    n = b.args.times
    section(f"`true`, one at a time, {n} times each, in {ROUNDS} turns")
    got = take_turns(programs + [("brig, live container", live(warm))], n)
    bare = got["posix_spawn bash -c true"]
    for name, _ in programs:
        show(got, name)
    show(got, "brig, live container", "p50 2, p99 6 ms", f"posix_spawn of bash: {bare}")
    mine = got["brig, live container"]
    row("  ratio of the medians to posix_spawn of bash", f"{mine.p50 / bare.p50:.2f}", "1", "1.5")
    got = take_turns([("posix_spawn bash -c true, every 60 ms", dict(programs)["posix_spawn bash -c true"]),
                      ("brig, live container, every 60 ms", live(warm)),
                      ("brig, create and first command, from the pool", fresh(warm)),
                      ("brig, create and first command, nothing prepared", fresh(cold))], n, 60)
    budgets = {"brig, create and first command, from the pool": "p50 3, p99 10 ms",
               "brig, create and first command, nothing prepared": "p50 12, p99 40 ms"}
    for name in got:
        show(got, name, budgets.get(name, ""))
        if "pool" in name:
            starts(warm)
        if "nothing" in name:
            starts(cold)


def starts(server):
    """Where the time of this server's starts went, as the supervisor saw it."""
    seen = server.events("sandbox_ready")
    if not seen:
        return

    def spread(field):
        s = Latency(x[field] / 1e3 for x in seen)
        return f"{s.p50:.2f} {s.p99:.2f}"

    row(f"  {sum(x.get('pooled', 0) for x in seen)} of {len(seen)} from the pool; p50 and p99 of steps in ms:",
        f"made {spread('prepare_us')}, bound {spread('claim_us')}, init {spread('init_us')}")


def at_once(b, programs):
    """Bursts: all begin together; what one waits for the others counts."""
    small = "container: {memory: 128m, home: 128m, scratch: 128m, live: 260, pool: %d}\n"
    warm, cold = Server(b, "burst", small % 64), Server(b, "burstcold", small % 0)
    subjects = programs + [("brig, live containers, one each", live(warm)),
                           ("brig, create and first command, from the pool of 64", fresh(warm)),
                           ("brig, create and first command, nothing prepared", fresh(cold))]
    for k in (8, 64):
        section(f"`true`, {k} at once (each time from the common beginning to its own end)")
        for name, take in subjects:
            n = k if "runsc" in name and k > 8 else b.args.times
            pause = 2000 if "pool of" in name and k > 8 else 300 if "brig, create" in name else 0
            try:
                before = len(warm.events("sandbox_ready"))
                got = take(f"{n}:{pause}:{k}")
                pooled = [x.get("pooled", 0) for x in warm.events("sandbox_ready")[before:]]
                row(name, str(got), f"{sum(pooled)} of {len(pooled)} from the pool" if "pool of" in name else
                    f"n={len(got.ms)}" if n < b.args.times else "")
            except Missing as e:
                row(name, f"not measured: {e}")
    warm.stop()
    cold.stop()


# ---- memory ----

def meminfo():
    return {k: int(v) for k, v in re.findall(r"^(\w+):\s+(\d+)", open("/proc/meminfo").read(), re.M)}


def rollup(pid, field):
    return int(re.search(rf"^{field}:\s+(\d+)", open(f"/proc/{pid}/smaps_rollup").read(), re.M).group(1))


def group_kib(pid):
    """What the memory group of the container counts, kernel memory too; None where it cannot be told."""
    for line in open(f"/proc/{pid}/cgroup"):
        _, kinds, path = line.strip().split(":", 2)
        top, file = ("/sys/fs/cgroup/memory", "memory.usage_in_bytes") if kinds == "memory" else \
            ("/sys/fs/cgroup", "memory.current")
        # init may be in a group of its own below the container's.
        for folder in (os.path.dirname(path), path):
            full = os.path.join(top, folder.lstrip("/"), file)
            if (kinds in ("memory", "")) and "/c" in folder and os.path.exists(full):
                return int(open(full).read()) / 1024
    return None


def idle_memory(b, n=100):
    section(f"Memory of {n} live idle containers (each has run `true`), and of the same asleep")
    server = Server(b, "idle", "container: {memory: 128m, home: 128m, scratch: 128m, live: 200, pool: 0, sleep_after: 20s}\n")
    server.http(1, "POST", "/v1/containers/first/exec", TRUE, "DELETE", "/v1/containers/first")
    supervisor = server.process.pid
    time.sleep(1)
    own = {p: status_kib(p) for p in (supervisor, server.gateway)}
    before = meminfo()
    for i in range(n):
        server.request("POST", f"/v1/containers/idle{i}/exec", json.loads(TRUE))
    time.sleep(2)
    after, inits = meminfo(), server.inits()
    each = {k: (after[k] - before[k]) / n for k in ("MemAvailable", "Slab", "SUnreclaim", "KernelStack", "PageTables", "Percpu")}
    row(f"init, resident, n={len(inits)}", f"{sum(status_kib(p) for p in inits) / n:.0f} kB",
        f"of its own (PSS): {sum(rollup(p, 'Pss') for p in inits) / n:.0f} kB")
    row("supervisor and gateway, growth a container", f"{(status_kib(supervisor) - own[supervisor]) / n:.1f} kB, "
        f"{(status_kib(server.gateway) - own[server.gateway]) / n:.1f} kB")
    groups = [g for g in (group_kib(p) for p in inits) if g is not None]
    if groups:
        row("the container's memory group, kernel memory too", f"{sum(groups) / len(groups):.0f} kB")
    row("kernel, growth a container", f"slab {each['Slab']:.0f} ({each['SUnreclaim']:.0f} unreclaimable), per-cpu "
        f"{each['Percpu']:.0f}, stacks {each['KernelStack']:.0f}, page tables {each['PageTables']:.0f} kB")
    row("MemAvailable, loss a container, all together", f"{-each['MemAvailable']:.0f} kB")
    end = time.time() + 60
    while server.inits() and time.time() < end:
        time.sleep(0.5)
    time.sleep(1)
    grown = sum(status_kib(p) - own[p] for p in own) / n
    row(f"asleep, supervisor and gateway; {len(server.inits())} processes left", f"{grown:.1f} kB", "", "no process, 4 KiB")
    server.stop()


# ---- the end of a tree ----

def room_for(n):
    """Refuses to fill the machine's process table or memory."""
    most = min(int(open(f"/proc/sys/kernel/{f}").read()) for f in ("pid_max", "threads-max"))
    have = int(open("/proc/loadavg").read().split()[3].split("/")[1])
    if most - have < n + 2000:
        raise Missing(f"the machine has numbers for {most} processes, and {have} run")
    if meminfo()["MemAvailable"] < n * 200 + (1 << 20):
        raise Missing(f"{meminfo()['MemAvailable'] >> 10} MiB of memory are too few")


def trees_left():
    return sum(cmdline(p).startswith("./tree ") for p in os.listdir("/proc") if p.isdigit())


def bare_end_of_tree(b, n, rounds):
    """What the kernel alone takes: the same tree in a pid namespace, from the kill of its first process on."""
    times = []
    for _ in range(rounds):
        p = subprocess.Popen(["unshare", "--pid", "--fork", "--", b.tool("bench_tree"), str(n)],
                             stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        if p.stdout.readline() != f"{n}\n":
            p.kill()
            raise Missing("it does not grow")
        first = next(int(q) for q in os.listdir("/proc") if q.isdigit() and parent(q) == p.pid)
        start = time.perf_counter()
        os.kill(first, signal.SIGKILL)
        p.wait()
        times.append((time.perf_counter() - start) * 1e3)
    return Latency(times)


def end_of_tree(server, n, rounds, timeout_ms):
    """From the deadline to the answer; afterwards nothing of it may be there."""
    body = json.dumps({"argv": ["./tree", str(n)], "timeout_ms": timeout_ms})
    headers = {"Authorization": f"Bearer {server.key}", "Content-Type": "application/json"}
    conn = http.client.HTTPConnection(server.host, int(server.port), timeout=120)
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        conn.request("POST", "/v1/containers/tree/exec", body, headers)
        answer = json.loads(conn.getresponse().read())
        times.append((time.perf_counter() - start) * 1e3 - timeout_ms)
        time.sleep(n / 10000)  # the dead are counted until init has taken note of each
        output = answer["output"][0]
        if output["outcome"]["type"] != "timeout" or output["stdout"] != f"{n}\n":
            raise Missing(f"{timeout_ms} ms were too few for it to grow: {json.dumps(output)[:120]}")
    left = trees_left()
    if left:
        raise Missing(f"{left} processes are left")
    return Latency(times)


def deadlines(b):
    section("A whole tree gone: from a deadline of T to the answer, which comes after it (the start counts too)")
    code = base64.b64encode(open(b.tool("bench_tree"), "rb").read()).decode()
    for kind in ("auto", "v1"):
        server = Server(b, "tree" + kind, f"cgroups: {kind}\ncontainer: {{memory: 4g, processes: 16384, pool: 1}}\n")
        server.request("POST", "/v1/containers/tree/exec",
                       {"commands": ["base64 -d >tree && chmod +x tree"], "stdin": code})
        names = {"auto": "hybrid or v2" if not os.path.exists("/sys/fs/cgroup/unified") else "hybrid", "v1": "v1"}
        for n, rounds, timeout_ms in ((1, b.args.times // 2, 20), (100, b.args.times // 2, 60), (10000, 3, 4000)):
            name = f"{n:,} processes, {names[kind]}, T = {timeout_ms} ms, n={rounds}"
            try:
                if n > 1000:
                    room_for(n)
                bare = bare_end_of_tree(b, n, min(rounds, 20))
                row(name, str(end_of_tree(server, n, rounds, timeout_ms)), f"bare kill of a pid namespace: {bare}", "50 ms")
            except Missing as e:
                row(name, f"not measured: {e}")
        server.stop()


def measure(b):
    others = programs(b)
    warm, cold = Server(b, "warm", ""), Server(b, "cold", "container: {pool: 0}\n")
    one_at_a_time(b, others, warm, cold)
    warm.stop()
    cold.stop()
    wake(b)
    at_once(b, others)
    idle_memory(b)
    deadlines(b)


def wake(b):
    server = Server(b, "wake", "container: {sleep_after: 20ms}\n")
    server.http(1, "POST", "/v1/containers/live0/exec", TRUE)
    n = max(20, b.args.times // 4)
    row(f"brig, wake one and finish a command, n={n}", str(server.http(f"{n}:200", "POST", "/v1/containers/live0/exec", TRUE)),
        "", "p50 20 ms")
    starts(server)
    server.stop()
