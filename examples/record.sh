#!/usr/bin/env bash
# Records the demo as docs/demo.txt: what `make demo` prints, as it came. The
# README shows that file.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
recording=$(mktemp)
trap 'rm -f "$recording"' EXIT
{
	echo '$ make demo'
	make -s demo
} >"$recording"
cat "$recording" >docs/demo.txt # with the mode that it has
