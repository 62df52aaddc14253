/*
 * What every shell looks up when it starts, looked up ahead: a new root knows no name yet, and
 * finding one in two layers costs tens of microseconds.
 */
#ifndef BRIG_INIT_WARM_H
#define BRIG_INIT_WARM_H

/* Looks the names up in the root, which is the image's alone by now, until a message waits on the
 * control socket. Opens nothing; a name that is not there is as good. */
void warm_names(int control);

#endif
