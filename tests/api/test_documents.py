"""/files: documents of a workspace, in the shapes of OpenRouter, OpenAI and Anthropic."""
import hashlib
import http.client
import io
import json
import os
import pathlib
import random
import re
import signal
import socket
import sqlite3
import subprocess
import threading
import time
import zipfile

import pytest

from brigtest import connect, resident, wait_for

SETTINGS = {"sandbox": False, "limits": {"file": "2m", "workspace_files": "16m"}}
ANTHROPIC = {"anthropic-version": "2023-06-01"}
MISSING = "or_file_0000000000000000missing0"


def multipart(file=b"hello\n", filename="a.txt", fields=(), name="file", boundary="brig-test"):
    parts = [b'--%s\r\nContent-Disposition: form-data; name="%s"\r\n\r\n%s\r\n'
             % (boundary.encode(), key.encode(), value.encode()) for key, value in fields]
    if file is not None:
        given = b'; filename="%s"' % (filename if isinstance(filename, bytes) else filename.encode()) \
            if filename is not None else b""
        parts.append(b'--%s\r\nContent-Disposition: form-data; name="%s"%s\r\nContent-Type: application/octet-stream\r\n\r\n%s\r\n'
                     % (boundary.encode(), name.encode(), given, file))
    return b"".join(parts) + b"--%s--\r\n" % boundary.encode()


def upload(client, file=b"hello\n", filename="a.txt", fields=(), expect=200, query="", headers=None, **more):
    if client.base == "/v1" and "anthropic-version" not in (headers or {}) and "purpose" not in dict(fields):
        fields = [("purpose", "user_data"), *fields]
    answer = client.request("POST", client.base + "/files" + query, multipart(file, filename, fields, **more),
                            {"Content-Type": "multipart/form-data; boundary=brig-test", **(headers or {})})
    assert answer.status == expect, answer
    return answer.json


def ids(answer):
    assert answer.status == 200, answer
    return [d["id"] for d in answer.json["data"]]


@pytest.fixture(scope="module")
def server(servers_1_and_3):
    return servers_1_and_3


@pytest.fixture
def api(server):
    """The OpenRouter shape, in a workspace that is empty."""
    yield server.client("one", "/api/v1")
    for key in ("one", "two", "far"):
        client = server.client(key, "/api/v1")
        for one in ids(client.get("/files?limit=1000")):
            assert client.delete("/files/" + one).status == 200


@pytest.fixture
def openai(server, api):
    return server.client("one", "/v1")


def blobs(server):
    return sorted(p for p in (server.data / "gateway" / "blob").rglob("*") if p.is_file())


# ---- shapes ----

def test_openrouter_shape(server, api):
    made = upload(api, b"a,b\n1,2\n3,4\n", "dir/data.csv")
    assert re.fullmatch(r"or_file_[0-9a-z]{24}", made["id"])
    assert abs(time.time() - time.mktime(time.strptime(made["created_at"][:19], "%Y-%m-%dT%H:%M:%S")) + time.timezone) < 60
    assert made == {"_shape": "openrouter", "id": made["id"], "type": "file", "filename": "dir/data.csv",
                    "mime_type": "text/csv", "size_bytes": 12, "created_at": made["created_at"], "downloadable": False}
    assert api.get("/files/" + made["id"]).json == made
    assert api.get("/files").json == {"_shape": "openrouter", "data": [made], "first_id": made["id"], "last_id": made["id"],
                                      "has_more": False, "cursor": None}
    refused = api.get("/files/%s/content" % made["id"])
    assert refused.status == 400 and refused.error["code"] == 400 and "download" in refused.error["message"]
    assert api.delete("/files/" + made["id"]).json == {"_shape": "openrouter", "id": made["id"], "type": "file_deleted"}
    assert api.delete("/files/" + made["id"]).status == 404
    assert api.get("/files/" + made["id"]).status == 404
    assert api.get("/files").json["data"] == []
    assert blobs(server) == []


def test_openai_shape(server, openai):
    made = upload(openai, b'{"a":1}\n{"a":2}\n', "batch.jsonl", [("purpose", "batch")])
    assert made == {"_shape": "openai", "id": made["id"], "object": "file", "bytes": 16, "created_at": made["created_at"],
                    "filename": "batch.jsonl", "purpose": "batch", "status": "processed"}
    assert abs(time.time() - made["created_at"]) < 60
    assert openai.get("/files/" + made["id"]).json == made
    assert openai.get("/files").json == {"_shape": "openai", "object": "list", "data": [made], "first_id": made["id"],
                                         "last_id": made["id"], "has_more": False}
    assert openai.get("/files/%s/content" % made["id"]).body == b'{"a":1}\n{"a":2}\n'
    other = upload(openai, b"text", "a.txt")
    refused = openai.get("/files/%s/content" % other["id"])
    assert refused.status == 400 and refused.error["message"] == "Not allowed to download files of purpose: user_data"
    assert [d["id"] for d in openai.get("/files?purpose=batch").json["data"]] == [made["id"]]
    assert openai.delete("/files/" + made["id"]).json == {"_shape": "openai", "id": made["id"], "object": "file", "deleted": True}
    # OpenAI's SDK pointed at the other base is told by its name.
    seen = server.client("one", "/api/v1").get("/files/" + other["id"], headers={"User-Agent": "OpenAI/JS 7.59.0"}).json
    assert seen == other


@pytest.mark.parametrize("base", ["/v1", "/api/v1"])
def test_anthropic_shape(server, api, base):
    client = server.client("one", base)
    made = upload(client, b"%PDF-1.7 and so on", "deep/er/report.pdf", headers=ANTHROPIC)
    assert made == {"_shape": "anthropic", "id": made["id"], "type": "file", "filename": "report.pdf",
                    "mime_type": "application/pdf", "size_bytes": 18, "created_at": made["created_at"],
                    "downloadable": False, "expires_at": None}
    assert client.get("/files/" + made["id"], headers=ANTHROPIC).json == made
    assert client.get("/files", headers=ANTHROPIC).json == {
        "_shape": "anthropic", "data": [made], "first_id": made["id"], "last_id": made["id"], "has_more": False,
        "next_page": None}
    refused = client.get("/files/%s/content" % made["id"], headers=ANTHROPIC)
    assert refused.status == 400 and re.fullmatch("req_[0-9a-z]{24}", refused.headers["request-id"])
    assert refused.json == {"type": "error", "request_id": refused.headers["request-id"], "error": {
        "type": "invalid_request_error", "message": refused.error["message"],
        "details": {"error_code": "file_not_downloadable"}}}
    missing = client.get("/files/" + MISSING, headers=ANTHROPIC)
    assert missing.status == 404 and missing.json["error"]["type"] == "not_found_error"
    assert client.delete("/files/" + made["id"], headers=ANTHROPIC).json == {
        "_shape": "anthropic", "id": made["id"], "type": "file_deleted"}


def test_anthropic_names_what_has_no_name(server, api):
    client = server.client("one", "/v1")
    assert upload(client, b"%PDF-1.7", "", headers=ANTHROPIC)["filename"] == "unnamed.pdf"
    assert upload(client, b"\x00\x01", "dir/", headers=ANTHROPIC)["filename"] == "unnamed"


def test_errors_in_the_asking_dialect(server, api):
    for path in ("/files/" + MISSING, "/nothing", "/models/none/such"):
        answer = server.client("one", "/v1").get(path, headers=ANTHROPIC)
        assert answer.status == 404 and answer.json["type"] == "error" and answer.json["error"]["type"] == "not_found_error"
    answer = server.client("wrong-key-0123456789", "/v1").get("/files", headers=ANTHROPIC)
    assert answer.status == 401 and answer.json["error"]["type"] == "authentication_error"
    answer = server.client("one", "/v1").post("/containers", b"{" * 3_000_000, headers=ANTHROPIC)
    assert answer.status == 413 and answer.json["error"]["type"] == "request_too_large"
    assert server.client("one", "/v1").get("/files/" + MISSING).json["error"]["code"] == "not_found"
    assert api.get("/files/" + MISSING).json["error"]["code"] == 404


# ---- uploads ----

def office(folder):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as z:
        z.writestr("[Content_Types].xml", "<Types/>")
        z.writestr("docProps/thumbnail.bin", os.urandom(100000))
        z.writestr(folder + "/document.xml", "<document/>")
    return out.getvalue()


KINDS = {
    "application/pdf": b"%PDF-1.4\n\x80\x81",
    "image/png": b"\x89PNG\r\n\x1a\n\x00\x00",
    "image/jpeg": b"\xff\xd8\xff\xe0\x00\x10JFIF",
    "image/gif": b"GIF89a\x01\x00\x01\x00",
    "image/webp": b"RIFF\x10\x00\x00\x00WEBPVP8 ",
    "audio/wav": b"RIFF\x10\x00\x00\x00WAVEfmt ",
    "audio/flac": b"fLaC\x00\x00\x00\x22",
    "audio/ogg": b"OggS\x00\x02",
    "audio/mpeg": b"ID3\x04\x00\x00",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": office("word"),
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": office("xl"),
    "application/vnd.openxmlformats-officedocument.presentationml.presentation": office("ppt"),
    "application/json": b' {"a": [1, 2, {"b": null}]}\n',
    "application/x-ndjson": b'{"a": 1}\n\n{"a": 2}\n',
    "text/csv": b'name,age\n"Smith, J",5\n',
    "text/markdown": b"# Title\n\nSome *text*.\n",
    "text/plain": "Grüße aus 東京 😀\n".encode(),
}


@pytest.mark.parametrize("mime", KINDS)
def test_kinds(api, mime):
    made = upload(api, KINDS[mime], "no-hint.bin")
    assert (made["mime_type"], made["size_bytes"]) == (mime, len(KINDS[mime]))


@pytest.mark.parametrize("data", [b"\x7fELF\x02\x01\x01\x00", b"text with a \x00 in it", b"\xc3", b"caf\xe9", b"\x1f\x8b\x08\x00",
                                  b"PK\x03\x04" + bytes(100), b"\xff\xff\xff\xff", b"RIFF\x00\x00\x00\x00AVI ",
                                  b"a" * 70000 + b"\xed\xa0\x80"])
def test_other_kinds(server, api, openai, data):
    refused = upload(api, data, "claims.txt", expect=400)
    assert refused["error"]["param"] == "file" and "UTF-8" in refused["error"]["message"]
    # The other two APIs take any.
    upload(openai, data)
    assert upload(openai, data, headers=ANTHROPIC)["mime_type"] == "application/octet-stream"


@pytest.mark.parametrize("name", ["a", "x" * 255, "dir/sub/a.txt", "ünï/…/文.txt", ".hidden", "..a/b..", " spaces ", "a'b&c;d",
                                  "😀" * 255])
def test_good_names(api, name):
    assert upload(api, filename=name)["filename"] == name


@pytest.mark.parametrize("name", ["", "x" * 256, "/a", "a/", "a//b", ".", "..", "a/../b", "a/./b", "a<b", "a>b", "a:b", "a|b", "a?b",
                                  "a*b", "a\\\\b", b"\xff.txt", "a%0Ab", "a\\\"b"])
def test_bad_names(api, name):
    refused = upload(api, filename=name, expect=400)
    assert refused["error"]["param"] == "file", refused


@pytest.mark.parametrize("name", ["a\x01b", "a\x7fb", "a\rb", "a\x00b"])
def test_names_that_no_header_may_hold(api, name):
    upload(api, filename=name, expect=400)


def test_sizes(server, api):
    assert upload(api, b"", expect=400)["error"]["message"] == "The file is empty."
    assert upload(api, b"a")["size_bytes"] == 1
    limit = 2 << 20
    whole = upload(api, b"b" * limit)
    assert whole["size_bytes"] == limit
    refused = upload(api, b"c" * (limit + 1), expect=413)
    assert refused["error"]["code"] == 413 and refused["error"]["param"] == "file"
    assert upload(api, b"c" * (limit + 1), expect=413, headers=ANTHROPIC)["error"]["type"] == "request_too_large"
    # What is announced is refused before it is sent.
    with connect(server) as sock:
        sock.sendall(b"POST /api/v1/files HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + api.key.encode() +
                     b"\r\nContent-Type: multipart/form-data; boundary=b\r\nContent-Length: 100000000\r\n\r\n")
        assert sock.recv(100).startswith(b"HTTP/1.1 413 ")


def test_bad_requests(api, openai):
    def post(body, content_type="multipart/form-data; boundary=brig-test", client=api):
        return client.request("POST", client.base + "/files", body, {"Content-Type": content_type})

    assert post(multipart(), "application/json").status == 415
    assert post(multipart(), "multipart/form-data").status == 400
    assert post(b"").status == 400
    assert post(multipart()[:-4]).status == 400
    assert post(multipart(file=None)).status == 400
    assert post(multipart(name="other")).status == 400
    assert post(multipart(filename=None)).status == 400
    twice = multipart()[:-len(b"--brig-test--\r\n")] + multipart()
    assert post(twice).status == 400
    assert post(multipart(fields=[("purpose", "world domination")])).error["param"] == "purpose"
    assert post(multipart(), client=openai).error["param"] == "purpose"
    assert ids(api.get("/files")) == []


def test_times(server, api, openai):
    made = upload(openai, fields=[("expires_after[anchor]", "created_at"), ("expires_after[seconds]", "3600")])
    assert made["expires_at"] == made["created_at"] + 3600
    timed = upload(openai, headers=ANTHROPIC, fields=[("expires_in_seconds", "7776000")])
    assert timed["expires_at"] > timed["created_at"]
    for fields in ([("expires_after[seconds]", "3600")], [("expires_after[anchor]", "created_at")],
                   [("expires_after[anchor]", "last_used_at"), ("expires_after[seconds]", "3600")],
                   [("expires_after[anchor]", "created_at"), ("expires_after[seconds]", "3599")],
                   [("expires_after[anchor]", "created_at"), ("expires_after[seconds]", "1e9")],
                   [("expires_in_seconds", "-1")], [("expires_in_seconds", "7776001")]):
        upload(openai, fields=fields, expect=400)


def test_chunked_and_slow(server, api):
    """A body of unknown length that comes in single bytes around the boundary."""
    body = multipart(b"slow text\r\n--brig-tes not yet\r\n", "slow.txt")
    connection = http.client.HTTPConnection(server.host, server.port, timeout=60)
    pieces = (body[i:i + 1] for i in range(len(body)))
    connection.request("POST", "/api/v1/files", pieces,
                       api.headers({"Content-Type": "multipart/form-data; boundary=brig-test"}), encode_chunked=True)
    answer = connection.getresponse()
    assert answer.status == 200, answer.read()
    connection.close()


def test_client_that_leaves(server, api):
    body = multipart(b"x" * 1000000, "left.txt")
    for n in (200, 100000, 900000):
        with connect(server) as sock:
            sock.sendall(b"POST /api/v1/files HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + api.key.encode() +
                         b"\r\nContent-Type: multipart/form-data; boundary=brig-test\r\nContent-Length: %d\r\n\r\n" % len(body))
            sock.sendall(body[:n])
    time.sleep(0.3)
    wait_for(lambda: ids(api.get("/files")) == [] and blobs(server) == [])


# ---- lists ----

def test_openrouter_pages(api):
    made = [upload(api, b"%d" % i)["id"] for i in range(5)]
    assert ids(api.get("/files")) == made == sorted(made)
    seen, cursor = [], ""
    while True:
        page = api.get("/files?limit=2" + (cursor and "&cursor=" + cursor)).json
        seen += [d["id"] for d in page["data"]]
        assert (page["cursor"] is None) != page["has_more"]
        cursor = page["cursor"]
        if cursor is None:
            break
        assert page["last_id"] == seen[-1] and page["first_id"] == seen[-2]
    assert seen == made
    assert ids(api.get("/files?order=asc&after=" + made[2])) == made[3:]
    assert ids(api.get("/files?after_id=" + made[3])) == made[4:]
    # The place of one that is gone still is a place.
    api.delete("/files/" + made[1])
    assert ids(api.get("/files?cursor=" + made[1])) == made[2:]
    for query in ("order=desc", "order=", "limit=0", "limit=1001", "limit=x", "limit=", "cursor=a&after=b", "after=a&after_id=b",
                  "before_id=" + made[0], "cursor=" + "x" * 41, "cursor=", "cursor=%00", "cursor=%ff"):
        assert api.get("/files?" + query).status == 400, query


def test_openai_pages(openai):
    made = [upload(openai, b"%d" % i)["id"] for i in range(5)]
    down = made[::-1]
    assert ids(openai.get("/files")) == down
    assert ids(openai.get("/files?order=asc&limit=10000")) == made
    first = openai.get("/files?limit=2").json
    assert [d["id"] for d in first["data"]] == down[:2] and first["has_more"]
    rest = openai.get("/files?limit=3&after=" + first["last_id"]).json
    assert [d["id"] for d in rest["data"]] == down[2:] and not rest["has_more"]
    for query in ("order=up", "limit=10001", "purpose="):
        assert openai.get("/files?" + query).status == 400, query


def test_anthropic_pages(openai):
    made = [upload(openai, b"%d" % i)["id"] for i in range(5)]
    down = made[::-1]
    get = lambda query: openai.get("/files" + query, headers=ANTHROPIC)
    first = get("?limit=2").json
    assert [d["id"] for d in first["data"]] == down[:2] and first["next_page"]
    assert ids(get("?limit=2&page=" + first["next_page"])) == down[2:4]
    assert ids(get("?limit=9&after_id=" + down[1])) == down[2:]
    before = get("?limit=2&before_id=" + down[3]).json
    assert [d["id"] for d in before["data"]] == down[1:3] and before["has_more"]
    asked = [made[3], MISSING, made[0], made[3]]
    page = get("?" + "&".join("ids%5B%5D=" + i for i in asked)).json
    assert [d["id"] for d in page["data"]] == [made[3], made[0]] and page["next_page"] is None and not page["has_more"]
    for query in ("limit=1001", "page=a&after_id=b", "ids%5B%5D=a&limit=1", "ids[]=a&page=b", "ids[]=",
                  "&".join("ids[]=i%d" % i for i in range(101))):
        answer = get("?" + query)
        assert answer.status == 400 and answer.json["error"]["type"] == "invalid_request_error", query


# ---- tenants ----

def test_tenants(server, api):
    made = upload(api, b"mine alone")
    for key in ("two", "far"):
        other = server.client(key, "/api/v1")
        assert ids(other.get("/files")) == []
        for call in (other.get, other.delete):
            theirs, nobodys = call("/files/" + made["id"]), call("/files/" + MISSING)
            assert theirs.status == 404 and theirs.body == nobodys.body
        assert other.get("/files/%s/content" % made["id"]).status == 404
        same = upload(other, b"mine alone")
        assert len(blobs(server)) == 2
        assert other.delete("/files/" + same["id"]).status == 200
    assert api.get("/files/" + made["id"]).json == made
    for query, status in (("workspace_id=one", 200), ("workspace_id=two", 403), ("provider=openai", 400)):
        assert api.get("/files?" + query).status == status
        assert api.get("/files/%s?%s" % (made["id"], query)).status == status
        upload(api, query="?" + query, expect=status)
    assert api.get("/files", headers={**ANTHROPIC, "anthropic-workspace-id": "two"}).status == 403
    assert api.get("/files", headers={**ANTHROPIC, "anthropic-workspace-id": "one"}).status == 200


def test_same_content_is_kept_once(server, api):
    first, second = upload(api, b"twice", "a.txt"), upload(api, b"twice", "b.txt")
    assert first["id"] != second["id"] and len(blobs(server)) == 1
    api.delete("/files/" + first["id"])
    assert len(blobs(server)) == 1 and api.get("/files/" + second["id"]).json["filename"] == "b.txt"
    api.delete("/files/" + second["id"])
    assert blobs(server) == []


def test_same_content_made_and_deleted_at_once(server, openai):
    """Rows that share a blob come and go in many requests at once: none is ever without it, and none leaves it behind."""
    contents = [b"a", b"b" * 70000]
    faults = []

    def work(i):
        rng = random.Random(i)
        try:
            for _ in range(25):
                data = rng.choice(contents)
                made = upload(openai, data, fields=[("purpose", "batch")])
                got = openai.get("/files/%s/content" % made["id"])
                assert got.status == 200 and got.body == data, got
                assert openai.delete("/files/" + made["id"]).status == 200
        except AssertionError as e:
            faults.append(e)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not faults, faults[0]
    assert blobs(server) == []


def test_quota(server, api):
    mib = 1 << 20
    made = [upload(api, bytes([65 + i]) * (2 * mib))["id"] for i in range(7)]
    last = upload(api, b"x" * (2 * mib - 10))["id"]
    refused = upload(api, b"y" * 11, expect=403)
    assert refused["error"]["code"] == 403 and "full" in refused["error"]["message"]
    refused = upload(api, b"y" * 11, expect=400, headers=ANTHROPIC)
    assert refused["error"]["details"] == {"error_code": "storage_quota_exceeded"}
    assert upload(server.client("two", "/api/v1"), b"other workspace")["size_bytes"] == 15
    filled = upload(api, b"y" * 10)
    upload(api, b"z", expect=403)
    api.delete("/files/" + made[0])
    upload(api, b"z")
    assert {last, filled["id"]} < set(ids(api.get("/files")))


def test_quota_race(server, api):
    """Eight at once, and room for three: three are taken."""
    for i in range(5):
        upload(api, bytes([65 + i]) * (2 << 20))
    results = []

    def one(i):
        answer = api.request("POST", "/api/v1/files", multipart(bytes([97 + i]) * (2 << 20), "r.txt"),
                             {"Content-Type": "multipart/form-data; boundary=brig-test"})
        results.append(answer.status)

    threads = [threading.Thread(target=one, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(results) == [200] * 3 + [403] * 5
    wait_for(lambda: len(blobs(server)) == 8)


# ---- content ----

def test_content(server, openai):
    data = random.Random(7).randbytes(2 << 20)
    made = upload(openai, data, "dir/würfel \".txt".replace('"', "'"), [("purpose", "evals")])
    answer = openai.get("/files/%s/content" % made["id"])
    assert answer.status == 200 and hashlib.sha256(answer.body).digest() == hashlib.sha256(data).digest()
    assert answer.headers["content-length"] == str(len(data))
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-disposition"] == "attachment; filename=\"w__rfel '.txt\"; filename*=UTF-8''w%C3%BCrfel%20%27.txt"
    head = openai.request("HEAD", "/v1/files/%s/content" % made["id"])
    assert head.status == 200 and head.headers["content-length"] == str(len(data)) and head.body == b""
    plain = upload(openai, b"text", "a.txt", [("purpose", "batch")])
    assert openai.get("/files/%s/content" % plain["id"]).headers["content-type"] == "text/plain; charset=utf-8"
    assert openai.get("/files/%s/content" % MISSING).status == 404


def test_deleted_while_it_is_downloaded(server, openai):
    data = random.Random(8).randbytes(2 << 20)
    made = upload(openai, data, "d.bin", [("purpose", "batch")])
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
    sock.settimeout(60)
    sock.connect((server.host, server.port))
    sock.sendall(b"GET /v1/files/%s/content HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nConnection: close\r\n\r\n"
                 % (made["id"].encode(), openai.key.encode()))
    got = sock.recv(1000)
    assert openai.delete("/files/" + made["id"]).status == 200
    assert blobs(server) == []
    while piece := sock.recv(65536):
        got += piece
    assert got.partition(b"\r\n\r\n")[2] == data


def test_download_that_stops(server, openai):
    made = upload(openai, b"s" * (2 << 20), "s.txt", [("purpose", "batch")])
    for _ in range(3):
        with connect(server) as sock:
            sock.sendall(b"GET /v1/files/%s/content HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n"
                         % (made["id"].encode(), openai.key.encode()))
            sock.recv(1000)
    assert openai.get("/files/%s/content" % made["id"]).status == 200


def test_no_sandbox_to_copy_into(api):
    made = upload(api)
    answer = api.post("/containers", {"name": "nowhere", "file_ids": [made["id"]]})
    assert answer.status == 400 and answer.error["param"] == "file_ids", answer
    assert api.get("/containers/nowhere").status == 404


# ---- servers of their own ----

def test_durable(make_server):
    server = make_server(config={"sandbox": False, "container": {"durability": "power"}}).start()
    client = server.client("one", "/v1")
    made = upload(client, b"durable", fields=[("purpose", "batch")])
    assert client.get("/files/%s/content" % made["id"]).body == b"durable"
    assert client.delete("/files/" + made["id"]).status == 200
    assert blobs(server) == []


def test_constant_memory(make_server):
    """100 MiB up and down again by a gateway that may not hold it."""
    server = make_server(config={"sandbox": False}).start()
    client = server.client("one", "/v1")
    pid = server.gateways()[0]
    upload(client, b"warm", fields=[("purpose", "batch")])
    before = resident(pid)
    piece = b"0123456789abcdef" * 4096
    n = (100 << 20) // len(piece)
    head, tail = multipart(b"", "big.txt", [("purpose", "batch")]).split(b"octet-stream\r\n\r\n")
    head += b"octet-stream\r\n\r\n"

    def body():
        yield head
        for _ in range(n):
            yield piece
        yield tail

    connection = http.client.HTTPConnection(server.host, server.port, timeout=300)
    peak = [0]
    over = threading.Event()

    def watch():
        while not over.wait(0.02):
            peak[0] = max(peak[0], resident(pid))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        connection.request("POST", "/v1/files", body(), client.headers({
            "Content-Type": "multipart/form-data; boundary=brig-test",
            "Content-Length": str(len(head) + n * len(piece) + len(tail))}))
        answer = connection.getresponse()
        made = json.loads(answer.read())
        assert answer.status == 200 and made["bytes"] == 100 << 20
        connection.request("GET", "/v1/files/%s/content" % made["id"], headers=client.headers())
        answer = connection.getresponse()
        size = 0
        while data := answer.read(1 << 20):
            size += len(data)
        assert size == 100 << 20
    finally:
        over.set()
        watcher.join()
    assert peak[0] - before < 16 << 20, "%d bytes more" % (peak[0] - before)


def row_ids(server):
    with sqlite3.connect("file:%s?mode=ro" % (server.data / "gateway" / "brig.db"), uri=True) as db:
        return db.execute("SELECT id, blob FROM documents").fetchall()


def test_killed_in_an_upload(make_server):
    """SIGKILL to everything at random places of uploads and deletions: each row has its whole blob, what was
    acknowledged is there, and blobs without a row are collected."""
    server = make_server(config={"sandbox": False}).start()
    rng = random.Random(11)
    known = {}
    for round in range(6):
        client = server.client("one", "/v1")
        stop = threading.Event()

        def work(i):
            mine = random.Random("%d %d" % (round, i))
            n = 0
            while not stop.is_set():
                n += 1
                data = b"%d %d %d " % (round, i, n) * mine.choice((10, 5000, 60000))
                try:
                    made = upload(client, data, "k.txt", [("purpose", "batch")])
                    known[made["id"]] = data
                    if mine.random() < 0.3:
                        known[made["id"]] = None  # on its way out: both are right
                        client.delete("/files/" + made["id"])
                except (OSError, http.client.HTTPException):
                    return

        threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
        for t in threads:
            t.start()
        time.sleep(rng.uniform(0.1, 0.8))
        for pid in server.gateways():
            os.kill(pid, signal.SIGKILL)
        server.kill()
        stop.set()
        for t in threads:
            t.join()
        server.start()
        client = server.client("one", "/v1")
        rows = dict(row_ids(server))
        for one, data in known.items():
            if data is not None:
                assert one in rows
                assert client.get("/files/%s/content" % one).body == data
        folder = server.data / "gateway" / "blob"
        for one, blob in rows.items():
            assert (folder / blob).is_file(), "a row without its blob"
    spare = set(blobs(server)) - {folder / blob for blob in rows.values()}
    for path in blobs(server):
        os.utime(path, (time.time() - 7200,) * 2)
    orphan = folder / "doc" / "00" / ("0" * 64)
    orphan.parent.mkdir(parents=True, exist_ok=True)
    orphan.write_bytes(b"left by one that was killed")
    os.chown(orphan.parent, folder.stat().st_uid, -1)
    os.utime(orphan, (time.time() - 7200,) * 2)
    young = folder / "doc" / "00" / ("1" * 64)
    young.write_bytes(b"on its way to a row")
    server.stop()
    server.start()
    wait_for(lambda: not any(path.exists() for path in [orphan, *spare]), every=0.1, message="the collection did not come")
    assert young.exists()
    client = server.client("one", "/v1")
    for one, data in known.items():
        if data is not None:
            assert client.get("/files/%s/content" % one).body == data


FULL = """
set -e
mount -t ext4 -o loop,nosuid,nodev "$0" "$1"
shift
exec "$@"
"""


@pytest.mark.skipif(not os.path.exists("/dev/loop-control"), reason="no loop devices")
def test_full_disk(make_server, tmp_path):
    """A file system of its own, filled up to the reserve: 503, and nothing that was there is harmed."""
    server = make_server(config={"sandbox": False})
    server.prepare()
    image = tmp_path / "disk"
    with open(image, "wb") as f:
        f.truncate(2300 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-m", "0", "-E", "lazy_itable_init=1,lazy_journal_init=1", image], check=True)
    server.prefix = ["unshare", "--mount", "sh", "-c", FULL, str(image), str(server.data)]
    os.chmod(server.data, 0o711)
    server.start()
    inside = pathlib.Path("/proc/%d/root%s" % (server.supervisor(), server.data))
    client = server.client("one", "/v1")
    kept = upload(client, b"kept", fields=[("purpose", "batch")])
    filler = inside / "filler"
    state = os.statvfs(inside)
    free = state.f_bavail * state.f_frsize
    assert free > 2 << 30, "mkfs took too much"
    with open(filler, "wb") as f:
        os.posix_fallocate(f.fileno(), 0, free - (2 << 30) - (4 << 20))
    refused = None
    for i in range(8):
        answer = client.request("POST", "/v1/files", multipart(bytes([65 + i]) * (1 << 20), "f.txt", [("purpose", "batch")]),
                                {"Content-Type": "multipart/form-data; boundary=brig-test"})
        if answer.status != 200:
            refused = answer
            break
    assert refused is not None and refused.status == 503, refused
    assert "room" in refused.error["message"]
    assert client.get("/files/%s/content" % kept["id"]).body == b"kept"
    listed = client.get("/files").json["data"]
    assert len(listed) == i + 1
    for d in listed:
        assert len(client.get("/files/%s/content" % d["id"]).body) == d["bytes"]
    os.unlink(filler)
    upload(client, b"room again")
