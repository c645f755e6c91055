#!/usr/bin/env bash
# What `make demo` runs: builds the demo without a server in it, which takes seconds, and
# runs it on a MongoDB that this machine has, or else in files. It says what it does before
# it does it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
echo 'mongolock: three processes, one lock, and one of them is killed while it has it.'
echo '(1/2) build: 5 s, or up to a minute and a half the first time, when Go compiles the driver too'
began=$SECONDS
../../.ci/build . devmongo_light ../../bin/demo ./croncounter
echo "      built in $((SECONDS - began)) s"
echo '(2/2) the demo: some 10 s'
if [ -z "${MONGODB_URI:-}" ] && [ -x ../../bin/devmongo ]; then # with an embedded server, if nothing else is there
	exec ../../bin/devmongo exec -- ../../bin/demo "$@"
fi
exec ../../bin/demo "$@"
