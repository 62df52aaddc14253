"""The other subcommands, as a person or a script uses them."""
import contextlib
import hashlib
import json
import os
import signal
import subprocess

import pytest

import brigtest
from brigtest import BRIG, wait_for


def brig(server, *args, **more):
    """Runs brig with the data folder of the server, and none of the caller's own settings."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("BRIG_")}
    if server:
        env["BRIG_DATA"] = str(server.data)
    env.update(more.pop("env", {}))
    more.setdefault("stdin", subprocess.DEVNULL)
    if "input" in more:
        del more["stdin"]
    return subprocess.run([BRIG, *args], capture_output=True, timeout=60, env=env, **more)


# ---- usage ----

COMMANDS = ["serve", "run", "ask", "ps", "files", "rm", "logs", "keys", "image", "doctor", "selftest", "version"]


def test_help_lists_what_works_and_nothing_else():
    for flag in ("--help", "-h", "help"):
        done = brig(None, flag)
        assert (done.returncode, done.stderr) == (0, b"")
        listed = [line.split()[0] for line in done.stdout.decode().splitlines() if line.startswith("  ")]
        assert listed == COMMANDS


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_help_and_refuses_what_it_does_not_know(command):
    done = brig(None, command, "--help")
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.startswith(b"usage: brig %s" % command.encode())
    done = brig(None, command, "--no-such-flag")
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.startswith(b"brig: unknown flag --no-such-flag\nusage: brig %s" % command.encode())


@pytest.mark.parametrize("args, message", [
    ([], b"brig gives any model a shell"),
    (["frobnicate"], b"brig: unknown command frobnicate"),
    (["serve", "now"], b"brig: serve takes no argument: now"),
    (["serve", "--config"], b"brig: --config needs a value: FILE"),
    (["ps", "--json=1"], b"brig: --json takes no value"),
    (["run"], b"brig: run needs a command"),
    (["run", "--"], b"brig: run needs a command"),
    (["run", "--timeout", "0", "true"], b"brig: --timeout must be from 1 to 86400000"),
    (["run", "--timeout", "1s", "true"], b"brig: --timeout must be from 1 to 86400000"),
    (["run", "--container", "a/b", "true"], b"brig: --container must be 1 to 40"),
    (["run", "--container", "a" * 41, "true"], b"brig: --container must be 1 to 40"),
    (["ask", "model"], b"brig: ask needs a model and a text"),
    (["files"], b"brig: files needs one of ls, get, put, promote, rm"),
    (["files", "frob", "box"], b"brig: files needs one of ls, get, put, promote, rm"),
    (["files", "ls"], b"brig: files ls takes CONTAINER"),
    (["files", "get", "box"], b"brig: files get takes CONTAINER PATH"),
    (["files", "put", "box", "a", "b", "c"], b"brig: files put takes CONTAINER FILE"),
    (["logs", "a", "b"], b"brig: logs takes one ID at most"),
    (["logs", "--follow", "--export"], b"brig: --follow and --export exclude each other"),
    (["logs", "--content"], b"brig: --content goes with --export"),
    (["logs", "--since", "yesterday"], b"brig: --since must be like"),
    (["logs", "--limit", "0"], b"brig: --limit must be from 1 to"),
    (["rm"], b"brig: rm needs a container"),
    (["image"], b"brig: image needs one of build, list"),
    (["image", "frob"], b"brig: image needs one of build, list"),
    (["keys"], b"brig: keys needs one of create, list, change, revoke"),
    (["keys", "create"], b"brig: create needs --name"),
    (["keys", "list", "all"], b"brig: keys list takes no argument"),
    (["keys", "revoke"], b"brig: keys revoke takes one hash"),
])
def test_wrong_usage_exits_with_2(args, message):
    done = brig(None, *args)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.startswith(message), done.stderr


def test_version():
    done = brig(None, "version")
    assert done.stdout == brig(None, "--version").stdout
    assert done.stdout.startswith(b"brig ") and done.stdout.count(b"\n") == 1


def test_no_server(tmp_path):
    done = brig(None, "run", "--data", str(tmp_path), "true")
    assert done.returncode == 125
    assert done.stderr.startswith(b"brig: no server is running on the data folder %s" % bytes(tmp_path))
    done = brig(None, "ps", env={"BRIG_URL": "http://127.0.0.1:1", "BRIG_KEY": "brig-0123456789abcdef"})
    assert (done.returncode, done.stderr) == (1, b"brig: no server answers at http://127.0.0.1:1\n")


def test_a_wrong_key_is_the_server_s_word(server):
    done = brig(server, "ps", env={"BRIG_KEY": "brig-nobody-s-key-at-all"})
    assert done.returncode == 1
    assert b"(HTTP 401)" in done.stderr


# ---- run ----

def test_output_is_the_command_s_own_to_the_byte(server):
    script = "i=0; while [ $i -lt 300 ]; do head -c 997 /dev/urandom; i=$((i+1)); done | tee /tmp/o; sha256sum /tmp/o >&2"
    done = brig(server, "run", "--", "sh", "-c", script)
    assert done.returncode == 0
    assert len(done.stdout) == 300 * 997
    assert hashlib.sha256(done.stdout).hexdigest() == done.stderr.split()[0].decode()


def test_arguments_are_passed_as_they_are(server):
    args = ["", " ", "*", "$HOME", "ü", "a\nb", "'", '"', "\\", "--json"]
    done = brig(server, "run", "--", "printf", "[%s]", *args)
    assert done.stdout.decode() == "".join("[%s]" % a for a in args)


@pytest.mark.parametrize("script, code", [("true", 0), ("exit 7", 7), ("exit 255", 255), ("kill -9 $$", 137), ("kill -15 $$", 143)])
def test_exit_codes(server, script, code):
    assert brig(server, "run", "--", "sh", "-c", script).returncode == code


def test_a_program_that_does_not_exist(server):
    done = brig(server, "run", "--", "/no/such/program")
    assert done.returncode in (125, 126, 127)


def test_timeout(server):
    done = brig(server, "run", "--timeout", "1500", "--", "sh", "-c", "echo before; sleep 300")
    assert (done.returncode, done.stdout) == (124, b"before\n")


def test_a_container_works_on_after_a_timeout(server):
    assert brig(server, "run", "--container", "after", "--timeout", "200", "sleep", "99").returncode == 124
    for _ in range(3):
        done = brig(server, "run", "--container", "after", "echo", "alive")
        assert (done.returncode, done.stdout) == (0, b"alive\n")


def test_standard_input(server):
    text = "ü\n".encode() * 100000
    assert brig(server, "run", "--", "cat", input=text).stdout == text
    assert brig(server, "run", "--", "cat").stdout == b""
    done = brig(server, "run", "--", "cat", input=b"x" * (1 << 20))
    assert len(done.stdout) == 1 << 20
    done = brig(server, "run", "--", "cat", input=b"x" * ((1 << 20) + 1))
    assert (done.returncode, done.stderr) == (125, b"brig: standard input is longer than 1048576 bytes\n")
    done = brig(server, "run", "--", "cat", input=b"\xff\xfe")
    assert (done.returncode, done.stderr) == (125, b"brig: standard input must be UTF-8 text\n")


def names(server):
    return {c["id"] for c in json.loads(brig(server, "ps", "--json").stdout)}


def test_a_new_container_is_gone_afterwards_and_a_named_one_stays(server):
    before = names(server)
    brig(server, "run", "true")
    assert names(server) == before
    brig(server, "run", "--container", "kept", "sh", "-c", "echo hello > file")
    assert names(server) == before | {"kept"}
    assert brig(server, "run", "--container", "kept", "cat", "file").stdout == b"hello\n"
    assert b"kept" in brig(server, "ps").stdout


def start_brig(server, *args):
    env = dict(os.environ, BRIG_DATA=str(server.data))
    return subprocess.Popen([BRIG, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, env=env)


@pytest.mark.parametrize("sig", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_the_command_and_its_container(server, sig):
    before = names(server)
    process = start_brig(server, "run", "--", "sh", "-c", "echo started; sleep 4321")
    assert process.stdout.readline() == b"started\n"
    assert server.guests("sleep 4321")
    process.send_signal(sig)
    assert process.wait(60) == 128 + sig
    wait_for(lambda: not server.guests("sleep 4321"))
    assert names(server) == before


def test_a_reader_that_goes_away_ends_the_command(server):
    before = names(server)
    process = start_brig(server, "run", "--", "sh", "-c", "yes; sleep 4322")
    process.stdout.read(10)
    process.stdout.close()
    assert process.wait(60) == 141
    assert process.stderr.read() == b""
    assert names(server) == before


def test_run_json(server):
    done = brig(server, "run", "--json", "--", "sh", "-c", "echo out; echo err >&2; exit 3")
    answer = json.loads(done.stdout)
    assert done.returncode == 3
    assert answer["output"][0]["stdout"] == "out\n"
    assert answer["output"][0]["stderr"] == "err\n"
    assert answer["output"][0]["outcome"]["exit_code"] == 3


# ---- ask and ps ----

REQUEST = "Run these.\n```\necho one; echo two >&2\n```\n```\nexit 4\n```"


def test_ask_shows_commands_outputs_outcomes_time_and_cost(server):
    done = brig(server, "ask", "brig/script", REQUEST)
    assert (done.returncode, done.stderr) == (0, b"")
    text = done.stdout.decode()
    assert text.startswith("$ echo one; echo two >&2\n  one\n  two\n  [exit 0]\n$ exit 4\n  [exit 4]\n-- ")
    assert " ms, container gen_" in text
    assert "brig/script is no model" in text
    assert "-- cost $0.003 (of which sandbox $0.003); tokens 0 in, 0 out\n" in text


def test_ask_json_and_session(server):
    done = brig(server, "ask", "--json", "--session", "talk", "brig/script", REQUEST)
    answer = json.loads(done.stdout)
    assert answer["status"] == "completed"
    shell, = [i for i in answer["output"] if i["type"] == "openrouter:shell"]
    assert shell["container_id"] == "sess_talk"


def test_ask_takes_the_text_from_standard_input(server):
    done = brig(server, "ask", "brig/script", "-", input=REQUEST.encode())
    assert b"$ exit 4\n  [exit 4]\n" in done.stdout


def on_a_terminal(server, *args):
    """What a terminal would be given."""
    env = dict(os.environ, BRIG_DATA=str(server.data))
    ours, theirs = os.openpty()
    process = subprocess.Popen([BRIG, *args], stdout=theirs, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, env=env)
    os.close(theirs)
    text = b""
    with contextlib.suppress(OSError):  # EIO when the other end is closed
        while True:
            text += os.read(ours, 65536)
    os.close(ours)
    assert process.wait(60) == 0
    return text.replace(b"\r\n", b"\n")


def test_ask_gives_a_terminal_no_control_characters(server):
    request = "```\nprintf 'a\\033]0;owned\\007b\\302\\233c\\tü\\n'\n```"
    assert b"  a?]0;owned?b?c\t\xc3\xbc\n" in on_a_terminal(server, "ask", "brig/script", request)
    assert b"  a\033]0;owned\007b\302\233c\t\xc3\xbc\n" in brig(server, "ask", "brig/script", request).stdout


def test_ask_an_unknown_model(server):
    done = brig(server, "ask", "nobody/none", "hello")
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"nobody/none" in done.stderr and b"(HTTP 404)" in done.stderr


def test_ps_pages(server):
    client = server.client((server.data / "key").read_text().strip())
    made = {"page-%d" % i for i in range(120)}
    for name in sorted(made):
        assert client.post("/containers", {"name": name}).status == 200
    assert made <= names(server)
    for name in made:
        client.delete("/containers/" + name)


# ---- image ----

def test_image_list(server, tmp_path):
    images = json.loads(brig(server, "image", "list", "--json").stdout)
    assert [i["name"] for i in images] == ["base"]
    assert images[0]["bytes"] == os.path.getsize(server.data / "images" / "base.erofs")
    assert brig(server, "image", "list").stdout.startswith(b"base ")
    assert json.loads(brig(None, "image", "--data", str(tmp_path), "list", "--json").stdout) == []
    assert b"no image yet" in brig(None, "image", "--data", str(tmp_path), "list").stderr


# ---- keys ----

def test_keys_are_made_listed_and_revoked(server):
    done = brig(server, "keys", "create", "--name", "ci", "--limit", "5", "--reset", "daily", "--rpm", "60", "--expires", "30d", "--disable", "bash")
    assert done.returncode == 0, done.stderr
    key = done.stdout.decode().strip()
    assert key.startswith("brig-") and key.encode() not in done.stderr and b"shown this once" in done.stderr
    listed = {k["name"]: k for k in json.loads(brig(server, "keys", "list", "--json").stdout)}
    made = listed["ci"]
    assert (made["limit"], made["limit_reset"], made["requests_per_minute"], made["disabled_server_tools"]) == (5, "daily", 60, ["bash"])
    assert made["expires_at"] and made["hash"][:12].encode() in done.stderr
    assert b"5 daily" in next(line for line in brig(server, "keys", "list").stdout.splitlines() if b" ci " in line)
    assert brig(server, "ps", env={"BRIG_KEY": key}).returncode == 0
    for wrong in ("short", "0" * 12):
        assert brig(server, "keys", "revoke", wrong).returncode == 1
    assert brig(server, "keys", "change", "--limit", "7.5", "--rpm", "none", "--disable", "shell", made["hash"][:8]).returncode == 0
    changed = {k["name"]: k for k in json.loads(brig(server, "keys", "list", "--json").stdout)}["ci"]
    assert changed == dict(made, limit=7.5, limit_remaining=7.5, requests_per_minute=None, disabled_server_tools=["shell"])
    assert brig(server, "keys", "change", "--limit", "x", made["hash"][:8]).returncode == 1
    assert brig(server, "keys", "revoke", made["hash"][:8]).returncode == 0
    assert brig(server, "ps", env={"BRIG_KEY": key}).returncode == 1
    assert b"revoked" in brig(server, "keys", "list").stdout
    assert brig(server, "keys", "create", "--name", "x", "--limit", "-1").returncode == 1
