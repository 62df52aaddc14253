"""Which container a request gets: session keys, references, what was said before, or a new one."""
import pytest

from brigtest import BRIG_SHELL, SHELL, outputs_of
from fake_provider import calls, shell, text


@pytest.fixture(scope="module")
def server(servers_1_and_3):
    return servers_1_and_3


def container(client, provider, command="true", tool=SHELL, input="go", **fields):
    """(container id, stdout) of one command."""
    model = provider.model(calls(shell(command)), text("ok"))
    response = client.ask(model, input, tools=[tool], **fields)
    item = [i for i in response["output"] if "container_id" in i][0]
    return item["container_id"], outputs_of(response)[0]["stdout"]


def reference(id, type="openrouter:shell"):
    return {"type": type, "parameters": {"environment": {"type": "container_reference", "container_id": id}}}


@pytest.mark.parametrize("key, id", [
    ("abc", "sess_abc"),
    ("A-b_9", "sess_A-b_9"),
    ("12345678901234567890", "sess_12345678901234567890"),
    ("x12345678901234567890", "sess_12345678901234567890"),
    ("chat-5f2d9a77-0c1e-4b7a-9f00-1234567890ab", "sess_7a-9f00-1234567890ab"),
])
def test_a_session_id_names_its_container_by_its_last_20_characters(client, provider, key, id):
    assert container(client, provider, session_id=key)[0] == id


@pytest.mark.parametrize("key", ["with space", "a/b", "a.b", "\u00fcber", "", "a:b"])
def test_an_invalid_session_id_is_no_session(client, provider, key):
    first = container(client, provider, session_id=key)[0]
    second = container(client, provider, session_id=key)[0]
    assert first.startswith("gen_") and second.startswith("gen_") and first != second


def test_the_body_beats_the_header_beats_the_cache_key(client, provider):
    headers = {"x-session-id": "header"}
    assert container(client, provider, session_id="body", prompt_cache_key="cache", headers=headers)[0] == "sess_body"
    assert container(client, provider, prompt_cache_key="cache", headers=headers)[0] == "sess_header"
    assert container(client, provider, prompt_cache_key="cache")[0] == "sess_cache"


def test_the_first_key_present_decides_also_when_invalid(client, provider):
    headers = {"x-session-id": "header"}
    assert container(client, provider, session_id="not valid", prompt_cache_key="cache",
                     headers=headers)[0].startswith("gen_")
    assert container(client, provider, prompt_cache_key="cache",
                     headers={"x-session-id": "not valid"})[0].startswith("gen_")


def test_a_long_header_counts_by_its_end_too(client, provider):
    assert container(client, provider, headers={"x-session-id": "h" * 1000 + "-end-of-a-long-one"})[0] == (
        "sess_hh-end-of-a-long-one")


def test_null_is_no_key(client, provider):
    assert container(client, provider, session_id=None, prompt_cache_key="cache2")[0] == "sess_cache2"


def test_a_session_id_longer_than_256_is_refused(client, provider):
    assert client.ask(provider.model(), tools=[SHELL], session_id="x" * 257, expect=400).error["param"] == "session_id"


def test_without_a_session_each_request_has_its_own(client, provider):
    first = container(client, provider, "touch here")[0]
    second, listing = container(client, provider, "ls")
    assert first != second and listing == ""
    for id in (first, second):
        assert len(id) == 16 and id.startswith("gen_") and set(id[4:]) <= set("0123456789abcdef")


@pytest.mark.parametrize("tool", [SHELL, BRIG_SHELL], ids=["openrouter", "brig"])
def test_a_replayed_conversation_finds_its_container(client, provider, tool):
    model = provider.model(calls(shell("echo kept > file")), text("ok"), calls(shell("cat file")), text("ok"))
    first = client.ask(model, "go", tools=[tool])
    history = [{"role": "user", "content": "go"}] + first["output"] + [{"role": "user", "content": "again"}]
    second = client.ask(model, history, tools=[tool])
    assert outputs_of(second)[0]["stdout"] == "kept\n"
    ids = {i["container_id"] for r in (first, second) for i in r["output"] if "container_id" in i}
    assert len(ids) == 1 and ids.pop().startswith("gen_")


def test_the_most_recent_replayed_container_counts(client, provider):
    def item(n, id):
        return {"type": "openrouter:shell", "id": "st_%d" % n, "status": "completed", "call_id": "s%d_c" % n,
                "arguments": '{"commands":["true"]}', "container_id": id,
                "action": {"commands": ["true"], "timeout_ms": None, "max_output_length": None},
                "output": [{"stdout": "", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]}
    history = [{"role": "user", "content": "go"}, item(0, "older"), item(1, "newer"), {"role": "user", "content": "on"}]
    assert container(client, provider, input=history)[0] == "newer"
    assert container(client, provider, input=history, session_id="wins")[0] == "sess_wins"


@pytest.mark.parametrize("type", ["openrouter:shell", "brig:shell"])
def test_a_reference_names_its_container_whatever_the_session(client, provider, type):
    name = "by-ref-" + type.split(":")[0]
    assert container(client, provider, "echo x > f", tool=reference(name, type), session_id="other")[0] == name
    assert container(client, provider, "cat f", tool=reference(name, type)) == (name, "x\n")


def test_a_reference_of_40_characters_is_whole(client, provider):
    id = "r" * 40
    assert container(client, provider, tool=reference(id))[0] == id


def test_a_reference_to_what_a_session_made_is_the_same(client, provider):
    container(client, provider, "echo via-session > f", session_id="made")
    assert container(client, provider, "cat f", tool=reference("sess_made"))[1] == "via-session\n"


def test_files_of_a_session_survive_between_requests(client, provider):
    container(client, provider, "mkdir -p d; echo one > d/f; ln -s d/f l; chmod 750 d", session_id="files")
    assert container(client, provider, "cat l; stat -c %a d", session_id="files")[1] == "one\n750\n"


def test_every_gateway_reaches_the_same_container(client, provider):
    for i in range(9):
        container(client, provider, "echo %d >> log" % i, session_id="everywhere")
    assert container(client, provider, "tr -d '\\n' < log", session_id="everywhere")[1] == "012345678"


def test_both_entries_of_one_session_share_one_sandbox(client, provider):
    container(client, provider, "echo x > /tmp/live", session_id="shared")
    assert container(client, provider, "cat /tmp/live", tool=BRIG_SHELL, session_id="shared")[1] == "x\n"


def test_the_same_id_in_two_workspaces_is_two_containers(server, client, provider):
    container(client, provider, "echo secret > f", session_id="tenant")
    for other in ("two", "far"):
        id, listing = container(server.client(other), provider, "ls; ls /proc | grep -c '^[0-9]'", session_id="tenant")
        assert id == "sess_tenant" and listing.splitlines()[0] != "f"
    assert container(client, provider, "cat f", session_id="tenant")[1] == "secret\n"


def test_a_container_of_another_workspace_is_unknown(server, client, provider):
    client.run("private", "echo mine > f")
    for other in ("two", "far"):
        stranger = server.client(other)
        assert stranger.get("/containers/private").status == 404
        assert stranger.delete("/containers/private").status in (404, 200)
        assert "private" not in [c["id"] for c in stranger.get("/containers").json["data"]]
        assert stranger.run("private", "ls")["stdout"] == ""
    assert client.run("private", "cat f")["stdout"] == "mine\n"


def test_two_requests_in_one_session_at_once_share_it(client, provider):
    """Each waits for a file that the other makes."""
    import threading
    results = {}

    def ask(mine, theirs):
        results[mine] = container(client, provider, "touch %s; for i in $(seq 2500); do [ -e %s ] && break; sleep 0.02; "
                                                    "done; [ -e %s ] && echo met" % (mine, theirs, theirs),
                                  session_id="meeting")[1]
    threads = [threading.Thread(target=ask, args=a) for a in (("a", "b"), ("b", "a"))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert results == {"a": "met\n", "b": "met\n"}


def test_history_is_not_run_again(client, provider):
    model = provider.model(calls(shell("echo x >> log")), text("ok"), calls(shell("cat log")), text("ok"))
    first = client.ask(model, "go", tools=[SHELL], session_id="once")
    history = [{"role": "user", "content": "go"}] + first["output"] + [{"role": "user", "content": "more"}]
    second = client.ask(model, history, tools=[SHELL], session_id="once")
    assert outputs_of(second)[0]["stdout"] == "x\n"
