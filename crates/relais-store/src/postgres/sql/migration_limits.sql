-- A statement of its own: a time limit does not apply to the statement that sets it. Waiting for another
-- node's migration may take longer than other statements may.
SELECT set_config('statement_timeout', '0', TRUE), set_config('lock_timeout', $1, TRUE)
