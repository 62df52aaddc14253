-- The events of a response that was streamed in the background, compressed, once it is over: for whoever reads
-- them again. events_from is the number of the first, since only so many are kept. `bytes` counts them too.
ALTER TABLE responses ADD COLUMN events BLOB;
ALTER TABLE responses ADD COLUMN events_from INTEGER NOT NULL DEFAULT 0;
