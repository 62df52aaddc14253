-- How long after its last use a container is deleted, in milliseconds; 0: as the server says.
ALTER TABLE containers ADD COLUMN expires_ms INTEGER NOT NULL DEFAULT 0;
CREATE INDEX containers_by_expiry ON containers (last_used_ms + expires_ms) WHERE expires_ms > 0;
