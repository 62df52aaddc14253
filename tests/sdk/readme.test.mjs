// Runs every example of the README that is marked with `readme=NAME`, as it stands there but for addresses and paths.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import fs from "node:fs";
import path from "node:path";
import { after, before, test } from "node:test";

import { Brig, BRIG, KEY } from "./brig.mjs";
import { Fake, calls, shell, text } from "./fake.mjs";

const README = fs.readFileSync(path.join(import.meta.dirname, "../../README.md"), "utf8");
const EXAMPLES = Object.fromEntries([...README.matchAll(/^```\w+ readme=(\w+)\n(.*?)^```$/gms)].map(([, name, body]) => [name, body]));

let brig, folder;

before(async () => {
  // As a first start makes it: no keys in the configuration, so there is one in the data folder.
  brig = await new Brig(3, null, { keys: undefined, providers: undefined }).start();
  folder = path.join(brig.folder, "client");
  fs.mkdirSync(folder);
  fs.symlinkSync(path.join(import.meta.dirname, "node_modules"), path.join(folder, "node_modules"));
});

after(async () => brig?.stop());

/** Runs a shell script behind the README's own `export` lines; resolves to what it printed. */
function run(script, { input = "" } = {}) {
  const local = (text) => text.replaceAll("http://127.0.0.1:8484", brig.url).replaceAll("/var/lib/brig", brig.data)
    .replaceAll("build/brig", BRIG);
  const { BRIG_URL, BRIG_KEY, BRIG_DATA, ...env } = process.env;
  const child = spawn("sh", ["-e", "-c", local(EXAMPLES.env) + local(script)], { cwd: folder, env });
  const out = { stdout: "", stderr: "" };
  for (const name of ["stdout", "stderr"]) child[name].setEncoding("utf8").on("data", (piece) => (out[name] += piece));
  child.stdin.end(input);
  return new Promise((done) => child.once("close", (code) => done({ ...out, code })));
}

/** That both commands of the README's request ran. */
function assertRan({ code, stdout, stderr }) {
  assert.equal(code, 0, stderr);
  assert.match(stdout, /PRETTY_NAME=\\?"Debian GNU\/Linux 12/);
  assert.match(stdout, /Python 3\.11\.\d+/);
}

const tests = {
  async env() {
    const { stdout } = await run('echo "$BRIG_URL $BRIG_KEY"');
    assert.equal(stdout, `${brig.url} ${fs.readFileSync(path.join(brig.data, "key"), "utf8").trim()}\n`);
    assert.equal(fs.statSync(path.join(brig.data, "key")).mode & 0o777, 0o600);
  },

  async curl() {
    const result = await run(EXAMPLES.curl);
    assertRan(result);
    const response = JSON.parse(result.stdout);
    assert.deepEqual(response.output.map((item) => item.type), ["openrouter:shell", "message"]);
  },

  async python() {
    fs.writeFileSync(path.join(folder, "example.py"), EXAMPLES.python);
    const result = await run("python3 example.py");
    assertRan(result);
    assert.match(result.stdout, /^cost in dollars: 0\.\d+$/m);
    assert.match(result.stdout, /^\$\npython3 --version\n\{'type': 'exit', 'exit_code': 0\}$/m);
  },

  async typescript() {
    fs.writeFileSync(path.join(folder, "example.mts"), EXAMPLES.typescript);
    const result = await run(`"${process.execPath}" example.mts`); // which strips the types
    assertRan(result);
    assert.match(result.stdout, /^\{ type: 'exit', exit_code: 0 \} Python 3/m);
    assert.match(result.stdout, /brig\/script is no model/);
  },

  async messages() {
    fs.writeFileSync(path.join(folder, "messages.mts"), EXAMPLES.messages);
    const { code, stdout, stderr } = await run(`"${process.execPath}" messages.mts`);
    assert.equal(code, 0, stderr);
    assert.match(stdout, /^Python 3\.11\.\d+\n+$/);
  },

  async gemini() {
    fs.writeFileSync(path.join(folder, "gemini.mts"), EXAMPLES.gemini);
    const { code, stdout, stderr } = await run(`"${process.execPath}" gemini.mts`);
    assert.equal(code, 0, stderr);
    assert.match(stdout, /^Python 3\.11\.\d+\n+$/);
  },

  async run() {
    assert.deepEqual(await run(EXAMPLES.run), { code: 0, stdout: "5050\n", stderr: "" });
  },

  async files() {
    const { code, stdout, stderr } = await run(EXAMPLES.files);
    assert.equal(code, 0, stderr);
    assert.match(stdout, /in\/report\.csv/);
    assert.match(stdout, /^month,sum,checked$/m);
  },

  async config() {
    const fake = await new Fake().start();
    const model = fake.named("qwen3-32b", ...Array(2).fill([calls([shell(["echo $((100 * 101 / 2))"])]), text("Done.")]).flat());
    const other = new Brig(4);
    const address = "http://127.0.0.1:8000/v1";
    assert.ok(EXAMPLES.config.includes(address));
    other.text = `${EXAMPLES.config.replace(address, fake.url)}ids: {base: ${other.ids.base}}\nkeys: [{key: ${KEY}}]\n`;
    other.args = ["--listen", "127.0.0.1:0", "--data", other.data];
    await other.start();
    try {
      for (const name of ["fast", "local/qwen3-32b"]) {
        const answer = await fetch(`${other.url}/api/v1/responses`, {
          method: "POST", headers: { authorization: `Bearer ${KEY}`, "content-type": "application/json" },
          body: JSON.stringify({ model: name, input: "Sum 1 to 100.", tools: [{ type: "openrouter:shell" }] }) });
        const response = await answer.json();
        assert.equal(response.output?.[0].output?.[0].stdout, "5050\n", JSON.stringify(response));
      }
      assert.equal(model.requests.length, 4);
    } finally {
      await other.stop();
      fake.stop();
    }
  },
};

for (const name of Object.keys(EXAMPLES)) test(`the README's example: ${name}`, () => tests[name]());

test("every kind of example is there", () => {
  assert.deepEqual(Object.keys(EXAMPLES).sort(), Object.keys(tests).sort());
});
