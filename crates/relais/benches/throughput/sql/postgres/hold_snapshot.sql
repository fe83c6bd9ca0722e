-- As a report or a dump does.
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT FROM relais_outbox LIMIT 1;
