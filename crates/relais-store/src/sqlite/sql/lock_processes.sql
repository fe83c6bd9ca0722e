-- Differs from postgres: nothing to lock, SQLite has one writer. A row comes back if the process is
-- still as the change found it: at its version, or not there, with no other process at its key.
SELECT 1
WHERE CASE ?4
      WHEN 0 THEN NOT EXISTS (SELECT 1 FROM relais_process AS p WHERE p.process_id = ?1)
                  AND NOT EXISTS (SELECT 1 FROM relais_process AS k
                                  WHERE k.process_type = ?2 AND k.business_key = ?3)
      ELSE EXISTS (SELECT 1 FROM relais_process AS v WHERE v.process_id = ?1 AND v.version = ?4)
      END
