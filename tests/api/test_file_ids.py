"""file_ids: documents that a request brings into its container."""
import base64
import hashlib
import random
import time

import pytest

from brigtest import wait_for
from fake_provider import calls, shell, text
from test_documents import MISSING, upload


@pytest.fixture
def client(server):
    return server.client("one", "/api/v1")


def made(client, data=b"hello\n", filename="a.txt"):
    return upload(client, data, filename)["id"]


def in_home(one, name):
    return "%s-%s" % (one[-8:], name)


def tool(*files, container=None):
    environment = {"type": "container_reference", "container_id": container} if container else {"type": "container_auto"}
    return {"type": "openrouter:shell", "parameters": {"environment": dict(environment, file_ids=list(files))}}


def test_made_with_files(client):
    data = random.Random(3).randbytes(3 << 20)
    openai = client.server.client("one", "/v1")
    big = upload(openai, data, "dir/sub/big.bin")["id"]
    small, empty_stem = made(client, b"small\n", "a b.txt"), made(client, b"x", ".profile")
    answer = client.post("/containers", {"name": "with-files", "file_ids": [big, small, empty_stem, small]})
    assert answer.status == 200, answer
    assert answer.json["status"] == "asleep"
    got = client.run("with-files", "ls -A; sha256sum %s; cat '%s'; stat -c '%%U %%a' *.bin"
                     % (in_home(big, "big.bin"), in_home(small, "a b.txt")))["stdout"]
    lines = got.splitlines()
    assert lines[:3] == sorted([in_home(big, "big.bin"), in_home(small, "a b.txt"), in_home(empty_stem, ".profile")]), got
    assert lines[3].startswith(hashlib.sha256(data).hexdigest()) and lines[4:] == ["small", "root 644"]
    # The copy is the container's own: to change and to keep, whatever becomes of the document.
    name = in_home(small, "a b.txt")
    client.run("with-files", "echo changed >> '%s'" % name)
    assert client.delete("/files/" + small).status == 200
    assert client.run("with-files", "cat '%s'" % name)["stdout"] == "small\nchanged\n"


def test_what_is_there_stays(client):
    one = made(client, b"first\n", "notes.txt")
    name = in_home(one, "notes.txt")
    client.post("/containers", {"name": "twice", "file_ids": [one]})
    client.run("twice", "echo edited > " + name)
    assert client.post("/containers", {"name": "twice", "file_ids": [one]}).status == 200
    assert client.run("twice", "cat " + name)["stdout"] == "edited\n"


@pytest.mark.parametrize("bad", [MISSING, "", "x" * 200, "../../etc/passwd", "or_file_\u0000"])
def test_a_bad_one_makes_nothing(client, bad):
    good = made(client)
    answer = client.post("/containers", {"name": "never-made", "file_ids": [good, bad]})
    assert answer.status == 400 and answer.error["param"] == "file_ids[1]", answer
    assert client.get("/containers/never-made").status == 404


def test_foreign_one(server, client):
    theirs = made(server.client("two", "/api/v1"))
    assert client.post("/containers", {"file_ids": [theirs]}).error["param"] == "file_ids[0]"


@pytest.mark.parametrize("value", ["or_file_1", [1], [None], {"a": "b"}, ["x"] * 21])
def test_bad_lists(client, provider, value):
    assert client.post("/containers", {"file_ids": value}).status == 400
    model = provider.model(text("never asked"))
    entry = {"type": "openrouter:shell", "parameters": {"environment": {"type": "container_auto", "file_ids": value}}}
    answer = client.ask(model, tools=[entry], expect=400)
    assert answer.error["param"].startswith("tools[0].parameters.environment.file_ids")
    assert not model.requests


def stdout(response, i=0):
    return [item for item in response["output"] if item["type"] == "openrouter:shell"][i]["output"][0]["stdout"]


@pytest.mark.parametrize("container", [None, "by-reference"])
def test_in_a_turn(client, provider, container):
    one, two = made(client, b"1,2\n3,4\n", "in/data.csv"), made(client, b"two\n", "b.txt")
    model = provider.model(calls(shell("ls; cat *data.csv")), calls(shell("rm *; ls")), text("ok"))
    response = client.ask(model, tools=[tool(one, two, container=container)])
    assert stdout(response).splitlines() == sorted([in_home(one, "data.csv"), in_home(two, "b.txt")]) + ["1,2", "3,4"]
    assert stdout(response, 1) == ""  # they come once, before the first command
    assert response["tools"][0]["parameters"]["environment"]["file_ids"] == [one, two]


def test_a_bad_one_in_a_turn(client, provider):
    model = provider.model(text("never asked"))
    good = made(client)
    answer = client.ask(model, tools=[tool(good, MISSING)], expect=400)
    assert answer.error["param"] == "tools[0].parameters.environment.file_ids[1]"
    assert not model.requests
    answer = client.ask(model, tools=[dict(tool(good), type="brig:shell"), tool(good)], expect=400)
    assert not model.requests


def test_no_room_in_home(make_server, provider):
    server = make_server(config={"container": {"memory": "256m", "home": "16m", "scratch": "64m"}}).start()
    client = server.client("one", "/v1")
    big = upload(client, b"b" * (40 << 20), "big.txt")["id"]
    answer = client.post("/containers", {"name": "small", "file_ids": [big]})
    assert answer.status in (413, 507), answer
    client = server.client("one", "/api/v1")
    model = provider.model(calls(shell("echo never")), text("sorry"))
    response = client.ask(model, tools=[tool(big)])
    item = response["output"][0]
    assert item["status"] == "failed" and "room" in str(item["error"]), item
    assert client.run("small", "ls; echo fine")["stdout"] == "fine\n"


def test_deleted_in_between(client, provider):
    """A document that goes after it was looked up: the call fails and says so, and the turn goes on."""
    one = made(client, b"gone\n")

    def delete_then_call(request):
        assert client.delete("/files/" + one).status == 200
        return calls(shell("echo never"))

    model = provider.model(delete_then_call, text("sorry"))
    response = client.ask(model, tools=[tool(one)])
    item = response["output"][0]
    assert item["status"] == "failed" and "deleted" in str(item["error"]), item
    assert response["output"][-1]["content"][0]["text"] == "sorry"


def test_client_that_leaves_while_files_are_copied(server, client, provider):
    files = [upload(server.client("one", "/v1"), random.Random(i).randbytes(20 << 20), "%d.bin" % i)["id"] for i in range(4)]
    for wait in (0, 0.05, 0.2):
        model = provider.model(calls(shell("sleep 600")), text("never"))
        stream = client.begin(model, tools=[tool(*files)])
        wait_for(lambda: model.requests)
        time.sleep(wait)
        stream.close()
    wait_for(lambda: not server.guests("sleep 600"))
    for one in files:
        assert client.delete("/files/" + one).status == 200
    model = provider.model(calls(shell("echo fine")), text("ok"))
    assert stdout(client.ask(model, tools=[tool(made(client))])) == "fine\n"


def test_long_names(client):
    """255 characters may be 1,020 bytes, which no file system takes: the stem is cut, the extension stays."""
    one = made(client, b"long\n", "😀" * 251 + ".txt")
    client.post("/containers", {"name": "long-name", "file_ids": [one]})
    listed = client.run("long-name", "ls")["stdout"].rstrip("\n")
    assert listed == one[-8:] + "-" + "😀" * ((255 - 9 - 4) // 4) + ".txt"
    assert client.run("long-name", "cat *")["stdout"] == "long\n"


# ---- promoting: out of a container ----

def promote(client, container, path, expect=200):
    path = path if isinstance(path, bytes) else path.encode()
    id = "cfile_" + base64.urlsafe_b64encode(path).decode().rstrip("=")
    answer = client.post("/containers/%s/files/%s/promote" % (container, id))
    assert answer.status == expect, answer
    return answer.json


def test_promoted_names(client):
    deep = "/".join(["d" * 50] * 8)
    client.run("names", "mkdir -p %s; echo x > %s/x; echo a > 'a:b?\"|<>*c'; printf b > $'caf\\xe9 \\x01\\n'; echo c > 'back\\slash'" % (deep, deep))
    for path, name in ((deep + "/x", None), ('a:b?"|<>*c', "a_b______c"), (b"caf\xe9 \x01\n", "caf_ __"),
                       ("back\\slash", "back_slash")):
        made = promote(client, "names", path)
        if name is None:
            assert made["filename"].endswith("/x") and len(made["filename"]) <= 255 and path.endswith(made["filename"])
        else:
            assert made["filename"] == name
        assert client.get("/files/" + made["id"]).json == made
        # And back in again, under that name.
        assert client.post("/containers", {"name": "names-back", "file_ids": [made["id"]]}).status == 200
    assert client.run("names-back", "ls | wc -l")["stdout"] == "4\n"


def test_promoted_content(client):
    client.run("content", "touch empty; head -c 3000000 /dev/urandom > random; sha256sum random > sum; printf '\\177ELF\\0' > program")
    empty = promote(client, "content", "empty")
    assert empty["size_bytes"] == 0 and empty["downloadable"]
    answer = client.get("/files/%s/content" % empty["id"])
    assert answer.status == 200 and answer.body == b""
    program = promote(client, "content", "program")  # what an upload would be refused
    assert program["mime_type"] == "application/octet-stream"
    random = promote(client, "content", "random")
    data = client.get("/files/%s/content" % random["id"]).body
    assert hashlib.sha256(data).hexdigest() == client.run("content", "cut -d' ' -f1 sum")["stdout"].strip()
    again = promote(client, "content", "random")
    assert again["id"] != random["id"]
    client.delete("/files/" + random["id"])
    assert client.get("/files/%s/content" % again["id"]).body == data


def test_promoted_while_it_changes(client):
    """A guest that rewrites, cuts and swaps the file: each document is some bytes of that file, and whole."""
    client.run("racing", "head -c 500000 /dev/zero | tr '\\0' a > f; cp f g")
    racer = client.execute("racing", "while :; do mv f h; mv g f; mv h g; : > f; head -c 500000 /dev/zero | tr '\\0' b > f; "
                           "ln -sf /etc/shadow link; mv link f; rm f; cp g f; done", detach=True, expect=202)
    seen = set()
    for _ in range(40):
        id = "cfile_" + base64.urlsafe_b64encode(b"f").decode().rstrip("=")
        answer = client.post("/containers/racing/files/%s/promote" % id)
        assert answer.status in (200, 404), answer
        if answer.status == 200:
            data = client.get("/files/%s/content" % answer.json["id"]).body
            assert len(data) == answer.json["size_bytes"] and not data.replace(b"a", b"").replace(b"b", b"")
            seen.add(len(data))
    client.delete("/containers/racing/exec/" + racer["exec_id"])
    assert seen


def test_promotion_counts(make_server):
    server = make_server(config={"limits": {"workspace_files": "1m", "file": "600k"},
                                 "container": {"memory": "256m", "home": "64m", "scratch": "64m"}}).start()
    client = server.client("one", "/api/v1")
    client.run("quota", "head -c 700000 /dev/zero > large; head -c 500000 /dev/urandom > a; head -c 600000 /dev/urandom > b")
    assert promote(client, "quota", "large", 413)["error"]["code"] == 413
    promote(client, "quota", "a")
    assert promote(client, "quota", "b", 403)["error"]["type"] == "permission_error"
    assert len(client.get("/files").json["data"]) == 1
