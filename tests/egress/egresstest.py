"""The egress process alone, between a container's network and an internet, both of the test's own.

The test process itself moves into a network namespace of its own (outside()). There every IPv4 address and many IPv6
ones are local, so that servers of the test are "the internet" and a connection to any address at all would be seen.
Guest makes a second namespace, with the sockets that the supervisor will make in a real container's, and plays the
supervisor. What runs "in the container" runs in a thread or child that entered that namespace.
"""

import array
import contextlib
import ctypes
import fcntl
import json
import os
import random
import select
import socket
import ssl
import struct
import subprocess
import tempfile
import threading
import time

BUILD = os.environ.get("BRIG_BUILD", "build")
PROCESS = os.path.join(BUILD, "tests/egress/egress_process")
CLONE_NEWNET = 0x40000000
libc = ctypes.CDLL(None, use_errno=True)

ADD, REMOVE, SINK, SOURCES, RECORD = 1, 2, 3, 4, 32
HEADER = struct.Struct("=HHI")
RECORD_STRUCT = struct.Struct("=HHIqQQIHHI256s48s32s")
RESOLVER = "198.18.0.1"  # an address that stands for no name


def check(rc, what):
    if rc < 0:
        raise OSError(ctypes.get_errno(), what)


def lo_up():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        fcntl.ioctl(s, 0x8914, struct.pack("16sH14x", b"lo", 1 | 0x40))


def route_local(prefix):
    """ip route add local PREFIX dev lo"""
    net, bits = prefix.split("/")
    family = socket.AF_INET6 if ":" in net else socket.AF_INET
    lo = socket.if_nametoindex("lo")
    attributes = struct.pack("=HHi", 8, 4, lo)
    packed = socket.inet_pton(family, net)
    if int(bits):
        attributes += struct.pack("=HH", 4 + len(packed), 1) + packed
    route = struct.pack("=BBBBBBBBI", family, int(bits), 0, 0, 255, 4, 254 if family == socket.AF_INET else 0, 2, 0)
    length = 16 + len(route) + len(attributes)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as s:
        s.send(struct.pack("=IHHII", length, 24, 0x1 | 0x4 | 0x400, 1, 0) + route + attributes)
        answer = s.recv(4096)
    error = struct.unpack_from("=i", answer, 16)[0]
    if error:
        raise OSError(-error, f"route {prefix}")


def outside():
    """Moves this process, which has one thread still, to the outside."""
    check(libc.unshare(CLONE_NEWNET), "unshare")
    lo_up()
    route_local("0.0.0.0/0")
    for prefix in ("2000::/3", "64:ff9b::/96", "fc00::/7", "fe80::/10"):
        route_local(prefix)


class Thread(threading.Thread):
    """One whose result, or exception, join() gives."""

    def __init__(self, fn):
        super().__init__(daemon=True)
        self.fn, self.result, self.error = fn, None, None

    def run(self):
        try:
            self.result = self.fn()
        except BaseException as e:  # given to who joins
            self.error = e

    def get(self, timeout=120):
        self.join(timeout)
        if self.is_alive():
            raise TimeoutError("still at work")
        if self.error:
            raise self.error
        return self.result


class Names:
    """The name server that egress asks. A name has a list of addresses, or a function from the count of its questions
    to such a list, or ("cname", NAME, addresses). `asked` is every question that came."""

    def __init__(self, address="127.0.0.53"):
        self.table, self.asked, self.counts, self.silent, self.cut = {}, [], {}, set(), set()
        self.mute = set()  # (name, type of question)
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.sock.bind((address, 53))
        threading.Thread(target=self.serve, daemon=True).start()
        self.over_tcp = []  # names
        self.spoil = None  # a function of an answer over TCP: what is sent in its place
        self.listener = socket.create_server((address, 53))
        threading.Thread(target=self.serve_tcp, daemon=True).start()

    def serve_tcp(self):
        while True:
            sock, _ = self.listener.accept()
            with contextlib.suppress(OSError, struct.error), sock, sock.makefile("rb") as f:
                sock.settimeout(20)
                message = f.read(struct.unpack("!H", f.read(2))[0])
                cut, self.cut = self.cut, set()
                answer = self.answer(message)
                self.cut = cut
                self.over_tcp.append(self.asked[-1][0])
                answer = struct.pack("!H", len(answer)) + answer
                for byte in self.spoil(answer) if self.spoil else answer:
                    sock.sendall(bytes([byte]))

    def serve(self):
        while True:
            message, peer = self.sock.recvfrom(4096)
            answer = self.answer(message)
            if answer:
                self.sock.sendto(answer, peer)

    def answer(self, message):
        labels, at = [], 12
        while message[at]:
            labels.append(message[at + 1:at + 1 + message[at]].decode("latin-1"))
            at += 1 + message[at]
        qtype = struct.unpack_from("!H", message, at + 1)[0]
        name = ".".join(labels).lower()
        self.asked.append((name, qtype))
        if name in self.silent or (name, qtype) in self.mute:
            return None
        if name in self.cut:
            return message[:2] + struct.pack("!HHHHH", 0x8380, 1, 0, 0, 0) + message[12:at + 5]
        question = message[12:at + 5]
        value = self.table.get(name)
        if value is None:
            return message[:2] + struct.pack("!HHHHH", 0x8183, 1, 0, 0, 0) + question
        if callable(value):
            key = (name, qtype)
            self.counts[key] = self.counts.get(key, 0) + 1
            value = value(self.counts[key])
        records, owner = [], b"\xc0\x0c"
        if isinstance(value, tuple):
            owner = b"".join(bytes([len(p)]) + p.encode() for p in value[1].split(".")) + b"\0"
            records.append(b"\xc0\x0c" + struct.pack("!HHIH", 5, 1, 1, len(owner)) + owner)
            value = value[2]
        for address in value:
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            if (qtype == 1) == (family == socket.AF_INET) and qtype in (1, 28):
                packed = socket.inet_pton(family, address)
                records.append(owner + struct.pack("!HHIH", qtype, 1, 1, len(packed)) + packed)
        return message[:2] + struct.pack("!HHHHH", 0x8180, 1, len(records), 0, 0) + question + b"".join(records)


class Server:
    """Accepts on every address, both families, and calls serve(sock) in a thread for each connection. `seen` is the
    address that each was made to."""

    def __init__(self, port, serve, context=None):
        self.serve, self.context, self.seen, self.port = serve, context, [], port
        self.threads, self.peers = [], set()
        self.listener = socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=512)
        threading.Thread(target=self.loop, daemon=True).start()

    def loop(self):
        while True:
            sock, peer = self.listener.accept()
            self.seen.append(sock.getsockname()[0].removeprefix("::ffff:"))
            self.threads = [t for t in self.threads if t.is_alive()]
            t = threading.Thread(target=self.one, args=(sock,), daemon=True)
            t.start()
            self.threads.append(t)
            self.peers.add(peer[1])

    def rest(self):
        """Waits until every connection so far was served to its end. One of our own is the last in the queue of those
        that nobody has taken yet."""
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            mine, end = s.getsockname()[1], time.monotonic() + 60
            self.peers.discard(mine)
            s.connect(("127.0.0.1", self.port))
            while mine not in self.peers and time.monotonic() < end:
                time.sleep(0.002)
        for t in list(self.threads):
            t.join(60)

    def one(self, sock):
        with contextlib.suppress(OSError, ValueError, EOFError), contextlib.closing(sock):
            if self.context:
                sock = self.context.wrap_socket(sock, server_side=True)
            self.serve(sock)
            sock.close()


class Sandbox:
    """One container's network namespace, with its five descriptors but the policy."""

    def __init__(self, everything=False):
        t = Thread(lambda: self.make(everything))
        t.start()
        t.get()

    def make(self, everything):
        check(libc.unshare(CLONE_NEWNET), "unshare")
        lo_up()
        route_local("0.0.0.0/0" if everything else "198.18.0.0/15")
        with open("/proc/sys/net/ipv4/ip_unprivileged_port_start", "w") as f:
            f.write("0")
        self.ns = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        self.sockets = []
        for kind, port in ((socket.SOCK_DGRAM, 53), (socket.SOCK_STREAM, 53), (socket.SOCK_STREAM, 80),
                           (socket.SOCK_STREAM, 443)):
            s = socket.socket(socket.AF_INET, kind)
            s.bind(("0.0.0.0", port))
            if kind == socket.SOCK_STREAM:
                s.listen(128)
            self.sockets.append(s)

    def enter(self):
        check(libc.setns(self.ns, CLONE_NEWNET), "setns")

    def run(self, fn, timeout=120):
        """fn's result, run inside."""
        def inside():
            self.enter()
            return fn()
        t = Thread(inside)
        t.start()
        return t.get(timeout)

    def command(self, argv, timeout=60, **kwargs):
        """A program run inside, with a resolv.conf and a view of the test's certificate authority."""
        def inside():
            self.enter()
            return subprocess.run(argv, capture_output=True, timeout=timeout, **kwargs)
        t = Thread(inside)
        t.start()
        return t.get(timeout + 30)

    def close(self):
        for s in self.sockets:
            s.close()
        os.close(self.ns)


class Egress:
    """The process, with the supervisor's end of its control socket and one gateway's sink."""

    def __init__(self, *args):
        assert os.access(PROCESS, os.X_OK), f"{PROCESS} is not built; BRIG_BUILD names the build folder"
        self.args = args
        self.made = tempfile.TemporaryDirectory(prefix="egress")
        folder = self.made.name
        os.chmod(folder, 0o755)  # another user reads it
        self.resolv = os.path.join(folder, "resolv.conf")
        self.hosts = os.path.join(folder, "hosts")
        for path, text in ((self.resolv, "nameserver 127.0.0.53\n"), (self.hosts, "127.0.0.1 localhost\n")):
            with open(path, "w") as f:
                f.write(text)
        self.records, self.next_id = [], 1
        self.start()

    def start(self):
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # Whatever number it has here, it is 3 there.
        self.log = tempfile.TemporaryFile()
        shell = f'exec "$0" "$@" 3<&{theirs.fileno()}'
        self.process = subprocess.Popen(["bash", "-c", shell, PROCESS, *self.args],
                                        pass_fds=[theirs.fileno()], stderr=self.log)
        theirs.close()
        self.sources()
        self.sink, gateway = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.send(HEADER.pack(SINK, HEADER.size, 0), [gateway.fileno()])
        gateway.close()

    def sources(self, resolv=None, hosts=None):
        """Gives the process both files as they are, or as they become."""
        for path, text in ((self.resolv, resolv), (self.hosts, hosts)):
            if text is not None:
                with open(path, "w") as f:
                    f.write(text)
        with open(self.resolv) as a, open(self.hosts) as b:
            self.send(HEADER.pack(SOURCES, HEADER.size, 0), [a.fileno(), b.fileno()])

    def send(self, message, fds=()):
        self.control.sendmsg([message], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else [])

    def add(self, sandbox, *lines, label="ws/container"):
        self.next_id += 1
        sandbox.id, sandbox.lines, sandbox.label = self.next_id, lines, label
        self.add_again(sandbox)

    def add_again(self, sandbox, text=None):
        text = text if text is not None else "".join(f"{x}\n" for x in (f"label {sandbox.label}", *sandbox.lines))
        policy = os.memfd_create("policy", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
        os.write(policy, text.encode())
        fcntl.fcntl(policy, 1033, 0xf)
        self.send(HEADER.pack(ADD, HEADER.size + 8, 0) + struct.pack("=Q", sandbox.id),
                  [policy, *(s.fileno() for s in sandbox.sockets)])
        os.close(policy)

    def remove(self, sandbox):
        self.send(HEADER.pack(REMOVE, HEADER.size + 8, 0) + struct.pack("=Q", sandbox.id))

    def read_records(self, timeout=0.0):
        while select.select([self.sink], [], [], timeout)[0]:
            data = self.sink.recv(65536)
            if not data:
                break
            f = RECORD_STRUCT.unpack_from(data)
            text = [x.split(b"\0")[0].decode() for x in f[10:13]]
            self.records.append({"time": f[3], "bytes_in": f[4], "bytes_out": f[5], "allowed": bool(f[6]),
                                 "port": f[7], "more": f[9], "name": text[0], "address": text[1], "reason": text[2],
                                 "label": data[f[1]:f[1] + f[8]].decode()})
        return self.records

    def wait_record(self, timeout=60, **fields):
        """The first record with these fields, now or soon; it is taken away."""
        end = time.monotonic() + timeout
        while True:
            for record in self.read_records(0.05):
                if all(record[k] == v for k, v in fields.items()):
                    self.records.remove(record)
                    return record
            if time.monotonic() > end:
                raise AssertionError(f"no record {fields} among {self.records}")

    def stop(self):
        self.control.close()
        code = self.process.wait(60)
        self.made.cleanup()
        self.log.seek(0)
        return code, self.log.read().decode()


# ---- what a guest does ----

def question(name, qtype=1, qid=None, flags=0x0100, edns=False):
    labels = b"".join(bytes([len(x)]) + x.encode() for x in name.rstrip(".").split(".")) + b"\0"
    head = struct.pack("!HHHHHH", qid if qid is not None else random.randrange(65536), flags, 1, 0, 0, int(edns))
    return head + labels + struct.pack("!HH", qtype, 1) + (b"\0" + struct.pack("!HHIH", 41, 1232, 0, 0) if edns else b"")


def ask(name, qtype=1, server=RESOLVER, timeout=10, raw=None):
    """(code, [addresses]) over UDP, from the address that was asked."""
    message = raw if raw is not None else question(name, qtype)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(timeout)
        s.connect((server, 53))
        s.send(message)
        return read_answer(s.recv(4096), message)


def read_answer(answer, message):
    qid, flags, questions, answers, _, _ = struct.unpack_from("!HHHHHH", answer)
    assert qid == struct.unpack_from("!H", message)[0] and flags & 0x8000
    if questions:
        assert answer[12:].startswith(message[12:message.index(b"\0", 12) + 5]), "the question comes back as it was"
    addresses = []
    if answers:
        assert answers == 1
        at = 12
        while answer[at]:
            at += 1 + answer[at]
        kind, klass, ttl, size = struct.unpack_from("!HHIH", answer, at + 5 + 2)
        assert (kind, klass, ttl, size) == (1, 1, 5, 4)
        addresses.append(socket.inet_ntoa(answer[at + 17:at + 21]))
    return flags & 15, addresses


def connect(name, port, timeout=30):
    """A socket to what stands for the name, or to the address."""
    try:
        socket.inet_aton(name)
        address = name
    except OSError:
        code, addresses = ask(name)
        assert code == 0 and addresses, (name, code)
        address = addresses[0]
    return socket.create_connection((address, port), timeout)


def read_all(sock):
    """Everything until the end; a reset is told by a last element."""
    data = b""
    try:
        while True:
            piece = sock.recv(65536)
            if not piece:
                return data
            data += piece
    except ConnectionResetError:
        return data + b"<reset>"


def read_response(f):
    """One HTTP answer from a binary file: (status, headers, body)."""
    line = f.readline().decode()
    if not line:
        return None
    headers = {}
    while True:
        field = f.readline().decode().rstrip("\r\n")
        if not field:
            break
        key, _, value = field.partition(":")
        headers[key.lower()] = value.strip()
    body = f.read(int(headers["content-length"])) if "content-length" in headers else b""
    return int(line.split()[1]), headers, body


def http(name, request, port=80):
    """What comes back for these bytes, until the end."""
    with connect(name, port) as s:
        s.sendall(request)
        return read_all(s)


# ---- what the servers outside do ----

class Web:
    """An origin that reads as laxly as some do. Every request is noted: (host, line, body); `fields` are the last one's."""

    def __init__(self):
        self.requests, self.fields = [], {}

    def __call__(self, sock):
        f = sock.makefile("rb")
        while self.request(sock, f):
            pass

    def request(self, sock, f):
        line = f.readline().decode("latin-1").strip()
        if not line:
            return False
        fields = {}
        while True:
            field = f.readline().decode("latin-1").strip()
            if not field:
                break
            key, _, value = field.partition(":")
            fields.setdefault(key.strip().lower(), value.strip())
        method, path = line.split()[:2]
        note = [fields.get("host"), line, b""]
        self.requests.append(note)
        self.fields = fields
        if fields.get("expect"):
            sock.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        if path == "/early":
            sock.sendall(b"HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nno\n")
        note[2] = body = self.body(f, fields)
        if path == "/early":
            return True
        return self.answer(sock, f, method, path, fields, body)

    @staticmethod
    def body(f, fields):
        if fields.get("transfer-encoding", "").lower() == "chunked":
            body = b""
            while True:
                size = int(f.readline().split(b";")[0], 16)
                body += f.read(size)
                while size == 0 and f.readline().strip():
                    pass
                if size == 0:
                    return body
                f.readline()
        return f.read(int(fields.get("content-length", "0").split(",")[0]))

    def answer(self, sock, f, method, path, fields, body):
        head = b"HTTP/1.1 200 OK\r\n"
        if path == "/chunked":
            sock.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n6;x=y\r\nsecond\r\n0\r\nA: b\r\n\r\n")
        elif path == "/chunked-plain":
            sock.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n6\r\nsecond\r\n0\r\n\r\n")
        elif path == "/close":
            sock.sendall(head + b"\r\nuntil the end")
            return False
        elif path.startswith("/big"):
            size = int(path[4:])
            sock.sendall(head + b"Content-Length: %d\r\n\r\n" % size)
            block = bytes(range(256)) * 256
            while size > 0:
                sock.sendall(block[:size])
                size -= len(block)
        elif path == "/silent":
            sock.settimeout(60)
            sock.recv(1)  # until the other side ends
            return False
        elif path == "/empty":
            sock.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")
        elif path == "/unasked":
            sock.sendall(b"HTTP/1.1 101 Switching Protocols\r\n\r\n")
        elif path == "/ws" and fields.get("upgrade"):
            sock.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
            while True:
                data = f.read1(65536)
                if not data:
                    return False
                sock.sendall(data[::-1])
        else:
            text = body or f"hello {fields.get('host')}\n".encode()
            sock.sendall(head + b"Content-Length: %d\r\n\r\n" % len(text) + (text if method != "HEAD" else b""))
        return True


web = Web()
