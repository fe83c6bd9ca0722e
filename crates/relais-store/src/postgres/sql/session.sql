-- Time limits by the server: they hold even when this process hangs. Fences need READ COMMITTED. A
-- plan made while a table was small must not read all of it when it has grown.
SELECT set_config('statement_timeout', $1, FALSE), set_config('lock_timeout', $2, FALSE),
       set_config('idle_in_transaction_session_timeout', $3, FALSE),
       set_config('default_transaction_isolation', 'read committed', FALSE),
       set_config('enable_seqscan', 'off', FALSE), set_config('jit', 'off', FALSE)
