r"""What users complain of elsewhere, tried here: life of processes, deadlines and input (P), output (O).

| row | what went wrong | tested by |
| --- | --- | --- |
| P1 | a deadline ends the leader only | test_commands: test_deadline; tests/escape: test_the_tree_is_gone_at_the_deadline (its port) |
| P2 | a kill that blocks, or does not kill | test_commands: test_one_that_ignores_signals_is_killed_at_once |
| P3 | background work dies with the command's limit | test_commands: test_a_background_job_outlives_…; here: test_a_detached_one_…; tests/soak: background |
| P4 | said to be over, still at work | test_commands: test_nothing_goes_on_after_a_deadline |
| P5 | the shell was killed, its child was not | test_commands: test_deadline (setsid, double fork, nohup, disown) |
| P6 | closing one killed another's processes | test_commands: test_ending_one_leaves_anothers_background_job; tests/api/test_cancel: test_one_client_leaving_… |
| P9 | a command poisons those after it | test_commands: test_the_next_command_is_not_poisoned |
| P11 | who reads standard input waits for ever | test_commands: test_who_reads_gets_the_end; test_machine: test_apt_from_a_repository_of_files |
| P13 | setsid escapes from a kill of the group | as P5 |
| P14 | daemons killed with the session | test_commands: test_a_background_job_outlives_its_command_and_not_its_container |
| P15 | a long silent command loses its stream and its end | here: test_a_silent_one_is_found_again; tests/soak: silent (11 minutes) |
| P16 | a cancelled command hangs | test_commands: test_cancelling_at_any_moment, test_a_client_that_leaves_at_any_moment; tests/api: test_an_exec_that_waits_its_turn_can_be_killed |
| P17 | a fork bomb takes the host along | test_abuse: test_a_bomb_is_its_containers_own |
| P18 | no limit of processes | test_limits: test_processes_are_limited_unless_told, test_processes_are_a_containers_own |
| P19 | a limit of processes shared between sandboxes | test_limits: test_processes_are_a_containers_own |
| P21 | a deadline looks like a kill | test_commands: test_the_kinds_of_an_end_are_told_apart |
| O1 | a character cut in two | here: test_characters_at_every_edge |
| O2 | bytes that are no text break the answer | here: test_any_bytes |
| O3 | a binary file given out as text | here: test_files_of_any_bytes_come_out_whole (a command's output; the files of the API have their own tests) |
| O4 | too much output kills the command | here: test_too_much_output_ends_nothing |
| O5 | output before a deadline is lost | test_commands: test_deadline |
| O6 | endless output fills memory or disk | tests/escape: test_a_flood_costs_no_memory; here: test_floods_of_many_containers |
| O8 | nothing on standard error | here: test_standard_error |
| O10 | a limit in other units than it says | here: test_characters_at_every_edge |
| O11 | output files without a limit | here: test_many_files_and_a_large_one (homes are bounded; nothing is gathered unasked) |
"""
import base64
import concurrent.futures
import contextlib
import hashlib
import os
import time

from brigtest import parse_sse, resident, wait_for
from sandboxtest import fresh, output_of

SETTINGS = {"limits": {"keepalive": "200ms"}}
CGROUPS = ["auto"]  # which has no part in these


def events_of(client, name, **body):
    with contextlib.closing(client.open_stream("/containers/%s/exec" % name, dict(body, stream=True))) as stream:
        return parse_sse(stream.rest())


# ---- P ----

def test_a_detached_one_is_bound_by_its_own_limit_only(client):
    """P3: it goes on where its client and the commands beside it are long gone, and its output is read from any byte on."""
    name = fresh()
    client.execute(name, "for i in $(seq 40); do echo tick $i; sleep 0.05; done", detach=True, exec_id="long", expect=202)
    assert client.run(name, "sleep 9", timeout_ms=200)["outcome"] == {"type": "timeout"}
    path = "/containers/%s/exec/long" % name
    whole, offset = "", 0
    while True:
        piece = client.get(path + "?stdout_offset=%d&wait=10" % offset).json
        assert piece["stdout_offset"] == offset
        whole += piece["stdout"]
        offset += len(piece["stdout"])
        if piece["status"] == "done" and not piece["stdout"]:
            break
    assert whole == "".join("tick %d\n" % i for i in range(1, 41))
    assert piece["output"][0]["outcome"] == {"type": "exit", "exit_code": 0}


def test_a_silent_one_is_found_again(client):
    """P15, in short: signs of life on its stream; the connection breaks; the same end and all bytes for who asks by its id."""
    name = fresh()
    command = "echo first; sleep 3; seq 1 5000; echo last >&2; exit 42"
    client.execute(name, command, detach=True, exec_id="quiet", expect=202)
    path = "/containers/%s/exec/quiet" % name
    with contextlib.closing(client.open_stream(path + "?wait=30&stdout_offset=6", None, method="GET")) as waiting:
        time.sleep(0.4)
        waiting.reset()
    done = wait_for(lambda: (lambda r: r if r["status"] == "done" else None)(client.get(path + "?wait=10").json))
    assert done["output"][0]["outcome"] == {"type": "exit", "exit_code": 42}
    assert done["stdout"] == "first\n" + "".join("%d\n" % i for i in range(1, 5001)) and done["stderr"] == "last\n"
    events, comments = events_of(client, name, commands=["sleep 1; exit 7"])
    assert len(comments) >= 2 and events[-1][1]["output"][0]["outcome"] == {"type": "exit", "exit_code": 7}


# ---- O ----

# One, two, three and four bytes; a letter with a mark of its own; a family of four that is one sign to the eye.
SIGNS = ["x", "\u00e4", "\u4e2d", "\U0001f600", "e\u0301", "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466"]


def test_characters_at_every_edge(client):
    """O1, O10: the limit is in characters, one below, at and above it; each place of a character at each edge of a piece."""
    name = fresh()
    text = "".join(SIGNS) * 40
    client.run(name, "cat > text", stdin=text)
    for limit in range(len(text) - 1, len(text) + 2):
        output = client.run(name, "cat text", max_output_length=limit)
        if limit >= len(text):
            assert output["stdout"] == text and "stdout_truncated" not in output
        else:
            assert output["stdout_truncated"] is True and output["stdout_length"] == len(text)
            assert len(output["stdout"]) <= limit and "\ufffd" not in output["stdout"]
    for limit in range(60, 80):
        output = client.run(name, "cat text", max_output_length=limit)
        assert len(output["stdout"]) <= limit and "\ufffd" not in output["stdout"]
    for shift in range(4):
        # Written in pieces of 1, 3 and 65,537 bytes, which no character fits.
        for size in (1, 3, 65537):
            amount = 20 if size < 9 else 3000
            program = "import sys\nb = ('.' * %d + open('text').read() * %d).encode()\nfor i in range(0, len(b), %d):\n" \
                      "    sys.stdout.buffer.write(b[i:i + %d]); sys.stdout.buffer.flush()" % (
                          shift, amount // 20, size, size)
            events, _ = events_of(client, name, argv=["python3", "-c", program])
            assert "".join(e["text"] for n, e in events if n == "exec.output") == "." * shift + text * (amount // 20)


BAD = [b"\x80", b"\xc3", b"\xe4\xb8", b"\xf0\x9f\x98", b"\xc0\xaf", b"\xe0\x80\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xff\xfe", b"\0",
       b"a\xe4b", b"\xf8\x88\x80\x80\x80"]


def test_any_bytes(client):
    """O2: the call succeeds, what is no text becomes U+FFFD as everywhere, and the bytes are to be had."""
    name = fresh()
    for bytes_ in BAD:
        command = "printf '%s'" % "".join("\\%03o" % b for b in bytes_)
        output = client.run(name, command)
        assert output["stdout"] == bytes_.decode("utf-8", "replace") and output["outcome"]["exit_code"] == 0, (bytes_, output)
        events, _ = events_of(client, name, commands=[command], encoding="base64")
        assert b"".join(base64.b64decode(e["data"]) for n, e in events if n == "exec.output") == bytes_
    output = client.run(name, "head -c 1M /dev/urandom | tee noise; head -c 100k noise >&2", max_output_length=60000)
    assert output["outcome"]["exit_code"] == 0 and len(output["stdout"]) <= 60000 and output["stdout_truncated"]


def test_files_of_any_bytes_come_out_whole(client):
    """O3"""
    name = fresh()
    client.run(name, "head -c 3M /dev/urandom > noise; python3 -c 'open(\"all\", \"wb\").write(bytes(range(256)))'; : > none")
    for file, length in (("noise", 3 << 20), ("all", 256), ("none", 0)):
        events, _ = events_of(client, name, argv=["cat", file], encoding="base64")
        data = b"".join(base64.b64decode(e["data"]) for n, e in events if n == "exec.output")
        assert len(data) == length
        assert output_of(client, name, "sha256sum < %s" % file).split()[0] == hashlib.sha256(data).hexdigest()
    answer = client.run(name, "cat missing")
    assert answer["stdout"] == "" and "No such file" in answer["stderr"] and answer["outcome"]["exit_code"] == 1


def test_too_much_output_ends_nothing(client):
    """O4: the command goes on to its end."""
    name = fresh()
    output = client.run(name, "seq 3000000; echo here > end; exit 3", max_output_length=1024, timeout_ms=60000)
    assert output["outcome"] == {"type": "exit", "exit_code": 3} and output["stdout_truncated"]
    assert output["stdout"].endswith("2999999\n3000000\n") and len(output["stdout"]) <= 1024
    assert output_of(client, name, "cat end") == "here\n"


def test_floods_of_many_containers(make_server, say):
    """O6: on both streams at once, in 16 containers: the server grows by a little for each, and the disk by nothing."""
    server = make_server(config={"container": {"live": 20, "memory": "64m", "home": "32m", "scratch": "32m"}})
    client = server.client()
    names = [fresh() for _ in range(16)]
    for name in names:
        client.run(name, "true")
    before = sum(map(resident, server.gateways() + [server.supervisor()]))
    free = os.statvfs(server.folder)
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        outputs = list(pool.map(lambda n: client.run(n, "yes abc & cat /dev/zero >&2", timeout_ms=3000), names))
    grown = sum(map(resident, server.gateways() + [server.supervisor()])) - before
    used = (free.f_bavail - os.statvfs(server.folder).f_bavail) * free.f_frsize
    say("16 floods: %d MiB of memory more" % (grown >> 20))
    assert all(o["outcome"] == {"type": "timeout"} and len(o["stdout"]) == len(o["stderr"]) == 16384 for o in outputs)
    assert grown < 16 * (2 << 20)
    assert sum(f.stat().st_size for f in server.folder.glob("*.log")) < 1 << 20
    assert used < 512 << 20  # others use the disk as well


def test_standard_error(client):
    """O8: by turns, alone, and after standard output was closed."""
    name = fresh()
    output = client.run(name, "for i in $(seq 200); do echo o$i; echo e$i >&2; done")
    assert output["stdout"].split() == ["o%d" % i for i in range(1, 201)]
    assert output["stderr"].split() == ["e%d" % i for i in range(1, 201)]
    assert client.run(name, "echo alone >&2")["stderr"] == "alone\n"
    output = client.run(name, "echo out; exec >&-; sleep 0.3; echo err >&2; exit 4")
    assert output == {"stdout": "out\n", "stderr": "err\n", "outcome": {"type": "exit", "exit_code": 4}}
    output = client.run(name, "exec 2>&-; sleep 0.2; echo out")
    assert (output["stdout"], output["stderr"]) == ("out\n", "")
    assert client.run(name, "exec >&- 2>&-; sleep 0.2; exit 6")["outcome"] == {"type": "exit", "exit_code": 6}


def test_many_files_and_a_large_one(client):
    """O11: neither holds up the next command, or the one that makes them."""
    name = fresh()
    assert output_of(client, name, "mkdir d; for i in $(seq 9000); do : > d/$i; done; truncate -s 5G large; ls d | wc -l; stat -c %s large",
                     timeout_ms=60000) == "9000\n5368709120\n"
    start = time.monotonic()
    assert output_of(client, name, "echo next") == "next\n"
    assert time.monotonic() - start < 30
    client.delete("/containers/" + name)
