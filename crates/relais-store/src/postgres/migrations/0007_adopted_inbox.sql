-- Adopted inbox tables: a trigger copies the rows of an application's own table into relais_inbox.

-- The adopted table of a copied row, and the primary key of the row there, as text.
ALTER TABLE relais_inbox
    ADD COLUMN adopted_by text COLLATE "C",
    ADD COLUMN adopted_key text COLLATE "C";
CREATE INDEX relais_inbox_adopted ON relais_inbox (adopted_by, adopted_key) WHERE adopted_by IS NOT NULL;

-- A copied row is not validated: an error here would fail the INSERT of the application. A payload that is no JSON
-- becomes a dead letter instead.
DROP TRIGGER relais_inbox_json ON relais_inbox;
CREATE TRIGGER relais_inbox_json AFTER INSERT OR UPDATE OF payload, headers ON relais_inbox
    FOR EACH ROW WHEN (CASE WHEN NEW.adopted_by IS NULL
                            THEN (NEW.payload::json IS NULL) <> (NEW.payload IS NULL)
                                 OR json_typeof(NEW.headers::json) IS DISTINCT FROM 'object'
                            ELSE FALSE END)
    EXECUTE FUNCTION relais_refuse();
