-- Files of a workspace. Ids sort by the time of making. Rows with the same content share a blob.
CREATE TABLE documents (
	account      TEXT NOT NULL,
	workspace    TEXT NOT NULL,
	id           TEXT NOT NULL,
	filename     TEXT NOT NULL,
	mime         TEXT NOT NULL,
	purpose      TEXT NOT NULL,
	blob         TEXT NOT NULL,
	bytes        INTEGER NOT NULL,
	created_ms   INTEGER NOT NULL,
	expires_ms   INTEGER NOT NULL DEFAULT 0,
	downloadable INTEGER NOT NULL,
	PRIMARY KEY (account, workspace, id)
) STRICT, WITHOUT ROWID;

CREATE INDEX documents_by_blob ON documents (blob);
CREATE INDEX documents_by_end ON documents (expires_ms) WHERE expires_ms > 0;

-- What each workspace holds, kept in step by the table itself.
CREATE TABLE document_usage (
	account   TEXT NOT NULL,
	workspace TEXT NOT NULL,
	bytes     INTEGER NOT NULL,
	n         INTEGER NOT NULL,
	PRIMARY KEY (account, workspace)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER documents_added AFTER INSERT ON documents BEGIN
	INSERT INTO document_usage (account, workspace, bytes, n)
	VALUES (new.account, new.workspace, new.bytes, 1)
	ON CONFLICT DO UPDATE SET bytes = bytes + excluded.bytes, n = n + 1;
END;

CREATE TRIGGER documents_removed AFTER DELETE ON documents BEGIN
	UPDATE document_usage SET bytes = bytes - old.bytes, n = n - 1
	WHERE account = old.account AND workspace = old.workspace;
END;
