/* Probes of the network and of what two containers could share. */
#ifndef BRIG_PROBE_NETWORK_H
#define BRIG_PROBE_NETWORK_H

void network_lo(void);
/* Looks for what network_be_neighbour() made in another container. */
void network_neighbour(void);
/* Makes it, writes "r", and waits to be killed. Returns 1 where something cannot be made. */
int network_be_neighbour(void);

#endif
