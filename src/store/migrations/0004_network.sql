-- What egress let through and refused, the newest 1,000 of each container.
CREATE TABLE network (
	id INTEGER PRIMARY KEY,
	account TEXT NOT NULL,
	workspace TEXT NOT NULL,
	container TEXT NOT NULL,
	time_ms INTEGER NOT NULL,
	name TEXT NOT NULL,
	address TEXT NOT NULL,
	port INTEGER NOT NULL,
	allowed INTEGER NOT NULL,
	reason TEXT NOT NULL,
	bytes_in INTEGER NOT NULL,
	bytes_out INTEGER NOT NULL,
	more INTEGER NOT NULL
);
CREATE INDEX network_by_container ON network (account, workspace, container, id);
CREATE INDEX network_by_time ON network (time_ms);
CREATE TRIGGER network_bound AFTER INSERT ON network BEGIN
	DELETE FROM network WHERE account = NEW.account AND workspace = NEW.workspace
		AND container = NEW.container AND id <= (SELECT id FROM network
		WHERE account = NEW.account AND workspace = NEW.workspace
		AND container = NEW.container ORDER BY id DESC LIMIT 1 OFFSET 1000);
END;
-- They go with their container: the next one of its name has none of them.
CREATE TRIGGER network_gone AFTER DELETE ON containers BEGIN
	DELETE FROM network WHERE account = OLD.account AND workspace = OLD.workspace
		AND container = OLD.id;
END;
CREATE TRIGGER network_anew AFTER UPDATE OF deleting ON containers
WHEN OLD.deleting = 1 AND NEW.deleting = 0 BEGIN
	DELETE FROM network WHERE account = OLD.account AND workspace = OLD.workspace
		AND container = OLD.id;
END;
