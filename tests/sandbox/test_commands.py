"""Commands through the whole of brig: how they end, what outlives them, how they are cancelled, and what they leave."""
import contextlib
import itertools
import signal
import time

import pytest

import brigtest
from brigtest import wait_for
from sandboxtest import fresh, groups_of, hierarchies, holdings, output_of


def outcomes(client, name, commands, **fields):
    """Of any number of commands; a request takes 100."""
    found = []
    for i in range(0, len(commands), 100):
        found += [o["outcome"] for o in client.execute(name, *commands[i:i + 100], **fields)["output"]]
    return found


# ---- how they end ----

def test_every_exit_code(client):
    found = outcomes(client, fresh(), ["exit %d" % i for i in range(256)])
    assert found == [{"type": "exit", "exit_code": i} for i in range(256)]


SIGNALS = [s for s in range(1, 65) if s not in (32, 33)]  # those two are the C library's own
HARMLESS = {signal.SIGCHLD, signal.SIGURG, signal.SIGWINCH, signal.SIGCONT}
STOPPING = {signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU}


def test_every_signal_that_ends(client):
    """As the shell says it, 128 and its number, with its name beside."""
    fatal = [s for s in SIGNALS if s not in HARMLESS | STOPPING]
    found = outcomes(client, fresh(), ["exec sh -c 'kill -%d $$; exit 99'" % s for s in fatal])
    for number, outcome in zip(fatal, found):
        name = outcome.pop("signal")
        assert outcome == {"type": "exit", "exit_code": 128 + number}, (number, outcome)
        assert name == "SIG%d" % number if number >= signal.SIGRTMIN else getattr(signal, name) == number


def test_signals_that_do_not_end(client):
    harmless = sorted(HARMLESS)
    assert outcomes(client, fresh(), ["exec sh -c 'kill -%d $$; exit 99'" % s for s in harmless]) == \
        [{"type": "exit", "exit_code": 99}] * len(harmless)


def test_every_signal_that_can_be_caught(client):
    # bash takes SIGCHLD for itself: its trap tells of children only.
    catchable = [s for s in SIGNALS if s not in (signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD)]
    found = outcomes(client, fresh(), ["trap 'exit %d' %d; kill -%d $$; sleep 9" % (100 + s, s, s) for s in catchable])
    assert found == [{"type": "exit", "exit_code": 100 + s} for s in catchable]


def test_a_signal_to_a_child_is_the_shells_to_tell(client):
    """The command ended by itself: there is a code, and no signal."""
    name = fresh()
    for number in (1, 9, 11, 15):
        assert outcomes(client, name, ["sh -c 'kill -%d $$'; exit $?" % number]) == [{"type": "exit", "exit_code": 128 + number}]


def test_the_kinds_of_an_end_are_told_apart(server, client):
    """P21: its own end, the deadline, a signal, the memory limit, a kill from outside."""
    name = fresh()
    client.execute(name, "sleep 97101", detach=True, exec_id="killed", expect=202)
    wait_for(lambda: server.guests("97101"))
    client.delete("/containers/%s/exec/killed" % name)
    path = "/containers/%s/exec/killed?wait=10" % name
    done = wait_for(lambda: (lambda r: r if r["status"] == "done" else None)(client.get(path).json))
    found = [client.run(name, "exit 137")["outcome"], client.run(name, "sleep 99", timeout_ms=200)["outcome"],
             client.run(name, "kill -KILL $$")["outcome"], done["output"][0]["outcome"],
             client.run(name, "exec python3 -c 'bytearray(400 << 20)'", timeout_ms=60000)["outcome"]]
    killed = {"type": "exit", "exit_code": 137, "signal": "SIGKILL"}
    assert found == [{"type": "exit", "exit_code": 137}, {"type": "timeout"}, killed, killed, dict(killed, reason="memory")]


# ---- deadlines ----

HOLD = """import ctypes, os, signal, sys
for s in range(1, 65):
    try: signal.signal(s, signal.SIG_IGN)
    except (OSError, ValueError): pass
"""
STUBBORN = {
    "ignores signals": "trap '' HUP INT QUIT TERM USR1 USR2; echo up; while :; do sleep 97102; done",
    "double fork": "echo up; (setsid sh -c '(sleep 97102 &) ; sleep 97102' &); sleep 97102",
    "nohup": "nohup sleep 97102 & echo up; sleep 97102",
    "disown": "sleep 97102 & disown; echo up; sleep 97102",
    "stops itself": "(kill -STOP $BASHPID; sleep 97102) & echo up; kill -STOP $$; sleep 97102",
    "stops by the terminal's signal": "echo up; kill -TSTP $$; sleep 97102",
    # A vfork's parent waits in the kernel, deaf to all but a kill, until its child lets go.
    "vfork": "echo up; exec python3 -c '%s\nlibc = ctypes.CDLL(None)\nlibc.syscall(58) or libc.pause() # 97102'" % HOLD,
    "floods": "echo up; yes 97102",
    "has a pipe that nobody reads": "echo up; yes 97102 | sleep 97102",
}


@pytest.mark.parametrize("how", STUBBORN)
def test_deadline(server, client, how):
    """P1, P4, P5, P13, O5: all of it is gone by the answer, and what was printed is kept."""
    name = fresh()
    client.run(name, "true")
    output = client.run(name, STUBBORN[how], timeout_ms=2000)
    assert output["outcome"] == {"type": "timeout"} and output["stdout"].startswith("up\n"), output
    assert not server.guests("97102")
    assert output_of(client, name, "set -- /proc/[0-9]*; echo $#") == "2\n"


def test_nothing_goes_on_after_a_deadline(client):
    """P4: a counter stands still."""
    name = fresh()
    output = client.run(name, "(setsid sh -c 'while :; do echo >> n; done' &); sleep 99", timeout_ms=1500)
    assert output["outcome"] == {"type": "timeout"}
    first = output_of(client, name, "stat -c %s n")
    assert int(first) > 0 and output_of(client, name, "sleep 0.5; stat -c %s n") == first


# ---- standard input, and what poisons a shell ----

def test_who_reads_gets_the_end(client):
    """P11"""
    for command in ("cat", "read x || echo end", "python3 -", "tr a b", "bash", "wc -c | grep -x 0", "ssh-keygen 2>/dev/null; true",
                    "timeout 50 cat; echo $?"):
        assert client.run("stdin", command, timeout_ms=20000)["outcome"] == {"type": "exit", "exit_code": 0}, command


def test_the_next_command_is_not_poisoned(client):
    """P9: each ends, and the next one works."""
    name = fresh()
    poison = ["cat <<'EOF'\na\nEOF", "cat <<'EOF'\na", "echo 'unbalanced", "exec >&-; echo x", "exec 2>&- 0<&-", "set -e; false",
              "exit 7", "stty -echo", "cd /; umask 777; set -f; unset PATH", "ulimit -n 3; ulimit -t 1", "kill -9 $PPID", "exec 1<&0",
              "trap '' EXIT CHLD; exit", "export PATH=/nowhere LD_PRELOAD=/none", "alias echo=false; echo() { false; }", "}", "if",
              "printf 'exit 9\\n' > ~/.bash_profile; cp ~/.bash_profile ~/.profile; echo ok"]
    commands = [c for each in poison for c in (each, "echo ok; pwd")]
    output = client.execute(name, *commands, timeout_ms=20000)["output"]
    assert len(output) == len(commands)
    for said in output[1::2]:
        assert said["stdout"] == "ok\n/workspace/home\n" and said["outcome"] == {"type": "exit", "exit_code": 0}, said
    assert [o["outcome"]["exit_code"] for o in output[0:16:2]] == [0, 0, 2, 1, 0, 1, 7, 1]


# ---- background ----

def test_a_background_job_outlives_its_command_and_not_its_container(server, client):
    """P3, P14: started with every way of leaving a shell, with a short limit on the command."""
    name = fresh()
    start = "sleep 97103 & (sleep 97103 &); setsid -f sleep 97103; nohup sleep 97103 >/dev/null 2>&1 & sleep 97103 & disown; " \
            "(while :; do echo tick; sleep 0.02; done) > log & echo started"
    assert output_of(client, name, start, timeout_ms=3000) == "started\n"
    output_of(client, name, "sleep 3.2")
    assert output_of(client, name, "pgrep -cfx 'sleep 97103'; a=$(stat -c %s log); until [ $(stat -c %s log) -gt $a ]; do sleep 0.1; done"
                                   " && echo alive") == "5\nalive\n"
    assert len(server.guests("97103")) == 6  # with the loop
    client.delete("/containers/" + name)
    wait_for(lambda: not server.guests("97103"))
    assert output_of(client, name, "pgrep -c sleep", code=1) == "0\n"


def test_a_background_job_does_not_hold_the_call(client):
    """Whichever of its streams it keeps."""
    name = fresh()
    for keeps in ("", ">/dev/null", "2>/dev/null", ">&2", "2>&1"):
        assert output_of(client, name, "sleep 300 %s & echo out; echo err >&2" % keeps, timeout_ms=30000) == "out\n"
    assert output_of(client, name, "until [ $(pgrep -c sleep) = 5 ]; do :; done; pkill -c sleep") == "5\n"


def test_ending_one_leaves_anothers_background_job(server, client):
    """P6"""
    name = fresh()
    output_of(client, name, "setsid -f sleep 97104 >/dev/null 2>&1; sleep 97104 >/dev/null 2>&1 &")
    client.execute(name, "sleep 97105 & sleep 97105", detach=True, exec_id="a", expect=202)
    wait_for(lambda: len(server.guests("97105")) >= 2)
    assert client.delete("/containers/%s/exec/a" % name).status == 200
    wait_for(lambda: not server.guests("97105"))
    assert output_of(client, name, "pgrep -cfx 'sleep 97104'") == "2\n"
    client.delete("/containers/" + name)


# ---- cancelling ----

def test_one_that_ignores_signals_is_killed_at_once(server, client):
    """P2"""
    name = fresh()
    client.execute(name, "trap '' HUP INT QUIT TERM; sh -c \"trap '' TERM; while :; do sleep 97106; done\"; echo no", detach=True,
                   exec_id="k", expect=202)
    wait_for(lambda: server.guests("97106"))
    assert client.delete("/containers/%s/exec/k" % name).status == 200
    wait_for(lambda: not server.guests("97106"))


def test_cancelling_at_any_moment(server, client):
    """P16: while it is claimed, starts, prints, and is drained: the outcome is its own end or a kill, and the next one runs."""
    name, numbers = fresh(), itertools.count()
    client.run(name, "true")
    seen = set()
    for step in itertools.count():
        if step >= 30 and 5 in seen or step == 100:
            break
        id = "e%d" % next(numbers)
        # Its leader ends at once; what it leaves holds the pipe for the whole of the draining.
        client.execute(name, "echo a; (sleep 97107 &); exit 5", detach=True, exec_id=id, expect=202)
        time.sleep(step * (0.004 if step < 30 else 0.03))  # further on where it takes longer than usual to begin
        assert client.delete("/containers/%s/exec/%s" % (name, id)).status == 200
        path = "/containers/%s/exec/%s?wait=10" % (name, id)
        done = wait_for(lambda: (lambda r: r if r["status"] == "done" else None)(client.get(path).json))
        assert "error" not in done or not done["output"], done
        if not done["output"]:  # it was not begun
            continue
        (output,) = done["output"]
        seen.add(output["outcome"]["exit_code"])
        if output["outcome"]["exit_code"] == 5:
            assert output["outcome"] == {"type": "exit", "exit_code": 5} and output["stdout"] == "a\n"
        else:
            assert output["outcome"] == {"type": "exit", "exit_code": 137, "signal": "SIGKILL"}
    assert 5 in seen
    assert output_of(client, name, "pkill sleep; echo next") == "next\n"


def test_a_client_that_leaves_at_any_moment(server, client):
    """P16: a new container and a live one; what was begun is ended, and the next one runs."""
    name = fresh()
    for _ in range(3):
        for step in range(20):
            for container in (name, name + "-%d" % (step % 3)):
                stream = client.open_stream("/containers/%s/exec" % container, {"commands": ["sleep 97108; touch ran"]})
                time.sleep(step * 0.003)
                stream.reset()
        with contextlib.suppress(AssertionError):
            wait_for(lambda: not server.guests("97108"), 5)
            break
        # On version 1 a busy machine may have frozen what had no time yet to die.
        assert server.config["cgroups"] == "v1"
    else:
        raise AssertionError("the commands run on")
    for container in (name, name + "-0", name + "-1", name + "-2"):
        assert output_of(client, container, "ls; echo next") == "next\n"
        client.delete("/containers/" + container)


# ---- a thousand ----

def leaves(server):
    """The folders below a container's groups, in every hierarchy."""
    return sum(1 for hierarchy in hierarchies() for top in groups_of(server, hierarchy) for p in top.glob("**/*") if p.is_dir())


def test_a_thousand_commands_leave_nothing(make_server, say):
    """No process, descriptor, memory or group more than after the first hundreds."""
    server = make_server(config={"container": {"pool": 0}})
    client, name = server.client(), fresh()

    def some(n):
        for i in range(n // 100):
            output = client.execute(name, *["echo %d; (sleep 0.01 &)" % j for j in range(50)])["output"]
            assert [o["stdout"] for o in output] == ["%d\n" % j for j in range(50)]
            for j in range(50):
                assert output_of(client, name, "echo %d >&2; seq 100 | tail -1" % j) == "100\n"

    def state():
        wait_for(lambda: not server.guests("sleep"))
        (init,) = server.children("brig: init")
        return len(brigtest.descendants(server.supervisor())), leaves(server), holdings(server, [init])

    some(300)  # what is kept of ended ones is full by now
    processes, groups, held = state()
    some(1000)
    processes_after, groups_after, held_after = state()
    assert processes_after == processes and groups_after <= groups + 8  # init keeps some that are empty
    for title, (fds, memory) in held.items():
        fds_after, memory_after = held_after[title]
        say("%s: %d descriptors, then %d; %d KiB, then %d" % (title, fds, fds_after, memory >> 10, memory_after >> 10))
        assert fds_after <= fds + (8 if title == "init" else 2), title  # one for each group that it keeps
        # SQLite keeps up to 2 MB of pages for each of the gateway's two connections, and these fill as records are written.
        assert memory_after <= memory + (5 << 20 if title == "gateway" else 1 << 20), title
    say("%d groups, then %d" % (groups, groups_after))
