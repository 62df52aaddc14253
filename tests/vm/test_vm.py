"""The sandbox on pure control groups of version 2 and Debian 12's own kernel: two small machines under QEMU, in software.

Each runs its lines of the file `list`; each test here is one line there, or one test that a line's program runs. What is
expected comes from the sources of those programs, so that one that died half way leaves failures, not silence.
BRIG_VM_KEEP names a folder for what the machines said.
"""
import json
import os
import pathlib
import platform
import re
import secrets
import shutil
import signal
import subprocess
import threading
import time

import pytest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BUILD = pathlib.Path(os.environ.get("BRIG_BUILD") or ROOT / "build")
QEMU = "qemu-system-x86_64"
TOOLS = [QEMU, "cpio", "depmod", "modprobe", "mkfs.erofs", "mke2fs", "musl-gcc"]
MACHINES = ["plain", "delegated"]
SECONDS = 480  # for a machine, from its start to its end; some 130 are usual where nothing else runs
# A machine that has not begun its first line by then is started anew, and one that ended before too: until there, nothing
# of brig's has run. 2 to 10 are usual. What a machine that did begin says counts as it is.
BOOT_SECONDS = 90
STARTS = 3


def find(path, pattern):
    return re.findall(pattern, (ROOT / "tests" / path).read_text(), re.M)


INIT = find("sandbox/init/driver.c", r'\{"([a-z -]+)", (?:test_\w+|measure)\}')
SUPERVISOR = find("sandbox/supervisor/test_supervisor.c", r"cmocka_unit_test_teardown\((\w+),")
WORKER = find("sandbox/worker/test_worker.c", r"cmocka_unit_test_teardown\((\w+),")
BRIG = find("vm/guest_brig.py", r"^def test_(\w+)\(")


def lines_of_list():
    """(machine, name, command) of each line."""
    rows = [line.split(None, 3) for line in (HERE / "list").read_text().splitlines()]
    return [(row[0], row[1], row[3]) for row in rows if row and not row[0].startswith("#")]


def names_in(command):
    """The tests that a command runs, by the names its program gives them."""
    found = []
    for part in command.split("&&"):
        if "init_driver" in part:
            words = [a or b for a, b in re.findall(r"'([^']*)'|(\S+)", part.split("/opt/sbx", 1)[1])]
            found += [n for n in INIT if n not in words[1:]] if words[:1] == ["-"] else words
        elif "sandbox_supervisor" in part:
            words = part.split("sandbox_supervisor", 1)[1].split()
            found += words or SUPERVISOR
        elif "sandbox_worker" in part:
            words = part.split("sandbox_worker", 1)[1].split()
            found += words or WORKER
        elif "guest_brig.py" in part:
            found += BRIG
    return found


LIST = lines_of_list()
assert INIT and SUPERVISOR and WORKER and BRIG and LIST
CASES = [(machine, name, test) for machine, name, command in LIST for test in [None] + names_in(command)]


class Machine:
    """A run of QEMU that began its lines. Afterwards: `ends`, {line: (status, ms)}; `output`, {line: text}; `problem`, "" or
    what went wrong; `starts`, how many it took. Each start's logs are files of their own."""

    def __init__(self, name, folder):
        self.name, self.folder = name, folder
        self.starts, self.problem, self.seconds = 0, "", 0.0
        for path in folder.glob("*-%s-*.log" % name):
            path.unlink()

    def command(self):
        # No erms: the kernel then clears pages by words, which under emulation is eight times faster. The disk's changes
        # go to a file without a name, so that every start is from the same one.
        # The kernel tries at boot whether the timer's interrupts come, and where they are late, as they are on a busy host,
        # it takes the IO-APIC for broken and panics or boots without: no_timer_check. Its clock is to be the time stamp
        # counter, which is one for all processors under QEMU and costs no call into a device: tsc=reliable.
        disks = [("root.erofs", "readonly=on"), ("tests.erofs", "readonly=on"), ("data.ext4", "snapshot=on,cache=unsafe")]
        words = "console=ttyS1 loglevel=4 panic=-1 mitigations=off init_on_alloc=0 transparent_hugepage=madvise"
        words += " no_timer_check tsc=reliable"
        command = [QEMU, "-M", "q35", "-accel", "tcg,thread=multi", "-cpu", "max,-erms,-fsrm", "-smp", "2", "-m", "1536",
                   "-nodefaults", "-no-user-config", "-display", "none", "-monitor", "none", "-no-reboot",
                   "-kernel", "vmlinuz", "-initrd", "initrd",
                   "-append", "%s machine=%s nonce=%s" % (words, self.name, self.nonce),
                   "-serial", "stdio", "-serial", "file:" + self.file("kernel")]
        for file, options in disks:
            command += ["-drive", "file=%s,if=virtio,format=raw,%s" % (file, options)]
        return command

    def run(self):
        while True:
            self.starts += 1
            self.start()
            if self.output or self.starts == STARTS:
                return
            print("\nstart %d of the machine %s came to nothing: %s" % (self.starts, self.name, self.problem), flush=True)

    def start(self):
        self.nonce = secrets.token_hex(8)
        self.ends, self.output, self.said, self.done, self.problem = {}, {}, [], False, ""
        start = time.monotonic()
        with open(self.folder / self.file("qemu"), "wb") as log:
            process = subprocess.Popen(self.command(), cwd=self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log)
        timers = [threading.Timer(SECONDS, process.kill),
                  threading.Timer(BOOT_SECONDS, lambda: self.output or process.kill())]
        for timer in timers:
            timer.start()
        try:
            self.read(process.stdout)
            process.wait()
        finally:
            for timer in timers:
                timer.cancel()
            process.kill()
        self.seconds = time.monotonic() - start
        if not self.done:
            self.problem = "the machine %s after %.0f s; it said:\n%s\nQEMU: %s\nkernel: %s" % (
                "was ended" if process.returncode == -signal.SIGKILL else "stopped", self.seconds,
                "\n".join(self.said[-30:]), self.log("qemu")[-2000:], self.log("kernel")[-3000:])

    def file(self, kind):
        return "%s-%s-%d.log" % (kind, self.name, self.starts)

    def log(self, kind):
        path = self.folder / self.file(kind)
        return path.read_text("utf-8", "replace") if path.exists() else ""

    def read(self, stream):
        now = None
        for raw in stream:
            line = raw.decode("utf-8", "replace").rstrip("\r\n")
            self.said.append(line)
            words = line.split()
            if words[:1] != [self.nonce]:
                if now is not None:
                    self.output[now] += line + "\n"
            elif words[1] == "begin":
                now = words[2]
                self.output[now] = ""
            elif words[1] == "end":
                self.ends[words[2]] = int(words[3]), int(words[4])
                now = None
            elif words[1] == "done":
                self.done = True


def missing():
    """Why the machines cannot be run here, or ""."""
    if platform.machine() != "x86_64":
        return "the machines are x86-64 ones"
    if os.geteuid() != 0:
        return "making the disks needs root"
    absent = [tool for tool in TOOLS if not shutil.which(tool, path=os.environ["PATH"] + ":/usr/sbin:/sbin")]
    return "not installed: %s (scripts/setup test)" % " ".join(absent) if absent else ""


@pytest.fixture(scope="session")
def machines(request):
    reason = missing()
    if reason:
        pytest.skip(reason)
    folder = BUILD / "vm"
    made = subprocess.run([str(HERE / "make-vm"), str(folder)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=300, env=dict(os.environ, BRIG_BUILD=str(BUILD)))
    if made.returncode == 3:
        pytest.skip("no kernel: " + made.stdout.strip())
    assert made.returncode == 0, made.stdout
    running = [Machine(name, folder) for name in MACHINES]
    threads = [threading.Thread(target=machine.run) for machine in running]
    # What a machine prints, that it had to be started anew, is seen at once and in every run.
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    keep(running)
    return {machine.name: machine for machine in running}


def keep(running):
    folder = os.environ.get("BRIG_VM_KEEP")
    for machine in running:
        if folder:
            pathlib.Path(folder, machine.name + ".log").write_text("\n".join(machine.said) + "\n")
            for path in machine.folder.glob("*-%s-*.log" % machine.name):
                shutil.copy(path, folder)


def verdict(output, test):
    """What the output says of a test: True, False, or None where it says nothing. (init's driver, brig's tests, cmocka)"""
    found = None
    for line in output.splitlines():
        if line in ("ok " + test, "[       OK ] " + test):
            found = True if found is None else found
        elif line == "FAILED " + test or line.startswith("FAILED %s:" % test) or line == "[  FAILED  ] " + test:
            found = False
    return found


@pytest.mark.parametrize("machine,line,test", CASES, ids=["-".join(filter(None, case)).replace(" ", "_") for case in CASES])
def test_in_machine(machines, machine, line, test):
    vm = machines[machine]
    output = vm.output.get(line)
    assert output is not None, vm.problem or "it was not begun"
    if test is not None:
        assert verdict(output, test) is True, "%s\n%s" % (verdict(output, test), output[-6000:])
        return
    assert line in vm.ends, vm.problem
    status = vm.ends[line][0]
    assert status == 0, ("it took too long\n" if status == 124 else "exit code %d\n" % status) + output[-6000:]


def test_what_doctor_says(machines):
    """The machine has what is required, on version 2, and lacks what 6.1 lacks."""
    found = json.loads(machines["delegated"].output["doctor"])
    rows = {row["name"]: row for row in found["checks"]}
    assert found["fit"] is True
    assert rows["kernel"]["detail"].startswith("6.1.")
    assert rows["controllers memory, pids and cpu"]["detail"].startswith("version 2")
    assert rows["cgroup.kill"]["present"] and rows["I/O limits"]["present"]
    assert rows["Landlock"]["present"]
    assert not rows["Landlock scope of sockets"]["present"] and not rows["Landlock scope of signals"]["present"]


def test_the_kernel_complains_of_nothing(machines):
    for machine in machines.values():
        log = machine.log("kernel")
        bad = [line for line in log.splitlines() if re.search(r"BUG|WARNING|Oops|Call Trace|EXT4-fs error|I/O error|blocked for more", line)]
        assert not bad, "\n".join(bad[:20])


def test_in_time(machines, capsys):
    with capsys.disabled():
        print()
        for machine in machines.values():
            parts = ", ".join("%s %.1f" % (name, ms / 1000) for name, (_, ms) in machine.ends.items())
            print("machine %s, start %d: %.0f s (%s)" % (machine.name, machine.starts, machine.seconds, parts))
        print("left out of init's tests, of which version 2 has no part and emulation makes long ones: %s" % ", ".join(
            name for name in INIT if not any(case[2] == name and case[1].startswith("init") for case in CASES)))
    for machine in machines.values():
        assert machine.done, machine.problem
