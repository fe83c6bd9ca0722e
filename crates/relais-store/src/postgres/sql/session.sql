-- Time limits by the server: they hold even when this process hangs. A plan made while a table was small
-- must not read all of it when it has grown. A bitmap scan or a sort would read all rows of a destination, where
-- a fetch walks an index in order and stops. All of it ends with the transaction.
SELECT pg_postmaster_start_time()::text,
       set_config('statement_timeout', $1, TRUE), set_config('lock_timeout', $2, TRUE),
       set_config('idle_in_transaction_session_timeout', $3, TRUE),
       set_config('enable_seqscan', 'off', TRUE), set_config('enable_bitmapscan', 'off', TRUE),
       set_config('enable_sort', 'off', TRUE), set_config('jit', 'off', TRUE)
