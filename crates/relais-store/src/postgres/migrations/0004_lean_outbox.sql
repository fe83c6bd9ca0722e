-- Replaced by the lean outbox: nothing changes here.
SELECT 1;
