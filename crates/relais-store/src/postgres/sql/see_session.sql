-- Which session answers, when its transaction began (the same for every statement of one transaction, and for
-- no other), and whether the session has this statement still.
SELECT pg_backend_pid(), (extract(epoch FROM transaction_timestamp()) * 1000000)::bigint,
       EXISTS (SELECT FROM pg_prepared_statements WHERE statement = $1)
