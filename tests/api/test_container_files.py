"""The files of containers over HTTP: list, get, content, upload, delete; and the files of a tool call's item."""
import base64
import concurrent.futures
import contextlib
import hashlib
import os
import subprocess
import threading
import time
import urllib.parse
import uuid

import pytest

from brigtest import BRIG_SHELL, SHELL, Reader, check_error, connect, items_of, resident, test_image, wait_for
from fake_provider import calls, shell, text

SETTINGS = {"container": {"home": "512m"}, "limits": {"file": "110m"}}
MIB = 1 << 20


@pytest.fixture(scope="module")
def server(servers_1_and_3):
    return servers_1_and_3


def fresh():
    return "c-" + uuid.uuid4().hex[:12]


def file_id(path):
    path = path if isinstance(path, bytes) else path.encode()
    return "cfile_" + base64.urlsafe_b64encode(path).rstrip(b"=").decode()


def files_path(container, path=None, tail=""):
    return "/containers/%s/files" % container + ("" if path is None else "/" + file_id(path) + tail)


def quoted(name):
    name = name if isinstance(name, bytes) else name.encode()
    return name.replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\r", b"%0D").replace(b"\n", b"%0A")


def part(name, data, filename=None):
    head = b'--xyz\r\nContent-Disposition: form-data; name="' + quoted(name) + b'"'
    if filename is not None:
        head += b'; filename="' + quoted(filename) + b'"\r\nContent-Type: application/octet-stream'
    return head + b"\r\n\r\n" + data + b"\r\n"


FORM = {"Content-Type": "multipart/form-data; boundary=xyz"}


def upload(client, container, data, path=None, filename="f.bin", expect=200, before=True):
    """path before the file, or behind it."""
    field = part("path", path if isinstance(path, bytes) else path.encode()) if path is not None else b""
    body = (field if before else b"") + part("file", data, filename) + (b"" if before else field) + b"--xyz--\r\n"
    answer = client.request("POST", client.base + files_path(container), body, headers=FORM)
    assert answer.status == expect, answer
    if expect != 200:
        check_error(answer, client.base)
        return answer
    return answer.json


def content(client, container, path, expect=200, **headers):
    answer = client.get(files_path(container, path, "/content"),
                        headers={k.replace("_", "-"): v for k, v in headers.items()})
    assert answer.status == expect, answer
    return answer


def listing(client, container, limit=None):
    """All pages' files."""
    seen, after = [], ""
    while True:
        page = client.get(files_path(container) + "?" + urllib.parse.urlencode(
            dict({"limit": limit} if limit else {}, **({"after": after} if after else {})))).json
        assert page["object"] == "list"
        assert page["first_id"] == (page["data"][0]["id"] if page["data"] else None)
        assert page["last_id"] == (page["data"][-1]["id"] if page["data"] else None)
        seen += page["data"]
        if not page["has_more"]:
            return seen
        after = page["last_id"]


@pytest.fixture
def box(client):
    """A container with some files, asleep or frozen as it comes."""
    name = fresh()
    client.run(name, "mkdir -p out/deep; echo hello > out/report.csv; printf abc > a; : > out/deep/empty")
    return name


# ---- objects ----

def test_a_file_is_an_object_with_an_id_that_names_its_path(client, box):
    one = client.get(files_path(box, "out/report.csv")).json
    assert one["id"] == "cfile_b3V0L3JlcG9ydC5jc3Y"
    assert set(one) == {"id", "object", "container_id", "bytes", "created_at", "path", "source"}
    assert one["object"] == "container.file" and one["container_id"] == box and one["bytes"] == 6
    assert one["path"] == "out/report.csv" and one["source"] == "assistant"
    assert abs(one["created_at"] - time.time()) < 600
    assert [f["path"] for f in listing(client, box)] == ["a", "out/deep/empty", "out/report.csv"]
    assert content(client, box, "out/report.csv").body == b"hello\n"


def test_under_v1_it_is_the_same(v1, client, box):
    assert v1.get(files_path(box)).json == client.get(files_path(box)).json
    assert content(v1, box, "a").body == b"abc"
    assert v1.get(files_path(box, "none")).error["code"] == "not_found"
    assert client.get(files_path(box, "none")).error["code"] == 404


def test_a_list_is_in_the_order_of_bytes_and_paged(client):
    name = fresh()
    client.run(name, "mkdir d d.x; touch B a d/z d.x/a d-1 '\u00e9' a.b ab")
    want = sorted(["B", "a", "d/z", "d.x/a", "d-1", "\u00e9", "a.b", "ab"], key=str.encode)
    for limit in (None, 1, 3, 1000):
        assert [f["path"] for f in listing(client, name, limit)] == want
    # After a path that is not there.
    page = client.get(files_path(name) + "?after=" + file_id("abx")).json
    assert [f["path"] for f in page["data"]] == [p for p in want if p.encode() > b"abx"]
    assert client.get(files_path(name) + "?after=" + file_id("\u00ff")).json["data"] == []


def test_2500_files_come_in_pages(client):
    name = fresh()
    client.run(name, "mkdir -p x/y; cd x/y; seq -f f%05g 2500 | xargs touch")
    want = ["x/y/f%05d" % i for i in range(1, 2501)]
    first = client.get(files_path(name)).json
    assert len(first["data"]) == 100 and first["has_more"] is True
    assert [f["path"] for f in listing(client, name, 1000)] == want
    assert [f["path"] for f in listing(client, name, 999)] == want


def test_pages_of_long_paths_are_shorter_and_lose_nothing(client):
    name = fresh()
    part_of = "p" * 240
    client.run(name, "mkdir -p %s; cd %s; seq -f %s%%05g 300 | xargs touch" % (
        "/".join([part_of] * 10), "/".join([part_of] * 10), "n" * 200))
    files = listing(client, name, 1000)
    assert len(files) == 300 and len({f["id"] for f in files}) == 300
    assert len(client.get(files_path(name) + "?limit=1000").json["data"]) < 300


@pytest.mark.parametrize("query,param", [("limit=0", "limit"), ("limit=1001", "limit"), ("limit=x", "limit"),
                                         ("order=desc", "order"), ("after=x", "after"), ("after=cfile_", "after"),
                                         ("after=cfile_Li4", "after"), ("after=cfile_YQ%3D%3D", "after")])
def test_queries_that_are_refused(client, box, query, param):
    answer = client.get(files_path(box) + "?" + query)
    assert answer.status == 400 and answer.error["param"] == param
    check_error(answer, client.base)


def test_what_is_no_regular_file_is_not_there(client):
    name = fresh()
    client.run(name, "mkdir d; echo x > d/f; mkfifo p; ln -s d/f l; ln -s /etc/passwd e; ln -s d dl; ln -s . self; "
                     "ln d/f hard; python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"s\")'")
    assert [f["path"] for f in listing(client, name)] == ["d/f", "hard"]
    for path in ("d", "p", "l", "e", "dl/f", "self/d/f", "s", "none", "d/f/x", "../../etc/passwd", "/etc/passwd",
                 "d/../d/f", "./d/f", "d//f", "d/f/", "", "a\0b"):
        for answer in (client.get(files_path(name, path)), client.delete(files_path(name, path)),
                       client.get(files_path(name, path, "/content"))):
            assert answer.status == 404, (path, answer)
            check_error(answer, client.base)
    assert client.run(name, "ls")["stdout"].split() == ["d", "dl", "e", "hard", "l", "p", "s", "self"]


@pytest.mark.parametrize("id", ["cfile_", "cfile_!", "cfile_YQ==", "cfile_YR", "cfile_Y", "file_YQ", "YQ", "cfile_YQ.",
                                "cfile_" + "YWFh" * 1366],
                         ids=lambda i: i[:12])
def test_ids_that_are_none(client, box, id):
    assert client.get("/containers/%s/files/%s" % (box, id)).status == 404


def test_names_in_any_bytes(client):
    name = fresh()
    names = [b"\xff\xfe", b"new\nline", b"\x01\x7f", b'q"uote\\', b"sp ace", "\u00fc\u4e2d".encode(), b"%41", b"-rf",
             b"a" * 255, b"/".join([b"d" * 200] * 20)]
    for i, n in enumerate(names):
        data = b"%d" % i
        made = upload(client, name, data, n) if i else None
        if i == 0:
            client.run(name, "true")
            made = upload(client, name, data, n)
        assert made["id"] == file_id(n) and made["bytes"] == len(data)
        answer = content(client, name, n)
        assert answer.body == data
        assert answer.headers["content-disposition"].startswith('attachment; filename="')
    assert {f["id"] for f in listing(client, name)} == {file_id(n) for n in names}
    for n in names:
        assert client.delete(files_path(name, n)).json["deleted"] is True
    assert listing(client, name) == []


def test_containers_that_are_not_there(server, client):
    mine, theirs = fresh(), fresh()
    client.run(mine, "echo x > f")
    other, far = server.client("two"), server.client("far")
    for path in (files_path(mine), files_path(mine, "f"), files_path(mine, "f", "/content")):
        assert client.get(path).status == 200
        unknown = client.get(path.replace(mine, theirs))
        assert unknown.status == 404
        for stranger in (other, far):
            answer = stranger.get(path)
            assert answer.status == 404 and answer.body == unknown.body
    assert other.delete(files_path(mine, "f")).status == 404
    assert upload(other, mine, b"x", "g", expect=404).body == upload(client, theirs, b"x", "g", expect=404).body
    assert client.get("/containers/" + theirs).status == 404
    assert [f["path"] for f in listing(client, mine)] == ["f"]
    assert client.get("/containers/%s/files" % ("x" * 41)).status == 404


def test_a_deleted_container_has_no_files_and_a_new_one_no_old_ones(client):
    name = fresh()
    client.run(name, "echo x > f")
    assert client.delete("/containers/" + name).status == 200
    assert client.get(files_path(name)).status == 404
    assert upload(client, name, b"y", "g", expect=404)
    client.run(name, "true")
    assert listing(client, name) == []


def test_a_container_that_was_only_created_takes_files(client):
    name = client.post("/containers", {"name": fresh()}).json["id"]
    assert listing(client, name) == []
    assert client.get(files_path(name, "f")).status == 404
    upload(client, name, b"data", "in/f")
    assert client.get("/containers/" + name).json["status"] == "asleep"
    assert client.run(name, "cat in/f; stat -c '%U %a' in/f in")["stdout"] == "dataroot 644\nroot 755\n"


# ---- content ----

@pytest.mark.parametrize("range,want", [
    ("bytes=0-0", (0, 1)), ("bytes=0-9", (0, 10)), ("bytes=5-", (5, 1000)), ("bytes=-1", (999, 1000)),
    ("bytes=-5000", (0, 1000)), ("bytes=990-5000", (990, 1000)), ("BYTES=1-2", (1, 3))])
def test_ranges(client, range, want):
    name = "ranges"
    data = bytes(i % 251 for i in __import__("builtins").range(1000))
    client.run(name, "true")
    upload(client, name, data, "f")
    answer = content(client, name, "f", 206, Range=range)
    assert answer.body == data[want[0]:want[1]]
    assert answer.headers["content-range"] == "bytes %d-%d/1000" % (want[0], want[1] - 1)
    assert answer.headers["etag"] == content(client, name, "f").headers["etag"]


def test_ranges_that_are_none_or_out_of_reach(client, box):
    for range in ("bytes=1-0", "bytes=a-b", "bytes=0-1,2-3", "lines=0-1", "bytes=", "bytes=-", "bytes",
                  "bytes=99999999999999999999-", "bytes=0x1-2"):
        assert content(client, box, "a", 200, Range=range).body == b"abc"
    for range in ("bytes=3-", "bytes=3-9", "bytes=-0"):
        answer = content(client, box, "a", 416, Range=range)
        assert answer.headers["content-range"] == "bytes */3"
        check_error(answer, client.base)
    assert content(client, box, "out/deep/empty", 416, Range="bytes=0-0").headers["content-range"] == "bytes */0"
    assert content(client, box, "out/deep/empty").body == b""


def test_entity_tags(client, box):
    first = content(client, box, "a")
    etag = first.headers["etag"]
    assert etag[0] == etag[-1] == '"' and first.headers["accept-ranges"] == "bytes"
    for match in (etag, "*", 'W/"x", ' + etag, "W/" + etag):
        answer = content(client, box, "a", 304, If_None_Match=match)
        assert answer.body == b"" and answer.headers["etag"] == etag
    assert content(client, box, "a", 200, If_None_Match='"x"').body == b"abc"
    assert content(client, box, "a", 206, If_Range=etag, Range="bytes=1-").body == b"bc"
    assert content(client, box, "a", 200, If_Range="W/" + etag, Range="bytes=1-").body == b"abc"
    for change in ("printf abd > a", "printf abcd > a", "printf abc > b; mv b a"):
        client.run(box, "sleep 0.02; " + change)
        now = content(client, box, "a", 200, If_None_Match=etag)
        assert now.headers["etag"] != etag
        assert content(client, box, "a", 200, If_Range=etag, Range="bytes=0-0").body == now.body
        etag = now.headers["etag"]


def test_headers_of_content_and_head(client, box):
    client.run(box, "echo '<script>' > 'out/\u00fc \"x\".html'")
    answer = content(client, box, 'out/\u00fc "x".html')
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-disposition"] == (
        "attachment; filename=\"__ _x_.html\"; filename*=UTF-8''%C3%BC%20%22x%22.html")
    head = client.request("HEAD", client.base + files_path(box, "a", "/content"))
    assert head.status == 200 and head.headers["content-length"] == "3" and head.body == b""
    head = client.request("HEAD", client.base + files_path(box, "a", "/content"), headers={"Range": "bytes=0-0"})
    assert head.status == 200


def test_every_byte_goes_both_ways(client):
    name = fresh()
    client.run(name, "true")
    data = bytes(range(256)) * 3 + b"\r\n--xyz\r\n"[:-1] + b"\r\n--xy\r\n--xyy--\r\n\r\n"
    data = data.replace(b"\r\n--xyz\r", b"\r\n--xyy\r")
    upload(client, name, data, "all")
    assert content(client, name, "all").body == data
    assert client.run(name, "md5sum < all")["stdout"].split()[0] == hashlib.md5(data).hexdigest()
    made = upload(client, name, b"", "none")
    assert made["bytes"] == 0 and content(client, name, "none").body == b""


class Numbers:
    """A body of a known length that is made as it is sent."""
    block = bytes(os.urandom(64)) * 16384  # 1 MiB

    @classmethod
    def digest(cls, mib):
        h = hashlib.sha256()
        for _ in range(mib):
            h.update(cls.block)
        return h.hexdigest()


def begin_upload(client, container, length, path, filename="big"):
    """Sends the head and the beginning of the body; returns the socket and what ends the body."""
    head = part("path", path.encode()) + part("file", b"", filename)[:-2]
    tail = b"\r\n--xyz--\r\n"
    sock = connect(client.server)
    lines = ["POST %s HTTP/1.1" % (client.base + files_path(container))]
    lines += ["%s: %s" % h for h in client.headers(dict(FORM, **{"Content-Length": len(head) + length + len(tail)})).items()]
    sock.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + head)
    return sock, tail


def test_100_mib_up_and_down_in_flat_memory(server, client):
    name = fresh()
    client.run(name, "true")
    upload(client, name, b"x" * MIB, "warm")
    content(client, name, "warm")
    before = {pid: resident(pid) for pid in server.gateways()}
    most = dict(before)
    stop = threading.Event()

    def watch():
        while not stop.wait(0.02):
            for pid in before:
                most[pid] = max(most[pid], resident(pid))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        sock, tail = begin_upload(client, name, 100 * MIB, "big")
        with contextlib.closing(sock):
            for _ in range(100):
                sock.sendall(Numbers.block)
            sock.sendall(tail)
            answer = Reader(sock).answer()
        assert answer.status == 200 and answer.json["bytes"] == 100 * MIB
        sock = connect(client.server)
        with contextlib.closing(sock):
            lines = ["GET %s HTTP/1.1" % (client.base + files_path(name, "big", "/content"))]
            lines += ["%s: %s" % h for h in client.headers().items()]
            sock.sendall("\r\n".join(lines).encode() + b"\r\n\r\n")
            reader, h = Reader(sock), hashlib.sha256()
            status, headers = reader.head()
            assert status == 200 and headers["content-length"] == str(100 * MIB)
            h.update(reader.buffer)
            left = 100 * MIB - len(reader.buffer)
            while left:
                data = sock.recv(1 << 18)
                assert data
                h.update(data)
                left -= len(data)
    finally:
        stop.set()
        watcher.join()
    assert h.hexdigest() == Numbers.digest(100)
    assert client.run(name, "sha256sum < big", timeout=120)["stdout"].split()[0] == h.hexdigest()
    for pid in before:
        assert most[pid] - before[pid] < 6 * MIB, (before, most)


def test_a_download_waits_for_its_client(server, client):
    name = fresh()
    client.run(name, "head -c 64M /dev/zero > f", timeout=120)
    before = sum(resident(pid) for pid in server.gateways())
    streams = []
    try:
        for _ in range(8):
            sock = connect(client.server, receive_buffer=4096)
            lines = ["GET %s HTTP/1.1" % (client.base + files_path(name, "f", "/content"))]
            lines += ["%s: %s" % h for h in client.headers().items()]
            sock.sendall("\r\n".join(lines).encode() + b"\r\n\r\n")
            reader = Reader(sock)
            assert reader.head()[0] == 200
            streams.append((sock, reader))
        time.sleep(0.5)
        assert sum(resident(pid) for pid in server.gateways()) - before < 16 * MIB
        assert client.get("/models").status == 200
        sock, reader = streams[0]
        left = 64 * MIB - len(reader.buffer)
        while left:
            data = sock.recv(1 << 18)
            assert data and not data.strip(b"\0")
            left -= len(data)
    finally:
        for sock, _ in streams:
            sock.close()


def test_a_file_that_shrinks_ends_the_connection(client):
    name = fresh()
    client.run(name, "head -c 64M /dev/zero > f", timeout=120)
    sock = connect(client.server, receive_buffer=4096)
    with contextlib.closing(sock):
        lines = ["GET %s HTTP/1.1" % (client.base + files_path(name, "f", "/content"))]
        lines += ["%s: %s" % h for h in client.headers().items()]
        sock.sendall("\r\n".join(lines).encode() + b"\r\n\r\n")
        reader = Reader(sock)
        assert reader.head()[0] == 200
        client.run(name, "truncate -s 1M f")
        got = len(reader.buffer)
        with contextlib.suppress(ConnectionResetError):
            while True:
                data = sock.recv(1 << 18)
                if not data:
                    break
                got += len(data)
        assert got < 64 * MIB


def test_a_deleted_container_in_mid_download(server, client):
    name = fresh()
    client.run(name, "head -c 64M /dev/zero > f", timeout=120)
    sock = connect(client.server, receive_buffer=4096)
    with contextlib.closing(sock):
        lines = ["GET %s HTTP/1.1" % (client.base + files_path(name, "f", "/content"))]
        lines += ["%s: %s" % h for h in client.headers().items()]
        sock.sendall("\r\n".join(lines).encode() + b"\r\n\r\n")
        reader = Reader(sock)
        assert reader.head()[0] == 200
        assert client.delete("/containers/" + name).status == 200
        got = len(reader.buffer)
        with contextlib.suppress(ConnectionResetError):
            while got < 64 * MIB:
                data = sock.recv(1 << 18)
                if not data:
                    break
                assert not data.strip(b"\0")
                got += len(data)
    assert client.get(files_path(name)).status == 404
    client.run(name, "true")
    assert listing(client, name) == []


# ---- upload ----

def test_path_may_come_behind_and_defaults_to_the_files_name(client, box):
    assert upload(client, box, b"1", "x/y/z", before=False)["path"] == "x/y/z"
    assert upload(client, box, b"2", filename="named.txt")["path"] == "named.txt"
    assert upload(client, box, b"3", filename="sub/named.txt")["path"] == "sub/named.txt"
    assert client.run(box, "cat x/y/z named.txt sub/named.txt")["stdout"] == "123"


@pytest.mark.parametrize("path", ["", "/", "/abs", "..", "a/..", "../a", "a/../b", ".", "./a", "a/", "a//b", "a\0b",
                                  "p/" * 2047 + "abc", "n" * 256],
                         ids=lambda p: repr(p[:8]))
def test_bad_names(client, box, path):
    answer = upload(client, box, b"x", path, expect=400)
    assert answer.error["param"] == ("path" if len(path) != 256 else None)
    assert len(listing(client, box)) == 3


def test_uploads_that_are_refused(client, box):
    def post(body, headers=FORM):
        answer = client.request("POST", client.base + files_path(box), body, headers=headers)
        check_error(answer, client.base)
        return answer

    assert post(b"{}", {"Content-Type": "text/plain"}).status == 415
    assert post(b"{}", {"Content-Type": "application/jsonx"}).status == 415
    assert post(b"x", {"Content-Type": "multipart/form-data"}).status == 400
    assert post(b"").status == 400
    assert post(part("path", b"x") + b"--xyz--").error["param"] == "file"
    assert post(part("file", b"x", "") + b"--xyz--").error["param"] == "path"
    assert post(part("file", b"x", "a") * 2 + b"--xyz--").error["param"] == "file"
    assert post(part("path", b"a") * 2 + part("file", b"x", "a") + b"--xyz--").error["param"] == "path"
    assert post(part("other", b"x") + part("file", b"x", "a") + b"--xyz--").error["param"] == "other"
    assert post(part("file", b"x", "a")).status == 400  # has no end
    assert post(part("path", b"p" * 65537) + b"--xyz--").status == 413
    assert [f["path"] for f in listing(client, box)] == ["a", "out/deep/empty", "out/report.csv"]


def test_a_folder_or_a_file_in_the_way(client, box):
    assert upload(client, box, b"x", "out", expect=409)
    assert upload(client, box, b"x", "a/b", expect=409)
    client.run(box, "ln -s out link; ln -s /etc/passwd to; mkdir -p /tmp/t; ln -s /tmp/t tmp")
    assert upload(client, box, b"x", "link/f", expect=409)
    assert upload(client, box, b"x", "tmp/f", expect=409)
    upload(client, box, b"mine", "to")  # takes the place of the link itself
    assert client.run(box, "cat to; test -L to || echo file; head -1 /etc/passwd; ls out /tmp/t")["stdout"].startswith(
        "minefile\nroot:")


def test_a_new_content_takes_the_place_of_the_old_at_once(client, box):
    upload(client, box, b"new", "a")
    assert client.run(box, "cat a")["stdout"] == "new"
    # Who has the old one open keeps it.
    old = client.execute(box, "exec 3< a; touch have; until [ -e go ]; do sleep 0.01; done; cat <&3", detach=True, expect=202)
    wait_for(lambda: client.get(files_path(box, "have")).status == 200)
    upload(client, box, b"newer", "a")
    upload(client, box, b"", "go")
    done = client.get("/containers/%s/exec/%s?wait=30" % (box, old["exec_id"])).json
    assert done["stdout"] == "new" and content(client, box, "a").body == b"newer"


def test_larger_than_the_limit(client):
    name = fresh()
    client.run(name, "true")
    sock, tail = begin_upload(client, name, 110 * MIB + 1, "big")
    with contextlib.closing(sock):
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            for _ in range(110):
                sock.sendall(Numbers.block)
            sock.sendall(b"x" + tail)
        answer = Reader(sock).answer()
    assert answer.status == 413 and answer.error["param"] == "file"
    # One whose head says so is refused before its body.
    sock, tail = begin_upload(client, name, 200 * MIB, "big")
    with contextlib.closing(sock):
        assert Reader(sock).answer().status == 413
    assert listing(client, name) == []
    assert int(client.run(name, "df --output=used -k . | tail -1")["stdout"]) < 16384


def test_a_full_home_is_told_and_nothing_is_left(make_server):
    server = make_server(config={"container": {"home": "64m"}})
    server.start()
    client = server.client()
    client.run("full", "echo keep > keep")
    sock, tail = begin_upload(client, "full", 90 * MIB, "big")
    with contextlib.closing(sock):
        answer = Reader(sock).answer()
    assert answer.status == 413 and "home" in answer.error["message"], answer
    # The same without a length, so that it is met while it is written.
    sock = connect(server)
    with contextlib.closing(sock):
        lines = ["POST %s HTTP/1.1" % (client.base + files_path("full"))]
        lines += ["%s: %s" % h for h in client.headers(dict(FORM, **{"Transfer-Encoding": "chunked"})).items()]
        sock.sendall("\r\n".join(lines).encode() + b"\r\n\r\n")
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            for piece in [part("file", b"", "big")[:-2]] + [Numbers.block] * 90:
                sock.sendall(b"%x\r\n" % len(piece) + piece + b"\r\n")
        answer = Reader(sock).answer()
    assert answer.status == 413 and "home" in answer.error["message"], answer
    assert [f["path"] for f in listing(client, "full")] == ["keep"]
    upload(client, "full", b"x" * MIB, "small")
    assert client.run("full", "cat keep; rm small; echo ok")["stdout"] == "keep\nok\n"


# The data folder on a file system of its own: $0 its image, $1 the folder, $2 the base image.
OWN_DISK = """
set -e
mount -t ext4 -o loop,nosuid,nodev "$0" "$1"
chmod 711 "$1"
mkdir -m 700 "$1/images"
cp "$2" "$1/images/base.erofs"
shift 2
exec "$@"
"""


@pytest.mark.skipif(not os.path.exists("/dev/loop-control"), reason="no loop devices")
def test_a_full_server_disk_is_told_and_damages_nothing(make_server, tmp_path):
    server = make_server(config={"container": {"home": "64m", "scratch": "64m", "pool": 0}})
    server.prepare()
    disk = tmp_path / "disk"
    with open(disk, "wb") as f:
        f.truncate(3300 * MIB)
    subprocess.run(["mkfs.ext4", "-q", "-m", "0", "-E", "lazy_itable_init=1,lazy_journal_init=1", disk], check=True)
    server.prefix = ["unshare", "--mount", "sh", "-c", OWN_DISK, str(disk), str(server.data), test_image()]
    server.start()
    client = server.client()
    client.run("box", "echo keep > keep")
    inside = "/proc/%d/root%s" % (server.supervisor(), server.data)
    upload(client, "box", b"x" * MIB, "before")
    state = os.statvfs(inside)
    free = state.f_bavail * state.f_frsize
    assert free > 2048 * MIB + 8 * MIB, "the rest took too much"
    with open(inside + "/filler", "wb") as f:
        os.posix_fallocate(f.fileno(), 0, free - 2040 * MIB)
    answer = upload(client, "box", b"x" * MIB, "refused", expect=503)
    assert "disk" in answer.error["message"] and answer.headers["retry-after"] == "60"
    assert [f["path"] for f in listing(client, "box")] == ["before", "keep"]
    assert content(client, "box", "keep").body == b"keep\n"
    os.unlink(inside + "/filler")
    upload(client, "box", b"again", "after")
    assert client.run("box", "cat after keep")["stdout"] == "againkeep\n"


def test_a_slow_upload_and_one_that_breaks_off(server, client):
    name = fresh()
    client.run(name, "true")
    slow, tail = begin_upload(client, name, 10, "slow")
    gone, _ = begin_upload(client, name, 50 * MIB, "gone")
    with contextlib.closing(slow), contextlib.closing(gone):
        for _ in range(20):
            gone.sendall(Numbers.block)
        for i in range(10):
            slow.sendall(b"%d" % i)
            time.sleep(0.03)
        assert listing(client, name) == []
        gone.close()
        slow.sendall(tail)
        assert Reader(slow).answer().status == 200
    assert [f["path"] for f in listing(client, name)] == ["slow"]
    assert content(client, name, "slow").body == b"0123456789"
    wait_for(lambda: int(client.run(name, "df --output=used -k . | tail -1")["stdout"]) < 16384)


def test_an_upload_that_takes_longer_than_a_worker_stays_idle(make_server):
    server = make_server()
    server.start()
    client = server.client()
    client.post("/containers", {"name": "box"})
    slow, tail = begin_upload(client, "box", 4, "slow")
    with contextlib.closing(slow):
        for piece, pause in (b"ab", 17), (b"c", 17), (b"d" + tail, 0):
            slow.sendall(piece)
            time.sleep(pause)
        answer = Reader(slow).answer()
    assert answer.status == 200, answer
    assert content(client, "box", "slow").body == b"abcd"


def test_a_server_that_stops_in_the_middle_ends_cleanly(make_server):
    server = make_server(config={"grace": "1s"})
    server.start()
    client = server.client()
    client.run("box", "head -c 64M /dev/zero > f", timeout=120)
    with contextlib.ExitStack() as stack:
        for i in range(4):
            sock = stack.enter_context(contextlib.closing(connect(server, receive_buffer=4096)))
            lines = ["GET %s HTTP/1.1" % (client.base + files_path("box", "f", "/content"))]
            lines += ["%s: %s" % h for h in client.headers().items()]
            sock.sendall("\r\n".join(lines).encode() + b"\r\n\r\n")
            assert Reader(sock).head()[0] == 200
            sock, _ = begin_upload(client, "box", 50 * MIB, "up")
            stack.enter_context(contextlib.closing(sock))
            sock.sendall(Numbers.block)
        server.stop()
    server.start()
    assert [f["path"] for f in listing(server.client(), "box")] == ["f"]


def test_uploads_and_deletes_that_race(client):
    """What a container has afterwards is listed with it, or neither is there."""
    name = fresh()

    def put(i):
        return client.request("POST", client.base + files_path(name), part("file", b"x" * 1000, "f%d" % i) + b"--xyz--\r\n",
                              headers=FORM).status

    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        for _ in range(12):
            client.post("/containers", {"name": name})
            puts = [pool.submit(put, i) for i in range(5)]
            gone = pool.submit(lambda: client.delete("/containers/" + name).status)
            assert gone.result() in (200, 404)
            assert {p.result() for p in puts} <= {200, 404, 503}
            wait_for(lambda: client.get(files_path(name)).status == client.get("/containers/" + name).status)
    client.delete("/containers/" + name)
    assert client.get(files_path(name)).status == 404
    client.run(name, "true")
    assert listing(client, name) == []


def test_more_uploads_at_once_than_a_worker_takes(client):
    name = client.post("/containers", {"name": fresh()}).json["id"]
    with contextlib.ExitStack() as stack:
        socks = []
        for i in range(70):
            sock, tail = begin_upload(client, name, 1, "f%02d" % i)
            stack.enter_context(contextlib.closing(sock))
            socks.append((sock, tail))
        # Those that are refused are told at once; the others wait for their body.
        time.sleep(0.5)
        answers = []
        for sock, tail in socks:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                sock.sendall(b"x" + tail)
        for sock, _ in socks:
            answers.append(Reader(sock).answer())
    assert {a.status for a in answers} <= {200, 503}
    assert 1 <= sum(a.status == 200 for a in answers) == len(listing(client, name))
    for answer in answers:
        if answer.status == 503:
            assert "too many uploads" in answer.error["message"] and "retry-after" in answer.headers
    upload(client, name, b"x", "again")


def test_expect_100_is_answered_when_there_is_room(client):
    name = fresh()

    def ask(container):
        body = part("path", b"f") + part("file", b"hello", "f") + b"--xyz--\r\n"
        sock = connect(client.server)
        with contextlib.closing(sock):
            lines = ["POST %s HTTP/1.1" % (client.base + files_path(container)), "Expect: 100-continue"]
            lines += ["%s: %s" % h for h in client.headers(dict(FORM, **{"Content-Length": len(body)})).items()]
            sock.sendall("\r\n".join(lines).encode() + b"\r\n\r\n")
            reader = Reader(sock)
            status, _ = reader.head()
            if status != 100:
                return status
            sock.sendall(body)
            return reader.answer().status

    assert ask(name) == 404
    client.run(name, "true")
    assert ask(name) == 200


def test_of_many_uploads_to_one_name_one_wins_whole(client):
    name = fresh()
    client.run(name, "true")
    bodies = [bytes([65 + i]) * (3 * MIB + i) for i in range(8)]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda b: upload(client, name, b, "dir/one"), bodies))
    assert sorted(m["bytes"] for m in made) == [len(b) for b in bodies]
    assert content(client, name, "dir/one").body in bodies
    assert len(listing(client, name)) == 1


def test_a_guest_that_races_with_links(client):
    """Folder and link to the outside change places under uploads, lists and downloads."""
    name = fresh()
    client.run(name, "mkdir real; echo mine > real/passwd; mkdir -p /tmp/out")
    racer = client.execute(name, "ln -s /etc link; while :; do mv -T real save; mv -T link real; mv -T real link; "
                                 "mv -T save real; done", detach=True, expect=202)
    secret = client.run(name, "cat /etc/passwd")["stdout"].encode()
    end = time.monotonic() + 3
    seen = set()
    while time.monotonic() < end or 200 not in seen:
        answer = client.get(files_path(name, "real/passwd", "/content"))
        assert answer.status in (200, 404), answer
        if answer.status == 200:
            assert answer.body != secret and answer.body in (b"mine\n", b"up")
        seen.add(answer.status)
        answer = client.request("POST", client.base + files_path(name),
                                part("path", b"real/passwd") + part("file", b"up", "x") + b"--xyz--\r\n", headers=FORM)
        assert answer.status in (200, 409), answer
        listed = client.get(files_path(name))
        assert listed.status == 200
        assert {f["path"].rpartition("/")[2] for f in listed.json["data"]} <= {"passwd"}
    client.delete("/containers/%s/exec/%s" % (name, racer["exec_id"]))
    assert client.run(name, "cat /etc/passwd")["stdout"].encode() == secret


# ---- promote ----

def test_promote_copies_out_for_ever(client, v1, server, box):
    made = client.post(files_path(box, "out/report.csv", "/promote"))
    assert made.status == 200, made
    made = made.json
    assert made["type"] == "file" and made["filename"] == "out/report.csv" and made["size_bytes"] == 6
    assert made["downloadable"] is True
    client.run(box, "rm -r out")
    assert client.get("/files/%s/content" % made["id"]).body == b"hello\n"
    assert client.delete("/containers/" + box).status == 200
    assert client.get("/files/%s/content" % made["id"]).body == b"hello\n"
    assert client.get("/files/" + made["id"]).json["filename"] == "out/report.csv"
    assert server.client("two").get("/files/" + made["id"]).status == 404


def test_promote_speaks_the_callers_dialect_and_finds_only_files(client, v1, server, box):
    assert v1.post(files_path(box, "a", "/promote")).json["object"] == "file"
    client.run(box, "ln -s /etc/passwd link")
    for path in ("none", "out", "link"):
        answer = client.post(files_path(box, path, "/promote"))
        assert answer.status == 404
        check_error(answer, client.base)
    assert server.client("two").post(files_path(box, "a", "/promote")).status == 404
    client.run(box, "truncate -s 111M big")
    answer = client.post(files_path(box, "big", "/promote"))
    assert answer.status == 413, answer
    assert content(client, box, "big", 206, Range="bytes=-1").body == b"\0"


# ---- a document into a container ----

def document(client, name, data):
    body = part("purpose", b"user_data") + part("file", data, name) + b"--xyz--\r\n"
    made = client.request("POST", client.base + "/files", body, headers=FORM)
    assert made.status == 200, made
    return made.json["id"]


def test_a_document_by_its_id(client, v1, server, box):
    for api in (client, v1):
        id = document(api, "table.csv", b"a,b\n1,2\n")
        made = api.post(files_path(box), {"file_id": id})
        assert made.status == 200, made
        name = id[-8:] + "-table.csv"
        assert made.json["path"] == name and made.json["object"] == "container.file" and made.json["bytes"] == 8
        assert content(api, box, name).body == b"a,b\n1,2\n"
    assert len(listing(client, box)) == 5
    for body, param in (({}, "file_id"), ({"file_id": "or_file_none"}, "file_id"), ({"file_id": 5}, "file_id"),
                        ({"file_id": id, "x": 1}, "x")):
        answer = client.post(files_path(box), body)
        assert answer.status == 400 and answer.error["param"] == param, answer
    assert server.client("two").post(files_path(box), {"file_id": id}).status == 404
    theirs = server.client("two")
    theirs.run("own", "true")
    assert theirs.post(files_path("own"), {"file_id": id}).status == 400
    assert client.post(files_path("none-such"), {"file_id": id}).status == 404


# ---- what the container is doing ----

def test_running_frozen_and_asleep_stay_what_they_are(make_server):
    server = make_server(config={"container": {"sleep_after": "1s"}})
    server.start()
    client = server.client()
    client.run("box", "echo hi > f")
    running = client.execute("box", "until [ -e go ]; do sleep 0.1; done; rm go", detach=True, expect=202)
    assert client.get("/containers/box").json["status"] == "running"

    def use():
        before = client.get("/containers/box").json["status"]
        assert content(client, "box", "f").body == b"hi\n"
        upload(client, "box", before.encode(), before)
        assert file_id(before) in [f["id"] for f in listing(client, "box")]
        assert client.delete(files_path("box", before)).status == 200
        return before, client.get("/containers/box").json["status"]

    assert use() == ("running", "running")
    upload(client, "box", b"", "go")
    client.get("/containers/box/exec/%s?wait=30" % running["exec_id"])
    # Using its files neither wakes it nor keeps it awake.
    wait_for(lambda: use() == ("asleep", "asleep"), every=0.2)
    upload(client, "box", b"slept", "while-asleep")
    assert client.get("/containers/box").json["status"] == "asleep"
    assert client.run("box", "cat f while-asleep; ls")["stdout"] == "hi\nsleptf\nwhile-asleep\n"


def test_using_files_is_use(make_server):
    server = make_server()
    server.start()
    client = server.client()
    client.run("box", "echo hi > f")
    used = client.get("/containers/box").json["last_active_at"]
    time.sleep(1.1)
    upload(client, "box", b"x", "g")
    wait_for(lambda: client.get("/containers/box").json["last_active_at"] > used)


def test_a_server_without_sandboxes_says_so(make_server):
    server = make_server(config={"sandbox": False})
    server.start()
    client = server.client()
    made = client.post("/containers", {"name": "box"})
    if made.status == 200:
        assert client.get(files_path("box")).status == 503
        assert upload(client, "box", b"x", "f", expect=503)


# ---- the files of a tool call ----

def cited(item):
    return [f["filename"] for f in item.get("files", [])]


def test_a_calls_item_names_the_files_it_touched(client, provider):
    session = {"session_id": uuid.uuid4().hex[:12]}
    model = provider.model(calls(shell("mkdir -p out; echo 1 > out/a.csv; sleep 0.02; echo 2 > b; ln -s b l; echo x > gone; rm gone")),
                           calls(shell("true")), calls(shell("sleep 0.02; echo more >> b; mv out/a.csv out/c.csv")),
                           text("ok"))
    response = client.ask(model, tools=[SHELL], **session)
    first, second, third = items_of(response, "openrouter:shell")
    assert cited(first) == ["b", "out/a.csv"]
    assert first["files"][1] == {
        "type": "container_file_citation", "container_id": first["container_id"], "file_id": file_id("out/a.csv"),
        "filename": "out/a.csv", "start_index": 0, "end_index": 0}
    assert list(first).index("files") == list(first).index("container_id") - 1
    assert "files" not in second
    assert sorted(cited(third)) == ["b", "out/c.csv"]
    assert content(client, first["container_id"], "out/c.csv").body == b"1\n"


def test_at_most_ten_the_latest_first(client, provider):
    model = provider.model(calls(shell("for i in $(seq 14); do echo > f$i; sleep 0.01; done")), text("ok"))
    (item,) = items_of(client.ask(model, tools=[SHELL]), "openrouter:shell")
    assert cited(item) == ["f%d" % i for i in range(14, 4, -1)]


def test_brig_shell_has_them_on_its_output(client, provider):
    model = provider.model(calls(shell("echo 1 > a")), text("ok"))
    response = client.ask(model, tools=[BRIG_SHELL])
    (output,) = items_of(response, "shell_call_output")
    assert cited(output) == ["a"] and output["files"][0]["container_id"] == output["container_id"]
    assert "files" not in items_of(response, "shell_call")[0]


def test_a_stream_has_them_in_done_and_at_the_end(client, provider):
    model = provider.model(calls(shell("echo 1 > a"), shell("echo 2 > b")), text("ok"))
    story = client.stream(model, tools=[SHELL])
    done = [e["item"] for name, e in story.events if name == "response.output_item.done"]
    assert [cited(i) for i in done if i["type"] == "openrouter:shell"] == [["a"], ["b"]]
    assert [cited(i) for i in items_of(story.response, "openrouter:shell")] == [["a"], ["b"]]


def test_the_model_is_not_told_of_them(client, provider):
    model = provider.model(calls(shell("echo 1 > a.unmistakable")), text("ok"), text("again"))
    first = client.ask(model, tools=[SHELL])
    client.ask(model, input=[{"role": "user", "content": "go"}] + first["output"] + [{"role": "user", "content": "on"}],
               tools=[SHELL])
    for request in model.requests[1:]:
        told = [m["content"] for m in request.json["messages"] if m["role"] == "tool"]
        assert told and all("unmistakable" not in t and "cfile_" not in t for t in told)
