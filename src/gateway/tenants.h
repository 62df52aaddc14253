/*
 * Keys and workspaces over HTTP (docs/keys.md). All but tenants_key_own() is for admin keys, and
 * about the account of the asking key.
 */
#ifndef BRIG_GATEWAY_TENANTS_H
#define BRIG_GATEWAY_TENANTS_H

struct request;

void tenants_key_create(struct request *r);
void tenants_key_list(struct request *r);
void tenants_key_get(struct request *r);
void tenants_key_change(struct request *r);
void tenants_key_revoke(struct request *r);
void tenants_key_own(struct request *r);
void tenants_workspace_list(struct request *r);
void tenants_workspace_create(struct request *r);
void tenants_workspace_get(struct request *r);
void tenants_workspace_change(struct request *r);

#endif
