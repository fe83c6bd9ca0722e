-- Around the user's statement, which is put in the place of its name: the server writes every type of
-- column as JSON.
SELECT row_to_json(record)::text FROM (
:statement
) AS record
