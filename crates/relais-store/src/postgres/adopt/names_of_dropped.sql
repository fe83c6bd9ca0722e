-- The names under which a table that does not exist now may have been adopted.
SELECT quote_ident(s.name) || '.' || quote_ident(p.parts[cardinality(p.parts)])
FROM (SELECT parse_ident($1) AS parts) AS p,
     unnest(CASE cardinality(p.parts) WHEN 1 THEN current_schemas(FALSE)::text[] ELSE p.parts[1:1] END) AS s (name)
WHERE cardinality(p.parts) <= 2
