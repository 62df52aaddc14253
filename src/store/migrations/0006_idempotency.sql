-- Requests that carried an Idempotency-Key, for 24 hours, and what they were answered. The key and the
-- request are hashes. state: 0 runs, 1 answered, 2 broke off after it may have run commands, 3
-- answered, but the answer is not kept. harmless: it can run no command.
CREATE TABLE idempotency (
	account    TEXT NOT NULL,
	workspace  TEXT NOT NULL,
	key        BLOB NOT NULL,
	request    BLOB NOT NULL,
	holder     TEXT NOT NULL,
	harmless   INTEGER NOT NULL,
	state      INTEGER NOT NULL DEFAULT 0,
	status     INTEGER NOT NULL DEFAULT 0,
	type       TEXT NOT NULL DEFAULT '',
	headers    TEXT NOT NULL DEFAULT '',
	body       BLOB NOT NULL DEFAULT x'',
	created_ms INTEGER NOT NULL,
	expires_ms INTEGER NOT NULL
) STRICT;

CREATE UNIQUE INDEX idempotency_by_key ON idempotency (account, workspace, key);
CREATE INDEX idempotency_by_end ON idempotency (expires_ms);
CREATE INDEX idempotency_by_holder ON idempotency (holder) WHERE state = 0;
CREATE INDEX idempotency_by_answer ON idempotency (account, workspace, created_ms) WHERE state = 1;

-- What each workspace holds, kept in step by the table itself.
CREATE TABLE idempotency_usage (
	account   TEXT NOT NULL,
	workspace TEXT NOT NULL,
	bytes     INTEGER NOT NULL,
	n         INTEGER NOT NULL,
	PRIMARY KEY (account, workspace)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER idempotency_added AFTER INSERT ON idempotency BEGIN
	INSERT INTO idempotency_usage (account, workspace, bytes, n)
	VALUES (new.account, new.workspace, length(new.body), 1)
	ON CONFLICT DO UPDATE SET bytes = bytes + excluded.bytes, n = n + 1;
END;

CREATE TRIGGER idempotency_changed AFTER UPDATE OF body ON idempotency BEGIN
	UPDATE idempotency_usage SET bytes = bytes - length(old.body) + length(new.body)
	WHERE account = old.account AND workspace = old.workspace;
END;

CREATE TRIGGER idempotency_removed AFTER DELETE ON idempotency BEGIN
	UPDATE idempotency_usage SET bytes = bytes - length(old.body), n = n - 1
	WHERE account = old.account AND workspace = old.workspace;
END;
