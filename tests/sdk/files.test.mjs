// The files APIs of three SDKs against one workspace of a real brig: what each uploads, lists, reads and deletes.
import assert from "node:assert/strict";
import { after, before, beforeEach, test } from "node:test";

import Anthropic, { toFile as toAnthropicFile } from "@anthropic-ai/sdk";
import { OpenRouter } from "@openrouter/sdk";
import OpenAI, { toFile } from "openai";

import { Brig, KEY } from "./brig.mjs";
import { Fake, text } from "./fake.mjs";
import { rejection } from "./openai.mjs";

let fake, brig, openai, anthropic, openrouter;

before(async () => {
  fake = await new Fake().start();
  brig = await new Brig(5, fake, { sandbox: false, limits: { file: "1m", workspace_files: "4m" } }).start();
  openai = new OpenAI({ baseURL: `${brig.url}/v1`, apiKey: KEY, maxRetries: 0 });
  anthropic = new Anthropic({ baseURL: brig.url, apiKey: KEY, maxRetries: 0 });
  openrouter = new OpenRouter({ serverURL: `${brig.url}/api/v1`, apiKey: KEY, retryConfig: { strategy: "none" } });
});

after(async () => {
  await brig?.stop();
  fake?.stop();
});

beforeEach(async () => {
  for await (const file of openai.files.list()) await openai.files.delete(file.id);
});

const all = async (pages) => Array.fromAsync(pages);
const bytes = (n, what = "x") => Buffer.alloc(n, what);

test("OpenAI: upload, retrieve, list, content, delete", async () => {
  const made = await openai.files.create({ file: await toFile(Buffer.from('{"a":1}\n{"b":2}\n'), "batch.jsonl"), purpose: "batch" });
  assert.equal(made.object, "file");
  assert.equal(made.bytes, 16);
  assert.equal(made.filename, "batch.jsonl");
  assert.equal(made.purpose, "batch");
  assert.equal(made.status, "processed");
  assert.ok(Math.abs(made.created_at - Date.now() / 1000) < 60);
  assert.deepEqual(await openai.files.retrieve(made.id), made);
  assert.deepEqual(await openai.files.waitForProcessing(made.id), made);
  assert.equal(await (await openai.files.content(made.id)).text(), '{"a":1}\n{"b":2}\n');
  assert.deepEqual(await all(openai.files.list({ purpose: "batch" })), [made]);
  assert.deepEqual(await all(openai.files.list({ purpose: "vision" })), []);
  const gone = await openai.files.delete(made.id);
  assert.equal(gone.id, made.id);
  assert.equal(gone.deleted, true);
  assert.ok(await rejection(openai.files.retrieve(made.id)) instanceof OpenAI.NotFoundError);
});

test("OpenAI: pages, both ways", async () => {
  const ids = [];
  for (let i = 0; i < 7; i++)
    ids.push((await openai.files.create({ file: await toFile(Buffer.from(`n${i}`), `${i}.txt`), purpose: "user_data" })).id);
  const up = await all(openai.files.list({ limit: 2, order: "asc" }));
  assert.deepEqual(up.map((f) => f.id), ids);
  const down = await all(openai.files.list({ limit: 3 }));
  assert.deepEqual(down.map((f) => f.id), ids.toReversed());
});

test("OpenAI: a time to live, and errors as its classes", async () => {
  const file = await toFile(Buffer.from("text"), "a.txt");
  const made = await openai.files.create({ file, purpose: "user_data", expires_after: { anchor: "created_at", seconds: 7200 } });
  assert.equal(made.expires_at, made.created_at + 7200);
  const refused = await rejection(openai.files.content(made.id));
  assert.ok(refused instanceof OpenAI.BadRequestError);
  assert.match(refused.message, /Not allowed to download files of purpose: user_data/);
  const wrong = await rejection(openai.files.create({ file, purpose: "conquest" }));
  assert.ok(wrong instanceof OpenAI.BadRequestError);
  assert.equal(wrong.param, "purpose");
  const large = await rejection(openai.files.create({ file: await toFile(bytes(2 << 20), "l.txt"), purpose: "user_data" }));
  assert.equal(large.status, 413);
});

test("Anthropic: upload, metadata, list, delete", async () => {
  const made = await anthropic.files.upload({
    file: await toAnthropicFile(Buffer.from("%PDF-1.7\n"), "report.pdf", { type: "application/pdf" }), expires_in_seconds: 3600 });
  assert.equal(made.type, "file");
  assert.equal(made.filename, "report.pdf");
  assert.equal(made.mime_type, "application/pdf");
  assert.equal(made.size_bytes, 9);
  assert.equal(made.downloadable, false);
  assert.equal(Date.parse(made.expires_at) - Date.parse(made.created_at), 3600_000);
  assert.deepEqual(await anthropic.files.retrieveMetadata(made.id), made);
  assert.deepEqual(await all(anthropic.files.list()), [made]);
  assert.equal((await anthropic.files.delete(made.id)).type, "file_deleted");
  assert.ok(await rejection(anthropic.files.retrieveMetadata(made.id)) instanceof Anthropic.NotFoundError);
});

test("Anthropic: the beta resource, pages and ids", async () => {
  const ids = [];
  for (let i = 0; i < 5; i++)
    ids.push((await anthropic.beta.files.upload({ file: await toAnthropicFile(Buffer.from(`n${i}`), `${i}.txt`) })).id);
  assert.deepEqual((await all(anthropic.beta.files.list({ limit: 2 }))).map((f) => f.id), ids.toReversed());
  const some = await all(anthropic.files.list({ ids: [ids[3], "file_none", ids[1]] }));
  assert.deepEqual(some.map((f) => f.id), [ids[3], ids[1]]);
  assert.equal((await anthropic.beta.files.retrieveMetadata(ids[0])).mime_type, "text/plain");
  assert.equal((await anthropic.beta.files.delete(ids[0])).id, ids[0]);
});

test("Anthropic: errors as its classes", async () => {
  const made = await anthropic.files.upload({ file: await toAnthropicFile(Buffer.from("mine"), "a.txt") });
  const refused = await rejection(anthropic.files.download(made.id));
  assert.ok(refused instanceof Anthropic.BadRequestError);
  assert.equal(refused.errorCode, "file_not_downloadable");
  assert.match(refused.requestID, /^req_/);
  for (let i = 0; i < 4; i++)
    await openai.files.create({ file: await toFile(bytes((1 << 20) - 1, `${i}`), "f.txt"), purpose: "user_data" });
  const full = await rejection(anthropic.files.upload({ file: await toAnthropicFile(bytes(1000, "y"), "b.txt") }));
  assert.ok(full instanceof Anthropic.BadRequestError);
  assert.equal(full.errorCode, "storage_quota_exceeded");
  const other = new Anthropic({ baseURL: brig.url, apiKey: "not-a-key-0123456789", maxRetries: 0 });
  assert.ok(await rejection(other.files.retrieveMetadata(made.id)) instanceof Anthropic.AuthenticationError);
});

test("OpenRouter: upload, retrieve, pages, delete", async () => {
  const made = [];
  for (let i = 0; i < 5; i++)
    made.push(await openrouter.files.upload({ requestBody: { file: { fileName: `dir/${i}.csv`, content: Buffer.from(`a,b\n${i},2\n`) } } }));
  assert.equal(made[0].shape, "openrouter");
  assert.equal(made[0].filename, "dir/0.csv");
  assert.equal(made[0].mimeType, "text/csv");
  assert.equal(made[0].sizeBytes, 8);
  assert.equal(made[0].downloadable, false);
  assert.deepEqual(await openrouter.files.retrieve({ fileId: made[0].id }), made[0]);
  const seen = [];
  for await (const page of await openrouter.files.list({ limit: 2 })) seen.push(...page.result.data);
  assert.deepEqual(seen, made);
  const refused = await rejection(openrouter.files.download({ fileId: made[0].id }));
  assert.equal(refused.statusCode, 400);
  assert.equal((await openrouter.files.delete({ fileId: made[0].id })).type, "file_deleted");
  assert.equal((await rejection(openrouter.files.retrieve({ fileId: made[0].id }))).statusCode, 404);
  const wrong = await rejection(openrouter.files.upload({ requestBody: { file: { fileName: "a.bin", content: bytes(10, 0) } } }));
  assert.equal(wrong.statusCode, 400);
});

test("one workspace, three views of it", async () => {
  const a = await openai.files.create({ file: await toFile(Buffer.from("one"), "a.txt"), purpose: "user_data" });
  const b = await anthropic.files.upload({ file: await toAnthropicFile(Buffer.from("two"), "b.txt") });
  const c = await openrouter.files.upload({ requestBody: { file: { fileName: "c.txt", content: Buffer.from("three") } } });
  const ids = [a.id, b.id, c.id];
  assert.deepEqual((await all(openai.files.list())).map((f) => f.id), ids.toReversed());
  assert.deepEqual((await all(anthropic.files.list())).map((f) => f.filename), ["c.txt", "b.txt", "a.txt"]);
  assert.equal((await openai.files.retrieve(b.id)).purpose, "user_data");
  assert.equal((await anthropic.files.retrieveMetadata(c.id)).size_bytes, 5);
});

test("a file that was uploaded is read by a model", async () => {
  const pdf = Buffer.from("%PDF-1.7\n");
  const a = await openai.files.create({ file: await toFile(pdf, "a.pdf"), purpose: "user_data" });
  const b = await anthropic.files.upload({ file: await toAnthropicFile(pdf, "b.pdf") });
  const model = fake.model(text("A report."), text("A report."), text("A report."));
  const response = await openai.responses.create({ model: model.name, input: [{ role: "user", content: [
    { type: "input_file", file_id: a.id }, { type: "input_text", text: "What is it?" }] }] });
  assert.equal(response.output_text, "A report.");
  const completion = await openai.chat.completions.create({ model: model.name, messages: [{ role: "user", content: [
    { type: "file", file: { file_id: a.id } }, { type: "text", text: "What is it?" }] }] });
  assert.equal(completion.choices[0].message.content, "A report.");
  const message = await anthropic.beta.messages.create({ model: model.name, max_tokens: 100, betas: ["files-api-2025-04-14"],
    messages: [{ role: "user", content: [
      { type: "document", source: { type: "file", file_id: b.id } }, { type: "text", text: "What is it?" }] }] });
  assert.equal(message.content[0].text, "A report.");
  const read = model.requests.map((r) => r.body.messages[0].content[0].file);
  const file_data = `data:application/pdf;base64,${pdf.toString("base64")}`;
  assert.deepEqual(read.map((f) => f.filename), ["a.pdf", "a.pdf", "b.pdf"]);
  assert.deepEqual(read.map((f) => f.file_data), [file_data, file_data, file_data]);
  await openai.files.delete(a.id);
  const refused = await rejection(openai.responses.create({ model: model.name, input: [{ role: "user", content: [
    { type: "input_file", file_id: a.id }] }] }));
  assert.ok(refused instanceof OpenAI.BadRequestError);
  assert.equal(refused.param, "input[0].content[0].file_id");
});
