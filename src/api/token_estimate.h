/*
 * About how many tokens a conversation is to a model, for clients that ask before there is a count
 * by the provider itself. No tokenizer is at hand, so this is an estimate and is told as one:
 * English comes out within about a fifth, other scripts and images less exactly.
 */
#ifndef BRIG_API_TOKEN_ESTIMATE_H
#define BRIG_API_TOKEN_ESTIMATE_H

#include "conversation/conversation.h"

/* Messages, calls, results, tools and what a model is told of them. */
uint64_t token_estimate(const struct conversation *c);

#endif
