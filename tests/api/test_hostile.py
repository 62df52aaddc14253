"""What hostile clients, hostile upstreams and killed processes did to the server once, and no longer do."""
import os
import signal
import time

from brigtest import KEYS, Reader, connect, wait_for


def bare(server, method, path, body=b"", key="one"):
    """A whole request as bytes."""
    head = "%s /v1%s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n" % (method, path, KEYS[key])
    if body or method == "POST":
        head += "Content-Type: application/json\r\nContent-Length: %d\r\n" % len(body)
    return head.encode() + b"\r\n" + body


def reset(sock):
    import socket
    import struct
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def test_a_client_that_resets_before_it_is_accepted_is_gone(server, client):
    """Its request and its reset are told in one event; the request was read, the reset never noticed."""
    client.run("early-reset", "true")
    (gateway,) = server.gateways()
    os.kill(gateway, signal.SIGSTOP)
    try:
        for _ in range(4):
            sock = connect(server)
            sock.sendall(bare(server, "POST", "/containers/early-reset/exec", b'{"commands":["sleep 96001"]}'))
            reset(sock)
    finally:
        os.kill(gateway, signal.SIGCONT)
    assert client.get("/containers/early-reset").status == 200
    time.sleep(0.3)
    wait_for(lambda: not server.guests("sleep 96001"), 2, message="a command runs for a client that has gone")


def test_many_lists_at_once_do_not_end_the_gateway(server, client):
    """A list asks the supervisor about every row: more answers than its socket holds made it end the gateway."""
    before = server.gateways()
    for i in range(100):
        assert client.post("/containers", {"name": "row-%d" % i}).status == 200
    request = bare(server, "GET", "/containers?limit=100")
    socks = [connect(server) for _ in range(200)]
    for sock in socks:
        sock.sendall(request * 2)
    for sock in socks:
        reader = Reader(sock)
        for _ in range(2):
            answer = reader.answer()
            assert answer.status == 200 and len(answer.json["data"]) == 100
        sock.close()
    assert server.gateways() == before, "a gateway was ended"
