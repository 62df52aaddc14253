// A scripted chat-completions server. A test makes a model of its own with replies in order, asks brig for
// "fake/NAME", and reads in `requests` what arrived. A model asked more often than it has replies answers 599.
import http from "node:http";

import { sleep, until } from "./brig.mjs";

// ---- what a reply consists of: strings that are written, and functions of the answer ----

export const pause = (ms) => () => sleep(ms);
/** Says no more until the peer has gone. */
export const hold = (answer, request) => request.gone;
/** Breaks the connection in the middle of what was promised. */
export const cut = async (answer) => {
  await sleep(20); // what was said before is on its way
  answer.destroy();
};

const event = (data) => `data: ${JSON.stringify(data)}\n\n`;

export function chunk(delta, finish = null, more = {}) {
  return event({ id: "chatcmpl-1", object: "chat.completion.chunk", created: 1, model: "up",
    choices: [{ index: 0, delta, finish_reason: finish }], ...more });
}

export function ending(finish, [prompt, completion, cached = 0, reasoning = 0] = [10, 5]) {
  const usage = {
    prompt_tokens: prompt, completion_tokens: completion, total_tokens: prompt + completion,
    prompt_tokens_details: { cached_tokens: cached }, completion_tokens_details: { reasoning_tokens: reasoning },
  };
  return [chunk({}, finish), event({ id: "chatcmpl-1", object: "chat.completion.chunk", created: 1, model: "up",
    choices: [], usage }), "data: [DONE]\n\n"];
}

/** Text, in pieces of a few characters. */
export function text(content, { finish = "stop", usage, reasoning } = {}) {
  const pieces = content.match(/[^]{1,7}/gu) ?? [];
  return { steps: [chunk({ role: "assistant" }), ...(reasoning ? [chunk({ reasoning_content: reasoning })] : []),
    ...pieces.map((piece) => chunk({ content: piece })), ...ending(finish, usage)] };
}

export function call(name, args, id = "call_1") {
  return { id, type: "function", function: { name, arguments: JSON.stringify(args) } };
}

/** A call of the server's shell, as a model makes it. */
export const shell = (commands, { id, ...args } = {}) => call("shell", { commands, ...args }, id);

/** One reply that makes these calls, arguments in two pieces each. */
export function calls(list, { content, reasoning, finish = "tool_calls" } = {}) {
  const steps = [chunk({ role: "assistant" })];
  if (reasoning) steps.push(chunk({ reasoning_content: reasoning }));
  if (content) steps.push(chunk({ content }));
  list.forEach((each, index) => {
    const whole = each.function.arguments;
    const half = whole.length >> 1;
    steps.push(chunk({ tool_calls: [{ ...each, index,
      function: { name: each.function.name, arguments: whole.slice(0, half) } }] }));
    steps.push(chunk({ tool_calls: [{ index, function: { arguments: whole.slice(half) } }] }));
  });
  return { steps: [...steps, ...ending(finish)] };
}

export function refuse(status, error, headers = {}) {
  return { status, headers: { "content-type": "application/json", ...headers }, steps: [JSON.stringify({ error })] };
}

// ---- the server ----

class Model {
  constructor(name, replies) {
    this.name = name;
    this.replies = replies;
    this.requests = [];
  }

  /** Waits for request number n, from 1. */
  async request(n) {
    return until(() => this.requests[n - 1], `the upstream was not asked ${n} times`);
  }
}

export class Fake {
  constructor() {
    this.models = new Map();
    this.server = http.createServer((request, answer) => this.serve(request, answer));
  }

  async start() {
    await new Promise((done) => this.server.listen(0, "127.0.0.1", done));
    this.url = `http://127.0.0.1:${this.server.address().port}/v1`;
    return this;
  }

  stop() {
    this.server.closeAllConnections();
    this.server.close();
  }

  model(...replies) {
    return this.named(`m${this.models.size}`, ...replies);
  }

  named(name, ...replies) {
    const model = new Model(`fake/${name}`, replies);
    this.models.set(name, model);
    return model;
  }

  async serve(request, answer) {
    if (request.method === "GET") {
      answer.writeHead(200, { "content-type": "application/json" });
      return answer.end(JSON.stringify({ object: "list", data: [...this.models.keys()].map((id) => ({ id, object: "model" })) }));
    }
    let body = "";
    for await (const piece of request.setEncoding("utf8")) body += piece;
    body = JSON.parse(body);
    const model = this.models.get(body.model);
    const asked = { body, headers: request.headers, closedAt: null };
    asked.gone = new Promise((done) => answer.once("close", () => {
      if (!answer.writableFinished) asked.closedAt = performance.now();
      done();
    }));
    const reply = model?.replies[model.requests.length] ??
      refuse(model ? 599 : 404, { message: "the test has no reply for this" });
    model?.requests.push(asked);
    answer.writeHead(reply.status ?? 200, { "content-type": "text/event-stream", ...reply.headers });
    for (const step of reply.steps) {
      if (typeof step === "string") answer.write(step);
      else await step(answer, asked);
    }
    answer.end();
  }
}
