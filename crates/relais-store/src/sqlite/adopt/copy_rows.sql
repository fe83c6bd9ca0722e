-- The rows that exist, oldest first.
:copy
FROM :table AS t
WHERE :pending AND :is_new
ORDER BY :order
