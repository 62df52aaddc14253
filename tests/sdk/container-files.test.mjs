// A container's files by OpenAI's and OpenRouter's SDKs against a real brig.
import assert from "node:assert/strict";
import { after, before, beforeEach, test } from "node:test";

import { OpenRouter } from "@openrouter/sdk";
import OpenAI, { toFile } from "openai";

import { Brig, KEY } from "./brig.mjs";
import { Fake, calls, shell, text } from "./fake.mjs";
import { rejection } from "./openai.mjs";

let fake, brig, openai, openrouter;
let n = 0, box;

before(async () => {
  fake = await new Fake().start();
  brig = await new Brig(6, fake).start();
  openai = new OpenAI({ baseURL: `${brig.url}/v1`, apiKey: KEY, maxRetries: 0 });
  openrouter = new OpenRouter({ serverURL: `${brig.url}/api/v1`, apiKey: KEY, retryConfig: { strategy: "none" } });
});

after(async () => {
  await brig?.stop();
  fake?.stop();
});

beforeEach(async () => {
  box = (await openai.containers.create({ name: `box-${n++}` })).id;
});

const run = (command) => openai.post(`/containers/${box}/exec`, { body: { commands: [command] } });
const all = (pages) => Array.fromAsync(pages);
const everyByte = Buffer.from(Array.from({ length: 4096 }, (_, i) => i % 256));

test("OpenAI: create, retrieve, content, list, delete", async () => {
  const made = await openai.containers.files.create(box, { file: await toFile(everyByte, "every.bin") });
  assert.deepEqual(Object.keys(made).sort(), ["bytes", "container_id", "created_at", "id", "object", "path", "source"]);
  assert.equal(made.object, "container.file");
  assert.equal(made.container_id, box);
  assert.equal(made.bytes, 4096);
  assert.equal(made.path, "every.bin");
  assert.match(made.id, /^cfile_/);
  assert.ok(Math.abs(made.created_at - Date.now() / 1000) < 600);
  assert.deepEqual(await openai.containers.files.retrieve(made.id, { container_id: box }), made);
  const content = await openai.containers.files.content.retrieve(made.id, { container_id: box });
  assert.deepEqual(Buffer.from(await content.arrayBuffer()), everyByte);
  assert.deepEqual(await all(openai.containers.files.list(box)), [made]);
  assert.equal((await run("md5sum < every.bin")).output[0].outcome.exit_code, 0);
  await openai.containers.files.delete(made.id, { container_id: box });
  const error = await rejection(openai.containers.files.retrieve(made.id, { container_id: box }));
  assert.ok(error instanceof OpenAI.NotFoundError);
  assert.equal((await rejection(openai.containers.files.list("none-such"))).status, 404);
});

test("OpenAI: a stream of unknown length", async () => {
  const made = await openai.containers.files.create(box, {
    file: await toFile((async function* () { for (let i = 0; i < 100; i++) yield Buffer.alloc(10_000, i); })(), "streamed"),
  });
  assert.equal(made.bytes, 1_000_000);
});

test("OpenAI: a document by its id", async () => {
  const file = await openai.files.create({ file: await toFile(Buffer.from("a,b\n"), "t.csv"), purpose: "user_data" });
  const made = await openai.containers.files.create(box, { file_id: file.id });
  assert.equal(made.bytes, 4);
  assert.ok(made.path.endsWith("-t.csv"));
  const error = await rejection(openai.containers.files.create(box, { file_id: "file-none" }));
  assert.ok(error instanceof OpenAI.BadRequestError);
  assert.equal(error.param, "file_id");
});

test("OpenAI: pages follow each other", async () => {
  await run("seq -f f%03g 250 | xargs touch");
  const files = await all(openai.containers.files.list(box, { limit: 20 }));
  assert.deepEqual(files.map((f) => f.path), Array.from({ length: 250 }, (_, i) => `f${String(i + 1).padStart(3, "0")}`));
});

test("OpenRouter: list, get, download, promote", async () => {
  await run("mkdir out; printf hello > out/report.csv; printf x > b");
  const list = await openrouter.containers.listContainerFiles({ containerId: box });
  assert.deepEqual(list.data.map((f) => f.path), ["b", "out/report.csv"]);
  assert.equal(list.hasMore, false);
  assert.equal(list.lastId, "cfile_b3V0L3JlcG9ydC5jc3Y");
  const rest = await openrouter.containers.listContainerFiles({ containerId: box, limit: 1, after: list.firstId });
  assert.deepEqual(rest.data, [list.data[1]]);
  const which = { containerId: box, fileId: list.lastId };
  const file = await openrouter.containers.getContainerFile(which);
  assert.deepEqual(file, list.data[1]);
  assert.equal(file.source, "assistant");
  const stream = await openrouter.containers.downloadContainerFileContent(which);
  assert.equal(await new Response(stream).text(), "hello");
  const kept = await openrouter.containers.promoteContainerFile(which);
  assert.equal(kept.filename, "out/report.csv");
  assert.equal(kept.sizeBytes, 5);
  assert.equal(kept.downloadable, true);
  const none = await rejection(openrouter.containers.getContainerFile({ containerId: box, fileId: "cfile_bm9uZQ" }));
  assert.equal(none.statusCode, 404);
});

test("a tool call's files lead to their content", async () => {
  const model = fake.model(calls([shell(["mkdir o; printf 5050 > o/sum.txt"])]), text("Done.")).name;
  const response = await openai.responses.create({ model, input: "go", tools: [{ type: "openrouter:shell" }] });
  const [cited] = response.output[0].files;
  assert.deepEqual(cited, {
    type: "container_file_citation", container_id: response.output[0].container_id, file_id: "cfile_by9zdW0udHh0",
    filename: "o/sum.txt", start_index: 0, end_index: 0,
  });
  const content = await openai.containers.files.content.retrieve(cited.file_id, { container_id: cited.container_id });
  assert.equal(await content.text(), "5050");
});
