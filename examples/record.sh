#!/usr/bin/env bash
# Records the output of `make demo`, unchanged, as docs/demo.txt. The README shows
# that file.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
recording=$(mktemp)
trap 'rm -f "$recording"' EXIT
{
	echo '$ make demo'
	make -s demo
} >"$recording"
cat "$recording" >docs/demo.txt # keeps the file's mode
