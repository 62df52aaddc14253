// OpenAI's SDK, pointed at a brig, and what tests of it share.
import assert from "node:assert/strict";

import OpenAI from "openai";
import { accumulateResponse } from "openai/lib/responses/ResponseAccumulator";

import { KEY } from "./brig.mjs";

/**
 * A client whose `wire.sent` counts requests, retries among them, and whose `wire.answers` holds what came back,
 * each {status, headers, bytes}.
 */
export function connect(brig, more = {}) {
  const wire = { sent: 0, answers: [] };
  const client = new OpenAI({
    baseURL: `${brig.url}/v1`, apiKey: KEY, timeout: 60_000, ...more,
    async fetch(...args) {
      wire.sent++;
      const answer = await fetch(...args);
      const seen = { status: answer.status, headers: answer.headers, bytes: "" };
      wire.answers.push(seen);
      if (!answer.body) return answer;
      const copy = new TransformStream({
        transform(piece, out) {
          seen.bytes += Buffer.from(piece).toString("latin1");
          out.enqueue(piece);
        },
      });
      return new Response(answer.body.pipeThrough(copy), answer);
    },
  });
  client.wire = wire;
  return client;
}

/** All events of a raw stream, numbered without a gap, and what they add up to by the SDK's own rules. */
export async function collect(stream) {
  const events = [];
  let sum, before;
  for await (const event of stream) {
    assert.equal(event.sequence_number, events.length);
    before = sum && structuredClone(sum.output);
    sum = accumulateResponse(event, sum);
    events.push(event);
  }
  assert.deepEqual(before, events.at(-1).response.output, "the deltas add up to what the last event says");
  return { events, response: sum, types: events.map((e) => e.type) };
}

/** The three ways in which the SDK asks; each resolves to the response. */
export const ways = (client) => ({
  "whole": (request) => client.responses.create(request),
  "raw stream": async (request) => (await collect(await client.responses.create({ ...request, stream: true }))).response,
  "stream helper": (request) => client.responses.stream(request).finalResponse(),
});

/** [{command, stdout, stderr, outcome}] of all shell calls that were run, whichever item shape carries them. */
export function ran(response) {
  return response.output.flatMap((item) => {
    if (item.type !== "openrouter:shell" && item.type !== "shell_call") return [];
    const result = item.type === "openrouter:shell" ? item
      : response.output.find((other) => other.type === "shell_call_output" && other.call_id === item.call_id);
    return (result?.output ?? []).map((output, i) => ({ command: item.action.commands[i], ...output }));
  });
}

export async function rejection(promise) {
  return promise.then((value) => assert.fail(`did not fail: ${JSON.stringify(value)}`), (error) => error);
}
