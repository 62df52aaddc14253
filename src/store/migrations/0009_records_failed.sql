-- What went wrong is seldom, and often looked for.
CREATE INDEX records_failed ON records (account, workspace, begin_ms, n) WHERE status >= 400;
