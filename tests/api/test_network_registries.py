"""One real package from each package registry that this machine's own npm and apt are set up for, through an allowlist
of exactly those names. The names are read while the test runs; nothing that it prints or keeps holds them."""
import contextlib
import io
import ipaddress
import json
import os
import re
import shutil
import socket
import subprocess
import tarfile
import urllib.parse
import uuid

import pytest

import brigtest

FORM = {"Content-Type": "multipart/form-data; boundary=xyz"}


class Registry:
    """Where one is, and what it is called in what is printed."""

    def __init__(self, url, called):
        self.url, self.called = url, called
        self.name = urllib.parse.urlparse(url).hostname

    def masked(self, text):
        return text.replace(self.name, "[%s]" % self.called)

    def private(self):
        """Whether its name leads to an address that is not public. Skips where it leads nowhere."""
        port = 443 if self.url.startswith("https:") else 80
        parts = urllib.parse.urlparse(self.url)
        if parts.port not in (None, port):
            self.skip("is on a port that containers do not reach")
        if re.fullmatch(r"[\d.]+|.*:.*", self.name) or self.name != self.name.lower():
            self.skip("has an address for a name")
        try:
            found = socket.getaddrinfo(self.name, port, proto=socket.IPPROTO_TCP)
            socket.create_connection((self.name, port), 5).close()
        except OSError as e:
            self.skip("is not reachable from here (%s)" % e.strerror)
        return not all(ipaddress.ip_address(a[4][0]).is_global for a in found)

    def skip(self, why):
        print("skipped: %s %s" % (self.called, why))
        pytest.skip("%s %s" % (self.called, why))


@contextlib.contextmanager
def container(registry, **more):
    """(run, put) for a container that may reach the registry and nothing else. What fails fails without its name."""
    server = brigtest.Server(config={"egress": {"allow_private": registry.private(), "allow": [registry.name]},
                                     "limits": {"file": "400m"},
                                     "container": dict({"home": "1g", "scratch": "1g", "memory": "512m"}, **more)})
    try:
        server.start()
        client = server.client()
        policy = {"type": "allowlist", "allowed_domains": [registry.name]}
        made = client.post("/containers", {"name": "r-" + uuid.uuid4().hex[:12], "network_policy": policy})
        assert made.status == 200, made
        name = made.json["id"]

        def put(path, data):
            body = (b"--xyz\r\nContent-Disposition: form-data; name=\"path\"\r\n\r\n%s\r\n--xyz\r\nContent-Disposition: "
                    b"form-data; name=\"file\"; filename=\"f\"\r\n\r\n%s\r\n--xyz--\r\n" % (path.encode(), data))
            answer = client.request("POST", "%s/containers/%s/files" % (client.base, name), body, headers=FORM, timeout=200)
            assert answer.status == 200, answer

        def run(command):
            got = client.execute(name, command, timeout=320, timeout_ms=300000)["output"][0]
            assert got["outcome"] == {"type": "exit", "exit_code": 0}, got
            return got["stdout"]
        yield run, put
        server.stop()
    except AssertionError as e:
        text = registry.masked(str(e))
        if re.search(r"E401|E403|\b40[13]\b.*(Unauthorized|Forbidden)", text):
            registry.skip("asks who we are")
        raise AssertionError(text) from None
    finally:
        if server.process is not None:
            server.kill()
        server.remove()


def program(name):
    path = shutil.which(name)
    if not path:
        print("skipped: %s is not installed" % name)
        pytest.skip("%s is not installed" % name)
    return os.path.realpath(path)


def npm_setting(key):
    done = subprocess.run([program("npm"), "config", "get", key], capture_output=True, text=True, timeout=60)
    value = done.stdout.strip()
    return "" if value in ("null", "undefined") else value


def authorities(put):
    """What this machine trusts, for what of it a registry of its own may need."""
    with open("/etc/ssl/certs/ca-certificates.crt", "rb") as f:
        put("ca.pem", f.read())


def test_npm():
    registry = Registry(npm_setting("registry") or "none:", "npm's registry")
    if not registry.name:
        registry.called = "npm's configuration"
        registry.skip("names no registry")
    tar, npm = io.BytesIO(), os.path.dirname(os.path.dirname(program("npm")))
    with tarfile.open(fileobj=tar, mode="w") as t:
        t.add(program("node"), "node/bin/node")
        t.add(npm, "node/npm")
    with container(registry) as (run, put):
        authorities(put)
        put("node.tar", tar.getvalue())
        put("url", registry.url.encode())
        run("tar xf node.tar && rm node.tar")
        got = run("export PATH=$HOME/node/bin:$PATH NODE_EXTRA_CA_CERTS=$HOME/ca.pem npm_config_update_notifier=false\n"
                  "node node/npm/bin/npm-cli.js install --registry \"$(cat url)\" --no-audit --no-fund ms > log 2>&1 ||"
                  " { cat log; exit 1; }\n"
                  "node -e 'console.log(require(\"ms\")(\"2 days\"))'; cat node_modules/ms/package.json")
        days, package = got.split("\n", 1)
        assert days == "172800000" and json.loads(package)["name"] == "ms"


SMALLEST = r"""python3 -c '
import glob, re
found = []
for path in glob.glob("/var/lib/apt/lists/*_Packages"):
    for entry in open(path).read().split("\n\n"):
        name, size = re.search("^Package: (.*)", entry, re.M), re.search("^Size: (.*)", entry, re.M)
        if name and size: found.append((int(size[1]), name[1]))
print(min(found)[1])'"""


def apt_repositories():
    """[(uri, suite, component)] of each that is reached by HTTP."""
    line = "$(REPO_URI)\t$(RELEASE)\t$(COMPONENT)"
    if not shutil.which("apt-get"):
        return []
    done = subprocess.run(["apt-get", "indextargets", "--format", line, "Identifier: Packages"],
                          capture_output=True, text=True, timeout=60)
    found = {}
    for row in done.stdout.splitlines():
        uri, suite, component = row.split("\t")
        if uri.startswith(("http://", "https://")):
            found.setdefault(uri, (uri, suite, component))
    return list(found.values())


@pytest.mark.parametrize("number", range(len(apt_repositories()) or 1))
def test_apt(number):
    if not apt_repositories():
        print("skipped: apt is set up for no repository that is reached by HTTP")
        pytest.skip("apt is set up for no repository that is reached by HTTP")
    uri, suite, component = apt_repositories()[number]
    registry = Registry(uri, "apt's repository %d" % (number + 1))
    with container(registry) as (run, put):
        authorities(put)
        # apt trusts in the guest what the image trusts; another signer than Debian is not what is tried here.
        put("sources", ("deb [trusted=yes] %s %s %s\n" % (uri, suite, component)).encode())
        run("rm -f /etc/apt/sources.list /etc/apt/sources.list.d/* && cp sources /etc/apt/sources.list\n"
            "cp ca.pem /etc/ssl/certs/ca-certificates.crt\n"
            "(apt-get -q update && cd /tmp && apt-get -q download \"$(" + SMALLEST + ")\") > log 2>&1 || { cat log; exit 1; }")
        kind = run("dpkg-deb --field /tmp/*.deb Package Version")
        assert "Package: " in kind and "Version: " in kind
