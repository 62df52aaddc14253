"""What the tests drive brig with: a server of one's own, a client that sees every byte, and the rules of a stream."""
import contextlib
import errno
import hashlib
import http.client
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BRIG = os.environ.get("BRIG") or os.environ.get("BRIG_BIN") or str(ROOT / "build" / "brig")
KEYS = {"one": "brig-test-key-of-workspace-one", "two": "brig-test-key-of-workspace-two",
        "far": "brig-test-key-of-another-account",
        "admin": "brig-test-key-of-an-administrator", "far admin": "brig-test-key-of-another-administrator"}
CONFIGURED_KEYS = [{"key": KEYS["one"], "account": "acme", "workspace": "one"},
                   {"key": KEYS["two"], "account": "acme", "workspace": "two"},
                   {"key": KEYS["far"], "account": "other", "workspace": "one"},
                   {"key": KEYS["admin"], "account": "acme", "workspace": "one", "admin": True, "name": "boss"},
                   {"key": KEYS["far admin"], "account": "other", "workspace": "one", "admin": True}]
UPSTREAM_KEY = "sk-upstream-0123456789abcdef"

# Each server of a run has ids of its own. Runs side by side are told their lane, 0 or 1, and then share none.
ID_STEP = 0x11000000
LANE = os.environ.get("BRIG_TEST_LANE")
ID_SLOTS = range(13) if LANE is None else range(6 * int(LANE), 6 * int(LANE) + 6)
ids_given = os.getpid()


def wait_for(what, timeout=60, every=0.005, message=None):
    """Waits until what() is true and returns it. The bound is for what hangs: others may need the machine meanwhile."""
    end = time.monotonic() + timeout
    while True:
        value = what()
        if value:
            return value
        if time.monotonic() >= end:
            raise AssertionError(message or "waited %s s for nothing" % timeout)
        time.sleep(every)


# ---- processes ----

def process_table():
    """{pid: (ppid, title, uids)}"""
    table = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            status = pathlib.Path("/proc", entry, "status").read_text("utf-8", "replace")
            title = pathlib.Path("/proc", entry, "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
        except OSError:
            continue
        fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        if fields["State"].startswith("Z"):
            continue
        table[int(entry)] = (int(fields["PPid"]), title.strip(), [int(u) for u in fields["Uid"].split()])
    return table


def descendants(pid):
    table = process_table()
    found, new = {}, [pid]
    while new:
        parent = new.pop()
        for child, (ppid, title, _) in table.items():
            if ppid == parent and child not in found:
                found[child] = title
                new.append(child)
    return found


def stat_fields(pid):
    return pathlib.Path("/proc/%d/stat" % pid).read_text().rpartition(")")[2].split()


def cpu_ticks(pid):
    fields = stat_fields(pid)
    return int(fields[11]) + int(fields[12])


def loop_seconds(gateway):
    """What the loop's own thread has computed, without the pool's: unlike a clock it does not count what others compute."""
    with open("/proc/%d/task/%d/schedstat" % (gateway, gateway)) as f:
        return int(f.read().split()[0]) / 1e9


def start_time(pid):
    try:
        return int(stat_fields(pid)[19])
    except OSError:
        return None


def resident(pid):
    for line in pathlib.Path("/proc/%d/status" % pid).read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmRSS")


# ---- the base image ----

def test_image():
    """The base image: BRIG_TEST_IMAGE, else the default data folder's, else one that is made once and kept."""
    given = os.environ.get("BRIG_TEST_IMAGE")
    if given:
        return given
    usual = "/var/lib/brig/images/base.erofs"
    if os.path.exists(usual):
        return usual
    cache = "/var/cache/brig-test"
    kept = cache + "/images/base.erofs"
    if not os.path.exists(kept):
        os.makedirs(cache, mode=0o711, exist_ok=True)
        subprocess.run([BRIG, "image", "build", "--data", cache], check=True, stdin=subprocess.DEVNULL)
    return kept


test_image.__test__ = False


# ---- the server ----

class Server:
    """`brig serve` with a configuration, keys and a data folder of its own. Use start() and stop()."""

    def __init__(self, provider=None, workers=1, config=None, data=None, env=None, args=()):
        global ids_given
        self.provider = provider
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="brig-test-", dir="/var/tmp"))
        self.folder.chmod(0o711)
        self.data = pathlib.Path(data) if data else self.folder / "data"
        self.log_path = self.folder / "serve.log"
        self.config_path = self.folder / "brig.yaml"
        self.id_base = 0x10000000 + ID_STEP * ID_SLOTS[ids_given % len(ID_SLOTS)]
        ids_given += 1
        self.config = {
            "listen": "127.0.0.1:0",
            "data": str(self.data),
            "workers": workers,
            "grace": "5s",
            "ids": {"base": self.id_base},
            "keys": CONFIGURED_KEYS,
            "container": {"memory": "256m", "home": "256m", "scratch": "256m", "processes": 128, "sleep_after": "300s"},
            # What an upstream is asked is counted in most tests: those of routing let it be asked again.
            "limits": {"upstream_retries": 0, "upstream_failures": 0},
        }
        if provider is not None:
            self.config["providers"] = [
                {"name": "fake", "dialect": "openai-chat", "base_url": provider.base_url(), "api_key": UPSTREAM_KEY,
                 "prices": {"priced": {"input": "2.5", "output": "10", "cached": "0.25"}}},
                {"name": "other", "dialect": "openai-chat", "base_url": provider.base_url("/other")},
            ]
        for key, value in (config or {}).items():
            if isinstance(value, dict) and isinstance(self.config.get(key), dict):
                self.config[key] = dict(self.config[key], **value)
            elif value is None:
                self.config.pop(key, None)
            else:
                self.config[key] = value
        self.env = dict(os.environ, **(env or {}))
        self.args = list(args)
        self.prefix = []  # a command that execs the server
        self.process = None
        self.url = None
        self.seen = {}  # every process of ours that was looked at: {pid: start time}

    # -- life --

    def prepare(self):
        images = self.data / "images"
        for folder in (self.data, images):
            if not folder.exists():
                folder.mkdir(mode=0o711 if folder == self.data else 0o700)
        target = images / "base.erofs"
        if not target.exists() and self.config.get("sandbox") is not False:
            try:
                os.link(test_image(), target)
            except OSError as e:
                if e.errno != errno.EXDEV:
                    raise
                shutil.copy(test_image(), target)
        self.config_path.write_text(json.dumps(self.config, indent=1))  # JSON is YAML
        self.config_path.chmod(0o600)

    def start(self, timeout=60):
        self.prepare()
        log = open(self.log_path, "ab")
        self.process = subprocess.Popen(self.prefix + [BRIG, "serve", "--config", str(self.config_path)] + self.args,
                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, env=self.env,
                                        start_new_session=True)
        log.close()
        self.lines = []
        self.ready = threading.Event()
        reader = threading.Thread(target=self.read_stdout, args=(self.process,), daemon=True)
        reader.start()
        wait_for(lambda: self.ready.is_set() or self.process.poll() is not None, timeout,
                 message="the server did not become ready:\n" + self.log_tail())
        if not self.ready.is_set():
            reader.join(10)  # it may have ended after it said so
        assert self.ready.is_set(), "brig serve ended with %s:\n%s" % (self.process.poll(), self.log_tail())
        return self

    def read_stdout(self, process):
        for line in process.stdout:
            line = line.decode().rstrip("\n")
            self.lines.append(line)
            if line.startswith("ready http://"):
                self.url = line[len("ready "):]
                self.host, port = self.url[len("http://"):].rsplit(":", 1)
                self.port = int(port)
                self.ready.set()

    def stop(self, expect=0, timeout=60):
        """SIGTERM, the exit code, and that nothing is left."""
        if self.process is None:
            return
        self.own()
        process, self.process = self.process, None
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise AssertionError("the server did not stop in %s s:\n%s" % (timeout, self.log_tail()))
        assert code == expect, "brig serve ended with %s:\n%s" % (code, self.log_tail())
        self.check_nothing_left()
        self.check_log()

    def kill(self):
        """SIGKILL to the supervisor; everything else must go by itself."""
        self.own()
        process, self.process = self.process, None
        process.kill()
        process.wait()

    def remove(self):
        shutil.rmtree(self.folder, ignore_errors=True)

    @contextlib.contextmanager
    def running(self):
        """Started; stopped and looked after at the end, or killed where something failed; removed."""
        try:
            yield self.start()
            self.stop()
        finally:
            if self.process is not None:
                self.kill()
            self.remove()

    # -- looking --

    def log(self):
        return self.log_path.read_text("utf-8", "replace") if self.log_path.exists() else ""

    def log_tail(self):
        return self.log()[-6000:]

    def supervisor(self):
        return self.process.pid

    def children(self, title):
        return sorted(pid for pid, t in descendants(self.process.pid).items() if t.startswith(title))

    def gateways(self):
        return self.children("brig: gateway")

    def own(self):
        """{pid: title} of all that belongs to this server: the supervisor's descendants, and whatever is in its
        control groups, also after its death. Other servers may run beside it, with the same ids."""
        if self.process is not None and self.process.poll() is None:
            for pid in descendants(self.process.pid):
                self.seen.setdefault(pid, start_time(pid))
        name = "/" + self.cgroup_name()
        found = {}
        for pid, (_, title, _) in process_table().items():
            with contextlib.suppress(OSError):
                if name in pathlib.Path("/proc/%d/cgroup" % pid).read_text() or (
                        pid in self.seen and self.seen[pid] == start_time(pid)):
                    found[pid] = title
        return found

    def guests(self, text):
        """Processes in our sandboxes whose command line holds the text."""
        return [pid for pid, title in self.own().items() if text in title and not title.startswith("brig: gateway")]

    def cgroup_name(self):
        return "brig-" + hashlib.sha256(str(self.data).encode()).hexdigest()[:12]

    def leftovers(self):
        found = ["process %d %s" % p for p in self.own().items()]
        data = str(self.data)
        for loop in pathlib.Path("/sys/block").glob("loop*/loop/backing_file"):
            with contextlib.suppress(OSError):
                if loop.read_text().startswith(data):
                    found.append("loop device %s" % loop)
        name = self.cgroup_name()
        for top, folders, _ in os.walk("/sys/fs/cgroup"):
            found += ["cgroup %s/%s" % (top, f) for f in folders if f == name]
        with open("/proc/self/mountinfo") as mounts:
            found += ["mount " + m.strip() for m in mounts if data in m]
        scratch = self.data / "scratch"
        if scratch.exists():
            found += ["scratch image %s" % p for p in scratch.iterdir()]
        if (self.data / "url").exists():
            found.append("url file")
        return found

    def check_nothing_left(self):
        # The kernel takes a moment to take a dead process and its mounts apart.
        end = time.monotonic() + 60
        left = self.leftovers()
        while left and time.monotonic() < end:
            time.sleep(0.05)
            left = self.leftovers()
        assert not left, "left behind: " + "\n".join(left)

    def check_log(self):
        text = self.log()
        for bad in ("BUG", "ERROR: AddressSanitizer", "ERROR: LeakSanitizer", "runtime error:", UPSTREAM_KEY):
            assert bad not in text, "%s in the log:\n%s" % (bad, text[-8000:])
        for key in KEYS.values():
            assert key not in text, "a key is in the log"

    # -- asking --

    def client(self, key="one", base="/api/v1"):
        return Client(self, key, base)


# ---- requests as an upstream got them ----

def raw_list(request, name):
    """The bytes of a member of the body that is a list, without the brackets around them."""
    key = b'"%s":' % name.encode()
    text = request.body[request.body.index(key) + len(key):].decode()
    _, n = json.JSONDecoder().raw_decode(text)
    return text[1:n - 1].encode()


# ---- the client ----

class Response:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def text(self):
        return self.body.decode()

    @property
    def error(self):
        return self.json["error"]

    def __repr__(self):
        return "<%d %r>" % (self.status, self.body[:2000])


class Client:
    def __init__(self, server, key="one", base="/api/v1"):
        self.server, self.base = server, base
        self.key = KEYS.get(key, key)

    def headers(self, more=None):
        headers = {"Host": "%s:%d" % (self.server.host, self.server.port)}
        if self.key:
            headers["Authorization"] = "Bearer " + self.key
        headers.update(more or {})
        return headers

    def request(self, method, path, body=None, headers=None, timeout=60):
        """One request on a connection of its own."""
        connection = http.client.HTTPConnection(self.server.host, self.server.port, timeout=timeout)
        try:
            headers = self.headers(headers)
            if body is not None and not isinstance(body, (bytes, bytearray)):
                body = json.dumps(body).encode()
            if body is not None:
                headers.setdefault("Content-Type", "application/json")
            connection.request(method, path if path.startswith("/") and not path.startswith("//") else path, body,
                               headers)
            answer = connection.getresponse()
            data = answer.read()
            return Response(answer.status, dict((k.lower(), v) for k, v in answer.getheaders()), data)
        finally:
            connection.close()

    def get(self, path, **more):
        return self.request("GET", self.base + path, **more)

    def post(self, path, body=None, **more):
        return self.request("POST", self.base + path, body, **more)

    def delete(self, path, **more):
        return self.request("DELETE", self.base + path, **more)

    # -- responses --

    def ask(self, model, input="go", tools=(), expect=200, headers=None, timeout=60, **fields):
        """POST /responses, not streamed. Returns the response object."""
        body = dict({"model": getattr(model, "name", model), "input": input}, **fields)
        if tools:
            body["tools"] = list(tools)
        answer = self.post("/responses", body, headers=headers, timeout=timeout)
        assert answer.status == expect, answer
        if expect == 200:
            check_object(answer.json)
            return answer.json
        check_error(answer, self.base)
        return answer

    def open_stream(self, path, body, headers=None, timeout=60, method="POST"):
        return Stream(self, method, self.base + path, body, headers, timeout)

    def begin(self, model, input="go", tools=(), headers=None, timeout=60, **fields):
        """POST /responses, streamed; returns the open Stream."""
        body = dict({"model": getattr(model, "name", model), "input": input, "stream": True}, **fields)
        if tools:
            body["tools"] = list(tools)
        return self.open_stream("/responses", body, headers, timeout)

    def stream(self, model, input="go", tools=(), **fields):
        """A whole stream, checked. Returns a Story."""
        with contextlib.closing(self.begin(model, input, tools, **fields)) as stream:
            assert stream.status == 200, stream.body()
            return Story(stream.rest())

    # -- containers --

    def execute(self, container, *commands, expect=200, timeout=60, **fields):
        timeout += fields.get("timeout_ms", 0) / 1000  # the answer comes after the commands' own time
        body = dict(fields)
        if commands:
            body["commands"] = list(commands)
        answer = self.post("/containers/%s/exec" % container, body, timeout=timeout)
        assert answer.status == expect, answer
        return answer.json

    def run(self, container, command, **fields):
        """The one output of one command."""
        return self.execute(container, command, **fields)["output"][0]


def connect(server, timeout=60, receive_buffer=None):
    sock = socket.socket()
    if receive_buffer:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    sock.settimeout(timeout)
    sock.connect((server.host, server.port))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


class Reader:
    """Reads answers from a socket, byte by byte as they are framed."""

    def __init__(self, sock):
        self.sock = sock
        self.buffer = b""
        self.ended = False

    def fill(self):
        data = self.sock.recv(65536)
        if not data:
            self.ended = True
            raise EOFError("the server closed the connection")
        self.buffer += data

    def until(self, mark):
        at = self.buffer.find(mark)
        while at < 0:
            searched = max(0, len(self.buffer) - len(mark))
            self.fill()
            at = self.buffer.find(mark, searched)
        data, self.buffer = self.buffer[:at], self.buffer[at + len(mark):]
        return data

    def exactly(self, n):
        parts, have = [self.buffer], len(self.buffer)
        while have < n:
            data = self.sock.recv(1 << 20)
            if not data:
                raise EOFError("the server closed the connection")
            parts.append(data)
            have += len(data)
        data = b"".join(parts)
        self.buffer = data[n:]
        return data[:n]

    def head(self):
        """(status, headers)"""
        lines = self.until(b"\r\n\r\n").decode("latin-1").split("\r\n")
        version, status, _ = lines[0].split(" ", 2)
        assert version == "HTTP/1.1", lines[0]
        return int(status), {k.lower(): v for k, v in (line.split(": ", 1) for line in lines[1:])}

    def chunk(self):
        """The next piece of a chunked body, b"" at its end."""
        size = int(self.until(b"\r\n"), 16)
        data = self.exactly(size)
        assert self.until(b"\r\n") == b""
        return data

    def answer(self, head_only=False):
        status, headers = self.head()
        if head_only or status in (204, 304) or status < 200:
            return Response(status, headers, b"")
        if headers.get("transfer-encoding") == "chunked":
            body = b""
            while True:
                piece = self.chunk()
                if not piece:
                    break
                body += piece
        elif "content-length" in headers:
            body = self.exactly(int(headers["content-length"]))
        else:
            body = b""
            with contextlib.suppress(EOFError):
                while True:
                    self.fill()
            body, self.buffer = self.buffer, b""
        return Response(status, headers, body)


class Stream:
    """An answer that is read as it comes."""

    def __init__(self, client, method, path, body, headers=None, timeout=60, receive_buffer=None):
        body = json.dumps(body).encode() if body is not None and not isinstance(body, bytes) else body or b""
        lines = ["%s %s HTTP/1.1" % (method, path)]
        lines += ["%s: %s" % h for h in client.headers(headers).items()]
        lines += ["Content-Type: application/json", "Content-Length: %d" % len(body)]
        self.sock = connect(client.server, timeout, receive_buffer)
        self.sock.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        self.reader = Reader(self.sock)
        self.text = b""
        self.began = None

    @property
    def status(self):
        if self.began is None:
            self.began = self.reader.head()
        return self.began[0]

    @property
    def response_headers(self):
        self.status
        return self.began[1]

    def body(self):
        self.status
        if self.began[1].get("transfer-encoding") != "chunked":
            return self.reader.exactly(int(self.began[1].get("content-length", 0)))
        while self.piece():
            pass
        return self.text

    def piece(self):
        assert self.status
        data = self.reader.chunk()
        self.text += data
        return data

    def rest(self):
        """All the bytes of the body, from its first to its last."""
        while self.piece():
            pass
        return self.text

    def until(self, mark):
        """Reads until the mark has come."""
        mark = mark.encode() if isinstance(mark, str) else mark
        while mark not in self.text:
            assert self.piece(), "the stream ended without %r: %r" % (mark, self.text[-2000:])
        return self.text

    def close(self):
        with contextlib.suppress(OSError):
            self.sock.close()

    def reset(self):
        """Goes away at once, as a killed client does."""
        import struct
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()


# ---- what an answer must be ----

RESPONSE_KEYS = """id object created_at completed_at status background error incomplete_details instructions
max_output_tokens max_tool_calls model output parallel_tool_calls previous_response_id prompt_cache_key
prompt_cache_retention reasoning safety_identifier service_tier store temperature text tool_choice tools top_logprobs
top_p presence_penalty frequency_penalty truncation usage user metadata""".split()

# What a provider of OpenAI's API may put into an answer beside what every model says: it is shown as it came.
OPENAI_ITEMS = {"web_search_call", "file_search_call", "code_interpreter_call", "custom_tool_call", "compaction",
                "local_shell_call", "image_generation_call"}
ITEM_STATUS = {"in_progress", "completed", "incomplete", "failed"}


def check_usage(usage):
    for key in ("input_tokens", "output_tokens", "total_tokens"):
        assert isinstance(usage[key], int), usage
    assert isinstance(usage["input_tokens_details"]["cached_tokens"], int)
    assert isinstance(usage["output_tokens_details"]["reasoning_tokens"], int)
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]


def check_item(item):
    assert isinstance(item["id"], str) and item["id"], item
    kind = item["type"]
    if kind in OPENAI_ITEMS:
        return
    assert item["status"] in ITEM_STATUS, item
    if kind == "message":
        assert item["role"] == "assistant"
        for part in item["content"]:
            assert part["type"] in ("output_text", "refusal")
            if part["type"] == "output_text":
                assert isinstance(part["text"], str) and isinstance(part["annotations"], list)
                assert part["logprobs"] == []
    elif kind == "function_call":
        assert item["call_id"] and item["name"] and isinstance(item["arguments"], str)
        assert item["status"] != "failed"
    elif kind == "reasoning":
        assert isinstance(item["summary"], list)
    elif kind == "openrouter:shell":
        assert item["call_id"] and isinstance(item["arguments"], str)
        assert len(item["call_id"]) <= 64
        if item["status"] == "completed":
            check_action(item["action"])
            check_outputs(item["output"])
            assert item["container_id"] and "error" not in item
    elif kind == "shell_call":
        assert item["call_id"]
        check_action(item["action"])
        assert item["environment"]["type"] in ("container_reference", "local")
        assert item["status"] in ("in_progress", "completed", "incomplete")
    elif kind == "shell_call_output":
        assert item["call_id"] and "max_output_length" in item
        check_outputs(item["output"])
        assert item["status"] in ("in_progress", "completed", "incomplete")
    else:
        raise AssertionError("an item of unknown type %s" % kind)


def check_action(action):
    assert isinstance(action["commands"], list)
    assert action["timeout_ms"] is None or isinstance(action["timeout_ms"], int)
    assert action["max_output_length"] is None or isinstance(action["max_output_length"], int)


def check_outputs(outputs):
    for output in outputs:
        assert isinstance(output["stdout"], str) and isinstance(output["stderr"], str)
        outcome = output["outcome"]
        if outcome["type"] == "exit":
            assert isinstance(outcome["exit_code"], int)
        else:
            assert outcome["type"] == "timeout" and "exit_code" not in outcome


def check_object(response, background=False):
    missing = [key for key in RESPONSE_KEYS if key not in response]
    assert not missing, "the response lacks %s" % missing
    assert response["id"].startswith("resp_") and response["object"] == "response"
    assert isinstance(response["created_at"], int)
    assert response["status"] in ("completed", "incomplete", "failed", "in_progress")
    assert isinstance(response["store"], bool) and response["background"] is background
    assert set(response["reasoning"]) >= {"effort", "summary"}
    assert response["text"]["format"]["type"]
    if response["status"] == "completed":
        assert isinstance(response["completed_at"], int) and response["error"] is None
        assert response["incomplete_details"] is None
    if response["status"] in ("completed", "incomplete"):
        check_usage(response["usage"])
        for item in response["output"]:
            check_item(item)
            assert item.get("status") != "in_progress"
        ids = [item["id"] for item in response["output"]]
        assert len(ids) == len(set(ids))
    return response


def check_error(answer, base):
    """An error in the envelope of the path's API, with its own text."""
    assert answer.headers["content-type"].startswith("application/json"), answer
    body = answer.json
    error = body["error"]
    assert isinstance(error["message"], str) and len(error["message"]) > 5, body
    assert isinstance(error["type"], str) and error["type"]
    assert "param" in error and (error["param"] is None or isinstance(error["param"], str))
    if base.startswith("/api/"):
        assert error["code"] == answer.status and isinstance(error["code"], int), body
    else:
        assert error["code"] is None or isinstance(error["code"], str), body
    assert isinstance(body["error_type"], str)
    return error


# ---- what a stream must be ----

EVENT_TYPES = set("""response.created response.in_progress response.completed response.failed response.incomplete
response.output_item.added response.output_item.done response.content_part.added response.content_part.done
response.output_text.delta response.output_text.done response.output_text.annotation.added response.refusal.delta response.refusal.done
response.function_call_arguments.delta response.function_call_arguments.done
response.reasoning_summary_part.added response.reasoning_summary_part.done response.reasoning_summary_text.delta
response.reasoning_summary_text.done response.reasoning_text.delta response.reasoning_text.done
response.shell_call_command.added response.shell_call_command.delta response.shell_call_command.done
response.shell_call_output_content.delta response.shell_call_output_content.done error""".split())
TERMINAL = ("response.completed", "response.failed", "response.incomplete")


def parse_sse(data):
    """[(event, json)], comments. Strict: LF only, `event`, `data`, an empty line; comments of one line."""
    assert b"\r" not in data
    events, comments, at = [], [], 0
    while at < len(data):
        if data.startswith(b":", at):
            end = data.index(b"\n", at)
            comments.append(data[at:end].decode())
            # ONE newline: older SDKs take an empty line for the end of an event.
            assert data[end + 1:end + 2] != b"\n", "an empty line follows a comment"
            at = end + 1
            continue
        end = data.index(b"\n\n", at)
        lines = data[at:end].split(b"\n")
        at = end + 2
        if lines == [b"data: [DONE]"]:
            events.append(("[DONE]", None))
            continue
        assert len(lines) == 2 and lines[0].startswith(b"event: ") and lines[1].startswith(b"data: "), lines
        events.append((lines[0][7:].decode(), json.loads(lines[1][6:])))
    return events, comments


class Story:
    """A whole stream of the Responses API, checked against every rule that clients enforce."""

    def __init__(self, data, background=False):
        self.data = data
        self.background = background
        self.events, self.comments = parse_sse(data)
        self.items = []  # as they stand, in the order of output_index
        self.opened, self.done = [], set()
        self.texts, self.annotations = {}, {}
        self.commands, self.outputs = {}, {}
        self.response = None
        self.check()

    def of(self, *types):
        return [e for name, e in self.events if name in types]

    @property
    def types(self):
        return [name for name, _ in self.events]

    def check(self):
        assert self.events[-1][0] == "[DONE]" and self.types.count("[DONE]") == 1, self.types[-3:]
        names = self.types[:-1]
        assert names[0] == "response.created" and names[1] == "response.in_progress", names[:3]
        assert names[-1] in TERMINAL and sum(n in TERMINAL for n in names) == 1, names[-3:]
        for number, (name, event) in enumerate(self.events[:-1]):
            assert name in EVENT_TYPES, "an event of unknown type %s" % name
            assert event["type"] == name
            assert event["sequence_number"] == number, (number, event)
            self.take(name, event)
        self.response = self.events[-2][1]["response"]
        check_object(self.response, self.background)
        ids = {e["response"]["id"] for _, e in self.events[:-1] if "response" in e}
        assert len(ids) == 1
        for name, event in self.events[:2]:
            assert event["response"]["status"] == "in_progress" and event["response"]["output"] == []
            assert event["response"]["usage"] is None and event["response"]["completed_at"] is None
        assert self.done == set(range(len(self.opened))), "an item was left open"
        assert self.response["output"] == self.items
        if names[-1] == "response.failed":
            assert names[-2] == "error"
            error = self.events[-3][1]
            assert error["message"] == error["error"]["message"] == self.response["error"]["message"]
            assert error["code"] == error["error"]["code"] == self.response["error"]["code"]
            assert isinstance(error["code"], str) and self.response["status"] == "failed"
        else:
            assert "error" not in names
            assert self.response["status"] == names[-1].split(".")[1]

    def take(self, name, event):
        if name == "response.output_item.added":
            assert event["output_index"] == len(self.opened)
            check_item(event["item"])
            self.opened.append(event["item"])
            self.items.append(None)
        elif name == "response.output_item.done":
            self.take_done(event)
        elif name == "response.output_text.annotation.added":
            assert self.open_item(event)["type"] == "message"
            noted = self.annotations.setdefault((event["output_index"], event["content_index"]), [])
            assert event["annotation_index"] == len(noted)
            noted.append(event["annotation"])
        elif name.startswith("response.shell_call_command."):
            self.take_command(name.rpartition(".")[2], event)
        elif name.startswith("response.shell_call_output_content."):
            self.take_output(name.rpartition(".")[2], event)
        elif "output_index" in event:
            self.take_part(name, event)

    def open_item(self, event, with_id=True):
        index = event["output_index"]
        assert index < len(self.opened) and index not in self.done, event
        if with_id:
            assert event["item_id"] == self.opened[index]["id"], event
        return self.opened[index]

    def take_done(self, event):
        item, index = event["item"], event["output_index"]
        began = self.open_item(event, with_id=False)
        check_item(item)
        assert (item["id"], item["type"]) == (began["id"], began["type"])
        assert item.get("call_id") == began.get("call_id")
        assert item.get("status") != "in_progress"
        if item["type"] == "message":
            for i, part in enumerate(item["content"]):
                key = (index, "content_index", i)
                assert self.texts[key] == ["done", part.get("text", part.get("refusal"))]
                assert part.get("annotations", []) == self.annotations.get((index, i), [])
        if item["type"] == "function_call":
            assert self.texts.get((index, "arguments", 0), ["done", ""])[1] == item["arguments"]
        if item["type"] == "shell_call":
            assert [c[1] for c in self.commands.get(index, [])] == item["action"]["commands"]
            assert item["status"] == "completed" or item["status"] == "incomplete"
        if item["type"] == "shell_call_output":
            done = [o for o in self.outputs.get(index, []) if o.get("done")]
            assert [o["done"] for o in done] == item["output"]
        self.items[index] = item
        self.done.add(index)

    def take_part(self, name, event):
        item = self.open_item(event)
        index = event["output_index"]
        if name.startswith("response.function_call_arguments."):
            assert item["type"] == "function_call"
            key, value = (index, "arguments", 0), event.get("delta", event.get("arguments"))
            self.texts.setdefault(key, ["open", ""])
        else:
            which = "summary_index" if "summary" in name else "content_index"
            assert item["type"] == ("reasoning" if "reasoning" in name else item["type"])
            assert item["type"] in ("message", "reasoning")
            key = (index, which, event[which])
            value = event.get("delta", event.get("text", event.get("refusal")))
            if name.endswith("part.added"):
                assert key not in self.texts and event[which] == sum(k[:2] == key[:2] for k in self.texts)
                self.texts[key] = ["open", ""]
                return
            if name.endswith("part.done"):
                assert self.texts[key][0] == "text", event
                part = event["part"]
                assert part.get("text", part.get("refusal")) == self.texts[key][1]
                self.texts[key][0] = "done"
                return
        state = self.texts[key]
        assert state[0] == "open", event
        if name.endswith(".delta"):
            assert value != "", "an empty delta"
            state[1] += value
        else:
            assert value == state[1], event
            state[0] = "done" if key[1] == "arguments" else "text"

    def take_command(self, what, event):
        assert self.open_item(event, with_id=False)["type"] == "shell_call"
        assert "item_id" not in event
        commands = self.commands.setdefault(event["output_index"], [])
        if what == "added":
            assert event["command_index"] == len(commands)
            assert event["command"] == ""
            commands.append(["open", ""])
        elif what == "delta":
            commands[event["command_index"]][1] += event["delta"]
        else:
            command = commands[event["command_index"]]
            assert command == ["open", event["command"]]
            command[0] = "done"

    def take_output(self, what, event):
        assert self.open_item(event)["type"] == "shell_call_output"
        outputs = self.outputs.setdefault(event["output_index"], [])
        index = event["command_index"]
        assert index <= len(outputs)
        if index == len(outputs):
            outputs.append({"stdout": "", "stderr": ""})
        output = outputs[index]
        assert "done" not in output
        if what == "delta":
            assert event["delta"]
            for stream, text in event["delta"].items():
                output[stream] += text
        else:
            (whole,) = event["output"]
            for stream in ("stdout", "stderr"):
                if not whole.get(stream + "_truncated"):
                    assert whole[stream] == output[stream], (whole, output)
            output["done"] = whole


def outputs_of(response):
    """The output lists of all shell calls, one after another."""
    return [o for item in response["output"] if item["type"] in ("openrouter:shell", "shell_call_output")
            for o in item.get("output", [])]


def text_of(response):
    return "".join(part["text"] for item in response["output"] if item["type"] == "message"
                   for part in item["content"])


def items_of(response, kind):
    return [item for item in response["output"] if item["type"] == kind]


SHELL = {"type": "openrouter:shell"}
BRIG_SHELL = {"type": "brig:shell"}


def function(name, **more):
    return dict({"type": "function", "name": name, "description": "a test's own",
                 "parameters": {"type": "object", "properties": {}}}, **more)
