// A real `brig serve` for one test file: a configuration, a key, a data folder and numeric ids of its own.
// Environment: BRIG or BRIG_BIN (the program), BRIG_TEST_IMAGE (a base image that data folders link to).
import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import fs from "node:fs";
import path from "node:path";

const ROOT = path.resolve(import.meta.dirname, "../..");
export const BRIG = process.env.BRIG || process.env.BRIG_BIN || path.join(ROOT, "build/brig");
const IMAGE = process.env.BRIG_TEST_IMAGE || "/var/lib/brig/images/base.erofs";
const ID_STEP = 0x11000000;

export const KEY = "brig-sdk-key-0123456789abcdef";

export const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

/** Waits until what() is true and returns it. The bound is for what hangs. */
export async function until(what, message, timeout = 60_000) {
  const end = performance.now() + timeout;
  for (;;) {
    const value = await what();
    if (value) return value;
    if (performance.now() >= end) throw new Error(message ?? `waited ${timeout} ms for nothing`);
    await sleep(5);
  }
}

/** Host process ids whose command line holds the text; a command in a sandbox is one of them. */
export function processesWith(text) {
  return fs.readdirSync("/proc").filter((pid) => {
    if (!/^\d+$/.test(pid)) return false;
    try {
      return fs.readFileSync(`/proc/${pid}/cmdline`, "latin1").replaceAll("\0", " ").includes(text);
    } catch {
      return false; // it has ended
    }
  });
}

export class Brig {
  /** `slot`: a number of its own for each test file, so that ids of servers side by side do not meet. */
  constructor(slot, fake, more = {}) {
    this.folder = fs.mkdtempSync("/var/tmp/brig-sdk-");
    fs.chmodSync(this.folder, 0o711);
    this.data = path.join(this.folder, "data");
    this.ids = { base: 0x20000000 + ID_STEP * slot };
    this.args = [];
    this.text = null; // a configuration as text, in place of the one below
    this.config = {
      listen: "127.0.0.1:0",
      data: this.data,
      grace: "5s",
      ids: this.ids,
      keys: [{ key: KEY, account: "acme", workspace: "one" }],
      providers: fake && [{
        name: "fake", dialect: "openai-chat", base_url: fake.url, api_key: "sk-upstream",
        prices: { priced: { input: "2.5", output: "10", cached: "0.25" } },
      }],
      container: { memory: "256m", home: "256m", scratch: "256m", processes: 128 },
      ...more,
      // What an upstream is asked is counted, and the retries that are looked at are the SDKs' own.
      limits: { upstream_retries: 0, upstream_failures: 0, ...more.limits },
    };
  }

  log() {
    return fs.readFileSync(path.join(this.folder, "log"), "utf8");
  }

  async start() {
    fs.mkdirSync(path.join(this.data, "images"), { recursive: true, mode: 0o700 });
    fs.chmodSync(this.data, 0o711);
    const image = path.join(this.data, "images/base.erofs");
    try {
      fs.linkSync(IMAGE, image);
    } catch (error) {
      if (error.code !== "EXDEV") throw error;
      fs.copyFileSync(IMAGE, image);
    }
    const config = path.join(this.folder, "brig.yaml");
    const text = this.text ?? JSON.stringify(this.config); // JSON is YAML
    fs.writeFileSync(config, text, { mode: 0o600 });
    const log = fs.openSync(path.join(this.folder, "log"), "a");
    this.process = spawn(BRIG, ["serve", "--config", config, ...this.args], { stdio: ["ignore", "pipe", log], detached: true });
    fs.closeSync(log);
    this.ended = new Promise((done) => this.process.once("exit", (code, signal) => done(code ?? signal)));
    this.url = await new Promise((done, failed) => {
      this.process.once("error", failed); // it could not be started at all
      let said = "";
      this.process.stdout.on("data", (data) => {
        said += data;
        const ready = said.match(/^ready (http:\/\/\S+)$/m);
        if (ready) done(ready[1]);
      });
      this.ended.then((code) => failed(new Error(`brig serve ended with ${code}:\n${this.log()}`)));
    }).catch((error) => {
      this.remove();
      throw error;
    });
    return this;
  }

  /** SIGTERM; the server must end well and leave nothing behind. */
  async stop() {
    this.process.kill("SIGTERM");
    const killer = setTimeout(() => this.process.kill("SIGKILL"), 60_000);
    const code = await this.ended;
    clearTimeout(killer);
    const log = this.log();
    let left;
    await until(() => !(left = this.leftovers()).length).catch(() => {});
    this.remove();
    if (code !== 0) throw new Error(`brig serve ended with ${code}:\n${log.slice(-4000)}`);
    if (left.length) throw new Error(`left behind:\n${left.join("\n")}`);
    if (/BUG|Sanitizer|runtime error:/.test(log) || log.includes(KEY)) throw new Error(log.slice(-8000));
  }

  remove() {
    fs.rmSync(this.folder, { recursive: true, force: true });
  }

  leftovers() {
    const group = "brig-" + createHash("sha256").update(this.data).digest("hex").slice(0, 12);
    const found = fs.readFileSync("/proc/self/mountinfo", "utf8").split("\n").filter((m) => m.includes(this.data));
    for (const folder of ["", ...fs.readdirSync("/sys/fs/cgroup")]) {
      const cgroup = path.join("/sys/fs/cgroup", folder, group);
      if (fs.existsSync(cgroup)) found.push(cgroup);
    }
    return found;
  }
}
