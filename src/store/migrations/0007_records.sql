-- One row for each request: the ledger and the log in one, so that they cannot disagree. Money is in
-- 10^-12 dollars. state: 0 open, 1 settled, 2 recovered after a crash.
CREATE TABLE records (
	n INTEGER PRIMARY KEY,
	account TEXT NOT NULL,
	workspace TEXT NOT NULL,
	id TEXT NOT NULL,
	state INTEGER NOT NULL,
	holder TEXT NOT NULL, -- the gateway that it runs in
	begin_ms INTEGER NOT NULL,
	first_ms INTEGER NOT NULL,
	end_ms INTEGER NOT NULL,
	heartbeat_ms INTEGER NOT NULL,
	api TEXT, asked TEXT, provider TEXT, model TEXT,
	key_hash TEXT, key_name TEXT,
	session_id TEXT, user TEXT, request_id TEXT, user_agent TEXT, container_id TEXT,
	metadata TEXT, trace TEXT, traceparent TEXT,
	streamed INTEGER NOT NULL, cancelled INTEGER NOT NULL,
	status INTEGER NOT NULL, error TEXT, finish TEXT, native_finish TEXT,
	input INTEGER NOT NULL, cached INTEGER NOT NULL, cache_write INTEGER NOT NULL,
	output INTEGER NOT NULL, reasoning INTEGER NOT NULL,
	given INTEGER NOT NULL, estimated INTEGER NOT NULL,
	input_cost INTEGER NOT NULL, output_cost INTEGER NOT NULL,
	sandbox_cost INTEGER NOT NULL, total_cost INTEGER NOT NULL,
	priced INTEGER NOT NULL, sandbox_ms INTEGER NOT NULL,
	store_content INTEGER NOT NULL,
	request TEXT, answer TEXT -- content
);
CREATE UNIQUE INDEX records_id ON records (account, workspace, id);
CREATE INDEX records_time ON records (account, workspace, begin_ms, n);
CREATE INDEX records_model ON records (account, workspace, model, begin_ms, n);
CREATE INDEX records_key ON records (account, workspace, key_hash, begin_ms, n);
CREATE INDEX records_session ON records (account, workspace, session_id, begin_ms, n)
	WHERE session_id IS NOT NULL;
CREATE INDEX records_container ON records (account, workspace, container_id, begin_ms, n)
	WHERE container_id IS NOT NULL;
CREATE INDEX records_open ON records (heartbeat_ms) WHERE state = 0;
CREATE INDEX records_age ON records (begin_ms);

CREATE TABLE record_attempts (
	record INTEGER NOT NULL,
	number INTEGER NOT NULL,
	provider TEXT, model TEXT, status INTEGER NOT NULL, error TEXT,
	begin_ms INTEGER NOT NULL, first_ms INTEGER NOT NULL, end_ms INTEGER NOT NULL,
	input INTEGER NOT NULL, cached INTEGER NOT NULL, cache_write INTEGER NOT NULL,
	output INTEGER NOT NULL, reasoning INTEGER NOT NULL,
	given INTEGER NOT NULL, estimated INTEGER NOT NULL,
	finish TEXT, native_finish TEXT,
	PRIMARY KEY (record, number)
) WITHOUT ROWID;
CREATE TABLE record_runs (
	record INTEGER NOT NULL,
	number INTEGER NOT NULL,
	call_id TEXT, tool TEXT, container_id TEXT, status TEXT, error TEXT,
	started_container INTEGER NOT NULL,
	begin_ms INTEGER NOT NULL, end_ms INTEGER NOT NULL,
	network_allowed INTEGER NOT NULL, network_denied INTEGER NOT NULL,
	PRIMARY KEY (record, number)
) WITHOUT ROWID;
-- command, out and err are content.
CREATE TABLE record_commands (
	record INTEGER NOT NULL,
	run INTEGER NOT NULL,
	number INTEGER NOT NULL,
	command TEXT, out TEXT, err TEXT,
	out_truncated INTEGER NOT NULL, err_truncated INTEGER NOT NULL,
	timed_out INTEGER NOT NULL, exit_code INTEGER NOT NULL, signal TEXT, reason TEXT,
	begin_ms INTEGER NOT NULL, end_ms INTEGER NOT NULL,
	PRIMARY KEY (record, run, number)
) WITHOUT ROWID;
-- matched is content.
CREATE TABLE record_hits (
	record INTEGER NOT NULL,
	number INTEGER NOT NULL,
	guardrail TEXT, rule TEXT, pattern TEXT, action TEXT, matched TEXT,
	false_positive INTEGER NOT NULL,
	PRIMARY KEY (record, number)
) WITHOUT ROWID;

CREATE TRIGGER records_gone AFTER DELETE ON records BEGIN
	DELETE FROM record_attempts WHERE record = old.n;
	DELETE FROM record_runs WHERE record = old.n;
	DELETE FROM record_commands WHERE record = old.n;
	DELETE FROM record_hits WHERE record = old.n;
END;
