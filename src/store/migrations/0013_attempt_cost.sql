-- What each call of a provider cost, in 10^-12 dollars; 0 where it has no price, and before this was kept.
ALTER TABLE record_attempts ADD COLUMN cost INTEGER NOT NULL DEFAULT 0;
