#!/bin/sh
# Checks the model of the batcher: every whole configuration must hold, and
# every removal of a mechanism must be found. Needs spin and gcc; installs
# nothing. LIMIT is the time in seconds that one search may take.
set -u
cd "$(dirname "$0")" || exit 2
LIMIT=${LIMIT:-600}
for tool in spin gcc timeout; do
	command -v "$tool" >/dev/null || { echo "model: $tool is not installed (Debian: apt-get install spin gcc)" >&2; exit 2; }
done
model=$PWD/ferry.pml
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2
failures=0

# search NAME FLAGS...: prints "holds", "found: why", or "unfinished: why".
search() {
	shift
	spin -a "$@" "$model" >spin.log 2>&1 || { echo "unfinished: spin: $(tail -n 1 spin.log)"; return; }
	gcc -O2 -w -DSAFETY -DCOLLAPSE -DVECTORSZ=4096 -DMEMLIM=3000 -o pan pan.c >gcc.log 2>&1 ||
		{ echo "unfinished: gcc: $(tail -n 1 gcc.log)"; return; }
	timeout "$LIMIT" ./pan -m200000 >pan.log 2>&1
	if grep -q '^pan:[0-9]*: \(assertion\|invalid end state\)' pan.log; then
		echo "found: $(sed -n 's/^pan:[0-9]*: \(.*\) (at depth.*/\1/p' pan.log | head -n 1)"
	elif grep -q 'errors: 0' pan.log && ! grep -q -e 'Search not completed' -e 'max search depth too small' pan.log; then
		echo "holds: $(sed -n 's/^ *\([0-9.e+]*\) states, stored.*/\1/p' pan.log) states"
	else
		echo "unfinished: $(grep -m 1 -e pan: -e error pan.log || echo "$LIMIT s are over")"
	fi
}

expect() {
	want=$1; name=$2; shift 2
	verdict=$(search "$name" "$@")
	case $verdict in
	"$want":*) printf 'ok    %-32s %s\n' "$name" "$verdict" ;;
	*) printf 'FAIL  %-32s %s, wanted %s\n' "$name" "$verdict" "$want"; failures=$((failures + 1)) ;;
	esac
}

expect holds "group commit, lane"   -DWAIT=0
expect holds "wait, lane"           -DWAIT=1 -DCLOSES=3
expect holds "wait, no lane"        -DWAIT=1 -DCLOSES=3 -DLANED=0
expect holds "bound of two"         -DWAIT=1 -DBOUND=2
expect holds "three workers"        -DWORKERS=3 -DWAIT=1 -DHORIZON=0 -DCLOSES=1
expect holds "four callers, one worker" -DCALLERS=4 -DBOUND=4 -DHORIZON=0 -DWAIT=1 -DWORKERS=1

expect found "without admission lock"        -DWITHOUT_ADMISSION_LOCK
expect found "without forming lock"          -DWITHOUT_FORMING_LOCK -DWAIT=1
expect found "without oldest deadline"       -DWITHOUT_OLDEST_DEADLINE -DWAIT=1 -DWORKERS=1 -DCLOSES=3
expect found "without close before drain"    -DWITHOUT_CLOSE_BEFORE_DRAIN
expect found "without take and own"          -DWITHOUT_TAKE_AND_OWN
expect found "without leaving out"           -DWITHOUT_LEAVING_OUT
expect found "without lanes"                 -DWITHOUT_LANES
expect found "without answer before release" -DWITHOUT_ANSWER_BEFORE_RELEASE -DBATCH=1
expect found "without recovery"              -DWITHOUT_RECOVERY
expect found "without stir on release"       -DWITHOUT_STIR_ON_RELEASE
expect found "without locked sleep"          -DWITHOUT_LOCKED_SLEEP

[ "$failures" -eq 0 ] || { echo "model: $failures of the searches failed" >&2; exit 1; }
