"""The clients that people use, unchanged, against servers of the test: as if it were the network."""

import base64
import contextlib
import email.utils
import hashlib
import http.server
import os
import shutil
import socket
import subprocess
import tarfile
import threading
import zipfile

import pytest

A, B = "a.example.com", "deep.a.example.com"


def program(name):
    path = shutil.which(name)
    if not path:
        pytest.skip(f"{name} is not installed")
    return path


@pytest.fixture
def site(clean, tmp_path):
    """A folder that both servers give out."""
    class Files(http.server.SimpleHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args):
            pass

    def serve(sock):
        Files(sock, ("", 0), None, directory=str(tmp_path / "site"))
    (tmp_path / "site").mkdir()
    kept = clean.web.serve, clean.tls.serve
    clean.web.serve = clean.tls.serve = serve
    yield tmp_path / "site"
    clean.web.serve, clean.tls.serve = kept


@pytest.fixture
def inside(clean, sandbox, tmp_path):
    """Runs a program in the container's network, with its resolv.conf; its output, or a failure that shows it."""
    resolv = tmp_path / "resolv.conf"
    resolv.write_text("nameserver 198.18.0.1\n")
    home = tmp_path / "home"
    home.mkdir()
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8", "CURL_CA_BUNDLE": clean.ca,
           "GIT_SSL_CAINFO": clean.ca, "NODE_EXTRA_CA_CERTS": clean.ca, "PIP_CERT": clean.ca, "PIP_CONFIG_FILE": "/dev/null",
           "GIT_TERMINAL_PROMPT": "0", "npm_config_cafile": clean.ca,
           "npm_config_update_notifier": "false", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}

    def run(*argv, ok=True):
        shell = 'mount --bind "$0" /etc/resolv.conf && exec "$@"'
        done = sandbox.command(["unshare", "-m", "sh", "-c", shell, str(resolv), *argv], env=env, cwd=home)
        if ok:
            assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()
            return done.stdout.decode()
        return done
    return run


def test_curl(clean, egress, inside):
    program("curl")
    assert inside("curl", "-sS", "--http1.1", f"http://{A}/") == f"hello {A}\n"
    assert inside("curl", "-sS", f"http://{A}/", f"http://{A}/") == f"hello {A}\n" * 2
    assert inside("curl", "-sS", "--http1.1", f"https://{A}/", f"https://{B}/") == f"hello {A}\nhello {B}\n"
    assert inside("curl", "-sS", "-4", f"https://{A}:443/") == f"hello {A}\n"
    assert inside("curl", "-sS", "-o", "/dev/null", "-w", "%{size_download}", f"https://{A}/big9000000") == "9000000"
    denied = inside("curl", "-sS", "https://b.example.com/", ok=False)
    assert denied.returncode == 6 and b"Could not resolve host" in denied.stderr
    denied = inside("curl", "-sS", "--connect-to", f"b.example.com:443:{A}:443", "https://b.example.com/", ok=False)
    assert denied.returncode == 35 and b"unrecognized name" in denied.stderr
    denied = inside("curl", "-sS", "-H", "Host: b.example.com", "-w", "%{http_code}", f"http://{A}/")
    assert denied.endswith("520") and "reason: Host" in denied
    denied = inside("curl", "-sS", "-x", f"http://{A}:80", "https://b.example.com/", ok=False)
    assert denied.returncode == 56 and b"520" in denied.stderr, "CONNECT through an allowed name"
    assert not [r for r in clean.requests if "b.example.com" in str(r)]


H2 = """
const h2 = require('http2'), fs = require('fs');
const s = h2.createSecureServer({key: fs.readFileSync(process.argv[1]), cert: fs.readFileSync(process.argv[2])});
s.on('stream', (stream, h) => { stream.respond({':status': 200}); stream.end('h2 ' + h[':authority']); });
s.listen(8443, '127.0.0.1', () => console.log('ready'));
"""


def relay(sock):
    """To the HTTP/2 server, byte for byte."""
    with socket.create_connection(("127.0.0.1", 8443)) as up:
        def back():
            while data := up.recv(65536):
                sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
        t = threading.Thread(target=back, daemon=True)
        t.start()
        while data := sock.recv(65536):
            up.sendall(data)
        up.shutdown(socket.SHUT_WR)
        t.join()


def websockets(sock):
    """A server of them: says back what each text message says (RFC 6455, one short frame a message)."""
    f = sock.makefile("rb")
    key = ""
    while (line := f.readline().decode().strip()):
        if line.lower().startswith("sec-websocket-key:"):
            key = line.split(":", 1)[1].strip()
    accept = base64.b64encode(hashlib.sha1((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()).decode()
    sock.sendall(f"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                 f"Sec-WebSocket-Accept: {accept}\r\n\r\n".encode())
    while (head := f.read(2)) and len(head) == 2:
        mask, n = f.read(4), head[1] & 0x7f
        text = bytes(b ^ mask[i % 4] for i, b in enumerate(f.read(n)))
        if head[0] & 0xf != 1:  # its end
            sock.sendall(bytes([head[0], n]) + text)
            return
        sock.sendall(bytes([0x81, n + 5]) + b"echo " + text)


# ---- what both test_server.py and this file fetch ----

@contextlib.contextmanager
def http2(clean):
    """The names are served by a server that speaks HTTP/2."""
    argv = [program("node"), "-e", H2, os.path.join(clean.folder, "key.pem"), os.path.join(clean.folder, "cert.pem")]
    server = subprocess.Popen(argv, stdout=subprocess.PIPE)
    kept = clean.tls.serve, clean.tls.context
    try:
        assert server.stdout.readline() == b"ready\n"
        clean.tls.serve, clean.tls.context = relay, None
        yield
    finally:
        clean.tls.serve, clean.tls.context = kept
        server.terminate()
        server.wait()


def git_repository(site, tmp_path):
    """r.git, which has a file of a thousand lines."""
    program("git")
    env = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "HOME": str(tmp_path)}
    work = tmp_path / "work"
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@t.test", "-C", str(work)]
    subprocess.run(["git", "init", "-q", str(work)], check=True, env=env)
    (work / "file").write_text("content\n" * 1000)
    for command in (["add", "file"], ["commit", "-q", "-m", "first"], ["clone", "-q", "--bare", ".", str(site / "r.git")]):
        subprocess.run([*git, *command], check=True, env=env)
    subprocess.run(["git", "-C", str(site / "r.git"), "update-server-info"], check=True, env=env)


def pip_package(site):
    """thing, whose value is 42, at the other name."""
    name = "thing-1.0-py3-none-any.whl"
    folder = site / "simple/thing"
    folder.mkdir(parents=True)
    with zipfile.ZipFile(folder / name, "w") as z:
        z.writestr("thing.py", "value = 42\n")
        z.writestr("thing-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: thing\nVersion: 1.0\n")
        z.writestr("thing-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        z.writestr("thing-1.0.dist-info/RECORD", "thing.py,,\n")
    (folder / "index.html").write_text(f'<a href="https://{B}/simple/thing/{name}">{name}</a>')


def npm_package(site, tmp_path):
    (tmp_path / "package").mkdir()
    (tmp_path / "package/package.json").write_text('{"name": "thing", "version": "1.0.0"}')
    with tarfile.open(site / "thing.tgz", "w:gz") as t:
        t.add(tmp_path / "package", "package")
    sha = hashlib.sha1((site / "thing.tgz").read_bytes()).hexdigest()
    (site / "thing").write_text('{"name": "thing", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": {"name": "thing",'
                                f'"version": "1.0.0", "dist": {{"tarball": "https://{B}/thing.tgz", "shasum": "{sha}"}}}}}}}}')


def deb_package(site, tmp_path):
    """A repository with the package thing, which is a program; the package's bytes."""
    program("dpkg-deb")
    (tmp_path / "deb/DEBIAN").mkdir(parents=True)
    (tmp_path / "deb/usr/bin").mkdir(parents=True)
    (tmp_path / "deb/DEBIAN/control").write_text("Package: thing\nVersion: 1.0\nArchitecture: all\n"
                                                 "Maintainer: t <t@t.test>\nDescription: thing\n")
    (tmp_path / "deb/usr/bin/thing").write_text("#!/bin/sh\necho a thing\n")
    os.chmod(tmp_path / "deb/usr/bin/thing", 0o755)
    subprocess.run(["dpkg-deb", "--root-owner-group", "-b", str(tmp_path / "deb"), str(site / "thing_1.0_all.deb")], check=True,
                   capture_output=True)
    deb = (site / "thing_1.0_all.deb").read_bytes()
    (site / "Packages").write_text("Package: thing\nVersion: 1.0\nArchitecture: all\nMaintainer: t <t@t.test>\n"
                                   f"Description: thing\nFilename: ./thing_1.0_all.deb\nSize: {len(deb)}\n"
                                   f"SHA256: {hashlib.sha256(deb).hexdigest()}\n")
    index = (site / "Packages").read_bytes()
    (site / "Release").write_text(f"Origin: t\nDate: {email.utils.formatdate(usegmt=True)}\nSHA256:\n"
                                  f" {hashlib.sha256(index).hexdigest()} {len(index)} Packages\n")
    return deb


# ---- clients ----

def test_http2(clean, inside):
    program("curl")
    with http2(clean):
        out = inside("curl", "-sS", "--http2", "-w", " %{http_version}\n", f"https://{A}/", f"https://{A}/")
        assert out == f"h2 {A} 2\n" * 2


def test_git(site, inside, tmp_path):
    git_repository(site, tmp_path)
    inside("git", "clone", "-q", f"https://{A}/r.git", "got")
    assert (tmp_path / "home/got/file").read_text() == "content\n" * 1000


def test_pip(site, inside, tmp_path):
    program("/usr/bin/python3")
    pip_package(site)
    if subprocess.run(["/usr/bin/python3", "-m", "pip", "--version"], capture_output=True).returncode:
        pytest.skip("pip is not installed")
    inside("/usr/bin/python3", "-m", "pip", "install", "-q", "--no-cache-dir", "--target", "lib", "-i", f"https://{A}/simple/",
           "thing")
    assert (tmp_path / "home/lib/thing.py").read_text() == "value = 42\n"


def test_npm(site, inside, tmp_path):
    program("npm")
    npm_package(site, tmp_path)
    inside("npm", "install", "--registry", f"https://{A}/", "--no-audit", "--no-fund", "thing")
    assert (tmp_path / "home/node_modules/thing/package.json").exists()


def test_apt(site, inside, tmp_path):
    program("apt-get")
    deb = deb_package(site, tmp_path)
    for folder in ("state/lists/partial", "cache/archives/partial", "etc"):
        (tmp_path / "home" / folder).mkdir(parents=True)
    (tmp_path / "home/sources").write_text(f"deb [trusted=yes] http://{A}/ ./\n")
    home = str(tmp_path / "home")
    options = [x for o in (f"Dir::State={home}/state", f"Dir::Cache={home}/cache", f"Dir::Etc={home}/etc",
                           f"Dir::Etc::SourceList={home}/sources", "Dir::Etc::SourceParts=/dev/null",
                           "Dir::State::status=/dev/null", "APT::Sandbox::User=root") for x in ("-o", o)]
    inside("apt-get", *options, "update")
    inside("apt-get", *options, "download", "thing")
    assert (tmp_path / "home/thing_1.0_all.deb").read_bytes() == deb


JAVA = """
import java.net.URI;
import java.net.http.*;

public class Get {
	public static void main(String[] urls) throws Exception {
		HttpClient c = HttpClient.newHttpClient();
		for (String url : urls) {
			HttpResponse<String> r = c.send(HttpRequest.newBuilder(URI.create(url)).build(), HttpResponse.BodyHandlers.ofString());
			System.out.println(r.version() + " " + r.statusCode() + " " + r.body().strip());
		}
	}
}
"""


def test_java(clean, inside, tmp_path):
    """Its client offers HTTP/2 with each plain request."""
    program("java")
    if subprocess.run(["java", "--list-modules"], capture_output=True, text=True).stdout.count("jdk.compiler") == 0:
        pytest.skip("there is no Java compiler")
    (tmp_path / "home/Get.java").write_text(JAVA)
    out = inside("java", "Get.java", f"http://{A}/", f"http://{A}/", f"http://{B}/")
    assert out == f"HTTP_1_1 200 hello {A}\n" * 2 + f"HTTP_1_1 200 hello {B}\n"
    assert inside("java", "Get.java", "http://b.example.com/", ok=False).returncode != 0
