-- At most one of each process: the new one replaces the old. Due after a number of milliseconds of the
-- database's time.
INSERT INTO relais_timer (process_id, step, command_id, after_ms, due_at)
SELECT process_id, step, command_id, after_ms, clock_timestamp() + after_ms * INTERVAL '1 millisecond'
FROM unnest($1::uuid[], $2::text[], $3::uuid[], $4::bigint[])
     AS t (process_id, step, command_id, after_ms)
ON CONFLICT (process_id) DO UPDATE
SET step = excluded.step, command_id = excluded.command_id, after_ms = excluded.after_ms,
    due_at = excluded.due_at
