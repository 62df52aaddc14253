-- What egress let through and refused while a run was under way, kept with the run: network_allowed and
-- network_denied of record_runs count all of it, these rows have the hosts that came first. They are content:
-- where it is not stored there are none. A run has its row from when its container is there; end_ms is 0 until
-- it is over.
CREATE TABLE record_network (
	record INTEGER NOT NULL,
	run INTEGER NOT NULL,
	host TEXT NOT NULL,
	allowed INTEGER NOT NULL,
	reason TEXT NOT NULL, -- of the first
	n INTEGER NOT NULL,
	bytes_in INTEGER NOT NULL,
	bytes_out INTEGER NOT NULL,
	PRIMARY KEY (record, run, host, allowed)
) WITHOUT ROWID;
CREATE INDEX record_runs_container ON record_runs (container_id, end_ms) WHERE container_id IS NOT NULL;

CREATE TRIGGER records_gone_network AFTER DELETE ON records BEGIN
	DELETE FROM record_network WHERE record = OLD.n;
END;
-- A run that was under way ended with its gateway.
CREATE TRIGGER records_recovered AFTER UPDATE OF state ON records WHEN OLD.state = 0 AND NEW.state = 2 BEGIN
	UPDATE record_runs SET end_ms = max(begin_ms, NEW.end_ms), status = coalesce(status, 'incomplete')
		WHERE record = NEW.n AND end_ms = 0;
END;

-- Of the runs before this what the containers' records have still.
UPDATE record_runs SET (network_allowed, network_denied) = (
	SELECT coalesce(sum((1 + w.more) * w.allowed), 0), coalesce(sum((1 + w.more) * (1 - w.allowed)), 0)
		FROM records o CROSS JOIN network w INDEXED BY network_by_time
		WHERE o.n = record_runs.record AND w.time_ms BETWEEN record_runs.begin_ms AND record_runs.end_ms
		AND w.account = o.account AND w.workspace = o.workspace AND w.container = record_runs.container_id)
	WHERE container_id IS NOT NULL AND end_ms >= (SELECT min(time_ms) FROM network);
INSERT INTO record_network SELECT record, number, host, allowed, reason, n, bytes_in, bytes_out FROM (
	SELECT r.record, r.number, iif(w.name = '', w.address, w.name) AS host, w.allowed, w.reason, count(*) AS n,
		sum(min(w.bytes_in, 1 << 50)) AS bytes_in, sum(min(w.bytes_out, 1 << 50)) AS bytes_out, min(w.id),
		row_number() OVER (PARTITION BY r.record, r.number ORDER BY min(w.id)) AS place
		FROM record_runs r CROSS JOIN records o CROSS JOIN network w INDEXED BY network_by_time
		WHERE r.container_id IS NOT NULL AND (r.network_allowed > 0 OR r.network_denied > 0)
		AND o.n = r.record AND o.store_content = 1 AND w.time_ms BETWEEN r.begin_ms AND r.end_ms
		AND w.account = o.account AND w.workspace = o.workspace AND w.container = r.container_id
		GROUP BY r.record, r.number, host, w.allowed) WHERE place <= 32;
