"""Receivers of traces: real HTTP servers on loopback that keep what they were sent, and answer as they are told."""
import http.server
import socket
import threading

import otlp
from brigtest import wait_for


class Got:
    """One request."""

    def __init__(self, method, path, headers, body):
        self.method, self.path, self.headers, self.body = method, path, headers, body

    def spans(self):
        return otlp.spans(otlp.parse(self.body))

    def __repr__(self):
        return "<%s %s %r>" % (self.method, self.path, self.body[:200])


class Receiver:
    """
    answer: a function of the request (Got) that returns (status, headers, body), or None to hold the connection until
    the receiver is closed. Requests that it answers with 200 are in .taken, all of them in .got.
    """

    def __init__(self, answer=None):
        self.got, self.taken = [], []
        self.seen, self.parsed = [], 0
        self.answer = answer or (lambda got: (200, {}, b"{}"))
        self.ended = threading.Event()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def take(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                got = Got(self.command, self.path, {k.lower(): v for k, v in self.headers.items()}, body)
                outer.got.append(got)
                answer = outer.answer(got)
                if answer is None:
                    outer.ended.wait()
                    self.close_connection = True
                    return
                status, headers, body = answer
                if status == 200:
                    outer.taken.append(got)
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_POST = do_PUT = do_GET = take

            def log_message(self, *_):
                pass

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, request, address):
                pass  # a client that was killed

        self.server = Server(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    @property
    def port(self):
        return self.server.server_address[1]

    @property
    def url(self):
        return "http://127.0.0.1:%d" % self.port

    def close(self):
        self.ended.set()
        self.server.shutdown()
        self.server.server_close()

    def spans(self):
        """Of all that was taken."""
        for got in self.taken[self.parsed:]:
            self.seen += got.spans()
            self.parsed += 1
        return self.seen

    def roots(self):
        """{trace id and span id: root span} of what was taken, each once however often it came: the last one counts."""
        return {(span["trace"], span["id"]): span for span in otlp.roots(self.spans())}

    def generations(self):
        """The ids of the records that came."""
        return {generation(span) for span in self.roots().values()}

    def wait_for(self, ids, timeout=60):
        wanted = set(ids)
        wait_for(lambda: wanted <= self.generations(), timeout, every=0.05,
                 message="waited for %d records, and %d of them came" % (len(wanted), len(wanted & self.generations())))


def generation(span):
    return span["attributes"]["brig.generation.id"]


held = []


def dead_url():
    """Where nobody listens, and nobody will: the port is kept."""
    s = socket.socket()
    s.bind(("127.0.0.1", 0))
    held.append(s)
    return "http://127.0.0.1:%d" % s.getsockname()[1]
