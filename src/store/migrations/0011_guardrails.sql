-- Guardrails that are kept here beside those of brig.yaml. body: JSON, what a client may set.
-- n: the order in which they were made, which is the one that they are listed in.
CREATE TABLE guardrails (
	n          INTEGER PRIMARY KEY,
	id         TEXT NOT NULL UNIQUE,
	account    TEXT NOT NULL,
	workspace  TEXT NOT NULL,
	body       TEXT NOT NULL,
	rules      INTEGER NOT NULL, -- how many are in it
	created_ms INTEGER NOT NULL,
	updated_ms INTEGER NOT NULL
) STRICT;
CREATE INDEX guardrails_by_scope ON guardrails (account, workspace, n);

-- Keys, by the hash of their text, whether there is such a key or not.
CREATE TABLE guardrail_keys (
	n          INTEGER PRIMARY KEY,
	id         TEXT NOT NULL UNIQUE,
	account    TEXT NOT NULL,
	workspace  TEXT NOT NULL,
	guardrail  TEXT NOT NULL,
	key_hash   TEXT NOT NULL,
	created_ms INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX guardrail_keys_by_guardrail ON guardrail_keys (guardrail, key_hash);
CREATE INDEX guardrail_keys_by_scope ON guardrail_keys (account, workspace, n);

CREATE TRIGGER guardrails_gone AFTER DELETE ON guardrails BEGIN
	DELETE FROM guardrail_keys WHERE guardrail = old.id;
END;

-- Phrases that are not looked at.
CREATE TABLE guardrail_phrases (
	n          INTEGER PRIMARY KEY,
	id         TEXT NOT NULL UNIQUE,
	account    TEXT NOT NULL,
	workspace  TEXT NOT NULL,
	phrase     TEXT NOT NULL,
	created_ms INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX guardrail_phrases_once ON guardrail_phrases (account, workspace, phrase COLLATE NOCASE);

-- When each workspace's were changed last: versions count up over all of them, so that whoever saw one
-- asks for what came later.
CREATE TABLE guardrail_changes (
	account   TEXT NOT NULL,
	workspace TEXT NOT NULL,
	version   INTEGER NOT NULL,
	PRIMARY KEY (account, workspace)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX guardrail_changes_by_version ON guardrail_changes (version);

-- What was found, by workspace and time: few requests of many have any.
CREATE TABLE workspace_hits (
	account   TEXT NOT NULL,
	workspace TEXT NOT NULL,
	begin_ms  INTEGER NOT NULL,
	record    INTEGER NOT NULL,
	number    INTEGER NOT NULL,
	PRIMARY KEY (account, workspace, begin_ms, record, number)
) STRICT, WITHOUT ROWID;
INSERT INTO workspace_hits (account, workspace, begin_ms, record, number)
	SELECT r.account, r.workspace, r.begin_ms, h.record, h.number
	FROM record_hits h JOIN records r ON r.n = h.record;

CREATE TRIGGER record_hits_added AFTER INSERT ON record_hits BEGIN
	INSERT OR IGNORE INTO workspace_hits (account, workspace, begin_ms, record, number)
	SELECT account, workspace, begin_ms, n, new.number FROM records WHERE n = new.record;
END;
-- The record stands before its hits are removed with it, or is known no more: then by what it was.
CREATE TRIGGER record_hits_removed AFTER DELETE ON record_hits BEGIN
	DELETE FROM workspace_hits WHERE (account, workspace, begin_ms, record, number) IN
		(SELECT account, workspace, begin_ms, n, old.number FROM records WHERE n = old.record);
END;
CREATE TRIGGER records_gone_hits AFTER DELETE ON records BEGIN
	DELETE FROM workspace_hits WHERE account = old.account AND workspace = old.workspace
		AND begin_ms = old.begin_ms AND record = old.n;
END;
