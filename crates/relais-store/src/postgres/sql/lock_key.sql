-- No worker writes a dead letter of this key until it is known what parks it.
SELECT FROM relais_parked_key WHERE origin = $1 AND destination = $2 AND key_hash = md5($3) FOR UPDATE
