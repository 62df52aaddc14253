-- Where traces are sent to. Those of brig.yaml stand here too, so that what waits for them has a place;
-- what they are is in brig.yaml alone.
CREATE TABLE broadcast_destinations (
	n INTEGER PRIMARY KEY AUTOINCREMENT,
	id TEXT NOT NULL UNIQUE,
	account TEXT, workspace TEXT, -- NULL: every one
	type TEXT NOT NULL,
	enabled INTEGER NOT NULL,
	fixed INTEGER NOT NULL, -- of brig.yaml
	body TEXT, -- JSON, secrets too; NULL where fixed
	created_ms INTEGER NOT NULL,
	updated_ms INTEGER NOT NULL
);

-- Records that have ended and wait to be sent, a row for each destination.
CREATE TABLE broadcast_outbox (
	seq INTEGER PRIMARY KEY AUTOINCREMENT,
	destination INTEGER NOT NULL,
	record INTEGER NOT NULL
);
CREATE INDEX broadcast_queue ON broadcast_outbox (destination, seq);

-- A record that was settled by a crash and then by its gateway after all goes twice: it has changed.
CREATE TRIGGER broadcast_made AFTER INSERT ON records WHEN new.state <> 0 BEGIN
	INSERT INTO broadcast_outbox (destination, record)
		SELECT n, new.n FROM broadcast_destinations WHERE enabled = 1
			AND (account IS NULL OR account = new.account)
			AND (workspace IS NULL OR workspace = new.workspace);
END;
CREATE TRIGGER broadcast_ended AFTER UPDATE OF state ON records
	WHEN new.state <> 0 AND new.state <> old.state BEGIN
	INSERT INTO broadcast_outbox (destination, record)
		SELECT n, new.n FROM broadcast_destinations WHERE enabled = 1
			AND (account IS NULL OR account = new.account)
			AND (workspace IS NULL OR workspace = new.workspace);
END;
