#!/bin/sh
# Three workers want one resource. One is killed, one is asked to hand over, one is paused past its TTL. Then: who held what, the
# picture of it, the metrics, and the alert that fires. Takes about a minute and leaves everything in one folder.
#
#   docs/demo/demo.sh [FOLDER]        LEASEHOLD=path/to/leasehold   PORT=9464
#
# Nothing is needed but the program (cargo build -p leasehold-cli). With `prometheus` and `curl` the alert is fired by
# Prometheus itself; without, its condition is shown.
set -eu

here=$(cd "$(dirname "$0")/../.." && pwd)
leasehold=${LEASEHOLD:-$here/target/debug/leasehold}
port=${PORT:-9464}
out=${1:-$(mktemp -d)}
mkdir -p "$out"
out=$(cd "$out" && pwd)
export LEASEHOLD_URL="sqlite:$out/leases.db"
unset LEASEHOLD_RESOURCE LEASEHOLD_LEASE_ID LEASEHOLD_TOKEN LEASEHOLD_NAMESPACE LEASEHOLD_CONFIG || true
started=""

say() { printf '\n== %s\n' "$*"; }

# Ends only what was started here.
finish() {
    for pid in $started; do
        kill -CONT "$pid" 2>/dev/null || true
        kill -TERM "$pid" 2>/dev/null || true
    done
}
trap finish EXIT

# until_true WHAT COMMAND…: waits for it, a minute at most.
until_true() {
    what=$1
    shift
    n=0
    until "$@" >/dev/null 2>&1; do
        n=$((n + 1))
        if [ "$n" -gt 600 ]; then
            echo "demo: $what did not come" >&2
            exit 1
        fi
        sleep 0.1
    done
}

held_by() { "$leasehold" ls | grep -q " $1 "; }
ended() { ! kill -0 "$1" 2>/dev/null; }

# worker NAME [OPTION…]: waits for its turn, then works until it is told to end.
worker() {
    name=$1
    shift
    "$leasehold" --holder "$name" --log-file "$out/$name.log" run ledger --ttl 3s --wait forever "$@" \
        -- sh -c 'trap "exit 0" TERM; while :; do sleep 0.1; done' 2>"$out/$name.err" &
    pid=$!
    started="$started $pid"
}

waiting() { "$leasehold" show ledger --json | grep -q "\"waiting\":$1"; }

say "one works, one waits"
worker killed
killed=$pid
until_true "the first worker" held_by killed
worker preempted --metrics-listen "$port"
preempted=$pid
until_true "the second worker's place" waiting 1
"$leasehold" show ledger

say "the first is killed with -9, its guard too: nobody releases, and the TTL frees the resource"
guard=$(ps -o pid= --ppid "$killed" | head -1)
# Stopped first: whichever of the two were left alone for a moment would release.
kill -STOP "$killed"
kill -9 $guard "$killed"
until_true "the second worker" held_by preempted

say "the second has found a grant that ended by its TTL: the metrics say so, and the alert fires"
if command -v curl >/dev/null; then
    until_true "metrics" curl -fs "http://127.0.0.1:$port/metrics"
    curl -fs "http://127.0.0.1:$port/metrics" >"$out/metrics.txt"
    grep '^lease_expiry_forced_total' "$out/metrics.txt"
    grep '^leases_held' "$out/metrics.txt"
fi
if command -v prometheus >/dev/null && command -v curl >/dev/null; then
    cat >"$out/prometheus.yml" <<CONFIG
global: { scrape_interval: 1s, evaluation_interval: 1s }
rule_files: [ "$here/ops/prometheus/rules.yml", "$here/ops/prometheus/alerts.yml" ]
scrape_configs:
  - job_name: demo
    static_configs: [ { targets: [ "127.0.0.1:$port" ] } ]
CONFIG
    prometheus --config.file="$out/prometheus.yml" --storage.tsdb.path="$out/tsdb" \
        --web.listen-address="127.0.0.1:$((port + 1))" >"$out/prometheus.log" 2>&1 &
    prometheus=$!
    started="$started $prometheus"
    fires() { curl -fs "http://127.0.0.1:$((port + 1))/api/v1/alerts" | grep -q '"alertname":"LeaseExpiryForced".*"state":"firing"'; }
    until_true "the alert" fires
    echo "FIRING LeaseExpiryForced, as Prometheus sees it; what to do: docs/runbook.md"
    kill "$prometheus"
else
    echo "LeaseExpiryForced fires when that counter has grown in the last minute (ops/prometheus/alerts.yml)"
fi

say "a third worker waits, and an operator asks the second to hand over: it drains, and the third is in"
worker paused
paused=$pid
until_true "the third worker's place" waiting 1
"$leasehold" preempt ledger --by demo@ops --reason "maintenance" --within 30s
until_true "the end of the second" ended "$preempted"
until_true "the third worker" held_by paused

say "the third is paused past its TTL: its own guard ends its work in time"
kill -STOP "$paused"
free() { ! held_by paused; }
until_true "the end of its lease" free
kill -CONT "$paused"
code=0
wait "$paused" || code=$?
echo "the paused worker woke up and exited with $code: lost, and its command was dead before"

say "who held it, and how each grant ended"
"$leasehold" history ledger

say "the same from the logs of all three, as a picture"
"$leasehold" timeline "$out"/*.log --resource ledger --svg "$out/timeline.svg" --html "$out/timeline.html"
echo
echo "everything is in $out: timeline.html, metrics.txt, the logs"
