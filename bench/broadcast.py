"""What broadcast costs a request: turns of four clients, as fast as they go (each makes two spans), on a server with no
destination, with one that takes everything, and with one where nobody listens, in turns, so that all see the same load."""
import os
import re
import socket
import subprocess
import time

from harness import Latency, Server, row, section

BODY = '{"model":"text/m","input":"hi"}'
ROUNDS = 5
CLIENTS = 4


def dead_url():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return "http://127.0.0.1:%d" % s.getsockname()[1]


def receiver(b):
    """A server that takes everything. Its address."""
    p = b.spawn(b.tool("bench_http_server"), "0", stdout=subprocess.PIPE, text=True)
    url = p.stdout.readline().strip()
    return url


def figure(server, name):
    """Of /metrics, all labels together; this machine needs no key."""
    with socket.create_connection((server.host, int(server.port))) as s:
        s.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        text = b"".join(iter(lambda: s.recv(65536), b"")).decode()
    return sum(int(n) for n in re.findall(r"^%s(?:\{[^}]*\})? (\d+)$" % name, text, re.M))


def measure(b):
    section("Broadcast: a short turn, %d at once, while traces of the ones before are sent" % CLIENTS)
    kinds = (("no destination", None), ("a destination that takes everything", receiver(b)), ("a dead one", dead_url()))
    servers, got = [], [Latency() for _ in kinds]
    for i, (_, url) in enumerate(kinds):
        more = "" if url is None else 'broadcast: [{type: otel-collector, name: d, config: {endpoint: "%s"}}]\n' % url
        servers.append(Server(b, "broadcast%d" % i, "sandbox: off # pool: 0\n" + more))
    n = b.args.times * 5
    for _ in range(ROUNDS):
        for i, server in enumerate(servers):
            got[i] += server.http("%d:0:%d" % (n, CLIENTS), "POST", "/v1/responses", BODY)
    for i, (what, _) in enumerate(kinds):
        rate = len(got[i].ms) / (sum(got[i].ms) / 1e3) * CLIENTS
        row("%s, %d turns" % (what, len(got[i].ms)), str(got[i]), "%.0f spans/s" % (2 * rate) if i == 0 else "%s with none, %.0f spans/s" % (got[0], 2 * rate))
    end = time.monotonic() + 60
    done, sent = ("brig_broadcast_waiting", "brig_broadcast_delivered_total")
    while time.monotonic() < end and (figure(servers[1], done) > 0 or figure(servers[1], sent) != figure(servers[2], done)):
        time.sleep(0.2)
    row("delivered; waiting for the dead one", "%d; %d" % (figure(servers[1], "brig_broadcast_delivered_total"),
                                                         figure(servers[2], "brig_broadcast_waiting")))
    row("  the store's file with those", "%.1f MB" % (os.path.getsize(os.path.join(b.dir, "broadcast2", "gateway", "brig.db")) / 1e6),
        "%.1f MB with no destination" % (os.path.getsize(os.path.join(b.dir, "broadcast0", "gateway", "brig.db")) / 1e6))
    for server in servers:
        server.stop()
