-- The transactions that may have drawn an id of the table and not ended: an INSERT holds this lock
-- from before it draws its id until its transaction ends.
SELECT DISTINCT virtualtransaction
FROM pg_locks
WHERE locktype = 'relation' AND mode = 'RowExclusiveLock' AND granted
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND relation = $1::text::regclass
