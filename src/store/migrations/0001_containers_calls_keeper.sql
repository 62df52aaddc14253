-- Times are milliseconds since 1970. JSON columns hold text that was checked when it came in.
CREATE TABLE containers (
	account       TEXT NOT NULL,
	workspace     TEXT NOT NULL,
	id            TEXT NOT NULL,
	name          TEXT NOT NULL,
	created_ms    INTEGER NOT NULL,
	last_used_ms  INTEGER NOT NULL,
	keep_until_ms INTEGER NOT NULL DEFAULT 0,
	image         TEXT NOT NULL,
	memory_mib    INTEGER NOT NULL,
	cpu_milli     INTEGER NOT NULL,
	deleting      INTEGER NOT NULL DEFAULT 0,
	network       TEXT,
	env           TEXT,
	metadata      TEXT,
	PRIMARY KEY (account, workspace, id)
) STRICT, WITHOUT ROWID;

CREATE INDEX containers_by_age ON containers (account, workspace, created_ms, id);
CREATE INDEX containers_by_use ON containers (last_used_ms);
CREATE INDEX containers_deleting ON containers (deleting) WHERE deleting = 1;

-- Upstream call ids that do not fit into the 40 characters of ours.
CREATE TABLE call_ids (
	account     TEXT NOT NULL,
	workspace   TEXT NOT NULL,
	hash        TEXT NOT NULL,
	upstream_id BLOB NOT NULL,
	expires_ms  INTEGER NOT NULL,
	PRIMARY KEY (account, workspace, hash)
) STRICT, WITHOUT ROWID;

CREATE INDEX call_ids_by_end ON call_ids (expires_ms);

-- The gateway of each node that runs its timers.
CREATE TABLE keeper (
	node     TEXT PRIMARY KEY,
	holder   TEXT NOT NULL,
	until_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
