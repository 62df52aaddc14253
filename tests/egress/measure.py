#!/usr/bin/python3
"""Measures egress beside a direct connection: throughput, added time to connect, memory of a connection.

    BRIG_BUILD=build tests/egress/measure.py

Both ends are programs of the test in namespaces of its own; figures of one machine compare with each other only.
"""

import os
import socket
import statistics
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from egresstest import Egress, Names, Sandbox, ask, outside, read_response

A = "a.example.com"
GET = b"GET / HTTP/1.1\r\nHost: a.example.com\r\nContent-Length: 0\r\n\r\n"


def serve(listener):
    """In a process of its own: a body without end for each connection."""
    block = bytes(1 << 20)

    def one(sock):
        try:
            while True:
                head = b""
                while not head.endswith(b"\r\n\r\n"):
                    piece = sock.recv(4096)
                    if not piece:
                        return
                    head += piece
                if b"/small" in head:
                    sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
                    continue
                sock.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
                while True:
                    sock.sendall(block)
        except OSError:
            sock.close()
    while True:
        sock, _ = listener.accept()
        threading.Thread(target=one, args=(sock,), daemon=True).start()


def throughput(address, streams, seconds=4):
    total, stop = [0] * streams, time.monotonic() + seconds

    def one(i):
        with socket.create_connection((address, 80)) as s:
            s.sendall(GET)
            room = bytearray(1 << 18)
            while time.monotonic() < stop:
                total[i] += s.recv_into(room)
    threads = [threading.Thread(target=one, args=(i,)) for i in range(streams)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return sum(total) / seconds / 1e6


def first_byte(address, times=200):
    got = []
    for _ in range(times):
        begin = time.perf_counter()
        with socket.create_connection((address, 80)) as s:
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            s.sendall(GET.replace(b"GET /", b"GET /small"))
            s.recv(1000)
        got.append((time.perf_counter() - begin) * 1e6)
    return statistics.median(got)


def in_child(enter, fn):
    """fn's number, from a process of its own."""
    r, w = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        if enter:
            enter()
        os.write(w, repr(fn()).encode())
        os._exit(0)
    os.waitpid(pid, 0)
    value = float(os.read(r, 100))
    os.close(r), os.close(w)
    return value


def resident(pid):
    with open(f"/proc/{pid}/statm") as f:
        return int(f.read().split()[1]) * 4096


def main():
    outside()
    listener = socket.create_server(("0.0.0.0", 80), backlog=512)
    server = os.fork()
    if server == 0:
        serve(listener)
    names = Names()
    names.table[A] = ["93.184.216.34"]
    limits = ("connections=5000", "connections_per_s=100000", "questions_per_s=100000")
    egress, sandbox = Egress("uid=65534", *limits), Sandbox()
    egress.add(sandbox, "allow a.example.com")
    inside = sandbox.run(lambda: ask(A))[1][0]
    for streams in (1, 100):
        direct = in_child(None, lambda: throughput("93.184.216.34", streams))
        through = in_child(sandbox.enter, lambda: throughput(inside, streams))
        print(f"{streams:4} streams: direct {direct:7.0f} MB/s, through egress {through:7.0f} MB/s")
    direct = in_child(None, lambda: first_byte("93.184.216.34"))
    through = in_child(sandbox.enter, lambda: first_byte(inside))
    print(f"connect, request and answer: direct {direct:.0f} us, through egress {through:.0f} us (median, its lookup included)")

    def rest():
        before, held = resident(egress.process.pid), []
        for _ in range(1000):
            s = socket.create_connection((inside, 80))
            s.sendall(GET.replace(b"GET /", b"GET /small"))
            read_response(s.makefile("rb"))
            held.append(s)
        time.sleep(0.5)
        return (resident(egress.process.pid) - before) / 1000
    print(f"a connection at rest: {sandbox.run(rest):.0f} bytes resident")
    print(egress.stop())
    os.kill(server, 9)


if __name__ == "__main__":
    main()
