-- Answers of the Responses API, each with what its own request brought, for 30 days. One that a later
-- one goes on from is kept as long as that: gone is set where nobody may ask for it any more.
CREATE TABLE responses (
	row         INTEGER PRIMARY KEY,
	account     TEXT NOT NULL,
	workspace   TEXT NOT NULL,
	id          TEXT NOT NULL,
	previous    TEXT,
	running     INTEGER NOT NULL,
	gone        INTEGER NOT NULL DEFAULT 0,
	object      BLOB NOT NULL,
	output_at   INTEGER NOT NULL,
	output_len  INTEGER NOT NULL,
	input       BLOB NOT NULL,
	chain_n     INTEGER NOT NULL,
	chain_bytes INTEGER NOT NULL,
	bytes       INTEGER NOT NULL,
	created_ms  INTEGER NOT NULL,
	expires_ms  INTEGER NOT NULL
) STRICT;

CREATE UNIQUE INDEX responses_by_id ON responses (account, workspace, id);
CREATE INDEX responses_by_age ON responses (account, workspace, row);
CREATE INDEX responses_by_previous ON responses (account, workspace, previous)
	WHERE previous IS NOT NULL;
CREATE INDEX responses_by_end ON responses (expires_ms);

-- Where each item of an output stands in its response's object.
CREATE TABLE response_items (
	account   TEXT NOT NULL,
	workspace TEXT NOT NULL,
	id        TEXT NOT NULL,
	response  INTEGER NOT NULL,
	at        INTEGER NOT NULL,
	len       INTEGER NOT NULL,
	PRIMARY KEY (account, workspace, id, response)
) STRICT, WITHOUT ROWID;

CREATE INDEX response_items_by_response ON response_items (response);

-- What each workspace holds, kept in step by the table itself.
CREATE TABLE response_usage (
	account   TEXT NOT NULL,
	workspace TEXT NOT NULL,
	bytes     INTEGER NOT NULL,
	PRIMARY KEY (account, workspace)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER responses_added AFTER INSERT ON responses BEGIN
	INSERT INTO response_usage (account, workspace, bytes)
	VALUES (new.account, new.workspace, new.bytes)
	ON CONFLICT DO UPDATE SET bytes = bytes + excluded.bytes;
END;

CREATE TRIGGER responses_changed AFTER UPDATE OF bytes ON responses BEGIN
	UPDATE response_usage SET bytes = bytes - old.bytes + new.bytes
	WHERE account = old.account AND workspace = old.workspace;
END;

CREATE TRIGGER responses_removed AFTER DELETE ON responses BEGIN
	DELETE FROM response_items WHERE response = old.row;
	UPDATE response_usage SET bytes = bytes - old.bytes
	WHERE account = old.account AND workspace = old.workspace;
END;
