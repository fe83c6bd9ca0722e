-- Differs from postgres, where free_lanes does it. The others may share its lanes out at once.
DELETE FROM relais_worker WHERE scope = ?1 AND worker = ?2
