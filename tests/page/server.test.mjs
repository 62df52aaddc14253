// How the page's files are served: policy, tags, compression, methods; and how a terminal's output becomes text.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { Brig, KEY } from "../sdk/brig.mjs";
import { Page, browser } from "./page.mjs";

let brig, chrome, page;

before(async () => {
  brig = await new Brig(5, null, { providers: undefined, sandbox: "off" }).start();
  chrome = await browser();
  page = await Page.open(chrome, brig);
  await page.page.goto(`${brig.url}/`);
});

after(async () => {
  await page?.clean();
  await chrome?.close();
  await brig?.stop();
});

const ask = (path, options = {}) => fetch(brig.url + path, { redirect: "manual", ...options });

test("the policy lets nothing but the page's own scripts and styles be", async () => {
  const response = await ask("/");
  assert.equal(response.status, 200);
  assert.match(response.headers.get("content-type"), /^text\/html/);
  const policy = Object.fromEntries(response.headers.get("content-security-policy").split("; ").map((d) => [d.split(" ")[0], d.split(" ").slice(1).join(" ")]));
  assert.deepEqual(policy, {
    "default-src": "'none'", "script-src": "'self'", "style-src": "'self'", "connect-src": "'self'", "img-src": "'self' data:",
    "base-uri": "'none'", "form-action": "'none'", "frame-ancestors": "'none'", "require-trusted-types-for": "'script'", "trusted-types": "'none'",
  });
  assert.equal(response.headers.get("x-content-type-options"), "nosniff");
  assert.equal(response.headers.get("referrer-policy"), "no-referrer");
  const html = await response.text();
  assert.doesNotMatch(html, /<script(?![^>]*\bsrc=)|<style|\son\w+=|\sstyle=|https?:\/\//);
});

test("every file that the page names is there, and names nothing outside", async () => {
  const seen = new Set();
  const todo = ["/"];
  while (todo.length) {
    const path = todo.pop();
    if (seen.has(path)) continue;
    seen.add(path);
    const response = await ask(path);
    assert.equal(response.status, 200, path);
    const text = await response.text();
    assert.doesNotMatch(text.replaceAll("http://www.w3.org/2000/svg", ""), /https?:\/\//, path);
    assert.doesNotMatch(text, /innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function/, path);
    for (const [, found] of text.matchAll(/(?:src|href)="(\/[^"#]+)"/g)) todo.push(found);
    for (const [, found] of text.matchAll(/(?:from|import\() ?"\.\/([^"]+)"/g)) todo.push(`/page/${found}`);
  }
  assert.ok(seen.size > 15, [...seen].join(" "));
});

test("tags save bytes, and compression has a tag of its own", async () => {
  const plain = await ask("/page/app.js", { headers: { "accept-encoding": "identity" } });
  const text = await plain.text();
  assert.equal(plain.headers.get("content-encoding"), null);
  assert.equal(Number(plain.headers.get("content-length")), Buffer.byteLength(text));
  const packed = await ask("/page/app.js", { headers: { "accept-encoding": "br, gzip;q=0.5" } });
  assert.equal(packed.headers.get("content-encoding"), "gzip");
  assert.equal(packed.headers.get("vary"), "Accept-Encoding");
  assert.equal(await packed.text(), text);
  assert.notEqual(packed.headers.get("etag"), plain.headers.get("etag"));
  assert.equal((await ask("/page/app.js", { headers: { "accept-encoding": "gzip;q=0" } })).headers.get("content-encoding"), null);
  const again = await ask("/page/app.js", { headers: { "accept-encoding": "identity", "if-none-match": `"other", ${plain.headers.get("etag")}` } });
  assert.equal(again.status, 304);
  assert.equal(await again.text(), "");
  assert.ok(again.headers.get("content-security-policy"));
  assert.equal((await ask("/page/app.js", { headers: { "if-none-match": '"other"' } })).status, 200);
});

test("other methods and paths are refused", async () => {
  const head = await ask("/", { method: "HEAD" });
  assert.equal(head.status, 200);
  assert.equal(await head.text(), "");
  const post = await ask("/", { method: "POST", body: "x" });
  assert.equal(post.status, 405);
  assert.equal(post.headers.get("allow"), "GET, HEAD");
  for (const path of ["/page", "/page/", "/page/nothing.js", "/page/..%2f..%2fetc/passwd", "/page/app.js/", "/index.html", "//"]) {
    assert.equal((await ask(path)).status, 404, path);
  }
  assert.equal((await ask("/api/v1/generations")).status, 401);
});

test("output becomes what a terminal would have left", async () => {
  const E = "\u001b";
  const cases = {
    [`${E}[31mred${E}[0m plain`]: [["fg1", "red"], ["", " plain"]],
    [`${E}[1;32;44mx${E}[39;49my${E}[22mz`]: [["fg2 bg4 t-bold", "x"], ["t-bold", "y"], ["", "z"]],
    [`${E}[38;5;196ma${E}[38;2;10;200;20mb${E}[48;5;21mc`]: [["fg1", "a"], ["fg2", "b"], ["fg2 bg4", "c"]],
    [`${E}[7minverse${E}[27m`]: [["bg7", "inverse"]],
    [`${E}[8mhidden${E}[28m`]: [["", "hidden"]],
    "10%\r50%\r100%\nnext": [["", "100%\nnext"]],
    "long line\rX": [["", "Xong line"]],
    [`long line\r${E}[KX`]: [["", "X"]],
    "ab\b\bX": [["", "Xb"]],
    "win\r\nlines\r\n": [["", "win\nlines\n"]],
    [`${E}]0;title\u0007${E}]8;;http://evil.example/${E}\\link${E}]8;;${E}\\`]: [["", "link"]],
    [`a${E}[2J${E}[1;1Hb${E}[?25lc`]: [["", "abc"]],
    [`${E}P1;2|payload${E}\\x${E}(By`]: [["", "xy"]],
    [`cut off ${E}[3`]: [["", "cut off 3"]],
    "bell\u0007 nul\u0000 \u202eevil\u202c \u200b": [["", "bell\\x07 nul\\x00 \\u202eevil\\u202c \\u200b"]],
    "<script>alert(1)</script></pre><!--": [["", "<script>alert(1)</script></pre><!--"]],
    [`${E}[999999999999999;1mx`]: [["t-bold", "x"]],
    "😀\ud800x": [["", "😀\\ud800x"]],
  };
  const got = await page.page.evaluate(async (texts) => {
    const { terminalNodes } = await import("/page/terminal.js");
    return texts.map((text) => terminalNodes(text).map((n) => [n.nodeType === 3 ? "" : n.className, n.textContent]));
  }, Object.keys(cases));
  Object.keys(cases).forEach((text, i) => assert.deepEqual(got[i], cases[text], JSON.stringify(text)));
});

test("much output does not take long to show", async () => {
  const ms = await page.page.evaluate(async () => {
    const { longText } = await import("/page/terminal.js");
    const texts = ["x".repeat(1 << 20), "\u001b[31mx".repeat(1 << 18), "\rabc".repeat(1 << 18), "\u001b]".repeat(1 << 19), `${"y".repeat(1 << 20)}\rz`, "\u001b[".repeat(1 << 19)];
    return texts.map((text) => {
      const from = performance.now();
      document.body.append(longText(text, { terminal: true }));
      return Math.round(performance.now() - from);
    });
  });
  console.log(`1 MiB of output, first part shown: ${ms.join(", ")} ms`);
  assert.ok(Math.max(...ms) < 5000, String(ms));
});

test("money and times have the same digits in every row", async () => {
  const got = await page.page.evaluate(async () => {
    const f = await import("/page/format.js");
    return [f.money(0.003), f.money(1234.5), f.money(0.0000019), f.money(0), f.money(null), f.addMoney(0.1, 0.2), f.seconds(742), f.seconds(1500), f.seconds(61_000), f.seconds(7_260_000),
      f.seconds(100_000), f.bytes(1536), f.moneyCell(0.003).textContent];
  });
  assert.deepEqual(got, ["$0.0030", "$1,234.5000", "$0.0000019", "0", "–", 0.3, "742 ms", "1.50 s", "61.0 s", "2h 01m", "1m 40s", "1.5 KiB", "$0.003000"]);
});

test("a wrong key is refused in words, and the log-in can be used without a mouse", async () => {
  const p = await Page.open(chrome, brig);
  p.expected = ["/api/v1/generations", "/api/v1/key"];
  p.key = KEY;
  await p.page.goto(`${brig.url}/`);
  await p.page.keyboard.type("wrong");
  await p.page.keyboard.press("Enter");
  await p.page.getByRole("alert").filter({ hasText: "does not take this key" }).waitFor();
  await p.page.keyboard.press("Control+A");
  await p.page.keyboard.type(KEY);
  await p.page.keyboard.press("Enter");
  await p.page.getByRole("heading", { level: 1, name: "Requests" }).waitFor();
  assert.equal(await p.page.evaluate(() => sessionStorage.getItem("brig.key")), KEY);
  assert.equal(await p.page.evaluate(() => JSON.stringify(localStorage)), "{}");
  await p.page.reload();
  await p.page.getByRole("heading", { level: 1, name: "Requests" }).waitFor();
  await p.page.getByRole("button", { name: "Log out" }).click();
  await p.page.getByLabel("API key").waitFor();
  assert.equal(await p.page.evaluate(() => sessionStorage.getItem("brig.key")), null);
  await p.clean();
  await p.close();
});
