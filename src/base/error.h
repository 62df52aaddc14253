/*
 * Errors, as every part of brig reports them.
 *
 * A function that can fail returns 0 or a negative enum err, and fills the caller's struct error
 * when it was given one (NULL is allowed everywhere). The struct lies on the caller's stack and
 * owns nothing. Libraries never log; the edge that handles an error logs it once. On failure
 * outputs named ret_… are untouched.
 */
#ifndef BRIG_BASE_ERROR_H
#define BRIG_BASE_ERROR_H

enum err {
	ERR_INVALID = 1, /* the caller's input is wrong (HTTP 400) */
	ERR_AUTH,        /* no or unknown key (401) */
	ERR_PERMISSION,  /* known, but not allowed (403) */
	ERR_NOT_FOUND,   /* (404) */
	ERR_CONFLICT,    /* another policy, image or memory on a live container (409) */
	ERR_TOO_LARGE,   /* over a byte limit (413) */
	ERR_MEDIA,       /* content type or coding not accepted (415) */
	ERR_RATE,        /* a limit on use, try later (429) */
	ERR_CAPACITY,    /* no room for another sandbox (429 direct, failed item in a turn) */
	ERR_UNAVAILABLE, /* this server cannot do it now (503) */
	ERR_UPSTREAM,    /* the provider answered wrongly or not at all (502) */
	ERR_TIMEOUT,     /* something of ours or the provider's took too long (504) */
	ERR_CANCELED,    /* the client or the operator ended it */
	ERR_UNSUPPORTED, /* understood, and not offered (400) */
	ERR_IO,          /* an operating system call failed (500) */
	ERR_NOMEM,       /* no memory, or over an arena's limit (503) */
	ERR_PROTOCOL,    /* a peer process broke its protocol (500) */
	ERR_INTERNAL,    /* a bug that we noticed and survived (500) */
};

struct error {
	enum err code;
	int http_status; /* 0: derive from code; else the status that a provider or a rule gave */
	int retry_after_ms; /* 0: none */
	char type[48];      /* a more exact name where an API has one ("model_not_found"), or "" */
	char param[128];    /* path of the offending field ("tools[0].type"), or "" */
	char text[512];     /* one sentence for the person who called, no newline, always UTF-8 */
};

/* Fills err (may be NULL) and returns -code, so that `return error_set(err, ERR_IO, "…")` reads
 * well. */
int error_set(struct error *err, enum err code, const char *fmt, ...)
        __attribute__((format(printf, 3, 4)));

/* The same with the offending field's path. */
int error_param(struct error *err, enum err code, const char *param, const char *fmt, ...)
        __attribute__((format(printf, 4, 5)));

/* The same for a failed system call: text becomes "WHAT: strerror(errnum)". */
int error_errno(struct error *err, int errnum, const char *fmt, ...)
        __attribute__((format(printf, 3, 4)));

/* Puts "PREFIX: " before the text on the way up; keeps the rest. Returns -err->code (or
 * -ERR_INTERNAL). */
int error_prefix(struct error *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* For what keeps an error beyond the call, which is rare, so that it need not hold a whole one all
 * the time: a copy to free(). NULL gives NULL. */
struct error *error_copy(const struct error *err);

/* The HTTP status that goes with an error. */
int error_http_status(const struct error *err);

/* A broken invariant of our own: logs file, line and text, then aborts. Never for input. */
#define BUG(...) bug_at(__FILE__, __LINE__, __VA_ARGS__)
_Noreturn void bug_at(const char *file, int line, const char *fmt, ...)
        __attribute__((format(printf, 3, 4)));

#endif
