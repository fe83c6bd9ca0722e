DELETE FROM relais_parked_key WHERE origin = $1 AND destination = $2 AND key_hash = md5($3)
