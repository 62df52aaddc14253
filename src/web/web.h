/*
 * The page: files that the build has put into the program, served without a key. They hold nothing
 * of the server's; what the page shows it asks for over the API with the key that its user typed
 * in. Loop thread.
 */
#ifndef BRIG_WEB_WEB_H
#define BRIG_WEB_WEB_H

#include "http/server.h"

#include <stdbool.h>

/* Answers where the path is one of the page's (`/` and what is below `/page/`); else false, and
 * nothing was done. Other methods than GET and HEAD are a 405. */
bool web_respond(struct http_exchange *x);

#endif
