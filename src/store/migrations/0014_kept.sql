-- Containers that are kept running: who bills them asks for them every few seconds.
CREATE INDEX containers_kept ON containers (keep_until_ms) WHERE keep_until_ms > 0;
