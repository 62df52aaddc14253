"""One outside for all tests: a name server, an HTTP server on port 80 and a TLS one on port 443, on all addresses."""

import os
import ssl
import subprocess

import pytest

import egresstest
from egresstest import Egress, Names, Sandbox, Server, outside, web

PUBLIC = "93.184.216.34"


class World:
    def __init__(self, folder):
        self.folder = folder
        outside()
        self.names = Names()
        for name in ("a.example.com", "b.example.com", "xn--bcher-kva.example.com", "deep.a.example.com"):
            self.names.table[name] = [PUBLIC]
        self.requests = web.requests
        self.web = Server(80, web)
        self.ca = os.path.join(folder, "ca.pem")
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(*self.certificate(["*.example.com", "*.a.example.com", "example.com"]))
        self.tls = Server(443, web, self.context)

    def certificate(self, names):
        key, cert = os.path.join(self.folder, "key.pem"), os.path.join(self.folder, "cert.pem")
        run = dict(check=True, capture_output=True, cwd=self.folder)
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                        "-keyout", "ca.key", "-out", "ca.pem", "-days", "30", "-subj", "/CN=test authority"], **run)
        subprocess.run(["openssl", "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout",
                        "key.pem", "-out", "cert.csr", "-subj", "/CN=test"], **run)
        with open(os.path.join(self.folder, "ext"), "w") as f:
            f.write("subjectAltName=" + ",".join(f"DNS:{n}" for n in names))
        subprocess.run(["openssl", "x509", "-req", "-in", "cert.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-days", "30",
                        "-CAcreateserial", "-out", "cert.pem", "-extfile", "ext"], **run)
        return cert, key


@pytest.fixture(scope="session")
def world(tmp_path_factory):
    if os.geteuid() != 0:
        pytest.skip("needs root for network namespaces")
    folder = tmp_path_factory.mktemp("egress")
    os.chmod(folder, 0o755)
    return World(str(folder))


@pytest.fixture
def clean(world):
    """Nothing was asked or reached yet, nor will be for an earlier test's sake."""
    world.web.rest()
    world.tls.rest()
    for seen in (world.web.seen, world.tls.seen, world.names.asked, world.requests):
        seen.clear()
    world.names.counts.clear()
    world.names.silent.clear()
    world.names.cut.clear()
    world.names.mute.clear()
    world.names.over_tcp.clear()
    world.names.spoil = None
    return world


@pytest.fixture
def egress_with(clean):
    """Starts an egress with arguments; it must end in good order."""
    started = []

    def start(*args):
        e = Egress("uid=65534", *args)
        started.append(e)
        return e
    yield start
    for e in started:
        if e.process.poll() is None:
            code, log = e.stop()
            assert code == 0, log


@pytest.fixture
def egress(egress_with):
    return egress_with()


@pytest.fixture
def sandbox_with(egress):
    made = []

    def make(*lines, everything=False):
        s = Sandbox(everything)
        made.append(s)
        egress.add(s, *lines)
        return s
    yield make
    for s in made:
        s.close()


@pytest.fixture
def sandbox(sandbox_with):
    """May reach a.example.com and what is under it, by two patterns."""
    return sandbox_with("allow a.example.com", "allow *.a.example.com", "allow xn--bcher-kva.example.com")
