// What text may do to whoever reads it: characters that are not seen, or that turn the order of others around, are
// written out. "\u202e" in a command then stands there as such.

/* Controls but tab and newline; direction marks, embeddings, overrides and isolates; separators that break lines; what has
   no width; tags; halves of pairs. */
// eslint-disable-next-line no-control-regex
const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|\u{e0001}|[\u{e0020}-\u{e007f}]|[\ud800-\udfff]/gu;

export function visible(text) {
  return text.replace(UNSEEN, (c) => {
    if (c === "\r") return "\\r";
    if (c === "\u001b") return "\\e";
    const code = c.codePointAt(0);
    return code < 0x100 ? `\\x${code.toString(16).padStart(2, "0")}` : `\\u${code.toString(16)}`;
  });
}
