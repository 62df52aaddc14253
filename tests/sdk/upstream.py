"""A model in four dialects for tests of whole agents: prints its address, and serves until its input ends.

The model "agent" (of any dialect) calls each tool that it is offered once, in order, then says what the last one gave.
"""
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "api"))

import dialects  # noqa: E402
import fake_provider  # noqa: E402

COMMANDS = ["cat /etc/os-release", "python3 --version"]
ARGUMENTS = {"shell": {"commands": COMMANDS}, "bash": {"commands": COMMANDS}, "weather": {"city": "Rome"}}


class Agents(dialects.Upstream):
    def find(self, request):
        served = request.path.split("/")[1]
        model = fake_provider.Model(self, "agent", [dialects.agent(served, ARGUMENTS)])
        return model


upstream = Agents()
root = "http://127.0.0.1:%d" % upstream.port
print(json.dumps([
    {"name": s.name, "dialect": s.config, "api_key": "sk-upstream-agents",
     "base_url": "%s/%s/%s" % (root, s.name, "v1beta" if s.name == "gemini" else "v1")}
    for s in dialects.SERVED.values()]), flush=True)
sys.stdin.read()
