#!/bin/sh
# Temporal's tables in both databases, from the schema inside the tool: its version is the image's.
# Idempotent: `setup-schema` leaves a newer version alone, `update-schema` runs only the steps that are missing.
# Address, user and password come as SQL_*; the databases exist already (roles.sql), as Temporal's role makes none.
set -eu

bring_up_to_date() {
    temporal-sql-tool --db "$1" setup-schema -v 0.0
    temporal-sql-tool --db "$1" update-schema --schema-name "postgresql/v12/$2"
}

bring_up_to_date temporal temporal
bring_up_to_date temporal_visibility visibility
