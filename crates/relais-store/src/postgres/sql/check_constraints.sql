-- What a commit would check is checked now.
SET CONSTRAINTS ALL IMMEDIATE
