/* The wire formats for talking to models: what clients speak, and what providers speak. */
#ifndef BRIG_BASE_DIALECT_H
#define BRIG_BASE_DIALECT_H

enum dialect {
	DIALECT_OPENAI_CHAT,
	DIALECT_OPENAI_RESPONSES,
	DIALECT_ANTHROPIC,
	DIALECT_GEMINI,
	DIALECT_SCRIPT, /* brig/script: no wire at all */
};

#endif
