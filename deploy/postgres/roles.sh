#!/bin/sh
# Roles, passwords and databases of Fanout and Temporal. Idempotent: runs at every `docker compose up`, and a
# changed password takes effect. If it dies half-way, the next run does the rest.
set -eu

# Fanout gets its password inside a URL, where other characters would mean something else.
check_password() {
    case "$2" in
    "" | *[!A-Za-z0-9._~-]*)
        echo "$1 must not be empty, and may hold only letters, digits and . _ ~ -" >&2
        exit 2
        ;;
    esac
}

check_password POSTGRES_FANOUT_PASSWORD "${ROLE_PASSWORD_FANOUT-}"
check_password POSTGRES_TEMPORAL_PASSWORD "${ROLE_PASSWORD_TEMPORAL-}"

exec psql --no-psqlrc --quiet --dbname=postgres --set=ON_ERROR_STOP=1 --file="$(dirname "$0")/roles.sql"
