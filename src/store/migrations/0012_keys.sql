-- Keys that were made while the server ran. hash: hex of the key's SHA-256; the key itself is
-- nowhere. A row changes once at most, when it is revoked. 0: never, no limit. n: the order in which
-- they were made.
CREATE TABLE keys (
	n INTEGER PRIMARY KEY,
	hash TEXT NOT NULL UNIQUE,
	account TEXT NOT NULL,
	workspace TEXT NOT NULL,
	name TEXT NOT NULL,
	admin INTEGER NOT NULL,
	created_ms INTEGER NOT NULL,
	expires_ms INTEGER NOT NULL,
	revoked_ms INTEGER NOT NULL,
	requests_per_minute INTEGER NOT NULL,
	containers INTEGER NOT NULL,
	cost_limit INTEGER, -- 10^-12 dollars; NULL: none
	limit_reset INTEGER NOT NULL, -- 0 never, 1 daily, 2 weekly, 3 monthly
	disabled_tools INTEGER NOT NULL -- 1 shell, 2 bash, 4 exec, 8 code_execution
);
CREATE INDEX keys_account ON keys (account, n);
CREATE INDEX keys_revoked ON keys (revoked_ms) WHERE revoked_ms <> 0;

-- What is set for a workspace. One without a row is as the server says.
CREATE TABLE workspaces (
	account TEXT NOT NULL,
	name TEXT NOT NULL,
	created_ms INTEGER NOT NULL,
	store_content INTEGER NOT NULL,
	PRIMARY KEY (account, name)
) WITHOUT ROWID;

-- What the settled requests of a key came to, by the day (UTC) on which they began. Written with
-- the records, in the same transactions, and kept when those go.
CREATE TABLE key_spending (
	key_hash TEXT NOT NULL,
	day INTEGER NOT NULL,
	cost INTEGER NOT NULL, -- 10^-12 dollars
	PRIMARY KEY (key_hash, day)
) WITHOUT ROWID;
INSERT INTO key_spending SELECT key_hash, begin_ms / 86400000, sum(total_cost) FROM records
	WHERE state <> 0 AND key_hash IS NOT NULL GROUP BY 1, 2;

CREATE TRIGGER key_spending_new AFTER INSERT ON records
WHEN new.state <> 0 AND new.key_hash IS NOT NULL AND new.total_cost <> 0 BEGIN
	INSERT INTO key_spending VALUES (new.key_hash, new.begin_ms / 86400000, new.total_cost)
	ON CONFLICT DO UPDATE SET cost = cost + excluded.cost;
END;
-- One that was given up as lost may still be settled: then the difference counts.
CREATE TRIGGER key_spending_end AFTER UPDATE OF state, total_cost ON records
WHEN new.state <> 0 AND new.key_hash IS NOT NULL
	AND (old.state = 0 OR old.total_cost <> new.total_cost) AND (new.total_cost <> 0 OR old.total_cost <> 0) BEGIN
	INSERT INTO key_spending VALUES (new.key_hash, new.begin_ms / 86400000,
		new.total_cost - CASE old.state WHEN 0 THEN 0 ELSE old.total_cost END)
	ON CONFLICT DO UPDATE SET cost = cost + excluded.cost;
END;
