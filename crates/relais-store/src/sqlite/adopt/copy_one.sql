-- One row by its key.
:copy
FROM :table AS t
WHERE t.:id = ?1 AND :pending AND :is_new
