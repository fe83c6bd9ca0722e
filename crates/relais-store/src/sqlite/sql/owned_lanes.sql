-- As in postgres.
SELECT lane, epoch FROM relais_lane WHERE scope = ?1 AND owner = ?2 ORDER BY lane
