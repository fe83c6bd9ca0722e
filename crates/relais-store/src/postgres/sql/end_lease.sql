-- The lease of a worker that has left all its scopes.
DELETE FROM relais_lease AS l
WHERE l.worker = $1 AND NOT EXISTS (SELECT FROM relais_worker AS w WHERE w.worker = $1)
