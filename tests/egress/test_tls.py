"""Port 443: the hello's server name is the name that was dialled, in whatever pieces it comes."""

import socket
import ssl
import struct

import pytest

from egresstest import connect, read_all

A = "a.example.com"


def extension(kind, data):
    return struct.pack("!HH", kind, len(data)) + data


def server_name(*names, kind=0):
    entries = b"".join(bytes([kind]) + struct.pack("!H", len(n)) + n for n in names)
    return extension(0, struct.pack("!H", len(entries)) + entries)


def hello(extensions, record=16384, session=b"", extra=b"", version=b"\x03\x03"):
    body = version + b"r" * 32 + bytes([len(session)]) + session + b"\0\x02\x13\x01" + b"\x01\0"
    if extensions is not None:
        body += struct.pack("!H", len(extensions)) + extensions
    message = b"\x01" + struct.pack("!I", len(body))[1:] + body + extra
    pieces = [message[i:i + record] for i in range(0, len(message), record)]
    return b"".join(b"\x16\x03\x01" + struct.pack("!H", len(p)) + p for p in pieces)


def alert_of(data):
    """The description of a fatal alert, or None."""
    data = data.removesuffix(b"<reset>")
    return data[6] if len(data) >= 7 and data[0] == 21 and data[5] == 2 else None


def send(sandbox, data, name=A):
    def talk():
        with connect(name, 443) as s:
            s.sendall(data)
            return read_all(s)
    return sandbox.run(talk)


def handshake(sandbox, world, name=A, sni=None, cut=None, to=None, check=True):
    """A real client's request, its hello in pieces of `cut` bytes; what the server answered."""
    context = ssl.create_default_context(cafile=world.ca)
    if not check:
        context.check_hostname = False

    def talk():
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = context.wrap_bio(incoming, outgoing, server_hostname=sni or name)
        with connect(to or name, 443) as s:
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

            def step(fn):
                while True:
                    try:
                        return fn()
                    except ssl.SSLWantReadError:
                        data = outgoing.read()
                        for i in range(0, len(data), cut or 65536):
                            s.sendall(data[i:i + (cut or 65536)])
                        piece = s.recv(65536)
                        if piece:
                            incoming.write(piece)
                        else:
                            incoming.write_eof()
            step(tls.do_handshake)
            tls.write(f"GET / HTTP/1.1\r\nHost: {sni or name}\r\n\r\n".encode())
            s.sendall(outgoing.read())
            return step(lambda: tls.read(1000))
    return sandbox.run(talk)


@pytest.mark.parametrize("cut", [None, 1, 7])
def test_allowed(clean, egress, sandbox, cut):
    assert handshake(sandbox, clean, cut=cut).endswith(b"hello a.example.com\n")
    record = egress.wait_record(port=443, allowed=True)
    assert record["name"] == A and record["address"] == "93.184.216.34" and record["bytes_in"] > 500


def test_punycode(clean, sandbox):
    assert b"200 OK" in handshake(sandbox, clean, "xn--bcher-kva.example.com")


@pytest.mark.parametrize("sni", ["b.example.com", "deep.a.example.com", "xn--bcher-kva.example.com"])
def test_other_name(clean, egress, sandbox, sni):
    with pytest.raises(ssl.SSLError, match="UNRECOGNIZED_NAME|unrecognized name|ALERT"):
        handshake(sandbox, clean, sni=sni)
    assert not clean.tls.seen
    record = egress.wait_record(port=443, allowed=False)
    assert record["reason"] == "server name" and record["name"] == A and record["address"] == ""


# hello, alert
HELLOS = {
    "no extensions": (hello(None), 49),
    "no server name": (hello(extension(10, b"\0\x02\0\x1d")), 49),
    "two extensions": (hello(server_name(b"a.example.com") + server_name(b"b.example.com")), 49),
    "two extensions, the same": (hello(server_name(b"a.example.com") + server_name(b"a.example.com")), 49),
    "two names": (hello(server_name(b"a.example.com", b"b.example.com")), 49),
    "another kind of name": (hello(server_name(b"a.example.com", kind=1)), 49),
    "empty name": (hello(server_name(b"")), 49),
    "empty list": (hello(extension(0, b"\0\0")), 49),
    "empty extension": (hello(extension(0, b"")), 49),
    "bytes behind the list": (hello(extension(0, server_name(b"a.example.com")[4:] + b"x")), 49),
    "NUL": (hello(server_name(b"a.example.com\0.b.example.com")), 49),
    "NUL at the end": (hello(server_name(b"a.example.com\0")), 49),
    "with a port": (hello(server_name(b"a.example.com:443")), 112),
    "an address": (hello(server_name(b"93.184.216.34")), 112),
    "two dots at the end": (hello(server_name(b"a.example.com..")), 112),
    "dot in front": (hello(server_name(b".a.example.com")), 112),
    "space": (hello(server_name(b"a.example.com ")), 49),
    "longer": (hello(server_name(b"a.example.com.evil.test")), 112),
    "too long": (hello(server_name(b"a" * 300)), 49),
    "a second message in the record": (hello(server_name(b"a.example.com"), extra=b"\x01\0\0\0"), 49),
    "extensions too long": (hello(server_name(b"a.example.com"))[:-1] + b"", None),
    "empty record": (b"\x16\x03\x01\0\0", 49),
    "record too large": (b"\x16\x03\x01\x40\x01" + b"\x01" * 100, 49),
    "another message": (b"\x16\x03\x01\0\x04\x02\0\0\0", 49),
    "another record between": (hello(server_name(b"a.example.com"), record=40)[:45] + b"\x14\x03\x03\0\x01\x01", 49),
    "over 64 KiB": (hello(extension(21, b"\0" * 65000) + server_name(b"a.example.com"), session=b"s" * 200,
                          record=1000) + b"\x16\x03\x01\x04\0", 49),
    "claims 16 MiB": (b"\x16\x03\x01\0\x04\x01\xff\xff\xff", 49),
}


@pytest.mark.parametrize("what", [k for k, v in HELLOS.items() if v[1]])
def test_refused_hellos(clean, egress, sandbox, what):
    data, alert = HELLOS[what]
    answer = send(sandbox, data)
    assert alert_of(answer) == alert, answer
    assert not clean.tls.seen and not clean.names.asked
    assert egress.wait_record(port=443)["allowed"] is False


# What real servers take, so it goes through: the server's own alert or hello comes back, not ours.
@pytest.mark.parametrize("data", [
    hello(server_name(b"A.Example.COM")),
    hello(server_name(b"a.example.com.")),
    hello(server_name(b"a.example.com"), record=1),
    hello(extension(21, b"\0" * 40000) + server_name(b"a.example.com")),
    hello(extension(65037, b"\0" * 200) + server_name(b"a.example.com")),
], ids=["upper case", "trailing dot", "records of one byte", "over 16 KiB", "with an encrypted hello"])
def test_forwarded_hellos(clean, sandbox, data):
    send(sandbox, data + b"\x15\x03\x01\0\x02\x02\x00")
    assert clean.tls.seen == ["93.184.216.34"]


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\nHost: a.example.com\r\n\r\n", b"SSH-2.0-x\r\n", b"\x80\x2e\x01\0\x02",
                                  b"\0", b"\x17\x03\x03\0\x01x"], ids=["HTTP", "SSH", "SSLv2", "NUL", "application data"])
def test_no_tls(clean, egress, sandbox, data):
    assert send(sandbox, data) in (b"", b"<reset>")
    assert not clean.tls.seen
    assert egress.wait_record(port=443)["reason"] == "not TLS"


def test_half_close(clean, sandbox):
    """What one side has said its last of, the other may still answer."""
    def serve(sock):
        data = sock.recv(65536)
        sock.sendall(b"begin ")
        while True:
            piece = sock.recv(65536)
            if not piece:
                break
            data += piece
        sock.sendall(b"got %d" % len(data))
    first = hello(server_name(b"a.example.com"))
    kept, clean.tls.serve, clean.tls.context = clean.tls.serve, serve, None
    try:
        def talk():
            with connect(A, 443) as s:
                s.sendall(first + b"x" * 500000)
                s.shutdown(socket.SHUT_WR)
                return read_all(s)
        assert sandbox.run(talk) == b"begin got %d" % (len(first) + 500000)
    finally:
        clean.tls.serve, clean.tls.context = kept, clean.context


def test_second_hello(clean, sandbox):
    """A server that wants another group asks for another hello; a real client's goes through."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(clean.folder + "/cert.pem", clean.folder + "/key.pem")
    context.set_ecdh_curve("secp384r1")
    kept, clean.tls.context = clean.tls.context, context
    try:
        for cut in (None, 1):
            assert handshake(sandbox, clean, cut=cut).endswith(b"hello a.example.com\n")
    finally:
        clean.tls.context = kept


RETRY = bytes.fromhex("cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c")
CIPHER = b"\x14\x03\x03\0\x01\x01"


@pytest.mark.parametrize("between", [b"", CIPHER, CIPHER + b"\x17\x03\x03\0\x02xy" + b"\x15\x03\x03\0\x02\x01\x5a"],
                         ids=["at once", "after a cipher change", "after early data"])
@pytest.mark.parametrize("wait", [True, False], ids=["waits", "sends ahead"])
@pytest.mark.parametrize("second", [b"b.example.com", None, b"A.example.com"], ids=["other", "none", "same"])
def test_name_of_the_second_hello(clean, egress, sandbox, between, wait, second):
    message = b"\x02\0\0\x28\x03\x03" + RETRY + b"\0\x13\x01\0\0\0"
    answer = b"\x16\x03\x03" + struct.pack("!H", len(message)) + message
    got = []

    def serve(sock):
        got.append(sock.recv(65536))
        sock.sendall(answer)
        while data := sock.recv(65536):
            got.append(data)
    first = hello(server_name(b"a.example.com"))
    again = hello(server_name(second) if second else extension(10, b"\0\x02\0\x1d"))

    def talk():
        with connect(A, 443) as s:
            s.sendall(first if wait else first + between + again)
            back = b""
            while len(back) < len(answer):
                back += s.recv(1000)
            if wait:
                s.sendall(between + again)
            s.shutdown(socket.SHUT_WR)
            return back[len(answer):] + read_all(s)
    kept, clean.tls.serve, clean.tls.context = clean.tls.serve, serve, None
    try:
        back = sandbox.run(talk)
        clean.tls.rest()
    finally:
        clean.tls.serve, clean.tls.context = kept, clean.context
    if second == b"A.example.com":
        assert b"".join(got) == first + between + again
    else:
        # How much of what stands between arrives before the end is a race; of the second hello, nothing.
        assert b"".join(got).startswith(first) and (first + between).startswith(b"".join(got))
        assert alert_of(back) == (112 if second else 49)
        assert egress.wait_record(port=443)["allowed"] is False
