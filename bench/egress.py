"""Egress beside a direct connection and nginx's stream proxy: throughput, time to connect, memory, the check of a policy.

Everything happens in a child, which moves into a network namespace of its own (tests/egress/egresstest.py): there
"the internet" is one server of ours, and a second namespace is the container's. All three ways use the same client and
server; nginx has one worker, as egress has one thread. Ways take turns, so that what else the machine does meets all.
"""
import os
import re
import socket
import ssl
import statistics
import subprocess
import sys
import threading
import time

from harness import Missing, row, section

A, PUBLIC = "a.example.com", "93.184.216.34"
GET = b"GET / HTTP/1.1\r\nHost: a.example.com\r\nContent-Length: 0\r\n\r\n"
SMALL = GET.replace(b"GET /", b"GET /small")
ROUNDS, SECONDS, HELD = 3, 2, 1000
NGINX = """daemon off; worker_processes 1; pid {dir}/stream.pid; error_log {dir}/stream.log; user root;
load_module {module};
events {{ worker_connections 4096; }}
stream {{ server {{ listen 127.0.0.1:8080 backlog=511; proxy_pass {to}:80; tcp_nodelay on; }}
  server {{ listen 127.0.0.1:8081 backlog=511; proxy_pass {to}:80; proxy_buffer_size 64k; }} }}
"""
MODULE = "/usr/lib/nginx/modules/ngx_stream_module.so"


def hello():
    """A real client's first message, for a name."""
    out = ssl.MemoryBIO()
    tls = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), out, server_hostname=A)
    try:
        tls.do_handshake()
    except ssl.SSLWantReadError:
        return out.read()
    raise RuntimeError("no hello")


def serve(listeners):
    """In a process of its own: bytes without end for each connection, or two of them for /small."""
    block = bytes(1 << 20)

    def one(sock, plain):
        try:
            while True:
                head = sock.recv(65536)
                if not head:
                    return
                if b"/small" in head:
                    sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
                    continue
                sock.sendall(b"HTTP/1.1 200 OK\r\n\r\n" if plain else b"\x17\x03\x03\x40\x00")
                while True:
                    sock.sendall(block)
        except OSError:
            sock.close()

    def accept(listener):
        plain = listener.getsockname()[1] == 80
        while True:
            sock, _ = listener.accept()
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=one, args=(sock, plain), daemon=True).start()
    for listener in listeners[1:]:
        threading.Thread(target=accept, args=(listener,), daemon=True).start()
    accept(listeners[0])


class Way:
    """Where a client connects to, and from which namespace."""

    def __init__(self, name, address, port, enter=None, first=GET):
        self.name, self.to, self.enter, self.first = name, (address, port), enter, first
        self.rates, self.times = {}, []

    def within(self, fn):
        """fn's number, from a process of its own."""
        r, w = os.pipe2(os.O_CLOEXEC)
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                if self.enter:
                    self.enter()
                os.write(w, repr(fn()).encode())
                status = 0
            except Exception as e:
                print(f"{self.name}: {e!r}", file=sys.stderr, flush=True)
            finally:
                os._exit(status)
        os.close(w)
        text = os.read(r, 100)
        os.close(r)
        if os.waitpid(pid, 0)[1] or not text:
            raise Missing(f"{self.name} could not be measured")
        return float(text)

    def throughput(self, streams):
        """MB/s over all streams, from when each has begun."""
        total, begun = [0] * streams, threading.Barrier(streams)

        def one(i):
            with socket.create_connection(self.to) as s:
                s.sendall(self.first)
                room = bytearray(1 << 18)
                s.recv(1)
                begun.wait(60)
                stop = time.monotonic() + SECONDS
                while time.monotonic() < stop:
                    n = s.recv_into(room)
                    if n == 0:
                        return
                    total[i] += n
        threads = [threading.Thread(target=one, args=(i,)) for i in range(streams)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        if begun.broken or min(total) == 0:
            raise Missing(f"{self.name}: a stream brought nothing")
        return sum(total) / SECONDS / 1e6

    def first_byte(self):
        """Microseconds from connecting to a small answer: the median of 100."""
        got = []
        for _ in range(100):
            begin = time.perf_counter()
            with socket.create_connection(self.to) as s:
                s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                s.sendall(SMALL)
                s.recv(1000)
            got.append((time.perf_counter() - begin) * 1e6)
        return statistics.median(got)

    def held(self, pid):
        """Bytes resident of the process a connection at rest, of HELD."""
        def fn():
            before, kept = resident(pid), []
            for _ in range(HELD):
                s = socket.create_connection(self.to)
                s.sendall(SMALL)
                s.recv(1000)
                kept.append(s)
            time.sleep(0.5)
            return (resident(pid) - before) / HELD
        return self.within(fn)


def resident(pid):
    with open(f"/proc/{pid}/statm") as f:
        return int(f.read().split()[1]) * 4096


def start_nginx(b):
    if not os.path.exists(MODULE):
        raise Missing("nginx's stream module is not installed (libnginx-mod-stream)")
    file = os.path.join(b.dir, "stream.conf")
    with open(file, "w") as f:
        f.write(NGINX.format(dir=b.dir, module=MODULE, to=PUBLIC))
    process = subprocess.Popen(["nginx", "-p", b.dir, "-c", file], stderr=subprocess.DEVNULL)
    time.sleep(1)
    with open(f"/proc/{process.pid}/task/{process.pid}/children") as f:
        children = f.read().split()
    if len(children) != 1:
        raise Missing("nginx did not start")
    return process, int(children[0])


def streams(ways, baseline):
    for n in (1, 100):
        for _ in range(ROUNDS):
            for way in ways:
                way.rates.setdefault(n, []).append(way.within(lambda w=way: w.throughput(n)))
    for n in (1, 100):
        direct = statistics.median(baseline.rates[n])
        for way in ways:
            rate = statistics.median(way.rates[n])
            what = f"{n} stream{'s' * (n > 1)}, {way.name}"
            row(what, f"{rate:.0f} MB/s", "" if way is baseline else f"direct {direct:.0f} MB/s: {rate / direct:.2f} of it")


def connects(ways, baseline):
    for _ in range(ROUNDS):
        for way in ways:
            way.times.append(way.within(way.first_byte))
    direct = statistics.median(baseline.times)
    for way in ways:
        time_us = statistics.median(way.times)
        row(f"connect, small request, answer: {way.name}", f"{time_us:.0f} us",
            "" if way is baseline else f"direct {direct:.0f}: {time_us - direct:+.0f} us")


def policies(b):
    out = subprocess.run([os.path.join(b.args.build, "tests/egress/egress_bench_policy")], check=True, capture_output=True,
                         text=True).stdout
    for line in out.splitlines():
        what, cost = re.match(r"(.*?)\s+([\d.]+) us", line).groups()
        row(f"a name against 50 patterns that do not fit: {what}", f"{cost} us")


def run(b):
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "egress"))
    os.environ["BRIG_BUILD"] = b.args.build
    import egresstest
    egresstest.outside()
    listeners = [socket.create_server(("0.0.0.0", port), backlog=512) for port in (80, 443)]
    server = os.fork()
    if server == 0:
        serve(listeners)
    names = egresstest.Names()
    names.table[A] = [PUBLIC]
    limits = ("connections=4096", "connections_per_s=100000", "questions_per_s=100000")
    egress, sandbox, nginx = egresstest.Egress("uid=65534", *limits), egresstest.Sandbox(), None
    try:
        egress.add(sandbox, "allow " + A)
        inside = sandbox.run(lambda: egresstest.ask(A))[1][0]
        direct = Way("direct", PUBLIC, 80)
        ways = [direct, Way("egress, HTTP", inside, 80, sandbox.enter), Way("egress, TLS", inside, 443, sandbox.enter, hello())]
        try:
            nginx, worker = start_nginx(b)
            ways += [Way("nginx stream (16 KiB)", "127.0.0.1", 8080), Way("nginx stream, 64 KiB", "127.0.0.1", 8081)]
        except Missing as e:
            row("nginx stream", f"not measured: {e}")
        streams(ways, direct)
        plain = [w for w in ways if w.name != "egress, TLS"]
        connects(plain, direct)
        row(f"a connection at rest, resident, n={HELD}: egress", f"{plain[1].held(egress.process.pid):.0f} bytes")
        if nginx:
            row(f"a connection at rest, resident, n={HELD}: nginx stream", f"{plain[2].held(worker):.0f} bytes")
        policies(b)
    finally:
        egress.stop()
        os.kill(server, 9)
        if nginx:
            nginx.terminate()
            nginx.wait()


def measure(b):
    section(f"Egress ({ROUNDS} turns of {SECONDS} s each way, medians; both ends are the same programs)")
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            run(b)
            status = 0
        except Exception as e:
            print(f"egress: {e!r}", file=sys.stderr)
        finally:
            sys.stdout.flush()
            os._exit(status)
    if os.waitpid(pid, 0)[1]:
        sys.exit("egress could not be measured")
