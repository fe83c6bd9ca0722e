-- The same for every statement of one transaction, and for no other.
SELECT (extract(epoch FROM transaction_timestamp()) * 1000000)::bigint
