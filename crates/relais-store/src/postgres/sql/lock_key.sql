-- Nobody buries a row of this key until we know what holds it.
SELECT FROM relais_parked_key WHERE origin = $1 AND destination = $2 AND key_hash = md5($3) FOR UPDATE
