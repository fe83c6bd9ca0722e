INSERT INTO relais_timer (process_id, step, command_id, after_ms, due_at)
VALUES (?1, ?2, ?3, ?4, strftime('%Y-%m-%dT%H:%M:%fZ', 'now', (?4 / 1000.0) || ' seconds'))
ON CONFLICT (process_id) DO UPDATE
SET step = excluded.step, command_id = excluded.command_id, after_ms = excluded.after_ms,
    due_at = excluded.due_at
