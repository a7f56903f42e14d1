#!/bin/sh
# The namespace, created once, and usable when this ends: the server learns of a new one only after some seconds.
# Idempotent. The server's address and the namespace come as TEMPORAL_*.
set -eu

: "${TEMPORAL_ADDRESS:?}" "${TEMPORAL_NAMESPACE:?}" "${RETENTION:?}"

# Up to two minutes; then the last error is printed.
try() {
    attempt=0
    until output=$("$@" 2>&1); do
        attempt=$((attempt + 1))
        if [ "$attempt" -ge 60 ]; then
            echo "gave up: $*" >&2
            echo "$output" >&2
            exit 1
        fi
        sleep 2
    done
}

ensure_namespace() {
    temporal operator namespace describe --namespace "$TEMPORAL_NAMESPACE" ||
        temporal operator namespace create --namespace "$TEMPORAL_NAMESPACE" --retention "$RETENTION"
}

try temporal operator cluster health
try ensure_namespace
try temporal workflow count --namespace "$TEMPORAL_NAMESPACE"
echo "namespace $TEMPORAL_NAMESPACE is ready"
