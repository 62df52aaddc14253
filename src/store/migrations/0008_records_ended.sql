-- What has ended of late: who follows the records asks for it again and again.
CREATE INDEX records_ended ON records (account, workspace, end_ms) WHERE state <> 0;
