-- The lane of a row whose key has other than ASCII characters.
SELECT lane FROM relais_outbox WHERE id = ?1
