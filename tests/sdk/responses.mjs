// What a server of the Responses API says, for the scripted upstream of fake.mjs.

const framed = (event, sequence_number) =>
  `event: ${event.type}\ndata: ${JSON.stringify({ ...event, sequence_number })}\n\n`;

const response = (status, output, usage = null) => ({
  id: "resp_up", object: "response", created_at: 1, status, model: "up", output, usage, error: null,
  incomplete_details: null,
});

const usage = {
  input_tokens: 10, input_tokens_details: { cached_tokens: 0 }, output_tokens: 5,
  output_tokens_details: { reasoning_tokens: 0 }, total_tokens: 15,
};

export const message = (text, more = {}) => ({
  id: "msg_up", type: "message", status: "completed", role: "assistant",
  content: [{ type: "output_text", text, annotations: [], logprobs: [], ...more }],
});

export const reasoning = (text, encrypted = "ENC==") => ({
  id: "rs_up", type: "reasoning", summary: [{ type: "summary_text", text }], encrypted_content: encrypted,
});

export const call = (name, args, call_id = "call_1") => ({
  id: `fc_${call_id}`, type: "function_call", status: "completed", call_id, name, arguments: JSON.stringify(args),
});

/** The items of a shell that runs at the provider's. */
export const shellItems = (...commands) => [{
  id: "sh_up", type: "shell_call", status: "completed", call_id: "call_native",
  action: { commands, timeout_ms: null, max_output_length: null },
  environment: { type: "container_reference", container_id: `cntr_${"0a".repeat(24)}` },
}, {
  id: "sho_up", type: "shell_call_output", status: "completed", call_id: "call_native", max_output_length: null,
  output: commands.map((c) => ({ stdout: `ran ${c}\n`, stderr: "", outcome: { type: "exit", exit_code: 0 } })),
}];

function eventsOf(item, output_index) {
  const at = { output_index, item_id: item.id };
  const steps = [];
  const add = (type, fields) => steps.push({ type, ...fields });
  if (item.type === "message") {
    const [part] = item.content;
    add("response.output_item.added", { output_index, item: { ...item, status: "in_progress", content: [] } });
    add("response.content_part.added", { ...at, content_index: 0, part: { ...part, text: "", annotations: [] } });
    for (const delta of part.text.match(/[^]{1,7}/gu) ?? [])
      add("response.output_text.delta", { ...at, content_index: 0, delta, logprobs: [] });
    add("response.output_text.done", { ...at, content_index: 0, text: part.text, logprobs: [] });
    add("response.content_part.done", { ...at, content_index: 0, part });
  } else if (item.type === "function_call") {
    add("response.output_item.added", { output_index, item: { ...item, status: "in_progress", arguments: "" } });
    add("response.function_call_arguments.delta", { ...at, delta: item.arguments });
    add("response.function_call_arguments.done", { ...at, arguments: item.arguments });
  } else if (item.type === "reasoning") {
    add("response.output_item.added", { output_index, item: { ...item, summary: [] } });
    item.summary.forEach((part, summary_index) => {
      add("response.reasoning_summary_part.added", { ...at, summary_index, part: { ...part, text: "" } });
      add("response.reasoning_summary_text.delta", { ...at, summary_index, delta: part.text });
      add("response.reasoning_summary_text.done", { ...at, summary_index, text: part.text });
      add("response.reasoning_summary_part.done", { ...at, summary_index, part });
    });
  } else if (item.type === "shell_call") {
    const action = { ...item.action, commands: [] };
    add("response.output_item.added", { output_index, item: { ...item, status: "in_progress", action } });
    item.action.commands.forEach((command, command_index) => {
      add("response.shell_call_command.added", { output_index, command_index, command: "" });
      add("response.shell_call_command.delta", { output_index, command_index, delta: command });
      add("response.shell_call_command.done", { output_index, command_index, command });
    });
  } else if (item.type === "shell_call_output") {
    add("response.output_item.added", { output_index, item: { ...item, output: [] } });
    item.output.forEach((output, command_index) => {
      add("response.shell_call_output_content.delta", { ...at, command_index, delta: { stdout: output.stdout } });
      add("response.shell_call_output_content.done", { ...at, command_index, output: [output] });
    });
  } else {
    add("response.output_item.added", { output_index, item: { ...item, status: "in_progress" } });
  }
  add("response.output_item.done", { output_index, item });
  return steps;
}

/** One reply that consists of these items, streamed or whole as it is asked for. */
export const reply = (...items) => ({
  steps: [async (answer, { body }) => {
    if (!body.stream) {
      answer.write(JSON.stringify(response("completed", items, usage)));
      return;
    }
    const begun = response("in_progress", []);
    [{ type: "response.created", response: begun }, { type: "response.in_progress", response: begun },
      ...items.flatMap(eventsOf), { type: "response.completed", response: response("completed", items, usage) },
    ].forEach((event, i) => answer.write(framed(event, i)));
  }],
});
