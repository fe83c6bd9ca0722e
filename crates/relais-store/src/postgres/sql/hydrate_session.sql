-- For the user's statement: a time limit of its own, and the planner as the server has it.
SELECT set_config('statement_timeout', $1, TRUE), set_config('enable_seqscan', 'on', TRUE),
       set_config('enable_bitmapscan', 'on', TRUE)
