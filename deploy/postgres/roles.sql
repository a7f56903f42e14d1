-- Run by roles.sh, with psql, as the superuser.
-- Two roles that cannot see each other's databases: a fault in one system stays there.
\getenv fanout_password ROLE_PASSWORD_FANOUT
\getenv temporal_password ROLE_PASSWORD_TEMPORAL

SELECT format('CREATE ROLE %I LOGIN', wanted.name)
FROM (VALUES ('fanout'), ('temporal')) AS wanted (name)
WHERE NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = wanted.name)
\gexec

ALTER ROLE fanout PASSWORD :'fanout_password';
ALTER ROLE temporal PASSWORD :'temporal_password';

-- CREATE DATABASE runs in no transaction: one statement each.
SELECT format('CREATE DATABASE %I OWNER %I', wanted.name, wanted.owner)
FROM (
    VALUES ('fanout', 'fanout'), ('temporal', 'temporal'), ('temporal_visibility', 'temporal')
) AS wanted (name, owner)
WHERE NOT EXISTS (SELECT 1 FROM pg_database WHERE datname = wanted.name)
\gexec

REVOKE CONNECT, TEMPORARY ON DATABASE fanout, temporal, temporal_visibility FROM PUBLIC;
